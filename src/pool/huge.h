// huge.h: blocks above 1 MiB (or aligned to more than that, or shrunk from there): a mapping each,
// 2 MiB-aligned, described by its pagemap entry alone. Mappings of freed blocks are kept
// for a while (pool/huge_cache.h).
//
// Any thread may call anything. Tests: test/unit/test_huge.c.

#ifndef HAK_POOL_HUGE_H
#define HAK_POOL_HUGE_H

#include "base/types.h"
#include "core/pagemap.h"

// alignment is a power of two. zero: size bytes of it read as zero, and nothing of it is resident
// unless such blocks are used in full; else it holds what another left in it, as may what it has
// over. NULL: out of memory.
void *hak_huge_alloc(size_t size, size_t alignment, bool zero);
// Usable bytes of the huge block that starts at p, 0 if none does.
size_t hak_huge_usable(const void *p);
// False if no huge block starts at p (any more).
bool hak_huge_free(void *p);
// New address of the block with at least size bytes, moved without copying where
// it has to; NULL: cannot, the block is as it was. size > 0.
void *hak_huge_resize(void *p, size_t size);
// Start of the huge block that p points into; NULL if none. Slow, for messages.
void *hak_huge_around(const void *p);

// Blocks alive, and times one was advised to be huge pages, for statistics.
uint64_t hak_huge_count(void);
uint64_t hak_huge_advised(void);

#endif
