// no_keys.c: a static program takes every pthread key before the first malloc, so that no
// thread's end is noticed; then it takes all memory. (In others the loader's malloc comes first.)

#include "../testing.h"

#include <pthread.h>
#include <sys/resource.h>

static size_t keys_taken;
static void take_them_all(int argc, char **argv, char **environment) {
  (void)argc, (void)argv, (void)environment;
  pthread_key_t key;
  while (pthread_key_create(&key, NULL) == 0) keys_taken++;
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) =
    take_them_all;

static void *leave_dirty(void *argument) {
  void *p[64];
  for (size_t i = 0; i < COUNT(p); i++) CHECK((p[i] = memset(malloc(8000), 1, 8000)) != NULL);
  for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
  return argument;
}

static pthread_mutex_t until_all_is_used_up = PTHREAD_MUTEX_INITIALIZER;
static void *allocate_and_free(void *block) {
  pthread_mutex_lock(&until_all_is_used_up);
  pthread_mutex_unlock(&until_all_is_used_up);
  errno = 0;
  void *volatile p = malloc(16);
  CHECK(p || errno == ENOMEM);
  free(p);
  errno = 4321;
  free(block);
  CHECK(errno == 4321);
  return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument) {
  CHECK(pthread_create(thread, NULL, run, argument) == 0);
}
static void join(pthread_t thread) { CHECK(pthread_join(thread, NULL) == 0); }

int main(void) {
  enum { THREADS = 6 };
  static const size_t sizes[] = {MIB, 64 * KIB, 4 * KIB, 1200, 300, 100, 64, 48, 32, 16};
  pthread_t thread[THREADS];
  CHECK(keys_taken > 100);
  size_t before = rss_kib();
  for (unsigned i = 0; i < 1000; i++) {
    start(thread, leave_dirty, NULL);
    join(thread[0]);
  }
  CHECK(rss_kib() < before + 32 * KIB); // 500 MiB if all were lost
  pthread_mutex_lock(&until_all_is_used_up);
  for (size_t i = 0; i < THREADS; i++) start(&thread[i], allocate_and_free, malloc(3000));
  struct rlimit limit, all;
  CHECK(getrlimit(RLIMIT_AS, &all) == 0);
  limit = all, limit.rlim_cur = status_kib("VmSize:") * KIB;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  void **used_up = NULL, **next;
  for (size_t i = 0; i < COUNT(sizes); i++)
    while ((next = malloc(sizes[i])) != NULL) *next = used_up, used_up = next;
  pthread_mutex_unlock(&until_all_is_used_up);
  for (size_t i = 0; i < THREADS; i++) join(thread[i]);
  for (; used_up; used_up = next) next = *used_up, free(used_up);
  CHECK(setrlimit(RLIMIT_AS, &all) == 0);
  return 0;
}
