// secure.c: misuse that the secure library detects and the default one does not, one case per
// run: secure CASE
//
// A misuse announces on stdout what HAKMEM must print ("expect: " and the line); then it must
// die by SIGABRT; run.py compares. The cases of HAKMEM_ABORT=0 need only survive. The last
// ones check properties of blocks. Both end with status 0.

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NEED(x) ((x) ? (void)0 : (dprintf(2, "secure.c:%d: %s\n", __LINE__, #x), _exit(3)))

static void *hide(const void *p) {
  const void *volatile hidden = p;
  return (void *)(uintptr_t)hidden;
}

__attribute__((format(printf, 1, 2))) static void expect(const char *format, ...) {
  char text[300], line[400];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  int n = snprintf(line, sizeof line, "expect: hakmem: %s\n", text);
  if (write(1, line, (size_t)n) != n) _exit(4);
}

static char *get(size_t size) {
  char *p = malloc(size);
  NEED(p && malloc_usable_size(p) == size);
  memset(p, 0x11, size);
  return p;
}

// Frees blocks until the quarantine has released all that it held.
static void pass_quarantine(void) {
  enum { N = 300 };
  static void *p[N];
  for (int i = 0; i < N; i++) p[i] = get(40);
  for (int i = 0; i < N; i++) free(p[i]);
}

// ---------------------------------------------------------------------------
// Overflows: into the slack, and where there is none, into the tail word.

static void overflow(size_t size, size_t at) {
  char *p = get(size);
  ((char *)hide(p))[size + at] = 0;
  expect("free(%p): overflow: what follows the %zu-byte block was overwritten", (void *)p, size);
  free(p);
}
static void overflow_tiny(void) { overflow(100, 0); }
static void overflow_tiny_last(void) { overflow(97, 6); }
static void overflow_nothing(void) { overflow(0, 0); }
static void overflow_l2(void) { overflow(5000, 0); }
static void overflow_l25(void) { overflow(200000, 0); }
static void overflow_huge(void) { overflow((3 << 20) + 100, 0); }

static void overflow_tail(size_t size) {
  char *p = get(size);
  ((char *)hide(p))[size] = 0; // a single NUL, as strcpy writes
  expect("free(%p): the end of the block of up to %zu bytes was overwritten, or it was never "
         "allocated", (void *)p, size);
  free(p);
}
static void overflow_tail_tiny(void) { overflow_tail(24); }
static void overflow_tail_1016(void) { overflow_tail(1016); }
static void overflow_tail_l2(void) { overflow_tail(5112); }
static void overflow_tail_l25(void) { overflow_tail(200696); }

static void overflow_realloc(void) {
  char *p = get(100);
  memset(hide(p + 100), 0x41, 4);
  expect("realloc(%p): overflow: what follows the 100-byte block was overwritten", (void *)p);
  p = realloc(p, 1000);
}

static void overflow_after_realloc(void) { // the seal moves with the end
  char *p = realloc(get(100), 90);
  NEED(p && malloc_usable_size(p) == 90);
  ((char *)hide(p))[90] = 0;
  expect("free(%p): overflow: what follows the 90-byte block was overwritten", (void *)p);
  free(p);
}

static void overflow_huge_grown(void) { // extra bytes of the mapping are not the block's
  size_t size = (4 << 20) + 10000;
  char *p = realloc(get(4 << 20), size);
  NEED(p && malloc_usable_size(p) == size);
  ((char *)hide(p))[size] = 0;
  expect("free(%p): overflow: what follows the %zu-byte block was overwritten", (void *)p, size);
  free(p);
}

static uintptr_t symbol(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);
  NEED(found);
  return (uintptr_t)found;
}

static void size_wrong(size_t size) {
  void (*sized)(void *, size_t) = (void (*)(void *, size_t))symbol("free_sized");
  char *p = get(size);
  expect("free_sized(%p): size %zu does not belong to a %zu-byte block", (void *)p, size - 10, size);
  sized(p, size - 10);
}

static void size_huge(void) {
  void (*sized)(void *, size_t) = (void (*)(void *, size_t))symbol("free_sized");
  sized(realloc(get(2 << 20), 3 << 20), 3 << 20);
  char *p = get(3 << 20);
  expect("free_sized(%p): size %zu does not belong to a %zu-byte block", (void *)p, (size_t)2 << 20,
         (size_t)3 << 20);
  sized(p, 2 << 20);
}

static void size_huge_halved(void) { // a block has the size it was shrunk to, so sizes stay exact
  char *p = realloc(get(1900000), 1000000);
  NEED(malloc_usable_size(p) == 1000000);
  p = realloc(get(2047992), 1023996); // half, less the seal
  NEED(malloc_usable_size(p) == 1023996);
  size_wrong(100);
}

// A block that could not be moved, for want of memory, has the size it was shrunk to; others keep
// theirs.
static void size_not_moved(void) {
  const struct rlimit none = {4096, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
  char *p = get(1000), *q = get(100), *large = get(800000);
  void (*sized)(void *, size_t) = (void (*)(void *, size_t))symbol("free_sized");
  NEED(setrlimit(RLIMIT_DATA, &none) == 0);
  while (malloc(60000)) continue;
  while (malloc(100)) continue;
  NEED(realloc(p, 100) == p && malloc_usable_size(p) == 100);
  NEED(realloc(large, 60000) == large); // a seal has 16 bits for what it does not use
  NEED(setrlimit(RLIMIT_DATA, &all) == 0);
  sized(large, 60000);
  sized(p, 100);
  expect("free_sized(%p): size 60 does not belong to a 100-byte block", (void *)q);
  sized(q, 60);
}

static void size_mallocx(void) { // rallocx left the block in place and sealed it anew
  void *(*allocate)(size_t, int) = (void *(*)(size_t, int))symbol("mallocx");
  void *(*resize)(void *, size_t, int) = (void *(*)(void *, size_t, int))symbol("rallocx");
  void (*sized)(void *, size_t, int) = (void (*)(void *, size_t, int))symbol("sdallocx");
  enum { ALIGN_64 = 6 };
  char *p = allocate(5000, ALIGN_64), *q = resize(p, 4000, ALIGN_64);
  NEED(p == q && malloc_usable_size(q) == 4000);
  sized(q, 4000, ALIGN_64);
  sized(allocate(0, 0), 0, 0);
  sized(malloc(0), 0, 0);
  q = allocate(100, 0);
  expect("sdallocx(%p): size 90 does not belong to a 100-byte block", (void *)q);
  sized(q, 90, 0);
}

static void underflow(void) { // the check of the block before it reveals it
  enum { N = 60 };
  char *p[N], *before = NULL, *block = NULL;
  for (int i = 0; i < N; i++) p[i] = get(56);
  for (int i = 0; i < N * N && !before; i++)
    if (p[i / N] + 64 == p[i % N]) before = p[i / N], block = p[i % N];
  NEED(before);
  ((char *)hide(block))[-1] ^= 1;
  expect("free(%p): the end of the block of up to 56 bytes was overwritten, or it was never "
         "allocated", (void *)before);
  free(before);
}

static void never_allocated(void) {
  char *slab = (char *)((uintptr_t)get(56) & ~(uintptr_t)0xffff);
  char *p = slab + 65536 - 64;
  expect("free(%p): the end of the block of up to 56 bytes was overwritten, or it was never "
         "allocated", (void *)p);
  free(hide(p));
}

// ---------------------------------------------------------------------------
// Use after free.

static void written(size_t size, size_t at) {
  char *p = get(size);
  free(p);
  ((char *)hide(p))[at] = 1;
  expect("use after free: the %zu-byte block at %p was written to", size, (void *)p);
  pass_quarantine();
}
static void written_first(void) { written(100, 0); }
static void written_31(void) { written(100, 31); }
static void written_last(void) { written(100, 99); }
static void written_tiny(void) { written(5, 4); }
static void written_8(void) { written(8, 7); }
static void written_l2(void) { written(5000, 4999); }
static void written_l25(void) { written(200000, 0); }
static void written_middle(void) { written(1000, 500); } // with HAKMEM_SECURE_FILL_BYTES

static void written_moved(void) {
  char *p = get(100), *q = realloc(p, 5000);
  NEED(q != p);
  ((char *)hide(p))[8] = 1;
  expect("use after free: the 100-byte block at %p was written to", (void *)p);
  pass_quarantine();
}

static void written_at_exit(void) {
  char *p = get(100);
  free(p);
  ((char *)hide(p))[8] = 1;
  expect("use after free: the 100-byte block at %p was written to", (void *)p);
}

// Without quarantine: the block is on a free list.
static void link_overwritten(void) {
  static char target[64] __attribute__((aligned(16)));
  char *p = get(100);
  free(p);
  *(void **)hide(p) = target;
  expect("use after free: the link of the free block at %p was overwritten", (void *)p);
  NEED(malloc(100) != target);
}

static void seal_overwritten(void) {
  char *p = get(100);
  free(p);
  memset(hide(p + 104), 0x41, 8);
  expect("use after free: the 104-byte block at %p was written to", (void *)p);
  hide(malloc(100));
}

// The program's SIGABRT handler allocates, as loggers do: it must not meet the same block again.
static void allocate_in_handler(int number) { hide(malloc(100)), (void)number; }
static void link_overwritten_handled(void) {
  signal(SIGABRT, allocate_in_handler);
  link_overwritten();
}
static void seal_overwritten_handled(void) {
  signal(SIGABRT, allocate_in_handler);
  seal_overwritten();
}

static void seal_one_bit(void) { // of the state of a large block, whose slack may be as much
  char *p = get(100000);
  size_t place = (((uintptr_t)p + 100008 + 4095) & ~(uintptr_t)4095) - (uintptr_t)p; // it ends with a page
  free(p);
  ((char *)hide(p))[place - 8] ^= 1;
  expect("use after free: the 100000-byte block at %p was written to", (void *)p);
  pass_quarantine();
}

static void seal_slack(void) { // of a small block: what the seal then names is filled, too
  char *p = get(33);
  free(p);
  ((char *)hide(p))[46] ^= 8; // of 48 bytes, the slack was 7
  expect("use after free: the 33-byte block at %p was written to", (void *)p);
  pass_quarantine();
}

// ---------------------------------------------------------------------------
// Double frees that only exact knowledge finds.

static void again(char *p, size_t size) {
  expect("free(%p): double free of a %zu-byte block", (void *)p, size);
  free(hide(p));
}

static void twice_apart(void) {
  char *p = get(100), *q = get(100);
  free(p), free(q);
  again(p, 100);
}

static void twice_long_after(void) { // on the free list: the size asked for is not known any more
  char *keep = get(100), *p = get(100);
  free(p);
  pass_quarantine();
  again(p, 104);
  free(keep);
}

// A run that grew: its first seal is in the place of that of a block of 4088 bytes, which the slab
// holds next.
static void twice_grown(void) {
  for (int i = 0; i < 100; i++) {
    char *p = aligned_alloc(65536, 4088);
    uint64_t *seal = hide(p + 4088), first = *seal;
    NEED(p && first != 0 && realloc(p, 60000) == p && *seal != first);
    free(p);
    pass_quarantine();
    malloc_trim(0); // a ring may have kept the run
    char *q = NULL;
    for (int k = 0; k < 32 && ((uintptr_t)p ^ (uintptr_t)q) >> 16; k++) q = malloc(4088);
    if (q == p || ((uintptr_t)p ^ (uintptr_t)q) >> 16) continue;
    expect("free(%p): double free of a 4088-byte block", (void *)p);
    free(p);
  }
  NEED(!"a slab that is used again");
}

static void *free_it(void *p) { return free(p), NULL; }
static void in_thread(void *(*function)(void *), void *p) {
  pthread_t thread;
  NEED(pthread_create(&thread, NULL, function, p) == 0 && pthread_join(thread, NULL) == 0);
}

static void twice_other_first(void) { // held back by the nursery that served the other thread
  char *keep = get(100), *p = get(100);
  in_thread(free_it, p);
  again(p, 100);
  free(keep);
}

static void written_other_at_exit(void) { // the same quarantine
  char *keep = get(100), *p = get(100);
  in_thread(free_it, p);
  ((char *)hide(p))[8] = 1;
  expect("use after free: the 100-byte block at %p was written to", (void *)p);
  free(keep);
}

static void twice_trimmed(void) { // its slab has no live block any more, and no seal is looked at
  static char *p[4000];
  for (int i = 0; i < 4000; i++) p[i] = get(1000);
  for (int i = 0; i < 4000; i++) free(p[i]);
  malloc_trim(0);
  expect("free(%p): double free of a 1016-byte block", (void *)p[2000]); // at most
  free(hide(p[2000]));
}

static void *again_there(void *p) { return again(p, 100), NULL; }
static void twice_own_first(void) {
  char *keep = get(100), *p = get(100);
  free(p);
  in_thread(again_there, p);
  free(keep);
}

static void inside(void) {
  char *p = get(100);
  expect("free(%p): not the start of a block; it lies 16 bytes inside the 100-byte block at %p",
         (void *)(p + 16), (void *)p);
  free(hide(p + 16));
}

static void inside_last(void) { // the last block of a SuperSlab: behind it is a gap
  char *p = get(496);
  for (int i = 0; i < 20000 && ((uintptr_t)p + 512) % ((uintptr_t)2 << 20); i++) p = get(496);
  NEED(((uintptr_t)p + 512) % ((uintptr_t)2 << 20) == 0);
  expect("free(%p): not the start of a block; it lies 16 bytes inside the 496-byte block at %p",
         (void *)(p + 16), (void *)p);
  free(hide(p + 16));
}

// ---------------------------------------------------------------------------
// Some of the above in a thread without a heap.

static void *in_nursery(void *run) { return ((void (*)(void))run)(), NULL; }
static void overflow_young(void) { in_thread(in_nursery, (void *)overflow_tiny_last); }
static void overflow_l2_young(void) { in_thread(in_nursery, (void *)overflow_l2); }
static void written_young(void) { in_thread(in_nursery, (void *)written_last); }
static void twice_young(void) { in_thread(in_nursery, (void *)twice_apart); }
static void inside_young(void) { in_thread(in_nursery, (void *)inside); }

// ---------------------------------------------------------------------------
// Properties of blocks.

static void not_reused_at_once(void) {
  char *p = get(100);
  free(p);
  for (int i = 0; i < 100; i++) {
    char *q = malloc(100);
    NEED(q != p);
    free(q);
  }
}

static void order_is_random(void) {
  int neighbours = 0;
  char *last = get(16);
  for (int i = 0; i < 200; i++) {
    char *p = get(16);
    neighbours += p == last + 32 || p == last - 32;
    last = p;
  }
  NEED(neighbours < 30); // nearly 200 without shuffling, about 4 with it
}

static void l2_is_random(void) {
  int ascending = 0;
  char *last = get(5000);
  for (int i = 0; i < 200; i++) {
    char *p = get(5000);
    ascending += p - last > 5000 && p - last < 5400; // the next block
    last = p;
  }
  NEED(ascending < 130); // nearly 200 without
}

static void slabs_are_random(void) {
  int ascending = 0;
  for (size_t size = 24; size <= 1016; size += 16) { // of 31 classes, each in its own slab
    static char *last;
    char *p = (char *)((uintptr_t)get(size) & ~(uintptr_t)0xffff);
    ascending += last && p == last + 65536;
    last = p;
  }
  NEED(ascending < 12); // 26 without
}

static void filled(int byte) {
  unsigned char *p = (unsigned char *)get(100);
  free(p);
  p = hide(p);
  for (int i = 0; i < 32; i++) NEED(p[i] == byte && p[84 + i % 16] == byte);
}
static void filled_with_poison(void) { filled(0xdf); }
static void filled_with_zero(void) { filled(0); }
static void not_filled(void) { filled(0x11); }

// HAKMEM_ABORT=0: links of blocks on their way to their owner are overwritten; the program goes on.
static void *free_every_second(void *blocks) {
  char **p = blocks;
  for (int i = 0; i < 3000; i += 2) free(p[i]);
  pass_quarantine();
  for (int i = 0; i < 3000; i += 2) memset(hide(p[i]), 0x41, 8);
  return NULL;
}
static void links_overwritten(void) {
  static char *p[3000];
  NEED(freopen("/dev/null", "w", stderr));
  for (int i = 0; i < 3000; i++) p[i] = get(100);
  in_thread(free_every_second, p);
  for (int i = 1; i < 1500; i += 2) free(p[i]);
  for (int i = 0; i < 20000; i++) get(100);
}

// HAKMEM_ABORT=0: two threads free the same block at the same moment; the program goes on. On
// a processor shared with busy threads a round may wait for all of them: hence the time limit.
enum { AT_ONCE = 60000 };
static char *_Atomic at_once;
static _Atomic int at_once_round, at_once_done;
static void *free_at_once(void *unused) {
  for (int i = 1; i <= AT_ONCE; i++) {
    for (unsigned looks = 1; at_once_round < i;)
      if ((looks++ & 65535) == 0) sched_yield();
    free(at_once);
    at_once_done = i;
  }
  return unused;
}
static void twice_at_once(void) {
  static const size_t sizes[] = {3000, 100, 100000};
  pthread_t thread;
  NEED(freopen("/dev/null", "w", stderr));
  NEED(pthread_create(&thread, NULL, free_at_once, NULL) == 0);
  time_t start = time(NULL);
  for (int i = 1; i <= AT_ONCE; i++) {
    if (time(NULL) - start > 10) {
      at_once = NULL;
      at_once_round = AT_ONCE;
      break;
    }
    char *p = malloc(sizes[i / (AT_ONCE / 3 + 1)]); // untouched: its seal is read at the same time
    NEED(p);
    at_once = p;
    at_once_round = i;
    free(p);
    while (at_once_done < i) sched_yield();
  }
  NEED(pthread_join(thread, NULL) == 0);
}

// Whether the byte can be read: write refuses what it cannot read.
static int readable(const char *p) {
  int fd[2];
  NEED(pipe(fd) == 0);
  int yes = write(fd[1], p, 1) == 1;
  close(fd[0]), close(fd[1]);
  return yes;
}

static void gap_behind_superslab(void) {
  const uintptr_t mask = ~(((uintptr_t)2 << 20) - 1);
  for (int i = 0; i < 40; i++) { // 8 MiB
    uintptr_t superslab = (uintptr_t)get(200000) & mask;
    NEED(readable((char *)superslab) && !readable((char *)(superslab + (2 << 20))));
    NEED(!readable((char *)(superslab - 1)));
  }
}

// Behind a huge block lies a page that faults, and where nothing else can be mapped.
static void has_guard(char *p, size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *end = (char *)(((uintptr_t)p + size + 8 + page - 1) & ~(page - 1)), *most = end + 65536;
  p[size - 1] = 1;
  while (end < most && readable(end)) end += page; // a block that has grown may have spare pages
  NEED(end < most && !readable(end));
  NEED(mmap(end, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED);
}

static void guard_behind_huge(void) {
  static char *p[3][3];
  const size_t mib = (size_t)1 << 20;
  for (size_t i = 0; i < 3; i++) {
    has_guard(p[0][i] = get(1 * mib + i * 5000), 1 * mib + i * 5000);
    has_guard(p[1][i] = calloc(5 * mib - 8 + i, 1), 5 * mib - 8 + i);
    has_guard(p[2][i] = aligned_alloc(4 * mib << i, 3 * mib), 3 * mib);
  }
  for (size_t size = 1 * mib; size < 9 * mib; size += size / 50) {
    has_guard(p[0][1] = realloc(p[0][1], size), size);
    memset(p[0][1], 7, size); // in full: it may get huge pages
  }
  for (size_t size = 8 * mib; size > 2 * mib; size -= size / 9) {
    has_guard(p[0][1] = realloc(p[0][1], size), size);
    NEED(p[0][1][0] == 7 && p[0][1][size / 2] == 7);
  }
  for (size_t i = 0; i < 9; i++) {
    free(p[i / 3][i % 3]);
    NEED(!readable(p[i / 3][i % 3]));
  }
}

// Beside a block of more than half of the address space there is no room for a larger one.
static void grows_without_room(void) {
  const struct rlimit little = {1 << 30, RLIM_INFINITY};
  size_t size = 600 << 20;
  NEED(setrlimit(RLIMIT_AS, &little) == 0);
  char *behind = get(100 << 20), *p = malloc(size);
  free(behind);
  const size_t room = 12 << 20;
  char *end = p + size + 2 * sysconf(_SC_PAGESIZE); // of the guard
  if (!p || mmap(end, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != end) {
    printf("skipped: something lies behind the block at %p\n", (void *)p);
    exit(77);
  }
  NEED(munmap(end, room) == 0);
  for (int i = 0; i < 100; i++) {
    p[size - 1] = (char)i;
    NEED(realloc(p, size + 100000) == p && p[size - 1] == i);
    has_guard(p, size += 100000);
  }
  free(p);
  NEED(malloc(700 << 20)); // all of it has gone back
}

// Statistics read all descriptors, and those of a gap may be the first that do not exist.
static void every_count_of_superslabs(void) {
  for (int i = 0; i < 140; i++) { // two steps of descriptors, a gap each
    NEED(malloc((size_t)1020 << 10) && malloc((size_t)1020 << 10));
    NEED(mallinfo2().uordblks != 0);
  }
}

// Every second page of a mapping gets other rights until the kernel refuses.
static void no_mappings_left(void) {
  size_t pages = 1 << 18;
  long most = 0;
  FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
  if (f) {
    if (fscanf(f, "%ld", &most) != 1) most = 0;
    fclose(f);
  }
  if (most > 250000) { // these are too few
    printf("skipped: vm.max_map_count is %ld\n", most);
    exit(77);
  }
  char *map = mmap(NULL, pages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  NEED(map != MAP_FAILED);
  size_t i = 0;
  char *huge = get((3 << 20) - 8), *around[] = {huge - 4096, huge + (3 << 20)};
  for (int k = 0; k < 2; k++) // would be merged with the block
    mmap(around[k], 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  for (int n = 0; n < 400000; n++) get(100); // 40 MiB, with gaps
  while (i < pages && mprotect(map + i * 4096, 4096, PROT_READ) == 0) i += 2;
  NEED(i < pages);
  for (int n = 0; n < 200000; n++) get(100); // 20 MiB in the gaps
  free(huge);
  NEED(!readable(huge)); // it was no hole in a mapping, which the kernel would have refused to make
}

// ---------------------------------------------------------------------------

#define CASE(name) {#name, name}
static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    CASE(overflow_tiny), CASE(overflow_tiny_last), CASE(overflow_nothing), CASE(overflow_l2),
    CASE(overflow_l25), CASE(overflow_huge), CASE(overflow_tail_tiny), CASE(overflow_tail_1016),
    CASE(overflow_tail_l2), CASE(overflow_tail_l25), CASE(overflow_realloc),
    CASE(overflow_after_realloc), CASE(overflow_huge_grown), CASE(size_huge), CASE(size_huge_halved), CASE(size_mallocx), CASE(size_not_moved), CASE(underflow), CASE(never_allocated), CASE(written_first),
    CASE(written_31), CASE(written_last), CASE(written_tiny), CASE(written_8), CASE(written_l2),
    CASE(written_l25), CASE(written_middle), CASE(written_moved), CASE(written_at_exit), CASE(written_other_at_exit), CASE(link_overwritten),
    CASE(link_overwritten_handled), CASE(seal_overwritten_handled),
    CASE(seal_overwritten), CASE(seal_one_bit), CASE(seal_slack), CASE(twice_apart), CASE(twice_long_after), CASE(twice_trimmed), CASE(twice_grown), CASE(twice_other_first),
    CASE(twice_own_first), CASE(twice_at_once), CASE(links_overwritten), CASE(inside), CASE(inside_last),
    CASE(overflow_young), CASE(overflow_l2_young), CASE(written_young), CASE(twice_young), CASE(inside_young),
    CASE(not_reused_at_once), CASE(order_is_random),
    CASE(l2_is_random), CASE(slabs_are_random), CASE(filled_with_poison), CASE(filled_with_zero), CASE(not_filled),
    CASE(gap_behind_superslab), CASE(guard_behind_huge), CASE(grows_without_room), CASE(every_count_of_superslabs), CASE(no_mappings_left),
};

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (strcmp(cases[i].name, argv[1]) != 0) continue;
    cases[i].run();
    return 0;
  }
  return 2;
}
