#include "thread/front.h"

#include "core/options.h"
#include "pool/huge.h"
#include "pool/huge_cache.h"
#include "pool/l25.h"
#include "superslab/shared_pool.h"
#include "thread/commons.h"
#include "thread/first.h"
#include "thread/growth.h"
#include "thread/guard.h"
#include "thread/letter.h"
#include "thread/nursery.h"
#include "thread/remote.h"
#include "thread/scarce.h"
#include "thread/sparse.h"
#include "thread/warm.h"

#define PREWARM_CLASSES 8 // 16 to 128 bytes: docs/decisions/0014-prewarm.md
#define BATCH_MAX 128     // blocks carved at once: the upper end of HAKMEM_REFILL_BATCH
#define FEW_RUNS 4        // a class with more runs takes another run instead of borrowing
#define BORROWS_MAX 64    // and so does a class that has borrowed this often: docs/decisions/0033

// ---------------------------------------------------------------------------
// Refill: which slab serves a class next.

// Claims from the shared pool, also for the warm pool. Drops unused slabs, if many, before it maps.
static bool claim(hak_heap_t *heap, unsigned c, hak_claim_t *claim) {
  unsigned n = hak_classes[c].run, more = hak_warm_wants(heap, c);
  if (hak_pool_find(n, more, claim)) return true;
  if (hak_warm_drop_many(heap) && hak_pool_find(n, more, claim)) return true;
  hak_sparse_make_room(heap);
  return hak_pool_map(n, more, hak_growth_fills(heap, c), claim);
}

static hak_slab_t *acquire(hak_heap_t *heap, unsigned c) {
  hak_claim_t got;
  if (!claim(heap, c, &got)) return NULL;
  // Highest address first: the warm pool then hands them out in address order.
  for (uint32_t more = got.more; more != 0; more &= ~(UINT32_C(1) << hak_high_bit(more)))
    hak_warm_prefill(heap, got.slab + hak_high_bit(more), c);
  hak_slab_init(got.slab, heap, c);
  heap->warm[c].slabs++;
  hak_heap_activate(heap, got.slab);
  if (got.slab->zeroed) hak_growth_fresh(heap, got.slab, c);
  static const hak_stat_t stage[] = {[HAK_FROM_POOL] = HAK_STAT_refill_pool,
                                     [HAK_FROM_DRAINING] = HAK_STAT_refill_draining,
                                     [HAK_FROM_REUSE] = HAK_STAT_refill_reuse,
                                     [HAK_FROM_MAP] = HAK_STAT_refill_map};
  hak_heap_count_stat(heap, stage[got.source], 1);
  return got.slab;
}

// Finds a slab other than the one in front, which is used up and in place FULL or PARTIAL. The slab
// found, or none, is in front afterwards.
static hak_slab_t *next_slab(hak_heap_t *heap, unsigned c) {
  if (hak_heap_posted(heap)) hak_heap_drain(heap);
  hak_warm_look_for_draining(heap);
  hak_slab_t *slab = hak_warm_take(heap, c);
  hak_warm_count(heap, c, slab != NULL);
  if (slab) {
    if (slab->carved == 0 && slab->zeroed) hak_growth_fresh(heap, slab, c); // prefilled
    else heap->warm[c].growth = 0;
    hak_heap_count_stat(heap, HAK_STAT_refill_warm, 1);
    return slab;
  }
  if (hak_commons_adopt(heap, c) && (slab = hak_warm_take(heap, c)) != NULL) {
    hak_heap_count_stat(heap, HAK_STAT_refill_commons, 1);
    return slab;
  }
  if (hak_heap_adopt(heap, c) && (slab = hak_warm_take(heap, c)) != NULL) {
    hak_heap_count_stat(heap, HAK_STAT_refill_adopt, 1);
    return slab;
  }
  if ((slab = acquire(heap, c)) != NULL) return slab;
  hak_heap_set_front(heap, c, &hak_slab_none);
  hak_heap_reclaim(heap); // out of memory: the memory that is kept may suffice
  if ((slab = hak_scarce_take(heap, c)) != NULL)
    hak_heap_count_stat(heap, HAK_STAT_refill_adopt, 1);
  else if ((slab = acquire(heap, c)) == NULL) hak_heap_count_stat(heap, HAK_STAT_refill_failed, 1);
  return slab;
}

