// new_static.cpp: operator new runs out of memory in a statically linked program, which uses
// no part of the C++ library that would link in the code that throws bad_alloc.

#include "too_large.h"

#include <cstdio>

namespace {

// Removes itself at the third call.
void CountingHandler() {
  if (++calls == 3) std::set_new_handler(nullptr);
}

void ThrowingHandler() {
  calls++;
  throw 1;
}

bool failed;

void Check(const char *what, bool holds) {
  if (holds) return;
  std::printf("%s: does not hold, %d calls of the handler\n", what, calls);
  failed = true;
}

template <typename F> void CheckThrows(const char *what, F allocate) {
  Check(what, Throws(allocate));
  std::set_new_handler(CountingHandler);
  Check(what, Throws(allocate) && calls == 3);
}

template <typename F> void CheckNull(const char *what, F allocate) {
  Check(what, Null(allocate));
  std::set_new_handler(CountingHandler);
  Check(what, Null(allocate) && calls == 3);
  std::set_new_handler(ThrowingHandler);
  Check(what, Null(allocate) && calls == 1);
  std::set_new_handler(nullptr);
}

} // namespace

int main() {
  using std::nothrow;
  CheckThrows("new", [](std::size_t n) { return ::operator new(n); });
  CheckThrows("new[]", [](std::size_t n) { return ::operator new[](n); });
  CheckThrows("aligned", [](std::size_t n) { return ::operator new(n, kLine); });
  CheckThrows("aligned []", [](std::size_t n) { return ::operator new[](n, kLine); });
  CheckNull("nothrow", [](std::size_t n) { return ::operator new(n, nothrow); });
  CheckNull("nothrow []", [](std::size_t n) { return ::operator new[](n, nothrow); });
  CheckNull("nothrow aligned", [](std::size_t n) { return ::operator new(n, kLine, nothrow); });
  CheckNull("nothrow aligned []",
            [](std::size_t n) { return ::operator new[](n, kLine, nothrow); });
  ::operator delete(::operator new(1 << 20));
  return failed;
}
