// huge_cache.h: freed mappings serve the next blocks, never two at once, never as zero; what is
// kept is bounded, follows the load and goes back.

#include "unit.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/options.h"
#include "core/pagemap.h"
#include "core/pressure.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "pool/huge.h"
#include "pool/huge_cache.h"
#include "superslab/superslab.h"
#include "thread/heap.h"
#include "thread/process.h"

static uint64_t kept(void) { return hak_mapped.cached_bytes; }
static void *alloc(size_t size) { return hak_huge_alloc(size, 1, false); }

static void swing(size_t size, unsigned rounds) {
  for (unsigned i = 0; i < rounds; i++) {
    void *p = alloc(size);
    CHECK(p != NULL && hak_huge_free(p));
  }
}

// The state of a load that has shown that it reuses mappings.
static void set_up(uint64_t bound) {
  hak_process_init();
  unit_clock_step(0);
  hak_option(HUGE_CACHE) = bound;
  swing(MIB, 20);
  hak_huge_cache_trim(0);
  hak_counter(huge_reuse) = 0;
}

static void freed_mappings_serve_again(void) {
  set_up(64 * MIB);
  void *other = alloc(16 * MIB); // so that more than a few bytes are in use
  char *p = alloc(4 * MIB), *q;
  fill(p, 4 * MIB, 1);
  CHECK(hak_huge_free(p));
  CHECK_EQUAL(kept(), 4 * MIB);
  CHECK_EQUAL(hak_mapped.huge_bytes, 16 * MIB);
  // Meanwhile it is no block.
  CHECK(hak_huge_usable(p) == 0 && !hak_huge_free(p) && hak_huge_around(p + 1) == NULL);
  CHECK(alloc(4 * MIB) == p);
  CHECK_EQUAL(kept(), 0);
  CHECK(hak_huge_free(p));
  // A little too long: as it is. Much too long: the end is cut off.
  CHECK(alloc(4 * MIB - 8192) == p);
  CHECK_EQUAL(hak_huge_usable(p), 4 * MIB);
  CHECK(hak_huge_free(p));
  CHECK(alloc(MIB + 4096) == p);
  CHECK_EQUAL(hak_huge_usable(p), MIB + 4096);
  CHECK(filled(p, MIB + 4096, 1));
  CHECK(hak_huge_free(p));
  hak_huge_cache_trim(0);
  p = alloc(2 * MIB);
  fill(p, 2 * MIB, 1);
  CHECK(hak_huge_free(p));
  // A mapping that is too short grows without copying, in place or elsewhere.
  for (unsigned walled = 0; walled < 2; walled++) {
    void *wall = NULL;
    if (walled) {
      wall = mmap(p + 2 * MIB, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      CHECK(wall == p + 2 * MIB);
    }
    CHECK((q = alloc(7 * MIB)) != NULL);
    if (walled) CHECK(q != p && munmap(wall, 4096) == 0);
    CHECK_EQUAL(hak_huge_usable(q), 7 * MIB);
    CHECK(((uintptr_t)q & (2 * MIB - 1)) == 0);
    CHECK(filled(q, 2 * MIB, 1) && all_zero(q + 2 * MIB, 5 * MIB));
    CHECK(hak_huge_free(q));
    CHECK((p = alloc(2 * MIB)) == q);
    hak_huge_cache_trim(0); // drops the rest
    CHECK(hak_huge_free(p));
  }
  CHECK_EQUAL(hak_counter(huge_reuse), 7);
  CHECK_EQUAL(hak_huge_cache_trim(0), 2 * MIB);
  CHECK_EQUAL(kept(), 0);
  CHECK(hak_huge_free(other));
}
ISOLATED(freed_mappings_serve_again)

// With few bytes in use, a block may have up to four times what it needs while there are at
// most two others, and realloc leaves up to twice what is needed.
static void few_stay_long(void) {
  set_up(64 * MIB);
  char *p = alloc(8 * MIB);
  CHECK(hak_huge_free(p) && kept() == 8 * MIB);
  CHECK(alloc(2 * MIB) == p && hak_huge_usable(p) == 8 * MIB);
  CHECK(hak_huge_resize(p, 4 * MIB) == p && hak_huge_usable(p) == 8 * MIB);
  CHECK(hak_huge_resize(p, 4 * MIB - 4096) == p && hak_huge_usable(p) == 4 * MIB - 4096);
  CHECK(hak_huge_free(p));
  hak_huge_cache_trim(0);
  CHECK(hak_huge_free(alloc(8 * MIB)));
  p = alloc(2 * MIB - 4096); // more than four times
  CHECK(hak_huge_usable(p) == 2 * MIB && kept() == 6 * MIB);
  CHECK(hak_huge_free(p));
  hak_huge_cache_trim(0);
  void *others[3];
  for (unsigned i = 0; i < COUNT(others); i++) {
    CHECK(hak_huge_free(alloc(8 * MIB)));
    p = alloc(2 * MIB);
    CHECK(hak_huge_usable(p) == 8 * MIB && hak_huge_free(p));
    hak_huge_cache_trim(0);
    others[i] = alloc(65536);
  }
  CHECK(hak_huge_free(alloc(8 * MIB)));
  p = alloc(2 * MIB);
  CHECK(hak_huge_usable(p) == 2 * MIB && kept() == 6 * MIB && hak_huge_free(p));
  for (unsigned i = 0; i < COUNT(others); i++) CHECK(hak_huge_free(others[i]));
  hak_huge_cache_trim(0);
  // No longer when as much is in use as would be kept.
  void *other = alloc(100 * MIB);
  CHECK(hak_huge_free(alloc(8 * MIB)));
  p = alloc(5 * MIB);
  CHECK_EQUAL(hak_huge_usable(p), 5 * MIB);
  CHECK(hak_huge_free(other));
  CHECK(hak_huge_resize(p, 3 * MIB) == p && hak_huge_usable(p) == 5 * MIB); // few bytes are in use
  CHECK(hak_huge_free(p));
  hak_option(HUGE_CACHE) = 0;
  CHECK_EQUAL(hak_huge_cache_room(), 0);
  p = alloc(8 * MIB);
  CHECK(hak_huge_resize(p, 6 * MIB) == p && hak_huge_usable(p) == 6 * MIB);
  CHECK(hak_huge_free(p));
}
ISOLATED(few_stay_long)

// The best-fitting mapping is taken, but none that is far too long or far too short.
static void best_fit(void) {
  set_up(64 * MIB);
  void *p[4], *between[4]; // in between, or kept mappings might be joined
  const size_t sizes[] = {8 * MIB, 2 * MIB, 3 * MIB, 5 * MIB};
  hak_huge_free(alloc(60 * MIB)); // the bound is not learnt yet: not kept
  CHECK_EQUAL(kept(), 0);
  void *other = alloc(16 * MIB); // so that more than a few bytes are in use
  for (unsigned i = 1; i < 4; i++)
    CHECK((p[i] = alloc(sizes[i])) != NULL && (between[i] = alloc(2 * MIB)) != NULL);
  CHECK(hak_huge_free(p[1]) && hak_huge_free(p[2]));
  CHECK(alloc(2 * MIB + 4096) == p[2]);
  CHECK(hak_huge_free(p[3])); // 2 and 5 MiB are kept now
  CHECK(alloc(MIB + 1) == p[1]);
  CHECK(alloc(4 * MIB) == p[3]);
  CHECK_EQUAL(kept(), MIB); // the end of that mapping
  hak_huge_cache_trim(0);
  CHECK(hak_huge_free(p[1])); // cut to little more than 1 MiB
  void *big = alloc(30 * MIB);
  CHECK(big != NULL && big != p[1]);
  CHECK(kept() > MIB);
  // Requests with other alignments than a SuperSlab's, and much shorter ones, are mapped as ever.
  void *aligned = hak_huge_alloc(2 * MIB, 64 * MIB, false), *small = alloc(5000);
  CHECK(((uintptr_t)aligned & (64 * MIB - 1)) == 0 && small != NULL && kept() > MIB);
  CHECK(hak_huge_free(small) && hak_huge_usable(small) == 0 && kept() < 2 * MIB);
  for (unsigned i = 1; i < 4; i++) CHECK(hak_huge_free(between[i]));
  CHECK(hak_huge_free(other));
}
ISOLATED(best_fit)

static void calloc_stays_untouched(void) {
  set_up(64 * MIB);
  char *p = hak_malloc(6 * MIB);
  memset(p, 1, 6 * MIB);
  hak_free(p);
  CHECK(kept() != 0);
  char *q = hak_calloc(1, 6 * MIB);
  unsigned char resident[6 * 256];
  CHECK(mincore(q, 6 * MIB, resident) == 0);
  if (!SANITIZED)
    for (unsigned i = 0; i < COUNT(resident); i++) CHECK(!(resident[i] & 1));
  CHECK(all_zero(q, 6 * MIB));
  hak_free(q);
}
ISOLATED(calloc_stays_untouched)

// Blocks of up to 1 MiB that are mappings because of their alignment are kept too.
static void short_ones_are_kept(void) {
  set_up(64 * MIB);
  const size_t sizes[] = {200000, 57345, 5000, 1};
  for (unsigned i = 0; i < COUNT(sizes); i++) {
    char *p = hak_huge_alloc(sizes[i], 2 * MIB, false);
    CHECK(p != NULL && hak_huge_free(p) && kept() != 0);
    CHECK(hak_huge_alloc(sizes[i], 2 * MIB, false) == p);
    CHECK(kept() == 0 && hak_huge_free(p));
    CHECK(hak_huge_cache_trim(0) != 0 && kept() == 0);
  }
}
ISOLATED(short_ones_are_kept)

// The bytes by which a kept mapping grows count as not kept: a table that doubles, many times.
static void growth_counts(void) {
  set_up(64 * MIB);
  swing(30 * MIB, 40); // the bound is learnt, but at most 16 MiB beside what is in use
  hak_huge_cache_trim(0);
  const size_t sizes[] = {20 * MIB, 2 * MIB, 8 * MIB};
  uint64_t evicted = 0;
  for (unsigned i = 0; i < 20; i++) {
    if (i == 1) CHECK(hak_counter(huge_evict) > evicted);
    if (i == 12) evicted = hak_counter(huge_evict);
    for (unsigned k = 0; k < COUNT(sizes); k++) CHECK(hak_huge_free(alloc(sizes[k])));
  }
  CHECK_EQUAL(hak_counter(huge_evict), evicted);
}
ISOLATED(growth_counts)

// A small block cut from a kept mapping does not make the rest of it any younger.
static void rests_are_as_old(void) {
  set_up(64 * MIB);
  void *other = alloc(16 * MIB), *p; // so that more than a few bytes are in use
  swing(6 * MIB, 1);
  CHECK_EQUAL(kept(), 6 * MIB);
  unit_clock_step(600);
  CHECK((p = alloc(2 * MIB)) != NULL);
  CHECK_EQUAL(kept(), 4 * MIB);
  hak_huge_cache_tend();
  CHECK_EQUAL(kept(), 4 * MIB);
  unit_clock_step(600);
  hak_huge_cache_tend();
  CHECK_EQUAL(kept(), 0);
  CHECK(hak_huge_free(p) && hak_huge_free(other));
}
ISOLATED(rests_are_as_old)

// The unused rest of a mapping serves other blocks and is rejoined when both are kept.
static void split_and_joined(void) {
  set_up(64 * MIB);
  void *others[4];
  for (unsigned i = 0; i < COUNT(others); i++) others[i] = alloc(8 * MIB);
  char *p = alloc(8 * MIB);
  fill(p, 8 * MIB, 1);
  CHECK(hak_huge_free(p) && kept() == 8 * MIB);
  CHECK(alloc(2 * MIB) == p && hak_huge_usable(p) == 2 * MIB && kept() == 6 * MIB);
  CHECK(alloc(3 * MIB) == p + 2 * MIB && hak_huge_usable(p + 2 * MIB) == 3 * MIB);
  CHECK_EQUAL(kept(), 2 * MIB);
  CHECK(filled(p, 5 * MIB, 1));
  CHECK(hak_huge_around(p + 3 * MIB) == p + 2 * MIB && hak_huge_around(p + 6 * MIB) == NULL);
  CHECK(hak_huge_free(p + 2 * MIB) && hak_huge_free(p));
  CHECK(alloc(5 * MIB) == p && hak_huge_usable(p) == 5 * MIB && kept() == 2 * MIB);
  CHECK(filled(p, 5 * MIB, 1));
  CHECK(hak_huge_free(p) && kept() == 7 * MIB);
  // Only as much as has to go is cut off, from the end.
  CHECK_EQUAL(hak_huge_cache_trim(3 * MIB), 2 * MIB + 3 * MIB);
  CHECK_EQUAL(kept(), 2 * MIB);
  CHECK(alloc(2 * MIB) == p && filled(p, 2 * MIB, 1) && hak_huge_free(p));
  for (unsigned i = 0; i < COUNT(others); i++) CHECK(hak_huge_free(others[i]));
}
ISOLATED(split_and_joined)

// Most of a kept mapping goes back if only its beginning is reused, however often.
static void a_little_keeps_little(void) {
  enum { OTHERS = 40 };
  set_up(128 * MIB);
  void *others[OTHERS];
  for (unsigned i = 0; i < OTHERS; i++) CHECK((others[i] = alloc(2 * MIB)) != NULL);
  swing(90 * MIB, 30);
  CHECK_EQUAL(kept(), 90 * MIB);
  for (unsigned i = 0; i < 9; i++) {
    unit_clock_step(400);
    swing(MIB + MIB / 2, 4);
    hak_huge_cache_tend();
  }
  CHECK(kept() <= 13 * MIB);
  for (unsigned i = 0; i < OTHERS; i++) CHECK(hak_huge_free(others[i]));
}
ISOLATED(a_little_keeps_little)

// A request that fails does not influence what the cache has learnt.
static void refused_is_not_learnt(void) {
  set_up(128 * MIB);
  swing(16 * MIB, 20);
  for (unsigned swings = 0; swings < 2; swings++) {
    void *p[14];
    for (unsigned i = 0; i < COUNT(p); i++) CHECK((p[i] = alloc(2 * MIB)) != NULL);
    for (unsigned i = 0; i < COUNT(p); i++) CHECK(hak_huge_free(p[i]));
    CHECK(kept() >= 16 * MIB && kept() <= 27 * MIB); // what a load needs anew counts half
    CHECK(alloc((size_t)1 << 48) == NULL);
  }
}
ISOLATED(refused_is_not_learnt)

// Nothing is lost. Kept and used bytes together exceed the peak of used bytes by at most an
// eighth of it or 8 MiB, whichever is larger.
static void nothing_is_lost(void) {
  enum { LIVE = 12, ROUNDS_ = 4000 };
  set_up(128 * MIB);
  hak_huge_cache_trim(0);
  size_t address_space = status_kib("VmSize:"), mappings = mapping_count(), most = 0;
  char *p[LIVE] = {NULL};
  uint64_t seed = 1;
  for (unsigned i = 0; i < ROUNDS_; i++) {
    unsigned k = (unsigned)chance_below(&seed, LIVE);
    if (p[k]) {
      CHECK(p[k][0] == (char)k && p[k][hak_huge_usable(p[k]) - 1] == (char)k);
      CHECK(hak_huge_free(p[k]));
    }
    CHECK((p[k] = alloc(MIB + chance_below(&seed, 1 + chance_below(&seed, 12 * MIB)))) != NULL);
    p[k][0] = p[k][hak_huge_usable(p[k]) - 1] = (char)k;
    if (i % 300 == 0) hak_huge_cache_trim(chance_below(&seed, 16) * MIB);
    if (hak_mapped.huge_bytes > most) most = hak_mapped.huge_bytes;
    CHECK(kept() + hak_mapped.huge_bytes <= most + (most / 8 > 8 * MIB ? most / 8 : 8 * MIB));
  }
  CHECK(hak_counter(huge_reuse) > ROUNDS_ / 2);
  for (unsigned k = 0; k < LIVE; k++) CHECK(hak_huge_free(p[k]));
  hak_huge_cache_trim(0);
  CHECK(kept() == 0 && hak_mapped.huge_bytes == 0);
  if (!SANITIZED) CHECK(status_kib("VmSize:") <= address_space + 100 * KIB);
  CHECK(mapping_count() <= mappings + 2);
}
ISOLATED(nothing_is_lost)

// Zeroed blocks that are used in full reuse kept mappings, and are zero nevertheless.
static void zeros_that_fill_are_cleared(void) {
  set_up(64 * MIB);
  unsigned with = 0;
  for (unsigned i = 0; i < 100; i++) {
    uint64_t before = hak_counter(huge_reuse);
    char *p = hak_huge_alloc(4 * MIB, 1, true);
    CHECK(p && p[0] == 0 && memcmp(p, p + 1, 4 * MIB - 1) == 0);
    fill(p, 4 * MIB, 1);
    with += hak_counter(huge_reuse) != before;
    CHECK(hak_huge_free(p));
    CHECK(kept() <= 4 * MIB || !pages_are_told());
  }
  CHECK(with > 80 || !pages_are_told());
  // Shorter blocks are cleared too; of a longer mapping only as much as was requested.
  unsigned longer = 0;
  for (unsigned i = 0; i < 50; i++) {
    size_t size = i & 1 ? 3 * MIB : 4 * MIB;
    char *p = hak_huge_alloc(size, 1, true);
    CHECK(p && all_zero(p, size));
    longer += hak_huge_usable(p) > size;
    fill(p, hak_huge_usable(p), 1);
    CHECK(hak_huge_free(p));
  }
  CHECK(longer > 10 || !pages_are_told());
  // The next sample is not in use: later blocks are fresh again, and kept mappings stay.
  for (unsigned i = 0; i < 40; i++) {
    char *p = hak_huge_alloc(4 * MIB, 1, true);
    CHECK(p && p[MIB] == 0 && p[4 * MIB - 1] == 0);
    CHECK(hak_huge_free(p));
  }
  uint64_t before = hak_counter(huge_reuse);
  char *p = hak_huge_alloc(4 * MIB, 1, true);
  CHECK_EQUAL(hak_counter(huge_reuse), before);
  CHECK(hak_huge_free(p));
}
ISOLATED(zeros_that_fill_are_cleared)

static void bound_is_learnt_and_kept(void) {
  enum { N = 40 };
  void *p[N];
  hak_process_init();
  hak_option(HUGE_CACHE) = 64 * MIB;
  // After a single peak nothing stays.
  for (unsigned i = 0; i < N; i++) CHECK((p[i] = alloc(3 * MIB)) != NULL);
  for (unsigned i = 0; i < N; i++) CHECK(hak_huge_free(p[i]) && kept() == 0);
  // Memory that is needed again at once is kept.
  swing(30 * MIB, 40);
  CHECK(kept() == 30 * MIB);
  uint64_t reuses = hak_counter(huge_reuse);
  swing(30 * MIB, 40);
  CHECK_EQUAL(hak_counter(huge_reuse), reuses + 40);
  swing(100 * MIB, 40); // never more than the option's value
  CHECK(kept() <= 64 * MIB);
  for (unsigned i = 0; i < N; i++) CHECK((p[i] = alloc(MIB + 4096)) != NULL);
  for (unsigned i = 0; i < N; i++) CHECK(hak_huge_free(p[i]) && kept() <= 64 * MIB);
  CHECK(kept() <= 16 * MIB); // the program holds nothing any more
  // More is kept each time if it is needed again each time.
  for (unsigned swings = 0; swings < 20; swings++) {
    uint64_t before = kept();
    for (unsigned i = 0; i < N; i++) CHECK((p[i] = alloc(MIB + 4096)) != NULL);
    for (unsigned i = 0; i < N; i++) CHECK(hak_huge_free(p[i]));
    CHECK(kept() >= before && kept() <= before + 14 * MIB);
  }
  CHECK(kept() >= 36 * MIB);
  // Kept mappings go by age, and the bound falls.
  for (unsigned i = 0; i < 6; i++) {
    unit_clock_step(1100);
    hak_huge_cache_tend();
    CHECK_EQUAL(kept(), 0);
  }
  swing(30 * MIB, 1);
  CHECK_EQUAL(kept(), 0);
  hak_option(HUGE_CACHE) = 0;
  swing(2 * MIB, 20);
  CHECK_EQUAL(kept(), 0);
}
ISOLATED(bound_is_learnt_and_kept)

static void nothing_near_the_limit(void) {
  set_up(64 * MIB);
  swing(4 * MIB, 1);
  CHECK(kept() != 0);
  CHECK(hak_trim(0));
  CHECK_EQUAL(kept(), 0);
  hak_memory_limit = hak_mapped.mapped;
  swing(4 * MIB, 10);
  CHECK_EQUAL(kept(), 0);
  hak_memory_limit = UINT64_MAX;
  swing(4 * MIB, 1);
  CHECK(kept() != 0);
  // Mappings kept while there was room go as well.
  for (unsigned how = 0; how < 3; how++) {
    swing(MIB, 20); // otherwise the bound would be forgotten a second later
    hak_huge_cache_trim(0);
    void *p = alloc(2 * MIB), *q = NULL;
    swing(4 * MIB, 1);
    CHECK(kept() != 0);
    hak_memory_limit = hak_mapped.mapped / 2;
    if (how == 0) hak_huge_cache_tend();
    else if (how == 1) CHECK((q = alloc(24 * MIB)) != NULL);
    else CHECK(hak_huge_free(p));
    CHECK_EQUAL(kept(), 0);
    hak_memory_limit = UINT64_MAX;
    if (how != 2) CHECK(hak_huge_free(p));
    if (q) CHECK(hak_huge_free(q));
  }
  // Kept mappings are given up for other requests that find no memory.
  hak_os_fault(HAK_FAULT_MAP, 0, true);
  char *p = hak_calloc(1, 9 * MIB);
  hak_os_fault(0, 0, false);
  CHECK(p != NULL && kept() == 0 && all_zero(p, 9 * MIB));
  hak_free(p);
}
ISOLATED(nothing_near_the_limit)

// Mappings are kept if most mapped memory was never touched: the limit is of resident memory.
static void untouched_near_the_limit(void) {
  set_up(64 * MIB);
  char *sparse = alloc(512 * MIB);
  hak_memory_limit = hak_mapped.mapped;
  swing(4 * MIB, 10);
  CHECK_EQUAL(kept(), 0); // nobody has looked yet
  hak_mapped_look();
  swing(4 * MIB, 10);
  CHECK(kept() != 0);
  for (size_t i = 0; i < 200 * MIB; i += 4096) sparse[i] = 1;
  hak_mapped_look();
  CHECK(hak_mapped_near_limit());
  swing(4 * MIB, 10);
  CHECK_EQUAL(kept(), 0);
  hak_memory_limit = UINT64_MAX;
  CHECK(hak_huge_free(sparse));
}
ISOLATED(untouched_near_the_limit)

// A request that succeeds once all kept memory goes is served; for any other, none goes.
static void kept_for_what_cannot_be_had(void) {
  set_up(64 * MIB);
  swing(32 * MIB, 20);
  size_t had = kept();
  CHECK(had >= 16 * MIB);
  if (EMULATED) return; // qemu does not set such limits
  struct rlimit limit = {(status_kib("VmData:") << 10) + 8 * MIB, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
  uint64_t requests = hak_heap_requests, all = hak_mapped.superslab_bytes + had + 8 * MIB;
  errno = 0;
  for (unsigned i = 1; i < 20; i++)
    CHECK(hak_malloc(all + i * 256 * MIB) == NULL && errno == ENOMEM);
  CHECK(kept() == had && hak_heap_requests == requests);
  void *p = hak_malloc(had + 4 * MIB);
  CHECK(p != NULL);
  hak_free(p);
  // None goes either for what the kernel's own rule refuses, if it has one.
  swing(32 * MIB, 20);
  p = hak_os_map((size_t)1 << 45, hak_os_page_size);
  if (p) CHECK(hak_os_unmap(p, (size_t)1 << 45));
  requests = hak_heap_requests;
  CHECK((hak_malloc((size_t)1 << 45) == NULL) == !p);
  // Under TSan no such range of addresses is left, possibly because of what is kept.
  CHECK(HAK_TSAN || hak_heap_requests == requests);
}
ISOLATED(kept_for_what_cannot_be_had)

// A block that cannot be copied, for lack of memory, still grows by what is kept in SuperSlabs.
static void grown_by_what_is_kept(void) {
  enum { BLOCKS = 1200 };
  set_up(0);
  hak_option(LRU_CAP) = 64, hak_option(LRU_SHARE) = 0;
  static void *p[BLOCKS];
  unsigned char *huge = hak_malloc(100 * MIB);
  CHECK(huge);
  fill(huge, 100 * MIB, 1);
  for (unsigned i = 0; i < BLOCKS; i++) CHECK((p[i] = hak_malloc(50000)) != NULL);
  for (unsigned i = 0; i < BLOCKS; i++) hak_free(p[i]);
  CHECK(hak_mapped.superslab_bytes >= 48 * MIB);
  if (EMULATED) return; // qemu does not set such limits
  struct rlimit limit = {(status_kib("VmData:") << 10) + 8 * MIB, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
  CHECK(hak_realloc(huge, 400 * MIB) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK((huge = hak_realloc(huge, 140 * MIB)) != NULL && errno == 0);
  CHECK(filled(huge, 100 * MIB, 1));
  hak_free(huge);
}
ISOLATED(grown_by_what_is_kept)

// A trim keeps the given amount in all: kept mappings first, then SuperSlabs.
static void trimmed_to_a_sum(void) {
  enum { BLOCKS = 24 };
  set_up(64 * MIB);
  hak_option(LRU_CAP) = 64, hak_option(LRU_SHARE) = 0;
  void *p[BLOCKS], *first, *second;
  hak_trim(0);
  size_t in_use = hak_mapped.superslab_bytes;
  for (unsigned i = 0; i < BLOCKS; i++) CHECK((p[i] = hak_malloc(900 * KIB)) != NULL);
  for (unsigned i = 0; i < BLOCKS; i++) hak_free(p[i]);
  void *between = NULL; // or the two would be joined
  CHECK((first = alloc(3 * MIB)) && (between = alloc(2 * MIB)) && (second = alloc(4 * MIB)));
  CHECK(hak_huge_free(first) && hak_huge_free(second));
  CHECK_EQUAL(kept(), 7 * MIB);
  const struct {
    size_t keep, mappings, superslabs;
  } trims[] = {{SIZE_MAX, 7, 0}, {15 * MIB, 7, 8}, {6 * MIB, 4, 2}, {0, 0, 0}};
  for (unsigned i = 0; i < COUNT(trims); i++) {
    bool some = hak_trim(trims[i].keep);
    CHECK_EQUAL(kept(), trims[i].mappings * MIB);
    if (i == 0) CHECK(hak_mapped.superslab_bytes >= in_use + 12 * MIB);
    else CHECK(some && hak_mapped.superslab_bytes == in_use + trims[i].superslabs * MIB);
  }
}
ISOLATED(trimmed_to_a_sum)

static void refused_calls(void) {
  set_up(64 * MIB);
  for (unsigned kind = 1; kind < HAK_FAULT_ALL; kind *= 2) {
    for (size_t size = 2 * MIB; size <= 8 * MIB; size += 2 * MIB) { // cut, as it is, grown
      swing(4 * MIB, 1);
      hak_os_fault(kind, 0, false);
      char *p = alloc(size);
      hak_os_fault(0, 0, false);
      if (p) {
        CHECK(hak_huge_usable(p) >= size);
        p[0] = p[size - 1] = 1;
        CHECK(hak_huge_free(p));
      }
      CHECK_EQUAL(hak_mapped.huge_bytes, 0);
      hak_os_fault(HAK_FAULT_UNMAP, 0, false); // the pages go back nevertheless
      hak_huge_cache_trim(0);
      hak_os_fault(0, 0, false);
      CHECK_EQUAL(kept(), 0);
    }
  }
}
ISOLATED(refused_calls)

static bool mapped(void *p) {
  unsigned char page;
  return mincore(p, 1, &page) == 0;
}

// A mapping whose unmap is refused is unmapped later, however many there are.
static void refused_unmaps_are_tried_again(void) {
  enum { BLOCKS = 300 };
  char *block[BLOCKS];
  set_up(0);
  for (unsigned round = 0; round < 4; round++) {
    for (unsigned i = 0; i < BLOCKS; i++) {
      block[i] = alloc(2 * MIB);
      memset(block[i], 0xdf, 4096);
    }
    hak_os_fault(HAK_FAULT_UNMAP | (round & 1 ? HAK_FAULT_DISCARD : 0), 0, false);
    for (unsigned i = 0; i < BLOCKS; i++) CHECK(hak_huge_free(block[i]));
    hak_huge_cache_trim(0);
    hak_huge_cache_tend();
    hak_os_fault(0, 0, false);
    for (unsigned i = 0; i < BLOCKS; i++)
      CHECK(mapped(block[i]) && !hak_huge_free(block[i]) && hak_huge_around(block[i]) == NULL);
    if (round & 2) unit_clock_step(1010), hak_huge_cache_tend();
    else hak_huge_cache_trim(0);
    for (unsigned i = 0; i < BLOCKS; i++) CHECK(!mapped(block[i]));
  }
  CHECK(hak_mapped.huge_bytes == 0 && kept() == 0);
}
ISOLATED(refused_unmaps_are_tried_again)

// Mappings that were refused again let the others go first.
static void refused_unmaps_take_turns(void) {
  enum { BLOCKS = 20, TRIES = 8 };
  char *block[BLOCKS];
  set_up(0);
  for (unsigned i = 0; i < BLOCKS; i++) CHECK((block[i] = alloc(2 * MIB)) != NULL);
  hak_os_fault(HAK_FAULT_UNMAP, 0, false);
  for (unsigned i = 0; i < BLOCKS; i++) CHECK(hak_huge_free(block[i]));
  hak_huge_cache_trim(0);
  hak_os_fault(HAK_FAULT_UNMAP, TRIES, false); // this many succeed first
  hak_huge_cache_trim(0);
  hak_os_fault(0, 0, false);
  unsigned first = 0, last = 0;
  for (unsigned i = 0; i < BLOCKS; i++) *(i < BLOCKS - TRIES ? &last : &first) += !mapped(block[i]);
  CHECK(first == 0 && last == TRIES);
  hak_huge_cache_trim(0);
  for (unsigned i = 0; i < BLOCKS; i++) CHECK(!mapped(block[i]));
}
ISOLATED(refused_unmaps_take_turns)

// Threads take, write and put: a mapping belongs to one thread at a time, and nothing is lost.
#define THREADS 4
#define ROUNDS (SANITIZED ? 300 : 1500)
static void *churn(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  uint64_t *mine[3] = {NULL};
  for (unsigned i = 0; i < ROUNDS; i++) {
    unsigned k = (unsigned)chance_below(&seed, COUNT(mine));
    if (mine[k]) {
      CHECK_EQUAL(mine[k][0], (uintptr_t)mine[k] ^ (uintptr_t)argument);
      CHECK_EQUAL(mine[k][hak_huge_usable(mine[k]) / 8 - 1], (uintptr_t)argument);
      CHECK(hak_huge_free(mine[k]));
    }
    CHECK((mine[k] = alloc(MIB + chance_below(&seed, 6 * MIB))) != NULL);
    mine[k][0] = (uintptr_t)mine[k] ^ (uintptr_t)argument;
    mine[k][hak_huge_usable(mine[k]) / 8 - 1] = (uintptr_t)argument;
    if (i % 64 == 0) hak_huge_cache_trim(chance_below(&seed, 16) * MIB);
  }
  for (unsigned k = 0; k < COUNT(mine); k++)
    if (mine[k]) CHECK(hak_huge_free(mine[k]));
  return NULL;
}
static void threads_share_it(void) {
  set_up(32 * MIB);
  hak_huge_free(alloc(MIB));
  hak_huge_cache_trim(0);
  size_t before = mapping_count();
  pthread_t threads[THREADS];
  for (unsigned i = 0; i < THREADS; i++) threads[i] = unit_start(churn, (void *)(uintptr_t)(i + 1));
  for (unsigned i = 0; i < THREADS; i++) unit_join(threads[i]);
  CHECK(hak_counter(huge_reuse) > ROUNDS / 4);
  CHECK(kept() <= 32 * MIB);
  CHECK_EQUAL(hak_mapped.huge_bytes, 0);
  uint64_t left = kept();
  CHECK_EQUAL(hak_huge_cache_trim(0), left);
  CHECK_EQUAL(kept(), 0);
  if (!SANITIZED) CHECK(mapping_count() <= before + 2 * THREADS + 8); // stacks, heaps
}
ISOLATED(threads_share_it)

static void child_has_its_own(void) {
  set_up(64 * MIB);
  char *p = alloc(4 * MIB);
  fill(p, 4 * MIB, 5);
  CHECK(hak_huge_free(p));
  pid_t child = fork();
  if (child == 0) {
    // As if fork had copied its page of the pagemap before it was taken and joined.
    hak_pagemap_set(p + 2 * MIB, (2 * MIB >> 12) << 2 | HAK_PAGEMAP_HUGE);
    hak_huge_cache_after_fork();
    bool same = kept() == 4 * MIB && hak_huge_usable(p + 2 * MIB) == 0 && alloc(4 * MIB) == p;
    memset(p, 9, 4 * MIB);
    _exit(same && hak_huge_free(p) && hak_huge_cache_trim(0) == 4 * MIB && kept() == 0 ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(alloc(4 * MIB) == p && filled(p, 4 * MIB, 5));
}
ISOLATED(child_has_its_own)

// fork may have copied the sums and the list of refused mappings at other times than the places:
// the child counts anew, and leaves refused mappings alone.
static void child_counts_anew(void) {
  set_up(64 * MIB);
  char *refused = alloc(2 * MIB), *p = alloc(4 * MIB);
  CHECK(refused != NULL && p != NULL && hak_huge_free(refused));
  hak_os_fault(HAK_FAULT_UNMAP, 0, false);
  hak_huge_cache_trim(0);
  hak_os_fault(0, 0, false);
  CHECK(mapped(refused) && kept() == 0);
  CHECK(hak_huge_free(p));
  CHECK_EQUAL(kept(), 4 * MIB);
  for (int falsely = -1; falsely <= 1; falsely++) {
    pid_t child = fork();
    if (child == 0) {
      hak_mapped.cached_bytes += (uint64_t)(falsely * 2 * (int64_t)MIB);
      hak_huge_cache_after_fork();
      CHECK_EQUAL(kept(), 4 * MIB);
      CHECK_EQUAL(hak_huge_cache_trim(0), 4 * MIB);
      CHECK_EQUAL(kept(), 0);
      CHECK(!mapped(p) && mapped(refused));
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  hak_huge_cache_trim(0);
  CHECK(!mapped(p) && !mapped(refused));
}
ISOLATED(child_counts_anew)

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(freed_mappings_serve_again),
    ISOLATED_TEST(few_stay_long),
    ISOLATED_TEST(growth_counts),
    ISOLATED_TEST(rests_are_as_old),
    ISOLATED_TEST(split_and_joined),
    ISOLATED_TEST(a_little_keeps_little),
    ISOLATED_TEST(refused_is_not_learnt),
    ISOLATED_TEST(nothing_is_lost),
    ISOLATED_TEST(best_fit),
    ISOLATED_TEST(calloc_stays_untouched),
    ISOLATED_TEST(short_ones_are_kept),
    ISOLATED_TEST(zeros_that_fill_are_cleared),
    ISOLATED_TEST(bound_is_learnt_and_kept),
    ISOLATED_TEST(nothing_near_the_limit),
    ISOLATED_TEST(untouched_near_the_limit),
    ISOLATED_TEST(kept_for_what_cannot_be_had),
    ISOLATED_TEST(grown_by_what_is_kept),
    ISOLATED_TEST(trimmed_to_a_sum),
    ISOLATED_TEST(refused_calls),
    ISOLATED_TEST(refused_unmaps_are_tried_again),
    ISOLATED_TEST(refused_unmaps_take_turns),
    ISOLATED_TEST(threads_share_it),
    ISOLATED_TEST(child_has_its_own),
    ISOLATED_TEST(child_counts_anew),
  };
  return RUN(tests);
}
