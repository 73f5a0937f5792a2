// ctor_lib.c: a library that allocates when it is loaded, frees when it is unloaded, and can
// check its blocks in between.

#include "../testing.h"

enum { N = 120 };
static void *blocks[N];

__attribute__((constructor)) static void loaded(void) {
  for (size_t i = 0; i < N; i++) {
    CHECK(blocks[i] = malloc(i * i));
    fill(blocks[i], i * i, i);
  }
}

bool ctor_lib_intact(void);
bool ctor_lib_intact(void) {
  for (size_t i = 0; i < N; i++)
    if (!filled(blocks[i], i * i, i)) return false;
  return true;
}

__attribute__((destructor)) static void unloaded(void) {
  CHECK(ctor_lib_intact());
  for (size_t i = 0; i < N; i++) free(blocks[i]);
}
