#include "superslab/superslab.h"

#include "core/options.h"
#include "core/pressure.h"
#include "os/os.h"
#include "superslab/shared_pool.h"

hak_registry_t hak_registry;
hak_mapped_t hak_mapped;

static uint32_t range_end;   // numbers below lie in the range
static uint32_t max_numbers; // numbers below may be used

// Guard gaps (secure library): every second number in the range stays without memory, so
// that a write beyond a SuperSlab faults; the last is GAPS_END - 2. Each gap costs the kernel
// two mappings, hence only so many; and where it has no room for another mapping, all gaps are
// filled.
#define GAPS_END (2u * 8192)
static _Atomic bool gaps_filled;

static uint32_t commit_step; // numbers per commit of descriptors

// What became of a block is in its slab's descriptor, for messages. So the last SuperSlabs that
// gave up their memory keep their descriptors; those of the others, a page each, go back as well.
#define QUEUE_MAX 8
static const uint8_t queue_length[HAK_QUEUES] = {
    [HAK_QUEUE_PURGE] = 4, [HAK_QUEUE_FORGET] = QUEUE_MAX};
static struct {
  _Atomic uint32_t next, number[QUEUE_MAX];
} queues[HAK_QUEUES];

#define RANGE_SIZE_MIN ((size_t)64 << 20)
#define NUMBERS_MIN 32u

void hak_mapped_add(_Atomic uint64_t *which, int64_t bytes) {
  // Relaxed: figures for people; nothing is ordered by them.
  hak_fetch_add_relaxed(which, (uint64_t)bytes);
  uint64_t now = hak_fetch_add_relaxed(&hak_mapped.mapped, (uint64_t)bytes) + (uint64_t)bytes;
  uint64_t peak = hak_load_relaxed(&hak_mapped.peak);
  while ((int64_t)(now - peak) > 0 && !hak_cas_relaxed(&hak_mapped.peak, &peak, now)) {
  }
}

bool hak_mapped_near_limit(void) {
  return hak_load_relaxed(&hak_mapped.mapped) >= hak_memory_limit - hak_memory_limit / 8;
}

static void reserve_range(size_t size) {
  for (; size >= RANGE_SIZE_MIN; size /= 2) {
    size = hak_align_down(size, HAK_SUPERSLAB_SIZE);
    void *p = hak_os_reserve(size, HAK_SUPERSLAB_SIZE);
    if (!p) continue;
    hak_registry.base = (uintptr_t)p;
    range_end = (uint32_t)(size >> HAK_SUPERSLAB_SHIFT);
    hak_os_huge_pages(p, size, false); // once for all: see advise
    return;
  }
}

static bool reserve_descriptors(size_t numbers) {
  if (numbers < NUMBERS_MIN) numbers = NUMBERS_MIN;
  for (numbers = hak_align_up(numbers, commit_step); numbers >= commit_step;
       numbers = hak_align_down(numbers / 2, commit_step)) {
    size_t size =
        numbers * (sizeof(hak_superslab_t) + HAK_SLABS_PER_SUPERSLAB * sizeof(hak_slab_t));
    // A page that is never committed on either side.
    char *p = hak_os_reserve(size + 2 * hak_os_page_size, hak_os_page_size);
    if (!p) continue;
    p += hak_os_page_size;
    hak_registry.superslabs = (hak_superslab_t *)p;
    hak_registry.slabs = (hak_slab_t *)(p + numbers * sizeof(hak_superslab_t));
    max_numbers = (uint32_t)numbers;
    if (range_end > numbers) range_end = (uint32_t)numbers;
    return true;
  }
  return false;
}

void hak_superslab_init(void) {
  commit_step = (uint32_t)(hak_os_page_size / sizeof(hak_superslab_t));
  size_t limit = hak_os_address_limit();
  uint64_t kind = hak_option(SS_LOOKUP_KIND);
  size_t numbers = HAK_SUPERSLABS_MAX;
  size_t range = hak_option(RANGE_SIZE);
  if (limit != SIZE_MAX) {
    // Address space is rationed: a reservation would be charged in full.
    if (numbers > limit >> HAK_SUPERSLAB_SHIFT) numbers = limit >> HAK_SUPERSLAB_SHIFT;
    if (kind == HAK_LOOKUP_AUTO) kind = HAK_LOOKUP_TABLE;
    if (range > limit / 4) range = limit / 4;
  }
  if (kind != HAK_LOOKUP_TABLE) reserve_range(range);
  reserve_descriptors(numbers); // refused: no memory, every request is ENOMEM
  hak_store_relaxed(&hak_registry.next_number, 1);
}

