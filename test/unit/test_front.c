// front.h: allocation at every size and alignment, the way back from a pointer,
// and `zeroed`.

#include "unit.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "pool/huge.h"
#include "superslab/seal.h"
#include "superslab/shared_pool.h"
#include "thread/first.h"
#include "thread/front.h"
#include "thread/heap.h"
#include "thread/process.h"
#include "thread/remote.h"
#include "thread/tend.h"

static size_t usable(const void *p) {
  hak_block_t block;
  CHECK(hak_front_find(p, "test", &block));
  return block.usable;
}
static void give(void *p) { hak_front_free_slow(p, "free"); }

static void check_block(void *p, size_t size, size_t alignment) {
  hak_block_t block;
  CHECK(p != NULL);
  CHECK(((uintptr_t)p & (alignment - 1)) == 0 && ((uintptr_t)p & 15) == 0);
  CHECK(hak_front_find(p, "test", &block));
  CHECK(block.usable >= size);
  switch (block.kind) {
  case HAK_KIND_TINY: CHECK(block.usable <= HAK_TINY_MAX); break;
  case HAK_KIND_L2: CHECK(block.usable > HAK_TINY_MAX && block.usable <= HAK_L2_MAX); break;
  case HAK_KIND_L25: CHECK(block.usable <= HAK_L25_MAX); break;
  default:
    CHECK(block.slab == NULL);
    CHECK(size > HAK_L25_MAX || alignment > HAK_SLAB_SIZE);
    break;
  }
}

// Three blocks of each size at a time, all of them written to the end.
static void all_sizes(void) {
  size_t step = SANITIZED ? 7 : 1;
  for (size_t size = 0; size <= 3 * MIB;) {
    void *p[3];
    for (unsigned i = 0; i < 3; i++) {
      check_block(p[i] = hak_front_alloc(size, NULL), size, 16);
      fill(p[i], usable(p[i]), size + i);
    }
    for (unsigned i = 0; i < 3; i++) {
      CHECK(filled(p[i], usable(p[i]), size + i));
      give(p[i]);
    }
    size += size < 10000 ? step : size < HAK_L2_MAX + 70000 ? 97 * step : 30011;
  }
  for (size_t size = HAK_SIZE_MAX; size >= HAK_SIZE_MAX - 10000; size -= 1111)
    CHECK(hak_front_alloc(size, NULL) == NULL);
  CHECK(hak_front_alloc(SIZE_MAX, NULL) == NULL && hak_front_alloc(HAK_SIZE_MAX + 1, NULL) == NULL);
  hak_heap_check(hak_tls_heap);
}
ISOLATED(all_sizes)

static void all_alignments(void) {
  static const size_t sizes[] = {0, 1, 15, 16, 17, 100, 129, 500, 1000, 1024, 1025, 3000, 4096, 4097, 6000,
                                 12288, 20000, 40000, 50000, 57344, 57345, 65536, 65537, 200000,
                                 MIB - 1, MIB, MIB + 1, 5 * MIB};
  for (size_t alignment = 1; alignment <= (EMULATED ? 2 : 64) * MIB; alignment *= EMULATED ? 8 : 2)
    for (unsigned s = 0; s < COUNT(sizes); s++) {
      enum { N = 5 };
      void *p[N];
      for (unsigned i = 0; i < N; i++) {
        bool zeroed;
        check_block(p[i] = hak_front_alloc_aligned(alignment, sizes[s], &zeroed), sizes[s], alignment);
        if (zeroed) CHECK(all_zero(p[i], sizes[s]));
        fill(p[i], usable(p[i]), i);
      }
      for (unsigned i = 0; i < N; i++) {
        CHECK(filled(p[i], usable(p[i]), i));
        give(p[i]);
      }
    }
  CHECK(hak_front_alloc_aligned(64, SIZE_MAX - 10, NULL) == NULL);
  CHECK(hak_front_alloc_aligned(GIB, HAK_SIZE_MAX - 10, NULL) == NULL);
  hak_heap_check(hak_tls_heap);
}
ISOLATED(all_alignments)

