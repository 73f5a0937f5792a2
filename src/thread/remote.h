// remote.h: freeing blocks of slabs that another heap owns.
//
// A thread collects tiny blocks in a small map keyed by slab and hands each
// slab's chain over with one compare-and-swap (protocol R1); the first chain a
// slab gets also puts it into its owner's inbox (R2). What is held back is
// bounded by HAKMEM_REMOTE_PENDING bytes per thread and flushed on refills.
// L2 blocks go many to a letter (thread/letter.h), or at once, unless
// HAKMEM_POOL_MID_INUSE_DEFERRED collects them as well (row M6, docs/decisions/0018-deferred.md).
// Tests: test/unit/test_remote.c, test/model/remote.pml.

#ifndef HAK_THREAD_REMOTE_H
#define HAK_THREAD_REMOTE_H

#include "base/types.h"

// p: start of a block of a tiny slab, or block number of an L2 run.
// function is what the program called, for messages.
void hak_remote_free_tiny(hak_heap_t *heap, hak_slab_t *slab, void *p, const char *function);
void hak_remote_free_l2(hak_heap_t *heap, hak_slab_t *slab, uint32_t block, const char *function);
// Hands over a block of an L2 run. mine: the calling thread's heap, NULL without one.
void hak_remote_push_l2(hak_slab_t *slab, uint64_t block, hak_heap_t *mine);
// Whether this thread holds back the block of an L2 run.
bool hak_remote_holds_l2(hak_heap_t *heap, hak_slab_t *slab, uint32_t block);
// Hands over all that this heap's thread holds back.
HAK_NOINLINE void hak_remote_flush(hak_heap_t *heap);
// Without a map: hands over one block at once (no heap could be had).
void hak_remote_push_one(hak_slab_t *slab, void *p, uint32_t block);

#endif
