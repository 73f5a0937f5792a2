// heap_check.c: the invariants of types.h, walked mechanically: part of the library in debug builds
// and in those for tests.

#include "core/options.h"
#include "os/os.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/ring.h"

#if HAK_CHECKS >= 2

// Blocks that start in absent pages.
static uint64_t absent_blocks(const hak_slab_t *slab, size_t size) {
  uint64_t count = 0;
  size_t gap = hak_slab_gap(slab);
  for (size_t at = 0; at < slab->carved * size; at += size)
    count += slab->absent >> ((gap + at) / hak_os_page_size) & 1;
  return count;
}

// Length of a list of free blocks of the slab.
static uint32_t check_list(const hak_slab_t *slab, const char *block) {
  size_t size = slab->size;
  const char *start = slab->start;
  uint32_t length = 0;
  for (; block; block = *(char *const *)(const void *)block) {
    // I2: a block is in its slab and the list has no cycle.
    HAK_ASSERT(block >= start && (size_t)(block - start) < slab->carved * size);
    HAK_ASSERT((size_t)(block - start) % size == 0);
    HAK_ASSERT(++length <= slab->capacity);
  }
  return length;
}

static void check_tiny(const hak_slab_t *slab) {
  uint32_t length = check_list(slab, slab->free);
  for (uint64_t chain = slab->chains; chain != 0;) {
    char *const *head = (char *const *)(uintptr_t)(chain & HAK_REMOTE_POINTER_MASK);
    uint32_t count = check_list(slab, (const char *)head);
    HAK_ASSERT(count == chain >> HAK_REMOTE_COUNT_SHIFT);
    HAK_ASSERT((length += count) <= slab->capacity);
    chain = (uint64_t)(uintptr_t)head[1];
  }
  // I1
  HAK_ASSERT(hak_slab_live(slab) + length + absent_blocks(slab, slab->size) == slab->carved);
}

static void check_l2(hak_slab_t *slab) {
  uint64_t mask = hak_load_relaxed(&slab->mask);
  HAK_ASSERT(mask >> slab->capacity == 0);
  HAK_ASSERT(slab->first == slab->start);
  // I5: no block is both free and on its way back.
  HAK_ASSERT((mask & hak_load_relaxed(&slab->remote)) == 0);
  for (unsigned i = 1; i < slab->run; i++) {
    HAK_ASSERT(hak_slab_kind(&slab[i]) == HAK_KIND_INTERIOR && slab[i].offset == i);
  }
}

static void check_slab(hak_heap_t *heap, hak_slab_t *slab, unsigned c, hak_place_t place) {
  HAK_ASSERT(hak_slab_owner(slab) == heap);
  HAK_ASSERT(hak_slab_class(slab) == c);
  HAK_ASSERT(hak_slab_place(slab) == place); // I4
  HAK_ASSERT(hak_slab_live(slab) <= slab->capacity);
  if (hak_slab_kind(slab) == HAK_KIND_TINY) check_tiny(slab);
  else check_l2(slab);
}

// Checks what thread/ring.h promises of every hint.
static void check_ring(hak_heap_t *heap, unsigned c) {
  const hak_ring_t *ring = &heap->ring[c - HAK_TINY_CLASSES];
  HAK_ASSERT(ring->count <= ring->capacity && ring->capacity <= hak_option(L2_RING_CAP));
  for (uint32_t i = 0; i < ring->count; i++) {
    hak_slab_t *slab = hak_hint_slab(ring->hint[i]);
    uint32_t number = hak_hint_number(ring->hint[i]);
    HAK_ASSERT(hak_slab_class(slab) == c && hak_slab_kind(slab) == HAK_KIND_L2);
    HAK_ASSERT(hak_slab_owner(slab) == heap && hak_slab_place(slab) != HAK_PLACE_SPARE);
    HAK_ASSERT(hak_load_relaxed(&slab->mask) >> number & ~(slab->absent >> number) & 1);
  }
}

