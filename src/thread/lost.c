#include "thread/lost.h"

#include "thread/heap.h"

#define PLACES_SHIFT 8
#define PLACES (1 << PLACES_SHIFT) // of two threads that share one, the later is known

static _Atomic(hak_heap_t *) kept[PLACES]; // the heap kept last from there, whoever has it now

static _Atomic(hak_heap_t *) *place(void) {
  // Stacks hold thread-local variables, round distances apart: Knuth's multiplier mixes them.
  return &kept[(uint64_t)(uintptr_t)&hak_tls_heap * 0x9e3779b97f4a7c15u >> (64 - PLACES_SHIFT)];
}

void hak_lost_keep(hak_heap_t *heap) {
  // Both relaxed: the thread they are for gets its place from the C library after this one's end.
  // Any other thread finds a keeper in the heap that is not its own place.
  hak_store_relaxed(&heap->keeper, &hak_tls_heap);
  hak_store_relaxed(place(), heap);
}

hak_heap_t *hak_lost_find(void) {
  hak_heap_t *heap = hak_load_relaxed(place());
  // In the child of a fork, lost heaps are DEAD like those of other threads.
  if (!heap || hak_load_relaxed(&heap->keeper) != &hak_tls_heap ||
      hak_load_relaxed(&heap->state) != HAK_HEAP_ATTACHED)
    return NULL;
  hak_lost_left(heap);
  return heap;
}