// Number of blocks to carve at once. It doubles each time while the slab is being filled and no
// block comes back (frees_left counts the frees since the slab came into the front).
static uint32_t batch_for(hak_slab_t *slab) {
  uint32_t batch = (uint32_t)hak_option(REFILL_BATCH), grown = slab->carved;
  if (grown <= batch || hak_load_relaxed(&slab->frees_left) != HAK_FREES_BIAS) return batch;
  return grown < BATCH_MAX ? grown : BATCH_MAX;
}

// Number of blocks that the slab, which has just come to the front, can serve. Tiny: those on its
// free list; if that was empty, it first gets a chain or fresh blocks.
static uint32_t make_ready(hak_slab_t *slab, uint32_t batch) {
  uint32_t live = (uint32_t)hak_slab_live(slab), chain;
  if (hak_slab_kind(slab) != HAK_KIND_TINY) return slab->capacity - live;
  if (slab->free) return slab->carved - live;
  return (chain = hak_slab_next_chain(slab)) != 0 ? chain : hak_slab_carve(slab, batch);
}

// Returns a usable slab, now in front of its class; a tiny one has a non-empty free list. NULL: out
// of memory.
static hak_slab_t *refill(hak_heap_t *heap, unsigned c) {
  bool tiny = c < HAK_TINY_CLASSES;
  uint32_t got = 0;
  hak_owner_inc(&heap->classes[c].refills);
  hak_slab_t *slab = hak_heap_front(heap, c);
  if (!tiny) hak_growth_used_up(heap, slab);
  if (slab != &hak_slab_none) {
    if (HAK_UNLIKELY(tiny && slab->free)) { // freed by others, and taken back just now
      hak_heap_count_stat(heap, HAK_STAT_refill_remote, 1);
      return slab;
    }
    if (tiny && (got = hak_slab_next_chain(slab)) != 0) {
      hak_heap_count_stat(heap, HAK_STAT_refill_remote, 1);
    } else if (tiny && (slab->carved < slab->capacity || slab->absent != 0)) {
      got = hak_slab_carve(slab, batch_for(slab));
      hak_heap_count_stat(heap, HAK_STAT_refill_carve, 1);
    } else if (hak_load_relaxed(&slab->remote) != 0 && (got = hak_slab_collect(slab, false)) != 0) {
      hak_heap_count_stat(heap, HAK_STAT_refill_remote, 1);
      hak_heap_count_stat(heap, HAK_STAT_remote_collect, got);
    } else {
      hak_heap_retire_replaced(heap, slab);
    }
  }
  if (!got) {
    if ((slab = next_slab(heap, c)) == NULL) return NULL;
    got = make_ready(slab, batch_for(slab));
  }
  hak_owner_add(&heap->classes[c].blocks, got);
  return slab;
}

void hak_front_prewarm(hak_heap_t *heap) {
  for (unsigned c = 0; c < PREWARM_CLASSES; c++) {
    if (hak_heap_front(heap, c) != &hak_slab_none) continue;
    hak_slab_t *slab = next_slab(heap, c);
    hak_owner_inc(&heap->classes[c].refills);
    if (!slab) return;
    hak_heap_count_stat(heap, HAK_STAT_prewarm, 1);
    hak_owner_add(&heap->classes[c].blocks, make_ready(slab, (uint32_t)hak_option(PREWARM)));
  }
}

// ---------------------------------------------------------------------------
// Allocation.

