// l25.h: blocks above 56 KiB and up to 1 MiB: each is a run of slabs with one block. Where memory
// is short, a smaller request may get a slab as such a block (thread/scarce.h).
//
// No owner: any thread allocates and frees through the shared pool. A block has the
// OS pages that its request needs; the rest of its last slab is never touched. The
// leftover of its last page lies in front of the block (HAK_COLOUR), then behind it.
// Tests: test/unit/test_l25.c.

#ifndef HAK_POOL_L25_H
#define HAK_POOL_L25_H

#include "superslab/shared_pool.h"
#include "superslab/slab.h"

#define HAK_L25_GRAIN ((size_t)4096)

// size: 1..HAK_L25_MAX. alignment: a power of two up to HAK_L25_MAX; above 1 it counts as at least
// 64 KiB, which is also the alignment if size is a multiple of 4 KiB. NULL: out of memory.
void *hak_l25_alloc(size_t size, size_t alignment, bool *zeroed);
// A free in two steps. Claim: from then on the run belongs to the caller alone; false
// if another thread has freed it meanwhile. Then either release it, or take it apart,
// which returns the number of its slabs: the caller may make blocks of these.
bool hak_l25_claim(hak_slab_t *head);
void hak_l25_release(hak_slab_t *head);
unsigned hak_l25_take_apart(hak_slab_t *head);
// Makes a block of neighbouring slabs that belong to the caller; contents stay. aligned: the
// block starts where the slabs do, as it also does if size is a multiple of 4 KiB.
void *hak_l25_make(hak_slab_t *head, size_t size, bool aligned);
// Number of slabs of a block of size bytes, at most HAK_L25_MAX.
HAK_INLINE unsigned hak_l25_slabs(size_t size) {
  return (unsigned)((size + HAK_SLAB_SIZE - 1) >> HAK_SLAB_SHIFT);
}
// Gives back slabs at the end of the run, or takes those behind it; false if these are in use or
// would lie in another SuperSlab, or the block would be too long.
bool hak_l25_resize(hak_slab_t *head, size_t size);

// Bytes that a request for size bytes gets in this block's run.
HAK_INLINE size_t hak_l25_rounded(const hak_slab_t *head, size_t size) {
  size_t gap = hak_slab_gap(head);
  return hak_align_up(gap + size, HAK_L25_GRAIN) - gap;
}
HAK_INLINE size_t hak_l25_usable(hak_slab_t *head) { return hak_load_relaxed(&head->bytes); }

#endif
