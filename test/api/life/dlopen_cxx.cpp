// dlopen_cxx.cpp: a C++ program on the system allocator that loads HAKMEM while it runs and takes
// the operators from it, all of whose blocks are then HAKMEM's: dlopen_cxx LIBRARY

#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <new>

#include "../../../include/hakmem/hakmem.h"

namespace {

void *handle;

template <class Function> Function Find(const char *name) {
  void *found = dlsym(handle, name);
  if (!found) std::fprintf(stderr, "no %s\n", name);
  return reinterpret_cast<Function>(reinterpret_cast<std::uintptr_t>(found));
}

using Line = std::align_val_t;
using Tag = const std::nothrow_t &;
constexpr Line kLine{64};
constexpr std::size_t kSize = 100;

bool (*owns)(const void *);
bool (*get_stats)(hak_stats_t *, std::size_t);
bool ok = true;

std::uint64_t LiveBlocks() {
  hak_stats_t stats;
  return get_stats(&stats, sizeof stats) ? stats.live_blocks : 0;
}

template <class... Rest> void New(const char *name, const char *remove, Rest... rest) {
  void *p = Find<void *(*)(std::size_t, Rest...)>(name)(kSize, rest...);
  const bool ours = p && owns(p);
  if (!ours) std::fprintf(stderr, "%s: not HAKMEM's block\n", name);
  ok = ok && ours;
  Find<void (*)(void *)>(remove)(p);
}

template <class... Rest> void Delete(const char *name, const char *make, Rest... rest) {
  void *p = Find<void *(*)(std::size_t)>(make)(kSize);
  const std::uint64_t before = LiveBlocks();
  Find<void (*)(void *, Rest...)>(name)(p, rest...);
  const bool freed = LiveBlocks() + 1 == before;
  if (!freed) std::fprintf(stderr, "%s: the block is still live\n", name);
  ok = ok && freed;
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 2 || !(handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL))) return 1;
  owns = Find<bool (*)(const void *)>("hak_owns");
  get_stats = Find<bool (*)(hak_stats_t *, std::size_t)>("hak_stats_get");
  void *system = ::operator new(kSize); // the program's own are still the C++ library's
  ok = !owns(system);
  ::operator delete(system);
  New("_Znwm", "hak_free");
  New("_Znam", "hak_free");
  New<Tag>("_ZnwmRKSt9nothrow_t", "hak_free", std::nothrow);
  New<Tag>("_ZnamRKSt9nothrow_t", "hak_free", std::nothrow);
  New("_ZnwmSt11align_val_t", "hak_free", kLine);
  New("_ZnamSt11align_val_t", "hak_free", kLine);
  New<Line, Tag>("_ZnwmSt11align_val_tRKSt9nothrow_t", "hak_free", kLine, std::nothrow);
  New<Line, Tag>("_ZnamSt11align_val_tRKSt9nothrow_t", "hak_free", kLine, std::nothrow);
  Delete("_ZdlPv", "_Znwm");
  Delete("_ZdaPv", "_Znam");
  Delete<Tag>("_ZdlPvRKSt9nothrow_t", "_Znwm", std::nothrow);
  Delete<Tag>("_ZdaPvRKSt9nothrow_t", "_Znam", std::nothrow);
  Delete("_ZdlPvm", "_Znwm", kSize);
  Delete("_ZdaPvm", "_Znam", kSize);
  return ok ? 0 : 1;
}
