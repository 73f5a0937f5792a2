#include "thread/ring.h"

#include <string.h>

#include "os/os.h"
#include "pool/l25.h"
#include "thread/sparse.h"

// After so many refused requests for places, all places are taken away and given anew, as some
// may belong to classes that are no longer in use.
#define REFUSALS_MAX 256

// Takes the oldest n hints out of a ring: blocks that will not be used soon.
static void forget_oldest(hak_heap_t *heap, hak_ring_t *ring, uint32_t n) {
  uint32_t old[HAK_L2_RING]; // what follows may take more hints out of the ring
  if (n == 0) return;
  memcpy(old, ring->hint, n * sizeof *old);
  ring->count -= n;
  memmove(ring->hint, ring->hint + n, ring->count * sizeof *old);
  for (uint32_t i = 0; i < n; i++) {
    hak_slab_t *run = hak_hint_slab(old[i]);
    if (hak_slab_place(run) == HAK_PLACE_FULL) hak_heap_bring_back(heap, run);
    if (!run->waits) hak_sparse_add(heap, run);
  }
}

void hak_ring_forget_all(hak_heap_t *heap) {
  for (unsigned i = 0; i < HAK_L2_CLASSES; i++) {
    hak_ring_t *ring = &heap->ring[i];
    forget_oldest(heap, ring, ring->count);
    ring->capacity = 0; // nor does it take what others free while the heap is an orphan
    ring->missed = false;
  }
  heap->rings_refused = 0;
  heap->hints_used = 0;
}

static uint8_t look_at(hak_ring_t *ring) {
  return (uint8_t)(ring->count + 61 * hak_load_relaxed(&ring->hits_left));
}

void hak_ring_was_used(hak_heap_t *heap, hak_ring_t *ring) {
  heap->ring_looked[ring - heap->ring] = (uint8_t)(look_at(ring) + 1);
}

void hak_ring_forget_idle(hak_heap_t *heap, unsigned i) {
  hak_ring_t *ring = &heap->ring[i];
  uint8_t now = look_at(ring);
  if (now == heap->ring_looked[i]) forget_oldest(heap, ring, ring->count);
  heap->ring_looked[i] = now;
}

// Gives a ring its first places or a few more; the hints behind its own move up. False: too
// few places are left.
static bool get_places(hak_heap_t *heap, hak_ring_t *ring, uint32_t most) {
  uint32_t wanted = ring->capacity ? ring->capacity + HAK_L2_RING_MIN : ring->wanted;
  if (wanted > most) wanted = most;
  uint32_t more = wanted - ring->capacity;
  if (heap->hints_used + more > HAK_RING_HINTS) return false;
  uint32_t *end = heap->hints + heap->hints_used;
  uint32_t *from = ring->capacity ? ring->hint + ring->capacity : end;
  for (; end > from; end--) end[more - 1] = end[-1];
  for (unsigned i = 0; i < HAK_L2_CLASSES; i++)
    if (heap->ring[i].capacity && heap->ring[i].hint >= from) heap->ring[i].hint += more;
  if (!ring->capacity) ring->hint = from;
  ring->capacity = wanted;
  ring->wanted = (uint16_t)wanted;
  heap->hints_used += more;
  return true;
}

// Takes all places away; each ring begins again with half of what it had.
static void take_places(hak_heap_t *heap) {
  hak_ring_forget_all(heap);
  for (unsigned i = 0; i < HAK_L2_CLASSES; i++)
    if (heap->ring[i].wanted > HAK_L2_RING_MIN) heap->ring[i].wanted /= 2;
}

// Gives a full ring more places if it was also found empty since it last was full: a larger
// ring would serve more. False: there are none for it.
static bool grow(hak_heap_t *heap, hak_ring_t *ring, uint32_t most) {
  if (ring->capacity != 0 && (!ring->missed || ring->capacity >= most)) return false;
  if (get_places(heap, ring, most)) return true;
  if (ring->capacity != 0 && ++heap->rings_refused < REFUSALS_MAX) return false;
  take_places(heap);
  return get_places(heap, ring, most);
}

