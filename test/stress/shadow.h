// shadow.h: records outside the tested allocator which bytes are in live blocks: one bit per
// 16 bytes of address space, in mappings made as needed. Two blocks that overlap need the same
// bit.

#ifndef TEST_STRESS_SHADOW_H
#define TEST_STRESS_SHADOW_H

#include <stdatomic.h>
#include <sys/mman.h>

#include "names.h"

enum { REGION_SHIFT = 21, UNIT_SHIFT = 4, UNITS = 1 << (REGION_SHIFT - UNIT_SHIFT) };
#define REGIONS ((size_t)1 << (47 - REGION_SHIFT))

typedef struct {
  _Atomic uint64_t words[UNITS / 64];
} region_t;

static _Atomic(region_t *) *regions;

static inline void *mapped(size_t size) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

static inline void shadow_init(void) { regions = mapped(REGIONS * sizeof *regions); }

static inline region_t *region_of(uintptr_t address) {
  CHECK(address >> REGION_SHIFT < REGIONS);
  _Atomic(region_t *) *at = &regions[address >> REGION_SHIFT];
  region_t *region = atomic_load(at);
  if (region) return region;
  region_t *fresh = mapped(sizeof *fresh);
  if (atomic_compare_exchange_strong(at, &region, fresh)) return fresh;
  munmap(fresh, sizeof *fresh);
  return region;
}

// Marks the units of [p, p + size) as taken or as free; each unit must have been in the other
// state before.
static inline void shadow_set(const void *p, size_t size, bool taken) {
  uintptr_t unit = (uintptr_t)p >> UNIT_SHIFT, end = ((uintptr_t)p + size + 15) >> UNIT_SHIFT;
  if (size == 0) end = unit + 1;
  while (unit < end) {
    region_t *region = region_of(unit << UNIT_SHIFT);
    unsigned bit = unit % 64;
    size_t n = end - unit < 64 - bit ? end - unit : 64 - bit;
    uint64_t mask = (n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1) << bit;
    _Atomic uint64_t *word = &region->words[unit % UNITS / 64];
    uint64_t before = taken ? atomic_fetch_or(word, mask) : atomic_fetch_and(word, ~mask);
    if (taken) CHECK((before & mask) == 0 /* blocks do not overlap */);
    else CHECK((before & mask) == mask /* the block was live */);
    unit += n;
  }
}

#endif
