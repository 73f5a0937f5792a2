// situations.h: what the groups share. A case is a function of two numbers from its row, run
// under the conditions that the row names; it returns if all checks held. See situations.c.

#ifndef TEST_SITUATIONS_H
#define TEST_SITUATIONS_H

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "../resident.h"
#ifndef __cplusplus
#include <stdatomic.h>
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define COUNT(a) (sizeof(a) / sizeof *(a))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char *name;
  void (*run)(size_t a, size_t b);
  size_t a, b;
  const char *under; // names from conditions.c, separated by blanks; may be NULL
} case_t;

// Four rows, one for each size range, whichever allocator serves them.
enum { TINY = 48, L2 = 9000, L25 = 200000, HUGE = 3000000 };
#define EACH_RANGE(name, run, b) \
  {name "_tiny", run, TINY, b, NULL}, {name "_l2", run, L2, b, NULL}, \
      {name "_l25", run, L25, b, NULL}, { \
    name "_huge", run, HUGE, b, NULL \
  }

// One table per group, ended by a row without a name.
extern const case_t threads_cases[], process_cases[], signals_cases[], loader_cases[],
    limits_cases[], memory_cases[], contract_cases[], libc_cases[], cxx_cases[], workload_cases[];

// Sets up the named condition; false if there is none of that name. conditions.c
bool condition(const char *name, bool *restart);

__attribute__((noreturn)) void sit_fail(const char *file, int line, const char *what);
__attribute__((noreturn)) void sit_skip(const char *why);

#define CHECK(x) ((x) ? (void)0 : sit_fail(__FILE__, __LINE__, #x))

// Hides a value from the compiler, which must not fold it.
static inline void *hide(const void *p) {
  const void *volatile hidden = p;
  return (void *)(uintptr_t)hidden;
}
static inline size_t hide_size(size_t n) {
  volatile size_t hidden = n;
  return hidden;
}

// Contents that depend on the position and a seed.
void fill(void *p, size_t n, uint64_t seed);
bool filled(const void *p, size_t n, uint64_t seed);
bool all_zero(const void *p, size_t n);
uint64_t chance(uint64_t *state); // xorshift64*; state is never 0

static inline double seconds_since(const struct timespec *t) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)(now.tv_sec - t->tv_sec) + (double)(now.tv_nsec - t->tv_nsec) / 1e9;
}
static inline struct timespec time_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now;
}

// A malloc that must succeed, filled by a seed; and the check and free of such a block.
void *filled_block(size_t n, uint64_t seed);
void check_and_free(void *p, size_t n, uint64_t seed);

// Mixed sizes with checked contents, all freed at the end. churn_some takes only sizes up to
// 64 KiB, for tight limits.
void churn(uint64_t seed, size_t operations);
void churn_some(uint64_t seed, size_t operations);
void *churn_thread(void *seed); // churn of 2000 operations

pthread_t start(void *(*function)(void *), void *argument); // 64 KiB stack
bool try_start(pthread_t *thread, void *(*function)(void *), void *argument);
void join(pthread_t thread);
void wait_for(pid_t pid, int status); // the child's wait status must be this

// A pointer-sized number as a thread's argument.
#define AS_NUMBER(argument) ((size_t)(uintptr_t)(argument))
#define AS_ARGUMENT(number) ((void *)(uintptr_t)(number))

// The path of the file of that name beside this program.
const char *beside(const char *name);

// Blocks that the linked library's constructor made before main. ctor_lib.c
enum { CTOR_SIZES = 8 };
extern void *sit_ctor_block[CTOR_SIZES];
extern const size_t sit_ctor_size[CTOR_SIZES];

// Full length or short.
extern bool sit_long;

#ifdef __cplusplus
}
#endif
#endif
