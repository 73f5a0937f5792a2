// shared_pool.h: claims, releases, eviction and the index.

#include "pool.h"
#include "unit.h"

#include "core/options.h"
#include "core/pressure.h"
#include "os/os.h"
#include "superslab/pool_index.h"
#include "superslab/shared_pool.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"
#include "thread/process.h"

static uint32_t free_mask(uint32_t number) { return hak_registry.superslabs[number].free_mask; }
static uint64_t committed(void) { return hak_mapped.superslab_bytes >> HAK_SUPERSLAB_SHIFT; }
// HAKMEM_LRU_CAP alone decides how many are kept, however little is in use.
static void begin(void) {
  hak_process_init();
  unit_clock_step(0);
  hak_option(LRU_SHARE) = 0;
}

static hak_slab_t *acquire(unsigned n) {
  hak_source_t source;
  hak_slab_t *slab = pool_acquire(n, &source);
  CHECK(slab != NULL);
  return slab;
}

// The holder of each slab: no slab is claimed twice. Runs stay inside a SuperSlab.
#define SLABS_MAX (1u << 22)
static _Atomic uint8_t held[SLABS_MAX];
static void mark(const hak_slab_t *slab, unsigned n, uint8_t from, uint8_t to) {
  uint32_t index = hak_slab_index(slab);
  CHECK(index >= HAK_SLABS_PER_SUPERSLAB && index + n <= SLABS_MAX);
  CHECK_EQUAL(index >> HAK_SLABS_SHIFT, (index + n - 1) >> HAK_SLABS_SHIFT);
  for (unsigned i = 0; i < n; i++)
    CHECK_EQUAL(atomic_exchange_explicit(&held[index + i], to, memory_order_relaxed), from);
}

// The free masks match what is held.
static void check_masks(void) {
  for (uint32_t number = 1; number < hak_superslab_count(); number++) {
    uint32_t mask = free_mask(number);
    for (unsigned s = 0; mask && s < HAK_SLABS_PER_SUPERSLAB; s++)
      CHECK_EQUAL((mask >> s) & 1, held[(number << HAK_SLABS_SHIFT) + s] == 0);
  }
}

// ---------------------------------------------------------------------------

static void runs_of_every_length(void) {
  begin();
  hak_option(LRU_CAP) = 8; // no SuperSlab goes back in between
  hak_slab_t *slabs[17];
  for (unsigned round = 0; round < 50; round++) {
    for (unsigned n = 1; n <= 16; n++) mark(slabs[n] = acquire(n), n, 0, 1);
    check_masks();
    for (unsigned n = 1; n <= 16; n++) {
      mark(slabs[n], n, 1, 0);
      hak_pool_release(slabs[n], n);
    }
  }
  CHECK_EQUAL(hak_counter(superslab_evict), 0);
  // 136 slabs fit into 5 SuperSlabs; more than 6: holes are not found.
  CHECK(hak_superslab_count() - 1 <= 6);
}
ISOLATED(runs_of_every_length)

static void sources_and_results(void) {
  begin();
  hak_source_t source;
  hak_slab_t *first = pool_acquire(1, &source);
  CHECK_EQUAL(source, HAK_FROM_MAP);
  hak_slab_t *run = pool_acquire(16, &source);
  CHECK_EQUAL(source, HAK_FROM_POOL);
  CHECK_EQUAL(hak_superslab_number(run), hak_superslab_number(first));
  hak_pool_release(first, 1);
  CHECK_EQUAL(hak_counter(superslab_empty), 0);
  hak_pool_release(run, 16);
  CHECK_EQUAL(hak_counter(superslab_empty), 1);
  CHECK_EQUAL(free_mask(hak_superslab_number(run)), UINT32_MAX);
  run = pool_acquire(5, &source);
  CHECK_EQUAL(source, HAK_FROM_REUSE);
  hak_pool_release(run, 5);
  CHECK_EQUAL(hak_counter(superslab_empty), 2);
  CHECK_EQUAL(hak_counter(superslab_evict), 0);
  CHECK_EQUAL(hak_pool_trim(0), 1);
  CHECK_EQUAL(hak_pool_trim(0), 0);
  CHECK_EQUAL(committed(), 0);
  run = pool_acquire(5, &source);
  CHECK_EQUAL(source, HAK_FROM_MAP);
  CHECK_EQUAL(hak_superslab_count(), 2); // the cold number is used again
}
ISOLATED(sources_and_results)

// After a single peak all SuperSlabs but LRU_CAP go back.
static uint64_t cap;
static void empties_beyond_the_cache_go(void) {
  begin();
  hak_option(LRU_CAP) = cap;
  hak_slab_t *halves[60];
  uint64_t evicted = hak_counter(superslab_evict), emptied = hak_counter(superslab_empty);
  for (unsigned i = 0; i < 60; i++) halves[i] = acquire(16);
  CHECK_EQUAL(committed(), 30);
  for (unsigned i = 0; i < 60; i++) hak_pool_release(halves[i], 16);
  CHECK_EQUAL(hak_counter(superslab_empty) - emptied, 30);
  CHECK_EQUAL(hak_counter(superslab_evict) - evicted, 30 - cap);
  CHECK_EQUAL(committed(), cap);
  for (unsigned i = 0; i < 60; i++) halves[i] = acquire(16);
  CHECK_EQUAL(hak_superslab_count() - 1, 30); // the numbers are used again
  for (unsigned i = 0; i < 60; i++) hak_pool_release(halves[i], 16);
  uint64_t kept = committed();
  CHECK_EQUAL(hak_pool_trim(1), kept > 1 ? kept - 1 : 0);
  CHECK_EQUAL(committed(), kept > 1 ? 1 : kept);
}

static void cache_of_every_size(void **state) {
  (void)state;
  const uint64_t caps[] = {0, 1, 8, 20, 30};
  for (unsigned k = 0; k < COUNT(caps); k++) {
    cap = caps[k];
    unit_in_child(empties_beyond_the_cache_go);
  }
}

// A swinging load pays for its first three swings only. The first evicts all but those that
// may stay; by the fourth the pool knows that it evicted too many.
static void swing(unsigned superslabs) {
  uint64_t before = hak_counter(superslab_evict);
  for (unsigned i = 0; i < 40; i++) {
    hak_slab_t *halves[60];
    if (i == 3) before = hak_counter(superslab_evict);
    for (unsigned k = 0; k < 2 * superslabs; k++) halves[k] = acquire(16);
    for (unsigned k = 0; k < 2 * superslabs; k++) hak_pool_release(halves[k], 16);
    if (i == 0) CHECK_EQUAL(hak_counter(superslab_evict) - before, superslabs - hak_option(LRU_CAP));
  }
  CHECK_EQUAL(hak_counter(superslab_evict), before);
  CHECK_EQUAL(committed(), superslabs);
}

static void a_swinging_load_is_learnt(void) {
  begin();
  hak_option(LRU_CAP) = 4;
  swing(30);
  // The end of a thread does not evict them either, however often one ends.
  for (unsigned i = 0; i < 3; i++) CHECK_EQUAL(hak_pool_trim_idle(hak_pool_keep_now()), 0);
  CHECK_EQUAL(hak_pool_trim_idle(hak_pool_kept()), 26);
}
ISOLATED(a_swinging_load_is_learnt)

