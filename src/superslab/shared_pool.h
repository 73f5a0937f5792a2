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

// Claims n (1..16) neighbouring slabs for the caller. With n = 1, up to `more` single slabs of
// the same SuperSlab are claimed as well, by the same compare-and-swap; if more is
// hak_pool_at(step), none are, and the slab or run begins at a multiple of step slabs. The
// zeroed flag of a slab (of a run: of its first slab) says that the memory reads as zero.
// find: from SuperSlabs that have memory: the fullest HOT ones first, then draining ones, then
// empty ones; false: no room. map: from a new SuperSlab or, without memory for one, from any with
// room, as find does not look at all; false: out of memory.
bool hak_pool_find(unsigned n, unsigned more, hak_claim_t *claim);
// The mask of the slabs of a SuperSlab at multiples of step, which is 2, 4, 8 or 16.
HAK_INLINE uint32_t hak_pool_at(unsigned step) { return UINT32_MAX / ((1u << step) - 1); }
// Claims the `more` slabs behind the caller's run of n; false: not all of them are free.
bool hak_pool_extend(hak_slab_t *slab, unsigned n, unsigned more);
// find_unused: 1 + up to more single slabs, not from SuperSlabs that drain; for slabs
// that nobody needs yet.
bool hak_pool_find_unused(unsigned more, hak_claim_t *claim);
// fills: see hak_superslab_acquire.
bool hak_pool_map(unsigned n, unsigned more, bool fills, hak_claim_t *claim);
// Gives n slabs back; their kind must be FREE already.
void hak_pool_release(hak_slab_t *slab, unsigned n);

// Releases many slabs: slabs of one SuperSlab that follow each other are released by one
// compare-and-swap, once a slab of another SuperSlab follows or hak_pool_release_all is called.
typedef struct {
  uint32_t number, bits; // of the SuperSlab; bits of its slabs
  bool needed;           // at once: nothing goes back to the system
} hak_parcel_t;
void hak_pool_release_with(hak_slab_t *slab, unsigned n, hak_parcel_t *parcel);
void hak_pool_release_all(hak_parcel_t *parcel);

// Whether the slab's SuperSlab drains (row S5). Relaxed: a hint for its owner.
HAK_INLINE bool hak_pool_draining(const hak_slab_t *slab) {
  uint32_t number = hak_superslab_number(slab);
  return (hak_load_relaxed(&hak_registry.superslabs[number].free_mask) & HAK_SUPERSLAB_DRAINING) !=
         0;
}

// Gives empty SuperSlabs beyond keep back to the system; returns their number.
unsigned hak_pool_trim(size_t keep);

// Gives back the pages of all free slabs of SuperSlabs in use; returns the number of slabs.
unsigned hak_pool_purge(void);

// Called when pages of a slab in use were given back. If its SuperSlab was a huge page, the
// slabs in it that nobody has used are resident as well, and their pages are to follow.
void hak_pool_trimmed(const hak_slab_t *slab, uint32_t pages);

// Gives back as many empty SuperSlabs beyond keep as nobody needed since the last such call;
// returns their number.
unsigned hak_pool_trim_idle(unsigned keep);
// Number of empty SuperSlabs kept whatever the load: HAKMEM_LRU_CAP and HAKMEM_LRU_SHARE.
unsigned hak_pool_kept(void);
// Number kept now: more after a swinging load has needed some again; 0 near a limit.
unsigned hak_pool_keep_now(void);
// Once a second does as hak_pool_trim_idle beyond hak_pool_kept, then gives back the pages of
// free slabs that nobody needed for as long. Both go in parts, so that no call takes long, except
// near a limit. For any thread that is at work. True when the second begins, or near a limit.
bool hak_pool_tend(void);

// The cold numbers: SuperSlabs without memory (superslab.c; a set of the index). take returns
// one, 0 if there is none; leave takes the given one, false if it was not cold.
void hak_pool_add_cold(uint32_t number);
uint32_t hak_pool_take_cold(void);
bool hak_pool_leave_cold(uint32_t number);

// In the child after fork, single-threaded: rebuilds the index from the masks.
void hak_pool_rebuild(void);

#endif
