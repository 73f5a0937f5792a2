// Threads that hardly allocate share heaps: they get correct memory, no cache line of
// another thread, and no heap of their own until they need one.

#include "heaps.h"
#include "unit.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "superslab/shared_pool.h"
#include "superslab/slab.h"
#include "thread/commons.h"
#include "thread/heap.h"
#include "thread/nursery.h"
#include "thread/orphan.h"
#include "thread/process.h"
#include "thread/remote.h"

enum { THREADS = 40, BLOCKS = 24 };
static pthread_barrier_t barrier;
static unsigned char *held[THREADS][BLOCKS];
static _Atomic unsigned got_heaps; // threads that found all nurseries taken, which a busy machine may bring about

static void set_up(uint64_t calls) {
  hak_process_init();
  hak_option(NURSERY) = calls;
  hak_option(PREWARM) = 0;
  hak_free(hak_malloc(1)); // the first heap is this thread's
}

static size_t size_of(uintptr_t thread, unsigned i) { return (thread * 131 + i * i * 7) % (i % 3 ? 200 : 3000); }

static hak_stats_t stats_now(void) {
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  return s;
}

static bool in_nursery(void *p) {
  hak_slab_t *slab = hak_slab_lookup(p);
  slab -= slab->offset;
  return hak_load_relaxed(&hak_slab_owner(slab)->nursery);
}

static void *allocate_a_little(void *argument) {
  uintptr_t me = (uintptr_t)argument;
  for (unsigned i = 0; i < BLOCKS; i++) {
    CHECK((held[me][i] = hak_malloc(size_of(me, i))) != NULL);
    fill(held[me][i], size_of(me, i), me * BLOCKS + i);
    if (i % 5 != 4) continue;
    hak_free(held[me][i - 1]);
    held[me][i - 1] = NULL;
  }
  if (hak_tls_heap != &hak_heap_none) got_heaps++;
  pthread_barrier_wait(&barrier); // all threads have theirs
  pthread_barrier_wait(&barrier); // the blocks were looked at
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (!held[me][i] || i % 2) continue; // the others are for the main thread
    CHECK(filled(held[me][i], size_of(me, i), me * BLOCKS + i));
    hak_free(held[me][i]);
    held[me][i] = NULL;
  }
  return NULL;
}

static void shared_by_many(void) {
  set_up(1024);
  pthread_barrier_init(&barrier, NULL, THREADS + 1);
  uint32_t heaps = hak_heap_count();
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) threads[i] = unit_start(allocate_a_little, (void *)i);
  pthread_barrier_wait(&barrier);
  CHECK(got_heaps <= THREADS / 2);
  CHECK(hak_heap_count() > heaps && hak_heap_count() <= heaps + HAK_NURSERIES + got_heaps);
  CHECK(heaps_stat(HAK_STAT_nursery) >= (THREADS - got_heaps) * BLOCKS);
  for (unsigned t = 0; t < THREADS; t++) {
    for (unsigned i = 0; i < BLOCKS; i++) {
      if (!held[t][i] || (got_heaps && !in_nursery(held[t][i]))) continue;
      CHECK(in_nursery(held[t][i]) && (uintptr_t)held[t][i] % HAK_CACHE_LINE == 0);
      CHECK(HAK_SECURE || hak_malloc_usable_size(held[t][i]) % HAK_CACHE_LINE == 0);
    }
  }
  pthread_barrier_wait(&barrier);
  for (unsigned t = 0; t < THREADS; t++) unit_join(threads[t]);
  for (unsigned t = 0; t < THREADS; t++) {
    for (unsigned i = 0; i < BLOCKS; i++) {
      if (!held[t][i]) continue;
      CHECK(filled(held[t][i], size_of(t, i), t * BLOCKS + i));
      hak_free(held[t][i]);
    }
  }
  heaps_let_go(); // the secure library's quarantines
  hak_trim(0);
  CHECK_EQUAL(stats_now().live_blocks, 0);
  CHECK_EQUAL(stats_now().superslab_bytes, 0);
  for (uint32_t id = 1; id <= hak_heap_count(); id++)
    if (hak_load_relaxed(&hak_heap_by_id(id)->nursery)) hak_heap_check(hak_heap_by_id(id)); // nobody has it
}
ISOLATED(shared_by_many)

