// The memory orders, for TSan: threads that take turns know of each other's turns by relaxed words
// only, so what one does happens before what the next does only if the words of a protocol say so.
// Blocks go from the thread that made them to the one that frees them by a release and an acquire,
// as the program must. Otherwise the tests only check that the turns do what they are here for.
// test/mutation/orders.py weakens one order after the other.

#include "unit.h"

#include "core/options.h"
#include "core/pressure.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "pool.h"
#include "pool/huge.h"
#include "pool/huge_cache.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"
#include "thread/commons.h"
#include "thread/first.h"
#include "thread/guard.h"
#include "thread/heap.h"
#include "thread/letter.h"
#include "thread/process.h"
#include "thread/relief.h"
#include "thread/remote.h"

typedef struct {
  char thread; // 'A' to 'D'
  void (*what)(void);
} turn_t;

static const turn_t *turns;
static unsigned turn_count;
static _Atomic unsigned turn;
static bool own_heaps; // threads have them before the first turn

static void await(unsigned n) {
  while (hak_load_relaxed(&turn) != n) sched_yield();
}

static void *take_turns(void *argument) {
  unsigned me = (unsigned)(uintptr_t)argument;
  await(me);
  if (own_heaps) hak_free(hak_malloc(1));
  hak_store_relaxed(&turn, me + 1);
  for (unsigned i = 0; i < turn_count; i++) {
    if (turns[i].thread - 'A' != (int)me) continue;
    await(4 + i);
    turns[i].what();
    hak_store_relaxed(&turn, 4 + i + 1);
  }
  await(4 + turn_count); // the end of a thread would order accesses as well
  return NULL;
}

static void in_turns(const turn_t *list, unsigned n) {
  pthread_t threads[4];
  turns = list, turn_count = n;
  for (uintptr_t i = 0; i < 4; i++) threads[i] = unit_start(take_turns, (void *)i);
  for (unsigned i = 0; i < 4; i++) unit_join(threads[i]);
}
#define IN_TURNS(...) \
  do { \
    static const turn_t list[] = {__VA_ARGS__}; \
    in_turns(list, COUNT(list)); \
  } while (0)

static void set_up(void) {
  hak_process_init();
  hak_option(NURSERY) = 0;
  hak_option(LETTERS) = 0;
  hak_option(REMOTE_PENDING) = 0;
  hak_option(WARM_PREFILL) = 0;
  hak_option(LRU_CAP) = 1000;
  hak_option(LRU_SHARE) = 0;
  hak_option(RELIEF) = 1;
  own_heaps = true;
}

static char *blocks[4096];               // of A
static _Thread_local char *others[4096]; // of other threads that allocate
static size_t size;
static unsigned capacity; // of one slab or run
static _Atomic bool handed;

static void make(unsigned from, unsigned to) {
  for (unsigned i = from; i < to; i++) fill(blocks[i] = hak_malloc(size), size, i);
}
static void make_others(unsigned n) {
  for (unsigned i = 0; i < n; i++) fill(others[i] = hak_malloc(size), size, i);
}
static void hand(void) { hak_store_release(&handed, true); }
static void release(unsigned from, unsigned to) {
  CHECK(hak_load_acquire(&handed));
  for (unsigned i = from; i < to; i++) {
    CHECK(filled(blocks[i], size, i));
    memset(blocks[i], 1, size);
    hak_free(blocks[i]);
  }
}
static hak_slab_t *slab_of(const void *p) {
  hak_slab_t *slab = hak_slab_lookup(p);
  return slab - slab->offset;
}

// ---------------------------------------------------------------------------
// R1, R2: remote frees, by way of the inbox or asked for at a refill.

