// commons.h: where slabs wait whose blocks other threads free.
//
// A slab that is used up is of use again when blocks of it have been freed. Where others
// free them, its owner learns of that when it next looks into its inbox: a producer that is
// off the processor, or waits for its consumer, leaves what comes back to it to nobody, and
// those that run map memory meanwhile. So a thread that finds out that others free what it
// allocates gives the slabs it has used up to a commons, a heap of no thread's, and whoever
// runs out of blocks takes a slab from there that has enough of them, whoever used it up. Slabs that
// a thread has left thin, a quarter full at most, go there as well.
//
// There is a commons for each two classes of up to 2 KiB. A thread takes it by a compare-and-swap
// from ORPHAN to CLAIMED, for a moment, and does without if another has it (protocol H4). What is
// freed into its slabs waits in its inbox for whoever takes it next: to adopt a slab, after a
// number of posts, and now and then in a thread's slow paths.
// Docs: docs/decisions/0029-commons.md. Tests: test/unit/test_commons.c, test/model/commons.pml.

#ifndef HAK_THREAD_COMMONS_H
#define HAK_THREAD_COMMONS_H

#include "superslab/slab.h"
#include "thread/heap.h"

#define HAK_COMMONS_SHIFT 1 // classes of a commons
#define HAK_COMMONS_BLOCK_MAX 2048
#define HAK_COMMONS_PLACES (((HAK_CLASSES - 1) >> HAK_COMMONS_SHIFT) + 1)
// hak_heap_none while one is made.
HAK_INTERNAL extern _Atomic(hak_heap_t *) hak_commons[HAK_COMMONS_PLACES];

// A thread gives slabs away after so many slabs in a row that others' frees brought back.
#define HAK_OTHERS_ENOUGH 16

// A FULL slab of heap's got blocks back from others (owner) / heap's thread
// itself freed so much that a slab noticed (owner).
void hak_commons_freed_by_others(hak_heap_t *heap, hak_slab_t *slab);
HAK_INLINE void hak_commons_freed_here(hak_heap_t *heap) { heap->others = 0; }
// If heap's slabs are for the commons (owner): gives one away that is used up / that has free
// blocks again; true: it is not heap's any more. mark: as for hak_slab_leave_active, since one
// that is used up becomes FULL when it is the commons' already (R3).
bool hak_commons_take_full(hak_heap_t *heap, hak_slab_t *slab, uint64_t mark);
HAK_INLINE bool hak_commons_give(hak_heap_t *heap, hak_slab_t *slab, uint64_t mark) {
  return HAK_UNLIKELY(heap->others == HAK_OTHERS_ENOUGH) && hak_commons_take_full(heap, slab, mark);
}
bool hak_commons_give_back(hak_heap_t *heap, hak_slab_t *slab);
// Where more than HAK_FEW threads have heaps, a tiny slab that was FULL and of which a part is live at
// most is thin, and given away: its thread may sleep long, and who needs blocks takes it. Not at once,
// as it may soon be empty and go back whole: when HAK_THIN others have followed.
#define HAK_FEW 2
#define HAK_THIN_PART 4
HAK_INLINE uint64_t hak_commons_thin_mark(const hak_slab_t *slab) {
  return hak_load_relaxed(&hak_heap_threads) > HAK_FEW ? slab->capacity / HAK_THIN_PART + 1u : 1;
}
// A PARTIAL slab that may not be released fell below that mark (owner).
void hak_commons_thin(hak_heap_t *heap, hak_slab_t *slab);
HAK_INLINE void hak_commons_look(hak_heap_t *heap, hak_slab_t *slab) {
  if (hak_slab_kind(slab) == HAK_KIND_TINY && (int64_t)hak_load_relaxed(&slab->frees_left) < 0)
    hak_commons_thin(heap, slab);
}
// A thread frees blocks of another's slab that was given away as thin once (any thread).
void hak_commons_thin_freed(hak_slab_t *slab, uint32_t blocks);

// Makes a slab of the class PARTIAL in heap; false: there is none to be had (owner).
bool hak_commons_find(hak_heap_t *heap, unsigned size_class);
HAK_INLINE bool hak_commons_adopt(hak_heap_t *heap, unsigned size_class) {
  // Relaxed: a missed one is found at the next refill.
  return HAK_UNLIKELY(hak_load_relaxed(&hak_commons[size_class >> HAK_COMMONS_SHIFT]) != NULL) &&
         hak_commons_find(heap, size_class);
}

// A slab was posted to a commons: whether so many were, since one was adopted from it or a poster was
// last to look after it while nobody had it, that the poster is to look after it (any thread).
bool hak_commons_due(hak_heap_t *common);
// Takes back what was freed into the next commons (heap: to remember which) / into all, and
// gives back what is unused (any thread).
void hak_commons_tend(hak_heap_t *heap);
void hak_commons_reclaim(void);
void hak_commons_after_fork(void);

#endif
