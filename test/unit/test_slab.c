// slab.h: one slab and its arithmetic (invariants I1 and I5 of types.h).

#include "pool.h"
#include "unit.h"

#include "os/os.h"
#include "superslab/shared_pool.h"
#include "superslab/slab.h"
#include "thread/process.h"

static hak_heap_t owner; // only its address matters

static hak_slab_t *fresh(unsigned c) {
  hak_source_t source;
  hak_process_init();
  hak_slab_t *slab = pool_acquire(hak_classes[c].run, &source);
  CHECK(slab != NULL);
  hak_slab_init(slab, &owner, c);
  return slab;
}

static void give_back(hak_slab_t *slab) {
  unsigned n = slab->run;
  hak_slab_clear(slab);
  for (unsigned i = 0; i < n; i++) CHECK(hak_slab_kind(&slab[i]) == HAK_KIND_FREE);
  hak_pool_release(slab, n);
}

static void *pop(hak_slab_t *slab) {
  void *block = slab->free;
  CHECK(block != NULL);
  slab->free = *(void **)block;
  hak_owner_inc(&slab->allocs);
  return block;
}

static bool put(hak_slab_t *slab, void *block) {
  *(void **)block = slab->free;
  slab->free = block;
  return hak_owner_dec_negative(&slab->frees_left);
}

// What push in remote.c leaves in the word.
static void put_remote(hak_slab_t *slab, void *block) {
  uint64_t old = slab->remote, count = ((old & ~HAK_REMOTE_QUEUED) >> HAK_REMOTE_COUNT_SHIFT) + 1;
  *(void **)block = (void *)(uintptr_t)(old & HAK_REMOTE_POINTER_MASK);
  slab->remote = (uintptr_t)block | count << HAK_REMOTE_COUNT_SHIFT | HAK_REMOTE_QUEUED;
}

static unsigned length(void **block) {
  unsigned n = 0;
  for (; block; block = *block) n++;
  return n;
}

// Length of the free list and of the chains that wait behind it.
static unsigned list_length(const hak_slab_t *slab) {
  unsigned n = length(slab->free);
  for (uint64_t chain = slab->chains; chain != 0;) {
    void **head = (void **)(chain & HAK_REMOTE_POINTER_MASK);
    CHECK_EQUAL(length(head), chain >> HAK_REMOTE_COUNT_SHIFT);
    n += length(head);
    chain = (uint64_t)head[1];
  }
  return n;
}

// live + |free| + |remote| + uncarved = capacity, where live excludes the remote frees.
static void check_i1(hak_slab_t *slab, unsigned held) {
  unsigned remote = (slab->remote & ~HAK_REMOTE_QUEUED) >> HAK_REMOTE_COUNT_SHIFT;
  CHECK_EQUAL(hak_slab_live(slab), held + remote);
  CHECK_EQUAL(hak_slab_live_now(slab), held);
  CHECK_EQUAL(held + remote + list_length(slab) + (slab->capacity - slab->carved), slab->capacity);
}

static void carving(void) {
  const uint32_t batches[] = {16, 64, 128, 1};
  for (unsigned c = 0; c < HAK_TINY_CLASSES; c++)
    for (unsigned b = 0; b < COUNT(batches); b++) {
      hak_slab_t *slab = fresh(c);
      size_t size = hak_class_size(c);
      unsigned total = 0, got;
      char *expected = slab->start;
      while ((got = hak_slab_carve(slab, batches[b])) != 0) {
        CHECK(got <= batches[b] && (got * size <= 4096 || got == 1));
        CHECK_EQUAL(list_length(slab), got);
        check_i1(slab, total);
        total += got;
        for (unsigned i = 0; i < got; i++, expected += size) CHECK(pop(slab) == expected);
        check_i1(slab, total);
      }
      CHECK_EQUAL(total, slab->capacity);
      CHECK(!hak_slab_usable(slab));
      while (total--) {
        put(slab, expected -= size);
        CHECK(hak_slab_usable(slab));
        check_i1(slab, total);
      }
      give_back(slab);
    }
}
ISOLATED(carving)

