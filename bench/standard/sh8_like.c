// sh8_like: batches of blocks, a third of which is freed by a thread other than the one
// that allocated them; see smartheap.h.

#include "smartheap.h"

int main(int argc, char **argv) {
  bench_t b = {.name = "sh8_like",
               .what = "Batches of blocks, a third of them freed by the next thread."};
  return smartheap_main(&b, argc, argv, true);
}
