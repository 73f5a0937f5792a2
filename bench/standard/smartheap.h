// smartheap.h: the loop of sh6_like and sh8_like, after the ideas of MicroQuill's
// sh6bench and sh8bench for SmartHeap, whose descriptions are public.
//
// A thread allocates batches of blocks; the blocks of a batch have one size. Sizes grow
// from batch to batch, and the larger they are, the fewer blocks a batch has. The blocks
// go into a window. When the window is full, its oldest third is freed in order of
// allocation and its newest third in reverse order. The third between them stays for
// another turn (sh6) or is handed to the next thread, which frees it (sh8).

#ifndef HAKMEM_BENCH_SMARTHEAP_H
#define HAKMEM_BENCH_SMARTHEAP_H

#include "standard.h"

enum { THREADS, ROUNDS, MIN, MAX };
enum { THIRD = 1000, WINDOW = 3 * THIRD, BATCH_BYTES = 16384, BATCH_MOST = 256 };

static bench_arg_t args[] = {
    {"THREADS", "threads", 1, 1, 4096},
    {"ROUNDS", "through all sizes, of all threads together", 6000, 1, UINT32_MAX},
    {"MIN", "smallest block in bytes", 8, MARK_MIN, 1 << 30},
    {"MAX", "largest block in bytes", 1000, MARK_MIN, 1 << 30},
    {0},
};

typedef struct third {
  uint64_t count;
  void *blocks[THIRD];
} third_t;

typedef struct actor {
  uint64_t rounds;
  uint64_t ops;
  uint64_t count;
  bool hands_over;
  third_t *spare; // empty
  struct actor *next;
  void *window[WINDOW];
  // Blocks for this thread; never NULL, but possibly empty. Exchanged with acquire and
  // release: the thread that gets the blocks also sees their contents.
  __attribute__((aligned(128))) _Atomic(third_t *) inbox;
} __attribute__((aligned(128))) actor_t;

static void free_one(actor_t *me, void *p) {
  free_marked(p, args[MAX].value);
  me->ops++;
}

// Puts the spare into an inbox and frees the blocks that were there; that third becomes the spare.
static void swap_thirds(actor_t *me, actor_t *with) {
  me->spare = atomic_exchange_explicit(&with->inbox, me->spare, memory_order_acq_rel);
  while (me->spare->count != 0) free_one(me, me->spare->blocks[--me->spare->count]);
}

static void make_room(actor_t *me) {
  for (unsigned i = 0; i < THIRD; i++) free_one(me, me->window[i]);
  for (unsigned i = WINDOW; i-- > 2 * THIRD;) free_one(me, me->window[i]);
  if (me->hands_over) {
    memcpy(me->spare->blocks, &me->window[THIRD], sizeof me->spare->blocks);
    me->spare->count = THIRD;
    swap_thirds(me, me->next);
    swap_thirds(me, me);
    me->count = 0;
  } else {
    memcpy(me->window, &me->window[THIRD], THIRD * sizeof *me->window);
    me->count = THIRD;
  }
}

static void *act(void *arg) {
  actor_t *me = arg;
  const size_t min = args[MIN].value, max = args[MAX].value;
  for (uint64_t round = 0; round < me->rounds; round++) {
    for (size_t size = min + round % 8; size <= max; size += 8 + size / 16) {
      uint64_t count = BATCH_BYTES / size + 1;
      for (uint64_t i = 0; i < (count < BATCH_MOST ? count : BATCH_MOST); i++) {
        if (me->count == WINDOW) make_room(me);
        me->window[me->count++] = alloc_marked(size);
        me->ops++;
      }
    }
  }
  while (me->count != 0) free_one(me, me->window[--me->count]);
  return NULL;
}

static inline int smartheap_main(bench_t *b, int argc, char **argv, bool hands_over) {
  b->args = args;
  b->no_net = true;
  bench_parse(b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(b, "MIN is above MAX");
  const uint64_t threads = args[THREADS].value;
  actor_t *actors = bench_map(threads * sizeof *actors);
  for (uint64_t i = 0; i < threads; i++) {
    actors[i].rounds = args[ROUNDS].value / threads;
    actors[i].hands_over = hands_over;
    actors[i].next = &actors[(i + 1) % threads];
    actors[i].spare = bench_map(sizeof *actors[i].spare);
    // Relaxed: the threads that read it are not yet created.
    atomic_store_explicit(&actors[i].inbox, bench_map(sizeof(third_t)), memory_order_relaxed);
  }
  uint64_t start = bench_clock_ns(args[THREADS].value);
  run_team(threads, act, actors, sizeof *actors);
  bench_run_t run = {0};
  for (uint64_t i = 0; i < threads; i++) {
    swap_thirds(&actors[i], &actors[i]);
    run.ops += actors[i].ops;
  }
  run.ns = bench_clock_ns(args[THREADS].value) - start;
  if (run.ops % 2 != 0) bench_wrong("number of blocks freed");
  bench_report(b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}

#endif
