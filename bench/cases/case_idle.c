// case_idle: a program has passed its peak, has freed everything, and now has nothing to do.
// How much memory does it still hold?
//
// THREADS threads together allocate MIB and free it (with --keep, all but that percentage of
// randomly chosen blocks). Then all sleep, and nothing calls malloc or free any more. Resident
// memory is read at the peak, right after the frees and 0.5, 1, 2 and 3 seconds later.

#include "cases.h"

enum { MIB, SIZE, THREADS, SLEEP_MS, SEED, KEEP };
enum { MIXED_MIN = 16, MIXED_MAX = 1039, READINGS = 4 };

static bench_arg_t args[] = {
    {"MIB", "allocated by all threads together", 300, 1, 1 << 20},
    {"SIZE", "of the blocks in bytes; 0: 16 to 1039", 0, 0, 1 << 30},
    {"THREADS", "threads", 2, 1, 1024},
    {"SLEEP_MS", "after the frees; at least 2000 for idle_rss_kib", 3000, 0, 100000},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {"--keep", "percent of the blocks that stay", 0, 0, 100},
    {0},
};

typedef struct actor {
  void **blocks; // room for `room`
  uint64_t room;
  uint64_t count;
  uint64_t kept, kept_bytes;
  bench_rng_t rng;
} __attribute__((aligned(128))) actor_t;

// For all threads and main. Its rounds are: allocated, go on, freed, end.
static pthread_barrier_t barrier;

static void *act(void *arg) {
  actor_t *me = arg;
  const uint64_t size = args[SIZE].value, bytes = (args[MIB].value << 20) / args[THREADS].value;
  for (uint64_t sum = 0; sum < bytes && me->count < me->room;) {
    size_t one = size != 0 ? size
                           : MIXED_MIN + bench_high(bench_next(&me->rng), MIXED_MAX - MIXED_MIN + 1);
    if (one < MARK_MIN) one = MARK_MIN;
    me->blocks[me->count++] = case_alloc_paged(one);
    sum += one;
  }
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  for (uint64_t i = 0; i < me->count; i++) {
    if (bench_high(bench_next(&me->rng), 100) < args[KEEP].value) me->blocks[me->kept++] = me->blocks[i];
    else free_marked(me->blocks[i], 1 << 30);
  }
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  for (uint64_t i = 0; i < me->kept; i++) {
    me->kept_bytes += unmark(me->blocks[i], 1 << 30);
    free(me->blocks[i]);
  }
  return NULL;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_idle",
               .what = "Memory held by a program that freed everything and sleeps.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  const uint64_t threads = args[THREADS].value, sleep_ms = args[SLEEP_MS].value;
  const uint64_t least = args[SIZE].value != 0 ? args[SIZE].value : (MIXED_MIN + MIXED_MAX) / 2;
  actor_t *actors = bench_map(threads * sizeof *actors);
  for (uint64_t i = 0; i < threads; i++) {
    actors[i].rng = bench_rng(args[SEED].value, i);
    actors[i].room = (args[MIB].value << 20) / threads / (least < MARK_MIN ? MARK_MIN : least) * 9 / 8 + 16;
    actors[i].blocks = bench_map(actors[i].room * sizeof(void *));
  }
  pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
  pthread_t *ids = bench_map(threads * sizeof *ids);
  const uint64_t base = case_rss_kib(); // includes the tables
  bench_run_t run = {0};
  uint64_t start = bench_now_ns();
  for (uint64_t i = 0; i < threads; i++) ids[i] = start_thread(act, &actors[i]);
  pthread_barrier_wait(&barrier);
  run.ns = bench_now_ns() - start;
  const uint64_t peak = case_rss_kib();
  start = bench_now_ns();
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  const uint64_t freed_at = bench_now_ns();
  run.ns += freed_at - start;
  uint64_t rss[READINGS + 1] = {case_rss_kib()};
  static const uint64_t after_ms[READINGS + 1] = {0, 500, 1000, 2000, 3000};
  unsigned last = 0;
  while (last < READINGS && after_ms[last + 1] <= sleep_ms) {
    last++;
    case_sleep_until(freed_at + after_ms[last] * 1000000u);
    rss[last] = case_rss_kib();
  }
  for (unsigned i = last + 1; i <= READINGS; i++) rss[i] = rss[last];
  pthread_barrier_wait(&barrier);
  uint64_t kept = 0;
  for (uint64_t i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    run.ops += 2 * actors[i].count - actors[i].kept;
    kept += actors[i].kept_bytes;
  }
  // Subtracts the program's own tables, which stay resident.
#define KIB(value) ((value) > base ? (double)((value) - base) : 0.0)
  bench_report_extra(&b, run, (bench_run_t){0}, bench_peak_rss_kib(),
                     (bench_value_t[]){{"base_rss_kib", (double)base},
                                       {"live_kib", (double)(kept >> 10)},
                                       {"full_rss_kib", KIB(peak)},
                                       {"freed_rss_kib", KIB(rss[0])},
                                       {"idle_500ms_rss_kib", KIB(rss[1])},
                                       {"idle_1s_rss_kib", KIB(rss[2])},
                                       {"idle_rss_kib", KIB(rss[3])},
                                       {"idle_3s_rss_kib", KIB(rss[4])},
                                       {0}});
  return 0;
}
