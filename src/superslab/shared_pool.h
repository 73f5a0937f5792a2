// shared_pool.h: the process-wide source of slabs: lock-free claims on the
// SuperSlabs' free masks. pool_index.h finds a SuperSlab worth trying without looking
// at full ones.
//
// The free mask is the truth (protocol P1): a set bit is a free slab, and the
// thread whose compare-and-swap clears it owns the slab.
// Tests: test/unit/test_shared_pool.c, test/model/pool.pml.

#ifndef HAK_SUPERSLAB_SHARED_POOL_H
#define HAK_SUPERSLAB_SHARED_POOL_H

#include "superslab/superslab.h"

// Where a claim was served from.
typedef enum { HAK_FROM_POOL, HAK_FROM_DRAINING, HAK_FROM_REUSE, HAK_FROM_MAP } hak_source_t;
typedef struct {
  hak_slab_t *slab; // the first, or only, slab
  uint32_t more;    // bit i: slab[i] came with it
  hak_source_t source;
} hak_claim_t;

// n (1..16) neighbouring slabs that now belong to the caller. With n = 1 up to
// `more` single slabs of the same SuperSlab come along, claimed by the same
// compare-and-swap; if it is hak_pool_at(step) none does, and the slab or run begins at a
// multiple of step slabs. zeroed of a slab (a run: of its first) says that the memory
// reads as zero.
// find: from SuperSlabs that have memory, the fullest HOT ones first, then those
// that drain, then empty ones; false: no room. map: from a new one; false: out of
// memory.
bool hak_pool_find(unsigned n, unsigned more, hak_claim_t *claim);
// The mask of the slabs of a SuperSlab at multiples of step, which is 2, 4, 8 or 16.
HAK_INLINE uint32_t hak_pool_at(unsigned step) { return UINT32_MAX / ((1u << step) - 1); }
// Claims the `more` slabs behind a run of n that the caller has; false: not all of them are free.
bool hak_pool_extend(hak_slab_t *slab, unsigned n, unsigned more);
// find_unused: 1 + up to more single slabs, not from SuperSlabs that drain; for slabs
// that nobody needs yet.
bool hak_pool_find_unused(unsigned more, hak_claim_t *claim);
// fills: see hak_superslab_acquire.
bool hak_pool_map(unsigned n, unsigned more, bool fills, hak_claim_t *claim);
// Gives them back; kind must be FREE already.
void hak_pool_release(hak_slab_t *slab, unsigned n);

// Many at once: slabs of one SuperSlab that follow each other go by one compare-and-swap,
// when one of another SuperSlab comes, or all has been given.
typedef struct {
  uint32_t number, bits; // of the SuperSlab, of its slabs
} hak_parcel_t;
void hak_pool_release_with(hak_slab_t *slab, unsigned n, hak_parcel_t *parcel);
void hak_pool_release_all(hak_parcel_t *parcel);

// Whether the slab's SuperSlab drains (row S5). Relaxed: a hint for its owner.
HAK_INLINE bool hak_pool_draining(const hak_slab_t *slab) {
  uint32_t number = hak_superslab_number(slab);
  return (hak_load_relaxed(&hak_registry.superslabs[number].free_mask) & HAK_SUPERSLAB_DRAINING) !=
         0;
}

// What became of SuperSlabs, once each time it happens to one. Relaxed: figures, and
// for heaps the hint that another SuperSlab drains.
typedef struct {
  hak_word_t empty, evict;           // became empty, given back to the system
  hak_word_t draining, drained, hot; // began to drain, became empty by it, needed again
  hak_word_t purged;                 // free slabs whose pages were given back
  hak_word_t huge;                   // mapped as huge pages
} hak_pool_counts_t;
HAK_INTERNAL extern hak_pool_counts_t hak_pool_counts;

// Give empty SuperSlabs beyond keep back to the system; number of them.
unsigned hak_pool_trim(unsigned keep);

// Give back the pages of all free slabs of SuperSlabs in use; number of slabs.
unsigned hak_pool_purge(void);

// Pages of a slab in use went back: where its SuperSlab was a huge page, the slabs in it that
// nobody has used are resident as well, and their pages are to follow.
void hak_pool_trimmed(const hak_slab_t *slab);

// Give back as many empty SuperSlabs beyond keep as nobody needed since the last such
// call; number of them.
unsigned hak_pool_trim_idle(unsigned keep);
// Empty SuperSlabs that stay whatever the load: HAKMEM_LRU_CAP and HAKMEM_LRU_SHARE.
unsigned hak_pool_kept(void);
// Those that stay now, as a load that swings has needed them again.
unsigned hak_pool_keep_now(void);
// As hak_pool_trim_idle once a second, beyond hak_pool_kept; then the pages of free slabs that
// nobody needed for as long. Both in parts, so that no call takes long, but near a limit. For whoever
// is at work. True when the second begins, or near a limit.
bool hak_pool_tend(void);

// SuperSlabs without memory, by number (superslab.c; they are a set of the index). take
// gives 0 if there is none, leave takes that one; false: it was none of them.
void hak_pool_add_cold(uint32_t number);
uint32_t hak_pool_take_cold(void);
bool hak_pool_leave_cold(uint32_t number);

// After fork in the child, single-threaded: the index again from the masks.
void hak_pool_rebuild(void);

#endif
