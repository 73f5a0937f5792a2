// lost.h: heaps whose threads ended without notice. Such a thread got its heap when it was too
// late: in the last round of its key destructors no new value is seen any more, and by then nothing
// tells that round from the rest of its life. The heap stays ATTACHED to nobody.
//
// Two threads that live at the same time do not have their thread-local variables in the same
// place. So a heap that was kept from where the calling thread now has its own is a lost one, and
// the C library, which used the place again, has made that thread's end happen before this. Places
// are used again first by threads that start next: what is lost is bounded by their number, but for
// places that share a slot of lost.c, whose threads lose heaps by turns.
//
// Protocol H5. Used by thread/heap.c, for a thread that is to have a heap. Tests:
// test/unit/test_heap.c.

#ifndef HAK_THREAD_LOST_H
#define HAK_THREAD_LOST_H

#include "base/types.h"

// The heap is the calling thread's until hak_lost_left, which its end calls.
void hak_lost_keep(hak_heap_t *heap);
HAK_INLINE void hak_lost_left(hak_heap_t *heap) {
  // Relaxed: before the release of hak_orphan_leave.
  hak_store_relaxed(&heap->keeper, NULL);
  atomic_signal_fence(memory_order_seq_cst);
}
// One that was lost in this thread's place, ATTACHED to this thread now; NULL: there is none.
hak_heap_t *hak_lost_find(void);

#endif
