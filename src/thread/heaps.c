// heaps.c: all heaps there are, by number (protocol N2). A heap is made once and stays.

#include "base/bits.h"
#include "os/os.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"
#include "thread/heap.h"
#include "thread/ring.h"
#include "thread/warm.h"

static hak_heap_t first_heap; // number 1: the main thread's, so that start-up maps none

// Segment k holds 8 << k of the others.
#define SEGMENT_SHIFT 3
#define SEGMENTS 24
static _Atomic(hak_heap_t *) segments[SEGMENTS];
static _Atomic uint32_t heap_count; // numbers handed out

static hak_heap_t *in_segment(uint32_t id, bool make) {
  uint32_t n = ((id - 2) >> SEGMENT_SHIFT) + 1;
  unsigned k = hak_high_bit(n);
  uint32_t first = ((1u << k) - 1) << SEGMENT_SHIFT;
  if (k >= SEGMENTS) return NULL;
  // Acquire: pairs with the release of the installing cas; the memory is zero.
  hak_heap_t *segment = hak_load_acquire(&segments[k]);
  if (!segment && make) {
    size_t size = hak_align_up(sizeof(hak_heap_t) << (SEGMENT_SHIFT + k), hak_os_page_size);
    hak_heap_t *fresh = hak_os_map(size, hak_os_page_size);
    if (!fresh) hak_superslab_fit(hak_os_address_limit()); // perhaps others have set it
    if (!fresh && !(fresh = hak_os_map(size, hak_os_page_size))) return NULL;
    if (hak_cas_acq_rel(&segments[k], &segment, fresh)) {
      segment = fresh;
      hak_mapped_add(&hak_mapped.metadata_bytes, (int64_t)size);
    } else {
      hak_os_unmap(fresh, size);
    }
  }
  return segment ? &segment[id - 2 - first] : NULL;
}

hak_heap_t *hak_heap_by_id(uint32_t id) {
  if (id == 0 || id > hak_load_acquire(&heap_count)) return NULL;
  return id == 1 ? &first_heap : in_segment(id, false);
}

uint32_t hak_heap_count(void) { return hak_load_acquire(&heap_count); }

hak_heap_t *hak_heap_new(void) {
  uint32_t id = hak_load_acquire(&heap_count) + 1;
  for (;;) {
    hak_heap_t *heap = id == 1 ? &first_heap : in_segment(id, true);
    if (!heap) return NULL;
    uint32_t before = id - 1;
    // Release: readers of the count find the segment. Until the heap is attached
    // its state is NEW, and nobody else looks at it.
    if (hak_cas_acq_rel(&heap_count, &before, id)) {
      for (unsigned i = 0; i < HAK_TINY_STEPS; i++) heap->tiny[i] = &hak_slab_none;
      for (unsigned i = 0; i < HAK_L2_CLASSES; i++) {
        heap->l2[i] = &hak_slab_none;
        heap->ring[i].size = (uint32_t)hak_class_size(HAK_TINY_CLASSES + i);
        heap->ring[i].wanted = HAK_L2_RING_MIN;
        hak_store_relaxed(&heap->ring[i].hits_left, HAK_RING_HITS);
      }
      heap->letter = heap->letters;
      hak_warm_init(heap);
      heap->reclaim_met = hak_load_relaxed(&hak_heap_requests); // none is for it
      heap->id = id;
      return heap;
    }
    id = before + 1;
  }
}