// Pointers into a live block are recognised for what they are. (Misuse is printed
// and ignored here; test/abort checks the messages.)
static void back_from_any_pointer(void) {
  hak_option(ABORT) = 0;
  int null = open("/dev/null", 1);
  int saved = dup(2);
  static const size_t sizes[] = {16, 80, 1024, 3000, 30000, 57344, 100000, MIB, 3 * MIB};
  for (unsigned s = 0; s < COUNT(sizes); s++) {
    char *p = hak_front_alloc(sizes[s], NULL);
    hak_block_t block;
    dup2(null, 2);
    for (size_t at = 0; at < usable(p); at += at < 64 ? 1 : 1000 + at / 10) {
      bool found = hak_front_find(p + at, "test", &block);
      if (found != (at == 0)) dup2(saved, 2);
      CHECK_EQUAL(found, at == 0);
    }
    give(p + 16 * (sizes[s] > 16)); // ignored
    dup2(saved, 2);
    if (sizes[s] > 16) CHECK(hak_front_find(p, "test", &block));
    if (sizes[s] > 16) give(p);
  }
}
ISOLATED(back_from_any_pointer)

// ---------------------------------------------------------------------------

// Whenever zeroed is reported the requested bytes are zero, whatever all usable bytes held.
static void zeroed_is_true(void) {
  hak_process_init();
  enum { LIVE = 300 };
  static void *live[LIVE];
  uint64_t seed = 11;
  unsigned reported[4] = {0}, total[4] = {0};
  if (hak_option(LRU_CAP) > 2 && hak_option(LRU_CAP) < 100) hak_option(LRU_CAP) = 2;
  for (unsigned i = 0; i < SCALED(60000u); i++) {
    unsigned k = (unsigned)chance_below(&seed, LIVE);
    if (live[k]) {
      give(live[k]);
      live[k] = NULL;
      continue;
    }
    unsigned tier = chance_below(&seed, 100) < 2 ? 3 : (unsigned)chance_below(&seed, 3);
    size_t size = tier == 0   ? chance_below(&seed, HAK_TINY_MAX + 1)
                  : tier == 1 ? HAK_TINY_MAX + 1 + chance_below(&seed, HAK_L2_MAX - HAK_TINY_MAX)
                  : tier == 2 ? HAK_L2_MAX + 1 + chance_below(&seed, 300000)
                              : HAK_L25_MAX + 1 + chance_below(&seed, 300000);
    bool zeroed = true;
    void *p = live[k] = chance_below(&seed, 8) ? hak_front_alloc(size, &zeroed)
                                              : hak_front_alloc_aligned(64, size, &zeroed);
    CHECK(p != NULL);
    size_t n = usable(p);
    if (zeroed) CHECK(all_zero(p, size));
    reported[tier] += zeroed, total[tier]++;
    if (chance_below(&seed, 4)) memset(p, 0x5a, n);
    if (i % 5000 == 4999) { // free all, so that SuperSlabs become empty and are evicted
      for (unsigned j = 0; j < LIVE; j++) give(live[j]), live[j] = NULL;
      hak_heap_release_idle(hak_tls_heap);
      hak_pool_trim((unsigned)chance_below(&seed, 2));
    }
  }
  printf("reported as zero: %u of %u tiny, %u of %u L2, %u of %u L2.5, %u of %u huge\n", reported[0],
         total[0], reported[1], total[1], reported[2], total[2], reported[3], total[3]);
  CHECK(reported[1] > 0 && reported[2] > 0 && reported[3] == total[3]);
  CHECK(reported[2] < total[2]);
}
ISOLATED(zeroed_is_true)

// ---------------------------------------------------------------------------

