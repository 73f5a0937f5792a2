// common.h: code that the benchmark programs share: clock, PRNG, arguments, the
// built-in no-op allocator that measures a benchmark's own cost, and output.
//
// A benchmark loop is written once, always inlined, and takes a bench_ring_t.
// With a NULL ring it compiles to calls of malloc and free; with a ring it
// compiles to the no-op allocator, without any test or function pointer:
//
//   static BENCH_INLINE void loop(bench_ring_t *ring, …) { p = bench_alloc(ring, n); … }
//   static BENCH_NOINLINE void run_real(…) { loop(NULL, …); }
//   static BENCH_NOINLINE void run_floor(bench_ring_t *ring, …) {
//     bench_ring_t local = *ring;   // &local is known not to be NULL; lives in registers
//     loop(&local, …);
//   }
//
// The benchmarks' own tables are mapped by bench_map, never malloc'ed, so that
// the allocator sees only the load that is measured.

#ifndef HAKMEM_BENCH_COMMON_H
#define HAKMEM_BENCH_COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BENCH_INLINE inline __attribute__((always_inline))
#define BENCH_NOINLINE __attribute__((noinline))
#define BENCH_COLD __attribute__((cold, noinline, unused))

// In --net mode the benchmark's own cost is the least of this many runs:
// disturbance can only increase it.
#define BENCH_FLOOR_RUNS 3
#define BENCH_OS_PAGE 4096u

// ---------------------------------------------------------------------------
// Errors, clock, the benchmark's own memory

