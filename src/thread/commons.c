#include "thread/commons.h"

#include "core/options.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/orphan.h"
#include "thread/ring.h"
#include "thread/sparse.h"

// All figures: docs/decisions/0029-commons.md
// One slab of so many that would be given stays all the same, to learn when the thread
// begins to free them itself.
#define GIVEN_IN_A_ROW 32
#define POSTS_MAX 8 // without an adoption, until the poster empties the inbox

_Atomic(hak_heap_t *) hak_commons[HAK_COMMONS_PLACES];
static _Atomic bool any; // was made. Relaxed: it only saves looks at places

static bool for_commons(unsigned size_class) {
  return hak_class_size(size_class) <= HAK_COMMONS_BLOCK_MAX;
}

static _Atomic(hak_heap_t *) *place_of(unsigned size_class) {
  return &hak_commons[size_class >> HAK_COMMONS_SHIFT];
}

// The commons in the place, CLAIMED; NULL if there is none or another thread has it.
static hak_heap_t *claim(_Atomic(hak_heap_t *) *place) {
  // Acquire: pairs with the release in make, as does the state's in hak_heap_take.
  hak_heap_t *common = hak_load_acquire(place);
  bool made = common && common != &hak_heap_none;
  return made && hak_heap_take(common, HAK_HEAP_CLAIMED) ? common : NULL;
}

// The same where there is none yet.
static hak_heap_t *make(_Atomic(hak_heap_t *) *place) {
  hak_heap_t *none = NULL;
  if (!hak_cas_acquire(place, &none, &hak_heap_none)) return NULL;
  hak_heap_t *common = hak_heap_new();
  if (common) {
    hak_store_relaxed(&any, true);
    hak_store_relaxed(&common->common, true);
    hak_store_seq_cst(&common->state, HAK_HEAP_CLAIMED);
  }
  // Release: pairs with the acquire in claim.
  hak_store_release(place, common);
  return common;
}

void hak_commons_freed_by_others(hak_heap_t *heap, unsigned size_class) {
  if (heap->others < HAK_OTHERS_ENOUGH && for_commons(size_class)) heap->others++;
}

static bool gives(const hak_heap_t *heap, unsigned size_class) {
  return heap->others == HAK_OTHERS_ENOUGH && for_commons(size_class) && hak_option(COMMONS) &&
         !hak_load_relaxed(&heap->common) && !hak_load_relaxed(&heap->nursery);
}

// mark: of one that is about to be FULL, 0: it is.
static bool give(hak_heap_t *heap, hak_slab_t *slab, unsigned c, uint64_t mark) {
  hak_heap_t *common = claim(place_of(c));
  if (!common && !(common = make(place_of(c)))) return false;
  if (c >= HAK_TINY_CLASSES) hak_ring_forget(slab->ring, slab);
  slab->waits = false; // tiny; a run that gets FULL, or is, does not wait
  // Whoever saw the old owner posts the slab to it, and its inbox is forwarded (R2).
  hak_slab_set_owner(slab, common);
  if (mark) hak_slab_leave_active(slab, HAK_PLACE_FULL, mark);
  heap->warm[c].slabs--;
  common->warm[c].slabs++;
  if (hak_slab_usable(slab)) hak_heap_bring_back(common, slab);
  hak_orphan_leave(common);
  hak_heap_count_stat(heap, HAK_STAT_commons_give, 1);
  return true;
}

bool hak_commons_take_full(hak_heap_t *heap, hak_slab_t *slab, uint64_t mark) {
  unsigned c = hak_slab_class(slab);
  if (!gives(heap, c)) return false;
  if (++heap->given <= GIVEN_IN_A_ROW) return give(heap, slab, c, mark);
  heap->given = 0;
  return false;
}

bool hak_commons_give_back(hak_heap_t *heap, hak_slab_t *slab) {
  unsigned c = hak_slab_class(slab);
  return gives(heap, c) && give(heap, slab, c, 0);
}

bool hak_commons_find(hak_heap_t *heap, unsigned size_class) {
  // A nursery takes none: its own slabs are padded.
  if (hak_load_relaxed(&heap->nursery)) return false;
  hak_heap_t *common = claim(place_of(size_class));
  if (!common) return false;
  hak_store_relaxed(&common->posts, 0u);
  hak_heap_drain(common);
  bool found = common->partial[size_class] != 0;
  if (found) hak_heap_give_partial(common, heap, size_class);
  hak_orphan_leave(common);
  return found;
}

bool hak_commons_due(hak_heap_t *common) {
  // Relaxed, both: it steers when the inbox is emptied.
  if (hak_fetch_add_relaxed(&common->posts, 1u) + 1 < POSTS_MAX) return false;
  hak_store_relaxed(&common->posts, 0u);
  return true;
}

void hak_commons_tend(hak_heap_t *heap) {
  if (!hak_load_relaxed(&any)) return;
  unsigned i = heap->common_next, looks = 0;
  // Relaxed: one that is being made is tended another time.
  do i = (i + 1) % HAK_COMMONS_PLACES;
  while (hak_load_relaxed(&hak_commons[i]) == NULL && ++looks < HAK_COMMONS_PLACES);
  heap->common_next = (uint8_t)i;
  hak_heap_t *common = claim(&hak_commons[i]);
  if (!common) return;
  hak_heap_drain(common);
  hak_sparse_tend(common);
  hak_orphan_leave(common);
}

void hak_commons_reclaim(void) {
  for (unsigned i = 0; i < HAK_COMMONS_PLACES; i++) {
    hak_heap_t *common = claim(&hak_commons[i]);
    if (!common) continue;
    hak_heap_tidy(common);
    hak_orphan_leave(common);
  }
}

void hak_commons_after_fork(void) {
  for (unsigned i = 0; i < HAK_COMMONS_PLACES; i++)
    hak_store_if_other(&hak_commons[i], (hak_heap_t *)NULL);
}
