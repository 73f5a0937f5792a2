#include "thread/scarce.h"

#include "pool/l25.h"
#include "superslab/pool_index.h"
#include "superslab/slab.h"
#include "thread/commons.h"
#include "thread/front.h"
#include "thread/orphan.h"
#include "thread/ring.h"
#include "thread/warm.h"

// Whether the slab, which may be anybody's, looks like a tiny one with a block on a list.
static bool may_have_unseen(hak_slab_t *slab) {
  return hak_slab_kind(slab) == HAK_KIND_TINY &&
         hak_slab_live_tiny(slab) < hak_classes[hak_slab_class(slab)].capacity;
}

// Whether it is a FULL one of heap's.
static bool has_unseen(hak_heap_t *heap, hak_slab_t *slab) {
  hak_heap_t *owner = hak_load_relaxed(&slab->local);
  if (owner != heap || !may_have_unseen(slab) || hak_slab_place(slab) != HAK_PLACE_FULL)
    return false;
  // Succeeds only if the slab has been heap's since local was read, so that all of the above are
  // heap's own words. Blocks in the remote word are live here: as fewer than the capacity are, not
  // all blocks are in that word, and relief leaves such a slab alone. Release: pairs with the
  // acquire in take (relief.c).
  return hak_cas_acq_rel(&slab->local, &owner, heap);
}

// Makes the slab PARTIAL if it is a FULL one with a free block, of heap or of one that no thread
// has. Of the latter, a nursery's PARTIAL slabs too, takes one. True: it has taken one.
static bool bring_back(hak_heap_t *heap, hak_slab_t *slab, unsigned c) {
  hak_heap_t *owner = hak_load_relaxed(&slab->local);
  if (!owner || (owner != heap && !hak_heap_take(owner, HAK_HEAP_CLAIMED))) return false;
  if (has_unseen(owner, slab)) hak_heap_bring_back(owner, slab);
  if (owner == heap) return false;
  uint32_t found = owner->partial[c];
  if (found) hak_heap_give_partial(owner, heap, c);
  if (found && hak_load_relaxed(&heap->nursery)) hak_slab_set_roomy(hak_slab_at(found));
  hak_orphan_let_go(owner);
  return found != 0;
}

// FULL slabs are in no list, and a tiny one comes back only when some of its blocks are free. So
// all slabs are looked at, for those of classes c to last.
static void bring_all_back(hak_heap_t *heap, unsigned c, unsigned last) {
  for (uint32_t number = 1, end = hak_superslab_count(); number < end; number++) {
    if (hak_index_has(HAK_INDEX_COLD, number)) continue; // without memory
    // Relaxed: heap's own slabs are not free.
    uint32_t used = ~(uint32_t)hak_load_relaxed(&hak_registry.superslabs[number].free_mask);
    for (; used != 0; used &= used - 1) {
      hak_slab_t *slab = hak_slab_at((number << HAK_SLABS_SHIFT) + hak_low_bit(used));
      unsigned its = hak_slab_class(slab);
      if (its >= c && its <= last && may_have_unseen(slab) && bring_back(heap, slab, its)) return;
    }
  }
}

static hak_slab_t *take_listed(hak_heap_t *heap, unsigned c) {
  hak_slab_t *slab = hak_warm_take(heap, c);
  if (!slab && hak_commons_adopt(heap, c)) slab = hak_warm_take(heap, c);
  while (!slab && hak_heap_adopt(heap, c)) slab = hak_warm_take(heap, c);
  return slab;
}

hak_slab_t *hak_scarce_take(hak_heap_t *heap, unsigned c) {
  hak_slab_t *slab = take_listed(heap, c);
  if (slab || c >= HAK_TINY_CLASSES) return slab;
  bring_all_back(heap, c, c);
  return hak_warm_take(heap, c);
}

_Atomic bool hak_scarce_lends;

// Like borrow (front.c), but from all classes from c on, and from PARTIAL slabs too: what was in
// rings and in front before the reclaim is there now.
static void *borrow(hak_heap_t *heap, unsigned c, bool *zeroed) {
  for (; c < HAK_CLASSES; c++) {
    hak_ring_t *ring = c < HAK_TINY_CLASSES ? NULL : &heap->ring[c - HAK_TINY_CLASSES];
    bool hinted = ring && ring->count != 0;
    if (!hinted) hak_heap_retire(heap, hak_heap_front(heap, c));
    hak_slab_t *slab = hinted ? NULL : take_listed(heap, c);
    if (!hinted && !slab) continue;
    hak_heap_count_stat(heap, HAK_STAT_l2_borrow, 1);
    if (hinted) return hak_front_pop_hint(ring);
    if (ring) return hak_front_take_l2(heap, ring, slab, hak_load_relaxed(&slab->mask), zeroed);
    if (!slab->free && hak_slab_next_chain(slab) == 0) (void)hak_slab_carve(slab, 1);
    return hak_front_pop(slab);
  }
  return NULL;
}

void *hak_scarce_alloc(hak_heap_t *heap, size_t size, bool aligned, bool *zeroed) {
  hak_claim_t got;
  unsigned c = hak_size_class(size ? size : 1) + 1;
  hak_store_relaxed(&hak_scarce_lends, true);
  void *p = aligned ? NULL : borrow(heap, c, zeroed);
  if (!p && !aligned && c < HAK_TINY_CLASSES) {
    bring_all_back(heap, c, HAK_TINY_CLASSES - 1);
    p = borrow(heap, c, zeroed);
  }
  if (p || !hak_pool_find(1, 0, &got)) return p;
  if (zeroed) *zeroed = got.slab->zeroed;
  hak_heap_count_stat(heap, HAK_STAT_l25_alloc, 1);
  return hak_l25_make(got.slab, size, true);
}
