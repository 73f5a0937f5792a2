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

// Serves a request of up to HAK_L2_MAX bytes whose class has none by a block of a larger class, not if
// it is to be aligned as its size is, or by a slab, as an L2.5 block. Sets *zeroed as hak_front_alloc.
// NULL: there is none (owner).
HAK_COLD void *hak_scarce_alloc(hak_heap_t *heap, size_t size, bool aligned, bool *zeroed);

// Whether a request up to HAK_L2_MAX was ever served so: a block may be larger than its class, then.
// Relaxed: set before such a block leaves malloc, so whoever frees it sees it.
HAK_INTERNAL extern _Atomic bool hak_scarce_lends;

#endif
