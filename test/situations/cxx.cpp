// cxx.cpp: what the C++ standard and its library ask of operator new and delete.

#include "situations.h"

#include <any>
#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

namespace {

template <typename T> bool Aligned(T *p, size_t alignment) {
  return reinterpret_cast<uintptr_t>(p) % alignment == 0;
}

// Every form of new with its delete, at one size.
void EveryForm(size_t size, size_t) {
  for (size_t i = 0; i < 50; i++) {
    void *p[] = {::operator new(size), ::operator new[](size), ::operator new(size, std::nothrow),
                 ::operator new[](size, std::nothrow)};
    for (void *q : p) {
      CHECK(q && Aligned(q, 16) && malloc_usable_size(q) >= size);
      memset(q, static_cast<int>(i), size);
    }
    ::operator delete(p[0], size);
    ::operator delete[](p[1], size);
    ::operator delete(p[2], std::nothrow);
    ::operator delete[](p[3]);
  }
}

void EveryAlignedForm(size_t alignment, size_t) {
  auto a = std::align_val_t{alignment};
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{100}, size_t{5000}, size_t{300000}, size_t{3000000}}) {
    void *p[] = {::operator new(size, a), ::operator new[](size, a),
                 ::operator new(size, a, std::nothrow), ::operator new[](size, a, std::nothrow)};
    for (void *q : p) CHECK(q && Aligned(q, alignment)), memset(q, 1, size);
    ::operator delete(p[0], size, a);
    ::operator delete[](p[1], size, a);
    ::operator delete(p[2], a, std::nothrow);
    ::operator delete[](p[3], a);
  }
}

void OfNothing(size_t, size_t) {
  ::operator delete(nullptr);
  ::operator delete[](nullptr);
  ::operator delete(nullptr, size_t{8});
  ::operator delete(nullptr, std::align_val_t{64});
  void *p = ::operator new(0), *q = ::operator new(0);
  CHECK(p && q && p != q);
  ::operator delete(p), ::operator delete(q);
}

template <typename F> bool Throws(F f) {
  try {
    f();
  } catch (const std::bad_alloc &) {
    return true;
  }
  return false;
}

void TooMuch(size_t size, size_t) {
  size = hide_size(size);
  CHECK(Throws([=] { ::operator delete(::operator new(size)); }));
  CHECK(Throws([=] { ::operator delete[](::operator new[](size)); }));
  CHECK(Throws([=] { ::operator delete(::operator new(size, std::align_val_t{64})); }));
  CHECK(::operator new(size, std::nothrow) == nullptr);
  CHECK(::operator new[](size, std::nothrow) == nullptr);
  CHECK(::operator new(size, std::align_val_t{4096}, std::nothrow) == nullptr);
  CHECK(Throws([=] { std::vector<char> v(size / 2); }));
  CHECK(Throws(
      [=] { delete[] static_cast<uint64_t *>(hide(new uint64_t[hide_size(SIZE_MAX / 16)])); }));
  churn(1, 200);
}

// new_handler: called until it gives up; it may make room, replace itself or throw.
std::atomic<int> handled;
void GiveUpAtThree() {
  free(malloc(100));
  if (++handled == 3) std::set_new_handler(nullptr);
}
void NewHandler(size_t, size_t) {
  size_t size = hide_size(PTRDIFF_MAX - 100);
  std::set_new_handler(GiveUpAtThree);
  CHECK(Throws([=] { ::operator delete(::operator new(size)); }) && handled == 3);
  handled = 0;
  std::set_new_handler(GiveUpAtThree);
  CHECK(::operator new(size, std::nothrow) == nullptr);
  CHECK(handled == 3);
  handled = 0;
  std::set_new_handler(GiveUpAtThree);
  CHECK(::operator new(size, std::align_val_t{128}, std::nothrow) == nullptr);
  CHECK(handled == 3);
}

struct Ours : std::bad_alloc {};
void NewHandlerThrows(size_t, size_t) {
  std::set_new_handler([] { throw Ours(); });
  int caught = 0;
  for (int i = 0; i < 100; i++) {
    try {
      ::operator delete(::operator new(hide_size(PTRDIFF_MAX)));
    } catch (const Ours &) {
      caught++;
    }
    CHECK(::operator new(hide_size(PTRDIFF_MAX), std::nothrow) == nullptr);
  }
  CHECK(caught == 100);
  std::set_new_handler(nullptr);
}

// Under a limit: the handler frees a reserve, and the request succeeds.
void *reserve;
void FreeTheReserve() {
  free(reserve);
  reserve = nullptr;
  handled++;
  std::set_new_handler(nullptr);
}
void NewHandlerMakesRoom(size_t size, size_t) {
  CHECK(reserve = malloc(48 * MIB));
  std::set_new_handler(FreeTheReserve);
  std::list<void *> held; // its nodes come from new as well
  while (!handled) held.push_back(::operator new(size));
  CHECK(!reserve);
  for (void *p : held) ::operator delete(p);
}

