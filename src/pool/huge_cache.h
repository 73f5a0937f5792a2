// huge_cache.h: mappings of freed huge blocks, kept for the next ones.
//
// Owns at most HAKMEM_HUGE_CACHE bytes in a few places, for any thread. What may stay is
// learnt (docs/decisions/0021-huge-cache.md): a mapping that is needed soon after one
// like it went back to the system is a regret. What nobody took for a second goes back
// at the next tending. Never holds a block of the program's: a mapping comes in without
// an entry in the pagemap and leaves without one. Protocol C1 (docs/concurrency.md).
// Tests: test/unit/test_huge_cache.c, test/model/huge_cache.pml.

#ifndef HAK_POOL_HUGE_CACHE_H
#define HAK_POOL_HUGE_CACHE_H

#include "base/types.h"

// Keeps a mapping that is 2 MiB-aligned and nobody's but the caller's, as one with those beside it that
// are kept, or unmaps it.
void hak_huge_cache_put(void *p, size_t size);
// A kept mapping that is the caller's now, *have bytes long, not zero: the shortest of at
// least size bytes, else the longest that is worth growing. NULL: there is none.
void *hak_huge_cache_take(size_t size, size_t *have);

// Unmaps a mapping that may be written and is nobody's but the caller's. The kernel refuses
// when it has no room to split one: then at least the memory goes back, and the address
// space does at a later tending or trim.
void hak_huge_cache_unmap(void *p, size_t size);

// To be called after the sum of all huge blocks has risen (relaxed).
void hak_huge_cache_used(void);

// So many bytes of huge blocks are few: 16 MiB, or what a load has shown that it needs again and
// again if that is more; 0 where none is ever kept (relaxed).
uint64_t hak_huge_cache_room(void);

// Gives kept mappings back to the system until at most keep bytes are left; those given.
size_t hak_huge_cache_trim(size_t keep);
// Whether size bytes that the kernel has just refused might be had if all that is kept, here and in
// SuperSlabs, went back to it.
bool hak_huge_cache_may_serve(size_t size);
// Gives back what nobody took for a second. To be called about once a second.
void hak_huge_cache_tend(void);
// After fork in the child, single-threaded.
void hak_huge_cache_after_fork(void);

// Mappings that left it, for statistics (relaxed): for a block, to the system.
typedef struct {
  hak_word_t reuse, evict;
} hak_huge_cache_counts_t;
HAK_INTERNAL extern hak_huge_cache_counts_t hak_huge_cache_counts;

#endif
