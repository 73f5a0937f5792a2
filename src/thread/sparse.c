#include "thread/sparse.h"

#include "core/options.h"
#include "os/os.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/ring.h"

// A tiny slab with so many live blocks has at least half of its pages free, with the
// second number most of them. An L2 run: half of its blocks.
#define SPARSE_BLOCKS 8
#define SPARSER_BLOCKS 2

#define REGRETS 4
#define REGRET_MS 250
#define CALM_MS 1000

static bool on(void) { return !HAK_SECURE && hak_option(PURGE) >= 2; }

uint64_t hak_sparse_mark(const hak_slab_t *slab) {
  uint64_t live = hak_slab_live(slab);
  if (!on() || live <= SPARSER_BLOCKS) return 1;
  return (live <= SPARSE_BLOCKS ? SPARSER_BLOCKS : SPARSE_BLOCKS) + 1;
}

static void trim(hak_heap_t *heap, hak_slab_t *slab) {
  if (hak_slab_kind(slab) == HAK_KIND_L2) hak_ring_forget(slab->ring, slab);
  uint32_t pages = hak_slab_trim(slab);
  hak_heap_count_stat(heap, HAK_STAT_page_trim, pages);
}

static bool pays(hak_heap_t *heap) {
  uint64_t now = hak_os_clock_ms();
  if (heap->trim_regrets >= REGRETS) {
    if (now - heap->trim_regretted_at < CALM_MS) return false;
    heap->trim_regrets = 0;
  }
  heap->trimmed_at = now;
  return true;
}

// Looks at a slab that has waited. It may be anybody's by now.
static void look_at(hak_heap_t *heap, uint32_t index) {
  hak_slab_t *slab = hak_slab_at(index);
  hak_kind_t kind = hak_slab_kind(slab);
  if ((kind != HAK_KIND_TINY && kind != HAK_KIND_L2) || hak_slab_owner(slab) != heap) return;
  slab->waits = false;
  if (slab->place != HAK_PLACE_PARTIAL || !pays(heap)) return;
  if (kind == HAK_KIND_L2 || hak_slab_live(slab) <= SPARSE_BLOCKS) trim(heap, slab);
}

void hak_sparse_add(hak_heap_t *heap, hak_slab_t *slab) {
  if (!on() || slab->waits) return;
  uint32_t *place = &heap->sparse[heap->sparse_next++ % HAK_SPARSE];
  if (*place) look_at(heap, *place);
  *place = hak_slab_index(slab);
  slab->waits = true;
}

void hak_sparse_look(hak_heap_t *heap, hak_slab_t *run) {
  if (run->place == HAK_PLACE_PARTIAL && 2 * hak_slab_live(run) <= run->capacity)
    hak_sparse_add(heap, run);
}

void hak_sparse_needed(hak_heap_t *heap) {
  uint64_t now = hak_os_clock_ms();
  if (now - heap->trimmed_at > REGRET_MS) return;
  heap->trim_regretted_at = now;
  heap->trim_regrets++;
}

void hak_sparse_flush(hak_heap_t *heap) {
  for (unsigned i = 0; i < HAK_SPARSE; i++) {
    uint32_t *place = &heap->sparse[heap->sparse_next++ % HAK_SPARSE];
    if (*place) look_at(heap, *place);
    *place = 0;
  }
}

void hak_sparse_tend(hak_heap_t *heap) {
  uint64_t now = hak_os_clock_ms();
  if (now - heap->tended_at < CALM_MS) return;
  heap->tended_at = now;
  hak_sparse_flush(heap);
}

void hak_sparse_trim_all(hak_heap_t *heap) {
  if (!on()) return;
  for (unsigned c = 0; c < HAK_CLASSES; c++)
    for (uint32_t i = heap->partial[c]; i != 0; i = hak_slab_at(i)->next)
      trim(heap, hak_slab_at(i));
}
