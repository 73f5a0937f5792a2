// process.c: fork, exec, exit, and what runs before main and after it.

#include "situations.h"

#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static size_t count_of(size_t size) {
  return size <= 1000 ? 5000 : size <= 10000 ? 60 : size <= MIB ? 20 : 3;
}

// ---------------------------------------------------------------------------
// Children that use what they inherited.

static void *inherited[5000];

static void *make_inherited(void *size) {
  for (size_t i = 0; i < count_of(AS_NUMBER(size)); i++)
    inherited[i] = filled_block(AS_NUMBER(size), i);
  return NULL;
}

static void use_inherited(size_t size, bool grow) {
  for (size_t i = 0; i < count_of(size); i++) {
    CHECK(filled(inherited[i], size, i));
    if (grow)
      CHECK((inherited[i] = realloc(inherited[i], size * 2)) && filled(inherited[i], size, i));
    free(inherited[i]);
  }
  churn_some(7, 300);
}

enum { SAME_THREAD, FROM_ENDED_THREAD, GROW };

static void child_frees_all(size_t size, size_t how) {
  if (how == FROM_ENDED_THREAD) join(start(make_inherited, AS_ARGUMENT(size)));
  else make_inherited(AS_ARGUMENT(size));
  for (int i = 0; i < 3; i++) {
    pid_t pid = fork();
    if (pid == 0) use_inherited(size, how == GROW), exit(0);
    wait_for(pid, 0);
  }
  use_inherited(size, how == GROW); // the children did not touch the parent's blocks
}

// The owner of the blocks does not exist in the child; the fork interrupted its work.
static _Atomic bool stop, ready;
static void *keep_blocks_and_churn(void *size) {
  make_inherited(size);
  ready = true;
  for (size_t i = 0; !stop; i++) churn_some(i, 50);
  return NULL;
}
static void owner_vanishes(size_t size, size_t b) {
  (void)b;
  pthread_t t = start(keep_blocks_and_churn, AS_ARGUMENT(size));
  while (!ready) usleep(100);
  for (int i = 0; i < 10; i++) {
    pid_t pid = fork();
    if (pid == 0) use_inherited(size, i % 2), exit(0);
    wait_for(pid, 0);
  }
  stop = true;
  join(t);
  use_inherited(size, false);
}

static void fork_storm(size_t children, size_t at_once) {
  pid_t pid[64];
  for (size_t i = 0; i < children; i += at_once) {
    for (size_t j = 0; j < at_once; j++) {
      void *p = filled_block(i * 50, i);
      pid[j] = fork();
      if (pid[j] == 0) check_and_free(p, i * 50, i), churn_some(i, 100), exit(0);
      check_and_free(p, i * 50, i);
    }
    for (size_t j = 0; j < at_once; j++) wait_for(pid[j], 0);
  }
}

