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
  hak_heap_drain(heap); // a front may live on what others free of it, and nothing else is looked at
  hak_ring_tend(heap);
  hak_sparse_tend(heap);
  hak_commons_tend(heap);
  hak_orphan_tend();
  hak_heap_tend_shared();
}

void hak_tend_front(hak_heap_t *heap, hak_slab_t *slab) {
  uint64_t live = hak_slab_live_tiny(slab), allocs = hak_load_relaxed(&slab->allocs);
  hak_owner_add(&heap->classes[hak_slab_class(slab)].allocs, allocs - live);
  hak_slab_count(slab, live);
  if (heap == hak_tls_heap) hak_tend_now(heap); // not one that it has for a call only
}
