// warm.h: what a heap keeps ready per class, and that it keeps no more; prewarm and the
// helper thread.

#include "unit.h"

#include "core/options.h"
#include "os/os.h"
#include "hakmem/hakmem.h"
#include "superslab/shared_pool.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/process.h"
#include "thread/warm.h"

// Blocks of 1 KiB: 63 to a slab.
enum { CLASS = 31, PER_SLAB = 63, SLABS = 400 };
static void *blocks[SLABS * PER_SLAB];

static void options(uint64_t pool, uint64_t prefill) {
  hak_free(hak_malloc(5000)); // creates the heap
  hak_option(WARM_POOL) = pool;
  hak_option(WARM_PREFILL) = prefill;
  hak_warm_init(hak_tls_heap);
}
static hak_warm_t *warm(void) { return &hak_tls_heap->warm[CLASS]; }
static void fill_slabs(unsigned from, unsigned to) {
  for (unsigned i = from * PER_SLAB; i < to * PER_SLAB; i++) CHECK((blocks[i] = hak_malloc(1024)) != NULL);
}
static void free_slabs(unsigned from, unsigned to) {
  for (unsigned i = from * PER_SLAB; i < to * PER_SLAB; i++) hak_free(blocks[i]);
}
static unsigned slabs_in_use(void) {
  unsigned n = 0;
  for (uint32_t i = 32; i < hak_superslab_count() << HAK_SLABS_SHIFT; i++) {
    hak_kind_t kind = hak_slab_kind(hak_slab_at(i));
    n += kind == HAK_KIND_TINY || kind == HAK_KIND_L2;
  }
  return n;
}

// Row S3: at most half as many trips to the pool as without prefill, and nothing is lost.
static void one_trip_brings_several(void) {
  options(4, 3);
  fill_slabs(0, SLABS);
  hak_heap_check(hak_tls_heap);
  CHECK_EQUAL(warm()->hits + warm()->misses, SLABS);
  CHECK(warm()->misses <= SLABS / 2);
  CHECK_EQUAL(warm()->hits, warm()->prefilled - warm()->spares);
  CHECK_EQUAL(warm()->slabs, SLABS + warm()->spares);
  CHECK(warm()->spares <= 4);
  printf("trips for %u slabs: %llu\n", SLABS, (unsigned long long)warm()->misses);
}
ISOLATED(one_trip_brings_several)

// A trim by one thread reaches what another keeps when that one next works.
static _Atomic unsigned turn;
static void wait_for_turn(unsigned wanted) {
  while (atomic_load_explicit(&turn, memory_order_acquire) != wanted) sched_yield();
}
static void *keeper(void *unused) {
  (void)unused;
  options(4, 3);
  fill_slabs(0, 20); // too few for the SuperSlab to drain afterwards
  free_slabs(10, 20);
  CHECK(hak_tls_heap->spares != 0);
  atomic_store_explicit(&turn, 1, memory_order_release);
  wait_for_turn(2);
  void *other = hak_malloc(64); // a refill
  CHECK_EQUAL(hak_tls_heap->spares, 0);
  hak_free(other);
  free_slabs(0, 10);
  return NULL;
}

static void trim_reaches_other_threads(void) {
  pthread_t thread = unit_start(keeper, NULL);
  wait_for_turn(1);
  hak_trim(0);
  atomic_store_explicit(&turn, 2, memory_order_release);
  unit_join(thread);
}
ISOLATED(trim_reaches_other_threads)

static void off_is_off(void) {
  options(0, 0);
  fill_slabs(0, 100);
  CHECK_EQUAL(warm()->misses, 100);
  free_slabs(0, 100);
  CHECK_EQUAL(warm()->prefilled, 0);
  CHECK_EQUAL(hak_tls_heap->spares, 0);
  CHECK(warm()->slabs <= 1); // the one in front
}
ISOLATED(off_is_off)

// A class that needs one slab or two gets no more.
static void small_classes_do_not_hoard(void) {
  options(16, 15);
  for (unsigned c = 0; c < HAK_CLASSES; c++)
    for (unsigned i = 0; i < 2u * hak_classes[c].capacity; i++) CHECK(hak_malloc(hak_class_size(c)) != NULL);
  CHECK_EQUAL(hak_tls_heap->spares, 0);
  CHECK_EQUAL(slabs_in_use() > 0, true);
  for (unsigned c = 0; c < HAK_CLASSES; c++) CHECK_EQUAL(hak_tls_heap->warm[c].prefilled, 0);
}
ISOLATED(small_classes_do_not_hoard)

