// l25.h: blocks above 56 KiB and up to 1 MiB: a run of slabs each, one block.
//
// No owner: any thread allocates and frees through the shared pool. A block has the
// OS pages that its request needs; the rest of its last slab is never touched. What
// its last page has left over lies in front of it (HAK_COLOUR), then behind it.
// Tests: test/unit/test_l25.c.

#ifndef HAK_POOL_L25_H
#define HAK_POOL_L25_H

#include "superslab/shared_pool.h"
#include "superslab/slab.h"

#define HAK_L25_GRAIN ((size_t)4096)

// size 1..HAK_L25_MAX; alignment: a power of two up to HAK_L25_MAX, above 1 it counts as 64 KiB at
// least, as it does if size is a multiple of 4 KiB. NULL: out of memory.
void *hak_l25_alloc(size_t size, size_t alignment, bool *zeroed);
// A free in two steps. Claim: the run is nobody's but the caller's from here on;
// false if another thread has freed it meanwhile. Then either release it, or take it
// apart: its slabs, whose number that gives, are the caller's to make blocks of.
bool hak_l25_claim(hak_slab_t *head);
void hak_l25_release(hak_slab_t *head);
unsigned hak_l25_take_apart(hak_slab_t *head);
// A block of neighbouring slabs that are the caller's; contents are what they were.
// aligned: it starts where they do, as it does if size is a multiple of 4 KiB.
void *hak_l25_make(hak_slab_t *head, size_t size, bool aligned);
// Slabs of a block of that size, at most HAK_L25_MAX.
HAK_INLINE unsigned hak_l25_slabs(size_t size) {
  return (unsigned)((size + HAK_SLAB_SIZE - 1) >> HAK_SLAB_SHIFT);
}
// Gives slabs at the end of the run back, or takes those behind it; false if these are in use or
// would be of another SuperSlab, or the block too long.
bool hak_l25_resize(hak_slab_t *head, size_t size);

// Bytes that a request for size bytes gets in the block's place.
HAK_INLINE size_t hak_l25_rounded(const hak_slab_t *head, size_t size) {
  size_t gap = hak_slab_gap(head);
  return hak_align_up(gap + size, HAK_L25_GRAIN) - gap;
}
HAK_INLINE size_t hak_l25_usable(hak_slab_t *head) { return hak_load_relaxed(&head->bytes); }

#endif
