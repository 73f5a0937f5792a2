// remote.h: freeing blocks of slabs that another heap owns.
//
// A thread collects tiny blocks in a small map keyed by slab and hands each slab's chain over
// with one compare-and-swap (protocol R1). The first chain that a slab gets also puts the slab
// into its owner's inbox (R2). A chain that has to leave its entry waits before the map until
// HAK_REMOTE_LEAVING have left theirs; these go before newer ones. At most HAKMEM_REMOTE_PENDING
// bytes per thread are held back; slow paths flush them. L2 blocks are sent many to a letter,
// which has its own bound (thread/letter.h), or handed over at once, unless
// HAKMEM_POOL_MID_INUSE_DEFERRED collects them as well (row M6, docs/decisions/0018-deferred.md).
// Tests: test/unit/test_remote.c, test/model/remote.pml.

#ifndef HAK_THREAD_REMOTE_H
#define HAK_THREAD_REMOTE_H

#include "core/options.h"
#include "superslab/seal.h"
#include "superslab/slab.h"

// Neighbouring slabs go to different entries.
HAK_INLINE hak_remote_entry_t *hak_remote_entry(hak_heap_t *heap, uint32_t slab) {
  unsigned i = (slab ^ slab >> HAK_REMOTE_MAP_SHIFT) & (HAK_REMOTE_MAP_SIZE - 1);
  return &heap->remote_map[HAK_REMOTE_LEAVING + i];
}

// Adds p, the start of a block of a tiny slab, to the waiting blocks of the same slab. False:
// not done (all less common cases). Also works on hak_heap_none, where no block waits.
HAK_INLINE bool hak_remote_add(hak_heap_t *heap, const hak_slab_t *slab, void *p) {
  uint32_t index = hak_slab_index(slab), pending = heap->pending + slab->size;
  hak_remote_entry_t *entry = hak_remote_entry(heap, index);
  uint64_t chain = entry->chain, head = chain & HAK_REMOTE_POINTER_MASK;
  if (HAK_UNLIKELY(entry->slab != index) || HAK_UNLIKELY(head == (uintptr_t)p) ||
      HAK_UNLIKELY(pending > hak_option(REMOTE_PENDING)))
    return false;
  hak_link_set(p, (void *)(uintptr_t)head);
  entry->chain = chain - head + (uintptr_t)p + ((uint64_t)1 << HAK_REMOTE_COUNT_SHIFT);
  heap->pending = pending;
  return true;
}

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
// Hands over one block at once, without a map (when no heap could be obtained).
void hak_remote_push_one(hak_slab_t *slab, void *p, uint32_t block);

#endif
