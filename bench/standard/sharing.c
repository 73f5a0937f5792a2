// libsharing.so: a preloadable malloc that is deliberately bad at one thing.
//
//   LD_PRELOAD=build/bench/libsharing.so PROGRAM
//
// All threads share one free list per size class, and new blocks lie densely side by side,
// so threads that allocate at about the same time get blocks in the same cache line.
// validate.py uses it to show that cache_thrash and cache_scratch notice this.
//
// A size class is a power of two from 16 bytes to 1 MiB and has its own range of
// addresses, so blocks need no header. The lists are lock-free. Larger blocks are mapped
// one by one; only these are returned to the system.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))

enum { LOG_MIN = 4, LOG_MAX = 20, CLASSES = LOG_MAX - LOG_MIN + 1, LOG_RANGE = 32, OS_PAGE = 4096 };

// The lower half is the number of the first free block in units of 16 bytes, plus 1; 0 means
// none. The upper half counts changes, so that an exchange fails if the list has changed
// meanwhile, even if the same block is first again.
typedef struct size_class {
  // Release: publishes the link that was written into the block; pairs with the acquire
  // load in pop().
  _Alignas(128) _Atomic uint64_t first;
  // Bytes of never-used memory handed out. Relaxed: only makes the numbers unique.
  _Atomic uint64_t used;
} size_class_t;

// Lies in front of a mapped block.
typedef struct mapping {
  void *start;
  size_t size;
} mapping_t;

static size_class_t classes[CLASSES];
// Release: the range is mapped before its address is known; pairs with the acquire load.
static _Atomic(char *) ranges;

static char *base_of_ranges(void) {
  char *base = atomic_load_explicit(&ranges, memory_order_acquire);
  if (base != NULL) return base;
  size_t size = (size_t)CLASSES << LOG_RANGE, slack = (size_t)1 << LOG_MAX;
  char *p = mmap(NULL, size + slack, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return NULL;
  char *aligned = p + (-(uintptr_t)p & (slack - 1));
  if (atomic_compare_exchange_strong_explicit(&ranges, &base, aligned, memory_order_acq_rel,
                                              memory_order_acquire))
    return aligned;
  munmap(p, size + slack); // another thread was first
  return base;
}

static unsigned class_of(size_t size) {
  return size <= (size_t)1 << LOG_MIN ? 0 : (unsigned)(64 - __builtin_clzll(size - 1)) - LOG_MIN;
}

// A link may be read while the block's new owner writes to it; then the exchange fails.
static uint32_t *link_of(char *base, unsigned c, uint64_t number) {
  return (uint32_t *)(base + ((size_t)c << LOG_RANGE) + ((number - 1) << LOG_MIN));
}

static void *pop(char *base, unsigned c) {
  uint64_t first = atomic_load_explicit(&classes[c].first, memory_order_acquire);
  while ((uint32_t)first != 0) {
    uint32_t *link = link_of(base, c, (uint32_t)first);
    uint64_t next = (first >> 32) + 1;
    next = next << 32 | __atomic_load_n(link, __ATOMIC_RELAXED);
    if (atomic_compare_exchange_weak_explicit(&classes[c].first, &first, next, memory_order_acquire,
                                              memory_order_acquire))
      return link;
  }
  return NULL;
}

static void push(char *base, unsigned c, char *p) {
  uint64_t number = ((uint64_t)(p - base - ((ptrdiff_t)c << LOG_RANGE)) >> LOG_MIN) + 1;
  uint64_t first = atomic_load_explicit(&classes[c].first, memory_order_relaxed), now;
  do {
    __atomic_store_n((uint32_t *)p, (uint32_t)first, __ATOMIC_RELAXED);
    now = ((first >> 32) + 1) << 32 | number;
  } while (!atomic_compare_exchange_weak_explicit(&classes[c].first, &first, now,
                                                  memory_order_release, memory_order_relaxed));
}

static void *map_block(size_t align, size_t size) {
  if (align < OS_PAGE) align = OS_PAGE;
  if (size > PTRDIFF_MAX - 2 * align) return NULL;
  size_t whole = size + 2 * align;
  char *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return NULL;
  char *p = start + align + (-(uintptr_t)start & (align - 1));
  ((mapping_t *)p)[-1] = (mapping_t){.start = start, .size = whole};
  return p;
}

static bool is_small(char *base, char *p) {
  return p >= base && p < base + ((size_t)CLASSES << LOG_RANGE);
}

static void *allocate(size_t align, size_t size) {
  char *base = base_of_ranges();
  void *p = NULL;
  if (size < align) size = align; // a class's blocks are aligned to its size
  if (base != NULL && size <= (size_t)1 << LOG_MAX) {
    unsigned c = class_of(size);
    p = pop(base, c);
    if (p == NULL) {
      size_t block = (size_t)1 << (c + LOG_MIN);
      size_t at = atomic_fetch_add_explicit(&classes[c].used, block, memory_order_relaxed);
      if (at < (size_t)1 << LOG_RANGE) p = base + ((size_t)c << LOG_RANGE) + at;
    }
  } else if (base != NULL) {
    p = map_block(align, size);
  }
  if (p == NULL) errno = ENOMEM;
  return p;
}

EXPORT size_t malloc_usable_size(void *p) {
  char *base = base_of_ranges();
  if (p == NULL) return 0;
  if (is_small(base, p)) return (size_t)1 << ((((char *)p - base) >> LOG_RANGE) + LOG_MIN);
  mapping_t *m = (mapping_t *)p - 1;
  return m->size - (size_t)((char *)p - (char *)m->start);
}

EXPORT void *malloc(size_t size) { return allocate(1, size); }

EXPORT void free(void *p) {
  if (p == NULL) return;
  char *base = base_of_ranges();
  if (is_small(base, p)) {
    push(base, (unsigned)(((char *)p - base) >> LOG_RANGE), p);
  } else {
    mapping_t *m = (mapping_t *)p - 1;
    int error = errno;
    munmap(m->start, m->size);
    errno = error;
  }
}

EXPORT void *calloc(size_t count, size_t size) {
  size_t whole;
  if (__builtin_mul_overflow(count, size, &whole)) {
    errno = ENOMEM;
    return NULL;
  }
  void *p = allocate(1, whole);
  if (p != NULL) memset(p, 0, whole);
  return p;
}

EXPORT void *realloc(void *old, size_t size) {
  if (old != NULL && size == 0) {
    free(old);
    return NULL;
  }
  void *p = allocate(1, size);
  if (p == NULL || old == NULL) return p;
  size_t had = malloc_usable_size(old);
  memcpy(p, old, had < size ? had : size);
  free(old);
  return p;
}

EXPORT void *aligned_alloc(size_t align, size_t size) { return allocate(align, size); }
EXPORT void *memalign(size_t align, size_t size) { return allocate(align, size); }

EXPORT int posix_memalign(void **result, size_t align, size_t size) {
  if (align < sizeof(void *) || (align & (align - 1)) != 0) return EINVAL;
  int error = errno;
  void *p = allocate(align, size);
  errno = error;
  if (p == NULL) return ENOMEM;
  *result = p;
  return 0;
}
