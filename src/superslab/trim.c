// trim.c: the OS pages of a slab in use that hold no live block go back to the system
// (docs/decisions/0026-pages-in-use.md). Owner only.
//
// Absent pages of a tiny slab: the blocks that start in one are free and on no list, as their
// links would lie in it. A block belongs to the page of its first byte: one that reaches into
// an absent page from the page before may be in use meanwhile.

#include "base/bits.h"
#include "os/os.h"
#include "superslab/seal.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"

#define PAGES_MAX 16 // of a slab, where OS pages have 4 KiB

static uint32_t discard(char *from, char *to) {
  if (from >= to || !hak_os_discard(from, (size_t)(to - from))) return 0;
  return (uint32_t)((size_t)(to - from) / hak_os_page_size);
}

// Number of the first block that starts at offset `at` of the slab or run, or behind it.
static uint32_t first_from(const hak_slab_t *slab, size_t at, size_t size) {
  size_t gap = hak_slab_gap(slab);
  return at <= gap ? 0 : (uint32_t)((at - gap + size - 1) / size);
}

// Whether a block that starts before the slab's page i reaches into it.
static bool reaches_in(const hak_slab_t *slab, unsigned i, size_t size) {
  size_t at = i * hak_os_page_size, gap = hak_slab_gap(slab);
  return at > gap && (at - gap) % size != 0;
}

// Those of the pages that have no live block; 0 if the free list is corrupt.
static uint32_t free_pages(hak_slab_t *slab, unsigned pages, size_t size) {
  const size_t page = hak_os_page_size, gap = hak_slab_gap(slab);
  uint16_t live[PAGES_MAX + 1] = {0}; // blocks that a page has a part of
  for (unsigned i = 0; i < pages; i++) {
    uint32_t first = first_from(slab, i * page, size);
    uint32_t end = (uint32_t)hak_min(first_from(slab, (i + 1) * page, size), slab->carved);
    if (reaches_in(slab, i, size)) first--;
    live[i] = first < end ? (uint16_t)(end - first) : 0;
  }
  for (uint64_t rest = slab->absent; rest != 0; rest &= rest - 1) {
    unsigned i = hak_low_bit(rest);
    live[i + 1] -= reaches_in(slab, i + 1, size); // the last block of page i
  }
  uint32_t seen = 0;
  const unsigned shift = hak_low_bit(page); // a division per block would take longer than the rest
  for (char *block = slab->free; block; block = hak_link_get(block)) {
    size_t at = (size_t)(block - slab->start), first = (at + gap) >> shift;
    if (at >= slab->carved * size || ++seen > slab->carved) return 0;
    live[first]--;
    size_t last = (at + gap + size - 1) >> shift;
    live[last] -= last != first;
  }
  uint32_t found = 0;
  for (unsigned i = 0; i < pages; i++) found |= (uint32_t)(live[i] == 0) << i;
  return found & ~(uint32_t)slab->absent;
}

// Takes the blocks that start in the pages out of the free list.
static void unlink_blocks(hak_slab_t *slab, uint32_t pages) {
  const char *start = hak_slab_start(slab);
  const unsigned shift = hak_low_bit(hak_os_page_size);
  void *before = NULL, *next;
  bool skipped = false;
  for (void *block = slab->free;; block = next) {
    bool stays = !block || !(pages >> ((size_t)((char *)block - start) >> shift) & 1);
    next = block ? hak_link_get(block) : NULL;
    if (!stays) {
      skipped = true;
      continue;
    }
    if (skipped && before) hak_link_set(before, block);
    else if (skipped) slab->free = block;
    skipped = false;
    before = block;
    if (!block) return;
  }
}

// Joins the chains that were taken back whole to the free list. A signal handler that ends the
// process finds each block in one list, or counted as held (audit.c).
static void join_chains(hak_slab_t *slab) {
  for (uint64_t chain; (chain = slab->chains) != 0;) {
    uint32_t count = (uint32_t)(chain >> HAK_REMOTE_COUNT_SHIFT);
    void **head = (void **)(uintptr_t)(chain & HAK_REMOTE_POINTER_MASK);
    uint64_t rest = (uint64_t)(uintptr_t)head[1];
    hak_link_set(hak_slab_chain_end(head, count), slab->free);
    hak_owner_add(&slab->allocs, count);
    atomic_signal_fence(memory_order_release);
    slab->chains = rest;
    atomic_signal_fence(memory_order_release);
    slab->free = head;
    atomic_signal_fence(memory_order_release);
    hak_owner_add(&slab->allocs, -(uint64_t)count);
  }
}

