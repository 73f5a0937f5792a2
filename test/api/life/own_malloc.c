// own_malloc.c: a program that defines malloc, free, calloc and realloc itself, as glibc's
// manual describes ("Replacing malloc"), and calls the functions that are built on them.

#include <dlfcn.h>
#include <errno.h>

#include "../testing.h"

static _Alignas(16) char pool[16 << 20];
static size_t used;
static unsigned frees;

static bool from_pool(const void *p) {
  return (const char *)p >= pool && (const char *)p < pool + sizeof(pool);
}

void *malloc(size_t size) {
  size_t room = (size + 31) & ~(size_t)15;
  if (size > sizeof(pool) || room > sizeof(pool) - used) return NULL;
  size_t *p = (size_t *)(void *)(pool + used);
  used += room;
  p[0] = size;
  return p + 2;
}

void free(void *p) {
  if (p && !from_pool(p)) abort();
  frees++;
}

void *calloc(size_t count, size_t size) {
  size_t total;
  return __builtin_mul_overflow(count, size, &total) ? NULL : malloc(total); // never used before
}

void *realloc(void *p, size_t size) {
  if (p && !from_pool(p)) abort();
  void *q = malloc(size);
  size_t before = p ? ((size_t *)p)[-2] : 0;
  return q && p ? memcpy(q, p, before < size ? before : size) : q;
}

int main(void) {
  CHECK(on_hakmem());
  char *p = reallocarray(NULL, 10, 10);
  CHECK(p && from_pool(p));
  memset(p, 7, 100);
  p = reallocarray(p, 20, 10);
  CHECK(p && from_pool(p) && p[99] == 7);
  volatile size_t many = SIZE_MAX / 2;
  CHECK(!reallocarray(p, many, 3) && errno == ENOMEM);
  void (*its_cfree)(void *) = FIND(void (*)(void *), "cfree");
  void (*its_free_sized)(void *, size_t) = FIND(void (*)(void *, size_t), "free_sized");
  void (*its_free_aligned_sized)(void *, size_t, size_t) =
      FIND(void (*)(void *, size_t, size_t), "free_aligned_sized");
  CHECK(its_cfree && its_free_sized && its_free_aligned_sized);
  unsigned before = frees;
  its_cfree(p);
  CHECK(frees == before + 1);
  its_free_sized(malloc(10), 10);
  CHECK(frees == before + 2);
  its_free_aligned_sized(malloc(16), 16, 16);
  CHECK(frees == before + 3);
  return 0;
}
