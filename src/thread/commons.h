// commons.h: heaps without a thread, where slabs wait whose blocks other threads free.
//
// A used-up slab is useful again when blocks of it have been freed. If other threads free them,
// its owner learns of that only when it next looks into its inbox. A producer that is off the
// processor, or waits for its consumer, leaves these blocks unused, and the threads that run map
// memory meanwhile. So a thread that finds that others free what it allocates gives its used-up
// slabs to a commons, a heap without a thread. A thread that runs out of blocks takes a slab with
// enough free blocks from there, whichever thread used it up. Slabs that a thread has left thin, a
// quarter full at most, go there as well.
//
// There is one commons for every two classes of up to 2 KiB. A thread takes it for a moment, by a
// compare-and-swap from ORPHAN to CLAIMED, and does without it if another thread has it (protocol
// H4). Blocks freed into its slabs wait in its inbox for the next thread that takes it: to adopt a
// slab, after a number of posts, and now and then in a thread's slow paths.
// Docs: docs/decisions/0029-commons.md. Tests: test/unit/test_commons.c, test/model/commons.pml.

#ifndef HAK_THREAD_COMMONS_H
#define HAK_THREAD_COMMONS_H

#include "superslab/slab.h"
#include "thread/heap.h"

#define HAK_COMMONS_SHIFT 1 // log2 of the classes per commons
#define HAK_COMMONS_BLOCK_MAX 2048
#define HAK_COMMONS_PLACES (((HAK_CLASSES - 1) >> HAK_COMMONS_SHIFT) + 1)
// A place holds hak_heap_none while its commons is being made.
HAK_INTERNAL extern _Atomic(hak_heap_t *) hak_commons[HAK_COMMONS_PLACES];

// A thread gives slabs away after others' frees brought back this many of its slabs in a row.
#define HAK_OTHERS_ENOUGH 16

// A FULL slab of heap got blocks back from other threads (owner) / heap's own thread freed enough
// for a slab to notice (owner).
void hak_commons_freed_by_others(hak_heap_t *heap, hak_slab_t *slab);
HAK_INLINE void hak_commons_freed_here(hak_heap_t *heap) { heap->others = 0; }
// If heap's slabs are for the commons (owner): gives away a slab that is used up / that has free
// blocks again. True: it is not heap's any more. mark: as for hak_slab_leave_active, since a
// used-up slab becomes FULL only when it belongs to the commons already (R3).
bool hak_commons_take_full(hak_heap_t *heap, hak_slab_t *slab, uint64_t mark);
HAK_INLINE bool hak_commons_give(hak_heap_t *heap, hak_slab_t *slab, uint64_t mark) {
  return HAK_UNLIKELY(heap->others == HAK_OTHERS_ENOUGH) && hak_commons_take_full(heap, slab, mark);
}
bool hak_commons_give_back(hak_heap_t *heap, hak_slab_t *slab);
// Where more than HAK_FEW threads have heaps, a tiny slab that was FULL is thin when at most one in
// HAK_THIN_PART of its blocks is live. It is given away to whoever needs blocks, as its thread may
// sleep long; not at once, as it may soon be empty and go back whole, but after HAK_THIN others.
#define HAK_FEW 2
#define HAK_THIN_PART 4
HAK_INLINE uint64_t hak_commons_thin_mark(const hak_slab_t *slab) {
  return hak_load_relaxed(&hak_heap_threads) > HAK_FEW ? slab->capacity / HAK_THIN_PART + 1u : 1;
}
// A PARTIAL slab that cannot be released fell below that mark (owner).
void hak_commons_thin(hak_heap_t *heap, hak_slab_t *slab);
HAK_INLINE void hak_commons_look(hak_heap_t *heap, hak_slab_t *slab) {
  if (hak_slab_kind(slab) == HAK_KIND_TINY && (int64_t)hak_load_relaxed(&slab->frees_left) < 0)
    hak_commons_thin(heap, slab);
}
// A thread frees blocks of another owner's slab that was once given away as thin (any thread).
void hak_commons_thin_freed(hak_slab_t *slab, uint32_t blocks);

// Adopts a slab of the class, which becomes PARTIAL in heap. False: none is available (owner).
bool hak_commons_find(hak_heap_t *heap, unsigned size_class);
HAK_INLINE bool hak_commons_adopt(hak_heap_t *heap, unsigned size_class) {
  // Relaxed: a commons missed here is found at the next refill.
  return HAK_UNLIKELY(hak_load_relaxed(&hak_commons[size_class >> HAK_COMMONS_SHIFT]) != NULL) &&
         hak_commons_find(heap, size_class);
}

// A slab was posted to a commons (any thread). True: the poster is to look after it, because enough
// slabs were posted since the last adoption, or since a poster last did so while no thread had it.
bool hak_commons_due(hak_heap_t *common);
// Takes back what was freed into the next commons (heap remembers which) / into all of them, and
// gives back what is unused (any thread).
void hak_commons_tend(hak_heap_t *heap);
void hak_commons_reclaim(void);
void hak_commons_after_fork(void);

#endif