static void *churn_until_stopped(void *seed) {
  for (size_t i = 0; !stop; i++) churn_some(AS_NUMBER(seed) + i, 50);
  return NULL;
}
static void child_works(size_t seed) {
  churn(seed, 300);
  join(start(churn_thread, AS_ARGUMENT(seed)));
  malloc_trim(0);
}
static void fork_while_others_allocate(size_t threads, size_t times) {
  pthread_t thread[8];
  for (size_t i = 0; i < threads; i++) thread[i] = start(churn_until_stopped, AS_ARGUMENT(i));
  for (size_t i = 0; i < times; i++) {
    pid_t pid = fork();
    if (pid == 0) child_works(i), exit(0);
    wait_for(pid, 0);
  }
  stop = true;
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

static void *fork_repeatedly(void *seed) {
  for (size_t i = 0; i < 15; i++) {
    void *p = filled_block(i * 1000, i);
    pid_t pid = fork();
    if (pid == 0) check_and_free(p, i * 1000, i), churn_some(AS_NUMBER(seed) + i, 200), exit(0);
    wait_for(pid, 0);
    check_and_free(p, i * 1000, i);
  }
  return NULL;
}
static void every_thread_forks(size_t threads, size_t b) {
  (void)b;
  pthread_t thread[8];
  for (size_t i = 0; i < threads; i++) thread[i] = start(fork_repeatedly, AS_ARGUMENT(i));
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

static void fork_chain(size_t depth, size_t with_threads) {
  void *p = filled_block(depth * 100, depth);
  if (with_threads) join(start(churn_thread, AS_ARGUMENT(depth)));
  else churn_some(depth, 100);
  if (depth > 0) {
    pid_t pid = fork();
    if (pid == 0) fork_chain(depth - 1, with_threads), exit(0);
    wait_for(pid, 0);
  }
  check_and_free(p, depth * 100, depth);
}

static void children_start_threads(size_t children, size_t threads) {
  for (size_t i = 0; i < children; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      pthread_t thread[8];
      for (size_t j = 0; j < threads; j++) thread[j] = start(churn_thread, AS_ARGUMENT(j));
      for (size_t j = 0; j < threads; j++) join(thread[j]);
      exit(0);
    }
    wait_for(pid, 0);
  }
}

// A child that only reads, and allocates a little, does not copy its parent's heap.
static size_t private_dirty_kib(void) {
  FILE *f = fopen("/proc/self/smaps_rollup", "r");
  char text[200];
  size_t kib = 0;
  while (f && fgets(text, sizeof text, f))
    if (sscanf(text, "Private_Dirty: %zu", &kib) == 1) break;
  if (f) fclose(f);
  CHECK(kib != 0);
  return kib;
}
static void little_is_copied(size_t size, size_t b) {
  (void)b;
  size_t count = 64 * MIB / size;
  char **p = malloc(count * sizeof *p);
  for (size_t i = 0; i < count; i++) p[i] = filled_block(size, i);
  pid_t pid = fork();
  if (pid == 0) {
    size_t before = private_dirty_kib();
    for (size_t i = 0; i < count; i++) CHECK(p[i] != NULL && filled(p[i], 8, i));
    for (size_t i = 0; i < 1000; i++) CHECK(malloc(i) != NULL);
    CHECK(private_dirty_kib() < before + 6 * KIB);
    _exit(0);
  }
  wait_for(pid, 0);
  for (size_t i = 0; i < count; i++) check_and_free(p[i], size, i);
  free(p);
}

// ---------------------------------------------------------------------------
// What runs around a fork.

static void *prepared[3];
static size_t depth, handled;
static void before_fork(void) { CHECK(prepared[depth++] = malloc(3000)), handled++; }
static void after_fork(void) { free(prepared[--depth]), churn_some(handled, 30), handled++; }
static void atfork_handlers_allocate(size_t threads, size_t b) {
  (void)b;
  for (int i = 0; i < 3; i++) CHECK(pthread_atfork(before_fork, after_fork, after_fork) == 0);
  fork_while_others_allocate(threads, 15);
  CHECK(handled == 15 * 6);
}

static _Atomic int forks_handled;
static void fork_in_handler(int number) {
  (void)number;
  pid_t pid = fork();
  if (pid == 0) _exit(0);
  if (pid > 0) waitpid(pid, NULL, 0), forks_handled++;
}
// One shot: a fork may take longer than any interval, and then the handler alone would run.
static void alarm_soon(void) {
  struct itimerval once = {{0, 0}, {0, 2000}};
  CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
}
static void fork_in_signal_handler(size_t while_allocating, size_t b) {
  (void)b;
  struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  alarm_soon();
  for (int i = 0, seen = 0; seen < 40; i++) {
    if (forks_handled != seen) seen = forks_handled, alarm_soon();
    sigset_t alarm;
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    if (!while_allocating) sigprocmask(SIG_BLOCK, &alarm, NULL);
    churn_some((size_t)i, 50);
    sigprocmask(SIG_UNBLOCK, &alarm, NULL);
  }
}

// Here the handler's child continues the program's work.
static pid_t forked = -1;
static void fork_and_return(int number) { (void)number, forked = fork(); }
static void child_of_handler_goes_on(size_t times, size_t b) {
  (void)b;
  signal(SIGUSR1, fork_and_return);
  for (size_t i = 0; i < times; i++) {
    void *p = filled_block(5000, i);
    raise(SIGUSR1);
    check_and_free(p, 5000, i);
    churn_some(i, 100);
    if (forked == 0) exit(0);
    wait_for(forked, 0);
  }
}

// ---------------------------------------------------------------------------
// New programs.

static char *const true_command[] = {(char *)"/bin/sh", (char *)"-c", (char *)"exit 3", NULL};
static char *const missing_command[] = {(char *)"/no/such/program", NULL};
enum { WITH_VFORK, VFORK_FAILS, WITH_SPAWN, SPAWN_FAILS, WITH_SYSTEM, WITH_POPEN };

static void once(size_t how) {
  pid_t pid;
  switch (how) {
  case WITH_VFORK:
    if ((pid = vfork()) == 0) execv(true_command[0], true_command), _exit(9);
    wait_for(pid, 3 << 8);
    break;
  case VFORK_FAILS:
    if ((pid = vfork()) == 0) execv(missing_command[0], missing_command), _exit(9);
    wait_for(pid, 9 << 8);
    break;
  case WITH_SPAWN:
    CHECK(posix_spawn(&pid, true_command[0], NULL, NULL, true_command, environ) == 0);
    wait_for(pid, 3 << 8);
    break;
  case SPAWN_FAILS:
    CHECK(posix_spawnp(&pid, missing_command[0], NULL, NULL, missing_command, environ) == ENOENT);
    break;
  case WITH_SYSTEM: CHECK(system("exit 3") == 3 << 8); break;
  case WITH_POPEN: {
    FILE *f = popen("echo words", "r");
    char text[20];
    CHECK(f && fgets(text, sizeof text, f) && strcmp(text, "words\n") == 0 && pclose(f) == 0);
  }
  }
}
static void new_programs(size_t how, size_t threads) {
  pthread_t thread[4];
  for (size_t i = 0; i < threads; i++) thread[i] = start(churn_until_stopped, AS_ARGUMENT(i));
  for (int i = 0; i < 15; i++) once(how), churn_some(how, 100);
  stop = true;
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

static void *exec_here(void *path) {
  execl(path, path, "--bare", "workload.mixed_sizes", (char *)NULL);
  _exit(9);
}
static void exec_from_a_thread(size_t a, size_t b) {
  (void)a, (void)b;
  for (int i = 0; i < 5; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      for (size_t t = 0; t < 3; t++) start(churn_until_stopped, AS_ARGUMENT(t));
      usleep(2000);
      close(1); // the new program's "ok" is not this one's
      join(start(exec_here, (void *)(uintptr_t)"/proc/self/exe"));
    }
    wait_for(pid, 0);
  }
}

// ---------------------------------------------------------------------------
// Ends.

static void *exit_now(void *status) { exit((int)AS_NUMBER(status)); }
static void allocate_at_exit(void) { churn_some(3, 200), free(inherited[0]); }
static void more_at_exit(void) { CHECK(atexit(allocate_at_exit) == 0), churn(4, 100); }

enum { BY_MAIN, BY_THREAD, BY_QUICK_EXIT, BY_ABORT, BY_KILL };

static void end(size_t how) {
  switch (how) {
  case BY_MAIN: exit(5);
  case BY_THREAD: join(start(exit_now, AS_ARGUMENT(5))); _exit(9);
  case BY_QUICK_EXIT: quick_exit(5);
  case BY_ABORT: abort();
  case BY_KILL: kill(getpid(), SIGKILL); _exit(9);
  }
}
static void ends_while_others_allocate(size_t how, size_t status) {
  for (int i = 0; i < 15; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      inherited[0] = malloc(100);
      CHECK(atexit(more_at_exit) == 0 && at_quick_exit(more_at_exit) == 0);
      for (size_t t = 0; t < 4; t++) start(churn_until_stopped, AS_ARGUMENT(t));
      churn(1, 100);
      usleep(500 * (unsigned)i % 3000);
      end(how);
    }
    wait_for(pid, (int)status);
  }
}

