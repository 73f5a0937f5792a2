// threads.c: threads that start, end, exchange blocks and are cancelled.

#include "situations.h"

#include <sched.h>
#include <semaphore.h>
#include <threads.h>

static size_t blocks_of(size_t size) {
  return size <= 1000 ? 20000 : size <= 10000 ? 200 : size <= MIB ? 30 : 3;
}

// ---------------------------------------------------------------------------
// Blocks that outlive their thread.

typedef struct {
  size_t size, count;
  void **p;
} batch_t;

static batch_t batch_of(size_t size) {
  batch_t b = {size, blocks_of(size), NULL};
  CHECK(b.p = malloc(b.count * sizeof *b.p));
  return b;
}

static void *fill_batch(void *batch) {
  batch_t *b = batch;
  for (size_t i = 0; i < b->count; i++) b->p[i] = filled_block(b->size, i);
  return NULL;
}

static void *free_batch(void *batch) {
  batch_t *b = batch;
  for (size_t i = 0; i < b->count; i++) check_and_free(b->p[i], b->size, i);
  return NULL;
}

static void *realloc_batch(void *batch) {
  batch_t *b = batch;
  for (size_t i = 0; i < b->count; i++) {
    CHECK(b->p[i] = realloc(b->p[i], b->size * 2));
    CHECK(filled(b->p[i], b->size, i));
  }
  return NULL;
}

static void exit_with_live_blocks(size_t size, size_t then_realloc) {
  batch_t b = batch_of(size);
  for (int round = 0; round < 3; round++) {
    join(start(fill_batch, &b));
    if (then_realloc) join(start(realloc_batch, &b));
    if (round == 1) free_batch(&b);
    else join(start(free_batch, &b));
  }
  free(b.p);
}

// Each owner has exited when its blocks are freed: nothing may pile up.
static void owner_has_exited(size_t size, size_t b) {
  (void)b;
  batch_t batch = batch_of(size);
  size_t before = rss_kib();
  for (int round = 0; round < 100; round++) {
    join(start(fill_batch, &batch));
    free_batch(&batch);
  }
  CHECK(rss_kib() < before + batch.count * size / KIB * 4 + 24 * KIB); // of 100 times that
  free(batch.p);
}

static sem_t asleep, wake;
static void *fill_batch_and_sleep(void *batch) {
  fill_batch(batch);
  sem_post(&asleep);
  while (sem_wait(&wake) != 0) {
  }
  return NULL;
}

// Owners that never run again: what others freed of their memory is lost at most once.
static void owner_sleeps(size_t size, size_t b) {
  (void)b;
  enum { N = 4 };
  pthread_t thread[N];
  batch_t batch[N];
  size_t before = rss_kib();
  for (size_t i = 0; i < N; i++) {
    batch[i] = batch_of(size);
    thread[i] = start(fill_batch_and_sleep, &batch[i]);
    sem_wait(&asleep);
  }
  for (size_t i = 0; i < N; i++) free_batch(&batch[i]);
  for (int round = 0; round < 10; round++)
    for (size_t i = 0; i < N; i++) fill_batch(&batch[i]), free_batch(&batch[i]);
  CHECK(rss_kib() < before + N * batch[0].count * size / KIB * 3 + 24 * KIB);
  for (size_t i = 0; i < N; i++) sem_post(&wake);
  for (size_t i = 0; i < N; i++) join(thread[i]), free(batch[i].p);
}

// ---------------------------------------------------------------------------
// Queues between threads.

enum { SLOTS = 64 };
typedef struct {
  size_t size, rounds;
  _Atomic(void *) slot[SLOTS];
} queue_t;

static void *produce(void *queue) {
  queue_t *q = queue;
  for (size_t i = 0; i < q->rounds; i++) {
    size_t *p = malloc(q->size);
    CHECK(p);
    p[0] = i, p[q->size / sizeof *p - 1] = ~i;
    while (atomic_load(&q->slot[i % SLOTS])) sched_yield();
    atomic_store(&q->slot[i % SLOTS], p);
  }
  return NULL;
}

static void *consume(void *queue) {
  queue_t *q = queue;
  for (size_t i = 0; i < q->rounds; i++) {
    size_t *p;
    while (!(p = atomic_exchange(&q->slot[i % SLOTS], NULL))) sched_yield();
    CHECK(p[0] == i && p[q->size / sizeof *p - 1] == ~i);
    free(p);
  }
  return NULL;
}

