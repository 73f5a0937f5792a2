#include "thread/ring.h"

#include "pool/l25.h"

#define RUN_BITS 5 // entry: index of the head << 5 | slabs in the run
#define RUN_MASK ((1u << RUN_BITS) - 1)
_Static_assert(HAK_L25_MAX >> HAK_SLAB_SHIFT <= RUN_MASK, "the length of a run fits an entry");

// Takes the oldest n hints out of a ring.
static void forget_oldest(hak_heap_t *heap, hak_ring_t *ring, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) hak_heap_bring_back(heap, hak_hint_slab(ring->hint[i]));
  ring->count -= n;
  for (uint32_t i = 0; i < ring->count; i++) ring->hint[i] = ring->hint[n + i];
}

// Gives a ring as many places as it wants, its hints in the first of them. False: there
// are none left.
static bool get_places(hak_heap_t *heap, hak_ring_t *ring) {
  if (heap->hints_used + ring->wanted > HAK_RING_HINTS) return false;
  uint32_t *places = heap->hints + heap->hints_used;
  for (uint32_t i = 0; i < ring->count; i++) places[i] = ring->hint[i];
  ring->hint = places;
  ring->capacity = ring->wanted;
  heap->hints_used += ring->wanted;
  return true;
}

// Takes all places away. If no ring has grown since that was done last, the classes in
// use want more than there is: each shall want less.
static void take_places(hak_heap_t *heap) {
  for (unsigned i = 0; i < HAK_L2_CLASSES; i++) {
    hak_ring_t *ring = &heap->ring[i];
    forget_oldest(heap, ring, ring->count);
    ring->capacity = 0;
    ring->missed = false;
    if (!heap->rings_grew && ring->wanted > HAK_L2_RING_MIN) ring->wanted /= 2;
  }
  heap->rings_grew = false;
  heap->hints_used = 0;
}

void hak_ring_push_full(hak_heap_t *heap, hak_ring_t *ring, uint32_t hint) {
  uint32_t most = (uint32_t)hak_option(L2_RING_CAP);
  if (most == 0) return;
  if (ring->capacity == 0 || (ring->missed && ring->capacity < most)) {
    if (ring->capacity != 0) {
      ring->wanted = (uint16_t)(2 * ring->capacity);
      heap->rings_grew = true;
    }
    if (ring->wanted > most || ring->wanted == 0) ring->wanted = (uint16_t)most;
    if (!get_places(heap, ring)) {
      take_places(heap);
      get_places(heap, ring);
    }
  } else {
    forget_oldest(heap, ring, ring->capacity - ring->capacity / 2);
  }
  ring->missed = false;
  ring->hint[ring->count++] = hint;
}

bool hak_ring_push_all(hak_ring_t *ring, const hak_slab_t *slab, uint64_t mask) {
  uint32_t had = ring->count;
  for (; mask != 0; mask &= mask - 1) {
    if (!hak_ring_has_room(ring)) {
      ring->count = had;
      return false;
    }
    hak_ring_push(ring, slab->hint | hak_low_bit(mask));
  }
  return true;
}

void hak_ring_forget(hak_ring_t *ring, const hak_slab_t *slab) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < ring->count; i++)
    if (hak_hint_slab(ring->hint[i]) != slab) ring->hint[kept++] = ring->hint[i];
  ring->count = kept;
}

void hak_ring_forget_all(hak_heap_t *heap) {
  for (unsigned i = 0; i < HAK_L2_CLASSES; i++) {
    hak_ring_t *ring = &heap->ring[i];
    forget_oldest(heap, ring, ring->count);
    ring->capacity = 0; // nor does it take what others free while the heap is an orphan
    ring->missed = false;
  }
  heap->rings_grew = false;
  heap->hints_used = 0;
}

static void forget_run(hak_heap_t *heap, unsigned i) {
  heap->run_slabs -= heap->runs[i] & RUN_MASK;
  heap->run_count--;
  for (; i < heap->run_count; i++) heap->runs[i] = heap->runs[i + 1];
}

static void release_oldest(hak_heap_t *heap) {
  hak_slab_t *head = hak_slab_at(heap->runs[0] >> RUN_BITS);
  forget_run(heap, 0);
  hak_l25_release(head);
  hak_heap_count_stat(heap, HAK_STAT_slab_empty, 1);
}

hak_slab_t *hak_ring_take_run(hak_heap_t *heap, unsigned n) {
  for (unsigned i = heap->run_count; i-- > 0;) {
    if ((heap->runs[i] & RUN_MASK) != n) continue;
    hak_slab_t *head = hak_slab_at(heap->runs[i] >> RUN_BITS);
    forget_run(heap, i);
    return head;
  }
  return NULL;
}

void hak_ring_keep_run(hak_heap_t *heap, hak_slab_t *head) {
  unsigned n = head->run, capacity = (unsigned)hak_option(L25_RING_CAP);
  unsigned slabs_max = (unsigned)(hak_option(L25_RING_BYTES) >> HAK_SLAB_SHIFT);
  if (capacity == 0 || n > slabs_max) {
    hak_l25_release(head);
    hak_heap_count_stat(heap, HAK_STAT_slab_empty, 1);
    return;
  }
  while (heap->run_count >= capacity || heap->run_slabs + n > slabs_max) release_oldest(heap);
  heap->runs[heap->run_count++] = hak_slab_index(head) << RUN_BITS | n;
  heap->run_slabs += n;
}

void hak_ring_release_runs(hak_heap_t *heap) {
  while (heap->run_count) release_oldest(heap);
}
