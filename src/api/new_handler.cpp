// new_handler.cpp: calls a new-handler, or the program's own operator new, that may throw
// on behalf of a function that must not ([new.delete.single]: the nothrow forms return null
// then). The only C++ of the library; what it needs of a C++ runtime is weak, so that the
// library depends on none: a program without one has no handler that could throw.

__asm__(".weak __gxx_personality_v0\n"
        ".weak __cxa_begin_catch\n"
        ".weak __cxa_end_catch\n"
        ".weak _Unwind_Resume\n"
        ".weak _ZSt9terminatev\n"); // clang's way out of a noexcept function

#if HAK_STATIC
// Weak references take nothing out of an archive. These names do, and where there is no C++
// library they are not missed, as no relocation refers to them. In the same archive member
// there is __throw_bad_alloc.
__asm__(".globl _ZSt16__throw_bad_castv\n" // libstdc++
        ".globl _ZSt7nothrow\n");          // libc++; in libstdc++ get_new_handler is there
#endif

using size_t = decltype(sizeof 0);

// False if it threw.
extern "C" bool hak_cxx_call_handler(void (*handler)()) noexcept {
  try {
    handler();
    return true;
  } catch (...) {
    return false;
  }
}

// NULL if it threw.
extern "C" void *hak_cxx_try(void *(*allocate)(size_t), size_t size) noexcept {
  try {
    return allocate(size);
  } catch (...) {
    return nullptr;
  }
}

extern "C" void *hak_cxx_try_aligned(void *(*allocate)(size_t, size_t), size_t size,
                                     size_t alignment) noexcept {
  try {
    return allocate(size, alignment);
  } catch (...) {
    return nullptr;
  }
}
