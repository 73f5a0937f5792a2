// Slabs and runs of a thread that does not come by: they go back when others have freed all of
// their blocks, and no other slab is touched.

#include "heaps.h"
#include "unit.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"
#include "thread/heap.h"
#include "thread/process.h"
#include "thread/relief.h"

#define SLABS 100u
enum { BLOCKS = 65536 };
static unsigned char *blocks[BLOCKS];
static size_t size;             // of all blocks
static unsigned capacity, used; // of a slab or run; blocks of SLABS of them

// A test with tiny slabs, and the same with runs of blocks of l2 bytes.
#define BOTH(test, l2) \
  static void test##_tiny(void) { \
    size = 1000; \
    test(); \
  } \
  static void test##_l2(void) { \
    size = l2; \
    test(); \
  } \
  ISOLATED(test##_tiny) \
  ISOLATED(test##_l2)
#define BOTH_TESTS(test) ISOLATED_TEST(test##_tiny), ISOLATED_TEST(test##_l2)

// Slabs or runs of the size's class that belong to the heap.
static unsigned slabs_of(hak_heap_t *heap) {
  unsigned n = 0;
  for (uint32_t i = HAK_SLABS_PER_SUPERSLAB; i < hak_superslab_count() << HAK_SLABS_SHIFT; i++) {
    hak_slab_t *slab = hak_slab_at(i);
    hak_kind_t kind = hak_slab_kind(slab);
    n += (kind == HAK_KIND_TINY || kind == HAK_KIND_L2) && hak_slab_owner(slab) == heap &&
         hak_slab_class(slab) == hak_size_class(size);
  }
  return n;
}

static uint64_t live_before;
static void set_up(void) {
  hak_process_init();
  hak_option(NURSERY) = 0;
  hak_option(REMOTE_PENDING) = 0;
  hak_option(FULL_MARK) = 8;
  hak_option(RELIEF) = 1;
  hak_option(WARM_PREFILL) = 0;
  hak_free(hak_malloc(1));
  live_before = heaps_live_blocks();
  capacity = hak_classes[hak_size_class(size)].capacity;
  used = SLABS * capacity;
  for (unsigned i = 0; i < used; i++) {
    CHECK((blocks[i] = hak_malloc(size)) != NULL);
    fill(blocks[i], size, i);
  }
  CHECK_EQUAL(slabs_of(hak_tls_heap), SLABS);
}

#define NONE UINT32_MAX
// Frees what is left, but for block number `except` of each slab.
static void free_all_but(unsigned except) {
  for (unsigned i = 0; i < used; i++) {
    if (!blocks[i] || i % capacity == except) continue;
    CHECK(filled(blocks[i], size, i));
    hak_free(blocks[i]);
    blocks[i] = NULL;
  }
}
static void *others_free(void *except) {
  free_all_but((unsigned)(uintptr_t)except);
  return NULL;
}

// This thread waits in pthread_join, which is like any sleep to its heap.
static void by_another(unsigned except) { unit_in_thread(others_free, (void *)(uintptr_t)except); }

// All remaining memory is free.
static void nothing_is_left(void) {
  hak_heap_check(hak_tls_heap);
  hak_trim(0);
  CHECK_EQUAL(heaps_live_blocks(), live_before);
  CHECK_EQUAL(slabs_of(hak_tls_heap), 0);
  hak_heap_check(hak_tls_heap);
}

static void of_a_sleeper(void) {
  set_up();
  hak_heap_t *mine = hak_tls_heap;
  by_another(NONE);
  // All are gone but the front and fewer slabs than are worth a look.
  CHECK(slabs_of(mine) <= 16);
  CHECK(heaps_stat(HAK_STAT_relief) >= SLABS - 16);
  unsigned c = hak_size_class(size);
  CHECK_EQUAL(hak_relief_taken(mine, c), heaps_stat(HAK_STAT_relief));
  CHECK_EQUAL(mine->warm[c].slabs - hak_relief_taken(mine, c), slabs_of(mine));
  CHECK(hak_slab_kind(hak_heap_front(mine, c)) != HAK_KIND_FREE);
  // The owner goes on as if nothing had happened.
  for (unsigned i = 0; i < used; i++) fill(blocks[i] = hak_malloc(size), size, i);
  free_all_but(NONE);
  nothing_is_left();
}
BOTH(of_a_sleeper, 12000)

// In random order slabs are posted long before they are empty.
static void in_any_order(void) {
  set_up();
  uint64_t random = 1;
  for (unsigned i = used; i-- > 1;) {
    unsigned k = (unsigned)chance_below(&random, i + 1);
    unsigned char *block = blocks[i];
    blocks[i] = blocks[k], blocks[k] = block;
  }
  for (unsigned i = 0; i < used; i++) fill(blocks[i], size, i);
  by_another(NONE);
  CHECK(slabs_of(hak_tls_heap) <= SLABS / 3); // the first looks found none empty
  nothing_is_left();
}
BOTH(in_any_order, 12000)

// A slab stays while a block is in use, or if its own thread freed one of its blocks.
static void not_while_in_use(void) {
  set_up();
  by_another(3);
  CHECK_EQUAL(heaps_stat(HAK_STAT_relief), 0);
  CHECK_EQUAL(slabs_of(hak_tls_heap), SLABS);
  for (unsigned i = 3; i < used; i += 2 * capacity) {
    CHECK(filled(blocks[i], size, i));
    hak_free(blocks[i]); // in every second slab
    blocks[i] = NULL;
  }
  CHECK_EQUAL(heaps_stat(HAK_STAT_relief), 0);
  by_another(NONE); // the last block of the others
  CHECK(heaps_stat(HAK_STAT_relief) <= SLABS / 2);
  CHECK(heaps_stat(HAK_STAT_relief) >= SLABS / 2 - 16);
  nothing_is_left();
}
BOTH(not_while_in_use, 12000)

// A class whose runs others have given back counts as small again, and borrows.
static void few_runs_again(void) {
  if (hak_option(L2_BORROW) == 0) return;
  size = 12000;
  set_up();
  uint64_t before = heaps_stat(HAK_STAT_l2_borrow);
  by_another(NONE);
  CHECK(heaps_stat(HAK_STAT_relief) >= SLABS - 16);
  hak_trim(0);
  unsigned char *larger = hak_malloc(13000), *mine[30];
  hak_free(larger);
  for (unsigned i = 0; i < COUNT(mine); i++) mine[i] = hak_malloc(size);
  CHECK(heaps_stat(HAK_STAT_l2_borrow) > before);
  for (unsigned i = 0; i < COUNT(mine); i++) hak_free(mine[i]);
  nothing_is_left();
}
ISOLATED(few_runs_again)

static void not_if_switched_off(void) {
  set_up();
  hak_option(RELIEF) = 0;
  by_another(NONE);
  CHECK_EQUAL(heaps_stat(HAK_STAT_relief), 0);
  CHECK_EQUAL(slabs_of(hak_tls_heap), SLABS);
  nothing_is_left();
}
BOTH(not_if_switched_off, 12000)

// Heaps whose inbox others must leave alone: the thread vanished in a fork, or many threads come by.
static void not_of_such_heaps(void) {
  hak_process_init();
  hak_option(COMMONS) = 0; // else the heap gives its slabs away from the second time on
  for (unsigned which = 0; which < 3; which++) {
    set_up();
    hak_heap_t *mine = hak_tls_heap;
    if (which == 0) hak_store_relaxed(&mine->state, HAK_HEAP_DEAD);
    if (which == 1) hak_store_relaxed(&mine->nursery, true);
    if (which == 2) hak_store_relaxed(&mine->common, true);
    by_another(NONE);
    hak_relief_all(NULL);
    hak_store_relaxed(&mine->state, HAK_HEAP_ATTACHED);
    hak_store_relaxed(&mine->nursery, false);
    hak_store_relaxed(&mine->common, false);
    CHECK_EQUAL(heaps_stat(HAK_STAT_relief), 0);
    CHECK_EQUAL(slabs_of(mine), SLABS);
    nothing_is_left();
  }
}
BOTH(not_of_such_heaps, 12000)

// Slabs too few for a look go with a trim.
static void *others_trim(void *unused) {
  free_all_but(NONE);
  CHECK(slabs_of(hak_heap_by_id(1)) > 1);
  hak_trim(0);
  CHECK_EQUAL(slabs_of(hak_heap_by_id(1)), 1); // the front
  return unused;
}
static void by_trim(void) {
  set_up();
  CHECK_EQUAL(hak_tls_heap->id, 1);
  unit_in_thread(others_trim, NULL);
  nothing_is_left();
}
BOTH(by_trim, 12000)

// A walk of the thread's own heap meanwhile looks at nothing that another may have by then.
static _Atomic bool done;
static void *free_and_use(void *unused) {
  free_all_but(NONE);
  for (unsigned round = 0; round < 20; round++) {
    for (unsigned i = 0; i < used; i++) {
      CHECK((blocks[i] = hak_malloc(round % 2 ? size : size / 2)) != NULL);
      fill(blocks[i], size / 2, i);
    }
    for (unsigned i = 0; i < used; i++) hak_free(blocks[i]);
    memset(blocks, 0, sizeof blocks);
  }
  hak_store_release(&done, true);
  return unused;
}
static void while_it_looks(void) {
  set_up();
  pthread_t other = unit_start(free_and_use, NULL);
  while (!hak_load_acquire(&done)) hak_heap_check(hak_tls_heap);
  unit_join(other);
  nothing_is_left();
}
BOTH(while_it_looks, 12000)

// A thread that allocates and frees, sleeps and goes on, while others free what it hands out.
enum { HANDED = 1 << 13, FREERS = 2 };
static _Atomic(unsigned char *) handed[HANDED];
static void *keep_freeing(void *argument) {
  uint64_t random = (uintptr_t)argument + 1;
  for (bool last = false, some = true; some || !last;) {
    last = hak_load_acquire(&done);
    some = false;
    for (unsigned i = 0; i < HANDED; i++) {
      unsigned k = (unsigned)chance_below(&random, HANDED);
      unsigned char *block = atomic_exchange(&handed[last ? i : k], NULL);
      if (!block) continue;
      some = true;
      CHECK(filled(block, size, 7));
      hak_free(block);
    }
  }
  return NULL;
}
static void while_it_works(void) {
  hak_process_init();
  hak_option(RELIEF) = 1;
  hak_free(hak_malloc(1));
  live_before = heaps_live_blocks();
  pthread_t freers[FREERS];
  for (uintptr_t i = 0; i < FREERS; i++) freers[i] = unit_start(keep_freeing, (void *)i);
  uint64_t random = 99;
  for (unsigned round = 0; round < SCALED(400u); round++) {
    for (unsigned i = 0; i < 4000; i++) {
      unsigned char *block = hak_malloc(size);
      CHECK(block != NULL);
      fill(block, size, 7);
      unsigned char *old = atomic_exchange(&handed[chance_below(&random, HANDED)], block);
      if (!old) continue;
      CHECK(filled(old, size, 7));
      hak_free(old);
    }
    if (round % 8 == 0) usleep(2000);
  }
  hak_store_release(&done, true);
  for (unsigned i = 0; i < FREERS; i++) unit_join(freers[i]);
  nothing_is_left();
}
BOTH(while_it_works, 2000)

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH_TESTS(of_a_sleeper),        BOTH_TESTS(in_any_order), BOTH_TESTS(not_while_in_use), ISOLATED_TEST(few_runs_again),
      BOTH_TESTS(not_if_switched_off), BOTH_TESTS(not_of_such_heaps), BOTH_TESTS(by_trim),
      BOTH_TESTS(while_it_looks),      BOTH_TESTS(while_it_works),
  };
  return RUN(tests);
}
