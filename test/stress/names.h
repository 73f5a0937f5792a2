// names.h: the functions under test: the standard names, for a run with any allocator
// preloaded, or with -DSTRESS_HAK the hak_ names, linked in (sanitizers).

#ifndef TEST_STRESS_NAMES_H
#define TEST_STRESS_NAMES_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../resident.h"
#include "hakmem/hakmem.h"

#if STRESS_HAK
#define t_malloc hak_malloc
#define t_calloc hak_calloc
#define t_realloc hak_realloc
#define t_memalign hak_memalign
#define t_free hak_free
#define t_usable hak_malloc_usable_size
#else
#define t_malloc malloc
#define t_calloc calloc
#define t_realloc realloc
#define t_memalign memalign
#define t_free free
#define t_usable malloc_usable_size
#endif

extern char invocation[200]; // printed with every failure, so that the run can be repeated

#ifndef CHECK // test/fuzz has its own
#define CHECK(x)                                                                            \
  do {                                                                                      \
    if (!(x)) {                                                                             \
      dprintf(2, "%s: %s:%d: %s does not hold (errno %d)\n", invocation, __FILE__, __LINE__, \
              #x, errno);                                                                   \
      _exit(1);                                                                             \
    }                                                                                       \
  } while (0)
#endif

// Statistics of HAKMEM; false on another allocator.
static inline bool statistics(hak_stats_t *out) {
#if STRESS_HAK
  return hak_stats_get(out, sizeof *out);
#else
  bool (*get)(hak_stats_t *, size_t) =
      (bool (*)(hak_stats_t *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "hak_stats_get");
  return get && get(out, sizeof *out);
#endif
}

static inline bool right_allocator(void) {
  hak_stats_t s;
  return getenv("EXPECT_HAKMEM") == NULL || statistics(&s);
}


static inline uint64_t chance(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545f4914f6cdd1du;
}

#endif