static void *allocate_once(void *unused) {
  hak_free(hak_malloc(100));
  return unused;
}

// A trim looks into the nurseries; that is no use of them.
static void reclaims_do_not_count(void) {
  set_up(1024);
  unit_in_thread(allocate_once, NULL);
  uint64_t uses = heaps_stat(HAK_STAT_nursery);
  CHECK(uses == 2);
  for (unsigned i = 0; i < 10; i++) hak_trim(0);
  CHECK_EQUAL(heaps_stat(HAK_STAT_nursery), uses);
  unit_in_thread(allocate_once, NULL); // no thread has it
  CHECK(heaps_stat(HAK_STAT_nursery) >= uses + 2);
}
ISOLATED(reclaims_do_not_count)

// A nursery that a thread with a later clock looked at was looked at just now.
static void later_clock_of_another(void) {
  set_up(1024);
  unit_in_thread(allocate_once, NULL);
  hak_heap_t *nursery = hak_heap_by_id(hak_heap_count());
  CHECK(nursery->nursery);
  unit_clock_step(0);
  uint32_t later = (uint32_t)hak_os_clock_ms() + 500;
  nursery->looked_at = later;
  nursery->looked_uses = (uint32_t)nursery->stats[HAK_STAT_nursery];
  hak_orphan_tend();
  CHECK_EQUAL(nursery->looked_at, later);
}
ISOLATED(later_clock_of_another)

static void *allocate_and_free_runs(void *unused) {
  void *p[200];
  for (unsigned round = 0; round < 100; round++) {
    for (unsigned i = 0; i < 2; i++) CHECK((p[i] = hak_malloc(100000 + i * 50000)) != NULL);
    for (unsigned i = 0; i < 2; i++) hak_free(p[i]);
  }
  for (unsigned i = 0; i < COUNT(p); i++) CHECK(in_nursery(p[i] = hak_malloc(1000)));
  for (unsigned i = 0; i < COUNT(p); i++) hak_free(p[i]);
  return unused;
}

// What a nursery keeps for its threads goes back once none has come for a while.
static void keeps_nothing_for_ever(void) {
  set_up(1000000);
  unit_in_thread(allocate_and_free_runs, NULL);
  hak_heap_t *nursery = hak_heap_by_id(hak_heap_count());
  CHECK(nursery->nursery);
  CHECK(HAK_SECURE || nursery->kept_count != 0 || hak_option(L25_RING_CAP) == 0);
  CHECK(HAK_SECURE || nursery->spares != 0 || hak_option(WARM_POOL) == 0);
#if HAK_SECURE
  CHECK(nursery->held_count != 0);
#endif
  for (unsigned i = 0; i < 2 * hak_heap_count(); i++) {
    nursery->looked_at = 0; // more than a second ago
    hak_orphan_tend();
  }
  CHECK(nursery->kept_count == 0 && nursery->spares == 0);
#if HAK_SECURE
  CHECK_EQUAL(nursery->held_count, 0);
#endif
}
ISOLATED(keeps_nothing_for_ever)

// A thread that goes on gets its own heap after a number of calls, or of KiB.
static void *allocate_more(void *size) {
  unsigned calls = 0;
  while (hak_tls_heap == &hak_heap_none) {
    hak_free(hak_malloc((uintptr_t)size));
    CHECK((calls += 2) < 10000);
  }
  CHECK(!hak_load_relaxed(&hak_tls_heap->nursery));
  void *p = hak_malloc((uintptr_t)size);
  CHECK(!in_nursery(p));
  hak_free(p);
  return (void *)(uintptr_t)calls;
}
static void *grow_up_and_wait(void *size) {
  allocate_more(size);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return NULL;
}
static void *allocate_in_any(void *unused) {
  void *p = hak_malloc(100);
  CHECK(p && in_nursery(p));
  hak_free(p);
  return unused;
}