static void a_small_swing_too(void) {
  begin();
  hak_option(LRU_CAP) = 2;
  swing(5);
}
ISOLATED(a_small_swing_too)

// A search for a run passes over most SuperSlabs that have room for half of it. Where there is no
// memory for another one, all are looked at.
static void room_that_is_hard_to_find(void) {
  enum { RUN = 10, OTHERS = 30, RUN_OF_THOSE = 8 }; // they have as many free slabs, in two runs
  begin();
  hak_slab_t *halves[2 * (OTHERS + 1)];
  for (unsigned i = 0; i < COUNT(halves); i++) halves[i] = acquire(16);
  for (unsigned i = 0; i < OTHERS; i++) {
    hak_pool_release(halves[2 * i], RUN_OF_THOSE);
    hak_pool_release(halves[2 * i + 1], RUN - RUN_OF_THOSE);
  }
  hak_slab_t *room = halves[2 * OTHERS];
  hak_pool_release(room, RUN);
  hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_COMMIT, 0, false);
  hak_source_t source;
  CHECK(pool_acquire(RUN + 1, &source) == NULL);
  CHECK(pool_acquire(RUN, &source) == room);
  CHECK_EQUAL(source, HAK_FROM_POOL);
  CHECK(pool_acquire(RUN, &source) == NULL);
}
ISOLATED(room_that_is_hard_to_find)

// With little in use little is kept; but a load that swings between nothing and little is learnt.
static void a_share_of_what_is_in_use(void) {
  hak_process_init();
  hak_option(LRU_CAP) = 2;
  hak_option(LRU_SHARE) = 25;
  hak_slab_t *halves[24];
  for (unsigned i = 0; i < 24; i++) halves[i] = acquire(16);
  for (unsigned used = 12; used-- > 0;) {
    hak_pool_release(halves[2 * used], 16);
    hak_pool_release(halves[2 * used + 1], 16);
    unsigned kept = used >= 8 ? 2 : used >= 4 ? 1 : 0, empty = 12 - used;
    CHECK_EQUAL(committed(), used + (empty < kept ? empty : kept));
  }
  uint64_t evicted = 0;
  for (unsigned swing = 0; swing < 40; swing++) {
    if (swing == 20) evicted = hak_counter(superslab_evict);
    hak_pool_release(acquire(16), 16);
  }
  CHECK_EQUAL(hak_counter(superslab_evict), evicted);
}
ISOLATED(a_share_of_what_is_in_use)

// SuperSlabs that stayed empty since the last look go, beyond the number to be kept.
static void idle_ones_go(void) {
  begin();
  hak_option(LRU_CAP) = 8;
  hak_slab_t *halves[12];
  for (unsigned i = 0; i < 12; i++) halves[i] = acquire(16);
  for (unsigned i = 0; i < 12; i++) hak_pool_release(halves[i], 16);
  CHECK_EQUAL(committed(), 6);
  CHECK_EQUAL(hak_pool_trim_idle(2), 0); // they were in use just now
  CHECK_EQUAL(hak_pool_trim_idle(2), 4);
  CHECK_EQUAL(committed(), 2);
  hak_pool_release(acquire(16), 16); // one was needed, one was not
  CHECK_EQUAL(hak_pool_trim_idle(0), 1);
  hak_option(LRU_CAP) = 0;
  hak_pool_tend(); // the first call of a second looks
  CHECK_EQUAL(committed(), 0);
}
ISOLATED(idle_ones_go)

// SuperSlabs whose memory the kernel does not take stay empty ones: they serve when it gives no other
// memory either, and go when it takes them.
static void refused_evictions(void) {
  begin();
  hak_option(LRU_CAP) = 0;
  hak_slab_t *halves[6];
  for (unsigned i = 0; i < 6; i++) halves[i] = acquire(16);
  hak_pool_release(halves[0], 16);
  hak_pool_release(halves[1], 16); // this one goes
  CHECK_EQUAL(hak_counter(superslab_evict), 1);
  hak_os_fault(HAK_FAULT_UNMAP, 0, false);
  for (unsigned i = 2; i < 6; i++) hak_pool_release(halves[i], 16);
  CHECK_EQUAL(hak_pool_trim(0), 0);
  CHECK_EQUAL(hak_counter(superslab_evict), 1);
  CHECK_EQUAL(committed(), 2);
  hak_os_fault(HAK_FAULT_ALL, 0, false);
  for (unsigned i = 0; i < 4; i++) halves[i] = acquire(16);
  for (unsigned i = 0; i < 4; i++) hak_pool_release(halves[i], 16);
  hak_os_fault(0, 0, false);
  CHECK_EQUAL(hak_pool_trim(0), 2);
  CHECK_EQUAL(hak_counter(superslab_evict), 3);
  CHECK_EQUAL(committed(), 0);
}
ISOLATED(refused_evictions)

// Of many that are refused each trim tries some, the next one others, and all go in the end.
static void many_refused_evictions(void) {
  enum { MANY = 100, TRIES = 64 };
  begin();
  hak_option(LRU_CAP) = MANY;
  static hak_slab_t *halves[2 * MANY];
  for (unsigned i = 0; i < 2 * MANY; i++) halves[i] = acquire(16);
  for (unsigned i = 0; i < 2 * MANY; i++) hak_pool_release(halves[i], 16);
  CHECK_EQUAL(committed(), MANY);
  for (uint32_t number = 1; number <= MANY; number++) hak_registry.superslabs[number].dirty = 1;
  for (unsigned round = 0; round < 2; round++) {
    hak_os_fault(HAK_FAULT_UNMAP, 0, false);
    uint64_t purged = hak_counter(slab_purge), went = round == 0 ? TRIES : MANY - TRIES;
    CHECK_EQUAL(hak_pool_trim(0), 0);
    CHECK_EQUAL(hak_os_fault_calls(), TRIES);
    CHECK_EQUAL(hak_counter(slab_purge), purged + went); // their pages did go
    hak_os_fault(0, 0, false);
  }
  for (uint32_t number = 1; number <= MANY; number++)
    CHECK_EQUAL(hak_registry.superslabs[number].dirty, 0); // each was tried
  CHECK_EQUAL(hak_pool_trim(0), MANY);
  CHECK_EQUAL(committed(), 0);
}
ISOLATED(many_refused_evictions)

// Each call evicts a part of many, so that none takes long; more where calls are rare.
enum { SUPERSLABS = 100, PART = 16 };
static unsigned evicted_by_tend(void) {
  static uint64_t called_at;
  uint64_t before = hak_counter(superslab_evict), now = hak_os_clock_ms(), last = called_at ? called_at : now;
  called_at = now;
  hak_pool_tend();
  unsigned count = (unsigned)(hak_counter(superslab_evict) - before);
  unsigned most = (unsigned)(SUPERSLABS * (hak_os_clock_ms() - last) / 1000) + 1; // all per second
  CHECK(count <= (most < PART ? PART : most));
  return count;
}

