// case_steady: a long steady run, as of a cache or a database. What matters is not the peak
// but the memory held over time.
//
// One thread replaces random blocks of 16 to 65536 bytes, with equally many bytes in blocks
// of each power of two; OPS calls in all. Another thread reads resident memory every 10 ms.
// rss_integral_kib_s is the integral over time, mean_rss_kib is that divided by the time,
// rss_per_live is the mean of the second half divided by the bytes live at the end, and drift
// is the mean of the last eighth divided by that of the third eighth.

#include "cases.h"

enum { OPS, LIVE_KIB, SEED };
enum { MIN = 16, MAX = 65536, SIZES = 4096, READINGS = 1 << 20, INTERVAL_NS = 10000000 };

static bench_arg_t args[] = {
    {"OPS", "calls of malloc and free, besides the first blocks", 20000000, 2, 100000000},
    {"LIVE_KIB", "of blocks alive", 65536, 1024, 1 << 26},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct watch {
  uint64_t count;
  uint64_t ns[READINGS];
  uint32_t rss_kib[READINGS];
} watch_t;

// Tells the watching thread to end. Relaxed: it publishes nothing.
static atomic_bool ended;

static void *watch(void *arg) {
  watch_t *w = arg;
  for (uint64_t at = bench_now_ns(); w->count < READINGS; at += INTERVAL_NS) {
    w->rss_kib[w->count] = (uint32_t)case_rss_kib();
    w->ns[w->count++] = bench_now_ns();
    if (atomic_load_explicit(&ended, memory_order_relaxed)) break;
    case_sleep_until(at + INTERVAL_NS);
  }
  return NULL;
}

// The integral, KiB times seconds, from one reading to another by the trapezoidal rule.
static double integral(const watch_t *w, uint64_t from, uint64_t to, double base) {
  double sum = 0;
  for (uint64_t i = from; i + 1 < to; i++)
    sum += ((double)w->rss_kib[i] + (double)w->rss_kib[i + 1] - 2 * base) / 2 *
           (double)(w->ns[i + 1] - w->ns[i]) / 1e9;
  return sum;
}

static double mean(const watch_t *w, uint64_t from, uint64_t to, double base) {
  if (to - from < 2) return (double)w->rss_kib[from] - base;
  return integral(w, from, to, base) / ((double)(w->ns[to - 1] - w->ns[from]) / 1e9);
}

// Quantiles of a power law with exponent -2, so that every power of two has equally many bytes.
static double fill_sizes(uint32_t *sizes) {
  double sum = 0;
  for (unsigned i = 0; i < SIZES; i++) {
    double size = MIN * (double)SIZES / (i + 0.5);
    sizes[i] = size < MAX ? (uint32_t)size : MAX;
    sum += sizes[i];
  }
  return sum / SIZES;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_steady",
               .what = "Memory over time of a long run that replaces blocks of all sizes.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  static uint32_t sizes[SIZES];
  const double mean_size = fill_sizes(sizes);
  const uint64_t slots = (uint64_t)((double)(args[LIVE_KIB].value << 10) / mean_size);
  void **blocks = bench_map(slots * sizeof *blocks);
  // Not populated, which would take 12 MiB; pages that are touched belong to the base.
  static watch_t w;
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  uint64_t live = 0;
  const double base = (double)case_rss_kib();
  for (uint64_t i = 0; i < slots; i++) {
    size_t size = sizes[bench_high(bench_next(&rng), SIZES)];
    blocks[i] = case_alloc_paged(size);
    live += size;
  }
  const uint64_t replacements = args[OPS].value / 2;
  pthread_t watcher = start_thread(watch, &w);
  const uint64_t start = bench_now_ns();
  for (uint64_t i = 0; i < replacements; i++) {
    uint64_t random = bench_next(&rng);
    void **victim = &blocks[bench_high(random, slots)];
    size_t size = sizes[bench_low(random, SIZES)];
    live += size - unmark(*victim, MAX);
    free(*victim);
    *victim = case_alloc_paged(size);
  }
  bench_run_t run = {.ops = 2 * replacements, .ns = bench_now_ns() - start};
  atomic_store_explicit(&ended, true, memory_order_relaxed);
  pthread_join(watcher, NULL);
  const double live_kib = (double)live / 1024;
  for (uint64_t i = 0; i < slots; i++) {
    live -= unmark(blocks[i], MAX);
    free(blocks[i]);
  }
  if (live != 0) bench_wrong("bytes freed");
  const uint64_t n = w.count;
  const double late = mean(&w, n / 2, n, base), early = mean(&w, n / 4, n / 4 + n / 8 + 1, base);
  bench_report_extra(&b, run, (bench_run_t){0}, bench_peak_rss_kib(),
                     (bench_value_t[]){{"live_kib", live_kib},
                                       {"base_rss_kib", base},
                                       {"rss_integral_kib_s", integral(&w, 0, n, base)},
                                       {"mean_rss_kib", mean(&w, 0, n, base)},
                                       {"rss_per_live", late / live_kib},
                                       {"drift", mean(&w, n - n / 8 - 1, n, base) / early},
                                       {0}});
  return 0;
}
