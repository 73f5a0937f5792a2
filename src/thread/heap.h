// heap.h: per-thread heaps: which heap a thread works on, how it gets one, and what becomes of it
// when the thread ends.
//
// States (protocol H1): a heap is ATTACHED to one thread, or an ORPHAN that is on the orphan
// lists, or CLAIMED for a moment by a thread that tidies it. The thread that it is attached to, or
// that claimed it, owns all its slabs. No thread ever waits for a heap. Heaps are never unmapped.
// A nursery is ATTACHED to a thread for the length of one call; between calls it is an ORPHAN that
// is on no list.
// Tests: test/unit/test_heap.c, test/model/orphan.pml.

#ifndef HAK_THREAD_HEAP_H
#define HAK_THREAD_HEAP_H

#include "base/types.h"
#include "superslab/shared_pool.h"
#include "superslab/size_class.h"

// The calling thread's heap; hak_heap_none (no free block anywhere) if it has none.
HAK_INTERNAL extern HAK_TLS hak_heap_t *hak_tls_heap;
HAK_INTERNAL extern hak_heap_t hak_heap_none;

#define HAK_HEAP_TICKS 64 // slow paths and emptied slabs from one hak_tend_now to the next

// For slow paths: returns the calling thread's heap, and attaches one if it has none. NULL if there
// is no memory for one. Every enter must be followed by a leave: a thread that is ending keeps its
// heap for that one call only.
HAK_COLD hak_heap_t *hak_heap_enter_new(void);
HAK_INLINE hak_heap_t *hak_heap_enter(void) {
  hak_heap_t *heap = hak_tls_heap;
  return HAK_LIKELY(heap != &hak_heap_none) ? heap : hak_heap_enter_new();
}
void hak_heap_detach_transient(hak_heap_t *heap);
HAK_INLINE void hak_heap_leave(hak_heap_t *heap) {
  if (HAK_UNLIKELY(heap->transient)) hak_heap_detach_transient(heap);
}
// For an allocation that found no memory for a heap: what all heaps keep may be enough.
HAK_COLD hak_heap_t *hak_heap_enter_again(void);

// Makes slab the front of the class; hak_slab_none leaves the class without one.
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
// If owner is an orphan with something in its inbox or mail, drains it: empty slabs are released,
// slabs that got free blocks can be adopted.
void hak_heap_service(hak_heap_t *owner);
// Takes back all blocks that other threads freed into heap's slabs (owner).
void hak_heap_drain(hak_heap_t *heap);
// Whether other threads have handed any over.
HAK_INLINE bool hak_heap_posted(const hak_heap_t *heap) {
  return hak_load_relaxed(&heap->inbox) != 0 || hak_load_relaxed(&heap->mail) != NULL;
}
// Takes back a block of one of heap's L2 runs that another thread freed (owner; letter.h).
void hak_heap_take_back_l2(hak_heap_t *heap, hak_slab_t *slab, uint64_t block);
// Frees, as the owner, a chain of count blocks of a tiny slab that is not in front (owner).
void hak_heap_put_chain(hak_heap_t *heap, hak_slab_t *slab, void *head, void *tail, uint32_t count);
// Moves a partial slab of the class from `from`, which must have one, to `to` (owner of both).
void hak_heap_give_partial(hak_heap_t *from, hak_heap_t *to, unsigned size_class);
// Takes one partial slab of the class from an orphan, or, if the orphan has none, all partial slabs
// of the class's group. False: no such orphan was found.
bool hak_heap_adopt(hak_heap_t *mine, unsigned size_class);

