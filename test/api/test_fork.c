// test_fork.c: the child of a threaded program has a complete heap: it frees the blocks it
// inherited, allocates, starts threads and forks again. Every child sets an alarm, so that a
// lock held by a vanished thread fails the test instead of hanging it.

#include "testing.h"

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { SLOTS = 512, WORKERS = 3, LIMIT = 60 };

// Blocks on offer: the thread that exchanges a block out of its slot owns it.
typedef struct {
  size_t size;
  uint64_t seed;
} header_t;
static _Atomic(header_t *) slots[SLOTS];
static atomic_bool stop;

static header_t *make(uint64_t *random) {
  static const size_t limits[] = {64, 64, 1000, 1000, 1000, 1000, 9000, 60000};
  size_t limit = limits[chance(random) % COUNT(limits)];
  if (chance(random) % 50 == 0) limit = 300000;
  size_t size = sizeof(header_t) + chance(random) % limit;
  if (chance(random) % 500 == 0) size += 2 * MIB;
  header_t *block = malloc(size);
  CHECK(block);
  *block = (header_t){size, chance(random)};
  fill(block + 1, size - sizeof *block, block->seed);
  return block;
}

static void verify_and_free(header_t *block) {
  if (!block) return;
  CHECK(filled(block + 1, block->size - sizeof *block, block->seed));
  free(block);
}

static void *churn(void *argument) {
  uint64_t random = AS_NUMBER(argument) * 77 + 1;
  while (!stop)
    verify_and_free(atomic_exchange(&slots[chance(&random) % SLOTS], make(&random)));
  return NULL;
}

static void start_workers(pthread_t *thread) {
  stop = false;
  for (size_t i = 0; i < WORKERS; i++)
    assert_int_equal(pthread_create(&thread[i], NULL, churn, AS_ARGUMENT(i)), 0);
}

static void stop_workers(pthread_t *thread) {
  stop = true;
  for (size_t i = 0; i < WORKERS; i++) pthread_join(thread[i], NULL);
  for (size_t i = 0; i < SLOTS; i++) verify_and_free(atomic_exchange(&slots[i], NULL));
}

static void *child_thread(void *argument) {
  uint64_t random = AS_NUMBER(argument) + 100;
  header_t *kept[50] = {NULL};
  for (size_t i = 0; i < 200; i++) {
    header_t **at = &kept[chance(&random) % COUNT(kept)];
    verify_and_free(*at);
    *at = make(&random);
  }
  for (size_t i = 0; i < COUNT(kept); i++) verify_and_free(kept[i]);
  return NULL;
}

static void wait_for(pid_t pid) {
  int status = -1;
  assert_true(pid > 0);
  while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
  if (WIFSIGNALED(status)) fail_msg("the child ended by signal %d", WTERMSIG(status));
  assert_int_equal(status, 0);
}

static void child(unsigned number) {
  alarm(LIMIT);
  uint64_t random = number + 1;
  for (size_t i = 0; i < 100; i++) verify_and_free(make(&random));
  for (size_t i = 0; i < SLOTS; i++) verify_and_free(atomic_exchange(&slots[i], NULL));
  child_thread(AS_ARGUMENT(number));
  if (number % 4 == 0) {
    pthread_t thread[3];
    for (size_t i = 0; i < COUNT(thread); i++)
      CHECK(pthread_create(&thread[i], NULL, child_thread, AS_ARGUMENT(i)) == 0);
    for (size_t i = 0; i < COUNT(thread); i++) CHECK(pthread_join(thread[i], NULL) == 0);
  }
  _exit(0);
}

static void two_hundred_forks_while_others_allocate(void **state) {
  (void)state;
  if (EMULATED) skip(); // qemu itself cannot fork while it has other threads
  pthread_t thread[WORKERS];
  start_workers(thread);
  for (unsigned i = 0; i < 200; i++) {
    pid_t pid = fork();
    if (pid == 0) child(i);
    wait_for(pid);
  }
  stop_workers(thread);
}

// One link of the chain: it has threads when it forks. Returns in the child.
static void link_of_chain(unsigned depth) {
  alarm(LIMIT);
  for (size_t i = 0; i < SLOTS; i += 16) verify_and_free(atomic_exchange(&slots[i], NULL));
  pthread_t thread[2];
  stop = false;
  for (size_t i = 0; i < COUNT(thread); i++)
    CHECK(pthread_create(&thread[i], NULL, churn, AS_ARGUMENT(depth * 10 + i)) == 0);
  uint64_t random = depth + 1;
  for (size_t i = 0; i < 300; i++) verify_and_free(make(&random));
  pid_t pid = fork();
  if (pid == 0) return;
  alarm(0); // the links below have their own
  int status;
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
  stop = true;
  for (size_t i = 0; i < COUNT(thread); i++) CHECK(pthread_join(thread[i], NULL) == 0);
  _exit(0);
}

