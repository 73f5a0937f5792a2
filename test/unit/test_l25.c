// l25.h: one block per run of slabs, no owner.

#include "unit.h"

#include <errno.h>

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "pool/l25.h"
#include "superslab/slab.h"
#include "thread/front.h"
#include "thread/process.h"

// Frees as the slow path does, without the ring.
static bool free_run(hak_slab_t *head) {
  if (!hak_l25_claim(head)) return false;
  hak_l25_release(head);
  return true;
}

static hak_slab_t *head_of(const void *p) { return hak_slab_lookup(p); }
static uint32_t free_mask(const hak_slab_t *slab) {
  return hak_registry.superslabs[hak_superslab_number(slab)].free_mask;
}
static void *alloc(size_t size) {
  bool zeroed;
  char *p = hak_l25_alloc(size, HAK_SLAB_SIZE, &zeroed);
  CHECK(p != NULL);
  if (zeroed) CHECK(all_zero(p, hak_l25_usable(head_of(p))));
  return p;
}

static void every_length(void) {
  hak_process_init();
  hak_option(LRU_SHARE) = 0; // an empty SuperSlab stays
  uint64_t seed = 4;
  for (unsigned i = 0; i < 600; i++) {
    size_t size = i < 40 ? (i / 2 + 1) * 32768 + (i & 1) : 1 + chance_below(&seed, HAK_L25_MAX);
    if (size > HAK_L25_MAX) size = HAK_L25_MAX;
    char *p = alloc(size);
    hak_slab_t *head = head_of(p);
    unsigned n = (unsigned)((size + HAK_SLAB_SIZE - 1) / HAK_SLAB_SIZE);
    CHECK(((uintptr_t)p & (HAK_SLAB_SIZE - 1)) == 0);
    CHECK_EQUAL(hak_l25_usable(head), (size + 4095) / 4096 * 4096);
    CHECK_EQUAL(head->run, n);
    CHECK_EQUAL(hak_slab_kind(head), HAK_KIND_L25);
    CHECK_EQUAL(free_mask(head) & hak_slab_bits(head, n), 0);
    for (unsigned s = 1; s < n; s++) {
      CHECK(head_of(p + s * HAK_SLAB_SIZE) == head + s);
      CHECK_EQUAL(hak_slab_kind(head + s), HAK_KIND_INTERIOR);
      CHECK_EQUAL(head[s].offset, s);
    }
    memset(p, 0xee, hak_l25_usable(head));
    CHECK(free_run(head));
    for (unsigned s = 0; s < n; s++) CHECK_EQUAL(hak_slab_kind(head + s), HAK_KIND_FREE);
    CHECK_EQUAL(free_mask(head) & hak_slab_bits(head, n), hak_slab_bits(head, n));
  }
}
ISOLATED(every_length)

// Leftover bytes of the last page lie in front of the block if they are 128 or more.
static void colours(void) {
  hak_process_init();
  hak_option(LRU_SHARE) = 0;
  uint64_t seed = 5;
  unsigned gaps[9] = {0}, at_end = 0;
  for (unsigned i = 0; i < 4000; i++) {
    bool zeroed;
    size_t size = 1 + chance_below(&seed, HAK_L25_MAX), left = -size & 4095;
    if (i % 8 == 0) size = hak_align_up(size, 4096), left = 0;
    char *p = hak_l25_alloc(size, 1, &zeroed);
    hak_slab_t *head = head_of(p);
    size_t gap = (uintptr_t)p & (HAK_SLAB_SIZE - 1);
    CHECK(p == head->start && gap % 128 == 0 && gap <= left && gap <= 1024);
    CHECK_EQUAL(gap == 0, left < 128);
    gaps[gap / 128]++;
    // The block ends with a page, the same one as without a gap.
    CHECK_EQUAL(gap + hak_l25_usable(head), hak_align_up(size, 4096));
    CHECK_EQUAL(head->run, hak_l25_slabs(size));
    // Grows to the end of its slabs, and beyond if those behind it are free; shrinks to any length.
    size_t most = head->run * HAK_SLAB_SIZE - gap;
    CHECK(hak_l25_resize(head, most));
    CHECK_EQUAL(hak_l25_usable(head), most);
    unsigned run = head->run, more = hak_l25_resize(head, most + 1);
    CHECK_EQUAL(head->run, run + more);
    size_t less = 1 + chance_below(&seed, most);
    unsigned slabs = hak_l25_slabs(gap + less);
    at_end += slabs != hak_l25_slabs(less);
    CHECK(hak_l25_resize(head, less));
    CHECK_EQUAL(head->run, slabs);
    CHECK_EQUAL(hak_l25_usable(head), hak_l25_rounded(head, less));
    CHECK(hak_l25_usable(head) >= less && hak_l25_usable(head) < less + 4096);
    CHECK_EQUAL((gap + hak_l25_usable(head)) % 4096, 0);
    memset(p, 0xee, hak_l25_usable(head));
    CHECK(free_run(head));
  }
  for (unsigned i = 0; i < COUNT(gaps); i++) CHECK(gaps[i] > 100);
  CHECK(at_end > 0); // a gap that needed the next slab occurred
}
ISOLATED(colours)

