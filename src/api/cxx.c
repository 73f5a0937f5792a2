// cxx.c: the replaceable C++ allocation functions ([new.delete] of C++20), by
// their Itanium ABI names, so that HAKMEM itself needs no C++ runtime.
//
// The new-handler and the exception come from the program's own C++ library
// through weak references. This file is compiled with unwind tables (no landing
// pads), so that an exception passes through it. Where it must not (nothrow),
// new_handler.cpp catches it; that file also makes a linker take the referenced
// functions out of a static C++ library. The references do not reach a C++ library
// loaded after this one: its own operators are then called, to fail in its way.

#define _GNU_SOURCE // dladdr, RTLD_NEXT
#include "api/api.h"

#include <dlfcn.h>

#include "api/cxx.h"
#include "core/print.h"
#include "os/os.h"
#include "thread/first.h"
#include "thread/front.h"

HAK_API_PART(cxx);

#if !HAK_NO_OVERRIDE
typedef void (*handler_t)(void);
extern handler_t _ZSt15get_new_handlerv(void) HAK_WEAK; // std::get_new_handler
extern void _ZSt17__throw_bad_allocv(void) HAK_WEAK;    // libstdc++

// Absent in a statically linked program.
extern __typeof__(dladdr) dladdr HAK_WEAK;
extern __typeof__(dlopen) dlopen HAK_WEAK;
extern __typeof__(dlsym) dlsym HAK_WEAK;
extern __typeof__(dlclose) dlclose HAK_WEAK;

static handler_t handler_now(void) {
  return _ZSt15get_new_handlerv ? _ZSt15get_new_handlerv() : NULL;
}

// The operator of the C++ library that the caller's object has loaded, if any; for the program
// itself, of any globally visible C++ library. An operator without a new-handler in the same
// library is this library's or some other allocator's, which the caller's scope names first: then
// it is looked up in the object of the new-handler. Not at once, as that takes memory.
static HAK_COLD uintptr_t loaded_operator(const char *name, const void *caller) {
  Dl_info info;
  if (!dladdr || !dlopen || !dlsym || !dlclose || !dladdr(caller, &info)) return 0;
  void *handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void *scope = handle ? handle : RTLD_NEXT, *library = NULL;
  uintptr_t found = (uintptr_t)dlsym(scope, name);
  void *handler = dlsym(scope, "_ZSt15get_new_handlerv");
  bool is_its = hak_api_same_object(found, (uintptr_t)handler);
  if (!is_its && handler && dladdr(handler, &info))
    library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library) {
    found = (uintptr_t)dlsym(library, name);
    is_its = hak_api_same_object(found, (uintptr_t)handler);
    dlclose(library);
  }
  if (handle) dlclose(handle); // the caller is running, so its object stays loaded
  return is_its ? found : 0;
}

// Calls the loaded operator. Its memory is HAKMEM's, since it calls malloc.
static HAK_COLD void *ask_loaded(size_t alignment, size_t size, const void *caller) {
  bool aligned = alignment > 1;
  uintptr_t f = loaded_operator(aligned ? "_ZnwmSt11align_val_t" : "_Znwm", caller);
  if (!f) return NULL;
  return aligned ? ((void *(*)(size_t, size_t))f)(size, alignment) : ((void *(*)(size_t))f)(size);
}

static HAK_COLD void *ask_loaded_nothrow(size_t alignment, size_t size, const void *tag,
                                         const void *caller) {
  bool aligned = alignment > 1;
  uintptr_t f = loaded_operator(
      aligned ? "_ZnwmSt11align_val_tRKSt9nothrow_t" : "_ZnwmRKSt9nothrow_t", caller);
  if (!f) return NULL;
  return aligned ? ((void *(*)(size_t, size_t, const void *))f)(size, alignment, tag)
                 : ((void *(*)(size_t, const void *))f)(size, tag);
}

// An alignment that is no power of two is as good as no memory, as in libstdc++; 0 is none.
static bool can_have(size_t alignment) { return HAK_LIKELY((alignment & (alignment - 1)) == 0); }

// Calls the new-handler until there is memory; NULL if there is no handler.
static void *retry(size_t alignment, size_t size) {
  for (;;) {
    void *p = hak_front_alloc_aligned(alignment, size, NULL);
    if (p) return p;
    handler_t handler = handler_now();
    if (!handler) return NULL;
    handler();
  }
}

// The same for nothrow: also NULL when the handler throws.
static void *retry_nothrow(size_t alignment, size_t size, const void *tag, const void *caller) {
  if (!can_have(alignment)) return hak_api_no_memory();
  for (;;) {
    void *p = hak_front_alloc_aligned(alignment, size, NULL);
    if (p) return p;
    if (!_ZSt15get_new_handlerv) {
      p = ask_loaded_nothrow(alignment, size, tag, caller);
      return p ? p : hak_api_no_memory();
    }
    handler_t handler = handler_now();
    if (!handler || !hak_cxx_call_handler(handler)) return hak_api_no_memory();
  }
}

