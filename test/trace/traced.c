// traced: a program whose calls of malloc and free are known, to be recorded.
//
//   traced MODE N [THREADS]
//
//   swap    THREADS threads each call malloc, calloc, posix_memalign and realloc N times;
//           then each frees the 3N blocks of its neighbour
//   pass    one thread allocates N blocks, the other frees each as soon as it is there
//   short   N threads, one after the other, each of which allocates and frees one block
//   fork    N blocks before fork; the child frees them, allocates N more and calls _exit
//   exec    N blocks, then becomes `traced swap N THREADS`
//   kill    N blocks, then kills itself
//   closed  closes all descriptors, then N blocks
//   late    N threads, one after the other, that allocate and free a block in the destructor
//           of a key, in each of the four rounds of destructors there are
//   storm   THREADS threads free each other's blocks and allocate new ones while N children
//           are forked; each child allocates and frees 100 blocks, half of them with a thread

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 100 // of every block

static unsigned long count;
static unsigned threads = 1;
static pthread_barrier_t barrier;
static _Atomic(void *) *blocks; // 3 * count of each thread; mapped, not malloc'ed

static void need(int good, const char *what) {
  if (good) return;
  perror(what);
  exit(1);
}

static void *swap(void *number) {
  size_t mine = (size_t)number * 3 * count, other = ((size_t)number + 1) % threads * 3 * count;
  for (size_t i = 0; i < count; i++) {
    void *p = malloc(SIZE), *q;
    blocks[mine + 3 * i] = realloc(p, 2 * SIZE);
    blocks[mine + 3 * i + 1] = calloc(1, SIZE);
    need(posix_memalign(&q, 64, SIZE) == 0, "posix_memalign");
    blocks[mine + 3 * i + 2] = q;
  }
  pthread_barrier_wait(&barrier);
  for (size_t i = 0; i < 3 * count; i++) free(blocks[other + i]);
  return NULL;
}

static void *pass(void *number) {
  for (size_t i = 0; i < count; i++) {
    if (number == NULL) {
      blocks[i] = malloc(SIZE);
      continue;
    }
    while (blocks[i] == NULL) sched_yield();
    free(blocks[i]);
  }
  return NULL;
}

static void *short_life(void *unused) {
  void *volatile p = malloc(SIZE);
  free(p);
  return unused;
}

static void run(void *(*function)(void *), unsigned how_many) {
  pthread_t ids[64];
  need(how_many <= 64, "THREADS");
  for (size_t i = 0; i < how_many; i++)
    need(pthread_create(&ids[i], NULL, function, (void *)i) == 0, "pthread_create");
  for (size_t i = 0; i < how_many; i++) pthread_join(ids[i], NULL);
}

static void allocate(void) {
  for (size_t i = 0; i < count; i++) blocks[i] = malloc(SIZE);
}

static pthread_key_t key;

static void late_destructor(void *rounds) {
  void *volatile p = malloc(SIZE);
  free(p);
  if ((size_t)rounds > 1) pthread_setspecific(key, (void *)((size_t)rounds - 1));
}

static void *late(void *unused) {
  pthread_setspecific(key, (void *)4);
  return unused;
}

static atomic_bool enough;

static void *exchange(void *number) {
  unsigned random = (unsigned)(size_t)number;
  while (!enough) {
    random = random * 1103515245 + 12345;
    free(atomic_exchange(&blocks[(random >> 8) % (3 * threads)], malloc(random >> 24)));
  }
  return NULL;
}

static void *child_work(void *unused) {
  void *volatile p[100];
  for (int i = 0; i < 100; i++) p[i] = malloc(SIZE);
  for (int i = 0; i < 100; i++) free(p[i]);
  return unused;
}

static void storm(void) {
  pthread_t ids[64];
  need(threads <= 64, "THREADS");
  for (size_t i = 0; i < threads; i++)
    need(pthread_create(&ids[i], NULL, exchange, (void *)i) == 0, "pthread_create");
  for (size_t i = 0; i < count; i++) {
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
      if (i % 2 == 0) run(child_work, 1);
      else child_work(NULL);
      exit(0);
    }
    int status;
    need(waitpid(child, &status, 0) == child && status == 0, "waitpid");
  }
  enough = true;
  for (size_t i = 0; i < threads; i++) pthread_join(ids[i], NULL);
}

static void fork_mode(void) {
  allocate();
  pid_t child = fork();
  need(child >= 0, "fork");
  if (child == 0) {
    for (size_t i = 0; i < count; i++) free(blocks[i]);
    allocate();
    _exit(0);
  }
  int status;
  need(waitpid(child, &status, 0) == child && status == 0, "waitpid");
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const char *mode = argv[1];
  count = strtoul(argv[2], NULL, 10);
  if (argc > 3) threads = (unsigned)strtoul(argv[3], NULL, 10);
  blocks = mmap(NULL, (3 * count * threads + 1) * sizeof *blocks, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  need(blocks != MAP_FAILED, "mmap");
  pthread_barrier_init(&barrier, NULL, threads);
  if (strcmp(mode, "swap") == 0) run(swap, threads);
  else if (strcmp(mode, "pass") == 0) run(pass, 2);
  else if (strcmp(mode, "short") == 0)
    for (size_t i = 0; i < count; i++) run(short_life, 1);
  else if (strcmp(mode, "late") == 0) {
    need(pthread_key_create(&key, late_destructor) == 0, "pthread_key_create");
    for (size_t i = 0; i < count; i++) run(late, 1);
  } else if (strcmp(mode, "storm") == 0) storm();
  else if (strcmp(mode, "fork") == 0) fork_mode();
  else if (strcmp(mode, "exec") == 0) {
    allocate();
    execl(argv[0], argv[0], "swap", argv[2], argc > 3 ? argv[3] : "1", (char *)NULL);
    return 1;
  } else if (strcmp(mode, "kill") == 0) {
    allocate();
    kill(getpid(), SIGKILL);
  } else if (strcmp(mode, "closed") == 0) {
    for (int i = 0; i < 1024; i++) close(i);
    allocate();
  } else
    return 2;
  return 0;
}
