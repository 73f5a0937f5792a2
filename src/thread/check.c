// check.c: the invariants of types.h, walked mechanically. Debug builds only.

#include "core/options.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/remote.h"
#include "thread/ring.h"

#if HAK_CHECKS >= 2

static void check_tiny(const hak_slab_t *slab) {
  size_t size = hak_class_size(hak_slab_class(slab));
  const char *start = slab->start;
  uint32_t length = 0;
  for (const char *block = slab->free; block; block = *(char *const *)(const void *)block) {
    // I2: a block is in its slab and the list has no cycle.
    HAK_ASSERT(block >= start && (size_t)(block - start) < slab->carved * size);
    HAK_ASSERT((size_t)(block - start) % size == 0);
    HAK_ASSERT(++length <= slab->capacity);
  }
  // I1
  HAK_ASSERT(hak_slab_live(slab) + length == slab->carved);
}

static void check_l2(hak_slab_t *slab) {
  uint64_t mask = hak_load_relaxed(&slab->mask);
  HAK_ASSERT(mask >> slab->capacity == 0);
  // I5: no block is both free and on its way back.
  HAK_ASSERT((mask & hak_load_relaxed(&slab->remote)) == 0);
  for (unsigned i = 1; i < slab->run; i++) {
    HAK_ASSERT(hak_slab_kind(&slab[i]) == HAK_KIND_INTERIOR && slab[i].offset == i);
  }
}

static void check_slab(hak_heap_t *heap, hak_slab_t *slab, unsigned c, hak_place_t place) {
  HAK_ASSERT(hak_slab_owner(slab) == heap);
  HAK_ASSERT(hak_slab_class(slab) == c);
  HAK_ASSERT(slab->place == place); // I4
  HAK_ASSERT(hak_slab_live(slab) <= slab->capacity);
  if (hak_slab_kind(slab) == HAK_KIND_TINY) check_tiny(slab);
  else check_l2(slab);
}

// What thread/ring.h promises of every hint.
static void check_ring(hak_heap_t *heap, unsigned c) {
  const hak_ring_t *ring = &heap->ring[c - HAK_TINY_CLASSES];
  HAK_ASSERT(ring->count <= ring->capacity && ring->capacity <= hak_option(L2_RING_CAP));
  for (uint32_t i = 0; i < ring->count; i++) {
    hak_slab_t *slab = hak_hint_slab(ring->hint[i]);
    uint32_t number = hak_hint_number(ring->hint[i]);
    HAK_ASSERT(hak_slab_class(slab) == c && hak_slab_kind(slab) == HAK_KIND_L2);
    HAK_ASSERT(hak_slab_owner(slab) == heap && slab->place != HAK_PLACE_SPARE);
    HAK_ASSERT(hak_load_relaxed(&slab->mask) >> number & 1);
  }
}

void hak_heap_check(hak_heap_t *heap) {
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    hak_slab_t *front = hak_heap_front(heap, c);
    if (front != &hak_slab_none) check_slab(heap, front, c, HAK_PLACE_ACTIVE);
    uint32_t before = 0;
    for (uint32_t i = heap->partial[c]; i != 0; i = hak_slab_at(i)->next) {
      HAK_ASSERT(hak_slab_at(i)->prev == before);
      check_slab(heap, hak_slab_at(i), c, HAK_PLACE_PARTIAL);
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
  }
}

#endif
