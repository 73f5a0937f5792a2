// nursery.h: shared heaps for threads that hardly allocate. Such a thread gets no heap with its
// own slabs for each class. Each of its calls is served by one of a few nurseries, which all such
// threads share. The thread takes a nursery with a compare-and-swap from ORPHAN to ATTACHED. If
// another thread has it, the thread goes on to the next nursery without waiting, and stays there.
// If all are taken it gets its own heap. So threads that allocate at the same time soon separate. A
// thread that has used up its calls keeps the nursery as its heap, and others make a new one.
//
// Protocol H3. Used by thread/heap.c, and in the most common cases by thread/front.c, for threads
// without a heap. Tests: test/unit/test_nursery.c, test/model/nursery.pml.

#ifndef HAK_THREAD_NURSERY_H
#define HAK_THREAD_NURSERY_H

#include "base/types.h"

// Takes a nursery for this thread until it leaves it. NULL: the thread is to get a heap.
hak_heap_t *hak_nursery_enter(void);
// Takes the nursery that owns the slab (tiny or L2). NULL: its owner is no nursery, or is taken.
hak_heap_t *hak_nursery_enter_for(hak_slab_t *slab);
void hak_nursery_leave(hak_heap_t *heap);
// A free tiny or L2 block from the nursery that served this thread last. The thread has the nursery
// neither before nor after the call. NULL: a slower path is needed.
void *hak_nursery_hit(size_t size);
// Makes the nursery that served this thread its heap. NULL: none served it, or it is taken.
hak_heap_t *hak_nursery_grow_up(void);
// A block of size bytes is about to be taken out of a nursery. Returns the size to take instead.
size_t hak_nursery_takes(size_t size);
// Looks at the quarantines of the nurseries that no thread has (secure library).
void hak_nursery_audit(void);
// Gives back what the nurseries keep that no thread has.
void hak_nursery_reclaim(void);
void hak_nursery_after_fork(void);

#endif
