// bench_random_mixed: one thread, a table of slots, blocks of random sizes.
//
// Each iteration picks a random slot: an occupied one is freed, an empty one
// gets a block of random size, whose first and last bytes are written. In steady
// state half of the slots are occupied. An op is a malloc or a free, so there is
// one op per iteration. Filling the table is part of the run; emptying it is not.

#include "common.h"

enum { ITER, WORKINGSET, SEED, MIN, MAX };

static bench_arg_t args[] = {
    {"ITER", "iterations", 10000000, 1, UINT64_MAX},
    {"WORKINGSET", "slots", 8192, 1, UINT32_MAX},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {"MIN", "smallest block in bytes", 16, 1, UINT32_MAX - 1},
    {"MAX", "largest block in bytes", 1040, 1, UINT32_MAX - 1},
    {0},
};

static BENCH_INLINE bench_run_t loop(bench_ring_t *ring, void **slots) {
  const uint64_t iterations = args[ITER].value, slot_count = args[WORKINGSET].value;
  const uint64_t min = args[MIN].value, span = args[MAX].value - min + 1;
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  uint64_t start = bench_cpu_ns();
  for (uint64_t i = 0; i < iterations; i++) {
    uint64_t random = bench_next(&rng);
    void **slot = &slots[bench_high(random, slot_count)];
    if (*slot != NULL) {
      bench_free(ring, *slot);
      *slot = NULL;
    } else {
      size_t size = min + bench_low(random, span);
      void *p = bench_alloc(ring, size);
      bench_touch(p, 0);
      bench_touch(p, size - 1);
      *slot = p;
    }
  }
  bench_run_t run = {.ops = iterations, .ns = bench_cpu_ns() - start};
  for (uint64_t i = 0; i < slot_count; i++) {
    if (slots[i] != NULL) bench_free(ring, slots[i]);
    slots[i] = NULL;
  }
  return run;
}

static BENCH_NOINLINE bench_run_t run_real(void **slots) { return loop(NULL, slots); }

static BENCH_NOINLINE bench_run_t run_floor(const bench_ring_t *ring, void **slots) {
  bench_ring_t local = *ring;
  return loop(&local, slots);
}

int main(int argc, char **argv) {
  bench_t b = {.name = "bench_random_mixed",
               .what = "Allocate and free blocks of random sizes in random order.",
               .args = args};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "MIN is above MAX");

  void **slots = bench_map(args[WORKINGSET].value * sizeof *slots);
  bench_run_t real = run_real(slots), floor = {0};
  uint64_t rss = bench_peak_rss_kib();
  if (b.net) {
    uint64_t live = args[WORKINGSET].value * (args[MIN].value + args[MAX].value) / 4;
    bench_ring_t ring = bench_ring(live, args[MAX].value);
    for (int i = 0; i < BENCH_FLOOR_RUNS; i++) floor = bench_least(floor, run_floor(&ring, slots));
  }
  bench_report(&b, real, floor, rss);
  return 0;
}
