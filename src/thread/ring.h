// ring.h: the blocks and runs that this thread freed last, before the L2 and L2.5 pools (row M3).
//
// The L2 ring of a class is a small LIFO of hints: "block n of that run was freed by this
// thread" (one that its heap owns). A hint owns nothing: the block is marked free where it
// always is, in the run's mask. So a full ring simply forgets its oldest quarter, and an idle
// one all hints, and double frees are still seen exactly.
//
// Capacities adapt to each class (row M4): a ring that was full and later empty would
// have served more blocks if it were larger, so the next time it is full it grows, to
// L2_RING_CAP at most. All rings of a thread share HAK_RING_HINTS places. When they are used up
// a ring does not grow; a class that has none yet, or many refusals, make all rings
// give theirs up, with the hints, and those still in use get places anew.
//
// Invariants (hak_heap_check): the block that a hint names is marked free in the run's mask,
// and the run is not SPARE. Hence an allocation looks into the ring first and takes from a
// mask only when the ring is empty, and whoever takes a run out of use lets the ring forget
// it. A free block of a FULL run has a hint: while the ring can serve it, the run need not be
// found any other way. Whoever forgets such a hint brings the run back.
//
// The L2.5 ring holds freed runs that nobody owns, each unchanged, neither cut nor merged, for
// the next block of as many slabs (docs/decisions/0022-runs.md). It holds HAKMEM_L25_RING_CAP
// runs at most: none at first, then 1 MiB and more, up to HAKMEM_L25_RING_BYTES, if runs are
// missed after others were not kept. They are released at the thread's end, at every reclaim,
// when they are not used, and when a block of the thread could not grow.
//
// Owner only. Tests: test/unit/test_ring.c.

#ifndef HAK_THREAD_RING_H
#define HAK_THREAD_RING_H

#include "core/options.h"
#include "superslab/slab.h"
#include "thread/heap.h"

// A hint is slab index and number of the block.
_Static_assert(HAK_SUPERSLABS_MAX_SHIFT + HAK_SLABS_SHIFT + HAK_HINT_NUMBER_BITS <= 32,
               "a hint fits 32 bits");

HAK_INLINE hak_slab_t *hak_hint_slab(uint32_t hint) {
  return hak_slab_at(hint >> HAK_HINT_NUMBER_BITS);
}
HAK_INLINE uint32_t hak_hint_number(uint32_t hint) {
  return hint & ((1u << HAK_HINT_NUMBER_BITS) - 1);
}

// Pushes hints at the blocks in mask of a run. False: no room for all, and none is pushed.
bool hak_ring_push_all(hak_ring_t *ring, const hak_slab_t *slab, uint64_t mask);

HAK_INLINE bool hak_ring_has_room(const hak_ring_t *ring) { return ring->count < ring->capacity; }
HAK_INLINE void hak_ring_push(hak_ring_t *ring, uint32_t hint) { ring->hint[ring->count++] = hint; }
// The same for a ring without room: it gets more room, or forgets its oldest quarter.
void hak_ring_push_full(hak_heap_t *heap, hak_ring_t *ring, uint32_t hint);

// Takes the hints that name blocks of an L2 run out of a ring of its class.
void hak_ring_forget(hak_ring_t *ring, const hak_slab_t *slab);
// Forgets the hints of L2 class i if its ring gave none out and got none since the last such look.
void hak_ring_forget_idle(hak_heap_t *heap, unsigned i);
// The ring does not count as idle at the next look, although its hits are counted anew.
void hak_ring_was_used(hak_heap_t *heap, hak_ring_t *ring);
// Empties the L2 rings: the heap gets another thread, or gives back what it can.
void hak_ring_forget_all(hak_heap_t *heap);

// The L2.5 ring, heap->kept: freed runs, the newest last, each as the number of its first slab and
// its length in slabs.
#define HAK_KEPT_LENGTH_BITS 5
HAK_INLINE unsigned hak_kept_length(uint32_t run) {
  return run & ((1u << HAK_KEPT_LENGTH_BITS) - 1);
}
HAK_INLINE hak_slab_t *hak_kept_head(uint32_t run) {
  return hak_slab_at(run >> HAK_KEPT_LENGTH_BITS);
}
// Takes the run of n slabs that this thread freed last, of those that start at a multiple of
// alignment; NULL if none is kept. Every run starts at a multiple of 64 KiB.
hak_slab_t *hak_ring_take_run(hak_heap_t *heap, unsigned n, size_t alignment);
// Keeps a freed run (kind FREE, slabs not in the free mask); older ones may go.
void hak_ring_keep_run(hak_heap_t *heap, hak_slab_t *head);
// Releases all kept runs.
void hak_ring_release_runs(hak_heap_t *heap);
// The same if no run was asked for in the last second. To be called now and then.
void hak_ring_tend(hak_heap_t *heap);

#endif