// ---------------------------------------------------------------------------

void ExceptionsInThreads(size_t threads, size_t) {
  std::vector<std::thread> all;
  for (size_t t = 0; t < threads; t++)
    all.emplace_back([t] {
      for (int i = 0; i < 500; i++) {
        try {
          auto block = std::make_unique<char[]>(static_cast<size_t>(i) * 50 + t);
          std::string text(static_cast<size_t>(i), 'x');
          if (i % 3) throw std::runtime_error("long enough for the heap: " + text);
          ::operator delete(::operator new(hide_size(PTRDIFF_MAX)));
        } catch (const std::exception &e) {
          CHECK(e.what()[0]);
        }
      }
    });
  for (auto &t : all) t.join();
}

void ExceptionPassedBetweenThreads(size_t, size_t) {
  for (int i = 0; i < 100; i++) {
    auto f = std::async(std::launch::async, [i]() -> int {
      throw std::runtime_error(std::string(static_cast<size_t>(i), 'y'));
    });
    try {
      f.get();
      CHECK(!"thrown");
    } catch (const std::runtime_error &e) {
      CHECK(strlen(e.what()) == static_cast<size_t>(i));
    }
  }
}

// Destructors of thread_local objects that allocate and construct other such objects.
std::atomic<int> ended;
struct Inner {
  std::vector<std::string> words{100, std::string(50, 'w')};
  ~Inner() {
    words.emplace_back(2000, 'x');
    churn_some(1, 50);
    ended++;
  }
};
struct Outer {
  std::map<int, std::string> map;
  ~Outer() {
    thread_local Inner late; // constructed while the thread ends
    for (int i = 0; i < 100; i++) map[i] = std::string(static_cast<size_t>(i), 'z');
    late.words.emplace_back("more");
    ended++;
  }
};
thread_local Inner inner;
thread_local Outer outer;
void ThreadLocals(size_t threads, size_t) {
  size_t before = 0;
  for (size_t t = 0; t < threads; t++) {
    std::thread([] { inner.words.emplace_back("used"), outer.map[1] = "used"; }).join();
    if (t == threads / 4) before = exact_rss_kib();
  }
  CHECK(ended == static_cast<int>(3 * threads));
  CHECK(exact_rss_kib() < before + 2 * KIB);
}

// Namespace-scope objects: built before main, destroyed after it.
struct Global {
  std::unordered_map<int, std::string> map;
  Global() {
    for (int i = 0; i < 500; i++) map[i] = std::string(static_cast<size_t>(i), 'g');
  }
  ~Global() {
    for (auto &[i, text] : map)
      if (text.size() != static_cast<size_t>(i)) _exit(69);
  }
} global;
void Globals(size_t, size_t) {
  CHECK(global.map.size() == 500);
  for (int i = 0; i < 500; i += 2) global.map.erase(i);
  static std::deque<std::string> local(1000, "a string that is long enough for the heap");
  std::thread([] { local.emplace_back("from a thread"); }).join();
}

// ---------------------------------------------------------------------------

// Checked against a copy kept in plain arrays.
template <typename Map> void MapAgainstArray() {
  std::mt19937 random(1);
  Map map;
  std::vector<size_t> size(2000, SIZE_MAX);
  for (int i = 0; i < 30000; i++) {
    size_t key = random() % 2000, n = random() % 200;
    if (random() % 3) map[key] = std::string(n, 'v'), size[key] = n;
    else map.erase(key), size[key] = SIZE_MAX;
  }
  for (size_t key = 0; key < size.size(); key++) {
    auto at = map.find(key);
    CHECK((at == map.end()) == (size[key] == SIZE_MAX));
    if (at != map.end()) CHECK(at->second.size() == size[key]);
  }
}
void OrderedMap(size_t, size_t) { MapAgainstArray<std::map<size_t, std::string>>(); }
void HashMap(size_t, size_t) { MapAgainstArray<std::unordered_map<size_t, std::string>>(); }

void Vectors(size_t, size_t) {
  std::vector<std::vector<uint64_t>> all(50);
  for (uint64_t i = 0; i < 200000; i++) all[i % 50].push_back(i);
  for (uint64_t i = 0; i < 200000; i++) CHECK(all[i % 50][i / 50] == i);
  for (auto &v : all) v.resize(10), v.shrink_to_fit();
  std::vector<char> one;
  for (size_t i = 0; i < 20000000; i++) one.push_back(static_cast<char>(i));
  CHECK(one[19999999] == static_cast<char>(19999999));
}