// One multiplication tells, for every offset in a slab or run of every class, if a block starts.
static void starts_of_blocks(void) {
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    hak_slab_t *slab = fresh(c);
    const char *start = hak_slab_start(slab);
    size_t size = hak_class_size(c), end = slab->run * HAK_SLAB_SIZE, gap = hak_slab_gap(slab);
    for (size_t offset = 0; offset < end; offset++) {
      size_t at = offset - gap;
      bool is = offset >= gap && at % size == 0 && at / size < slab->capacity;
      uint32_t number;
      CHECK_EQUAL(hak_slab_block(slab, start + offset, &number), is);
      if (offset >= gap) CHECK_EQUAL(number, at / size);
    }
    give_back(slab);
  }
}
ISOLATED(starts_of_blocks)

// Every tiny class: random alloc, free, remote free, collect, place changes.
static void arithmetic(void) {
  static void *held[4096];
  uint64_t seed = 5;
  for (unsigned c = 0; c < HAK_TINY_CLASSES; c++) {
    hak_slab_t *slab = fresh(c);
    unsigned live = 0, away = 0;
    uint64_t mark = 0; // the mark set at the last place change, 0: ACTIVE
    for (unsigned i = 0; i < SCALED(4000u); i++) {
      bool event = false;
      switch (chance_below(&seed, 8)) {
      case 0: case 1: case 2: // only the front allocates
        if (mark) {
          hak_slab_enter_active(slab);
          mark = 0;
        }
        if (!slab->free && !hak_slab_next_chain(slab) && !hak_slab_carve(slab, 64)) continue;
        held[live++] = pop(slab);
        break;
      case 3: case 4:
        if (live == 0) continue;
        event = put(slab, held[--live]);
        break;
      case 5:
        if (live == 0) continue;
        put_remote(slab, held[--live]), away++;
        break;
      case 6: {
        bool dequeue = chance_below(&seed, 2);
        CHECK_EQUAL(hak_slab_collect(slab, dequeue), away);
        CHECK((slab->remote & ~HAK_REMOTE_QUEUED) == 0);
        if (dequeue) CHECK_EQUAL(slab->remote, 0);
        away = 0;
        break;
      }
      default:
        mark = chance_below(&seed, live + away + 2);
        // Not FULL: that requires an empty free list, and leave_active reports it otherwise.
        hak_slab_leave_active(slab, HAK_PLACE_PARTIAL, mark);
        if (mark == 0) hak_slab_enter_active(slab);
        break;
      }
      check_i1(slab, live);
      // ACTIVE: never an event. Otherwise one as soon as live falls below the mark.
      bool negative = (int64_t)slab->frees_left < 0;
      CHECK_EQUAL(negative, mark != 0 && live + away < mark);
      if (event) CHECK(negative);
      if (mark == 0) {
        CHECK(slab->allocs < HAK_FREES_BIAS);
        CHECK_EQUAL(hak_slab_place(slab), HAK_PLACE_ACTIVE);
      }
    }
    hak_slab_collect(slab, true);
    give_back(slab);
  }
}
ISOLATED(arithmetic)