// The runs that the L2.5 ring keeps are neither in use nor in the shared pool.
static void check_kept(const hak_heap_t *heap) {
  uint32_t sum = 0;
  HAK_ASSERT(heap->kept_count <= hak_option(L25_RING_CAP));
  for (uint32_t i = 0; i < heap->kept_count; i++) {
    hak_slab_t *head = hak_kept_head(heap->kept[i]);
    unsigned slabs = hak_kept_length(heap->kept[i]);
    uint32_t number = hak_superslab_number(head);
    HAK_ASSERT(!((uint32_t)hak_load_relaxed(&hak_registry.superslabs[number].free_mask) &
                 hak_slab_bits(head, slabs)));
    for (unsigned k = 0; k < slabs; k++) HAK_ASSERT(hak_slab_kind(head + k) == HAK_KIND_FREE);
    sum += slabs;
  }
  HAK_ASSERT(sum == heap->kept_slabs);
}

// The blocks of a run that are named by hints of a ring.
static uint64_t named(const hak_ring_t *ring, const hak_slab_t *slab) {
  uint64_t blocks = 0;
  for (uint32_t i = 0; i < ring->count; i++)
    if (hak_hint_slab(ring->hint[i]) == slab)
      blocks |= (uint64_t)1 << hak_hint_number(ring->hint[i]);
  return blocks;
}

// Whether a FULL run of the heap has a free block that no hint names: it would never be used. Other
// threads may take the run at any moment and make it something else (protocol R3), so only atomic
// words are read, and each may be from a different moment.
static bool has_lost(const hak_heap_t *heap, hak_slab_t *slab) {
  if (hak_slab_kind(slab) != HAK_KIND_L2 || hak_slab_owner(slab) != heap ||
      hak_slab_place(slab) != HAK_PLACE_FULL)
    return false;
  unsigned c = hak_slab_class(slab);
  return c >= HAK_TINY_CLASSES &&
         (hak_load_relaxed(&slab->mask) & ~named(&heap->ring[c - HAK_TINY_CLASSES], slab)) != 0;
}

// FULL runs are in no list, so all SuperSlabs are searched. A real fault in a run of this heap
// persists; the appearance of one while a run changes its owner does not.
#define LOOKS 1000
static void check_full_runs(const hak_heap_t *heap) {
  uint32_t end = hak_superslab_count() << HAK_SLABS_SHIFT;
  for (uint32_t i = HAK_SLABS_PER_SUPERSLAB; i < end; i++) {
    unsigned looks = 0;
    while (has_lost(heap, hak_slab_at(i))) HAK_ASSERT(++looks < LOOKS);
  }
}

void hak_heap_check(hak_heap_t *heap) {
  check_kept(heap);
  if (!hak_load_relaxed(&heap->common)) check_full_runs(heap);
  uint32_t all_spares = 0;
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    hak_slab_t *front = hak_heap_front(heap, c);
    if (front != &hak_slab_none) check_slab(heap, front, c, HAK_PLACE_ACTIVE);
    uint32_t before = 0;
    for (uint32_t i = heap->partial[c]; i != 0; i = hak_slab_at(i)->next) {
      HAK_ASSERT(before == 0 || hak_slab_at(i)->prev == before);
      check_slab(heap, hak_slab_at(i), c, HAK_PLACE_PARTIAL);
      // An empty slab is released at once or, if it is QUEUED, when it comes out of the inbox.
      HAK_ASSERT(!hak_slab_unused(hak_slab_at(i)) || hak_load_relaxed(&hak_slab_at(i)->remote) ||
                 heap->forked);
      before = i;
    }
    unsigned spares = 0;
    for (uint32_t i = heap->spare[c]; i != 0; i = hak_slab_at(i)->next, spares++) {
      check_slab(heap, hak_slab_at(i), c, HAK_PLACE_SPARE);
      HAK_ASSERT(hak_slab_live(hak_slab_at(i)) == 0);
      HAK_ASSERT(hak_load_relaxed(&hak_slab_at(i)->remote) == 0);
    }
    if (c >= HAK_TINY_CLASSES) check_ring(heap, c);
    HAK_ASSERT(spares == heap->warm[c].spares && spares <= hak_option(WARM_POOL));
    all_spares += spares * hak_classes[c].run;
  }
  HAK_ASSERT(all_spares == heap->spares);
}

#endif
