// plugin.c: a library to load at run time. It allocates when it is loaded and unloaded, has
// thread-local memory, and does a little work of its own.

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40 };
static char *blocks[N];
static __thread char *local[2000]; // more than the static TLS has left for such libraries
int plugin_users;

__attribute__((constructor)) static void loaded(void) {
  for (size_t i = 0; i < N; i++) {
    if (!(blocks[i] = malloc(i * i * i + 1))) abort();
    memset(blocks[i], (int)i, i * i * i + 1);
  }
}

__attribute__((destructor)) static void unloaded(void) {
  for (size_t i = 0; i < N; i++) {
    if (blocks[i][i * i * i] != (char)i) abort();
    free(blocks[i]);
  }
}

// Allocates and frees inside this library, whichever malloc it is bound to.
int plugin_work(int rounds);
int plugin_work(int rounds) {
  for (int r = 0; r < rounds; r++) {
    for (size_t i = 0; i < 60; i++) {
      char *p = realloc(local[i], i * 211 + (size_t)r % 7 * 3000 + 1);
      if (!p) return -1;
      if (local[i] && *p != (char)i) return -2;
      *p = (char)i;
      local[i] = p;
    }
    char *copy = calloc(3, 5000);
    if (!copy || copy[14999] != 0) return -3;
    free(copy);
  }
  for (size_t i = 0; i < 60; i++) free(local[i]), local[i] = NULL;
  return __atomic_add_fetch(&plugin_users, 1, __ATOMIC_RELAXED);
}

void *plugin_block(size_t n);
void *plugin_block(size_t n) { return malloc(n); }
void plugin_free(void *p);
void plugin_free(void *p) { free(p); }
void *plugin_resized(void *p, size_t n);
void *plugin_resized(void *p, size_t n) { return realloc(p, n); }

// A library in a folder that only this one searches.
void *plugin_loads(int flags);
void *plugin_loads(int flags) {
  void *volatile inner = dlopen("libsit_inner.so", flags); // not a tail call: this is the caller
  return inner;
}
