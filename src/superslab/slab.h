// slab.h: one tiny or L2 slab, as its owner sees it. Every function here is for
// the owner of the slab only, except hak_slab_live_now (any thread).
//
// Tests: test/unit/test_slab.c.

#ifndef HAK_SUPERSLAB_SLAB_H
#define HAK_SUPERSLAB_SLAB_H

#include "base/bits.h"
#include "base/types.h"
#include "superslab/size_class.h"
#include "superslab/superslab.h"

// Stands in where a heap has no slab of a class: never has a free block.
HAK_INTERNAL extern hak_slab_t hak_slab_none;

HAK_INLINE hak_kind_t hak_slab_kind(const hak_slab_t *slab) {
  // Relaxed: set before the first block left malloc; the program's own
  // synchronisation orders that before any legitimate free.
  return (hak_kind_t)hak_load_relaxed(&slab->kind);
}

HAK_INLINE unsigned hak_slab_class(const hak_slab_t *slab) {
  return hak_load_relaxed(&slab->size_class);
}

HAK_INLINE hak_place_t hak_slab_place(const hak_slab_t *slab) {
  return (hak_place_t)hak_load_relaxed(&slab->place);
}
HAK_INLINE void hak_slab_set_place(hak_slab_t *slab, hak_place_t place) {
  hak_store_relaxed(&slab->place, (uint8_t)place);
}
// Makes a slab FULL, PARTIAL or SPARE. For a slab that becomes FULL it is the last thing that
// its owner does.
HAK_INLINE void hak_slab_settle(hak_slab_t *slab, hak_place_t place) {
  // Release: pairs with the acquires in all_freed (thread/relief.c) and hak_slab_is_partial_of.
  hak_store_release(&slab->place, (uint8_t)place);
}

// Heap that owns a tiny or L2 slab. For other threads the answer may be a moment
// old (protocol R2 forwards).
HAK_INLINE hak_heap_t *hak_slab_owner(hak_slab_t *slab) {
  return hak_slab_kind(slab) == HAK_KIND_TINY ? hak_load_relaxed(&slab->local)
                                              : hak_load_relaxed(&slab->holder);
}
void hak_slab_set_owner(hak_slab_t *slab, hak_heap_t *heap);

// Whether a slab that heap's thread remembers, now perhaps another heap's, is PARTIAL in heap.
HAK_INLINE bool hak_slab_is_partial_of(hak_slab_t *slab, hak_heap_t *heap) {
  // Acquire, and before the owner: pairs with the release in hak_slab_settle. If another made it
  // PARTIAL, its owner is seen to have changed; if this thread did, no other takes it (R3: FULL).
  return hak_load_acquire(&slab->place) == HAK_PLACE_PARTIAL && hak_slab_owner(slab) == heap;
}

// Relaxed: set before a block that is larger than asked for leaves malloc, so whoever frees
// that block sees it; for other blocks it makes no difference.
HAK_INLINE bool hak_slab_roomy(const hak_slab_t *slab) { return hak_load_relaxed(&slab->roomy); }
HAK_INLINE void hak_slab_set_roomy(hak_slab_t *slab) {
  if (!hak_slab_roomy(slab)) hak_store_relaxed(&slab->roomy, true); // others read the line
}

// A hint names an L2 block: slab index and number (the rest is in thread/ring.h).
#define HAK_HINT_NUMBER_BITS 6
_Static_assert(HAK_L2_BLOCKS_MAX <= 1 << HAK_HINT_NUMBER_BITS, "every block has a number");

// Whether p is the start of a block of a tiny slab or an L2 run; number is that of the block p is
// in, from block 0 to the end of the slab or run. One multiplication: (n * size + r) *
// ceil(2^64 / size) is n * 2^64 and a fraction that is below the factor if and only if r is 0,
// for any offset of a run.
HAK_INLINE bool hak_slab_block(const hak_slab_t *slab, const void *p, uint32_t *number) {
  unsigned __int128 product =
      (unsigned __int128)(uint64_t)((const char *)p - slab->start) * slab->inverse;
  uint64_t n = (uint64_t)(product >> 64);
  *number = (uint32_t)n;
  return (uint64_t)product < slab->inverse && n < slab->capacity;
}

// Bytes of a slab or run before its first block (HAK_COLOUR).
HAK_INLINE size_t hak_slab_gap(const hak_slab_t *slab) {
  return (size_t)(slab->start - hak_slab_start(slab));
}

// Make freshly acquired slabs an ACTIVE slab of the class / an empty slab nobody's, for the pool.
void hak_slab_init(hak_slab_t *slab, hak_heap_t *heap, unsigned size_class);
void hak_slab_clear(hak_slab_t *slab);

// Blocks not free and not uncarved: held by the program or freed remotely.
HAK_INLINE uint64_t hak_slab_live_tiny(const hak_slab_t *slab) {
  return hak_load_relaxed(&slab->allocs) + hak_load_relaxed(&slab->frees_left) - HAK_FREES_BIAS;
}
HAK_INLINE uint64_t hak_slab_live(const hak_slab_t *slab) {
  if (hak_slab_kind(slab) == HAK_KIND_TINY) return hak_slab_live_tiny(slab);
  return slab->capacity - hak_count_bits64(hak_load_relaxed(&slab->mask));
}

