// kernel.h: the system calls on memory, used by os_linux.c alone. Test builds can simulate
// another kernel (test/os_testing.h):
//
//   HAK_OS_PAGE=16384 in the environment: OS pages of that size. Mappings lie at multiples
//   of it. A call on part of such a page, which that kernel would refuse or extend, ends
//   the process, because a refusal would go unnoticed.
//   hak_os_fault: calls fail; or new mappings seem to lie where 5-level page tables begin.
//   hak_os_clock_set: a clock that goes on when the test wants it.
//   hak_os_root: other files.

#ifndef HAK_OS_KERNEL_H
#define HAK_OS_KERNEL_H

#include <sys/mman.h>

#include "base/compiler.h"

#if HAK_TESTING
enum {
  HAK_FAULT_MAP = 1,
  HAK_FAULT_UNMAP = 2,
  HAK_FAULT_COMMIT = 4,
  HAK_FAULT_DISCARD = 8,
  HAK_FAULT_REMAP = 16,
};
bool hak_kernel_fails(unsigned kind);          // counts a call of that kind; true if it is to fail
size_t hak_kernel_page(size_t size);           // the simulated size, given the machine's
uint64_t hak_kernel_clock(uint64_t ms);        // the simulated time, likewise
const char *hak_kernel_path(const char *path); // of the file to be opened instead
void *hak_kernel_mmap(void *at, size_t size, int protection, int flags);
int hak_kernel_munmap(void *p, size_t size);
int hak_kernel_mprotect(void *p, size_t size, int protection);
int hak_kernel_madvise(void *p, size_t size, int advice);
void *hak_kernel_mremap(void *p, size_t old_size, size_t new_size, int flags, void *target);
#else
#define hak_kernel_fails(kind) false
#define hak_kernel_page(size) (size)
#define hak_kernel_clock(ms) (ms)
#define hak_kernel_path(path) (path)
#define hak_kernel_mmap(at, size, protection, flags) mmap(at, size, protection, flags, -1, 0)
#define hak_kernel_munmap munmap
#define hak_kernel_mprotect mprotect
#define hak_kernel_madvise madvise
#define hak_kernel_mremap mremap
#endif

#endif
