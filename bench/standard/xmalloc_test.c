// xmalloc_test: blocks that one thread allocates and another one frees, after
// C. Lever and D. Boreham, "malloc() Performance in a Multithreaded Linux
// Environment", USENIX 2000.
//
// Half of THREADS are producers: each allocates a batch, which is a block with room
// for BATCH addresses, and that many blocks, and puts it into a queue that all share.
// The others are consumers: each takes a batch and frees its blocks and then the batch.
// The queue is bounded, so that the memory in use is the same for every allocator.

#include "standard.h"

enum { THREADS, BATCHES, SIZE, SEED };
enum { BATCH = 1024, QUEUED_PER_PRODUCER = 4, LOG_MIN = 3, LOG_MAX = 11 };

static bench_arg_t args[] = {
    {"THREADS", "producers and consumers together", 2, 2, 4096},
    {"BATCHES", "of 1024 blocks, allocated by all together", 10000, 1, UINT32_MAX},
    {"SIZE", "of a block in bytes; 0: random, 8 to 2047", 0, 0, 1 << 20},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct batch {
  struct batch *next;
  void *blocks[BATCH];
} batch_t;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed; // a batch came or went, or the last producer has finished
  batch_t *first;         // the oldest; all fields below are protected by the lock
  batch_t **end;
  uint64_t count;
  uint64_t limit;
  uint64_t to_make; // batches that no producer has begun yet
  uint64_t to_take; // batches that no consumer has taken yet
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

typedef struct actor {
  bench_rng_t rng;
  bool produces;
  uint64_t ops;
} __attribute__((aligned(128))) actor_t;

static bool may_make(void) {
  pthread_mutex_lock(&queue.lock);
  bool any = queue.to_make != 0;
  if (any) queue.to_make--;
  pthread_mutex_unlock(&queue.lock);
  return any;
}

static void put(batch_t *batch) {
  batch->next = NULL;
  pthread_mutex_lock(&queue.lock);
  while (queue.count == queue.limit) pthread_cond_wait(&queue.changed, &queue.lock);
  *queue.end = batch;
  queue.end = &batch->next;
  queue.count++;
  pthread_cond_broadcast(&queue.changed);
  pthread_mutex_unlock(&queue.lock);
}

// NULL once all batches are taken.
static batch_t *take(void) {
  batch_t *batch = NULL;
  pthread_mutex_lock(&queue.lock);
  if (queue.to_take != 0) {
    queue.to_take--;
    while (queue.count == 0) pthread_cond_wait(&queue.changed, &queue.lock);
    batch = queue.first;
    queue.first = batch->next;
    if (queue.first == NULL) queue.end = &queue.first;
    queue.count--;
    pthread_cond_broadcast(&queue.changed);
  }
  pthread_mutex_unlock(&queue.lock);
  return batch;
}

static void produce(actor_t *me) {
  const size_t fixed = args[SIZE].value;
  while (may_make()) {
    batch_t *batch = bench_alloc(NULL, sizeof *batch);
    for (unsigned i = 0; i < BATCH; i++)
      batch->blocks[i] =
          alloc_marked(fixed != 0 ? fixed : bench_log_size(&me->rng, LOG_MIN, LOG_MAX));
    put(batch);
    me->ops += BATCH + 1;
  }
}

static void consume(actor_t *me) {
  const size_t max = args[SIZE].value != 0 ? args[SIZE].value : (size_t)1 << LOG_MAX;
  for (batch_t *batch; (batch = take()) != NULL;) {
    for (unsigned i = 0; i < BATCH; i++) free_marked(batch->blocks[i], max);
    free(batch);
    me->ops += BATCH + 1;
  }
}

static void *act(void *arg) {
  actor_t *me = arg;
  if (me->produces) produce(me);
  else consume(me);
  return NULL;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "xmalloc_test",
               .what = "Producers allocate batches of blocks, consumers free them.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[SIZE].value != 0 && args[SIZE].value < MARK_MIN) bench_usage(&b, "SIZE is below 8");

  const uint64_t threads = args[THREADS].value;
  actor_t *actors = bench_map(threads * sizeof *actors);
  for (uint64_t i = 0; i < threads; i++) {
    actors[i].rng = bench_rng(args[SEED].value, i);
    actors[i].produces = i % 2 == 0;
  }
  queue.end = &queue.first;
  queue.limit = QUEUED_PER_PRODUCER * ((threads + 1) / 2);
  queue.to_make = queue.to_take = args[BATCHES].value;

  uint64_t start = bench_now_ns();
  run_team(threads, act, actors, sizeof *actors);
  bench_run_t run = {.ns = bench_now_ns() - start};
  for (uint64_t i = 0; i < threads; i++) run.ops += actors[i].ops;
  if (run.ops != 2 * (BATCH + 1) * args[BATCHES].value) bench_wrong("number of blocks freed");
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
