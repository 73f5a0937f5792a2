// heap.h: per-thread heaps: which heap a thread works on, how it gets one, and
// what becomes of it when the thread ends.
//
// States (protocol H1): a heap is ATTACHED to one thread, or an ORPHAN found on
// the orphan lists, or CLAIMED for a moment by a thread that tidies it. The
// thread it is attached to, or that claimed it, owns all its slabs. Nobody ever
// waits for a heap. Heaps are never unmapped. A nursery is attached to a thread for
// one call, and an orphan on no list between two.
// Tests: test/unit/test_heap.c, test/model/orphan.pml.

#ifndef HAK_THREAD_HEAP_H
#define HAK_THREAD_HEAP_H

#include "base/types.h"
#include "superslab/shared_pool.h"
#include "superslab/size_class.h"

// The calling thread's heap; hak_heap_none (no free block anywhere) if it has none.
HAK_INTERNAL extern HAK_TLS hak_heap_t *hak_tls_heap;
HAK_INTERNAL extern hak_heap_t hak_heap_none;

#define HAK_HEAP_TICKS 64 // slow paths between two looks at what is held back

// For slow paths: the calling thread's heap, attached if it had none. NULL if no
// memory can be had for one. Every enter is followed by a leave: a thread that is
// ending keeps its heap for that one call only.
HAK_INLINE hak_heap_t *hak_heap_enter(void);
HAK_INLINE void hak_heap_leave(hak_heap_t *heap);

// Puts slab into the front of its class; hak_slab_none empties it.
void hak_heap_set_front(hak_heap_t *heap, unsigned size_class, hak_slab_t *slab);
HAK_INLINE hak_slab_t *hak_heap_front(hak_heap_t *heap, unsigned size_class) {
  if (size_class >= HAK_TINY_CLASSES) return heap->l2[size_class - HAK_TINY_CLASSES];
  return heap->tiny[hak_class_size(size_class) >> HAK_MIN_SHIFT];
}
// The list of PARTIAL slabs of a class (owner).
void hak_heap_add_partial(hak_heap_t *heap, hak_slab_t *slab);
void hak_heap_remove_partial(hak_heap_t *heap, hak_slab_t *slab);

// Puts a slab into owner's inbox. The caller has set QUEUED in its remote word.
void hak_heap_post(hak_heap_t *owner, hak_slab_t *slab);
// If owner is an orphan with something in its inbox, tidies it: empty slabs go
// back, slabs that got free blocks can be adopted.
void hak_heap_service(hak_heap_t *owner);
// Takes in all that other threads freed into heap's slabs (owner).
void hak_heap_drain(hak_heap_t *heap);
// Whether there is any that they have handed over.
HAK_INLINE bool hak_heap_posted(const hak_heap_t *heap) {
  return hak_load_relaxed(&((hak_heap_t *)heap)->inbox) != 0 ||
         hak_load_relaxed(&((hak_heap_t *)heap)->mail) != NULL;
}
// A block of an L2 run of heap's is back from another thread (owner; letter.h).
void hak_heap_take_back_l2(hak_heap_t *heap, hak_slab_t *slab, uint64_t block);
// Frees a chain of count blocks of a tiny slab that is in no front, as its owner (owner).
void hak_heap_put_chain(hak_heap_t *heap, hak_slab_t *slab, void *head, void *tail, uint32_t count);
// Makes a partial slab of the class, of which `from` has some, one of `to` (owner of both).
void hak_heap_give_partial(hak_heap_t *from, hak_heap_t *to, unsigned size_class);
// Takes partial slabs of the class, or of its group if it finds none, from an orphan; false
// if there is none with such.
bool hak_heap_adopt(hak_heap_t *mine, unsigned size_class);

