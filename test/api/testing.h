// testing.h: helpers shared by the contract tests. Nothing here allocates, so that a test sees
// only its own allocations.

#ifndef TEST_API_TESTING_H
#define TEST_API_TESTING_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../resident.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define COUNT(a) (sizeof(a) / sizeof *(a))

// For places where cmocka's assertions cannot be used (other threads, children, destructors):
// prints the condition that does not hold and ends the process with status 1.
#define CHECK(x)                                                                 \
  do {                                                                           \
    if (!(x)) {                                                                  \
      dprintf(2, "%s:%d: %s does not hold (errno %d)\n", __FILE__, __LINE__, #x, \
              errno);                                                            \
      _exit(1);                                                                  \
    }                                                                            \
  } while (0)

// Hides the value from the compiler, which would otherwise fold the deliberate misuse or warn
// about it.
static inline void *hide(const void *p) {
  const void *volatile hidden = p;
  return (void *)(uintptr_t)hidden;
}
static inline size_t hide_size(size_t n) {
  volatile size_t hidden = n;
  return hidden;
}

// Sizes in every size range and on both sides of each limit.
static const size_t tier_sizes[] __attribute__((unused)) = {
    1,    8,     16,    17,    100,   128,     129,    500,     1000,          1024,    1025,
    1280, 1281,  2000,  4096,  8000,  16384,   30000,  57344,   57345,
    65536, 65537, 1 << 17, 500000, 1 << 20, (1 << 20) + 1, 3 << 20, 16 << 20};

// ---------------------------------------------------------------------------
// Contents: word i of block number seed.

static inline uint64_t pattern_word(uint64_t seed, size_t i) {
  return (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0x0101010101010101u;
}

static inline void fill(void *p, size_t n, uint64_t seed) {
  unsigned char *at = p;
  size_t words = n / 8;
  for (size_t i = 0; i < words; i++) {
    uint64_t w = pattern_word(seed, i);
    memcpy(at + i * 8, &w, 8);
  }
  uint64_t last = pattern_word(seed, words);
  for (size_t i = words * 8; i < n; i++) at[i] = (unsigned char)(last >> (i % 8 * 8));
}

static inline bool filled(const void *p, size_t n, uint64_t seed) {
  const unsigned char *at = p;
  size_t words = n / 8;
  uint64_t wrong = 0;
  for (size_t i = 0; i < words; i++) {
    uint64_t w;
    memcpy(&w, at + i * 8, 8);
    wrong |= w ^ pattern_word(seed, i);
  }
  uint64_t last = pattern_word(seed, words);
  for (size_t i = words * 8; i < n; i++) wrong |= at[i] ^ (unsigned char)(last >> (i % 8 * 8));
  return wrong == 0;
}

static inline bool all_zero(const void *p, size_t n) {
  const unsigned char *at = p;
  uint64_t wrong = 0;
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t w;
    memcpy(&w, at + i, 8);
    wrong |= w;
  }
  for (; i < n; i++) wrong |= at[i];
  return wrong == 0;
}

// xorshift64*: the tests' only source of random numbers, always from a fixed seed.
static inline uint64_t chance(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545f4914f6cdd1du;
}

// ---------------------------------------------------------------------------
// The process.

// Address of a function by name; dlsym gives an object pointer.
#define FIND(type, name) ((type)(uintptr_t)dlsym(RTLD_DEFAULT, name))

static inline bool on_hakmem(void) { return dlsym(RTLD_DEFAULT, "hak_version") != NULL; }

#ifndef __GLIBC__ // the library exports it, whatever the C library has
#define pvalloc(size) (FIND(void *(*)(size_t), "pvalloc")(size))
#endif

// CTest sets EXPECT_HAKMEM: then it is a failure if the library was not preloaded.
static inline bool right_allocator(void) {
  if (getenv("EXPECT_HAKMEM") == NULL || on_hakmem()) return true;
  dprintf(2, "HAKMEM is not in this process\n");
  return false;
}

#define RUN(tests) (right_allocator() ? cmocka_run_group_tests(tests, NULL, NULL) : 2)

// Thread functions get their number as the argument.
#define AS_NUMBER(argument) ((size_t)(uintptr_t)(argument))
#define AS_ARGUMENT(number) ((void *)(uintptr_t)(number))

#endif