// TSan remembers only the last accesses to 8 bytes: in some slab they are the right ones.
#define SLABS 16u
static void a_makes_slabs(void) {
  make(0, SLABS * capacity);
  CHECK(slab_of(blocks[0]) == slab_of(blocks[capacity - 1]));
  CHECK(slab_of(blocks[0]) != slab_of(blocks[capacity]));
  hand();
}
static void release_of_each(unsigned from, unsigned to) {
  for (unsigned i = 0; i < SLABS; i++) release(i * capacity + from, i * capacity + to);
}
static void first_of_each(void) { release_of_each(0, 1); } // posts them
static void two_more(void) { release_of_each(1, 3); }      // posts none
static void another(void) { release_of_each(3, 4); }       // posts them again
static void drain(void) {
  hak_heap_drain(hak_tls_heap);
  CHECK_EQUAL(hak_load_relaxed(&slab_of(blocks[0])->remote), 0);
}
static void use_again(void) {
  hak_heap_drain(hak_tls_heap);
  for (unsigned i = 0; i < SLABS * 3; i++) fill(hak_malloc(size), size, i);
  hak_heap_check(hak_tls_heap);
}
static void inbox(size_t of, bool again) {
  set_up();
  hak_option(FULL_MARK) = 1000;
  size = of, capacity = hak_classes[hak_size_class(of)].capacity;
  if (again)
    IN_TURNS({'A', a_makes_slabs}, {'B', first_of_each}, {'C', two_more}, {'A', drain},
             {'D', another}, {'A', use_again});
  else IN_TURNS({'A', a_makes_slabs}, {'B', first_of_each}, {'C', two_more}, {'A', use_again});
}
static void inbox_tiny(void) { inbox(1000, false); }
static void inbox_l2(void) { inbox(5000, false); }
static void inbox_again_tiny(void) { inbox(1000, true); }
static void inbox_again_l2(void) { inbox(5000, true); }
ISOLATED(inbox_tiny)
ISOLATED(inbox_l2)
ISOLATED(inbox_again_tiny)
ISOLATED(inbox_again_l2)

static void a_makes_a_slab(void) {
  make(0, capacity);
  hand();
}
static void free_two(void) { release(0, 2); }
static void refill(void) {
  uint64_t collected = hak_load_relaxed(&hak_tls_heap->stats[HAK_STAT_refill_remote]);
  make(capacity, capacity + 2);
  CHECK_EQUAL(hak_load_relaxed(&hak_tls_heap->stats[HAK_STAT_refill_remote]), collected + 1);
}
static void asked_for(void) {
  set_up();
  size = 1000, capacity = hak_classes[hak_size_class(size)].capacity;
  IN_TURNS({'A', a_makes_a_slab}, {'B', free_two}, {'A', refill});
}
ISOLATED(asked_for)

// ---------------------------------------------------------------------------
// R3: a FULL slab is taken from a sleeping thread and used by the thread that took it.

static void a_makes_a_slab_full(void) {
  make(0, capacity);
  hand();
  // As a refill does; that would go on to the pool, where others see it.
  hak_heap_retire(hak_tls_heap, slab_of(blocks[0]));
  CHECK_EQUAL(hak_slab_place(slab_of(blocks[0])), HAK_PLACE_FULL);
}
static void free_first(void) { release(0, 1); }
static void free_others(void) { release(1, capacity); }
static void relieve(void) {
  CHECK(hak_load_acquire(&handed));
  hak_slab_t *slab = slab_of(blocks[0]);
  hak_relief_all(hak_tls_heap);
  CHECK_EQUAL(hak_slab_kind(slab), HAK_KIND_FREE);
  make_others(2 * capacity);
  CHECK(slab_of(others[0]) == slab);
}
static void relief(size_t of) {
  set_up();
  size = of, capacity = hak_classes[hak_size_class(of)].capacity;
  IN_TURNS({'A', a_makes_a_slab_full}, {'B', free_first}, {'C', free_others}, {'D', relieve});
}
static void relief_tiny(void) { relief(1000); }
static void relief_l2(void) { relief(8000); }
ISOLATED(relief_tiny)
ISOLATED(relief_l2)

// ---------------------------------------------------------------------------
// R4: a letter is read, and written again.

static hak_heap_t *heap_of_a;

static void a_makes_six(void) {
  heap_of_a = hak_tls_heap;
  make(0, 6);
  hand();
}
static void send(unsigned from) {
  release(from, from + 2);
  uint64_t sent = hak_load_relaxed(&hak_tls_heap->stats[HAK_STAT_letter_send]);
  hak_remote_flush(hak_tls_heap);
  CHECK_EQUAL(hak_load_relaxed(&hak_tls_heap->stats[HAK_STAT_letter_send]), sent + 1);
}
static void send_two(void) { send(0); }
static void send_two_more(void) { send(2); }
static void send_the_last(void) { send(4); }
static void open_mail(void) {
  hak_heap_drain(hak_tls_heap);
  CHECK(hak_load_relaxed(&hak_tls_heap->mail) == NULL);
  make(6, 8);
}
static void recall(void) {
  CHECK(hak_load_acquire(&handed));
  hak_letter_recall(heap_of_a, hak_tls_heap);
}
static void letters(void) {
  set_up();
  hak_option(LETTERS) = 1;
  size = 5000;
  IN_TURNS({'A', a_makes_six}, {'B', send_two}, {'A', open_mail}, {'B', send_two_more},
           {'C', recall}, {'B', send_the_last}, {'A', open_mail});
}
ISOLATED(letters)

