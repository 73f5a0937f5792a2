#include "thread/guard.h"

#include "base/bits.h"
#include "core/misuse.h"
#include "core/module.h"
#include "core/options.h"
#include "core/print.h"
#include "os/os.h"
#include "superslab/superslab.h"
#include "thread/heap.h"

#define PLACES 256 // 2 MiB of address space and 76 KiB with 4 KiB pages
#define FRAMES 16
#define PATTERN 0xa5 // fills the bytes between a block and the end of its page
#define TRIES 8      // places looked at to find one that is not live

typedef enum { EMPTY, BUSY, LIVE, FREED } state_t;

typedef struct {
  void *frames[FRAMES];
  unsigned count;
} trace_t;

typedef struct {
  // state_t. The thread that sets BUSY, by an acquire, owns the rest until it stores the next
  // state, by a release. An acquire that reads LIVE or FREED sees the fields written before it.
  _Atomic uint32_t state;
  bool committed;
  char *block;
  size_t size;
  trace_t allocated, freed;
} place_t;

_Atomic uintptr_t hak_guard_base;
uintptr_t hak_guard_end;
static place_t *places;
static _Atomic uint64_t turns; // allocations that could have been sampled
static _Atomic uint32_t next;  // place to look at first: the one unused for longest
// For each place: the thread that walks its stack for it, as the address of its hak_tls_heap, or 0.
// Relaxed: a thread looks for its own entry only.
static _Atomic uintptr_t walkers[PLACES];

// The unwinder may allocate, with a lock held that it takes again in a walk (libgcc before 13,
// after __register_frame): such a request is not sampled. Nor are those of signal handlers.
static bool is_walking(void) {
  for (unsigned i = 0; i < PLACES; i++)
    if (hak_load_relaxed(&walkers[i]) == (uintptr_t)&hak_tls_heap) return true;
  return false;
}

static void walk(const place_t *place, trace_t *trace) {
  hak_store_relaxed(&walkers[place - places], (uintptr_t)&hak_tls_heap);
  trace->count = hak_os_stack(trace->frames, FRAMES);
  hak_store_relaxed(&walkers[place - places], (uintptr_t)0);
}

// guard | page 0 | guard | page 1 | ... | guard
static char *page_of(const place_t *place) {
  return (char *)hak_load_relaxed(&hak_guard_base) +
         (size_t)(2 * (place - places) + 1) * hak_os_page_size;
}

// The place with that page or, for an address between pages, the one whose block is nearer.
static place_t *place_at(const void *p) {
  size_t unit = ((uintptr_t)p - hak_load_relaxed(&hak_guard_base)) / hak_os_page_size;
  if (unit & 1) return &places[unit / 2];
  if (unit == 0) return &places[0];
  if (unit == 2 * PLACES) return &places[PLACES - 1];
  place_t *before = &places[unit / 2 - 1], *behind = before + 1;
  bool low = ((uintptr_t)p & (hak_os_page_size - 1)) < hak_os_page_size / 2;
  if (hak_load_relaxed(&before->state) == EMPTY) return behind;
  return low || hak_load_relaxed(&behind->state) == EMPTY ? before : behind;
}

static void print_stack(const char *title, const trace_t *stack, const char *own) {
  hak_print_t out = {.fd = hak_message_fd};
  hak_print(&out, "  %s:\n", title);
  unsigned shown = 0;
  for (unsigned i = 0; i < stack->count; i++) {
    hak_module_t m;
    bool known = hak_module_of(stack->frames[i], &m);
    if (shown == 0 && known && m.name[0] && hak_is(m.name, own, 0)) continue; // the library itself
    hak_print(&out, "    #%u %p", (uint64_t)shown++, stack->frames[i]);
    if (known && m.name[0])
      hak_print(&out, " %s+0x%x", m.name, (uintptr_t)stack->frames[i] - m.from + m.offset);
    hak_print(&out, "\n");
  }
  hak_print_flush(&out);
}

static void print_stacks(const place_t *place, bool accessed) {
  hak_module_t own;
  trace_t here;
  // Linked statically, the library's frames are in the program's module: all frames are shown.
  if (HAK_STATIC || !hak_module_of((const void *)(uintptr_t)&print_stacks, &own)) own.name[0] = 0;
  here.count = hak_os_stack(here.frames, FRAMES);
  print_stack(accessed ? "accessed by" : "called by", &here, own.name);
  print_stack("allocated by", &place->allocated, own.name);
  if (hak_load_relaxed(&place->state) == FREED) print_stack("freed by", &place->freed, own.name);
}

// Called on a fault anywhere in the process.
static void look(const void *address) {
  if (!hak_guard_owns(address)) return;
  const place_t *place = place_at(address);
  // Acquire: pairs with the releases of threads that made or freed the block, which is read below.
  uint32_t state = hak_load_acquire(&place->state);
  if (state != LIVE && state != FREED) return;
  uintptr_t p = (uintptr_t)address, start = (uintptr_t)place->block, end = start + place->size;
  if (p >= start && p < end)
    hak_message("use after free: address %p lies %u bytes inside the %u-byte block at %p", address,
                (uint64_t)(p - start), (uint64_t)place->size, place->block);
  else if (p >= end)
    hak_message("overflow: address %p lies %u bytes behind the %u-byte block at %p", address,
                (uint64_t)(p - end), (uint64_t)place->size, place->block);
  else
    hak_message("underflow: address %p lies %u bytes before the %u-byte block at %p", address,
                (uint64_t)(start - p), (uint64_t)place->size, place->block);
  print_stacks(place, true);
}

