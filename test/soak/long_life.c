// long_life.c: a long-lived process whose block sizes change. Two threads allocate and free
// through phases (small, large, few, many, mixed), hand blocks to each other and leave a
// survivor here and there. Per interval the main thread prints a line of JSON: what is live,
// what is resident and how long malloc took.
//
//   long_life SECONDS PHASE_SECONDS
//
// Ends with status 1 if a block does not hold what was written to it.

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../resident.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
enum {
  THREADS = 2,
  SLOTS = 120000,    // per thread
  EXCHANGED = 2048,  // blocks on their way to another thread
  SURVIVORS = 256,   // one of so many blocks of an earlier phase stays
  TIMED = 4,         // one of so many mallocs is timed
  BUCKETS = 64 * 8,  // eight per power of two nanoseconds
  BREATH = 2000,     // operations between two short sleeps: not the whole processor
};

typedef struct {
  const char *name;
  size_t low, high, live; // sizes; live bytes per thread
} phase_t;
static const phase_t phases[] = {
  {"tiny", 1, 256, 8 * MIB},      {"large", 60 * KIB, MIB, 32 * MIB},
  {"small", 100, 1024, 16 * MIB}, {"huge", MIB, 4 * MIB, 48 * MIB},
  {"few", 16, 512, MIB},          {"mid", 1 * KIB, 56 * KIB, 32 * MIB},
  {"mixed", 1, 100 * KIB, 24 * MIB}, {"idle", 16, 64, 64 * KIB},
};
enum { PHASES = sizeof phases / sizeof *phases };

typedef struct {
  size_t size;
  uint64_t check; // of size and address
} header_t;

typedef struct {
  pthread_t thread;
  uint64_t random;
  header_t **slots; // mapped: the program's own tables are not part of the figures
  size_t used;      // slots below this may be in use
  size_t held;      // bytes in slots
  _Atomic int64_t live; // bytes allocated less bytes freed, including others' blocks
  _Atomic uint32_t latency[BUCKETS];
} worker_t;

static worker_t workers[THREADS];
static _Atomic(header_t *) exchange[EXCHANGED];
static _Atomic unsigned phase;
static _Atomic bool stop;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t chance(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return (*state * 0x2545f4914f6cdd1du) >> 16;
}

// ---------------------------------------------------------------------------
// Latency: bucket b counts times from lower_ns(b) on.

static unsigned bucket_of(uint64_t ns) {
  if (ns < 8) return (unsigned)ns;
  unsigned top = 63 - (unsigned)__builtin_clzll(ns);
  return (top - 2) * 8 + (unsigned)(ns >> (top - 3) & 7);
}
static uint64_t lower_ns(unsigned b) {
  return b < 8 ? b : (uint64_t)(8 + b % 8) << (b / 8 - 1);
}

static uint64_t quantile(const uint32_t *counts, uint64_t total, double q) {
  uint64_t seen = 0;
  for (unsigned b = 0; b < BUCKETS; b++) {
    seen += counts[b];
    if (total && (double)seen >= q * (double)total) return lower_ns(b);
  }
  return 0;
}

// ---------------------------------------------------------------------------
// Work.

static uint64_t check_of(const header_t *h) {
  return ((uintptr_t)h ^ h->size) * 0x9e3779b97f4a7c15u;
}

static header_t *make(worker_t *w, size_t size) {
  size += sizeof(header_t);
  bool timed = chance(&w->random) % TIMED == 0;
  uint64_t start = timed ? now_ns() : 0;
  header_t *h = malloc(size);
  if (timed) {
    uint64_t took = now_ns() - start;
    atomic_fetch_add_explicit(&w->latency[bucket_of(took)], 1, memory_order_relaxed);
  }
  if (!h) {
    fprintf(stderr, "long_life: malloc(%zu) failed\n", size);
    exit(1);
  }
  for (size_t at = 4096; at < size; at += 4096) ((char *)h)[at] = (char)at; // resident
  h->size = size;
  h->check = check_of(h);
  ((char *)h)[size - 1] = size == sizeof *h ? ((char *)h)[size - 1] : (char)size;
  atomic_fetch_add_explicit(&w->live, (int64_t)size, memory_order_relaxed);
  return h;
}

static void drop(worker_t *w, header_t *h) {
  size_t size = h->size;
  if (h->check != check_of(h) ||
      (size > sizeof *h && ((char *)h)[size - 1] != (char)size)) {
    fprintf(stderr, "long_life: a block of %zu bytes was overwritten\n", size);
    exit(1);
  }
  atomic_fetch_sub_explicit(&w->live, (int64_t)size, memory_order_relaxed);
  free(h);
}

