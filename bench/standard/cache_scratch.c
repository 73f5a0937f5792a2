// cache_scratch: passive false sharing, after E. Berger, K. McKinley, R. Blumofe and
// P. Wilson, "Hoard: A Scalable Memory Allocator for Multithreaded Applications",
// ASPLOS 2000.
//
// The main thread allocates a block for every thread. Because they are allocated in a
// row, they may share cache lines, which is no flaw. Each thread frees the block it got
// and then allocates, writes and frees blocks of the same size. An allocator that
// gives the freed block to the thread that freed it keeps the sharing alive.

#include "cache.h"

int main(int argc, char **argv) {
  bench_t b = {.name = "cache_scratch",
               .what = "Threads that write to blocks, after they freed neighbouring ones."};
  return cache_main(&b, argc, argv, true);
}
