// mstress: mixed sizes, lifetimes and owners, after the idea of mimalloc's stress test
// (D. Leijen, B. Zorn, L. de Moura, "Mimalloc: Free List Sharding in Action", 2019).
//
// In each of ROUNDS rounds THREADS threads are created, do STEPS steps and end. A step
// allocates a short-lived block, or frees one, or makes one lasting (kept into the next
// round, where a new thread finds it), or exchanges one for a block of another thread
// through a table that all threads share. Between rounds the main thread frees half of
// that table. Most sizes are below 1 KiB; one in 64 goes up to 32 KiB, one in 2048 up to
// 1 MiB.

#include "standard.h"

enum { THREADS, ROUNDS, STEPS, SEED };
enum { SHORT_LIVED = 2048, LASTING = 4096, TRANSFERS = 1024, LOG_MIN = 3, LOG_MAX = 20 };

static bench_arg_t args[] = {
    {"THREADS", "threads", 2, 1, 4096},
    {"ROUNDS", "in each of which the threads are created anew", 40, 1, UINT32_MAX},
    {"STEPS", "in a round, of all threads together", 400000, 1, UINT32_MAX},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

// Belongs to the thread that runs it and, between rounds, to the main thread.
typedef struct actor {
  bench_rng_t rng;
  uint64_t steps;
  uint64_t ops;
  uint64_t count;
  void *short_lived[SHORT_LIVED];
  void *lasting[LASTING];
} __attribute__((aligned(128))) actor_t;

// A block or NULL. Exchanged with acquire and release: the thread that gets a block also sees
// what its last owner wrote to it.
static _Atomic(void *) transfers[TRANSFERS];

static void *alloc_one(actor_t *me) {
  uint64_t dice = bench_next(&me->rng) >> 53; // 0 .. 2047
  me->ops++;
  return alloc_marked(bench_log_size(&me->rng, LOG_MIN, dice == 0 ? LOG_MAX : dice < 32 ? 15 : 10));
}

static void free_one(actor_t *me, void *p) {
  if (p == NULL) return;
  free_marked(p, (size_t)1 << LOG_MAX);
  me->ops++;
}

static void *exchange(uint64_t slot, void *p) {
  return atomic_exchange_explicit(&transfers[slot], p, memory_order_acq_rel);
}

static void do_step(actor_t *me) {
  uint64_t random = bench_next(&me->rng), what = bench_high(random, 16);
  if (me->count == 0 || (what < 8 && me->count < SHORT_LIVED)) {
    me->short_lived[me->count++] = alloc_one(me);
    return;
  }
  void **victim = &me->short_lived[bench_low(random, me->count)];
  void *p = *victim;
  if (what < 12) {
    *victim = exchange(bench_low(random >> 7, TRANSFERS), p);
    if (*victim != NULL) return; // exchanged one block for another
  } else if (what < 13) {
    void **lasting = &me->lasting[bench_low(random >> 7, LASTING)];
    free_one(me, *lasting);
    *lasting = p;
  } else {
    free_one(me, p);
  }
  *victim = me->short_lived[--me->count];
}

static void *act(void *arg) {
  actor_t *me = arg;
  for (unsigned i = 0; i < LASTING; i += 2) { // left by the previous thread
    free_one(me, me->lasting[i]);
    me->lasting[i] = NULL;
  }
  for (uint64_t i = 0; i < me->steps; i++) do_step(me);
  while (me->count != 0) free_one(me, me->short_lived[--me->count]);
  return NULL;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "mstress",
               .what = "Threads that come and go, blocks of all sizes that change hands.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  const uint64_t threads = args[THREADS].value;
  actor_t *actors = bench_map(threads * sizeof *actors);
  for (uint64_t i = 0; i < threads; i++) {
    actors[i].rng = bench_rng(args[SEED].value, i);
    actors[i].steps = args[STEPS].value / threads;
  }
  uint64_t start = bench_clock_ns(args[THREADS].value);
  for (uint64_t round = 0; round < args[ROUNDS].value; round++) {
    run_team(threads, act, actors, sizeof *actors);
    for (unsigned i = round % 2; i < TRANSFERS; i += 2) free_one(actors, exchange(i, NULL));
  }
  for (unsigned i = 0; i < TRANSFERS; i++) free_one(actors, exchange(i, NULL));
  bench_run_t run = {0};
  for (uint64_t i = 0; i < threads; i++) {
    for (unsigned k = 0; k < LASTING; k++) free_one(&actors[i], actors[i].lasting[k]);
    run.ops += actors[i].ops;
  }
  run.ns = bench_clock_ns(args[THREADS].value) - start;
  if (run.ops % 2 != 0) bench_wrong("number of blocks freed");
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
