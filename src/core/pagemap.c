#include "core/pagemap.h"

#include "os/os.h"

_Atomic(hak_pagemap_entry_t *) hak_pagemap_root[1 << HAK_PAGEMAP_ROOT_SHIFT];

static _Atomic size_t leaf_bytes; // statistics only

bool hak_pagemap_prepare(const void *p) {
  uintptr_t unit = (uintptr_t)p >> HAK_SUPERSLAB_SHIFT;
  if (unit >> (HAK_ADDRESS_BITS - HAK_SUPERSLAB_SHIFT)) return false;
  _Atomic(hak_pagemap_entry_t *) *slot = &hak_pagemap_root[unit >> HAK_PAGEMAP_LEAF_SHIFT];
  if (hak_load_acquire(slot)) return true;
  size_t size = sizeof(hak_pagemap_entry_t) << HAK_PAGEMAP_LEAF_SHIFT;
  hak_pagemap_entry_t *leaf = hak_os_map(size, hak_os_page_size), *none = NULL;
  if (!leaf) return false;
  // Release: pairs with the acquire in hak_pagemap_entry; the leaf is zero.
  if (hak_cas_acq_rel(slot, &none, leaf)) hak_fetch_add_relaxed(&leaf_bytes, size);
  else hak_os_unmap(leaf, size); // another thread installed one
  return true;
}

void hak_pagemap_set(const void *p, uint64_t value) {
  // Release: a thread that reads this entry sees all that was prepared for the mapping.
  hak_store_release(hak_pagemap_entry(p), value);
}

bool hak_pagemap_take(const void *p, uint64_t expected) {
  hak_pagemap_entry_t *entry = hak_pagemap_entry(p);
  // Acquire: the thread that takes it sees all that was done to the mapping before set.
  // Release: a later set of the same unit is ordered after this.
  return entry && hak_cas_acq_rel(entry, &expected, (uint64_t)0);
}

size_t hak_pagemap_bytes(void) { return hak_load_relaxed(&leaf_bytes); }
