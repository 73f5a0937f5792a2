// limits.c: limits its own address space, in a statically linked program, where both the
// allocator and the C library contain setrlimit and prlimit.

#include "../testing.h"

#include <pthread.h>
#include <sys/resource.h>

static void *work(void *unused) {
  (void)unused;
  void *p = malloc(16 * MIB);
  CHECK(p);
  free(p);
  return NULL;
}

int main(void) {
  void *small = malloc(100);
  struct rlimit limit = {256 * MIB, 512 * MIB}, old, now;
  struct rlimit64 limit64 = {128 * MIB, 512 * MIB}, now64;
  CHECK(prlimit(0, RLIMIT_AS, &limit, &old) == 0);
  work(NULL);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
  pthread_join(thread, NULL);
  errno = 0;
  CHECK(malloc(hide_size(300 * MIB)) == NULL && errno == ENOMEM);
  CHECK(setrlimit64(RLIMIT_AS, &limit64) == 0 && prlimit64(0, RLIMIT_AS, NULL, &now64) == 0);
  CHECK(now64.rlim_cur == 128 * MIB && now64.rlim_max == 512 * MIB);
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0 && getrlimit(RLIMIT_AS, &now) == 0);
  CHECK(now.rlim_cur == 256 * MIB && now.rlim_max == 512 * MIB);
  work(NULL);
  free(small);
  return 0;
}
