// case_producer: some threads only allocate, one thread only frees, and the number of live
// blocks is bounded: readers of requests and one writer, a logger, a pipeline.
//
// PRODUCERS threads together allocate BLOCKS blocks and hand them over in batches through one
// queue that holds LIVE_KIB. The consumer frees the oldest batch, but leaves three quarters of
// the queue full until the producers are done, so that the live memory does not depend on
// which side is faster. The main thread reads resident memory every 5 ms;
// steady_rss_kib is the median of the second half of these readings.

#include "cases.h"

enum { PRODUCERS, BLOCKS, LIVE_KIB, MIN, MAX, SEED };
enum { BATCH = 64, READINGS = 1 << 16, INTERVAL_NS = 5000000 };

static bench_arg_t args[] = {
    {"PRODUCERS", "threads that allocate", 4, 1, 1024},
    {"BLOCKS", "allocated by all producers together", 6000000, 1, UINT32_MAX},
    {"LIVE_KIB", "bound of what lives in the queue", 48128, 64, 1 << 30},
    {"MIN", "smallest block in bytes", 16, MARK_MIN, 1 << 30},
    {"MAX", "largest block in bytes", 2032, MARK_MIN, 1 << 30},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct batch {
  void *blocks[BATCH];
  uint64_t count;
} batch_t;

// The queue's state, all protected by the lock.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER;
static pthread_cond_t enough = PTHREAD_COND_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static batch_t *queue;
static uint64_t capacity, head, tail; // in batches; head is the next to be freed
static uint64_t producing;
static bool consumed;

typedef struct producer {
  bench_rng_t rng;
  uint64_t blocks;
} __attribute__((aligned(128))) producer_t;

static void push(const batch_t *batch) {
  pthread_mutex_lock(&lock);
  while (tail - head == capacity) pthread_cond_wait(&not_full, &lock);
  queue[tail++ % capacity] = *batch;
  if (tail - head > capacity * 3 / 4) pthread_cond_signal(&enough);
  pthread_mutex_unlock(&lock);
}

static void *produce(void *arg) {
  producer_t *me = arg;
  const uint64_t min = args[MIN].value, span = args[MAX].value - min + 1;
  for (uint64_t left = me->blocks; left > 0;) {
    batch_t batch = {.count = left < BATCH ? left : BATCH};
    for (uint64_t i = 0; i < batch.count; i++)
      batch.blocks[i] = alloc_marked(min + bench_high(bench_next(&me->rng), span));
    left -= batch.count;
    push(&batch);
  }
  pthread_mutex_lock(&lock);
  if (--producing == 0) pthread_cond_signal(&enough);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static void *consume(void *arg) {
  uint64_t *freed = arg;
  for (;;) {
    pthread_mutex_lock(&lock);
    while (tail - head <= capacity * 3 / 4 && producing != 0) pthread_cond_wait(&enough, &lock);
    if (tail == head) break;
    batch_t batch = queue[head++ % capacity];
    pthread_cond_signal(&not_full);
    pthread_mutex_unlock(&lock);
    for (uint64_t i = 0; i < batch.count; i++) free_marked(batch.blocks[i], args[MAX].value);
    *freed += batch.count;
  }
  consumed = true;
  pthread_cond_signal(&ended);
  pthread_mutex_unlock(&lock);
  return NULL;
}

// Reads resident memory until the producers are done; returns the number of readings.
static uint64_t watch(uint64_t *readings) {
  uint64_t count = 0;
  pthread_mutex_lock(&lock);
  while (producing != 0 && !consumed) {
    pthread_mutex_unlock(&lock);
    if (count < READINGS) readings[count++] = case_rss_kib();
    case_sleep_until(bench_now_ns() + INTERVAL_NS);
    pthread_mutex_lock(&lock);
  }
  while (!consumed) pthread_cond_wait(&ended, &lock);
  pthread_mutex_unlock(&lock);
  return count;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_producer",
               .what = "Threads that only allocate, one that only frees, bounded live memory.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "MIN is above MAX");
  producing = args[PRODUCERS].value;
  capacity = (args[LIVE_KIB].value << 10) / ((args[MIN].value + args[MAX].value) / 2 * BATCH) + 2;
  queue = bench_map(capacity * sizeof *queue);
  uint64_t *readings = bench_map(READINGS * sizeof *readings);
  producer_t *producers = bench_map(producing * sizeof *producers);
  pthread_t *ids = bench_map(producing * sizeof *ids);
  const uint64_t threads = producing, base = case_rss_kib();
  uint64_t freed = 0, allocated = 0;
  uint64_t start = bench_now_ns();
  pthread_t consumer = start_thread(consume, &freed);
  for (uint64_t i = 0; i < threads; i++) {
    producers[i] = (producer_t){.rng = bench_rng(args[SEED].value, i),
                                .blocks = args[BLOCKS].value / threads};
    ids[i] = start_thread(produce, &producers[i]);
    allocated += producers[i].blocks;
  }
  uint64_t count = watch(readings);
  for (uint64_t i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  pthread_join(consumer, NULL);
  bench_run_t run = {.ops = allocated + freed, .ns = bench_now_ns() - start};
  if (freed != allocated) bench_wrong("number of blocks freed");
  uint64_t steady = case_median(readings + count / 2, count - count / 2);
  double live = (double)args[LIVE_KIB].value;
  double held = steady > base ? (double)(steady - base) : 0;
  bench_report_extra(&b, run, (bench_run_t){0}, bench_peak_rss_kib(),
                     (bench_value_t[]){{"base_rss_kib", (double)base},
                                       {"steady_rss_kib", held},
                                       {"rss_per_live", held / live},
                                       {0}});
  return 0;
}