static void *alloc_tiny(hak_heap_t *heap, size_t size) {
  hak_slab_t *slab = heap->tiny[(size + HAK_MIN_BLOCK - 1) >> HAK_MIN_SHIFT];
  if (!slab->free) {
    hak_tend(heap);
    slab = refill(heap, hak_size_class(size ? size : 1));
  }
  return slab ? hak_front_pop(slab) : NULL;
}

// A class without a free block borrows from a class above before it takes another run: the block
// freed last there, else one of the run in front. One never used pays only if it saves a first run.
static void *borrow(hak_heap_t *heap, unsigned c, bool *zeroed) {
  hak_ring_t *own = &heap->ring[c - HAK_TINY_CLASSES], *ring = own + 1;
  uint32_t runs = hak_warm_slabs(heap, c);
  if (runs > FEW_RUNS || heap->partial[c] != 0 || heap->spare[c] != 0) return NULL;
  unsigned end = c + 1 + (unsigned)hak_option(L2_BORROW);
  if (end > HAK_CLASSES) end = HAK_CLASSES;
  if (own->borrowed == BORROWS_MAX) end = own->borrowed = 0; // a run is cheaper in the long term
  for (; ++c < end; ring++) {
    hak_slab_t *slab = heap->l2[c - HAK_TINY_CLASSES];
    uint64_t mask = hak_load_relaxed(&slab->mask);
    if (ring->count != 0) slab = hak_hint_slab(ring->hint[ring->count - 1]);
    else if (mask == 0 || (runs != 0 && hak_low_bit(mask) >= slab->carved)) continue;
    own->borrowed++;
    own->missed = true;
    hak_heap_count_stat(heap, HAK_STAT_l2_borrow, 1);
    hak_slab_set_roomy(slab);
    return ring->count != 0 ? hak_front_pop_hint(ring)
                            : hak_front_take_l2(heap, ring, slab, mask, zeroed);
  }
  return NULL;
}

// NOT_LENT: borrow found none. OWN: only a block of the size's own class is aligned as the size is.
typedef enum { ANY, NOT_LENT, OWN } want_t;

static void *alloc_l2(hak_heap_t *heap, size_t size, want_t want, bool *zeroed) {
  unsigned c = hak_size_class(size);
  hak_ring_t *ring = &heap->ring[c - HAK_TINY_CLASSES];
  if (ring->count) return hak_front_pop_hint(ring);
  ring->missed = true;
  hak_slab_t *slab = heap->l2[c - HAK_TINY_CLASSES];
  uint64_t mask = hak_load_relaxed(&slab->mask);
  if (HAK_UNLIKELY(mask == 0)) {
    hak_heap_drain(heap); // blocks that others freed are now in the ring or in the run in front
    hak_tend(heap);       // a thread may live on those alone; this may retire the run in front
    slab = heap->l2[c - HAK_TINY_CLASSES];
    if (ring->count == 0 && hak_load_relaxed(&slab->mask) == 0) {
      void *borrowed = want == ANY ? borrow(heap, c, zeroed) : NULL;
      if (borrowed) return borrowed;
      if (!(slab = refill(heap, c)) && ring->count == 0) return NULL;
    }
    // Also blocks that a reclaim took from quarantine.
    if (ring->count) return hak_front_pop_hint(ring);
    mask = hak_load_relaxed(&slab->mask);
  }
  return hak_front_take_l2(heap, ring, slab, mask, zeroed);
}

static void *alloc_mapping(hak_heap_t *heap, size_t size, size_t alignment, bool *zeroed) {
  void *p = hak_huge_alloc(size, alignment, zeroed != NULL);
  if (!p) return NULL;
  if (zeroed) *zeroed = true;
  hak_heap_count_stat(heap, HAK_STAT_huge_alloc, 1);
  return p;
}

