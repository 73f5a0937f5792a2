// Rings: what a thread freed last is what it gets next; hints never name a block in use; kept
// runs are bounded and go back.

#include "unit.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "pool/huge_cache.h"
#include "pool/l25.h"
#include "superslab/seal.h"
#include "superslab/shared_pool.h"
#include "superslab/superslab.h"
#include "thread/heap.h"
#include "thread/process.h"
#include "thread/ring.h"

#ifdef SINGLE_STEPS
#include <sys/wait.h>
#include <ucontext.h>
#endif

static hak_stats_t statistics(void) {
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  return s;
}

static bool ring_is_on(void) { return hak_option(L2_RING_CAP) > 1; }

static void last_freed_first(void) {
  enum { N = 6 };
  for (size_t size = HAK_TINY_MAX + 1; size <= HAK_L2_MAX; size += 997) {
    void *p[N];
    for (unsigned i = 0; i < N; i++) CHECK((p[i] = hak_malloc(size)) != NULL);
    for (unsigned i = 0; i < N; i++) hak_free(p[i]);
    for (unsigned i = N; ring_is_on() && i-- > 0;) CHECK(hak_malloc(size) == p[i]);
    if (ring_is_on())
      for (unsigned i = 0; i < N; i++) hak_free(p[i]);
  }
  CHECK_EQUAL(statistics().live_blocks, 0);
}
ISOLATED(last_freed_first)

// After all runs of a class have gone back, the hints that name them must not hand out
// anything, even when the slabs serve another class or the same one again.
static void stale_hints(void) {
  enum { N = 200, SIZE = 9000 };
  void *p[N];
  uint64_t seed = 7;
  for (unsigned round = 0; round < 30; round++) {
    for (unsigned i = 0; i < N; i++) CHECK((p[i] = hak_malloc(SIZE)) != NULL);
    for (unsigned i = 0; i < N; i++) hak_free(p[i]);
    hak_heap_release_idle(hak_tls_heap);
    size_t other = round % 2 ? 48 : 12000;
    for (unsigned i = 0; i < N; i++) {
      CHECK((p[i] = hak_malloc(round % 3 ? other : SIZE)) != NULL);
      fill(p[i], 48, i);
    }
    for (unsigned i = 0; i < N; i++) { // nothing is handed out twice
      void *q = hak_malloc(SIZE);
      fill(q, SIZE, seed + i);
      if (chance_below(&seed, 2)) hak_free(q);
      else hak_free(p[i]), p[i] = q, fill(q, 48, i);
    }
    for (unsigned i = 0; i < N; i++) {
      CHECK(filled(p[i], 48, i));
      hak_free(p[i]);
    }
    hak_heap_check(hak_tls_heap);
  }
  CHECK_EQUAL(statistics().live_blocks, 0);
}
ISOLATED(stale_hints)

static hak_ring_t *ring_of(size_t size) { return &hak_tls_heap->ring[hak_size_class_l2(size)]; }

// Frees and allocates n blocks of a size in turn; the blocks between them keep the runs in use.
static void swing(size_t size, unsigned n, unsigned rounds) {
  void *p[96];
  for (unsigned i = 0; i < 2 * n; i++) CHECK((p[i] = hak_malloc(size)) != NULL);
  for (unsigned round = 0; round < rounds; round++) {
    for (unsigned i = 0; i < 2 * n; i += 2) hak_free(p[i]);
    for (unsigned i = 0; i < 2 * n; i += 2) CHECK((p[i] = hak_malloc(size)) != NULL);
  }
  for (unsigned i = 0; i < 2 * n; i++) hak_free(p[i]);
}

// A class gets as many places for hints as it can use, and no more.
static void capacity_follows_use(void) {
  uint32_t most = (uint32_t)hak_option(L2_RING_CAP);
  swing(5000, 4, 50);
  swing(6000, 40, 50);
  CHECK_EQUAL(ring_of(5000)->capacity, most < HAK_L2_RING_MIN ? most : HAK_L2_RING_MIN);
  CHECK(ring_of(6000)->capacity >= (most < 40 ? most : 40));
  CHECK(ring_of(6000)->capacity <= most);
  // The ring of a class that only frees blocks does not grow.
  static void *p[200];
  for (unsigned i = 0; i < COUNT(p); i++) CHECK((p[i] = hak_malloc(7000)) != NULL);
  for (unsigned i = 0; i < COUNT(p); i++) hak_free(p[i]);
  CHECK(ring_of(7000)->capacity <= HAK_L2_RING_MIN);
  hak_heap_check(hak_tls_heap);
}
ISOLATED(capacity_follows_use)

