// misuse.c: one deliberate misuse per case: misuse CASE FUNCTION
//
// Before it misbehaves, the program announces on stdout what HAKMEM must print: "expect: " and
// the exact line. Then it must die by SIGABRT. With HAKMEM_ABORT=0 it continues instead,
// checks that the call did nothing and that the heap is intact, and ends with "survived" and
// status 0.

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hakmem/hakmem.h"

#define FAIL(text) (dprintf(2, "misuse.c:%d: " text "\n", __LINE__), _exit(3))

static const char *function;
static size_t right_size = 8; // of the block, for the sized frees
static size_t right_alignment = 64;

static void *hide(const void *p) {
  const void *volatile hidden = p;
  return (void *)(uintptr_t)hidden;
}

__attribute__((format(printf, 2, 3))) static void expect(const void *p, const char *format, ...) {
  char text[4096];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  char line[4600];
  int n = snprintf(line, sizeof line, "expect: hakmem: %s(%p): %s\n", function, p, text);
  if (write(1, line, (size_t)n) != n) _exit(4);
}

// jemalloc's functions, if there are any.
void *rallocx(void *p, size_t size, int flags) __attribute__((weak));
size_t xallocx(void *p, size_t size, size_t extra, int flags) __attribute__((weak));
size_t sallocx(const void *p, int flags) __attribute__((weak));
void dallocx(void *p, int flags) __attribute__((weak));
void sdallocx(void *p, size_t size, int flags) __attribute__((weak));

static bool misuse_allocx(void *p) {
  if (strcmp(function, "dallocx") == 0) {
    dallocx(p, 0);
  } else if (strcmp(function, "sdallocx") == 0) {
    sdallocx(p, right_size, 0);
  } else if (strcmp(function, "rallocx") == 0) {
    if (rallocx(p, 10, 0) != NULL || errno != EINVAL) FAIL("rallocx did something");
  } else if (strcmp(function, "xallocx") == 0) {
    if (xallocx(p, 10, 0, 0) != 0) FAIL("xallocx did something");
  } else if (strcmp(function, "sallocx") == 0) {
    if (sallocx(p, 0) != 0) FAIL("sallocx found something");
  } else {
    return false;
  }
  return true;
}

static size_t size_of(void *p) { return right_size = malloc_usable_size(p); }

