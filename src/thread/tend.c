#include "thread/tend.h"

#include "superslab/slab.h"
#include "thread/commons.h"
#include "thread/orphan.h"
#include "thread/remote.h"
#include "thread/ring.h"
#include "thread/sparse.h"

void hak_tend_now(hak_heap_t *heap) {
  heap->ticks = 0;
  hak_remote_flush(heap);
  hak_heap_drain(heap); // a front may live on its remote frees, and no other slab is looked at
  hak_ring_tend(heap);
  hak_sparse_tend(heap);
  hak_commons_tend(heap);
  hak_orphan_tend();
  hak_heap_tend_shared();
}

static void tend_own(hak_heap_t *heap) {
  if (heap == hak_tls_heap) hak_tend_now(heap); // not a heap that it has for one call only
}

void *hak_tend_ring(hak_ring_t *ring, hak_slab_t *run, void *block) {
  hak_heap_t *heap = hak_load_relaxed(&run->holder);
  uint64_t hits = HAK_RING_HITS - hak_load_relaxed(&ring->hits_left);
  hak_owner_add(&heap->classes[hak_slab_class(run)].allocs, hits);
  hak_store_relaxed(&ring->hits_left, HAK_RING_HITS);
  hak_ring_was_used(heap, ring);
  tend_own(heap);
  hak_heap_reclaim_if_asked(heap);
  return block;
}

void hak_tend_front(hak_heap_t *heap, hak_slab_t *slab) {
  uint64_t live = hak_slab_live_tiny(slab), allocs = hak_load_relaxed(&slab->allocs);
  hak_owner_add(&heap->classes[hak_slab_class(slab)].allocs, allocs - live);
  hak_slab_count(slab, live);
  tend_own(heap);
}
