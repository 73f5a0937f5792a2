// address_taken.c: a program that is not position-independent and takes the addresses of free and
// realloc. Libraries see them as entries in the program that lead to the allocator's functions.

#include <dlfcn.h>

#include "../testing.h"

extern char __executable_start, _end;
static unsigned asked;

// Replaces the C library's dladdr and counts the calls. All addresses of the program are one
// object; every other address is an object of its own.
int dladdr(const void *p, Dl_info *of) {
  bool own = (const char *)p >= &__executable_start && (const char *)p < &_end;
  of->dli_fbase = own ? &__executable_start : (void *)(uintptr_t)p;
  asked++;
  return 1;
}

int main(void) {
  void (*volatile release)(void *) = free; // in code: data would hold the libraries' addresses
  void *(*volatile resize)(void *, size_t) = realloc;
  void (*release_sized)(void *, size_t) = (void (*)(void *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_sized");
  CHECK(release_sized || !getenv("EXPECT_HAKMEM"));
  for (size_t i = 0; i < 1000; i++) {
    char *p = reallocarray(NULL, 10, 10 + i);
    CHECK(p && (p = resize(p, 20 * (10 + i))));
    memset(p, 1, 20 * (10 + i));
    if (release_sized && i % 2) release_sized(p, 20 * (10 + i));
    else release(p);
  }
  printf("%s, asked %u times\n", (char *)(uintptr_t)release < &_end ? "taken" : "elsewhere", asked);
  return 0;
}
