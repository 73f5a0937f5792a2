// sparse.h: slabs in use give the OS pages back that hold no live block (row M5;
// docs/decisions/0026-pages-in-use.md).
//
// Twice a look a second apart, as a rule, finds PARTIAL tiny slabs with few live blocks, or half
// free and unchanged, and L2 blocks that were free both times. L2 runs of a class that shrinks are
// trimmed without waiting for that, as their thread may soon sleep; not while such pages turn out
// to be needed again: that is a regret, and after a few there is a pause, each longer than the
// one before. In a crowd of threads empty runs in front wait among them, and go back whole
// (docs/decisions/0020-idle.md).
//
// Owner only. Tests: test/unit/test_sparse.c.

#ifndef HAK_THREAD_SPARSE_H
#define HAK_THREAD_SPARSE_H

#include "superslab/slab.h"
#include "thread/heap.h"

// Blocks of an L2 run were forgotten by their ring: the class shrinks. The run is trimmed
// when HAK_SPARSE others have followed it, as it may soon be empty and go back whole. While
// early trims pause only one in many is looked at.
void hak_sparse_add_now(hak_heap_t *heap, hak_slab_t *run);
HAK_INLINE void hak_sparse_add(hak_heap_t *heap, hak_slab_t *run) {
  if (heap->trim_skips != 0) heap->trim_skips--;
  else hak_sparse_add_now(heap, run);
}
// Where there are more than HAK_CROWD threads, an L2 run in front that gets empty waits as well, and
// goes back if it is empty when others have followed it. Not from hak_sparse_add, which finds the
// ring being looked through.
void hak_sparse_add_front(hak_heap_t *heap, hak_slab_t *run);
// Whether something is to be done about an L2 run of which the blocks in mask are free. What is in
// front and was never used in full stays there: it will be needed sooner, and less of it is resident.
HAK_INLINE bool hak_sparse_is_due(const hak_slab_t *run, uint64_t mask) {
  return HAK_UNLIKELY(mask == hak_slab_all(run->capacity)) &&
         (hak_slab_place(run) != HAK_PLACE_ACTIVE ||
          (run->carved == run->capacity && hak_load_relaxed(&hak_heap_threads) > HAK_CROWD));
}
// A run gets FULL or goes back: it waits no more, as it may soon be others' (protocol R3).
void hak_sparse_leave(hak_heap_t *heap, hak_slab_t *run);
// No run waits any more: the thread ends.
void hak_sparse_forget(hak_heap_t *heap);
// Whether blocks of the run are absent because of an early trim.
HAK_INLINE bool hak_sparse_went_early(const hak_slab_t *run) {
  return run->early && run->absent != 0;
}
// To the front goes a slab with absent pages, or, while heap->trimmed_gone says that runs which had
// such got empty, any slab: a regret if they went early, or it is a fresh run in the place of one.
void hak_sparse_needed(hak_heap_t *heap, hak_slab_t *slab);
// If it is time, a look at some classes, a few trims at most.
void hak_sparse_tend(hak_heap_t *heap);
// Trims all slabs but tiny ones in the front.
void hak_sparse_trim_all(hak_heap_t *heap);

#endif