static void fork_chain(void **state) {
  (void)state;
  if (EMULATED) skip();
  pthread_t thread[WORKERS];
  start_workers(thread);
  pid_t pid = fork();
  if (pid == 0) {
    for (unsigned depth = 0; depth < 20; depth++) link_of_chain(depth);
    alarm(LIMIT);
    for (size_t i = 0; i < SLOTS; i++) verify_and_free(atomic_exchange(&slots[i], NULL));
    _exit(0);
  }
  wait_for(pid);
  stop_workers(thread);
}

// A child that allocates and frees again and again reuses its memory.
static void child_uses_freed_memory_again(void **state) {
  (void)state;
  pid_t pid = fork();
  if (pid == 0) {
    alarm(LIMIT);
    size_t before = rss_kib();
    for (unsigned round = 0; round < 20; round++) {
      static void *p[2000];
      for (size_t i = 0; i < COUNT(p); i++) memset(p[i] = malloc(8000), 1, 8000);
      for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
    }
    CHECK(rss_kib() < before + 40 * KIB); // 16 MiB are live; 320 MiB without reuse
    _exit(0);
  }
  wait_for(pid);
}

// ---------------------------------------------------------------------------

static atomic_uint prepared, resumed, born;
static bool handlers_on;

static void handler(atomic_uint *calls) {
  if (!handlers_on) return;
  uint64_t random = ++*calls;
  header_t *blocks[20];
  for (size_t i = 0; i < COUNT(blocks); i++) blocks[i] = make(&random);
  for (size_t i = 0; i < COUNT(blocks); i++) verify_and_free(blocks[i]);
  // A block that one handler leaves is found by another one, perhaps in the other process.
  verify_and_free(atomic_exchange(&slots[random % SLOTS], make(&random)));
}
static void on_prepare(void) { handler(&prepared); }
static void on_parent(void) { handler(&resumed); }
static void on_child(void) { handler(&born); }

static void atfork_handlers_allocate(void **state) {
  (void)state;
  if (EMULATED) skip();
  assert_int_equal(pthread_atfork(on_prepare, on_parent, on_child), 0);
  pthread_t thread[WORKERS];
  start_workers(thread);
  handlers_on = true;
  for (unsigned i = 0; i < 50; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      CHECK(born == 1);
      child(i);
    }
    wait_for(pid);
  }
  handlers_on = false;
  stop_workers(thread);
  assert_int_equal(prepared, 50);
  assert_int_equal(resumed, 50);
}

// In a process with one thread: the signal can interrupt malloc itself.
static volatile sig_atomic_t forked;
static void fork_in_handler(int signal) {
  (void)signal;
  int saved = errno, status;
  pid_t pid = fork();
  if (pid == 0) _exit(0);
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
  forked = forked + 1;
  errno = saved;
}

static void fork_inside_a_signal_handler(void **state) {
  (void)state;
  pid_t pid = fork();
  if (pid == 0) {
    alarm(LIMIT);
    signal(SIGPROF, fork_in_handler);
    struct itimerval often = {.it_interval = {.tv_usec = 1000}, .it_value = {.tv_usec = 1000}};
    setitimer(ITIMER_PROF, &often, NULL);
    uint64_t random = 9;
    while (forked < 20) child_thread(AS_ARGUMENT(chance(&random) % 1000));
    _exit(0);
  }
  wait_for(pid);
}

static void vfork_and_exec(void **state) {
  (void)state;
#ifndef __GLIBC__
  skip(); // sh uses another C library, for which the preloaded library is not built
#endif
  for (unsigned i = 0; i < 20; i++) {
    char *argument = strdup("exit 0");
    pid_t pid = vfork();
    if (pid == 0) {
      execl("/bin/sh", "sh", "-c", argument, (char *)NULL);
      _exit(127);
    }
    wait_for(pid);
    free(argument);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_hundred_forks_while_others_allocate),
      cmocka_unit_test(fork_chain),
      cmocka_unit_test(child_uses_freed_memory_again),
      cmocka_unit_test(atfork_handlers_allocate),
      cmocka_unit_test(fork_inside_a_signal_handler),
      cmocka_unit_test(vfork_and_exec),
  };
  return RUN(tests);
}
