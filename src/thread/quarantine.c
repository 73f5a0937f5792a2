#include "thread/quarantine.h"

#include "pool/l25.h"
#include "superslab/seal.h"
#include "thread/front.h"
#include "thread/nursery.h"
#include "thread/tend.h"

#if HAK_SECURE

_Static_assert((HAK_HELD & (HAK_HELD - 1)) == 0, "held_end wraps around");
_Static_assert(HAK_ADDRESS_BITS <= 48, "an address and a slack in one word");

// Releases a block that is not in a tiny slab of this heap.
HAK_NOINLINE static void release_other(hak_heap_t *heap, hak_slab_t *slab, void *p, size_t place) {
  hak_block_t block = {
      .kind = hak_slab_kind(slab), .slab = slab, .place = place, .usable = place - HAK_TAIL};
  if (block.kind == HAK_KIND_L2) (void)hak_slab_block(slab, p, &block.number);
  hak_front_free_block(heap, &block, p, "free");
}

// Puts a block of one of this heap's tiny slabs back on the free list. True if the slab's owner has
// to be told (hak_heap_slab_event).
HAK_INLINE bool release_own(hak_slab_t *slab, void *p, size_t place, uint64_t key) {
  *hak_seal_word(p, place) = key ^ HAK_SEAL_FREE;
  hak_link_set_keyed(p, slab->free, key);
  slab->free = p;
  return hak_owner_dec_negative(&slab->frees_left);
}

// The same for any block.
HAK_INLINE void release(hak_heap_t *heap, hak_slab_t *slab, void *p, size_t place, uint64_t key) {
  if (hak_differs(&slab->local, heap)) {
    *hak_seal_word(p, place) = key ^ HAK_SEAL_FREE;
    bool direct = heap == hak_tls_heap && hak_slab_kind(slab) != HAK_KIND_L25;
    if (HAK_LIKELY(direct)) hak_front_free_other(slab, p, "free");
    else release_other(heap, slab, p, place);
  } else if (release_own(slab, p, place, key)) {
    hak_heap_slab_event(heap, slab);
  }
}

HAK_INLINE size_t place_of(hak_slab_t *slab) {
  return HAK_UNLIKELY(hak_slab_kind(slab) == HAK_KIND_L25) ? hak_l25_usable(slab) : slab->size;
}

HAK_INLINE bool filled(const void *p, size_t place, size_t size, bool plain) {
  return plain ? hak_seal_filled(p, place, size, hak_secret.fill)
               : hak_seal_filled_any(p, hak_seal_span(place, size));
}

HAK_INLINE void *block_of(uint64_t held) { return (void *)(uintptr_t)(held >> 16); }
HAK_INLINE uint16_t slack_of(uint64_t held) { return (uint16_t)held; }
// Whether the seal is the one that the block got when it was freed, in every bit. If not, it was
// overwritten, or two threads freed the block at the same moment.
HAK_INLINE bool is_held(uint64_t held, size_t place, uint64_t key) {
  uint64_t value = *hak_seal_word(block_of(held), place) ^ key;
  return hak_seal_slack(value ^ HAK_SEAL_HELD) == slack_of(held);
}

void hak_quarantine_init(hak_heap_t *heap) {
  for (unsigned i = 0; i < HAK_HELD; i++) heap->held_slab[i] = &hak_slab_none;
}

HAK_INLINE void let_go_as(hak_heap_t *heap, bool plain) {
  uint64_t at = (heap->held_end - heap->held_count--) % HAK_HELD;
  const uint64_t held = heap->held[at];
  hak_slab_t *slab = heap->held_slab[at];
  heap->held_slab[at] = &hak_slab_none;
  void *block = block_of(held);
  size_t place = place_of(slab), size = place - HAK_TAIL - slack_of(held);
  uint64_t key = hak_seal_key(block);
  heap->held_bytes -= place;
  // Nothing may have written to the block meanwhile.
  if (HAK_UNLIKELY(!is_held(held, place, key) || !filled(block, place, size, plain)))
    hak_misuse_written(block, size); // told to go on: the block is not reused
  else release(heap, slab, block, place, key);
}

HAK_NOINLINE static void let_go_other(hak_heap_t *heap) { let_go_as(heap, false); }
// The oldest block leaves; there is one. With tail calls only.
HAK_NOINLINE static void let_go(hak_heap_t *heap) {
  if (HAK_UNLIKELY(!hak_secret.plain)) let_go_other(heap);
  else let_go_as(heap, true);
}

