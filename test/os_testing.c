// os_testing.c: part of the library in test builds: system calls that fail when a test wants it,
// and the calls of os/kernel.h.

#define _GNU_SOURCE
#include "os_testing.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "core/print.h"
#include "os/os.h"

// The removal of a mapping is ordered before the mapping that takes its place: the kernel holds a
// lock. TSan knows this of munmap and mmap, but not of mremap.
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
static char mappings;
#define GOES() __tsan_release(&mappings)
#define COMES() __tsan_acquire(&mappings)
#else
#define GOES() ((void)0)
#define COMES() ((void)0)
#endif

static _Atomic unsigned fault_kinds;
static _Atomic uint64_t fault_skip, fault_calls;
static _Atomic bool fault_once;

void hak_os_fault(unsigned kinds, uint64_t skip, bool once) {
  hak_store_seq_cst(&fault_kinds, 0u);
  hak_store_seq_cst(&fault_skip, skip);
  hak_store_seq_cst(&fault_once, once);
  hak_store_seq_cst(&fault_calls, (uint64_t)0);
  hak_store_seq_cst(&fault_kinds, kinds);
}

uint64_t hak_os_fault_calls(void) { return hak_load_seq_cst(&fault_calls); }

bool hak_kernel_fails(unsigned kind) {
  if (!(hak_load_seq_cst(&fault_kinds) & kind)) return false;
  uint64_t n = hak_fetch_add_relaxed(&fault_calls, 1);
  uint64_t skip = hak_load_seq_cst(&fault_skip);
  return hak_load_seq_cst(&fault_once) ? n == skip : n >= skip;
}

static _Atomic uint64_t clock_ms;

void hak_os_clock_set(uint64_t ms) { hak_store_seq_cst(&clock_ms, ms); }

uint64_t hak_kernel_clock(uint64_t ms) {
  uint64_t set = hak_load_seq_cst(&clock_ms);
  return set != 0 ? set : ms;
}

const char *hak_os_root = "";

const char *hak_kernel_path(const char *path) {
  static char under_root[1024]; // for one thread at a time
  if (*hak_os_root == 0) return path;
  size_t length = 0;
  for (const char *at = hak_os_root; *at; at++) under_root[length++] = *at;
  for (; *path && length < sizeof under_root - 1; path++) under_root[length++] = *path;
  under_root[length] = 0;
  return under_root;
}

// ---------------------------------------------------------------------------
// The calls.

#define HIGH ((uintptr_t)1 << 52) // added to simulated addresses

static size_t page, real_page;

size_t hak_kernel_page(size_t size) {
  size_t wanted = 0;
  const char *text = NULL;
  for (char **entry = hak_os_environ(); entry && *entry && !text; entry++)
    text = hak_skip(*entry, "HAK_OS_PAGE=");
  for (; text && *text >= '0' && *text <= '9'; text++) wanted = wanted * 10 + (size_t)(*text - '0');
  real_page = size;
  return page = hak_is_pow2(wanted) && wanted > size ? wanted : size;
}

static void check(const char *call, const void *p, size_t size) {
  if ((((uintptr_t)p | size) & (hak_os_page_size - 1)) == 0) return;
  size_t length = 0;
  while (call[length]) length++;
  hak_os_write(2, call, length);
  hak_os_write(2, ": not whole OS pages\n", 21);
  hak_os_abort();
}

static void *real(const void *p) { return (void *)((uintptr_t)p & ~HIGH); }

// A mapping where the kernel chooses, moved to a multiple of the simulated page.
static char *mmap_anywhere(size_t size, int protection, int flags) {
  size_t more = page - real_page;
  char *p = mmap(NULL, size + more, protection, flags, -1, 0);
  if (more == 0 || p == MAP_FAILED) return p;
  char *start = (char *)hak_align_up((uintptr_t)p, page);
  if (start > p) munmap(p, (size_t)(start - p));
  if (start < p + more) munmap(start + size, (size_t)(p + more - start));
  return start;
}

void *hak_kernel_mmap(void *at, size_t size, int protection, int flags) {
  check("mmap", at, size);
  if (at) return mmap(at, size, protection, flags, -1, 0);
  char *p = mmap_anywhere(size, protection, flags);
  return p != MAP_FAILED && hak_kernel_fails(HAK_FAULT_HIGH) ? p + HIGH : p;
}

int hak_kernel_munmap(void *p, size_t size) {
  check("munmap", p, size);
  GOES();
  return munmap(real(p), size);
}

int hak_kernel_mprotect(void *p, size_t size, int protection) {
  check("mprotect", p, size);
  return mprotect(p, size, protection);
}

int hak_kernel_madvise(void *p, size_t size, int advice) {
  check("madvise", p, size);
  return madvise(p, size, advice);
}

void *hak_kernel_mremap(void *p, size_t old_size, size_t new_size, int flags, void *target) {
  check("mremap", p, old_size | new_size);
  check("mremap", target, 0);
  GOES();
  void *now = mremap(p, old_size, new_size, flags, target);
  COMES();
  return now;
}
