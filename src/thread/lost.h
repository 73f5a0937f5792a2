// lost.h: heaps whose threads ended without notice. Such a thread got its heap in the last round of
// its key destructors, in which the C library sees no new value of a key any more. A thread cannot
// tell that round from the rest of its life. The heap stays ATTACHED although it has no thread.
//
// Two live threads never have their thread-local variables in the same place. So a heap that was
// kept from the place where the calling thread now has its own variables is lost. The C library
// reused the place, so the end of the heap's thread happens before this. Threads that start reuse
// such places first: the number of lost heaps is bounded by the number of places, except for places
// that share a slot of lost.c, whose threads lose heaps by turns.
//
// Protocol H5. Used by thread/heap.c, for a thread that is to get a heap. Tests:
// test/unit/test_heap.c.

#ifndef HAK_THREAD_LOST_H
#define HAK_THREAD_LOST_H

#include "base/types.h"

// Records that the heap is the calling thread's, until its end calls hak_lost_left.
void hak_lost_keep(hak_heap_t *heap);
HAK_INLINE void hak_lost_left(hak_heap_t *heap) {
  // Relaxed: the release in hak_orphan_leave comes later.
  hak_store_relaxed(&heap->keeper, NULL);
  atomic_signal_fence(memory_order_seq_cst);
}
// A heap that was lost in this thread's place, now ATTACHED to this thread. NULL: there is none.
hak_heap_t *hak_lost_find(void);

#endif
