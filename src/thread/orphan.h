// orphan.h: heaps of ended threads (protocols H1 and H2). A new thread takes an orphan with all its
// slabs; a running thread claims one for a moment to adopt a partial slab. A list is a stack: the
// number of the top heap and a tag that changes with every update, so that a compare-and-swap never
// mistakes an old top for the new one. A heap may stay listed when it is no orphan any more; the
// thread that pops it sees that from its state and drops it. `listed` prevents a second push.
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
// Takes an orphan off the list into state `wanted`. NULL if there is none. A heap that another
// thread has attached or claimed meanwhile is dropped: that thread lists it again.
hak_heap_t *hak_orphan_take(unsigned list, uint32_t wanted);
// Gives up a heap (owner). A call of hak_heap_service has to follow, except for a commons (H4). A
// nursery or a commons goes on no list: it stays in its place.
void hak_orphan_leave(hak_heap_t *heap);
// The same, followed by that call.
void hak_orphan_let_go(hak_heap_t *heap);
// Makes all orphans give back what they can.
void hak_orphan_reclaim(void);
// Takes back what others freed into one orphan or deserted nursery, the next one each time, and
// gives back its pages that were idle already at the previous look (thread/sparse.h), and what the
// nursery kept for its threads; in the secure library its quarantine too.
void hak_orphan_tend(void);
// In the child of a fork. mine: the only heap that it still uses, or hak_heap_none.
void hak_orphan_after_fork(hak_heap_t *mine);

#endif