// Calls the function under test. It returns only with HAKMEM_ABORT=0.
static void misuse(void *p) {
  p = hide(p);
  errno = 12345;
  if (strcmp(function, "free") == 0) {
    free(p);
    if (errno != 12345) FAIL("free changed errno");
  } else if (strcmp(function, "realloc") == 0) {
    if (realloc(p, 10) != NULL || errno != EINVAL) FAIL("realloc did something");
  } else if (strcmp(function, "malloc_usable_size") == 0) {
    if (malloc_usable_size(p) != 0) FAIL("malloc_usable_size found something");
  } else if (strcmp(function, "free_sized") == 0) {
    void (*free_sized)(void *, size_t) =
        (void (*)(void *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_sized");
    if (!free_sized) FAIL("no free_sized");
    free_sized(p, right_size);
  } else if (strcmp(function, "free_aligned_sized") == 0) {
    void (*free_aligned_sized)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_aligned_sized");
    if (!free_aligned_sized) FAIL("no free_aligned_sized");
    free_aligned_sized(p, right_alignment, right_size);
  } else if (strcmp(function, "operator delete") == 0) {
    void (*delete)(void *, size_t) =
        (void (*)(void *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "_ZdlPvm");
    if (!delete) FAIL("no operator delete");
    delete(p, right_size);
  } else if (!misuse_allocx(p)) {
    FAIL("no such function");
  }
}

static void the_heap_is_whole(void) {
  enum { N = 2000 };
  static unsigned char *p[N];
  for (size_t i = 0; i < N; i++) {
    size_t size = i % 50 ? i : i * 1000;
    if (!(p[i] = malloc(size))) FAIL("no memory");
    memset(p[i], (int)(i & 255), size);
  }
  for (size_t i = 0; i < N; i++) {
    size_t size = i % 50 ? i : i * 1000;
    for (size_t j = 0; j < size; j++)
      if (p[i][j] != (i & 255)) FAIL("blocks overlap");
    free(p[i]);
  }
}

// ---------------------------------------------------------------------------
// Double frees.

static void twice(size_t size) {
  void *p = malloc(size), *keep = malloc(size); // keeps the slab from becoming empty
  size_t usable = size_of(p);
  expect(p, "double free of a %zu-byte block", usable);
  free(p);
  misuse(p);
  free(keep);
}

static void twice_with_others_between(size_t size) {
  void *p[6];
  for (size_t i = 0; i < 6; i++) p[i] = malloc(size);
  size_t usable = size_of(p[2]);
  expect(p[2], "double free of a %zu-byte block", usable);
  free(p[2]), free(p[4]), free(p[0]);
  misuse(p[2]);
  free(p[1]), free(p[3]), free(p[5]);
}

static void tiny_16(void) { twice(16); }
static void tiny_100(void) { twice(100); }
static void tiny_500(void) { twice(500); }
static void tiny_1024(void) { twice(1024); }
static void l2_4097(void) { twice(4097); }
static void l2_5000(void) { twice(5000); }
static void l2_30000(void) { twice(30000); }
static void l2_57344(void) { twice(57344); }
static void l2_apart_4097(void) { twice_with_others_between(4097); }
static void l2_apart_8192(void) { twice_with_others_between(8192); }
static void l2_apart_57344(void) { twice_with_others_between(57344); }
static void l25_57345(void) { twice(57345); }
static void l25_65536(void) { twice(65536); }
static void l25_300000(void) { twice(300000); }
static void l25_1_mib(void) { twice(1 << 20); }
static void l25_apart(void) { twice_with_others_between(200000); }

// So much was freed that nothing describes the block any more.
static void l25_forgotten(void) {
  enum { N = 60 };
  static void *p[N];
  for (size_t i = 0; i < N; i++) p[i] = malloc(900000);
  size_t usable = size_of(p[N / 6]);
  for (size_t i = 0; i < N; i++) free(p[i]);
  if (sysconf(_SC_PAGESIZE) > 4096) // a page holds the descriptors of several SuperSlabs, and stays
    expect(p[N / 6], "double free of a %zu-byte block", usable);
  else
    expect(p[N / 6], "no live block: freed before, or never allocated; what was there was given back "
                     "to the system");
  misuse(p[N / 6]);
}

static void huge_twice(void) { // the mapping is gone, and with it all that described the block
  void *p = malloc(5 << 20);
  expect(p, "not allocated by hakmem: the address is not mapped");
  free(p);
  misuse(p);
}

// Misuse that only shows later: when a free list ends too early, or at exit.
static void list_cut(void) {
  enum { N = 40 };
  static void *p[N + 100]; // more than a slab has
  for (size_t i = 0; i < N; i++) p[i] = malloc(900);
  void *slab = (void *)((uintptr_t)p[0] & ~(uintptr_t)0xffff);
  char line[300];
  int n = snprintf(line, sizeof line,
                   "expect: hakmem: use after free, or double free: a link among the %zu-byte blocks at %p was "
                   "overwritten; %d free blocks are lost\n", size_of(p[0]), slab, N - 1);
  if (write(1, line, (size_t)n) != n) _exit(4);
  for (size_t i = 0; i < N; i++) free(p[i]);
  *(void *volatile *)hide(p[N - 1]) = NULL;
  for (size_t i = 0; i < N + 100; i++) p[i] = malloc(900);
  for (size_t i = 0; i < N + 100; i++) free(p[i]);
}

_Noreturn static void end_now(void *misused) {
  misuse(misused);
  exit(0);
}
static void exit_inside_tiny(void) {
  char *p = malloc(900);
  expect(p + 32, "not the start of a block; it lies 32 bytes inside the %zu-byte block at %p", size_of(p), (void *)p);
  end_now(p + 32);
}
static void exit_twice_tiny(void) {
  void *p = malloc(900), *q = malloc(900);
  expect(p, "double free of a %zu-byte block", size_of(p));
  free(p), free(q);
  end_now(p);
}
static void exit_link(void) {
  void *p = malloc(900), *q = malloc(900);
  char line[200];
  int n = snprintf(line, sizeof line, "expect: hakmem: use after free: the link of the free block at %p was "
                   "overwritten\n", p);
  if (write(1, line, (size_t)n) != n) _exit(4);
  free(p);
  *(void *volatile *)hide(p) = (void *)0x4141414141414141;
  end_now(q);
}

// A process's first blocks. An overwrite of what follows one of them harms nothing else.
static void overflown(size_t size, size_t from, size_t by) {
  unsigned char *p = malloc(size);
  expect(p, "overflow: what follows the %zu-byte block was overwritten", size_of(p));
  memset(hide(p + size_of(p) + from), 0x41, by);
  misuse(p);
}
static void first_overflow_by_1(void) { overflown(100, 0, 1); }
static void new_overflow(const char *name) {
  void *(*new)(size_t, const void *) = (void *(*)(size_t, const void *))(uintptr_t)dlsym(RTLD_DEFAULT, name);
  if (!new) FAIL("no operator new");
  unsigned char *p = new(100, NULL);
  expect(p, "overflow: what follows the %zu-byte block was overwritten", size_of(p));
  memset(hide(p + size_of(p)), 0x41, 1);
  misuse(p);
}
static void first_overflow_new(void) { new_overflow("_Znwm"); }
static void first_overflow_new_array(void) { new_overflow("_ZnamRKSt9nothrow_t"); }
static void first_overflow_far(void) { overflown(1000, 7, 1); }
static void first_underflow(void) { // it hits the block before
  unsigned char *p = malloc(24), *q = malloc(24);
  expect(p, "overflow: what follows the %zu-byte block was overwritten", size_of(p));
  memset(hide(q - 1), 0x41, 1);
  free(q);
  misuse(p);
}
static void first_twice_apart(void) {
  void *p = malloc(100);
  expect(p, "double free of a %zu-byte block", size_of(p));
  free(p);
  for (size_t i = 0; i < 1000; i++) free(malloc(i));
  misuse(p);
}
static void first_inside(void) {
  char *p = malloc(900);
  expect(p + 32, "not the start of a block; it lies 32 bytes inside the %zu-byte block at %p", size_of(p), (void *)p);
  misuse(p + 32);
}
static void first_between(void) { // an address that no block of this size can have
  char *p = malloc(24);
  expect(p + 16, "not the start of a block; it lies 16 bytes inside the %zu-byte block at %p", size_of(p), (void *)p);
  misuse(p + 16);
}
static void announce(const char *what, size_t size, const void *p) {
  char line[200];
  int n = snprintf(line, sizeof line, what, size, p);
  if (write(1, line, (size_t)n) != n) _exit(4);
}
static void first_exit_overflow(void) {
  unsigned char *p = malloc(100);
  char line[200];
  int n = snprintf(line, sizeof line, "expect: hakmem: exit(%p): overflow: what follows the %zu-byte block was "
                   "overwritten\n", (void *)p, size_of(p));
  if (write(1, line, (size_t)n) != n) _exit(4);
  memset(hide(p + size_of(p)), 0x41, 1);
  exit(0);
}
static void written(size_t size, size_t at) {
  unsigned char *p = malloc(size);
  announce("expect: hakmem: use after free: the %zu-byte block at %p was written to\n", size_of(p), p);
  free(p);
  *(volatile unsigned char *)hide(p + at) = 0x41;
}
static void first_exit_written(void) { written(24, 0), exit(0); }
static void first_exit_written_9(void) { written(500, 9), exit(0); }
static void first_given_back_written(void) { // found when all are free, before their pages go back
  void *last = malloc(16);
  written(500, 9);
  static void *p[300];
  for (size_t i = 0; i < 300; i++) p[i] = malloc(100);
  for (size_t i = 0; i < 300; i++) free(p[i]);
  misuse(last);
}

static void *thread_block;
static void *make(void *size) {
  thread_block = malloc((size_t)(uintptr_t)size);
  return NULL;
}
static void *free_it_twice(void *p) {
  free(p);
  misuse(p);
  return NULL;
}
static void run(void *(*start)(void *), void *argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, start, argument) != 0) FAIL("no thread");
  pthread_join(thread, NULL);
}

// A thread that does not own the block frees it twice in a row.
static void remote(size_t size) {
  void *p = malloc(size), *keep = malloc(size);
  expect(p, "double free of a %zu-byte block", size_of(p));
  run(free_it_twice, p);
  free(keep);
}
static void remote_tiny(void) { remote(64); }
static void remote_l2(void) { remote(6000); }
static void remote_l25(void) { remote(100000); }

// Two threads free it, once each.
static void *free_it(void *p) {
  misuse(p);
  return NULL;
}
static void others_tiny(void) { // each of two threads frees it once
  void *p = malloc(64), *keep = malloc(64);
  expect(p, "double free of a %zu-byte block", size_of(p));
  run(free_it, p);
  run(free_it, p);
  free(keep);
}
static void others_l2(void) {
  void *p = malloc(6000), *keep = malloc(6000);
  expect(p, "double free of a %zu-byte block", size_of(p));
  run(free_it, p);
  run(free_it, p);
  free(keep);
}
static void owner_then_other_l2(void) {
  void *p = malloc(6000), *keep = malloc(6000);
  expect(p, "double free of a %zu-byte block", size_of(p));
  free(p);
  run(free_it, p);
  free(keep);
}

// A block of a thread that has ended.
static void orphan_l2(void) {
  run(make, (void *)(uintptr_t)9000);
  void *keep = malloc(9000);
  expect(thread_block, "double free of a %zu-byte block", size_of(thread_block));
  free(thread_block);
  misuse(thread_block);
  free(keep);
}

static void *make_two(void *size) {
  make(size);
  return malloc((size_t)(uintptr_t)size) ? NULL : size; // this one stays live
}
static void orphan_tiny(void) {
  void *keep = malloc(64);
  run(make_two, (void *)(uintptr_t)64);
  expect(thread_block, "double free of a %zu-byte block", size_of(thread_block));
  free(thread_block);
  misuse(thread_block);
  free(keep);
}

// ---------------------------------------------------------------------------
// Pointers to something other than a block.

static void off_by(size_t size, size_t offset) {
  char *p = malloc(size);
  expect(p + offset, "misaligned pointer");
  misuse(p + offset);
  memset(p, 1, size);
  free(p);
}
static void misaligned_tiny_1(void) { off_by(100, 1); }
static void misaligned_tiny_8(void) { off_by(100, 8); }
static void misaligned_l2_1(void) { off_by(5000, 1); }
static void misaligned_l2_8(void) { off_by(5000, 8); }
static void misaligned_l25_1(void) { off_by(200000, 1); }
static void misaligned_l25_8(void) { off_by(200000, 8); }

static void inside(size_t size, size_t offset) {
  char *p = malloc(size);
  size_t usable = size_of(p);
  memset(p, 0x5a, usable);
  expect(p + offset, "not the start of a block; it lies %zu bytes inside the %zu-byte block at %p",
         offset, usable, (void *)p);
  misuse(p + offset);
  for (size_t i = 0; i < usable; i++)
    if (p[i] != 0x5a) FAIL("the block was changed");
  if (malloc_usable_size(p) != usable) FAIL("the block was freed");
  free(p);
}
static void *free_and_misuse(void *p) {
  free(malloc(64)); // a thread with a heap of its own frees by the fast path
  misuse(p);
  return NULL;
}
static void inside_tiny_remote(void) {
  char *p = malloc(500);
  size_t usable = size_of(p);
  expect(p + 48, "not the start of a block; it lies 48 bytes inside the %zu-byte block at %p", usable,
         (void *)p);
  run(free_and_misuse, p + 48);
  free(p);
}
static void inside_l2_first(void) { inside(4097, 16); }
static void inside_l2_middle(void) { inside(20000, 10000); }
static void inside_l2_last(void) { inside(57344, 57344 - 16); }
static void inside_l25_slab(void) { inside(65536, 32768); }
static void inside_l25_far(void) { inside(1000000, 131072); } // starts a slab of its own
// A pointer into the gap that colours a slab or run (docs/decisions/0013-colour.md). The first
// of its blocks lies within the first page.
static void before(size_t size, bool remote) {
  enum { N = 300 };
  char *p[N], *first = NULL;
  for (int i = 0; i < N; i++) {
    uintptr_t at = (uintptr_t)(p[i] = malloc(size)) & 0xffff;
    if (at >= 16 && at < 4096 && (!first || at < ((uintptr_t)first & 0xffff))) first = p[i];
  }
  if (!first) FAIL("no block has a gap before it");
  size_t usable = size_of(first);
  memset(first, 0x5a, usable);
  expect(first - 16, "not the start of a block; it lies 16 bytes before the %zu-byte block at %p", usable,
         (void *)first);
  if (remote) run(free_and_misuse, first - 16);
  else misuse(first - 16);
  for (size_t i = 0; i < usable; i++)
    if (first[i] != 0x5a) FAIL("the block was changed");
  for (int i = 0; i < N; i++) free(p[i]);
}
static void before_tiny_remote(void) { before(1200, true); }
static void before_l2(void) { before(5000, false); }
static void before_l25(void) { before(200000, false); }
static void inside_huge_first(void) { inside(3 << 20, 16); }
static void inside_huge_page(void) { inside(3 << 20, 4096); }
static void inside_huge_far(void) { inside(64 << 20, 40 << 20); } // 2 MiB aligned

// ---------------------------------------------------------------------------
// Sized frees: `asked` bytes of `alignment`, freed as `claimed`.

static uint64_t frees(void) {
  bool (*get)(hak_stats_t *, size_t) =
      (bool (*)(hak_stats_t *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "hak_stats_get");
  hak_stats_t stats;
  if (!get || !get(&stats, sizeof stats)) FAIL("no statistics");
  return stats.frees;
}

static void sized(size_t alignment, size_t asked, size_t claimed) {
  char *p = aligned_alloc(alignment, asked);
  size_t usable = malloc_usable_size(p);
  memset(p, 0x5a, usable);
  expect(p, "size %zu does not belong to a %zu-byte block", claimed, usable);
  right_size = claimed;
  right_alignment = alignment;
  uint64_t before = frees();
  misuse(p);
  if (frees() != before + 1) FAIL("the block was not freed");
  if (strcmp(function, "operator delete") != 0) return;
  void *q = malloc(asked);
  right_size = claimed;
  misuse(q); // reported only once
}
static void size_max_for_1(void) { sized(16, 1, SIZE_MAX - 3); }
// A quarter more than that is 1000 in 64 bits (grown_to, src/api/malloc.c).
static void size_wraps_for_1000(void) { sized(16, 1000, (SIZE_MAX / 5 + 200) * 4 + 1); }
static void size_1_for_24(void) { sized(16, 24, 1); }
static void size_33_for_24(void) { sized(16, 24, 33); }
static void size_100_for_1000(void) { sized(16, 1000, 100); }
static void size_800_for_1000(void) { sized(16, 1000, 800); }
static void size_1025_for_1000(void) { sized(16, 1000, 1025); }
static void size_2500_for_5000(void) { sized(16, 5000, 2500); }
static void size_5121_for_5000(void) { sized(16, 5000, 5121); }
static void size_3500_for_5500_borrowed(void) {
  free(malloc(7000)); // the block that is borrowed then
  sized(16, 5500, 3500);
}
static void size_100000_for_300000(void) { sized(16, 300000, 100000); }
static void size_400000_for_300000(void) { sized(16, 300000, 400000); }
static void size_6_mib_for_5_mib(void) { sized(16, 5 << 20, 6 << 20); }
static void size_64_for_100_aligned(void) { sized(64, 100, 64); }
static void size_100_for_128_aligned(void) { sized(64, 128, 100); } // the same once rounded up
static void size_129_for_100_aligned(void) { sized(64, 100, 129); }
static void size_max_for_100_aligned(void) { sized(256, 100, SIZE_MAX - 10); }
static void size_max_for_5000_aligned(void) { sized(4096, 5000, SIZE_MAX); }
static void size_60000_for_5000_aligned(void) { sized(1 << 21, 5000, 60000); }

// ---------------------------------------------------------------------------
// Memory that is not HAKMEM's.

static const char *own_path(void) {
  static char path[4000];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) FAIL("no /proc/self/exe");
  return path;
}

static void belongs_to(void *p, const char *what) {
  expect(p, "not allocated by hakmem: the address belongs to %s", what);
  misuse(p);
}

static void stack(void) {
  _Alignas(16) char on_stack[64] = "on the stack";
  belongs_to(on_stack, "[stack]");
}
static void global(void) {
  _Alignas(16) static char data[64] = "a global variable";
  belongs_to(data, own_path());
}
static void bss(void) { // too large for the last file-backed page of the data
  _Alignas(16) static char data[1 << 20];
  belongs_to(&data[1 << 19], own_path());
}
static void literal(void) {
  static const _Alignas(16) char text[64] = "a constant";
  belongs_to(hide(text), own_path());
}
static void mapping(void) {
  void *p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) FAIL("no mapping");
  // The kernel could merge neighbours of the same kind into one mapping with a name; a guard
  // on both sides prevents that.
  mprotect(p, 4096, PROT_NONE), mprotect((char *)p + 61440, 4096, PROT_NONE);
  belongs_to((char *)p + 8192, "an anonymous mapping");
  munmap(p, 1 << 16);
}
static void file_with_spaces(void) {
  int fd = memfd_create("my file", 0);
  if (fd < 0 || ftruncate(fd, 4096)) FAIL("no file");
  void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) FAIL("no mapping");
  belongs_to(p, "/memfd:my file (deleted)");
}
static void program_break(void) {
  char *p = sbrk(65536);
  if (p == (void *)-1) FAIL("no sbrk");
  p += 32768;
  belongs_to((void *)((uintptr_t)p & ~(uintptr_t)15), "[heap]");
}