// 16-byte blocks, which have room for two words and no more.
static void chains_are_kept_whole(void) {
  hak_slab_t *slab = fresh(0);
  void *blocks[34];
  hak_slab_carve(slab, 64);
  for (unsigned i = 0; i < COUNT(blocks); i++) blocks[i] = pop(slab);
  CHECK_EQUAL(hak_slab_collect(slab, false), 0);
  CHECK_EQUAL(hak_slab_next_chain(slab), 0);
  // The first chain becomes the free list; the last one is short and put in front of it.
  const unsigned chains[] = {10, 12, 9, 3};
  unsigned freed = 0, had = 0;
  slab->free = NULL, slab->carved = COUNT(blocks);
  for (unsigned c = 0; c < COUNT(chains); c++, had += chains[c - 1]) {
    for (unsigned i = 0; i < chains[c]; i++) put_remote(slab, blocks[freed++]);
    CHECK_EQUAL(hak_slab_collect(slab, false), chains[c]);
    CHECK_EQUAL(slab->remote, HAK_REMOTE_QUEUED); // the poster's mark stays
    CHECK_EQUAL(list_length(slab), had + chains[c]);
    check_i1(slab, COUNT(blocks) - freed);
  }
  // Every block comes back once.
  uint64_t seen = 0;
  const unsigned lists[] = {13, 9, 12};
  for (unsigned l = 0; l < COUNT(lists); l++) {
    if (l > 0) CHECK_EQUAL(hak_slab_next_chain(slab), lists[l]);
    CHECK_EQUAL(length(slab->free), lists[l]);
    CHECK(hak_slab_usable(slab));
    while (slab->free) {
      uint64_t bit = (uint64_t)1 << (((char *)pop(slab) - hak_slab_start(slab)) / HAK_MIN_BLOCK);
      CHECK((seen & bit) == 0);
      seen |= bit;
    }
  }
  CHECK_EQUAL(seen, ((uint64_t)1 << COUNT(blocks)) - 1);
  CHECK_EQUAL(hak_slab_next_chain(slab), 0);
  CHECK_EQUAL(hak_slab_collect(slab, true), 0);
  CHECK_EQUAL(slab->remote, 0);
}
ISOLATED(chains_are_kept_whole)

// A handler that ends the process between any two instructions finds no block lost or listed
// twice, as the audit counts them (thread/audit.c).
#ifdef SINGLE_STEPS
static hak_slab_t *stepped;
static unsigned steps;
static void on_step(int number) {
  (void)number;
  steps++;
  if (stepped->chains != 0 || stepped->absent != 0) return;
  CHECK(length(stepped->free) <= stepped->carved);
  CHECK(length(stepped->free) + hak_slab_live(stepped) >= stepped->carved);
}
static void trimmed_step_by_step(void) {
  hak_process_init();
  if (hak_os_page_size == HAK_SLAB_SIZE) return; // the slab is not looked at then
  CHECK(signal(SIGTRAP, on_step) != SIG_ERR);
  void *blocks[256];
  stepped = fresh(hak_size_class(64));
  unsigned n = 0, freed = 1;
  while (n < COUNT(blocks)) {
    if (!stepped->free) hak_slab_carve(stepped, 64);
    blocks[n++] = pop(stepped);
  }
  put(stepped, blocks[0]);
  for (unsigned chain = 0; chain < 5; chain++) {
    for (unsigned i = 0; i < 6 + chain; i++) put_remote(stepped, blocks[freed++]);
    CHECK_EQUAL(hak_slab_collect(stepped, false), 6 + chain);
  }
  CHECK(stepped->chains != 0);
  STEPS_BEGIN();
  hak_slab_trim(stepped, 0);
  STEPS_END();
  CHECK(steps > 500);
  CHECK_EQUAL(stepped->chains, 0);
  CHECK_EQUAL(stepped->absent, 0);
  CHECK_EQUAL(length(stepped->free), freed);
  check_i1(stepped, n - freed);
}
ISOLATED(trimmed_step_by_step)

static void absent_page_step_by_step(void) {
  enum { SIZE = 64 };
  hak_process_init();
  if (hak_os_page_size == HAK_SLAB_SIZE) return;
  CHECK(signal(SIGTRAP, on_step) != SIG_ERR);
  void *blocks[HAK_SLAB_SIZE / SIZE];
  stepped = fresh(hak_size_class(SIZE));
  unsigned n = 0;
  while (n < stepped->capacity) {
    if (!stepped->free) hak_slab_carve(stepped, SIZE);
    memset(blocks[n++] = pop(stepped), 1, SIZE);
  }
  for (unsigned i = 0; i < n; i++)
    if (i != n / 2) put(stepped, blocks[i]);
  CHECK(hak_slab_trim(stepped, ~UINT64_C(0)) > 0 && stepped->absent != 0);
  while (stepped->free) pop(stepped);
  steps = 0;
  while (stepped->absent != 0) {
    STEPS_BEGIN();
    uint32_t count = hak_slab_carve_absent(stepped);
    STEPS_END();
    CHECK_EQUAL(length(stepped->free), count);
    if (stepped->absent != 0)
      while (stepped->free) pop(stepped);
  }
  CHECK(steps > 500);
}
ISOLATED(absent_page_step_by_step)
#endif

