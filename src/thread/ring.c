#include "thread/ring.h"

#include "pool/l25.h"

#define RUN_BITS 5 // entry: index of the head << 5 | slabs in the run
#define RUN_MASK ((1u << RUN_BITS) - 1)
_Static_assert(HAK_L25_MAX >> HAK_SLAB_SHIFT <= RUN_MASK, "the length of a run fits an entry");

static void forget(hak_heap_t *heap, unsigned i) {
  heap->run_slabs -= heap->runs[i] & RUN_MASK;
  heap->run_count--;
  for (; i < heap->run_count; i++) heap->runs[i] = heap->runs[i + 1];
}

static void release_oldest(hak_heap_t *heap) {
  hak_slab_t *head = hak_slab_at(heap->runs[0] >> RUN_BITS);
  forget(heap, 0);
  hak_l25_release(head);
  hak_heap_count_stat(heap, HAK_STAT_slab_empty, 1);
}

hak_slab_t *hak_ring_take_run(hak_heap_t *heap, unsigned n) {
  for (unsigned i = heap->run_count; i-- > 0;) {
    if ((heap->runs[i] & RUN_MASK) != n) continue;
    hak_slab_t *head = hak_slab_at(heap->runs[i] >> RUN_BITS);
    forget(heap, i);
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
