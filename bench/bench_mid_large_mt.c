// bench_mid_large_mt: threads that allocate and free blocks of 8 to 32 KiB (by
// default), optionally freeing each other's.
//
// Every thread keeps up to WORKINGSET blocks. An iteration either allocates a
// block of random size (with probability --alloc; at 50 the number of live blocks
// wanders through 0 .. WORKINGSET) or gives up a randomly chosen one; if there is
// no room, or nothing to give up, it does the other. A new block is touched in its
// first byte, its last byte and one byte per OS page. With --handover, that share
// of the given-up blocks goes to the next thread, which frees them. A thread whose
// neighbour's inbox is full waits, so that every allocator gets the same work; it
// frees such blocks itself only after the neighbour has finished.
// An op is a malloc or a free.

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "common.h"

enum { THREADS, ITER, WORKINGSET, MIN, MAX, HANDOVER, ALLOC, SEED };
enum { INBOX_BLOCKS = 256 }; // a power of two

static bench_arg_t args[] = {
    {"THREADS", "threads", 2, 1, 4096},
    {"ITER", "iterations per thread", 1000000, 1, UINT64_MAX / 8192},
    {"WORKINGSET", "blocks per thread at most", 256, 1, UINT32_MAX},
    {"--min", "smallest block in bytes", 8192, 1, UINT32_MAX - 1},
    {"--max", "largest block in bytes", 32768, 1, UINT32_MAX - 1},
    {"--handover", "percent of blocks freed by another thread", 0, 0, 100},
    {"--alloc", "percent of iterations that allocate", 50, 1, 99},
    {"--seed", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

// A ring with one writer (the thread before) and one reader (the owner).
typedef struct inbox {
  // Advanced by the owner. Release: an entry is read before it is declared free;
  // pairs with the writer's acquire load.
  _Alignas(128) atomic_size_t taken;
  // Advanced by the writer. Release: publishes the block's address and contents;
  // pairs with the owner's acquire load.
  _Alignas(128) atomic_size_t given;
  // Set by the owner when it takes no more blocks. Relaxed: a writer that sees it late only
  // leaves some blocks to be freed after the end.
  atomic_bool closed;
  _Alignas(128) void *blocks[INBOX_BLOCKS];
} inbox_t;

typedef struct actor {
  inbox_t inbox;
  struct actor *next;
  void **live;
  bench_ring_t ring; // base is NULL in the real run
  bench_rng_t rng;
  uint64_t ops;
  uint64_t handed_over;
  uint64_t started_ns;
  uint64_t ended_ns;
} actor_t;

static pthread_barrier_t barrier;

static BENCH_INLINE bool give(inbox_t *inbox, void *p) {
  size_t given = atomic_load_explicit(&inbox->given, memory_order_relaxed); // own
  if (given - atomic_load_explicit(&inbox->taken, memory_order_acquire) == INBOX_BLOCKS)
    return false;
  inbox->blocks[given % INBOX_BLOCKS] = p;
  atomic_store_explicit(&inbox->given, given + 1, memory_order_release);
  return true;
}

// Frees the blocks that others have handed over; returns their number.
static BENCH_INLINE uint64_t drain(bench_ring_t *ring, inbox_t *inbox) {
  size_t taken = atomic_load_explicit(&inbox->taken, memory_order_relaxed); // own
  size_t given = atomic_load_explicit(&inbox->given, memory_order_acquire);
  if (taken == given) return 0;
  uint64_t blocks = given - taken;
  for (; taken != given; taken++) bench_free(ring, inbox->blocks[taken % INBOX_BLOCKS]);
  atomic_store_explicit(&inbox->taken, taken, memory_order_release);
  return blocks;
}

// Hands p to the next thread, waiting for room. Meanwhile it empties its own inbox, because the
// threads may be waiting for each other in a circle. Returns false if the next one has finished.
static BENCH_INLINE bool hand_over(bench_ring_t *ring, actor_t *me, void *p, uint64_t *freed) {
  while (!give(&me->next->inbox, p)) {
    if (atomic_load_explicit(&me->next->inbox.closed, memory_order_relaxed)) return false;
    *freed += drain(ring, &me->inbox);
    sched_yield();
  }
  return true;
}

static BENCH_INLINE void touch_all(void *p, size_t size) {
  for (size_t at = 0; at < size; at += BENCH_OS_PAGE) bench_touch(p, at);
  bench_touch(p, size - 1);
}

static BENCH_INLINE void loop(bench_ring_t *ring, actor_t *me) {
  const uint64_t iterations = args[ITER].value, room = args[WORKINGSET].value;
  const uint64_t min = args[MIN].value, span = args[MAX].value - min + 1;
  const uint64_t alloc_below = args[ALLOC].value, handover_below = args[HANDOVER].value;
  void **live = me->live;
  bench_rng_t rng = me->rng;
  uint64_t count = 0, freed = 0, handed_over = 0, allocated = 0;
  for (uint64_t i = 0; i < iterations; i++) {
    // One word decides what to do (high half) and the size or victim (low half).
    uint64_t random = bench_next(&rng);
    bool wants = bench_high(random, 100) < alloc_below;
    if (count == 0 || (wants && count < room)) {
      size_t size = min + bench_low(random, span);
      void *p = bench_alloc(ring, size);
      touch_all(p, size);
      live[count++] = p;
      allocated++;
    } else {
      uint64_t victim = bench_low(random, count);
      void *p = live[victim];
      live[victim] = live[--count];
      if (handover_below != 0 && bench_high(bench_next(&rng), 100) < handover_below &&
          hand_over(ring, me, p, &freed)) {
        handed_over++;
      } else {
        bench_free(ring, p);
        freed++;
      }
    }
    if (handover_below != 0) freed += drain(ring, &me->inbox);
  }
  atomic_store_explicit(&me->inbox.closed, true, memory_order_relaxed);
  me->rng = rng;
  me->ops = allocated + freed;
  me->handed_over = handed_over;
  me->ended_ns = bench_clock_ns(args[THREADS].value);
  while (count > 0) bench_free(ring, live[--count]); // neither counted nor timed
}

static BENCH_NOINLINE void run_real(actor_t *me) { loop(NULL, me); }

static BENCH_NOINLINE void run_floor(actor_t *me) {
  bench_ring_t local = me->ring;
  loop(&local, me);
}

static void *act(void *arg) {
  actor_t *me = arg;
  bool floor = me->ring.base != NULL;
  pthread_barrier_wait(&barrier);
  me->started_ns = bench_clock_ns(args[THREADS].value);
  if (floor) run_floor(me);
  else run_real(me);
  pthread_barrier_wait(&barrier); // nobody writes to an inbox any more
  if (!floor) drain(NULL, &me->inbox);
  return NULL;
}

static bench_run_t run(actor_t *actors) {
  const uint64_t threads = args[THREADS].value;
  pthread_t *ids = bench_map(threads * sizeof *ids);
  for (uint64_t i = 0; i < threads; i++) {
    atomic_store_explicit(&actors[i].inbox.taken, 0, memory_order_relaxed);
    atomic_store_explicit(&actors[i].inbox.given, 0, memory_order_relaxed);
    atomic_store_explicit(&actors[i].inbox.closed, false, memory_order_relaxed);
    actors[i].rng = bench_rng(args[SEED].value, i);
    int error = pthread_create(&ids[i], NULL, act, &actors[i]);
    if (error != 0) {
      errno = error;
      bench_die("pthread_create");
    }
  }
  bench_run_t run = {0};
  uint64_t start = UINT64_MAX, end = 0; // the first thread's start, the last one's end
  for (uint64_t i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    run.ops += actors[i].ops;
    if (actors[i].started_ns < start) start = actors[i].started_ns;
    if (actors[i].ended_ns > end) end = actors[i].ended_ns;
  }
  run.ns = end - start;
  munmap(ids, threads * sizeof *ids);
  return run;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "bench_mid_large_mt",
               .what = "Threads that allocate and free blocks of some KiB.",
               .args = args};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "--min is above --max");
  const uint64_t threads = args[THREADS].value;
  if (args[HANDOVER].value != 0 && threads < 2) bench_usage(&b, "--handover with one thread");

  actor_t *actors = bench_map(threads * sizeof *actors);
  for (uint64_t i = 0; i < threads; i++) {
    actors[i].next = &actors[(i + 1) % threads];
    actors[i].live = bench_map(args[WORKINGSET].value * sizeof *actors[i].live);
  }
  if (pthread_barrier_init(&barrier, NULL, (unsigned)threads) != 0)
    bench_die("pthread_barrier_init");

  bench_run_t real = run(actors), floor = {0};
  uint64_t rss = bench_peak_rss_kib();
  if (args[HANDOVER].value != 0 && !b.json) {
    uint64_t handed_over = 0;
    for (uint64_t i = 0; i < threads; i++) handed_over += actors[i].handed_over;
    printf("handed over: %llu blocks\n", (unsigned long long)handed_over);
  }
  if (b.net) {
    uint64_t live = args[WORKINGSET].value * (args[MIN].value + args[MAX].value) / 4;
    for (uint64_t i = 0; i < threads; i++) actors[i].ring = bench_ring(live, args[MAX].value);
    for (int i = 0; i < BENCH_FLOOR_RUNS; i++) floor = bench_least(floor, run(actors));
  }
  bench_report(&b, real, floor, rss);
  return 0;
}
