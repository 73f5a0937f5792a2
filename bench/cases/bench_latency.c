// bench_latency: how long single calls of malloc and free take, above all the rare slow ones.
//
// THREADS threads each replace random blocks of a set of WORKINGSET blocks of MIN to MAX bytes
// (every power of two is equally likely), with OPS calls in all. Each call is timed by itself
// and counted in a histogram with 32 buckets per power of two, so a value is off by at most
// 1.6 %. The histograms are populated beforehand; blocks are written outside the timed part.
// Values include the cost of reading the clock, which timer_ns reports (median of pairs of
// readings with nothing between them). The clock is the time stamp counter on x86-64 and the
// virtual counter on AArch64 (often in steps of tens of nanoseconds: timer_step_ns), both
// calibrated by CLOCK_MONOTONIC; elsewhere it is CLOCK_MONOTONIC. The maximum also includes
// anything that interrupted the thread; with more threads than CPUs, whole time slices.

#include "cases.h"

enum { THREADS, OPS, WORKINGSET, MIN, MAX, SEED };
enum { SUB = 32, SUB_LOG = 5, BUCKETS = (64 - SUB_LOG + 1) * SUB, PAIRS = 20000 };

static bench_arg_t args[] = {
    {"THREADS", "threads", 1, 1, 1024},
    {"OPS", "calls of malloc and free by all threads together", 4000000, 2, UINT64_MAX},
    {"WORKINGSET", "blocks of each thread", 20000, 1, UINT32_MAX},
    {"MIN", "smallest block in bytes", 16, MARK_MIN, 1 << 30},
    {"MAX", "largest block in bytes", 32768, MARK_MIN, 1 << 30},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

// ---------------------------------------------------------------------------
// Clock, in ticks. The timed code cannot be moved out from between the two readings.

#if defined(__x86_64__)
static BENCH_INLINE uint64_t ticks_before(void) {
  uint32_t low, high;
  __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
  return (uint64_t)high << 32 | low;
}
static BENCH_INLINE uint64_t ticks_after(void) {
  uint32_t low, high, cpu;
  __asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high), "=c"(cpu) : : "memory");
  return (uint64_t)high << 32 | low;
}
#elif defined(__aarch64__)
static BENCH_INLINE uint64_t ticks_before(void) {
  uint64_t now;
  __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(now) : : "memory");
  return now;
}
static BENCH_INLINE uint64_t ticks_after(void) { return ticks_before(); }
#else
static BENCH_INLINE uint64_t ticks_before(void) { return bench_now_ns(); }
static BENCH_INLINE uint64_t ticks_after(void) { return bench_now_ns(); }
#endif

static double ns_per_tick(void) {
  const uint64_t start_ns = bench_now_ns(), start = ticks_before();
  case_sleep_until(start_ns + 20000000);
  const uint64_t end_ns = bench_now_ns(), end = ticks_before();
  return (double)(end_ns - start_ns) / (double)(end - start);
}

// ---------------------------------------------------------------------------
// Histogram: one bucket per value below SUB, then SUB buckets per power of two.

typedef struct histogram {
  uint64_t counts[BUCKETS];
  uint64_t sum, max;
} histogram_t;

static BENCH_INLINE void count_one(histogram_t *h, uint64_t value) {
  unsigned shift = value < SUB ? 0 : 63 - SUB_LOG - (unsigned)__builtin_clzll(value);
  h->counts[shift * SUB + (value >> shift)]++;
  h->sum++;
  if (value > h->max) h->max = value;
}

// The middle of a bucket.
static double bucket_value(uint64_t bucket) {
  if (bucket < 2 * SUB) return (double)bucket;
  uint64_t shift = bucket / SUB - 1, start = (SUB + bucket % SUB) << shift;
  return (double)start + (double)(((uint64_t)1 << shift) - 1) / 2;
}

static double quantile(const histogram_t *h, double part) {
  uint64_t rank = (uint64_t)(part * (double)h->sum), seen = 0;
  for (uint64_t i = 0; i < BUCKETS; i++) {
    seen += h->counts[i];
    if (seen > rank) return bucket_value(i) < (double)h->max ? bucket_value(i) : (double)h->max;
  }
  return (double)h->max;
}

static void merge(histogram_t *into, const histogram_t *from) {
  for (uint64_t i = 0; i < BUCKETS; i++) into->counts[i] += from->counts[i];
  into->sum += from->sum;
  if (from->max > into->max) into->max = from->max;
}

// ---------------------------------------------------------------------------

