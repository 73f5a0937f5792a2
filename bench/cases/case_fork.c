// case_fork: a server with a large heap that forks a child per task (a snapshot, a worker).
// How much memory does a child have to copy?
//
// The parent allocates MIB of blocks of 16 to 1039 bytes, frees a random half of them, which
// leaves holes everywhere, and replaces one in ten of the rest, as if it worked on. Then it forks
// CHILDREN, AT_ONCE at a time. Each child replaces BLOCKS random blocks of the parent's by new
// ones, reads its private dirty memory (copied parent pages and what it added) and ends. dirty_kib
// is the median of the children; fresh_dirty_kib is the same before a child's first malloc.

#include <sys/wait.h>

#include "cases.h"

enum { MIB, CHILDREN, BLOCKS, AT_ONCE, SEED };
enum { MIN = 16, MAX = 1039 };

static bench_arg_t args[] = {
    {"MIB", "allocated by the parent; half stays", 64, 1, 1 << 16},
    {"CHILDREN", "children", 100, 1, 1 << 16},
    {"BLOCKS", "that each child replaces", 1000, 0, UINT32_MAX},
    {"AT_ONCE", "children at a time", 2, 1, 1024},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

// Lies in memory that is shared with the children; each child writes its own entry.
typedef struct result {
  uint64_t fresh_kib, dirty_kib;
  uint64_t ops;
} result_t;

static void **blocks;
static uint64_t count;

static void *alloc_one(bench_rng_t *rng) {
  return alloc_marked(MIN + bench_low(bench_next(rng), MAX - MIN + 1));
}

static void replace_some(bench_rng_t *rng, uint64_t times) {
  for (uint64_t i = 0; i < times; i++) {
    void **victim = &blocks[bench_high(bench_next(rng), count)];
    free_marked(*victim, MAX);
    *victim = alloc_one(rng);
  }
}

static _Noreturn void be_child(uint64_t number, result_t *result) {
  bench_rng_t rng = bench_rng(args[SEED].value, number + 1);
  result->fresh_kib = case_smaps_kib("\nPrivate_Dirty:");
  replace_some(&rng, args[BLOCKS].value);
  result->dirty_kib = case_smaps_kib("\nPrivate_Dirty:");
  result->ops = 2 * args[BLOCKS].value;
  _exit(0);
}

static void await_child(void) {
  int status;
  if (wait(&status) < 0) bench_die("wait");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) bench_wrong("a child's exit status");
}

static void fill(void) {
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  for (uint64_t i = 0; i < count; i++) blocks[i] = alloc_one(&rng);
  uint64_t kept = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (bench_next(&rng) >> 63) blocks[kept++] = blocks[i];
    else free_marked(blocks[i], MAX);
  }
  count = kept != 0 ? kept : 1;
  if (kept == 0) blocks[0] = alloc_one(&rng);
  replace_some(&rng, count / 10);
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_fork",
               .what = "A parent with a large heap forks children that allocate, free and end.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  const uint64_t children = args[CHILDREN].value;
  count = (args[MIB].value << 20) / ((MIN + MAX) / 2);
  blocks = bench_map(count * sizeof *blocks);
  fill();
  result_t *results = mmap(NULL, children * sizeof *results, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (results == MAP_FAILED) bench_die("mmap");
  uint64_t *fresh = bench_map(children * sizeof *fresh), *dirty = bench_map(children * sizeof *dirty);
  const uint64_t parent_kib = case_rss_kib();
  bench_run_t run = {0};
  const uint64_t start = bench_now_ns();
  for (uint64_t i = 0; i < children; i++) {
    if (i >= args[AT_ONCE].value) await_child();
    pid_t child = fork();
    if (child < 0) bench_die("fork");
    if (child == 0) be_child(i, &results[i]);
  }
  for (uint64_t i = 0; i < children && i < args[AT_ONCE].value; i++) await_child();
  run.ns = bench_now_ns() - start;
  for (uint64_t i = 0; i < children; i++) {
    run.ops += results[i].ops;
    fresh[i] = results[i].fresh_kib;
    dirty[i] = results[i].dirty_kib;
  }
  for (uint64_t i = 0; i < count; i++) free_marked(blocks[i], MAX);
  const double child_ns = (double)run.ns / (double)children;
  bench_report_extra(&b, run, (bench_run_t){0}, bench_peak_rss_kib(),
                     (bench_value_t[]){{"child_ns", child_ns},
                                       {"parent_rss_kib", (double)parent_kib},
                                       {"fresh_dirty_kib", (double)case_median(fresh, children)},
                                       {"dirty_kib", (double)case_median(dirty, children)},
                                       {0}});
  return 0;
}