// Makes a usable slab in no list the front of its class / takes a slab (or
// hak_slab_none) out of the front into PARTIAL or FULL (owner).
void hak_heap_activate(hak_heap_t *heap, hak_slab_t *slab);
void hak_heap_retire(hak_heap_t *heap, hak_slab_t *slab);
// The same, but the caller puts another slab, or none, into the front.
void hak_heap_retire_replaced(hak_heap_t *heap, hak_slab_t *slab);
// The commonest refill of a tiny class in few steps: all blocks of the front are live, the
// newest PARTIAL slab has a free list, and nothing else is due. That slab, in front; NULL: it
// is not so, and nothing was done (owner).
hak_slab_t *hak_heap_turn(hak_heap_t *heap, hak_slab_t *front);
// A slab in no list that has nothing to hand out becomes FULL (owner).
void hak_heap_mark_full(hak_heap_t *heap, hak_slab_t *slab);
// This thread freed a block of the slab, and its live blocks fell below its mark, or so many were
// freed since it came to the front (owner).
void hak_heap_slab_event(hak_heap_t *heap, hak_slab_t *slab);
// If the slab is FULL it becomes PARTIAL, whether or not it is unused (owner).
void hak_heap_bring_back(hak_heap_t *heap, hak_slab_t *slab);
// What is shared, when it is time: for whoever is at work (any thread).
void hak_heap_tend_shared(void);
// Gives an empty slab in no list back to its SuperSlab (owner).
void hak_heap_release(hak_heap_t *heap, hak_slab_t *slab);
void hak_heap_release_with(hak_heap_t *heap, hak_slab_t *slab, hak_parcel_t *parcel);
// Gives back empty slabs that the heap keeps (owner).
void hak_heap_release_idle(hak_heap_t *heap);
// After it has taken in what others freed, and with the pages between its blocks (owner).
void hak_heap_tidy(hak_heap_t *heap);

// Everything that can be had back: what this heap (owner; NULL: none) and ended threads'
// heaps keep, mappings of huge blocks and empty SuperSlabs beyond `keep` bytes, pages of free slabs.
// Heaps of other threads follow when they next refill or empty a slab, or after so many hits.
void hak_heap_reclaim_all(hak_heap_t *heap, size_t keep);
// Follows such a request of another thread (owner).
void hak_heap_reclaim_if_asked(hak_heap_t *heap);
HAK_INTERNAL extern _Atomic uint32_t hak_heap_requests; // so far
HAK_INLINE bool hak_heap_reclaim_asked(const hak_heap_t *heap) {
  return heap->reclaim_met != hak_load_relaxed(&hak_heap_requests);
}

// Debug builds: walks the heap's slabs and aborts if an invariant of types.h does
// not hold (owner).
#if HAK_CHECKS >= 2
void hak_heap_check(hak_heap_t *heap);
#else
HAK_INLINE void hak_heap_check(HAK_UNUSED hak_heap_t *heap) {}
#endif

// Takes a heap that nobody has, for a thread (ATTACHED) or a moment (CLAIMED); false: somebody
// has it.
HAK_INLINE bool hak_heap_take(hak_heap_t *heap, uint32_t wanted) {
  uint32_t state = HAK_HEAP_ORPHAN;
  // Acquire: pairs with the release in hak_orphan_leave: all owner fields are this
  // thread's now. Seq_cst: R2 and H2.
  return hak_cas_seq_cst(&heap->state, &state, wanted);
}

// Heaps made so far are 1 .. hak_heap_count(); NULL beyond.
uint32_t hak_heap_count(void);
hak_heap_t *hak_heap_by_id(uint32_t id);

// Threads that have a heap, and not for one call only (relaxed: a heuristic's).
HAK_INTERNAL extern _Atomic uint32_t hak_heap_threads;

// A heap in state NEW, NULL without memory.
hak_heap_t *hak_heap_new(void);

// The pthread-key destructor and its registration.
void hak_heap_thread_end(void);
void hak_heap_arm(void);
void hak_heap_init_keys(void);
// In the child of a fork: all heaps but the caller's belonged to threads that
// are gone.
void hak_heap_after_fork(void);

HAK_COLD hak_heap_t *hak_heap_enter_new(void); // the thread has no heap
HAK_INLINE hak_heap_t *hak_heap_enter(void) {
  hak_heap_t *heap = hak_tls_heap;
  return HAK_LIKELY(heap != &hak_heap_none) ? heap : hak_heap_enter_new();
}
void hak_heap_detach_transient(hak_heap_t *heap);
HAK_INLINE void hak_heap_leave(hak_heap_t *heap) {
  if (HAK_UNLIKELY(heap->transient)) hak_heap_detach_transient(heap);
}

HAK_INLINE void hak_heap_count_stat(hak_heap_t *heap, hak_stat_t stat, uint64_t n) {
  hak_owner_add(&heap->stats[stat], n);
}

#endif