static void *outlive_main(void *main_thread) {
  pthread_join(*(pthread_t *)main_thread, NULL);
  free(main_thread);
  use_inherited(TINY, false);
  churn(8, 500);
  exit(5);
}
static void main_ends_as_a_thread(size_t a, size_t b) {
  (void)a, (void)b;
  for (int i = 0; i < 5; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      pthread_t *self = malloc(sizeof *self);
      *self = pthread_self();
      make_inherited(AS_ARGUMENT(TINY));
      start(outlive_main, self);
      pthread_exit(NULL);
    }
    wait_for(pid, 5 << 8);
  }
}

static void blocks_from_before_main(size_t how, size_t b) {
  (void)b;
  for (size_t i = 0; i < CTOR_SIZES; i++) {
    unsigned char *p = sit_ctor_block[i];
    size_t n = sit_ctor_size[i];
    CHECK(p && malloc_usable_size(p) >= n);
    for (size_t j = 0; j < n; j++) CHECK(p[j] == i + 1);
    if (how == 0) continue; // freed by the library's destructor
    sit_ctor_block[i] = NULL;
    if (how == 2) CHECK(p = realloc(p, n + 5000)), CHECK(n == 0 || p[n - 1] == i + 1);
    free(p);
  }
}

static void on_exit_frees(int status, void *p) { (void)status, check_and_free(p, 7000, 7); }
static void exit_handlers(size_t number, size_t b) {
  (void)b;
  for (size_t i = 0; i < number; i++) {
    CHECK(on_exit(on_exit_frees, filled_block(7000, 7)) == 0);
    CHECK(atexit(i % 2 ? allocate_at_exit : more_at_exit) == 0);
  }
  inherited[0] = NULL;
}