// Emptied slabs stay up to the bound, and fewer when the class gets smaller.
static void empties_are_kept(void) {
  options(4, 3);
  hak_option(TIERS) = 0; // slabs of a DRAINING SuperSlab are not kept
  fill_slabs(0, 100);
  for (unsigned i = 0; i < 100; i++) {
    free_slabs(i, i + 1);
    CHECK(warm()->spares <= 4);
    CHECK(i == 0 || i > 50 || warm()->spares >= 1);
    hak_heap_check(hak_tls_heap);
  }
  CHECK(warm()->spares <= 1);
  uint64_t misses = warm()->misses;
  for (unsigned i = 0; i < 50; i++) fill_slabs(0, 2), free_slabs(0, 2); // to and fro
  CHECK(warm()->misses - misses <= 1);
  hak_heap_release_idle(hak_tls_heap);
  CHECK_EQUAL(hak_tls_heap->spares, 0);
  CHECK_EQUAL(slabs_in_use(), 0);
}
ISOLATED(empties_are_kept)

// Of an L2 class that swings between no and four runs three stay: the front and two others. Of
// a class that does not come again only the front stays.
static void every_second_run_is_kept(void) {
  enum { SIZE = 20480, RUNS = 4 };
  options(4, 3);
  unsigned c = hak_size_class(SIZE), n = RUNS * hak_classes[c].capacity;
  hak_warm_t *runs = &hak_tls_heap->warm[c];
  for (unsigned swing = 0; swing < 20; swing++) {
    uint64_t misses = runs->misses;
    for (unsigned i = 0; i < n; i++) CHECK((blocks[i] = hak_malloc(SIZE)) != NULL);
    CHECK_EQUAL(runs->slabs, RUNS);
    if (swing > 4) CHECK_EQUAL(runs->misses - misses, 1);
    for (unsigned i = 0; i < n; i++) hak_free(blocks[i]);
    hak_heap_check(hak_tls_heap);
    if (swing == 0) CHECK_EQUAL(runs->spares, 0);
    if (swing > 4) CHECK_EQUAL(runs->spares, 2);
    CHECK_EQUAL(hak_tls_heap->spares, runs->spares * hak_classes[c].run);
  }
  hak_heap_release_idle(hak_tls_heap);
  CHECK_EQUAL(hak_tls_heap->spares, 0);
}
ISOLATED(every_second_run_is_kept)

// Misses raise the budget.
static void budgets_adapt(void) {
  options(4, 3);
  for (unsigned i = 0; i < 3 * 2 * HAK_WARM_WINDOW; i++) {
    CHECK_EQUAL(warm()->budget, 3 - i / (2 * HAK_WARM_WINDOW));
    if (i % 2) hak_warm_count(hak_tls_heap, CLASS, true);
    else CHECK(hak_warm_hit(hak_tls_heap, CLASS));
  }
  CHECK_EQUAL(warm()->budget, 0);
  for (unsigned i = 0; i < 200; i++) hak_warm_count(hak_tls_heap, CLASS, i % 4 != 0); // 75 %
  CHECK_EQUAL(warm()->budget, 4);                                                     // and no more
  for (unsigned i = 0; i < 160; i++) hak_warm_count(hak_tls_heap, CLASS, i % 8 != 0); // 87 %
  CHECK_EQUAL(warm()->budget, 4);
  hak_option(WARM_PREFILL) = 0;
  hak_warm_init(hak_tls_heap);
  for (unsigned i = 0; i < 64; i++) hak_warm_count(hak_tls_heap, CLASS, false);
  CHECK_EQUAL(warm()->budget, 0);
}
ISOLATED(budgets_adapt)

// Row S5: slabs of a DRAINING SuperSlab leave the warm pool.
static void draining_ones_go(void) {
  options(16, 15);
  hak_option(TIERS) = 1;
  fill_slabs(0, 320);
  uint64_t seed = 9;
  for (unsigned i = 0; i < 2000; i++) {
    unsigned slab = (unsigned)chance_below(&seed, 320);
    if (!blocks[slab * PER_SLAB]) continue;
    free_slabs(slab, slab + 1);
    blocks[slab * PER_SLAB] = NULL;
    // An event checks before it keeps a slab: the newest drain may be its own.
    uint64_t drainings = hak_counter(tier_draining);
    hak_warm_drop_draining(hak_tls_heap);
    for (uint32_t k = hak_tls_heap->spare[CLASS]; k && drainings == hak_counter(tier_draining);
         k = hak_slab_at(k)->next)
      CHECK(!hak_pool_draining(hak_slab_at(k)));
  }
  CHECK(hak_counter(tier_draining) > 0 && hak_counter(tier_free) > 0);
}
ISOLATED(draining_ones_go)

