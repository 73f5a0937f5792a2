// nursery.h: heaps for threads that hardly allocate. Such a thread does not get a heap,
// with slabs of its own for each class: its calls are served by one of a few that all of
// them share. It takes the nursery with a compare-and-swap from ORPHAN to ATTACHED, does not
// wait if another thread has it but goes on to the next one, and stays there; where all are
// taken it gets its own heap. So threads that allocate at the same time part soon. A
// thread that has had its calls keeps the nursery as its heap, and others make a new one.
//
// Protocol H3. Used by thread/heap.c, and for what is commonest by thread/front.c, for threads
// without a heap. Tests: test/unit/test_nursery.c, test/model/nursery.pml.

#ifndef HAK_THREAD_NURSERY_H
#define HAK_THREAD_NURSERY_H

#include "base/types.h"

// A nursery that is this thread's until it leaves it; NULL: it is to have a heap.
hak_heap_t *hak_nursery_enter(void);
// The one that the slab is of, tiny or L2, NULL if that is none or taken.
hak_heap_t *hak_nursery_enter_for(hak_slab_t *slab);
void hak_nursery_leave(hak_heap_t *heap);
// A free tiny or L2 block from the nursery that served this thread last, which it does not have
// before or after; NULL: not so quickly.
void *hak_nursery_hit(size_t size);
// Makes the nursery that has served this thread its heap; NULL: none has, or it is taken.
hak_heap_t *hak_nursery_grow_up(void);
// A block of size bytes is about to be taken out of a nursery: what is to be taken instead.
size_t hak_nursery_takes(size_t size);
// Follows a request of hak_heap_reclaim_all in those that nobody has.
void hak_nursery_reclaim(void);
void hak_nursery_after_fork(void);

#endif
