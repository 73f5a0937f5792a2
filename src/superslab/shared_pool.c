#include "superslab/shared_pool.h"

#include <limits.h>

#include "base/bits.h"
#include "core/options.h"
#include "os/os.h"
#include "superslab/pool_index.h"
#include "superslab/seal.h"

// A SuperSlab counts as well used from USED_WELL_SLABS slabs in use on, and drains when at
// most DRAINING_SLABS are (docs/decisions/0011-tiers.md).
#define USED_WELL_SLABS 24
#define DRAINING_SLABS 8

// In each band, a search for a run looks at so many SuperSlabs without room, to find one in
// which the run fits closely (docs/decisions/0022-runs.md). All are looked at before ENOMEM.
#define LOOKS 16u

static _Atomic uint32_t empty_low;   // lowest empty_count since the last look for idle ones
static _Atomic uint32_t empty_count; // about how many SuperSlabs are empty

// The number of empty SuperSlabs to keep is learnt. A commit soon after an eviction is a
// regret: keeping one more would have avoided it. So each regret raises the limit by one (plus
// an eighth of it), and the limit is halved once there was no regret for a while. A peak that
// is freed once therefore goes back at once, and a load that swings pays for its first swings
// only. All relaxed: they steer, nothing depends on them.
#define REGRET_MS 900
#define CALM_MS 1000
#define KEEP_MAX 4096
static _Atomic uint32_t keep_limit;               // in effect if above hak_pool_kept
static _Atomic uint64_t evicted_at, regretted_at; // ms

// hak_pool_tend does a part of a sweep over all SuperSlabs every TEND_MS; a sweep begins every
// CALM_MS. A slab that is free and was free at the sweep before has been idle for as long.
#define TEND_MS 50
#define TEND_LOOKS 1024 // SuperSlabs looked at in a part
#define TEND_PURGES 8   // at most so many of them purged, or split, in it
#define REFUSALS 64     // of the kernel, before a trim ends
#define IDLE_SLABS 4    // in a HOT SuperSlab: fewer, or smaller holes, are not worth a huge page
static _Atomic uint64_t tended_at, looked_at, second_at; // ms; tended_at also times PART_MS
static _Atomic uint32_t sweep_next;                      // number of a SuperSlab; 0: no sweep

// Idle empty SuperSlabs are evicted in parts, every PART_MS, as each costs some 50 to 300 us.
// A call evicts PART of them, or, where calls are rare, as many as needed for all to be gone
// within GONE_MS, but PART_MAX at most. Relaxed: they steer.
#define PART 16
#define PART_MAX 128
#define PART_MS 5
#define GONE_MS 1000
static _Atomic uint32_t going, going_all; // idle SuperSlabs still to go; at the start

// The pages of free slabs in draining SuperSlabs are purged as these get sparser: of each when
// it, or another, got sparse once more, as a load that only swings may turn round before. Not
// in a pause (CALM_MS) after such SuperSlabs were needed again at once (base/regret.h).
// sparse_last: the one that got sparse last, 0: none. Relaxed: it steers, and purge claims.
static _Atomic uint32_t sparse_last;
static hak_regret_t drain_regret;
static const hak_regret_rule_t drain_rule = {
    .soon = REGRET_MS, .few = 4, .least = CALM_MS, .most = CALM_MS};

// The same for HOT ones (HAKMEM_PURGE=2): one to which slabs were released, or a huge page in
// which a slab was trimmed, waits until some others have followed, as it may soon be empty.
static hak_regret_t hot_regret;
static const hak_regret_rule_t hot_rule = {
    .soon = REGRET_MS, .few = 2, .least = CALM_MS, .most = HAK_PAUSE_MAX_MS};

