// cache_thrash: active false sharing, after E. Berger, K. McKinley, R. Blumofe and
// P. Wilson, "Hoard: A Scalable Memory Allocator for Multithreaded Applications",
// ASPLOS 2000.
//
// Each thread allocates, writes and frees blocks of the same size. An allocator that
// serves the requests of several threads from one cache line makes them wait for
// each other's writes.

#include "cache.h"

int main(int argc, char **argv) {
  bench_t b = {.name = "cache_thrash", .what = "Threads that write to blocks of their own."};
  return cache_main(&b, argc, argv, false);
}
