// tend.h: what a heap sees to once in a while, in slow paths of malloc, and in one of so many hits,
// as a load may take no slow path: it hands over what it holds of others' blocks, takes in what they
// freed of its own, and gives back what was idle, here and of a commons and an orphan; and follows a
// request to give back all it can. Owner only.
// Tests: test/unit/test_front.c, test_sparse.c, test_ring.c.

#ifndef HAK_THREAD_TEND_H
#define HAK_THREAD_TEND_H

#include "thread/heap.h"

void hak_tend_now(hak_heap_t *heap);
// HAK_FREES_BIAS frees have hit the tiny slab, which is in front of its class: it counts anew.
HAK_COLD void hak_tend_front(hak_heap_t *heap, hak_slab_t *slab);
// The ring has handed out HAK_RING_HITS blocks, the last one is the block of the run: it counts anew.
// Returns the block, for which the caller need not keep it.
HAK_COLD void *hak_tend_ring(hak_ring_t *ring, hak_slab_t *run, void *block);

HAK_INLINE void hak_tend(hak_heap_t *heap) {
  if (++heap->ticks >= HAK_HEAP_TICKS) hak_tend_now(heap);
  hak_heap_reclaim_if_asked(heap);
}

#endif
