#include "superslab/superslab.h"

#include "core/options.h"
#include "core/pressure.h"
#include "os/os.h"
#include "superslab/pool_index.h"
#include "superslab/shared_pool.h"

hak_registry_t hak_registry;
hak_mapped_t hak_mapped;
hak_word_t hak_counters[HAK_STATS];

// Guard gaps (secure library): every second number in the range stays without memory, so that
// a write beyond a SuperSlab faults; the last gap is GAPS_END - 2. Each gap costs the kernel
// two mappings, so there are only so many, and all gaps are filled where the kernel has no
// room for another mapping.
#define GAPS_END (2u * 8192)
static _Atomic bool gaps_filled;

static uint32_t commit_step;      // numbers per commit of descriptors
static uint32_t reserved_numbers; // numbers with room for descriptors at the start

// Messages find in a slab's descriptor what became of its blocks. So the SuperSlabs that gave up
// their memory last keep their descriptors; those of the others, a page each, are given back too.
#define QUEUE_MAX 8
static const uint8_t queue_length[HAK_QUEUES] = {
    [HAK_QUEUE_PURGE] = 4, [HAK_QUEUE_FORGET] = QUEUE_MAX};
static struct {
  _Atomic uint32_t next, number[QUEUE_MAX];
} queues[HAK_QUEUES];

#define DESCRIPTORS (HAK_SLABS_PER_SUPERSLAB * sizeof(hak_slab_t)) // bytes, of a SuperSlab's slabs
#define RANGE_SIZE_MIN ((size_t)64 << 20)

// The parts of hak_registry.numbers.
#define FIELD(word, n) ((uint32_t)((word) >> (n) * HAK_NUMBER_BITS) & ((1u << HAK_NUMBER_BITS) - 1))
static uint32_t next_in(uint64_t word) { return FIELD(word, 0); }
static uint32_t range_end_in(uint64_t word) { return FIELD(word, 1); }
static uint32_t max_in(uint64_t word) { return FIELD(word, 2); }
static uint64_t word_of(uint32_t next, uint32_t range_end, uint32_t max) {
  return next | (uint64_t)range_end << HAK_NUMBER_BITS | (uint64_t)max << 2 * HAK_NUMBER_BITS;
}

// In the page table (core/pagemap.h).
static uint64_t entry_of(uint32_t number) { return (uint64_t)number << 2 | HAK_PAGEMAP_SUPERSLAB; }

// Relaxed: the holder of a used number sees the word as it was when the number was first used,
// or later, and the answer is the same from then on.
static bool in_range(uint32_t number) {
  return number < range_end_in(hak_load_relaxed(&hak_registry.numbers));
}

void hak_mapped_add(_Atomic uint64_t *which, int64_t bytes) {
  // Relaxed: figures for people; nothing is ordered by them.
  hak_fetch_add_relaxed(which, (uint64_t)bytes);
  uint64_t now = hak_fetch_add_relaxed(&hak_mapped.mapped, (uint64_t)bytes) + (uint64_t)bytes;
  uint64_t peak = hak_load_relaxed(&hak_mapped.peak);
  while ((int64_t)(now - peak) > 0 && !hak_cas_relaxed(&hak_mapped.peak, &peak, now)) {
  }
}

// RLIMIT_AS as last seen; it also bounds what is not the allocator's. Relaxed: it steers.
static _Atomic uint64_t address_limit = UINT64_MAX;

// The peak of resident memory, as last seen. A memory limit bounds what is resident: as long as the
// peak is below a quarter of it, most mapped memory has not been touched. The rest of the limit
// allows for growth between two looks, and for other processes in the group. Relaxed: it steers.
static _Atomic uint64_t resident_peak = UINT64_MAX;

static bool is_mapped_near(uint64_t limit) {
  return hak_load_relaxed(&hak_mapped.mapped) >= limit - limit / 8;
}

bool hak_mapped_near_memory_limit(void) {
  uint64_t limit = hak_load_relaxed(&hak_memory_limit);
  return is_mapped_near(limit) && hak_load_relaxed(&resident_peak) >= limit / 4;
}

void hak_mapped_look(void) {
  if (is_mapped_near(hak_load_relaxed(&hak_memory_limit)))
    hak_store_relaxed(&resident_peak, hak_os_resident_peak());
}

