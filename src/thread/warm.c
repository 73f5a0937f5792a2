#include "thread/warm.h"

#include "core/options.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/ring.h"

// The budget of a class follows the hit rate over a window: below 80 % it grows, without a
// miss in two windows it shrinks.
#define GROW_BELOW_PERCENT 80

// The number of emptied slabs to keep is learnt: a miss after one was given back is a regret
// and lets one more stay. RELEASED_IN_A_ROW given back without a miss in between mean that the
// class shrinks, and fewer stay.
#define RELEASED_IN_A_ROW 4

// PARTIAL slabs looked at for one whose SuperSlab does not drain.
#define LOOK_AT 4

// A tiny class may have one unused slab per SLABS_PER_SPARE slabs, an L2 class every second run:
// one that goes back and is taken anew elsewhere is cold memory (docs/decisions/0010-warm-pool.md).
#define SLABS_PER_SPARE 3
#define RUNS_PER_SPARE 2
// The unused slabs of all heaps may be this part of what is mapped. Beyond it they go back
// before a new SuperSlab is mapped.
#define MAPPED_PER_SPARE 8

#define KEEP_ONE_MAX 1024 // bytes per block

// A class up to KEEP_ONE_MAX always keeps one, and an L2 class at first none, as a run holds few
// blocks and much memory.
static uint8_t at_least(unsigned c) {
  return hak_class_size(c) <= KEEP_ONE_MAX && hak_option(WARM_POOL) != 0;
}

void hak_warm_init(hak_heap_t *heap) {
  for (unsigned c = 0; c < HAK_CLASSES; c++) { // its counters may be read at any time
    heap->warm[c].budget = (uint8_t)hak_option(WARM_PREFILL);
    heap->warm[c].keep = at_least(c);
  }
}

static void put(hak_heap_t *heap, hak_slab_t *slab, unsigned c) {
  if (c >= HAK_TINY_CLASSES) hak_ring_forget(slab->ring, slab);
  hak_slab_leave_active(slab, HAK_PLACE_SPARE, 0);
  slab->next = heap->spare[c];
  heap->spare[c] = hak_slab_index(slab);
  heap->warm[c].spares++;
  heap->spares += hak_classes[c].run;
}

// Takes the slab that *link (a head or another's next) names out of its list.
static hak_slab_t *take(hak_heap_t *heap, uint32_t *link, unsigned c) {
  hak_slab_t *slab = hak_slab_at(*link);
  *link = slab->next;
  heap->warm[c].spares--;
  heap->spares -= hak_classes[c].run;
  return slab;
}

// ---------------------------------------------------------------------------
// Refill.

// A slab whose SuperSlab drains should get empty: the others come first.
static hak_slab_t *pick_partial(hak_heap_t *heap, unsigned c) {
  uint32_t index = heap->partial[c];
  for (unsigned i = 0; i < LOOK_AT && index != 0; i++, index = hak_slab_at(index)->next)
    if (!hak_pool_draining(hak_slab_at(index))) return hak_slab_at(index);
  return heap->partial[c] ? hak_slab_at(heap->partial[c]) : NULL;
}

void hak_warm_count(hak_heap_t *heap, unsigned size_class, bool hit) {
  hak_warm_t *warm = &heap->warm[size_class];
  if (hit && hak_warm_hit(heap, size_class)) return;
  hak_owner_inc32(hit ? &warm->hits : &warm->misses);
  if (!hit) {
    if (warm->released && warm->keep < hak_option(WARM_POOL)) warm->keep++;
    warm->released = 0;
  }
  *(hit ? &warm->had : &warm->lacked) += 1;
  unsigned refills = warm->had + warm->lacked;
  if (refills < HAK_WARM_WINDOW) return;
  if (warm->had * 100u < GROW_BELOW_PERCENT * refills && warm->budget < hak_option(WARM_POOL) &&
      hak_option(WARM_PREFILL) != 0)
    warm->budget++;
  warm->had = warm->lacked = 0;
}

hak_slab_t *hak_warm_take(hak_heap_t *heap, unsigned size_class) {
  hak_slab_t *slab;
  while ((slab = pick_partial(heap, size_class)) != NULL) {
    hak_heap_remove_partial(heap, slab);
    if (HAK_LIKELY(hak_slab_usable(slab))) break;
    hak_heap_mark_full(heap, slab); // an L2 run whose blocks went through the ring
  }
  if (!slab && heap->spare[size_class]) slab = take(heap, &heap->spare[size_class], size_class);
  if (slab) hak_heap_activate(heap, slab);
  return slab;
}

// How many unused slabs a trip may leave the class with. They should save a large class trips
// and cost a small class no memory, so they are limited to a share of its slabs as well.
static unsigned prefill_limit(const hak_heap_t *heap, unsigned c) {
  unsigned n = heap->warm[c].budget, share = hak_warm_slabs(heap, c) / SLABS_PER_SPARE;
  if (n > hak_option(WARM_POOL)) n = (unsigned)hak_option(WARM_POOL);
  return n < share ? n : share;
}