static void producer_consumer(size_t size, size_t pairs) {
  size_t rounds = size <= 1000 ? 300000 : size <= 10000 ? 40000 : 5000;
  queue_t *q = calloc(pairs, sizeof *q);
  pthread_t thread[16];
  size_t before = rss_kib();
  for (size_t i = 0; i < pairs; i++) {
    q[i].size = size, q[i].rounds = rounds / pairs;
    thread[2 * i] = start(produce, &q[i]), thread[2 * i + 1] = start(consume, &q[i]);
  }
  for (size_t i = 0; i < 2 * pairs; i++) join(thread[i]);
  // The queues hold at most SLOTS blocks each at a time. The rest is the allocator's.
  CHECK(rss_kib() < before + pairs * (SLOTS * size / KIB * 2 + 8 * KIB) + 8 * KIB);
  free(q);
}

static _Atomic(void *) shared[SLOTS];
static void *take_one_leave_one(void *seed) {
  uint64_t random = AS_NUMBER(seed) + 1;
  for (int i = 0; i < 20000; i++) {
    size_t at = chance(&random) % SLOTS, n = chance(&random) % (i % 50 ? 600 : 70000) + 16;
    size_t *p = malloc(n);
    CHECK(p);
    p[0] = n;
    fill(p + 1, n - sizeof *p, at);
    size_t *old = atomic_exchange(&shared[at], p);
    if (!old) continue;
    CHECK(filled(old + 1, old[0] - sizeof *old, at));
    free(old);
  }
  return NULL;
}

static void everyone_frees_everyones(size_t threads, size_t b) {
  (void)b;
  pthread_t thread[16];
  for (size_t i = 0; i < threads; i++) thread[i] = start(take_one_leave_one, AS_ARGUMENT(i));
  for (size_t i = 0; i < threads; i++) join(thread[i]);
  for (size_t i = 0; i < SLOTS; i++) free(shared[i]);
}

// One block is passed around; each thread resizes it into another size range.
static pthread_barrier_t barrier;
static struct {
  unsigned char *p;
  size_t size;
} passed_on;

static void *grow_and_shrink_by_turns(void *number) {
  static const size_t sizes[] = {20, 700, 3000, 60000, 100000, 900000, 2000000, 40};
  for (size_t i = 0; i < 160; i++) {
    if (i % 4 == AS_NUMBER(number)) {
      size_t size = sizes[i % COUNT(sizes)];
      CHECK(filled(passed_on.p, passed_on.size, i));
      CHECK(passed_on.p = realloc(passed_on.p, size));
      if (size > passed_on.size) CHECK(filled(passed_on.p, passed_on.size, i));
      fill(passed_on.p, passed_on.size = size, i + 1);
    }
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}

static void realloc_by_turns(size_t a, size_t b) {
  (void)a, (void)b;
  pthread_t thread[4];
  pthread_barrier_init(&barrier, NULL, 4);
  for (size_t i = 0; i < 4; i++) thread[i] = start(grow_and_shrink_by_turns, AS_ARGUMENT(i));
  for (size_t i = 0; i < 4; i++) join(thread[i]);
  free(passed_on.p);
}

// ---------------------------------------------------------------------------
// Many threads.

static void *little_work(void *argument) {
  (void)argument;
  void *p[30];
  for (size_t i = 0; i < COUNT(p); i++) CHECK(p[i] = malloc(i * i * 10 + 1));
  for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
  return NULL;
}

static _Atomic size_t ended;
static void *counted_work(void *argument) {
  little_work(argument);
  ended++;
  return NULL;
}

static void short_threads(size_t number, size_t detached) {
  if (sit_long) number *= 25;
  size_t before = 0;
  for (size_t i = 0; i < number; i++) {
    if (i == number / 4) before = exact_rss_kib();
    pthread_t t = start(counted_work, NULL);
    if (detached) pthread_detach(t);
    else join(t);
    while (detached && i + 1 - ended >= 16) usleep(20); // few at a time
  }
  struct timespec all_started = time_now();
  while (ended < number && seconds_since(&all_started) < 30) usleep(1000);
  CHECK(ended == number);
  if (detached) usleep(50000); // the threads have yet to leave
  CHECK(exact_rss_kib() < before + (detached ? 16 : 2) * KIB);
}

static void *wait_with_blocks(void *number) {
  char *p = filled_block(AS_NUMBER(number) % 5000 + 1, AS_NUMBER(number));
  pthread_barrier_wait(&barrier);
  check_and_free(p, AS_NUMBER(number) % 5000 + 1, AS_NUMBER(number));
  return NULL;
}

static void many_at_once(size_t number, size_t times) {
  pthread_t *thread = malloc(number * sizeof *thread);
  size_t first = 0;
  for (size_t t = 0; t < times; t++) {
    pthread_barrier_init(&barrier, NULL, (unsigned)number + 1);
    for (size_t i = 0; i < number; i++)
      if (!try_start(&thread[i], wait_with_blocks, AS_ARGUMENT(i)))
        sit_skip("so many threads are not allowed");
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < number; i++) join(thread[i]);
    pthread_barrier_destroy(&barrier);
    if (t == 0) first = rss_kib();
  }
  CHECK(rss_kib() <= first + 16 * KIB);
  free(thread);
}

