#include "thread/sparse.h"

#include "base/bits.h"
#include "core/options.h"
#include "os/os.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/ring.h"

#define SPARSE_BLOCKS 8 // live in a tiny slab: at least half of its pages are free then

// Slabs with absent pages that went to the front within REGRET_MS of an early trim: so
// many, and there are none for CALM_MS, twice as long each time up to CALM_MAX_MS.
#define REGRETS 4
#define REGRET_MS 1000
#define CALM_MS 4000
#define CALM_MAX_MS 64000

// A sweep over all classes every SWEEP_MS, in parts that are PART_MS apart. A part looks
// at PART_LOOKS slabs and trims PART_TRIMS of them at most.
#define SWEEP_MS 1000
#define PART_MS 50
#define PART_LOOKS 2048
#define PART_TRIMS 16

static bool on(void) { return !HAK_SECURE && hak_option(PURGE) >= 2; }

static void trim(hak_heap_t *heap, hak_slab_t *slab, uint64_t which) {
  hak_heap_count_stat(heap, HAK_STAT_page_trim, hak_slab_trim(slab, which));
}

static void trim_now(hak_heap_t *heap, hak_slab_t *slab) {
  if (hak_slab_kind(slab) == HAK_KIND_L2) hak_ring_forget(slab->ring, slab);
  trim(heap, slab, ~UINT64_C(0));
}

// ---------------------------------------------------------------------------
// Early trims.

static bool pays(hak_heap_t *heap) {
  uint64_t now = hak_os_clock_ms();
  if (heap->trim_regrets >= REGRETS) {
    if (now - heap->trim_regretted_at < heap->trim_calm) return false;
    heap->trim_regrets = 0;
  }
  heap->trimmed_at = now;
  return true;
}

// Looks at a run that has waited. It may be anything and anybody's by now.
static void look_at(hak_heap_t *heap, uint32_t index) {
  hak_slab_t *slab = hak_slab_at(index);
  if (hak_slab_kind(slab) != HAK_KIND_L2 || hak_slab_owner(slab) != heap) return;
  slab->waits = false;
  if (heap == hak_tls_heap && slab->place == HAK_PLACE_PARTIAL && pays(heap)) trim_now(heap, slab);
}

void hak_sparse_add(hak_heap_t *heap, hak_slab_t *run) {
  // Not at a thread's end: the next thread with the heap begins where this one stopped.
  if (!on() || run->waits || run->place != HAK_PLACE_PARTIAL || heap != hak_tls_heap) return;
  if (2 * hak_slab_live(run) > run->capacity) return;
  uint32_t *place = &heap->sparse[heap->sparse_next++ % HAK_SPARSE];
  if (*place) look_at(heap, *place);
  *place = hak_slab_index(run);
  run->waits = true;
}

void hak_sparse_flush(hak_heap_t *heap) {
  for (unsigned i = 0; i < HAK_SPARSE; i++) {
    if (heap->sparse[i]) look_at(heap, heap->sparse[i]);
    heap->sparse[i] = 0;
  }
}

void hak_sparse_needed(hak_heap_t *heap) {
  uint64_t now = hak_os_clock_ms();
  if (now - heap->trimmed_at > REGRET_MS) return;
  if (++heap->trim_regrets == REGRETS) {
    bool again = now - heap->trim_regretted_at < CALM_MAX_MS;
    heap->trim_calm = again && heap->trim_calm ? 2 * heap->trim_calm : CALM_MS;
    if (heap->trim_calm > CALM_MAX_MS) heap->trim_calm = CALM_MAX_MS;
  }
  heap->trim_regretted_at = now;
}

// ---------------------------------------------------------------------------
// Sweeps.

// What was free at the last look already, and is not what the ring hands out next.
static uint64_t idle_blocks(hak_slab_t *run) {
  uint64_t mask = hak_load_relaxed(&run->mask), idle = mask & run->seen;
  run->seen = mask;
  return idle & ~run->absent;
}

static bool idle_tiny(hak_slab_t *slab) {
  if (slab->absent || hak_slab_live(slab) > SPARSE_BLOCKS) return false;
  bool waited = slab->waits;
  slab->waits = true;
  return waited;
}

static bool tend_slab(hak_heap_t *heap, hak_slab_t *slab) {
  bool tiny = hak_slab_kind(slab) == HAK_KIND_TINY;
  uint64_t idle = tiny ? idle_tiny(slab) : idle_blocks(slab);
  if (idle) trim(heap, slab, idle);
  return idle != 0;
}

static void unsee_hints(hak_ring_t *ring) {
  for (uint32_t i = 0; i < ring->count; i++)
    hak_hint_slab(ring->hint[i])->seen &= ~((uint64_t)1 << hak_hint_number(ring->hint[i]));
}

void hak_sparse_tend(hak_heap_t *heap) {
  if (!on()) return;
  uint64_t now = hak_os_clock_ms();
  if (now - heap->tended_at < (heap->tend_class ? PART_MS : SWEEP_MS)) return;
  heap->tended_at = now;
  unsigned looks = 0, trims = 0, c = heap->tend_class;
  for (; c < HAK_CLASSES && looks < PART_LOOKS && trims < PART_TRIMS; c++) {
    if (c >= HAK_TINY_CLASSES) {
      hak_slab_t *front = hak_heap_front(heap, c);
      unsee_hints(&heap->ring[c - HAK_TINY_CLASSES]);
      if (front != &hak_slab_none) trims += tend_slab(heap, front);
    }
    for (uint32_t i = heap->partial[c]; i != 0 && looks < PART_LOOKS && trims < PART_TRIMS;
         looks++) {
      trims += tend_slab(heap, hak_slab_at(i));
      i = hak_slab_at(i)->next;
    }
  }
  heap->tend_class = (uint8_t)(c < HAK_CLASSES ? c : 0);
}

void hak_sparse_trim_all(hak_heap_t *heap) {
  if (!on()) return;
  for (unsigned c = 0; c < HAK_CLASSES; c++)
    for (uint32_t i = heap->partial[c]; i != 0; i = hak_slab_at(i)->next)
      trim_now(heap, hak_slab_at(i));
}