// Every fourth block goes to another thread, or to this one later.
static void give_up(worker_t *w, size_t slot) {
  header_t *h = w->slots[slot];
  w->slots[slot] = NULL;
  w->held -= h->size;
  if (chance(&w->random) % 4 == 0 && h->size < 64 * KIB)
    h = atomic_exchange(&exchange[chance(&w->random) % EXCHANGED], h);
  if (h) drop(w, h);
}

// Provides slots for twice the blocks that will be live. Blocks in the slots above are given
// up, except the survivors, which stay until their slot is used again.
static size_t enter(worker_t *w, const phase_t *to) {
  size_t n = 4 * to->live / (to->low + to->high) + 16;
  if (n > SLOTS) n = SLOTS;
  for (size_t i = n; i < w->used; i++)
    if (w->slots[i] && (i % SURVIVORS || w->slots[i]->size > 4096)) give_up(w, i);
  if (w->used < n) w->used = n;
  return n;
}

static void *work(void *argument) {
  worker_t *w = argument;
  unsigned current = PHASES;
  size_t slots = 0;
  for (uint64_t n = 1; !atomic_load_explicit(&stop, memory_order_relaxed); n++) {
    unsigned wanted = atomic_load_explicit(&phase, memory_order_relaxed);
    if (wanted != current) slots = enter(w, &phases[current = wanted]);
    const phase_t *p = &phases[current];
    size_t slot = chance(&w->random) % slots;
    if (w->slots[slot]) give_up(w, slot);
    if (!w->slots[slot] && w->held < p->live) {
      w->slots[slot] = make(w, p->low + chance(&w->random) % (p->high - p->low));
      w->held += w->slots[slot]->size;
    }
    if (n % BREATH == 0) usleep(500);
  }
  return NULL;
}

// ---------------------------------------------------------------------------
// Samples.

static void sample(double at, size_t rss_before) {
  uint32_t counts[BUCKETS] = {0};
  uint64_t total = 0;
  int64_t live = 0;
  for (unsigned i = 0; i < THREADS; i++) {
    live += atomic_load(&workers[i].live);
    for (unsigned b = 0; b < BUCKETS; b++)
      counts[b] += atomic_exchange_explicit(&workers[i].latency[b], 0, memory_order_relaxed);
  }
  for (unsigned b = 0; b < BUCKETS; b++) total += counts[b];
  printf("{\"t\":%.3f,\"phase\":\"%s\",\"live_kib\":%lld,\"rss_kib\":%zu,\"timed\":%llu,\"p50\":%llu,"
         "\"p99\":%llu,\"p999\":%llu,\"max\":%llu}\n",
         at, phases[atomic_load(&phase)].name, (long long)live / 1024, rss_kib() - rss_before,
         (unsigned long long)total, (unsigned long long)quantile(counts, total, 0.5),
         (unsigned long long)quantile(counts, total, 0.99),
         (unsigned long long)quantile(counts, total, 0.999),
         (unsigned long long)quantile(counts, total, 1));
  fflush(stdout);
}

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: long_life SECONDS PHASE_SECONDS\n"), 2;
  double seconds = atof(argv[1]), phase_seconds = atof(argv[2]);
  double interval = phase_seconds / 4 < 1 ? phase_seconds / 4 : 1;
  if (!(seconds > 0 && interval > 0)) return 2;
  printf("{\"phases\":%d}\n", PHASES);
  for (unsigned i = 0; i < THREADS; i++) {
    size_t size = SLOTS * sizeof(header_t *);
    workers[i].random = i + 1;
    workers[i].slots = mmap(NULL, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (workers[i].slots == MAP_FAILED) return 1;
  }
  size_t rss_before = rss_kib();
  for (unsigned i = 0; i < THREADS; i++)
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) return 1;
  uint64_t start = now_ns();
  for (unsigned n = 1;; n++) {
    double due = n * interval;
    struct timespec at = {(time_t)((start + (uint64_t)(due * 1e9)) / 1000000000u),
                          (long)((start + (uint64_t)(due * 1e9)) % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {}
    sample(due, rss_before);
    if (due >= seconds) break;
    atomic_store(&phase, (unsigned)(due / phase_seconds + 1e-9) % PHASES);
  }
  atomic_store(&stop, true);
  for (unsigned i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
  return 0;
}
