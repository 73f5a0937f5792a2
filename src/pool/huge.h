// huge.h: blocks above 1 MiB (or aligned to more than that, or shrunk from that size, or above
// 56 KiB where there is no memory for a SuperSlab): each is a 2 MiB-aligned mapping, described by
// its pagemap entry alone. Mappings of freed blocks are kept for a while (pool/huge_cache.h).
//
// Any thread may call anything. Tests: test/unit/test_huge.c.

#ifndef HAK_POOL_HUGE_H
#define HAK_POOL_HUGE_H

#include "base/types.h"
#include "core/pagemap.h"

// alignment is a power of two. zero: the block's first size bytes read as zero, and none of it is
// resident unless such blocks are used in full. Otherwise it holds what an earlier block left
// there, as bytes beyond size always may. NULL: out of memory.
void *hak_huge_alloc(size_t size, size_t alignment, bool zero);
// Usable bytes of the huge block that starts at p; 0 if there is none.
size_t hak_huge_usable(const void *p);
// Frees the huge block at p; false if none starts there (any more).
bool hak_huge_free(void *p);
// Makes the block at least size bytes long and returns its new address; moves it without
// copying if it must. NULL: not possible, the block is unchanged. size > 0.
void *hak_huge_resize(void *p, size_t size);
// Start of the huge block that p points into; NULL if none. Slow, for messages.
void *hak_huge_around(const void *p);

// Live blocks, and how often one was advised to have huge pages, for statistics.
uint64_t hak_huge_count(void);
uint64_t hak_huge_advised(void);

#endif
