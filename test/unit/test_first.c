// A process's first blocks (thread/first.h). What is said of misuse of them: test/abort.

#define UNIT_FIRST_BLOCKS
#include "thread/first.h"

#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "thread/heap.h"
#include "unit.h"

enum { MOST = 255 };

static hak_stats_t figures(void) {
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  return s;
}

// Blocks of all sizes: aligned, zeroed, as long as reported, not overlapping, counted.
static void blocks_of_all_sizes(void) {
  static char *p[MOST];
  static size_t size[MOST];
  size_t n = 0, bytes = 0;
  hak_stats_t before = figures();
  for (size_t ask = 0; n < MOST; ask = (ask * 5 + 3) % 256) {
    char *q = hak_malloc(ask);
    CHECK(q != NULL);
    if (!hak_first_owns(q)) break; // the memory is used up
    CHECK((uintptr_t)q % 16 == 0);
    for (size_t i = 0; i < ask; i++) CHECK(q[i] == 0);
    CHECK_EQUAL(hak_malloc_usable_size(q), hak_first_usable(ask));
    CHECK(hak_first_usable(ask) >= ask && hak_first_usable(ask) < ask + 16);
    memset(q, (int)n, size[n] = hak_malloc_usable_size(q));
    bytes += size[n];
    CHECK(hak_owns(q) && hak_owns(q + size[n] - 1) && !hak_owns(q + size[n]));
    p[n++] = q;
  }
  CHECK(n > 100);
  hak_stats_t now = figures();
  CHECK_EQUAL(now.first_allocs - before.first_allocs, n);
  CHECK(now.live_bytes - before.live_bytes >= bytes);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < size[i]; k++) CHECK(p[i][k] == (char)i);
  for (size_t i = 0; i < n; i++) {
    hak_free(p[i]);
    CHECK(!hak_owns(p[i]));
  }
  CHECK(!hak_first_open());
  // All are gone, and so are their pages.
  const char *memory = (const char *)hak_load_relaxed(&hak_first_base);
  for (size_t i = 0; i < HAK_FIRST_MEMORY; i++) CHECK(memory[i] == 0);
  CHECK_EQUAL(figures().live_blocks, now.live_blocks - n);
}
ISOLATED(blocks_of_all_sizes)

static unsigned firsts(unsigned calls, size_t size) {
  unsigned n = 0;
  for (unsigned i = 0; i < calls; i++) n += hak_first_owns(hak_malloc(size));
  return n;
}

static void so_many_requests(void) {
  CHECK_EQUAL(firsts(MOST - 5, 16), MOST - 5);
  CHECK_EQUAL(firsts(3, 100000), 0); // counts as well
  CHECK_EQUAL(firsts(10, 16), 2);
}
ISOLATED(so_many_requests)

static void fewer_if_wished(void) {
  hak_free(hak_malloc(1));
  hak_option(FIRST) = 11;
  CHECK_EQUAL(firsts(100, 16), 10);
}
ISOLATED(fewer_if_wished)

static void none_if_wished(void) {
  hak_owns(NULL);
  hak_stats_t now = figures(); // reads the options
  hak_option(FIRST) = 0;
  CHECK_EQUAL(firsts(100, 16), 0);
  CHECK_EQUAL(figures().first_allocs, now.first_allocs);
}
ISOLATED(none_if_wished)

static void none_beside_guards(void) {
  (void)figures();
  hak_option(GUARD) = 1;
  CHECK_EQUAL(firsts(10, 16), 0);
}
ISOLATED(none_beside_guards)

