// new_handler.cpp: calls a new-handler that may throw on behalf of a function that
// must not ([new.delete.single]: the nothrow forms return null then). The only C++
// of the library; what it needs of a C++ runtime is weak, so that the library
// depends on none: a program without one has no handler that could throw.

__asm__(".weak __gxx_personality_v0\n"
        ".weak __cxa_begin_catch\n"
        ".weak __cxa_end_catch\n"
        ".weak _Unwind_Resume\n");

// False if it threw.
extern "C" bool hak_cxx_call_handler(void (*handler)()) noexcept {
  try {
    handler();
    return true;
  } catch (...) {
    return false;
  }
}
