// os.h: all system calls of the allocator. No other module makes any.
//
// Contract of all functions except hak_os_limit: errno is preserved; no libc function is
// called that may allocate, lock or recurse; a failure is reported as a false or NULL
// result, never by a message or an abort. Sizes and addresses are multiples of
// hak_os_page_size unless stated otherwise.

#ifndef HAK_OS_OS_H
#define HAK_OS_OS_H

#include "base/compiler.h"

HAK_INTERNAL extern size_t hak_os_page_size; // bytes; set by hak_os_init

// Once, before any other function here.
void hak_os_init(void);

// Address space without access rights: not charged, not populated, not dumped.
// alignment is a power of two. NULL if refused.
void *hak_os_reserve(size_t size, size_t alignment);
// The same at address p; false if something is mapped there or it is refused.
bool hak_os_reserve_at(void *p, size_t size);
// Zeroed read-write memory at a multiple of alignment. NULL if refused.
void *hak_os_map(size_t size, size_t alignment);
bool hak_os_unmap(void *p, size_t size);

// Inside a reservation: make memory usable (zeroed at first use) / give it and
// its charge back. A refused decommit discards the contents instead and returns
// false: the memory then stays usable and reads as zero, or keeps its contents
// if *dirty is set.
bool hak_os_commit(void *p, size_t size);
bool hak_os_decommit(void *p, size_t size, bool *dirty);

// Drop the contents of [p, p+size), which then reads as zero. false: contents kept.
bool hak_os_discard(void *p, size_t size);

// Make [p, p+size) resident in one call, or tell the kernel that it should (on) or must not
// back it with huge pages. Only advice: if refused or unknown, nothing changes.
void hak_os_populate(void *p, size_t size);
void hak_os_huge_pages(void *p, size_t size, bool on);
// Splits a huge page of which parts were given back. Otherwise these are no more resident, but not
// free before the system is short of memory. Takes some 400 us.
void hak_os_split_huge_page(void *p, size_t size);

// Whether core dumps include [p, p+size). Those of the kernel leave out untouched memory; those of
// debuggers would include all reserved address space. Also only advice.
void hak_os_dump(void *p, size_t size, bool on);

// Whether the whole OS pages in [p, p+size), at least one, seem to be in use, judged by a few of
// them. False where they cannot be read, or the kernel cannot tell (before 5.14). An untouched
// page that was looked at (at most one per call) counts as in use from then on.
bool hak_os_filled(const void *p, size_t size);
// The same, judged by `pages` pages.
bool hak_os_filled_by(const void *p, size_t size, unsigned pages);

// Grow or shrink a mapping in place. Growing fails if the space behind it is taken or memory is
// short; *movable is false if the cause of the failure would also prevent a move.
bool hak_os_resize(void *p, size_t old_size, size_t new_size, bool *movable);
// Move a mapping's pages (no copy) to target, a reservation of new_size bytes of the caller, which
// they replace. False: refused; *ours says whether target still belongs to the caller. Many
// kernels unmap it before they check anything else, and another thread may map there at once.
bool hak_os_move(void *p, size_t old_size, size_t new_size, void *target, bool *ours);

// Address-space limit in bytes (RLIMIT_AS), SIZE_MAX if none.
size_t hak_os_address_limit(void);
// prlimit unchanged: 0, or -1 with errno. And whether such a call concerns the limit above.
typedef struct {
  uint64_t soft, hard; // SIZE_MAX: none
} hak_os_limits_t;
int hak_os_limit(int pid, int resource, const hak_os_limits_t *limits, hak_os_limits_t *old);
bool hak_os_is_address_limit(int pid, int resource);
// The environment (NULL-terminated); NULL if not available yet or the process is setuid.
char **hak_os_environ(void);

// Writes the whole buffer to a file descriptor; gives up on errors, and where a non-blocking one
// takes nothing for a while. False if something was not written.
bool hak_os_write(int fd, const char *text, size_t length);
int hak_os_open(const char *path, bool write); // write: create and truncate; -1 on error
long hak_os_read(int fd, char *buffer, size_t size);
void hak_os_close(int fd);
// Identifies the file that fd refers to; false if fd is not open. Duplicates fd to a descriptor
// kept across fork but not exec, away from the program's own; -1: none.
typedef struct {
  uint64_t device, inode;
} hak_os_file_t;
bool hak_os_file(int fd, hak_os_file_t *file);
int hak_os_duplicate(int fd);
// Reads the beginning of a file as a string; false, and "", if it cannot be read.
bool hak_os_read_text(const char *path, char *text, size_t size);
// Peak resident size of the process in bytes; UINT64_MAX: not known.
uint64_t hak_os_resident_peak(void);
int hak_os_pid(void);
// Random bytes from the kernel, or, if it refuses, from those it gave this process at its start.
void hak_os_random(void *p, size_t size);
// Milliseconds of a monotonic clock; coarse (some ms), cheap.
uint64_t hak_os_clock_ms(void);

// Stores return addresses, the innermost first, and returns their number; 0 where the C library
// has no such function. The first call loads the unwinder, and so may allocate.
unsigned hak_os_stack(void **frames, unsigned most);
// Calls look(address) at every SIGSEGV and SIGBUS from now on, then does what would have
// been done without it.
void hak_os_on_fault(void (*look)(const void *address));

_Noreturn void hak_os_abort(void);
void hak_os_yield(void);
void hak_os_sleep_ms(unsigned ms);

#endif