// The first place is empty, as its nursery became a thread's heap, and there is no memory for another:
// a new thread is served by the nursery in the second place.
static void served_by_what_is_there(void) {
  set_up(1024);
  if (hak_option(NURSERY) == 0) return;
  unit_in_thread(allocate_once, NULL);
  hak_heap_t *first = hak_heap_by_id(hak_heap_count());
  CHECK(first->nursery && hak_heap_take(first, HAK_HEAP_CLAIMED));
  unit_in_thread(allocate_once, NULL);
  hak_orphan_let_go(first);
  pthread_barrier_init(&barrier, NULL, 2);
  pthread_t thread = unit_start(grow_up_and_wait, (void *)100);
  pthread_barrier_wait(&barrier);
  CHECK(!first->nursery);
  while (hak_heap_count() < 9) CHECK(hak_heap_new() != NULL); // the tenth is in a mapping of its own
  hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_COMMIT, 0, false);
  unit_in_thread(allocate_in_any, NULL);
  hak_os_fault(0, 0, false);
  CHECK_EQUAL(hak_heap_count(), 9);
  pthread_barrier_wait(&barrier);
  CHECK_EQUAL(pthread_join(thread, NULL), 0);
}
ISOLATED(served_by_what_is_there)

static void *free_without_a_heap(void *p) {
  uint32_t requests = hak_load_relaxed(&hak_heap_requests);
  hak_free(p);
  CHECK_EQUAL(hak_load_relaxed(&hak_heap_requests), requests);
  unit_clock_step(60); // not soon after another such request
  errno = 0;
  CHECK(hak_malloc(100) == NULL && errno == ENOMEM);
  CHECK_EQUAL(hak_load_relaxed(&hak_heap_requests), requests + 1);
  return NULL;
}

// A thread that cannot have a heap frees without one; only what it allocates makes all others tidy up.
static void frees_without_memory(void) {
  set_up(0);
  void *p = hak_malloc(100);
  CHECK(p != NULL);
  while (hak_heap_count() < 9) CHECK(hak_heap_new() != NULL); // as above
  hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_COMMIT, 0, false);
  unit_in_thread(free_without_a_heap, p);
  hak_os_fault(0, 0, false);
  CHECK_EQUAL(hak_heap_count(), 9);
}
ISOLATED(frees_without_memory)

static uintptr_t calls_with(size_t size, uint64_t budget) {
  set_up(budget);
  void *calls;
  pthread_t thread = unit_start(allocate_more, (void *)size);
  CHECK_EQUAL(pthread_join(thread, &calls), 0);
  return (uintptr_t)calls;
}
static void calls_count(void) { CHECK_EQUAL(calls_with(100, 500), 502); }
ISOLATED(calls_count)
static void kib_count(void) { CHECK_EQUAL(calls_with(10 << 10, 500), 84); } // 12 per pair
ISOLATED(kib_count)
static uintptr_t calls_in_crowd(size_t size) {
  set_up(500);
  uint32_t threads = hak_heap_threads;
  hak_heap_threads = HAK_CROWD + 1;
  uintptr_t calls = calls_with(size, 500);
  hak_heap_threads = threads;
  return calls;
}
// Beside many threads with heaps (a crowd) it takes four times as many calls.
static void a_crowd_counts(void) { CHECK_EQUAL(calls_in_crowd(100), 2002); }
ISOLATED(a_crowd_counts)
// But threads whose blocks take up much more than they ask for soon get a heap.
static void small_blocks_in_a_crowd(void) {
  uintptr_t calls = calls_in_crowd(16);
  CHECK(calls > 500 && calls < 1200);
}
ISOLATED(small_blocks_in_a_crowd)
static void none_wanted(void) { CHECK_EQUAL(calls_with(100, 0), 2); }
ISOLATED(none_wanted)

