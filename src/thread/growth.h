// growth.h: which classes grow, and whether the SuperSlab that one of them is about to map will
// be used in full and so may be a huge page.
//
// A class that has taken many fresh slabs without getting blocks back is growing: its next slab
// will be handed out in full. Programs may leave pages of blocks above 4 KiB untouched: for such a
// class, a run without huge pages must have been used in full before.
// docs/decisions/0008-prefault-huge-pages.md, 0035-dense-runs.md. Tests: test/unit/test_growth.c.

#ifndef HAK_THREAD_GROWTH_H
#define HAK_THREAD_GROWTH_H

#include "base/types.h"

// All functions: for the owner of the heap.
// A never-used slab has come to the front of its class; HAKMEM_PREFAULT may make it resident.
void hak_growth_fresh(hak_heap_t *heap, hak_slab_t *slab, unsigned size_class);
// An L2 run (or hak_slab_none) leaves the front; it still belongs to the thread. If it was never
// used before, its pages will tell how much of a block is used.
HAK_INLINE void hak_growth_used_up(hak_heap_t *heap, const hak_slab_t *slab) {
  heap->used_up = slab->zeroed ? slab->first : NULL;
}
// For the class of that run: whether a SuperSlab that the class maps now will be used in full.
bool hak_growth_fills(hak_heap_t *heap, unsigned size_class);

#endif