bool hak_mapped_near_limit(void) {
  return hak_mapped_near_memory_limit() ||
         hak_load_relaxed(&hak_mapped.mapped) >= hak_load_relaxed(&address_limit) / 2;
}

// Reserves the range. Returns how many numbers are in it, 0: none.
static uint32_t reserve_range(size_t size) {
  for (; size >= RANGE_SIZE_MIN; size /= 2) {
    size = hak_align_down(size, HAK_SUPERSLAB_SIZE);
    void *p = hak_os_reserve(size, HAK_SUPERSLAB_SIZE);
    if (!p) continue;
    hak_registry.base = (uintptr_t)p;
    hak_os_huge_pages(p, size, false); // once for all: see advise
    hak_os_dump(p, size, false);
    return (uint32_t)(size >> HAK_SUPERSLAB_SHIFT);
  }
  return 0;
}

// Returns for how many numbers it reserved; 0 if refused: no memory, and every request is ENOMEM.
static uint32_t reserve_descriptors(size_t numbers) {
  for (; numbers >= commit_step; numbers = hak_align_down(numbers / 2, commit_step)) {
    size_t size = numbers * (sizeof(hak_superslab_t) + DESCRIPTORS);
    // A page that is never committed on either side.
    char *p = hak_os_reserve(size + 2 * hak_os_page_size, hak_os_page_size);
    if (!p) continue;
    hak_os_dump(p, size + 2 * hak_os_page_size, false);
    p += hak_os_page_size;
    hak_registry.superslabs = (hak_superslab_t *)p;
    hak_registry.slabs = (hak_slab_t *)(p + numbers * sizeof(hak_superslab_t));
    return (uint32_t)numbers;
  }
  return 0;
}

// Size of the range to reserve under a limit of the address space. Below SIZE_MAX address
// space is rationed, and all that is reserved is charged.
static size_t range_for(size_t limit) {
  uint64_t kind = hak_option(SS_LOOKUP_KIND);
  size_t range = hak_option(RANGE_SIZE);
  if (kind == HAK_LOOKUP_TABLE || (kind == HAK_LOOKUP_AUTO && limit != SIZE_MAX)) return 0;
  return hak_min(range, limit / 4);
}

static uint32_t numbers_for(size_t limit) {
  size_t numbers = hak_min(limit >> HAK_SUPERSLAB_SHIFT, HAK_SUPERSLABS_MAX);
  return (uint32_t)hak_align_up(hak_max(numbers, 1), commit_step);
}

void hak_superslab_init(void) {
  commit_step = (uint32_t)(hak_os_page_size / sizeof(hak_superslab_t));
  size_t limit = hak_os_address_limit();
  hak_store_relaxed(&address_limit, (uint64_t)limit);
  uint32_t ranged = reserve_range(range_for(limit));
  reserved_numbers = reserve_descriptors(numbers_for(limit));
  uint32_t range_end = (uint32_t)hak_min(ranged, reserved_numbers);
  hak_store_relaxed(&hak_registry.numbers, word_of(1, range_end, reserved_numbers));
}

// Makes descriptors for at least one more number; false if refused.
static bool commit_descriptors(uint32_t first, uint32_t max) {
  uint32_t last = first + commit_step;
  if (last > max) return false;
  // Racing threads commit the same step: the calls are idempotent.
  size_t superslabs = commit_step * sizeof(hak_superslab_t);
  size_t slabs = commit_step * DESCRIPTORS;
  if (!hak_os_commit(&hak_registry.superslabs[first], superslabs) ||
      !hak_os_commit(&hak_registry.slabs[first << HAK_SLABS_SHIFT], slabs))
    return false;
  hak_os_dump(&hak_registry.superslabs[first], superslabs, true);
  hak_os_dump(&hak_registry.slabs[first << HAK_SLABS_SHIFT], slabs, true);
  // Release: pairs with the acquire in new_number.
  if (hak_cas_acq_rel(&hak_registry.committed_numbers, &first, last))
    hak_mapped_add(&hak_mapped.metadata_bytes, (int64_t)(superslabs + slabs));
  return true;
}

