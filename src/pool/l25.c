#include "pool/l25.h"

#include "os/os.h"
#include "pool/fill.h"

// Pages looked at in each block other than the sample.
#define PAGES_OF_OTHERS 2

// Whether all blocks in the sample's SuperSlab are in use like the sample, and need at least three
// quarters of their slabs: a program that requests blocks of several kinds in turn may have the
// same kind first in each SuperSlab, and with huge pages all of a block's last slab is resident.
// If another SuperSlab has taken that place meanwhile, its blocks tell as much.
static bool others_are_filled(const hak_slab_t *slab, const void *p) {
  const char *base = (const char *)hak_align_down((uintptr_t)p, HAK_SUPERSLAB_SIZE);
  slab -= hak_slab_index(slab) & (HAK_SLABS_PER_SUPERSLAB - 1);
  size_t bytes = 0, slabs = 0;
  bool inside = false; // the slab belongs to a block
  for (unsigned i = 0; i < HAK_SLABS_PER_SUPERSLAB; i++, slab++) {
    uint8_t kind = hak_load_relaxed(&slab->kind);
    inside = kind == HAK_KIND_L25 || (inside && kind == HAK_KIND_INTERIOR);
    slabs += inside;
    if (kind != HAK_KIND_L25) continue;
    size_t at = (size_t)i << HAK_SLAB_SHIFT, used = hak_load_relaxed(&slab->bytes);
    if (used > HAK_SUPERSLAB_SIZE - at) return false;
    if (!hak_os_filled_by(base + at, used, PAGES_OF_OTHERS)) return false;
    bytes += used;
  }
  return bytes >= (slabs << HAK_SLAB_SHIFT) / 4 * 3;
}

// Other threads may still be writing to theirs: if only theirs fail, it counts the second time.
static hak_fill_found_t look(const void *p, size_t size) {
  static _Atomic bool again;
  const hak_slab_t *slab = hak_slab_lookup(p);
  if (!slab || !hak_os_filled(p, size)) return HAK_FILL_NO;
  bool filled = others_are_filled(slab, p), later = !filled && !hak_load_relaxed(&again);
  hak_store_relaxed(&again, later);
  return filled ? HAK_FILL_YES : later ? HAK_FILL_LATER : HAK_FILL_NO;
}

// For blocks in SuperSlabs that were mapped for them. A look at each SuperSlab takes noticeable
// time where blocks are hardly used.
static hak_fill_t fill = {.doubts = true, .look = look};

static bool map(size_t size, unsigned at, bool gaps, hak_claim_t *claim) {
  // Never in the secure library: sealing writes to blocks that the program might not touch. Nor
  // where the next such blocks would leave unused slabs between them.
  bool fills = !HAK_SECURE && !gaps && hak_fill_allowed(HAK_SUPERSLAB_SIZE) &&
               hak_fill_expected(&fill, HAK_SUPERSLAB_SIZE);
  if (!hak_pool_map(hak_l25_slabs(size), at, fills, claim)) return false;
  if (!fills && claim->source == HAK_FROM_MAP && !hak_load_relaxed(&fill.sample))
    hak_fill_sample(&fill, hak_slab_start(claim->slab), size);
  return true;
}

void *hak_l25_alloc(size_t size, size_t alignment, bool *zeroed) {
  hak_claim_t got;
  unsigned n = hak_l25_slabs(size), step = (unsigned)(alignment >> HAK_SLAB_SHIFT);
  unsigned at = step > 1 ? hak_pool_at(step) : 0;
  if (!hak_pool_find(n, at, &got) && !map(size, at, at && n % step != 0, &got)) return NULL;
  *zeroed = got.slab->zeroed;
  return hak_l25_make(got.slab, size, alignment > 1);
}

// The leftover of a block's last OS page becomes a gap in front of the block, so that no more pages
// are touched: one HAK_COLOUR if there is room, at most eight: docs/decisions/0013-colour.md
#define COLOURS 8
static size_t gap_for(const hak_slab_t *head, size_t size) {
  size_t colours = (hak_align_up(size, HAK_L25_GRAIN) - size) / HAK_COLOUR;
  if (colours > COLOURS) colours = COLOURS;
  return colours ? HAK_COLOUR + hak_colour(colours, hak_slab_index(head)) : 0;
}

// Makes the run of head n slabs long; those from `from` on are new to it.
static void join(hak_slab_t *head, unsigned from, unsigned n) {
  head->run = (uint8_t)n;
  for (unsigned i = from; i < n; i++) {
    head[i].offset = (uint8_t)i;
    hak_store_relaxed(&head[i].kind, HAK_KIND_INTERIOR);
  }
}

void *hak_l25_make(hak_slab_t *head, size_t size, bool aligned) {
  unsigned n = hak_l25_slabs(size);
  head->start = hak_slab_start(head) + (aligned ? 0 : gap_for(head, size));
  head->offset = 0;
  join(head, 1, n);
  hak_store_relaxed(&head->bytes, (uint64_t)hak_l25_rounded(head, size));
  hak_store_relaxed(&head->kind, HAK_KIND_L25);
  return head->start;
}

bool hak_l25_claim(hak_slab_t *head) {
  uint8_t kind = HAK_KIND_L25;
  // Of two threads that free the same block only one wins here; the slabs themselves
  // are published by the release in hak_pool_release.
  if (!hak_cas_relaxed(&head->kind, &kind, (uint8_t)HAK_KIND_FREE)) return false;
  head->last_kind = HAK_KIND_L25;
  return true;
}

unsigned hak_l25_take_apart(hak_slab_t *head) {
  unsigned n = head->run;
  for (unsigned i = 1; i < n; i++) hak_store_relaxed(&head[i].kind, HAK_KIND_FREE);
  return n;
}

void hak_l25_release(hak_slab_t *head) { hak_pool_release(head, hak_l25_take_apart(head)); }

bool hak_l25_resize(hak_slab_t *head, size_t size) {
  unsigned have = head->run;
  size_t gap = hak_slab_gap(head);
  if (size > HAK_L25_MAX - gap) return false; // before n could wrap
  unsigned n = hak_l25_slabs(gap + size);
  if (n > have && !hak_pool_extend(head, have, n - have)) return false;
  hak_store_relaxed(&head->bytes, (uint64_t)hak_l25_rounded(head, size));
  if (n == have) return true;
  join(head, have, n);
  hak_fill_forget(&fill, hak_slab_start(head));
  if (n > have) return true;
  hak_fill_mistrust(&fill); // the block had been larger than the program needed
  for (unsigned i = n; i < have; i++) hak_store_relaxed(&head[i].kind, HAK_KIND_FREE);
  hak_pool_release(head + n, have - n);
  return true;
}
