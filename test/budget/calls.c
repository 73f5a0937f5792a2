// calls.c: fixed sequences of calls that no benchmark makes, for the budgets.
//
//   calls hello          one block; all else is the start and end of a process
//   calls resize COUNT   realloc up and down and calloc, over tiny, L2, L2.5 and huge sizes
//   calls handover COUNT threads one after the other; each frees its predecessor's blocks
//
// No clock, no seed, one thread at a time: every run makes the same calls.

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 256, BLOCKS = 3000, THREADS = 20 };

static uint32_t state = 42;

static uint32_t next(void) {
  state ^= state << 13;
  state ^= state >> 17;
  return state ^= state << 5;
}

// Mostly small, now and then of each larger kind.
static size_t some_size(void) {
  uint32_t r = next();
  if (r % 1024 == 0) return 1200000 + (r >> 12) % 1000000;
  if (r % 128 == 1) return 70000 + (r >> 12) % 200000;
  if (r % 16 == 2) return 1100 + (r >> 12) % 30000;
  return 1 + (r >> 12) % 1024;
}

static void need(const void *p) {
  if (p == NULL) exit(1);
}

static void resize(long count) {
  static char *slot[SLOTS];
  for (long i = 0; i < count; i++) {
    char **p = &slot[next() % SLOTS];
    if (i % 8 == 0) {
      free(*p);
      *p = calloc(1, some_size());
    } else {
      *p = realloc(*p, some_size());
    }
    need(*p);
    (*p)[0] = 1;
  }
  for (int i = 0; i < SLOTS; i++) free(slot[i]);
}

static void *blocks[BLOCKS];

static void *worker(void *count) {
  for (long i = 0; i < (long)(intptr_t)count; i++) {
    void **p = &blocks[next() % BLOCKS];
    free(*p);
    need(*p = malloc(8 + next() % 1000));
  }
  return NULL;
}

static void handover(long count) {
  for (int t = 0; t < THREADS; t++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, worker, (void *)(intptr_t)(count / THREADS)) != 0) exit(1);
    if (pthread_join(thread, NULL) != 0) exit(1);
  }
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

int main(int argc, char **argv) {
  long count = argc > 2 ? atol(argv[2]) : 0;
  if (argc == 2 && strcmp(argv[1], "hello") == 0) {
    void *volatile p = malloc(16);
    need(p);
    free(p);
  } else if (argc == 3 && strcmp(argv[1], "resize") == 0) {
    resize(count);
  } else if (argc == 3 && strcmp(argv[1], "handover") == 0) {
    handover(count);
  } else {
    fprintf(stderr, "usage: calls hello | resize COUNT | handover COUNT\n");
    return 2;
  }
  return 0;
}