static void idle_ones_go_in_parts(void) {
  begin();
  hak_option(LRU_CAP) = SUPERSLABS, hak_option(LRU_SHARE) = 0;
  static hak_slab_t *halves[2 * SUPERSLABS];
  for (unsigned round = 0; round < 2; round++) {
    for (unsigned i = 0; i < COUNT(halves); i++) halves[i] = acquire(16);
    for (unsigned i = 0; i < COUNT(halves); i++) hak_pool_release(halves[i], 16);
    hak_option(LRU_CAP) = 4;
    unsigned looks = 0;
    while (evicted_by_tend() == 0) { // until the first was idle for a second
      CHECK(++looks < 1000);
      unit_clock_step(10);
    }
    if (round == 0) {
      // Three SuperSlabs are needed at times.
      for (unsigned i = 0; i < 6; i++) halves[i] = acquire(16);
      for (unsigned i = 0; i < 6; i++) hak_pool_release(halves[i], 16);
      for (unsigned i = 0; i < 20; i++) {
        unit_clock_step(10);
        evicted_by_tend();
      }
      CHECK_EQUAL(committed(), 4);
      hak_option(LRU_CAP) = SUPERSLABS;
      continue;
    }
    unit_clock_step(1050);
    CHECK(evicted_by_tend() > PART && committed() == 4);
  }
}
ISOLATED(idle_ones_go_in_parts)

// One release does not give back all that are too many since the limit has fallen either.
static void a_fallen_limit_in_parts(void) {
  begin();
  hak_option(LRU_CAP) = SUPERSLABS;
  static hak_slab_t *halves[2 * SUPERSLABS];
  for (unsigned i = 0; i < COUNT(halves); i++) halves[i] = acquire(16);
  for (unsigned i = 0; i < COUNT(halves) - 1; i++) hak_pool_release(halves[i], 16);
  CHECK_EQUAL(hak_counter(superslab_evict), 0);
  hak_option(LRU_CAP) = 4;
  hak_pool_release(halves[COUNT(halves) - 1], 16);
  CHECK_EQUAL(hak_counter(superslab_evict), 1 + PART); // its own SuperSlab, and a part
  for (unsigned left = SUPERSLABS - 1 - PART; left > 4;) {
    hak_pool_release(acquire(16), 16);
    left = left > 4 + 1 + PART ? left - 1 - PART : 4;
    CHECK_EQUAL(committed(), left);
  }
}
ISOLATED(a_fallen_limit_in_parts)

// The number of empty SuperSlabs to keep is halved for each second without a regret.
static void calm_halves_the_limit(void) {
  begin();
  hak_option(LRU_CAP) = 4;
  swing(30);
  unit_clock_step(1050);
  unsigned first = hak_pool_keep_now();
  CHECK(first >= 15 && first > hak_pool_kept());
  unit_clock_step(1050);
  CHECK_EQUAL(hak_pool_keep_now(), first / 2);
}
ISOLATED(calm_halves_the_limit)

// A sweep purges slabs that were free at the sweep before, unless they are few in a SuperSlab.
static void idle_slabs_go(void) {
  enum { IDLE_SLABS = 4 };
  begin();
  hak_option(PURGE) = 0; // no purge at the release
  hak_slab_t *many[2], *few[3];
  for (unsigned i = 0; i < 2; i++) many[i] = acquire(16);
  few[0] = acquire(16), few[1] = acquire(16 - IDLE_SLABS), few[2] = acquire(IDLE_SLABS);
  CHECK_EQUAL(hak_superslab_number(many[0]), hak_superslab_number(many[1]));
  for (unsigned i = 1; i < 3; i++)
    CHECK_EQUAL(hak_superslab_number(few[0]), hak_superslab_number(few[i]));
  hak_pool_release(many[1], 16);
  hak_pool_release(few[2], IDLE_SLABS - 1);
  hak_option(PURGE) = 2;
  CHECK(hak_pool_tend()); // the first call sweeps
  CHECK_EQUAL(hak_counter(slab_purge), 0);
  unit_clock_step(1050);
  CHECK(hak_pool_tend());
  CHECK_EQUAL(hak_counter(slab_purge), 16);
  hak_pool_release(few[2] + IDLE_SLABS - 1, 1);
  unit_clock_step(1050);
  CHECK(hak_pool_tend());
  CHECK_EQUAL(hak_counter(slab_purge), 16); // three have been idle for longer, the fourth has not
  unit_clock_step(1050);
  CHECK(hak_pool_tend());
  CHECK_EQUAL(hak_counter(slab_purge), 16 + IDLE_SLABS);
}
ISOLATED(idle_slabs_go)

// Idle SuperSlabs, being evicted, and others in use whose free slabs have pages.
enum { GOING = 400, HELD = 64, KEPT = 4 };
static void some_are_going(void) {
  static hak_slab_t *going[2 * GOING], *in_use[2 * HELD];
  begin();
  hak_option(LRU_CAP) = GOING;
  for (unsigned i = 0; i < COUNT(in_use); i++) memset(hak_slab_start(in_use[i] = acquire(16)), 1, 1);
  for (unsigned i = 0; i < COUNT(going); i++) going[i] = acquire(16);
  hak_option(PURGE) = 0; // no purge at the release
  for (unsigned i = 0; i < COUNT(in_use); i += 2) hak_pool_release(in_use[i], 16);
  for (unsigned i = 0; i < COUNT(going); i++) hak_pool_release(going[i], 16);
  hak_option(PURGE) = 2;
  hak_option(LRU_CAP) = KEPT;
  for (unsigned looks = 0; hak_counter(superslab_evict) == 0; looks++) {
    CHECK(looks < 1000);
    unit_clock_step(10);
    hak_pool_tend();
  }
}

// A part is bounded, however long ago the last call was.
static void a_part_has_an_end(void) {
  enum { PART_MAX = 128 };
  some_are_going();
  CHECK(hak_counter(superslab_evict) <= PART_MAX);
  unit_clock_step(900); // time for 360 of them; any later, a look that finds all anew is due
  uint64_t before = hak_counter(superslab_evict);
  hak_pool_tend();
  CHECK(hak_counter(superslab_evict) - before > PART && hak_counter(superslab_evict) - before <= PART_MAX);
}
ISOLATED(a_part_has_an_end)

static void a_sweep_goes_on_meanwhile(void) {
  enum { EACH = 8, EVERY_MS = 50 };
  some_are_going();
  uint64_t begun = hak_os_clock_ms(), purged = hak_counter(slab_purge);
  while (committed() > KEPT + HELD) {
    unit_clock_step(5);
    hak_pool_tend();
    CHECK(hak_os_clock_ms() - begun < 60000);
  }
  uint64_t sweeps = (hak_os_clock_ms() - begun) / EVERY_MS;
  CHECK(hak_counter(slab_purge) > purged);
  CHECK(hak_counter(slab_purge) - purged <= 16 * EACH * (sweeps + 1)); // slabs
}
ISOLATED(a_sweep_goes_on_meanwhile)