static void *alloc_huge(hak_heap_t *heap, size_t size, size_t alignment, bool *zeroed) {
  if ((size | alignment) >= HAK_ADDRESS_END) return NULL; // nothing is reclaimed for it
  hak_heap_tend_shared();
  void *p = alloc_mapping(heap, size, alignment, zeroed);
  if (p || !hak_huge_cache_may_serve(size)) return p;
  unsigned tries = 0;
  do hak_heap_reclaim(heap);
  while (!(p = alloc_mapping(heap, size, alignment, zeroed)) && hak_huge_cache_await(tries++));
  return p;
}

static void *alloc_l25(hak_heap_t *heap, size_t size, size_t alignment, bool *zeroed) {
  hak_tend(heap);
  hak_slab_t *kept = hak_ring_take_run(heap, hak_l25_slabs(size), alignment);
  bool fresh = false;
  void *p = kept ? hak_l25_make(kept, size, alignment > 1) : NULL;
  for (bool again = false; !p && !(p = hak_l25_alloc(size, alignment, &fresh)); again = true) {
    void *mapping = alloc_mapping(heap, size, alignment, zeroed); // it needs less than a SuperSlab
    if (mapping || again) return mapping;
    hak_heap_reclaim(heap);
  }
  if (kept) hak_heap_count_stat(heap, HAK_STAT_l25_ring, 1);
  if (zeroed) *zeroed = fresh;
  hak_heap_count_stat(heap, HAK_STAT_l25_alloc, 1);
  return p;
}

HAK_NOINLINE static void *alloc_any(size_t size, want_t want, bool *zeroed) {
  if (HAK_UNLIKELY(size > HAK_SIZE_MAX - HAK_TAIL)) return NULL;
  if (HAK_UNLIKELY(hak_guard_is_on())) {
    void *guarded = hak_guard_alloc(size);
    if (guarded) return guarded;
  }
  void *p = HAK_UNLIKELY(hak_tls_heap == &hak_heap_none) ? hak_nursery_hit(size) : NULL;
  if (p) return hak_front_sealed(p, size);
  hak_heap_t *heap = hak_heap_enter();
  if (HAK_UNLIKELY(!heap) && !(heap = hak_heap_enter_again())) return NULL;
  size_t total = size + HAK_TAIL;
  if (HAK_UNLIKELY(hak_load_relaxed(&heap->nursery))) total = hak_nursery_takes(total);
  if (total <= HAK_TINY_MAX) p = alloc_tiny(heap, total);
  else if (total <= HAK_L2_MAX) p = alloc_l2(heap, total, want, zeroed);
  else if (total <= HAK_L25_MAX) p = alloc_l25(heap, total, 1, zeroed);
  else p = alloc_huge(heap, total, 1, zeroed);
  if (HAK_UNLIKELY(!p) && total <= HAK_L2_MAX &&
      !(p = hak_scarce_alloc(heap, total, want == OWN, zeroed)))
    p = alloc_mapping(heap, total, 1, zeroed);
  hak_heap_leave(heap);
  return hak_front_sealed(p, size);
}

HAK_NOINLINE static void *alloc_turned(hak_slab_t *front, size_t size, bool *zeroed) {
  hak_slab_t *next = !hak_guard_is_on() ? hak_heap_turn(hak_tls_heap, front) : NULL;
  return HAK_LIKELY(next) ? hak_front_pop_for(next, size) : alloc_any(size, ANY, zeroed);
}

static void *alloc_unaligned(size_t size, want_t want, bool *zeroed);

// Opens the mail first: blocks that others sent may be in the ring then.
HAK_NOINLINE static void *alloc_after_mail(size_t size, want_t want, bool *zeroed) {
  hak_tend(hak_tls_heap); // a thread may live on such blocks alone
  hak_letter_open_all(hak_tls_heap);
  return alloc_unaligned(size, want, zeroed);
}

