// alloc_test: a working set whose items are replaced at random, after S. Ignatchenko
// (ITHare), "Testing Memory Allocators: ptmalloc2 vs tcmalloc vs hoard vs jemalloc",
// 2018.
//
// Each thread has ITEMS slots. An iteration picks one; a few slots are picked often and
// many seldom (80 % of the picks go to 20 % of the slots, and so on within these).
// If the slot holds a block, the block is read and freed; otherwise a block is allocated
// and each of its bytes is written. Small sizes are likely: from one power of two to the
// next, up to 2^MAXLOG, the probability halves.

#include "standard.h"

enum { THREADS, ITER, ITEMS, MAXLOG, SEED };
enum { LOG_MIN = 3, PARETO_LEVELS = 6 };

static bench_arg_t args[] = {
    {"THREADS", "threads", 1, 1, 4096},
    {"ITER", "iterations, of all threads together", 20000000, 1, UINT64_MAX / 2},
    {"ITEMS", "slots, of all threads together", 100000, 1, UINT32_MAX},
    {"MAXLOG", "exponent of the largest size", 10, LOG_MIN + 1, 30},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct actor {
  bench_rng_t rng;
  uint64_t items;
  uint64_t iterations;
  void **slots;
  uint64_t ops;
} __attribute__((aligned(128))) actor_t;

// Repeatedly, with probability 4/5, narrows the range of slots to its first fifth.
static BENCH_INLINE uint64_t pick(uint64_t random, uint64_t items) {
  uint64_t bits = random >> 32;
  for (unsigned level = 0; level < PARETO_LEVELS && items >= 5; level++, bits >>= 5) {
    if ((bits & 31) < 26) items /= 5;
    else break;
  }
  return bench_low(random, items);
}

static BENCH_INLINE size_t size_of(uint64_t random, unsigned max_log) {
  unsigned range = max_log - LOG_MIN;
  unsigned log = (unsigned)__builtin_ctzll(random | ((uint64_t)1 << (range - 1)));
  uint64_t power = (uint64_t)1 << (LOG_MIN + log);
  return power + bench_high(random, power);
}

static uint64_t sum_of(const unsigned char *p, size_t size) {
  uint64_t sum = 0;
  for (size_t i = 0; i < size; i++) sum += p[i];
  return sum;
}

static void put(void **slot, size_t size) {
  unsigned char *p = bench_alloc(NULL, size);
  memset(p, (int)(size & 127), size);
  mark(p, size);
  *slot = p;
}

static void take(void **slot, size_t max) {
  unsigned char *p = *slot;
  size_t size = unmark(p, max);
  size_t middle = size > MARK_MIN + 1 ? size - MARK_MIN - 1 : 0;
  if (sum_of(p + MARK_MIN, middle) != middle * (size & 127)) bench_wrong("a block's content");
  free(p);
  *slot = NULL;
}

static void *act(void *arg) {
  actor_t *me = arg;
  const unsigned max_log = (unsigned)args[MAXLOG].value;
  const size_t max = (size_t)1 << max_log;
  for (uint64_t i = 0; i < me->iterations; i++) {
    void **slot = &me->slots[pick(bench_next(&me->rng), me->items)];
    if (*slot != NULL) take(slot, max);
    else put(slot, size_of(bench_next(&me->rng), max_log));
  }
  me->ops = me->iterations;
  for (uint64_t i = 0; i < me->items; i++) {
    if (me->slots[i] == NULL) continue;
    take(&me->slots[i], max);
    me->ops++;
  }
  return NULL;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "alloc_test",
               .what = "Threads that each replace random items of a working set.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  const uint64_t threads = args[THREADS].value;
  actor_t *actors = bench_map(threads * sizeof *actors);
  for (uint64_t i = 0; i < threads; i++) {
    actors[i].rng = bench_rng(args[SEED].value, i);
    actors[i].items = args[ITEMS].value / threads + 1;
    actors[i].iterations = args[ITER].value / threads;
    actors[i].slots = bench_map(actors[i].items * sizeof(void *));
  }
  uint64_t start = bench_clock_ns(args[THREADS].value);
  run_team(threads, act, actors, sizeof *actors);
  bench_run_t run = {.ns = bench_clock_ns(args[THREADS].value) - start};
  for (uint64_t i = 0; i < threads; i++) run.ops += actors[i].ops;
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
