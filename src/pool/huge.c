#include "pool/huge.h"

#include <string.h>

#include "base/bits.h"
#include "os/os.h"
#include "pool/fill.h"
#include "pool/huge_cache.h"
#include "superslab/superslab.h"

#define UNIT_SHIFT 12 // pagemap entries count 4 KiB
#define WASTE_PART 8  // a kept mapping may be longer than the block by 1/WASTE_PART of it,
#define LONGER_MOST 2 // or up to so many times as long while huge blocks have few bytes in all,
#define LONGER_FEW 4  // or, unsplit, up to so many times as long beside fewer than
#define FEW 3         // so many other blocks
// From so many blocks on, mappings touch each other, so that the kernel merges them: it allows
// 65,530. Not above TOUCH_MOST, where the excess would not matter and huge pages may.
#define MANY 16384
#define TOUCH_MOST (16 * HAK_SUPERSLAB_SIZE)

// Relaxed: statistics. Whether any block was advised also decides whether a kept mapping may have
// huge pages; the advice was counted before the mapping was kept (C1).
static _Atomic uint64_t count, advised;

static hak_fill_t fill = {.huge = true}; // plain blocks (see map) that a huge page fits into
static hak_fill_t zeros = {.doubts = true, .when_freed = true}; // zeroed blocks

static uint64_t entry_for(size_t size, bool has_advice, bool touches) {
  uint64_t flags = (has_advice ? HAK_PAGEMAP_ADVISED : 0) | (touches ? HAK_PAGEMAP_TOUCHES : 0);
  return (uint64_t)(size >> UNIT_SHIFT) << 2 | HAK_PAGEMAP_HUGE | flags;
}

// Bytes of the huge block that starts at p, from its entry.
static size_t size_in(uint64_t entry, const void *p) {
  if ((entry & 3) != HAK_PAGEMAP_HUGE || ((uintptr_t)p & (HAK_SUPERSLAB_SIZE - 1))) return 0;
  return (size_t)((entry & ~(HAK_PAGEMAP_ADVISED | HAK_PAGEMAP_TOUCHES)) >> 2) << UNIT_SHIFT;
}

// Length of a block's mapping. If it touches the next one, its bytes behind the block belong to
// nobody and are not resident.
static size_t mapping_of(size_t size, bool touches) {
  return touches ? hak_align_up(size, HAK_SUPERSLAB_SIZE) : size;
}

// Not in the secure library: what lies behind a block must fault.
static bool may_touch(size_t total) {
  return !HAK_SECURE && hak_load_relaxed(&count) >= MANY && total <= TOUCH_MOST;
}

// In the secure library a page without access rights lies behind each mapping. Where the kernel has
// no room for it, or there are many, it is memory that nobody uses: a guard needs a mapping, too.
#define GUARD (HAK_SECURE ? hak_os_page_size : 0)

static void guard(char *end) {
  bool dirty;
  if (HAK_SECURE && hak_load_relaxed(&count) < MANY) hak_os_decommit(end, GUARD, &dirty);
}

static void *map_guarded(size_t size, size_t alignment) {
  char *p = hak_os_map(size + GUARD, alignment);
  if (p) guard(p + size);
  return p;
}

// Makes a mapping longer or shorter where it is. To make it longer its guard goes first; if another
// thread maps something there meanwhile *guarded is false afterwards.
static bool resize_here(char *p, size_t old_total, size_t total, bool *movable, bool *guarded) {
  if (!HAK_SECURE) return hak_os_resize(p, old_total, total, movable);
  char *end = p + old_total + (*guarded ? GUARD : 0), *new_end = p + total + GUARD;
  *movable = true;
  if (new_end < end && !hak_os_unmap(new_end, (size_t)(end - new_end))) return false;
  if (total > old_total) {
    if (*guarded && !hak_os_unmap(p + old_total, GUARD)) return false;
    if (!hak_os_resize(p, old_total, total + GUARD, movable)) {
      *guarded = hak_os_reserve_at(p + old_total, GUARD);
      return false;
    }
  }
  guard(p + total);
  return true;
}