static HAK_COLD void *no_memory(size_t alignment, size_t size, const void *caller) {
  errno = ENOMEM;
  if (_ZSt17__throw_bad_allocv) _ZSt17__throw_bad_allocv();
  void *p = ask_loaded(alignment, size, caller);
  if (p) return p; // its new-handler has freed some
  hak_message("out of memory in operator new(%u), and no C++ library to throw bad_alloc", size);
  hak_os_abort();
}

#define CALLER __builtin_return_address(0)

static void *new_aligned(size_t size, size_t alignment, const void *caller) {
  void *p = can_have(alignment) ? retry(alignment, size) : NULL;
  return p ? p : no_memory(alignment, size, caller);
}

static void *new_first(size_t size) { return hak_first_open() ? hak_first_alloc(size) : NULL; }

HAK_NOINLINE static void *new_slow(size_t size, const void *caller) {
  void *p = new_first(size);
  if (!p) p = retry(1, size);
  return HAK_LIKELY(p != NULL) ? p : no_memory(1, size, caller);
}

static void *new_nothrow(size_t size, const void *tag, const void *caller) {
  void *p = new_first(size);
  return p ? p : retry_nothrow(1, size, tag, caller);
}

HAK_NOINLINE static void *new_other(size_t size, const void *caller) {
  void *p = hak_front_hit_l2(size);
  return HAK_LIKELY(p != NULL) ? p : new_slow(size, caller);
}

// ---------------------------------------------------------------------------
// The forms that a program may replace individually. All are weak: a program that is linked to
// the static library may also define any of them.

HAK_HOT static void *own_new(size_t size) {
  void *p = hak_front_hit(size);
  return HAK_LIKELY(p != NULL) ? p : new_other(size, CALLER);
}
HAK_ALIAS(own_new) HAK_WEAK void *_Znwm(size_t size);

static void *own_new_aligned(size_t size, size_t alignment) {
  return new_aligned(size, alignment, CALLER);
}
HAK_ALIAS(own_new_aligned) HAK_WEAK void *_ZnwmSt11align_val_t(size_t size, size_t alignment);

HAK_HOT static void own_delete(void *p) { hak_front_free(p, "operator delete"); }
HAK_ALIAS(own_delete) HAK_WEAK void _ZdlPv(void *p);

static void own_delete_aligned(void *p, HAK_UNUSED size_t alignment) {
  hak_front_free(p, "operator delete");
}
HAK_ALIAS(own_delete_aligned) HAK_WEAK void _ZdlPvSt11align_val_t(void *p, size_t alignment);

// ---------------------------------------------------------------------------
// The other forms, defined by means of those and of each other: they go straight to the heap
// if the program has replaced none (OURS), else they do as the standard says.

// Whether it is known that the program has replaced none, or calls HAKMEM's by dlsym: set once, at
// the first call of one of them. Relaxed: what it says has been true since the program was loaded.
static _Atomic bool ours;
#define OURS HAK_LIKELY(hak_load_relaxed(&ours))

static void *own_new_array(size_t size);
static void *own_new_aligned_array(size_t size, size_t alignment);
static void own_delete_array(void *p);
static void own_delete_aligned_array(void *p, size_t alignment);

// The forms by names that no program can replace.
static const hak_cxx_forms_t own = {
    own_new,    own_new_array,    own_new_aligned,    own_new_aligned_array,
    own_delete, own_delete_array, own_delete_aligned, own_delete_aligned_array};

static HAK_COLD bool find_out(void) {
  bool same = hak_cxx_same(&own);
  if (same) hak_store_relaxed(&ours, true);
  return same;
}
// For forms that take long anyway; in others a call in the middle would cost what it saves.
static bool is_ours(void) { return OURS || find_out(); }

static HAK_COLD void *other_array(size_t size, const void *caller) {
  return find_out() ? new_other(size, caller) : hak_cxx_public.allocate(size);
}

static HAK_COLD void *other_nothrow(void *(*by_program)(size_t), size_t size, const void *tag,
                                    const void *caller) {
  return find_out() ? new_nothrow(size, tag, caller) : hak_cxx_try(by_program, size);
}

HAK_HOT static void *own_new_array(size_t size) {
  if (!OURS) return other_array(size, CALLER);
  void *p = hak_front_hit(size);
  return HAK_LIKELY(p != NULL) ? p : new_other(size, CALLER);
}
HAK_ALIAS(own_new_array) HAK_WEAK void *_Znam(size_t size);

static void *own_new_aligned_array(size_t size, size_t alignment) {
  return is_ours() ? new_aligned(size, alignment, CALLER)
                   : hak_cxx_public.allocate_aligned(size, alignment);
}
HAK_ALIAS(own_new_aligned_array) HAK_WEAK void *_ZnamSt11align_val_t(size_t size, size_t alignment);

