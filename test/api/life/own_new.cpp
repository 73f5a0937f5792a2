// own_new.cpp: a program that replaces the four forms of operator new and delete on which the
// other forms are based ([new.delete.single], [new.delete.array]), with a header that no other
// heap's blocks have.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

const std::size_t kHeader = 64;
const std::align_val_t kLine{64};
int news, deletes;

void *Begin(void *p) {
  if (!p) throw std::bad_alloc();
  std::memset(p, 'H', kHeader);
  news++;
  return static_cast<char *>(p) + kHeader;
}

void End(void *p) {
  char *begin = static_cast<char *>(p) - kHeader;
  for (std::size_t i = 0; i < kHeader; i++)
    if (begin[i] != 'H') std::abort();
  deletes++;
  std::free(begin);
}

bool failed;

void Check(const char *what, void *volatile p, void (*release)(void *)) {
  int before = deletes;
  bool is_new = p && news == 1;
  if (p) release(p);
  if (is_new && deletes == before + 1) {
    news = 0;
    return;
  }
  std::printf("%s: %d calls of new, %d of delete\n", what, news, deletes - before);
  failed = true;
}

template <typename F> void CheckNull(const char *what, F allocate) {
  void *volatile p = allocate(SIZE_MAX / 2);
  if (!p && news == 0) return;
  std::printf("%s: not null\n", what);
  failed = true;
}

} // namespace

void *operator new(std::size_t size) { return Begin(std::malloc(size + kHeader)); }
void *operator new(std::size_t size, std::align_val_t alignment) {
  std::size_t a = static_cast<std::size_t>(alignment);
  return Begin(size > SIZE_MAX / 4 ? nullptr
                                   : std::aligned_alloc(a, (size + kHeader + a - 1) & -a));
}
void operator delete(void *p) noexcept {
  if (p) End(p);
}
void operator delete(void *p, std::align_val_t) noexcept {
  if (p) End(p);
}

#define RELEASE(...) [](void *p) { ::operator __VA_ARGS__; }

int main() {
  using std::nothrow;
  Check("delete(size)", ::operator new(100), RELEASE(delete (p, std::size_t{100})));
  Check("delete(nothrow)", ::operator new(100), RELEASE(delete (p, nothrow)));
  Check("new(nothrow)", ::operator new(100, nothrow), RELEASE(delete (p)));
  Check("new[]", ::operator new[](100), RELEASE(delete[] (p)));
  Check("new[](nothrow)", ::operator new[](100, nothrow), RELEASE(delete[] (p, nothrow)));
  Check("delete[](size)", ::operator new[](5000), RELEASE(delete[] (p, std::size_t{5000})));
  Check("aligned", ::operator new(100, kLine), RELEASE(delete (p, std::size_t{100}, kLine)));
  Check("aligned nothrow", ::operator new(100, kLine, nothrow),
        RELEASE(delete (p, kLine, nothrow)));
  Check("aligned []", ::operator new[](100, kLine), RELEASE(delete[] (p, kLine)));
  Check("aligned [] nothrow", ::operator new[](100, kLine, nothrow),
        RELEASE(delete[] (p, kLine, nothrow)));
  Check("aligned [] size", ::operator new[](100, kLine),
        RELEASE(delete[] (p, std::size_t{100}, kLine)));
  CheckNull("nothrow", [](std::size_t n) { return ::operator new(n, nothrow); });
  CheckNull("nothrow []", [](std::size_t n) { return ::operator new[](n, nothrow); });
  CheckNull("nothrow aligned", [](std::size_t n) { return ::operator new(n, kLine, nothrow); });
  CheckNull("nothrow aligned []",
            [](std::size_t n) { return ::operator new[](n, kLine, nothrow); });
  ::operator delete[](static_cast<void *>(nullptr), std::size_t{8});
  return failed;
}
