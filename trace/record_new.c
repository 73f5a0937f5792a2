// record_new.c: C++'s operators new and delete of libhakmem-record.so.
//
// libstdc++'s operators call malloc and free, and would be recorded without this file. Many
// preloadable allocators export operators of their own, which would not be recorded. So both
// become calls of our malloc and free. The next operator new is called only when memory is out:
// it knows how to call a new_handler and to throw.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
#define NOT_EMPTY(size) ((size) != 0 ? (size) : 1)

static void *aligned(size_t alignment, size_t size) {
  void *p;
  if (alignment < sizeof p) alignment = sizeof p;
  return posix_memalign(&p, alignment, NOT_EMPTY(size)) == 0 ? p : NULL;
}

// The names are mangled C++ names: nw, na: new, new[]; dl, da: delete, delete[]; m: size_t.
#define NEW(name, parameters, arguments, OURS) \
  EXPORT void *name parameters { \
    void *p = OURS; \
    if (p != NULL) return p; \
    void *(*other)parameters; \
    *(void **)&other = dlsym(RTLD_NEXT, #name); \
    return other != NULL ? other arguments : NULL; \
  }
NEW(_Znwm, (size_t n), (n), malloc(NOT_EMPTY(n)))
NEW(_Znam, (size_t n), (n), malloc(NOT_EMPTY(n)))
NEW(_ZnwmRKSt9nothrow_t, (size_t n, void *t), (n, t), malloc(NOT_EMPTY(n)))
NEW(_ZnamRKSt9nothrow_t, (size_t n, void *t), (n, t), malloc(NOT_EMPTY(n)))
NEW(_ZnwmSt11align_val_t, (size_t n, size_t a), (n, a), aligned(a, n))
NEW(_ZnamSt11align_val_t, (size_t n, size_t a), (n, a), aligned(a, n))
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t n, size_t a, void *t), (n, a, t), aligned(a, n))
NEW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t n, size_t a, void *t), (n, a, t), aligned(a, n))

// free does not need the arguments that follow the pointer (a size, an alignment, nothrow).
#define DELETE(suffix) \
  EXPORT void _ZdlPv##suffix(void *p) { free(p); } \
  EXPORT void _ZdaPv##suffix(void *p) { free(p); }
DELETE()
DELETE(m)
DELETE(RKSt9nothrow_t)
DELETE(St11align_val_t)
DELETE(mSt11align_val_t)
DELETE(St11align_val_tRKSt9nothrow_t)
