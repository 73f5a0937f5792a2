// cxx.c: the replaceable C++ allocation functions ([new.delete] of C++20), by
// their Itanium ABI names, so that C++ programs need no C++ runtime of ours.
//
// The new-handler and the exception come from the program's own C++ library
// through weak references; this file is compiled with unwind tables (no landing
// pads), so that an exception passes through it. Where one must not (nothrow),
// new_handler.cpp catches it. A C++ library that was loaded after this one is not
// in those references: its own operators are then asked to fail as it does.

#define _GNU_SOURCE // dladdr, RTLD_NEXT
#include "api/api.h"

#include <dlfcn.h>

#include "core/print.h"
#include "os/os.h"
#include "thread/front.h"

HAK_API_PART(cxx);

#if !HAK_NO_OVERRIDE
typedef void (*handler_t)(void);
extern handler_t _ZSt15get_new_handlerv(void) __attribute__((weak)); // std::get_new_handler
extern void _ZSt17__throw_bad_allocv(void) __attribute__((weak));    // libstdc++

bool hak_cxx_call_handler(handler_t handler); // new_handler.cpp

// Not there in a program that is linked statically.
extern __typeof__(dladdr) dladdr __attribute__((weak));
extern __typeof__(dlopen) dlopen __attribute__((weak));
extern __typeof__(dlsym) dlsym __attribute__((weak));
extern __typeof__(dlclose) dlclose __attribute__((weak));

void *_Znwm(size_t size);
void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag);
void *_ZnwmSt11align_val_t(size_t size, size_t alignment);
void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *tag);
void _ZdlPvm(void *p, size_t size);
void _ZdlPvmSt11align_val_t(void *p, size_t size, size_t alignment);

static handler_t handler_now(void) {
  return _ZSt15get_new_handlerv ? _ZSt15get_new_handlerv() : NULL;
}

// What the operator was asked for, and by whom.
typedef struct {
  size_t alignment, size;
  const void *tag; // of the nothrow forms
  const void *caller;
} request_t;

// The operator of the C++ library that the caller's object has loaded, if it has; for the
// program itself, of any that all can see. One that has no new-handler beside it is some
// other allocator's.
static HAK_COLD uintptr_t loaded_operator(const char *name, const void *caller) {
  Dl_info info;
  if (!dladdr || !dlopen || !dlsym || !dlclose || !dladdr(caller, &info)) return 0;
  void *handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void *scope = handle ? handle : RTLD_NEXT;
  uintptr_t found = (uintptr_t)dlsym(scope, name);
  uintptr_t handler = (uintptr_t)dlsym(scope, "_ZSt15get_new_handlerv");
  if (handle) dlclose(handle); // the caller is running: it stays
  return hak_api_same_object(found, handler) ? found : 0;
}

// Its memory is ours: it calls malloc.
static HAK_COLD void *ask_loaded(const request_t *r) {
  bool aligned = r->alignment > 1;
  uintptr_t f = loaded_operator(aligned ? "_ZnwmSt11align_val_t" : "_Znwm", r->caller);
  if (!f) return NULL;
  return aligned ? ((void *(*)(size_t, size_t))f)(r->size, r->alignment)
                 : ((void *(*)(size_t))f)(r->size);
}

static HAK_COLD void *ask_loaded_nothrow(const request_t *r) {
  bool aligned = r->alignment > 1;
  uintptr_t f = loaded_operator(
      aligned ? "_ZnwmSt11align_val_tRKSt9nothrow_t" : "_ZnwmRKSt9nothrow_t", r->caller);
  if (!f) return NULL;
  return aligned ? ((void *(*)(size_t, size_t, const void *))f)(r->size, r->alignment, r->tag)
                 : ((void *(*)(size_t, const void *))f)(r->size, r->tag);
}

// Asks the new-handler for memory until there is some; without one NULL.
static void *retry(size_t alignment, size_t size) {
  for (;;) {
    void *p = hak_front_alloc_aligned(alignment, size, NULL);
    if (p) return p;
    handler_t handler = handler_now();
    if (!handler) return NULL;
    handler();
  }
}

// The same for nothrow: NULL, too, when the handler throws.
static void *retry_nothrow(size_t alignment, size_t size, const void *tag, const void *caller) {
  for (;;) {
    void *p = hak_front_alloc_aligned(alignment, size, NULL);
    if (p) return p;
    if (!_ZSt15get_new_handlerv) {
      p = ask_loaded_nothrow(&(request_t){alignment, size, tag, caller});
      return p ? p : hak_api_no_memory();
    }
    handler_t handler = handler_now();
    if (!handler || !hak_cxx_call_handler(handler)) return hak_api_no_memory();
  }
}

