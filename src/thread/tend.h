// tend.h: a heap's periodic work, in slow paths of malloc, at frees that empty slabs, and in one
// of so many hits, as a load may take no slow path. The heap hands over blocks of others that it
// holds back, takes in what others freed of its own, gives back what was idle, of itself, a
// commons and an orphan, and follows a request to give back all it can. Owner only.
// Tests: test/unit/test_front.c, test_sparse.c, test_ring.c.

#ifndef HAK_THREAD_TEND_H
#define HAK_THREAD_TEND_H

#include "thread/heap.h"

void hak_tend_now(hak_heap_t *heap);
// HAK_FREES_BIAS frees have hit the tiny slab in front of its class: its counters start anew.
HAK_COLD void hak_tend_front(hak_heap_t *heap, hak_slab_t *slab);
// The ring has handed out HAK_RING_HITS blocks, the last of which is block, of run: its
// counter starts anew. Returns block, so that the caller need not keep it.
HAK_COLD void *hak_tend_ring(hak_ring_t *ring, hak_slab_t *run, void *block);

// After a free that may have emptied tiny slabs or L2 runs. Each that goes back counts as a slow
// path.
HAK_INLINE void hak_tend_if_due(hak_heap_t *heap) {
  if (heap->ticks >= HAK_HEAP_TICKS) hak_tend_now(heap);
  hak_heap_reclaim_if_asked(heap);
}

HAK_INLINE void hak_tend(hak_heap_t *heap) {
  heap->ticks++;
  hak_tend_if_due(heap);
}

#endif