unsigned hak_warm_wants(hak_heap_t *heap, unsigned size_class) {
  const hak_warm_t *warm = &heap->warm[size_class];
  if (hak_classes[size_class].run != 1) return 0;
  unsigned most = prefill_limit(heap, size_class);
  return most > warm->spares ? most - warm->spares : 0;
}

void hak_warm_prefill(hak_heap_t *heap, hak_slab_t *slab, unsigned size_class) {
  hak_slab_init(slab, heap, size_class);
  heap->warm[size_class].slabs++;
  put(heap, slab, size_class);
  hak_owner_inc32(&heap->warm[size_class].prefilled);
  hak_heap_count_stat(heap, HAK_STAT_warm_prefill, 1);
}

// ---------------------------------------------------------------------------
// Threads come and go.

void hak_warm_fill(hak_heap_t *heap) {
  uint8_t classes[HAK_WARM_FILL_MAX];
  unsigned n = 0, most = hak_option(WARM_POOL) ? (unsigned)hak_option(WARM_POOL_FILL) : 0;
  for (unsigned word = 0; word < 2; word++) {
    for (uint64_t rest = heap->used[word]; rest != 0 && n < most; rest &= rest - 1) {
      unsigned c = word * 64 + hak_low_bit(rest);
      if (heap->partial[c] == 0 && hak_classes[c].run == 1) classes[n++] = (uint8_t)c;
    }
    heap->used[word] = 0;
  }
  hak_claim_t got;
  if (n == 0 || !hak_pool_find_unused(n - 1, &got)) return;
  n = 0;
  for (uint32_t bits = got.more | 1; bits != 0; bits &= bits - 1)
    hak_warm_prefill(heap, got.slab + hak_low_bit(bits), classes[n++]);
  hak_heap_count_stat(heap, HAK_STAT_warm_fill, n);
}

// ---------------------------------------------------------------------------
// Keep and drop.

// Keeps no runs in a crowd: other threads need them.
static unsigned keep_limit(const hak_heap_t *heap, unsigned c) {
  unsigned keep = heap->warm[c].keep, slabs = hak_warm_slabs(heap, c);
  if (c >= HAK_TINY_CLASSES && hak_load_relaxed(&hak_heap_threads) > HAK_CROWD) return 0;
  unsigned share = c < HAK_TINY_CLASSES ? slabs / SLABS_PER_SPARE
                                        : (slabs + RUNS_PER_SPARE - 1) / RUNS_PER_SPARE;
  if (share < at_least(c)) share = at_least(c);
  return keep < share ? keep : share;
}

// A class that keeps one slab does so only when no other slab of it could serve. An orphan
// keeps none, as nobody is there to use it.
static bool wanted(hak_heap_t *heap, hak_slab_t *slab, unsigned c) {
  unsigned keep = keep_limit(heap, c);
  return heap->warm[c].spares < keep && (keep > 1 || heap->partial[c] == 0) &&
         !hak_pool_draining(slab) && hak_load_relaxed(&heap->state) == HAK_HEAP_ATTACHED;
}

void hak_warm_keep_or_release(hak_heap_t *heap, hak_slab_t *slab) {
  unsigned c = hak_slab_class(slab);
  hak_warm_t *warm = &heap->warm[c];
  if (wanted(heap, slab, c)) {
    put(heap, slab, c);
    hak_heap_count_stat(heap, HAK_STAT_warm_keep, 1);
    return;
  }
  hak_heap_release(heap, slab);
  unsigned most = keep_limit(heap, c);
  if (warm->released < RELEASED_IN_A_ROW) {
    warm->released++;
    if (most < prefill_limit(heap, c)) most = prefill_limit(heap, c);
  } else if (warm->keep > at_least(c)) {
    warm->keep--;
  }
  if (warm->spares <= most) return;
  hak_heap_release(heap, take(heap, &heap->spare[c], c));
  hak_heap_count_stat(heap, HAK_STAT_warm_drop, 1);
}

static bool drop(hak_heap_t *heap, bool only_draining, bool needed) {
  uint32_t before = heap->spares;
  hak_parcel_t parcel = {.needed = needed};
  for (unsigned c = 0; heap->spares != 0 && c < HAK_CLASSES; c++) {
    uint32_t *link = &heap->spare[c];
    while (*link) {
      if (only_draining && !hak_pool_draining(hak_slab_at(*link))) link = &hak_slab_at(*link)->next;
      else hak_heap_release_with(heap, take(heap, link, c), &parcel);
    }
  }
  hak_pool_release_all(&parcel);
  hak_heap_count_stat(heap, HAK_STAT_warm_drop, before - heap->spares);
  return before != heap->spares;
}

void hak_warm_drop(hak_heap_t *heap) { drop(heap, false, false); }

bool hak_warm_drop_many(hak_heap_t *heap) {
  uint64_t mapped = hak_load_relaxed(&hak_mapped.superslab_bytes) >> HAK_SLAB_SHIFT;
  // Counts as if each other heap had as many.
  if ((uint64_t)heap->spares * hak_heap_count() * MAPPED_PER_SPARE <= mapped) return false;
  return drop(heap, false, true);
}

void hak_warm_drop_draining(hak_heap_t *heap) {
  heap->drainings = (uint32_t)hak_load_relaxed(&hak_counter(tier_draining));
  drop(heap, true, false);
}