// A sweep that takes longer than a second does not put off what is due once a second.
static void a_long_sweep(void) {
  enum { SUPERSLABS = 400 };
  begin();
  static hak_slab_t *halves[2 * SUPERSLABS];
  for (unsigned i = 0; i < COUNT(halves); i++) memset(hak_slab_start(halves[i] = acquire(16)), 1, 1);
  hak_option(PURGE) = 0; // no purge at the release
  for (unsigned i = 0; i < COUNT(halves); i += 2) hak_pool_release(halves[i], 16);
  hak_option(PURGE) = 2;
  CHECK_EQUAL(committed(), SUPERSLABS);
  CHECK_EQUAL(hak_counter(slab_purge), 0);
  uint64_t begun = hak_os_clock_ms();
  uint64_t purged = 0;
  unsigned due = 0, last = 0;
  while (due < 5 && hak_os_clock_ms() - begun < 60000) {
    due += hak_pool_tend();
    if (hak_counter(slab_purge) != purged) purged = hak_counter(slab_purge), last = due;
    unit_clock_step(10);
  }
  CHECK_EQUAL(due, 5);
  CHECK(last >= 3); // the sweep went on meanwhile
}
ISOLATED(a_long_sweep)

// A SuperSlab in use is preferred to an empty one.
static void empties_are_last(void) {
  begin();
  hak_slab_t *a = acquire(16), *b = acquire(16), *c = acquire(16);
  hak_pool_release(a, 16);
  hak_pool_release(b, 16);
  CHECK_EQUAL(free_mask(hak_superslab_number(a)), UINT32_MAX);
  CHECK(hak_superslab_number(c) > hak_superslab_number(a));
  for (unsigned i = 0; i < 16; i++) CHECK_EQUAL(hak_superslab_number(acquire(1)), hak_superslab_number(c));
  CHECK_EQUAL(hak_superslab_number(acquire(1)), hak_superslab_number(a));
}
ISOLATED(empties_are_last)

// `zeroed` is true only of memory that is zero, across reuse, eviction and trims.
static void zeroed_is_true(void) {
  begin();
  enum { LIVE = 40 };
  struct {
    hak_slab_t *slab;
    unsigned n;
  } live[LIVE] = {{0}};
  uint64_t seed = 3;
  unsigned fresh = 0, used = 0;
  hak_option(LRU_CAP) = 2;
  for (unsigned i = 0; i < SCALED(4000u); i++) {
    unsigned k = (unsigned)chance_below(&seed, LIVE);
    if (live[k].slab) {
      hak_pool_release(live[k].slab, live[k].n);
      live[k].slab = NULL;
    } else {
      live[k].n = 1 + (unsigned)chance_below(&seed, 16);
      hak_slab_t *slab = live[k].slab = acquire(live[k].n);
      char *memory = hak_slab_start(slab);
      if (slab->zeroed) CHECK(all_zero(memory, live[k].n * HAK_SLAB_SIZE));
      *(slab->zeroed ? &fresh : &used) += 1;
      // One dirty byte anywhere, sometimes none at all.
      if (i % 4) memory[chance_below(&seed, live[k].n * HAK_SLAB_SIZE)] = 1;
    }
    if (i % 200 == 0) hak_pool_trim((unsigned)chance_below(&seed, 3));
    if (i % 500 == 0) // all are released, so that whole SuperSlabs become empty
      for (unsigned j = 0; j < LIVE; j++)
        if (live[j].slab) hak_pool_release(live[j].slab, live[j].n), live[j].slab = NULL;
  }
  CHECK(fresh > SCALED(50) && used > SCALED(50)); // both happened
}
ISOLATED(zeroed_is_true)

// One compare-and-swap claims several single slabs: the lowest free ones.
static void more_than_one(void) {
  begin();
  hak_claim_t claim;
  CHECK(!hak_pool_find(1, 3, &claim));
  CHECK(hak_pool_map(1, 3, true, &claim));
  hak_slab_t *first = claim.slab;
  CHECK_EQUAL(claim.more, 14);
  CHECK_EQUAL(claim.source, HAK_FROM_MAP);
  hak_pool_release(first + 1, 1);
  hak_pool_release(first + 3, 1);
  CHECK(hak_pool_find(1, 3, &claim));
  CHECK(claim.slab == first + 1);
  CHECK_EQUAL(claim.more, 1u << 2 | 1u << 3 | 1u << 4); // slabs 3, 4 and 5
  for (unsigned i = 1; i < 5; i++)
    if (claim.more >> i & 1) CHECK_EQUAL(claim.slab[i].zeroed, i != 2);
  CHECK_EQUAL(free_mask(hak_superslab_number(first)), UINT32_MAX << 6);
  CHECK(hak_pool_find(1, 31, &claim)); // all that is left
  CHECK_EQUAL(__builtin_popcount(claim.more), 25);
  CHECK(hak_pool_find(1, 3, &claim) == false);
  CHECK(hak_pool_map(16, 3, true, &claim)); // a run brings no other slabs
  CHECK_EQUAL(claim.more, 0);
}
ISOLATED(more_than_one)

// ---------------------------------------------------------------------------
// Row S5: tiers.

static bool draining(uint32_t number) {
  return (hak_registry.superslabs[number].free_mask & HAK_SUPERSLAB_DRAINING) != 0;
}
// Number of a new SuperSlab with all slabs in use.
static uint32_t full_one(void) {
  hak_claim_t claim;
  CHECK(hak_pool_map(1, 31, true, &claim));
  return hak_superslab_number(claim.slab);
}
static void release(uint32_t number, unsigned from, unsigned to) {
  for (unsigned i = from; i < to; i++) hak_pool_release(hak_slab_at((number << HAK_SLABS_SHIFT) + i), 1);
}

static void the_fullest_first(void) {
  begin();
  hak_option(TIERS) = 1;
  uint32_t sparse = full_one(), dense = full_one(), middle = full_one(), empty = full_one();
  release(sparse, 0, 20);
  release(dense, 0, 2);
  release(middle, 0, 7);
  release(empty, 0, 32);
  const uint32_t order[] = {dense, middle, sparse, empty};
  const unsigned room[] = {2, 7, 20, 32};
  for (unsigned k = 0; k < 4; k++)
    for (unsigned i = 0; i < room[k]; i++) CHECK_EQUAL(hak_superslab_number(acquire(1)), order[k]);
}
ISOLATED(the_fullest_first)

static void sparse_ones_drain(void) {
  begin();
  hak_option(TIERS) = 1;
  hak_option(LRU_CAP) = 8;
  uint32_t a = full_one(), b = full_one(), hot = full_one();
  release(hot, 0, 10);
  release(a, 0, 23);
  CHECK(!draining(a) && hak_counter(tier_draining) == 0);
  release(a, 23, 24); // a quarter is still in use
  CHECK(draining(a));
  CHECK_EQUAL(hak_counter(tier_draining), 1);
  release(b, 0, 29);
  CHECK(draining(b) && hak_counter(tier_draining) == 2);
  // A DRAINING one gets no new slab while a HOT one has room; then the fullest comes first.
  for (unsigned i = 0; i < 10; i++) CHECK_EQUAL(hak_superslab_number(acquire(1)), hot);
  hak_source_t source;
  CHECK_EQUAL(hak_superslab_number(pool_acquire(1, &source)), a);
  CHECK_EQUAL(source, HAK_FROM_DRAINING);
  CHECK(!draining(a) && hak_counter(tier_hot) == 1);
  // It stays HOT until it has been well used again.
  release(a, 0, 1);
  release(a, 24, 30);
  CHECK(!draining(a));
  CHECK_EQUAL(hak_superslab_number(pool_acquire(2, &source)), a);
  CHECK_EQUAL(source, HAK_FROM_POOL);
  // An empty SuperSlab is FREE; its next life starts HOT.
  release(b, 29, 32);
  CHECK(!draining(b));
  CHECK_EQUAL(hak_counter(tier_free), 1);
  CHECK_EQUAL(free_mask(b), UINT32_MAX);
  hak_pool_trim(0);
  CHECK_EQUAL(hak_counter(superslab_evict), 1);
}
ISOLATED(sparse_ones_drain)