// From now on lookups find the blocks of the numbers below. Relaxed: ordered by the release of
// the number, and between the program's threads by whatever hands the pointer over.
static void raise_limit(uint32_t numbers, uint32_t range_end) {
  uint64_t limit = hak_min(numbers, range_end) << (HAK_SUPERSLAB_SHIFT - HAK_MIN_SHIFT);
  uint64_t old = hak_load_relaxed(&hak_registry.limit);
  while (old < limit && !hak_cas_relaxed(&hak_registry.limit, &old, limit)) {
  }
}

static bool gap_before(uint32_t next, uint32_t range_end) {
  return HAK_SECURE && next <= GAPS_END && next <= range_end && !hak_load_relaxed(&gaps_filled);
}

// Makes the gaps' numbers available for memory; false: that was done already. Of the numbers
// taken after the count is read, some have a gap, which stays, and some have none.
static bool fill_gaps(void) {
  uint32_t end = hak_superslab_count();
  if (!HAK_SECURE || hak_exchange_seq_cst(&gaps_filled, true)) return false;
  uint32_t range_end = range_end_in(hak_load_relaxed(&hak_registry.numbers));
  raise_limit(end, range_end); // the last gap may have had no descriptors when it was made
  for (uint32_t number = 2; number < end && number < GAPS_END && number < range_end; number += 2)
    hak_pool_add_cold(number);
  return true;
}

static uint32_t new_number(void) {
  uint64_t word = hak_load_acquire(&hak_registry.numbers);
  for (;;) {
    uint32_t number = next_in(word), range_end = range_end_in(word);
    // Acquire: pairs with the release in commit_descriptors; the memory is usable.
    uint32_t committed = hak_load_acquire(&hak_registry.committed_numbers);
    if (number >= committed) {
      if (!commit_descriptors(committed, max_in(word))) return 0;
      word = hak_load_acquire(&hak_registry.numbers);
      continue;
    }
    uint32_t next = number + 1 + gap_before(number + 2, range_end);
    // Before the number is used, so that whoever knows it finds its blocks (model registry).
    raise_limit((uint32_t)hak_min(next, committed), range_end);
    if (hak_cas_acq_rel(&hak_registry.numbers, &word, word + (next - number))) return number;
  }
}

// Where huge pages are always on, an unwanted one would cost 2 MiB at the first touch. A new number
// of the range has them off from the start; one that had memory before may be of either kind.
static void advise(hak_superslab_t *superslab, bool fills, bool is_without) {
  uint64_t thp = hak_option(THP);
  bool on =
      thp == HAK_THP_ALWAYS || (thp == HAK_THP_AUTO && fills &&
                                hak_load_relaxed(&hak_mapped.superslab_bytes) >= HAK_THP_MIN_BYTES);
  // Relaxed: the SuperSlab is still this thread's.
  hak_store_relaxed(&superslab->huge, on ? HAK_HUGE_ADVISED : HAK_HUGE_NO);
  hak_store_relaxed(&superslab->holes, 0u);
  if (on) hak_fetch_add_relaxed(&hak_counter(superslab_huge), 1);
  if (on || !is_without) hak_os_huge_pages((void *)superslab->base, HAK_SUPERSLAB_SIZE, on);
}

void hak_superslab_no_huge_page(hak_superslab_t *superslab) {
  hak_fetch_or_relaxed(&superslab->dirty, HAK_ALL_FREE);
  hak_store_relaxed(&superslab->huge, HAK_HUGE_BEFORE);
  hak_os_huge_pages((void *)superslab->base, HAK_SUPERSLAB_SIZE, false);
}

bool hak_superslab_split(uint32_t number) {
  hak_superslab_t *superslab = &hak_registry.superslabs[number];
  uint32_t used = ~(uint32_t)hak_load_relaxed(&superslab->free_mask), before = HAK_HUGE_BEFORE;
  // Relaxed: who succeeds does it.
  if (used == 0 || !in_range(number) || hak_index_has(HAK_INDEX_COLD, number) ||
      hak_load_relaxed(&superslab->huge) != HAK_HUGE_BEFORE ||
      !hak_cas_relaxed(&superslab->huge, &before, HAK_HUGE_SPLIT))
    return false;
  // Its own word is not to be read. Which of its pages are resident is not known.
  uintptr_t base = hak_registry.base + number * HAK_SUPERSLAB_SIZE;
  hak_os_split_huge_page((void *)base, HAK_SUPERSLAB_SIZE);
  return true;
}