// The free mask word after slabs are claimed, and after they are released. A draining
// SuperSlab that is claimed from is HOT until it has been well used again.
static uint64_t word_claimed(uint64_t word, uint32_t bits) {
  uint32_t mask = (uint32_t)word & ~bits;
  bool used_well =
      hak_used_slabs(mask) >= USED_WELL_SLABS ||
      (word & (HAK_SUPERSLAB_USED_WELL | HAK_SUPERSLAB_DRAINING)) == HAK_SUPERSLAB_USED_WELL;
  return mask | (used_well ? HAK_SUPERSLAB_USED_WELL : 0);
}

static uint64_t word_released(uint64_t word, uint32_t bits) {
  if (((uint32_t)word | bits) == HAK_ALL_FREE) return HAK_ALL_FREE;
  word |= bits;
  bool drains =
      (word & HAK_SUPERSLAB_USED_WELL) && hak_used_slabs((uint32_t)word) <= DRAINING_SLABS;
  return drains && hak_option(TIERS) ? word | HAK_SUPERSLAB_DRAINING : word;
}

// The caller has claimed bits, a run or single slabs. Returns the descriptor of the first.
static hak_slab_t *take(uint32_t number, uint32_t bits, bool run) {
  hak_slab_t *slabs = hak_slab_at(number << HAK_SLABS_SHIFT);
  // Relaxed is enough: only the owner of the slabs relies on the bits, and only the holder of the
  // slabs or of the whole SuperSlab clears them; both are ordered by the claims on free_mask.
  uint32_t dirty = hak_fetch_or_relaxed(&hak_registry.superslabs[number].dirty, bits);
  hak_slab_t *first = slabs + hak_low_bit(bits);
  if (run) first->zeroed = !(dirty & bits);
  for (uint32_t rest = run ? 0 : bits; rest; rest &= rest - 1)
    slabs[hak_low_bit(rest)].zeroed = !(dirty & rest & -rest);
  return first;
}

#define RANDOM_SLABS 8 // secure library: a single slab is picked from so many

// Single slabs come from the low end and runs from the high end, which keeps long
// runs together.
static uint32_t choose(uint32_t mask, unsigned n, unsigned more) {
  bool placed = more >= HAK_SLABS_PER_SUPERSLAB; // more is hak_pool_at
  uint32_t runs = hak_runs_of(mask, n) & (placed ? more : HAK_ALL_FREE), rest = mask;
  if (!runs) return 0;
  if (n > 1 || placed) return hak_ones(hak_high_bit(runs), n);
  if (HAK_SECURE) return hak_ones(hak_seal_pick(mask, RANDOM_SLABS), 1);
  for (unsigned i = 0; i <= more && rest; i++) rest &= rest - 1;
  return mask & ~rest;
}

static void took(uint32_t number, uint32_t bits, unsigned n, hak_claim_t *claim) {
  claim->slab = take(number, bits, n > 1);
  claim->more = n > 1 ? 0 : (bits & (bits - 1)) >> hak_low_bit(bits);
}

// One SuperSlab less is empty. Relaxed and racy, off by one per racing thread: it steers how many
// go back.
static void one_empty_less(void) {
  uint32_t left = hak_fetch_sub_relaxed(&empty_count, 1) - 1;
  if ((int32_t)left < (int32_t)hak_load_relaxed(&empty_low)) hak_store_relaxed(&empty_low, left);
}

// bits were claimed from word: returns the source, and counts regrets.
static hak_source_t claimed(uint32_t number, uint64_t word, uint32_t bits) {
  hak_source_t source = HAK_FROM_POOL;
  // Relaxed, all of it: it steers. Of an empty SuperSlab all slabs count as needed soon: those
  // freed last still have their pages, and are claimed first if the load goes back as it came.
  _Atomic uint32_t *purged = &hak_registry.superslabs[number].purged;
  uint32_t asked = (uint32_t)word == HAK_ALL_FREE ? HAK_ALL_FREE : bits;
  uint32_t missed = hak_load_relaxed(purged) & asked;
  if (missed) hak_fetch_and_relaxed(purged, ~asked); // asked once
  if ((uint32_t)word == HAK_ALL_FREE) {
    source = HAK_FROM_REUSE;
    one_empty_less();
    if (missed) // purged as it drained, before it got empty
      hak_regret_needed(&drain_regret, hak_os_clock_ms(), 0, drain_rule);
  } else if (word & HAK_SUPERSLAB_DRAINING) {
    source = HAK_FROM_DRAINING;
    // A draining SuperSlab should not have been needed.
    hak_regret_needed(&drain_regret, hak_os_clock_ms(), 0, drain_rule);
    hak_fetch_add_relaxed(&hak_counter(tier_hot), 1);
  } else if (missed) {
    hak_regret_needed(&hot_regret, hak_os_clock_ms(), 0, hot_rule);
  }
  return source;
}

