// guard.c: misuse of blocks beside guard pages, one case per run: guard CASE
//
// To be run with HAKMEM_GUARD=1/1: the first block of a size then has a page of its own.
// "expect: " on stdout announces the first line that stderr must have; guard.py compares.

#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hakmem/hakmem.h"

#define NEED(x) ((x) ? (void)0 : (dprintf(2, "guard.c:%d: %s\n", __LINE__, #x), _exit(3)))
#define EXPECT(...) (printf("expect: hakmem: " __VA_ARGS__), putchar('\n'), fflush(stdout))

static volatile char sink;
static char output[4096];

static char *hide(void *p) {
  void *volatile hidden = p;
  return hidden;
}

static uint64_t guarded(void) {
  bool (*get)(hak_stats_t *, size_t) = (bool (*)(hak_stats_t *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "hak_stats_get");
  hak_stats_t now;
  NEED(get && get(&now, sizeof now));
  return now.guard_allocs;
}

static uintptr_t page(const char *p) { return (uintptr_t)p / (uintptr_t)getpagesize(); }

__attribute__((noinline)) static char *allocate(size_t size) {
  char *p;
  uint64_t before;
  size_t tries = 0;
  do { // blocks come first that the C library got before there were guards and has freed
    before = guarded();
    NEED((p = malloc(size)) && tries++ < 100);
  } while (guarded() == before);
  NEED(malloc_usable_size(p) == size);
  memset(p, 0x5a, size);
  return hide(p);
}
__attribute__((noinline)) static void release(char *p) { free(hide(p)); }

// A guarded block at the end of its page.
static char *at_end(size_t size) {
  for (size_t tries = 0; tries < 40; tries++, size += 16) {
    char *p = allocate(size);
    if (page(p + size) == page(p) + 1) return p;
  }
  NEED(!"a block at the end of a page");
  return NULL;
}
static char *at_start(size_t size) {
  for (size_t tries = 0; tries < 40; tries++, size += 16) {
    char *p = allocate(size);
    if (page(p - 1) == page(p) - 1) return p;
  }
  NEED(!"a block at the start of a page");
  return NULL;
}

static void use_after_free(void) {
  char *p = at_end(512);
  size_t size = malloc_usable_size(p);
  release(p);
  EXPECT("use after free: address %p lies 100 bytes inside the %zu-byte block at %p",
         (void *)(p + 100), size, (void *)p);
  sink = hide(p)[100];
}

static void overflow(void) {
  char *p = at_end(512);
  size_t size = malloc_usable_size(p);
  EXPECT("overflow: address %p lies 0 bytes behind the %zu-byte block at %p", (void *)(p + size),
         size, (void *)p);
  hide(p)[size] = 1;
}

static void underflow(void) {
  char *p = at_start(512);
  EXPECT("underflow: address %p lies 1 bytes before the %zu-byte block at %p", (void *)(p - 1),
         malloc_usable_size(p), (void *)p);
  hide(p)[-1] = 1;
}

static void overflow_of_aligned(void) { // and the size is the one asked for
  char *p = aligned_alloc(256, 100);
  NEED(p && malloc_usable_size(p) == 100);
  hide(p)[100] = 0;
  EXPECT("free(%p): overflow: what follows the 100-byte block was overwritten", (void *)p);
  release(p);
}

static void overflow_by_a_little(void) {
  char *p = allocate(500);
  hide(p)[500] = 0;
  EXPECT("free(%p): overflow: what follows the 500-byte block was overwritten", (void *)p);
  release(p);
}

static void double_free(void) {
  char *p = at_end(512);
  size_t size = malloc_usable_size(p);
  release(p);
  EXPECT("free(%p): double free of a %zu-byte block", (void *)p, size);
  release(p);
}

// A guarded block has the size that was asked for, so that no other one is right.
static void wrong_size(void) {
  void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_sized");
  char *p = allocate(500);
  EXPECT("free_sized(%p): size 300 does not belong to a 500-byte block", (void *)p);
  free_sized(p, 300);
}

// If the next block is refused a freed block's page, the place still describes the freed one.
static void refused_page(void) {
  enum { PLACES = 256, TRIES = 4 }; // from guard.c: one block tries at most so many places
  const struct rlimit none = {4096, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
  char *p = at_end(512);
  size_t size = malloc_usable_size(p);
  release(p);
  NEED(setrlimit(RLIMIT_DATA, &none) == 0);
  for (int i = 0; i < PLACES * TRIES; i++) free(malloc(512));
  NEED(setrlimit(RLIMIT_DATA, &all) == 0);
  EXPECT("free(%p): double free of a %zu-byte block", (void *)p, size);
  release(p);
}

// Blocks that cannot be moved, for want of memory, stay where they are, and nothing else is touched.
static void not_moved(void) {
  enum { BLOCKS = 16, SIZE = 4000 };
  const struct rlimit none = {4096, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
  void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_sized");
  char *p[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) memset(p[i] = allocate(SIZE), i + 1, SIZE);
  NEED(setrlimit(RLIMIT_DATA, &none) == 0);
  while (malloc(100)) continue;
  for (int i = 0; i < BLOCKS; i++) NEED(realloc(p[i], 100) == p[i]);
  NEED(setrlimit(RLIMIT_DATA, &all) == 0);
  for (int i = 0; i < BLOCKS; i++) {
    for (int at = 0; at < SIZE; at++) NEED(p[i][at] == i + 1);
    free_sized(p[i], 100);
  }
}

// Nothing wrong: contents survive realloc, calloc is zero, places are used again.
static void no_misuse(void) {
  for (int i = 0; i < 20000; i++) {
    size_t size = (size_t)(i * 37) % 4096 + 1;
    char *p = calloc(1, size);
    NEED(p && p[0] == 0 && p[size - 1] == 0);
    memset(p, 0x33, size);
    p = realloc(p, size * 2);
    NEED(p && p[0] == 0x33 && p[size - 1] == 0x33);
    if (i % 3) free(p);
    size_t alignment = (size_t)32 << i % 8;
    char *q = aligned_alloc(alignment, size);
    NEED(q && (uintptr_t)q % alignment == 0 && malloc_usable_size(q) >= size);
    memset(q, 0x44, malloc_usable_size(q));
    free(q);
  }
}

// A handler installed before the library was loaded runs as if the library were absent.
static sigjmp_buf back;
static char stack[65536];
static volatile int handled;

static void handler(int number) {
  sigset_t now;
  char here;
  NEED(number == SIGSEGV && ++handled == 1 && sigprocmask(SIG_BLOCK, NULL, &now) == 0);
  NEED(sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGSEGV) == 0); // SA_NODEFER
  NEED((uintptr_t)hide(&here) - (uintptr_t)stack >= sizeof stack);          // no SA_ONSTACK
  siglongjmp(back, 1);
}

// One that wants to know more about the signal.
static int number_wanted;
static char *place_wanted;
static void handler_of_info(int number, siginfo_t *info, void *context) {
  NEED(number == number_wanted && ++handled == 1);
  NEED(info->si_signo == number && info->si_addr == place_wanted && context);
  siglongjmp(back, 1);
}

static void before_all(int argc, char **argv, char **environment) {
  (void)environment;
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER | (int)SA_RESETHAND};
  struct sigaction info = {.sa_sigaction = handler_of_info, .sa_flags = SA_SIGINFO};
  if (argc == 2 && strcmp(argv[1], "info_of_overflow") == 0) sigaction(SIGSEGV, &info, NULL);
  if (argc == 2 && strcmp(argv[1], "info_of_bus") == 0) sigaction(SIGBUS, &info, NULL);
  if (argc != 2 || strncmp(argv[1], "handler", 7) != 0) return;
  sigaddset(&action.sa_mask, SIGUSR1);
  sigaction(SIGSEGV, &action, NULL);
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) =
    before_all;

static void handler_once(void) {
  const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(page != MAP_FAILED && sigaltstack(&other, NULL) == 0);
  if (sigsetjmp(back, 1) == 0) sink = page[0];
  NEED(handled == 1);
}

static void handler_twice(void) {
  handler_once();
  sink = *(volatile char *)hide((char *)4096); // SA_RESETHAND
}

static void info_of(int number, char *place) {
  number_wanted = number;
  place_wanted = place;
  if (sigsetjmp(back, 1) == 0) sink = *hide(place);
  NEED(handled == 1);
}

static void info_of_overflow(void) {
  char *p = at_end(512);
  size_t size = malloc_usable_size(p);
  EXPECT("overflow: address %p lies 0 bytes behind the %zu-byte block at %p", (void *)(p + size),
         size, (void *)p);
  info_of(SIGSEGV, p + size);
}

static char *behind_a_file(void) {
  int fd = memfd_create("empty", MFD_CLOEXEC);
  char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  NEED(fd >= 0 && page != MAP_FAILED);
  return page;
}
static void info_of_bus(void) { info_of(SIGBUS, behind_a_file()); }
static void bus(void) { sink = *hide(behind_a_file()); }

// Signals that were sent end the process as well: no access is retried after them.
static void sent_segv(void) { NEED(kill(getpid(), SIGSEGV) == 0); }
static void sent_bus(void) { NEED(kill(getpid(), SIGBUS) == 0); }

extern void __register_frame(const void *);   // libgcc
extern void __deregister_frame(const void *); // libgcc

// The program's table for the unwinder, by its index (Linux Standard Base, .eh_frame_hdr).
static int find_frames(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  for (size_t i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type != PT_GNU_EH_FRAME) continue;
    const unsigned char *index = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    int32_t distance;
    NEED(index[0] == 1 && index[1] == 0x1b); // version; four bytes, relative to their place
    memcpy(&distance, index + 4, sizeof distance);
    *(const void **)found = index + 4 + distance;
  }
  return 1; // the first is the program
}

