// limits.c: setrlimit and prlimit as in the C library, except that a limit on the process's own
// address space first releases reserved address space that it leaves no room for. If the limit is
// set by other means (another process, a direct system call), this happens when memory is refused
// (hak_heap_reclaim_all).

#include "api/api.h"
#include "os/os.h"
#include "thread/process.h"

HAK_API_PART(limits);

#if !HAK_NO_OVERRIDE
static HAK_COLD int own_prlimit(int pid, int resource, const hak_os_limits_t *limits,
                                hak_os_limits_t *old) {
  if (!limits || !hak_os_is_address_limit(pid, resource))
    return hak_os_limit(pid, resource, limits, old);
  hak_process_init();
  size_t now = hak_os_address_limit();
  // Before the call: otherwise mappings that other threads make meanwhile would be refused.
  if (limits->soft < now) hak_process_fit(limits->soft);
  int result = hak_os_limit(pid, resource, limits, old);
  hak_process_fit(hak_os_address_limit()); // the limit was raised, or the call was refused
  return result;
}

static HAK_COLD int own_setrlimit(int resource, const hak_os_limits_t *limits) {
  return own_prlimit(0, resource, limits, 0);
}

// Weak: a static program may contain those of the C library as well. Own declarations: those of the
// headers differ between C libraries. With a 64-bit address space the types for 64-bit file offsets
// equal the others.
HAK_ALIAS(own_setrlimit) HAK_WEAK int setrlimit(int, const hak_os_limits_t *);
HAK_ALIAS(own_setrlimit) HAK_WEAK int setrlimit64(int, const hak_os_limits_t *);
HAK_ALIAS(own_prlimit) HAK_WEAK int prlimit(int, int, const hak_os_limits_t *, hak_os_limits_t *);
HAK_ALIAS(own_prlimit) HAK_WEAK int prlimit64(int, int, const hak_os_limits_t *, hak_os_limits_t *);
#endif
