// dlopen.c: dlopen as in the C library, except that RTLD_DEEPBIND is left out. A module loaded with
// that flag binds to the C library's malloc and free, whatever is preloaded, while the program uses
// these: a block that one of them allocates and the other one frees ends the process (PHP and all
// its modules). HAKMEM_DEEPBIND=1 keeps the flag. Without it a name that the program defines too
// is the program's, as for any other module.

#include <dlfcn.h>

#include "api/api.h"
#include "core/options.h"
#include "thread/process.h"

// Not in the static library, as a static program has no next dlopen; musl has no such flag.
#if defined(RTLD_DEEPBIND) && !HAK_NO_OVERRIDE && !HAK_STATIC
// The C library takes whom it returns to for the caller, whose RUNPATH and name space it uses. So
// the last call must be a jump, as it is when compiled with optimisation.
HAK_EXPORT void *dlopen(const char *file, int mode) {
  hak_process_init();
  if (!hak_option(DEEPBIND)) mode &= ~RTLD_DEEPBIND;
  __typeof__(dlopen) *next = (__typeof__(dlopen) *)(uintptr_t)dlsym(RTLD_NEXT, "dlopen");
  return next ? next(file, mode) : NULL; // dlsym has set what dlerror says
}
#endif