// Makes a usable slab that is in no list the front of its class / takes a slab (or hak_slab_none)
// out of the front and makes it PARTIAL or FULL (owner).
void hak_heap_activate(hak_heap_t *heap, hak_slab_t *slab);
void hak_heap_retire(hak_heap_t *heap, hak_slab_t *slab);
// Like hak_heap_retire, but the caller sets the front, to another slab or to none.
void hak_heap_retire_replaced(hak_heap_t *heap, hak_slab_t *slab);
// Short path for the most common refill of a tiny class: all blocks of the front are live, the
// newest PARTIAL slab has a free list, and nothing else is due. Returns that slab, which is in
// front now. NULL: this is another case, and nothing was done (owner).
hak_slab_t *hak_heap_turn(hak_heap_t *heap, hak_slab_t *front);
// Makes a slab FULL that is in no list and has no block to hand out (owner).
void hak_heap_mark_full(hak_heap_t *heap, hak_slab_t *slab);
// This thread freed a block of the slab. Tiny: its live blocks fell below its mark, or it was in
// front for HAK_FREES_BIAS frees. L2: the run is empty, or FULL and the ring had no room (owner).
void hak_heap_slab_event(hak_heap_t *heap, hak_slab_t *slab);
// Makes the slab PARTIAL if it is FULL, whether or not it has live blocks (owner).
void hak_heap_bring_back(hak_heap_t *heap, hak_slab_t *slab);
// If it is time, tends what all heaps share. Called by whichever thread is at work (any thread).
void hak_heap_tend_shared(void);
// Gives an empty slab in no list back to its SuperSlab (owner).
void hak_heap_release(hak_heap_t *heap, hak_slab_t *slab);
void hak_heap_release_with(hak_heap_t *heap, hak_slab_t *slab, hak_parcel_t *parcel);
// Gives back empty slabs that the heap keeps (owner).
void hak_heap_release_idle(hak_heap_t *heap);
// The same after a drain; also gives back the pages between its live blocks (owner).
void hak_heap_tidy(hak_heap_t *heap);

// Gives back all memory that can go back: what this heap (owner; NULL: none) and ended threads'
// heaps keep, huge mappings and empty SuperSlabs beyond `keep` bytes, and pages of free slabs.
// Other threads' heaps follow when they next refill or empty a slab, or after a number of hits.
void hak_heap_reclaim_all(hak_heap_t *heap, size_t keep);
// The same, for a request that found no memory, with keep 0; many such ones in a row ask the other
// threads only now and then, as each time these lose what they keep.
HAK_COLD void hak_heap_reclaim(hak_heap_t *heap);
// Gives back what this heap keeps, as such a request demands (owner).
void hak_heap_reclaim_own(hak_heap_t *heap);
// Does so if this heap has not done it since the last request (owner).
void hak_heap_reclaim_if_asked(hak_heap_t *heap);
HAK_INTERNAL extern _Atomic uint32_t hak_heap_requests; // number of requests so far
HAK_INLINE bool hak_heap_reclaim_asked(const hak_heap_t *heap) {
  return heap->reclaim_met != hak_load_relaxed(&hak_heap_requests);
}

// A last look at the free lists of the thread that ends the process, for misuse that no earlier check
// has found. The secure library, which checks every block that it takes, looks at the quarantines of
// this thread and of the nurseries instead (audit.c).
void hak_audit_at_exit(void);
// Debug builds: walks the heap's slabs and aborts if an invariant of types.h does not hold (owner;
// test/heap_check.c).
#if HAK_CHECKS >= 2
void hak_heap_check(hak_heap_t *heap);
#else
HAK_INLINE void hak_heap_check(HAK_UNUSED hak_heap_t *heap) {}
#endif

// Takes an ORPHAN, for a thread (wanted: ATTACHED) or for a moment (CLAIMED). False: the heap is no
// ORPHAN; as a rule another thread has it.
HAK_INLINE bool hak_heap_take(hak_heap_t *heap, uint32_t wanted) {
  uint32_t state = HAK_HEAP_ORPHAN;
  // Acquire: pairs with the release in hak_orphan_leave: all owner fields are this thread's now.
  // Seq_cst: R2 and H2.
  return hak_cas_seq_cst(&heap->state, &state, wanted);
}

// The heaps made so far have numbers 1 .. hak_heap_count(); NULL beyond.
uint32_t hak_heap_count(void);
hak_heap_t *hak_heap_by_id(uint32_t id);

// Number of threads that have a heap for longer than one call (relaxed: heuristics read it).
HAK_INTERNAL extern _Atomic uint32_t hak_heap_threads;

// Makes a heap in state NEW. NULL if there is no memory.
hak_heap_t *hak_heap_new(void);
// Makes a heap for a place that threads share and that is NULL: a nursery (state ATTACHED) or a
// commons (CLAIMED), which this thread then has. While it is made the place holds hak_heap_none.
// NULL: no memory, or the place is not NULL: it has a heap, or another thread makes one.
hak_heap_t *hak_heap_make_in(_Atomic(hak_heap_t *) *place, uint32_t state);

// The pthread-key destructor and its registration.
void hak_heap_thread_end(void *unused);
void hak_heap_init_keys(void);
// In the child of a fork: all heaps but the caller's belonged to threads that are gone.
void hak_heap_after_fork(void);

HAK_INLINE void hak_heap_count_stat(hak_heap_t *heap, hak_stat_t stat, uint64_t n) {
  hak_owner_add(&heap->stats[stat], n);
}

#endif
