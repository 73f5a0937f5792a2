// relief.h: gives back slabs and L2 runs without their owner (protocol R3): those of which
// other threads have freed all blocks, while their owner does not look into its inbox, because
// it sleeps or is done with allocating.
//
// The thread that frees the last block of a slab counts it for the slab's heap, and after a
// number of them takes the heap's inbox as its owner would. A slab in it that is FULL and has
// all blocks in its remote word belongs to the taker alone: the owner keeps no FULL slab in
// any list, has no block of it to free and no hint that names one, and would find it through
// the inbox only. The other slabs are posted again.
//
// Any thread may call anything here. Tests: test/unit/test_relief.c, test/model/relief.pml.
// Figures: docs/decisions/0030-relief.md

#ifndef HAK_THREAD_RELIEF_H
#define HAK_THREAD_RELIEF_H

#include "base/types.h"

// All blocks of a slab or run of owner's are in its remote word now. slabs: how many it has.
// mine: the calling thread's heap, NULL without one; for statistics.
void hak_relief_emptied(hak_heap_t *owner, unsigned slabs, hak_heap_t *mine);
// The same for all such slabs of all heaps.
void hak_relief_all(hak_heap_t *mine);
// Slabs of the class that were taken from heap so far.
HAK_INLINE uint32_t hak_relief_taken(const hak_heap_t *heap, unsigned size_class) {
  // Relaxed: a figure for the owner's heuristics.
  return hak_load_relaxed(&heap->taken[size_class]);
}

#endif
