#include "api/stats.h"

#include "api/api.h"
#include "core/options.h"
#include "core/pagemap.h"
#include "core/print.h"
#include "os/os.h"
#include "pool/huge.h"
#include "superslab/shared_pool.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"
#include "thread/first.h"
#include "thread/guard.h"
#include "thread/heap.h"
#include "thread/letter.h"
#include "thread/process.h"
#include "thread/remote.h"

HAK_API_PART(stats);

static const struct {
  const char *name, *help;
} rows[HAK_STATS] = {
#define HAK_STAT(name, text) {#name, text},
#include "base/stats.def"
};

// Counters that no heap has.
static void add_process(hak_report_t *r) {
  for (unsigned i = 0; i < HAK_STATS; i++) r->stats[i] += hak_load_relaxed(&hak_counters[i]);
  r->stats[HAK_STAT_huge_fill] = hak_huge_advised();
}

static void add_heap(hak_report_t *r, hak_heap_t *heap) {
  // Acquire: pairs with the store of the state that follows NEW: the heap's rings are set up.
  if (hak_load_acquire(&heap->state) == HAK_HEAP_NEW) return;
  for (unsigned i = 0; i < HAK_STATS; i++) r->stats[i] += hak_load_relaxed(&heap->stats[i]);
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    r->classes[c].allocs += hak_load_relaxed(&heap->classes[c].allocs);
    r->classes[c].refills += hak_load_relaxed(&heap->classes[c].refills);
    r->classes[c].blocks += hak_load_relaxed(&heap->classes[c].blocks);
    r->classes[c].hits += hak_load_relaxed(&heap->warm[c].hits);
    r->classes[c].misses += hak_load_relaxed(&heap->warm[c].misses);
    r->classes[c].prefilled += hak_load_relaxed(&heap->warm[c].prefilled);
  }
  for (unsigned i = 0; i < HAK_L2_CLASSES; i++)
    r->classes[HAK_TINY_CLASSES + i].allocs +=
        HAK_RING_HITS - hak_load_relaxed(&heap->ring[i].hits_left);
}

static void add_slab(hak_report_t *r, hak_slab_t *slab) {
  unsigned c = hak_slab_class(slab);
  switch (hak_slab_kind(slab)) {
  case HAK_KIND_TINY: {
    // Allocations that an ACTIVE slab has counted and its heap does not include yet.
    uint64_t allocs = hak_load_relaxed(&slab->allocs);
    if (hak_slab_place(slab) == HAK_PLACE_ACTIVE) r->classes[c].allocs += allocs;
  } // fall through
  case HAK_KIND_L2:
    r->classes[c].live += hak_slab_live_now(slab);
    r->classes[c].slabs++;
    break;
  case HAK_KIND_L25: {
    // If the slab has just become an L2 run, this word is a pointer to a heap.
    uint64_t bytes = hak_load_relaxed(&slab->bytes);
    r->l25_live++;
    r->l25_bytes += bytes <= HAK_L25_MAX ? bytes : 0;
    break;
  }
  default: break;
  }
}