// Makes descriptors for at least one more number; false if refused.
static bool commit_descriptors(uint32_t first) {
  uint32_t last = first + commit_step;
  if (last > max_numbers) return false;
  // Racing threads commit the same step: the calls are idempotent.
  size_t superslabs = commit_step * sizeof(hak_superslab_t);
  size_t slabs = commit_step * HAK_SLABS_PER_SUPERSLAB * sizeof(hak_slab_t);
  if (!hak_os_commit(&hak_registry.superslabs[first], superslabs) ||
      !hak_os_commit(&hak_registry.slabs[first << HAK_SLABS_SHIFT], slabs))
    return false;
  uint32_t in_range = last < range_end ? last : range_end;
  uint64_t limit = (uint64_t)in_range << (HAK_SUPERSLAB_SHIFT - HAK_MIN_SHIFT);
  uint64_t old = hak_load_relaxed(&hak_registry.limit);
  // Before committed_numbers: whoever gets a number from there finds its blocks
  // (model registry). Relaxed: ordered by the release below, and between threads of
  // the program by what hands the pointer over.
  while (old < limit && !hak_cas_relaxed(&hak_registry.limit, &old, limit)) {
  }
  if (hak_cas_acq_rel(&hak_registry.committed_numbers, &first, last))
    hak_mapped_add(&hak_mapped.metadata_bytes, (int64_t)(superslabs + slabs));
  return true;
}

static bool gap_before(uint32_t next) {
  return HAK_SECURE && next <= GAPS_END && next <= range_end && !hak_load_relaxed(&gaps_filled);
}

// Gives the gaps' numbers to whoever wants memory; false: they had been already. Of numbers
// that are taken after the first look some have a gap, which stays, and some have none.
static bool fill_gaps(void) {
  uint32_t end = hak_superslab_count();
  if (!HAK_SECURE || hak_exchange_seq_cst(&gaps_filled, true)) return false;
  for (uint32_t number = 2; number < end && number < GAPS_END && number < range_end; number += 2)
    hak_pool_add_cold(number);
  return true;
}

static uint32_t new_number(void) {
  uint32_t number = hak_load_acquire(&hak_registry.next_number);
  for (;;) {
    // Acquire: pairs with the release in commit_descriptors; the memory is usable.
    uint32_t committed = hak_load_acquire(&hak_registry.committed_numbers);
    if (number >= committed) {
      if (!commit_descriptors(committed)) return 0;
      number = hak_load_acquire(&hak_registry.next_number);
    } else if (hak_cas_acq_rel(&hak_registry.next_number, &number,
                               number + 1 + gap_before(number + 2))) {
      return number;
    }
  }
}

// Where huge pages are always on, an unwanted one would cost 2 MiB at the first touch. A new number
// of the range is without them from the start; one that had memory before may be of either kind.
static void advise(hak_superslab_t *superslab, bool fills, bool is_without) {
  uint64_t thp = hak_option(THP);
  bool on =
      thp == HAK_THP_ALWAYS || (thp == HAK_THP_AUTO && fills &&
                                hak_load_relaxed(&hak_mapped.superslab_bytes) >= HAK_THP_MIN_BYTES);
  // Relaxed: the SuperSlab is still this thread's.
  hak_store_relaxed(&superslab->huge, on ? HAK_HUGE_ADVISED : HAK_HUGE_NO);
  if (on) hak_fetch_add_relaxed(&hak_pool_counts.huge, 1);
  if (on || !is_without) hak_os_huge_pages((void *)superslab->base, HAK_SUPERSLAB_SIZE, on);
}

static bool commit(uint32_t number, bool fills, bool is_new) {
  hak_superslab_t *superslab = &hak_registry.superslabs[number];
  void *p;
  if (number < range_end) {
    p = (void *)(hak_registry.base + ((uintptr_t)number << HAK_SUPERSLAB_SHIFT));
    // One that could not be decommitted is committed still.
    if (!hak_load_relaxed(&superslab->committed) && !hak_os_commit(p, HAK_SUPERSLAB_SIZE))
      return false;
    superslab->base = (uintptr_t)p;
  } else if (!superslab->base) {
    p = hak_os_map(HAK_SUPERSLAB_SIZE, HAK_SUPERSLAB_SIZE);
    if (!p) return false;
    if (!hak_pagemap_prepare(p)) {
      hak_os_unmap(p, HAK_SUPERSLAB_SIZE);
      return false;
    }
    superslab->base = (uintptr_t)p;
    hak_pagemap_set(p, (uint64_t)number << 2 | HAK_PAGEMAP_SUPERSLAB);
  }
  hak_store_relaxed(&superslab->committed, 1);
  advise(superslab, fills, is_new && number < range_end);
  return true;
}

