// shared_pool.h: the process-wide source of slabs: lock-free claims on the
// SuperSlabs' free masks, and the index that finds a SuperSlab worth trying
// without looking at full ones.
//
// The free mask is the truth (protocol P1): a set bit is a free slab, and the
// thread whose compare-and-swap clears it owns the slab. The index is a hint
// kept right by re-reading the mask after every update (protocol P2).
// Tests: test/unit/test_shared_pool.c, test/model/pool.pml.

#ifndef HAK_SUPERSLAB_SHARED_POOL_H
#define HAK_SUPERSLAB_SHARED_POOL_H

#include "base/types.h"

// Where a claim was served from.
typedef enum { HAK_FROM_POOL, HAK_FROM_REUSE, HAK_FROM_MAP } hak_source_t;

// n (1..16) neighbouring slabs that now belong to the caller: descriptor of the
// first. Its zeroed says that the memory reads as zero. NULL: out of memory.
hak_slab_t *hak_pool_acquire(unsigned n, hak_source_t *source);
// Gives them back; kind must be FREE already. What it did is told by the result.
typedef enum { HAK_RELEASED, HAK_RELEASED_EMPTY, HAK_RELEASED_EVICTED } hak_released_t;
hak_released_t hak_pool_release(hak_slab_t *slab, unsigned n);

// Give empty SuperSlabs beyond keep back to the system; number of them.
unsigned hak_pool_trim(unsigned keep);

// SuperSlabs without memory, by number (superslab.c). take gives 0 if there is none.
void hak_pool_add_cold(uint32_t number);
uint32_t hak_pool_take_cold(void);

// After fork in the child, single-threaded: the index again from the masks.
void hak_pool_rebuild(void);

#endif
