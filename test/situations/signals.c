// signals.c: code that is interrupted, and unusual stacks.

#include "situations.h"

#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <ucontext.h>

static _Atomic size_t arrived;

static void handle(int number, void (*handler)(int), int flags) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags | SA_RESTART};
  CHECK(sigaction(number, &action, NULL) == 0);
}

static void timer(int which, long microseconds) {
  struct itimerval t = {{0, microseconds}, {0, microseconds}};
  CHECK(setitimer(which, &t, NULL) == 0);
}

// ---------------------------------------------------------------------------
// The thread is interrupted while it allocates. The handlers only do what POSIX allows.

static volatile char *written_by_handler;
static void count(int number) { (void)number, arrived++; }
static void write_a_block(int number) {
  (void)number;
  for (size_t i = 0; i < 1000; i++) written_by_handler[i] = (char)arrived;
  arrived++;
}
static void use_much_stack(int number) {
  (void)number;
  volatile char room[4000];
  for (size_t i = 0; i < sizeof room; i += 100) room[i] = 1;
  arrived++;
}
static void take_backtrace(int number) {
  (void)number;
  void *frames[30];
  if (backtrace(frames, COUNT(frames)) > 0) arrived++;
}

static void allocate_for_a_while(size_t size, size_t signals) {
  size_t first = arrived;
  while (arrived < first + signals) {
    void *p[20];
    for (size_t j = 0; j < COUNT(p); j++) {
      CHECK(p[j] = malloc(size));
      ((char *)p[j])[0] = ((char *)p[j])[size - 1] = (char)j;
    }
    for (size_t j = 0; j < COUNT(p); j++) {
      CHECK(((char *)p[j])[0] == (char)j && ((char *)p[j])[size - 1] == (char)j);
      if (j % 3 == 0) CHECK(p[j] = realloc(p[j], size * 2));
      free(p[j]);
    }
  }
}

static void interrupted(size_t size, size_t microseconds) {
  handle(SIGALRM, count, 0);
  timer(ITIMER_REAL, (long)microseconds);
  allocate_for_a_while(size, 800);
}

static void profiled(size_t threads, size_t b) {
  (void)b;
  void *frames[2];
  backtrace(frames, 2); // loads a library the first time
  handle(SIGPROF, take_backtrace, 0);
  timer(ITIMER_PROF, 1000);
  pthread_t thread[8];
  for (size_t i = 0; i < threads; i++) thread[i] = start(churn_thread, AS_ARGUMENT(i));
  while (arrived < 20) churn(arrived, 500);
  for (size_t i = 0; i < threads; i++) join(thread[i]);
  timer(ITIMER_PROF, 0);
}

static void handler_writes_a_block(size_t a, size_t b) {
  (void)a, (void)b;
  CHECK(written_by_handler = malloc(1000));
  handle(SIGALRM, write_a_block, 0);
  timer(ITIMER_REAL, 200);
  allocate_for_a_while(1000, 500);
  timer(ITIMER_REAL, 0);
  free((void *)(uintptr_t)written_by_handler);
}

