// case_idle_threads: a pool of many threads, each of which has done a little and now waits.
// How much memory does each thread hold?
//
// THREADS threads allocate BLOCKS blocks of MIN to MAX bytes each, free every other one,
// and sleep. The figure is resident memory a tenth of a second later, less that before the
// threads were started, divided by their number: blocks, what the allocator keeps for a
// thread, and the stack's pages, which are the same under all allocators.

#include "cases.h"

enum { THREADS, BLOCKS, MIN, MAX, SEED };
enum { STACK = 256 << 10, WAIT_NS = 100000000 };

static bench_arg_t args[] = {
    {"THREADS", "threads", 500, 1, 10000},
    {"BLOCKS", "that each allocates", 64, 1, 1 << 20},
    {"MIN", "smallest block in bytes", 16, MARK_MIN, 1 << 30},
    {"MAX", "largest block in bytes", 1039, MARK_MIN, 1 << 30},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct actor {
  bench_rng_t rng;
  void **blocks;
  uint64_t live; // bytes
} actor_t;

// For all threads and main. Its rounds are: asleep, and woken up again.
static pthread_barrier_t barrier;

static void *act(void *arg) {
  actor_t *me = arg;
  const uint64_t min = args[MIN].value, span = args[MAX].value - min + 1;
  for (uint64_t i = 0; i < args[BLOCKS].value; i++) {
    size_t size = min + bench_high(bench_next(&me->rng), span);
    me->blocks[i] = case_alloc_paged(size);
    if (i % 2 == 0) me->live += size;
  }
  for (uint64_t i = 1; i < args[BLOCKS].value; i += 2) free_marked(me->blocks[i], args[MAX].value);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  for (uint64_t i = 0; i < args[BLOCKS].value; i += 2) free_marked(me->blocks[i], args[MAX].value);
  return NULL;
}

static pthread_t start_small(actor_t *actor) {
  pthread_attr_t attributes;
  pthread_t id;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK);
  int error = pthread_create(&id, &attributes, act, actor);
  if (error != 0) {
    errno = error;
    bench_die("pthread_create");
  }
  pthread_attr_destroy(&attributes);
  return id;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_idle_threads",
               .what = "Memory held by many threads that allocated a little and sleep.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "MIN is above MAX");
  const uint64_t threads = args[THREADS].value, blocks = args[BLOCKS].value;
  actor_t *actors = bench_map(threads * sizeof *actors);
  void **tables = bench_map(threads * blocks * sizeof *tables);
  pthread_t *ids = bench_map(threads * sizeof *ids);
  pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
  const uint64_t base = case_rss_kib();
  uint64_t start = bench_now_ns();
  for (uint64_t i = 0; i < threads; i++) {
    actors[i] = (actor_t){.rng = bench_rng(args[SEED].value, i), .blocks = tables + i * blocks};
    ids[i] = start_small(&actors[i]);
  }
  pthread_barrier_wait(&barrier);
  uint64_t asleep = bench_now_ns();
  bench_run_t run = {.ns = asleep - start, .ops = 2 * threads * blocks};
  case_sleep_until(asleep + WAIT_NS);
  const uint64_t rss = case_rss_kib();
  start = bench_now_ns();
  pthread_barrier_wait(&barrier);
  uint64_t live = 0;
  for (uint64_t i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    live += actors[i].live;
  }
  run.ns += bench_now_ns() - start;
  const double each = (double)threads, held = (double)rss - (double)base;
  bench_report_extra(&b, run, (bench_run_t){0}, bench_peak_rss_kib(),
                     (bench_value_t[]){{"base_rss_kib", (double)base},
                                       {"threads_rss_kib", held},
                                       {"rss_per_thread_kib", held / each},
                                       {"live_per_thread_kib", (double)live / 1024 / each},
                                       {"ended_rss_kib", (double)case_rss_kib() - (double)base},
                                       {0}});
  return 0;
}
