// relief.h: slabs and L2 runs all of whose blocks other threads have freed, of a thread that does
// not come by its inbox, because it sleeps or is done with allocating. They go back without it
// (protocol R3).
//
// Who frees the last block of a slab counts it for the slab's heap, and after a number of them
// takes the heap's inbox as its owner would. A slab in it that is FULL and has all blocks in its
// remote word is nobody's but the taker's: the owner keeps no FULL slab in any list, has no
// block of it to free nor a hint that names one, and would come by it through the inbox only. The
// others are posted again.
//
// Any thread may call anything here. Tests: test/unit/test_relief.c, test/model/relief.pml.
// Figures: docs/decisions/0030-relief.md

#ifndef HAK_THREAD_RELIEF_H
#define HAK_THREAD_RELIEF_H

#include "base/types.h"

// All blocks of a slab or run of owner's, of so many slabs, are in its remote word now. mine: the
// calling thread's heap, NULL without one; for statistics.
void hak_relief_emptied(hak_heap_t *owner, unsigned slabs, hak_heap_t *mine);
// The same for all slabs of all heaps that have any such.
void hak_relief_all(hak_heap_t *mine);
// Slabs of the class that were taken from heap so far.
HAK_INLINE uint32_t hak_relief_taken(const hak_heap_t *heap, unsigned size_class) {
  // Relaxed: a figure for the owner's heuristics.
  return hak_load_relaxed(&((hak_heap_t *)heap)->taken[size_class]);
}

#endif