static HAK_COLD void *no_memory(size_t alignment, size_t size, const void *caller) {
  errno = ENOMEM;
  if (_ZSt17__throw_bad_allocv) _ZSt17__throw_bad_allocv();
  void *p = ask_loaded(&(request_t){alignment, size, NULL, caller});
  if (p) return p; // its new-handler has found some
  hak_message("out of memory in operator new(%u), and no C++ library to throw bad_alloc",
              (uint64_t)size);
  hak_os_abort();
}

HAK_NOINLINE static void *new_slow(size_t size, const void *caller) {
  void *p = retry(1, size);
  return HAK_LIKELY(p != NULL) ? p : no_memory(1, size, caller);
}

HAK_NOINLINE static void *new_other(size_t size, const void *caller) {
  void *p = hak_front_hit_l2(size);
  return HAK_LIKELY(p != NULL) ? p : new_slow(size, caller);
}

HAK_EXPORT HAK_HOT void *_Znwm(size_t size) {
  void *p = hak_front_hit(size);
  return HAK_LIKELY(p != NULL) ? p : new_other(size, __builtin_return_address(0));
}

HAK_EXPORT void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag) {
  void *p = hak_front_hit(size);
  return p ? p : retry_nothrow(1, size, tag, __builtin_return_address(0));
}

HAK_EXPORT void *_ZnwmSt11align_val_t(size_t size, size_t alignment) {
  void *p = retry(alignment, size);
  return p ? p : no_memory(alignment, size, __builtin_return_address(0));
}

HAK_EXPORT void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment,
                                                    const void *tag) {
  return retry_nothrow(alignment, size, tag, __builtin_return_address(0));
}

#define HAK_DELETE(name, ...) \
  void name(void *p, ##__VA_ARGS__); \
  HAK_EXPORT HAK_HOT void name(void *p, ##__VA_ARGS__) { hak_front_free(p, "operator delete"); }
typedef size_t align_t;
typedef const void *tag_t;
HAK_DELETE(_ZdlPv)
HAK_DELETE(_ZdlPvRKSt9nothrow_t, HAK_UNUSED tag_t t)
HAK_DELETE(_ZdlPvSt11align_val_t, HAK_UNUSED align_t a)
HAK_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, HAK_UNUSED align_t a, HAK_UNUSED tag_t t)

HAK_NOINLINE static void delete_other(void *p, size_t size) {
  if (!hak_front_free_sized_other(p, size, "operator delete"))
    hak_api_free_sized("operator delete", p, 1, size);
}

HAK_EXPORT HAK_HOT void _ZdlPvm(void *p, size_t size) {
  if (HAK_UNLIKELY(!hak_front_free_sized(p, size, "operator delete"))) delete_other(p, size);
}

HAK_EXPORT void _ZdlPvmSt11align_val_t(void *p, size_t size, size_t alignment) {
  if (!hak_front_free_aligned_sized(p, alignment, size, "operator delete"))
    hak_api_free_sized("operator delete", p, alignment, size);
}

// The array forms.
HAK_ALIAS(_Znwm) void *_Znam(size_t size);
HAK_ALIAS(_ZnwmRKSt9nothrow_t) void *_ZnamRKSt9nothrow_t(size_t size, const void *tag);
HAK_ALIAS(_ZnwmSt11align_val_t) void *_ZnamSt11align_val_t(size_t size, size_t alignment);
HAK_ALIAS(_ZnwmSt11align_val_tRKSt9nothrow_t)
void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *tag);
HAK_ALIAS(_ZdlPv) void _ZdaPv(void *p);
HAK_ALIAS(_ZdlPvRKSt9nothrow_t) void _ZdaPvRKSt9nothrow_t(void *p, tag_t tag);
HAK_ALIAS(_ZdlPvSt11align_val_t) void _ZdaPvSt11align_val_t(void *p, align_t alignment);
HAK_ALIAS(_ZdlPvSt11align_val_tRKSt9nothrow_t)
void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *p, align_t alignment, tag_t tag);
HAK_ALIAS(_ZdlPvm) void _ZdaPvm(void *p, size_t size);
HAK_ALIAS(_ZdlPvmSt11align_val_t) void _ZdaPvmSt11align_val_t(void *p, size_t size, size_t align);
#endif
