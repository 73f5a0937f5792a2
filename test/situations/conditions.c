// conditions.c: the conditions under which a process can be run. restart is set for those that
// a new program inherits.

#include "situations.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static bool limit(size_t what, size_t value) {
  struct rlimit l = {value, value};
  if (what == RLIMIT_STACK) {
    CHECK(getrlimit((int)what, &l) == 0);
    l.rlim_cur = value;
  }
  if (setrlimit((int)what, &l) != 0) sit_skip("this limit cannot be set");
  return true;
}

// The call fails with that error, or ends the process; with advice >= 0 only if its third argument
// is that.
#define KILLS 0xffff
static bool refuse(size_t call, size_t error_and_advice) {
  int advice = (int)(error_and_advice >> 16) - 1;
  uint32_t error = (uint32_t)error_and_advice & 0xffff;
  uint32_t action = error == KILLS ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | error;
  struct sock_filter any[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)advice, 0, advice >= 0 ? 1 : 0),
      BPF_STMT(BPF_RET | BPF_K, action),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {COUNT(any), any};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    sit_skip("no seccomp filters here");
  return true;
}
#define ONLY(advice) ((size_t)((advice) + 1) << 16)

static bool persona(size_t flags, size_t b) {
  (void)b;
  if (personality(flags) == -1) sit_skip("the personality cannot be set");
  return true;
}

static bool control(size_t option, size_t value) {
  if (prctl((int)option, value, 0, 0, 0) != 0) sit_skip("the kernel has no such control");
  return true;
}

static bool close_from(size_t first, size_t last) {
  for (size_t fd = first; fd <= last; fd++) close((int)fd);
  return true;
}

#define LOCKED ((size_t)96 << 20) // more than the cases lock
static bool lock_all(size_t flags, size_t b) {
  (void)b;
  if (mlockall((int)flags) != 0) sit_skip("mlockall is not allowed");
  void *p = mmap(NULL, LOCKED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) sit_skip("RLIMIT_MEMLOCK is low");
  munmap(p, LOCKED);
  return true;
}

// Uses up the mappings that a process may have, except the last `left`. The kernel does not
// merge neighbours that differ in protection.
static bool use_up_mappings(size_t left, size_t b) {
  (void)b;
  char text[32] = "";
  int fd = open("/proc/sys/vm/max_map_count", O_RDONLY);
  if (fd < 0 || read(fd, text, sizeof text - 1) <= 0) sit_skip("max_map_count is not known");
  close(fd);
  size_t limit = strtoul(text, NULL, 10);
  if (limit > 300000) sit_skip("max_map_count is very high");
  char *p = mmap(NULL, (limit + 10) * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  CHECK(p != MAP_FAILED);
  size_t pages = 0;
  while (pages < limit && mprotect(p + pages * 4096, 4096, PROT_READ) == 0) pages += 2;
  for (size_t back = 0; back < left && pages >= 2; back += 2) {
    pages -= 2;
    mprotect(p + pages * 4096, 4096, PROT_NONE);
  }
  return true;
}

static bool one_cpu(size_t cpu, size_t b) {
  (void)b;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) sit_skip("there is no such CPU");
  return true;
}

static bool no_proc(size_t a, size_t b) {
  (void)a, (void)b;
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 && unshare(CLONE_NEWNS) != 0)
    sit_skip("no mount name space");
  if (syscall(SYS_mount, NULL, "/", NULL, 1UL << 14 | 1UL << 18, NULL) != 0 || // MS_REC|MS_PRIVATE
      syscall(SYS_mount, "none", "/proc", "tmpfs", 0, NULL) != 0)
    sit_skip("/proc cannot be hidden");
  return true;
}

static bool variable(size_t name, size_t value) {
  return setenv((const char *)name, (const char *)value, 1) == 0;
}

