// producer.c: blocks allocated by some threads and freed by others; memory that waits for its
// owner must stay bounded. producer CASE

#include <pthread.h>

#include "names.h"

char invocation[200];

// With a sanitizer's shadow memory, resident memory says nothing.
static void check_rss(size_t limit_kib) {
#if STRESS_HAK
  (void)limit_kib;
#else
  size_t now = rss_kib();
  if (now > limit_kib) {
    dprintf(2, "%s: RSS is %zu KiB, the limit %zu KiB\n", invocation, now, limit_kib);
    _exit(1);
  }
#endif
}

#define MIB_IN_KIB ((size_t)1024)

// A bounded queue.
enum { QUEUE = 4096 };
static uint64_t *queue[QUEUE];
static size_t head, tail;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void send(uint64_t *block) {
  pthread_mutex_lock(&lock);
  while (head - tail == QUEUE) pthread_cond_wait(&changed, &lock);
  queue[head++ % QUEUE] = block;
  if (head - tail == 1) pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static uint64_t *receive(void) {
  pthread_mutex_lock(&lock);
  while (head == tail) pthread_cond_wait(&changed, &lock);
  uint64_t *block = queue[tail++ % QUEUE];
  if (head - tail == QUEUE - 1) pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return block;
}

enum { PRODUCERS = 4, BLOCKS = 200000 };
static size_t largest;

static void *produce(void *argument) {
  uint64_t random = (uintptr_t)argument + 1;
  for (size_t i = 0; i < BLOCKS; i++) {
    size_t size = 16 + chance(&random) % (largest - 15);
    uint64_t *block = t_malloc(size);
    CHECK(block);
    memset(block, 0x5a, size);
    block[0] = size;
    block[1] = ~(uint64_t)size;
    send(block);
  }
  return NULL;
}

static void four_producers(size_t largest_block) {
  largest = largest_block;
  pthread_t thread[PRODUCERS];
  // The most that may be live, as much again, and some more for everything else.
  size_t limit = rss_kib() + QUEUE * largest / 1024 * 2 + 32 * MIB_IN_KIB;
  for (size_t i = 0; i < PRODUCERS; i++)
    CHECK(pthread_create(&thread[i], NULL, produce, (void *)(uintptr_t)i) == 0);
  for (size_t i = 0; i < (size_t)PRODUCERS * BLOCKS; i++) {
    uint64_t *block = receive();
    CHECK(block[1] == ~block[0]);
    t_free(block);
    if (i % 16384 == 0) check_rss(limit);
  }
  for (size_t i = 0; i < PRODUCERS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  check_rss(limit);
}

static void tiny(void) { four_producers(1000); }
static void mid(void) { four_producers(8000); }

// ---------------------------------------------------------------------------
// Owners that do nothing more while others free the blocks that they allocated.

enum { OWNERS = 8, EACH = 16000 };
static void *made[OWNERS][EACH];
static size_t bytes_made;
static pthread_barrier_t filled, over;
static bool sleeping;

static void *make_and_sleep(void *argument) {
  size_t me = (uintptr_t)argument;
  uint64_t random = me + 1;
  size_t bytes = 0;
  for (size_t i = 0; i < EACH; i++) {
    size_t size = 64 + chance(&random) % 3900;
    CHECK(made[me][i] = t_malloc(size));
    memset(made[me][i], 1, size);
    bytes += size;
  }
  __atomic_fetch_add(&bytes_made, bytes, __ATOMIC_RELAXED);
  if (!sleeping) return NULL;
  pthread_barrier_wait(&filled);
  pthread_barrier_wait(&over); // until the end of the test
  return NULL;
}

// After the frees the calling thread allocates as much again: the memory is there already.
static void owners(bool asleep) {
  pthread_t thread[OWNERS];
  sleeping = asleep;
  pthread_barrier_init(&filled, NULL, OWNERS + 1);
  pthread_barrier_init(&over, NULL, OWNERS + 1);
  size_t before = rss_kib();
  for (size_t i = 0; i < OWNERS; i++)
    CHECK(pthread_create(&thread[i], NULL, make_and_sleep, (void *)(uintptr_t)i) == 0);
  if (asleep) pthread_barrier_wait(&filled);
  else
    for (size_t i = 0; i < OWNERS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  for (size_t o = 0; o < OWNERS; o++)
    for (size_t i = 0; i < EACH; i++) t_free(made[o][i]);
  bool was_asleep = sleeping;
  size_t bytes = bytes_made;
  sleeping = false;
  for (size_t o = 0; o < OWNERS; o++) make_and_sleep((void *)(uintptr_t)o);
  dprintf(1, "%zu MiB live, %zu MiB resident\n", bytes >> 20, (rss_kib() - before) >> 10);
  check_rss(before + bytes / 1024 * 3 / 2 + 16 * MIB_IN_KIB);
  for (size_t o = 0; o < OWNERS; o++)
    for (size_t i = 0; i < EACH; i++) t_free(made[o][i]);
  if (!was_asleep) return;
  pthread_barrier_wait(&over);
  for (size_t i = 0; i < OWNERS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
}

static void owner_sleeps(void) { owners(true); }
static void owner_has_exited(void) { owners(false); }

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"tiny", tiny},
               {"mid", mid},
               {"owner_sleeps", owner_sleeps},
               {"owner_has_exited", owner_has_exited}};
  if (argc != 2) return 2;
  snprintf(invocation, sizeof invocation, "producer %s", argv[1]);
  CHECK(right_allocator());
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (strcmp(cases[i].name, argv[1]) == 0) return cases[i].run(), 0;
  return 2;
}
