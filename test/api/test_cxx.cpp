// test_cxx.cpp: every form of operator new and delete, the new-handler, the
// containers that use them, and thread_local destructors.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

const std::size_t kSizes[] = {0,    1,    8,     16,    17,    100,   1000,    1024,
                              1025, 5000, 57344, 57345, 65537, 500000, 1 << 20, 3 << 20};

bool OnHakmem() { return dlsym(RTLD_DEFAULT, "hak_version") != nullptr; }

// Hides a value: the compiler may remove a new and delete that it sees through.
template <typename T> T Hide(T value) {
  volatile T hidden = value;
  return hidden;
}

void Use(void *p, std::size_t size, std::size_t alignment = 0) {
  ASSERT_NE(p, nullptr);
  if (alignment == 0) alignment = size >= 16 ? 16 : 8;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % alignment, 0u);
  EXPECT_GE(malloc_usable_size(p), size);
  std::memset(p, 0x5a, malloc_usable_size(p));
}

TEST(New, PlainAndArrayWithPlainAndSizedDelete) {
  for (std::size_t size : kSizes) {
    void *p = ::operator new(size);
    Use(p, size);
    ::operator delete(p);
    p = ::operator new(size);
    Use(p, size);
    ::operator delete(p, size);
    p = ::operator new[](size);
    Use(p, size);
    ::operator delete[](p);
    p = ::operator new[](size);
    Use(p, size);
    ::operator delete[](p, size);
  }
}

TEST(New, Nothrow) {
  for (std::size_t size : kSizes) {
    void *p = ::operator new(size, std::nothrow);
    Use(p, size);
    ::operator delete(p, std::nothrow);
    p = ::operator new[](size, std::nothrow);
    Use(p, size);
    ::operator delete[](p, std::nothrow);
  }
}

TEST(New, AlignedInAllForms) {
  for (std::size_t alignment = 1; alignment <= std::size_t{1} << 22; alignment *= 2) {
    std::align_val_t a{alignment};
    for (std::size_t size : kSizes) {
      void *p = ::operator new(size, a);
      Use(p, size, alignment);
      ::operator delete(p, a);
      p = ::operator new(size, a);
      Use(p, size, alignment);
      ::operator delete(p, size, a);
      p = ::operator new(size, a, std::nothrow);
      Use(p, size, alignment);
      ::operator delete(p, a, std::nothrow);
      p = ::operator new[](size, a);
      Use(p, size, alignment);
      ::operator delete[](p, a);
      p = ::operator new[](size, a);
      Use(p, size, alignment);
      ::operator delete[](p, size, a);
      p = ::operator new[](size, a, std::nothrow);
      Use(p, size, alignment);
      ::operator delete[](p, a, std::nothrow);
    }
  }
}

TEST(New, AlignedTypes) {
  struct alignas(256) Line {
    char bytes[256];
  };
  for (int i = 1; i < 100; i++) {
    auto one = std::make_unique<Line>();
    auto many = std::unique_ptr<Line[]>(new Line[static_cast<std::size_t>(Hide(i))]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one.get()) % 256, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(many.get()) % 256, 0u);
  }
}

TEST(New, ZeroSizedArraysDiffer) {
  char *a = new char[Hide<std::size_t>(0)], *b = new char[Hide<std::size_t>(0)];
  EXPECT_NE(a, nullptr);
  EXPECT_NE(a, b);
  delete[] a;
  delete[] b;
}

TEST(Delete, NullIsAllowedInEveryForm) {
  auto null = [] { return Hide<void *>(nullptr); };
  std::align_val_t a{64};
  errno = 12345;
  ::operator delete(null());
  ::operator delete[](null());
  ::operator delete(null(), std::size_t{8});
  ::operator delete[](null(), std::size_t{8});
  ::operator delete(null(), std::nothrow);
  ::operator delete[](null(), std::nothrow);
  ::operator delete(null(), a);
  ::operator delete[](null(), a);
  ::operator delete(null(), std::size_t{8}, a);
  ::operator delete[](null(), std::size_t{8}, a);
  ::operator delete(null(), a, std::nothrow);
  ::operator delete[](null(), a, std::nothrow);
  EXPECT_EQ(errno, 12345);
}

TEST(Delete, MixesWithFree) { // C++ does not promise this, but programs do it
  std::free(::operator new(100));
  ::operator delete(std::malloc(100));
}

