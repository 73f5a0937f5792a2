// bench_tiny_hot: the hit path and nothing else.
//
// One thread allocates a batch of small blocks, touches each, and frees them in
// reverse order, again and again. The batch (100 blocks of 16 bytes) fits in most
// allocators' per-thread caches (glibc's holds fewer), so after the first round every
// malloc and every free should be a hit. The whole batch is live at once, so an
// allocator cannot shine with a cache of one block. An op is a malloc or a free.

#include "common.h"

enum { ITER, SIZE, BATCH };

static bench_arg_t args[] = {
    {"ITER", "ops (rounded up to whole batches)", 100000000, 1, UINT64_MAX / 4},
    {"--size", "bytes per block", 16, 1, UINT32_MAX},
    {"--batch", "blocks live at once", 100, 1, 1u << 24},
    {0},
};

static BENCH_INLINE bench_run_t loop(bench_ring_t *ring, void **blocks) {
  const size_t size = args[SIZE].value, batch = args[BATCH].value;
  const uint64_t rounds = (args[ITER].value + 2 * batch - 1) / (2 * batch);
  uint64_t start = bench_cpu_ns();
  for (uint64_t round = 0; round < rounds; round++) {
    for (size_t i = 0; i < batch; i++) {
      blocks[i] = bench_alloc(ring, size);
      bench_touch(blocks[i], 0);
    }
    for (size_t i = batch; i-- > 0;) {
      bench_touch(blocks[i], size - 1);
      bench_free(ring, blocks[i]);
    }
  }
  return (bench_run_t){.ops = rounds * 2 * batch, .ns = bench_cpu_ns() - start};
}

static BENCH_NOINLINE bench_run_t run_real(void **blocks) { return loop(NULL, blocks); }

static BENCH_NOINLINE bench_run_t run_floor(const bench_ring_t *ring, void **blocks) {
  bench_ring_t local = *ring;
  return loop(&local, blocks);
}

int main(int argc, char **argv) {
  bench_t b = {.name = "bench_tiny_hot",
               .what = "Allocate a batch of small blocks and free them in reverse order.",
               .args = args};
  bench_parse(&b, argc, argv);

  void **blocks = bench_map(args[BATCH].value * sizeof *blocks);
  bench_run_t real = run_real(blocks), floor = {0};
  uint64_t rss = bench_peak_rss_kib();
  if (b.net) {
    bench_ring_t ring = bench_ring(args[BATCH].value * args[SIZE].value, args[SIZE].value);
    for (int i = 0; i < BENCH_FLOOR_RUNS; i++) floor = bench_least(floor, run_floor(&ring, blocks));
  }
  bench_report(&b, real, floor, rss);
  return 0;
}
