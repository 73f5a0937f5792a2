#include "thread/growth.h"

#include "core/options.h"
#include "os/os.h"
#include "pool/fill.h"
#include "superslab/superslab.h"
#include "thread/heap.h"
#include "thread/warm.h"

#define GROWING 16       // fresh slabs in a row
#define PROVEN UINT8_MAX // growth: in addition, a run of the class was used in full
#define PAGE_BLOCK 4096  // a larger block may have pages that are never used

void hak_growth_fresh(hak_heap_t *heap, hak_slab_t *slab, unsigned c) {
  uint64_t after = hak_option(PREFAULT);
  if (heap->warm[c].growth < PROVEN - 1) heap->warm[c].growth++;
  if (after == 0 || heap->warm[c].growth <= after) return;
  hak_os_populate(hak_slab_start(slab), slab->run * HAK_SLAB_SIZE);
  hak_heap_count_stat(heap, HAK_STAT_prefault, 1);
}

// Whether heaps have, on average, much more memory than this one may have begun and left: a slab
// per class, and two runs of each L2 class that it uses.
static bool well_filled(const hak_heap_t *heap) {
  uint64_t mapped = hak_load_relaxed(&hak_mapped.superslab_bytes) >> HAK_SLAB_SHIFT;
  uint64_t slabs = HAK_CLASSES, have = mapped / hak_heap_count();
  for (unsigned c = HAK_TINY_CLASSES; c < HAK_CLASSES && slabs <= have; c++)
    if (hak_warm_slabs(heap, c)) slabs += 2u * hak_classes[c].run;
  return slabs <= have;
}

// Looks at the run that was used up last. It may have any owner by now, so nothing is read that its
// owner writes. In a SuperSlab that is or was a huge page there is nothing to see.
static bool proves(hak_heap_t *heap, unsigned c) {
  const char *p = heap->used_up;
  if (!p || !hak_fill_allowed(HAK_SUPERSLAB_SIZE)) return false;
  const hak_slab_t *slab = hak_slab_lookup(p);
  if (!slab) return false;
  uint32_t number = hak_superslab_number(slab);
  // Relaxed: if another SuperSlab was mapped there meanwhile, its pages tell as much or nothing.
  if (hak_load_relaxed(&hak_registry.superslabs[number].huge) != HAK_HUGE_NO) return false;
  if (!hak_os_filled(p, hak_classes[c].capacity * hak_class_size(c))) return false;
  heap->warm[c].growth = PROVEN;
  return true;
}

bool hak_growth_fills(hak_heap_t *heap, unsigned c) {
  if (heap->warm[c].growth < GROWING && !well_filled(heap)) return false;
  return hak_class_size(c) <= PAGE_BLOCK || heap->warm[c].growth == PROVEN || proves(heap, c);
}
