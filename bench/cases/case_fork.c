// case_fork: a process with a heap forks children that allocate, free and end.
//
// private_kib is the median of what a child had for itself (Private_Dirty): what the
// allocator's own writes cost in copied pages.

#include "../common.h"

#include <sys/wait.h>

enum { MIB, CHILDREN, BLOCKS };
static bench_arg_t args[] = {
    {"MIB", "of blocks in the parent", 64, 1, 4096},
    {"CHILDREN", "one after the other", 150, 1, 100000},
    {"BLOCKS", "that a child allocates and frees", 2000, 1, 10000000},
    {0},
};

static double private_kib(void) {
  FILE *f = fopen("/proc/self/smaps_rollup", "re");
  char line[256];
  double kib = 0;
  if (f == NULL) return 0;
  while (fgets(line, sizeof line, f) != NULL)
    if (sscanf(line, "Private_Dirty: %lf kB", &kib) == 1) break;
  fclose(f);
  return kib;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_fork", .what = "Children of a process with a heap.", .args = args, .no_net = true};
  bench_parse(&b, argc, argv);
  bench_rng_t rng = bench_rng(42, 0);
  uint64_t count = (args[MIB].value << 20) / 512;
  for (uint64_t i = 0; i < count; i++) {
    size_t size = 16 + bench_low(bench_next(&rng), 992);
    void *p = malloc(size);
    if (p == NULL) bench_die("malloc");
    memset(p, 1, size);
    if (i % 8 == 0) free(p); // some room between
  }
  double *kib = mmap(NULL, args[CHILDREN].value * sizeof *kib, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (kib == MAP_FAILED) bench_die("mmap");
  uint64_t start = bench_now_ns();
  for (uint64_t c = 0; c < args[CHILDREN].value; c++) {
    pid_t child = fork();
    if (child < 0) bench_die("fork");
    if (child == 0) {
      void *kept[64] = {0};
      for (uint64_t i = 0; i < args[BLOCKS].value; i++) {
        void **slot = &kept[i % 64];
        free(*slot);
        *slot = malloc(16 + bench_low(bench_next(&rng), 992));
        if (*slot == NULL) _exit(1);
        bench_touch(*slot, 0);
      }
      kib[c] = c % 8 == 0 ? private_kib() : kib[c];
      _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) abort();
    if (c % 8 != 0) kib[c] = kib[c - 1];
  }
  bench_run_t run = {.ops = 2 * args[CHILDREN].value * args[BLOCKS].value, .ns = bench_now_ns() - start};
  qsort(kib, args[CHILDREN].value, sizeof *kib, by_value);
  b.extra[0] = (bench_extra_t){"private_kib", kib[args[CHILDREN].value / 2]};
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