// Tries to claim slabs of one SuperSlab, all with one compare-and-swap.
static bool claim_in(uint32_t number, unsigned n, unsigned more, hak_claim_t *claim) {
  _Atomic uint64_t *free_mask = &hak_registry.superslabs[number].free_mask;
  uint64_t word = hak_load_relaxed(free_mask);
  for (;;) {
    uint32_t bits = choose((uint32_t)word, n, more);
    if (!bits) return false;
    uint64_t rest = word_claimed(word, bits);
    // Acquire: pairs with the release in release(): what the last owner
    // did to the slabs and descriptors is done. Seq_cst for publish (P2).
    if (!hak_cas_seq_cst(free_mask, &word, rest)) continue;
    claim->source = claimed(number, word, bits);
    hak_index_change(number, word, rest);
    took(number, bits, n, claim);
    return true;
  }
}

bool hak_pool_extend(hak_slab_t *slab, unsigned n, unsigned more) {
  uint32_t number = hak_superslab_number(slab);
  if ((hak_slab_index(slab) & (HAK_SLABS_PER_SUPERSLAB - 1)) + n + more > HAK_SLABS_PER_SUPERSLAB)
    return false;
  uint32_t bits = hak_slab_bits(slab + n, more);
  _Atomic uint64_t *free_mask = &hak_registry.superslabs[number].free_mask;
  uint64_t word = hak_load_relaxed(free_mask), rest;
  do {
    if (((uint32_t)word & bits) != bits) return false;
    rest = word_claimed(word, bits);
  } while (!hak_cas_seq_cst(free_mask, &word, rest)); // as in claim_in
  (void)claimed(number, word, bits);
  hak_index_change(number, word, rest);
  (void)take(number, bits, true);
  return true;
}

// Claims from one of the SuperSlabs that the index has at the level and in the band. in_part:
// the level promises only a part of the run, and only some of them are looked at.
// Inlined: 2 % of the instructions that the start of a process costs.
HAK_INLINE bool find_in(bool in_part, unsigned level, unsigned band, unsigned n, unsigned more,
                        hak_claim_t *claim) {
  unsigned looks = in_part ? LOOKS : UINT_MAX;
  for (uint32_t number = 1; looks-- && (number = hak_index_find(level, band, number)) != 0;
       number++) {
    if (claim_in(number, n, more, claim)) return true;
    if (!in_part) hak_index_publish(number); // the index promised too much
  }
  return false;
}

// Searches the bands up to last in their order, then the empty SuperSlabs.
static bool find_to(unsigned last, unsigned n, unsigned more, hak_claim_t *claim) {
  unsigned part = hak_high_bit(n), all = part + ((n & (n - 1)) != 0);
  // Any n + step - 1 neighbours hold n from a multiple of step on. step: hak_pool_at's second bit.
  if (more >= HAK_SLABS_PER_SUPERSLAB) all = hak_high_bit(2 * (n + hak_low_bit(more - 1)) - 3);
  for (unsigned band = HAK_BAND_FIRST; band <= last; band++)
    if ((part != all && find_in(true, part, band, n, more, claim)) ||
        find_in(false, all, band, n, more, claim))
      return true;
  return find_in(false, HAK_LEVEL_EMPTY, HAK_BAND_ANY, n, more, claim);
}