// As just-in-time compilers do. Before it searches such a table for the first time, libgcc (before
// 13) sorts it: it allocates, with the lock held that each walk of a stack takes.
static void registered_frames(void) {
  const void *frames = NULL;
  dl_iterate_phdr(find_frames, &frames);
  NEED(frames);
  alarm(20);
  for (size_t size = 16; size < 2048; size *= 2) {
    __register_frame(frames);
    free(allocate(size));
    __deregister_frame(frames);
  }
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"use_after_free", use_after_free}, {"overflow", overflow},
               {"underflow", underflow}, {"overflow_of_aligned", overflow_of_aligned},
               {"overflow_by_a_little", overflow_by_a_little},
               {"double_free", double_free}, {"wrong_size", wrong_size}, {"refused_page", refused_page}, {"not_moved", not_moved}, {"no_misuse", no_misuse},
               {"registered_frames", registered_frames},
               {"handler_once", handler_once}, {"handler_twice", handler_twice},
               {"info_of_overflow", info_of_overflow}, {"info_of_bus", info_of_bus}, {"bus", bus},
               {"sent_segv", sent_segv}, {"sent_bus", sent_bus}};
  setvbuf(stdout, output, _IOFBF, sizeof output);
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) return cases[i].run(), 0;
  return 2;
}