#define NOTHROW(name, means) \
  HAK_EXPORT HAK_WEAK void *name(size_t size, const void *tag) { \
    if (!OURS) return other_nothrow(hak_cxx_public.means, size, tag, CALLER); \
    void *p = hak_front_hit(size); \
    return p ? p : new_nothrow(size, tag, CALLER); \
  }
NOTHROW(_ZnwmRKSt9nothrow_t, allocate)
NOTHROW(_ZnamRKSt9nothrow_t, allocate_array)

#define NOTHROW_ALIGNED(name, means) \
  HAK_EXPORT HAK_WEAK void *name(size_t size, size_t alignment, const void *tag) { \
    return is_ours() ? retry_nothrow(alignment, size, tag, CALLER) \
                     : hak_cxx_try_aligned(hak_cxx_public.means, size, alignment); \
  }
NOTHROW_ALIGNED(_ZnwmSt11align_val_tRKSt9nothrow_t, allocate_aligned)
NOTHROW_ALIGNED(_ZnamSt11align_val_tRKSt9nothrow_t, allocate_aligned_array)

// delete, with the form it calls for the program's own blocks.
static HAK_COLD void other_delete(void (*by_program)(void *), void *p) {
  if (find_out()) hak_front_free(p, "operator delete");
  else by_program(p);
}

static HAK_COLD void other_delete_aligned(void (*by_program)(void *, size_t), void *p,
                                          size_t alignment) {
  if (find_out()) hak_front_free(p, "operator delete");
  else by_program(p, alignment);
}

#define DELETE(function, other) \
  function { \
    if (OURS) hak_front_free(p, "operator delete"); \
    else other; \
  }
DELETE(HAK_HOT static void own_delete_array(void *p), other_delete(hak_cxx_public.release, p))
HAK_ALIAS(own_delete_array) HAK_WEAK void _ZdaPv(void *p);
DELETE(static void own_delete_aligned_array(void *p, size_t alignment),
       other_delete_aligned(hak_cxx_public.release_aligned, p, alignment))
HAK_ALIAS(own_delete_aligned_array) HAK_WEAK void _ZdaPvSt11align_val_t(void *p, size_t alignment);
DELETE(HAK_EXPORT HAK_WEAK void _ZdlPvRKSt9nothrow_t(void *p, HAK_UNUSED const void *tag),
       other_delete(hak_cxx_public.release, p))
DELETE(HAK_EXPORT HAK_WEAK void _ZdaPvRKSt9nothrow_t(void *p, HAK_UNUSED const void *tag),
       other_delete(hak_cxx_public.release_array, p))
DELETE(HAK_EXPORT HAK_WEAK void _ZdlPvSt11align_val_tRKSt9nothrow_t(void *p, size_t alignment,
                                                                    HAK_UNUSED const void *tag),
       other_delete_aligned(hak_cxx_public.release_aligned, p, alignment))
DELETE(HAK_EXPORT HAK_WEAK void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *p, size_t alignment,
                                                                    HAK_UNUSED const void *tag),
       other_delete_aligned(hak_cxx_public.release_aligned_array, p, alignment))

HAK_NOINLINE static void delete_other(void *p, size_t size) {
  if (!hak_front_free_sized_other(p, size, "operator delete")) hak_api_delete_sized(p, 1, size);
}

static HAK_COLD void other_delete_sized(void (*by_program)(void *), void *p, size_t size) {
  if (find_out()) delete_other(p, size);
  else by_program(p);
}

static HAK_COLD void other_delete_aligned_sized(void (*by_program)(void *, size_t), void *p,
                                                size_t size, size_t alignment) {
  if (find_out()) hak_api_delete_sized(p, alignment, size);
  else by_program(p, alignment);
}

#define DELETE_SIZED(name, means) \
  HAK_EXPORT HAK_HOT HAK_WEAK void name(void *p, size_t size) { \
    if (!OURS) other_delete_sized(hak_cxx_public.means, p, size); \
    else if (HAK_UNLIKELY(!hak_front_free_sized(p, size, "operator delete"))) \
      delete_other(p, size); \
  }
DELETE_SIZED(_ZdlPvm, release)
DELETE_SIZED(_ZdaPvm, release_array)

#define DELETE_ALIGNED_SIZED(name, means) \
  HAK_EXPORT HAK_WEAK void name(void *p, size_t size, size_t alignment) { \
    if (!OURS) other_delete_aligned_sized(hak_cxx_public.means, p, size, alignment); \
    else if (!hak_front_free_aligned_sized(p, alignment, size, "operator delete")) \
      hak_api_delete_sized(p, alignment, size); \
  }
DELETE_ALIGNED_SIZED(_ZdlPvmSt11align_val_t, release_aligned)
DELETE_ALIGNED_SIZED(_ZdaPvmSt11align_val_t, release_aligned_array)
#endif
