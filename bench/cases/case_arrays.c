// case_arrays: a program that computes on whole arrays. Each array is new memory that is
// written from one end to the other, read once, and freed a little later.
//
// COUNT arrays of random sizes from MIN_MIB to MAX_MIB follow each other, LIVE at a time; each
// new one replaces a random old one. With --sparse N every N-th array is used sparsely: only
// the first OS page of each 64 KiB is written, so huge pages are wasted. An op is an array.

#include "cases.h"

enum { COUNT, LIVE, MIN_MIB, MAX_MIB, SEED, SPARSE };
enum { SPARSE_STRIDE = 65536 };

static bench_arg_t args[] = {
    {"COUNT", "arrays", 40, 1, 1 << 20},
    {"LIVE", "of them at a time", 4, 1, 1 << 16},
    {"MIN_MIB", "of an array, at least", 8, 1, 1 << 20},
    {"MAX_MIB", "of an array, at most", 64, 1, 1 << 20},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {"--sparse", "every so many is used sparsely; 0: none", 0, 0, 1 << 20},
    {0},
};

typedef struct array {
  unsigned char *bytes;
  size_t size, stride; // written: the first `written` bytes of each stride
  size_t written;
  unsigned char value;
} array_t;

static array_t make(size_t size, bool sparse, unsigned char value) {
  array_t a = {.bytes = bench_alloc(NULL, size), .size = size, .value = value};
  a.stride = sparse ? SPARSE_STRIDE : size;
  a.written = sparse ? BENCH_OS_PAGE : size;
  for (size_t at = 0; at < size; at += a.stride) memset(a.bytes + at, value, a.written);
  return a;
}

static void release(array_t *a) {
  uint64_t sum = 0;
  for (size_t at = 0; at < a->size; at += a->stride)
    for (size_t i = 0; i < a->written; i++) sum += a->bytes[at + i];
  if (sum != a->size / a->stride * a->written * a->value) bench_wrong("the content of an array");
  free(a->bytes);
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_arrays",
               .what = "Large arrays, written and read in full.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  const uint64_t count = args[COUNT].value, live = args[LIVE].value;
  const uint64_t min = args[MIN_MIB].value << 20, max = args[MAX_MIB].value << 20;
  if (min > max) bench_usage(&b, "MIN_MIB is above MAX_MIB");
  array_t *arrays = bench_map(live * sizeof *arrays);
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  uint64_t bytes = 0;
  const uint64_t start = bench_cpu_ns();
  for (uint64_t i = 0; i < count; i++) {
    array_t *a = &arrays[i < live ? i : bench_high(bench_next(&rng), live)];
    size_t size =
        min + bench_high(bench_next(&rng), (max - min) / SPARSE_STRIDE + 1) * SPARSE_STRIDE;
    bool sparse = args[SPARSE].value != 0 && i % args[SPARSE].value == args[SPARSE].value - 1;
    if (a->bytes != NULL) release(a);
    *a = make(size, sparse, (unsigned char)(i % 255 + 1));
    bytes += size;
  }
  const uint64_t peak = bench_peak_rss_kib();
  for (uint64_t i = 0; i < live && i < count; i++) release(&arrays[i]);
  bench_run_t run = {.ops = count, .ns = bench_cpu_ns() - start};
  bench_report_extra(&b, run, (bench_run_t){0}, peak,
                     (bench_value_t[]){{"mib", (double)(bytes >> 20)}, {0}});
  return 0;
}
