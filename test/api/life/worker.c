// worker.c: uses memory in all the ways a program does, within a given budget; for runs under
// limits and under valgrind. worker [MIB [LARGEST]]: with LARGEST it also allocates until
// nothing is left, in blocks of up to that many bytes.

#include "../testing.h"

#include <pthread.h>

static size_t budget;

static void *work(void *argument) {
  enum { N = 128 };
  struct {
    void *p;
    size_t size;
  } b[N] = {{NULL, 0}};
  uint64_t random = AS_NUMBER(argument) + 1;
  size_t live = 0;
  for (unsigned step = 0; step < 20000; step++) {
    size_t i = chance(&random) % N;
    CHECK(filled(b[i].p, b[i].size, i));
    free(b[i].p);
    live -= b[i].size;
    size_t size = chance(&random) % ((size_t)16 << (chance(&random) % 16));
    if (live + size > budget / 4) size = 16;
    if (step % 3) CHECK(b[i].p = malloc(size));
    else CHECK(b[i].p = calloc(1, size));
    CHECK(step % 3 || all_zero(b[i].p, size));
    live += b[i].size = size;
    fill(b[i].p, size, i);
  }
  for (size_t i = 0; i < N; i++) free(b[i].p);
  return NULL;
}

// Allocates until malloc fails, frees everything, and checks that malloc succeeds again.
static void exhaust(size_t largest) {
  for (unsigned round = 0; round < 3; round++) {
    for (size_t size = 100; size <= largest; size *= 13) {
      void **list = NULL, **p;
      size_t got = 0;
      errno = 0;
      while ((p = malloc(size)) != NULL) {
        *p = list;
        list = p;
        got += size;
      }
      CHECK(errno == ENOMEM);
      CHECK(got >= budget);
      for (; list; list = p) {
        p = *list;
        free(list);
      }
      CHECK((p = malloc(size)) != NULL);
      free(p);
    }
  }
}

int main(int argc, char **argv) {
  CHECK(right_allocator());
  budget = (argc > 1 ? strtoul(argv[1], NULL, 10) : 32) * MIB;
  pthread_t thread[2];
  work(NULL);
  for (size_t i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, work, AS_ARGUMENT(i)) == 0);
  for (size_t i = 0; i < 2; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  void *p = malloc(budget / 4);
  CHECK(p && (p = realloc(p, budget / 2)) != NULL);
  free(p);
  if (argc > 2) exhaust(strtoul(argv[2], NULL, 10));
  return 0;
}
