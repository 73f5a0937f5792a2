// hits.c: COUNT pairs of malloc and free of SIZE bytes, each a hit of the front.
//
//   unit_hits COUNT SIZE

#include <stdlib.h>

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  long count = atol(argv[1]);
  size_t size = (size_t)atol(argv[2]);
  // One refill and what the first free does are over before.
  void *volatile warm = malloc(size);
  free(warm);
  for (long i = 0; i < count; i++) {
    void *volatile p = malloc(size);
    free(p);
  }
  return 0;
}
