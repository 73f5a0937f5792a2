// case_cold: the first allocations of a process, from exec to exit.
//
// Starts itself PROCESSES times; each allocates and frees BLOCKS blocks of mixed sizes.
// With BLOCKS 1 it is what a small program costs: hello_rss_kib is its peak memory.

#include "../common.h"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

enum { PROCESSES, BLOCKS };
static bench_arg_t args[] = {
    {"PROCESSES", "one after the other", 300, 1, 100000},
    {"BLOCKS", "that each allocates", 10000, 1, 10000000},
    {0},
};

static int child(uint64_t blocks) {
  bench_rng_t rng = bench_rng(42, 0);
  void *kept[512] = {0};
  for (uint64_t i = 0; i < blocks; i++) {
    void **slot = &kept[i % 512];
    free(*slot);
    size_t size = 16 + bench_low(bench_next(&rng), 1024);
    if ((*slot = malloc(size)) == NULL) return 1;
    memset(*slot, 1, size);
  }
  for (unsigned i = 0; i < 512; i++) free(kept[i]);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--child") == 0) return child(strtoull(argv[2], NULL, 10));
  bench_t b = {.name = "case_cold", .what = "The first allocations of a process.", .args = args, .no_net = true};
  bench_parse(&b, argc, argv);
  char blocks[32];
  snprintf(blocks, sizeof blocks, "%llu", (unsigned long long)args[BLOCKS].value);
  char *command[] = {argv[0], "--child", blocks, NULL};
  long peak = 0;
  uint64_t start = bench_now_ns();
  for (uint64_t i = 0; i < args[PROCESSES].value; i++) {
    pid_t pid;
    int status;
    struct rusage used;
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, command, environ) != 0) bench_die("posix_spawn");
    if (wait4(pid, &status, 0, &used) != pid || status != 0) abort();
    if (used.ru_maxrss > peak) peak = used.ru_maxrss;
  }
  uint64_t ns = bench_now_ns() - start;
  b.extra[0] = (bench_extra_t){"process_us", (double)ns / 1e3 / (double)args[PROCESSES].value};
  b.extra[1] = (bench_extra_t){"hello_rss_kib", (double)peak};
  bench_run_t run = {.ops = 2 * args[PROCESSES].value * args[BLOCKS].value, .ns = ns};
  bench_report(&b, run, (bench_run_t){0}, (uint64_t)peak);
  return 0;
}
