// hits.c: COUNT times malloc, malloc_usable_size and free of SIZE bytes, each a hit.
//
//   unit_hits COUNT SIZE

#include <malloc.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  long count = atol(argv[1]);
  size_t size = (size_t)atol(argv[2]);
  // One refill and what the first free does are over before.
  void *volatile warm = malloc(size);
  free(warm);
  volatile size_t usable = 0;
  for (long i = 0; i < count; i++) {
    void *volatile p = malloc(size);
    usable = malloc_usable_size(p);
    free(p);
  }
  return usable < size;
}