enum { SIGNALS = 1000 };
static void *allocate_until_signalled(void *size) {
  while (arrived < SIGNALS) {
    char *p = malloc(AS_NUMBER(size));
    CHECK(p);
    p[0] = 1;
    free(p);
  }
  return NULL;
}
static void every_thread_signalled(size_t threads, size_t size) {
  pthread_t thread[8];
  handle(SIGUSR1, count, 0);
  for (size_t i = 0; i < threads; i++) thread[i] = start(allocate_until_signalled, AS_ARGUMENT(size));
  for (size_t i = 0; arrived < SIGNALS; i++) pthread_kill(thread[i % threads], SIGUSR1);
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

// ---------------------------------------------------------------------------
// Signal stacks.

enum { FROM_MALLOC = 1, FROM_MMAP };
static void on_signal_stack(size_t size, size_t from) {
  for (int round = 0; round < 3; round++) {
    void *stack = from == FROM_MALLOC ? malloc(size)
                                      : mmap(NULL, size, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t s = {.ss_sp = stack, .ss_size = size}, none = {.ss_flags = SS_DISABLE};
    CHECK(stack && sigaltstack(&s, NULL) == 0);
    handle(SIGALRM, use_much_stack, SA_ONSTACK);
    timer(ITIMER_REAL, 300);
    allocate_for_a_while(500, 100);
    timer(ITIMER_REAL, 0);
    CHECK(sigaltstack(&none, NULL) == 0);
    if (from == FROM_MALLOC) free(stack);
    else munmap(stack, size);
  }
}

// malloc runs on the signal stack; the signal is raised where it interrupts nothing.
static void allocate_everything(int number) {
  (void)number;
  for (size_t n = 1; n < 8 * MIB; n = n * 3 + 1) {
    char *p = malloc(n), *q = calloc(1, n), *r = aligned_alloc(64, n);
    CHECK(p && q && r);
    p[n - 1] = q[n - 1] = r[n - 1] = 1;
    CHECK(p = realloc(p, n + n / 2));
    free(p), free(q), free(r);
  }
  arrived++;
}
static void allocating_on_signal_stack(size_t size, size_t b) {
  (void)b;
  stack_t s = {.ss_sp = malloc(size), .ss_size = size}, none = {.ss_flags = SS_DISABLE};
  CHECK(s.ss_sp && sigaltstack(&s, NULL) == 0);
  handle(SIGUSR1, allocate_everything, SA_ONSTACK);
  for (int i = 0; i < 20; i++) raise(SIGUSR1);
  CHECK(arrived == 20 && sigaltstack(&none, NULL) == 0);
  free(s.ss_sp);
}

// A page of a block is protected; the handler allows the write.
static char *guarded;
static void unprotect(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  if ((char *)info->si_addr < guarded || (char *)info->si_addr >= guarded + 8192) _exit(4);
  if (mprotect(guarded, 8192, PROT_READ | PROT_WRITE) != 0) _exit(5);
  arrived++;
}
static void write_barrier(size_t times, size_t alignment) {
  struct sigaction action = {.sa_sigaction = unprotect, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
  for (size_t i = 0; i < times; i++) {
    CHECK(guarded = aligned_alloc(alignment, 8192));
    fill(guarded, 8192, i);
    CHECK(mprotect(guarded, 8192, PROT_READ) == 0);
    churn_some(i, 30);
    CHECK(filled(guarded, 8192, i));
    *(volatile char *)(guarded + 5000) = 1;
    free(guarded);
  }
  CHECK(arrived == times);
}

// ---------------------------------------------------------------------------
// Jumps.

static sigjmp_buf back;
static void jump_back(int number) { (void)number, siglongjmp(back, 1); }

// The handler jumps out of raise(), never out of malloc: the signal is blocked elsewhere.
static void jump_out_of_handler(size_t times, size_t threads) {
  sigset_t alarm;
  sigemptyset(&alarm), sigaddset(&alarm, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &alarm, NULL);
  handle(SIGUSR1, jump_back, 0);
  pthread_t thread[4];
  for (volatile size_t i = 0; i < threads; i++) thread[i] = start(churn_thread, AS_ARGUMENT(i));
  for (volatile size_t i = 0; i < times; i++) {
    void *volatile p = filled_block(i * 30, i);
    if (sigsetjmp(back, 1) == 0) {
      pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
      raise(SIGUSR1);
      CHECK(!"the handler has not jumped");
    }
    churn_some(i, 20);
    check_and_free(p, i * 30, i);
  }
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

typedef struct scope {
  struct scope *outer;
  jmp_buf out;
  void *block[10];
} scope_t;
static __thread scope_t *scope;

static void throw_from(size_t depth, size_t size) {
  for (size_t i = 0; i < 10; i++)
    if (!scope->block[i]) {
      scope->block[i] = filled_block(size, i);
      break;
    }
  if (scope->block[9]) longjmp(scope->out, 1);
  if (depth > 0) throw_from(depth - 1, size);
}
static void *jump_over_frames(void *size) {
  for (volatile int i = 0; i < 200; i++) {
    scope_t s = {.outer = scope};
    scope = &s;
    if (setjmp(s.out) == 0) throw_from(10, AS_NUMBER(size));
    for (size_t j = 0; j < 10; j++) check_and_free(s.block[j], AS_NUMBER(size), j);
    scope = s.outer;
  }
  return NULL;
}
static void longjmp_frees_later(size_t size, size_t threads) {
  pthread_t thread[4];
  for (size_t i = 0; i < threads; i++) thread[i] = start(jump_over_frames, AS_ARGUMENT(size));
  jump_over_frames(AS_ARGUMENT(size));
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

// ---------------------------------------------------------------------------
// Coroutines.

enum { COROUTINES = 50 };
static ucontext_t scheduler[2], coroutine[COROUTINES];
static size_t rounds_done[COROUTINES];
static __thread size_t this_thread; // the scheduler that resumes

__attribute__((noinline)) static ucontext_t *my_scheduler(void) {
  atomic_signal_fence(memory_order_seq_cst);
  return &scheduler[this_thread];
}

// Holds blocks over each switch, as coroutines in the middle of things do.
static void coroutine_body(unsigned number) {
  for (size_t i = 0; i < 40; i++) {
    size_t n = (number * 977 + i * 131) % 6000 + 1;
    char *p = filled_block(n, number + i);
    swapcontext(&coroutine[number], my_scheduler());
    CHECK(filled(p, n, number + i));
    CHECK(p = realloc(p, n * 2));
    swapcontext(&coroutine[number], my_scheduler());
    check_and_free(p, n, number + i);
    rounds_done[number]++;
  }
  setcontext(my_scheduler());
}

static void *resume_all(void *thread) {
  this_thread = AS_NUMBER(thread);
  for (size_t i = 0; i < COROUTINES; i++)
    if (rounds_done[i] < 40) CHECK(swapcontext(my_scheduler(), &coroutine[i]) == 0);
  return NULL;
}

__attribute__((noinline)) static void *make_coroutine(unsigned number, size_t stack_size) {
  ucontext_t *c = &coroutine[number];
  void *stack = malloc(stack_size);
  CHECK(stack && getcontext(c) == 0);
  c->uc_stack.ss_sp = stack, c->uc_stack.ss_size = stack_size;
  makecontext(c, (void (*)(void))coroutine_body, 1, number);
  return stack;
}

// The stacks are blocks too. With threads, each resumption is by another thread than the last.
static void coroutines(size_t stack_size, size_t threads) {
  void *stack[COROUTINES];
  for (unsigned i = 0; i < COROUTINES; i++) stack[i] = make_coroutine(i, stack_size);
  for (size_t round = 0; round < 81; round++) {
    if (threads && round % 2) join(start(resume_all, AS_ARGUMENT(1)));
    else resume_all(AS_ARGUMENT(0));
  }
  for (size_t i = 0; i < COROUTINES; i++) CHECK(rounds_done[i] == 40), free(stack[i]);
}

// ---------------------------------------------------------------------------
// Signals that are waited for, and threads made by timers.

static void *wait_for_signals(void *set) {
  for (int i = 0; i < 300; i++) {
    int number;
    CHECK(sigwait(set, &number) == 0);
    churn_some((uint64_t)number, 20);
    arrived++;
  }
  return NULL;
}
static void signals_waited_for(size_t a, size_t b) {
  (void)a, (void)b;
  sigset_t set;
  sigemptyset(&set), sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  pthread_t t = start(wait_for_signals, &set);
  while (arrived < 300) kill(getpid(), SIGUSR2), churn_some(arrived, 5);
  join(t);
}

static void in_timer_thread(union sigval v) { churn_some((uint64_t)v.sival_int, 30), arrived++; }
static void timer_threads(size_t a, size_t b) {
  (void)a, (void)b;
  struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = in_timer_thread};
  struct itimerspec often = {{0, 500000}, {0, 500000}};
  timer_t t;
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &t) == 0 && timer_settime(t, 0, &often, NULL) == 0);
  while (arrived < 100) churn_some(arrived, 50);
  CHECK(timer_delete(t) == 0);
}

const case_t signals_cases[] = {
    EACH_RANGE("interrupted", interrupted, 150),
    {"interrupted_calloc_sizes", interrupted, 20000, 100},
    {"profiled", profiled, 0},
    {"profiled_with_threads", profiled, 4},
    {"handler_writes_a_block", handler_writes_a_block},
    {"every_thread_signalled_tiny", every_thread_signalled, 4, TINY},
    {"every_thread_signalled_l2", every_thread_signalled, 4, L2},
    {"every_thread_signalled_l25", every_thread_signalled, 4, L25},
    {"signal_stack_from_malloc", on_signal_stack, 64 * KIB, FROM_MALLOC},
    {"signal_stack_from_malloc_small", on_signal_stack, 16 * KIB, FROM_MALLOC},
    {"signal_stack_from_mmap", on_signal_stack, 64 * KIB, FROM_MMAP},
    {"allocating_on_signal_stack", allocating_on_signal_stack, 64 * KIB},
    {"allocating_on_signal_stack_small", allocating_on_signal_stack, 16 * KIB},
    {"write_barrier_l2", write_barrier, 50, 4096},
    {"write_barrier_aligned_64k", write_barrier, 50, 64 * KIB},
    {"jump_out_of_handler", jump_out_of_handler, 300, 0},
    {"jump_out_of_handler_with_threads", jump_out_of_handler, 300, 3},
    {"longjmp_frees_later_tiny", longjmp_frees_later, TINY, 0},
    {"longjmp_frees_later_l2", longjmp_frees_later, L2, 0},
    {"longjmp_frees_later_threads", longjmp_frees_later, 700, 3},
    {"coroutines_16k_stacks", coroutines, 16 * KIB, 0},
    {"coroutines_64k_stacks", coroutines, 64 * KIB, 0},
    {"coroutines_1m_stacks", coroutines, MIB, 0},
    {"coroutines_change_threads", coroutines, 64 * KIB, 1},
    {"signals_waited_for", signals_waited_for},
    {"timer_threads", timer_threads},
    {NULL},
};
