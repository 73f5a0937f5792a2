// heaps.h: what unit tests ask of all heaps together.

#ifndef TEST_UNIT_HEAPS_H
#define TEST_UNIT_HEAPS_H

#include "hakmem/hakmem.h"
#include "thread/heap.h"
#include "unit.h"

// Sum of a counter over all heaps.
static inline uint64_t heaps_stat(hak_stat_t which) {
  uint64_t n = 0;
  for (uint32_t id = 1; id <= hak_heap_count(); id++)
    n += hak_load_relaxed(&hak_heap_by_id(id)->stats[which]);
  return n;
}

static inline uint64_t heaps_live_blocks(void) {
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  return s.live_blocks;
}

// After this call the blocks that the secure library holds back are free.
static inline void heaps_let_go(void) {
  if (HAK_SECURE) hak_trim(0);
}

#endif
