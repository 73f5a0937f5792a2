#include "thread/scarce.h"

#include "core/options.h"
#include "pool/l25.h"
#include "superslab/pool_index.h"
#include "superslab/slab.h"
#include "thread/commons.h"
#include "thread/ring.h"
#include "thread/warm.h"

// Whether the slab, which may be anybody's, is a FULL tiny one of heap's with a block on a list.
static bool has_unseen(hak_heap_t *heap, hak_slab_t *slab, unsigned c) {
  hak_heap_t *owner = hak_load_relaxed(&slab->local);
  if (owner != heap || hak_slab_kind(slab) != HAK_KIND_TINY || hak_slab_class(slab) != c ||
      hak_slab_place(slab) != HAK_PLACE_FULL || hak_slab_live_tiny(slab) >= hak_classes[c].capacity)
    return false;
  // Succeeds only if the slab has been heap's since local was read, so that all of the above are
  // heap's own words. Blocks in the remote word are live here: as fewer than the capacity are, not
  // all blocks are in that word, and relief leaves such a slab alone. Release: pairs with the
  // acquire in take (relief.c).
  return hak_cas_acq_rel(&slab->local, &owner, heap);
}

// FULL slabs are in no list, and a tiny one comes back only when some of its blocks are free. So
// all slabs are looked at; makes those PARTIAL that have a free block.
static void bring_all_back(hak_heap_t *heap, unsigned c) {
  if (hak_warm_slabs(heap, c) == 0) return;
  for (uint32_t number = 1, end = hak_superslab_count(); number < end; number++) {
    if (hak_index_has(HAK_INDEX_COLD, number)) continue; // without memory
    // Relaxed: heap's own slabs are not free.
    uint32_t used = ~(uint32_t)hak_load_relaxed(&hak_registry.superslabs[number].free_mask);
    for (; used != 0; used &= used - 1) {
      hak_slab_t *slab = hak_slab_at((number << HAK_SLABS_SHIFT) + hak_low_bit(used));
      if (has_unseen(heap, slab, c)) hak_heap_bring_back(heap, slab);
    }
  }
}

hak_slab_t *hak_scarce_take(hak_heap_t *heap, unsigned c) {
  hak_slab_t *slab = hak_warm_take(heap, c);
  if (!slab && hak_commons_adopt(heap, c)) slab = hak_warm_take(heap, c);
  while (!slab && hak_heap_adopt(heap, c)) slab = hak_warm_take(heap, c);
  if (!slab && c < HAK_TINY_CLASSES) {
    bring_all_back(heap, c);
    slab = hak_warm_take(heap, c);
  }
  return slab;
}

// Like borrow (front.c), but from PARTIAL runs too: what was in rings and in front before the
// reclaim is there now.
hak_slab_t *hak_scarce_lender(hak_heap_t *heap, unsigned c) {
  unsigned end = c + 1 + (unsigned)hak_option(L2_BORROW); // sized frees accept no more
  if (end > HAK_CLASSES) end = HAK_CLASSES;
  while (++c < end) {
    const hak_ring_t *ring = &heap->ring[c - HAK_TINY_CLASSES];
    hak_slab_t *slab = hak_heap_front(heap, c);
    if (ring->count != 0) {
      slab = hak_hint_slab(ring->hint[ring->count - 1]);
    } else if (hak_load_relaxed(&slab->mask) == 0) {
      hak_heap_retire(heap, slab);
      slab = hak_scarce_take(heap, c);
    }
    if (!slab) continue;
    hak_heap_count_stat(heap, HAK_STAT_l2_borrow, 1);
    hak_slab_set_roomy(slab);
    return slab;
  }
  return NULL;
}

void *hak_scarce_slab(hak_heap_t *heap, size_t size, bool *zeroed) {
  hak_claim_t got;
  if (!hak_pool_find(1, 0, &got)) return NULL;
  if (zeroed) *zeroed = got.slab->zeroed;
  hak_heap_count_stat(heap, HAK_STAT_l25_alloc, 1);
  return hak_l25_make(got.slab, size, false);
}