// ---------------------------------------------------------------------------
// No memory.

const std::size_t kTooLarge[] = {PTRDIFF_MAX, static_cast<std::size_t>(PTRDIFF_MAX) + 1, SIZE_MAX,
                                 SIZE_MAX - 15, SIZE_MAX - 4096};

// Some versions of libstdc++ round the size up past SIZE_MAX.
bool AlignedFailsToo(std::size_t size) { return OnHakmem() || size < SIZE_MAX - 65536; }

TEST(NoMemory, ThrowsBadAlloc) {
  for (std::size_t size : kTooLarge) {
    size = Hide(size);
    EXPECT_THROW((void)::operator new(size), std::bad_alloc);
    EXPECT_THROW((void)::operator new[](size), std::bad_alloc);
    if (!AlignedFailsToo(size)) continue;
    EXPECT_THROW((void)::operator new(size, std::align_val_t{64}), std::bad_alloc);
    EXPECT_THROW((void)::operator new[](size, std::align_val_t{4096}), std::bad_alloc);
  }
}

// Undefined by the standard; libstdc++ does the same.
TEST(NoMemory, AlignmentsThatAreNone) {
  if (!OnHakmem()) return;
  for (std::size_t alignment : {std::size_t{24}, std::size_t{3} << 20, SIZE_MAX}) {
    std::align_val_t none{Hide(alignment)};
    EXPECT_THROW((void)::operator new(100, none), std::bad_alloc);
    EXPECT_THROW((void)::operator new[](100, none), std::bad_alloc);
    EXPECT_EQ(::operator new(100, none, std::nothrow), nullptr);
    EXPECT_EQ(::operator new[](100, none, std::nothrow), nullptr);
  }
}

TEST(NoMemory, NothrowGivesNull) {
  for (std::size_t size : kTooLarge) {
    size = Hide(size);
    EXPECT_EQ(::operator new(size, std::nothrow), nullptr);
    EXPECT_EQ(::operator new[](size, std::nothrow), nullptr);
    if (!AlignedFailsToo(size)) continue;
    EXPECT_EQ(::operator new(size, std::align_val_t{64}, std::nothrow), nullptr);
    EXPECT_EQ(::operator new[](size, std::align_val_t{64}, std::nothrow), nullptr);
  }
}

int handler_calls;

// Removes itself at the third call, so new must have asked again after the first two.
void CountingHandler() {
  if (++handler_calls == 3) std::set_new_handler(nullptr);
}

void CallHandlerThrice(void *(*allocate)(), bool throws) {
  handler_calls = 0;
  std::set_new_handler(CountingHandler);
  if (throws)
    EXPECT_THROW((void)allocate(), std::bad_alloc);
  else
    EXPECT_EQ(allocate(), nullptr);
  EXPECT_EQ(handler_calls, 3);
  std::set_new_handler(nullptr);
}

TEST(NoMemory, HandlerIsAskedUntilItGivesUp) {
  CallHandlerThrice([] { return ::operator new(Hide(SIZE_MAX - 64)); }, true);
  CallHandlerThrice([] { return ::operator new[](Hide(SIZE_MAX - 64)); }, true);
  CallHandlerThrice([] { return ::operator new(Hide(SIZE_MAX / 2 + 64), std::align_val_t{64}); }, true);
  CallHandlerThrice([] { return ::operator new(Hide(SIZE_MAX - 64), std::nothrow); }, false);
  CallHandlerThrice([] { return ::operator new[](Hide(SIZE_MAX - 64), std::nothrow); }, false);
  CallHandlerThrice(
      [] { return ::operator new(Hide(SIZE_MAX / 2 + 64), std::align_val_t{64}, std::nothrow); },
      false);
}

TEST(NoMemory, HandlerMayThrowItsOwn) {
  struct Other : std::bad_alloc {};
  std::set_new_handler([] { throw Other(); });
  EXPECT_THROW((void)::operator new(Hide(SIZE_MAX - 64)), Other);
  EXPECT_THROW((void)::operator new[](Hide(SIZE_MAX / 2 + 64), std::align_val_t{64}), Other);
  std::set_new_handler(nullptr);
}

// [new.delete.single]: such a throw must give a null pointer, not call terminate. The calls
// run in a child process, so that terminate fails this test alone.
bool NullInsteadOfThrow(void *(*allocate)()) {
  std::set_new_handler([] { throw std::bad_alloc(); });
  bool null = allocate() == nullptr;
  std::set_new_handler(nullptr);
  return null;
}

