// cxx.c: the replaceable C++ allocation functions ([new.delete] of C++20), by
// their Itanium ABI names, so that C++ programs need no C++ runtime of ours.
//
// The new-handler and the exception come from the program's own C++ library
// through weak references; this file is compiled with unwind tables (no landing
// pads), so that an exception passes through it. Where one must not (nothrow),
// new_handler.cpp catches it.

#include "api/api.h"

#include "core/print.h"
#include "os/os.h"
#include "thread/front.h"

HAK_API_PART(cxx);

#if !HAK_NO_OVERRIDE
typedef void (*handler_t)(void);
extern handler_t _ZSt15get_new_handlerv(void) __attribute__((weak)); // std::get_new_handler
extern void _ZSt17__throw_bad_allocv(void) __attribute__((weak));    // libstdc++

bool hak_cxx_call_handler(handler_t handler); // new_handler.cpp

void *_Znwm(size_t size);
void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag);
void *_ZnwmSt11align_val_t(size_t size, size_t alignment);
void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *tag);
void _ZdlPvm(void *p, size_t size);
void _ZdlPvmSt11align_val_t(void *p, size_t size, size_t alignment);

static handler_t handler_now(void) {
  return _ZSt15get_new_handlerv ? _ZSt15get_new_handlerv() : NULL;
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
static void *retry_nothrow(size_t alignment, size_t size) {
  for (;;) {
    void *p = hak_front_alloc_aligned(alignment, size, NULL);
    if (p) return p;
    handler_t handler = handler_now();
    if (!handler || !hak_cxx_call_handler(handler)) return hak_api_no_memory();
  }
}

static HAK_COLD void no_memory(size_t size) {
  errno = ENOMEM;
  if (_ZSt17__throw_bad_allocv) _ZSt17__throw_bad_allocv();
  hak_message("out of memory in operator new(%u), and no C++ library to throw bad_alloc",
              (uint64_t)size);
  hak_os_abort();
}

HAK_NOINLINE static void *new_slow(size_t size) {
  void *p = retry(1, size);
  if (HAK_UNLIKELY(!p)) no_memory(size);
  return p;
}

HAK_NOINLINE static void *new_other(size_t size) {
  void *p = hak_front_hit_l2(size);
  return HAK_LIKELY(p != NULL) ? p : new_slow(size);
}

HAK_EXPORT HAK_HOT void *_Znwm(size_t size) {
  void *p = hak_front_hit(size);
  return HAK_LIKELY(p != NULL) ? p : new_other(size);
}

HAK_EXPORT void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag) {
  (void)tag;
  void *p = hak_front_hit(size);
  return p ? p : retry_nothrow(1, size);
}

HAK_EXPORT void *_ZnwmSt11align_val_t(size_t size, size_t alignment) {
  void *p = retry(alignment, size);
  if (!p) no_memory(size);
  return p;
}

HAK_EXPORT void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment,
                                                    const void *tag) {
  (void)tag;
  return retry_nothrow(alignment, size);
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
