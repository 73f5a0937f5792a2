// case_realloc: vectors that grow by small steps, texts that are appended to.
//
// VECTORS arrays grow in turn by STEP bytes each to LIMIT, are halved, and freed; the
// contents are checked.

#include "../common.h"

enum { VECTORS, LIMIT, STEP, ROUNDS };
static bench_arg_t args[] = {
    {"VECTORS", "that grow in turn", 4, 1, 1024},
    {"LIMIT", "KiB they grow to", 16384, 1, 1 << 22},
    {"STEP", "bytes per realloc", 4096, 1, 1 << 20},
    {"ROUNDS", "of all that", 3, 1, 1000000},
    {0},
};

int main(int argc, char **argv) {
  bench_t b = {.name = "case_realloc", .what = "Blocks that grow by small steps.", .args = args, .no_net = true};
  bench_parse(&b, argc, argv);
  unsigned char **vectors = bench_map(args[VECTORS].value * sizeof *vectors);
  size_t limit = args[LIMIT].value * 1024, step = args[STEP].value;
  uint64_t ops = 0, start = bench_now_ns();
  for (uint64_t round = 0; round < args[ROUNDS].value; round++) {
    for (size_t size = step; size <= limit; size += step) {
      for (uint64_t v = 0; v < args[VECTORS].value; v++, ops++) {
        vectors[v] = realloc(vectors[v], size);
        if (vectors[v] == NULL) bench_die("realloc");
        memset(vectors[v] + size - step, (int)(size / step + v), step);
      }
    }
    for (uint64_t v = 0; v < args[VECTORS].value; v++, ops += 2) {
      vectors[v] = realloc(vectors[v], limit / 2);
      for (size_t size = step; size <= limit / 2; size += step)
        if (vectors[v][size - 1] != (unsigned char)(size / step + v)) abort();
      free(vectors[v]);
      vectors[v] = NULL;
    }
  }
  bench_run_t run = {.ops = ops, .ns = bench_now_ns() - start};
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
