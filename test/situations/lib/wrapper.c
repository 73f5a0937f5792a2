// wrapper.c: a second interposer of malloc, as tracers are: it counts the calls and passes
// them on to the next library's functions.

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

_Atomic size_t wrapper_calls;

// dlsym may allocate before the next library's functions are known.
static _Alignas(16) char early[4096];
static size_t early_used;
static __thread int searching;

static void *early_block(size_t n) {
  void *p = early + early_used;
  early_used += (n + 15) / 16 * 16;
  return early_used <= sizeof early ? p : NULL;
}
static int is_early(const void *p) {
  return (const char *)p >= early && (const char *)p < early + sizeof early;
}

static void *next(const char *name) {
  searching++;
  void *found = dlsym(RTLD_NEXT, name);
  searching--;
  if (!found) abort();
  return found;
}

#define NEXT(type, name, parameters) \
  static type(*real) parameters; \
  wrapper_calls++; \
  if (!real) real = (type(*) parameters)next(#name)

void *malloc(size_t n) {
  if (searching) return early_block(n);
  NEXT(void *, malloc, (size_t));
  return real(n);
}

void *calloc(size_t n, size_t size) {
  if (searching) return early_block(n * size);
  NEXT(void *, calloc, (size_t, size_t));
  return real(n, size);
}

void *realloc(void *p, size_t n) {
  if (searching) return early_block(n);
  NEXT(void *, realloc, (void *, size_t));
  return real(p, n);
}

void free(void *p) {
  if (is_early(p) || searching) return;
  NEXT(void, free, (void *));
  real(p);
}
