// bench_fragment: how much memory remains resident after a peak, while the program goes on.
//
//   bench_fragment [MIB] [GROUP] [KEEP] [ROUNDS] [SEED]
//
// Builds MIB of blocks of 16 to 2047 bytes in groups of GROUP neighbours and frees all but
// KEEP percent of the groups, chosen at random. Then, in each round, it replaces a quarter of
// its groups by new ones. At the peak, after the frees, and after the first and every fifth
// round it prints resident memory, from /proc/self/statm, beside what the program holds; with
// --json the last of these alone. With GROUP 1 no slab becomes entirely free; with large groups
// most do.

#include "cases/cases.h"

enum { LARGEST = 2048 };

typedef struct {
  void **blocks;
  size_t bytes;
} group_t;

enum { MIB, GROUP, KEEP, ROUNDS, SEED };

static bench_arg_t args[] = {
    {"MIB", "size of the peak", 200, 1, 1 << 20},
    {"GROUP", "neighbouring blocks that are freed together", 2000, 1, 1 << 30},
    {"KEEP", "per cent of the groups that outlive the peak", 10, 0, 100},
    {"ROUNDS", "each replaces a quarter of the groups", 20, 0, UINT32_MAX},
    {"SEED", "of sizes and choices", 42, 0, UINT64_MAX},
    {NULL, NULL, 0, 0, 0}};

static uint64_t group_size;
static bench_rng_t rng;
static size_t live;
static uint64_t calls; // of malloc and free

static void build(group_t *group) {
  group->bytes = 0;
  for (uint64_t i = 0; i < group_size; i++) {
    size_t size = 16 + bench_low(bench_next(&rng), LARGEST - 16);
    group->blocks[i] = malloc(size);
    if (!group->blocks[i]) bench_die("malloc");
    memset(group->blocks[i], 1, size);
    group->bytes += size;
  }
  calls += group_size;
  live += group->bytes;
}

static void drop(group_t *group) {
  for (uint64_t i = 0; i < group_size; i++) free(group->blocks[i]);
  calls += group_size;
  live -= group->bytes;
  group->bytes = 0;
}

static void report(const bench_t *bench, const char *step) {
  if (!bench->json)
    printf("%-12s live %8.1f MiB  resident %8.1f MiB\n", step, (double)live / 1048576,
           (double)case_rss_kib() / 1024);
}

int main(int argc, char **argv) {
  bench_t bench = {.name = "bench_fragment",
                   .what = "What memory remains after a peak, while the program works on.",
                   .args = args,
                   .no_net = true};
  bench_parse(&bench, argc, argv);
  group_size = args[GROUP].value;
  rng = bench_rng(args[SEED].value, 0);
  uint64_t count = args[MIB].value * 1048576 / (LARGEST / 2 + 8) / group_size;
  if (count == 0) bench_usage(&bench, "GROUP (there is no room for one)");
  group_t *groups = mmap(NULL, count * sizeof *groups, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void **table = mmap(NULL, count * group_size * sizeof *table, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (groups == MAP_FAILED || table == MAP_FAILED) bench_die("mmap");
  uint64_t start = bench_cpu_ns();
  for (uint64_t i = 0; i < count; i++) {
    groups[i].blocks = table + i * group_size;
    build(&groups[i]);
  }
  report(&bench, "peak");
  uint64_t kept = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (bench_high(bench_next(&rng), 100) >= args[KEEP].value) {
      drop(&groups[i]);
    } else {
      group_t group = groups[kept];
      groups[kept++] = groups[i];
      groups[i] = group;
    }
  }
  report(&bench, "freed");
  for (uint64_t round = 1; round <= args[ROUNDS].value; round++) {
    for (uint64_t i = 0; i < kept / 4; i++) {
      group_t *group = &groups[bench_high(bench_next(&rng), kept)];
      drop(group);
      build(group);
    }
    char step[24];
    snprintf(step, sizeof step, "round %u", (unsigned)round);
    if (round == 1 || round % 5 == 0) report(&bench, step);
  }
  if (bench.json) {
    bench_run_t run = {.ops = calls, .ns = bench_cpu_ns() - start};
    bench_value_t end[] = {
        {"live_kib", (double)live / 1024}, {"end_rss_kib", (double)case_rss_kib()}, {NULL, 0}};
    bench_report_extra(&bench, run, (bench_run_t){0}, bench_peak_rss_kib(), end);
  }
  return 0;
}