static bool commit(uint32_t number, bool fills) {
  hak_superslab_t *superslab = &hak_registry.superslabs[number];
  void *p;
  bool ranged = in_range(number), is_new = ranged && superslab->base == 0;
  if (ranged) {
    p = (void *)(hak_registry.base + ((uintptr_t)number << HAK_SUPERSLAB_SHIFT));
    if (!hak_os_commit(p, HAK_SUPERSLAB_SIZE)) return false;
    superslab->base = (uintptr_t)p;
  } else {
    // A mapping that had no entry and could not be unmapped either is there still.
    if (!superslab->base)
      superslab->base = (uintptr_t)hak_os_map(HAK_SUPERSLAB_SIZE, HAK_SUPERSLAB_SIZE);
    p = (void *)superslab->base;
    if (!p) return false;
    if (!hak_pagemap_prepare(p)) {
      if (hak_os_unmap(p, HAK_SUPERSLAB_SIZE)) superslab->base = 0;
      return false;
    }
    hak_pagemap_set(p, entry_of(number));
  }
  if (is_new) hak_os_dump(p, HAK_SUPERSLAB_SIZE, true);
  advise(superslab, fills, is_new);
  return true;
}

uint32_t hak_superslab_acquire(bool fills) {
  uint32_t cold = hak_pool_take_cold(), number = cold ? cold : new_number();
  if (!number) return 0;
  if (!commit(number, fills)) {
    hak_pool_add_cold(number);
    return fill_gaps() ? hak_superslab_acquire(fills) : 0;
  }
  hak_mapped_add(&hak_mapped.superslab_bytes, (int64_t)HAK_SUPERSLAB_SIZE);
  return number;
}

// ---------------------------------------------------------------------------
// A limit that is set later.

static _Atomic bool fitting; // a thread is in hak_superslab_fit
#define FIT_TRIES 100

// Where the room for descriptors ends: behind a page that is never committed.
static char *superslabs_end(uint32_t max) {
  char *end = (char *)&hak_registry.superslabs[max] + hak_os_page_size;
  return end < (char *)hak_registry.slabs ? end : (char *)hak_registry.slabs;
}
static char *slabs_end(uint32_t max) {
  return (char *)hak_slab_at(max << HAK_SLABS_SHIFT) + hak_os_page_size;
}

// Refused: it stays mapped, and nobody uses it.
static void give_back(char *start, char *end) {
  if (start < end) (void)hak_os_unmap(start, (size_t)(end - start));
}

static bool take_again(char *start, char *end) {
  if (start >= end) return true;
  if (!hak_os_reserve_at(start, (size_t)(end - start))) return false;
  hak_os_dump(start, (size_t)(end - start), false);
  return true;
}

// Both ends stay above what threads in new_number that read the word before this change may
// raise the limit to, or commit: the next number with its gap, and the step that it is in.
// Threads that read the word later see the new ends.
static void shrink(uint32_t range_end, uint32_t max) {
  uint64_t old = hak_load_acquire(&hak_registry.numbers);
  uint32_t new_end, new_max;
  do {
    uint32_t next = next_in(old), used = next + 1 + HAK_SECURE;
    uint32_t described = (uint32_t)hak_align_down(next, commit_step) + commit_step;
    new_end = (uint32_t)hak_min(hak_max(range_end, used), range_end_in(old));
    new_max = (uint32_t)hak_min(hak_max(max, described), max_in(old));
    // Release: whoever uses a number beyond the new end maps it elsewhere.
  } while (!hak_cas_acq_rel(&hak_registry.numbers, &old, word_of(next_in(old), new_end, new_max)));
  // Without a range both are 0.
  uintptr_t base = hak_registry.base;
  give_back((char *)(base + ((uintptr_t)new_end << HAK_SUPERSLAB_SHIFT)),
            (char *)(base + ((uintptr_t)range_end_in(old) << HAK_SUPERSLAB_SHIFT)));
  give_back(superslabs_end(new_max), superslabs_end(max_in(old)));
  give_back(slabs_end(new_max), slabs_end(max_in(old)));
}