static void *start_the_next(void *left) {
  void *p = filled_block(AS_NUMBER(left) * 100, 1);
  if (AS_NUMBER(left) > 0) join(start(start_the_next, AS_ARGUMENT(AS_NUMBER(left) - 1)));
  check_and_free(p, AS_NUMBER(left) * 100, 1);
  return NULL;
}
static void threads_start_threads(size_t depth, size_t b) {
  (void)b;
  join(start(start_the_next, AS_ARGUMENT(depth)));
}

static void *all_at_the_same_moment(void *size) {
  for (int i = 0; i < 60; i++) {
    pthread_barrier_wait(&barrier);
    char *p = malloc(AS_NUMBER(size));
    CHECK(p);
    p[0] = p[AS_NUMBER(size) - 1] = (char)i;
    pthread_barrier_wait(&barrier);
    CHECK(p[0] == (char)i && p[AS_NUMBER(size) - 1] == (char)i);
    free(p);
  }
  return NULL;
}
static void same_size_same_moment(size_t size, size_t threads) {
  pthread_t thread[16];
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (size_t i = 0; i < threads; i++) thread[i] = start(all_at_the_same_moment, AS_ARGUMENT(size));
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

static void churn_together(size_t threads, size_t b) {
  (void)b;
  pthread_t thread[32];
  for (size_t i = 0; i < threads; i++) thread[i] = start(churn_thread, AS_ARGUMENT(i));
  churn(99, 2000);
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

static void *aligned_work(void *number) {
  for (size_t i = 0; i < 400; i++) {
    size_t alignment = (size_t)16 << (i % 13), size = (i * 37 + AS_NUMBER(number)) % 9000 + 1;
    char *p = aligned_alloc(alignment, size);
    CHECK(p && (uintptr_t)p % alignment == 0);
    fill(p, size, i);
    check_and_free(p, size, i);
  }
  return NULL;
}
static void aligned_in_threads(size_t a, size_t b) {
  (void)a, (void)b;
  pthread_t thread[6];
  for (size_t i = 0; i < 6; i++) thread[i] = start(aligned_work, AS_ARGUMENT(i));
  for (size_t i = 0; i < 6; i++) join(thread[i]);
}

static void *churn_on_any_cpu(void *seed) {
  for (size_t i = 0; i < 20; i++) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(i % 2, &set);
    sched_setaffinity(0, sizeof set, &set); // fails with only one CPU, which does no harm
    churn(AS_NUMBER(seed) + i, 200);
  }
  return NULL;
}
static void affinity_moves(size_t a, size_t b) {
  (void)a, (void)b;
  pthread_t thread[4];
  for (size_t i = 0; i < 4; i++) thread[i] = start(churn_on_any_cpu, AS_ARGUMENT(i));
  for (size_t i = 0; i < 4; i++) join(thread[i]);
}

// ---------------------------------------------------------------------------
// Small stacks.

static void *work_on_a_small_stack(void *argument) {
  size_t size = AS_NUMBER(argument);
  for (size_t i = 0; i < 100; i++) {
    char *p = malloc(size), *q = calloc(1, size), *r = aligned_alloc(4096, size);
    CHECK(p && q && r);
    CHECK(p = realloc(p, size * 2));
    CHECK(q = realloc(q, size / 2 + 1));
    p[0] = q[0] = r[0] = 1;
    free(p), free(q), free(r);
  }
  malloc_trim(0);
  return NULL;
}
static void smallest_stack(size_t size, size_t b) {
  (void)b;
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) == 0);
  for (int i = 0; i < 5; i++) {
    CHECK(pthread_create(&thread, &attributes, work_on_a_small_stack, AS_ARGUMENT(size)) == 0);
    join(thread);
  }
}

// The stack is a block; once the thread is gone, it is freed and others use it.
static void stack_is_a_block(size_t size, size_t b) {
  (void)b;
  for (int i = 0; i < 100; i++) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *stack = aligned_alloc(4096, size);
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstack(&attributes, stack, size) == 0);
    CHECK(pthread_create(&thread, &attributes, little_work, NULL) == 0);
    join(thread);
    fill(stack, size, (uint64_t)i);
    check_and_free(stack, size, (uint64_t)i);
  }
}

