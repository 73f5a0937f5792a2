#include "thread/orphan.h"

#include "base/bits.h"
#include "thread/heap.h"

_Atomic uint64_t hak_orphans[HAK_ORPHAN_LISTS];

static void push_orphan(unsigned list, hak_heap_t *heap) {
  uint64_t top = hak_load_relaxed(&hak_orphans[list]), next;
  do {
    hak_store_relaxed(&heap->next_orphan[list], (uint32_t)top);
    next = ((top >> 32) + 1) << 32 | heap->id;
    // Release: pairs with the acquire in pop_orphan; the link is there.
  } while (!hak_cas_release(&hak_orphans[list], &top, next));
}

static hak_heap_t *pop_orphan(unsigned list) {
  uint64_t top = hak_load_acquire(&hak_orphans[list]), next;
  hak_heap_t *heap;
  do {
    if ((uint32_t)top == 0) return NULL;
    heap = hak_heap_by_id((uint32_t)top);
    // May be stale if another thread popped heap meanwhile: then the tag differs.
    next = ((top >> 32) + 1) << 32 | hak_load_relaxed(&heap->next_orphan[list]);
  } while (!hak_cas_acquire(&hak_orphans[list], &top, next));
  return heap;
}

// The caller has set state ORPHAN before. If the heap still counts as listed, then
// it is, or hak_orphan_take is between its pop and its look at the state, which comes
// after it clears `listed`, so it finds the orphan. Mostly it is listed,
// and the load, seq_cst as well and so after the state too, saves a locked exchange.
static void list_orphan(unsigned list, hak_heap_t *heap) {
  if (hak_load_seq_cst(&heap->listed[list])) return;
  if (!hak_exchange_seq_cst(&heap->listed[list], 1u)) push_orphan(list, heap);
}

hak_heap_t *hak_orphan_take(unsigned list, uint32_t wanted) {
  hak_heap_t *heap;
  while ((heap = pop_orphan(list)) != NULL) {
    hak_store_seq_cst(&heap->listed[list], 0u);
    if (hak_heap_take(heap, wanted)) return heap;
  }
  return NULL;
}

void hak_orphan_leave(hak_heap_t *heap) {
  if (hak_load_relaxed(&heap->nursery) || hak_load_relaxed(&heap->common)) {
    hak_store_seq_cst(&heap->state, HAK_HEAP_ORPHAN); // release, as below
    return;
  }
  uint32_t rich = 0; // bit g: group g has a partial slab
  for (unsigned group = 0; group < HAK_ORPHAN_GROUPS; group++) {
    const uint32_t *partial = &heap->partial[group << HAK_ORPHAN_GROUP_SHIFT];
    uint32_t any = 0;
    for (unsigned i = 0; i < 1 << HAK_ORPHAN_GROUP_SHIFT; i++) any |= partial[i];
    rich |= (uint32_t)(any != 0) << group;
  }
  // Release: pairs with the acquire in hak_heap_take.
  hak_store_seq_cst(&heap->state, HAK_HEAP_ORPHAN);
  for (uint32_t rest = rich; rest != 0; rest &= rest - 1)
    list_orphan(HAK_ORPHANS_GROUP + hak_low_bit(rest), heap);
  if (rich) list_orphan(HAK_ORPHANS_RICH, heap);
  list_orphan(HAK_ORPHANS_ALL, heap);
}

void hak_orphan_after_fork(hak_heap_t *mine) {
  for (unsigned list = 0; list < HAK_ORPHAN_LISTS; list++) {
    uint64_t tag = (hak_load_relaxed(&hak_orphans[list]) >> 32) + 1;
    hak_store_seq_cst(&hak_orphans[list], tag << 32);
    if (mine != &hak_heap_none) hak_store_seq_cst(&mine->listed[list], 0u);
  }
}