// Adds as many numbers as there is room for at the place where their descriptors must be.
static void grow(uint32_t max) {
  uint64_t word = hak_load_acquire(&hak_registry.numbers);
  uint32_t old = max_in(word);
  max = (uint32_t)hak_min(max, reserved_numbers);
  for (; max > old; max = old + (uint32_t)hak_align_down((max - old) / 2, commit_step)) {
    if (!take_again(superslabs_end(old), superslabs_end(max))) continue;
    if (!take_again(slabs_end(old), slabs_end(max))) {
      give_back(superslabs_end(old), superslabs_end(max));
      continue;
    }
    // Release: pairs with the acquire in new_number; the room is there. Only this thread writes the
    // ends.
    while (!hak_cas_acq_rel(&hak_registry.numbers, &word,
                            word_of(next_in(word), range_end_in(word), max))) {
    }
    return;
  }
}

static _Atomic uint32_t without_place; // relaxed: numbers that nobody uses any more

// Gives back the place in the range of a SuperSlab without memory or of a gap. Its number is
// not used again, as any mapping of the process may lie there at once. If that holds blocks of
// ours, the page table finds them: the descriptors in the range are zeros (kind FREE).
// Relaxed: between this and whoever gets such a mapping is the kernel's work.
static void leave_place(uint32_t number, bool is_gap) {
  _Atomic uint32_t *forgotten = &hak_registry.superslabs[number].forgotten;
  char *place = (char *)hak_registry.base + ((uintptr_t)number << HAK_SUPERSLAB_SHIFT);
  if (is_gap || hak_os_discard(hak_slab_at(number << HAK_SLABS_SHIFT), DESCRIPTORS)) {
    hak_store_relaxed(forgotten, HAK_FORGOTTEN_PLACE);
    if (hak_os_unmap(place, HAK_SUPERSLAB_SIZE)) {
      hak_fetch_add_relaxed(&without_place, 1);
      return;
    }
    hak_store_relaxed(forgotten, HAK_FORGOTTEN);
  }
  if (!is_gap) hak_pool_add_cold(number);
}

static void leave_places(void) {
  uint32_t range_end = range_end_in(hak_load_relaxed(&hak_registry.numbers));
  uint32_t end = hak_superslab_count();
  if (range_end == 0 || hak_os_page_size > DESCRIPTORS) return;
  bool gaps = HAK_SECURE && !hak_exchange_seq_cst(&gaps_filled, true);
  for (uint32_t number = 1; number < end && number < range_end; number++) {
    bool is_gap = gaps && number % 2 == 0 && number < GAPS_END;
    if (is_gap || hak_pool_leave_cold(number)) leave_place(number, is_gap);
  }
}

// With room for descriptors as if the numbers without a place needed none.
static uint32_t numbers_within(size_t limit) {
  size_t numbers = numbers_for(limit) + hak_load_relaxed(&without_place);
  return (uint32_t)hak_align_up(numbers, commit_step);
}

void hak_superslab_fit(size_t limit) {
  hak_store_relaxed(&address_limit, (uint64_t)limit);
  if (reserved_numbers == 0) return;
  // Acquire: pairs with the release below: what one thread maps or unmaps is done for the next.
  for (unsigned tries = 0; hak_exchange_acq_rel(&fitting, true); tries++) {
    if (tries == FIT_TRIES) return;
    hak_os_yield(); // what it gives back may be what the caller was refused
  }
  if (range_for(limit) == 0) leave_places();
  shrink((uint32_t)(range_for(limit) >> HAK_SUPERSLAB_SHIFT), numbers_within(limit));
  // The limit may have changed since the caller read it, and grow would use it up.
  size_t now = hak_os_address_limit();
  hak_store_relaxed(&address_limit, (uint64_t)now);
  grow(numbers_within(hak_min(limit, now)));
  hak_store_release(&fitting, false);
}

uint32_t hak_superslab_wait(unsigned queue, uint32_t number) {
  _Atomic uint32_t *waits = &hak_registry.superslabs[number].waits[queue];
  if (hak_load_relaxed(waits)) return 0;
  hak_store_relaxed(waits, 1u);
  uint32_t place = hak_fetch_add_relaxed(&queues[queue].next, 1) % queue_length[queue];
  uint32_t other = hak_exchange_relaxed(&queues[queue].number[place], number);
  if (other) hak_store_relaxed(&hak_registry.superslabs[other].waits[queue], 0u);
  return other;
}