// Slabs that are not needed yet come from no DRAINING SuperSlab.
static void unused_ones_do_not_stop_a_drain(void) {
  begin();
  hak_option(TIERS) = 1;
  hak_claim_t claim;
  CHECK(!hak_pool_find_unused(3, &claim)); // nothing is mapped for it
  CHECK_EQUAL(committed(), 0);
  hak_slab_t *slabs[32];
  for (unsigned i = 0; i < 32; i++) slabs[i] = acquire(1);
  hak_pool_release(slabs[0], 1);
  CHECK(hak_pool_find_unused(3, &claim));
  CHECK_EQUAL(claim.source, HAK_FROM_POOL);
  CHECK_EQUAL(claim.more, 0); // only one was free
  for (unsigned i = 0; i < 31; i++) hak_pool_release(slabs[i], 1);
  CHECK(draining(hak_superslab_number(slabs[31])));
  CHECK(!hak_pool_find_unused(3, &claim));
  hak_pool_release(slabs[31], 1);
  CHECK(hak_pool_find_unused(3, &claim));
  CHECK_EQUAL(claim.source, HAK_FROM_REUSE);
  CHECK_EQUAL(__builtin_popcount(claim.more), 3);
}
ISOLATED(unused_ones_do_not_stop_a_drain)

static uint32_t dirty(uint32_t number) { return hak_registry.superslabs[number].dirty; }

// Slabs released together are free at once, whichever SuperSlabs they belong to.
static void parcels(void) {
  begin();
  hak_option(LRU_CAP) = 8;
  hak_slab_t *slabs[100];
  for (unsigned n = 0; n <= 100; n++) {
    hak_parcel_t parcel = {0};
    for (unsigned i = 0; i < n; i++) mark(slabs[i] = acquire(1 + i % 3), 1 + i % 3, 0, 1);
    for (unsigned i = 0; i < n; i++) {
      mark(slabs[i], 1 + i % 3, 1, 0);
      hak_pool_release_with(slabs[i], 1 + i % 3, &parcel);
    }
    hak_pool_release_all(&parcel);
    hak_pool_release_all(&parcel); // nothing is left in it
    check_masks();
    for (uint32_t number = 1; number < hak_superslab_count(); number++)
      CHECK_EQUAL(free_mask(number), UINT32_MAX);
  }
  CHECK_EQUAL(hak_pool_trim(0), hak_superslab_count() - 1);
}
ISOLATED(parcels)

// What is needed at once stays resident: SuperSlabs that get sparse, and one that gets empty.
static void needed_parcels(void) {
  begin();
  hak_option(TIERS) = 1;
  hak_option(PURGE) = 2;
  hak_option(LRU_CAP) = 0;
  uint32_t number[8];
  for (unsigned i = 0; i < COUNT(number); i++) number[i] = full_one();
  hak_parcel_t parcel = {.needed = true};
  for (unsigned i = 0; i < COUNT(number); i++) {
    hak_slab_t *slab = hak_slab_at(number[i] << HAK_SLABS_SHIFT);
    for (unsigned k = 0; k < (i ? 28 : 32); k++) hak_pool_release_with(slab + k, 1, &parcel);
  }
  hak_pool_release_all(&parcel);
  CHECK(free_mask(number[0]) == UINT32_MAX && free_mask(number[7]) == UINT32_MAX >> 4);
  CHECK(hak_counter(slab_purge) == 0 && hak_counter(superslab_evict) == 0);
  for (unsigned i = 0; i < COUNT(number); i++) CHECK_EQUAL(dirty(number[i]), UINT32_MAX);
}
ISOLATED(needed_parcels)

// The pages of a DRAINING SuperSlab's free slabs go back once it, or another, has become
// sparser since: began to drain, or lost half of its slabs. Slabs in use stay as they are.
static char *memory_of(uint32_t number, unsigned slab) {
  return hak_slab_start(hak_slab_at((number << HAK_SLABS_SHIFT) + slab));
}
static uint32_t purged_in(uint32_t number) { return hak_registry.superslabs[number].purged; }

static void draining_ones_are_purged(void) {
  begin();
  hak_option(TIERS) = 1;
  hak_option(PURGE) = 1;
  uint32_t a = full_one();
  for (unsigned i = 0; i < 32; i++) memset(memory_of(a, i), (int)i + 1, HAK_SLAB_SIZE);
  release(a, 0, 23);
  CHECK_EQUAL(hak_counter(slab_purge), 0);
  release(a, 23, 27);
  CHECK(draining(a));
  CHECK_EQUAL(hak_counter(slab_purge), 0);
  release(a, 27, 28); // 4 are left
  CHECK_EQUAL(hak_counter(slab_purge), 28);
  CHECK_EQUAL(dirty(a), UINT32_MAX << 28);
  CHECK_EQUAL(free_mask(a), UINT32_MAX >> 4);
  for (unsigned i = 0; i < 28; i++) CHECK(all_zero(memory_of(a, i), HAK_SLAB_SIZE));
  for (unsigned i = 28; i < 32; i++)
    for (size_t at = 0; at < HAK_SLAB_SIZE; at += 512) CHECK_EQUAL(memory_of(a, i)[at], i + 1);
  release(a, 28, 29);
  CHECK_EQUAL(hak_counter(slab_purge), 28);
  release(a, 29, 30); // 2
  CHECK_EQUAL(hak_counter(slab_purge), 30);
  release(a, 30, 31); // 1
  CHECK_EQUAL(hak_counter(slab_purge), 31);
  release(a, 31, 32);
  CHECK_EQUAL(free_mask(a), UINT32_MAX);
  hak_slab_t *again = acquire(16);
  CHECK(hak_superslab_number(again) == a && again->zeroed == !(dirty(a) & UINT32_MAX << 16));
}
ISOLATED(draining_ones_are_purged)

