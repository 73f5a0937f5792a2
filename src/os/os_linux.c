// os_linux.c: os.h on Linux. The only file that makes system calls; those on memory go through
// kernel.h.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"
#include "os/kernel.h"
#include "os/os.h"

// Newer than some headers; older kernels refuse these flags, which callers expect.
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
// From a kernel header that not every C library provides.
#define FUTEX_CMP_REQUEUE_PRIVATE (4 | 128)

#define FILLED_SAMPLES 16

size_t hak_os_page_size = 4096;

// Restores errno at the end of the enclosing block.
static inline void restore_errno(const int *saved) { errno = *saved; }
#define KEEP_ERRNO __attribute__((cleanup(restore_errno))) HAK_UNUSED const int saved_errno_ = errno

void hak_os_init(void) {
  size_t size = getauxval(AT_PAGESZ);
  if (hak_is_pow2(size)) hak_os_page_size = hak_kernel_page(size);
}

static void *map_at(void *hint, size_t size, int protection, int flags) {
  if (hak_kernel_fails(HAK_FAULT_MAP)) return NULL;
  void *p = hak_kernel_mmap(hint, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags);
  if (p == MAP_FAILED) return NULL;
  // Kernels with 5-level page tables give such addresses only on request. A mapping that lies
  // there nonetheless has no place in the tables of this process and is refused.
  if (HAK_LIKELY(((uintptr_t)p + size - 1) >> HAK_ADDRESS_BITS == 0)) return p;
  hak_kernel_munmap(p, size);
  return NULL;
}

static void *map_aligned(size_t size, size_t alignment, int protection, int flags) {
  KEEP_ERRNO;
  if (size == 0 || size > (size_t)PTRDIFF_MAX - alignment) return NULL;
  char *p = map_at(NULL, size, protection, flags);
  if (!p || ((uintptr_t)p & (alignment - 1)) == 0) return p;
  // The kernel places mappings downwards: the aligned address just below this
  // one is usually free, and a request for it needs no excess address space.
  char *hint = (char *)hak_align_down((uintptr_t)p, alignment);
  hak_kernel_munmap(p, size);
  // Never address 0, which a privileged process may get.
  p = hint ? map_at(hint, size, protection, flags | MAP_FIXED_NOREPLACE) : NULL;
  if (p && ((uintptr_t)p & (alignment - 1)) == 0) return p;
  if (p) hak_kernel_munmap(p, size);
  // The excess is only address space, which RLIMIT_DATA and overcommit do not count.
  size_t span = size + alignment - hak_os_page_size;
  p = map_at(NULL, span, PROT_NONE, flags | MAP_NORESERVE);
  if (!p) return NULL;
  char *start = (char *)hak_align_up((uintptr_t)p, alignment);
  char *end = start + size;
  if (protection != PROT_NONE && !hak_os_commit(start, size)) {
    hak_kernel_munmap(p, span);
    return NULL;
  }
  // A refused munmap (too many mappings) leaks address space, but no memory.
  if (start > p) hak_kernel_munmap(p, (size_t)(start - p));
  if (p + span > end) hak_kernel_munmap(end, (size_t)(p + span - end));
  return start;
}

void *hak_os_reserve(size_t size, size_t alignment) {
  return map_aligned(size, alignment, PROT_NONE, MAP_NORESERVE);
}

bool hak_os_reserve_at(void *p, size_t size) {
  KEEP_ERRNO;
  void *got = map_at(p, size, PROT_NONE, MAP_NORESERVE | MAP_FIXED_NOREPLACE);
  // Kernels before 4.17 take the address only as a hint.
  if (got && got != p) hak_kernel_munmap(got, size);
  return got == p;
}

void *hak_os_map(size_t size, size_t alignment) {
  return map_aligned(size, alignment, PROT_READ | PROT_WRITE, 0);
}

bool hak_os_unmap(void *p, size_t size) {
  KEEP_ERRNO;
  if (hak_kernel_fails(HAK_FAULT_UNMAP)) return false;
  return hak_kernel_munmap(p, size) == 0;
}

bool hak_os_commit(void *p, size_t size) {
  KEEP_ERRNO;
  if (hak_kernel_fails(HAK_FAULT_COMMIT)) return false;
  return hak_kernel_mprotect(p, size, PROT_READ | PROT_WRITE) == 0;
}

bool hak_os_discard(void *p, size_t size) {
  KEEP_ERRNO;
  if (hak_kernel_fails(HAK_FAULT_DISCARD)) return false;
  return hak_kernel_madvise(p, size, MADV_DONTNEED) == 0;
}