static void add_totals(hak_report_t *r) {
  hak_stats_t *t = &r->total;
  t->superslab_bytes = hak_load_relaxed(&hak_mapped.superslab_bytes);
  t->huge_bytes = hak_load_relaxed(&hak_mapped.huge_bytes);
  uint64_t first = hak_load_relaxed(&hak_first_counts.bytes);
  t->metadata_bytes = hak_load_relaxed(&hak_mapped.metadata_bytes) + hak_pagemap_bytes();
  t->huge_cached_bytes = hak_load_relaxed(&hak_mapped.cached_bytes);
  t->mapped_bytes = t->superslab_bytes + t->huge_bytes + t->huge_cached_bytes + t->metadata_bytes;
  t->peak_bytes = hak_load_relaxed(&hak_mapped.peak) + hak_pagemap_bytes();
  // Read at different times: memory that changed its kind meanwhile may be counted twice.
  if (t->peak_bytes < t->mapped_bytes) t->peak_bytes = t->mapped_bytes;
  t->heaps = hak_heap_count();
  r->huge_live = hak_huge_count();
  t->l25_allocs = r->stats[HAK_STAT_l25_alloc];
  t->huge_allocs = r->stats[HAK_STAT_huge_alloc];
  t->guard_allocs = r->stats[HAK_STAT_guard_alloc] = hak_load_relaxed(&hak_guard_counts.allocs);
  uint64_t guarded = hak_load_relaxed(&hak_guard_counts.live);
  t->first_allocs = r->stats[HAK_STAT_first_alloc];
  r->apart_bytes = guarded * hak_os_page_size + first;
  t->live_blocks = r->l25_live + r->huge_live + guarded + hak_load_relaxed(&hak_first_counts.live);
  t->live_bytes = r->l25_bytes + t->huge_bytes + hak_load_relaxed(&hak_guard_counts.bytes) + first;
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    // Words of a running thread are read one after the other: live, read later, may exceed allocs,
    // and the sum of allocs may be below zero.
    if ((int64_t)r->classes[c].allocs < (int64_t)r->classes[c].live)
      r->classes[c].allocs = r->classes[c].live;
    *(c < HAK_TINY_CLASSES ? &t->tiny_allocs : &t->l2_allocs) += r->classes[c].allocs;
    t->live_blocks += r->classes[c].live;
    t->live_bytes += r->classes[c].live * hak_class_size(c);
  }
  t->allocs = t->tiny_allocs + t->l2_allocs + t->l25_allocs + t->huge_allocs + t->guard_allocs +
              t->first_allocs;
  t->frees = t->allocs > t->live_blocks ? t->allocs - t->live_blocks : 0;
  t->size = sizeof *t;
}

void hak_stats_collect(hak_report_t *r) {
  *r = (hak_report_t){0};
  hak_process_init();
  // Freed blocks that are held back or under way are not live.
  hak_heap_t *mine = hak_tls_heap != &hak_heap_none ? hak_tls_heap : NULL;
  if (mine) hak_remote_flush(mine);
  for (uint32_t id = 1; id <= hak_heap_count(); id++) hak_letter_recall(hak_heap_by_id(id), mine);
  for (uint32_t id = 1; id <= hak_heap_count(); id++) add_heap(r, hak_heap_by_id(id));
  uint32_t end = hak_superslab_count() << HAK_SLABS_SHIFT;
  for (uint32_t i = HAK_SLABS_PER_SUPERSLAB; i < end; i++) add_slab(r, hak_slab_at(i));
  add_process(r);
  add_totals(r);
}

uint64_t hak_stats_given_back(void) {
  hak_report_t r = {0};
  for (uint32_t id = 1; id <= hak_heap_count(); id++) add_heap(&r, hak_heap_by_id(id));
  add_process(&r);
  return r.stats[HAK_STAT_page_trim] + r.stats[HAK_STAT_slab_purge] +
         r.stats[HAK_STAT_superslab_evict] + r.stats[HAK_STAT_huge_evict];
}

HAK_EXPORT bool hak_stats_get(hak_stats_t *out, size_t size) {
  if (!out || size == 0) return false;
  hak_report_t report;
  hak_stats_collect(&report);
  const char *from = (const char *)&report.total;
  for (size_t i = 0; i < size; i++) ((char *)out)[i] = i < sizeof report.total ? from[i] : 0;
  return true;
}

// clang-format off
#define TOTALS(X)                                                                              \
  X(allocs) X(tiny_allocs) X(l2_allocs) X(l25_allocs) X(huge_allocs) X(guard_allocs)           \
  X(first_allocs) X(frees)                                                                     \
  X(live_blocks) X(live_bytes) X(superslab_bytes) X(huge_bytes) X(huge_cached_bytes)           \
  X(metadata_bytes) X(mapped_bytes) X(peak_bytes) X(heaps)
// clang-format on

