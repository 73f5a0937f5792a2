// malloc_large: few blocks of many MiB, after the idea of malloc-large in mimalloc-bench
// (D. Leijen).
//
// There are 20 slots. An iteration frees the block of a random slot and allocates one of 5 to
// 25 MiB in its place; one byte per STRIDE is written. It shows what an allocator does with
// memory from the system: it returns it at once, so that it must be cleared and faulted in
// again, or keeps it, or keeps it too long.

#include "standard.h"

enum { ITER, STRIDE, SEED };
enum { SLOTS = 20 };
static const size_t min_size = (size_t)5 << 20, max_size = (size_t)25 << 20;

static bench_arg_t args[] = {
    {"ITER", "replacements", 400, 1, UINT32_MAX},
    {"STRIDE", "bytes from one written byte to the next", 16384, 64, 1 << 30},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

static void *alloc_written(size_t size) {
  char *p = alloc_marked(size);
  for (size_t at = args[STRIDE].value; at < size - 1; at += args[STRIDE].value)
    ((volatile char *)p)[at] = (char)(at / args[STRIDE].value);
  return p;
}

static void free_written(char *p) {
  size_t size = unmark(p, max_size);
  for (size_t at = args[STRIDE].value; at < size - 1; at += args[STRIDE].value)
    if (((volatile char *)p)[at] != (char)(at / args[STRIDE].value))
      bench_wrong("a block's content");
  free(p);
}

int main(int argc, char **argv) {
  bench_t b = {.name = "malloc_large",
               .what = "One thread that replaces blocks of 5 to 25 MiB.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  void *slots[SLOTS] = {0};
  bench_run_t run = {0};
  uint64_t start = bench_cpu_ns();
  for (uint64_t i = 0; i < args[ITER].value; i++) {
    uint64_t random = bench_next(&rng);
    void **slot = &slots[bench_high(random, SLOTS)];
    if (*slot != NULL) free_written(*slot);
    *slot = alloc_written(min_size + bench_low(random, max_size - min_size + 1));
  }
  for (unsigned i = 0; i < SLOTS; i++)
    if (slots[i] != NULL) free_written(slots[i]);
  run.ns = bench_cpu_ns() - start;
  run.ops = 2 * args[ITER].value;
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