static void the_last_one_waits(void) {
  begin();
  hak_option(TIERS) = 1;
  hak_option(PURGE) = 1;
  uint32_t number[3];
  for (unsigned i = 0; i < 3; i++) number[i] = full_one();
  for (unsigned i = 0; i < 3; i++) {
    release(number[i], 0, 24);
    CHECK_EQUAL(hak_counter(slab_purge), 24 * i);
  }
  CHECK(dirty(number[1]) == UINT32_MAX << 24 && dirty(number[2]) == UINT32_MAX);
  CHECK(purged_in(number[1]) == hak_ones(0, 24) && purged_in(number[2]) == 0);
  for (unsigned i = 0; i < 3 * 24; i++) acquire(1);
  for (unsigned i = 0; i < 3; i++) CHECK(!draining(number[i]) && purged_in(number[i]) == 0);
  release(number[0], 0, 24);
  CHECK_EQUAL(hak_counter(slab_purge), 48); // the one that waited is HOT again
  hak_memory_limit = 1;
  release(number[1], 0, 24);
  CHECK_EQUAL(hak_counter(slab_purge), 72);
  CHECK_EQUAL(dirty(number[1]), UINT32_MAX << 24);
  // The mask of purged slabs of an empty SuperSlab is used once.
  hak_memory_limit = UINT64_MAX;
  release(number[1], 24, 32);
  CHECK(free_mask(number[1]) == UINT32_MAX && purged_in(number[1]) != 0);
  while (free_mask(number[1]) == UINT32_MAX) acquire(1);
  CHECK(free_mask(number[1]) == UINT32_MAX << 1 && purged_in(number[1]) == 0);
}
ISOLATED(the_last_one_waits)

static void purge_of_all(void) {
  begin();
  hak_option(TIERS) = 1;
  uint32_t a = full_one(), b = full_one();
  for (unsigned i = 0; i < 32; i++) *memory_of(a, i) = *memory_of(b, i) = 1;
  release(a, 3, 7);
  CHECK_EQUAL(hak_pool_purge(), 4);
  CHECK(free_mask(a) == 15u << 3 && purged_in(a) == 0); // nothing to regret
  CHECK_EQUAL(hak_pool_purge(), 0);
  hak_slab_t *run = acquire(4);
  CHECK(hak_superslab_number(run) == a && run->zeroed && !*hak_slab_start(run));
  for (unsigned i = 0; i < 3; i++) CHECK_EQUAL(*memory_of(a, i), 1);
}
ISOLATED(purge_of_all)

// A SuperSlab without memory is zero when it gets memory again.
static void purge_of_none(void) {
  begin();
  uint32_t a = full_one();
  *memory_of(a, 0) = 1;
  hak_registry.superslabs[a].huge = HAK_HUGE_ADVISED;
  release(a, 0, 32);
  hak_pool_trim(0);
  CHECK_EQUAL(free_mask(a), 0);
  CHECK_EQUAL(hak_pool_purge(), 0);
  hak_slab_t *slab = acquire(1);
  CHECK(hak_superslab_number(slab) == a && slab->zeroed && !*memory_of(a, 0));
}
ISOLATED(purge_of_none)

// Slabs of a full SuperSlab are released in steps, and needed again, many times: purging stops.
static void release_and_need(unsigned steps, const unsigned to[], bool from_the_end) {
  begin();
  hak_option(TIERS) = 1;
  uint32_t a = full_one();
  uint64_t purged = 0;
  for (unsigned swing = 0; swing < 20; swing++) {
    if (swing == 10) purged = hak_counter(slab_purge);
    for (unsigned i = 0; i < steps; i++) {
      unsigned from = i ? to[i - 1] : 0;
      if (!from_the_end) release(a, from, to[i]);
      else
        for (unsigned k = from; k < to[i]; k++) release(a, 31 - k, 32 - k);
    }
    CHECK_EQUAL(free_mask(a), hak_ones(0, to[steps - 1]));
    for (unsigned i = 0; i < to[steps - 1]; i++) CHECK_EQUAL(hak_superslab_number(acquire(1)), a);
  }
  CHECK(purged > 0 && hak_counter(slab_purge) == purged);
}
// Sparse SuperSlabs that are needed again at once keep their pages.
static void no_purge_in_a_load_that_swings(void) { release_and_need(1, (unsigned[]){30}, false); }
ISOLATED(no_purge_in_a_load_that_swings)
// So do those that become empty on the way and are then used again.
static void no_purge_in_bursts(void) { release_and_need(3, (unsigned[]){24, 28, 32}, false); }
ISOLATED(no_purge_in_bursts)
// The same if the slabs that were freed last, and have their pages, are used first.
static void no_purge_in_bursts_backwards(void) {
  release_and_need(3, (unsigned[]){24, 28, 32}, true);
}
ISOLATED(no_purge_in_bursts_backwards)

// A hardly used huge page is not kept when another SuperSlab goes back.
static void unused_huge_pages_go(void) {
  hak_process_init();
  hak_option(TIERS) = 1;
  hak_option(PURGE) = 2;
  hak_option(LRU_CAP) = 0;
  uint32_t used = full_one(), other = full_one();
  hak_claim_t claim;
  CHECK(hak_pool_map(1, 1, true, &claim));
  uint32_t sparse = hak_superslab_number(claim.slab);
  release(used, 0, 16);
  hak_registry.superslabs[sparse].huge = hak_registry.superslabs[used].huge = HAK_HUGE_ADVISED;
  *memory_of(sparse, 0) = 1;
  *memory_of(sparse, 20) = 1;
  release(other, 0, 32);
  CHECK_EQUAL(hak_counter(superslab_evict), 1);
  CHECK_EQUAL(dirty(sparse), 3);
  CHECK(hak_registry.superslabs[sparse].huge == HAK_HUGE_BEFORE && free_mask(sparse) == ~3u);
  CHECK(hak_registry.superslabs[used].huge == HAK_HUGE_ADVISED);
  CHECK(*memory_of(sparse, 0) == 1 && *memory_of(sparse, 20) == 0);
}
ISOLATED(unused_huge_pages_go)

// Neither is the unused part of a SuperSlab in which a slab in use was trimmed, once 4 others
// had one trimmed as well (WAITING). Small pages that nobody used were never resident.
static void unused_beside_trimmed_go(void) {
  hak_process_init();
  hak_option(PURGE) = 2;
  uint32_t numbers[6];
  for (unsigned i = 0; i < COUNT(numbers); i++) {
    hak_slab_t *run = acquire(16);
    numbers[i] = hak_superslab_number(run);
    acquire(11);
    CHECK_EQUAL(free_mask(numbers[i]), 0x1f);
    hak_registry.superslabs[numbers[i]].huge = i == 1 ? HAK_HUGE_NO : HAK_HUGE_ADVISED;
    *memory_of(numbers[i], 2) = 1; // as if the huge page were there
  }
  for (unsigned i = 0; i < COUNT(numbers); i++) {
    hak_slab_t *slab = hak_slab_at((numbers[i] << HAK_SLABS_SHIFT) + 31);
    hak_pool_trimmed(slab, 1);
    hak_pool_trimmed(slab, 1); // it waits already
    CHECK_EQUAL(hak_counter(slab_purge), i < 5 ? 0 : 5);
  }
  CHECK(*memory_of(numbers[0], 2) == 0 && free_mask(numbers[0]) == 0x1f);
  for (unsigned i = 1; i < COUNT(numbers); i++) CHECK_EQUAL(*memory_of(numbers[i], 2), 1);
}
ISOLATED(unused_beside_trimmed_go)

