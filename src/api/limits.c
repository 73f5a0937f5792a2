// limits.c: setrlimit and prlimit, as the C library has them, but that a limit of the process's own
// address space finds nothing reserved that it does not leave room for. Who sets it by other
// means (another process, a system call of its own) has that happen when memory is refused
// (hak_heap_reclaim_all).

#include "api/api.h"
#include "os/os.h"
#include "thread/process.h"

HAK_API_PART(limits);

#if !HAK_NO_OVERRIDE
// By their own declarations: those of the C library's header differ from one to the other. Where
// there is 64-bit address space, the types of 64-bit file offsets are the others.
int setrlimit(int resource, const hak_os_limits_t *limits);
int setrlimit64(int resource, const hak_os_limits_t *limits);
int prlimit(int pid, int resource, const hak_os_limits_t *limits, hak_os_limits_t *old);
int prlimit64(int pid, int resource, const hak_os_limits_t *limits, hak_os_limits_t *old);

static HAK_COLD int own_prlimit(int pid, int resource, const hak_os_limits_t *limits,
                                hak_os_limits_t *old) {
  if (!limits || !hak_os_is_address_limit(pid, resource))
    return hak_os_limit(pid, resource, limits, old);
  hak_process_init();
  size_t now = hak_os_address_limit();
  // Before: or what other threads map meanwhile would be refused.
  if (limits->soft < now) hak_process_fit(limits->soft);
  int result = hak_os_limit(pid, resource, limits, old);
  hak_process_fit(hak_os_address_limit()); // it was raised, or the call was refused
  return result;
}

static HAK_COLD int own_setrlimit(int resource, const hak_os_limits_t *limits) {
  return own_prlimit(0, resource, limits, 0);
}

// Weak: in a static program the C library's may be there as well.
HAK_ALIAS(own_setrlimit) __attribute__((weak)) int setrlimit(int, const hak_os_limits_t *);
HAK_ALIAS(own_setrlimit) __attribute__((weak)) int setrlimit64(int, const hak_os_limits_t *);
HAK_ALIAS(own_prlimit)
__attribute__((weak)) int prlimit(int, int, const hak_os_limits_t *, hak_os_limits_t *);
HAK_ALIAS(own_prlimit)
__attribute__((weak)) int prlimit64(int, int, const hak_os_limits_t *, hak_os_limits_t *);
#endif