// The thread keeps the nursery: its blocks are local to it from then on; others get a new one.
static void *grow_up(void *unused) {
  (void)unused;
  enum { SIZES = 40 };
  char *p[SIZES];
  for (unsigned i = 0; i < SIZES; i++) fill(p[i] = hak_malloc(i * 11 + 1), i * 11 + 1, i);
  hak_heap_t *nursery = hak_slab_owner(hak_slab_lookup(p[0]));
  CHECK(hak_load_relaxed(&nursery->nursery));
  allocate_more((void *)(uintptr_t)10);
  CHECK(hak_tls_heap == nursery && nursery->id != 1);
  unit_in_thread(allocate_more, (void *)(uintptr_t)10);
  CHECK(hak_tls_heap == nursery);
  for (unsigned i = 0; i < SIZES; i++) {
    CHECK(filled(p[i], i * 11 + 1, i) && !in_nursery(p[i]));
    CHECK(hak_realloc(p[i], i * 11 + 1) == p[i]);
    hak_free_sized(p[i], i * 11 + 1); // still a block of whole cache lines
  }
  CHECK_EQUAL(hak_malloc_usable_size(p[0] = hak_malloc(1)), HAK_SECURE ? 1 : 16); // as in any heap
  hak_free(p[0]);
  hak_heap_check(nursery);
  return NULL;
}
static void keeps_the_nursery(void) {
  set_up(100);
  unit_in_thread(grow_up, NULL);
  heaps_let_go();
  CHECK_EQUAL(stats_now().live_blocks, 0);
  CHECK_EQUAL(stats_now().heaps, 3); // this thread's and two
}
ISOLATED(keeps_the_nursery)

// A call that is interrupted in a nursery (here: by the test) blocks no thread: the thread
// itself, say in a signal handler, and others are served by the next nursery, and then by
// heaps of their own.
static void *allocate_inside(void *depth) {
  hak_heap_t *heap = hak_heap_enter();
  CHECK(heap != NULL);
  void *p = hak_malloc(50);
  CHECK(p != NULL);
  if ((uintptr_t)depth) {
    CHECK(hak_load_relaxed(&heap->nursery) && hak_tls_heap == &hak_heap_none);
    unit_in_thread(allocate_inside, (void *)((uintptr_t)depth - 1));
  } else {
    CHECK(hak_tls_heap != &hak_heap_none);
  }
  hak_free(p);
  hak_heap_leave(heap);
  return NULL;
}
static void nobody_waits(void) {
  set_up(1024);
  // Each thread holds a nursery and needed another one for its block.
  unit_in_thread(allocate_inside, (void *)(uintptr_t)(HAK_NURSERIES - 1));
  heaps_let_go();
  CHECK_EQUAL(stats_now().live_blocks, 0);
}
ISOLATED(nobody_waits)

// Slabs that ended threads left are for threads with heaps: those of a nursery are padded.
static void *leave_every_second(void *blocks) {
  void **p = blocks;
  for (unsigned i = 0; i < 2 * BLOCKS; i++) CHECK((p[i] = hak_malloc(1000)) != NULL);
  for (unsigned i = 0; i < 2 * BLOCKS; i += 2) hak_free(p[i]);
  return NULL;
}
static void takes_in_no_slabs(void) {
  static void *in_it[2 * BLOCKS], *left[2 * BLOCKS];
  set_up(1024);
  unit_in_thread(leave_every_second, in_it);
  CHECK(in_nursery(in_it[1]));
  hak_option(NURSERY) = 0;
  unit_in_thread(leave_every_second, left);
  hak_heap_t *orphan = hak_slab_owner(hak_slab_lookup(left[1]));
  CHECK(!in_nursery(left[1]) && hak_load_relaxed(&orphan->state) == HAK_HEAP_ORPHAN);
  hak_heap_reclaim_all(NULL, 0); // no thread has the nursery, so it follows the request
  for (unsigned i = 1; i < 2 * BLOCKS; i += 2) CHECK(hak_slab_owner(hak_slab_lookup(left[i])) == orphan);
  for (unsigned i = 1; i < 2 * BLOCKS; i += 2) {
    hak_free(left[i]);
    hak_free(in_it[i]);
  }
}
ISOLATED(takes_in_no_slabs)

