// unit.h: what the unit tests share.
//
// Tests that need a process of their own (a fresh heap, limits, threads that end)
// are written as functions of no argument and run by ISOLATED(name) in a forked
// child. In children and threads only CHECK works, not cmocka's assertions.

#ifndef TEST_UNIT_UNIT_H
#define TEST_UNIT_UNIT_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../os_testing.h"
#include "../resident.h"
#include "core/options.h"
#include "os/os.h"
#include "thread/guard.h"

// The tests exercise what serves all but the first blocks of a process, from the start.
#ifndef UNIT_FIRST_BLOCKS
#include "thread/first.h"
__attribute__((constructor)) static void unit_no_first_blocks(void) {
  hak_store_relaxed(&hak_first_is_open, false);
}
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define COUNT(a) (sizeof(a) / sizeof *(a))

// The emulator counts as a sanitizer: it is slow and has memory and mappings of its own.
#if EMULATED
#define SANITIZED 1
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
// Scales down work that the sanitizers slow down tenfold.
#define SCALED(n) (SANITIZED ? (n) / 8 : (n))

#define CHECK(x)                                                                          \
  do {                                                                                    \
    if (!(x)) {                                                                           \
      dprintf(2, "%s:%d: %s does not hold (errno %d)\n", __FILE__, __LINE__, #x, errno);  \
      _exit(1);                                                                           \
    }                                                                                     \
  } while (0)

#define CHECK_EQUAL(a, b)                                                                  \
  do {                                                                                     \
    unsigned long long a_ = (unsigned long long)(a), b_ = (unsigned long long)(b);         \
    if (a_ != b_) {                                                                        \
      dprintf(2, "%s:%d: %s is %llu, not %s = %llu\n", __FILE__, __LINE__, #a, a_, #b, b_); \
      _exit(1);                                                                            \
    }                                                                                      \
  } while (0)

// Runs body in a child and fails the calling test if its exit status is not 0.
static inline void unit_in_child(void (*body)(void)) {
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    // cmocka's handlers would jump back into the parent's list of tests.
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < COUNT(signals); i++) signal(signals[i], SIG_DFL);
    body();
    exit(0); // not _exit: the sanitizers report leaks and races at exit
  }
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (WIFSIGNALED(status)) fail_msg("the child was ended by signal %d", WTERMSIG(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

#define ISOLATED(name)                    \
  static void name##_isolated(void **state) { \
    (void)state;                          \
    unit_in_child(name);                  \
  }
#define ISOLATED_TEST(name) {#name, name##_isolated, NULL, NULL, NULL}
#define RUN(tests) cmocka_run_group_tests(tests, NULL, NULL)

// xorshift64*: random numbers, from fixed seeds.
static inline uint64_t chance(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545f4914f6cdd1du;
}
static inline size_t chance_below(uint64_t *state, size_t n) { return (chance(state) >> 20) % n; }

// ---------------------------------------------------------------------------
// Contents. Blocks above a page get a word in every 512 bytes only, so that large ones stay
// cheap. The last n % 8 bytes are of another pattern, so shorter checks take a multiple of 8.

static inline size_t unit_stride(size_t n) { return n <= 4096 ? 8 : 512; }

static inline void fill_every(void *p, size_t n, uint64_t seed, size_t stride) {
  unsigned char *at = p;
  size_t i = 0;
  for (; i + 8 <= n; i += stride) {
    uint64_t w = (seed + 1) * 0x9e3779b97f4a7c15u + i;
    memcpy(at + i, &w, 8);
  }
  for (i = n & ~(size_t)7; i < n; i++) at[i] = (unsigned char)(seed + i);
}

static inline bool filled_every(const void *p, size_t n, uint64_t seed, size_t stride) {
  const unsigned char *at = p;
  size_t i = 0;
  for (; i + 8 <= n; i += stride) {
    uint64_t w = (seed + 1) * 0x9e3779b97f4a7c15u + i;
    if (memcmp(at + i, &w, 8) != 0) return false;
  }
  for (i = n & ~(size_t)7; i < n; i++)
    if (at[i] != (unsigned char)(seed + i)) return false;
  return true;
}

static inline void fill(void *p, size_t n, uint64_t seed) { fill_every(p, n, seed, unit_stride(n)); }
static inline bool filled(const void *p, size_t n, uint64_t seed) {
  return filled_every(p, n, seed, unit_stride(n));
}

static inline bool all_zero(const void *p, size_t n) {
  const unsigned char *at = p;
  return n == 0 || (at[0] == 0 && memcmp(at, at + 1, n - 1) == 0);
}

// ---------------------------------------------------------------------------
// Threads

static inline pthread_t unit_start(void *(*body)(void *), void *argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, body, argument) == 0);
  return thread;
}
static inline void unit_join(pthread_t thread) { CHECK(pthread_join(thread, NULL) == 0); }
// Runs body in a thread that has ended when this returns.
static inline void unit_in_thread(void *(*body)(void *), void *argument) {
  unit_join(unit_start(body, argument));
}