// Short path for an empty ring where the run in front, or a class above, has a free block.
static void *alloc_above_tiny(size_t size, want_t want, bool *zeroed) {
  if (!hak_size_is_l2(size + HAK_TAIL) || hak_guard_is_on()) return alloc_any(size, want, zeroed);
  hak_heap_t *heap = hak_tls_heap;
  if (hak_load_relaxed(&heap->mail) != NULL) return alloc_after_mail(size, want, zeroed);
  unsigned c = hak_size_class_l2(size + HAK_TAIL);
  hak_ring_t *ring = &heap->ring[c];
  hak_slab_t *slab = heap->l2[c];
  uint64_t mask = hak_load_relaxed(&slab->mask);
  if (mask == 0 && ring->count == 0 && want == ANY && hak_load_relaxed(&heap->inbox) == 0) {
    void *p = heap != &hak_heap_none ? borrow(heap, c + HAK_TINY_CLASSES, zeroed) : NULL;
    return p ? hak_front_sealed(p, size) : alloc_any(size, NOT_LENT, zeroed);
  }
  if (mask == 0 || ring->count != 0) return alloc_any(size, want, zeroed);
  ring->missed = true;
  void *p = hak_front_take_l2(heap, ring, slab, mask, zeroed);
  hak_seal_resize(p, ring->size, size);
  return p;
}

void *hak_front_alloc(size_t size, bool *zeroed) {
  if (zeroed) *zeroed = false;
  if (size > HAK_TINY_MAX - HAK_TAIL) return alloc_above_tiny(size, ANY, zeroed);
  hak_slab_t *front = hak_tls_heap->tiny[(size + HAK_TAIL + HAK_MIN_BLOCK - 1) >> HAK_MIN_SHIFT];
  // By I1 a front with that many live blocks has no free block anywhere; hak_slab_none has fewer.
  bool used_up = hak_slab_live_tiny(front) == front->capacity;
  return used_up ? alloc_turned(front, size, zeroed) : alloc_any(size, ANY, zeroed);
}

static void *alloc_unaligned(size_t size, want_t want, bool *zeroed) {
  void *p = size <= HAK_TINY_MAX - HAK_TAIL ? hak_front_hit(size) : hak_front_hit_l2(size);
  if (HAK_LIKELY(p != NULL)) return p;
  if (want != OWN) return hak_front_alloc(size, zeroed);
  return size > HAK_TINY_MAX - HAK_TAIL ? alloc_above_tiny(size, OWN, zeroed)
                                        : alloc_any(size, OWN, zeroed);
}

void *hak_front_alloc_aligned(size_t alignment, size_t size, bool *zeroed) {
  if (zeroed) *zeroed = false;
  if (alignment <= HAK_MIN_BLOCK) return alloc_unaligned(size, ANY, zeroed);
  if (size > HAK_SIZE_MAX - HAK_TAIL) return NULL;
  size_t total = size + HAK_TAIL;
  // Guarded blocks of the rounded size are aligned as well: they end where a page ends.
  size_t rounded = alignment <= HAK_SLAB_SIZE ? hak_aligned_size(total, alignment) : SIZE_MAX;
  if (rounded <= HAK_L2_MAX)
    return hak_front_sealed(alloc_unaligned(rounded - HAK_TAIL, OWN, zeroed), size);
  hak_heap_t *heap = hak_heap_enter();
  if (HAK_UNLIKELY(!heap) && !(heap = hak_heap_enter_again())) return NULL;
  if (HAK_UNLIKELY(hak_load_relaxed(&heap->nursery))) hak_nursery_takes(total);
  void *p = alignment <= HAK_L25_MAX && total <= HAK_L25_MAX
                ? alloc_l25(heap, total ? total : 1, alignment, zeroed)
                : alloc_huge(heap, total, alignment, zeroed);
  hak_heap_leave(heap);
  return hak_front_sealed(p, size);
}

// ---------------------------------------------------------------------------
// From a pointer to its block.

static bool not_ours(const void *p, const char *function) {
  void *around = hak_huge_around(p);
  if (around)
    hak_misuse_interior(function, p, around, hak_seal_size(around, hak_huge_usable(around)));
  else if ((uintptr_t)p & (HAK_MIN_BLOCK - 1)) hak_misuse_misaligned(function, p);
  else hak_misuse_foreign(function, p);
  return false;
}