bool hak_os_decommit(void *p, size_t size, bool *dirty) {
  KEEP_ERRNO;
  *dirty = false;
  // One call drops the pages, the charge and the access rights. It fails only
  // when the kernel has no room for another mapping.
  if (!hak_kernel_fails(HAK_FAULT_UNMAP) &&
      hak_kernel_mmap(p, size, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED) != MAP_FAILED)
    return true;
  *dirty = !hak_os_discard(p, size);
  return false;
}

void hak_os_populate(void *p, size_t size) {
  KEEP_ERRNO;
  hak_kernel_madvise(p, size, MADV_POPULATE_WRITE);
}

void hak_os_huge_pages(void *p, size_t size, bool on) {
  KEEP_ERRNO;
  hak_kernel_madvise(p, size, on ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

void hak_os_split_huge_page(void *p, size_t size) {
  KEEP_ERRNO;
  hak_kernel_madvise(p, size, MADV_COLD); // Linux 5.4: it can only do so page by page
}

void hak_os_dump(void *p, size_t size, bool on) {
  KEEP_ERRNO;
  hak_kernel_madvise(p, size, on ? MADV_DODUMP : MADV_DONTDUMP);
}

// Reading an untouched page faults, and maps only the shared zero page. Fault counts tell whether
// that happened: mincore is not allowed in many sandboxes (systemd's @system-service ends a
// process for it), and a load instruction could fault for good.
static bool readable(const void *p, size_t size) {
  return hak_kernel_madvise((void *)p, size, MADV_POPULATE_READ) == 0;
}

static long faults(void) {
  struct rusage of_thread = {0};
  return getrusage(RUSAGE_THREAD, &of_thread) == 0 ? of_thread.ru_minflt : 0;
}

// Does not use /proc: a sandbox may end a process that opens a file.
uint64_t hak_os_resident_peak(void) {
  KEEP_ERRNO;
  struct rusage of_process = {0};
  if (getrusage(RUSAGE_SELF, &of_process) != 0 || of_process.ru_maxrss <= 0) return UINT64_MAX;
  return (uint64_t)of_process.ru_maxrss << 10;
}

// Knuth's MMIX; the upper half is the better one.
static uint64_t next_random(uint64_t n) { return n * 6364136223846793005u + 1442695040888963407u; }

bool hak_os_filled_by(const void *p, size_t size, unsigned pages) {
  KEEP_ERRNO;
  const char *start = (const char *)hak_align_up((uintptr_t)p, hak_os_page_size);
  size_t before_start = (size_t)(start - (const char *)p);
  if (size < before_start + hak_os_page_size) return false;
  size -= before_start;
  uint64_t at = (uintptr_t)p ^ size; // pseudo-random, to match no stride of the program
  // Called once before counting: the pages of these calls' own code may be untouched yet.
  if (faults() < 0 || !readable(start, 0)) return false;
  long before = faults();
  for (unsigned i = 0; i < pages; i++) {
    at = next_random(at);
    size_t page = (size_t)(size / hak_os_page_size * (at >> 32) >> 32);
    if (!readable(start + page * hak_os_page_size, hak_os_page_size) || faults() != before)
      return false;
  }
  // Simulated kernels count no faults: then the answer is not known.
  void *fresh = map_at(NULL, hak_os_page_size, PROT_READ, 0);
  bool counted = fresh && readable(fresh, hak_os_page_size) && faults() != before;
  if (fresh) hak_kernel_munmap(fresh, hak_os_page_size);
  return counted;
}

bool hak_os_filled(const void *p, size_t size) { return hak_os_filled_by(p, size, FILLED_SAMPLES); }

bool hak_os_resize(void *p, size_t old_size, size_t new_size, bool *movable) {
  KEEP_ERRNO;
  *movable = true;
  if (hak_kernel_fails(HAK_FAULT_REMAP)) return false;
  if (hak_kernel_mremap(p, old_size, new_size, 0, NULL) != MAP_FAILED) return true;
  *movable = errno == ENOMEM; // else: mappings of several kinds, locked, or forbidden by a sandbox
  return false;
}

// A mark in the first words of target that no other memory has: 128 bits derived from a number that
// is used once. It is compared by a call that neither waits nor wakes nor faults.
#define MARK_WORDS 4
static void mark(_Atomic uint32_t *target, uint64_t number) {
  for (unsigned i = 0; i < MARK_WORDS; i++) {
    number = next_random(number);
    hak_store_relaxed(&target[i], (uint32_t)(number >> 32));
  }
}

static bool has_mark(_Atomic uint32_t *target, uint64_t number) {
  for (unsigned i = 0; i < MARK_WORDS; i++) {
    number = next_random(number);
    if (syscall(SYS_futex, &target[i], FUTEX_CMP_REQUEUE_PRIVATE, 0, 0, &target[i],
                (uint32_t)(number >> 32)) != 0)
      return false;
  }
  return true;
}

bool hak_os_move(void *p, size_t old_size, size_t new_size, void *target, bool *ours) {
  static _Atomic uint64_t moves; // relaxed: for a number that is used once
  KEEP_ERRNO;
  *ours = true;
  if (hak_kernel_fails(HAK_FAULT_REMAP) || !hak_os_commit(target, hak_os_page_size)) return false;
  uint64_t number = hak_fetch_add_relaxed(&moves, 1) ^ (uintptr_t)target;
  mark(target, number);
  if (hak_kernel_mremap(p, old_size, new_size, MREMAP_MAYMOVE | MREMAP_FIXED, target) != MAP_FAILED)
    return true;
  *ours = has_mark(target, number);
  return false;
}

size_t hak_os_address_limit(void) {
  KEEP_ERRNO;
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return (size_t)limit.rlim_cur;
}

int hak_os_limit(int pid, int resource, const hak_os_limits_t *limits, hak_os_limits_t *old) {
  return (int)syscall(SYS_prlimit64, pid, resource, limits, old);
}

bool hak_os_is_address_limit(int pid, int resource) {
  return resource == RLIMIT_AS && (pid == 0 || pid == getpid());
}

// From glibc's dynamic linker: where the kernel has put argc, argv, NULL and the environment.
extern const long *__libc_stack_end HAK_WEAK;
#define ARGUMENTS_MOST (1 << 24)

char **hak_os_environ(void) {
  if (getauxval(AT_SECURE)) return NULL;
  // environ is NULL in .preinit_array: the C library has not been set up yet.
  if (environ || !&__libc_stack_end || !__libc_stack_end) return environ;
  long argc = *__libc_stack_end;
  char **argv = (char **)(__libc_stack_end + 1);
  return argc >= 0 && argc < ARGUMENTS_MOST && !argv[argc] ? argv + argc + 1 : NULL;
}

// By syscall number: the C library's functions are cancellation points, but free is not one.
int hak_os_open(const char *path, bool write) {
  KEEP_ERRNO;
  int flags = write ? O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC : O_RDONLY | O_CLOEXEC;
  return (int)syscall(SYS_openat, AT_FDCWD, hak_kernel_path(path), flags, 0666);
}

long hak_os_read(int fd, char *buffer, size_t size) {
  KEEP_ERRNO;
  long n;
  do n = syscall(SYS_read, fd, buffer, size);
  while (n < 0 && errno == EINTR);
  return n;
}

void hak_os_close(int fd) {
  KEEP_ERRNO;
  syscall(SYS_close, fd);
}

bool hak_os_file(int fd, hak_os_file_t *file) {
  KEEP_ERRNO;
  struct stat stat;
  if (syscall(SYS_fstat, fd, &stat) != 0) return false; // fstat may be a wrapper that allocates
  *file = (hak_os_file_t){stat.st_dev, stat.st_ino};
  return true;
}

int hak_os_duplicate(int fd) {
  KEEP_ERRNO;
  enum { OUT_OF_THE_WAY = 200 };
  return fcntl(fd, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
}

bool hak_os_read_text(const char *path, char *text, size_t size) {
  int fd = hak_os_open(path, false);
  long n = fd < 0 ? -1 : hak_os_read(fd, text, size - 1);
  if (fd >= 0) hak_os_close(fd);
  text[n > 0 ? n : 0] = 0;
  return n > 0;
}

// Waits until fd takes more; false after the time until, for its reader may have stopped for good:
// then no later write waits for one, until a write succeeds. Relaxed: it only steers that.
static _Atomic bool stuck;
static bool wait_for_room(int fd, uint64_t until) {
  uint64_t now = hak_os_clock_ms(), rest = now < until ? until - now : 0;
  struct timespec time = {(time_t)(rest / 1000), (long)(rest % 1000 * 1000000)};
  struct pollfd room = {.fd = fd, .events = POLLOUT};
  if (hak_load_relaxed(&stuck)) return false;
  if (rest > 0 && (syscall(SYS_ppoll, &room, 1, &time, NULL, 0) > 0 || errno == EINTR)) return true;
  hak_store_relaxed(&stuck, true);
  return false;
}

// A closed pipe and a file that may not grow are errors like others: the thread gets no signal for
// them, except one that was already pending.
bool hak_os_write(int fd, const char *text, size_t length) {
  KEEP_ERRNO;
  enum { PATIENCE_MS = 2000 };
  const uint64_t ours = UINT64_C(1) << (SIGPIPE - 1) | UINT64_C(1) << (SIGXFSZ - 1);
  const struct timespec no_time = {0, 0};
  uint64_t before = 0, pending = 0, until = 0;
  bool blocked = syscall(SYS_rt_sigprocmask, SIG_BLOCK, &ours, &before, sizeof before) == 0;
  syscall(SYS_rt_sigpending, &pending, sizeof pending);
  while (length > 0) {
    ssize_t n = syscall(SYS_write, fd, text, length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      if (until == 0) until = hak_os_clock_ms() + PATIENCE_MS;
      if (wait_for_room(fd, until)) continue;
    }
    if (n <= 0) break;
    text += n;
    length -= (size_t)n;
    until = 0;
    hak_store_relaxed(&stuck, false);
  }
  uint64_t taken = ours & ~pending;
  if (length > 0 && blocked && (errno == EPIPE || errno == EFBIG))
    syscall(SYS_rt_sigtimedwait, &taken, NULL, &no_time, sizeof taken);
  if (blocked) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
  return length == 0;
}

void hak_os_random(void *p, size_t size) {
  KEEP_ERRNO;
  const unsigned char *start = (const unsigned char *)getauxval(AT_RANDOM); // 16 bytes, or NULL
  unsigned char *to = p;
  if (syscall(SYS_getrandom, p, size, 1 /* GRND_NONBLOCK */) == (long)size) return;
  for (size_t i = 0; i < size; i++)
    to[i] =
        (unsigned char)((start ? start[i % 16] * (i / 16 * 2 + 1) : i) + ((uintptr_t)p >> i % 32));
}

int hak_os_pid(void) { return (int)getpid(); }

uint64_t hak_os_clock_ms(void) {
  KEEP_ERRNO;
  struct timespec t = {0, 0};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return hak_kernel_clock((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
}

void hak_os_yield(void) {
  KEEP_ERRNO;
  sched_yield();
}

void hak_os_sleep_ms(unsigned ms) { // by number, as above: malloc is no cancellation point
  KEEP_ERRNO;
  struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
  syscall(SYS_nanosleep, &t, NULL);
}

extern int backtrace(void **frames, int most) HAK_WEAK; // <execinfo.h>

unsigned hak_os_stack(void **frames, unsigned most) {
  KEEP_ERRNO;
  int n = backtrace ? backtrace(frames, (int)most) : 0;
  return n > 0 ? (unsigned)n : 0;
}

static void (*look_at_fault)(const void *address);
static struct sigaction before_segv, before_bus;

static bool has_handler(const struct sigaction *action) {
  return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

static void on_fault(int number, siginfo_t *info, void *context) {
  struct sigaction *before = number == SIGSEGV ? &before_segv : &before_bus, now = *before;
  int saved_errno = errno;
  look_at_fault(info->si_addr);
  errno = saved_errno;
  if (!has_handler(&now)) {
    // The access is retried and ends the process; a signal that was sent is raised again.
    sigaction(number, before, NULL);
    if (info->si_code <= 0) raise(number);
    return;
  }
  if (now.sa_flags & (int)SA_RESETHAND) before->sa_handler = SIG_DFL;
  if (now.sa_flags & SA_SIGINFO) now.sa_sigaction(number, info, context);
  else now.sa_handler(number);
}

// The kernel treats masks and stacks as it would have for the earlier handler.
static void look_at(int number, struct sigaction *before) {
  sigaction(number, NULL, before);
  struct sigaction action = *before;
  action.sa_flags &= SA_NODEFER | SA_ONSTACK | SA_RESTART;
  if (!has_handler(before)) action.sa_flags = SA_ONSTACK;
  action.sa_flags |= SA_SIGINFO;
  action.sa_sigaction = on_fault;
  sigaction(number, &action, NULL);
}

void hak_os_on_fault(void (*look)(const void *address)) {
  KEEP_ERRNO;
  look_at_fault = look;
  look_at(SIGSEGV, &before_segv);
  look_at(SIGBUS, &before_bus);
}

_Noreturn void hak_os_abort(void) {
  // Not abort(), which may flush or lock; the default action of SIGABRT is wanted.
  // A handler that the program installed still runs.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGABRT);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  raise(SIGABRT);
  signal(SIGABRT, SIG_DFL);
  raise(SIGABRT);
  _exit(127);
}