// A signal handler may end the process in the middle of a free: what bears no whole seal may be no
// held block.
void hak_quarantine_audit(const hak_heap_t *heap) {
  for (uint32_t i = 1; i <= heap->held_count; i++) {
    uint32_t at = (heap->held_end - i) % HAK_HELD;
    const uint64_t held = heap->held[at];
    void *block = block_of(held);
    size_t place = place_of(heap->held_slab[at]), size = place - HAK_TAIL - slack_of(held);
    if (is_held(held, place, hak_seal_key(block)) && !filled(block, place, size, hak_secret.plain))
      hak_misuse_written(block, size);
  }
}

HAK_INLINE bool too_many(const hak_heap_t *heap) {
  return heap->held_count >= HAK_HELD || heap->held_bytes > hak_secret.held_bytes;
}

// After a free by which a block is held: the blocks that are too many, as a rule one, and what else
// is due.
HAK_NOINLINE static void let_go_surplus(hak_heap_t *heap) {
  if (too_many(heap)) let_go(heap);
  while (HAK_UNLIKELY(too_many(heap))) {
    if (HAK_LIKELY(heap->held_count != 0)) let_go(heap);
    else heap->held_bytes = 0; // HAKMEM_ABORT=0: a place has changed
  }
  hak_tend_if_due(heap);
}

// A block that went back to the slab raised its event.
HAK_NOINLINE static void tell(hak_heap_t *heap, hak_slab_t *slab) {
  hak_heap_slab_event(heap, slab);
  let_go_surplus(heap);
}

// Puts p, whose seal is whole, behind the blocks held, at position `at`. The caller counts it.
HAK_INLINE void append(hak_heap_t *heap, uint64_t at, hak_slab_t *slab, void *p, size_t place,
                       uint64_t slack) {
  hak_seal_hold(p, place);
  heap->held[at] = (uintptr_t)p << 16 | slack;
  heap->held_slab[at] = slab;
  heap->held_end = (at + 1) % HAK_HELD;
}

// Blocks that are not held, or filled in another way.
HAK_NOINLINE static void hold_other(hak_heap_t *heap, hak_slab_t *slab, void *p, size_t place,
                                    uint64_t slack) {
  hak_seal_fill_any(p, hak_seal_span(place, place - HAK_TAIL - slack));
  if (place > hak_secret.held_bytes) {
    release(heap, slab, p, place, hak_seal_key(p));
    hak_tend_if_due(heap);
    return;
  }
  append(heap, heap->held_end, slab, p, place, slack);
  heap->held_count++;
  heap->held_bytes += place;
  let_go_surplus(heap);
}

// Holds any live block, or releases it at once. With tail calls only.
HAK_INLINE void hold_here(hak_heap_t *heap, hak_slab_t *slab, void *p, size_t place,
                          uint64_t slack) {
  if (HAK_UNLIKELY(!hak_secret.plain) || HAK_UNLIKELY(place > hak_secret.held_bytes)) {
    hold_other(heap, slab, p, place, slack);
    return;
  }
  append(heap, heap->held_end, slab, p, place, slack);
  hak_seal_fill(p, place, place - HAK_TAIL - slack, hak_secret.fill);
  heap->held_count++;
  heap->held_bytes += place;
  let_go_surplus(heap);
}
HAK_NOINLINE static void hold(hak_heap_t *heap, hak_slab_t *slab, void *p, size_t place,
                              uint64_t slack) {
  hold_here(heap, slab, p, place, slack);
}

void hak_quarantine_flush(hak_heap_t *heap) {
  while (heap->held_count != 0) let_go(heap);
  heap->held_bytes = 0; // if a place has changed (HAKMEM_ABORT=0), they are not 0
}

HAK_NOINLINE static void free_other(void *p, const char *function) {
  hak_block_t block;
  if (p == NULL || !hak_front_find(p, function, &block)) return;
  hak_heap_t *heap = hak_heap_enter();
  if (heap && block.slab) {
    uint64_t slack = hak_seal_slack(hak_seal_read(p, block.place));
    // Another thread may have freed it since it was found.
    if (HAK_LIKELY(slack <= HAK_SEAL_SLACK_MAX)) hold(heap, block.slab, p, block.place, slack);
    else hak_misuse_double_free(function, p, block.usable);
  } else {
    if (block.slab) hak_seal_write(p, block.place, HAK_SEAL_FREE);
    hak_front_free_block(heap, &block, p, function);
  }
  if (heap) hak_heap_leave(heap);
}