static void l2_runs(void) {
  for (unsigned c = HAK_TINY_CLASSES; c < HAK_CLASSES; c++) {
    hak_slab_t *slab = fresh(c);
    uint64_t all = (UINT64_C(1) << slab->capacity) - 1;
    CHECK_EQUAL(hak_slab_kind(slab), HAK_KIND_L2);
    CHECK(hak_slab_owner(slab) == &owner);
    CHECK(slab->local == NULL); // sends frees to the slow path
    CHECK(hak_slab_gap(slab) == hak_class_gap(c, hak_slab_index(slab)));
    CHECK_EQUAL(slab->mask, all);
    for (unsigned i = 1; i < slab->run; i++) {
      CHECK_EQUAL(hak_slab_kind(&slab[i]), HAK_KIND_INTERIOR);
      CHECK_EQUAL(slab[i].offset, i);
      CHECK(slab[i].local == NULL);
    }
    // I5 over place changes and remote frees.
    slab->mask = all & ~UINT64_C(0x3b);
    CHECK_EQUAL(hak_slab_live(slab), 5);
    CHECK_EQUAL(hak_slab_live_now(slab), 5);
    slab->remote = HAK_REMOTE_QUEUED | 0x12;
    CHECK_EQUAL(hak_slab_live(slab), 5);
    CHECK_EQUAL(hak_slab_live_now(slab), 3);
    hak_slab_leave_active(slab, HAK_PLACE_FULL, 3);
    CHECK_EQUAL(hak_slab_place(slab), HAK_PLACE_FULL);
    CHECK_EQUAL(hak_slab_live(slab), 5);
    CHECK_EQUAL(hak_slab_collect(slab, false), 2);
    CHECK_EQUAL(slab->remote, HAK_REMOTE_QUEUED);
    CHECK_EQUAL(hak_slab_live(slab), 3);
    hak_slab_enter_active(slab);
    CHECK_EQUAL(hak_slab_place(slab), HAK_PLACE_ACTIVE);
    CHECK_EQUAL(slab->mask, all & ~UINT64_C(0x29));
    slab->mask = 0;
    CHECK(!hak_slab_usable(slab));
    CHECK_EQUAL(hak_slab_live(slab), slab->capacity);
    slab->remote = HAK_REMOTE_QUEUED | all;
    CHECK_EQUAL(hak_slab_live_now(slab), 0);
    CHECK_EQUAL(hak_slab_collect(slab, true), slab->capacity);
    CHECK_EQUAL(slab->mask, all);
    CHECK_EQUAL(slab->remote, 0);
    give_back(slab);
    CHECK_EQUAL(slab->last_kind, HAK_KIND_L2);
  }
}
ISOLATED(l2_runs)

static void nothing_in_the_stand_in(void **state) {
  (void)state;
  assert_null(hak_slab_none.free);
  assert_null(hak_slab_none.local);
  assert_true(hak_slab_none.remote == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(carving),
    ISOLATED_TEST(starts_of_blocks),
    ISOLATED_TEST(arithmetic),
    ISOLATED_TEST(chains_are_kept_whole),
#ifdef SINGLE_STEPS
    ISOLATED_TEST(trimmed_step_by_step),
    ISOLATED_TEST(absent_page_step_by_step),
#endif
    ISOLATED_TEST(l2_runs),
    cmocka_unit_test(nothing_in_the_stand_in),
  };
  return RUN(tests);
}
