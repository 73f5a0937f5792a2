// cxx_plugin.cpp: C++ code, loaded by dlopen into a program without any, runs out of memory.

#include "too_large.h"

#include <string>
#include <sys/resource.h>

namespace {

void ThrowAtTheThird() {
  if (++calls == 3) throw std::bad_alloc();
}

bool EveryFormFails(int expected) {
  bool ok = Throws([](std::size_t n) { return ::operator new(n); }) && calls == expected;
  ok = ok && Throws([](std::size_t n) { return ::operator new[](n); }) && calls == expected;
  ok = ok && Throws([](std::size_t n) { return ::operator new(n, kLine); }) && calls == expected;
  ok = ok && Throws([](std::size_t n) { return ::operator new[](n, kLine); }) && calls == expected;
  ok = ok && Null([](std::size_t n) { return ::operator new(n, std::nothrow); }) &&
       calls == expected;
  ok = ok && Null([](std::size_t n) { return ::operator new[](n, std::nothrow); }) &&
       calls == expected;
  ok = ok && Null([](std::size_t n) { return ::operator new(n, kLine, std::nothrow); }) &&
       calls == expected;
  ok = ok && Null([](std::size_t n) { return ::operator new[](n, kLine, std::nothrow); }) &&
       calls == expected;
  return ok;
}

} // namespace

extern "C" bool throws_bad_alloc() {
  return EveryFormFails(0) && Throws([](std::size_t n) { // from within the C++ library
           return new std::string(std::string().assign(n, 'x'));
         });
}

// Until there is none of any size, so that finding out whom to ask must not take memory either.
extern "C" bool throws_at_the_end() {
  rlimit all, none;
  if (getrlimit(RLIMIT_DATA, &all) != 0) return false;
  none = all;
  none.rlim_cur = 4096;
  bool ok = true;
  if (setrlimit(RLIMIT_DATA, &none) != 0) return false;
  for (std::size_t size : {100000, 5000, 1000, 300, 100, 64, 48, 32, 16}) {
    bool thrown = false;
    while (!thrown) {
      try {
        void *volatile p = ::operator new(size);
        (void)p;
      } catch (const std::bad_alloc &) {
        thrown = true;
      }
    }
    ok = ok && ::operator new(size, std::nothrow) == nullptr;
  }
  return setrlimit(RLIMIT_DATA, &all) == 0 && ok;
}

extern "C" bool asks_the_handler() {
  std::set_new_handler(ThrowAtTheThird);
  bool ok = EveryFormFails(3);
  std::set_new_handler(nullptr);
  return ok;
}