static void *move(char *p, size_t old_total, size_t new_total, bool guarded) {
  char *target = hak_os_reserve(new_total + GUARD, HAK_SUPERSLAB_SIZE);
  if (!target) return NULL;
  bool ours = true;
  if (hak_pagemap_prepare(target) && hak_os_move(p, old_total, new_total, target, &ours)) {
    if (HAK_SECURE && guarded) (void)hak_os_unmap(p + old_total, GUARD); // refused: it stays
    return target;
  }
  // target has one page at most: it is lost only if both calls are refused.
  size_t lost = ours ? 0 : new_total, left = new_total + GUARD - lost;
  if (left && !hak_os_unmap(target + lost, left) && hak_os_commit(target + lost, left))
    hak_huge_cache_unmap(target + lost, left);
  return NULL;
}

// Whether a block may have a mapping that is up to `times` times as long, because huge blocks have
// few bytes in all: `all`.
static bool may_be_longer(size_t have, size_t total, size_t times, uint64_t all) {
  return have <= total * times && all <= hak_huge_cache_room();
}

static bool fits(size_t have, size_t total, size_t times) {
  if (have < total) return false;
  uint64_t all = have + hak_load_relaxed(&hak_mapped.huge_bytes);
  return have - total <= total / WASTE_PART || may_be_longer(have, total, times, all);
}

// Keeps the excess of a kept mapping on its own if another can begin in it: as nobody needs it, it
// gets no younger. Returns what is left.
static size_t split(char *p, size_t have, size_t total, uint64_t since) {
  size_t front = hak_align_up(total, HAK_SUPERSLAB_SIZE);
  bool worth = have >= front + HAK_SUPERSLAB_SIZE / 2;
  if (!worth || !hak_pagemap_prepare(p + front)) return have;
  hak_huge_cache_put(p + front, have - front, since);
  return front;
}

// Makes a kept mapping *total bytes long, or leaves it longer.
static void *fit(void *p, size_t have, size_t *total, uint64_t since) {
  bool few = hak_load_relaxed(&count) < FEW, movable;
  bool close = fits(have, *total, few ? LONGER_FEW : 1);
  if (!close) {
    have = split(p, have, *total, since);
    close = fits(have, *total, LONGER_MOST);
  }
  if (!close && hak_os_resize(p, have, *total, &movable)) return p;
  if (have >= *total) {
    *total = have;
    return p;
  }
  void *target = movable ? move(p, have, *total, true) : NULL;
  if (!target) hak_huge_cache_unmap(p, have);
  return target;
}

static bool may_have_huge_pages(size_t total) {
  return total >= HAK_SUPERSLAB_SIZE && hak_fill_allowed(total);
}

static void advise(void *p, size_t total) {
  hak_os_huge_pages(p, total, true);
  hak_fetch_add_relaxed(&advised, 1);
}

// The kernel merges mappings that are alike. Nothing behind a block may be resident.
static void touch(char *p, size_t total, bool fresh) {
  size_t mapped = mapping_of(total, true);
  hak_os_huge_pages(p, mapped, false);
  if (!fresh && mapped > total) hak_os_discard(p + total, mapped - total);
}

// Publishes the block's entry; the block is `more` bytes longer than before.
static void publish(void *p, uint64_t entry, int64_t more) {
  hak_pagemap_set(p, entry);
  hak_mapped_add(&hak_mapped.huge_bytes, more);
  hak_huge_cache_used();
}

// *mapped: length of the mapping: that of the block if more is refused or it gets huge pages.
static void *map(size_t total, size_t *mapped, size_t alignment, bool plain, bool *has_advice) {
  *has_advice = plain && may_have_huge_pages(total) && hak_fill_expected(&fill, total);
  bool longer = *mapped > total && !*has_advice;
  void *p = longer ? map_guarded(*mapped, alignment) : NULL;
  if (!p) p = map_guarded(*mapped = total, alignment);
  if (!p) return NULL;
  if (!hak_pagemap_prepare(p)) {
    hak_huge_cache_unmap(p, *mapped + GUARD);
    return NULL;
  }
  if (*has_advice) advise(p, total);
  else if (plain && total >= HAK_SUPERSLAB_SIZE) hak_fill_sample(&fill, p, total);
  return p;
}