// A write that goes on and on, in either direction, ends at a guard.
static void ends_at_a_guard(void) {
  char *p = hak_malloc(16);
  CHECK(hak_first_owns(p));
  const ptrdiff_t end = (ptrdiff_t)(HAK_FIRST_MEMORY + hak_os_page_size), steps[] = {16, -16};
  for (unsigned i = 0; i < COUNT(steps); i++) {
    pid_t pid = fork();
    if (pid == 0) {
      for (ptrdiff_t at = 0; at < end && at > -end; at += steps[i]) *(volatile char *)(p + at) = 1;
      _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(status != 0); // SIGSEGV, or what a sanitizer makes of it
  }
}
ISOLATED(ends_at_a_guard)

static void largest(void) {
  CHECK(hak_first_owns(hak_malloc(HAK_FIRST_MAX)) && !hak_first_owns(hak_malloc(HAK_FIRST_MAX + 1)));
  CHECK(hak_first_owns(hak_calloc(2, 100)) && hak_first_owns(hak_realloc(NULL, 5)));
  void *aligned = hak_aligned_alloc(64, 128);
  CHECK(!hak_first_owns(aligned) && (uintptr_t)aligned % 64 == 0);
}
ISOLATED(largest)

static void resized(void) {
  char *p = hak_malloc(20);
  memset(p, 7, 20);
  CHECK(hak_realloc(p, 24) == p && hak_realloc(p, 10) == p); // as many bytes as it has
  char *q = hak_realloc(p, 25);
  CHECK(hak_tls_heap == &hak_heap_none); // a first block again, and no heap to count it in
  CHECK(q != p && hak_first_owns(q) && memcmp(q, "\7\7\7\7\7\7\7\7\7\7", 10) == 0 && !hak_owns(p));
  char *large = hak_realloc(q, 100000);
  CHECK(!hak_first_owns(large) && memcmp(large, "\7\7\7\7\7\7\7\7\7\7", 10) == 0);
  char *small = hak_realloc(large, 30);
  CHECK(hak_first_owns(small) && memcmp(small, "\7\7\7\7\7\7\7\7\7\7", 10) == 0);
  hak_free(small);
}
ISOLATED(resized)

static void *ask(void *p) {
  void *mine = hak_malloc(16);
  CHECK(!hak_first_owns(mine));
  hak_free(p);
  hak_free(mine);
  return NULL;
}
static void in_thread(void *(*body)(void *), void *argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, body, argument) == 0 && pthread_join(thread, NULL) == 0);
}

// First blocks are served only while one thread allocates, and it needs no heap so far.
// Another thread may free them.
static void until_another_allocates(void) {
  void *p = hak_malloc(16);
  CHECK(hak_first_owns(p) && hak_tls_heap == &hak_heap_none && hak_heap_count() == 0);
  in_thread(ask, p);
  CHECK(!hak_owns(p) && !hak_first_owns(hak_malloc(16)));
}
ISOLATED(until_another_allocates)

// With a first thread present, ended threads leave nothing behind: they share a nursery.
static void *ask_often(void *unused) {
  for (unsigned i = 0; i < 20; i++) hak_free(hak_malloc(i * 8));
  CHECK(hak_tls_heap == &hak_heap_none);
  return unused;
}
static void others_share_nurseries(void) {
  CHECK(hak_first_owns(hak_malloc(16)));
  for (unsigned i = 0; i < 10; i++) in_thread(ask_often, NULL);
  CHECK_EQUAL(hak_heap_count(), 1);
}
ISOLATED(others_share_nurseries)

static char *shared[MOST];
static void *free_half(void *half) {
  for (size_t i = (size_t)half; i < MOST; i += 2) hak_free(shared[i]);
  return NULL;
}
static void freed_by_two_threads(void) {
  for (unsigned i = 0; i < MOST; i++) CHECK(hak_first_owns(shared[i] = hak_malloc(i % 100)));
  pthread_t thread[2];
  for (size_t i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, free_half, (void *)i) == 0);
  for (size_t i = 0; i < 2; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  for (unsigned i = 0; i < MOST; i++) CHECK(!hak_owns(shared[i]));
  CHECK_EQUAL(hak_load_relaxed(&hak_first_counts.live), 0);
  CHECK_EQUAL(hak_load_relaxed(&hak_first_counts.bytes), 0);
  hak_first_audit();
}
ISOLATED(freed_by_two_threads)

