// pool_index.h: which SuperSlabs are worth trying: sets of SuperSlabs, as bits, by what their
// free masks say (protocol P2). The index is a hint, kept right by whoever changes a mask; the
// mask is the truth. For shared_pool.c; superslab.c asks hak_index_has.
//
// Any thread may call anything here at any time, except rebuild.
// Tests: test/unit/test_shared_pool.c, test/model/index.pml.

#ifndef HAK_SUPERSLAB_POOL_INDEX_H
#define HAK_SUPERSLAB_POOL_INDEX_H

#include "superslab/superslab.h"

// Level k (0..5): the SuperSlab has a run of at least 2^k free slabs; level 5 therefore
// says that it is empty. Then COLD, without memory. Then the bands, in the order in which
// they are preferred: each SuperSlab with both free and used slabs is in one (row S5).
#define HAK_LEVEL_EMPTY 5
#define HAK_INDEX_COLD 6
#define HAK_BAND_FIRST 7     // HOT, 1..4 free slabs
#define HAK_BAND_DRAINING 11 // 5..8 used slabs
#define HAK_BAND_LAST 12
#define HAK_BAND_ANY 13 // whatever the index has at the level
_Static_assert(HAK_SLABS_PER_SUPERSLAB == 1u << HAK_LEVEL_EMPTY, "levels are powers of two");

#define HAK_ALL_FREE UINT32_MAX // the free mask of an empty SuperSlab

HAK_INLINE unsigned hak_used_slabs(uint32_t mask) {
  return HAK_SLABS_PER_SUPERSLAB - hak_count_bits(mask);
}

// 64 SuperSlabs per group, two lines.
typedef struct {
  _Alignas(64) _Atomic uint64_t set[16];
} hak_index_group_t;
HAK_INTERNAL extern hak_index_group_t hak_index_groups[];

// First number >= from, beyond the first group, that is in both sets; 0 if there is none.
uint32_t hak_index_find_far(unsigned set, unsigned other, uint32_t from);

// First number >= from that is at the level and in the band; 0 if there is none. Most
// processes have no more SuperSlabs than the first group. Relaxed: a claim decides.
HAK_INLINE uint32_t hak_index_find(unsigned level, unsigned band, uint32_t from) {
  unsigned other = band == HAK_BAND_ANY ? level : band;
  if (from < 64) {
    uint64_t bits = hak_load_relaxed(&hak_index_groups[0].set[level]) & ~UINT64_C(0) << from;
    bits &= hak_load_relaxed(&hak_index_groups[0].set[other]);
    if (bits) return hak_low_bit(bits);
    from = 64;
  }
  return HAK_LIKELY(hak_superslab_count() <= 64) ? 0 : hak_index_find_far(level, other, from);
}

HAK_INLINE bool hak_index_has(unsigned set, uint32_t number) {
  return hak_load_relaxed(&hak_index_groups[number / 64].set[set]) >> number % 64 & 1;
}

// Brings the index in line with the SuperSlab's free mask. Every thread that changes the mask
// calls one of the two: change, if the mask was `old` before the change and `now` right after it.
void hak_index_publish(uint32_t number);
void hak_index_change(uint32_t number, uint64_t old, uint64_t now);

// In the child after fork, single-threaded: rebuilds the summary from the groups.
void hak_index_rebuild(void);

#endif
