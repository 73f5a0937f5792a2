#include "superslab/shared_pool.h"

#include "base/bits.h"
#include "core/options.h"
#include "os/os.h"
#include "superslab/superslab.h"

// Level k (0..5) of the index: the SuperSlab has a run of at least 2^k free
// slabs; level 5 therefore says that it is empty. COLD: it has no memory.
#define EMPTY 5
#define COLD 6
#define LEVELS 7
#define ALL_FREE UINT32_MAX
#define GROUPS (HAK_SUPERSLABS_MAX / 64)

// 64 SuperSlabs per group, one line; a summary word has a bit per group.
typedef struct {
  _Alignas(64) _Atomic uint64_t level[8];
} line_t;
static line_t groups[GROUPS];
static line_t summary[GROUPS / 64];

static _Atomic uint32_t empty_count; // about how many SuperSlabs are at level EMPTY

// How many empty SuperSlabs are kept is learnt: a SuperSlab that is committed
// soon after one was evicted is a regret, and a few regrets in a row double the
// limit; it falls back once none has happened for a while. A peak that is freed
// once therefore goes back at once, and a load that swings pays for the first
// swings only. All relaxed: they steer, nothing depends on them.
#define REGRET_MS 250
#define REGRETS_PER_DOUBLING 4
#define CALM_MS 1000
#define KEEP_MAX 4096
static _Atomic uint32_t keep_limit; // 0: HAKMEM_LRU_CAP
static _Atomic uint32_t regrets;
static _Atomic uint64_t evicted_at, regretted_at; // ms
_Static_assert(HAK_SLABS_PER_SUPERSLAB == 1u << EMPTY, "levels are powers of two");

static void set_bit(unsigned level, uint32_t number) {
  uint32_t group = number / 64;
  hak_fetch_or_seq_cst(&groups[group].level[level], UINT64_C(1) << (number % 64));
  hak_fetch_or_seq_cst(&summary[group / 64].level[level], UINT64_C(1) << (group % 64));
}

// True if the bit was set.
static bool clear_bit(unsigned level, uint32_t number) {
  uint32_t group = number / 64;
  uint64_t bit = UINT64_C(1) << (number % 64), group_bit = UINT64_C(1) << (group % 64);
  uint64_t old = hak_fetch_and_seq_cst(&groups[group].level[level], ~bit);
  if (old == bit) {
    hak_fetch_and_seq_cst(&summary[group / 64].level[level], ~group_bit);
    // A set_bit between the two would be lost without this second look.
    if (hak_load_seq_cst(&groups[group].level[level]))
      hak_fetch_or_seq_cst(&summary[group / 64].level[level], group_bit);
  }
  return (old & bit) != 0;
}

// First number >= from whose bit is set at level and not at level `except`
// (LEVELS: no exception); 0 if there is none.
static uint32_t find(unsigned level, unsigned except, uint32_t from) {
  uint32_t groups_used = hak_superslab_count() / 64 + 1;
  for (uint32_t s = from / 4096; s * 64 < groups_used; s++) {
    uint64_t in_summary = hak_load_relaxed(&summary[s].level[level]);
    if (s == from / 4096) in_summary &= ~UINT64_C(0) << (from / 64 % 64);
    for (; in_summary; in_summary &= in_summary - 1) {
      uint32_t group = s * 64 + hak_low_bit(in_summary);
      uint64_t bits = hak_load_relaxed(&groups[group].level[level]);
      if (except < LEVELS) bits &= ~hak_load_relaxed(&groups[group].level[except]);
      if (group == from / 64) bits &= ~UINT64_C(0) << (from % 64);
      if (bits) return group * 64 + hak_low_bit(bits);
    }
  }
  return 0;
}

static unsigned levels_of(uint32_t mask) {
  unsigned levels = 0;
  for (unsigned k = 0; k <= EMPTY && mask; k++) {
    levels |= 1u << k;
    if (k < EMPTY) mask &= mask >> (1u << k);
  }
  return levels;
}