// More classes than there are places for hints: they share the places.
static void places_run_out(void) {
  for (unsigned round = 0; round < 20; round++) {
    for (unsigned c = HAK_TINY_CLASSES; c < HAK_CLASSES; c++) swing(hak_class_size(c), 40, 3);
    unsigned used = 0;
    for (unsigned i = 0; i < HAK_L2_CLASSES; i++) used += hak_tls_heap->ring[i].capacity;
    CHECK(used <= HAK_RING_HINTS && hak_tls_heap->hints_used == used);
    hak_heap_check(hak_tls_heap);
  }
  CHECK_EQUAL(statistics().live_blocks, 0);
}
ISOLATED(places_run_out)

// Where all classes are in use, nearly all keep hints, whatever places others want.
static void places_are_kept(void) {
  enum { ALLOCS = 200000 };
  if (HAK_SECURE || hak_option(L2_RING_CAP) < HAK_L2_RING_MIN) return;
  static void *p[1000];
  uint64_t seed = 1, served = 0;
  for (unsigned i = 0; i < ALLOCS; i++) {
    size_t at = chance_below(&seed, COUNT(p));
    hak_free(p[at]);
    unsigned c = (unsigned)chance_below(&seed, HAK_L2_CLASSES);
    served += hak_tls_heap->ring[c].count != 0;
    CHECK((p[at] = hak_malloc(hak_class_size(HAK_TINY_CLASSES + c))) != NULL);
  }
  CHECK(served * 100 >= ALLOCS * 85);
  for (unsigned i = 0; i < COUNT(p); i++) hak_free(p[i]);
  hak_heap_check(hak_tls_heap);
}
ISOLATED(places_are_kept)

// Hints go when none was taken for a second, or with a reclaim, and so do their blocks.
static void idle_hints_are_forgotten(void) {
  enum { SIZE = 20000, BLOCKS = 64 };
  if (hak_option(L2_RING_CAP) < HAK_L2_RING_MIN || hak_option(GUARD) || HAK_SECURE) return;
  if (hak_option(PURGE) < 2) return;
  hak_option(NURSERY) = 0;
  hak_free(hak_malloc(1));
  hak_heap_t *heap = hak_tls_heap;
  hak_ring_t *ring = ring_of(SIZE);
  unsigned i = (unsigned)(ring - heap->ring);
  void *p[BLOCKS];
  for (unsigned how = 0; how < 3; how++) {
    for (unsigned n = 0; n < BLOCKS; n++) CHECK((p[n] = hak_malloc(SIZE)) != NULL);
    for (unsigned n = 0; n < BLOCKS; n += 9) hak_free(p[n]);
    uint32_t count = ring->count;
    CHECK(count != 0);
    hak_ring_forget_idle(heap, i);
    if (how == 0) { // the ring was of use
      void *q = hak_malloc(SIZE);
      hak_free(q);
      hak_ring_forget_idle(heap, i);
      CHECK_EQUAL(ring->count, count);
    }
    uint64_t trimmed = hak_load_relaxed(&heap->stats[HAK_STAT_page_trim]);
    if (how == 2) hak_heap_tidy(heap);
    else hak_ring_forget_idle(heap, i);
    CHECK_EQUAL(ring->count, 0);
    hak_heap_check(heap);
    if (how == 2 && hak_os_page_size <= 16384 && !SANITIZED)
      CHECK(hak_load_relaxed(&heap->stats[HAK_STAT_page_trim]) > trimmed);
    // The blocks are then found through their runs.
    for (unsigned n = 0; n < BLOCKS; n += 9) CHECK((p[n] = hak_malloc(SIZE)) != NULL);
    for (unsigned n = 0; n < BLOCKS; n++) hak_free(p[n]);
    hak_ring_forget_all(heap);
  }
}
ISOLATED(idle_hints_are_forgotten)