// ---------------------------------------------------------------------------
// Destructors of thread-specific data.

static pthread_key_t key[8];
static _Atomic size_t destroyed;

static void free_it(void *p) { free(p), destroyed++; }

// Sets itself up again for every round there is, with work for the allocator each time.
static void allocate_again(void *p) {
  size_t *round = p, next = *round + 1;
  churn_some(next, 100);
  free(p);
  destroyed++;
  if (next >= PTHREAD_DESTRUCTOR_ITERATIONS) return;
  CHECK(round = malloc(next * 1000));
  *round = next;
  pthread_setspecific(key[7], round);
}

static void *with_specifics(void *first) {
  for (size_t i = AS_NUMBER(first); i < 8; i++) {
    size_t *p = calloc(i + 1, 900);
    CHECK(p);
    pthread_setspecific(key[i], p);
  }
  return NULL;
}

static void key_destructors(size_t threads, size_t first) {
  for (size_t i = 0; i < 8; i++)
    CHECK(pthread_key_create(&key[i], i == 7 ? allocate_again : free_it) == 0);
  size_t before = 0;
  for (size_t i = 0; i < threads; i++) {
    join(start(with_specifics, AS_ARGUMENT(first)));
    if (i == threads / 4) before = exact_rss_kib();
  }
  CHECK(destroyed == threads * (7 - first + PTHREAD_DESTRUCTOR_ITERATIONS));
  CHECK(exact_rss_kib() < before + 2 * KIB); // no leak per thread
}

static void all_keys_taken(size_t threads, size_t b) {
  (void)b;
  pthread_key_t k;
  size_t taken = 0, before = 0;
  while (pthread_key_create(&k, NULL) == 0) taken++;
  CHECK(taken > 0);
  for (size_t i = 0; i < threads; i++) {
    join(start(little_work, NULL));
    if (i == threads / 4) before = exact_rss_kib();
  }
  CHECK(exact_rss_kib() < before + 4 * KIB);
}

// All keys are taken before the process's first thread starts.
static void threads_without_keys(size_t threads, size_t b) {
  (void)b;
  pthread_key_t k;
  if (pthread_key_create(&k, NULL) == 0) CHECK(pthread_key_create(&k, NULL) != 0);
  size_t before = 0;
  for (size_t i = 0; i < threads; i++) {
    join(start(little_work, NULL));
    if (i == threads / 4) before = rss_kib();
  }
  CHECK(rss_kib() < before + 16 * KIB);
}

static tss_t tss;
static int c11_thread(void *p) {
  CHECK(tss_set(tss, malloc(3000)) == thrd_success);
  free(p);
  return 7;
}
static void c11_threads(size_t a, size_t b) {
  (void)a, (void)b;
  CHECK(tss_create(&tss, free) == thrd_success);
  for (int i = 0; i < 100; i++) {
    thrd_t thread;
    int result;
    CHECK(thrd_create(&thread, c11_thread, malloc(100)) == thrd_success);
    CHECK(thrd_join(thread, &result) == thrd_success && result == 7);
  }
}

// ---------------------------------------------------------------------------
// Cancellation and early ends.

__attribute__((noreturn)) static void *churn_until_cancelled(void *seed) {
  for (size_t i = 0;; i++) {
    churn_some(AS_NUMBER(seed) + i, 50);
    pthread_testcancel();
  }
}

__attribute__((noreturn)) static void *compute_asynchronously(void *argument) {
  (void)argument;
  for (;;) {
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    churn_some(5, 50);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (volatile int i = 0; i < 20000; i++) {
    }
  }
}

static void *free_in_handlers(void *argument) {
  void *p = malloc(1000), *q = malloc(100000);
  pthread_cleanup_push(free, p);
  pthread_cleanup_push(free, q);
  for (;;) usleep(100), (void)argument;
  pthread_cleanup_pop(1);
  pthread_cleanup_pop(1);
  return NULL;
}

// getline's buffer grows while it reads; the cancelled thread's handler frees it.
static char *line;
static void free_line(void *unused) { (void)unused, free(line), line = NULL; }
static void *read_lines(void *stream) {
  size_t n = 0;
  pthread_cleanup_push(free_line, NULL);
  while (getline(&line, &n, stream) > 0) {
  }
  pthread_cleanup_pop(1);
  return NULL;
}