bool hak_pool_find(unsigned n, unsigned more, hak_claim_t *claim) {
  return find_to(HAK_BAND_LAST, n, more, claim);
}

bool hak_pool_find_unused(unsigned more, hak_claim_t *claim) {
  return find_to(HAK_BAND_DRAINING - 1, 1, more, claim);
}

// All relaxed: the result is off by what other threads do meanwhile.
unsigned hak_pool_kept(void) {
  uint32_t cap = (uint32_t)hak_option(LRU_CAP), empties = hak_load_relaxed(&empty_count);
  uint64_t all = hak_load_relaxed(&hak_mapped.superslab_bytes) >> HAK_SUPERSLAB_SHIFT;
  uint64_t most = all > empties ? (all - empties) * hak_option(LRU_SHARE) / 100 : 0;
  return most < cap && hak_option(LRU_SHARE) ? (uint32_t)most : cap;
}

unsigned hak_pool_keep_now(void) {
  if (hak_mapped_near_limit()) return 0;
  uint32_t keep = hak_load_relaxed(&keep_limit), cap = hak_pool_kept();
  if (keep <= cap) return cap;
  if ((int64_t)(hak_os_clock_ms() - hak_load_relaxed(&regretted_at)) < CALM_MS) return keep;
  hak_store_relaxed(&keep_limit, keep / 2);
  hak_store_relaxed(&regretted_at, hak_os_clock_ms());
  return keep / 2 > cap ? keep / 2 : cap;
}

static void committed_one(void) {
  uint64_t evicted = hak_load_relaxed(&evicted_at), now;
  uint32_t cap = (uint32_t)hak_option(LRU_CAP);
  // None evicted yet: a starting process does without the clock, and 64 KiB of libc around it.
  if (cap == 0 || evicted == 0 || (now = hak_os_clock_ms()) - evicted > REGRET_MS) return;
  if (hak_mapped_near_limit()) return; // none may be kept, even if needed again
  hak_store_relaxed(&regretted_at, now);
  uint32_t keep = hak_pool_keep_now();
  if (keep < cap) { // possible with HAKMEM_LRU_SHARE
    hak_store_relaxed(&keep_limit, cap);
  } else if (keep < KEEP_MAX) {
    hak_store_relaxed(&keep_limit, keep + 1 + keep / 8);
  }
}

// There is no memory for another SuperSlab: looks at all, as a search for a run may have passed over
// it if its length is no power of two or its place matters.
HAK_COLD static bool find_anywhere(unsigned n, unsigned more, hak_claim_t *claim) {
  if ((n & (n - 1)) == 0 && more < HAK_SLABS_PER_SUPERSLAB) return false;
  for (uint32_t number = 1, end = hak_superslab_count(); number < end; number++)
    if (claim_in(number, n, more, claim)) return true;
  return false;
}

bool hak_pool_map(unsigned n, unsigned more, bool fills, hak_claim_t *claim) {
  uint32_t number = hak_superslab_acquire(fills);
  if (!number) return find_anywhere(n, more, claim);
  committed_one();
  uint32_t bits = choose(HAK_ALL_FREE, n, more);
  took(number, bits, n, claim);
  claim->source = HAK_FROM_MAP;
  // Release (seq_cst for publish): base and memory are ready for other claimers.
  hak_store_seq_cst(&hak_registry.superslabs[number].free_mask, word_claimed(HAK_ALL_FREE, bits));
  hak_index_publish(number);
  return true;
}

