// orphan.h: heaps of ended threads (protocols H1 and H2). A new thread takes one, with all its
// slabs; a running one claims one for a moment to adopt a partial slab. A list is a stack:
// number of the top heap and a tag that changes with every update, so that a compare-and-swap
// never takes an old top for the new one. A heap may stay listed when it is no orphan any more;
// who pops it finds out from its state and drops it. `listed` keeps it from being pushed twice.
//
// Any thread. Tests: test/unit/test_heap.c, test/model/orphan.pml, orphan_list.pml.

#ifndef HAK_THREAD_ORPHAN_H
#define HAK_THREAD_ORPHAN_H

#include "base/types.h"

HAK_INTERNAL extern _Atomic uint64_t hak_orphans[HAK_ORPHAN_LISTS];

// Whether the list has a heap. Relaxed: a missed one is found at the next look.
HAK_INLINE bool hak_orphan_any(unsigned list) {
  return (uint32_t)hak_load_relaxed(&hak_orphans[list]) != 0;
}
// Takes an orphan off the list into state `wanted`, NULL if there is none. One that another
// thread has attached or claimed meanwhile is dropped: that thread lists it again.
hak_heap_t *hak_orphan_take(unsigned list, uint32_t wanted);
// Gives a heap up (owner), which takes a call of hak_heap_service afterwards. A nursery or a
// commons is on no list: it stays in its place.
void hak_orphan_leave(hak_heap_t *heap);
// The same with that call.
void hak_orphan_let_go(hak_heap_t *heap);
// All of them give back what they can: for who has no heap that could take their slabs over.
void hak_orphan_reclaim(void);
// One of them, the next each time, takes back what others freed, and gives back pages that were
// idle already when it was looked at before (thread/sparse.h).
void hak_orphan_tend(void);
// In the child of a fork, whose only heap is mine, or hak_heap_none.
void hak_orphan_after_fork(hak_heap_t *mine);

#endif