// Reports p, which lies in a free slab.
static bool in_free_slab(const void *p, const char *function, hak_slab_t *slab) {
  if (slab->last_kind == HAK_KIND_L25)
    hak_misuse_double_free(function, p, hak_l25_usable(slab) - HAK_TAIL);
  else if (slab->last_kind != HAK_KIND_FREE)
    hak_misuse_double_free(function, p, hak_class_size(hak_slab_class(slab)) - HAK_TAIL);
  else if (hak_load_relaxed(&hak_registry.superslabs[hak_superslab_number(slab)].forgotten))
    hak_misuse("%s(%p): no live block: freed before, or never allocated; what was there was given "
               "back to the system",
               function, p);
  else hak_misuse_foreign(function, p);
  return false;
}

// Whether a block of an L2 run has been freed. Exact for the owner and for blocks that this thread
// freed. Words of other threads may be a moment old, but a bit set in them that should not be set
// comes from an earlier free of this block.
static bool is_free_l2(hak_slab_t *slab, uint32_t number) {
  hak_heap_t *mine = hak_tls_heap;
  if (hak_load_relaxed(&mine->mail) != NULL) hak_letter_open_all(mine);
  uint64_t free_now = hak_load_relaxed(&slab->mask) | hak_load_relaxed(&slab->remote);
  return (free_now >> number & 1) ||
         (hak_load_relaxed(&slab->holder) != mine && mine != &hak_heap_none &&
          hak_remote_holds_l2(mine, slab, number));
}

bool hak_front_find(const void *p, const char *function, hak_block_t *block) {
#if HAK_SECURE
  if (HAK_LIKELY(hak_front_find_sealed(p, block))) return true;
#endif
  hak_slab_t *slab = hak_slab_lookup(p);
  bool first = !slab && hak_first_owns(p);
  if (first || (!slab && hak_guard_owns(p))) {
    *block = (hak_block_t){.kind = first ? HAK_KIND_FIRST : HAK_KIND_GUARD};
    if (!(first ? hak_first_find : hak_guard_find)(p, function, &block->usable)) return false;
    block->place = block->usable;
    return true;
  }
  if (!slab) {
    *block = (hak_block_t){.kind = HAK_KIND_FREE, .place = hak_huge_usable(p)};
    return block->place ? hak_seal_find(p, block->place, function, &block->usable)
                        : not_ours(p, function);
  }
  if ((uintptr_t)p & (HAK_MIN_BLOCK - 1)) {
    hak_misuse_misaligned(function, p);
    return false;
  }
  hak_kind_t kind = hak_slab_kind(slab);
  if (kind == HAK_KIND_INTERIOR) {
    slab -= slab->offset;
    kind = hak_slab_kind(slab);
  }
  *block = (hak_block_t){.kind = kind, .slab = slab};
  const char *start = p;
  switch (kind) {
  case HAK_KIND_TINY:
  case HAK_KIND_L2: {
    block->place = slab->size;
    start = slab->start;
    if ((const char *)p < start) break; // in the gap before the first block
    (void)hak_slab_block(slab, p, &block->number);
    start += block->number * block->place;
    if (block->number >= slab->capacity) { // behind the last block
      hak_misuse_foreign(function, p);
      return false;
    }
    bool is_free = kind == HAK_KIND_L2 ? is_free_l2(slab, block->number)
                                       : hak_load_relaxed(&slab->local) == hak_tls_heap &&
                                             slab->free == p; // exact for the block freed last only
    if (start == p && is_free) {
      hak_misuse_double_free(function, p, block->place - HAK_TAIL);
      return false;
    }
    break;
  }
  case HAK_KIND_L25:
    block->place = hak_l25_usable(slab);
    start = slab->start;
    break;
  default: return in_free_slab(p, function, slab);
  }
  if (start == p) return hak_seal_find(p, block->place, function, &block->usable);
  hak_misuse_interior(function, p, start, hak_seal_size(start, block->place));
  return false;
}

