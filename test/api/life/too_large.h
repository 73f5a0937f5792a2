// too_large.h: calls the forms of operator new with a size that cannot exist.

#ifndef TEST_API_LIFE_TOO_LARGE_H
#define TEST_API_LIFE_TOO_LARGE_H

#include <cstddef>
#include <new>

namespace {

const std::size_t kTooLarge = std::size_t{1} << 60;
const std::align_val_t kLine{64};

int calls; // of the new-handler, since the last allocation began

template <typename F> bool Throws(F allocate) {
  calls = 0;
  try {
    void *volatile p = allocate(kTooLarge);
    (void)p;
  } catch (const std::bad_alloc &) {
    return true;
  }
  return false;
}

template <typename F> bool Null(F allocate) {
  calls = 0;
  void *volatile p = allocate(kTooLarge);
  return p == nullptr;
}

} // namespace

#endif
