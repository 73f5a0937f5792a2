// aligned.c: allocation with an alignment: C11/C23, POSIX and glibc rules.

#include "api/api.h"

#include "hakmem/hakmem.h"
#include "os/os.h"
#include "thread/front.h"
#include "thread/process.h"

HAK_API_PART(aligned);

static void *alloc(size_t alignment, size_t size) {
  void *p = hak_front_alloc_aligned(alignment, size, NULL);
  return p ? p : hak_api_no_memory();
}

static void *invalid(void) {
  errno = EINVAL;
  return NULL;
}

HAK_EXPORT void *hak_aligned_alloc(size_t alignment, size_t size) {
  return hak_is_pow2(alignment) ? alloc(alignment, size) : invalid();
}

HAK_EXPORT void *hak_memalign(size_t alignment, size_t size) {
  // As in glibc: rounded up to a power of two, refused where that overflows.
  if (alignment > (SIZE_MAX >> 1) + 1) return invalid();
  if (!hak_is_pow2(alignment)) alignment = alignment ? (size_t)2 << hak_high_bit(alignment) : 1;
  return alloc(alignment, size);
}

HAK_EXPORT int hak_posix_memalign(void **out, size_t alignment, size_t size) {
  if (!hak_is_pow2(alignment) || alignment % sizeof(void *) != 0) return EINVAL;
  void *p = hak_front_alloc_aligned(alignment, size, NULL);
  if (!p) return ENOMEM;
  *out = p;
  return 0;
}

// Must be known before the first block exists.
static size_t page_size(void) {
  hak_process_init();
  return hak_os_page_size;
}

HAK_EXPORT void *hak_valloc(size_t size) { return alloc(page_size(), size); }

HAK_EXPORT void *hak_pvalloc(size_t size) {
  size_t page = page_size();
  if (size > SIZE_MAX - page) return hak_api_no_memory();
  return alloc(page, hak_align_up(size ? size : 1, page));
}

#if !HAK_NO_OVERRIDE
HAK_ALIAS(hak_aligned_alloc) void *aligned_alloc(size_t alignment, size_t size);
HAK_ALIAS(hak_memalign) void *memalign(size_t alignment, size_t size);
HAK_ALIAS(hak_memalign) void *__libc_memalign(size_t alignment, size_t size);
HAK_ALIAS(hak_posix_memalign) int posix_memalign(void **out, size_t alignment, size_t size);
HAK_ALIAS(hak_posix_memalign) int __posix_memalign(void **out, size_t alignment, size_t size);
HAK_ALIAS(hak_valloc) void *valloc(size_t size);
HAK_ALIAS(hak_valloc) void *__libc_valloc(size_t size);
HAK_ALIAS(hak_pvalloc) void *pvalloc(size_t size);
HAK_ALIAS(hak_pvalloc) void *__libc_pvalloc(size_t size);
#endif
