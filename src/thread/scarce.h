// scarce.h: where a request looks when the system gives no more memory: free blocks that a refill
// would not find. Everything here may take long, and runs only after hak_heap_reclaim.
//
// Tests: test/unit/test_scarce.c.

#ifndef HAK_THREAD_SCARCE_H
#define HAK_THREAD_SCARCE_H

#include "thread/heap.h"

// Returns a usable slab of the class, now in front, where there was none. NULL: no free block of
// the class is within reach (owner).
HAK_COLD hak_slab_t *hak_scarce_take(hak_heap_t *heap, unsigned size_class);

// For an L2 request whose class has none: a run of a class that may lend, with a block that the
// newest hint names or, if the class has no hint, a free one. NULL: there is none (owner).
HAK_COLD hak_slab_t *hak_scarce_lender(hak_heap_t *heap, unsigned size_class);
// Then a slab, as an L2.5 block of size bytes, up to HAK_L2_MAX. Sets *zeroed as hak_front_alloc.
HAK_COLD void *hak_scarce_slab(hak_heap_t *heap, size_t size, bool *zeroed);

#endif