// Takes an empty SuperSlab whole and gives it back; false if it is not empty, or the kernel
// refuses: then it stays an empty one, without pages.
static bool evict(uint32_t number) {
  _Atomic uint64_t *free_mask = &hak_registry.superslabs[number].free_mask;
  uint64_t all = HAK_ALL_FREE;
  if (!hak_cas_seq_cst(free_mask, &all, (uint64_t)0)) return false;
  one_empty_less();
  hak_index_publish(number);
  uint32_t used = hak_load_relaxed(&hak_registry.superslabs[number].dirty);
  if (!hak_superslab_decommit(number)) {
    used &= ~hak_load_relaxed(&hak_registry.superslabs[number].dirty);
    hak_fetch_add_relaxed(&hak_counter(slab_purge), hak_count_bits(used));
    hak_fetch_add_relaxed(&empty_count, 1);
    hak_store_seq_cst(free_mask, HAK_ALL_FREE); // as in hak_pool_map
    hak_index_publish(number);
    return false;
  }
  hak_fetch_add_relaxed(&hak_counter(superslab_evict), 1);
  hak_store_relaxed(&evicted_at, hak_os_clock_ms());
  return true;
}

// Counts what a release did to a SuperSlab. Returns how many are empty if this one is, else 0.
static uint32_t count_release(uint64_t old, uint64_t now) {
  if ((now & ~old) & HAK_SUPERSLAB_DRAINING) hak_fetch_add_relaxed(&hak_counter(tier_draining), 1);
  if ((uint32_t)now != HAK_ALL_FREE) return 0;
  if (old & HAK_SUPERSLAB_DRAINING) hak_fetch_add_relaxed(&hak_counter(tier_free), 1);
  hak_fetch_add_relaxed(&hak_counter(superslab_empty), 1);
  return hak_fetch_add_relaxed(&empty_count, 1) + 1;
}

// Gives up slabs of a SuperSlab, whose free mask word is *before and *after. Returns how many
// SuperSlabs are empty if this one is, else 0.
static uint32_t release(uint32_t number, uint32_t bits, uint64_t *before, uint64_t *after) {
  _Atomic uint64_t *free_mask = &hak_registry.superslabs[number].free_mask;
  uint64_t old = hak_load_relaxed(free_mask), now;
  // Relaxed: it tells how long slabs have been free, and nothing depends on it.
  hak_fetch_or_relaxed(&hak_registry.superslabs[number].recent, bits);
  do {
    HAK_ASSERT(!(old & bits));
    now = word_released(old, bits);
    // Release: pairs with the acquire in claim_in. Seq_cst for publish (P2).
  } while (!hak_cas_seq_cst(free_mask, &old, now));
  uint32_t empties = count_release(old, now);
  hak_index_change(number, old, now);
  *before = old;
  *after = now;
  return empties;
}

// Gives the pages of a SuperSlab's free slabs in `which` back to the system. Claims those that
// were used, as if they were needed, so that no other thread has them meanwhile. Returns the
// claimed bits, 0 if there was nothing to do; the caller gives them back by release, which
// tells whether the SuperSlab got empty meanwhile. early: the purge may be regretted.
static uint32_t purge(uint32_t number, uint32_t which, bool early) {
  hak_superslab_t *superslab = &hak_registry.superslabs[number];
  uint64_t word = hak_load_relaxed(&superslab->free_mask);
  uint32_t bits = (uint32_t)word;
  if (bits == 0 || bits == HAK_ALL_FREE) return 0; // else one without memory would count as used
  bool huge = hak_load_relaxed(&superslab->huge) == HAK_HUGE_ADVISED;
  do {
    // Relaxed, like all uses of dirty: a bit too many costs a call.
    bits = (uint32_t)word & which & (huge ? HAK_ALL_FREE : hak_load_relaxed(&superslab->dirty));
    if (!bits || (uint32_t)word == HAK_ALL_FREE) return 0;
    // Acquire: pairs with the release above: the last owners are done with the slabs.
  } while (!hak_cas_seq_cst(&superslab->free_mask, &word, word & ~(uint64_t)bits));
  if (huge) hak_superslab_no_huge_page(superslab);
  unsigned purged = 0;
  for (uint64_t rest = bits, run; rest != 0; rest &= ~run) {
    unsigned first, n;
    run = hak_low_run(rest, &first, &n);
    char *start = (char *)superslab->base + ((size_t)first << HAK_SLAB_SHIFT);
    // Relaxed: only the holder of the slabs relies on it, see take.
    if (!hak_os_discard(start, (size_t)n << HAK_SLAB_SHIFT)) continue;
    hak_fetch_and_relaxed(&superslab->dirty, ~run);
    if (early) hak_fetch_or_relaxed(&superslab->purged, run);
    purged += n;
  }
  hak_fetch_add_relaxed(&hak_counter(slab_purge), purged);
  return bits;
}

