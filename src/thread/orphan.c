#include "thread/orphan.h"

#include "base/bits.h"
#include "os/os.h"
#include "thread/heap.h"
#include "thread/quarantine.h"
#include "thread/remote.h"
#include "thread/ring.h"
#include "thread/sparse.h"
#include "thread/warm.h"

#define LOOKS 8 // heaps looked at to find an orphan to tend

_Atomic uint64_t hak_orphans[HAK_ORPHAN_LISTS];

static void push_orphan(unsigned list, hak_heap_t *heap) {
  uint64_t top = hak_load_relaxed(&hak_orphans[list]), next;
  do {
    hak_store_relaxed(&heap->next_orphan[list], (uint32_t)top);
    next = ((top >> 32) + 1) << 32 | heap->id;
    // Release: pairs with the acquire in pop_orphan; publishes the link.
  } while (!hak_cas_release(&hak_orphans[list], &top, next));
}

static hak_heap_t *pop_orphan(unsigned list) {
  uint64_t top = hak_load_acquire(&hak_orphans[list]), next;
  hak_heap_t *heap;
  do {
    if ((uint32_t)top == 0) return NULL;
    heap = hak_heap_by_id((uint32_t)top);
    // The link may be stale if another thread popped heap meanwhile: then the tag differs.
    next = ((top >> 32) + 1) << 32 | hak_load_relaxed(&heap->next_orphan[list]);
  } while (!hak_cas_acquire(&hak_orphans[list], &top, next));
  return heap;
}

static void list_orphan(unsigned list, hak_heap_t *heap) {
  uint32_t bit = 1u << list;
  if (!(hak_fetch_or_seq_cst(&heap->listed, bit) & bit)) push_orphan(list, heap);
}

hak_heap_t *hak_orphan_take(unsigned list, uint32_t wanted) {
  hak_heap_t *heap;
  while ((heap = pop_orphan(list)) != NULL) {
    hak_fetch_and_seq_cst(&heap->listed, ~(1u << list));
    if (hak_heap_take(heap, wanted)) return heap;
  }
  return NULL;
}

#define ALL_BIT (1u << HAK_ORPHANS_ALL)
#define RICH_BIT (1u << HAK_ORPHANS_RICH)
#define GROUP_BITS (((1u << HAK_ORPHAN_GROUPS) - 1) << HAK_ORPHANS_GROUP)

// Whether the heap has a partial slab of the group that the list is for.
HAK_INLINE bool has_partial(const hak_heap_t *heap, unsigned list) {
  unsigned group = list - HAK_ORPHANS_GROUP;
  const uint32_t *partial = &heap->partial[group << HAK_ORPHAN_GROUP_SHIFT];
  uint32_t any = 0;
  for (unsigned i = 0; i < 1 << HAK_ORPHAN_GROUP_SHIFT; i++) any |= partial[i];
  return any != 0;
}

void hak_orphan_leave(hak_heap_t *heap) {
  if (HAK_UNLIKELY(hak_load_relaxed(&heap->state) == HAK_HEAP_DEAD)) return; // fork in a handler
  if (hak_load_relaxed(&heap->nursery) || hak_load_relaxed(&heap->common)) {
    hak_store_seq_cst(&heap->state, HAK_HEAP_ORPHAN); // release, as below
    return;
  }
  // Relaxed: only says which groups need no look. The heap stays on its lists: a thread that finds
  // no slab there does no harm, as it has popped the heap, which is not put on that list again.
  // Whether the heap goes on RICH depends on its slabs, not on the group lists that it is on.
  uint32_t listed = hak_load_relaxed(&heap->listed), lists = listed | ALL_BIT, looks = GROUP_BITS;
  if (listed & RICH_BIT) looks &= ~listed;
  for (; looks != 0; looks &= looks - 1)
    if (has_partial(heap, hak_low_bit(looks))) lists |= (looks & -looks) | RICH_BIT;
  // Release: pairs with the acquire in hak_heap_take.
  hak_store_seq_cst(&heap->state, HAK_HEAP_ORPHAN);
  // If a bit of `listed` is still set, the heap is on that list, or hak_orphan_take has popped it
  // and has yet to clear the bit, then look at the state: so it finds the orphan. Mostly the heap
  // is listed, and this load, also seq_cst and so after the state, saves locked operations.
  for (uint32_t rest = lists & ~hak_load_seq_cst(&heap->listed); rest != 0; rest &= rest - 1)
    list_orphan(hak_low_bit(rest), heap);
}