static BENCH_COLD _Noreturn void bench_die(const char *what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static inline uint64_t bench_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// CPU time of the process, user and system. This is the right measure where one thread at a time
// works: it never waits, so wall-clock time differs only by the CPU time that others took.
static inline uint64_t bench_cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// The clock for a run in which `threads` threads work at a time.
static inline uint64_t bench_clock_ns(uint64_t threads) {
  return threads == 1 ? bench_cpu_ns() : bench_now_ns();
}

// Zeroed memory that is already populated: no page faults while measuring.
static inline void *bench_map(size_t size) {
  void *p =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (p == MAP_FAILED) bench_die("mmap");
  return p;
}

// Highest resident set so far in KiB (VmHWM), 0 if it cannot be read.
static inline uint64_t bench_peak_rss_kib(void) {
  FILE *f = fopen("/proc/self/status", "re");
  if (f == NULL) return 0;
  char line[256];
  unsigned long long kib = 0;
  while (fgets(line, sizeof line, f) != NULL)
    if (sscanf(line, "VmHWM: %llu kB", &kib) == 1) break;
  fclose(f);
  return kib;
}

// ---------------------------------------------------------------------------
// PRNG: Marsaglia's xorshift64. The high and the low half of one word serve as
// two independent draws; the reduction to a range is a multiplication, because a
// division would cost more than a malloc.

typedef struct bench_rng {
  uint64_t state;
} bench_rng_t;

static inline bench_rng_t bench_rng(uint64_t seed, uint64_t stream) {
  // splitmix64, so that neighbouring seeds and streams have nothing in common
  uint64_t z = seed + (stream + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return (bench_rng_t){z != 0 ? z : 1};
}

static BENCH_INLINE uint64_t bench_next(bench_rng_t *rng) {
  uint64_t x = rng->state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return rng->state = x;
}

// Maps the high (low) half of a random word to 0 .. range - 1, range <= 2^32.
static BENCH_INLINE uint64_t bench_high(uint64_t word, uint64_t range) {
  return ((word >> 32) * range) >> 32;
}

static BENCH_INLINE uint64_t bench_low(uint64_t word, uint64_t range) {
  return ((word & UINT32_MAX) * range) >> 32;
}

// ---------------------------------------------------------------------------
// The no-op allocator. It hands out successive pieces of a ring that is as large
// as the memory that the real run keeps live, and frees nothing. So the benchmark's
// own accesses go to valid memory with about the same cache footprint as in the
// real run, at the cost of an addition and a mask per block. Blocks may overlap live
// ones, because no benchmark reads back what it wrote.

typedef struct bench_ring {
  char *base;
  size_t at;
  size_t mask;
} bench_ring_t;

static inline bench_ring_t bench_ring(size_t live_bytes, size_t max_size) {
  size_t size = BENCH_OS_PAGE;
  while (size < live_bytes) size *= 2;
  // Blocks start inside the ring; the last one may reach beyond its end.
  return (bench_ring_t){.base = bench_map(size + max_size + 16), .at = 0, .mask = size - 1};
}

static BENCH_INLINE void *bench_alloc(bench_ring_t *ring, size_t size) {
  if (ring == NULL) {
    void *p = malloc(size);
    if (__builtin_expect(p == NULL, 0)) bench_die("malloc");
    return p;
  }
  void *p = ring->base + ring->at;
  ring->at = (ring->at + ((size + 15) & ~(size_t)15)) & ring->mask;
  return p;
}

static BENCH_INLINE void bench_free(bench_ring_t *ring, void *p) {
  if (ring == NULL) free(p);
}

static BENCH_INLINE void bench_touch(void *p, size_t offset) {
  ((volatile char *)p)[offset] = (char)offset;
}

// ---------------------------------------------------------------------------
// Arguments: a table of unsigned numbers. Names in capitals are positional and
// may be left out from the right. Names with -- are options with a value or, if
// their max is 0, without one: 1 if given. A benchmark may require a file first.

typedef struct bench_arg {
  const char *name;
  const char *help;
  uint64_t value; // the default, then the value given
  uint64_t min;
  uint64_t max;
} bench_arg_t;

typedef struct bench {
  const char *name;
  const char *what;  // one line for the usage message
  bench_arg_t *args; // ends with a NULL name
  const char *file_name; // NULL, or the usage message's name of the required file
  const char *file;
  bool net;
  bool json;
  bool no_net; // has no floor run: --net is refused
} bench_t;

static inline bool bench_is_option(const bench_arg_t *arg) { return arg->name[0] == '-'; }

static BENCH_COLD _Noreturn void bench_usage(const bench_t *b, const char *wrong) {
  FILE *out = wrong != NULL ? stderr : stdout;
  if (wrong != NULL) fprintf(out, "%s: wrong argument: %s\n", b->name, wrong);
  fprintf(out, "usage: %s", b->name);
  if (b->file_name != NULL) fprintf(out, " %s", b->file_name);
  for (const bench_arg_t *a = b->args; a->name != NULL; a++)
    fprintf(out, bench_is_option(a) && a->max != 0 ? " [%s N]" : " [%s]", a->name);
  fprintf(out, "%s [--json]\n%s\n\n", b->no_net ? "" : " [--net]", b->what);
  for (const bench_arg_t *a = b->args; a->name != NULL; a++)
    fprintf(out, "  %-12s %s (%llu)\n", a->name, a->help, (unsigned long long)a->value);
  if (!b->no_net)
    fprintf(out, "  --net        also measure the benchmark's own cost and subtract it\n");
  fprintf(out, "  --json       print one JSON object\n");
  exit(wrong != NULL ? 2 : 0);
}

static inline void bench_set(const bench_t *b, bench_arg_t *arg, const char *text) {
  char *end = NULL;
  errno = 0;
  unsigned long long v = text != NULL ? strtoull(text, &end, 10) : 0;
  if (text == NULL || text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 ||
      v < arg->min || v > arg->max)
    bench_usage(b, text != NULL ? text : arg->name);
  arg->value = v;
}

static inline void bench_parse(bench_t *b, int argc, char **argv) {
  bench_arg_t *positional = b->args;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--net") == 0 && !b->no_net) {
      b->net = true;
    } else if (strcmp(argv[i], "--json") == 0) {
      b->json = true;
    } else if (strcmp(argv[i], "--help") == 0) {
      bench_usage(b, NULL);
    } else if (argv[i][0] == '-') {
      bench_arg_t *a = b->args;
      while (a->name != NULL && strcmp(a->name, argv[i]) != 0) a++;
      if (a->name == NULL) bench_usage(b, argv[i]);
      if (a->max == 0) a->value = 1;
      else {
        i++;
        bench_set(b, a, i < argc ? argv[i] : NULL);
      }
    } else if (b->file_name != NULL && b->file == NULL) {
      b->file = argv[i];
    } else {
      if (positional->name == NULL || bench_is_option(positional)) bench_usage(b, argv[i]);
      bench_set(b, positional++, argv[i]);
    }
  }
  if (b->file_name != NULL && b->file == NULL) bench_usage(b, b->file_name);
}