// Nor for what threads gave away: a block of a size that the request was rounded up to would not
// be known as such.
static void *allocate_and_free_sized(void *unused) {
  void *p[2 * BLOCKS];
  for (unsigned i = 0; i < COUNT(p); i++) CHECK(in_nursery(p[i] = hak_malloc(10)));
  for (unsigned i = 0; i < COUNT(p); i++) hak_free_sized(p[i], 10);
  return unused;
}
static void takes_in_no_given_slabs(void) {
  enum { SIZE = HAK_CACHE_LINE - HAK_TAIL, SLABS = 3 };
  static void *given[SLABS * HAK_SLAB_SIZE / HAK_CACHE_LINE];
  set_up(0);
  hak_option(COMMONS) = 1;
  hak_option(REMOTE_PENDING) = 0;
  hak_option(FULL_MARK) = 8;
  hak_tls_heap->others = HAK_OTHERS_ENOUGH; // as if others freed this thread's blocks
  for (unsigned i = 0; i < COUNT(given); i++) CHECK((given[i] = hak_malloc(SIZE)) != NULL);
  hak_heap_t *common = hak_slab_owner(hak_slab_lookup(given[0]));
  CHECK(hak_load_relaxed(&common->common));
  unsigned commons = 0;
  for (unsigned i = 0; i < COUNT(given); i++) commons += hak_slab_owner(hak_slab_lookup(given[i])) == common;
  CHECK(commons > COUNT(given) / SLABS);
  for (unsigned i = 0; i < COUNT(given); i += 2) hak_free(given[i]);
  hak_remote_flush(hak_tls_heap);
  hak_option(NURSERY) = 1000000;
  unit_in_thread(allocate_and_free_sized, NULL);
  for (unsigned i = 1; i < COUNT(given); i += 2) {
    CHECK(!in_nursery(given[i]));
    hak_free(given[i]);
  }
  heaps_let_go();
  CHECK_EQUAL(stats_now().live_blocks, 0);
}
ISOLATED(takes_in_no_given_slabs)

// The program does not notice what a request was rounded up to.
static void *resize_and_free_sized(void *unused) {
  (void)unused;
  for (size_t size = 0; size <= 1100; size++) {
    if (hak_tls_heap != &hak_heap_none) break;
    char *p = hak_malloc(size);
    if (size) {
      fill(p, size, size);
      CHECK(hak_realloc(p, size) == p && filled(p, size, size));
    }
    hak_free_sized(p, size);
    p = hak_aligned_alloc(64, size);
    CHECK((uintptr_t)p % 64 == 0);
    hak_free_aligned_sized(p, 64, size);
    if (size < 2) continue;
    p = hak_malloc(size);
    fill(p, size, 7);
    p = hak_realloc(p, size - size / 4);
    CHECK(p && filled(p, (size - size / 4) & ~(size_t)7, 7));
    hak_free_sized(p, size - size / 4);
    p = hak_calloc(1, size);
    for (size_t i = 0; i < size; i++) CHECK(p[i] == 0);
    fill(p, size, 9);
    hak_free(p);
  }
  return NULL;
}
static void sizes_are_those_asked_for(void) {
  set_up(1000000);
  unit_in_thread(resize_and_free_sized, NULL);
  heaps_let_go();
  CHECK_EQUAL(stats_now().live_blocks, 0);
}
ISOLATED(sizes_are_those_asked_for)

// A heap that an ended thread left is used before nurseries.
static void *leave_some(void *unused) {
  (void)unused;
  for (unsigned i = 0; i < 400; i++) {
    void *p = hak_malloc(48);
    if (i % 8) hak_free(p);
  }
  return NULL;
}
static void *allocate_one(void *nursery) {
  void *p = hak_malloc(48);
  CHECK_EQUAL(in_nursery(p), (bool)nursery);
  hak_free(p);
  return NULL;
}
static void orphans_first(void) {
  set_up(1024);
  unit_in_thread(allocate_one, (void *)1);
  hak_option(NURSERY) = 0;
  unit_in_thread(leave_some, NULL);
  hak_option(NURSERY) = 1024;
  uint32_t heaps = hak_heap_count();
  unit_in_thread(allocate_one, NULL);
  CHECK_EQUAL(hak_heap_count(), heaps);
}
ISOLATED(orphans_first)

// A request for which there is no memory, or a trim, tidies the heap that a thread left after a young
// thread had entered its nursery, which adopts nothing.
static void *leave_one_of_many(void *unused) {
  static void *p[2000];
  for (unsigned i = 0; i < COUNT(p); i++) p[i] = hak_malloc(48);
  for (unsigned i = 1; i < COUNT(p); i++) hak_free(p[i]);
  return unused;
}
static void *reclaim_young(void *unused) {
  hak_heap_t *nursery = hak_nursery_enter();
  CHECK(nursery);
  hak_option(NURSERY) = 0;
  unit_in_thread(leave_one_of_many, NULL);
  hak_option(NURSERY) = 1024;
  uint64_t before = heaps_stat(HAK_STAT_page_trim);
  hak_heap_reclaim_all(nursery, 0);
  CHECK(heaps_stat(HAK_STAT_page_trim) > before);
  hak_nursery_leave(nursery);
  return unused;
}
static void orphans_are_tidied(void) {
  set_up(1024);
  if (hak_os_page_size != 4096) return; // no page of a slab becomes free
  hak_option(PURGE) = 2, hak_option(FULL_MARK) = 8;
  unit_in_thread(allocate_one, (void *)1);
  unit_in_thread(reclaim_young, NULL);
}
ISOLATED(orphans_are_tidied)

