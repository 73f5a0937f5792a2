// glibc_thread: threads that replace random blocks of random sizes, after the idea of
// bench-malloc-thread in the GNU C Library's own benchmarks.
//
// Each thread has 1024 blocks and replaces a random one by a new one. Sizes run from 8
// bytes to 32 KiB with a density that falls as size^-0.9, close to what real programs
// ask for; they are drawn beforehand. Even with one thread, that is the second thread
// of the process, so locks are needed.

#include "standard.h"

enum { THREADS, ITER, SEED };
enum { BLOCKS = 1024, SIZES = 8192, SMALLEST = 8, LARGEST = 32768 };

static bench_arg_t args[] = {
    {"THREADS", "threads", 1, 1, 4096},
    {"ITER", "replacements, of all threads together", 10000000, 1, UINT64_MAX / 4},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct actor {
  bench_rng_t rng;
  uint64_t iterations;
  void *blocks[BLOCKS];
  uint32_t sizes[SIZES];
} __attribute__((aligned(128))) actor_t;

// The inverse of the distribution function of the density size^-0.9.
static uint32_t draw_size(bench_rng_t *rng) {
  const double power = 1.0 - 0.9;
  double low = pow(SMALLEST, power), high = pow(LARGEST, power);
  double uniform = (double)(bench_next(rng) >> 11) / 9007199254740992.0; // 2^53
  return (uint32_t)pow(low + (high - low) * uniform, 1.0 / power);
}

static void *act(void *arg) {
  actor_t *me = arg;
  for (unsigned i = 0; i < BLOCKS; i++) me->blocks[i] = alloc_marked(me->sizes[i]);
  for (uint64_t i = 0; i < me->iterations; i++) {
    uint64_t random = bench_next(&me->rng);
    void **slot = &me->blocks[bench_high(random, BLOCKS)];
    free_marked(*slot, LARGEST);
    *slot = alloc_marked(me->sizes[bench_low(random, SIZES)]);
  }
  for (unsigned i = 0; i < BLOCKS; i++) free_marked(me->blocks[i], LARGEST);
  return NULL;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "glibc_thread",
               .what = "Threads that replace random blocks, small sizes being likely.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  const uint64_t threads = args[THREADS].value;
  actor_t *actors = bench_map(threads * sizeof *actors);
  for (uint64_t i = 0; i < threads; i++) {
    actors[i].rng = bench_rng(args[SEED].value, i);
    actors[i].iterations = args[ITER].value / threads;
    for (unsigned k = 0; k < SIZES; k++) {
      uint32_t size = draw_size(&actors[i].rng);
      actors[i].sizes[k] = size < SMALLEST ? SMALLEST : size > LARGEST ? LARGEST : size;
    }
  }
  uint64_t start = bench_clock_ns(args[THREADS].value);
  run_team(threads, act, actors, sizeof *actors);
  bench_run_t run = {.ns = bench_clock_ns(args[THREADS].value) - start,
                     .ops = 2 * threads * (args[ITER].value / threads + BLOCKS)};
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
