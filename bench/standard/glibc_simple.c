// glibc_simple: bursts of blocks of one size, after the idea of bench-malloc-simple in
// the GNU C Library's own benchmarks.
//
// For each of several sizes and for 25, 100, 400 and 1600 blocks: that many are allocated
// and then freed in the order of their allocation, ROUNDS times in all for 1600 blocks,
// and more often for fewer, so that each count makes the same number of calls. There is
// one thread, and the program never starts another: an allocator may skip its locks.

#include "standard.h"

enum { ROUNDS, SIZE };
enum { MOST = 1600 };

static bench_arg_t args[] = {
    {"ROUNDS", "of 1600 blocks, per size and count", 300, 1, UINT32_MAX},
    {"SIZE", "of a block in bytes; 0: 16, 64, 128, 512, 2048, 4096 in turn", 0, 0, 1 << 24},
    {0},
};

static const uint64_t counts[] = {25, 100, 400, MOST};
static const size_t sizes[] = {16, 64, 128, 512, 2048, 4096};

static uint64_t run_bursts(void **blocks, size_t size, uint64_t count) {
  const uint64_t bursts = args[ROUNDS].value * (MOST / count);
  for (uint64_t burst = 0; burst < bursts; burst++) {
    for (uint64_t i = 0; i < count; i++) blocks[i] = alloc_marked(size);
    for (uint64_t i = 0; i < count; i++) free_marked(blocks[i], size);
  }
  return 2 * bursts * count;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "glibc_simple",
               .what = "One thread, bursts of blocks of one size.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  const size_t fixed = args[SIZE].value;
  if (fixed != 0 && fixed < MARK_MIN) bench_usage(&b, "SIZE is below 8");
  void **blocks = bench_map(MOST * sizeof *blocks);
  bench_run_t run = {0};
  uint64_t start = bench_cpu_ns();
  for (unsigned s = 0; s < (fixed != 0 ? 1 : sizeof sizes / sizeof *sizes); s++)
    for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++)
      run.ops += run_bursts(blocks, fixed != 0 ? fixed : sizes[s], counts[c]);
  run.ns = bench_cpu_ns() - start;
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