// The mapping of a cold number may have been unmapped before fork copied its base. If the
// kernel had refused to unmap it, it is lost.
static void forget_mapping(uint32_t number) {
  uintptr_t *base = &hak_registry.superslabs[number].base;
  if (*base == 0) return;
  hak_pagemap_take((void *)*base, entry_of(number));
  *base = 0;
}

void hak_superslab_after_fork(void) {
  hak_store_if_other(&fitting, false);
  uint32_t count = hak_superslab_count();
  for (uint32_t number = 1; number < count; number++) {
    for (unsigned queue = 0; queue < HAK_QUEUES; queue++)
      hak_store_if_other(&hak_registry.superslabs[number].waits[queue], 0u);
    // The kernel had refused to take its place, and the index was copied later. It is lost.
    if (hak_load_relaxed(&hak_registry.superslabs[number].forgotten) == HAK_FORGOTTEN_PLACE)
      hak_pool_leave_cold(number);
    if (!in_range(number) && hak_index_has(HAK_INDEX_COLD, number)) forget_mapping(number);
  }
  for (unsigned queue = 0; queue < HAK_QUEUES; queue++) {
    for (unsigned i = 0; i < queue_length[queue]; i++) {
      uint32_t number = hak_load_relaxed(&queues[queue].number[i]);
      if (number) hak_store_relaxed(&hak_registry.superslabs[number].waits[queue], 1u);
    }
  }
}

// A SuperSlab has given up its memory. Relaxed: who takes a number out of the cold ones holds
// that SuperSlab. The discarded descriptors read as zeros, as those of a number never used.
static void forget_another(uint32_t number) {
  if (hak_os_page_size > DESCRIPTORS) return;
  uint32_t other = hak_superslab_wait(HAK_QUEUE_FORGET, number);
  if (other == 0 || !hak_pool_leave_cold(other)) return; // false: it has memory again
  hak_store_relaxed(&hak_registry.superslabs[other].forgotten, HAK_FORGOTTEN);
  (void)hak_os_discard(hak_slab_at(other << HAK_SLABS_SHIFT), DESCRIPTORS);
  hak_pool_add_cold(other);
}

bool hak_superslab_decommit(uint32_t number) {
  hak_superslab_t *superslab = &hak_registry.superslabs[number];
  void *p = (void *)superslab->base;
  bool dirty = false, went;
  if (in_range(number)) {
    went = hak_os_decommit(p, HAK_SUPERSLAB_SIZE, &dirty);
  } else {
    hak_pagemap_take(p, entry_of(number));
    went = hak_os_unmap(p, HAK_SUPERSLAB_SIZE);
    if (went) {
      superslab->base = 0;
    } else {
      dirty = !hak_os_discard(p, HAK_SUPERSLAB_SIZE);
      hak_pagemap_set(p, entry_of(number));
    }
  }
  if (!dirty) hak_store_relaxed(&superslab->dirty, 0);
  hak_store_relaxed(&superslab->purged, 0u);
  if (!went) return false;
  hak_mapped_add(&hak_mapped.superslab_bytes, -(int64_t)HAK_SUPERSLAB_SIZE);
  hak_pool_add_cold(number);
  forget_another(number);
  return true;
}

hak_slab_t *hak_slab_lookup(const void *p) {
  uintptr_t offset = (uintptr_t)p - hak_registry.base;
  if (offset >> HAK_MIN_SHIFT < hak_load_relaxed(&hak_registry.limit) &&
      hak_load_relaxed(&hak_registry.superslabs[offset >> HAK_SUPERSLAB_SHIFT].forgotten) !=
          HAK_FORGOTTEN_PLACE)
    return &hak_registry.slabs[offset >> HAK_SLAB_SHIFT];
  uint64_t entry = hak_pagemap_get(p);
  if ((entry & 3) != HAK_PAGEMAP_SUPERSLAB) return NULL;
  size_t in_superslab = (uintptr_t)p & (HAK_SUPERSLAB_SIZE - 1);
  return &hak_registry.slabs[((entry >> 2) << HAK_SLABS_SHIFT) + (in_superslab >> HAK_SLAB_SHIFT)];
}
