// case_idle: what stays resident after a peak, when every thread sleeps.
//
// Each thread allocates its share of MIB in blocks of SIZE bytes, writes and frees
// them, then sleeps. idle_rss_kib is the resident memory two seconds later.

#include "../common.h"

#include <pthread.h>

enum { THREADS, MIB, SIZE, SECONDS };
static bench_arg_t args[] = {
    {"THREADS", "threads", 2, 1, 64},
    {"MIB", "allocated by all together", 300, 1, 65536},
    {"SIZE", "bytes per block", 1000, 1, 1 << 20},
    {"SECONDS", "of sleep", 2, 1, 60},
    {0},
};

static pthread_barrier_t peak, freed, end;

static void *act(void *unused) {
  (void)unused;
  size_t count = (args[MIB].value << 20) / args[SIZE].value / args[THREADS].value;
  void **blocks = bench_map(count * sizeof *blocks);
  for (size_t i = 0; i < count; i++) {
    blocks[i] = malloc(args[SIZE].value);
    if (blocks[i] == NULL) bench_die("malloc");
    memset(blocks[i], (int)i, args[SIZE].value);
  }
  pthread_barrier_wait(&peak);
  for (size_t i = 0; i < count; i++) {
    if (*(unsigned char *)blocks[i] != (unsigned char)i) abort();
    free(blocks[i]);
  }
  munmap(blocks, count * sizeof *blocks);
  pthread_barrier_wait(&freed);
  pthread_barrier_wait(&end); // asleep
  return NULL;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_idle", .what = "Resident memory when all is freed and all threads sleep.",
               .args = args, .no_net = true};
  bench_parse(&b, argc, argv);
  unsigned threads = (unsigned)args[THREADS].value;
  pthread_t ids[64];
  pthread_barrier_init(&peak, NULL, threads + 1);
  pthread_barrier_init(&freed, NULL, threads + 1);
  pthread_barrier_init(&end, NULL, threads + 1);
  uint64_t start = bench_now_ns();
  for (unsigned i = 0; i < threads; i++)
    if (pthread_create(&ids[i], NULL, act, NULL) != 0) bench_die("pthread_create");
  pthread_barrier_wait(&peak);
  pthread_barrier_wait(&freed);
  uint64_t ns = bench_now_ns() - start;
  b.extra[0] = (bench_extra_t){"freed_rss_kib", bench_rss_kib()};
  sleep((unsigned)args[SECONDS].value);
  b.extra[1] = (bench_extra_t){"idle_rss_kib", bench_rss_kib()};
  pthread_barrier_wait(&end);
  for (unsigned i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  uint64_t ops = 2 * ((args[MIB].value << 20) / args[SIZE].value / threads) * threads;
  bench_report(&b, (bench_run_t){.ops = ops, .ns = ns}, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
