// libfloor.so: a preloadable malloc that does as little as possible.
//
//   LD_PRELOAD=build/bench/libfloor.so PROGRAM
//
// It shows how fast a program would run if malloc and free cost next to nothing:
// a floor to compare with, not an allocator to use. malloc pops from a per-thread list of the
// size class or bumps a pointer; free pushes to the freeing thread's list.
//
// Limits, all on purpose:
// - no memory is ever returned to the system, and a block stays in its size class;
// - a block freed by another thread stays with that thread: a program in which some
//   threads only allocate and others only free grows without bound;
// - there are no checks of any kind; each block carries a 16-byte header, so caches hold fewer
//   blocks than with an allocator without headers.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
  SMALL_CLASSES = 65,                     // multiples of 16 bytes: 0 .. 1024
  CLASSES = SMALL_CLASSES + 4 * (47 - 10) // then four per power of two
};
static const size_t chunk_size = 256 * 1024; // bump area; larger blocks are mapped

// Lies in front of every block.
typedef struct header {
  uint32_t size_class;
  uint32_t unused;
  size_t offset; // 0, or distance from the real block to an aligned one within it
} header_t;

_Static_assert(sizeof(header_t) == 16, "blocks stay 16-byte aligned");

typedef struct block {
  struct block *next;
} block_t;

typedef struct heap {
  block_t *lists[CLASSES];
  char *at;
  char *end;
  bool in_use;       // leave_heap will run when its thread ends
  struct heap *next; // in the list of heaps that ended threads have left
} heap_t;

static __thread heap_t heap __attribute__((tls_model("initial-exec")));

static struct {
  pthread_mutex_t lock;
  heap_t *heaps; // heaps of ended threads; each lies in one of its own blocks
  pthread_key_t key;
  bool has_key;
} left = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline uint32_t class_of(size_t size) {
  if (size <= 1024) return (uint32_t)((size + 15) / 16);
  // The two bits below the highest one choose a quarter of the power of two.
  size_t last = size - 1;
  unsigned shift = 61 - (unsigned)__builtin_clzll(last);
  return SMALL_CLASSES + 4 * (shift - 8) + (uint32_t)((last >> shift) & 3);
}

static inline size_t class_size(uint32_t c) {
  if (c < SMALL_CLASSES) return c != 0 ? c * 16 : 16;
  uint32_t k = c - SMALL_CLASSES;
  return (size_t)(4 + k % 4 + 1) << (k / 4 + 8);
}

EXPORT void free(void *p);

static void *fresh_block(uint32_t c) {
  size_t size = class_size(c) + sizeof(header_t);
  if (size > (size_t)(heap.end - heap.at)) {
    size_t map_size = size > chunk_size / 8 ? size : chunk_size;
    char *p = mmap(NULL, map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
      errno = ENOMEM;
      return NULL;
    }
    if (map_size == size) { // a large block, not part of a chunk
      *(header_t *)p = (header_t){.size_class = c};
      return p + sizeof(header_t);
    }
    heap.at = p;
    heap.end = p + map_size;
  }
  char *p = heap.at;
  heap.at += size;
  *(header_t *)p = (header_t){.size_class = c};
  return p + sizeof(header_t);
}

// Runs when a thread ends: keeps its heap for the next thread.
static void leave_heap(void *unused) {
  (void)unused;
  heap_t *copy = fresh_block(class_of(sizeof *copy));
  if (copy == NULL) return;
  pthread_mutex_lock(&left.lock);
  *copy = heap;
  copy->next = left.heaps;
  left.heaps = copy;
  pthread_mutex_unlock(&left.lock);
  memset(&heap, 0, sizeof heap);
}

static __attribute__((constructor)) void make_key(void) {
  left.has_key = pthread_key_create(&left.key, leave_heap) == 0;
}

// Runs on a thread's first miss: takes over an ended thread's heap. Its blocks are appended to the
// lists, behind the few blocks that this thread may already have freed.
static void adopt_heap(void) {
  heap.in_use = true;
  pthread_setspecific(left.key, &heap);
  pthread_mutex_lock(&left.lock);
  heap_t *found = left.heaps;
  if (found != NULL) left.heaps = found->next;
  pthread_mutex_unlock(&left.lock);
  if (found == NULL) return;
  for (size_t i = 0; i < CLASSES; i++) {
    block_t **end = &heap.lists[i];
    while (*end != NULL) end = &(*end)->next;
    *end = found->lists[i];
  }
  heap.at = found->at;
  heap.end = found->end;
  free(found);
}

static __attribute__((noinline, cold)) void *malloc_slow(uint32_t c) {
  if (!heap.in_use && left.has_key) adopt_heap();
  block_t *b = heap.lists[c];
  if (b == NULL) return fresh_block(c);
  heap.lists[c] = b->next;
  return b;
}

EXPORT void *malloc(size_t size) {
  if (UNLIKELY(size > (size_t)1 << 46)) {
    errno = ENOMEM;
    return NULL;
  }
  uint32_t c = class_of(size);
  block_t *b = heap.lists[c];
  if (UNLIKELY(b == NULL)) return malloc_slow(c);
  heap.lists[c] = b->next;
  return b;
}

EXPORT void free(void *p) {
  if (p == NULL) return;
  header_t *h = (header_t *)p - 1;
  if (UNLIKELY(h->offset != 0)) {
    p = (char *)p - h->offset;
    h = (header_t *)p - 1;
  }
  block_t *b = p;
  b->next = heap.lists[h->size_class];
  heap.lists[h->size_class] = b;
}

EXPORT size_t malloc_usable_size(void *p) {
  if (p == NULL) return 0;
  header_t *h = (header_t *)p - 1;
  size_t offset = h->offset;
  return class_size(((header_t *)((char *)p - offset) - 1)->size_class) - offset;
}

EXPORT void *calloc(size_t count, size_t size) {
  size_t total;
  if (__builtin_mul_overflow(count, size, &total)) {
    errno = ENOMEM;
    return NULL;
  }
  void *p = malloc(total);
  return p != NULL ? memset(p, 0, total) : NULL;
}

EXPORT void *realloc(void *p, size_t size) {
  if (p == NULL) return malloc(size);
  if (size == 0) {
    free(p);
    return NULL;
  }
  size_t had = malloc_usable_size(p);
  if (size <= had) return p;
  void *q = malloc(size);
  if (q == NULL) return NULL;
  memcpy(q, p, had);
  free(p);
  return q;
}

EXPORT void *reallocarray(void *p, size_t count, size_t size) {
  size_t total;
  if (__builtin_mul_overflow(count, size, &total)) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc(p, total);
}

EXPORT void *memalign(size_t alignment, size_t size) {
  if (alignment <= 16) return malloc(size);
  if (size > (size_t)1 << 46 || alignment > (size_t)1 << 46) {
    errno = ENOMEM;
    return NULL;
  }
  char *p = malloc(size + alignment);
  if (p == NULL) return NULL;
  // p is a multiple of 16, so the offset is 0 or leaves enough room for a header.
  size_t offset = -(uintptr_t)p & (alignment - 1);
  if (offset != 0) ((header_t *)(p + offset) - 1)->offset = offset;
  return p + offset;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

EXPORT int posix_memalign(void **out, size_t alignment, size_t size) {
  int saved = errno;
  void *p = memalign(alignment, size);
  errno = saved;
  if (p == NULL) return ENOMEM;
  *out = p;
  return 0;
}

EXPORT void *valloc(size_t size) { return memalign(4096, size); }

EXPORT void *pvalloc(size_t size) { return memalign(4096, (size + 4095) & ~(size_t)4095); }