static void print_json(hak_print_t *out, const hak_report_t *r) {
  hak_print(out, "{\"version\":%u,\"pid\":%u", (uint64_t)HAKMEM_VERSION, (uint64_t)hak_os_pid());
#define ROW(name) hak_print(out, ",\"" #name "\":%u", r->total.name);
  TOTALS(ROW)
#undef ROW
  hak_print(out, ",\"counters\":{");
  for (unsigned i = 0; i < HAK_STATS; i++)
    hak_print(out, "%s\"%s\":%u", i ? "," : "", rows[i].name, r->stats[i]);
  hak_print(out, "},\"classes\":[");
  const char *comma = "";
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    if (r->classes[c].allocs == 0 && r->classes[c].slabs == 0) continue;
    hak_print(out,
              "%s{\"size\":%u,\"allocs\":%u,\"frees\":%u,\"live\":%u,\"refills\":%u,"
              "\"refill_blocks\":%u,\"slabs\":%u}",
              comma, hak_class_size(c), r->classes[c].allocs,
              r->classes[c].allocs - r->classes[c].live, r->classes[c].live, r->classes[c].refills,
              r->classes[c].blocks, r->classes[c].slabs);
    comma = ",";
  }
  hak_print(out, "]}\n");
}

static void print_text(hak_print_t *out, const hak_report_t *r) {
  hak_print(out, "hakmem %u.%u.%u statistics of process %u\n", (uint64_t)HAKMEM_VERSION_MAJOR,
            (uint64_t)HAKMEM_VERSION_MINOR, (uint64_t)HAKMEM_VERSION_PATCH, (uint64_t)hak_os_pid());
#define ROW(name) hak_print(out, "  %-16s %16u\n", #name, r->total.name);
  TOTALS(ROW)
#undef ROW
  hak_print(out, "counters\n");
  for (unsigned i = 0; i < HAK_STATS; i++)
    if (r->stats[i]) hak_print(out, "  %-16s %16u  %s\n", rows[i].name, r->stats[i], rows[i].help);
  hak_print(out, "classes\n  %8s %14s %12s %12s %10s %8s\n", "size", "allocs", "live", "refills",
            "per refill", "slabs");
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    uint64_t refills = r->classes[c].refills;
    if (r->classes[c].allocs == 0 && r->classes[c].slabs == 0) continue;
    hak_print(out, "  %8u %14u %12u %12u %10u %8u\n", hak_class_size(c), r->classes[c].allocs,
              r->classes[c].live, refills, refills ? r->classes[c].blocks / refills : 0,
              r->classes[c].slabs);
  }
}

// HAKMEM_WARM_POOL_STATS.
static void print_warm_pool(hak_print_t *out, const hak_report_t *r) {
  hak_print(out,
            "hakmem warm pool of process %u: refills that needed another slab\n"
            "  %8s %12s %12s %12s %10s\n",
            (uint64_t)hak_os_pid(), "size", "hits", "misses", "prefilled", "hit rate");
  uint64_t hits = 0, misses = 0, prefilled = 0;
  for (unsigned c = 0; c <= HAK_CLASSES; c++) {
    bool sum = c == HAK_CLASSES;
    uint64_t h = sum ? hits : r->classes[c].hits, m = sum ? misses : r->classes[c].misses;
    uint64_t p = sum ? prefilled : r->classes[c].prefilled;
    if (h + m + p == 0) continue;
    if (sum) hak_print(out, "  %8s", "all");
    else hak_print(out, "  %8u", hak_class_size(c));
    hak_print(out, " %12u %12u %12u %8u %%\n", h, m, p, h + m ? h * 100 / (h + m) : 0);
    hits += h, misses += m, prefilled += p;
  }
}

static void print_ratio(hak_print_t *out, const char *what, uint64_t n, uint64_t of) {
  uint64_t hundredths = of ? n * 100 / of : 0;
  hak_print(out, "  %-34s %8u.%u%u\n", what, hundredths / 100, hundredths / 10 % 10,
            hundredths % 10);
}