// For a thread without a heap: holds the block in the quarantine of the nursery that owns it.
HAK_NOINLINE static void hold_young(hak_slab_t *slab, void *p, size_t place, uint64_t slack,
                                    const char *function) {
  hak_heap_t *heap = hak_nursery_enter_for(slab);
  if (HAK_UNLIKELY(!heap)) {
    free_other(p, function);
    return;
  }
  hold(heap, slab, p, place, slack);
  hak_nursery_leave(heap);
}

// Frees blocks outside this thread's tiny slabs, and inside too unless hak_secret.plain. A seal in
// the blocks of a slab or run in use shows that the pointer is one of them, whoever owns it.
HAK_NOINLINE static void free_by_seal(hak_heap_t *heap, hak_slab_t *slab, void *p,
                                      const char *function) {
  slab -= slab->offset; // 0 in a head; any number in a free slab
  hak_kind_t kind = hak_slab_kind(slab);
  if (HAK_LIKELY(kind == HAK_KIND_TINY || kind == HAK_KIND_L2)) {
    size_t offset = (size_t)((char *)p - slab->start);
    size_t place = slab->size;
    if (HAK_LIKELY(offset + place <= slab->capacity * place)) {
      size_t size;
      uint64_t slack = hak_seal_slack(hak_seal_read(p, place));
      if (HAK_LIKELY(hak_seal_is_whole(p, place, slack, &size))) {
        if (HAK_LIKELY(heap != &hak_heap_none)) hold_here(heap, slab, p, place, slack);
        else hold_young(slab, p, place, slack, function);
        return;
      }
    }
  }
  free_other(p, function);
}

// The common case is straight-line code with tail calls only, which spares saving six registers: a
// block of this thread's tiny slabs joins the held ones, and the oldest held block is of these too.
HAK_INLINE void free_as(void *p, const char *function) {
  hak_heap_t *heap = hak_tls_heap;
  hak_slab_t *slab;
  if (HAK_UNLIKELY(!hak_range_find(p, &slab))) {
    free_other(p, function);
    return;
  }
  if (HAK_UNLIKELY(hak_differs(&slab->local, heap))) {
    free_by_seal(heap, slab, p, function);
    return;
  }
  size_t place = slab->size, size;
  if (HAK_UNLIKELY(!hak_seal_in_slab(p, place))) {
    free_other(p, function);
    return;
  }
  uint64_t slack = hak_seal_slack(hak_seal_read(p, place));
  if (HAK_UNLIKELY(!hak_seal_is_whole(p, place, slack, &size))) {
    free_other(p, function); // reports what is wrong
    return;
  }
  // As long as fewer than the most blocks are held, there is none at that position.
  uint64_t at = heap->held_end, next = (at + 1) % HAK_HELD;
  hak_slab_t *oldest = heap->held_slab[next];
  if (HAK_UNLIKELY(hak_differs(&oldest->local, heap)) || HAK_UNLIKELY(!hak_secret.plain)) {
    hold(heap, slab, p, place, slack);
    return;
  }
  append(heap, at, slab, p, place, slack); // first, as it needs the most registers
  hak_pair_t fill = hak_secret.fill;
  hak_seal_fill(p, place, size, fill);
  uint64_t bytes = heap->held_bytes + place;
  const uint64_t held = heap->held[next];
  void *block = block_of(held);
  uint64_t key = hak_seal_key(block);
  place = oldest->size;
  size = place - HAK_TAIL - slack_of(held);
  if (HAK_UNLIKELY(!is_held(held, place, key)) ||
      HAK_UNLIKELY(!hak_seal_filled(block, place, size, fill))) {
    heap->held_count = HAK_HELD;
    heap->held_bytes = bytes;
    let_go_surplus(heap); // reports what is wrong
    return;
  }
  heap->held_bytes = bytes -= place;
  if (HAK_UNLIKELY(release_own(oldest, block, place, key))) tell(heap, oldest);
  else if (HAK_UNLIKELY(bytes > hak_secret.held_bytes)) let_go_surplus(heap);
}

HAK_HOT void hak_quarantine_free(void *p) { free_as(p, "free"); }
HAK_HOT void hak_quarantine_free_as(void *p, const char *function) { free_as(p, function); }

#endif
