// ring.h: what this thread freed last, in front of the L2 and L2.5 pools (row M3).
//
// The L2 ring of a class is a small circular LIFO of hints: "block n of that run
// was freed by this thread". A hint owns nothing. The block is marked free where
// it always is (the run's mask, or this thread's remote map if another heap owns
// the run), and whoever pops a hint looks there: a stale one is dropped, an old one
// may be overwritten, none is ever flushed. So a ring holds no memory back and
// double frees are still seen exactly.
//
// The L2.5 ring holds whole runs that are in nobody's hands: at most
// HAKMEM_L25_RING_CAP of them and HAKMEM_L25_RING_BYTES; they go back with the
// thread's end and with every reclaim.
//
// Owner only. Tests: test/unit/test_ring.c.

#ifndef HAK_THREAD_RING_H
#define HAK_THREAD_RING_H

#include "core/options.h"
#include "superslab/slab.h"
#include "thread/heap.h"

#define HAK_RING_NUMBER_BITS 6 // a run has at most HAK_L2_BLOCKS_MAX blocks

HAK_INLINE void hak_ring_push(hak_ring_t *ring, const hak_slab_t *slab, uint32_t number) {
  uint32_t capacity = (uint32_t)hak_option(L2_RING_CAP), at = ring->at + 1;
  if (HAK_UNLIKELY(at >= capacity)) {
    if (capacity == 0) return;
    at = 0;
  }
  ring->at = at;
  ring->hint[at] = hak_slab_index(slab) << HAK_RING_NUMBER_BITS | number;
}

// The newest hint, 0 if there is none; drop takes it out. (At the lower end the ring
// counts as empty, whatever older hints lie behind it.)
HAK_INLINE uint32_t hak_ring_newest(const hak_ring_t *ring) { return ring->hint[ring->at]; }
HAK_INLINE void hak_ring_drop(hak_ring_t *ring) {
  uint32_t at = ring->at;
  ring->hint[at] = 0;
  ring->at = at - (at != 0);
}

// A run of n slabs this thread freed, NULL if it keeps none of that length.
hak_slab_t *hak_ring_take_run(hak_heap_t *heap, unsigned n);
// Keeps a freed run (kind FREE, slabs not in the free mask); may release older ones.
void hak_ring_keep_run(hak_heap_t *heap, hak_slab_t *head);
// Releases all kept runs.
void hak_ring_release_runs(hak_heap_t *heap);

#endif
