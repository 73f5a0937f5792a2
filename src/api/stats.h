// stats.h: figures of the whole process, gathered on request; no sums are kept
// meanwhile. Any thread may call these.

#ifndef HAK_API_STATS_H
#define HAK_API_STATS_H

#include "base/types.h"
#include "hakmem/hakmem.h"

typedef struct {
  hak_stats_t total;
  uint64_t stats[HAK_STATS];
  struct {
    uint64_t allocs, refills, blocks, live, slabs, hits, misses, prefilled;
  } classes[HAK_CLASSES];
  uint64_t l25_live, l25_bytes, huge_live;
  uint64_t apart_bytes; // part of metadata_bytes: pages of live guarded blocks, live first blocks
} hak_report_t;

void hak_stats_collect(hak_report_t *report);
// Grows whenever memory goes back to the system other than by a free at that moment.
uint64_t hak_stats_given_back(void);
// Writes what HAKMEM_STATS requests to where HAKMEM_STATS_FILE says.
void hak_stats_at_exit(void);

#endif
