// test_threads.c: threads that start and end, their destructors, small stacks, cancellation,
// signals at a high rate; blocks that outlive their thread.

#include "testing.h"

#include <cmocka.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "hakmem/hakmem.h"

#define THREADS_AT_ONCE 50

// RSS of memory that is lost or in use. Empty SuperSlabs kept for the next threads are
// neither; a busy machine has many of them at once.
static size_t trimmed_rss_kib(void) {
  int (*trim)(size_t) = FIND(int (*)(size_t), "malloc_trim");
  if (trim) trim(0);
  return exact_rss_kib();
}

static uint64_t heaps_made(void) {
  bool (*get)(hak_stats_t *, size_t) = FIND(bool (*)(hak_stats_t *, size_t), "hak_stats_get");
  hak_stats_t stats;
  return get && get(&stats, sizeof stats) ? stats.heaps : 0;
}

static int try_start(pthread_t *thread, size_t stack, void *(*run)(void *), void *argument) {
  pthread_attr_t attributes;
  assert_int_equal(pthread_attr_init(&attributes), 0);
  if (stack) assert_int_equal(pthread_attr_setstacksize(&attributes, stack), 0);
  int error = pthread_create(thread, &attributes, run, argument);
  pthread_attr_destroy(&attributes);
  return error;
}

static void start(pthread_t *thread, size_t stack, void *(*run)(void *), void *argument) {
  assert_int_equal(try_start(thread, stack, run, argument), 0);
}

// Blocks of tier_sizes up to limit, one resized.
static void use_every_tier(uint64_t seed, size_t limit) {
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    size_t size = tier_sizes[i];
    if (size > limit) break;
    void *p = malloc(size), *q = calloc(1, size), *r = NULL;
    CHECK(p && q && posix_memalign(&r, 64, size) == 0);
    fill(p, size, seed);
    CHECK((q = realloc(q, size + 100)) != NULL && all_zero(q, size));
    CHECK(filled(p, size, seed));
    free(p), free(q), free(r);
  }
}

// A tenth of the threads where each block lies beside guard pages, which cost system calls.
static size_t many(size_t threads) { return getenv("HAKMEM_GUARD") ? threads / 10 : threads; }

// Runs total threads, THREADS_AT_ONCE at a time.
static void run_batches(size_t total, size_t stack, void *(*run)(void *)) {
  pthread_t thread[THREADS_AT_ONCE];
  for (size_t done = 0; done < total; done += COUNT(thread)) {
    for (size_t i = 0; i < COUNT(thread); i++)
      start(&thread[i], stack, run, AS_ARGUMENT(done + i));
    for (size_t i = 0; i < COUNT(thread); i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
  }
}

// ---------------------------------------------------------------------------

static void *short_life(void *argument) {
  uint64_t random = AS_NUMBER(argument) + 1;
  void *p[40];
  for (size_t i = 0; i < COUNT(p); i++) {
    size_t size = chance(&random) % (i % 8 ? 500 : 20000);
    CHECK(p[i] = malloc(size));
    memset(p[i], 1, size);
  }
  for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
  return NULL;
}

// Only in the secure library: each heap holds back up to 256 KiB of freed blocks, and these
// keep as much memory again of the slabs that they are in.
static size_t held_kib(void) {
  size_t (*usable)(void *) = FIND(size_t (*)(void *), "malloc_usable_size");
  void *one = malloc(1);
  bool sealed = usable && usable(one) == 1;
  free(one);
  return sealed ? THREADS_AT_ONCE * 2 * 256 : 0;
}

// The kept SuperSlabs do not stay either: they are returned while other threads start and end.
static bool comes_down_to(size_t kib) {
  kib += held_kib();
  for (int seconds = 0; seconds < 10 && rss_kib() > kib; seconds++) {
    sleep(1);
    run_batches(1, 0, short_life);
  }
  return rss_kib() <= kib;
}

static void many_short_threads_leave_nothing(void **state) {
  (void)state;
  run_batches(1000, 0, short_life);
  size_t before = trimmed_rss_kib();
  uint64_t heaps = heaps_made();
  run_batches(many(100000), 0, short_life);
  // If 100 000 threads left 50 bytes each, or 10 000 left 500 each, RSS would exceed 4 MiB.
  assert_true(comes_down_to(before + 18 * KIB));
  assert_true(trimmed_rss_kib() <= before + 4 * KIB);
  assert_in_range(heaps_made(), 0, heaps + THREADS_AT_ONCE);
}

static void *leave_blocks(void *argument) {
  void **blocks = argument;
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    CHECK(blocks[i] = malloc(tier_sizes[i]));
    fill(blocks[i], tier_sizes[i], i);
  }
  return NULL;
}