static uint32_t trim_tiny(hak_slab_t *slab) {
  const size_t page = hak_os_page_size, size = slab->size;
  unsigned pages = (unsigned)(HAK_SLAB_SIZE / page);
  if (pages < 2 || pages > PAGES_MAX) return 0;
  join_chains(slab);
  uint32_t gone = free_pages(slab, pages, size), given = 0;
  // Pages without a carved block have no block to unlink, and something to give back only if
  // the slab's memory was used before. The page where carving goes on stays.
  size_t carved =
      slab->carved == slab->capacity ? HAK_SLAB_SIZE : hak_slab_gap(slab) + slab->carved * size;
  uint32_t listed = gone & (((uint32_t)1 << carved / page) - 1);
  uint32_t unused = gone & ~(((uint32_t)1 << (carved + page - 1) / page) - 1);
  gone = slab->zeroed ? listed : listed | unused;
  slab->absent |= listed; // first: a handler in between counts what is on no list
  if (listed) unlink_blocks(slab, listed);
  for (uint64_t rest = gone, run; rest != 0; rest &= ~run) {
    unsigned first, n;
    run = hak_low_run(rest, &first, &n);
    // A free block on the list keeps its seal.
    bool sealed =
        HAK_TAIL != 0 && reaches_in(slab, first, size) && !(slab->absent >> (first - 1) & 1);
    if (sealed) first++, n--;
    char *from = hak_slab_start(slab) + first * page;
    given += discard(from, from + n * page);
  }
  if (gone & unused) slab->zeroed = true; // not the page where carving goes on; none goes twice
  return given;
}

static uint32_t trim_l2(hak_slab_t *slab, uint64_t which) {
  const size_t page = hak_os_page_size, size = slab->size;
  uint64_t mask = hak_load_relaxed(&slab->mask) & (which | slab->absent), given = 0;
  hak_superslab_t *superslab = &hak_registry.superslabs[hak_superslab_number(slab)];
  bool untouched = slab->zeroed && hak_load_relaxed(&superslab->huge) == HAK_HUGE_NO;
  if (untouched) mask &= ((uint64_t)1 << slab->carved) - 1;
  for (uint64_t rest = mask, run; rest != 0; rest &= ~run) {
    unsigned first, n;
    run = hak_low_run(rest, &first, &n);
    if ((run & ~slab->absent) == 0) continue;
    uintptr_t from = (uintptr_t)slab->start + first * size, to = from + n * size;
    // The bytes before the first block and behind the last belong to these blocks.
    if (first == 0) from = (uintptr_t)hak_slab_start(slab);
    if (first + n == slab->capacity)
      to = (uintptr_t)hak_slab_start(slab) + slab->run * HAK_SLAB_SIZE;
    given += discard((char *)hak_align_up(from, page), (char *)hak_align_down(to, page));
  }
  slab->absent = mask;
  return (uint32_t)given;
}

uint32_t hak_slab_trim(hak_slab_t *slab, uint64_t which) {
  return hak_slab_kind(slab) == HAK_KIND_TINY ? trim_tiny(slab) : trim_l2(slab, which);
}

uint32_t hak_slab_carve_absent(hak_slab_t *slab) {
  const size_t page = hak_os_page_size, size = slab->size;
  if (slab->absent == 0) return 0;
  unsigned i = hak_low_bit(slab->absent);
  uint32_t first = first_from(slab, i * page, size);
  uint32_t end = (uint32_t)hak_min(first_from(slab, (i + 1) * page, size), slab->capacity);
  char *block = slab->start + first * size;
  // The page fault comes first, as signals are delivered with it: see above.
  *(volatile char *)block = 0;
  hak_slab_list(slab, block, end - first);
  atomic_signal_fence(memory_order_release); // a handler in between looks at no such slab (audit.c)
  slab->absent &= slab->absent - 1;
  return end - first;
}
