// case_cold: a command that starts, does a little and ends, a million times a day. How much do
// the first allocations of a process cost?
//
// The program executes itself PROCESSES times. The child allocates COUNT blocks of mixed
// sizes, frees them, and sends its times to the parent. All figures are medians over the
// processes: ns_per_op is the time of the child's mallocs and frees, start_ns the time from
// the call of posix_spawn to main, which includes what the allocator does before main, and
// cold_ns the time from there to the last free.

#include <spawn.h>
#include <sys/wait.h>

#include "cases.h"

enum { COUNT, PROCESSES, MIN, MAX, SEED, CHILD };
enum { MAX_PROCESSES = 1000 };

static bench_arg_t args[] = {
    {"COUNT", "blocks that a process allocates and frees", 10000, 1, 1 << 24},
    {"PROCESSES", "fresh processes", 51, 1, MAX_PROCESSES},
    {"MIN", "smallest block in bytes", 16, MARK_MIN, 1 << 30},
    {"MAX", "largest block in bytes", 2032, MARK_MIN, 1 << 30},
    {"--seed", "of the random numbers", 42, 0, UINT64_MAX},
    {"--child", "(internal) file descriptor to which a child reports", 0, 0, 1 << 20},
    {0},
};

typedef struct report {
  uint64_t main_at, malloc_ns, free_ns, ended_at, peak_kib;
} report_t;

extern char **environ;

static int be_child(uint64_t main_at) {
  const uint64_t count = args[COUNT].value, max = args[MAX].value;
  const uint64_t min = args[MIN].value, span = max - min + 1;
  void **blocks = bench_map(count * sizeof *blocks);
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  report_t r = {.main_at = main_at};
  uint64_t start = bench_now_ns();
  for (uint64_t i = 0; i < count; i++)
    blocks[i] = alloc_marked(min + bench_high(bench_next(&rng), span));
  uint64_t full = bench_now_ns();
  for (uint64_t i = 0; i < count; i++) free_marked(blocks[i], max);
  r.ended_at = bench_now_ns();
  r.malloc_ns = full - start;
  r.free_ns = r.ended_at - full;
  r.peak_kib = bench_peak_rss_kib();
  return write((int)args[CHILD].value, &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1;
}

static report_t run_child(char **argv, int input) {
  report_t r;
  pid_t child;
  int status, error = posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ);
  if (error != 0) {
    errno = error;
    bench_die("posix_spawn");
  }
  if (waitpid(child, &status, 0) != child) bench_die("waitpid");
  if (status != 0) bench_wrong("a child's exit status");
  if (read(input, &r, sizeof r) != (ssize_t)sizeof r) bench_die("read");
  return r;
}

int main(int argc, char **argv) {
  const uint64_t main_at = bench_now_ns();
  bench_t b = {.name = "case_cold",
               .what = "The first allocations of fresh processes.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  if (args[MIN].value > args[MAX].value) bench_usage(&b, "MIN is above MAX");
  if (args[CHILD].value != 0) return be_child(main_at);

  int ends[2];
  if (pipe(ends) != 0) bench_die("pipe");
  char number[16];
  snprintf(number, sizeof number, "%d", ends[1]);
  char **command = bench_map(((size_t)argc + 3) * sizeof *command);
  memcpy(command, argv, (size_t)argc * sizeof *command);
  command[argc] = "--child";
  command[argc + 1] = number;
  enum { START, COLD, MALLOC, FREE, BOTH, PEAK, KINDS };
  static uint64_t values[KINDS][MAX_PROCESSES];
  const uint64_t processes = args[PROCESSES].value;
  for (uint64_t i = 0; i < processes; i++) {
    uint64_t start = bench_now_ns();
    report_t r = run_child(command, ends[0]);
    values[START][i] = r.main_at - start;
    values[COLD][i] = r.ended_at - start;
    values[MALLOC][i] = r.malloc_ns;
    values[FREE][i] = r.free_ns;
    values[BOTH][i] = r.malloc_ns + r.free_ns;
    values[PEAK][i] = r.peak_kib;
  }
  const double count = (double)args[COUNT].value;
  bench_run_t run = {.ops = 2 * args[COUNT].value, .ns = case_median(values[BOTH], processes)};
  bench_report_extra(&b, run, (bench_run_t){0}, case_median(values[PEAK], processes),
                     (bench_value_t[]){{"start_ns", (double)case_median(values[START], processes)},
                                       {"cold_ns", (double)case_median(values[COLD], processes)},
                                       {"malloc_ns", (double)case_median(values[MALLOC], processes) / count},
                                       {"free_ns", (double)case_median(values[FREE], processes) / count},
                                       {0}});
  return 0;
}
