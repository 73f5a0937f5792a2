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

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { MOST = 8, LOOPS = 4, STEPS = 1000000 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// Multiplications and additions in four chains, enough to fill a core: one chain alone would leave
// room for a neighbour and hardly notice it. The empty asm keeps the compiler from merging steps.
static double loop(void) {
  uint64_t a = 1, b = 2, c = 3, d = 4;
  double start = now();
  for (int i = 0; i < STEPS; i++) {
    a = a * 3 + 1;
    b = b * 5 + 2;
    c ^= a + (b >> 3);
    d += c * 7;
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
  }
  return now() - start;
}

static double fastest_loop(void) {
  double fastest = loop();
  for (int i = 1; i < LOOPS; i++) {
    double t = loop();
    if (t < fastest) fastest = t;
  }
  return fastest;
}

int main(void) {
  double slowest = 0;
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
    double t = fastest_loop();
    if (t > slowest) slowest = t;
    done++;
  }
  if (done == 0) slowest = fastest_loop();
  printf("%.9f\n", slowest);
  return 0;
}
