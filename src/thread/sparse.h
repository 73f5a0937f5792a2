// sparse.h: slabs in use give the OS pages back that hold no live block (row M5;
// docs/decisions/0026-pages-in-use.md).
//
// Looks, as a rule a second apart, find PARTIAL tiny slabs that twice had few live blocks, or
// were half free and unchanged, and L2 blocks that were free both times. Two things are not
// left to time, as the thread may soon sleep, or take as much for other blocks: L2 runs of a
// class that shrinks are trimmed, and so are tiny slabs with few live blocks where a SuperSlab
// must be mapped. If such pages are needed again soon, that is a regret; after a few regrets
// early trims pause, each time longer than the last. In a crowd of threads empty runs in front
// wait in the same queue, and go back whole (docs/decisions/0020-idle.md).
//
// Owner only. Tests: test/unit/test_sparse.c.

#ifndef HAK_THREAD_SPARSE_H
#define HAK_THREAD_SPARSE_H

#include "superslab/slab.h"
#include "thread/heap.h"

// Called when the ring has forgotten blocks of an L2 run: the class shrinks. The run is
// trimmed when HAK_SPARSE others have followed it, as it may soon be empty and go back whole.
// While early trims pause, only one run in many is looked at.
void hak_sparse_add_now(hak_heap_t *heap, hak_slab_t *run);
HAK_INLINE void hak_sparse_add(hak_heap_t *heap, hak_slab_t *run) {
  if (heap->trim_skips != 0) heap->trim_skips--;
  else hak_sparse_add_now(heap, run);
}
// With more than HAK_CROWD threads, an L2 run in front that gets empty waits as well, and is
// given back if it is empty when others have followed it. None goes back in hak_sparse_add,
// which is called while the ring is being looked through. If its class needs a run again soon,
// that is a regret: then only runs that were used in full go, as others will be needed sooner.
void hak_sparse_add_front(hak_heap_t *heap, hak_slab_t *run);
// From so many carved blocks on, something is done when the run gets empty in front.
HAK_INLINE void hak_sparse_look_from(hak_slab_t *run, uint16_t carved) {
  if (run->looked != carved) run->looked = carved; // others read the line
}
// Whether something must be done about an L2 run whose free blocks are those in mask.
HAK_INLINE bool hak_sparse_is_due(const hak_slab_t *run, uint64_t mask) {
  return HAK_UNLIKELY(mask == hak_slab_all(run->capacity)) &&
         (hak_slab_place(run) != HAK_PLACE_ACTIVE ||
          (run->carved >= run->looked && hak_load_relaxed(&hak_heap_threads) > HAK_CROWD));
}
// A run becomes FULL or goes back: it waits no more, as others may soon have it (protocol R3).
void hak_sparse_leave(hak_heap_t *heap, hak_slab_t *run);
// No run waits any more: the thread ends.
void hak_sparse_forget(hak_heap_t *heap);
// Whether blocks of the run are absent because of an early trim.
HAK_INLINE bool hak_sparse_went_early(const hak_slab_t *run) {
  return run->early && run->absent != 0;
}
// Called when a slab becomes the front. needed: one with absent pages, or any while runs with
// absent pages (heap->trimmed_gone) or fronts have gone: a regret if pages went early, for a fresh
// run in the place of such a run, or for a class whose front has gone.
void hak_sparse_needed(hak_heap_t *heap, hak_slab_t *slab);
HAK_INLINE void hak_sparse_activated(hak_heap_t *heap, hak_slab_t *slab) {
  if (HAK_UNLIKELY(slab->absent || heap->trimmed_gone || heap->fronts_gone))
    hak_sparse_needed(heap, slab);
  if (hak_slab_kind(slab) == HAK_KIND_L2)
    hak_sparse_look_from(slab,
                         hak_load_relaxed(&hak_heap_threads) > HAK_CROWD ? 0 : slab->capacity);
}
// If it is time, looks at some classes, with a few trims at most.
void hak_sparse_tend(hak_heap_t *heap);
// Called before a slab is taken from a fresh SuperSlab: tiny slabs that were used in full, have few
// live blocks left and were looked at before give back as much, or what a part of a sweep can.
void hak_sparse_make_room(hak_heap_t *heap);
// Trims all slabs except tiny ones in the front.
void hak_sparse_trim_all(hak_heap_t *heap);

#endif