void hak_guard_start(void) {
  if (hak_option(GUARD) == 0) return;
  size_t table = hak_align_up(PLACES * sizeof(place_t), hak_os_page_size);
  size_t range = (2 * PLACES + 1) * hak_os_page_size;
  places = hak_os_map(table, hak_os_page_size);
  char *p = hak_os_reserve(range, hak_os_page_size);
  if (!places || !p) {
    if (places) hak_os_unmap(places, table);
    if (p) hak_os_unmap(p, range);
    return;
  }
  hak_mapped_add(&hak_mapped.metadata_bytes, (int64_t)table);
  void *frames[4];
  hak_os_stack(frames, 4); // the first call loads the unwinder
  hak_os_on_fault(look);
  hak_guard_end = (uintptr_t)p + range;
  hak_store_release(&hak_guard_base, (uintptr_t)p);
}

hak_guard_counts_t hak_guard_counts;

// *state: the state that the place had.
static place_t *claim_place(uint32_t *state) {
  for (unsigned i = 0; i < TRIES; i++) {
    place_t *place = &places[hak_fetch_add_relaxed(&next, 1u) % PLACES];
    *state = hak_load_relaxed(&place->state);
    // Acquire: pairs with the release in hak_guard_free: the place is as that function left it.
    if ((*state == EMPTY || *state == FREED) && hak_cas_acquire(&place->state, state, BUSY))
      return place;
  }
  return NULL;
}

static void set_size(place_t *place, size_t size) {
  char *end = page_of(place) + hak_os_page_size;
  place->size = size;
  for (char *p = place->block + size; p < end; p++) *p = (char)PATTERN;
}

void *hak_guard_alloc(size_t size) {
  if (hak_load_acquire(&hak_guard_base) == 0 || size > hak_os_page_size) return NULL;
  if (hak_fetch_add_relaxed(&turns, 1) % hak_option(GUARD) != 0 || is_walking()) return NULL;
  uint32_t state;
  place_t *place = claim_place(&state);
  if (!place) return NULL;
  char *page = page_of(place), *end = page + hak_os_page_size;
  if (!place->committed && !hak_os_commit(page, hak_os_page_size)) {
    hak_store_release(&place->state, state);
    return NULL;
  }
  place->committed = true;
  bool at_start = (place - places) % 4 == 3;
  place->block = at_start ? page : end - hak_align_up(size ? size : 1, HAK_MIN_BLOCK);
  set_size(place, size);
  walk(place, &place->allocated);
  hak_store_release(&place->state, LIVE);
  hak_mapped_add(&hak_mapped.metadata_bytes, (int64_t)hak_os_page_size);
  hak_fetch_add_relaxed(&hak_guard_counts.allocs, 1);
  hak_fetch_add_relaxed(&hak_guard_counts.live, 1);
  hak_fetch_add_relaxed(&hak_guard_counts.bytes, size);
  return place->block;
}

void hak_guard_cut(void *p, size_t size) {
  place_t *place = place_at(p);
  hak_fetch_sub_relaxed(&hak_guard_counts.bytes, place->size - size);
  set_size(place, size);
}

static bool written_behind(const place_t *place) {
  const char *end = page_of(place) + hak_os_page_size;
  for (const char *p = place->block + place->size; p < end; p++)
    if (*p != (char)PATTERN) return true;
  return false;
}

static void report(const place_t *place) {
  print_stacks(place, false);
  hak_misuse_finish();
}

bool hak_guard_is_live(const void *p) {
  const place_t *place = place_at(p);
  return (size_t)((const char *)p - page_of(place)) < hak_os_page_size &&
         hak_load_acquire(&place->state) == LIVE;
}

bool hak_guard_find(const void *p, const char *function, size_t *size) {
  const place_t *place = place_at(p);
  uint32_t state = hak_load_acquire(&place->state);
  *size = place->size;
  if (state == EMPTY) {
    hak_misuse_foreign(function, p);
  } else if ((uintptr_t)p & (HAK_MIN_BLOCK - 1)) {
    hak_misuse_misaligned(function, p);
  } else if (p != place->block) {
    hak_misuse_interior(function, p, place->block, place->size);
  } else if (state != LIVE) {
    hak_message("%s(%p): double free of a %u-byte block", function, p, (uint64_t)place->size);
    report(place);
  } else if (written_behind(place)) {
    hak_message("%s(%p): overflow: what follows the %u-byte block was overwritten", function, p,
                (uint64_t)place->size);
    report(place);
  } else {
    return true;
  }
  return false;
}

void hak_guard_free(void *p, const char *function) {
  place_t *place = place_at(p);
  uint32_t state = LIVE;
  if (!hak_cas_acquire(&place->state, &state, BUSY)) {
    hak_misuse_double_free(function, p, place->size);
    return;
  }
  bool dirty;
  hak_fetch_sub_relaxed(&hak_guard_counts.live, 1);
  hak_fetch_sub_relaxed(&hak_guard_counts.bytes, place->size);
  walk(place, &place->freed);
  place->committed = !hak_os_decommit(page_of(place), hak_os_page_size, &dirty);
  hak_mapped_add(&hak_mapped.metadata_bytes, -(int64_t)hak_os_page_size);
  hak_store_release(&place->state, FREED);
}