static void *foreign[4];
static void *free_others(void *argument) {
  (void)argument;
  for (unsigned i = 0; i < COUNT(foreign); i++) hak_free(foreign[i]);
  for (unsigned c = 0; c < HAK_L2_CLASSES; c++) CHECK_EQUAL(hak_tls_heap->ring[c].count, 0);
  CHECK_EQUAL(hak_tls_heap->pending, 0);
  return NULL;
}
// Blocks of another thread's run go back to it at once.
static void others_blocks(void) {
  hak_option(POOL_MID_INUSE_DEFERRED) = 0;
  for (unsigned i = 0; i < COUNT(foreign); i++) CHECK((foreign[i] = hak_malloc(10000)) != NULL);
  unit_in_thread(free_others, NULL);
  hak_heap_drain(hak_tls_heap);
  CHECK_EQUAL(statistics().live_blocks, 0);
  hak_heap_check(hak_tls_heap);
}
ISOLATED(others_blocks)

static unsigned kept_count(void) {
  hak_heap_check(hak_tls_heap);
  return hak_tls_heap->kept_count;
}

// How many of n runs that have this many bytes together are kept.
static uint64_t kept_of(uint64_t n, size_t bytes) {
  if (hak_option(L25_RING_BYTES) < bytes) return 0;
  return n < hak_option(L25_RING_CAP) ? n : hak_option(L25_RING_CAP);
}

// Lets the ring learn that runs are needed again.
static void learn(size_t size) {
  for (unsigned i = 0; i < 20; i++) hak_free(hak_malloc(size));
}

// Of the kept runs with as many slabs the newest is reused; others are left as they are.
static void kept_runs_stay_whole(void) {
  char *p[8];
  CHECK((p[0] = hak_malloc(100000)) != NULL);
  hak_free(p[0]);
  CHECK_EQUAL(kept_count(), 0); // not learnt yet
  learn(100000);
  for (unsigned i = 0; i < 8; i++) CHECK((p[i] = hak_malloc(100000)) != NULL);
  for (unsigned i = 0; i < 8; i++) memset(p[i], 1, 100000);
  for (unsigned i = 0; i < 8; i++) hak_free(p[i]);
  uint64_t kept = kept_of(8, MIB);
  CHECK_EQUAL(kept_count(), kept);
  uint64_t hits = hak_load_relaxed(&hak_tls_heap->stats[HAK_STAT_l25_ring]);
  char *one = hak_malloc(1000000), *two = hak_malloc(70000), *small = hak_malloc(65000);
  CHECK(one && two && small && hak_malloc_usable_size(one) >= 1000000);
  CHECK_EQUAL(hak_load_relaxed(&hak_tls_heap->stats[HAK_STAT_l25_ring]), hits + (kept != 0));
  if (kept != 0) {
    CHECK(two == p[7]);
    CHECK_EQUAL(kept_count(), kept - 1);
  }
  memset(one, 2, 1000000);
  CHECK(hak_owns(one + 999999));
  hak_free(one), hak_free(two), hak_free(small);
  char *zero = hak_calloc(1, 1000000);
  CHECK(all_zero(zero, 1000000));
  hak_free(zero);
  hak_heap_check(hak_tls_heap);
}
ISOLATED(kept_runs_stay_whole)

// A growing block is not copied because of a run that this thread keeps behind it.
static void kept_runs_make_room(void) {
  char *p[8];
  learn(100000);
  for (unsigned i = 0; i < 8; i++) CHECK((p[i] = hak_malloc(100000)) != NULL);
  for (unsigned i = 0; i < 8; i++)
    for (unsigned k = 0; k < 8; k++) {
      if (i == k || !p[i] || !p[k] || hak_slab_lookup(p[k]) != hak_slab_lookup(p[i]) + 2) continue;
      fill(p[i], 98304, i);
      hak_free(p[k]);
      CHECK_EQUAL(kept_count(), kept_of(1, MIB));
      char *grown = hak_realloc(p[i], 200000);
      CHECK(grown == p[i] && filled(p[i], 98304, i) && hak_malloc_usable_size(p[i]) >= 200000);
      CHECK_EQUAL(kept_count(), 0);
      hak_free(p[i]);
      return;
    }
  CHECK(!"two of eight blocks lie side by side");
}
ISOLATED(kept_runs_make_room)