static void cancel(void *(*function)(void *), size_t times) {
  for (size_t i = 0; i < times; i++) {
    pthread_t t = start(function, AS_ARGUMENT(i));
    usleep(200 + 300 * (unsigned)(i % 7));
    CHECK(pthread_cancel(t) == 0);
    join(t);
    churn_some(i, 50);
  }
}
static void cancel_deferred(size_t times, size_t b) {
  (void)b, cancel(churn_until_cancelled, times);
}
static void cancel_asynchronous(size_t times, size_t b) {
  (void)b, cancel(compute_asynchronously, times);
}
static void cancel_handlers_free(size_t times, size_t b) {
  (void)b, cancel(free_in_handlers, times);
}

static void cancel_in_getline(size_t times, size_t b) {
  (void)b;
  for (size_t i = 0; i < times; i++) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    FILE *stream = fdopen(fd[0], "r");
    pthread_t t = start(read_lines, stream);
    for (size_t n = 0; n < 1000; n++) CHECK(write(fd[1], &"many words \n"[n % 3], 10) == 10);
    usleep(300);
    CHECK(pthread_cancel(t) == 0);
    join(t);
    CHECK(line == NULL);
    close(fd[1]); // the stream stays locked: its thread was inside it
    close(fd[0]);
  }
}

static void *exit_in_the_middle(void *p) {
  pthread_cleanup_push(free, p);
  pthread_exit(filled_block(5000, 3));
  pthread_cleanup_pop(0);
}
static void pthread_exit_with_a_block(size_t times, size_t b) {
  (void)b;
  for (size_t i = 0; i < times; i++) {
    void *result;
    CHECK(pthread_join(start(exit_in_the_middle, malloc(i)), &result) == 0);
    check_and_free(result, 5000, 3);
  }
}

const case_t threads_cases[] = {
    EACH_RANGE("exit_with_live_blocks", exit_with_live_blocks, 0),
    {"exit_then_realloc_tiny", exit_with_live_blocks, TINY, 1},
    {"exit_then_realloc_l2", exit_with_live_blocks, L2, 1},
    {"exit_then_realloc_l25", exit_with_live_blocks, L25, 1},
    EACH_RANGE("owner_has_exited", owner_has_exited, 0),
    {"owner_sleeps_tiny", owner_sleeps, TINY},
    {"owner_sleeps_l2", owner_sleeps, L2},
    {"owner_sleeps_l25", owner_sleeps, L25},
    EACH_RANGE("producer_consumer", producer_consumer, 1),
    {"producer_consumer_4_pairs_tiny", producer_consumer, TINY, 4},
    {"producer_consumer_4_pairs_l2", producer_consumer, L2, 4},
    {"everyone_frees_everyones_2", everyone_frees_everyones, 2},
    {"everyone_frees_everyones_8", everyone_frees_everyones, 8},
    {"realloc_by_turns", realloc_by_turns},
    {"short_threads", short_threads, 4000},
    {"short_detached_threads", short_threads, 2000, 1},
    {"two_thousand_at_once", many_at_once, 2000, 2},
    {"five_hundred_at_once_4_times", many_at_once, 500, 4},
    {"threads_start_threads", threads_start_threads, 200},
    EACH_RANGE("same_size_same_moment", same_size_same_moment, 8),
    {"churn_2_threads", churn_together, 2},
    {"churn_16_threads", churn_together, 16},
    {"aligned_in_threads", aligned_in_threads},
    {"affinity_moves", affinity_moves},
    EACH_RANGE("smallest_stack", smallest_stack, 0),
    {"stack_is_an_l2_block", stack_is_a_block, 32 * KIB},
    {"stack_is_an_l25_block", stack_is_a_block, 256 * KIB},
    {"stack_is_a_huge_block", stack_is_a_block, 2 * MIB},
    {"key_destructors_free", key_destructors, 300, 0},
    {"key_destructor_allocates_every_round", key_destructors, 300, 7},
    {"all_keys_taken_in_main", all_keys_taken, 1000},
    {"all_keys_taken_before_start", threads_without_keys, 1000, 0, "no_keys_first"},
    {"all_keys_taken_right_after_start", threads_without_keys, 1000, 0, "no_keys_last"},
    {"c11_threads", c11_threads},
    {"cancel_deferred", cancel_deferred, 50},
    {"cancel_asynchronous", cancel_asynchronous, 50},
    {"cancel_handlers_free", cancel_handlers_free, 30},
    {"cancel_in_getline", cancel_in_getline, 30},
    {"pthread_exit_with_a_block", pthread_exit_with_a_block, 200},
    {NULL},
};