void hak_ring_push_full(hak_heap_t *heap, hak_ring_t *ring, uint32_t hint) {
  uint32_t most = (uint32_t)hak_option(L2_RING_CAP);
  if (most == 0) return;
  if (!grow(heap, ring, most)) forget_oldest(heap, ring, (ring->capacity + 3) / 4);
  ring->missed = false;
  // When hints were forgotten, the block's own run may have been trimmed (hak_sparse_add).
  bool absent = hak_hint_slab(hint)->absent >> hak_hint_number(hint) & 1;
  if (!absent) hak_ring_push(ring, hint);
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

// ---------------------------------------------------------------------------
// Kept runs. A run stays whole, for a block of as many slabs. Cutting shorter runs out of it
// would put these where the pool would not: docs/decisions/0022-runs.md

_Static_assert(HAK_L25_MAX >> HAK_SLAB_SHIFT < 1u << HAK_KEPT_LENGTH_BITS, "a length fits");
_Static_assert(HAK_SUPERSLABS_MAX_SHIFT + HAK_SLABS_SHIFT + HAK_KEPT_LENGTH_BITS <= 32,
               "and a number");

#define KEPT_MIN ((uint64_t)1 << 20) // bytes a thread may keep after the first regrets
#define REGRETS_PER_DOUBLING 4
#define IDLE_MS 1000

// Up to HAK_CROWD threads may each keep as much as the option says; more threads share HAK_CROWD
// times that amount, as threads that sleep keep their runs.
static uint32_t most_slabs(void) {
  uint32_t most = (uint32_t)(hak_option(L25_RING_BYTES) >> HAK_SLAB_SHIFT);
  uint32_t threads = hak_load_relaxed(&hak_heap_threads);
  return threads > HAK_CROWD ? most * HAK_CROWD / threads : most;
}

static uint32_t take_out(hak_heap_t *heap, uint32_t i) {
  uint32_t run = heap->kept[i];
  for (heap->kept_count--; i < heap->kept_count; i++) heap->kept[i] = heap->kept[i + 1];
  heap->kept_slabs -= hak_kept_length(run);
  return run;
}

static void release_oldest(hak_heap_t *heap, hak_parcel_t *parcel) {
  uint32_t run = take_out(heap, 0);
  hak_pool_release_with(hak_kept_head(run), hak_kept_length(run), parcel);
  hak_heap_count_stat(heap, HAK_STAT_slab_empty, 1);
}

// No kept run fitted: perhaps one would have, had more been kept.
static void missed(hak_heap_t *heap) {
  if (!heap->kept_refused) return;
  heap->kept_refused = false;
  if (++heap->kept_regrets < REGRETS_PER_DOUBLING) return;
  heap->kept_regrets = 0;
  if (heap->kept_most < most_slabs())
    heap->kept_most =
        heap->kept_most ? 2 * heap->kept_most : (uint32_t)(KEPT_MIN >> HAK_SLAB_SHIFT);
}

hak_slab_t *hak_ring_take_run(hak_heap_t *heap, unsigned n, size_t alignment) {
  heap->kept_used = true;
  // The bits of the length, and those of the number that must be 0.
  uint32_t those = (uint32_t)((alignment - 1) >> HAK_SLAB_SHIFT << HAK_KEPT_LENGTH_BITS) |
                   ((1u << HAK_KEPT_LENGTH_BITS) - 1);
  for (uint32_t i = heap->kept_count; i-- > 0;)
    if ((heap->kept[i] & those) == n) return hak_kept_head(take_out(heap, i));
  missed(heap);
  return NULL;
}

void hak_ring_keep_run(hak_heap_t *heap, hak_slab_t *head) {
  unsigned n = hak_l25_take_apart(head);
  hak_heap_count_stat(heap, HAK_STAT_l25_free, 1);
  uint32_t most = most_slabs();
  if (most > heap->kept_most) most = heap->kept_most;
  uint32_t cap = (uint32_t)hak_option(L25_RING_CAP);
  if (n > most || cap == 0) {
    heap->kept_refused = true;
    hak_pool_release(head, n);
    hak_heap_count_stat(heap, HAK_STAT_slab_empty, 1);
    return;
  }
  hak_parcel_t parcel = {0};
  while (heap->kept_slabs + n > most || heap->kept_count >= cap) {
    heap->kept_refused = true;
    release_oldest(heap, &parcel);
  }
  hak_pool_release_all(&parcel);
  heap->kept[heap->kept_count++] = hak_slab_index(head) << HAK_KEPT_LENGTH_BITS | n;
  heap->kept_slabs += n;
}

void hak_ring_release_runs(hak_heap_t *heap) {
  hak_parcel_t parcel = {0};
  while (heap->kept_count != 0) release_oldest(heap, &parcel);
  hak_pool_release_all(&parcel);
  heap->kept_most = 0;
}

void hak_ring_tend(hak_heap_t *heap) {
  if (heap->kept_count == 0) return;
  uint64_t now = hak_os_clock_ms();
  if (heap->kept_used) heap->kept_used_at = now;
  else if (now - heap->kept_used_at >= IDLE_MS) hak_ring_release_runs(heap);
  heap->kept_used = false;
}