static void in_a_child(void) {
  char *p = hak_malloc(100);
  strcpy(p, "parent's");
  pid_t pid = fork();
  if (pid == 0) {
    CHECK(strcmp(p, "parent's") == 0);
    hak_free(p);
    CHECK(hak_first_owns(hak_malloc(100)));
    _exit(0);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  CHECK(hak_owns(p));
  hak_free(p);
}
ISOLATED(in_a_child)

// Handlers that allocate and free while there are first blocks, whatever they interrupt.
static volatile sig_atomic_t handled;
static void on_signal(int number) {
  (void)number;
  handled = 1;
  if (!hak_first_open()) return; // no malloc is interrupted by another one then
  char *p = hak_malloc(24);
  memset(p, 1, 24);
  hak_free(p);
}
static void in_handlers(void) {
  struct itimerval soon = {.it_interval = {0, 0}};
  signal(SIGALRM, on_signal);
  handled = 1;
  for (size_t size = 0; hak_first_open(); size = (size + 7) % 100) {
    // One timer at a time: if handlers took longer than the interval, nothing else would run.
    soon.it_value.tv_usec = 1 + (long)size;
    if (handled) {
      handled = 0;
      CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    }
    char *p = hak_malloc(size);
    memset(p, 2, size);
    for (volatile unsigned i = 0; i < 10000; i++) {}
    for (size_t i = 0; i < size; i++) CHECK(p[i] == 2);
    hak_free(p);
  }
  soon.it_value.tv_usec = 0;
  CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
  CHECK_EQUAL(hak_load_relaxed(&hak_first_counts.live), 0);
  hak_first_audit();
}
ISOLATED(in_handlers)

// All first blocks are freed and no more are handed out: the pages go back, whether a free or
// the one request too many comes last.
static void check_all_given_back(void) {
  CHECK_EQUAL(hak_load_relaxed(&hak_first_counts.live), 0);
  CHECK_EQUAL(hak_load_relaxed(&hak_first_counts.bytes), 0);
  const char *memory = (const char *)hak_load_relaxed(&hak_first_base);
  for (size_t i = 0; i < HAK_FIRST_MEMORY; i++) CHECK(memory[i] == 0);
  hak_first_audit();
}
static void gone_before_the_last_request(void) {
  for (unsigned i = 0; i < MOST; i++) {
    char *p = hak_malloc(i % 100);
    CHECK(hak_first_owns(p));
    hak_free(p);
  }
  CHECK(hak_first_open() && !hak_first_owns(hak_malloc(16)) && !hak_first_open());
  check_all_given_back();
}
ISOLATED(gone_before_the_last_request)

// Handlers run between any two instructions and use up the first blocks: what they get, and
// what the interrupted call gets, stays whole, and nothing is reported.
#ifdef SINGLE_STEPS
#define AUDIT_STEPS 100 // what follows is the same again and again
enum { IN_MALLOC, IN_FREE, IN_AUDIT, INTERRUPTED };
static unsigned steps, handled_step;
static bool frees_its_own;
static char *of_handler, *of_before;

static char *with_all(char *p, int with) { return memset(p, with, 24); }
static void check_all(const char *p, int with) {
  for (size_t i = 0; i < 24; i++) CHECK(p[i] == with);
}
static void on_step(int number, siginfo_t *unused, void *context) {
  (void)number, (void)unused;
  if (++steps != handled_step) return;
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100; // no more single steps
  if (hak_first_open()) of_handler = with_all(hak_first_alloc(24), 3);
  hak_free(of_before);
  of_before = NULL;
  while (hak_first_open()) hak_free(hak_first_alloc(8));
  if (frees_its_own) hak_free(of_handler), of_handler = NULL;
}

static void interrupted_once(unsigned what, bool has_another) {
  char *p = with_all(hak_malloc(24), 1), *q = NULL;
  if (has_another) of_before = with_all(hak_malloc(24), 2);
  if (what == IN_AUDIT) hak_free(p);
  STEPS_BEGIN();
  if (what == IN_FREE) hak_free(p);
  else if (what == IN_MALLOC) q = hak_first_alloc(24);
  else hak_first_audit();
  STEPS_END();
  if (what == IN_MALLOC) {
    check_all(p, 1);
    hak_free(p);
  }
  if (q) {
    hak_free(of_before);
    of_before = NULL;
    hak_free(with_all(q, 4));
  }
  if (of_handler) check_all(of_handler, 3);
  hak_free(of_handler);
  if (of_before) check_all(of_before, 2);
  hak_free(of_before);
  if (!hak_first_open() && what != IN_AUDIT) check_all_given_back();
}

static void in_handlers_at_any_step(void) {
  struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
  for (unsigned kind = 0; kind < 4 * INTERRUPTED; kind++) {
    bool is_over = false;
    for (handled_step = 1; !is_over; handled_step++) {
      pid_t pid = fork();
      if (pid == 0) {
        frees_its_own = kind & 1;
        interrupted_once(kind / 4, kind & 2);
        _exit(steps < handled_step ? 2 : 0);
      }
      int status;
      CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) != 1);
      is_over = WEXITSTATUS(status) == 2 || (kind / 4 == IN_AUDIT && handled_step == AUDIT_STEPS);
    }
    CHECK(handled_step > 20);
  }
}
ISOLATED(in_handlers_at_any_step)
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      ISOLATED_TEST(blocks_of_all_sizes), ISOLATED_TEST(so_many_requests), ISOLATED_TEST(fewer_if_wished),
      ISOLATED_TEST(ends_at_a_guard),
      ISOLATED_TEST(none_if_wished), ISOLATED_TEST(none_beside_guards), ISOLATED_TEST(largest),
      ISOLATED_TEST(resized), ISOLATED_TEST(until_another_allocates), ISOLATED_TEST(others_share_nurseries),
      ISOLATED_TEST(freed_by_two_threads), ISOLATED_TEST(in_a_child), ISOLATED_TEST(in_handlers),
      ISOLATED_TEST(gone_before_the_last_request),
#ifdef SINGLE_STEPS
      ISOLATED_TEST(in_handlers_at_any_step),
#endif
  };
  return RUN(tests);
}
