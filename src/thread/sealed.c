// sealed.c: the parts of front.h that the secure library keeps out of line.

#include "superslab/seal.h"

#include "pool/huge.h"
#include "pool/l25.h"
#include "thread/front.h"
#include "thread/guard.h"

#if HAK_SECURE

void *hak_front_pop(hak_slab_t *slab) {
  void *block = slab->free, *next;
  uint64_t key = hak_seal_key(block);
  // Empty the list before reporting: a SIGABRT handler may allocate and must not find the block.
  if (HAK_UNLIKELY(!hak_link_read(block, key, &next))) {
    slab->free = NULL;
    next = hak_link_broken(block);
  }
  hak_front_popped(slab, next);
  hak_seal_check_free(block, slab->size, key);
  return block;
}

void *hak_front_pop_for(hak_slab_t *slab, size_t size) {
  void *block = hak_front_pop(slab);
  hak_seal_new(block, slab->size, size, hak_seal_key(block));
  return block;
}

void *hak_front_pop_hint(hak_ring_t *ring) {
  size_t size = ring->size - HAK_TAIL;
  void *block = hak_front_pop_hint_for(ring, size, false);
  if (HAK_LIKELY(block)) return block;
  uint32_t hint = ring->hint[ring->count - 1];
  block = hak_hint_slab(hint)->first + (size_t)hak_hint_number(hint) * ring->size;
  hak_seal_carved(block, ring->size, hak_seal_key(block));
  // Taken before the report: see hak_front_pop.
  block = hak_front_pop_hint_for(ring, size, false);
  hak_misuse_written(block, size);
  return block;
}

void *hak_front_sealed(void *p, size_t size) {
  if (p && hak_guard_owns(p)) hak_guard_cut(p, size);
  else if (p) hak_seal_resize(p, hak_front_place(p), size);
  return p;
}

size_t hak_front_place(const void *p) {
  hak_slab_t *slab = hak_slab_lookup(p);
  if (!slab) return hak_huge_usable(p);
  if (hak_slab_kind(slab) == HAK_KIND_INTERIOR) slab -= slab->offset;
  return hak_slab_kind(slab) == HAK_KIND_L25 ? hak_l25_usable(slab) : slab->size;
}

bool hak_front_find_sealed(const void *p, hak_block_t *block) {
  hak_slab_t *slab;
  if (!hak_range_find(p, &slab)) return false;
  slab -= slab->offset; // 0 in a head; any number in a free slab
  hak_kind_t kind = hak_slab_kind(slab);
  size_t place = slab->size;
  if ((kind != HAK_KIND_TINY && kind != HAK_KIND_L2) ||
      (size_t)((const char *)p - slab->start) + place > slab->capacity * place)
    return false;
  *block = (hak_block_t){.kind = kind, .slab = slab, .place = place};
  uint64_t slack = hak_seal_slack(hak_seal_read(p, place));
  if (!hak_seal_is_whole(p, place, slack, &block->usable)) return false;
  (void)hak_slab_block(slab, p, &block->number);
  return true;
}

#endif