// No two live blocks overlap and all keep their contents: random sizes, order, and
// two kinds of allocations, with the invariants walked now and then.
static void contents(void) {
  enum { LIVE = 3000 };
  static struct {
    char *p;
    size_t size;
  } live[LIVE];
  uint64_t seed = 21;
  for (unsigned i = 0; i < SCALED(400000u); i++) {
    unsigned k = (unsigned)chance_below(&seed, LIVE);
    if (live[k].p) {
      CHECK(filled(live[k].p, live[k].size, k));
      give(live[k].p);
      live[k].p = NULL;
    } else {
      unsigned kind = (unsigned)chance_below(&seed, 1000);
      size_t limit = kind < 900 ? 2000 : kind < 995 ? 70000 : 1500000;
      live[k].size = chance_below(&seed, limit);
      char *hit = hak_front_hit(live[k].size);
      CHECK((live[k].p = hit ? hit : hak_front_alloc(live[k].size, NULL)) != NULL);
      fill(live[k].p, live[k].size, k);
    }
    if (i % 20000 == 0 && i > 0) hak_heap_check(hak_tls_heap);
  }
  for (unsigned k = 0; k < LIVE; k++) {
    if (!live[k].p) continue;
    CHECK(filled(live[k].p, live[k].size, k));
    give(live[k].p);
  }
  hak_heap_check(hak_tls_heap);
  hak_heap_release_idle(hak_tls_heap);
  hak_pool_trim(0);
  CHECK_EQUAL(hak_mapped.superslab_bytes, 0);
  CHECK_EQUAL(hak_mapped.huge_bytes, 0);
}
ISOLATED(contents)

// Rows F1, S2: in a steady state the front serves, and each refill brings a batch.
static void refills_bring_batches(void) {
  hak_process_init();
  enum { N = 4000 };
  static void *blocks[N];
  for (unsigned i = 0; i < N; i++) blocks[i] = hak_front_alloc(64, NULL);
  hak_class_stats_t *c = &hak_tls_heap->classes[hak_size_class(64)];
  // Each carve doubles what is carved of the slab, from REFILL_BATCH blocks to one OS page.
  uint64_t refills = 0, total = 0;
  for (unsigned carved = 0; total < N; refills++) {
    unsigned batch = carved > hak_option(REFILL_BATCH) ? carved : (unsigned)hak_option(REFILL_BATCH);
    if (batch > 64) batch = 64;
    if (batch > 1024 - carved) batch = 1024 - carved;
    total += batch;
    carved = (carved + batch) % 1024;
  }
  CHECK_EQUAL(c->refills, refills);
  CHECK_EQUAL(c->blocks, total);
  for (unsigned i = 0; i < N; i++) give(blocks[i]);
  uint64_t before = c->refills;
  for (unsigned round = 0; round < 1000; round++) {
    for (unsigned i = 0; i < 100; i++) blocks[i] = hak_front_alloc(64, NULL);
    for (unsigned i = 0; i < 100; i++) give(blocks[i]);
  }
  CHECK(c->refills - before <= 20); // of 100 000
  // Batches do not grow where blocks come back: the next one is REFILL_BATCH again.
  hak_slab_t *slab = hak_heap_front(hak_tls_heap, 0);
  CHECK(slab == &hak_slab_none);
  hak_front_free_slow(hak_front_alloc(16, NULL), "test");
  slab = hak_heap_front(hak_tls_heap, 0);
  while (slab->carved < 1024) {
    unsigned carved = slab->carved;
    while (slab->carved == carved) hak_front_alloc(16, NULL);
    CHECK_EQUAL(slab->carved - carved, hak_option(REFILL_BATCH));
  }
}
ISOLATED(refills_bring_batches)

// Slabs and runs of a coloured class begin with a gap in which no pointer is a block. Aligned
// blocks are served by other classes.
static hak_slab_t *head_of(const void *p) {
  hak_slab_t *slab = hak_slab_lookup(p);
  return slab - slab->offset;
}

