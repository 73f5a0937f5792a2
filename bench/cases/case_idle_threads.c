// case_idle_threads: many threads that each allocated a little and now sleep.
//
// thread_kib is resident memory per thread, stacks included (they are the same for all
// allocators).

#include "../common.h"

#include <pthread.h>

enum { THREADS, BLOCKS };
static bench_arg_t args[] = {
    {"THREADS", "that sleep", 400, 1, 4000},
    {"BLOCKS", "that each allocates, of 16 to 1039 bytes; half of them stay", 200, 1, 100000},
    {0},
};

static pthread_barrier_t done, end;

static void *act(void *number) {
  bench_rng_t rng = bench_rng(42, (uint64_t)(uintptr_t)number);
  void **blocks = calloc(args[BLOCKS].value, sizeof *blocks);
  if (blocks == NULL) bench_die("calloc");
  for (uint64_t i = 0; i < args[BLOCKS].value; i++) {
    size_t size = 16 + bench_low(bench_next(&rng), 1024);
    if ((blocks[i] = malloc(size)) == NULL) bench_die("malloc");
    memset(blocks[i], 1, size);
  }
  for (uint64_t i = 0; i < args[BLOCKS].value; i += 2) free(blocks[i]);
  pthread_barrier_wait(&done);
  pthread_barrier_wait(&end);
  for (uint64_t i = 1; i < args[BLOCKS].value; i += 2) free(blocks[i]);
  free(blocks);
  return NULL;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_idle_threads", .what = "Threads that hold a little and sleep.", .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  unsigned threads = (unsigned)args[THREADS].value;
  pthread_t *ids = bench_map(threads * sizeof *ids);
  pthread_barrier_init(&done, NULL, threads + 1);
  pthread_barrier_init(&end, NULL, threads + 1);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 10);
  double before = bench_rss_kib();
  uint64_t start = bench_now_ns();
  for (unsigned i = 0; i < threads; i++)
    if (pthread_create(&ids[i], &attributes, act, (void *)(uintptr_t)i) != 0) bench_die("pthread_create");
  pthread_barrier_wait(&done);
  b.extra[0] = (bench_extra_t){"thread_kib", (bench_rss_kib() - before) / threads};
  pthread_barrier_wait(&end);
  for (unsigned i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  bench_run_t run = {.ops = 2 * threads * (args[BLOCKS].value + 1), .ns = bench_now_ns() - start};
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