// In a forked child nurseries are as other threads left them: new ones serve.
static void *fork_young(void *unused) {
  (void)unused;
  char *p = hak_malloc(100);
  fill(p, 100, 1);
  CHECK(in_nursery(p));
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(filled(p, 100, 1));
    hak_free(p);
    char *q = hak_malloc(100);
    CHECK(q != NULL && q != p);
    fill(q, 100, 2);
    hak_free(q);
#ifndef __SANITIZE_THREAD__ // it lets no child of a process with threads start any
    unit_in_thread(allocate_one, (void *)1);
#endif
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(filled(p, 100, 1));
  hak_free(p);
  return NULL;
}
static void forks(void) {
  set_up(1024);
  unit_in_thread(fork_young, NULL);
}
ISOLATED(forks)

// Idle memory of a nursery goes back when any thread asks.
static void *allocate_runs(void *unused) {
  (void)unused;
  void *p[20];
  for (unsigned i = 0; i < COUNT(p); i++) memset(p[i] = hak_malloc(20000), 1, 20000);
  for (unsigned i = 0; i < COUNT(p); i++) hak_free(p[i]);
  return NULL;
}
static void trim_reaches_them(void) {
  set_up(100000);
  unit_in_thread(allocate_runs, NULL);
  hak_trim(0);
  CHECK_EQUAL(stats_now().superslab_bytes, 0);
}
ISOLATED(trim_reaches_them)

// So do blocks either side freed of the other's, even from quarantines, at the first request.
enum { RUNS = 20 };
static void *of_main[RUNS], *of_thread[RUNS];
static void *swap_runs(void *unused) {
  (void)unused;
  for (unsigned i = 0; i < RUNS; i++) memset(of_thread[i] = hak_malloc(5000), 1, 5000);
  CHECK(in_nursery(of_thread[0]));
  for (unsigned i = 0; i < RUNS; i++) hak_free(of_main[i]);
  return NULL;
}
static void trim_reaches_what_is_held(void) {
  set_up(100000);
  for (unsigned i = 0; i < RUNS; i++) memset(of_main[i] = hak_malloc(3000), 1, 3000);
  unit_in_thread(swap_runs, NULL);
  for (unsigned i = 0; i < RUNS; i++) hak_free(of_thread[i]);
  hak_trim(0);
  CHECK_EQUAL(stats_now().live_blocks, 0);
  CHECK_EQUAL(stats_now().superslab_bytes, 0);
}
ISOLATED(trim_reaches_what_is_held)

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(shared_by_many),
    ISOLATED_TEST(reclaims_do_not_count),
    ISOLATED_TEST(later_clock_of_another),
    ISOLATED_TEST(keeps_nothing_for_ever),
    ISOLATED_TEST(served_by_what_is_there),
    ISOLATED_TEST(frees_without_memory),
    ISOLATED_TEST(calls_count),
    ISOLATED_TEST(kib_count),
    ISOLATED_TEST(a_crowd_counts),
    ISOLATED_TEST(small_blocks_in_a_crowd),
    ISOLATED_TEST(none_wanted),
    ISOLATED_TEST(keeps_the_nursery),
    ISOLATED_TEST(nobody_waits),
    ISOLATED_TEST(takes_in_no_slabs),
    ISOLATED_TEST(takes_in_no_given_slabs),
    ISOLATED_TEST(sizes_are_those_asked_for),
    ISOLATED_TEST(orphans_first),
    ISOLATED_TEST(orphans_are_tidied),
    ISOLATED_TEST(forks),
    ISOLATED_TEST(trim_reaches_them),
    ISOLATED_TEST(trim_reaches_what_is_held),
  };
  return RUN(tests);
}