// ---------------------------------------------------------------------------
// H1, H3, H4: heaps change hands.

static void leave(void) {
  make(0, 100);
  for (unsigned i = 0; i < 50; i++) hak_free(blocks[i]);
  hak_heap_thread_end(NULL);
}
static void reclaim(void) {
  CHECK(hak_tls_heap == &hak_heap_none);
  hak_heap_reclaim_all(NULL, 0);
}
static void adopt(void) {
  hak_free(hak_malloc(1));
  CHECK(hak_tls_heap != &hak_heap_none && hak_heap_count() == 1);
}
static void orphans(void) {
  set_up();
  own_heaps = false;
  size = 1000;
  IN_TURNS({'A', leave}, {'B', reclaim}, {'C', reclaim}, {'D', adopt});
}
ISOLATED(orphans)

static void visit_nursery(void) {
  char *p = hak_malloc(100);
  memset(p, 1, 100);
  CHECK(hak_tls_heap == &hak_heap_none);
  CHECK(hak_load_relaxed(&hak_slab_owner(slab_of(p))->nursery));
  hak_free(p);
}
static void nurseries(void) {
  set_up();
  hak_option(NURSERY) = 1000;
  hak_free(hak_malloc(1)); // the first heap is this thread's
  own_heaps = false;
  IN_TURNS({'A', visit_nursery}, {'B', visit_nursery}, {'C', visit_nursery}, {'A', visit_nursery});
}
ISOLATED(nurseries)

static void give_slabs(void) {
  hak_tls_heap->others = HAK_OTHERS_ENOUGH; // as if others had freed most of its blocks
  make_others(4 * capacity);
  CHECK(hak_load_relaxed(&hak_slab_owner(slab_of(others[0]))->common));
}
static void look_after_commons(void) { hak_commons_reclaim(); }
static void commons(void) {
  set_up();
  hak_option(COMMONS) = 1;
  size = 1000, capacity = hak_classes[hak_size_class(size)].capacity;
  IN_TURNS({'A', give_slabs}, {'B', give_slabs}, {'C', look_after_commons}, {'A', give_slabs});
}
ISOLATED(commons)

// ---------------------------------------------------------------------------
// P1: slabs and SuperSlabs change hands.

static _Thread_local hak_source_t source;
static _Thread_local hak_slab_t *slab;
static void use_one(void) {
  CHECK((slab = pool_acquire(1, &source)) != NULL);
  slab->capacity++;
  memset(hak_slab_start(slab), 1, 4096);
}
static void release_one(void) { hak_pool_release(slab, 1); }
static void use_and_release(void) { use_one(), release_one(); }
static void purge(void) { CHECK_EQUAL(hak_pool_purge(), 1); }
static void evict(void) { CHECK_EQUAL(hak_pool_trim(0), 1); }
static void map_again(void) {
  use_one();
  CHECK_EQUAL(source, HAK_FROM_MAP);
  CHECK_EQUAL(hak_superslab_number(slab), 1);
}
static void pool(void) {
  set_up();
  own_heaps = false;
  IN_TURNS({'A', use_and_release}, {'B', use_and_release}, {'C', evict}, {'D', map_again});
}
ISOLATED(pool)
static void purged(void) {
  set_up();
  own_heaps = false;
  // A's slab stays, so that what is purged is not empty.
  IN_TURNS({'A', use_one}, {'B', use_and_release}, {'C', purge}, {'D', use_and_release});
}
ISOLATED(purged)
static void map_two(void) {
  hak_claim_t claim[2];
  for (unsigned i = 0; i < 2; i++) CHECK(hak_pool_map(1, 0, true, &claim[i]));
  for (unsigned i = 0; i < 2; i++) hak_pool_release(claim[i].slab, 1);
}
static void evict_two(void) { CHECK_EQUAL(hak_pool_trim(0), 2); }
static void two_cold(void) {
  set_up();
  own_heaps = false;
  IN_TURNS({'A', map_two}, {'B', evict_two}, {'C', map_two});
}
ISOLATED(two_cold)
static void last_one(void) {
  set_up();
  own_heaps = false;
  IN_TURNS({'A', use_one}, {'A', release_one}, {'B', evict}, {'C', map_again});
}
ISOLATED(last_one)

// ---------------------------------------------------------------------------
// C1: huge mappings, kept and refused.

