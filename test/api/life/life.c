// life.c: each name runs one way in which a process can begin or end: life NAME [ARGUMENT].
// Exit status 0: no check failed.

#include "../testing.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>

bool ctor_lib_intact(void);

static const char *name = "";
static void *early[200]; // allocated before main, freed after it
static unsigned char *at_exit_block;
static int status_wanted = 1;

__attribute__((constructor(101))) static void before_all(void) {
  for (size_t i = 0; i < COUNT(early); i++) {
    CHECK(early[i] = malloc(i * 300));
    fill(early[i], i * 300, i);
  }
}

static void exercise(uint64_t seed) {
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    void *p = malloc(tier_sizes[i]);
    CHECK(p);
    fill(p, tier_sizes[i], seed);
    CHECK(filled(p, tier_sizes[i], seed));
    CHECK((p = realloc(p, tier_sizes[i] / 2 + 1)) != NULL);
    free(p);
  }
}

// Runs last of the program's own code: the status stays good only if these checks hold.
__attribute__((destructor(101))) static void after_all(void) {
  if (status_wanted) return;
  sigset_t now; // the program's, whichever thread this runs in
  CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) == 0);
  for (size_t i = 0; i < COUNT(early); i++) {
    CHECK(filled(early[i], i * 300, i));
    free(early[i]);
  }
  exercise(3);
  CHECK(ctor_lib_intact()); // its destructor runs after this one
}

static void first_registered(void) {
  exercise(1);
  CHECK(filled(at_exit_block, 5000, 1));
  free(at_exit_block);
}
static void last_registered(void) {
  at_exit_block = malloc(5000);
  fill(at_exit_block, 5000, 1);
  exercise(2);
}

// Before main, in atexit handlers, in destructors.
static int constructors(void) {
  CHECK(ctor_lib_intact());
  CHECK(atexit(first_registered) == 0 && atexit(last_registered) == 0);
  return status_wanted = 0;
}

// ---------------------------------------------------------------------------

static pthread_t main_thread;
static void *shared_block;

static void *outlive_main(void *argument) {
  (void)argument;
  CHECK(pthread_join(main_thread, NULL) == 0);
  CHECK(filled(shared_block, 100000, 1));
  free(shared_block);
  for (unsigned i = 0; i < 10; i++) exercise(i);
  exit(status_wanted = 0);
}

static int main_exits_as_a_thread(void) {
  pthread_t thread;
  main_thread = pthread_self();
  shared_block = malloc(100000);
  fill(shared_block, 100000, 1);
  CHECK(pthread_create(&thread, NULL, outlive_main, NULL) == 0);
  pthread_exit(NULL);
}

static void *end_after_main(void *argument) {
  (void)argument;
  CHECK(pthread_join(main_thread, NULL) == 0);
  exercise(1);
  status_wanted = 0;
  return NULL;
}

// No thread calls exit: the C library does when the last one has ended.
static int all_threads_end(void) {
  pthread_t thread;
  main_thread = pthread_self();
  CHECK(pthread_create(&thread, NULL, end_after_main, NULL) == 0);
  pthread_exit(NULL);
}

static atomic_uint started;
static void *allocate_for_ever(void *argument) {
  started++;
  for (uint64_t seed = AS_NUMBER(argument);; seed++) {
    void *p = malloc(seed % 5000), *q = calloc(1, seed % 70000);
    CHECK(p && q);
    free(p), free(q);
  }
  return NULL;
}

// exit() while other threads allocate.
static int exit_races_with_threads(void) {
  pthread_t thread;
  for (size_t i = 0; i < 4; i++)
    CHECK(pthread_create(&thread, NULL, allocate_for_ever, AS_ARGUMENT(i)) == 0);
  while (started < 4) exercise(4);
  return status_wanted = 0;
}

// ---------------------------------------------------------------------------

static void *leave_dirty(void *argument) {
  void *p[64];
  for (size_t i = 0; i < COUNT(p); i++) memset(p[i] = malloc(8000), 1, 8000);
  for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
  return argument;
}

// All keys are taken (keys_lib.c), so the end of a thread is noticed by other means or not at
// all; memory stays bounded in both cases.
static int no_keys_left(void) {
  pthread_key_t key;
  size_t *taken = dlsym(RTLD_DEFAULT, "keys_taken");
  CHECK(taken && *taken > 500);
  CHECK(pthread_key_create(&key, NULL) == EAGAIN);
  size_t before = rss_kib();
  for (unsigned i = 0; i < 3000; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, leave_dirty, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  CHECK(rss_kib() < before + 32 * KIB); // 1.5 GiB if all were lost
  exercise(1);
  return status_wanted = 0;
}

// A library that allocates in its constructor, loaded and unloaded again and again.
static int load_and_unload(const char *library) {
  size_t before = 0;
  for (unsigned i = 0; i < 1000; i++) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle);
    bool (*intact)(void) = (bool (*)(void))(uintptr_t)dlsym(handle, "ctor_lib_intact");
    CHECK(intact && intact());
    CHECK(dlclose(handle) == 0);
    CHECK(dlopen(library, RTLD_NOW | RTLD_NOLOAD) == NULL);
    if (i == 100) before = rss_kib();
  }
  CHECK(rss_kib() <= before + 1024);
  return status_wanted = 0;
}

// The allocator keeps no file descriptor and needs none.
static int closed_stdio(void) {
  CHECK(fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0);
  exercise(1);
  int fd = open("/dev/null", O_RDWR);
  if (fd != 0) _exit(3);
  exercise(2);
  if (dup(0) != 1) _exit(4);
  printf("nobody reads this\n");
  return status_wanted = 0;
}

static unsigned count_threads(void) {
  unsigned count = 0;
  DIR *folder = opendir("/proc/self/task");
  for (struct dirent *e; folder && (e = readdir(folder)) != NULL;) count += e->d_name[0] != '.';
  if (folder) closedir(folder);
  return count;
}

// HAKMEM_BACKGROUND=1.
static int fork_with_helper(void) {
  CHECK(access("/proc/self/task", R_OK) != 0 || count_threads() == 2);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    exercise(1);
    _exit(count_threads() <= 1 ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return status_wanted = 0;
}

static int empty_environment(void) {
  CHECK(environ == NULL || environ[0] == NULL);
  exercise(1);
  return status_wanted = 0;
}

// A load that swings between nothing and 100 MiB.
static int swinging(void) {
  enum { SIZE = 20000, SWINGS = 20 };
  static char *block[100 * MIB / SIZE];
  for (unsigned i = 0; i < SWINGS; i++) {
    for (size_t k = 0; k < COUNT(block); k++) {
      CHECK(block[k] = malloc(SIZE));
      memset(block[k], 1, SIZE);
    }
    for (size_t k = 0; k < COUNT(block); k++) free(block[k]);
  }
  return status_wanted = 0;
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  name = argv[1];
  if (!right_allocator()) return 2;
#define CASE(function) \
  if (strcmp(name, #function) == 0) return function()
  CASE(constructors);
  CASE(main_exits_as_a_thread);
  CASE(all_threads_end);
  CASE(exit_races_with_threads);
  CASE(no_keys_left);
  CASE(closed_stdio);
  CASE(empty_environment);
  CASE(fork_with_helper);
  CASE(swinging);
  if (argc > 2 && strcmp(name, "load_and_unload") == 0) return load_and_unload(argv[2]);
  return 2;
}