uint32_t hak_superslab_acquire(bool fills) {
  uint32_t cold = hak_pool_take_cold(), number = cold ? cold : new_number();
  if (!number) return 0;
  if (!commit(number, fills, !cold)) {
    hak_pool_add_cold(number);
    return fill_gaps() ? hak_superslab_acquire(fills) : 0;
  }
  hak_mapped_add(&hak_mapped.superslab_bytes, (int64_t)HAK_SUPERSLAB_SIZE);
  return number;
}

uint32_t hak_superslab_wait(unsigned queue, uint32_t number) {
  _Atomic uint32_t *waits = &hak_registry.superslabs[number].waits[queue];
  if (hak_load_relaxed(waits)) return 0;
  hak_store_relaxed(waits, 1u);
  uint32_t place = hak_fetch_add_relaxed(&queues[queue].next, 1) % queue_length[queue];
  uint32_t other =
      atomic_exchange_explicit(&queues[queue].number[place], number, memory_order_relaxed);
  if (other) hak_store_relaxed(&hak_registry.superslabs[other].waits[queue], 0u);
  return other;
}

void hak_superslab_rebuild_queues(void) {
  uint32_t count = hak_superslab_count();
  for (uint32_t number = 1; number < count; number++)
    for (unsigned queue = 0; queue < HAK_QUEUES; queue++)
      hak_store_relaxed(&hak_registry.superslabs[number].waits[queue], 0u);
  for (unsigned queue = 0; queue < HAK_QUEUES; queue++) {
    for (unsigned i = 0; i < queue_length[queue]; i++) {
      uint32_t number = hak_load_relaxed(&queues[queue].number[i]);
      if (number) hak_store_relaxed(&hak_registry.superslabs[number].waits[queue], 1u);
    }
  }
}

// A SuperSlab is without memory. Relaxed: who takes a number out of the cold ones holds that
// SuperSlab. What is left of its descriptors are zeros, as of one that was never used.
static void forget_another(uint32_t number) {
  const size_t size = HAK_SLABS_PER_SUPERSLAB * sizeof(hak_slab_t);
  if (hak_os_page_size > size) return;
  uint32_t other = hak_superslab_wait(HAK_QUEUE_FORGET, number);
  if (other == 0 || !hak_pool_leave_cold(other)) return; // or it has memory again
  hak_store_relaxed(&hak_registry.superslabs[other].forgotten, 1u);
  (void)hak_os_discard(hak_slab_at(other << HAK_SLABS_SHIFT), size);
  hak_pool_add_cold(other);
}

void hak_superslab_decommit(uint32_t number) {
  hak_superslab_t *superslab = &hak_registry.superslabs[number];
  void *p = (void *)superslab->base;
  bool dirty = false;
  if (number < range_end) {
    hak_store_relaxed(&superslab->committed, !hak_os_decommit(p, HAK_SUPERSLAB_SIZE, &dirty));
  } else {
    hak_pagemap_take(p, (uint64_t)number << 2 | HAK_PAGEMAP_SUPERSLAB);
    if (hak_os_unmap(p, HAK_SUPERSLAB_SIZE)) {
      superslab->base = 0;
    } else {
      dirty = !hak_os_discard(p, HAK_SUPERSLAB_SIZE);
      hak_pagemap_set(p, (uint64_t)number << 2 | HAK_PAGEMAP_SUPERSLAB);
    }
  }
  if (!dirty) hak_store_relaxed(&superslab->dirty, 0);
  hak_mapped_add(&hak_mapped.superslab_bytes, -(int64_t)HAK_SUPERSLAB_SIZE);
  hak_pool_add_cold(number);
  forget_another(number);
}

hak_slab_t *hak_slab_lookup(const void *p) {
  uintptr_t offset = (uintptr_t)p - hak_registry.base;
  if (offset >> HAK_MIN_SHIFT < hak_load_relaxed(&hak_registry.limit))
    return &hak_registry.slabs[offset >> HAK_SLAB_SHIFT];
  uint64_t entry = hak_pagemap_get(p);
  if ((entry & 3) != HAK_PAGEMAP_SUPERSLAB) return NULL;
  size_t in_superslab = (uintptr_t)p & (HAK_SUPERSLAB_SIZE - 1);
  return &hak_registry.slabs[((entry >> 2) << HAK_SLABS_SHIFT) + (in_superslab >> HAK_SLAB_SHIFT)];
}