typedef struct actor {
  bench_rng_t rng;
  void **blocks;
  uint64_t replacements;
  uint64_t ns; // time of these calls with everything around them
  histogram_t mallocs, frees;
} __attribute__((aligned(128))) actor_t;

static pthread_barrier_t barrier;
static unsigned min_log, max_log;

static size_t random_size(bench_rng_t *rng) {
  size_t size = bench_log_size(rng, min_log, max_log);
  return size < args[MIN].value ? args[MIN].value : size < args[MAX].value ? size : args[MAX].value;
}

static void *act(void *arg) {
  actor_t *me = arg;
  const uint64_t count = args[WORKINGSET].value, max = args[MAX].value;
  for (uint64_t i = 0; i < count; i++) me->blocks[i] = alloc_marked(random_size(&me->rng));
  pthread_barrier_wait(&barrier);
  uint64_t start_ns = bench_now_ns();
  for (uint64_t i = 0; i < me->replacements; i++) {
    void **victim = &me->blocks[bench_high(bench_next(&me->rng), count)];
    size_t size = random_size(&me->rng);
    void *p = *victim;
    unmark(p, max);
    uint64_t start = ticks_before();
    free(p);
    uint64_t end = ticks_after();
    count_one(&me->frees, end - start);
    start = ticks_before();
    p = malloc(size);
    end = ticks_after();
    count_one(&me->mallocs, end - start);
    if (p == NULL) bench_die("malloc");
    mark(p, size);
    *victim = p;
  }
  me->ns = bench_now_ns() - start_ns;
  for (uint64_t i = 0; i < count; i++) free_marked(me->blocks[i], max);
  return NULL;
}

// Measures the clock itself.
static void time_nothing(histogram_t *h, uint64_t *step) {
  *step = UINT64_MAX;
  for (unsigned i = 0; i < PAIRS; i++) {
    uint64_t start = ticks_before(), end = ticks_after();
    count_one(h, end - start);
    uint64_t later = ticks_after();
    while (later == end) later = ticks_after();
    if (later - end < *step) *step = later - end;
  }
}

int main(int argc, char **argv) {
  bench_t b = {.name = "bench_latency",
               .what = "Latency of single calls of malloc and free.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "MIN is above MAX");
  min_log = 63 - (unsigned)__builtin_clzll(args[MIN].value);
  max_log = 64 - (unsigned)__builtin_clzll(args[MAX].value - 1);
  if (max_log <= min_log) max_log = min_log + 1;
  const uint64_t threads = args[THREADS].value;
  actor_t *actors = bench_map(threads * sizeof *actors);
  histogram_t *timer = bench_map(sizeof *timer);
  uint64_t step, slowest = 0;
  time_nothing(timer, &step);
  const double tick = ns_per_tick();
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (uint64_t i = 0; i < threads; i++) {
    actors[i].rng = bench_rng(args[SEED].value, i);
    actors[i].blocks = bench_map(args[WORKINGSET].value * sizeof(void *));
    actors[i].replacements = args[OPS].value / 2 / threads;
  }
  run_team(threads, act, actors, sizeof *actors);
  for (uint64_t i = 0; i < threads; i++) {
    if (i > 0) merge(&actors->mallocs, &actors[i].mallocs);
    if (i > 0) merge(&actors->frees, &actors[i].frees);
    if (actors[i].ns > slowest) slowest = actors[i].ns;
  }
  const histogram_t *m = &actors->mallocs, *f = &actors->frees;
  bench_run_t run = {.ops = m->sum + f->sum, .ns = slowest};
  // clang-format off
  bench_report_extra(&b, run, (bench_run_t){0}, bench_peak_rss_kib(), (bench_value_t[]){
      {"timer_ns", tick * quantile(timer, 0.5)},
      {"timer_step_ns", tick * (double)step},
      {"malloc_p50_ns", tick * quantile(m, 0.5)},
      {"malloc_p99_ns", tick * quantile(m, 0.99)},
      {"malloc_p999_ns", tick * quantile(m, 0.999)},
      {"malloc_p9999_ns", tick * quantile(m, 0.9999)},
      {"malloc_max_ns", tick * (double)m->max},
      {"free_p50_ns", tick * quantile(f, 0.5)},
      {"free_p99_ns", tick * quantile(f, 0.99)},
      {"free_p999_ns", tick * quantile(f, 0.999)},
      {"free_p9999_ns", tick * quantile(f, 0.9999)},
      {"free_max_ns", tick * (double)f->max},
      {0}});
  // clang-format on
  return 0;
}
