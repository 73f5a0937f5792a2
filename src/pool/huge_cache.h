// huge_cache.h: mappings of freed huge blocks, kept for the next ones.
//
// Owns at most HAKMEM_HUGE_CACHE bytes in a few places, for any thread. It learns how much
// may stay (docs/decisions/0021-huge-cache.md): it is a regret if a mapping is needed soon
// after one like it went back to the system. A mapping that nobody took for a second goes
// back at the next tending. The cache never holds a block of the program: a mapping enters
// and leaves it without an entry in the pagemap. Protocol C1 (docs/concurrency.md).
// Tests: test/unit/test_huge_cache.c, test/model/huge_cache.pml.

#ifndef HAK_POOL_HUGE_CACHE_H
#define HAK_POOL_HUGE_CACHE_H

#include "base/types.h"

// Keeps a mapping that is 2 MiB-aligned and belongs to the caller alone, joined with kept mappings
// next to it, or unmaps it. since: when it was last used in full (ms), if it is a part of one that
// was taken; 0: now.
void hak_huge_cache_put(void *p, size_t size, uint64_t since);
// Takes a kept mapping for the caller, *have bytes long, contents not zero: the shortest of at
// least size bytes, else the longest that is worth growing. *since: when it was put. NULL: there is
// none.
void *hak_huge_cache_take(size_t size, size_t *have, uint64_t *since);

// Unmaps a writable mapping that belongs to the caller alone. The kernel refuses when it has
// no room to split a mapping: then at least the memory goes back now, and the address space
// at a later tending or trim.
void hak_huge_cache_unmap(void *p, size_t size);
// Takes one of at least size bytes that was refused so, likewise, where memory is short.
HAK_COLD void *hak_huge_cache_take_refused(size_t size, size_t *have);

// For a request that was refused after a trim: waits a moment if other threads are about to keep or
// unmap mappings. False: there are none, or it has tried often enough.
HAK_COLD bool hak_huge_cache_await(unsigned tries);

// To be called after the sum of all huge blocks has risen (relaxed).
void hak_huge_cache_used(void);

// Up to how many bytes of huge blocks count as few: 16 MiB, or the amount that a load has shown it
// needs again and again if that is more; 0 where no mapping is ever kept (relaxed).
uint64_t hak_huge_cache_room(void);

// Gives kept mappings back to the system until at most keep bytes are left; returns bytes given.
size_t hak_huge_cache_trim(size_t keep);
// Whether the kernel, which has just refused size bytes, might grant them if all memory kept here
// and in SuperSlabs went back to it.
bool hak_huge_cache_may_serve(size_t size);
// Gives back mappings that nobody took for a second. To be called about once a second.
void hak_huge_cache_tend(void);
// Called after fork in the child, single-threaded.
void hak_huge_cache_after_fork(void);

#endif
