// limits.c: scarcity of every kind, and kernels that refuse calls. The conditions of the rows
// are the test; the work under them is ordinary.

#include "situations.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void small_work(size_t seed, size_t operations) {
  churn_some(seed, operations);
  churn_some(seed + 1, operations);
}

static void all_work(size_t seed, size_t b) {
  (void)b;
  churn(seed, 1500);
  churn_some(seed, 1500);
  pthread_t thread[2];
  for (size_t i = 0; i < COUNT(thread); i++) thread[i] = start(churn_thread, AS_ARGUMENT(i));
  for (size_t i = 0; i < COUNT(thread); i++) join(thread[i]);
  for (size_t n = 1; n <= 16 * MIB; n *= 8) {
    void *p = aligned_alloc(4096, n), *q = filled_block(n, n);
    CHECK(p && (q = realloc(q, n * 3 / 2)) && filled(q, n, n));
    free(p);
    malloc_trim(0);
    check_and_free(q, n, n);
  }
}

static void threads_work(size_t threads, size_t b) {
  (void)b;
  pthread_t thread[16];
  for (size_t i = 0; i < threads; i++) thread[i] = start(churn_thread, AS_ARGUMENT(i));
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

static void children_work(size_t children, size_t b) {
  (void)b;
  for (size_t i = 0; i < children; i++) {
    void *p = filled_block(i * 1000, i);
    pid_t pid = fork();
    if (pid == 0) check_and_free(p, i * 1000, i), churn_some(i, 500), exit(0);
    wait_for(pid, 0);
    check_and_free(p, i * 1000, i);
  }
}

// Allocates until nothing is left: NULL and ENOMEM, live blocks stay intact; after they are
// freed, as much can be allocated again, of this size and of another.
static size_t fill_up(size_t size, void **list, size_t most) {
  size_t n = 0;
  for (void **p; n < most; n++) {
    errno = 0;
    if (!(p = malloc(size))) {
      CHECK(errno == ENOMEM);
      break;
    }
    p[0] = *list;
    p[size / sizeof *p - 1] = (void *)p;
    *list = p;
  }
  return n;
}
static void free_list(void *list, size_t size) {
  for (void **p = list, **next; p; p = next) {
    next = p[0];
    CHECK(size < 16 || p[size / sizeof *p - 1] == (void *)p);
    free(p);
  }
}
static void until_nothing_is_left(size_t size, size_t other) {
  void *list = NULL;
  size_t first = fill_up(size, &list, 20000000);
  CHECK(first >= 3);
  CHECK(fill_up(size, &list, 100) < 100); // it does not come back by itself
  free_list(list, size), list = NULL;
  for (int round = 0; round < 2; round++) {
    CHECK(fill_up(size, &list, 20000000) >= first / 4 * 3);
    free_list(list, size), list = NULL;
  }
  if (!other) return;
  size_t n = fill_up(other, &list, 20000000);
  CHECK(n * other >= first * size / 3);
  free_list(list, other);
}

// A failed realloc, calloc or aligned_alloc leaves everything as it was.
static void failures_change_nothing(size_t size, size_t b) {
  (void)b;
  char *p = filled_block(size, 1);
  static const size_t too_much[] = {600 * MIB, GIB, 64 * GIB, (size_t)1 << 46};
  for (size_t i = 0; i < COUNT(too_much); i++) {
    errno = 0;
    CHECK(realloc(p, too_much[i]) == NULL && errno == ENOMEM);
    CHECK(filled(p, size, 1));
    errno = 0;
    CHECK(calloc(too_much[i] / 8, 8) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(aligned_alloc(4096, too_much[i]) == NULL && errno == ENOMEM);
    void *untouched = p;
    CHECK(posix_memalign(&untouched, 64, too_much[i]) == ENOMEM && untouched == p);
  }
  churn_some(1, 500);
  check_and_free(p, size, 1);
}

// One large block grows by doubling, is cut, and is given back.
static void one_large_block(size_t largest, size_t b) {
  (void)b;
  for (int round = 0; round < 3; round++) {
    char *p = malloc(largest / 16);
    for (size_t n = largest / 8; n <= largest; n *= 2) {
      CHECK(p = realloc(p, n));
      p[n - 1] = 1;
    }
    CHECK(p = realloc(p, 100));
    free(p);
    small_work(1, 300);
  }
}

static void large_alignments(size_t largest, size_t b) {
  (void)b;
  for (size_t alignment = 16; alignment <= largest; alignment *= 2) {
    void *p = aligned_alloc(alignment, alignment);
    CHECK(p && (uintptr_t)p % alignment == 0);
    free(p);
  }
}

// The limit is set when the heap is in use already, just above what is mapped.
static void limited_later(size_t what, size_t value) {
  char *p = filled_block(100000, 1);
  churn(1, 500);
  struct rlimit l = {value, value};
  if (what == RLIMIT_AS) l.rlim_cur = l.rlim_max = status_kib("VmSize:") * KIB + value;
  CHECK(setrlimit((int)what, &l) == 0);
  churn_some(2, 1500);
  check_and_free(p, 100000, 1);
}

// The limit is far below what an allocator may have reserved; except for what is in use, the
// program gets all of it, for its own stacks and mappings too.
static void use_below(size_t mib) {
  CHECK(status_kib("VmSize:") < mib * KIB);
  char *p = filled_block(mib * MIB / 4, 1);
  CHECK(p);
  void *own = mmap(NULL, mib * MIB / 8, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(own != MAP_FAILED && munmap(own, mib * MIB / 8) == 0);
  errno = 0;
  CHECK(malloc(mib * MIB) == NULL && errno == ENOMEM);
  check_and_free(p, mib * MIB / 4, 1);
  all_work(2, 0);
  threads_work(4, 0);
  children_work(2, 0);
}

static void limited_below(size_t mib, size_t by_prlimit) {
  char *p = filled_block(100000, 1);
  churn(1, 500);
  struct rlimit l = {mib * MIB, RLIM_INFINITY}, old;
  getrlimit(RLIMIT_AS, &old);
  if (l.rlim_max > old.rlim_max) l.rlim_max = old.rlim_max;
  errno = 0;
  if (by_prlimit) {
    struct rlimit before;
    CHECK(prlimit(getpid(), RLIMIT_AS, &l, &before) == 0);
    CHECK(before.rlim_cur == old.rlim_cur && before.rlim_max == old.rlim_max);
  } else {
    CHECK(setrlimit(RLIMIT_AS, &l) == 0);
  }
  CHECK(errno == 0);
  use_below(mib);
  // The limit is raised, and lowered again.
  CHECK(setrlimit(RLIMIT_AS, &old) == 0);
  void *large = malloc(mib * MIB);
  CHECK(large);
  free(large);
  churn(3, 500);
  malloc_trim(0);
  CHECK(setrlimit(RLIMIT_AS, &l) == 0);
  use_below(mib);
  check_and_free(p, 100000, 1);
}

// The limit is not set by a function that a library could know of.
static void limited_by_others(size_t mib, size_t b) {
  (void)b;
  churn(1, 500);
  struct rlimit l = {mib * MIB, mib * MIB};
  CHECK(syscall(SYS_prlimit64, 0, RLIMIT_AS, &l, NULL) == 0);
  char *p = filled_block(mib * MIB / 4, 1); // the first block that needs a mapping
  CHECK(p);
  check_and_free(p, mib * MIB / 4, 1);
  use_below(mib);
}

// The limit is set after a peak and leaves no room beyond it: the peak's memory is available
// to other sizes, and every caller that gets it can use it.
static void limited_after_peak(size_t size, size_t mib) {
  void *list = NULL, *block[16];
  CHECK(fill_up(size, &list, mib * MIB / size) == mib * MIB / size);
  free_list(list, size);
  struct rlimit l = {mib * MIB, mib * MIB};
  CHECK(setrlimit(RLIMIT_AS, &l) == 0);
  char *p = filled_block(mib * MIB / 2, 1);
  CHECK(p);
  check_and_free(p, mib * MIB / 2, 1);
  for (size_t round = 0; round < 3; round++) {
    for (size_t i = 0; i < COUNT(block); i++) CHECK(block[i] = filled_block((i + 1) * 400000, i));
    churn_some(round, 1000);
    for (size_t i = 0; i < COUNT(block); i++) check_and_free(block[i], (i + 1) * 400000, i);
    list = NULL;
    CHECK(fill_up(size, &list, mib * MIB / size / 3) == mib * MIB / size / 3);
    free_list(list, size);
  }
  use_below(mib);
}

// The first to need memory then are threads that have no heap yet, all at once.
static pthread_barrier_t limited;
static void *use_at_once(void *unused) {
  pthread_barrier_wait(&limited);
  char *p = filled_block(4 * MIB, 1);
  CHECK(p);
  check_and_free(p, 4 * MIB, 1);
  return unused;
}
static void limited_by_others_threads(size_t mib, size_t threads) {
  pthread_t thread[16];
  churn(1, 500);
  CHECK(threads <= COUNT(thread));
  CHECK(pthread_barrier_init(&limited, NULL, (unsigned)threads + 1) == 0);
  for (size_t i = 0; i < threads; i++)
    CHECK(pthread_create(&thread[i], NULL, use_at_once, NULL) == 0);
  struct rlimit l = {mib * MIB, mib * MIB};
  CHECK(syscall(SYS_prlimit64, 0, RLIMIT_AS, &l, NULL) == 0);
  pthread_barrier_wait(&limited);
  for (size_t i = 0; i < threads; i++) CHECK(pthread_join(thread[i], NULL) == 0);
}

// The calls do what they are documented to do, and nothing else.
static void limit_calls(size_t a, size_t b) {
  (void)a, (void)b;
  struct rlimit l = {2, 1}, now, old;
  errno = 0;
  CHECK(setrlimit(RLIMIT_AS, &l) == -1 && errno == EINVAL);
  errno = 0;
  CHECK(setrlimit((int)hide_size(99), &l) == -1 && errno == EINVAL);
  CHECK(getrlimit(RLIMIT_AS, &now) == 0 && prlimit(0, RLIMIT_AS, NULL, &old) == 0);
  CHECK(now.rlim_cur == old.rlim_cur && now.rlim_max == old.rlim_max);
  CHECK(setrlimit(RLIMIT_AS, &now) == 0);
  pid_t pid = fork();
  if (pid == 0) pause();
  l = (struct rlimit){128 * MIB, 256 * MIB};
  CHECK(prlimit(pid, RLIMIT_AS, &l, NULL) == 0);
  CHECK(prlimit(pid, RLIMIT_AS, NULL, &old) == 0);
  CHECK(old.rlim_cur == 128 * MIB && old.rlim_max == 256 * MIB);
  CHECK(getrlimit(RLIMIT_AS, &old) == 0 && old.rlim_cur == now.rlim_cur);
  kill(pid, SIGKILL);
  wait_for(pid, SIGKILL);
  errno = 0;
  CHECK(prlimit(pid, RLIMIT_AS, &l, NULL) == -1 && errno == ESRCH);
  l = (struct rlimit){100, 100};
  CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0 && setrlimit64(RLIMIT_NOFILE, (void *)&l) == 0);
  CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 100 && now.rlim_max == 100);
}

static __attribute__((noinline)) void limits_itself(void) {
  static const struct rlimit l = {64 * MIB, 64 * MIB};
  pid_t pid = vfork();
  if (pid == 0) {
    bool limited = setrlimit(RLIMIT_AS, &l) == 0;
    void *volatile p = malloc(100 * MIB);
    _exit(limited && p == NULL ? 0 : 1);
  }
  wait_for(pid, 0);
}

// A child of vfork limits itself, as before an exec: nothing changes for its parent.
static void limited_vfork_child(size_t blocks, size_t size) {
  size_t before = status_kib("VmSize:");
  limits_itself();
  CHECK(status_kib("VmSize:") >= before);
  void **p = calloc(blocks, sizeof *p);
  for (size_t i = 0; i < blocks; i++) CHECK(p && (p[i] = malloc(size)) != NULL), fill(p[i], size, i);
  for (size_t i = 0; i < blocks; i++) check_and_free(p[i], size, i);
  free(p);
}

// Locked memory is resident; memory that is only reserved is not.
static void little_is_locked(size_t most_kib, size_t b) {
  (void)b;
  all_work(1, 0);
  CHECK(status_kib("VmHWM:") < most_kib);
}

// Locking existing memory must not touch memory that is only reserved.
static void lock_everything(size_t flags, size_t b) {
  (void)b;
  churn(1, 1000);
  if (mlockall((int)flags) != 0) sit_skip("mlockall is not allowed");
  CHECK(rss_kib() < 128 * KIB);
  churn(2, 1000);
  malloc_trim(0);
  churn(3, 1000);
}

static void no_descriptor_kept(size_t a, size_t b) {
  (void)a, (void)b;
  int first = dup(0);
  close(first);
  all_work(1, 0);
  int second = dup(0);
  CHECK(first == second);
  // Nor may one be needed that the program has closed.
  for (int fd = 3; fd < 100; fd++) close(fd);
  all_work(2, 0);
}

// Without the advice that memory is not needed, it goes back by other calls: the memory of
// blocks whose neighbours are free too, in all size ranges.
static void memory_goes_back(size_t a, size_t b) {
  (void)a, (void)b;
  enum { N = 40000, BYTES = 64 * MIB };
  static void *block[N];
  static const size_t sizes[] = {200, TINY, L2, L25, HUGE};
  churn(1, 500);
  size_t before = rss_kib();
  for (size_t s = 0; s < COUNT(sizes); s++) {
    size_t n = BYTES / sizes[s] < N ? BYTES / sizes[s] : N;
    for (size_t i = 0; i < n; i++) block[i] = filled_block(sizes[s], i);
    for (size_t i = 0; i < n; i++) check_and_free(block[i], sizes[s], i);
    malloc_trim(0);
    CHECK(rss_kib() < before + 8 * KIB);
  }
}

// Where it is not known whether blocks are used in full they get no huge pages.
static void hardly_used(size_t size, size_t blocks) {
  void **p = calloc(blocks, sizeof *p);
  size_t before = rss_kib();
  for (int round = 0; round < 8; round++) {
    for (size_t i = 0; i < blocks; i++) CHECK(p && (p[i] = malloc(size))), *(char *)p[i] = 1;
    CHECK(rss_kib() < before + 16 * KIB);
    for (size_t i = 0; i < blocks; i++) free(p[i]);
  }
  free(p);
}

#define UNDER(condition, run, a, b) {#run "_" condition, run, a, b, condition}

// Only read, write and the end of the thread are left: a thread that has freed small blocks
// gets such blocks again without a system call.
static void strict_mode(size_t step, size_t rounds) {
  enum { BLOCKS = 64 };
  void *block[BLOCKS];
  pid_t pid = fork();
  if (pid == 0) {
    for (size_t round = 0; round < rounds; round++) {
      for (size_t i = 0; i < BLOCKS; i++) block[i] = filled_block(1 + i * step, i);
      for (size_t i = 0; i < BLOCKS; i++) check_and_free(block[i], 1 + i * step, i);
      if (round == 2 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(77);
    }
    syscall(SYS_exit, 0);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  if (status == 77 << 8) sit_skip("no strict mode");
  CHECK(status == 0);
}

const case_t limits_cases[] = {
    UNDER("as_64m", small_work, 1, 1500),
    UNDER("as_128m", small_work, 1, 1500),
    UNDER("as_128m", all_work, 1, 0),
    UNDER("as_128m", threads_work, 8, 0),
    UNDER("as_128m", children_work, 5, 0),
    UNDER("as_128m", one_large_block, 32 * MIB, 0),
    UNDER("as_256m", all_work, 1, 0),
    UNDER("as_256m", threads_work, 16, 0),
    UNDER("as_256m", large_alignments, 16 * MIB, 0),
    UNDER("as_256m", failures_change_nothing, 5000, 0),
    UNDER("as_1g", all_work, 1, 0),
    UNDER("as_1g", one_large_block, 256 * MIB, 0),
    UNDER("as_1g", large_alignments, 128 * MIB, 0),
    {"nothing_left_as_128m_tiny", until_nothing_is_left, TINY, 0, "as_128m"},
    {"nothing_left_as_128m_1k", until_nothing_is_left, 1000, 0, "as_128m"},
    {"nothing_left_as_128m_l2", until_nothing_is_left, L2, 0, "as_128m"},
    {"nothing_left_as_128m_l25", until_nothing_is_left, L25, 0, "as_128m"},
    {"nothing_left_as_128m_huge", until_nothing_is_left, HUGE, 0, "as_128m"},
    {"nothing_left_as_256m_tiny_then_huge", until_nothing_is_left, 200, 2 * MIB, "as_256m"},
    {"nothing_left_as_256m_huge_then_tiny", until_nothing_is_left, 2 * MIB, 200, "as_256m"},
    {"nothing_left_as_256m_l2_then_l25", until_nothing_is_left, 4000, 100000, "as_256m"},
    {"nothing_left_as_256m_l25_then_l2", until_nothing_is_left, 100000, 4000, "as_256m"},
    UNDER("data_20m", small_work, 1, 1500),
    UNDER("data_64m", threads_work, 4, 0),
    UNDER("stack_unlimited", all_work, 1, 0),
    UNDER("stack_256k", all_work, 1, 0),
    UNDER("memlock_0", all_work, 1, 0),
    UNDER("nofile_0", all_work, 1, 0),
    UNDER("nofile_0", children_work, 3, 0),
    UNDER("nofile_3", threads_work, 4, 0),
    UNDER("fsize_0", all_work, 1, 0),
    UNDER("no_aslr", all_work, 1, 0),
    UNDER("legacy_no_aslr", threads_work, 4, 0),
    {"all_work_legacy_unlimited", all_work, 1, 0, "legacy_layout stack_unlimited"},
    {"small_work_no_aslr_as_128m", small_work, 1, 1000, "no_aslr as_128m"},
    UNDER("read_implies_exec", all_work, 1, 0),
    UNDER("no_huge_pages", all_work, 1, 0),
    UNDER("no_new_code", all_work, 1, 0),
    UNDER("no_new_code", threads_work, 4, 0),
    UNDER("populate_read_einval", all_work, 1, 0),
    UNDER("getrusage_enosys", all_work, 1, 0),
    UNDER("getrusage_enosys", hardly_used, 4 * MIB, 64),
    UNDER("madvise_enosys", all_work, 1, 0),
    UNDER("madvise_einval", threads_work, 4, 0),
    UNDER("madvise_enomem", all_work, 1, 0),
    UNDER("populate_einval", all_work, 1, 0),
    UNDER("populate_enomem", all_work, 1, 0),
    UNDER("dontneed_einval", all_work, 1, 0),
    UNDER("dontneed_eagain", all_work, 1, 0),
    UNDER("free_einval", all_work, 1, 0),
    UNDER("hugepage_einval", all_work, 1, 0),
    UNDER("madvise_eperm", all_work, 1, 0),
    UNDER("madvise_eperm", memory_goes_back, 0, 0),
    UNDER("dontneed_einval", memory_goes_back, 0, 0),
    UNDER("collapse_einval", all_work, 1, 0),
    {"all_work_old_kernel", all_work, 1, 0,
     "populate_einval collapse_einval free_einval hugepage_einval nohugepage_einval rseq_enosys "
     "membarrier_enosys getrandom_enosys"},
    {"threads_work_strict_sandbox", threads_work, 4, 0,
     "madvise_eperm mremap_eperm rseq_eperm membarrier_enosys sysinfo_eperm"},
    UNDER("mremap_eperm", all_work, 1, 0),
    UNDER("mremap_enosys", one_large_block, 64 * MIB, 0),
    UNDER("mremap_enomem", all_work, 1, 0),
    UNDER("munmap_enomem", all_work, 1, 0),
    UNDER("brk_enomem", all_work, 1, 0),
    UNDER("getrandom_enosys", all_work, 1, 0),
    UNDER("rseq_enosys", threads_work, 4, 0),
    UNDER("set_robust_list_enosys", threads_work, 4, 0),
    UNDER("membarrier_enosys", threads_work, 4, 0),
    UNDER("getcpu_enosys", threads_work, 4, 0),
    UNDER("sched_getaffinity_enosys", all_work, 1, 0),
    UNDER("prctl_enosys", all_work, 1, 0),
    UNDER("sysinfo_eperm", all_work, 1, 0),
    UNDER("clock_gettime_eperm", all_work, 1, 0),
    UNDER("openat_eacces_later", all_work, 1, 0),
    UNDER("openat_kills_later", all_work, 1, 0),
    UNDER("mlock_future", little_is_locked, 128 * KIB, 0),
    UNDER("mlock_onfault", little_is_locked, 128 * KIB, 0),
    UNDER("mlock_future", threads_work, 4, 0),
    {"lock_everything_now", lock_everything, MCL_CURRENT},
    {"lock_everything_ever", lock_everything, MCL_CURRENT | MCL_FUTURE},
    UNDER("maps_200_left", all_work, 1, 0),
    UNDER("maps_200_left", small_work, 1, 3000),
    UNDER("maps_500_left", threads_work, 4, 0),
    UNDER("one_cpu", threads_work, 8, 0),
    UNDER("last_cpu", all_work, 1, 0),
    UNDER("no_proc", all_work, 1, 0),
    UNDER("no_proc_from_start", all_work, 1, 0),
    {"threads_work_no_proc_closed_all", threads_work, 4, 0, "no_proc_from_start closed_all"},
    {"as_limited_later", limited_later, RLIMIT_AS, 48 * MIB},
    {"as_limited_below", limited_below, 256, false},
    {"as_limited_below_1g", limited_below, 1024, false},
    {"as_limited_below_prlimit", limited_below, 256, true},
    {"as_limited_after_peak_tiny", limited_after_peak, TINY, 256},
    {"as_limited_after_peak_l2", limited_after_peak, L2, 256},
    {"as_limited_after_peak_l25", limited_after_peak, L25, 256},
    {"as_limited_by_others", limited_by_others, 256},
    {"as_limited_by_others_threads", limited_by_others_threads, 1024, 16},
    {"as_limit_calls", limit_calls},
    {"as_limited_vfork_child", limited_vfork_child, 1000, 100000},
    {"nofile_limited_later", limited_later, RLIMIT_NOFILE, 0},
    {"no_descriptor_kept", no_descriptor_kept},
    {"strict_mode_tiny", strict_mode, 10, 50},
    {"strict_mode_1k", strict_mode, 16, 50},
    {NULL},
};