// Logarithm, rounded up, of the number of slabs in use, which is not 0.
static unsigned used_log(uint64_t word) {
  return hak_high_bit(2 * hak_used_slabs((uint32_t)word) - 1);
}

// Whether a release made a SuperSlab begin to drain, or halved the slabs in use that it has
// left: from DRAINING_SLABS, 8, down to 4, 2 and 1.
static bool got_sparse(uint64_t old, uint64_t now) {
  if (!(now & HAK_SUPERSLAB_DRAINING) || !hak_option(PURGE)) return false;
  return !(old & HAK_SUPERSLAB_DRAINING) || used_log(old) != used_log(now);
}

// purge, for callers that need not know whether the SuperSlab got empty meanwhile.
static uint32_t purge_and_release(uint32_t number, uint32_t which, bool early) {
  uint64_t old, now;
  uint32_t bits = purge(number, which, early);
  if (bits) release(number, bits, &old, &now);
  return bits;
}

// Purges the free slabs of a HOT SuperSlab, unless such slabs have been needed again at once.
static void purge_hot(uint32_t number) {
  uint64_t ms = hak_os_clock_ms();
  if (hak_regret_pauses(&hot_regret, ms, 0)) return;
  hak_regret_done(&hot_regret, ms);
  purge_and_release(number, HAK_ALL_FREE, true);
}

// The SuperSlab got sparse: it waits, and the one that waited before, possibly the same, is
// purged if it still drains. Near the memory limit none waits.
static void purge_sparse(uint32_t number) {
  uint64_t ms = hak_os_clock_ms();
  if (!hak_mapped_near_memory_limit()) {
    if (hak_regret_pauses(&drain_regret, ms, 0)) return;
    number = hak_exchange_relaxed(&sparse_last, number);
    if (number == 0 || !hak_pool_draining(hak_slab_at(number << HAK_SLABS_SHIFT))) return;
  }
  hak_regret_done(&drain_regret, ms);
  purge_and_release(number, HAK_ALL_FREE, true);
}

// Queues a SuperSlab in use that has free slabs to purge; purges the one that falls out.
static void wait_for_purge(uint32_t number) {
  uint32_t other = hak_option(PURGE) < 2 ? 0 : hak_superslab_wait(HAK_QUEUE_PURGE, number);
  if (other) purge_hot(other);
}

void hak_pool_trimmed(const hak_slab_t *slab, uint32_t pages) {
  uint32_t number = hak_superslab_number(slab);
  hak_superslab_t *superslab = &hak_registry.superslabs[number];
  if (hak_load_relaxed(&superslab->huge) != HAK_HUGE_ADVISED) return;
  uint32_t holes = hak_fetch_add_relaxed(&superslab->holes, pages) + pages; // relaxed: it steers
  if (holes * hak_os_page_size >= IDLE_SLABS * HAK_SLAB_SIZE) hak_superslab_no_huge_page(superslab);
  wait_for_purge(number);
}

