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

// The block may be handed out again. value is what its tail word says.
HAK_INLINE void release(hak_heap_t *heap, hak_slab_t *slab, void *p, size_t place, uint64_t value) {
  uint64_t *word = hak_seal_word(p, place), key = *word ^ value;
  *word = key ^ HAK_SEAL_FREE;
  if (HAK_UNLIKELY(hak_differs(&slab->local, heap))) {
    release_other(heap, slab, p, place);
    return;
  }
  hak_link_set_keyed(p, slab->free, key);
  slab->free = p;
  if (HAK_UNLIKELY(hak_owner_dec_negative(&slab->frees_left))) hak_heap_slab_event(heap, slab);
}

static size_t place_of_large(hak_slab_t *slab, hak_kind_t kind) {
  return kind == HAK_KIND_L2 ? hak_class_size(hak_slab_class(slab)) : hak_l25_usable(slab);
}

HAK_INLINE void let_go(hak_heap_t *heap) {
  const hak_held_t held = heap->held[heap->held_first++ % HAK_HELD];
  hak_slab_t *slab = held.slab;
  hak_kind_t kind = hak_slab_kind(slab);
  size_t place = HAK_LIKELY(kind == HAK_KIND_TINY) ? slab->size : place_of_large(slab, kind);
  uint64_t value = hak_seal_read(held.block, place), slack = value >> HAK_SEAL_SLACK_SHIFT;
  heap->held_bytes -= place;
  // Nobody may have touched it meanwhile. Another seal than HELD: two threads freed it at
  // the same moment, or it was overwritten.
  if (HAK_UNLIKELY((value & HAK_SEAL_STATE) != HAK_SEAL_HELD || slack > place - HAK_TAIL ||
                   !hak_seal_filled(held.block, place - HAK_TAIL - slack))) {
    hak_misuse_written(held.block, hak_seal_size(held.block, place));
    return; // told to go on: nobody gets it
  }
  release(heap, slab, held.block, place, value);
}

// p is live, as value says, its tail word.
HAK_INLINE void hold(hak_heap_t *heap, hak_slab_t *slab, void *p, size_t place, uint64_t value) {
  hak_seal_fill(p, place - HAK_TAIL - (value >> HAK_SEAL_SLACK_SHIFT));
  if (HAK_UNLIKELY(place > hak_secret.held_bytes)) {
    release(heap, slab, p, place, value);
    return;
  }
  *hak_seal_word(p, place) ^= HAK_SEAL_LIVE ^ HAK_SEAL_HELD;
  heap->held[heap->held_end++ % HAK_HELD] = (hak_held_t){p, slab};
  heap->held_bytes += place;
  if (HAK_LIKELY(heap->held_end - heap->held_first == HAK_HELD)) let_go(heap);
  while (HAK_UNLIKELY(heap->held_bytes > hak_secret.held_bytes)) let_go(heap);
}

void hak_quarantine_flush(hak_heap_t *heap) {
  while (heap->held_first != heap->held_end) let_go(heap);
}

HAK_NOINLINE static void free_other(void *p, const char *function) {
  hak_block_t block;
  if (p == NULL || !hak_front_find(p, function, &block)) return;
  hak_heap_t *heap = hak_heap_enter();
  if (heap && block.slab) {
    hold(heap, block.slab, p, block.place, hak_seal_read(p, block.place));
  } else {
    if (block.slab) hak_seal_write(p, block.place, HAK_SEAL_FREE);
    hak_front_free_block(heap, &block, p, function);
  }
  if (heap) hak_heap_leave(heap);
}

// Live, and nothing was written behind it.
HAK_INLINE bool is_whole(const void *p, size_t place, uint64_t value) {
  uint64_t slack = value >> HAK_SEAL_SLACK_SHIFT;
  // The slack is what a write just before the next block hits.
  return (value & HAK_SEAL_STATE) == HAK_SEAL_LIVE && slack <= place - HAK_TAIL &&
         hak_seal_edge_whole(p, place, slack);
}

// Frees what is not of one of this thread's tiny slabs. A seal within the blocks of a slab or
// run in use shows that p is one of them, whoever owns it.
HAK_NOINLINE static void free_by_seal(hak_heap_t *heap, hak_slab_t *slab, void *p,
                                      const char *function) {
  slab -= slab->offset; // 0 in a head; of a slab that is free any number
  hak_kind_t kind = hak_slab_kind(slab);
  if (HAK_LIKELY(kind == HAK_KIND_TINY || kind == HAK_KIND_L2) && heap != &hak_heap_none) {
    size_t offset = (size_t)((char *)p - slab->start);
    size_t place = hak_class_size(hak_slab_class(slab));
    if (HAK_LIKELY(offset + place <= slab->capacity * place)) {
      uint64_t value = hak_seal_read(p, place);
      if (HAK_LIKELY(is_whole(p, place, value))) {
        hold(heap, slab, p, place, value);
        return;
      }
    }
  }
  free_other(p, function);
}

HAK_HOT void hak_quarantine_free(void *p, const char *function) {
  hak_heap_t *heap = hak_tls_heap;
  hak_slab_t *slab;
  if (HAK_UNLIKELY(!hak_range_find(p, &slab))) {
    free_other(p, function);
  } else if (HAK_UNLIKELY(hak_differs(&slab->local, heap))) {
    free_by_seal(heap, slab, p, function);
  } else {
    size_t place = slab->size;
    // Behind the slab may be nothing to read.
    if (HAK_LIKELY(((uintptr_t)p & (HAK_SLAB_SIZE - 1)) + place <= HAK_SLAB_SIZE)) {
      uint64_t value = hak_seal_read(p, place);
      if (HAK_LIKELY(is_whole(p, place, value))) {
        hold(heap, slab, p, place, value);
        return;
      }
    }
    free_other(p, function); // says what is wrong
  }
}

#endif