// Nor does one without free slabs remain a huge page, which the kernel would make whole again, once
// an eighth of it was given back. When it is mapped anew that does not count any more.
static void trimmed_is_no_huge_page(void) {
  hak_process_init();
  hak_option(LRU_CAP) = 0;
  const uint32_t most = (uint32_t)(HAK_SUPERSLAB_SIZE / 8 / hak_os_page_size);
  for (int i = 0; i < 2; i++) {
    uint32_t number = full_one();
    _Atomic uint32_t *huge = &hak_registry.superslabs[number].huge;
    *huge = HAK_HUGE_ADVISED;
    hak_pool_trimmed(hak_slab_at(number << HAK_SLABS_SHIFT), most - 1);
    CHECK(*huge == HAK_HUGE_ADVISED);
    hak_pool_trimmed(hak_slab_at((number << HAK_SLABS_SHIFT) + 31), 1);
    CHECK(*huge == HAK_HUGE_BEFORE);
    CHECK_EQUAL(dirty(number), UINT32_MAX);
    release(number, 0, 32);
    CHECK_EQUAL(committed(), 0);
  }
}
ISOLATED(trimmed_is_no_huge_page)

// A SuperSlab that was a huge page and has stayed is split: when a second is over, or by a trim. The
// kernel would keep what was given back otherwise. Not outside the range, where it may be gone.
static void what_stays_is_split(void) {
  begin();
  hak_option(PURGE) = 2;
  const uint32_t after = hak_registry.base ? HAK_HUGE_SPLIT : HAK_HUGE_BEFORE;
  uint32_t numbers[4];
  for (unsigned i = 0; i < COUNT(numbers); i++) {
    numbers[i] = full_one();
    hak_registry.superslabs[numbers[i]].huge = i == 3 ? HAK_HUGE_ADVISED : HAK_HUGE_BEFORE;
  }
  release(numbers[2], 0, 32);
  CHECK_EQUAL(hak_pool_purge(), 0);
  for (unsigned i = 0; i < 2; i++) CHECK_EQUAL(hak_registry.superslabs[numbers[i]].huge, after);
  CHECK(hak_registry.superslabs[numbers[2]].huge != HAK_HUGE_SPLIT);
  CHECK_EQUAL(hak_registry.superslabs[numbers[3]].huge, HAK_HUGE_ADVISED);
  hak_registry.superslabs[numbers[0]].huge = HAK_HUGE_BEFORE;
  hak_pool_tend(); // the first call sweeps
  unit_clock_step(1050);
  CHECK(hak_pool_tend());
  CHECK_EQUAL(hak_registry.superslabs[numbers[0]].huge, after);
}
ISOLATED(what_stays_is_split)

// Near the memory limit of the process no empty SuperSlab is kept.
static void short_of_memory(void) {
  begin();
  hak_option(LRU_CAP) = 8;
  hak_memory_limit = UINT64_MAX;
  hak_pool_release(acquire(16), 16);
  CHECK_EQUAL(committed(), 1);
  hak_slab_t *a = acquire(16), *b = acquire(16), *c = acquire(16);
  hak_memory_limit = hak_load_relaxed(&hak_mapped.mapped) + HAK_SUPERSLAB_SIZE / 16;
  hak_pool_release(c, 16);
  CHECK_EQUAL(hak_counter(superslab_evict), 1);
  hak_memory_limit *= 2;
  hak_pool_release(a, 16), hak_pool_release(b, 16);
  CHECK_EQUAL(committed(), 1);
  // SuperSlabs kept before go too. Mapped bytes do not count: many of them were never resident.
  hak_memory_limit = 1;
  unit_clock_step(60);
  hak_pool_tend();
  CHECK_EQUAL(committed(), 0);
  hak_memory_limit = UINT64_MAX;
}
ISOLATED(short_of_memory)

static void without_tiers_the_first(void) {
  begin();
  hak_option(TIERS) = 0;
  uint32_t a = full_one(), b = full_one();
  release(a, 0, 30);
  release(b, 0, 2);
  CHECK(!draining(a) && hak_counter(tier_draining) == 0);
  for (unsigned i = 0; i < 30; i++) CHECK_EQUAL(hak_superslab_number(acquire(1)), a);
  CHECK_EQUAL(hak_superslab_number(acquire(1)), b);
}
ISOLATED(without_tiers_the_first)

// ---------------------------------------------------------------------------
// Row S4: full SuperSlabs cost nothing.

static uint64_t cheapest_round_trip(hak_slab_t *expected, unsigned n) {
  uint64_t best = UINT64_MAX;
  for (unsigned round = 0; round < 20; round++) {
    uint64_t start = unit_thread_ns();
    for (unsigned i = 0; i < 100; i++) {
      hak_slab_t *slab = acquire(n);
      CHECK(slab == expected);
      hak_pool_release(slab, n);
    }
    uint64_t took = (unit_thread_ns() - start) / 100;
    if (took < best) best = took;
  }
  return best;
}

static void full_ones_are_not_searched(void) {
  begin();
  enum { FULL = SCALED(100000) };
  static hak_slab_t *high[FULL], *low[FULL];
  high[0] = acquire(16), low[0] = acquire(16);
  hak_pool_release(low[0] + 3, 1);
  uint64_t alone = cheapest_round_trip(low[0] + 3, 1);
  CHECK(acquire(1) == low[0] + 3);
  for (unsigned i = 1; i < FULL; i++) {
    high[i] = acquire(16);
    low[i] = acquire(16);
    CHECK_EQUAL(hak_superslab_number(high[i]), i + 1);
    CHECK_EQUAL(hak_superslab_number(low[i]), i + 1);
  }
  // One slab, then three more in the last SuperSlab: found behind all the full ones.
  hak_pool_release(low[FULL - 1] + 5, 1);
  uint64_t crowded = cheapest_round_trip(low[FULL - 1] + 5, 1);
  hak_pool_release(low[FULL - 1] + 6, 3);
  uint64_t run = cheapest_round_trip(low[FULL - 1] + 5, 4);
  printf("ns per claim and release: %llu alone, %llu and %llu (a run) behind %u full SuperSlabs\n",
         (unsigned long long)alone, (unsigned long long)crowded, (unsigned long long)run, FULL - 1);
  CHECK(crowded < 4 * alone + 1000);
  CHECK(run < 4 * alone + 1000);
  // A hole in the middle of the full ones is found as well, and nothing is mapped for it.
  uint64_t before = committed();
  hak_pool_release(high[FULL / 2], 16);
  // (A run of n slabs is searched for where 2^k >= n neighbouring slabs are free.)
  CHECK_EQUAL(hak_superslab_number(acquire(8)), FULL / 2 + 1);
  CHECK_EQUAL(hak_superslab_number(acquire(4)), hak_option(TIERS) ? FULL : FULL / 2 + 1); // the fuller one
  CHECK_EQUAL(hak_superslab_number(acquire(3)), FULL / 2 + 1);
  CHECK_EQUAL(committed(), before);
}
ISOLATED(full_ones_are_not_searched)