static void resize_in_place(void) {
  hak_process_init();
  hak_option(LRU_SHARE) = 0; // an empty SuperSlab stays
  char *p = alloc(1000000);
  hak_slab_t *head = head_of(p);
  fill(p, 1000000, 1);
  CHECK_EQUAL(head->run, 16);
  CHECK_EQUAL(hak_slab_index(head) % HAK_SLABS_PER_SUPERSLAB, 16); // no slab lies behind it
  CHECK(!hak_pool_extend(head, 16, 1));
  CHECK(hak_l25_resize(head, 16 * HAK_SLAB_SIZE)); // to the end of the run
  CHECK_EQUAL(hak_l25_usable(head), MIB);
  CHECK(filled(p, 1000000, 1));
  static const size_t absurd[] = {MIB + 1, (size_t)1 << 48, ((size_t)1 << 48) + 5, PTRDIFF_MAX};
  for (unsigned i = 0; i < COUNT(absurd); i++) CHECK(!hak_l25_resize(head, absurd[i]));
  CHECK_EQUAL(head->run, 16);
  CHECK_EQUAL(hak_l25_usable(head), MIB);
  for (unsigned n = 15; n >= 1; n--) {
    size_t size = n * HAK_SLAB_SIZE - 5000;
    CHECK(hak_l25_resize(head, size));
    CHECK_EQUAL(head->run, n);
    CHECK_EQUAL(hak_l25_usable(head), (size + 4095) / 4096 * 4096);
    CHECK_EQUAL(hak_slab_kind(head + n), HAK_KIND_FREE);
    CHECK_EQUAL(free_mask(head) & hak_slab_bits(head, 16),
                hak_slab_bits(head, 16) & ~hak_slab_bits(head, n));
    // It cannot grow while another has the slab behind it. When that is free, it grows back.
    CHECK(hak_pool_extend(head, n, 1));
    CHECK(!hak_l25_resize(head, n * HAK_SLAB_SIZE + 1));
    CHECK_EQUAL(head->run, n);
    hak_pool_release(head + n, 1);
    CHECK(hak_l25_resize(head, n * HAK_SLAB_SIZE + 1));
    CHECK_EQUAL(head->run, n + 1);
    CHECK_EQUAL(hak_slab_kind(head + n), HAK_KIND_INTERIOR);
    CHECK_EQUAL(head[n].offset, n);
    CHECK_EQUAL(free_mask(head) & hak_slab_bits(head, n + 1), 0);
    CHECK(hak_l25_resize(head, n * HAK_SLAB_SIZE));
    CHECK_EQUAL(hak_slab_kind(head + n), HAK_KIND_FREE);
    for (size_t at = 0; at + 8 <= size; at += 512) { // as far as it was filled
      uint64_t w = (1 + 1) * 0x9e3779b97f4a7c15u + at;
      CHECK(memcmp(p + at, &w, 8) == 0);
    }
  }
  CHECK(free_run(head));
  CHECK_EQUAL(free_mask(head), UINT32_MAX);
}
ISOLATED(resize_in_place)

