#include "core/misuse.h"

#include "base/atomic.h"
#include "core/module.h"
#include "core/options.h"
#include "os/os.h"

#if HAK_TESTING
_Atomic uint32_t hak_misuse_count;
#define count_misuse() hak_fetch_add_relaxed(&hak_misuse_count, 1)
#else
#define count_misuse() (void)0
#endif

void hak_misuse_finish(void) {
  count_misuse();
  if (hak_option(ABORT)) hak_os_abort();
}

void hak_misuse_double_free(const char *function, const void *p, size_t block_size) {
  hak_misuse("%s(%p): double free of a %u-byte block", function, p, block_size);
}

void hak_misuse_misaligned(const char *function, const void *p) {
  hak_misuse("%s(%p): misaligned pointer", function, p);
}

void hak_misuse_interior(const char *function, const void *p, const void *block,
                         size_t block_size) {
  bool before = (uintptr_t)p < (uintptr_t)block;
  uintptr_t distance = before ? (uintptr_t)block - (uintptr_t)p : (uintptr_t)p - (uintptr_t)block;
  hak_misuse("%s(%p): not the start of a block; it lies %u bytes %s the %u-byte block at %p",
             function, p, distance, before ? "before" : "inside", block_size, block);
}

void hak_misuse_size(const char *function, const void *p, size_t size, size_t block_size) {
  hak_misuse("%s(%p): size %u does not belong to a %u-byte block", function, p, size, block_size);
}

void hak_misuse_delete_size(const char *function, const void *p, size_t size, size_t block_size) {
  static _Atomic bool said; // relaxed: it guards no other data
  if (HAK_SECURE) {
    hak_misuse_size(function, p, size, block_size);
  } else if (!hak_load_relaxed(&said)) {
    hak_store_relaxed(&said, true);
    hak_warning("%s(%p): size %u does not belong to a %u-byte block", function, p, size,
                block_size);
    count_misuse();
  }
}

void hak_misuse_overflow(const char *function, const void *p, size_t block_size) {
  hak_misuse("%s(%p): overflow: what follows the %u-byte block was overwritten", function, p,
             block_size);
}

void hak_misuse_written(const void *p, size_t block_size) {
  if (block_size)
    hak_message("use after free: the %u-byte block at %p was written to", block_size, p);
  else hak_message("use after free: the link of the free block at %p was overwritten", p);
  hak_misuse_finish();
}

void hak_misuse_foreign(const char *function, const void *p) {
  hak_module_t m;
  if (!hak_module_of(p, &m))
    hak_message("%s(%p): not allocated by hakmem: the address is not mapped", function, p);
  else if (m.to == 0) hak_message("%s(%p): not allocated by hakmem", function, p);
  else
    hak_message("%s(%p): not allocated by hakmem: the address belongs to %s", function, p,
                m.name[0] ? m.name : "an anonymous mapping");
  hak_misuse_finish();
}

#if HAK_CHECKS >= 2
_Noreturn void hak_assert_failed(const char *what, const char *file, int line) {
  hak_message("internal error: %s does not hold (%s:%u)", what, file, (uint64_t)line);
  hak_os_abort();
}
#endif
