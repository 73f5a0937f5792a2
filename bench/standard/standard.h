// standard.h: code that the programs of this folder share in addition to ../common.h: teams
// of threads, and marks that show whether a block's content is still what was written.
//
// None of the programs has a --net mode: most do real work besides malloc and free, and all
// of them read their blocks back, which does not work with the no-op allocator's blocks.

#ifndef HAKMEM_BENCH_STANDARD_H
#define HAKMEM_BENCH_STANDARD_H

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../common.h"

enum { MARK_MIN = 8 }; // smallest block that can be marked

// ---------------------------------------------------------------------------
// Errors

static BENCH_COLD _Noreturn void bench_wrong(const char *what) {
  fprintf(stderr, "wrong result: %s\n", what);
  exit(3);
}

// ---------------------------------------------------------------------------
// Marks. The first word of a block holds its size, scrambled by its address; the
// last byte repeats the size's lowest bits. Removing a mark clears the word, so that
// a block held by two owners is detected when the second owner gives it up.

static BENCH_INLINE uint64_t mark_key(const void *p) {
  return (uint64_t)(uintptr_t)p * 0x9e3779b97f4a7c15u;
}

static BENCH_INLINE void mark(void *p, size_t size) {
  uint64_t word = size ^ mark_key(p);
  memcpy(p, &word, sizeof word);
  if (size > MARK_MIN) ((volatile char *)p)[size - 1] = (char)size;
}

// Removes the mark and returns the size given to mark(); ends the program if the mark is damaged.
static BENCH_INLINE size_t unmark(void *p, size_t max) {
  uint64_t word;
  memcpy(&word, p, sizeof word);
  size_t size = word ^ mark_key(p);
  if (__builtin_expect(size < MARK_MIN || size > max, 0)) bench_wrong("a block's first word");
  if (size > MARK_MIN && ((volatile char *)p)[size - 1] != (char)size)
    bench_wrong("a block's last byte");
  word = 0;
  memcpy(p, &word, sizeof word);
  return size;
}

static BENCH_INLINE void *alloc_marked(size_t size) {
  void *p = bench_alloc(NULL, size);
  mark(p, size);
  return p;
}

static BENCH_INLINE void free_marked(void *p, size_t max) {
  unmark(p, max);
  free(p);
}

// ---------------------------------------------------------------------------
// Sizes and threads

// A random size from 2^low to below 2^high; every power of two is equally likely.
static BENCH_INLINE size_t bench_log_size(bench_rng_t *rng, unsigned low, unsigned high) {
  uint64_t random = bench_next(rng);
  uint64_t power = (uint64_t)1 << (low + bench_high(random, high - low));
  return power + bench_low(random, power);
}

static inline pthread_t start_thread(void *(*act)(void *), void *arg) {
  pthread_t id;
  int error = pthread_create(&id, NULL, act, arg);
  if (error != 0) {
    errno = error;
    bench_die("pthread_create");
  }
  return id;
}

// Runs act(&actors[i]) in one thread per actor; the actors are `size` bytes apart.
static inline void run_team(uint64_t count, void *(*act)(void *), void *actors, size_t size) {
  pthread_t *ids = bench_map(count * sizeof *ids);
  for (uint64_t i = 0; i < count; i++) ids[i] = start_thread(act, (char *)actors + i * size);
  for (uint64_t i = 0; i < count; i++) pthread_join(ids[i], NULL);
  munmap(ids, count * sizeof *ids);
}

#endif