// *old: length of the kept mapping, the bytes that may be nonzero. is_short: no other can be had.
HAK_INLINE void *reuse(size_t *mapped, bool plain, size_t *old, bool is_short) {
  uint64_t since = 0;
  void *p = hak_huge_cache_take(*mapped, old, &since);
  if (!p && is_short) p = hak_huge_cache_take_refused(*mapped, old);
  if (p) p = fit(p, *old, mapped, since);
  // The mapping may have been advised when it belonged to another block.
  if (p && !plain && hak_load_relaxed(&advised)) hak_os_huge_pages(p, *mapped, false);
  return p;
}

// If zeroed blocks are written in full, clearing a kept mapping costs less than its page faults.
// When that has to be proved anew, or memory is short, the mapping loses its pages.
HAK_NOINLINE static void *clear(size_t total, size_t *mapped, bool is_short) {
  bool expected = !is_short && hak_fill_expected(&zeros, total);
  if (!expected && !is_short && !hak_load_relaxed(&zeros.filled)) return NULL;
  size_t have = *mapped, old;
  void *p = reuse(&have, false, &old, is_short);
  if (!p) return NULL;
  if (expected || !hak_os_discard(p, have)) memset(p, 0, old < total ? old : total);
  if (!expected) hak_fill_sample(&zeros, p, total);
  *mapped = have;
  return p;
}

HAK_INLINE void *again(size_t total, size_t *mapped, bool plain, bool zero, bool is_short) {
  size_t old;
  return zero ? clear(total, mapped, is_short) : reuse(mapped, plain, &old, is_short);
}

void *hak_huge_alloc(size_t size, size_t alignment, bool zero) {
  size_t total = hak_align_up(size ? size : 1, hak_os_page_size);
  // Large zeroed arrays are often used sparsely; page-aligned memory may be handled page by page.
  bool plain = !zero && alignment < hak_os_page_size;
  if (alignment < HAK_SUPERSLAB_SIZE) alignment = HAK_SUPERSLAB_SIZE;
  bool touches = alignment == HAK_SUPERSLAB_SIZE && may_touch(total);
  size_t mapped = mapping_of(total, touches);
  char *p = NULL;
  bool has_advice = false; // of a reused mapping: not known
  if (alignment == HAK_SUPERSLAB_SIZE) p = again(total, &mapped, plain, zero, false);
  bool reused = p != NULL;
  if (!p) {
    p = map(total, &mapped, alignment, plain, &has_advice);
    if (!p && alignment == HAK_SUPERSLAB_SIZE) {
      has_advice = false;
      p = again(total, &mapped, plain, zero, reused = true);
    }
    if (!p) return NULL;
    if (zero && !reused && !HAK_SECURE) hak_fill_sample(&zeros, p, total);
  }
  // A mapping that has another length nonetheless belongs to the block as a whole.
  if (touches) touches = !has_advice && mapped == mapping_of(total, true);
  if (touches) touch(p, total, !reused);
  else total = mapped;
  hak_fetch_add_relaxed(&count, 1);
  publish(p, entry_for(total, has_advice, touches), (int64_t)total);
  return p;
}

size_t hak_huge_usable(const void *p) { return size_in(hak_pagemap_get(p), p); }

bool hak_huge_free(void *p) {
  uint64_t entry = hak_pagemap_get(p);
  size_t total = size_in(entry, p);
  if (!total || !hak_pagemap_take(p, entry)) return false;
  hak_fetch_sub_relaxed(&count, 1);
  hak_mapped_add(&hak_mapped.huge_bytes, -(int64_t)total);
  hak_fill_freed(&fill, p);
  hak_fill_freed(&zeros, p);
  bool touches = entry & HAK_PAGEMAP_TOUCHES;
  hak_huge_cache_put(p, HAK_SECURE ? total + (touches ? 0 : GUARD) : mapping_of(total, touches), 0);
  return true;
}

// *entry: that of the block, also afterwards if NULL is returned.
static void *resize(void *p, uint64_t *entry, size_t old_total, size_t total, bool *movable) {
  bool guarded = !(*entry & HAK_PAGEMAP_TOUCHES);
  if (resize_here(p, old_total, total, movable, &guarded)) return p;
  // The old entry must be cleared before the kernel may reuse the address.
  if (total < old_total || !hak_pagemap_take(p, *entry)) return NULL;
  void *target = *movable ? move(p, old_total, total, guarded) : NULL;
  if (!guarded) *entry |= HAK_PAGEMAP_TOUCHES;
  if (!target) hak_pagemap_set(p, *entry);
  return target;
}

