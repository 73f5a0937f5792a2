// case_scale: one loop at any length and any amount of live memory. Figures of a short run
// on a small heap say little about a long one on a large heap.
//
// Fills LIVE_KIB with blocks of MIN to MAX bytes, then replaces random ones in OPS calls of
// malloc and free; ns_per_op is the time of these calls. fill_ns_per_op is that of the first
// filling, including its page faults.

#include "cases.h"

enum { OPS, LIVE_KIB, MIN, MAX, SEED };

static bench_arg_t args[] = {
    {"OPS", "calls of malloc and free, besides filling", 1000000, 2, 10000000000},
    {"LIVE_KIB", "of blocks alive", 65536, 1, 1 << 26},
    {"MIN", "smallest block in bytes", 16, MARK_MIN, 1 << 30},
    {"MAX", "largest block in bytes", 1039, MARK_MIN, 1 << 30},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

static BENCH_NOINLINE void replace(void **blocks, uint64_t slots, bench_rng_t *rng, uint64_t times) {
  const uint64_t max = args[MAX].value, min = args[MIN].value, span = max - min + 1;
  for (uint64_t i = 0; i < times; i++) {
    uint64_t random = bench_next(rng);
    void **victim = &blocks[bench_high(random, slots)];
    free_marked(*victim, max);
    *victim = alloc_marked(min + bench_low(random, span));
  }
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_scale",
               .what = "Replaces random blocks: any number of times, any live size.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "MIN is above MAX");
  const uint64_t min = args[MIN].value, span = args[MAX].value - min + 1;
  const uint64_t wanted = (args[LIVE_KIB].value << 10) / ((min + args[MAX].value) / 2);
  const uint64_t slots = wanted != 0 ? wanted : 1;
  void **blocks = bench_map(slots * sizeof *blocks);
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  const uint64_t base = case_rss_kib();
  uint64_t start = bench_cpu_ns();
  for (uint64_t i = 0; i < slots; i++)
    blocks[i] = alloc_marked(min + bench_high(bench_next(&rng), span));
  const double fill_ns = (double)(bench_cpu_ns() - start) / (double)slots;
  start = bench_cpu_ns();
  replace(blocks, slots, &rng, args[OPS].value / 2);
  bench_run_t run = {.ops = args[OPS].value / 2 * 2, .ns = bench_cpu_ns() - start};
  const double held = (double)case_rss_kib() - (double)base;
  uint64_t live = 0;
  for (uint64_t i = 0; i < slots; i++) {
    live += unmark(blocks[i], args[MAX].value);
    free(blocks[i]);
  }
  bench_report_extra(&b, run, (bench_run_t){0}, bench_peak_rss_kib(),
                     (bench_value_t[]){{"fill_ns_per_op", fill_ns},
                                       {"live_kib", (double)(live >> 10)},
                                       {"rss_kib", held},
                                       {"rss_per_live", held * 1024 / (double)live},
                                       {0}});
  return 0;
}