// ---------------------------------------------------------------------------
// Free.

static void slab_event(hak_heap_t *heap, hak_slab_t *slab) {
  hak_heap_slab_event(heap, slab);
  hak_tend_if_due(heap);
}

void hak_front_slab_event(hak_slab_t *slab) { slab_event(hak_tls_heap, slab); }

static void free_tiny(hak_heap_t *heap, const hak_block_t *block, void *p, const char *function) {
  hak_slab_t *slab = block->slab;
  if (!heap) {
    hak_remote_push_one(slab, p, 0);
  } else if (hak_load_relaxed(&slab->local) != heap) {
    hak_remote_free_tiny(heap, slab, p, function);
  } else if (slab->free == p) {
    hak_misuse_double_free(function, p, block->usable);
  } else {
    hak_link_set(p, slab->free);
    slab->free = p;
    if (hak_owner_dec_negative(&slab->frees_left)) slab_event(heap, slab);
  }
}

HAK_NOINLINE static void put_l2_last(hak_slab_t *slab) { // which is unused, or FULL
  hak_heap_t *heap = hak_load_relaxed(&slab->holder);
  if (hak_slab_place(slab) == HAK_PLACE_ACTIVE) hak_sparse_add_front(heap, slab);
  else hak_heap_slab_event(heap, slab);
  hak_tend_if_due(heap);
}

// The ring had no room, so a FULL run may now have a free block that no hint names.
HAK_NOINLINE HAK_HOT static void put_l2_full(hak_slab_t *slab, uint64_t mask, uint32_t hint) {
  hak_heap_t *heap = hak_load_relaxed(&slab->holder);
  hak_ring_push_full(heap, slab->ring, hint);
  hak_commons_freed_here(heap);
  if (hak_slab_place(slab) == HAK_PLACE_FULL || hak_sparse_is_due(slab, mask)) put_l2_last(slab);
}

// Marks a block of one of this thread's L2 runs free. mask is the run's mask.
HAK_INLINE void put_l2(hak_slab_t *slab, uint64_t mask, uint32_t number) {
  uint32_t hint = slab->hint | number;
  hak_ring_t *ring = slab->ring;
  mask |= (uint64_t)1 << number;
  hak_store_relaxed(&slab->mask, mask);
  if (HAK_UNLIKELY(!hak_ring_has_room(ring))) {
    put_l2_full(slab, mask, hint);
    return;
  }
  hak_ring_push(ring, hint);
  if (HAK_UNLIKELY(hak_sparse_is_due(slab, mask))) put_l2_last(slab);
}

static void free_l2(hak_heap_t *heap, const hak_block_t *block, void *p, const char *function) {
  hak_slab_t *slab = block->slab;
  if (!heap) hak_remote_push_one(slab, p, block->number);
  else if (hak_load_relaxed(&slab->holder) == heap)
    put_l2(slab, hak_load_relaxed(&slab->mask), block->number);
  else hak_remote_free_l2(heap, slab, block->number, function);
}

HAK_INLINE void free_block(hak_heap_t *heap, const hak_block_t *block, void *p,
                           const char *function) {
  switch (block->kind) {
  case HAK_KIND_TINY: free_tiny(heap, block, p, function); break;
  case HAK_KIND_L2: free_l2(heap, block, p, function); break;
  case HAK_KIND_L25:
    if (!hak_l25_claim(block->slab)) hak_misuse_double_free(function, p, block->usable);
    else if (heap) hak_ring_keep_run(heap, block->slab);
    else hak_l25_release(block->slab);
    break;
  case HAK_KIND_GUARD: hak_guard_free(p, function); break;
  case HAK_KIND_FIRST: hak_first_free(p, function); break;
  default:
    if (!hak_huge_free(p)) hak_misuse_double_free(function, p, block->usable);
    else if (heap) hak_heap_count_stat(heap, HAK_STAT_huge_free, 1);
    break;
  }
}