static void colours_of(size_t size) {
  const hak_class_info_t *info = &hak_classes[hak_size_class(size)];
  unsigned n = 4u * info->colours * info->capacity, gaps = 0;
  char **blocks = calloc(n, sizeof *blocks);
  bool seen[UINT8_MAX] = {false};
  for (unsigned i = 0; i < n; i++) {
    blocks[i] = hak_front_alloc(size, NULL);
    size_t gap = hak_slab_gap(head_of(blocks[i]));
    CHECK_EQUAL(gap % HAK_COLOUR, 0);
    gaps += !seen[gap / HAK_COLOUR];
    seen[gap / HAK_COLOUR] = true;
    fill(blocks[i], size, i);
  }
  CHECK_EQUAL(gaps, info->colours);
  for (unsigned i = 0; i < n; i++) {
    CHECK(filled(blocks[i], size, i));
    hak_slab_t *slab = head_of(blocks[i]);
    hak_block_t block;
    // Each failed lookup prints a message, which searches the process's mappings.
    size_t step = EMULATED ? 512 : 4 * HAK_MIN_BLOCK;
    for (char *p = hak_slab_start(slab); blocks[i] == slab->start && p < slab->start; p += step)
      CHECK(!hak_front_find(p, "free", &block));
    CHECK(hak_front_find(blocks[i], "free", &block) && block.usable == size);
    CHECK_EQUAL(block.number, (size_t)(blocks[i] - slab->start) / size);
    CHECK_EQUAL(usable(blocks[i]), size);
    give(blocks[i]);
  }
  for (size_t alignment = 256; alignment <= 4096; alignment *= 2) {
    for (unsigned i = 0; i < n; i++) {
      blocks[i] = hak_front_alloc_aligned(alignment, size - i % 64, NULL);
      CHECK_EQUAL((uintptr_t)blocks[i] % alignment, 0);
    }
    for (unsigned i = 0; i < n; i++) give(blocks[i]);
  }
  free(blocks);
}

static void colours(void) {
  hak_option(ABORT) = 0;
  hak_option(QUIET) = 1;
  hak_option(L2_BORROW) = 0;
  const size_t sizes[] = {320, 1024, 1536, 4608, 9216};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) colours_of(sizes[i]);
  hak_heap_check(hak_tls_heap);
}
ISOLATED(colours)

// A block that grew in steps has room for a quarter more than requested, in a class that may lie
// as far above as that of a borrowed block. It may be freed by the requested size nevertheless.
static void grown_by_steps(void) {
  if (HAK_SECURE || hak_option(L2_BORROW) < 4 || hak_option(GUARD)) return;
  hak_option(NURSERY) = 0;
  hak_free(hak_malloc(100000)); // no first blocks from here on
  void *big = hak_malloc(3328), *kept = hak_malloc(3328), *p = hak_malloc(1400);
  hak_free(big);
  CHECK((p = hak_realloc(p, 1500)) != NULL && (p = hak_realloc(p, 1640)) != NULL);
  if (!hak_first_open() && hak_option(L2_BORROW) == 4) CHECK(p == big && usable(p) == 3328);
  hak_free_sized(p, 1640);
  for (size_t size = 900; size < HAK_L2_MAX; size += size / 7) {
    p = hak_malloc(size);
    for (size_t step = 1; step < 20; step++) CHECK((p = hak_realloc(p, size + step * size / 11)) != NULL);
    hak_free_sized(p, size + 19 * size / 11);
  }
  hak_free(kept);
  hak_heap_check(hak_tls_heap);
}
ISOLATED(grown_by_steps)