// ---------------------------------------------------------------------------
// Output

typedef struct bench_run {
  uint64_t ops; // calls of malloc plus calls of free
  uint64_t ns;  // elapsed: wall-clock time, or CPU time where there is one thread
} bench_run_t;

static inline double bench_ns_per_op(bench_run_t run) {
  return run.ops != 0 ? (double)run.ns / (double)run.ops : 0.0;
}

// The cheaper of two floor runs; the first may be {0}.
static inline bench_run_t bench_least(bench_run_t a, bench_run_t b) {
  return a.ops == 0 || bench_ns_per_op(b) < bench_ns_per_op(a) ? b : a;
}

// A key that one program reports in addition to the common ones.
typedef struct bench_value {
  const char *name;
  double value;
} bench_value_t;

// `extra` ends with a NULL name; it may be NULL.
static inline void bench_report_extra(const bench_t *b, bench_run_t real, bench_run_t floor,
                                      uint64_t peak_rss_kib, const bench_value_t *extra) {
  double ns = bench_ns_per_op(real), floor_ns = bench_ns_per_op(floor);
  double seconds = (double)real.ns / 1e9;
  double rate = seconds > 0 ? (double)real.ops / seconds : 0.0;
  if (b->json) {
    printf("{\"benchmark\": \"%s\", \"args\": {", b->name);
    for (const bench_arg_t *a = b->args; a->name != NULL; a++)
      printf("%s\"%s\": %llu", a != b->args ? ", " : "", a->name + (bench_is_option(a) ? 2 : 0),
             (unsigned long long)a->value);
    printf("}, \"ops\": %llu, \"elapsed_s\": %.6f, \"ops_per_s\": %.0f, \"ns_per_op\": %.4f, "
           "\"peak_rss_kib\": %llu",
           (unsigned long long)real.ops, seconds, rate, ns, (unsigned long long)peak_rss_kib);
    if (b->net)
      printf(", \"floor_ns_per_op\": %.4f, \"net_ns_per_op\": %.4f", floor_ns, ns - floor_ns);
    for (const bench_value_t *e = extra; e != NULL && e->name != NULL; e++)
      printf(", \"%s\": %.10g", e->name, e->value);
    printf("}\n");
  } else {
    printf("%s\nops/s: %.0f\nns/op: %.3f\n", b->name, rate, ns);
    if (b->net) printf("floor ns/op: %.3f\nnet ns/op: %.3f\n", floor_ns, ns - floor_ns);
    printf("elapsed: %.3f s\npeak RSS: %llu KiB\n", seconds, (unsigned long long)peak_rss_kib);
    for (const bench_value_t *e = extra; e != NULL && e->name != NULL; e++)
      printf("%s: %.10g\n", e->name, e->value);
  }
}

static inline void bench_report(const bench_t *b, bench_run_t real, bench_run_t floor,
                                uint64_t peak_rss_kib) {
  bench_report_extra(b, real, floor, peak_rss_kib, NULL);
}

#endif