// Brings the index in line with the free mask. Whoever changed the mask calls
// it; the loop ends only when the mask is still the one that was published, so
// the last of several racing callers leaves the index right (model P2).
static void publish(uint32_t number) {
  _Atomic uint32_t *free_mask = &hak_registry.superslabs[number].free_mask;
  for (;;) {
    uint32_t mask = hak_load_seq_cst(free_mask);
    unsigned want = levels_of(mask);
    for (unsigned k = 0; k <= EMPTY; k++) {
      uint64_t bit = UINT64_C(1) << (number % 64);
      bool has = (hak_load_seq_cst(&groups[number / 64].level[k]) & bit) != 0;
      if (has == ((want >> k) & 1)) continue;
      if (has)
        clear_bit(k, number);
      else
        set_bit(k, number);
    }
    if (hak_load_seq_cst(free_mask) == mask) return;
  }
}

static hak_slab_t *take(uint32_t number, unsigned first, unsigned n) {
  hak_slab_t *slab = hak_slab_at((number << HAK_SLABS_SHIFT) + first);
  uint32_t bits = hak_ones(first, n);
  // Relaxed is enough: only the owner of the slabs asks and only whoever held the
  // whole SuperSlab clears; both are ordered by the claims on free_mask.
  uint32_t dirty = atomic_fetch_or_explicit(&hak_registry.superslabs[number].dirty, bits,
                                            memory_order_relaxed);
  slab->zeroed = !(dirty & bits);
  return slab;
}

// Tries to claim n neighbouring slabs of one SuperSlab. Single slabs come from
// the low end and runs from the high end, which keeps long runs together.
static hak_slab_t *claim(uint32_t number, unsigned n, bool *was_empty) {
  _Atomic uint32_t *free_mask = &hak_registry.superslabs[number].free_mask;
  uint32_t mask = hak_load_relaxed(free_mask);
  for (;;) {
    uint32_t runs = hak_runs_of(mask, n);
    if (!runs) return NULL;
    unsigned first = n == 1 ? hak_low_bit(runs) : hak_high_bit(runs);
    uint32_t rest = mask & ~hak_ones(first, n);
    // Acquire: pairs with the release in hak_pool_release: what the last owner
    // did to the slabs and descriptors is done. Seq_cst for publish (P2).
    if (!hak_cas_seq_cst(free_mask, &mask, rest)) continue;
    *was_empty = mask == ALL_FREE;
    if (*was_empty) hak_fetch_sub_relaxed(&empty_count, 1);
    if (levels_of(mask) != levels_of(rest)) publish(number);
    return take(number, first, n);
  }
}

static hak_slab_t *claim_any(unsigned n, unsigned level, unsigned except, bool *was_empty) {
  for (uint32_t number = 1; (number = find(level, except, number)) != 0; number++) {
    hak_slab_t *slab = claim(number, n, was_empty);
    if (slab) return slab;
    publish(number); // the index promised too much
  }
  return NULL;
}

static uint32_t keep_now(void) {
  uint32_t keep = hak_load_relaxed(&keep_limit), cap = (uint32_t)hak_option(LRU_CAP);
  if (keep <= cap) return cap;
  if (hak_os_clock_ms() - hak_load_relaxed(&regretted_at) < CALM_MS) return keep;
  hak_store_relaxed(&keep_limit, keep / 2);
  hak_store_relaxed(&regretted_at, hak_os_clock_ms());
  return keep / 2 > cap ? keep / 2 : cap;
}

static void committed_one(void) {
  uint64_t now = hak_os_clock_ms();
  if (hak_option(LRU_CAP) == 0 || now - hak_load_relaxed(&evicted_at) > REGRET_MS) return;
  hak_store_relaxed(&regretted_at, now);
  if (hak_fetch_add_relaxed(&regrets, 1) < REGRETS_PER_DOUBLING) return;
  hak_store_relaxed(&regrets, 0u);
  uint32_t keep = keep_now();
  if (keep < KEEP_MAX) hak_store_relaxed(&keep_limit, keep * 2);
}