// Kept slabs serve other classes before a request fails.
static void given_back_when_memory_is_short(void) {
  options(16, 15);
  hak_option(TIERS) = 0;
  fill_slabs(0, SLABS - 1);
  if (hak_tls_heap->spares == 0) fill_slabs(SLABS - 1, SLABS); // a trip brings some
  CHECK(hak_tls_heap->spares > 0);
  unsigned others = 0;
  hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_COMMIT, 0, false);
  while (hak_malloc(2048) != NULL) others++;
  hak_os_fault(0, 0, false);
  CHECK(others >= 32);
  CHECK_EQUAL(hak_tls_heap->spares, 0);
  // Every slab there is is in use.
  CHECK_EQUAL(slabs_in_use() * HAK_SLAB_SIZE, hak_mapped.superslab_bytes);
}
ISOLATED(given_back_when_memory_is_short)

static void *leave_spares(void *argument) {
  (void)argument;
  fill_slabs(0, 100);
  CHECK(hak_tls_heap->spares > 0);
  free_slabs(1, 100); // a block or more of slab 0 stay
  return NULL;
}
static void orphans_keep_none(void) {
  options(16, 15);
  unit_in_thread(leave_spares, NULL);
  hak_heap_t *orphan = hak_heap_by_id(2);
  CHECK_EQUAL(orphan->state, HAK_HEAP_ORPHAN);
  CHECK_EQUAL(orphan->spares, 0);
  for (unsigned c = 0; c < HAK_CLASSES; c++) CHECK_EQUAL(orphan->spare[c], 0);
  CHECK_EQUAL(orphan->warm[CLASS].slabs, 1);
  free_slabs(0, 1);
  hak_trim(0);
  CHECK_EQUAL(orphan->warm[CLASS].slabs, 0);
  CHECK_EQUAL(slabs_in_use(), 0);
}
ISOLATED(orphans_keep_none)

// A thread begins with unused slabs of the classes that the last thread with its heap used:
// one trip, nothing mapped, no page touched.
static void *use_three_classes(void *argument) {
  (void)argument;
  void *a = hak_malloc(64), *b = hak_malloc(416), *c = hak_malloc(1024);
  hak_free(a), hak_free(b), hak_free(c);
  return NULL;
}
static void *begins_with(void *slabs) {
  uint64_t mapped = hak_mapped.superslab_bytes;
  hak_heap_t *heap = hak_heap_enter();
  CHECK_EQUAL(heap->id, 2);
  CHECK_EQUAL(hak_mapped.superslab_bytes, mapped);
  CHECK_EQUAL(heap->spares, (uintptr_t)slabs);
  CHECK_EQUAL(heap->stats[HAK_STAT_warm_fill], (uintptr_t)slabs);
  CHECK_EQUAL(heap->stats[HAK_STAT_warm_prefill], (uintptr_t)slabs);
  const unsigned classes[] = {3, 20, 31};
  for (unsigned i = 0; i < COUNT(classes); i++) {
    hak_warm_t *w = &heap->warm[classes[i]];
    CHECK_EQUAL(w->slabs, i < (uintptr_t)slabs);
    if (i >= (uintptr_t)slabs) continue;
    hak_slab_t *slab = hak_slab_at(heap->spare[classes[i]]);
    CHECK(hak_slab_place(slab) == HAK_PLACE_SPARE && slab->carved == 0);
    uint32_t hits = w->hits, misses = w->misses;
    hak_free(hak_malloc(hak_class_size(classes[i])));
    CHECK(w->hits == hits + 1 && w->misses == misses);
    CHECK(hak_heap_front(heap, classes[i]) == slab);
  }
  hak_heap_check(heap);
  return NULL;
}
static struct { uint64_t pool, fill; uintptr_t slabs; } start;
static void one_start(void) {
  void *keeps_mapped = hak_malloc(5000);
  hak_option(WARM_POOL) = start.pool;
  hak_option(WARM_POOL_FILL) = start.fill;
  unit_in_thread(use_three_classes, NULL);
  unit_in_thread(begins_with, (void *)start.slabs);
  CHECK_EQUAL(hak_heap_by_id(2)->spares, 0);
  hak_free(keeps_mapped);
}
static void threads_begin_filled(void **state) {
  (void)state;
  const __typeof__(start) starts[] = {{4, 16, 3}, {4, 1, 1}, {4, 2, 2}, {4, 0, 0}, {0, 16, 0}};
  for (unsigned i = 0; i < COUNT(starts); i++) {
    start = starts[i];
    unit_in_child(one_start);
  }
}