// A SIGTRAP follows every instruction between STEPS_BEGIN() and STEPS_END().
#if defined(__x86_64__) && !SANITIZED
#define SINGLE_STEPS 1
#define UNIT_TRAP_FLAG(operation) \
  __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; " operation ", (%%rsp); popfq; lea 128(%%rsp), %%rsp" \
                   : : : "memory", "cc")
#define STEPS_BEGIN() UNIT_TRAP_FLAG("orq $0x100")
#define STEPS_END() UNIT_TRAP_FLAG("andq $~0x100")
#endif

// CPU time of the calling thread; other load does not count.
static inline uint64_t unit_thread_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Stops the allocator's clock, or moves it on: what depends on it is the same under any load.
static inline void unit_clock_step(uint64_t ms) { hak_os_clock_set(hak_os_clock_ms() + ms); }

// No block is put beside a guard page, whatever the environment says. Before the first block.
static inline void unit_no_guards(void) {
  hak_option(GUARD) = 0;
  hak_store_relaxed(&hak_guard_base, (uintptr_t)0); // set by the library's constructor
}

// Number of mappings; always 0 under TSan and emulation, whose own mappings come and go.
static inline size_t mapping_count(void) {
#if defined(__SANITIZE_THREAD__) || EMULATED
  return 0;
#endif
  FILE *f = fopen("/proc/self/maps", "r");
  CHECK(f != NULL);
  size_t lines = 0;
  for (int c; (c = getc(f)) != EOF;) lines += c == '\n';
  fclose(f);
  return lines;
}

// A figure that the kernel does not give would satisfy every upper bound.
static inline size_t unit_known(size_t kib) {
  CHECK(kib != 0);
  return kib;
}
#define status_kib(name) unit_known(status_kib(name))
#define exact_rss_kib() unit_known(exact_rss_kib())

// Whether the mapping that contains p has the flag in /proc/self/smaps, for instance " hg".
static inline bool vm_flag(const void *p, const char *flag) {
  FILE *f = fopen("/proc/self/smaps", "r");
  CHECK(f != NULL);
  char line[512];
  bool inside = false, found = false;
  while (fgets(line, sizeof line, f)) {
    uintptr_t start, end;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
      inside = start <= (uintptr_t)p && (uintptr_t)p < end;
    else if (inside && strncmp(line, "VmFlags:", 8) == 0) found = strstr(line, flag) != NULL;
  }
  fclose(f);
  return found;
}

// Whether this kernel reports which pages are in use. A kernel that emulates another does not,
// and TSan's runtime has page faults of its own in between.
static inline bool pages_are_told(void) {
#if defined(__SANITIZE_THREAD__)
  return false;
#endif
  struct rusage before, after;
  size_t size = 1 << 18; // many pages: an emulator has few page faults of its own
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED && getrusage(RUSAGE_THREAD, &before) == 0);
  bool read = madvise(p, size, 22 /* MADV_POPULATE_READ */) == 0;
  CHECK(getrusage(RUSAGE_THREAD, &after) == 0);
  CHECK(munmap(p, size) == 0);
  return read && (size_t)(after.ru_minflt - before.ru_minflt) >= size / (size_t)getpagesize();
}

// Writes one byte in every stride of p.
static inline void use_every(void *p, size_t size, size_t stride) {
  for (size_t at = 0; at < size; at += stride) ((volatile char *)p)[at] = 1;
}
enum { DENSE = 4096, SPARSE = 65536 }; // strides

#endif