// Blocks of one slab that stay, among longer ones that come and go, must not each lie in a
// SuperSlab of their own: 128 MiB of them once took 1.5 GiB.
static void what_stays_is_packed(void) {
  enum { COME = 64, STAY = 1024 };
  static void *come[COME], *stay[STAY];
  uint64_t seed = 5;
  for (unsigned i = 0; i < 200000; i++) {
    size_t size = 60000 + chance_below(&seed, 980000);
    bool stays = size <= HAK_SLAB_SIZE;
    void **slot = stays ? &stay[chance_below(&seed, STAY)] : &come[chance_below(&seed, COME)];
    hak_free(*slot);
    CHECK((*slot = hak_malloc(size)) != NULL);
  }
  hak_stats_t all = statistics();
  CHECK(all.superslab_bytes <= 2 * all.live_bytes);
  for (unsigned i = 0; i < COME; i++) hak_free(come[i]);
  for (unsigned i = 0; i < STAY; i++) hak_free(stay[i]);
}
ISOLATED(what_stays_is_packed)

enum { USED_AT_ONCE = 24 };
static void use_runs_again_and_again(void) {
  void *p[USED_AT_ONCE];
  for (unsigned round = 0; round < 40; round++) {
    for (unsigned i = 0; i < USED_AT_ONCE; i++) CHECK((p[i] = hak_malloc(65536)) != NULL);
    for (unsigned i = 0; i < USED_AT_ONCE; i++) hak_free(p[i]);
    kept_count();
  }
}

// More runs are kept while that is of use, and none by a thread that does other things.
static void kept_runs_follow_use(void) {
  unit_clock_step(0);
  use_runs_again_and_again();
  CHECK_EQUAL(hak_tls_heap->kept_slabs, kept_of(USED_AT_ONCE, 2 * MIB));
  for (unsigned i = 0; i < 12; i++) {
    for (unsigned k = 0; k < 4000; k++) hak_free(hak_malloc(16 + k % 1000));
    hak_ring_tend(hak_tls_heap);
    unit_clock_step(200);
  }
  CHECK_EQUAL(kept_count(), 0);
}
ISOLATED(kept_runs_follow_use)

