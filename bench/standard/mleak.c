// mleak: does the end of a thread leak memory? After the idea of mleak in
// mimalloc-bench (D. Leijen and others).
//
// GENERATIONS times, THREADS threads are created, work and end. Each frees the blocks
// that another thread left to it, allocates BLOCKS blocks of 8 bytes to 4 KiB, frees
// three of four and leaves the rest. Live memory never exceeds some MiB, so memory that
// grows with GENERATIONS has been leaked by ended threads. The peak is the result; with
// --limit the program fails if the peak exceeds that many MiB.

#include "standard.h"

enum { GENERATIONS, THREADS, BLOCKS, LIMIT, SEED };
enum { LEAVES = 4, LOG_MIN = 3, LOG_MAX = 12 };

static bench_arg_t args[] = {
    {"GENERATIONS", "of threads", 2000, 1, UINT32_MAX},
    {"THREADS", "per generation", 4, 1, 4096},
    {"BLOCKS", "that each thread allocates", 1000, 1, UINT32_MAX},
    {"--limit", "of the peak RSS in MiB; 0: none", 0, 0, UINT32_MAX},
    {"--seed", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct actor {
  bench_rng_t rng;
  void **left;  // for its successor
  void **finds; // blocks that another thread left; all NULL at first
  void **blocks;
  uint64_t ops;
} __attribute__((aligned(128))) actor_t;

static void *act(void *arg) {
  actor_t *me = arg;
  const uint64_t blocks = args[BLOCKS].value;
  const size_t max = (size_t)1 << LOG_MAX;
  for (uint64_t i = 0; i < blocks; i += LEAVES) {
    if (me->finds[i / LEAVES] == NULL) continue;
    free_marked(me->finds[i / LEAVES], max);
    me->finds[i / LEAVES] = NULL;
    me->ops++;
  }
  for (uint64_t i = 0; i < blocks; i++)
    me->blocks[i] = alloc_marked(bench_log_size(&me->rng, LOG_MIN, LOG_MAX));
  me->ops += blocks;
  for (uint64_t i = 0; i < blocks; i++) {
    if (i % LEAVES == 0) {
      me->left[i / LEAVES] = me->blocks[i];
    } else {
      free_marked(me->blocks[i], max);
      me->ops++;
    }
  }
  return NULL;
}

// Gives every thread the blocks that its neighbour has left.
static void next_generation(actor_t *actors, uint64_t threads) {
  for (uint64_t i = 0; i < threads; i++) {
    void **emptied = actors[i].finds;
    actors[i].finds = actors[(i + 1) % threads].left;
    actors[(i + 1) % threads].left = emptied;
  }
}

int main(int argc, char **argv) {
  bench_t b = {.name = "mleak",
               .what = "Generations of threads that leave blocks to each other.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  const uint64_t threads = args[THREADS].value, blocks = args[BLOCKS].value;
  actor_t *actors = bench_map(threads * sizeof *actors);
  for (uint64_t i = 0; i < threads; i++) {
    actors[i].rng = bench_rng(args[SEED].value, i);
    actors[i].left = bench_map((blocks / LEAVES + 1) * sizeof(void *));
    actors[i].finds = bench_map((blocks / LEAVES + 1) * sizeof(void *));
    actors[i].blocks = bench_map(blocks * sizeof(void *));
  }
  bench_run_t run = {0};
  uint64_t start = bench_clock_ns(args[THREADS].value);
  for (uint64_t i = 0; i < args[GENERATIONS].value; i++) {
    run_team(threads, act, actors, sizeof *actors);
    next_generation(actors, threads);
  }
  run.ns = bench_clock_ns(args[THREADS].value) - start;
  for (uint64_t i = 0; i < threads; i++) {
    for (uint64_t k = 0; k < blocks; k += LEAVES)
      free_marked(actors[i].finds[k / LEAVES], (size_t)1 << LOG_MAX);
    run.ops += actors[i].ops;
  }
  uint64_t rss = bench_peak_rss_kib();
  if (args[LIMIT].value != 0 && rss > args[LIMIT].value * 1024) bench_wrong("peak RSS");
  bench_report(&b, run, (bench_run_t){0}, rss);
  return 0;
}
