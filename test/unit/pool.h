// pool.h: slabs for tests, by the way that a refill takes.

#ifndef TEST_UNIT_POOL_H
#define TEST_UNIT_POOL_H

#include "superslab/shared_pool.h"

// n neighbouring slabs; NULL if out of memory.
static inline hak_slab_t *pool_acquire(unsigned n, hak_source_t *source) {
  hak_claim_t claim = {.source = HAK_FROM_MAP};
  bool got = hak_pool_find(n, 0, &claim) || hak_pool_map(n, 0, true, &claim);
  *source = claim.source;
  if (!got) return NULL;
  return claim.slab;
}

#endif