// A class without a free block borrows from the classes above, but not endlessly and not from
// afar. Requests for an alignment do not borrow. Sized frees accept borrowed blocks.
static void borrowed(void) {
  enum { SIZE = 9000, LENDER = 12288, ROUNDS = 200 };
  if (HAK_SECURE || hak_option(L2_BORROW) < 3) return;
  void *big = hak_front_alloc(LENDER, NULL), *kept = hak_front_alloc(LENDER, NULL);
  give(big);
  CHECK(hak_front_alloc(SIZE, NULL) == big);
  CHECK_EQUAL(usable(big), LENDER);
  hak_free_sized(big, SIZE);
  void *p = hak_front_alloc_aligned(8192, 8192, NULL);
  CHECK_EQUAL(usable(p), 8192);
  CHECK_EQUAL((uintptr_t)p % 8192, 0);
  give(p);
  p = hak_front_alloc(7500, NULL); // five classes below, and one below the class in front now
  CHECK_EQUAL(usable(p), 8192);
  give(p);
  // With a run of its own the class uses that first, and borrows again when it is full.
  uint64_t reach = hak_option(L2_BORROW);
  hak_option(L2_BORROW) = 0;
  give(hak_front_alloc(SIZE, NULL));
  hak_option(L2_BORROW) = reach;
  void *own[64];
  unsigned n = 0;
  for (;; n++) {
    CHECK(n < COUNT(own) && (own[n] = hak_front_alloc(SIZE, NULL)) != NULL);
    if (usable(own[n]) != 9216) break;
  }
  CHECK_EQUAL(n, hak_classes[hak_size_class(SIZE)].capacity);
  CHECK(own[n] == big);
  unsigned times = 0;
  for (unsigned i = 0; i < ROUNDS; i++) {
    hak_free_sized(own[n], SIZE);
    own[n] = hak_front_alloc(SIZE, NULL);
    times += own[n] == big;
  }
  CHECK(times > 10 && times < ROUNDS / 2);
  for (unsigned i = 0; i <= n; i++) give(own[i]);
  give(kept);
  hak_heap_check(hak_tls_heap);
}
ISOLATED(borrowed)

// Blocks that other threads freed are taken before another class lends and before another run.
// A thread that lives on such blocks still sees to what is due.
enum { COMES_BACK = 1500 };
static void *come_back[64];
static void *free_them(void *unused) {
  for (unsigned i = 0; i < COUNT(come_back) && come_back[i]; i++) hak_free(come_back[i]);
  return unused;
}
static void what_comes_back(void) {
  hak_process_init();
  unit_no_guards();
  hak_option(NURSERY) = 0;
  unsigned c = hak_size_class(COMES_BACK), capacity = hak_classes[c].capacity;
  CHECK(capacity <= COUNT(come_back));
  give(hak_front_alloc(COMES_BACK, NULL));
  give(hak_front_alloc(2000, NULL)); // of a class that could lend
  for (unsigned round = 0; round < 300; round++) {
    for (unsigned i = 0; i < capacity; i++) CHECK((come_back[i] = hak_malloc(COMES_BACK)) != NULL);
    hak_heap_t *heap = hak_tls_heap;
    CHECK_EQUAL(hak_load_relaxed(&heap->classes[c].refills), 1);
    CHECK_EQUAL(hak_load_relaxed(&heap->stats[HAK_STAT_l2_borrow]), 0);
    CHECK(heap->ticks <= HAK_HEAP_TICKS && !hak_heap_reclaim_asked(heap));
    unit_in_thread(free_them, NULL);
    if (round == 299) hak_fetch_add_relaxed(&hak_heap_requests, 1u);
  }
  CHECK(hak_heap_reclaim_asked(hak_tls_heap));
  hak_free(hak_malloc(COMES_BACK));
  CHECK(!hak_heap_reclaim_asked(hak_tls_heap));
  hak_heap_check(hak_tls_heap);
}
ISOLATED(what_comes_back)

// Due work is done whatever a thread allocates, hands over or is sent.
enum { RETURNED = 512 };
static void slow_paths_tick(void) {
  hak_process_init();
  unit_no_guards();
  hak_option(NURSERY) = 0;
  give(hak_front_alloc(RETURNED, NULL));
  hak_heap_t *heap = hak_tls_heap;
  heap->ticks = 10;
  hak_remote_flush(heap);
  CHECK_EQUAL(heap->ticks, 10);
  void *large = hak_front_alloc(300000, NULL);
  CHECK_EQUAL(heap->ticks, 11);
  give(large);
  // One slab is used up, and half of it comes back through the inbox.
  unsigned capacity = hak_classes[hak_size_class(RETURNED)].capacity;
  for (unsigned i = 0; i < 2 * capacity; i++) {
    void *p = hak_front_alloc(RETURNED, NULL);
    if (i < capacity && i < COUNT(come_back)) come_back[i] = p;
  }
  unit_in_thread(free_them, NULL);
  CHECK(hak_load_relaxed(&heap->inbox) != 0);
  heap->ticks = HAK_HEAP_TICKS - 1;
  hak_tend(heap);
  CHECK(hak_load_relaxed(&heap->inbox) == 0);
  CHECK_EQUAL(heap->ticks, 0);
  hak_heap_check(heap);
}
ISOLATED(slow_paths_tick)

