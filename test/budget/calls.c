// calls.c: fixed sequences of calls that no benchmark makes, for the budgets.
//
//   calls hello          one block; all else is the start and end of a process
//   calls resize COUNT   realloc up and down and calloc, over tiny, L2, L2.5 and huge sizes
//   calls handover COUNT threads one after the other; each frees its predecessor's blocks
//   calls young COUNT    threads one after the other, of so few calls that none gets a heap
//   calls others COUNT   what else allocates and frees: aligned, operator new, sized frees, calloc
//
// No clock, no seed, one thread at a time: every run makes the same calls.

#include <malloc.h>
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

// Mostly small; now and then one of each larger kind.
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

static void *young(void *count) {
  void *own[32] = {NULL};
  for (long i = 0; i < (long)(intptr_t)count; i++) {
    void **p = &own[next() % 32];
    free(*p);
    need(*p = malloc(16 + next() % 2000));
  }
  for (int i = 0; i < 32; i++) free(own[i]);
  return NULL;
}

static void in_threads(void *(*act)(void *), long count) {
  for (int t = 0; t < THREADS; t++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, act, (void *)(intptr_t)(count / THREADS)) != 0) exit(1);
    if (pthread_join(thread, NULL) != 0) exit(1);
  }
}

static void handover(long count) {
  in_threads(worker, count);
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

// operator new and delete by their C++ ABI names: from the preloaded library, no C++ runtime.
void *_Znwm(size_t) __attribute__((weak));
void *_ZnwmSt11align_val_t(size_t, size_t) __attribute__((weak));
void _ZdlPvm(void *, size_t) __attribute__((weak));
void _ZdlPvmSt11align_val_t(void *, size_t, size_t) __attribute__((weak));

static void others(long count) {
  need((void *)_Znwm);
  static struct {
    void *p;
    size_t size;
    unsigned kind;
  } slot[SLOTS], *s;
  for (long i = 0; i < count; i++) {
    s = &slot[next() % SLOTS];
    if (s->p && malloc_usable_size(s->p) < s->size) exit(1);
    if (s->kind == 0) _ZdlPvm(s->p, s->size);
    else if (s->kind == 1) _ZdlPvmSt11align_val_t(s->p, s->size, 128);
    else free(s->p);
    s->kind = next() % 5;
    s->size = some_size() % 50000 + 1;
    switch (s->kind) {
    case 0: s->p = _Znwm(s->size); break;
    case 1: s->p = _ZnwmSt11align_val_t(s->size, 128); break;
    case 2: s->p = calloc(1, s->size); break;
    case 3: s->p = aligned_alloc(64, s->size); break;
    default: need(posix_memalign(&s->p, sizeof(void *), s->size) == 0 ? s->p : NULL);
    }
    need(s->p);
    *(char *)s->p = 1;
  }
  for (s = slot; s < slot + SLOTS; s++) free(s->p);
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
  } else if (argc == 3 && strcmp(argv[1], "young") == 0) {
    in_threads(young, count);
  } else if (argc == 3 && strcmp(argv[1], "others") == 0) {
    others(count);
  } else {
    fprintf(stderr, "usage: calls hello | resize COUNT | handover COUNT | young COUNT | others COUNT\n");
    return 2;
  }
  return 0;
}