static void blocks_outlive_their_thread(void **state) {
  (void)state;
  for (unsigned round = 0; round < 20; round++) {
    void *blocks[4][COUNT(tier_sizes)];
    pthread_t thread[4];
    for (size_t t = 0; t < COUNT(thread); t++) start(&thread[t], 0, leave_blocks, blocks[t]);
    for (size_t t = 0; t < COUNT(thread); t++) pthread_join(thread[t], NULL);
    for (size_t t = 0; t < COUNT(thread); t++) {
      for (size_t i = 0; i < COUNT(tier_sizes); i++) {
        assert_true(filled(blocks[t][i], tier_sizes[i], i));
        if (i & 1) assert_non_null(blocks[t][i] = realloc(blocks[t][i], tier_sizes[i] * 2));
        free(blocks[t][i]);
      }
    }
  }
}

// Blocks that one thread leaves and the main thread frees are reused: 300 threads that leave 4
// MiB each must not need 1.2 GiB.
static void *leave_4_mib(void *argument) {
  void **blocks = argument;
  for (size_t i = 0; i < 400; i++) memset(blocks[i] = malloc(10000), 1, 10000);
  return NULL;
}

static void memory_of_dead_threads_is_used_again(void **state) {
  (void)state;
  static void *blocks[400];
  size_t before = rss_kib();
  for (unsigned round = 0; round < 300; round++) {
    pthread_t thread;
    start(&thread, 0, leave_4_mib, blocks);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < COUNT(blocks); i++) free(blocks[i]);
  }
  assert_true(rss_kib() < before + 32 * KIB);
}

static atomic_uint waiting;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *stand_by(void *argument) {
  void *p = malloc(100 + AS_NUMBER(argument) % 900);
  CHECK(p);
  waiting++;
  pthread_mutex_lock(&gate); // the main thread holds it until all threads are there
  pthread_mutex_unlock(&gate);
  free(p);
  return NULL;
}

static void thousand_threads_at_once(void **state) {
  (void)state;
  enum { N = 1000 };
  static pthread_t thread[N];
  size_t n = 0;
  int error = 0;
  pthread_mutex_lock(&gate);
  while (n < N && (error = try_start(&thread[n], 64 * KIB, stand_by, AS_ARGUMENT(n))) == 0) n++;
  while (waiting < n) usleep(100);
  pthread_mutex_unlock(&gate);
  for (size_t i = 0; i < n; i++) pthread_join(thread[i], NULL);
  assert_int_equal(waiting, n);
  if (error == EAGAIN) skip(); // the system does not allow that many threads
  assert_int_equal(error, 0);
}

// ---------------------------------------------------------------------------
// Key destructors, some of which run after the allocator's own.

enum { KEYS = 6 };
static pthread_key_t keys[KEYS];
static atomic_uint destructor_runs;

typedef struct {
  unsigned key, round;
  char *kept;
} late_t;

static void at_end(void *value) {
  late_t *late = value;
  destructor_runs++;
  CHECK(filled(late->kept, 3000, late->round));
  use_every_tier(late->round, late->key == late->round ? 200000 : 5000);
  free(late->kept);
  unsigned key = late->key, round = late->round + 1;
  free(late);
  // Sets the key again, up to the last iteration that the system makes. The last one leaves
  // nothing.
  if (round == PTHREAD_DESTRUCTOR_ITERATIONS) return;
  late_t *again = malloc(sizeof *again);
  *again = (late_t){.key = key, .round = round, .kept = malloc(3000)};
  fill(again->kept, 3000, round);
  pthread_setspecific(keys[key], again);
}

static void *set_all_keys(void *argument) {
  (void)argument;
  for (unsigned k = 0; k < KEYS; k++) {
    late_t *late = malloc(sizeof *late);
    *late = (late_t){.key = k, .kept = malloc(3000)};
    fill(late->kept, 3000, 0);
    CHECK(pthread_setspecific(keys[k], late) == 0);
  }
  return NULL;
}

static void key_destructors_allocate_up_to_the_limit(void **state) {
  (void)state;
  for (unsigned k = 0; k < KEYS; k++) assert_int_equal(pthread_key_create(&keys[k], at_end), 0);
  run_batches(200, 0, set_all_keys);
  size_t before = trimmed_rss_kib();
  uint64_t heaps = heaps_made();
  destructor_runs = 0;
  run_batches(many(2000), 0, set_all_keys);
  assert_int_equal(destructor_runs, many(2000) * KEYS * PTHREAD_DESTRUCTOR_ITERATIONS);
  assert_true(comes_down_to(before + 18 * KIB));
  assert_true(trimmed_rss_kib() <= before + 4 * KIB);
  assert_in_range(heaps_made(), 0, heaps + THREADS_AT_ONCE);
  for (unsigned k = 0; k < KEYS; k++) pthread_key_delete(keys[k]);
}

// ---------------------------------------------------------------------------

