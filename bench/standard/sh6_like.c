// sh6_like: batches of blocks, freed partly in reverse order by the thread that
// allocated them; see smartheap.h.

#include "smartheap.h"

int main(int argc, char **argv) {
  bench_t b = {.name = "sh6_like",
               .what = "Batches of blocks, freed partly in order and partly in reverse."};
  return smartheap_main(&b, argc, argv, false);
}