// Bytes that a block of total bytes gets in addition when it grows, and may keep in excess: an
// eighth, so that growth in small steps costs a logarithmic number of system calls. Untouched
// pages are not resident. The secure library's seal cannot store more than 64 KiB.
static size_t spare(size_t total) {
  size_t part = hak_align_up(total / 8, hak_os_page_size);
  size_t most = hak_align_down((size_t)32 << 10, hak_os_page_size);
  return HAK_SECURE && part > most ? most : part;
}

// Resizes a block whose mapping stays the same.
static void *resize_within(char *p, size_t old_total, size_t total) {
  if (total < old_total) {
    hak_fill_forget(&fill, p), hak_fill_forget(&zeros, p);
    hak_os_discard(p + total, old_total - total);
  }
  publish(p, entry_for(total, false, true), (int64_t)total - (int64_t)old_total);
  return p;
}

void *hak_huge_resize(void *p, size_t size) {
  uint64_t entry = hak_pagemap_get(p);
  size_t old_total = size_in(entry, p);
  size_t exact = hak_align_up(size, hak_os_page_size), total = exact;
  if (!old_total) return NULL;
  if (exact <= old_total &&
      (old_total - exact <= spare(old_total) ||
       may_be_longer(old_total, exact, LONGER_MOST, hak_load_relaxed(&hak_mapped.huge_bytes))))
    return p;
  bool touched = !HAK_SECURE && (entry & HAK_PAGEMAP_TOUCHES);
  size_t old_mapped = mapping_of(old_total, touched);
  if (touched && mapping_of(exact, true) == old_mapped) return resize_within(p, old_total, exact);
  if (total > old_total && total < old_total + spare(old_total))
    total = old_total + spare(old_total);
  // A growing block is its own sample. To keep its huge pages it need not be full to the end: it
  // may grow by less than an eighth.
  bool grows = total > old_total, had_advice = entry & HAK_PAGEMAP_ADVISED;
  size_t asked = had_advice ? old_total / 2 : old_total;
  bool full = grows && may_have_huge_pages(total) && hak_os_filled(p, asked);
  bool touches = grows ? !full && may_touch(total) : touched, movable;
  char *target = resize(p, &entry, old_mapped, mapping_of(total, touches), &movable);
  if (!target && total < old_total) return p;
  // Memory is short, or the locking limit is reached: try without the excess. Then try after giving
  // kept mappings back, which does not help where the block cannot be moved at all.
  if (!target && mapping_of(total, touches) != exact)
    touches = false, target = resize(p, &entry, old_mapped, total = exact, &movable);
  if (!target && movable && total < hak_os_address_limit() && hak_huge_cache_trim(0))
    target = resize(p, &entry, old_mapped, total, &movable);
  if (!target) return NULL;
  if (target != p || total < old_total) hak_fill_forget(&fill, p), hak_fill_forget(&zeros, p);
  // Advise all of it: a mapping of two kinds could not be moved in one call.
  if (full && !had_advice) advise(target, total);
  else if (touches) touch(target, total, grows);
  else if (grows && !full && had_advice) hak_os_huge_pages(target, total, false);
  publish(target, entry_for(total, grows ? full : had_advice, touches),
          (int64_t)total - (int64_t)old_total);
  return target;
}

void *hak_huge_around(const void *p) {
  const uintptr_t leaf = HAK_SUPERSLAB_SIZE << HAK_PAGEMAP_LEAF_SHIFT;
  uintptr_t unit = hak_align_down((uintptr_t)p, HAK_SUPERSLAB_SIZE);
  if (unit >> HAK_ADDRESS_BITS) return NULL;
  for (;; unit -= HAK_SUPERSLAB_SIZE) {
    const hak_pagemap_entry_t *entry = hak_pagemap_entry((void *)unit);
    if (!entry) unit = hak_align_down(unit, leaf); // nothing in the whole leaf
    uint64_t value = entry ? hak_load_acquire(entry) : 0;
    if (value) {
      size_t size = size_in(value, (void *)unit);
      return (uintptr_t)p - unit < size ? (void *)unit : NULL;
    }
    if (unit == 0) return NULL;
  }
}

uint64_t hak_huge_count(void) { return hak_load_relaxed(&count); }
uint64_t hak_huge_advised(void) { return hak_load_relaxed(&advised); }
