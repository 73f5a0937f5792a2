// case_producer: producers allocate, one thread only frees; what is live is bounded.
//
// Each producer may have KIB outstanding. steady_rss_kib is the median of the resident
// memory over the second half of the run.

#include "../common.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { PRODUCERS, BLOCKS, LIVE, MIN, MAX };
static bench_arg_t args[] = {
    {"PRODUCERS", "threads that allocate", 4, 1, 64},
    {"BLOCKS", "that each of them allocates", 1000000, 1000, UINT32_MAX},
    {"LIVE", "KiB that may be live in all", 48128, 64, 1 << 24},
    {"MIN", "bytes of the smallest block", 16, 16, 1 << 20},
    {"MAX", "bytes of the largest block", 2048, 16, 1 << 20},
    {0},
};

enum { QUEUE = 1 << 17, SAMPLES = 4096 };

// One producer, one consumer; counts only grow.
typedef struct {
  _Alignas(128) _Atomic uint64_t given;
  _Alignas(128) _Atomic uint64_t taken;
  _Atomic uint64_t bytes_taken;
  _Alignas(128) uint64_t bytes_given;
  bench_rng_t rng;
  void **blocks;
} producer_t;

static producer_t producers[64];

static void *produce(void *arg) {
  producer_t *me = arg;
  uint64_t live = args[LIVE].value * 1024 / args[PRODUCERS].value;
  for (uint64_t i = 0; i < args[BLOCKS].value; i++) {
    size_t size = args[MIN].value + bench_low(bench_next(&me->rng), args[MAX].value - args[MIN].value + 1);
    while (me->bytes_given + size - atomic_load_explicit(&me->bytes_taken, memory_order_acquire) > live ||
           i - atomic_load_explicit(&me->taken, memory_order_acquire) >= QUEUE)
      sched_yield();
    size_t *p = malloc(size);
    if (p == NULL) bench_die("malloc");
    *p = size;
    bench_touch(p, size - 1);
    me->bytes_given += size;
    me->blocks[i % QUEUE] = p;
    atomic_store_explicit(&me->given, i + 1, memory_order_release);
  }
  return NULL;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_producer", .what = "Some threads allocate, one frees; what is live is bounded.",
               .args = args, .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "MIN is above MAX");
  uint64_t threads = args[PRODUCERS].value, total = threads * args[BLOCKS].value;
  pthread_t ids[64];
  double *samples = bench_map(SAMPLES * sizeof *samples);
  for (uint64_t i = 0; i < threads; i++) {
    producers[i].rng = bench_rng(42, i);
    producers[i].blocks = bench_map(QUEUE * sizeof(void *));
  }
  uint64_t start = bench_now_ns(), freed = 0;
  unsigned count = 0;
  for (uint64_t i = 0; i < threads; i++)
    if (pthread_create(&ids[i], NULL, produce, &producers[i]) != 0) bench_die("pthread_create");
  while (freed < total) {
    uint64_t before = freed;
    for (uint64_t i = 0; i < threads; i++) {
      producer_t *from = &producers[i];
      uint64_t taken = atomic_load_explicit(&from->taken, memory_order_relaxed), bytes = 0;
      uint64_t given = atomic_load_explicit(&from->given, memory_order_acquire);
      // Some stay: the queues are what is live.
      uint64_t upto = given == args[BLOCKS].value ? given : taken + (given - taken) / 16;
      for (; taken < upto; taken++, freed++) {
        size_t *p = from->blocks[taken % QUEUE];
        bytes += *p;
        free(p);
      }
      atomic_fetch_add_explicit(&from->bytes_taken, bytes, memory_order_release);
      atomic_store_explicit(&from->taken, taken, memory_order_release);
    }
    if (freed == before) sched_yield();
    if (freed > total / 2 && freed < total * 9 / 10 && count < SAMPLES &&
        freed - total / 2 > count * (total / 4096))
      samples[count++] = bench_rss_kib();
  }
  uint64_t ns = bench_now_ns() - start;
  for (uint64_t i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  qsort(samples, count, sizeof *samples, by_value);
  b.extra[0] = (bench_extra_t){"steady_rss_kib", count ? samples[count / 2] : 0};
  bench_report(&b, (bench_run_t){.ops = 2 * total, .ns = ns}, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
