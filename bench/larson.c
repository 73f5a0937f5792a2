// larson: a server whose workers come and go, after P. Larson and M. Krishnan,
// "Memory Allocation for Long-Running Server Applications", ISMM 1998.
//
// THREADS lines of workers run at a time. A worker owns CHUNKS blocks and replaces
// randomly chosen ones by new ones of random size. After ROUNDS * CHUNKS replacements
// it starts a successor, hands its blocks over and ends. So most blocks are freed by a
// thread other than the one that allocated them, often after that thread has ended.
// The main thread allocates the first blocks. A replacement counts as two ops.

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "common.h"

enum { SECONDS, MIN, MAX, CHUNKS, ROUNDS, SEED, THREADS };

static bench_arg_t args[] = {
    {"SECONDS", "to run", 5, 1, 100000},
    {"MIN", "smallest block in bytes", 8, 1, UINT32_MAX - 1},
    {"MAX", "largest block in bytes", 1000, 1, UINT32_MAX - 1},
    {"CHUNKS", "blocks per worker", 5000, 1, UINT32_MAX},
    {"ROUNDS", "replacements of a worker, in units of CHUNKS", 100, 1, UINT32_MAX},
    {"SEED", "of the random numbers", 4141, 0, UINT64_MAX},
    {"THREADS", "workers at a time", 4, 1, 4096},
    {0},
};

// A line of workers. Only its current worker touches it, except where a field's comment
// says otherwise. A worker hands it over by pthread_create, which synchronises.
typedef struct line {
  void **blocks;
  bench_ring_t ring; // base is NULL in the real run
  bench_rng_t rng;
  uint64_t ops;
  bool has_predecessor;
  pthread_t predecessor;
  pthread_t last; // valid for the main thread once `ended` was posted
  sem_t ended;
} __attribute__((aligned(128))) line_t;

// Set by the main thread when time is up. Relaxed: it publishes nothing else, and a
// worker that sees it late only does a few more replacements.
static atomic_bool time_is_up;

static BENCH_INLINE void replace_blocks(bench_ring_t *ring, line_t *line) {
  const uint64_t chunks = args[CHUNKS].value, replacements = chunks * args[ROUNDS].value;
  const uint64_t min = args[MIN].value, span = args[MAX].value - min + 1;
  bench_rng_t rng = line->rng;
  uint64_t i = 0;
  for (; i < replacements; i++) {
    if (atomic_load_explicit(&time_is_up, memory_order_relaxed)) break;
    uint64_t random = bench_next(&rng);
    void **slot = &line->blocks[bench_high(random, chunks)];
    size_t size = min + bench_low(random, span);
    bench_free(ring, *slot);
    *slot = bench_alloc(ring, size);
    bench_touch(*slot, 0);
    bench_touch(*slot, size - 1);
  }
  line->rng = rng;
  line->ops += 2 * i;
}

static BENCH_NOINLINE void replace_real(line_t *line) { replace_blocks(NULL, line); }

static BENCH_NOINLINE void replace_floor(line_t *line) {
  bench_ring_t local = line->ring;
  replace_blocks(&local, line);
  line->ring = local;
}

static void *worker(void *arg) {
  line_t *line = arg;
  bool has_predecessor = line->has_predecessor;
  pthread_t predecessor = line->predecessor;
  if (line->ring.base != NULL) replace_floor(line);
  else replace_real(line);
  // Joined only now, so that the end of one worker overlaps with its successor's work.
  if (has_predecessor) pthread_join(predecessor, NULL);

  if (atomic_load_explicit(&time_is_up, memory_order_relaxed)) {
    line->last = pthread_self();
    sem_post(&line->ended);
    return NULL;
  }
  line->has_predecessor = true;
  line->predecessor = pthread_self();
  pthread_t successor;
  int error = pthread_create(&successor, NULL, worker, line);
  if (error != 0) {
    errno = error;
    bench_die("pthread_create");
  }
  return NULL;
}

static bench_run_t run(line_t *lines, uint64_t nanoseconds) {
  const uint64_t threads = args[THREADS].value;
  bench_run_t run = {0};
  atomic_store_explicit(&time_is_up, false, memory_order_relaxed);
  uint64_t start = bench_clock_ns(args[THREADS].value);
  for (uint64_t i = 0; i < threads; i++) {
    pthread_t first;
    lines[i].ops = 0;
    lines[i].has_predecessor = false;
    int error = pthread_create(&first, NULL, worker, &lines[i]);
    if (error != 0) {
      errno = error;
      bench_die("pthread_create");
    }
  }
  struct timespec left = {.tv_sec = (time_t)(nanoseconds / 1000000000u),
                          .tv_nsec = (long)(nanoseconds % 1000000000u)};
  while (nanosleep(&left, &left) != 0) continue;
  atomic_store_explicit(&time_is_up, true, memory_order_relaxed);
  for (uint64_t i = 0; i < threads; i++) {
    while (sem_wait(&lines[i].ended) != 0) continue;
    pthread_join(lines[i].last, NULL);
    run.ops += lines[i].ops;
  }
  run.ns = bench_clock_ns(args[THREADS].value) - start;
  return run;
}

static void fill_line(line_t *line, uint64_t stream) {
  const uint64_t min = args[MIN].value, span = args[MAX].value - min + 1;
  if (sem_init(&line->ended, 0, 0) != 0) bench_die("sem_init");
  line->rng = bench_rng(args[SEED].value, stream);
  line->blocks = bench_map(args[CHUNKS].value * sizeof *line->blocks);
  for (uint64_t i = 0; i < args[CHUNKS].value; i++) {
    size_t size = min + bench_low(bench_next(&line->rng), span);
    line->blocks[i] = bench_alloc(NULL, size);
    bench_touch(line->blocks[i], 0);
    bench_touch(line->blocks[i], size - 1);
  }
}

int main(int argc, char **argv) {
  bench_t b = {.name = "larson",
               .what = "A server whose worker threads inherit each other's blocks.",
               .args = args};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "MIN is above MAX");

  line_t *lines = bench_map(args[THREADS].value * sizeof *lines);
  for (uint64_t i = 0; i < args[THREADS].value; i++) fill_line(&lines[i], i);
  uint64_t nanoseconds = args[SECONDS].value * 1000000000u;
  bench_run_t real = run(lines, nanoseconds), floor = {0};
  uint64_t rss = bench_peak_rss_kib();
  for (uint64_t i = 0; i < args[THREADS].value; i++)
    for (uint64_t k = 0; k < args[CHUNKS].value; k++) free(lines[i].blocks[k]);
  if (b.net) {
    uint64_t live = args[CHUNKS].value * (args[MIN].value + args[MAX].value) / 2;
    for (uint64_t i = 0; i < args[THREADS].value; i++)
      lines[i].ring = bench_ring(live, args[MAX].value);
    for (int i = 0; i < BENCH_FLOOR_RUNS; i++)
      floor = bench_least(floor, run(lines, nanoseconds / BENCH_FLOOR_RUNS));
  }
  bench_report(&b, real, floor, rss);
  return 0;
}
