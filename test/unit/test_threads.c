// Many threads at once: blocks change hands, threads come and go, others read the
// statistics and trim. In the end nothing is lost.

#include "heaps.h"
#include "unit.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "superslab/superslab.h"
#include "thread/heap.h"

#define SLOTS 2000
#define THREADS 6

typedef struct {
  size_t size;
  uint64_t seed;
} header_t;

static _Atomic(header_t *) slots[SLOTS];
static _Atomic bool stop;

static header_t *make(uint64_t *seed) {
  size_t kind = chance_below(seed, 1000);
  size_t limit = kind < 800 ? 1100 : kind < 980 ? 60000 : kind < 998 ? MIB : 3 * MIB;
  size_t size = sizeof(header_t) + chance_below(seed, limit);
  header_t *h = kind % 7 == 0   ? hak_calloc(1, size)
                : kind % 7 == 1 ? hak_aligned_alloc((size_t)32 << kind % 8, size)
                                : hak_malloc(size);
  CHECK(h != NULL);
  h->size = size;
  h->seed = chance(seed);
  fill(h + 1, size - sizeof *h, h->seed);
  return h;
}

static void check(const header_t *h) { CHECK(filled(h + 1, h->size - sizeof *h, h->seed)); }

static header_t *resize(header_t *h, uint64_t *seed) {
  check(h);
  size_t size = sizeof *h + chance_below(seed, h->size * 2);
  h = hak_realloc(h, size);
  CHECK(h != NULL);
  h->size = size;
  fill(h + 1, size - sizeof *h, h->seed);
  return h;
}

static void work(uint64_t seed, unsigned operations) {
  for (unsigned i = 0; i < operations; i++) {
    header_t *h = chance_below(&seed, 3) ? make(&seed) : NULL;
    h = hak_exchange_acq_rel(&slots[chance_below(&seed, SLOTS)], h);
    if (!h) continue;
    if (chance_below(&seed, 8) == 0) h = resize(h, &seed);
    check(h);
    if (chance_below(&seed, 16) == 0)
      h = hak_exchange_acq_rel(&slots[chance_below(&seed, SLOTS)], h);
    hak_free(h);
  }
}

static void *worker(void *argument) {
  work((uintptr_t)argument * 7919 + 1, SCALED(60000u));
  if (hak_tls_heap->id) hak_heap_check(hak_tls_heap);
  return NULL;
}

static void *short_lived(void *argument) {
  work((uintptr_t)argument, 300);
  return NULL;
}

static void *comers_and_goers(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    pthread_t three[3];
    for (unsigned i = 0; i < 3; i++) three[i] = unit_start(short_lived, (void *)(uintptr_t)chance(&seed));
    for (unsigned i = 0; i < 3; i++) unit_join(three[i]);
  }
  return NULL;
}

static void *onlooker(void *argument) {
  (void)argument;
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    hak_stats_t s;
    CHECK(hak_stats_get(&s, sizeof s));
    CHECK(s.mapped_bytes <= s.peak_bytes);
    hak_trim(0);
    usleep(2000);
  }
  return NULL;
}

static void nothing_is_lost(void) {
  pthread_t threads[THREADS], others[2];
  for (uintptr_t i = 0; i < THREADS; i++) threads[i] = unit_start(worker, (void *)(i + 1));
  others[0] = unit_start(comers_and_goers, (void *)(uintptr_t)99);
  others[1] = unit_start(onlooker, NULL);
  for (unsigned i = 0; i < THREADS; i++) unit_join(threads[i]);
  stop = true;
  for (unsigned i = 0; i < 2; i++) unit_join(others[i]);
  for (unsigned i = 0; i < SLOTS; i++) {
    header_t *h = hak_exchange_acq_rel(&slots[i], (header_t *)NULL);
    if (h) check(h), hak_free(h);
  }
  heaps_let_go();
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK_EQUAL(s.live_blocks, 0);
  CHECK_EQUAL(s.live_bytes, 0);
  CHECK(s.heaps <= THREADS + 6 + HAK_NURSERIES);
  hak_trim(0);
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK_EQUAL(s.superslab_bytes, 0);
  CHECK_EQUAL(s.huge_bytes, 0);
}
ISOLATED(nothing_is_lost)

// ---------------------------------------------------------------------------
// Producer and consumer: blocks that wait for their owner stay bounded.

#define RING 4096
static _Atomic(void *) ring[RING];
static void *produce(void *argument) {
  (void)argument;
  for (unsigned i = 0; i < SCALED(400000u); i++) {
    void *p = hak_malloc(64 + i % 512), *none = NULL;
    *(unsigned *)p = i;
    while (!atomic_compare_exchange_weak(&ring[i % RING], &none, p)) none = NULL, sched_yield();
  }
  return NULL;
}
static void *consume(void *argument) {
  (void)argument;
  for (unsigned i = 0; i < SCALED(400000u); i++) {
    void *p;
    while ((p = hak_exchange_acq_rel(&ring[i % RING], NULL)) == NULL) sched_yield();
    CHECK_EQUAL(*(unsigned *)p, i);
    hak_free(p);
  }
  return NULL;
}

static void producer_and_consumer(void) {
  pthread_t a = unit_start(produce, NULL), b = unit_start(consume, NULL);
  unit_join(a), unit_join(b);
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK_EQUAL(s.live_blocks, 0);
  CHECK_EQUAL(s.allocs, SCALED(400000u));
  // 4096 blocks of up to 576 bytes are 1.3 MiB at most.
  printf("peak of producer and consumer: %llu KiB\n", (unsigned long long)s.peak_bytes >> 10);
  CHECK(s.peak_bytes - s.metadata_bytes <= 16 * MIB);
}
ISOLATED(producer_and_consumer)

// A thread that only frees, and then sleeps, has handed over what it freed of another thread's.
static void *leave_three(void *blocks) {
  for (unsigned i = 0; i < 3; i++) CHECK((((void **)blocks)[i] = hak_malloc(16000)) != NULL);
  return NULL;
}
static void frees_alone_hand_over(void) {
  static void *own[40000], *others[3];
  hak_option(NURSERY) = 0, hak_option(LETTERS) = 1;
  for (unsigned i = 0; i < COUNT(own); i++) CHECK((own[i] = hak_malloc(1000)) != NULL);
  unit_in_thread(leave_three, others);
  for (unsigned i = 0; i < COUNT(others); i++) hak_free(others[i]);
  for (unsigned i = 0; i < COUNT(own); i++) hak_free(own[i]);
  CHECK(hak_tls_heap->stats[HAK_STAT_letter_send] > 0);
  for (unsigned i = 0; i < HAK_LETTERS; i++) CHECK(hak_tls_heap->letters[i].owner == &hak_heap_none);
}
ISOLATED(frees_alone_hand_over)

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(nothing_is_lost),
    ISOLATED_TEST(producer_and_consumer),
    ISOLATED_TEST(frees_alone_hand_over),
  };
  return RUN(tests);
}