HAK_INLINE void free_found(const hak_block_t *block, void *p, const char *function) {
  hak_heap_t *heap = block->kind != HAK_KIND_FIRST ? hak_heap_enter() : NULL; // NULL: still freed
  free_block(heap, block, p, function);
  if (heap) hak_heap_leave(heap);
}

// Frees a block for a thread without a heap.
HAK_NOINLINE static void free_young(hak_slab_t *slab, void *p, uint32_t number,
                                    const char *function) {
  hak_block_t block = {
      .kind = hak_slab_kind(slab), .slab = slab, .number = number, .usable = slab->size};
  hak_heap_t *heap = NULL;
  if (block.kind == HAK_KIND_L2 && is_free_l2(slab, number)) hak_front_free_slow(p, function);
  else if (!(heap = hak_nursery_enter_for(slab))) free_found(&block, p, function);
  else free_block(heap, &block, p, function);
  if (heap) hak_nursery_leave(heap);
}

// Frees a block that is not this thread's. Of other heaps' slabs it reads only the read-mostly
// line: a double free is noticed when the owner collects (L2), or not at all.
HAK_NOINLINE HAK_HOT static void free_foreign(hak_slab_t *slab, void *p, const char *function) {
  hak_heap_t *heap = hak_tls_heap;
  hak_kind_t kind = hak_slab_kind(slab);
  uint32_t number;
  bool is_block = hak_slab_block(slab, p, &number);
  if (HAK_LIKELY(is_block && kind == HAK_KIND_TINY) && HAK_LIKELY(hak_remote_add(heap, slab, p)))
    return;
  if (!is_block || (kind != HAK_KIND_TINY && kind != HAK_KIND_L2)) hak_front_free_slow(p, function);
  else if (heap == &hak_heap_none) free_young(slab, p, number, function);
  else if (kind == HAK_KIND_TINY) hak_remote_free_tiny(heap, slab, p, function);
  else hak_remote_free_l2(heap, slab, number, function);
}

// Frees a block outside the calling thread's tiny slabs. The most common case goes straight.
HAK_HOT void hak_front_free_other(hak_slab_t *slab, void *p, const char *function) {
  hak_heap_t *heap = hak_tls_heap;
  slab -= slab->offset; // 0 in a head, any number in a free slab: see below
  if (HAK_UNLIKELY(hak_differs(&slab->holder, heap))) {
    free_foreign(slab, p, function);
    return;
  }
  // The slab is one of this thread's L2 runs. If the tests below pass, p is a block of it.
  uint32_t number;
  uint64_t mask = hak_load_relaxed(&slab->mask);
  if (HAK_UNLIKELY(!hak_slab_block(slab, p, &number) ||
                   ((mask | hak_load_relaxed(&slab->remote)) >> number & 1)))
    hak_front_free_slow(p, function); // reports what is wrong
  else put_l2(slab, mask, number);
}

#if HAK_SECURE
void hak_front_free_block(hak_heap_t *heap, const hak_block_t *block, void *p,
                          const char *function) {
  free_block(heap, block, p, function);
}
#endif

void hak_front_free_slow(void *p, const char *function) {
  hak_block_t block;
  if (p != NULL && hak_front_find(p, function, &block)) free_found(&block, p, function);
}

void hak_front_free_outside(void *p, const char *function) {
  if (p == NULL) return;
  hak_slab_t *slab = hak_first_owns(p) || (uintptr_t)p % HAK_MIN_BLOCK ? NULL : hak_slab_lookup(p);
  if (!slab) hak_front_free_slow(p, function);
  else if (!hak_differs(&slab->local, hak_tls_heap)) hak_front_put(slab, p, function);
  else hak_front_free_other(slab, p, function);
}
