// pagemap.h: two-level table that maps 2 MiB units of address space to what lies
// there. It covers what the reserved range does not: SuperSlabs when the table
// lookup is chosen or the range is refused or used up, and huge blocks (first
// unit only).
//
// One atomic word per unit:   0            nothing of HAKMEM
//                             id << 2 | 1  SuperSlab number id
//                             n << 2 | 2   huge block of n * 4 KiB that starts here; bit 63:
//                                          it was advised to have huge pages; bit 62: its
//                                          mapping extends to the next multiple of 2 MiB, or,
//                                          in the secure library, has no guard page behind it
// Protocol G1 (docs/concurrency.md): hak_pagemap_set publishes with release before
// the first block pointer leaves malloc; the thread that takes an entry
// (hak_pagemap_take) owns the mapping.

#ifndef HAK_CORE_PAGEMAP_H
#define HAK_CORE_PAGEMAP_H

#include "base/atomic.h"
#include "base/config.h"

#define HAK_PAGEMAP_LEAF_SHIFT 14
#define HAK_PAGEMAP_ROOT_SHIFT (HAK_ADDRESS_BITS - HAK_SUPERSLAB_SHIFT - HAK_PAGEMAP_LEAF_SHIFT)
#define HAK_PAGEMAP_SUPERSLAB 1u
#define HAK_PAGEMAP_HUGE 2u
#define HAK_PAGEMAP_ADVISED ((uint64_t)1 << 63)
#define HAK_PAGEMAP_TOUCHES ((uint64_t)1 << 62)

typedef _Atomic uint64_t hak_pagemap_entry_t;
HAK_INTERNAL extern _Atomic(hak_pagemap_entry_t *) hak_pagemap_root[1 << HAK_PAGEMAP_ROOT_SHIFT];

// The entry that covers address p; NULL if HAKMEM never had memory near it.
HAK_INLINE hak_pagemap_entry_t *hak_pagemap_entry(const void *p) {
  uintptr_t unit = (uintptr_t)p >> HAK_SUPERSLAB_SHIFT;
  if (unit >> (HAK_ADDRESS_BITS - HAK_SUPERSLAB_SHIFT)) return NULL;
  // Acquire: pairs with the release that installs the (zeroed) leaf.
  hak_pagemap_entry_t *leaf = hak_load_acquire(&hak_pagemap_root[unit >> HAK_PAGEMAP_LEAF_SHIFT]);
  return leaf ? &leaf[unit & ((1u << HAK_PAGEMAP_LEAF_SHIFT) - 1)] : NULL;
}

HAK_INLINE uint64_t hak_pagemap_get(const void *p) {
  hak_pagemap_entry_t *entry = hak_pagemap_entry(p);
  // Acquire: pairs with the release in hak_pagemap_set.
  return entry ? hak_load_acquire(entry) : 0;
}

// Makes sure that p's entry exists; false if memory for the leaf is refused.
bool hak_pagemap_prepare(const void *p);
// Sets p's entry, which must exist.
void hak_pagemap_set(const void *p, uint64_t value);
// Clears the entry if it still equals expected; true for exactly one caller.
bool hak_pagemap_take(const void *p, uint64_t expected);
// Bytes of leaves mapped so far.
size_t hak_pagemap_bytes(void);

#endif