TEST(NoMemory, HandlerThrowingIntoNothrow) {
  void *(*const forms[])() = {
      [] { return ::operator new(Hide(SIZE_MAX - 64), std::nothrow); },
      [] { return ::operator new[](Hide(SIZE_MAX - 64), std::nothrow); },
      [] { return ::operator new(Hide(SIZE_MAX / 2 + 64), std::align_val_t{64}, std::nothrow); },
      [] { return ::operator new[](Hide(SIZE_MAX / 2 + 64), std::align_val_t{64}, std::nothrow); }};
  for (auto form : forms)
    EXPECT_EXIT(_exit(NullInsteadOfThrow(form) ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST(NoMemory, VectorSurvives) {
  std::vector<int> v(1000, 7);
  EXPECT_THROW(v.reserve(v.max_size()), std::bad_alloc);
  EXPECT_EQ(v.size(), 1000u);
  EXPECT_EQ(v.back(), 7);
  EXPECT_THROW(std::string(Hide<std::size_t>(PTRDIFF_MAX / 2), 'x'), std::bad_alloc);
}

// ---------------------------------------------------------------------------

TEST(Containers, BigVectorGrows) {
  std::vector<std::uint64_t> v;
  for (std::uint64_t i = 0; i < 5000000; i++) v.push_back(i);
  for (std::uint64_t i = 0; i < v.size(); i++) ASSERT_EQ(v[i], i);
}

TEST(Containers, MapsOfStrings) {
  std::map<std::string, std::string> tree;
  std::unordered_map<int, std::string> table;
  for (int i = 0; i < 100000; i++) {
    std::string text = std::to_string(i * 7919);
    tree[text] = text + text;
    table[i] = std::string(static_cast<std::size_t>(i % 300), 'x');
  }
  for (int i = 0; i < 100000; i += 2) {
    tree.erase(std::to_string(i * 7919));
    table.erase(i);
  }
  for (int i = 1; i < 100000; i += 2) {
    std::string text = std::to_string(i * 7919);
    ASSERT_EQ(tree.at(text), text + text);
    ASSERT_EQ(table.at(i).size(), static_cast<std::size_t>(i % 300));
  }
}

TEST(Exceptions, AreAllocatedAndFreed) {
  for (int i = 0; i < 20000; i++) {
    try {
      throw std::runtime_error(std::string(200, 'x') + std::to_string(i));
    } catch (const std::exception &e) {
      ASSERT_EQ(std::strlen(e.what()), 200 + std::to_string(i).size());
    }
  }
}

// ---------------------------------------------------------------------------

struct Late { // allocates and frees while its thread ends
  std::vector<std::string> strings;
  int round = 0;
  ~Late();
};
thread_local Late late;
thread_local std::unique_ptr<std::string> later;
std::atomic<int> destroyed;

Late::~Late() {
  std::vector<std::string> copy = strings;
  for (auto &s : copy) s += "and more than fits where it is";
  if (copy.size() != 50 || copy[49].compare(0, 3, "xxx") != 0) std::abort();
  later = std::make_unique<std::string>(5000, 'y');
  destroyed++;
}

TEST(ThreadLocal, DestructorsAllocateAndFree) {
  for (int i = 0; i < 500; i++) {
    std::thread([] {
      for (std::size_t n = 0; n < 50; n++) late.strings.emplace_back(n * 40 + 3, 'x');
    }).join();
  }
  EXPECT_EQ(destroyed, 500);
}

TEST(Symbols, NewAndDeleteAreOurs) {
  if (!OnHakmem()) GTEST_SKIP() << "not on HAKMEM";
  Dl_info ours, info;
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "hak_version"), &ours), 0);
  for (const char *name : {"_Znwm", "_ZdlPv", "_ZdlPvm", "_Znam", "_ZdaPv",
                           "_ZnwmSt11align_val_t", "_ZdlPvmSt11align_val_t"}) {
    ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, name), &info), 0) << name;
    EXPECT_EQ(info.dli_fbase, ours.dli_fbase) << name << " is in " << info.dli_fname;
  }
}

} // namespace

int main(int argc, char **argv) {
  if (std::getenv("EXPECT_HAKMEM") && !OnHakmem()) {
    std::fprintf(stderr, "HAKMEM is not in this process\n");
    return 2;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