hak_slab_t *hak_pool_acquire(unsigned n, hak_source_t *source) {
  unsigned level = n == 1 ? 0 : hak_high_bit(n - 1) + 1;
  bool was_empty = false;
  hak_slab_t *slab = claim_any(n, level, EMPTY, &was_empty);
  if (!slab) slab = claim_any(n, EMPTY, LEVELS, &was_empty);
  if (slab) {
    *source = was_empty ? HAK_FROM_REUSE : HAK_FROM_POOL;
    return slab;
  }
  uint32_t number = hak_superslab_acquire();
  if (!number) return NULL;
  committed_one();
  *source = HAK_FROM_MAP;
  unsigned first = n == 1 ? 0 : HAK_SLABS_PER_SUPERSLAB - n;
  slab = take(number, first, n);
  // Release (seq_cst for publish): base and memory are ready for other claimers.
  hak_store_seq_cst(&hak_registry.superslabs[number].free_mask, ~hak_ones(first, n));
  publish(number);
  return slab;
}

// Takes an empty SuperSlab whole and gives it back; false if it is not empty.
static bool evict(uint32_t number) {
  uint32_t all = ALL_FREE;
  if (!hak_cas_seq_cst(&hak_registry.superslabs[number].free_mask, &all, (uint32_t)0)) return false;
  hak_fetch_sub_relaxed(&empty_count, 1);
  publish(number);
  hak_superslab_decommit(number);
  hak_store_relaxed(&evicted_at, hak_os_clock_ms());
  return true;
}

hak_released_t hak_pool_release(hak_slab_t *slab, unsigned n) {
  uint32_t index = hak_slab_index(slab), number = index >> HAK_SLABS_SHIFT;
  uint32_t bits = hak_ones(index & (HAK_SLABS_PER_SUPERSLAB - 1), n);
  // Release: pairs with the acquire in claim. Seq_cst for publish (P2).
  uint32_t old = hak_fetch_or_seq_cst(&hak_registry.superslabs[number].free_mask, bits);
  HAK_ASSERT(!(old & bits));
  bool empty = (old | bits) == ALL_FREE;
  uint32_t empties = empty ? hak_fetch_add_relaxed(&empty_count, 1) + 1 : 0;
  if (levels_of(old) != levels_of(old | bits)) publish(number);
  if (!empty) return HAK_RELEASED;
  uint32_t keep = keep_now();
  if (empties <= keep || !evict(number)) return HAK_RELEASED_EMPTY;
  if (empties > keep + 1) hak_pool_trim(keep); // the limit has fallen
  return HAK_RELEASED_EVICTED;
}

unsigned hak_pool_trim(unsigned keep) {
  unsigned count = 0;
  for (uint32_t number = 1; hak_load_relaxed(&empty_count) > keep &&
                            (number = find(EMPTY, LEVELS, number)) != 0;
       number++)
    count += evict(number);
  return count;
}

void hak_pool_add_cold(uint32_t number) { set_bit(COLD, number); }

uint32_t hak_pool_take_cold(void) {
  for (uint32_t number = 1; (number = find(COLD, LEVELS, number)) != 0; number++)
    if (clear_bit(COLD, number)) return number;
  return 0;
}

void hak_pool_rebuild(void) {
  uint32_t count = hak_superslab_count(), empties = 0;
  for (uint32_t number = 1; number < count; number++) {
    hak_superslab_t *superslab = &hak_registry.superslabs[number];
    // fork may have copied these at another time than the memory or the index:
    // nothing counts as zero or committed, and what has free slabs is not cold.
    hak_store_relaxed(&superslab->dirty, UINT32_MAX);
    hak_store_relaxed(&superslab->committed, 0u);
    if (hak_load_relaxed(&superslab->free_mask)) clear_bit(COLD, number);
    publish(number);
    empties += hak_load_relaxed(&hak_registry.superslabs[number].free_mask) == ALL_FREE;
  }
  // The summary may be torn as well (fork copies pages one after the other).
  for (uint32_t group = 0; group <= count / 64; group++)
    for (unsigned k = 0; k < LEVELS; k++)
      if (hak_load_relaxed(&groups[group].level[k]))
        hak_fetch_or_seq_cst(&summary[group / 64].level[k], UINT64_C(1) << (group % 64));
  hak_store_relaxed(&empty_count, empties);
}