static void stopped_and_continued(size_t threads, size_t b) {
  (void)b;
  pid_t pid = fork();
  if (pid == 0) {
    pthread_t thread[4];
    for (size_t i = 0; i < threads; i++) thread[i] = start(churn_thread, AS_ARGUMENT(i));
    for (size_t i = 0; i < threads; i++) join(thread[i]);
    exit(0);
  }
  for (int i = 0; i < 10; i++) {
    int status;
    kill(pid, SIGSTOP);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    if (WIFEXITED(status)) {
      CHECK(status == 0);
      return;
    }
    kill(pid, SIGCONT);
    usleep(500);
  }
  wait_for(pid, 0);
}

static void as_a_daemon(size_t a, size_t b) {
  (void)a, (void)b;
  int fd[2];
  char answer = 0;
  make_inherited(AS_ARGUMENT(TINY));
  CHECK(pipe(fd) == 0);
  pid_t pid = fork();
  if (pid == 0) {
    CHECK(daemon(0, 0) == 0);
    use_inherited(TINY, true);
    child_works(1);
    _exit(write(fd[1], "y", 1) != 1);
  }
  wait_for(pid, 0);
  close(fd[1]);
  CHECK(read(fd[0], &answer, 1) == 1 && answer == 'y');
}

static void new_root(size_t a, size_t b) {
  (void)a, (void)b;
  char folder[] = "/tmp/situations-XXXXXX";
  CHECK(mkdtemp(folder));
  enum { REFUSED = 3 };
  pid_t pid = fork();
  if (pid == 0) {
    if (chroot(folder) != 0) _exit(REFUSED);
    CHECK(chdir("/") == 0);
    child_works(2);
    exit(0);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid && rmdir(folder) == 0);
  if (status == REFUSED << 8) sit_skip("chroot is not allowed");
  CHECK(status == 0);
}

// Children made without the handlers of pthread_atfork. How: by fork's own system call, or as
// a second process that shares the memory and runs to its end on a stack of its own.
enum { RAW_FORK, SHARED_MEMORY };

static int works_on(void *block) {
  check_and_free(block, L2, 1);
  churn_some(7, 300);
  return 0;
}

static void child_of_clone(size_t how, size_t times) {
  for (size_t i = 0; i < times; i++) {
    churn_some(i, 100);
    char *block = filled_block(L2, 1), *stack = malloc(256 * KIB);
    CHECK(stack);
    pid_t pid;
    if (how == SHARED_MEMORY) {
      pid = clone(works_on, stack + 256 * KIB - 64, CLONE_VM | CLONE_VFORK | SIGCHLD, block);
    } else {
      pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
      if (pid == 0) exit(works_on(block));
    }
    wait_for(pid, 0);
    if (how == RAW_FORK) check_and_free(block, L2, 1);
    free(stack);
  }
}

static void *volatile from_child;

static __attribute__((noinline)) void child_leaves_a_block(size_t size) {
  pid_t pid = vfork();
  if (pid == 0) {
    if ((from_child = malloc(size)) != NULL) fill(from_child, size, 1);
    free(malloc(size / 2));
    _exit(0);
  }
  wait_for(pid, 0);
}

static void vfork_child_allocates(size_t size, size_t times) {
  for (size_t i = 0; i < times; i++) {
    from_child = NULL;
    child_leaves_a_block(size);
    CHECK(from_child);
    check_and_free(from_child, size, 1);
  }
}

// Debuggers dump private mappings, readable or not, unless they are marked (dd). Blocks must
// be in the dump; memory that is only reserved must not.
static void debuggers_dump(size_t most, size_t size) {
  enum { BLOCKS = 2000 };
  static char *block[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) block[i] = filled_block(size, i);
  FILE *f = fopen("/proc/self/smaps", "r");
  CHECK(f);
  char line[1000], kind[8] = "";
  unsigned long start = 0, end = 0, from = 0, to = 0;
  size_t dumped = 0, found = 0;
  while (fgets(line, sizeof line, f)) {
    if (sscanf(line, "%lx-%lx %7s", &from, &to, kind) == 3) start = from, end = to;
    if (strncmp(line, "VmFlags:", 8) != 0 || kind[3] != 'p' || strstr(line, " dd")) continue;
    dumped += end - start;
    for (size_t i = 0; i < BLOCKS; i++)
      found += (uintptr_t)block[i] >= start && (uintptr_t)block[i] < end;
  }
  fclose(f);
  CHECK(found == BLOCKS);
  CHECK(dumped < most);
  for (size_t i = 0; i < BLOCKS; i++) check_and_free(block[i], size, i);
}

