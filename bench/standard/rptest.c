// rptest: sizes of a chosen distribution, some blocks freed by another thread, after the
// idea of rpmalloc-benchmark (M. Jansson).
//
// Each thread keeps BLOCKS blocks. An iteration frees and reallocates some blocks that lie
// apart in its table. In every CROSS-th iteration it also allocates a batch of blocks for
// the next thread, which frees it. After ITER iterations all blocks are freed, and the
// thread starts over, LOOPS times. The next thread's inbox has 64 entries; if an entry is
// needed and still holds a batch, the thread that needs it frees that batch.

#include "standard.h"

enum { THREADS, LOOPS, ITER, BLOCKS, CROSS, MIN, MAX, LINEAR, SEED };
enum { PER_ITERATION = 16, INBOX = 64, STRIDE = 7919 };

static bench_arg_t args[] = {
    {"THREADS", "threads", 2, 1, 4096},
    {"LOOPS", "times that a thread starts over", 8, 1, UINT32_MAX},
    {"ITER", "iterations in a loop, of all threads together", 60000, 1, UINT32_MAX},
    {"--blocks", "per thread", 5000, 1, 1 << 30},
    {"--cross", "iterations to one that gives a batch away; 0: none does", 2, 0, UINT32_MAX},
    {"--min", "smallest block in bytes", 16, MARK_MIN, 1 << 30},
    {"--max", "largest block in bytes", 16000, MARK_MIN, 1 << 30},
    {"--linear", "1: the larger a size, the less likely; 0: all equally likely", 1, 0, 1},
    {"--seed", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct batch {
  void *blocks[PER_ITERATION];
} batch_t;

typedef struct actor {
  bench_rng_t rng;
  uint64_t iterations;
  void **blocks;
  struct actor *next;
  uint64_t ops;
  // A batch or NULL. Exchanged with acquire and release: the thread that gets a batch also sees
  // its blocks' contents.
  __attribute__((aligned(128))) _Atomic(batch_t *) inbox[INBOX];
} __attribute__((aligned(128))) actor_t;

static size_t draw_size(actor_t *me) {
  const uint64_t min = args[MIN].value, span = args[MAX].value - min + 1;
  uint64_t random = bench_next(&me->rng);
  uint64_t a = bench_high(random, span), b = bench_low(random, span);
  return min + (args[LINEAR].value != 0 && b < a ? b : a);
}

static void *alloc_one(actor_t *me) {
  me->ops++;
  return alloc_marked(draw_size(me));
}

static void free_one(actor_t *me, void *p) {
  if (p == NULL) return;
  free_marked(p, args[MAX].value);
  me->ops++;
}

static batch_t *swap(actor_t *with, uint64_t place, batch_t *batch) {
  return atomic_exchange_explicit(&with->inbox[place % INBOX], batch, memory_order_acq_rel);
}

static void free_batch(actor_t *me, batch_t *batch) {
  if (batch == NULL) return;
  for (unsigned i = 0; i < PER_ITERATION; i++) free_one(me, batch->blocks[i]);
  free(batch);
  me->ops++;
}

static void cross(actor_t *me, uint64_t place) {
  batch_t *batch = bench_alloc(NULL, sizeof *batch);
  me->ops++;
  for (unsigned i = 0; i < PER_ITERATION; i++) batch->blocks[i] = alloc_one(me);
  free_batch(me, swap(me->next, place, batch));
  free_batch(me, swap(me, place, NULL));
}

static void *act(void *arg) {
  actor_t *me = arg;
  const uint64_t blocks = args[BLOCKS].value, every = args[CROSS].value;
  uint64_t at = 0, place = 0;
  for (uint64_t loop = 0; loop < args[LOOPS].value; loop++) {
    for (uint64_t i = 0; i < me->iterations; i++) {
      for (unsigned k = 0; k < PER_ITERATION; k++) {
        at = (at + STRIDE) % blocks;
        free_one(me, me->blocks[at]);
        me->blocks[at] = alloc_one(me);
      }
      if (every != 0 && i % every == 0) cross(me, place++);
    }
    for (uint64_t i = 0; i < blocks; i++) {
      free_one(me, me->blocks[i]);
      me->blocks[i] = NULL;
    }
  }
  return NULL;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "rptest",
               .what = "Threads that replace blocks of 16 to 16000 bytes and pass some on.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "--min is above --max");
  const uint64_t threads = args[THREADS].value;
  actor_t *actors = bench_map(threads * sizeof *actors);
  for (uint64_t i = 0; i < threads; i++) {
    actors[i].rng = bench_rng(args[SEED].value, i);
    actors[i].iterations = args[ITER].value / threads;
    actors[i].blocks = bench_map(args[BLOCKS].value * sizeof(void *));
    actors[i].next = &actors[(i + 1) % threads];
  }
  uint64_t start = bench_clock_ns(args[THREADS].value);
  run_team(threads, act, actors, sizeof *actors);
  bench_run_t run = {0};
  for (uint64_t i = 0; i < threads; i++) {
    for (unsigned k = 0; k < INBOX; k++) free_batch(&actors[i], swap(&actors[i], k, NULL));
    run.ops += actors[i].ops;
  }
  run.ns = bench_clock_ns(args[THREADS].value) - start;
  if (run.ops % 2 != 0) bench_wrong("number of blocks freed");
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
