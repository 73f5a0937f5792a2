// derived.c: functions that are defined by means of others. A program that defines malloc and
// its relatives itself, as glibc's manual describes, may omit these: they then pass its blocks
// to its own realloc and free. Likewise for the forms of operator new and delete. In this file
// a standard name that the program defines refers to the program's function; the file takes
// no part in link-time optimisation, which would resolve the name to HAKMEM's function.
// Tests: api.life.programs_own_malloc, programs_own_operator_new.

#define _GNU_SOURCE // dladdr
#include "api/api.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "api/cxx.h"
#include "hakmem/hakmem.h"

HAK_API_PART(derived);

// Absent in a statically linked program.
extern __typeof__(dladdr) dladdr HAK_WEAK;

bool hak_api_same_object(uintptr_t a, uintptr_t b) {
  Dl_info of_a, of_b;
  return a && b && dladdr && dladdr((void *)a, &of_a) && dladdr((void *)b, &of_b) &&
         of_a.dli_fbase == of_b.dli_fbase;
}

#if !HAK_NO_OVERRIDE
HAK_INLINE bool ours(uintptr_t function, uintptr_t own) {
  HAK_IN_REGISTER(function);
  return HAK_LIKELY(function == own);
}
#define OURS(name) ours((uintptr_t)(name), (uintptr_t)(hak_##name))

// The name refers to the C library's function if this library was loaded by dlopen: callers that
// find these functions by dlsym then mean HAKMEM's blocks. Else it is the program's function, or
// the program's entry that leads to HAKMEM's, as in programs that are not position-independent and
// take its address. Determined once. Relaxed: it has been so since the program was loaded.
static bool of_program(uintptr_t function, _Atomic uint8_t *known) {
  enum { UNKNOWN, C_LIBRARY, PROGRAM };
  uint8_t whose = hak_load_relaxed(known);
  if (whose == UNKNOWN) {
    whose = hak_api_same_object(function, (uintptr_t)__errno_location) ? C_LIBRARY : PROGRAM;
    hak_store_relaxed(known, whose);
  }
  return whose == PROGRAM;
}

static HAK_COLD void *other_realloc(void *p, size_t count, size_t size) {
  size_t total;
  if (__builtin_mul_overflow(count, size, &total)) return hak_api_no_memory();
  static _Atomic uint8_t known;
  return of_program((uintptr_t)realloc, &known) ? realloc(p, total) : hak_realloc(p, total);
}

static HAK_COLD bool free_is_of_program(void) {
  static _Atomic uint8_t known;
  return of_program((uintptr_t)free, &known);
}

static HAK_COLD void other_free(void *p) {
  if (free_is_of_program()) free(p);
  else hak_free(p);
}

HAK_EXPORT void *reallocarray(void *p, size_t count, size_t size) {
  return OURS(realloc) ? hak_reallocarray(p, count, size) : other_realloc(p, count, size);
}

HAK_EXPORT void cfree(void *p) {
  if (OURS(free)) hak_free(p);
  else other_free(p);
}

HAK_EXPORT void free_sized(void *p, size_t size) {
  if (OURS(free)) hak_free_sized(p, size);
  else other_free(p);
}

HAK_EXPORT void free_aligned_sized(void *p, size_t alignment, size_t size) {
  if (OURS(free)) hak_free_aligned_sized(p, alignment, size);
  else other_free(p);
}

// ---------------------------------------------------------------------------
// C++

const hak_cxx_forms_t hak_cxx_public = {
    _Znwm,  _Znam,  _ZnwmSt11align_val_t,  _ZnamSt11align_val_t,
    _ZdlPv, _ZdaPv, _ZdlPvSt11align_val_t, _ZdaPvSt11align_val_t};

// Also if this library was loaded by dlopen: the names then refer to the program's own operators
// or the C++ library's.
bool hak_cxx_same(const hak_cxx_forms_t *own) {
  return memcmp(own, &hak_cxx_public, sizeof(*own)) == 0 || !free_is_of_program();
}
#endif
