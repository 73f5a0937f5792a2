// warm.h: the warm pool (rows S2, S3): per heap and class, the slabs that serve
// the next refill without a search. First the PARTIAL ones (heap.h), then the
// SPARE ones: no block in use, kept when they got empty or brought along by a trip
// to the shared pool. HAKMEM_WARM_POOL bounds the SPARE slabs of a class.
//
// A SPARE slab has no remote free pending (remote is 0), so its owner can give it back at any
// moment: when memory is short, when its SuperSlab drains, at the thread's end, by trim. All
// functions are for the owner of the heap.
// Tests: test/unit/test_warm.c.

#ifndef HAK_THREAD_WARM_H
#define HAK_THREAD_WARM_H

#include "base/types.h"
#include "superslab/shared_pool.h"
#include "thread/relief.h"

void hak_warm_init(hak_heap_t *heap);

// Puts a slab of the warm pool in front; NULL: it has none.
hak_slab_t *hak_warm_take(hak_heap_t *heap, unsigned size_class);
// Counts a refill that needed another slab; hit: the warm pool had one.
void hak_warm_count(hak_heap_t *heap, unsigned size_class, bool hit);
// The same for most hits; false: not counted, as it ends a window that had misses.
#define HAK_WARM_WINDOW 16 // refills that needed another slab, between two looks at the budget
HAK_INLINE bool hak_warm_hit(hak_heap_t *heap, unsigned size_class) {
  hak_warm_t *warm = &heap->warm[size_class];
  if (warm->lacked != 0 && warm->had + warm->lacked + 1 >= HAK_WARM_WINDOW) return false;
  if (++warm->had == 2 * HAK_WARM_WINDOW) { // hits only
    warm->had = 0;
    if (warm->budget != 0) warm->budget--;
  }
  hak_owner_inc32(&warm->hits);
  return true;
}

// Slabs of the class that the heap has.
HAK_INLINE uint32_t hak_warm_slabs(const hak_heap_t *heap, unsigned size_class) {
  return heap->warm[size_class].slabs - hak_relief_taken(heap, size_class);
}
// Number of unused slabs that the trip of a miss should bring along now.
unsigned hak_warm_wants(hak_heap_t *heap, unsigned size_class);
// A thread begins: its heap gets up to HAKMEM_WARM_POOL_FILL unused slabs, by one trip that
// maps nothing: one for each class that the heap's last thread used. was_used notes a class,
// when that thread ends and the class has a front.
void hak_warm_fill(hak_heap_t *heap);
HAK_INLINE void hak_warm_was_used(hak_heap_t *heap, unsigned size_class) {
  heap->used[size_class / 64] |= (uint64_t)1 << size_class % 64;
}
// Makes a freshly acquired slab of the class SPARE, the next one to be taken.
void hak_warm_prefill(hak_heap_t *heap, hak_slab_t *slab, unsigned size_class);

// Keeps an empty slab that is in no list, or gives it back if the class has enough.
void hak_warm_keep_or_release(hak_heap_t *heap, hak_slab_t *slab);

// Gives SPARE slabs back: all of them / all if they are much of what is mapped /
// those of DRAINING SuperSlabs. True if any.
void hak_warm_drop(hak_heap_t *heap);
bool hak_warm_drop_many(hak_heap_t *heap);
void hak_warm_drop_draining(hak_heap_t *heap);
// Whether a SuperSlab has begun to drain since hak_warm_drop_draining was called last.
HAK_INLINE bool hak_warm_draining(const hak_heap_t *heap) {
  // Relaxed: one that began this moment is seen at the next look.
  return heap->drainings != (uint32_t)hak_load_relaxed(&hak_counter(tier_draining));
}
HAK_INLINE void hak_warm_look_for_draining(hak_heap_t *heap) {
  if (hak_warm_draining(heap)) hak_warm_drop_draining(heap);
}

#endif
