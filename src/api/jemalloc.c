// jemalloc.c: jemalloc(3)'s non-standard functions for blocks. A program that is linked to
// jemalloc gets blocks from them and passes these to malloc_usable_size or free, which are this
// library's when it is preloaded. mallctl and its relatives stay jemalloc's: they concern its
// own heap.
//
// flags: the logarithm of the alignment in the low six bits (MALLOCX_ALIGN, MALLOCX_LG_ALIGN)
// and ZERO (MALLOCX_ZERO). Arena and cache numbers above them are ignored: there are none. Unlike
// in jemalloc, a size of 0 counts as 1, NULL is allowed as in realloc and free, failures set
// errno = ENOMEM, and sallocx may return more than nallocx, which returns the requested size.

#include "api/api.h"

#include <string.h>

#include "core/misuse.h"
#include "hakmem/hakmem.h"
#include "thread/front.h"

HAK_API_PART(jemalloc);

#if !HAK_NO_OVERRIDE
enum { LG_ALIGN = 0x3f, ZERO = 0x40 };

static size_t alignment_of(int flags) { return (size_t)1 << (flags & LG_ALIGN); }

// The requested size: malloc and operator new give no more for some requests (the first ones of a
// process, those beside a guard page, those of the secure library), and programs use the result
// for blocks of theirs as well. 0 if nothing can have the size or alignment.
HAK_EXPORT size_t nallocx(size_t size, int flags) {
  if ((size | alignment_of(flags)) >= HAK_ADDRESS_END) return 0;
  return size ? size : 1;
}

// Zeroes the usable bytes of p beyond the first from bytes, if flags ask for it.
static void *zeroed_from(size_t from, void *p, int flags) {
  size_t usable = p && (flags & ZERO) ? hak_malloc_usable_size(p) : 0;
  if (usable > from) memset((char *)p + from, 0, usable - from);
  return p;
}

static void *alloc_aligned(size_t size, int flags) {
  bool zeroed = false;
  void *p = hak_front_alloc_aligned(alignment_of(flags), size, flags & ZERO ? &zeroed : NULL);
  if (!p) return hak_api_no_memory();
  return zeroed_from(zeroed ? size : 0, p, flags);
}

HAK_EXPORT void *mallocx(size_t size, int flags) {
  size = nallocx(size, flags);
  if (size == 0) return hak_api_no_memory();
  if (alignment_of(flags) > HAK_MIN_BLOCK) return alloc_aligned(size, flags);
  return flags & ZERO ? zeroed_from(size, hak_calloc(1, size), flags) : hak_malloc(size);
}

static void *move(void *p, size_t usable, size_t size, int flags) {
  void *q = hak_front_alloc_aligned(alignment_of(flags), size, NULL);
  if (!q) return hak_api_no_memory();
  memcpy(q, p, hak_min(size, usable));
  hak_front_free(p, "rallocx");
  return q;
}

static void *resize(const hak_block_t *block, void *p, size_t size, int flags) {
  size_t alignment = alignment_of(flags);
  if (size == 0) return hak_api_no_memory();
  // A huge block is aligned to SuperSlabs wherever it moves.
  bool huge = block->kind == HAK_KIND_FREE && size > HAK_L25_MAX;
  if (alignment <= (huge ? HAK_SUPERSLAB_SIZE : HAK_MIN_BLOCK)) return hak_realloc(p, size);
  bool stays = (uintptr_t)p % alignment == 0 && hak_api_resize_here(block, p, size);
  return stays ? p : move(p, block->usable, size, flags);
}

HAK_EXPORT void *rallocx(void *p, size_t size, int flags) {
  if (p == NULL) return mallocx(size, flags);
  hak_block_t block;
  if (!hak_front_find(p, "rallocx", &block)) {
    errno = EINVAL;
    return NULL;
  }
  size = nallocx(size, flags);
  void *q = resize(&block, p, size, flags);
  // A block in place keeps all of its bytes. To a smaller one only size bytes were copied.
  return zeroed_from(q == p ? block.usable : hak_min(size, block.usable), q, flags);
}

HAK_EXPORT size_t xallocx(void *p, size_t size, size_t extra, int flags) {
  hak_block_t block;
  if (!p || !hak_front_find(p, "xallocx", &block)) return 0;
  if (((uintptr_t)p & (alignment_of(flags) - 1)) != 0) return block.usable; // as it would move
  size_t most;
  if (__builtin_add_overflow(size, extra, &most)) most = SIZE_MAX;
  bool between = size <= block.usable && block.usable <= most; // then the block stays as it is
  if (!hak_api_resize_here(&block, p, most) && !between) hak_api_resize_here(&block, p, size);
  zeroed_from(block.usable, p, flags);
  return hak_malloc_usable_size(p);
}

HAK_EXPORT size_t sallocx(const void *p, HAK_UNUSED int flags) {
  hak_block_t block;
  return p && hak_front_find(p, "sallocx", &block) ? block.usable : 0;
}

HAK_EXPORT void dallocx(void *p, HAK_UNUSED int flags) { hak_front_free(p, "dallocx"); }

// size: the requested one, or the result of sallocx, or between them. In the secure library these
// are the same.
HAK_EXPORT void sdallocx(void *p, size_t size, HAK_UNUSED int flags) {
  hak_block_t block;
  if (hak_front_free_sized_any(p, size, "sdallocx") || p == NULL) return;
  if (!hak_front_find(p, "sdallocx", &block)) return;
  bool right = hak_api_is_of_size(&block, size) || (size == 0 && hak_api_is_of_size(&block, 1));
  if (!right) {
    hak_misuse_size("sdallocx", p, size, block.usable);
    if (HAK_SECURE) return;
  }
  hak_front_free(p, "sdallocx");
}
#endif