// Without memory for another block, what realloc cuts off goes back nevertheless.
static void cut_without_memory(void) {
  enum { MOST = 4096, SMALL = 300000 };
  static void *rest[MOST];
  const size_t large[] = {900000, 8 * MIB};
  hak_option(NURSERY) = 0;
  for (unsigned i = 0; i < COUNT(large); i++) {
    unsigned n = 0;
    char *p = hak_malloc(large[i]);
    CHECK(p != NULL);
    fill(p, SMALL, 1);
    hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_COMMIT, 0, false);
    while (n < MOST && (rest[n] = hak_malloc(SMALL)) != NULL) n++;
    CHECK(n < MOST);
    size_t mapped = hak_mapped.huge_bytes;
    char *q = hak_realloc(p, SMALL);
    CHECK(q == p && filled(q, SMALL, 1) && errno == ENOMEM);
    CHECK(HAK_SECURE || hak_malloc_usable_size(q) < large[i] / 2);
    void *next = i == 0 ? hak_malloc(SMALL) : NULL; // in the part cut off
    hak_os_fault(0, 0, false);
    if (i == 0 && !HAK_SECURE) CHECK(next != NULL);
    if (i == 1 && !HAK_SECURE) CHECK(hak_mapped.huge_bytes < mapped - large[i] / 2);
    hak_free(next);
    hak_free(q);
    while (n) hak_free(rest[--n]);
  }
}
ISOLATED(cut_without_memory)

static void a_second_free_is_noticed(void) {
  hak_process_init();
  void *other = alloc(100000), *p = alloc(300000);
  hak_slab_t *head = head_of(p);
  CHECK(free_run(head));
  CHECK(!free_run(head));
  CHECK_EQUAL(head->last_kind, HAK_KIND_L25);
  uint32_t mask = free_mask(head);
  CHECK(!free_run(head));
  CHECK_EQUAL(free_mask(head), mask);
  CHECK(free_run(head_of(other)));
}
ISOLATED(a_second_free_is_noticed)

#define THREADS 4
#define BLOCKS 400
static hak_slab_t *heads[BLOCKS];
static _Atomic unsigned winners[BLOCKS];
static pthread_barrier_t barrier;
static void *free_all(void *argument) {
  (void)argument;
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (i % 50 == 0) pthread_barrier_wait(&barrier);
    if (free_run(heads[i])) hak_fetch_add_relaxed(&winners[i], 1);
  }
  return NULL;
}

static void one_of_many_frees_wins(void) {
  hak_process_init();
  uint64_t seed = 8;
  for (unsigned i = 0; i < BLOCKS; i++)
    heads[i] = head_of(alloc(60000 + chance_below(&seed, 900000)));
  pthread_t threads[THREADS];
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (unsigned i = 0; i < THREADS; i++) threads[i] = unit_start(free_all, NULL);
  for (unsigned i = 0; i < THREADS; i++) unit_join(threads[i]);
  for (unsigned i = 0; i < BLOCKS; i++) CHECK_EQUAL(winners[i], 1);
  hak_pool_trim(0);
  CHECK_EQUAL(hak_mapped.superslab_bytes, 0);
}
ISOLATED(one_of_many_frees_wins)

// ---------------------------------------------------------------------------
// Alignments above that of slabs.

static char *alloc_at(size_t alignment, size_t size) {
  bool zeroed;
  char *p = hak_l25_alloc(size, alignment, &zeroed);
  CHECK(p != NULL);
  hak_slab_t *head = head_of(p);
  if (zeroed) CHECK(all_zero(p, hak_l25_usable(head)));
  CHECK(p == head->start);
  CHECK_EQUAL(head->run, hak_l25_slabs(size));
  CHECK_EQUAL(free_mask(head) & hak_slab_bits(head, head->run), 0);
  if (alignment == 1) return p;
  CHECK_EQUAL((uintptr_t)p % alignment, 0);
  CHECK_EQUAL(hak_l25_usable(head), hak_align_up(size, 4096)); // no gap
  return p;
}
static uint32_t number_of(const void *p) { return hak_superslab_number(head_of(p)); }
static unsigned place_of(const void *p) { return hak_slab_index(head_of(p)) % 32; }

