// case_sleeper: the main thread sets up what the others work on, and then waits for them.
//
// It allocates MIB of blocks and sleeps. A second thread frees them all in random order, waits
// SLEEP_MS, and allocates as much itself. Resident memory is read after the setup, the frees, the
// wait and the second allocation: again_rss_kib is what it takes to hold that memory once.

#include "cases.h"

enum { MIB, SLEEP_MS, SEED, MIN, MAX };

static bench_arg_t args[] = {
    {"MIB", "allocated by each of the two", 256, 1, 1 << 20},
    {"SLEEP_MS", "between freeing and allocating", 1000, 0, 100000},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {"--min", "smallest block in bytes", 16, 16, 1 << 20},
    {"--max", "largest block in bytes", 1039, 16, 1 << 20},
    {0},
};

static void **blocks;
static uint64_t count;
static bench_rng_t rng;
enum { SET_UP, FREED, IDLE, AGAIN, READINGS };
static uint64_t rss[READINGS], worked_ns;

static void allocate(void) {
  const size_t min = args[MIN].value, span = args[MAX].value - min + 1;
  count = 0;
  for (uint64_t sum = 0; sum < args[MIB].value << 20; count++) {
    size_t size = min + bench_high(bench_next(&rng), span);
    blocks[count] = alloc_marked(size);
    sum += size;
  }
}

static void release(void) {
  for (uint64_t i = 0; i < count; i++) free_marked(blocks[i], args[MAX].value);
}

static void *work(void *arg) {
  uint64_t start = bench_now_ns();
  release();
  worked_ns += bench_now_ns() - start;
  rss[FREED] = case_rss_kib();
  case_sleep_until(bench_now_ns() + args[SLEEP_MS].value * 1000000u);
  rss[IDLE] = case_rss_kib();
  start = bench_now_ns();
  allocate();
  worked_ns += bench_now_ns() - start;
  rss[AGAIN] = case_rss_kib();
  return arg;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_sleeper",
               .what = "Memory of a thread that set up data, which others freed, and sleeps.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "--min is above --max");
  rng = bench_rng(args[SEED].value, 0);
  const uint64_t mean = (args[MIN].value + args[MAX].value) / 2;
  const uint64_t room = (args[MIB].value << 20) / mean * 9 / 8 + 1024;
  blocks = bench_map(room * sizeof *blocks);
  const uint64_t base = case_rss_kib();
  allocate();
  for (uint64_t i = count - 1; i > 0; i--) {
    uint64_t k = bench_high(bench_next(&rng), i + 1);
    void *block = blocks[i];
    blocks[i] = blocks[k];
    blocks[k] = block;
  }
  rss[SET_UP] = case_rss_kib();
  pthread_join(start_thread(work, NULL), NULL);
  bench_run_t run = {.ops = 2 * count, .ns = worked_ns};
  const uint64_t peak = bench_peak_rss_kib();
  release();
  // Subtracts what the program had before, which includes the table.
#define KIB(value) ((value) > base ? (double)((value) - base) : 0.0)
  bench_report_extra(&b, run, (bench_run_t){0}, peak,
                     (bench_value_t[]){{"base_rss_kib", (double)base},
                                       {"full_rss_kib", KIB(rss[SET_UP])},
                                       {"freed_rss_kib", KIB(rss[FREED])},
                                       {"idle_rss_kib", KIB(rss[IDLE])},
                                       {"again_rss_kib", KIB(rss[AGAIN])},
                                       {0}});
  return 0;
}
