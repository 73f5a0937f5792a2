#include "thread/quarantine.h"

#include "pool/l25.h"
#include "superslab/seal.h"
#include "thread/front.h"

#if HAK_SECURE

_Static_assert((HAK_HELD & (HAK_HELD - 1)) == 0, "held_first and held_end wrap around");

// One that is not of a tiny slab of this heap.
HAK_NOINLINE static void release_other(hak_heap_t *heap, hak_slab_t *slab, void *p, size_t place) {
  hak_block_t block = {.kind = hak_slab_kind(slab), .slab = slab, .place = place, .usable = place};
  if (block.kind == HAK_KIND_L2) (void)hak_slab_block_l2(slab, p, &block.number);
  hak_front_free_block(heap, &block, p, "free");
}

// The block may be handed out again.
HAK_INLINE void release(hak_heap_t *heap, hak_slab_t *slab, void *p, size_t place) {
  hak_seal_write(p, place, HAK_SEAL_FREE);
  if (HAK_UNLIKELY(hak_load_relaxed(&slab->local) != heap)) {
    release_other(heap, slab, p, place);
    return;
  }
  hak_link_set(p, slab->free);
  slab->free = p;
  if (HAK_UNLIKELY(hak_owner_dec_negative(&slab->frees_left))) hak_heap_slab_event(heap, slab);
}

// Nobody may have touched it meanwhile. Another seal than HELD: two threads freed it at
// the same moment, or it was overwritten.
HAK_INLINE bool still_held(const void *p, size_t place) {
  uint64_t value = hak_seal_read(p, place), slack = value >> HAK_SEAL_SLACK_SHIFT;
  return (value & HAK_SEAL_STATE) == HAK_SEAL_HELD && slack <= place - HAK_TAIL &&
         hak_seal_filled(p, place - HAK_TAIL - slack);
}

HAK_INLINE void let_go(hak_heap_t *heap) {
  const hak_held_t held = heap->held[heap->held_first++ % HAK_HELD];
  hak_slab_t *slab = held.slab;
  size_t place =
      HAK_LIKELY(hak_slab_kind(slab) == HAK_KIND_TINY) ? slab->size : hak_front_place(held.block);
  heap->held_bytes -= place;
  if (HAK_UNLIKELY(!still_held(held.block, place))) {
    hak_misuse_written(held.block, hak_seal_size(held.block, place));
    return; // told to go on: nobody gets it
  }
  release(heap, slab, held.block, place);
}

// p has just been found live.
HAK_INLINE void hold(hak_heap_t *heap, hak_slab_t *slab, void *p, size_t place, size_t size) {
  uint64_t slack = place - HAK_TAIL - size;
  hak_seal_fill(p, size);
  if (HAK_UNLIKELY(place > hak_secret.held_bytes)) {
    release(heap, slab, p, place);
    return;
  }
  hak_seal_write(p, place, slack << HAK_SEAL_SLACK_SHIFT | HAK_SEAL_HELD);
  heap->held[heap->held_end++ % HAK_HELD] = (hak_held_t){p, slab};
  heap->held_bytes += place;
  do {
    if (heap->held_end - heap->held_first < HAK_HELD && heap->held_bytes <= hak_secret.held_bytes)
      return;
    let_go(heap);
  } while (true);
}

void hak_quarantine_flush(hak_heap_t *heap) {
  while (heap->held_first != heap->held_end) let_go(heap);
}

HAK_NOINLINE static void free_other(void *p, const char *function) {
  hak_block_t block;
  if (p == NULL || !hak_front_find(p, function, &block)) return;
  hak_heap_t *heap = hak_heap_enter();
  if (heap && block.slab) {
    hold(heap, block.slab, p, block.place, block.usable);
  } else {
    if (block.slab) hak_seal_write(p, block.place, HAK_SEAL_FREE);
    hak_front_free_block(heap, &block, p, function);
  }
  if (heap) hak_heap_leave(heap);
}

HAK_HOT void hak_quarantine_free(void *p, const char *function) {
  hak_heap_t *heap = hak_tls_heap;
  hak_slab_t *slab;
  if (HAK_LIKELY(hak_range_find(p, &slab)) && HAK_LIKELY(!hak_differs(&slab->local, heap))) {
    size_t place = slab->size;
    uint64_t value = hak_seal_read(p, place), slack = value >> HAK_SEAL_SLACK_SHIFT;
    if (HAK_LIKELY((value & HAK_SEAL_STATE) == HAK_SEAL_LIVE && slack <= place - HAK_TAIL &&
                   hak_seal_edge_whole(p, place, slack))) {
      hold(heap, slab, p, place, place - HAK_TAIL - slack);
      return;
    }
  }
  free_other(p, function); // says what is wrong
}

#endif