static void every_alignment(void) {
  hak_process_init();
  hak_option(LRU_SHARE) = 0;
  static const size_t sizes[] = {1,      4096,   5000,   65536,  65537,  100000,      131072,
                                 196608, 262144, 300001, 524288, 700000, MIB - 65536, MIB};
  for (size_t alignment = 128 * KIB; alignment <= MIB; alignment *= 2)
    for (unsigned s = 0; s < COUNT(sizes); s++) {
      char *p[24];
      uint32_t before = 0;
      for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < COUNT(p); i++)
          fill(p[i] = alloc_at(i % 3 == 2 ? 1 : alignment, sizes[s]), sizes[s], i);
        if (round == 0) before = hak_superslab_count();
        CHECK_EQUAL(hak_superslab_count(), before); // the same ones are used again
        for (unsigned i = 0; i < COUNT(p); i++) {
          CHECK(filled(p[i], sizes[s], i));
          CHECK(free_run(head_of(p[i])));
        }
      }
    }
  hak_pool_trim(0);
  CHECK_EQUAL(hak_mapped.superslab_bytes, 0);
}
ISOLATED(every_alignment)

// A SuperSlab holds as many as fit, and other runs in the slabs that they leave free.
static void aligned_ones_share_a_superslab(void) {
  hak_process_init();
  for (size_t alignment = 128 * KIB; alignment <= MIB; alignment *= 2)
    for (size_t size = 64 * KIB; size <= alignment; size += 64 * KIB) {
      unsigned places = (unsigned)(2 * MIB / alignment), seen = 0;
      unsigned left = (unsigned)((alignment - size) / HAK_SLAB_SIZE);
      char *p[16], *other[16];
      for (unsigned i = 0; i < places; i++) {
        fill(p[i] = alloc_at(alignment, size), size, i);
        CHECK_EQUAL(number_of(p[i]), number_of(p[0]));
        seen |= 1u << place_of(p[i]) / (32 / places);
      }
      CHECK_EQUAL(seen, (1u << places) - 1);
      for (unsigned i = 0; left && i < places; i++) {
        fill(other[i] = alloc_at(1, left * HAK_SLAB_SIZE), left * HAK_SLAB_SIZE, 99);
        CHECK_EQUAL(number_of(other[i]), number_of(p[0]));
      }
      CHECK_EQUAL(free_mask(head_of(p[0])), 0);
      char *next = alloc_at(alignment, size);
      CHECK(number_of(next) != number_of(p[0]));
      for (unsigned i = 0; i < places; i++) {
        CHECK(filled(p[i], size, i));
        CHECK(free_run(head_of(p[i])));
        if (left) CHECK(free_run(head_of(other[i])));
      }
      CHECK(free_run(head_of(next)));
      hak_pool_trim(0);
    }
}
ISOLATED(aligned_ones_share_a_superslab)

// A SuperSlab in which only the n slabs from `place` on are free.
static hak_slab_t *with_hole(unsigned place, unsigned n) {
  hak_claim_t claim;
  CHECK(hak_pool_map(16, 0, false, &claim));
  hak_slab_t *slabs = claim.slab - 16;
  CHECK(hak_pool_find(16, 0, &claim) && claim.slab == slabs);
  hak_pool_release(slabs + place, n);
  return slabs;
}