// A SuperSlab was evicted, so the load shrinks: purges one in huge pages that has hardly been
// used, which loses them (HAKMEM_PURGE=2).
static void split_unused(void) {
  if (hak_option(PURGE) < 2) return;
  unsigned looks = LOOKS;
  for (uint32_t number = 1;
       looks-- && (number = hak_index_find(HAK_LEVEL_EMPTY - 1, HAK_BAND_FIRST + 3, number)) != 0;
       number++) {
    hak_superslab_t *superslab = &hak_registry.superslabs[number];
    if (hak_load_relaxed(&superslab->huge) != HAK_HUGE_ADVISED ||
        hak_used_slabs((uint32_t)hak_load_relaxed(&superslab->free_mask)) > DRAINING_SLABS)
      continue;
    purge_hot(number);
    return;
  }
}

// Evicts up to `most` while more than keep are empty. At the limit of mappings the kernel refuses
// many, which stay empty: after REFUSALS the next trim goes on behind them.
static unsigned trim_some(size_t keep, unsigned most) {
  static _Atomic uint32_t last; // relaxed: steers which are tried first
  uint32_t number = hak_load_relaxed(&last);
  unsigned count = 0, refused = 0;
  bool from_the_start = number == 0;
  while (count < most && refused < REFUSALS && hak_load_relaxed(&empty_count) > keep) {
    number = hak_index_find(HAK_LEVEL_EMPTY, HAK_BAND_ANY, number + 1);
    if (number == 0 && from_the_start) break;
    if (number == 0) from_the_start = true;
    else if (evict(number)) count++;
    else refused += hak_load_relaxed(&hak_registry.superslabs[number].free_mask) == HAK_ALL_FREE;
  }
  if (refused || hak_load_relaxed(&last)) hak_store_relaxed(&last, refused ? number : 0);
  return count;
}

unsigned hak_pool_trim(size_t keep) { return trim_some(keep, UINT_MAX); }

static void release_set(uint32_t number, uint32_t bits, bool needed) {
  uint64_t old, now;
  uint32_t empties = release(number, bits, &old, &now);
  if (needed) return;
  if (got_sparse(old, now)) purge_sparse(number);
  if (empties == 0) {
    wait_for_purge(number);
    return;
  }
  uint32_t keep = hak_pool_keep_now();
  if (empties <= keep || !evict(number)) return;
  if (empties > keep + 1) trim_some(keep, keep ? PART : UINT_MAX); // the limit has fallen
  split_unused();
}

void hak_pool_release(hak_slab_t *slab, unsigned n) {
  release_set(hak_superslab_number(slab), hak_slab_bits(slab, n), false);
}

void hak_pool_release_with(hak_slab_t *slab, unsigned n, hak_parcel_t *parcel) {
  uint32_t number = hak_superslab_number(slab);
  if (number != parcel->number) hak_pool_release_all(parcel);
  parcel->number = number;
  parcel->bits |= hak_slab_bits(slab, n);
}

void hak_pool_release_all(hak_parcel_t *parcel) {
  if (parcel->bits != 0) release_set(parcel->number, parcel->bits, parcel->needed);
  parcel->bits = 0;
}

unsigned hak_pool_purge(void) {
  unsigned count = 0;
  for (uint32_t number = 1, superslabs = hak_superslab_count(); number < superslabs; number++) {
    count += hak_count_bits(purge_and_release(number, HAK_ALL_FREE, false));
    hak_superslab_split(number);
  }
  return count;
}

// Number of empty SuperSlabs beyond keep that nobody needed since empty_low was set.
static unsigned idle_beyond(unsigned keep) {
  int32_t idle = (int32_t)hak_load_relaxed(&empty_low),
          more = (int32_t)(hak_load_relaxed(&empty_count) - keep);
  if (idle <= 0 || more <= 0) return 0;
  return (unsigned)(idle < more ? idle : more);
}

unsigned hak_pool_trim_idle(unsigned keep) {
  unsigned count = trim_some(keep, idle_beyond(keep));
  hak_store_relaxed(&empty_low, hak_load_relaxed(&empty_count));
  return count;
}

