// bench_latency: how long single calls of malloc and free take.
//
// The load of bench_random_mixed, each call timed by the time-stamp counter into a
// histogram whose buckets are 1/32 wide. timer_ns is what an empty measurement shows;
// it is part of every figure.

#include "../common.h"

#include <pthread.h>

enum { THREADS, OPS, WORKINGSET, MIN, MAX };
static bench_arg_t args[] = {
    {"THREADS", "threads", 1, 1, 64},
    {"OPS", "calls per thread", 5000000, 1000, UINT64_MAX},
    {"WORKINGSET", "slots per thread", 8192, 1, 1 << 24},
    {"MIN", "bytes of the smallest block", 16, 1, 1 << 24},
    {"MAX", "bytes of the largest block", 1040, 1, 1 << 24},
    {0},
};

enum { SUB_BITS = 5, BUCKETS = 64 << SUB_BITS };

typedef struct {
  uint64_t counts[BUCKETS];
  uint64_t total, most;
} histogram_t;

typedef struct {
  histogram_t *malloc_times, *free_times;
  uint64_t number;
} actor_t;

static inline uint64_t ticks(void) {
#if defined(__x86_64__)
  uint32_t low, high;
  __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
  return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
  uint64_t now;
  __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(now) : : "memory");
  return now;
#else
  return bench_now_ns();
#endif
}

static inline void note(histogram_t *h, uint64_t value) {
  unsigned top = value >> SUB_BITS ? 63u - (unsigned)__builtin_clzll(value) - SUB_BITS : 0;
  h->counts[(top << SUB_BITS) + (value >> top)]++;
  h->total++;
  if (value > h->most) h->most = value;
}

static uint64_t value_of(unsigned bucket) {
  unsigned top = bucket >> SUB_BITS;
  if (top < 1) return bucket;
  return (uint64_t)((bucket & ((1u << SUB_BITS) - 1)) | 1u << SUB_BITS) << (top - 1);
}

static uint64_t percentile(const histogram_t *h, double share) {
  uint64_t wanted = (uint64_t)((double)h->total * share), seen = 0;
  for (unsigned i = 0; i < BUCKETS; i++)
    if ((seen += h->counts[i]) > wanted) return value_of(i);
  return h->most;
}

static void *act(void *arg) {
  actor_t *me = arg;
  bench_rng_t rng = bench_rng(42, me->number);
  void **slots = bench_map(args[WORKINGSET].value * sizeof *slots);
  for (uint64_t i = 0; i < args[OPS].value; i++) {
    uint64_t random = bench_next(&rng);
    void **slot = &slots[bench_high(random, args[WORKINGSET].value)];
    if (*slot != NULL) {
      void *p = *slot;
      uint64_t start = ticks();
      free(p);
      note(me->free_times, ticks() - start);
      *slot = NULL;
    } else {
      size_t size = args[MIN].value + bench_low(random, args[MAX].value - args[MIN].value + 1);
      uint64_t start = ticks();
      void *p = malloc(size);
      note(me->malloc_times, ticks() - start);
      if (p == NULL) bench_die("malloc");
      bench_touch(p, 0);
      bench_touch(p, size - 1);
      *slot = p;
    }
  }
  for (uint64_t i = 0; i < args[WORKINGSET].value; i++) free(slots[i]);
  return NULL;
}

static void add(histogram_t *to, const histogram_t *from) {
  for (unsigned i = 0; i < BUCKETS; i++) to->counts[i] += from->counts[i];
  to->total += from->total;
  if (from->most > to->most) to->most = from->most;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "bench_latency", .what = "Latency of single calls.", .args = args, .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "MIN is above MAX");
  uint64_t threads = args[THREADS].value;
  actor_t actors[64];
  pthread_t ids[64];
  histogram_t *all = bench_map(3 * sizeof *all);
  for (uint64_t i = 0; i < threads; i++)
    actors[i] = (actor_t){bench_map(sizeof(histogram_t)), bench_map(sizeof(histogram_t)), i};
  uint64_t start = bench_now_ns(), start_ticks = ticks();
  for (uint64_t i = 0; i < threads; i++)
    if (pthread_create(&ids[i], NULL, act, &actors[i]) != 0) bench_die("pthread_create");
  for (uint64_t i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  uint64_t ns = bench_now_ns() - start;
  double ns_per_tick = (double)ns / (double)(ticks() - start_ticks);
  for (unsigned i = 0; i < 100000; i++) {
    uint64_t before = ticks();
    note(&all[2], ticks() - before);
  }
  for (uint64_t i = 0; i < threads; i++) add(&all[0], actors[i].malloc_times), add(&all[1], actors[i].free_times);
  static const char *const names[2][4] = {
      {"malloc_p50_ns", "malloc_p99_ns", "malloc_p999_ns", "malloc_max_ns"},
      {"free_p50_ns", "free_p99_ns", "free_p999_ns", "free_max_ns"},
  };
  for (unsigned i = 0; i < 2; i++) {
    const double shares[] = {0.5, 0.99, 0.999};
    for (unsigned k = 0; k < 3; k++)
      b.extra[4 * i + k] = (bench_extra_t){names[i][k], (double)percentile(&all[i], shares[k]) * ns_per_tick};
    b.extra[4 * i + 3] = (bench_extra_t){names[i][3], (double)all[i].most * ns_per_tick};
  }
  b.extra[8] = (bench_extra_t){"timer_ns", (double)percentile(&all[2], 0.5) * ns_per_tick};
  bench_report(&b, (bench_run_t){.ops = threads * args[OPS].value, .ns = ns}, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
