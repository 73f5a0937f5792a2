#include "thread/commons.h"

#include "base/regret.h"
#include "core/options.h"
#include "os/os.h"
#include "thread/orphan.h"
#include "thread/ring.h"
#include "thread/sparse.h"

// All figures: docs/decisions/0029-commons.md
// After this many slabs given in a row, one stays with the thread, to learn when the thread begins
// to free its blocks itself.
#define GIVEN_IN_A_ROW 32
#define POSTS_MAX 8 // posts without an adoption until the poster empties the inbox

_Atomic(hak_heap_t *) hak_commons[HAK_COMMONS_PLACES];
static _Atomic bool any; // a commons was made. Relaxed: it only saves looks at places

static bool for_commons(unsigned size_class) {
  return hak_class_size(size_class) <= HAK_COMMONS_BLOCK_MAX;
}

static _Atomic(hak_heap_t *) *place_of(unsigned size_class) {
  return &hak_commons[size_class >> HAK_COMMONS_SHIFT];
}

// Takes the commons in the place, now CLAIMED. NULL: there is none, or another thread has it.
static hak_heap_t *claim(_Atomic(hak_heap_t *) *place) {
  // Acquire: pairs with the release in hak_heap_make_in, as that in hak_heap_take does (state).
  hak_heap_t *common = hak_load_acquire(place);
  bool made = common && common != &hak_heap_none;
  return made && hak_heap_take(common, HAK_HEAP_CLAIMED) ? common : NULL;
}

static bool gives(const hak_heap_t *heap, unsigned size_class) {
  return heap->others == HAK_OTHERS_ENOUGH && for_commons(size_class) && hak_option(COMMONS) &&
         !hak_load_relaxed(&heap->common) && !hak_load_relaxed(&heap->nursery);
}