static void where_no_aligned_run_is_free_is_passed_over(void) {
  hak_process_init();
  hak_slab_t *unfit[40], *fit = NULL;
  for (unsigned i = 0; i < COUNT(unfit); i++) {
    if (i == 10) fit = with_hole(13, 7); // 16 to 19 are in it
    unfit[i] = with_hole(5 + 4 * (i % 6), 6);
  }
  CHECK(head_of(alloc_at(256 * KIB, 256 * KIB)) == fit + 16);
  CHECK_EQUAL(free_mask(fit), hak_ones(13, 3));
  // None fits, among more than a search looks at: a SuperSlab is mapped, and is filled first.
  uint32_t number = hak_superslab_count();
  for (unsigned i = 0; i < 8; i++) {
    char *p = alloc_at(256 * KIB, 250000);
    CHECK_EQUAL(number_of(p), number);
    CHECK_EQUAL(place_of(p), 28 - 4 * i);
  }
  for (unsigned i = 0; i < COUNT(unfit); i++)
    CHECK_EQUAL(free_mask(unfit[i]), hak_ones(5 + 4 * (i % 6), 6));
  // Requests that fit into the holes are served there: a slab, runs of two and of three.
  CHECK(head_of(alloc_at(256 * KIB, 5000)) == unfit[0] + 8);
  CHECK_EQUAL(free_mask(unfit[0]), hak_ones(5, 3) | hak_ones(9, 2));
  CHECK(head_of(alloc_at(128 * KIB, 128 * KIB)) == fit + 14); // fit is fuller
  CHECK(head_of(alloc_at(128 * KIB, 128 * KIB)) == unfit[0] + 6);
  CHECK_EQUAL(free_mask(unfit[0]), hak_ones(5, 1) | hak_ones(9, 2));
  CHECK(head_of(alloc_at(1, 128 * KIB)) == unfit[0] + 9);
  CHECK(head_of(alloc_at(256 * KIB, 180000)) == unfit[1] + 12);
  CHECK_EQUAL(hak_superslab_count(), number + 1);
}
ISOLATED(where_no_aligned_run_is_free_is_passed_over)

// Through the ring, which returns runs as they were, at odd places too.
static void all_kinds_mixed(void) {
  enum { N = 64 };
  struct {
    char *p;
    size_t size;
  } b[N] = {0};
  uint64_t seed = 6;
  for (unsigned i = 0; i < SCALED(40000u); i++) {
    unsigned k = (unsigned)chance_below(&seed, N);
    if (b[k].p) {
      CHECK(filled(b[k].p, b[k].size, k));
      hak_front_free(b[k].p, "free");
    }
    size_t alignment = (size_t)1 << chance_below(&seed, 21);
    size_t size = chance_below(&seed, 4) ? 200000 : 1 + chance_below(&seed, MIB - 64);
    bool zeroed;
    char *p = hak_front_alloc_aligned(alignment, size, &zeroed);
    CHECK(p != NULL && (uintptr_t)p % alignment == 0);
    if (zeroed) CHECK(all_zero(p, size));
    if (i % 16 == 0) CHECK(hak_slab_lookup(p) != NULL);
    fill(b[k].p = p, b[k].size = size, k);
  }
  CHECK_EQUAL(hak_tls_heap->stats[HAK_STAT_huge_alloc], 0);
  CHECK(hak_tls_heap->stats[HAK_STAT_l25_ring] > 0);
  hak_heap_check(hak_tls_heap);
  for (unsigned k = 0; k < N; k++) hak_front_free(b[k].p, "free");
  hak_heap_check(hak_tls_heap);
  // Beyond 1 MiB, of size or alignment, it is a mapping.
  CHECK(hak_slab_lookup(hak_front_alloc_aligned(2 * MIB, 100000, NULL)) == NULL);
  CHECK(hak_slab_lookup(hak_front_alloc_aligned(128 * KIB, MIB + 1, NULL)) == NULL);
}
ISOLATED(all_kinds_mixed)

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(every_length),
    ISOLATED_TEST(colours),
    ISOLATED_TEST(resize_in_place),
    ISOLATED_TEST(cut_without_memory),
    ISOLATED_TEST(a_second_free_is_noticed),
    ISOLATED_TEST(one_of_many_frees_wins),
    ISOLATED_TEST(every_alignment),
    ISOLATED_TEST(aligned_ones_share_a_superslab),
    ISOLATED_TEST(where_no_aligned_run_is_free_is_passed_over),
    ISOLATED_TEST(all_kinds_mixed),
  };
  return RUN(tests);
}
