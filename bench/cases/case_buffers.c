// case_buffers: a server's buffers. Each is as large as the largest message, but most messages
// are short: the memory behind them is never touched and should not be resident.
//
// Allocates COUNT buffers of KIB and writes the first USED_KIB of each. Then, ROUNDS times,
// frees a random one and allocates another in its place. With USED_KIB = KIB the buffers are
// used in full. Resident memory is read at the end, with all buffers live. An op is a buffer.

#include "cases.h"

enum { COUNT, KIB, USED_KIB, ROUNDS, SEED };

static bench_arg_t args[] = {
    {"COUNT", "buffers at a time", 1000, 1, 1 << 20},
    {"KIB", "of a buffer", 256, 1, 1 << 20},
    {"USED_KIB", "of it, from its start", 8, 1, 1 << 20},
    {"ROUNDS", "buffers replaced", 2000, 0, 1 << 30},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct buffer {
  unsigned char *bytes;
  unsigned char value;
} buffer_t;

static buffer_t make(size_t size, size_t used, unsigned char value) {
  buffer_t b = {.bytes = bench_alloc(NULL, size), .value = value};
  memset(b.bytes, value, used);
  return b;
}

static void release(const buffer_t *b, size_t used) {
  if (b->bytes[0] != b->value || b->bytes[used - 1] != b->value)
    bench_wrong("the content of a buffer");
  free(b->bytes);
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_buffers",
               .what = "Buffers, most of each unused.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  const uint64_t count = args[COUNT].value, rounds = args[ROUNDS].value;
  const size_t size = args[KIB].value << 10, used = args[USED_KIB].value << 10;
  if (used > size) bench_usage(&b, "USED_KIB is above KIB");
  buffer_t *buffers = bench_map(count * sizeof *buffers);
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  const uint64_t base = case_rss_kib();
  const uint64_t start = bench_cpu_ns();
  for (uint64_t i = 0; i < count + rounds; i++) {
    buffer_t *one = &buffers[i < count ? i : bench_high(bench_next(&rng), count)];
    if (one->bytes != NULL) release(one, used);
    *one = make(size, used, (unsigned char)(i % 255 + 1));
  }
  const uint64_t ns = bench_cpu_ns() - start, rss = case_rss_kib();
  for (uint64_t i = 0; i < count; i++) release(&buffers[i], used);
  bench_report_extra(&b, (bench_run_t){.ops = count + rounds, .ns = ns}, (bench_run_t){0},
                     bench_peak_rss_kib(),
                     (bench_value_t[]){{"used_kib", (double)(count * used >> 10)},
                                       {"rss_kib", rss > base ? (double)(rss - base) : 0.0},
                                       {0}});
  return 0;
}