// mark: for a slab that is about to be FULL. 0: it is FULL, or it is PARTIAL and in no list.
static bool give(hak_heap_t *heap, hak_slab_t *slab, unsigned c, uint64_t mark) {
  hak_heap_t *common = claim(place_of(c));
  if (!common && (common = hak_heap_make_in(place_of(c), HAK_HEAP_CLAIMED)) != NULL)
    hak_store_relaxed(&any, true);
  if (!common) return false;
  if (c >= HAK_TINY_CLASSES) hak_ring_forget(slab->ring, slab);
  slab->waits = false; // for tiny slabs: a run that becomes FULL, or is, does not wait
  // A thread that saw the old owner posts the slab to it, and that owner posts it on (R2).
  hak_slab_set_owner(slab, common);
  if (mark) hak_slab_leave_active(slab, HAK_PLACE_FULL, mark);
  heap->warm[c].slabs--;
  common->warm[c].slabs++;
  if (hak_slab_place(slab) == HAK_PLACE_PARTIAL) hak_heap_add_partial(common, slab);
  else if (hak_slab_usable(slab)) hak_heap_bring_back(common, slab);
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

// ---------------------------------------------------------------------------
// Thin slabs.

// A window is at least this many slabs given away as thin. A regret: threads that do not own them
// soon free more than half as many of their blocks as were live when they were given away.
#define THIN_WINDOW 256
#define THIN_WINDOW_MS 200
#define TICK_MS 8
#define THIN_SOON 63 // ticks: half a second
static const hak_regret_rule_t thin_rule = {.soon = 1000, .few = 1, .least = 250, .most = 8000};

static hak_regret_t thin_regret;
// Relaxed, as is a slab's `thin`: they only steer. Slabs, their live blocks, those freed soon; ms.
static _Atomic uint32_t thin_given, thin_blocks, thin_freed;
static _Atomic uint64_t thin_since;

static uint16_t tick(uint64_t now) { return (uint16_t)(now / TICK_MS) | 1; } // never 0

static bool was_thin(hak_slab_t *slab) {
  uint16_t at = hak_load_relaxed(&slab->thin);
  if (at == 0) return false;
  bool soon = (uint16_t)(tick(hak_os_clock_ms()) - at) <= THIN_SOON;
  if (!soon) hak_store_relaxed(&slab->thin, (uint16_t)0); // so that the next call needs no clock
  return soon;
}

void hak_commons_thin_freed(hak_slab_t *slab, uint32_t blocks) {
  if (was_thin(slab)) hak_fetch_add_relaxed(&thin_freed, blocks);
}

void hak_commons_freed_by_others(hak_heap_t *heap, hak_slab_t *slab) {
  // If the slab was thin, it may be the thread that gave it away that goes on to free.
  if (heap->others < HAK_OTHERS_ENOUGH && for_commons(hak_slab_class(slab)) && !was_thin(slab))
    heap->others++;
}

static void look_back(uint64_t now) {
  if (!hak_is_due(&thin_since, now, THIN_WINDOW_MS)) return;
  if (2 * hak_load_relaxed(&thin_freed) > hak_load_relaxed(&thin_blocks))
    hak_regret_needed(&thin_regret, now, 0, thin_rule);
  hak_store_relaxed(&thin_given, 0u);
  hak_store_relaxed(&thin_blocks, 0u);
}

// A slab that waited may have any owner by now.
static bool is_thin(hak_heap_t *heap, hak_slab_t *slab) {
  return hak_slab_is_partial_of(slab, heap) && hak_slab_kind(slab) == HAK_KIND_TINY &&
         HAK_THIN_PART * hak_slab_live_tiny(slab) <= slab->capacity;
}

static void give_thin(hak_heap_t *heap, hak_slab_t *slab) {
  uint64_t now = hak_os_clock_ms();
  if (hak_regret_pauses(&thin_regret, now, 0)) return;
  uint32_t live = (uint32_t)hak_slab_live_tiny(slab);
  hak_store_relaxed(&slab->thin, tick(now));
  hak_heap_remove_partial(heap, slab);
  if (!give(heap, slab, hak_slab_class(slab), 0)) {
    hak_store_relaxed(&slab->thin, (uint16_t)0);
    hak_heap_add_partial(heap, slab);
    return;
  }
  hak_regret_done(&thin_regret, now);
  if (hak_regret_pauses(&thin_regret, now, 0)) return; // since just now: the slab is in no window
  hak_fetch_add_relaxed(&thin_blocks, live);
  uint32_t given = hak_fetch_add_relaxed(&thin_given, 1u) + 1;
  if (given == 1) { // a window begins
    hak_store_relaxed(&thin_since, now);
    hak_store_relaxed(&thin_freed, 0u); // those were into slabs given before
  } else if (given >= THIN_WINDOW) {
    look_back(now);
  }
}

void hak_commons_thin(hak_heap_t *heap, hak_slab_t *slab) {
  hak_slab_leave_active(slab, HAK_PLACE_PARTIAL, 1);
  if (heap != hak_tls_heap || !hak_option(COMMONS)) return;
  uint32_t *place = &heap->thin[heap->thin_next++ % HAK_THIN], oldest = *place;
  *place = hak_slab_index(slab);
  if (oldest && is_thin(heap, hak_slab_at(oldest))) give_thin(heap, hak_slab_at(oldest));
}

// ---------------------------------------------------------------------------
// Adoption and care.

bool hak_commons_find(hak_heap_t *heap, unsigned size_class) {
  // A nursery adopts none: its own slabs are padded.
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
  // Both relaxed: they only steer when the inbox is emptied.
  if (hak_fetch_add_relaxed(&common->posts, 1u) + 1 < POSTS_MAX) return false;
  // If a thread has the commons it may not see this post: then the next post is due again.
  if (hak_load_relaxed(&common->state) == HAK_HEAP_ORPHAN) hak_store_relaxed(&common->posts, 0u);
  return true;
}

void hak_commons_tend(hak_heap_t *heap) {
  if (!hak_load_relaxed(&any)) return;
  unsigned i = heap->common_next, looks = 0;
  // Relaxed: a commons that is being made is tended another time.
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