static void no_proc(void) { // nor can any other file be opened: the address is not described
  _Alignas(16) char on_stack[64] = "on the stack";
  struct rlimit none = {0, 0};
  if (setrlimit(RLIMIT_NOFILE, &none)) FAIL("no limit");
  expect(on_stack, "not allocated by hakmem");
  misuse(on_stack);
}

static void wild(uintptr_t address) {
  expect((void *)address, "not allocated by hakmem: the address is not mapped");
  misuse((void *)address);
}
static void wild_10(void) { wild(0x10); }
static void wild_deadbeef(void) { wild(0xdeadbeef000); }
static void wild_non_canonical(void) { wild(0xdead000000000000); }
static void wild_highest(void) { wild(0xfffffffffffffff0); }

// A block's address with one bit flipped, above those that addresses have here: such pointers
// exist with 5-level page tables, or with a tag in the top byte.
static void high(size_t size, unsigned bit) {
  unsigned char *p = malloc(size);
  memset(p, 0x5a, size);
  wild((uintptr_t)p ^ (uintptr_t)1 << bit);
  for (size_t i = 0; i < size; i++)
    if (p[i] != 0x5a) FAIL("the block was changed");
  if (malloc_usable_size(p) < size) FAIL("the block was freed");
  free(p);
}
#define HIGH(bit) \
  static void high_##bit##_tiny(void) { high(100, bit); } \
  static void high_##bit##_l2(void) { high(5000, bit); } \
  static void high_##bit##_l25(void) { high(300000, bit); } \
  static void high_##bit##_huge(void) { high(3 << 20, bit); }
