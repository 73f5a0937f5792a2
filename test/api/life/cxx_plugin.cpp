// cxx_plugin.cpp: C++ code, loaded by dlopen into a program without any, runs out of memory.

#include "too_large.h"

#include <string>

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

extern "C" bool asks_the_handler() {
  std::set_new_handler(ThrowAtTheThird);
  bool ok = EveryFormFails(3);
  std::set_new_handler(nullptr);
  return ok;
}
