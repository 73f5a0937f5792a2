// cache.h: the loop of cache_scratch and cache_thrash. If blocks of two threads share a
// cache line, every write to one block slows down the other thread.

#ifndef HAKMEM_BENCH_CACHE_H
#define HAKMEM_BENCH_CACHE_H

#include "standard.h"

enum { THREADS, ITERATIONS, SIZE, REPETITIONS, CONCURRENCY };

static bench_arg_t args[] = {
    {"THREADS", "threads", 1, 1, 4096},
    {"ITERATIONS", "blocks that each thread allocates", 400, 1, UINT32_MAX},
    {"SIZE", "of a block in bytes", 8, 1, UINT32_MAX},
    {"REPETITIONS", "writes to each byte of a block, by all threads together", 100000, 1,
     UINT32_MAX},
    {"CONCURRENCY", "threads that share these writes", 1, 1, 4096},
    {0},
};

typedef struct actor {
  void *given; // a block that the main thread allocated, or NULL
} __attribute__((aligned(128))) actor_t;

// Adds 1 to each byte of the block, `times` times.
static BENCH_INLINE void write_block(volatile unsigned char *block, size_t size, uint64_t times) {
  for (size_t k = 0; k < size; k++) block[k] = (unsigned char)k;
  for (uint64_t i = 0; i < times; i++)
    for (size_t k = 0; k < size; k++) block[k] = (unsigned char)(block[k] + 1);
  for (size_t k = 0; k < size; k++)
    if (block[k] != (unsigned char)(k + times)) bench_wrong("a block's content");
}

static void *act(void *arg) {
  actor_t *me = arg;
  const size_t size = args[SIZE].value;
  const uint64_t times = args[REPETITIONS].value / args[CONCURRENCY].value;
  if (me->given != NULL) free(me->given);
  for (uint64_t i = 0; i < args[ITERATIONS].value; i++) {
    void *block = bench_alloc(NULL, size);
    write_block(block, size, times);
    free(block);
  }
  return NULL;
}

// With `gives`, every thread gets a block that the main thread has allocated.
static inline int cache_main(bench_t *b, int argc, char **argv, bool gives) {
  b->args = args;
  b->no_net = true;
  bench_parse(b, argc, argv);
  const uint64_t threads = args[THREADS].value;
  actor_t *actors = bench_map(threads * sizeof *actors);
  if (gives)
    for (uint64_t i = 0; i < threads; i++) actors[i].given = bench_alloc(NULL, args[SIZE].value);
  uint64_t start = bench_clock_ns(args[THREADS].value);
  run_team(threads, act, actors, sizeof *actors);
  bench_run_t run = {.ns = bench_clock_ns(args[THREADS].value) - start,
                     .ops = 2 * threads * (args[ITERATIONS].value + gives)};
  bench_report(b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}

#endif