void hak_orphan_let_go(hak_heap_t *heap) {
  hak_orphan_leave(heap);
  hak_heap_service(heap); // what was posted before the state changed
}

// Whether no thread has used the nursery from one look to the next, a second later. A thread that
// grows up must not find its nursery taken, or it would leave its blocks behind there.
static bool is_deserted(hak_heap_t *nursery) {
  // All relaxed: the words steer who looks when.
  uint32_t now = (uint32_t)hak_os_clock_ms();
  uint32_t uses = (uint32_t)hak_load_relaxed(&nursery->stats[HAK_STAT_nursery]);
  // Another thread may have stored a slightly later time: then no second has passed.
  uint32_t passed = now - hak_load_relaxed(&nursery->looked_at);
  if (passed < 1000 || passed > UINT32_MAX - 1000) return false;
  hak_store_relaxed(&nursery->looked_at, now);
  bool same = uses == hak_load_relaxed(&nursery->looked_uses);
  hak_store_relaxed(&nursery->looked_uses, uses);
  return same;
}

// Claims the heap if it is an orphan or a deserted nursery. NULL if it is neither, or is taken.
static hak_heap_t *claim(uint32_t id) {
  hak_heap_t *heap = hak_heap_by_id(id);
  // Relaxed: hak_heap_take checks that the heap is still an orphan. A commons that was just made
  // may be mistaken for one, which does no harm: hak_orphan_leave checks again.
  if (hak_load_relaxed(&heap->state) != HAK_HEAP_ORPHAN || hak_load_relaxed(&heap->common) ||
      (hak_load_relaxed(&heap->nursery) && !is_deserted(heap)))
    return NULL;
  return hak_heap_take(heap, HAK_HEAP_CLAIMED) ? heap : NULL;
}

void hak_orphan_reclaim(void) {
  for (uint32_t id = 1; id <= hak_heap_count(); id++) {
    hak_heap_t *heap = claim(id);
    if (!heap) continue;
    hak_heap_tidy(heap);
    hak_orphan_let_go(heap);
  }
}

void hak_orphan_tend(void) {
  static _Atomic uint32_t last; // relaxed: steers which heaps are looked at
  uint32_t id = hak_load_relaxed(&last), count = hak_heap_count(), looks = 0;
  if (count == 1) return; // the caller's heap
  hak_heap_t *heap;
  do heap = claim(id = id % count + 1);
  while (!heap && ++looks < LOOKS && looks < count);
  hak_store_relaxed(&last, id);
  if (!heap) return;
  if (HAK_SECURE) { // a nursery's; no free lets these blocks go any more
    hak_quarantine_flush(heap);
    hak_remote_flush(heap);
  }
  hak_heap_drain(heap);
  hak_warm_drop(heap); // a nursery's: it kept them for threads that did not come
  hak_ring_release_runs(heap);
  hak_sparse_tend(heap);
  hak_orphan_let_go(heap);
}

void hak_orphan_after_fork(hak_heap_t *mine) {
  for (unsigned list = 0; list < HAK_ORPHAN_LISTS; list++) {
    uint64_t top = hak_load_relaxed(&hak_orphans[list]);
    if ((uint32_t)top) hak_store_seq_cst(&hak_orphans[list], ((top >> 32) + 1) << 32);
  }
  if (mine != &hak_heap_none) hak_store_if_other(&mine->listed, 0u);
}
