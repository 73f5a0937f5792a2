// speed: prints how many seconds a fixed loop takes on the slowest processor.
//
//   speed
//
// A virtual processor may have a neighbour on the other thread of its core, or the whole machine
// may be clocked down for a while. Neither shows in /proc/stat, and both make everything take up
// to twice as long for seconds on end. The loop uses neither memory nor the kernel, so it takes
// the same time whenever the processor has its full speed. Each processor that this process may
// use (at most MOST) gets LOOPS of them, of which the fastest counts, as one interruption is no
// slow processor.

#include "common.h"

#include <sched.h>

enum { MOST = 8, LOOPS = 4, STEPS = 1000000 };

// Multiplications and additions in four chains, enough to fill a core: one chain alone would leave
// room for a neighbour and hardly notice it. The empty asm keeps the compiler from merging steps.
static uint64_t loop_ns(void) {
  uint64_t a = 1, b = 2, c = 3, d = 4;
  uint64_t start = bench_now_ns();
  for (int i = 0; i < STEPS; i++) {
    a = a * 3 + 1;
    b = b * 5 + 2;
    c ^= a + (b >> 3);
    d += c * 7;
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
  }
  return bench_now_ns() - start;
}

static uint64_t fastest_loop_ns(void) {
  uint64_t fastest = loop_ns();
  for (int i = 1; i < LOOPS; i++) {
    uint64_t t = loop_ns();
    if (t < fastest) fastest = t;
  }
  return fastest;
}

int main(void) {
  uint64_t slowest = 0;
  cpu_set_t all;
  int done = 0;
  CPU_ZERO(&all);
  sched_getaffinity(0, sizeof all, &all); // none if it fails
  for (int cpu = 0; cpu < CPU_SETSIZE && done < MOST; cpu++) {
    if (!CPU_ISSET(cpu, &all)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) continue;
    uint64_t t = fastest_loop_ns();
    if (t > slowest) slowest = t;
    done++;
  }
  if (done == 0) slowest = fastest_loop_ns();
  printf("%.9f\n", (double)slowest / 1e9);
  return 0;
}
