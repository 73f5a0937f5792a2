// case_hello: a minimal program, as hundreds of them run on every machine. The allocator's
// cost to a process that hardly uses it is its memory at the end.
//
//   case_hello [BLOCKS]
//
// peak_rss_kib is VmHWM, which the kernel sums up roughly; rss_kib and dirty_kib (memory
// that no other process shares) are exact.

#include "cases.h"

enum { BLOCKS };
enum { SIZE = 32, LARGEST = 1024 };

static bench_arg_t args[] = {
    {"BLOCKS", "of 32 bytes allocated and freed", 1, 1, LARGEST},
    {0},
};

int main(int argc, char **argv) {
  bench_t b = {.name = "case_hello",
               .what = "Memory of a program that allocates one block.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  void *blocks[LARGEST];
  uint64_t start = bench_now_ns();
  for (uint64_t i = 0; i < args[BLOCKS].value; i++) blocks[i] = alloc_marked(SIZE);
  for (uint64_t i = 0; i < args[BLOCKS].value; i++) free_marked(blocks[i], SIZE);
  bench_run_t run = {.ops = 2 * args[BLOCKS].value, .ns = bench_now_ns() - start};
  const double rss = (double)case_smaps_kib("\nRss:"), dirty = (double)case_smaps_kib("\nPrivate_Dirty:");
  bench_report_extra(&b, run, (bench_run_t){0}, bench_peak_rss_kib(),
                     (bench_value_t[]){{"rss_kib", rss}, {"dirty_kib", dirty}, {0}});
  return 0;
}
