// glibc.c: glibc's interface to the heap as a whole, with true answers about this
// heap: mallinfo, mallinfo2, malloc_trim, malloc_stats, malloc_info, mallopt.

#include "api/api.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/stats.h"
#include "core/options.h"
#include "hakmem/hakmem.h"
#include "pool/huge.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"
#include "thread/first.h"
#include "thread/guard.h"
#include "thread/heap.h"
#include "thread/process.h"

HAK_API_PART(glibc);

HAK_EXPORT bool hak_trim(size_t keep) {
  hak_heap_t *heap = hak_heap_enter();
  const size_t most = (size_t)HAK_SUPERSLABS_MAX << HAK_SUPERSLAB_SHIFT;
  uint64_t before = hak_stats_given_back();
  hak_heap_reclaim_all(heap, hak_min(keep, most));
  if (heap) hak_heap_leave(heap);
  return hak_stats_given_back() != before;
}

#if !HAK_NO_OVERRIDE
// Declared here because glibc before 2.33 has no mallinfo2.
typedef struct {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
} info_t;

// The old interface has int fields: a value that does not fit becomes INT_MAX, not a
// wrapped number.
typedef struct {
  int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
} old_info_t;

// The part in use was counted before the whole, and other threads change both meanwhile.
static size_t rest(size_t all, size_t used) { return all > used ? all - used : 0; }

static size_t idle(const hak_report_t *r, unsigned c) {
  return rest(r->classes[c].slabs * hak_classes[c].capacity, r->classes[c].live);
}

static info_t info(const hak_report_t *r) {
  size_t used = r->total.live_bytes - r->total.huge_bytes, idle_blocks = 0;
  for (unsigned c = 0; c < HAK_CLASSES; c++) idle_blocks += idle(r, c);
  // Memory for blocks, in use or not.
  size_t kept = r->total.superslab_bytes + r->total.huge_cached_bytes + r->apart_bytes;
  return (info_t){
      .arena = kept,
      .ordblks = idle_blocks,
      .hblks = r->huge_live,
      .hblkhd = r->total.huge_bytes,
      .uordblks = used,
      .fordblks = rest(kept, used),
  };
}

HAK_EXPORT info_t mallinfo2(void) {
  hak_report_t r;
  hak_stats_collect(&r);
  return info(&r);
}

static int fit(size_t x) { return x > __INT_MAX__ ? __INT_MAX__ : (int)x; }

HAK_EXPORT old_info_t mallinfo(void) {
  info_t i = mallinfo2();
  return (old_info_t){.arena = fit(i.arena),
                      .ordblks = fit(i.ordblks),
                      .hblks = fit(i.hblks),
                      .hblkhd = fit(i.hblkhd),
                      .uordblks = fit(i.uordblks),
                      .fordblks = fit(i.fordblks)};
}
HAK_ALIAS(mallinfo) old_info_t __libc_mallinfo(void);

HAK_EXPORT int malloc_trim(size_t pad) { return hak_trim(pad); }

HAK_EXPORT void malloc_stats(void) { hak_stats_print(2, false); }

HAK_EXPORT int malloc_info(int options, FILE *stream) {
  if (options != 0) {
    errno = EINVAL;
    return -1;
  }
  hak_report_t r;
  hak_stats_collect(&r);
  info_t all = info(&r);
  fprintf(stream, "<malloc version=\"1\" allocator=\"hakmem\">\n<heap nr=\"0\">\n<sizes>\n");
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    if (!r.classes[c].slabs) continue;
    size_t size = hak_class_size(c), count = idle(&r, c);
    fprintf(stream, "  <size from=\"%zu\" to=\"%zu\" total=\"%zu\" count=\"%zu\"/>\n", size, size,
            count * size, count);
  }
  fprintf(
      stream,
      "</sizes>\n<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n"
      "<system type=\"current\" size=\"%zu\"/>\n"
      "<aspace type=\"total\" size=\"%zu\"/>\n</heap>\n"
      "<total type=\"live\" count=\"%zu\" size=\"%zu\"/>\n"
      "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n"
      "<system type=\"current\" size=\"%zu\"/>\n<system type=\"max\" size=\"%zu\"/>\n</malloc>\n",
      all.ordblks, all.fordblks, r.total.superslab_bytes, r.total.superslab_bytes,
      r.total.live_blocks, r.total.live_bytes, r.huge_live, r.total.huge_bytes,
      r.total.mapped_bytes, r.total.peak_bytes);
  return 0;
}

enum { // glibc's numbers, malloc.h
  M_MMAP_THRESHOLD = -3,
  M_CHECK_ACTION = -5,
  M_ARENA_TEST = -7,
};

// 1: understood and in effect; 0: this heap has no such parameter.
HAK_EXPORT int mallopt(int parameter, int value) {
  hak_process_init(); // reads the options
  switch (parameter) {
  // Always so here: a bad free is reported (3) and aborts unless HAKMEM_ABORT=0.
  case M_CHECK_ACTION: return (value & 3) == (hak_option(ABORT) ? 3 : 1);
  // glibc, from this many arenas on, computes a limit of their number; here heaps have no limit.
  case M_ARENA_TEST: return 1;
  // Blocks above 1 MiB are mappings of their own, whatever the program requests;
  // only a request for exactly this is accepted.
  case M_MMAP_THRESHOLD: return value == (int)HAK_L25_MAX;
  default: return 0;
  }
}
HAK_ALIAS(mallopt) int __libc_mallopt(int parameter, int value);

#endif

HAK_EXPORT int hak_version(void) { return HAKMEM_VERSION; }

HAK_EXPORT bool hak_owns(const void *p) {
  hak_slab_t *slab = hak_slab_lookup(p);
  if (slab) return hak_slab_kind(slab) != HAK_KIND_FREE;
  if (hak_first_owns(p)) return hak_first_is_live(p);
  return hak_guard_owns(p) ? hak_guard_is_live(p) : hak_huge_around(p) != NULL;
}