// After fork the index is rebuilt from the free masks: every free slab is found, none is lost, and
// no memory counts as zero. fork may have copied each page of these at another time.
static void rebuild(void) {
  enum { LAST_SET = HAK_BAND_LAST };
  begin();
  hak_slab_t *slabs[200];
  for (unsigned i = 0; i < COUNT(slabs); i++) slabs[i] = acquire(16);
  for (unsigned i = 0; i < COUNT(slabs); i += 3) hak_pool_release(slabs[i], 16);
  uint32_t count = hak_superslab_count(), full = 0;
  uint64_t bytes = committed();
  CHECK(count > 64 && count <= 128); // two groups of the index
  // The summary is older than the second group: it lacks all bits of the group.
  hak_index_group_t *groups = hak_index_groups, saved = groups[1];
  for (uint32_t number = 64; number < count; number++)
    if (free_mask(number) == 0) full = number;
  CHECK(full != 0);
  for (unsigned k = 0; k <= LAST_SET; k++) groups[1].set[k] = UINT64_C(1) << full % 64;
  hak_index_publish(full);
  for (unsigned k = 0; k <= LAST_SET; k++) groups[1].set[k] = saved.set[k];
  CHECK_EQUAL(hak_index_find(0, HAK_BAND_ANY, 64), 0);
  // The first group is older than the masks, and from a time when a SuperSlab had no memory.
  for (unsigned k = 0; k <= LAST_SET; k++) groups[0].set[k] = 0;
  uint32_t number = hak_superslab_number(slabs[0]);
  CHECK(free_mask(number) != 0);
  hak_pool_add_cold(number);
  for (uint32_t i = 1; i < count; i++) hak_registry.superslabs[i].dirty = 0;
  hak_pool_rebuild();
  CHECK(!hak_index_has(HAK_INDEX_COLD, number));
  for (uint32_t i = 1; i < count; i++) CHECK_EQUAL(hak_registry.superslabs[i].dirty, UINT32_MAX);
  for (unsigned i = 0; i < COUNT(slabs); i += 3) {
    hak_slab_t *slab = acquire(16);
    mark(slab, 16, 0, 1);
    CHECK(!slab->zeroed);
  }
  CHECK_EQUAL(hak_superslab_count(), count);
  CHECK_EQUAL(committed(), bytes);
}
ISOLATED(rebuild)

// ---------------------------------------------------------------------------
// Many threads.

#define THREADS 6
static _Atomic unsigned acquired;

// Claims one slab; the slabs that come with it are given back.
static hak_slab_t *acquire_more(uint8_t me) {
  hak_claim_t claim;
  if (!hak_pool_find(1, 3, &claim)) CHECK(hak_pool_map(1, 3, true, &claim));
  for (; claim.more; claim.more &= claim.more - 1) {
    hak_slab_t *slab = claim.slab + hak_low_bit(claim.more);
    mark(slab, 1, 0, me);
    mark(slab, 1, me, 0);
    hak_pool_release(slab, 1);
  }
  return claim.slab;
}

static void *claim_and_release(void *argument) {
  uint8_t me = (uint8_t)(uintptr_t)argument;
  uint64_t seed = me * 77u;
  enum { LIVE = 24 };
  struct {
    hak_slab_t *slab;
    unsigned n;
  } live[LIVE] = {{0}};
  for (unsigned i = 0; i < SCALED(60000u); i++) {
    unsigned k = (unsigned)chance_below(&seed, LIVE);
    if (live[k].slab) {
      mark(live[k].slab, live[k].n, me, 0);
      hak_pool_release(live[k].slab, live[k].n);
      live[k].slab = NULL;
    } else {
      unsigned n = chance_below(&seed, 4) ? 1 : 1 + (unsigned)chance_below(&seed, 16);
      live[k].slab = n == 1 ? acquire_more(me) : acquire(n);
      live[k].n = n;
      mark(live[k].slab, n, 0, me);
      // The memory is accessible and no other thread's.
      char *last = hak_slab_start(live[k].slab) + n * HAK_SLAB_SIZE - 1;
      *last = (char)me;
      CHECK(*last == (char)me);
      hak_fetch_add_relaxed(&acquired, 1);
    }
    if (i % 1000 == 0) hak_pool_trim(me % 2 ? 0 : 3);
  }
  for (unsigned k = 0; k < LIVE; k++) {
    if (!live[k].slab) continue;
    mark(live[k].slab, live[k].n, me, 0);
    hak_pool_release(live[k].slab, live[k].n);
  }
  return NULL;
}

static void no_slab_is_claimed_twice(void) {
  begin();
  hak_option(LRU_CAP) = 2;
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) threads[i] = unit_start(claim_and_release, (void *)(i + 1));
  for (unsigned i = 0; i < THREADS; i++) unit_join(threads[i]);
  check_masks();
  CHECK(acquired > THREADS * SCALED(60000u) / 3);
  // All slabs are free again and the index knows it: everything can be trimmed, and the same
  // numbers serve again.
  hak_pool_trim(0);
  CHECK_EQUAL(committed(), 0);
  uint32_t count = hak_superslab_count();
  for (uint32_t i = 1; i < count; i++) acquire(16), acquire(16);
  CHECK_EQUAL(hak_superslab_count(), count);
  CHECK(count < 6 * 24 * 16 / 16 + 8);
}
ISOLATED(no_slab_is_claimed_twice)

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(runs_of_every_length),
    ISOLATED_TEST(sources_and_results),
    ISOLATED_TEST(room_that_is_hard_to_find),
    cmocka_unit_test(cache_of_every_size),
    ISOLATED_TEST(a_swinging_load_is_learnt),
    ISOLATED_TEST(a_small_swing_too),
    ISOLATED_TEST(a_share_of_what_is_in_use),
    ISOLATED_TEST(idle_ones_go),
    ISOLATED_TEST(refused_evictions),
    ISOLATED_TEST(many_refused_evictions),
    ISOLATED_TEST(idle_ones_go_in_parts),
    ISOLATED_TEST(a_fallen_limit_in_parts),
    ISOLATED_TEST(calm_halves_the_limit),
    ISOLATED_TEST(idle_slabs_go),
    ISOLATED_TEST(a_part_has_an_end),
    ISOLATED_TEST(a_sweep_goes_on_meanwhile),
    ISOLATED_TEST(a_long_sweep),
    ISOLATED_TEST(empties_are_last),
    ISOLATED_TEST(zeroed_is_true),
    ISOLATED_TEST(more_than_one),
    ISOLATED_TEST(the_fullest_first),
    ISOLATED_TEST(sparse_ones_drain),
    ISOLATED_TEST(unused_ones_do_not_stop_a_drain),
    ISOLATED_TEST(parcels),
    ISOLATED_TEST(needed_parcels),
    ISOLATED_TEST(draining_ones_are_purged),
    ISOLATED_TEST(the_last_one_waits),
    ISOLATED_TEST(purge_of_all),
    ISOLATED_TEST(purge_of_none),
    ISOLATED_TEST(no_purge_in_a_load_that_swings),
    ISOLATED_TEST(no_purge_in_bursts),
    ISOLATED_TEST(no_purge_in_bursts_backwards),
    ISOLATED_TEST(unused_huge_pages_go),
    ISOLATED_TEST(trimmed_is_no_huge_page),
    ISOLATED_TEST(unused_beside_trimmed_go),
    ISOLATED_TEST(what_stays_is_split),
    ISOLATED_TEST(short_of_memory),
    ISOLATED_TEST(without_tiers_the_first),
    ISOLATED_TEST(full_ones_are_not_searched),
    ISOLATED_TEST(rebuild),
    ISOLATED_TEST(no_slab_is_claimed_twice),
  };
  return RUN(tests);
}