// The mask of an L2 run of `capacity` blocks that are all free.
HAK_INLINE uint64_t hak_slab_all(uint64_t capacity) { return ((uint64_t)1 << capacity) - 1; }

// Whether live is 0; for L2 without counting bits.
HAK_INLINE bool hak_slab_unused(const hak_slab_t *slab) {
  if (hak_slab_kind(slab) == HAK_KIND_TINY) return hak_slab_live_tiny(slab) == 0;
  return hak_load_relaxed(&slab->mask) == hak_slab_all(slab->capacity);
}

// Live blocks as any thread sees them, without remotely freed ones; never above capacity.
uint32_t hak_slab_live_now(hak_slab_t *slab);

// Whether the slab has a block to hand out without help from other threads.
HAK_INLINE bool hak_slab_usable(const hak_slab_t *slab) {
  if (hak_slab_kind(slab) == HAK_KIND_L2) return hak_load_relaxed(&slab->mask) != 0;
  return slab->free != NULL || slab->chains != 0 || slab->carved < slab->capacity ||
         slab->absent != 0;
}

// Tiny: makes count neighbouring blocks, of which block is the first, the free list.
void hak_slab_list(hak_slab_t *slab, char *block, uint32_t count);

// Tiny: puts up to batch fresh blocks, at most 4 KiB, on the (empty) free list in address order
// (secure library: in random order); if there are none, those of an absent page. Returns how many.
uint32_t hak_slab_carve(hak_slab_t *slab, uint32_t batch);
uint32_t hak_slab_carve_absent(hak_slab_t *slab);

// Gives back the OS pages that hold no live block: of a tiny slab all of them, of an L2 run
// those that lie only in blocks of `which` (bit i: block i); no hint may name such a block.
// Returns the number of pages.
uint32_t hak_slab_trim(hak_slab_t *slab, uint64_t which);

// Tiny: by its counts, the slab should have `blocks` more blocks on its free list than it has:
// a link was overwritten. Reports that, and gives the blocks up. A few may belong to a signal
// handler that never returned.
#define HAK_LOST_MIN 8
HAK_COLD void hak_slab_lost(hak_slab_t *slab, uint64_t blocks);

// Tiny: makes the next chain that was taken back the free list, which is empty. Returns its
// length, 0 if there is none.
HAK_INLINE uint32_t hak_slab_next_chain(hak_slab_t *slab) {
  uint64_t chain = slab->chains;
  if (chain == 0) return 0;
  void **head = (void **)(uintptr_t)(chain & HAK_REMOTE_POINTER_MASK);
  slab->free = head;
  slab->chains = (uint64_t)(uintptr_t)head[1];
  return (uint32_t)(chain >> HAK_REMOTE_COUNT_SHIFT);
}

// The last block of a chain of count; if a link was overwritten, the last that can be found.
void *hak_slab_chain_end(void *block, uint32_t count);

// Takes back what other threads freed; with dequeue also clears QUEUED (the caller has just
// taken the slab from its inbox). Returns the number of blocks.
uint32_t hak_slab_collect(hak_slab_t *slab, bool dequeue);

// Sets the counters for the next place: see HAK_FREES_BIAS. await: free raises the event when
// fewer than mark blocks are live. count (ACTIVE): free raises it after HAK_FREES_BIAS frees.
HAK_INLINE void hak_slab_count(hak_slab_t *slab, uint64_t live) {
  // In this order, so that a signal handler that ends the process misses no block (audit.c).
  hak_store_relaxed(&slab->frees_left, HAK_FREES_BIAS);
  atomic_signal_fence(memory_order_release);
  hak_store_relaxed(&slab->allocs, live);
}
HAK_INLINE void hak_slab_await(hak_slab_t *slab, uint64_t live, uint64_t mark) {
  hak_store_relaxed(&slab->allocs, HAK_FREES_BIAS + mark);
  hak_store_relaxed(&slab->frees_left, live - mark);
}

HAK_INLINE void hak_slab_enter_active(hak_slab_t *slab) {
  hak_slab_set_place(slab, HAK_PLACE_ACTIVE);
  if (hak_slab_kind(slab) != HAK_KIND_TINY) return;
  slab->waits = false;
  hak_slab_count(slab, hak_slab_live_tiny(slab));
}

HAK_INLINE void hak_slab_leave_active(hak_slab_t *slab, hak_place_t place, uint64_t mark) {
  if (hak_slab_kind(slab) == HAK_KIND_TINY) {
    uint64_t live = hak_slab_live_tiny(slab);
    if (!HAK_SECURE && HAK_UNLIKELY(live < slab->carved) && place == HAK_PLACE_FULL) {
      hak_slab_lost(slab, slab->carved - live);
      live = slab->carved;
    }
    hak_slab_await(slab, live, mark);
  }
  hak_slab_settle(slab, place);
}

#endif
