// case_realloc: vectors that grow in small steps to a large size, strings that are appended
// to, and then all of them shrink.
//
// VECTORS vectors grow in turn to LARGEST_KIB, by 1/16 of their size plus 64 bytes each time;
// then they shrink to a 64th in six steps, and are freed at the end. In between, STRINGS
// strings get APPENDS pieces of 1 to 32 bytes, each time reallocated to the exact length, as a
// naive append does. An op is a call of realloc or free. Only new memory is written, and the
// content is checked after each step.

#include "cases.h"

enum { LARGEST_KIB, VECTORS, STRINGS, APPENDS, SEED };
enum { SHRINKS = 6, PIECE = 32 };

static bench_arg_t args[] = {
    {"LARGEST_KIB", "to which each vector grows", 65536, 1, 1 << 22},
    {"VECTORS", "that grow in turn", 2, 1, 1 << 16},
    {"STRINGS", "strings", 20000, 1, 1 << 24},
    {"APPENDS", "to random strings", 1000000, 0, UINT32_MAX},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct buffer {
  unsigned char *bytes;
  size_t size;
} buffer_t;

static uint64_t ops;

static unsigned char content(size_t at) { return (unsigned char)(at * 2654435761u >> 13); }

// Checks the first, middle and last byte.
static void check(const buffer_t *b, size_t size) {
  if (size == 0) return;
  if (b->bytes[0] != content(0) || b->bytes[size / 2] != content(size / 2) ||
      b->bytes[size - 1] != content(size - 1))
    bench_wrong("the content after realloc");
}

// Resizes the buffer and writes all of its new part.
static void resize(buffer_t *b, size_t size) {
  unsigned char *bytes = realloc(b->bytes, size);
  if (bytes == NULL) bench_die("realloc");
  ops++;
  size_t old = b->size;
  b->bytes = bytes;
  b->size = size;
  check(b, old < size ? old : size);
  for (size_t at = old; at < size; at++) bytes[at] = content(at);
}

static void release(buffer_t *b) {
  check(b, b->size);
  free(b->bytes);
  ops++;
  *b = (buffer_t){0};
}

static void grow_all(buffer_t *vectors) {
  const size_t largest = args[LARGEST_KIB].value << 10;
  for (bool grown = true; grown;) {
    grown = false;
    for (uint64_t i = 0; i < args[VECTORS].value; i++) {
      size_t size = vectors[i].size + vectors[i].size / 16 + 64;
      if (vectors[i].size == largest) continue;
      resize(&vectors[i], size < largest ? size : largest);
      grown = true;
    }
  }
}

static void append(buffer_t *strings) {
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  for (uint64_t i = 0; i < args[APPENDS].value; i++) {
    uint64_t random = bench_next(&rng);
    buffer_t *s = &strings[bench_high(random, args[STRINGS].value)];
    resize(s, s->size + 1 + bench_low(random, PIECE));
  }
}

static void shrink_all(buffer_t *vectors) {
  for (unsigned step = 0; step < SHRINKS; step++)
    for (uint64_t i = 0; i < args[VECTORS].value; i++) {
      size_t half = vectors[i].size / 2;
      if (half != 0) resize(&vectors[i], half);
    }
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_realloc",
               .what = "Vectors that grow and shrink, strings that are appended to.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  buffer_t *vectors = bench_map(args[VECTORS].value * sizeof *vectors);
  buffer_t *strings = bench_map(args[STRINGS].value * sizeof *strings);
  const uint64_t base = case_rss_kib();
  const uint64_t start = bench_cpu_ns();
  grow_all(vectors);
  const uint64_t grown = bench_cpu_ns(), grow_ops = ops;
  append(strings);
  const uint64_t appended = bench_cpu_ns(), append_ops = ops - grow_ops;
  const uint64_t full = case_rss_kib();
  shrink_all(vectors);
  const uint64_t shrunk = case_rss_kib();
  const uint64_t peak = bench_peak_rss_kib();
  uint64_t live = 0;
  for (uint64_t i = 0; i < args[VECTORS].value; i++) live += vectors[i].size;
  for (uint64_t i = 0; i < args[STRINGS].value; i++) live += strings[i].size;
  for (uint64_t i = 0; i < args[VECTORS].value; i++) release(&vectors[i]);
  for (uint64_t i = 0; i < args[STRINGS].value; i++) release(&strings[i]);
  bench_run_t run = {.ops = ops, .ns = bench_cpu_ns() - start};
  bench_report_extra(
      &b, run, (bench_run_t){0}, peak,
      (bench_value_t[]){{"grow_ns_per_op", (double)(grown - start) / (double)grow_ops},
                        {"append_ns_per_op",
                         append_ops != 0 ? (double)(appended - grown) / (double)append_ops : 0},
                        {"base_rss_kib", (double)base},
                        {"full_rss_kib", (double)full - (double)base},
                        {"shrunk_rss_kib", (double)shrunk - (double)base},
                        {"shrunk_live_kib", (double)(live >> 10)},
                        {0}});
  return 0;
}