const case_t process_cases[] = {
    EACH_RANGE("child_frees_all", child_frees_all, SAME_THREAD),
    {"child_frees_ended_threads_tiny", child_frees_all, TINY, FROM_ENDED_THREAD},
    {"child_frees_ended_threads_l2", child_frees_all, L2, FROM_ENDED_THREAD},
    {"child_reallocs_all_tiny", child_frees_all, TINY, GROW},
    {"child_reallocs_all_l25", child_frees_all, L25, GROW},
    {"child_reallocs_all_huge", child_frees_all, HUGE, GROW},
    EACH_RANGE("owner_vanishes", owner_vanishes, 0),
    {"fork_storm", fork_storm, 100, 1},
    {"fork_storm_50_at_once", fork_storm, 100, 50},
    {"fork_while_2_threads_allocate", fork_while_others_allocate, 2, 20},
    {"fork_while_8_threads_allocate", fork_while_others_allocate, 8, 8},
    {"every_thread_forks", every_thread_forks, 6},
    {"fork_chain", fork_chain, 40, 0},
    {"fork_chain_with_threads", fork_chain, 15, 1},
    {"children_start_threads", children_start_threads, 8, 4},
    {"little_is_copied_tiny", little_is_copied, TINY},
    {"little_is_copied_l2", little_is_copied, L2},
    {"little_is_copied_huge", little_is_copied, HUGE},
    {"atfork_handlers_allocate", atfork_handlers_allocate, 0},
    {"atfork_handlers_allocate_with_threads", atfork_handlers_allocate, 4},
    {"fork_in_signal_handler", fork_in_signal_handler, 0},
    {"fork_in_handler_that_interrupted_malloc", fork_in_signal_handler, 1},
    {"child_of_handler_goes_on", child_of_handler_goes_on, 30},
    {"vfork_and_exec", new_programs, WITH_VFORK, 0},
    {"vfork_and_exec_with_threads", new_programs, WITH_VFORK, 3},
    {"vfork_and_exec_fails", new_programs, VFORK_FAILS, 3},
    {"posix_spawn", new_programs, WITH_SPAWN, 3},
    {"posix_spawn_fails", new_programs, SPAWN_FAILS, 3},
    {"system", new_programs, WITH_SYSTEM, 3},
    {"popen", new_programs, WITH_POPEN, 3},
    {"exec_from_a_thread", exec_from_a_thread},
    {"main_exits_while_others_allocate", ends_while_others_allocate, BY_MAIN, 5 << 8},
    {"thread_exits_while_others_allocate", ends_while_others_allocate, BY_THREAD, 5 << 8},
    {"quick_exit_while_others_allocate", ends_while_others_allocate, BY_QUICK_EXIT, 5 << 8},
    {"abort_while_others_allocate", ends_while_others_allocate, BY_ABORT, SIGABRT},
    {"killed_while_others_allocate", ends_while_others_allocate, BY_KILL, SIGKILL},
    {"main_ends_as_a_thread", main_ends_as_a_thread},
    {"blocks_from_before_main_freed_after_it", blocks_from_before_main, 0},
    {"blocks_from_before_main_freed", blocks_from_before_main, 1},
    {"blocks_from_before_main_grown", blocks_from_before_main, 2},
    {"exit_handlers", exit_handlers, 30},
    {"child_of_raw_fork", child_of_clone, RAW_FORK, 10},
    {"child_that_shares_memory", child_of_clone, SHARED_MEMORY, 10},
    {"vfork_child_allocates_tiny", vfork_child_allocates, TINY, 20},
    {"vfork_child_allocates_l25", vfork_child_allocates, L25, 20},
    {"debuggers_dump_tiny", debuggers_dump, 400 * MIB, TINY},
    {"debuggers_dump_l2", debuggers_dump, 400 * MIB, L2},
    {"stopped_and_continued", stopped_and_continued, 3},
    {"as_a_daemon", as_a_daemon},
    {"new_root", new_root},
    {NULL},
};