HIGH(47) HIGH(48) HIGH(52) HIGH(56) HIGH(63)

// ---------------------------------------------------------------------------

#define CASE(name) {#name, name}
static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    CASE(tiny_16), CASE(tiny_100), CASE(tiny_500), CASE(tiny_1024),
    CASE(l2_4097), CASE(l2_5000), CASE(l2_30000), CASE(l2_57344),
    CASE(l2_apart_4097), CASE(l2_apart_8192), CASE(l2_apart_57344),
    CASE(l25_57345), CASE(l25_65536), CASE(l25_300000), CASE(l25_1_mib), CASE(l25_apart), CASE(l25_forgotten),
    CASE(huge_twice), CASE(remote_tiny), CASE(remote_l2), CASE(remote_l25),
    CASE(owner_then_other_l2), CASE(orphan_l2), CASE(orphan_tiny), CASE(others_tiny), CASE(others_l2),
    CASE(list_cut), CASE(exit_inside_tiny), CASE(exit_twice_tiny), CASE(exit_link),
    CASE(first_overflow_by_1), CASE(first_overflow_new), CASE(first_overflow_new_array),
    CASE(first_overflow_far), CASE(first_underflow), CASE(first_twice_apart),
    CASE(first_inside), CASE(first_between), CASE(first_exit_overflow), CASE(first_exit_written),
    CASE(first_exit_written_9), CASE(first_given_back_written),
    CASE(misaligned_tiny_1), CASE(misaligned_tiny_8), CASE(misaligned_l2_1),
    CASE(misaligned_l2_8), CASE(misaligned_l25_1), CASE(misaligned_l25_8),
    CASE(inside_tiny_remote), CASE(inside_l2_first), CASE(inside_l2_middle), CASE(inside_l2_last), CASE(inside_l25_slab),
    CASE(inside_l25_far), CASE(before_tiny_remote), CASE(before_l2), CASE(before_l25),
    CASE(inside_huge_first), CASE(inside_huge_page), CASE(inside_huge_far),
    CASE(size_max_for_1), CASE(size_wraps_for_1000), CASE(size_1_for_24), CASE(size_33_for_24), CASE(size_100_for_1000), CASE(size_1025_for_1000),
    CASE(size_800_for_1000), CASE(size_2500_for_5000), CASE(size_5121_for_5000), CASE(size_3500_for_5500_borrowed),
    CASE(size_100000_for_300000),
    CASE(size_400000_for_300000), CASE(size_6_mib_for_5_mib), CASE(size_64_for_100_aligned),
    CASE(size_100_for_128_aligned), CASE(size_129_for_100_aligned), CASE(size_max_for_100_aligned), CASE(size_max_for_5000_aligned),
    CASE(size_60000_for_5000_aligned),
    CASE(stack), CASE(global), CASE(bss), CASE(literal), CASE(mapping), CASE(file_with_spaces),
    CASE(program_break), CASE(no_proc),
    CASE(wild_10), CASE(wild_deadbeef), CASE(wild_non_canonical), CASE(wild_highest),
#define HIGH_CASES(bit) \
  CASE(high_##bit##_tiny), CASE(high_##bit##_l2), CASE(high_##bit##_l25), CASE(high_##bit##_huge)
    HIGH_CASES(47), HIGH_CASES(48), HIGH_CASES(52), HIGH_CASES(56), HIGH_CASES(63),
};

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  if (!dlsym(RTLD_DEFAULT, "hak_version")) FAIL("HAKMEM is not in this process");
  function = argv[2];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (strcmp(cases[i].name, argv[1]) != 0) continue;
    cases[i].run();
    the_heap_is_whole();
    puts("survived");
    return 0;
  }
  return 2;
}