// Many threads share what eight may keep: otherwise sleeping ones would keep it all.
enum { KEEPERS = 8, MANY = 24 };
static pthread_barrier_t all_have_heaps, all_have_kept;
static void *keep_and_wait(void *argument) {
  (void)argument;
  for (unsigned i = 0; i < 4000; i++) hak_free(hak_malloc(100)); // no nursery after that
  pthread_barrier_wait(&all_have_heaps);
  use_runs_again_and_again();
  uint32_t most = (uint32_t)(hak_option(L25_RING_BYTES) >> HAK_SLAB_SHIFT);
  CHECK(hak_heap_threads >= MANY);
  CHECK_EQUAL(hak_tls_heap->kept_slabs, kept_of(most * KEEPERS / hak_heap_threads, MIB));
  pthread_barrier_wait(&all_have_kept);
  return NULL;
}
static void many_threads_share_what_is_kept(void) {
  pthread_t thread[MANY];
  CHECK(pthread_barrier_init(&all_have_heaps, NULL, MANY) == 0);
  CHECK(pthread_barrier_init(&all_have_kept, NULL, MANY) == 0);
  for (unsigned i = 0; i < MANY; i++)
    CHECK(pthread_create(&thread[i], NULL, keep_and_wait, NULL) == 0);
  for (unsigned i = 0; i < MANY; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  // Ended threads have no share.
  CHECK(hak_heap_count() >= MANY && hak_heap_threads <= 1);
  use_runs_again_and_again();
  CHECK_EQUAL(hak_tls_heap->kept_slabs, kept_of(USED_AT_ONCE, 2 * MIB));
}
ISOLATED(many_threads_share_what_is_kept)

// FULL runs with one free block each: every such block is found again, whether the ring names
// it or has forgotten it, and whichever thread freed it.
enum { RUNS = 120, RUN_SIZE = 20000, RUN_BLOCKS = 9 };
static char *of_runs[RUNS * RUN_BLOCKS];
static bool freed_in(const char *p) {
  for (unsigned i = 0; i < RUNS; i++)
    if (of_runs[i * RUN_BLOCKS] == p) return true;
  return false;
}

static void fill_runs(void) {
  CHECK_EQUAL(hak_classes[hak_size_class(RUN_SIZE)].capacity, RUN_BLOCKS);
  for (unsigned i = 0; i < COUNT(of_runs); i++) CHECK((of_runs[i] = hak_malloc(RUN_SIZE)) != NULL);
}
static void *free_one_of_each(void *argument) {
  (void)argument;
  for (unsigned i = 0; i < RUNS; i++) hak_free(of_runs[i * RUN_BLOCKS]);
  if (hak_tls_heap != &hak_heap_none) hak_heap_check(hak_tls_heap);
  return NULL;
}
static void *fill_and_free(void *argument) {
  fill_runs();
  return free_one_of_each(argument);
}
static void expect_each_again(void) {
  static char *again[RUNS];
  for (unsigned i = 0; i < RUNS; i++) {
    CHECK((again[i] = hak_malloc(RUN_SIZE)) != NULL);
    CHECK(freed_in(again[i]));
    for (unsigned k = 0; k < i; k++) CHECK(again[k] != again[i]);
  }
  hak_heap_check(hak_tls_heap);
}

static void full_runs_are_found(void) {
  fill_runs();
  free_one_of_each(NULL);
  expect_each_again();
  unit_in_thread(free_one_of_each, NULL);
  expect_each_again();
  free_one_of_each(NULL);
  for (unsigned c = HAK_TINY_CLASSES; c < HAK_CLASSES; c++) // makes all rings forget
    if (hak_class_size(c) < RUN_SIZE) swing(hak_class_size(c), 40, 3);
  expect_each_again();
}
ISOLATED(full_runs_are_found)

static void full_runs_of_an_ended_thread_are_found(void) {
  unit_in_thread(fill_and_free, NULL);
  expect_each_again();
  unit_in_thread(free_one_of_each, NULL); // runs of this thread and, maybe, of an orphan
  hak_heap_drain(hak_tls_heap);
  expect_each_again();
}
ISOLATED(full_runs_of_an_ended_thread_are_found)

// A handler between two instructions of malloc, free, drain or service makes this process a
// forked child, as it were. Before that, another thread freed all other blocks of a run.
#ifdef SINGLE_STEPS
enum { SET_SIZE = 2000, SET_RUNS = 3, SET_MOST = 40 * SET_RUNS };
enum { FORK_IN_MALLOC, FORK_IN_FREE, FORK_IN_DRAIN, FORK_IN_SERVICE, FORK_KINDS };
static unsigned steps, forked_at;
static char *of_set[SET_MOST];
static unsigned set_of_run;
static void fork_in_step(int number, siginfo_t *unused, void *context) {
  (void)number, (void)unused;
  if (++steps != forked_at) return;
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100;
  hak_huge_cache_after_fork();
  hak_pool_rebuild();
  hak_heap_after_fork();
}
static void *free_rest_of_run(void *argument) {
  for (unsigned i = 2; i < set_of_run; i++) hak_free(of_set[i]), of_set[i] = NULL;
  return argument;
}
static void *have_a_heap(void *argument) {
  hak_free(hak_malloc(1));
  return argument;
}

// The run was another heap's when they were freed, and is in its inbox: it is passed on.
static hak_heap_t *post_rest_of_run(void) {
  unit_in_thread(have_a_heap, NULL);
  hak_heap_t *orphan = hak_heap_by_id(2);
  CHECK_EQUAL(orphan->state, HAK_HEAP_ORPHAN);
  hak_slab_t *run = hak_slab_lookup(of_set[2]);
  if (hak_slab_kind(run) == HAK_KIND_INTERIOR) run -= run->offset;
  uint64_t set = HAK_REMOTE_QUEUED;
  for (unsigned i = 2; i < set_of_run; of_set[i++] = NULL) {
    uint32_t number;
    CHECK(hak_slab_block(run, of_set[i], &number));
    set |= (uint64_t)1 << number;
  }
  hak_store_seq_cst(&run->remote, set);
  hak_heap_post(orphan, run);
  return orphan;
}

static void forked_once(unsigned kind) {
  alarm(60); // in case a chain never ends
  hak_option(COMMONS) = 0;
  hak_option(NURSERY) = 0;
  hak_process_init();
  set_of_run = hak_classes[hak_size_class(SET_SIZE + HAK_TAIL)].capacity;
  unsigned all = SET_RUNS * set_of_run;
  CHECK(all <= SET_MOST);
  for (unsigned i = 0; i < all; i++) CHECK((of_set[i] = hak_malloc(SET_SIZE)) != NULL);
  for (unsigned i = 0; i < 4; i++) { // two of the first run, then of the second
    char **freed = &of_set[i < 2 ? i : set_of_run + i];
    hak_free(*freed), *freed = NULL;
  }
  hak_heap_t *orphan = kind == FORK_IN_SERVICE ? post_rest_of_run() : NULL;
  if (!orphan) unit_in_thread(free_rest_of_run, NULL);
  char *got[SET_MOST * 2], *last = of_set[all - 1];
  unsigned n = 0;
  of_set[all - 1] = NULL;
  STEPS_BEGIN();
  if (kind == FORK_IN_MALLOC) got[n++] = hak_malloc(SET_SIZE);
  else if (kind == FORK_IN_FREE) hak_free(last);
  else if (kind == FORK_IN_DRAIN) hak_heap_drain(hak_tls_heap);
  else hak_heap_service(orphan);
  STEPS_END();
  if (kind != FORK_IN_FREE) hak_free(last);
  while (n < SET_MOST) CHECK((got[n++] = hak_malloc(SET_SIZE)) != NULL);
  for (unsigned i = 0; i < n; i++) memset(got[i], (int)(i & 127), SET_SIZE);
  for (unsigned i = 0; i < all; i++)
    if (of_set[i]) memset(of_set[i], 200, SET_SIZE);
  for (unsigned i = 0; i < n; i++) CHECK(got[i][0] == (char)(i & 127) && got[i][SET_SIZE - 1] == got[i][0]);
  for (unsigned i = 0; i < n; i++) hak_free(got[i]);
  for (unsigned i = 0; i < all; i++) hak_free(of_set[i]);
  hak_heap_tidy(hak_tls_heap);
  hak_heap_check(hak_tls_heap);
  CHECK_EQUAL(statistics().live_blocks, 0); // no block is lost either
}

static void forks_at_any_step(void) {
  struct sigaction action = {.sa_sigaction = fork_in_step, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
  for (unsigned kind = 0; kind < FORK_KINDS; kind++) {
    bool is_over = false;
    for (forked_at = 1; !is_over; forked_at += forked_at < 250 ? 1 : 7) {
      pid_t pid = fork();
      if (pid == 0) {
        forked_once(kind);
        _exit(steps < forked_at ? 2 : 0);
      }
      int status;
      CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) != 1);
      is_over = WEXITSTATUS(status) == 2;
    }
    CHECK(forked_at > 10);
  }
}
ISOLATED(forks_at_any_step)
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(last_freed_first),
    ISOLATED_TEST(stale_hints),
    ISOLATED_TEST(capacity_follows_use),
    ISOLATED_TEST(places_run_out),
    ISOLATED_TEST(idle_hints_are_forgotten),
    ISOLATED_TEST(places_are_kept),
    ISOLATED_TEST(others_blocks),
    ISOLATED_TEST(kept_runs_stay_whole),
    ISOLATED_TEST(kept_runs_make_room),
    ISOLATED_TEST(what_stays_is_packed),
    ISOLATED_TEST(kept_runs_follow_use),
    ISOLATED_TEST(many_threads_share_what_is_kept),
    ISOLATED_TEST(full_runs_are_found),
    ISOLATED_TEST(full_runs_of_an_ended_thread_are_found),
#ifdef SINGLE_STEPS
    ISOLATED_TEST(forks_at_any_step),
#endif
  };
  return RUN(tests);
}