// HAKMEM_POOL_MID_INUSE_DEFERRED_STATS.
static void print_deferred(hak_print_t *out, const hak_report_t *r) {
  uint64_t blocks = r->stats[HAK_STAT_free_remote], slabs = r->stats[HAK_STAT_remote_flush];
  uint64_t drains = r->stats[HAK_STAT_remote_drain];
  hak_print(out, "hakmem deferred frees of process %u\n", (uint64_t)hak_os_pid());
  hak_print(out, "  %-34s %11u\n", "blocks handed over", blocks);
  hak_print(out, "  %-34s %11u\n", "hits: slab in map, or by letter",
            blocks > slabs ? blocks - slabs : 0); // one word is incremented before the other
  hak_print(out, "  %-34s %11u\n", "drains of the whole map", drains);
  hak_print(out, "  %-34s %11u\n", "slabs drained", slabs);
  hak_print(out, "  %-34s %11u\n", "empty transitions", r->stats[HAK_STAT_remote_empty]);
  print_ratio(out, "blocks per slab drained", blocks, slabs);
  print_ratio(out, "slabs per drain", slabs, drains);
  hak_print(out, "  %-34s %11s\n", "probes per free (direct-mapped)", "1");
}

static void print_tables(int fd) {
  hak_report_t report;
  hak_stats_collect(&report);
  hak_print_t out = {.fd = fd};
  if (hak_option(WARM_POOL_STATS)) print_warm_pool(&out, &report);
  if (hak_option(POOL_MID_INUSE_DEFERRED_STATS)) print_deferred(&out, &report);
  hak_print_flush(&out);
}

HAK_EXPORT void hak_stats_print(int fd, bool json) {
  hak_report_t report;
  hak_stats_collect(&report);
  hak_print_t out = {.fd = fd};
  if (json) print_json(&out, &report);
  else print_text(&out, &report);
  hak_print_flush(&out);
}

// HAKMEM_STATS_FILE with %p replaced by the process number.
static int open_file(const char *pattern) {
  char path[600];
  size_t n = 0;
  for (; *pattern && n < sizeof path - 24; pattern++) {
    if (pattern[0] == '%' && pattern[1] == 'p') {
      char digits[24];
      const char *d = hak_print_number(digits + sizeof digits, (uint64_t)hak_os_pid(), 10);
      while (*d) path[n++] = *d++;
      pattern++;
    } else {
      path[n++] = *pattern;
    }
  }
  path[n] = 0;
  int fd = *pattern ? -1 : hak_os_open(path, true); // if too long: do not open a truncated path
  if (fd < 0) hak_warning("cannot write HAKMEM_STATS_FILE %s%s", path, *pattern ? "..." : "");
  return fd;
}

static bool tables(void) {
  return hak_option(WARM_POOL_STATS) || hak_option(POOL_MID_INUSE_DEFERRED_STATS);
}

static bool wanted(void) { return hak_option(STATS) != HAK_STATS_OFF || tables(); }

// JSON has a file of its own: the tables would make it invalid.
static bool uses_stderr(void) {
  bool json = hak_option(STATS) == HAK_STATS_JSON;
  return hak_option_text(STATS_FILE) ? json && tables() : wanted();
}

// Programs may close stderr before they end, for example those that check it for errors, and its
// number may then be another file's.
static int kept = -1; // another descriptor for stderr

__attribute__((constructor(101))) static void keep_stderr(void) {
  hak_process_init();
  if (hak_option_text(STATS_FILE) && !wanted())
    hak_warning("HAKMEM_STATS_FILE is not written without HAKMEM_STATS");
  if (uses_stderr() && hak_is_first_stderr(2)) kept = hak_os_duplicate(2);
}

static int stderr_or_kept(void) {
  return hak_is_first_stderr(2) ? 2 : hak_is_first_stderr(kept) ? kept : -1;
}

void hak_stats_at_exit(void) {
  if (!wanted()) return;
  const char *file = hak_option_text(STATS_FILE);
  bool at_stderr = uses_stderr();
  int error = at_stderr ? stderr_or_kept() : -1; // before open_file can get that number
  int fd = file ? open_file(file) : error;
  if (fd >= 0 && hak_option(STATS) != HAK_STATS_OFF)
    hak_stats_print(fd, hak_option(STATS) == HAK_STATS_JSON);
  int to = at_stderr ? error : fd;
  if (to >= 0 && tables()) print_tables(to);
  if (file && fd >= 0) hak_os_close(fd);
}
