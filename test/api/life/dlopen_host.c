// dlopen_host.c: a program on the system allocator that loads HAKMEM while it
// runs, with threads that exist already: dlopen_host LIBRARY

#include "../testing.h"

#include <pthread.h>

enum { THREADS = 4, N = 500 };

static void *(*hak_malloc)(size_t);
static void *(*hak_realloc)(void *, size_t);
static void (*hak_free)(void *);
static bool (*hak_owns)(const void *);
static pthread_barrier_t loaded, handed_over, closed;
static void *blocks[THREADS][N];

static size_t size_of(size_t thread, size_t i) { return (i * i + thread * 7) % 90000; }

static void use(size_t thread) {
  for (size_t i = 0; i < N; i++) {
    CHECK(blocks[thread][i] = hak_malloc(size_of(thread, i)));
    CHECK(hak_owns(blocks[thread][i]));
    fill(blocks[thread][i], size_of(thread, i), i);
  }
}

static void release(size_t thread) {
  for (size_t i = 0; i < N; i++) {
    CHECK(filled(blocks[thread][i], size_of(thread, i), i));
    if (i % 3 == 0) CHECK(blocks[thread][i] = hak_realloc(blocks[thread][i], 1 + i));
    hak_free(blocks[thread][i]);
  }
}

static void *run(void *argument) {
  size_t me = AS_NUMBER(argument);
  char *of_the_system = strdup("from before"); // this thread has used malloc
  pthread_barrier_wait(&loaded);
  use(me);
  pthread_barrier_wait(&handed_over);
  release((me + 1) % THREADS);
  pthread_barrier_wait(&handed_over);
  use(me);
  pthread_barrier_wait(&closed); // dlclose has been called
  pthread_barrier_wait(&closed);
  release((me + 1) % THREADS);
  CHECK(strcmp(of_the_system, "from before") == 0);
  free(of_the_system);
  return NULL;
}

static void *late(void *argument) {
  void *p = hak_malloc(AS_NUMBER(argument));
  CHECK(p);
  memset(p, 1, AS_NUMBER(argument));
  hak_free(p);
  return NULL;
}

#define LOAD(function) \
  CHECK((function) = (__typeof__(function))(uintptr_t)dlsym(handle, #function))

int main(int argc, char **argv) {
  CHECK(argc == 2);
  pthread_t thread[THREADS];
  pthread_barrier_init(&loaded, NULL, THREADS + 1);
  pthread_barrier_init(&handed_over, NULL, THREADS);
  pthread_barrier_init(&closed, NULL, THREADS + 1);
  for (size_t i = 0; i < THREADS; i++)
    CHECK(pthread_create(&thread[i], NULL, run, AS_ARGUMENT(i)) == 0);
  void *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    dprintf(2, "%s\n", dlerror());
    return 1;
  }
  LOAD(hak_malloc);
  LOAD(hak_realloc);
  LOAD(hak_free);
  LOAD(hak_owns);
  void *p = malloc(100); // malloc is still the system's
  CHECK(p && !hak_owns(p));
  free(p);
  pthread_barrier_wait(&loaded);
  pthread_barrier_wait(&closed);
  CHECK(dlclose(handle) == 0);
  pthread_barrier_wait(&closed);
  for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  for (size_t i = 0; i < 100; i++) {
    pthread_t one;
    CHECK(pthread_create(&one, NULL, late, AS_ARGUMENT(i * 3000)) == 0);
    CHECK(pthread_join(one, NULL) == 0);
  }
  return 0;
}
