// other.h: a thread whose blocks the test's thread frees.

#ifndef TEST_UNIT_OTHER_H
#define TEST_UNIT_OTHER_H

#include "unit.h"

#include "thread/front.h"
#include "thread/heap.h"

// A thread that allocates for the test and then waits, alive, until told to drain
// or to end.
#define BLOCKS_MAX 4096
typedef struct {
  pthread_t thread;
  pthread_barrier_t step;
  size_t size;
  unsigned count;
  enum { WAIT, DRAIN, END } order;
  hak_heap_t *heap;
  void *blocks[BLOCKS_MAX];
} other_t;
static other_t other, second;

static void *other_body(void *argument) {
  other_t *o = argument;
  for (unsigned i = 0; i < o->count; i++) {
    CHECK((o->blocks[i] = hak_front_alloc(o->size, NULL)) != NULL);
    fill(o->blocks[i], o->size, i);
  }
  o->heap = hak_tls_heap;
  do {
    pthread_barrier_wait(&o->step);
    pthread_barrier_wait(&o->step); // o->order is set between the two
    if (o->order == DRAIN) {
      hak_heap_drain(o->heap);
      hak_heap_check(o->heap);
    }
  } while (o->order != END);
  return NULL;
}

static void start(other_t *o, size_t size, unsigned count) {
  CHECK(count <= BLOCKS_MAX);
  o->size = size, o->count = count;
  pthread_barrier_init(&o->step, NULL, 2);
  o->thread = unit_start(other_body, o);
  pthread_barrier_wait(&o->step);
}
static void tell(other_t *o, int order) {
  o->order = order;
  pthread_barrier_wait(&o->step);
  if (order == END)
    unit_join(o->thread);
  else
    pthread_barrier_wait(&o->step);
}

static uint64_t stat(hak_heap_t *heap, hak_stat_t which) { return hak_load_relaxed(&heap->stats[which]); }
static hak_heap_t *mine(void) {
  hak_front_free_slow(hak_front_alloc(1, NULL), "free");
  return hak_tls_heap;
}
static void give(void *p) { hak_front_free_slow(p, "free"); }

#endif