void ListsAndDeques(size_t, size_t) {
  std::list<std::string> list;
  std::deque<std::shared_ptr<int>> deque;
  for (int i = 0; i < 20000; i++) {
    list.push_back(std::to_string(i));
    deque.push_back(std::make_shared<int>(i));
    if (i % 3 == 0) list.pop_front(), deque.pop_front();
  }
  list.sort();
  for (size_t i = 1; i < deque.size(); i++) CHECK(*deque[i] == *deque[i - 1] + 1);
}

struct alignas(128) Wide {
  char bytes[200];
};
void AlignedTypes(size_t, size_t) {
  std::vector<Wide> v;
  std::map<int, Wide> m;
  for (int i = 0; i < 1000; i++) {
    v.emplace_back();
    CHECK(Aligned(v.data(), 128) && Aligned(&m[i], 128));
    auto p = std::make_unique<Wide>();
    CHECK(Aligned(p.get(), 128));
  }
}

void Pmr(size_t, size_t) {
  std::pmr::unsynchronized_pool_resource pool;
  std::pmr::synchronized_pool_resource shared;
  for (int round = 0; round < 5; round++) {
    std::pmr::monotonic_buffer_resource buffer(
        round % 2 ? static_cast<std::pmr::memory_resource *>(&pool) : &shared);
    std::pmr::map<int, std::pmr::string> map(&buffer);
    for (int i = 0; i < 2000; i++)
      map[i] = std::pmr::string(static_cast<size_t>(i % 300), 'p', &buffer);
    for (int i = 0; i < 2000; i++) CHECK(map[i].size() == static_cast<size_t>(i % 300));
    void *p = std::pmr::new_delete_resource()->allocate(10000, 4096);
    CHECK(Aligned(p, 4096));
    std::pmr::new_delete_resource()->deallocate(p, 10000, 4096);
  }
}

void SharedBetweenThreads(size_t threads, size_t) {
  auto shared = std::make_shared<std::vector<std::string>>(1000, std::string(100, 's'));
  std::vector<std::thread> all;
  for (size_t t = 0; t < threads; t++)
    all.emplace_back([shared] {
      for (int i = 0; i < 200; i++) {
        auto copy = *shared;
        std::weak_ptr<std::vector<std::string>> weak = shared;
        CHECK(copy[static_cast<size_t>(i)].size() == 100 && weak.lock());
      }
    });
  shared.reset();
  for (auto &t : all) t.join();
}

void StreamsAndFunctions(size_t, size_t) {
  for (int i = 0; i < 300; i++) {
    std::ostringstream out;
    for (int j = 0; j < i; j++) out << j << ' ' << 0.5 * j << '\n';
    std::string text = out.str();
    std::function<size_t()> f = [text] { return text.size(); };
    std::any any = f;
    std::variant<int, std::string> v = text;
    CHECK(std::any_cast<std::function<size_t()>>(any)() == std::get<std::string>(v).size());
  }
}

void Futures(size_t count, size_t) {
  std::vector<std::future<std::string>> all;
  for (size_t i = 0; i < count; i++)
    all.push_back(std::async(std::launch::async, [i] { return std::string(i * 10, 'f'); }));
  for (size_t i = 0; i < count; i++) CHECK(all[i].get().size() == i * 10);
}

} // namespace

extern const case_t cxx_cases[] = {
    EACH_RANGE("every_form", EveryForm, 0),
    {"every_aligned_form_32", EveryAlignedForm, 32},
    {"every_aligned_form_4k", EveryAlignedForm, 4096},
    {"every_aligned_form_1m", EveryAlignedForm, 1 << 20},
    {"of_nothing", OfNothing},
    {"too_much_ptrdiff_max", TooMuch, PTRDIFF_MAX},
    {"too_much_2_to_the_60", TooMuch, size_t{1} << 60},
    {"new_handler", NewHandler},
    {"new_handler_throws", NewHandlerThrows},
    {"new_handler_makes_room_tiny", NewHandlerMakesRoom, 1000, 0, "as_256m"},
    {"new_handler_makes_room_huge", NewHandlerMakesRoom, 2 << 20, 0, "as_256m"},
    {"exceptions_in_threads", ExceptionsInThreads, 4},
    {"exception_passed_between_threads", ExceptionPassedBetweenThreads},
    {"thread_locals", ThreadLocals, 200},
    {"globals", Globals},
    {"ordered_map", OrderedMap},
    {"hash_map", HashMap},
    {"vectors", Vectors},
    {"lists_and_deques", ListsAndDeques},
    {"aligned_types", AlignedTypes},
    {"pmr", Pmr},
    {"shared_between_threads", SharedBetweenThreads, 4},
    {"streams_and_functions", StreamsAndFunctions},
    {"futures", Futures, 200},
    {nullptr, nullptr},
};
