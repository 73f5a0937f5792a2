// libflawed.so: the system's malloc with one flaw, chosen by a word in FLAW.
//
//   FLAW=leak LD_PRELOAD=build/bench/libflawed.so PROGRAM
//
// validate.py runs every benchmark with a flaw that the benchmark exists to show, and without it:
// a benchmark that cannot tell the two apart does not measure what it claims to. The flaws are
// large, so that they show even on a busy machine:
//
//   leak    free does nothing
//   slow    every call takes SLOW_NS longer
//   lock    every call holds one lock that all threads share, and takes LOCK_NS longer under it
//   pad     every block takes four times its size; every OS page of malloc's is written
//   copy    realloc always takes a new block and copies
//   spike   each 401st call of a thread takes SPIKE_NS longer (odd, as malloc and free alternate)
//   thread  a thread's first call takes THREAD_KIB of memory, which is never freed
//   start   the library's constructor takes START_NS of time and START_KIB of memory
//   dirty   a forked child writes to every OS page of the heap
//   none    no flaw
//
// It wraps glibc's functions by their internal names, so it works on glibc only.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { OS_PAGE = 4096, SLOW_NS = 1000, LOCK_NS = 1000, SPIKE_NS = 100000, SPIKE_EVERY = 401, PADDING = 4 };
enum { THREAD_KIB = 512, START_KIB = 8192, START_NS = 5000000 };

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *p);

static struct {
  bool leak, slow, lock, pad, copy, spike, thread, dirty;
} flaw;
static pthread_mutex_t one_lock = PTHREAD_MUTEX_INITIALIZER;
static char *heap_start;
static __thread __attribute__((tls_model("initial-exec"))) struct {
  unsigned calls;
  bool seen;
} me;

static void spend(uint64_t ns) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const uint64_t end = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + ns;
  do clock_gettime(CLOCK_MONOTONIC, &t);
  while ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec < end);
}

static void touch(char *p, size_t size) {
  for (size_t at = 0; at < size; at += OS_PAGE) ((volatile char *)p)[at] = p[at];
}

static void take(size_t kib) {
  char *p = mmap(NULL, kib << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p != MAP_FAILED) touch(p, kib << 10);
}

// Applies the flaws that affect every call.
static void suffer(void) {
  if (flaw.slow) spend(SLOW_NS);
  if (flaw.spike && ++me.calls % SPIKE_EVERY == 0) spend(SPIKE_NS);
  if (flaw.thread && !me.seen) {
    me.seen = true;
    take(THREAD_KIB);
  }
  if (flaw.lock) {
    pthread_mutex_lock(&one_lock);
    spend(LOCK_NS);
    pthread_mutex_unlock(&one_lock);
  }
}

static void in_child(void) { touch(heap_start, (size_t)((char *)sbrk(0) - heap_start)); }

static __attribute__((constructor)) void choose(void) {
  const char *word = getenv("FLAW");
  if (word == NULL) return;
  const struct {
    const char *name;
    bool *flag;
  } flaws[] = {{"leak", &flaw.leak}, {"slow", &flaw.slow},   {"lock", &flaw.lock},     {"pad", &flaw.pad},
               {"copy", &flaw.copy}, {"spike", &flaw.spike}, {"thread", &flaw.thread}, {"dirty", &flaw.dirty}};
  bool known = strcmp(word, "none") == 0;
  for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++)
    if (strcmp(word, flaws[i].name) == 0) known = *flaws[i].flag = true;
  if (strcmp(word, "start") == 0) {
    known = true;
    take(START_KIB);
    spend(START_NS);
  }
  if (!known) {
    static const char text[] = "libflawed.so: no such FLAW\n";
    (void)!write(2, text, sizeof text - 1);
    _exit(2);
  }
  if (flaw.dirty) {
    heap_start = (char *)(((uintptr_t)sbrk(0) + OS_PAGE - 1) & ~(uintptr_t)(OS_PAGE - 1));
    pthread_atfork(NULL, NULL, in_child);
  }
}

static void *padded(void *p, size_t size) {
  if (p != NULL && flaw.pad) touch(p, size);
  return p;
}

static size_t padding(size_t size) { return flaw.pad && size < SIZE_MAX / PADDING ? PADDING * size : size; }

// Does what glibc's function does, which has no internal name: the word before a block holds its
// size and 3 flag bits; the middle one says that the block has its own mapping. A program may be
// linked to another allocator, whose function would not know these blocks.
EXPORT size_t malloc_usable_size(void *p) {
  if (p == NULL) return 0;
  const size_t head = ((size_t *)p)[-1];
  return (head & ~(size_t)7) - ((head & 2) != 0 ? 2 : 1) * sizeof(size_t);
}

EXPORT void *malloc(size_t size) {
  suffer();
  size = padding(size);
  return padded(__libc_malloc(size), size);
}

EXPORT void *calloc(size_t count, size_t size) {
  suffer();
  return __libc_calloc(count, padding(size));
}

EXPORT void *memalign(size_t align, size_t size) {
  suffer();
  return __libc_memalign(align, padding(size));
}

EXPORT void free(void *p) {
  if (p == NULL) return;
  suffer();
  if (!flaw.leak) __libc_free(p);
}

EXPORT void *realloc(void *p, size_t size) {
  suffer();
  if (p == NULL || size == 0 || !(flaw.copy || flaw.leak)) return __libc_realloc(p, padding(size));
  void *fresh = __libc_malloc(size);
  if (fresh == NULL) return NULL;
  size_t had = malloc_usable_size(p);
  memcpy(fresh, p, had < size ? had : size);
  if (!flaw.leak) __libc_free(p);
  return fresh;
}

EXPORT void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }

EXPORT int posix_memalign(void **result, size_t align, size_t size) {
  if (align < sizeof(void *) || (align & (align - 1)) != 0) return EINVAL;
  const int error = errno;
  *result = memalign(align, size);
  errno = error;
  return *result != NULL ? 0 : ENOMEM;
}