static void *begins_with_none(void *argument) {
  (void)argument;
  uint64_t mapped = hak_mapped.superslab_bytes;
  CHECK_EQUAL(hak_heap_enter()->spares, 0);
  CHECK_EQUAL(hak_mapped.superslab_bytes, mapped);
  return NULL;
}
static void no_memory_is_mapped_to_fill(void) {
  hak_option(LRU_CAP) = 0;
  unit_in_thread(use_three_classes, NULL);
  hak_trim(0);
  CHECK_EQUAL(hak_mapped.superslab_bytes, 0);
  unit_in_thread(begins_with_none, NULL);
}
ISOLATED(no_memory_is_mapped_to_fill)

// The classes that a new heap will need are not known.
static void new_heaps_are_not_filled(void) {
  hak_free(hak_malloc(64));
  CHECK(hak_mapped.superslab_bytes > 0);
  unit_in_thread(begins_with_none, NULL);
}
ISOLATED(new_heaps_are_not_filled)

// ---------------------------------------------------------------------------
// Rows F3 and S9.

static uint64_t stage_sum(void) {
  const hak_stat_t stage[] = {HAK_STAT_refill_carve, HAK_STAT_refill_remote, HAK_STAT_refill_warm,
                              HAK_STAT_refill_commons, HAK_STAT_refill_adopt, HAK_STAT_refill_pool, HAK_STAT_refill_draining,
                              HAK_STAT_refill_reuse, HAK_STAT_refill_map, HAK_STAT_refill_failed};
  uint64_t sum = 0;
  for (size_t i = 0; i < COUNT(stage); i++) sum += hak_tls_heap->stats[stage[i]];
  return sum;
}

static void *fronts_are_filled(void *argument) {
  (void)argument;
  hak_free(hak_malloc(5000)); // not a small class: only the heap
  uint64_t refills = 0;
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    hak_slab_t *front = hak_heap_front(hak_tls_heap, c);
    if (c < 8) CHECK(front != &hak_slab_none && front->free != NULL);
    if (c < 8) CHECK_EQUAL(front->carved, 16);
    if (c >= 8 && c < HAK_TINY_CLASSES) CHECK(front == &hak_slab_none);
    refills += hak_tls_heap->classes[c].refills;
  }
  CHECK_EQUAL(stage_sum(), refills);
  CHECK_EQUAL(hak_tls_heap->stats[HAK_STAT_prewarm], 8);
  for (unsigned i = 0; i < 16; i++) CHECK(hak_malloc(64) != NULL);
  CHECK_EQUAL(hak_tls_heap->classes[3].refills, 1);
  CHECK_EQUAL(hak_tls_heap->classes[3].blocks, 16);
  return NULL;
}
static void prewarm(void) {
  hak_free(hak_malloc(5000));
  CHECK(hak_heap_front(hak_tls_heap, 3) == &hak_slab_none);
  hak_option(PREWARM) = 16;
  unit_in_thread(fronts_are_filled, NULL);
}
ISOLATED(prewarm)

// Empty SuperSlabs that no thread needed go within ten seconds.
static void background(void) {
  options(4, 3);
  hak_option(BACKGROUND) = 1;
  hak_background_start();
  hak_option(LRU_SHARE) = 0;
  fill_slabs(0, SLABS);
  CHECK(hak_mapped.superslab_bytes >= 12 * 2 * MIB);
  free_slabs(0, SLABS);
  hak_heap_release_idle(hak_tls_heap);
  CHECK(hak_mapped.superslab_bytes > 0);
  for (unsigned i = 0; i < 100 && hak_mapped.superslab_bytes > 0; i++) hak_os_sleep_ms(100);
  CHECK_EQUAL(hak_mapped.superslab_bytes, 0);
}
ISOLATED(background)

int main(void) {
  hak_option(NURSERY) = 0; // threads have heaps of their own here
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(one_trip_brings_several),
    ISOLATED_TEST(trim_reaches_other_threads),
    ISOLATED_TEST(off_is_off),
    ISOLATED_TEST(small_classes_do_not_hoard),
    ISOLATED_TEST(empties_are_kept),
    ISOLATED_TEST(every_second_run_is_kept),
    ISOLATED_TEST(budgets_adapt),
    ISOLATED_TEST(draining_ones_go),
    ISOLATED_TEST(given_back_when_memory_is_short),
    ISOLATED_TEST(orphans_keep_none),
    cmocka_unit_test(threads_begin_filled),
    ISOLATED_TEST(no_memory_is_mapped_to_fill),
    ISOLATED_TEST(new_heaps_are_not_filled),
    ISOLATED_TEST(prewarm),
    ISOLATED_TEST(background),
  };
  return RUN(tests);
}
