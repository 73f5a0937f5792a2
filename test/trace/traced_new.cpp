// traced_new N: each form of new N times, and its delete.

#include <cstdlib>
#include <new>

struct alignas(128) wide_t {
  char bytes[256];
};

static void *volatile sink; // so that no pair of new and delete is optimised away

template <typename T> static T *kept(T *p) {
  sink = p;
  return p;
}

int main(int argc, char **argv) {
  long n = argc > 1 ? atol(argv[1]) : 0;
  for (long i = 0; i < n; i++) {
    delete kept(new long);
    delete[] kept(new char[100]);
    delete kept(new (std::nothrow) long);
    delete[] kept(new (std::nothrow) char[100]);
    delete kept(new wide_t);
    delete[] kept(new wide_t[2]);
    delete kept(new (std::nothrow) wide_t);
    delete[] kept(new (std::nothrow) wide_t[2]);
  }
  try {
    kept(new char[(std::size_t)1 << 62 | (std::size_t)n]);
    return 1;
  } catch (const std::bad_alloc &) {
    return 0;
  }
}