// A load that swings leaves empty SuperSlabs.
static void leave_empty_ones(void) {
  enum { BLOCKS = 200, SWINGS = 20, SIZE = 500000 };
  hak_option(LRU_CAP) = 2;
  static void *p[BLOCKS];
  for (unsigned swing = 0; swing < SWINGS; swing++) {
    for (unsigned i = 0; i < BLOCKS; i++) CHECK((p[i] = hak_malloc(SIZE)) != NULL);
    for (unsigned i = 0; i < BLOCKS; i++) hak_free(p[i]);
  }
}

// A load that takes no slow path any more still gives back what an earlier one left.
static void hits_are_noticed_of(size_t pairs) {
  if (hak_option(PURGE) < 2 || EMULATED) return;
  if (pairs > HAK_TINY_MAX && hak_option(L2_RING_CAP) == 0) return; // each pair takes a slow path
  hak_option(NURSERY) = 0;
  leave_empty_ones();
  void *other = hak_malloc(pairs); // its slab or run is in front from now on
  hak_free(hak_malloc(pairs));
  uint64_t refills = hak_tls_heap->classes[hak_size_class(pairs + HAK_TAIL)].refills, waited = 0;
  for (; hak_mapped.superslab_bytes > 16 * MIB && waited < 60000; waited++) {
    for (unsigned i = 0; i < 5000; i++) hak_free(hak_malloc(pairs));
    hak_os_sleep_ms(1);
  }
  CHECK(hak_mapped.superslab_bytes <= 16 * MIB);
  CHECK(HAK_SECURE || hak_tls_heap->classes[hak_size_class(pairs + HAK_TAIL)].refills == refills);
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s) && s.live_blocks == 1);
  CHECK(s.tiny_allocs + s.l2_allocs == 2 + waited * 5000);
  hak_free(other);
}
static void hits_are_noticed(void) { hits_are_noticed_of(100); }
ISOLATED(hits_are_noticed)
static void hits_of_a_ring_are_noticed(void) { hits_are_noticed_of(3000); }
ISOLATED(hits_of_a_ring_are_noticed)

// So does one that uses huge blocks alone, which no heap has.
static void huge_blocks_are_noticed(void) {
  hak_option(NURSERY) = 0;
  if (EMULATED) return; // see hits_are_noticed_of
  leave_empty_ones();
  CHECK(hak_mapped.superslab_bytes > 16 * MIB);
  for (unsigned waited = 0; hak_mapped.superslab_bytes > 16 * MIB && waited < 20000; waited++) {
    hak_free(hak_malloc(2 * MIB));
    hak_os_sleep_ms(1);
  }
  CHECK(hak_mapped.superslab_bytes <= 16 * MIB);
}
ISOLATED(huge_blocks_are_noticed)

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(grown_by_steps),
    ISOLATED_TEST(borrowed),
    ISOLATED_TEST(what_comes_back),
    ISOLATED_TEST(slow_paths_tick),
    ISOLATED_TEST(all_sizes),
    ISOLATED_TEST(colours),
    ISOLATED_TEST(all_alignments),
    ISOLATED_TEST(back_from_any_pointer),
    ISOLATED_TEST(zeroed_is_true),
    ISOLATED_TEST(contents),
    ISOLATED_TEST(refills_bring_batches),
    ISOLATED_TEST(hits_are_noticed),
    ISOLATED_TEST(hits_of_a_ring_are_noticed),
    ISOLATED_TEST(huge_blocks_are_noticed),
  };
  return RUN(tests);
}