static void *on_a_small_stack(void *argument) {
  use_every_tier(AS_NUMBER(argument), SIZE_MAX);
  errno = 0;
  CHECK(malloc(hide_size(SIZE_MAX - 15)) == NULL && errno == ENOMEM);
  return NULL;
}

static void smallest_stacks(void **state) {
  (void)state;
  run_batches(100, (size_t)sysconf(_SC_THREAD_STACK_MIN), on_a_small_stack);
  run_batches(100, 16 * KIB + (size_t)sysconf(_SC_THREAD_STACK_MIN), on_a_small_stack);
}

static void free_it(void *p) { free(p); }

static void hold_and_test(char *p) {
  pthread_cleanup_push(free_it, p);
  pthread_testcancel();
  pthread_cleanup_pop(1);
}

static void *until_cancelled(void *argument) {
  for (uint64_t random = AS_NUMBER(argument) + 1;;) {
    size_t size = chance(&random) % 3000;
    char *p = malloc(size);
    CHECK(p);
    memset(p, 1, size);
    hold_and_test(p);
    hold_and_test(strdup("a cancellation point comes next"));
  }
  return NULL;
}

static void deferred_cancellation(void **state) {
  (void)state;
  for (unsigned round = 0; round < 200; round++) {
    pthread_t thread[4];
    for (size_t i = 0; i < COUNT(thread); i++) start(&thread[i], 0, until_cancelled, AS_ARGUMENT(i));
    use_every_tier(round, 100000);
    for (size_t i = 0; i < COUNT(thread); i++) assert_int_equal(pthread_cancel(thread[i]), 0);
    for (size_t i = 0; i < COUNT(thread); i++) {
      void *result;
      assert_int_equal(pthread_join(thread[i], &result), 0);
      assert_ptr_equal(result, PTHREAD_CANCELED);
    }
  }
  use_every_tier(0, SIZE_MAX);
}

// ---------------------------------------------------------------------------

static volatile sig_atomic_t ticks;
static void on_tick(int signal) {
  (void)signal;
  ticks = ticks + 1;
}

static void *allocate_until_200_ticks(void *argument) {
  static char on_stack[2][64 * 1024];
  stack_t stack = {.ss_sp = on_stack[AS_NUMBER(argument)], .ss_size = sizeof on_stack[0]};
  CHECK(sigaltstack(&stack, NULL) == 0);
  for (uint64_t seed = 0; ticks < 200; seed++) use_every_tier(seed, 70000);
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, NULL);
  return NULL;
}

static void profiling_signals(void **state) {
  (void)state;
  static const int timers[] = {ITIMER_PROF, ITIMER_REAL};
  static const int signals[] = {SIGPROF, SIGALRM};
  for (size_t t = 0; t < COUNT(timers); t++) {
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART | SA_ONSTACK}, old;
    assert_int_equal(sigaction(signals[t], &action, &old), 0);
    ticks = 0;
    struct itimerval often = {.it_interval = {.tv_usec = 100}, .it_value = {.tv_usec = 100}};
    assert_int_equal(setitimer(timers[t], &often, NULL), 0);
    pthread_t thread[2];
    for (size_t i = 0; i < 2; i++) start(&thread[i], 0, allocate_until_200_ticks, AS_ARGUMENT(i));
    for (size_t i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    setitimer(timers[t], &(struct itimerval){.it_value = {.tv_usec = 0}}, NULL);
    sigaction(signals[t], &old, NULL);
    assert_true(ticks >= 200);
  }
}

// A handler that leaves by longjmp. It interrupts the program between calls of the allocator.
static sigjmp_buf back;
static void jump_out(int signal) {
  (void)signal;
  siglongjmp(back, 1);
}

static void longjmp_from_a_handler(void **state) {
  (void)state;
  struct sigaction action = {.sa_handler = jump_out}, old;
  sigaction(SIGUSR1, &action, &old);
  for (volatile unsigned i = 0; i < 1000; i++) {
    char *volatile p = malloc(100 + i);
    if (sigsetjmp(back, 1) == 0) {
      raise(SIGUSR1);
      fail();
    }
    free(p);
  }
  sigaction(SIGUSR1, &old, NULL);
  use_every_tier(1, SIZE_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_short_threads_leave_nothing),
      cmocka_unit_test(blocks_outlive_their_thread),
      cmocka_unit_test(memory_of_dead_threads_is_used_again),
      cmocka_unit_test(thousand_threads_at_once),
      cmocka_unit_test(key_destructors_allocate_up_to_the_limit),
      cmocka_unit_test(smallest_stacks),
      cmocka_unit_test(deferred_cancellation),
      cmocka_unit_test(profiling_signals),
      cmocka_unit_test(longjmp_from_a_handler),
  };
  return RUN(tests);
}