// No variable but LD_PRELOAD is left; the switch of these tests is gone too.
static bool no_environment(size_t a, size_t b) {
  (void)a, (void)b;
  static char *none[] = {NULL, NULL};
  static char preload[4096];
  const char *value = getenv("LD_PRELOAD");
  if (value && snprintf(preload, sizeof preload, "LD_PRELOAD=%s", value) > 0) none[0] = preload;
  environ = none;
  return true;
}

static bool large_environment(size_t n, size_t b) {
  (void)b;
  for (size_t i = 0; i < n; i++) {
    char name[32];
    snprintf(name, sizeof name, "SITUATION_%zu", i);
    CHECK(setenv(name, "a value of a certain length, as programs have them", 1) == 0);
  }
  return true;
}

// A library beside this program, loaded before or after the allocator's.
static bool preload(size_t name, size_t first) {
  static char value[8192];
  const char *others = getenv("LD_PRELOAD"), *path = beside((const char *)name);
  if (!others) others = "";
  CHECK(snprintf(value, sizeof value, "%s:%s", first ? path : others, first ? others : path) > 0);
  return setenv("LD_PRELOAD", value, 1) == 0;
}

#define TEXT(s) ((size_t)(uintptr_t)(s))

static const struct {
  const char *name;
  bool (*set_up)(size_t, size_t);
  size_t a, b;
  bool restart;
} conditions[] = {
    {"as_64m", limit, RLIMIT_AS, 64 * MIB, true},
    {"as_128m", limit, RLIMIT_AS, 128 * MIB, true},
    {"as_256m", limit, RLIMIT_AS, 256 * MIB, true},
    {"as_1g", limit, RLIMIT_AS, GIB, true},
    {"data_20m", limit, RLIMIT_DATA, 20 * MIB, true},
    {"data_64m", limit, RLIMIT_DATA, 64 * MIB, true},
    {"stack_unlimited", limit, RLIMIT_STACK, RLIM_INFINITY, true},
    {"stack_256k", limit, RLIMIT_STACK, 256 * KIB, true},
    {"memlock_0", limit, RLIMIT_MEMLOCK, 0, true},
    {"nofile_0", limit, RLIMIT_NOFILE, 0, false},
    {"nofile_3", limit, RLIMIT_NOFILE, 3, false},
    {"fsize_0", limit, RLIMIT_FSIZE, 0, true},
    {"closed_0", close_from, 0, 0, true},
    {"closed_2", close_from, 2, 2, true},
    {"closed_0_to_2", close_from, 0, 2, true},
    {"closed_all", close_from, 0, 100, true},
    {"no_aslr", persona, ADDR_NO_RANDOMIZE, 0, true},
    {"legacy_layout", persona, ADDR_COMPAT_LAYOUT, 0, true},
    {"legacy_no_aslr", persona, ADDR_COMPAT_LAYOUT | ADDR_NO_RANDOMIZE, 0, true},
    {"read_implies_exec", persona, READ_IMPLIES_EXEC, 0, true},
    {"no_huge_pages", control, PR_SET_THP_DISABLE, 1, true},
    {"no_new_code", control, 65, 1, true}, // PR_SET_MDWE: memory is writable or executable, for good
    {"madvise_enosys", refuse, SYS_madvise, ENOSYS, true},
    {"madvise_einval", refuse, SYS_madvise, EINVAL, true},
    {"madvise_enomem", refuse, SYS_madvise, ENOMEM, true},
    {"populate_einval", refuse, SYS_madvise, EINVAL | ONLY(23), true},
    {"populate_read_einval", refuse, SYS_madvise, EINVAL | ONLY(22), true},
    {"getrusage_enosys", refuse, SYS_getrusage, ENOSYS, true},
    {"populate_enomem", refuse, SYS_madvise, ENOMEM | ONLY(23), true},
    {"dontneed_einval", refuse, SYS_madvise, EINVAL | ONLY(4), true},
    {"dontneed_eagain", refuse, SYS_madvise, EAGAIN | ONLY(4), true},
    {"free_einval", refuse, SYS_madvise, EINVAL | ONLY(8), true},
    {"hugepage_einval", refuse, SYS_madvise, EINVAL | ONLY(14), true},
    {"madvise_eperm", refuse, SYS_madvise, EPERM, true},
    {"nohugepage_einval", refuse, SYS_madvise, EINVAL | ONLY(15), true},
    {"collapse_einval", refuse, SYS_madvise, EINVAL | ONLY(25), true},
    {"mremap_eperm", refuse, SYS_mremap, EPERM, true},
    {"mremap_enosys", refuse, SYS_mremap, ENOSYS, true},
    {"mremap_enomem", refuse, SYS_mremap, ENOMEM, true},
    {"munmap_enomem", refuse, SYS_munmap, ENOMEM, false},
    {"brk_enomem", refuse, SYS_brk, ENOMEM, true},
    {"getrandom_enosys", refuse, SYS_getrandom, ENOSYS, true},
    {"rseq_enosys", refuse, SYS_rseq, ENOSYS, true},
    {"set_robust_list_enosys", refuse, SYS_set_robust_list, ENOSYS, true},
    {"rseq_eperm", refuse, SYS_rseq, EPERM, true},
    {"membarrier_enosys", refuse, SYS_membarrier, ENOSYS, true},
    {"getcpu_enosys", refuse, SYS_getcpu, ENOSYS, true},
    {"sched_getaffinity_enosys", refuse, SYS_sched_getaffinity, ENOSYS, true},
    {"prctl_enosys", refuse, SYS_prctl, ENOSYS, true},
    {"sysinfo_eperm", refuse, SYS_sysinfo, EPERM, true},
    {"openat_eacces_later", refuse, SYS_openat, EACCES, false},
    {"openat_kills_later", refuse, SYS_openat, KILLS, false},
    {"clock_gettime_eperm", refuse, SYS_clock_gettime, EPERM, true},
    {"mlock_future", lock_all, MCL_FUTURE, 0, false},
    {"mlock_onfault", lock_all, MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT, 0, false},
    {"maps_200_left", use_up_mappings, 200, 0, false},
    {"maps_500_left", use_up_mappings, 500, 0, false},
    {"one_cpu", one_cpu, 0, 0, true},
    {"last_cpu", one_cpu, 1, 0, true},
    {"no_proc", no_proc, 0, 0, false},
    {"no_proc_from_start", no_proc, 0, 0, true},
    {"bind_now", variable, TEXT("LD_BIND_NOW"), TEXT("1"), true},
    {"deep_binding_kept", variable, TEXT("HAKMEM_DEEPBIND"), TEXT("1"), true},
    {"malloc_perturb", variable, TEXT("MALLOC_PERTURB_"), TEXT("165"), true},
    {"malloc_arena_1", variable, TEXT("MALLOC_ARENA_MAX"), TEXT("1"), true},
    {"glibc_tunables", variable, TEXT("GLIBC_TUNABLES"),
     TEXT("glibc.malloc.tcache_count=0:glibc.rtld.optional_static_tls=512"), true},
    {"no_rseq", variable, TEXT("GLIBC_TUNABLES"), TEXT("glibc.pthread.rseq=0"), true},
    {"hostile_libc_first", preload, TEXT("libsit_hostile.so"), 1, true},
    {"hostile_libc_last", preload, TEXT("libsit_hostile.so"), 0, true},
    {"wrapper_first", preload, TEXT("libsit_wrapper.so"), 1, true},
    {"wrapper_last", preload, TEXT("libsit_wrapper.so"), 0, true},
    {"no_keys_first", preload, TEXT("libsit_keys.so"), 1, true},
    {"no_keys_last", preload, TEXT("libsit_keys.so"), 0, true},
    {"no_environment", no_environment, 0, 0, true},
    {"large_environment", large_environment, 10000, 0, true},
};

bool condition(const char *name, bool *restart) {
  for (size_t i = 0; i < COUNT(conditions); i++) {
    if (strcmp(name, conditions[i].name) != 0) continue;
    *restart = conditions[i].restart;
    return conditions[i].set_up(conditions[i].a, conditions[i].b);
  }
  return false;
}
