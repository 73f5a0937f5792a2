// compiler.h: the differences between compilers and build types.

#ifndef HAK_BASE_COMPILER_H
#define HAK_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_NOINLINE __attribute__((noinline))
#define HAK_COLD __attribute__((cold, noinline))
#define HAK_HOT __attribute__((hot, aligned(64)))
#define HAK_EXPORT __attribute__((visibility("default"), used))
#define HAK_LIKELY(x) __builtin_expect(!!(x), 1)
#define HAK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HAK_UNUSED __attribute__((unused))
#define HAK_WEAK __attribute__((weak))
// For declarations of the library's own variables: they are addressed directly, not through
// the GOT (-fvisibility=hidden affects definitions only).
#define HAK_INTERNAL __attribute__((visibility("hidden")))

// Initial-exec: one load from the GOT and no call to __tls_get_addr. The variables are small
// enough for the surplus TLS space that dlopen uses.
#define HAK_TLS __thread __attribute__((tls_model("initial-exec")))

#if defined(__SANITIZE_THREAD__)
#define HAK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAK_TSAN 1
#endif
#endif
#ifndef HAK_TSAN
#define HAK_TSAN 0
#endif

// HAK_CHECKS: 0 release, 1 secure (checks an attacker may trip), 2 debug
// (invariants of the allocator itself as well).
#ifndef HAK_CHECKS
#define HAK_CHECKS 0
#endif

// HAK_SECURE: blocks are sealed and held back when freed (superslab/seal.h). Not in the debug
// build, which checks the allocator as it is released.
#define HAK_SECURE (HAK_CHECKS == 1)

// HAK_TESTING: system calls can be made to fail (see os/kernel.h).
#ifndef HAK_TESTING
#define HAK_TESTING 0
#endif

// HAK_STATIC: libhakmem.a.
#ifndef HAK_STATIC
#define HAK_STATIC 0
#endif

#if HAK_CHECKS >= 2
#define HAK_ASSERT(x) \
  do { \
    if (HAK_UNLIKELY(!(x))) hak_assert_failed(#x, __FILE__, __LINE__); \
  } while (0)
_Noreturn void hak_assert_failed(const char *what, const char *file, int line);
#else
#define HAK_ASSERT(x) ((void)0)
#endif

// Before a loop: it is unrolled, up to 16 times.
#if defined(__clang__)
#define HAK_UNROLL _Pragma("unroll")
#else
#define HAK_UNROLL _Pragma("GCC unroll 16")
#endif

// The value is computed once and kept in a register, whatever the compiler knows about it.
#define HAK_IN_REGISTER(variable) __asm__("" : "+r"(variable))

#endif
