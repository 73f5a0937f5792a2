// case_churn_threads: a thread per request. Each thread is short-lived, allocates, and leaves
// some of its blocks (a result, a cache entry) to be freed by the next.
//
// THREADS threads run in all, AT_ONCE at a time, which are then all replaced. Each allocates
// BLOCKS, frees what its predecessor left and all but every KEEPth of its own. Resident memory
// is read after the first eighth of the threads and at the end: it must not grow.

#include "cases.h"

enum { THREADS, AT_ONCE, BLOCKS, KEEP, MIN, MAX, SEED };

static bench_arg_t args[] = {
    {"THREADS", "that live in all", 8000, 8, UINT32_MAX},
    {"AT_ONCE", "threads at a time", 1, 1, 1024},
    {"BLOCKS", "of each thread", 200, 1, 1 << 20},
    {"KEEP", "each so manyth block is left to the next thread", 4, 1, 1 << 20},
    {"MIN", "smallest block in bytes", 16, MARK_MIN, 1 << 30},
    {"MAX", "largest block in bytes", 2032, MARK_MIN, 1 << 30},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

// What one thread hands to its successor.
typedef struct line {
  void **left;
  uint64_t count;
  void **own;
  bench_rng_t rng;
  uint64_t ops;
} __attribute__((aligned(128))) line_t;

static void free_left(line_t *line) {
  for (uint64_t i = 0; i < line->count; i++) free_marked(line->left[i], args[MAX].value);
  line->ops += line->count;
  line->count = 0;
}

static void *act(void *arg) {
  line_t *me = arg;
  const uint64_t blocks = args[BLOCKS].value, keep = args[KEEP].value;
  const uint64_t min = args[MIN].value, span = args[MAX].value - min + 1;
  for (uint64_t i = 0; i < blocks; i++)
    me->own[i] = alloc_marked(min + bench_high(bench_next(&me->rng), span));
  free_left(me);
  for (uint64_t i = 0; i < blocks; i++) {
    if (i % keep == 0) me->left[me->count++] = me->own[i];
    else free_marked(me->own[i], args[MAX].value);
  }
  me->ops += blocks + blocks - me->count;
  return NULL;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_churn_threads",
               .what = "Short threads, each of which leaves blocks to the next.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "MIN is above MAX");
  const uint64_t at_once = args[AT_ONCE].value, rounds = args[THREADS].value / at_once;
  if (rounds < 8) bench_usage(&b, "THREADS is below 8 * AT_ONCE");
  line_t *lines = bench_map(at_once * sizeof *lines);
  for (uint64_t i = 0; i < at_once; i++) {
    lines[i].rng = bench_rng(args[SEED].value, i);
    lines[i].left = bench_map(args[BLOCKS].value * sizeof(void *));
    lines[i].own = bench_map(args[BLOCKS].value * sizeof(void *));
  }
  const uint64_t base = case_rss_kib();
  uint64_t early = 0, start = bench_clock_ns(args[AT_ONCE].value);
  for (uint64_t round = 0; round < rounds; round++) {
    if (round == rounds / 8) early = case_rss_kib();
    run_team(at_once, act, lines, sizeof *lines);
  }
  bench_run_t run = {.ns = bench_clock_ns(args[AT_ONCE].value) - start};
  const uint64_t end = case_rss_kib();
  for (uint64_t i = 0; i < at_once; i++) {
    free_left(&lines[i]);
    run.ops += lines[i].ops;
  }
  if (run.ops != 2 * rounds * at_once * args[BLOCKS].value) bench_wrong("number of blocks freed");
  bench_report_extra(&b, run, (bench_run_t){0}, bench_peak_rss_kib(),
                     (bench_value_t[]){{"thread_ns", (double)run.ns / (double)(rounds * at_once)},
                                       {"base_rss_kib", (double)base},
                                       {"early_rss_kib", (double)early - (double)base},
                                       {"end_rss_kib", (double)end - (double)base},
                                       {"growth_kib", (double)end - (double)early},
                                       {0}});
  return 0;
}