// Evicts a part of the rest that is to go, ms after the last part. Some may be needed again by now.
static void trim_part(unsigned rest, uint64_t ms) {
  uint64_t most = hak_max(hak_load_relaxed(&going_all) * ms / GONE_MS, PART);
  unsigned keep = hak_pool_kept();
  rest = (unsigned)hak_min(rest, idle_beyond(keep));
  unsigned n = (unsigned)hak_min(hak_min(most, PART_MAX), rest);
  hak_store_relaxed(&going, rest - n);
  trim_some(keep, n);
}

// Purges the free slabs that were free at the last look already; false: none are worth it.
static bool purge_idle(uint32_t number) {
  hak_superslab_t *superslab = &hak_registry.superslabs[number];
  uint64_t word = hak_load_relaxed(&superslab->free_mask);
  uint32_t recent = hak_load_relaxed(&superslab->recent);
  if ((uint32_t)word == HAK_ALL_FREE) return false; // empty ones are evicted whole
  if (recent) hak_store_relaxed(&superslab->recent, 0u);
  uint32_t idle = (uint32_t)word & ~recent;
  if (hak_load_relaxed(&superslab->huge) != HAK_HUGE_ADVISED)
    idle &= hak_load_relaxed(&superslab->dirty);
  if (idle == 0 || (!(word & HAK_SUPERSLAB_DRAINING) && hak_count_bits(idle) < IDLE_SLABS))
    return false;
  return purge_and_release(number, idle, false) != 0;
}

// Does a part of a sweep from number on. Returns where the next part begins, 0: at the end.
static uint32_t sweep(uint32_t number) {
  uint32_t end = hak_superslab_count();
  unsigned purges = 0;
  for (unsigned looks = 0; looks < TEND_LOOKS && purges < TEND_PURGES; looks++, number++) {
    if (number >= end) return 0;
    purges += purge_idle(number) || hak_superslab_split(number);
  }
  return number;
}

bool hak_pool_tend(void) {
  uint64_t now = hak_os_clock_ms(), last = hak_load_relaxed(&tended_at);
  uint32_t rest = hak_load_relaxed(&going);
  if (!hak_is_due(&tended_at, now, rest ? PART_MS : TEND_MS)) return false;
  if (!hak_is_due(&looked_at, now, TEND_MS)) {
    if (rest) trim_part(rest, now - last);
    return false;
  }
  bool is_due = hak_is_due(&second_at, now, CALM_MS);
  hak_mapped_look();
  bool low = hak_mapped_near_limit();
  if (low) hak_pool_trim(0);
  if (is_due) {
    rest = idle_beyond(hak_pool_kept());
    hak_store_relaxed(&going_all, rest);
    hak_store_relaxed(&empty_low, hak_load_relaxed(&empty_count));
  }
  if (rest) trim_part(rest, now - last);
  // Relaxed, and two threads may do the same part at once: purge claims what it touches.
  uint32_t number = hak_load_relaxed(&sweep_next);
  if (number == 0 && is_due) number = 1;
  if (number != 0 && hak_option(PURGE) >= 2) hak_store_relaxed(&sweep_next, sweep(number));
  return is_due || low;
}

void hak_pool_rebuild(void) {
  uint32_t count = hak_superslab_count(), empties = 0;
  for (uint32_t number = 1; number < count; number++) {
    hak_superslab_t *superslab = &hak_registry.superslabs[number];
    // fork may have copied these at another time than the memory or the index: no memory
    // counts as zero, and a SuperSlab with free slabs is not cold.
    hak_store_relaxed(&superslab->dirty, UINT32_MAX);
    uint64_t word = hak_load_relaxed(&superslab->free_mask);
    if ((uint32_t)word && hak_index_has(HAK_INDEX_COLD, number)) hak_pool_leave_cold(number);
    hak_index_publish(number);
    empties += word == HAK_ALL_FREE;
  }
  hak_index_rebuild();
  hak_store_if_other(&empty_count, empties);
  hak_store_if_other(&sparse_last, 0u);
  hak_superslab_after_fork();
}