static char *kept;
static void put(void) {
  char *p = hak_huge_alloc(4 * MIB, 1, false);
  memset(p, 1, 4096);
  CHECK(hak_huge_free(p));
}
static void take(void) {
  char *p = hak_huge_alloc(4 * MIB, 1, false);
  CHECK(p == kept);
  memset(p, 2, 4096);
  CHECK(hak_huge_free(p));
}
static void huge(void) {
  set_up();
  hak_option(HUGE_CACHE) = 64 * MIB;
  for (unsigned i = 0; i < 20; i++) CHECK(hak_huge_free(hak_huge_alloc(MIB, 1, false)));
  hak_huge_cache_trim(0);
  CHECK(hak_huge_free(kept = hak_huge_alloc(4 * MIB, 1, false)));
  IN_TURNS({'A', take}, {'B', take}, {'C', take});
}
ISOLATED(huge)

static void try_again(void) { hak_huge_cache_trim(0); }
static void refused(void) {
  set_up();
  hak_option(HUGE_CACHE) = 0;
  hak_os_fault(HAK_FAULT_UNMAP, 0, false);
  IN_TURNS({'A', put}, {'B', put}, {'C', try_again}, {'D', try_again});
  hak_os_fault(0, 0, false);
}
ISOLATED(refused)

// ---------------------------------------------------------------------------
// I1, S1, S2: what is set up once, guards, first blocks.

// Threads that exist before the library's constructor runs.
static void begin(void) { hak_process_init(); }
static void go_on(void) { hak_pressure_init(); }
static void allocate(void) { hak_free(hak_malloc(100)), hak_free(hak_malloc(4 * MIB)); }
static void allocate_one(void) { CHECK(hak_malloc(100) != NULL); }
static void process(void) {
  hak_store_relaxed(&hak_process_state, 0u); // nothing was allocated
  own_heaps = false;
  IN_TURNS({'A', begin}, {'B', allocate}, {'A', go_on}, {'C', allocate});
}
ISOLATED(process)
static void found_nursery(void) {
  hak_store_relaxed(&hak_process_state, 0u);
  own_heaps = false;
  // A gets the first heap, B makes a nursery, and C, which finds it, knows the options.
  IN_TURNS({'A', allocate_one}, {'B', allocate_one}, {'C', allocate_one});
}
ISOLATED(found_nursery)

#define GUARDED 256 // places, so that each is used again by the next
static void start_guards(void) { hak_guard_start(); }
static void ask_guards(void) { CHECK(!hak_guard_owns(&turn)); }
static void use_guards(void) {
  for (unsigned i = 0; i < GUARDED; i++) {
    char *p = hak_guard_alloc(100);
    CHECK(p != NULL && hak_guard_owns(p));
    memset(p, 1, 100);
    hak_guard_free(p, "free");
  }
}
static void guards(void) {
  set_up();
  hak_option(GUARD) = 1;
  own_heaps = false;
  IN_TURNS({'A', start_guards}, {'B', use_guards}, {'C', use_guards}, {'D', ask_guards});
}
ISOLATED(guards)

static void a_makes_first(void) {
  hak_store_relaxed(&hak_first_is_open, true);
  CHECK((blocks[0] = hak_first_alloc(100)) != NULL);
  CHECK((blocks[1] = hak_first_alloc(100)) != NULL);
  hand();
}
static void free_one_first(void) {
  CHECK(hak_load_acquire(&handed));
  hak_first_free(blocks[0], "free");
}
static void free_last_first(void) { // the pages go back
  hak_store_relaxed(&hak_first_is_open, false);
  hak_first_free(blocks[1], "free");
}
static void audit(void) { hak_first_audit(); }
static void first(void) {
  set_up();
  own_heaps = false;
  IN_TURNS({'A', a_makes_first}, {'B', free_one_first}, {'A', audit}, {'A', free_last_first});
}
ISOLATED(first)

int main(void) {
  const struct CMUnitTest tests[] = {
      ISOLATED_TEST(inbox_tiny),     ISOLATED_TEST(inbox_l2),  ISOLATED_TEST(inbox_again_tiny),
      ISOLATED_TEST(inbox_again_l2), ISOLATED_TEST(asked_for), ISOLATED_TEST(relief_tiny),
      ISOLATED_TEST(relief_l2),      ISOLATED_TEST(letters),   ISOLATED_TEST(orphans),
      ISOLATED_TEST(nurseries),      ISOLATED_TEST(commons),   ISOLATED_TEST(pool),
      ISOLATED_TEST(purged),         ISOLATED_TEST(last_one),  ISOLATED_TEST(two_cold),
      ISOLATED_TEST(huge),           ISOLATED_TEST(refused),   ISOLATED_TEST(process),
      ISOLATED_TEST(found_nursery),  ISOLATED_TEST(guards),    ISOLATED_TEST(first),
  };
  return RUN(tests);
}
