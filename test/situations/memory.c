// memory.c: what happens to memory: given back, zero, not doubled, not lost.

#include "situations.h"

#include <malloc.h>
#include <sys/mman.h>

static void reach(size_t kib) { // by itself; within 2 s, more where others need the processors
  struct timespec began = time_now();
  while (rss_kib() > kib && seconds_since(&began) < 15) usleep(20000);
  size_t now = rss_kib();
  if (now > kib) dprintf(2, "%zu KiB resident, not %zu\n", now, kib);
  CHECK(now <= kib);
}

static void **make_blocks(size_t size, size_t bytes, size_t *count) {
  *count = bytes / size;
  void **p = malloc(*count * sizeof *p);
  CHECK(p);
  for (size_t i = 0; i < *count; i++) CHECK(p[i] = malloc(size)), memset(p[i], (int)i | 1, size);
  return p;
}
static void free_blocks(void **p, size_t count) {
  for (size_t i = 0; i < count; i++) free(p[i]);
  free(p);
}

// ---------------------------------------------------------------------------
// Peaks.

static void peak_then_idle(size_t size, size_t b) {
  (void)b;
  size_t before = rss_kib(), count;
  void **p = make_blocks(size, 96 * MIB, &count);
  CHECK(rss_kib() >= before + 90 * KIB);
  free_blocks(p, count);
  reach(before + 24 * KIB);
}

// All threads are at their peak at the same moment. If one freed while another still grew, an
// allocator might well keep for the other what the first gave up.
static pthread_barrier_t all_have_theirs;
static void *peak_in_thread(void *size) {
  size_t count;
  void **p = make_blocks(AS_NUMBER(size), 24 * MIB, &count);
  pthread_barrier_wait(&all_have_theirs);
  free_blocks(p, count);
  return NULL;
}
static void peak_in_threads_then_idle(size_t size, size_t threads) {
  pthread_t thread[8];
  size_t before = rss_kib();
  pthread_barrier_init(&all_have_theirs, NULL, (unsigned)threads);
  for (size_t i = 0; i < threads; i++) thread[i] = start(peak_in_thread, AS_ARGUMENT(size));
  for (size_t i = 0; i < threads; i++) join(thread[i]);
  reach(before + 32 * KIB);
}

// Threads that free all they have and sleep: nobody tidies up after them, and what each keeps of
// every size that it used adds up. Of 256 MiB 6 to 28 stay (secure library: 51 to 97); glibc: 170.
static pthread_barrier_t asleep;
static void *peak_and_sleep(void *seed) {
  enum { N = 4000 };
  void **p = malloc(N * sizeof *p);
  uint64_t random = AS_NUMBER(seed) + 1;
  size_t bytes = 0, count = 0;
  while (bytes < 4 * MIB) {
    size_t size = 1300 + chance(&random) % 6700;
    CHECK(p && count < N && (p[count] = malloc(size)));
    memset(p[count++], 1, size);
    bytes += size;
  }
  pthread_barrier_wait(&all_have_theirs);
  free_blocks(p, count);
  pthread_barrier_wait(&asleep);
  pthread_barrier_wait(&asleep);
  return NULL;
}
static void peak_then_threads_asleep(size_t threads, size_t most_mib) {
  pthread_t thread[64];
  size_t before = rss_kib();
  pthread_barrier_init(&all_have_theirs, NULL, (unsigned)threads);
  pthread_barrier_init(&asleep, NULL, (unsigned)threads + 1);
  for (size_t i = 0; i < threads; i++) thread[i] = start(peak_and_sleep, AS_ARGUMENT(i));
  pthread_barrier_wait(&asleep); // all have freed theirs
  reach(before + most_mib * KIB);
  pthread_barrier_wait(&asleep);
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

// Every tenth block stays. Where the kernel may make huge pages again (hg) it fills the holes with
// memory within a minute (khugepaged), so what has holes must not be in such a mapping.
static void holes_stay(size_t size, size_t b) {
  (void)b;
  size_t count, rss = 0, mapped = 0, in_mapping = 0, kib = 0;
  void **p = make_blocks(size, 128 * MIB, &count);
  for (size_t i = 0; i < count; i++)
    if (i % 10 != 0) free(p[i]), p[i] = NULL;
  FILE *f = fopen("/proc/self/smaps", "r");
  CHECK(f);
  char line[1000];
  while (fgets(line, sizeof line, f)) {
    sscanf(line, "Size: %zu kB", &in_mapping);
    sscanf(line, "Rss: %zu kB", &kib);
    if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg")) rss += kib, mapped += in_mapping;
  }
  fclose(f);
  if (rss < mapped / 4 * 3) dprintf(2, "%zu KiB resident of %zu with huge pages\n", rss, mapped);
  CHECK(rss >= mapped / 4 * 3);
  free_blocks(p, count);
}

static void trim_after_peak(size_t size, size_t b) {
  (void)b;
  size_t before = rss_kib(), count;
  void **p = make_blocks(size, 64 * MIB, &count);
  free_blocks(p, count);
  malloc_trim(0);
  CHECK(rss_kib() <= before + 6 * KIB);
  churn(1, 500);
}

static void peaks_repeated(size_t size, size_t times) {
  size_t first = 0, count;
  for (size_t i = 0; i < times; i++) {
    void **p = make_blocks(size, 32 * MIB, &count);
    if (i == 0) first = rss_kib();
    CHECK(rss_kib() <= first + 8 * KIB);
    free_blocks(p, count);
  }
}

// Phases of different sizes with the same number of live bytes.
static void phases(size_t a, size_t b) {
  (void)a, (void)b;
  static const size_t sizes[] = {32, 200, 1000, 3000, 9000, 40000, 100000, 700000, 3000000};
  size_t before = rss_kib(), count;
  for (int round = 0; round < 3; round++)
    for (size_t i = 0; i < COUNT(sizes); i++) {
      void **p = make_blocks(sizes[i], 24 * MIB, &count);
      CHECK(rss_kib() <= before + 72 * KIB);
      free_blocks(p, count);
    }
}

// Two sizes in turn: each meets holes of the other one.
static void alternating(size_t one, size_t other) {
  enum { N = 1000 };
  static void *p[N];
  size_t before = rss_kib();
  for (size_t i = 0; i < 20 * N; i++) {
    free(p[i % N]);
    size_t n = (i / N + i) % 2 ? one : other;
    CHECK(p[i % N] = malloc(n));
    memset(p[i % N], 1, n);
  }
  CHECK(rss_kib() <= before + N * (one + other) / KIB * 2 + 8 * KIB);
  for (size_t i = 0; i < N; i++) free(p[i]);
}

// One block in each 64 KiB stays live, and stays intact while other sizes come and go.
static void one_survivor(size_t size, size_t then) {
  size_t before = rss_kib(), count, per = 64 * KIB / size, n;
  void **p = make_blocks(size, 48 * MIB, &count);
  for (size_t i = 0; i < count; i++)
    if (i % per != 0) free(p[i]), p[i] = NULL;
  void **q = make_blocks(then, 40 * MIB, &n);
  CHECK(rss_kib() <= before + 110 * KIB);
  free_blocks(q, n);
  for (size_t i = 0; i < count; i += per) CHECK(*(char *)p[i] == (char)(i | 1));
  free_blocks(p, count);
}

static void random_lifetimes(size_t largest, size_t b) {
  (void)b;
  enum { N = 4000 };
  static struct {
    char *p;
    size_t n;
  } held[N];
  size_t before = rss_kib(), live = 0;
  uint64_t random = 7;
  for (size_t i = 0; i < 40 * N; i++) {
    size_t at = chance(&random) % N;
    live -= held[at].n;
    free(held[at].p);
    held[at].n = chance(&random) % (largest >> chance(&random) % 8) + 1;
    CHECK(held[at].p = malloc(held[at].n));
    memset(held[at].p, 1, held[at].n);
    live += held[at].n;
  }
  CHECK(rss_kib() <= before + live / KIB * 2 + 12 * KIB);
  for (size_t i = 0; i < N; i++) free(held[i].p);
}

// ---------------------------------------------------------------------------
// Zero and untouched memory.

static void calloc_after_dirt(size_t size, size_t b) {
  (void)b;
  size_t count = size <= 10000 ? 300 : size <= MIB ? 30 : 4;
  void *p[300];
  for (int round = 0; round < 4; round++) {
    for (size_t i = 0; i < count; i++) {
      CHECK(p[i] = calloc(1, size));
      CHECK(all_zero(p[i], size));
      memset(p[i], 0xee, malloc_usable_size(p[i]));
    }
    for (size_t i = 0; i < count; i += 2) free(p[i]);
    for (size_t i = 1; i < count; i += 2) free(p[i]);
    if (round == 1) malloc_trim(0);
  }
}

static void *dirty(void *size) {
  void *p[8];
  for (size_t i = 0; i < COUNT(p); i++) {
    CHECK(p[i] = malloc(AS_NUMBER(size)));
    memset(p[i], 0xdd, AS_NUMBER(size));
  }
  for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
  return NULL;
}
static void calloc_after_others_dirt(size_t size, size_t b) {
  (void)b;
  for (int i = 0; i < 10; i++) {
    join(start(dirty, AS_ARGUMENT(size)));
    void *p[8];
    for (size_t j = 0; j < COUNT(p); j++) CHECK((p[j] = calloc(size, 1)) && all_zero(p[j], size));
    for (size_t j = 0; j < COUNT(p); j++) memset(p[j], 1, size), free(p[j]);
  }
}

// Memory that one size left dirty must be zero for another.
static void calloc_after_other_size(size_t dirt, size_t size) {
  for (int round = 0; round < 3; round++) {
    size_t count, n;
    void **p = make_blocks(dirt, 16 * MIB, &count);
    free_blocks(p, count);
    p = malloc((n = 12 * MIB / size) * sizeof *p);
    for (size_t i = 0; i < n; i++) CHECK((p[i] = calloc(1, size)) && all_zero(p[i], size));
    free_blocks(p, n);
  }
}

static void untouched(size_t size, size_t zeroed) {
  size_t before = rss_kib();
  char *p = zeroed ? calloc(1, size) : malloc(size);
  CHECK(p);
  CHECK(rss_kib() < before + 4 * KIB);
  for (size_t i = 0; i < size; i += size / 8) {
    CHECK(!zeroed || p[i] == 0);
    p[i] = 1;
  }
  CHECK(rss_kib() < before + 24 * KIB); // 8 huge pages at most
  free(p);
  CHECK(rss_kib() < before + 4 * KIB);
}

static void many_untouched(size_t size, size_t bytes) {
  size_t count = bytes / size, before = rss_kib();
  void **p = malloc(count * sizeof *p);
  for (size_t i = 0; i < count; i++) CHECK(p[i] = malloc(size));
  CHECK(rss_kib() < before + bytes / KIB / 8);
  for (size_t i = 0; i < count; i += 97) memset(p[i], 1, size);
  free_blocks(p, count);
}

// ---------------------------------------------------------------------------
// realloc.

static void grow_by_steps(size_t limit, size_t step) {
  char *p = NULL;
  for (size_t n = step; n <= limit; n += step) {
    CHECK(p = realloc(p, n));
    p[n - 1] = (char)(n / step);
    if (n > step) CHECK(p[n - step - 1] == (char)(n / step - 1));
  }
  for (size_t n = step; n <= limit; n += step) CHECK(p[n - 1] == (char)(n / step));
  free(p);
}

static void grow_two_by_turns(size_t limit, size_t step) {
  char *p = NULL, *q = NULL;
  for (size_t n = step; n <= limit; n += step) {
    CHECK((p = realloc(p, n)) && (q = realloc(q, n)));
    p[n - 1] = 'p', q[n - 1] = 'q';
  }
  for (size_t n = step; n <= limit; n += step) CHECK(p[n - 1] == 'p' && q[n - 1] == 'q');
  free(p), free(q);
}

// The old and the new block are never resident together.
static void grow_without_doubling(size_t from, size_t to) {
  char *p = malloc(from);
  CHECK(p);
  memset(p, 1, from);
  size_t before = rss_kib() - from / KIB;
  for (size_t n = from * 2; n <= to; n *= 2) {
    CHECK(p = realloc(p, n));
    memset(p + n / 2, 1, n / 2);
  }
  CHECK(status_kib("VmHWM:") < before + to / KIB * 5 / 4);
  for (size_t i = 0; i < to; i += 4096) CHECK(p[i] == 1);
  free(p);
}

static void shrink_gives_back(size_t from, size_t to) {
  size_t before = rss_kib();
  char *p = filled_block(from, 3);
  CHECK(p = realloc(p, to));
  CHECK(rss_kib() < before + from / KIB / 4 + to / KIB + 2 * KIB);
  check_and_free(p, to, 3);
}

static void shrink_many(size_t from, size_t to) {
  size_t before = rss_kib(), count;
  void **p = make_blocks(from, 64 * MIB, &count);
  for (size_t i = 0; i < count; i++) CHECK(p[i] = realloc(p[i], to));
  // The memory that they gave up serves other sizes.
  size_t n;
  void **q = make_blocks(from / 3, 32 * MIB, &n);
  CHECK(rss_kib() < before + 72 * KIB);
  for (size_t i = 0; i < count; i++) CHECK(((char *)p[i])[to - 1] == (char)(i | 1));
  free_blocks(q, n);
  free_blocks(p, count);
}

static void up_and_down(size_t low, size_t high) {
  char *p = filled_block(low, 5);
  for (int i = 0; i < 50; i++) {
    CHECK((p = realloc(p, high)) && filled(p, low, 5));
    p[high - 1] = 1;
    CHECK((p = realloc(p, low)) && filled(p, low, 5));
  }
  free(p);
}

// ---------------------------------------------------------------------------
// Alignment.

static void large_alignment(size_t alignment, size_t size) {
  size_t before = rss_kib();
  void *p[3];
  for (size_t i = 0; i < COUNT(p); i++) {
    CHECK(posix_memalign(&p[i], alignment, size) == 0 && (uintptr_t)p[i] % alignment == 0);
    fill(p[i], size < MIB ? size : MIB, i);
  }
  CHECK(rss_kib() < before + 24 * KIB);
  for (size_t i = 0; i < COUNT(p); i++) check_and_free(p[i], size < MIB ? size : MIB, i);
}

static void many_aligned(size_t alignment, size_t size) {
  enum { N = 400 };
  void *p[N];
  size_t before = rss_kib();
  for (int round = 0; round < 5; round++) {
    for (size_t i = 0; i < N; i++) {
      CHECK((p[i] = memalign(alignment, size)) && (uintptr_t)p[i] % alignment == 0);
      memset(p[i], 1, size);
    }
    CHECK(rss_kib() <
          before + N * (alignment < 64 * KIB ? alignment + size : size) / KIB * 2 + 8 * KIB);
    for (size_t i = 0; i < N; i++) free(p[i]);
  }
}

// ---------------------------------------------------------------------------
// Giving back, against use.

static _Atomic bool stop;
static void *trim_until_stopped(void *unused) {
  while (!stop) malloc_trim(0), usleep(200);
  return unused;
}
static void *use_until_stopped(void *size) {
  size_t n = AS_NUMBER(size);
  for (size_t i = 0; !stop; i++) {
    void *p = filled_block(n, i), *q = filled_block(n, i + 1);
    free(filled_block(n, i));
    check_and_free(p, n, i);
    check_and_free(q, n, i + 1);
  }
  return NULL;
}
static void trim_versus_use(size_t size, size_t b) {
  (void)b;
  pthread_t t[4] = {start(trim_until_stopped, NULL), start(trim_until_stopped, NULL),
                    start(use_until_stopped, AS_ARGUMENT(size)),
                    start(use_until_stopped, AS_ARGUMENT(size))};
  usleep(150000);
  stop = true;
  for (size_t i = 0; i < COUNT(t); i++) join(t[i]);
}

static void locked_blocks(size_t size, size_t b) {
  (void)b;
  for (int round = 0; round < 4; round++) {
    void *p[6];
    for (size_t i = 0; i < COUNT(p); i++) {
      CHECK(p[i] = aligned_alloc(4096, size));
      memset(p[i], 0xcc, size);
      if (mlock(p[i], size) != 0) sit_skip("mlock is not allowed");
    }
    for (size_t i = 0; i < COUNT(p); i++) {
      if (i % 2) munlock(p[i], size);
      free(p[i]);
    }
    malloc_trim(0);
    for (size_t i = 0; i < COUNT(p); i++) CHECK((p[i] = calloc(1, size)) && all_zero(p[i], size));
    for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
  }
}

// The program may give advice on whole pages of its own blocks, and may or may not undo it.
static void advised_blocks(size_t advice, size_t size) {
  for (size_t i = 0; i < 30; i++) {
    char *p = aligned_alloc(4096, size);
    CHECK(p);
    memset(p, 1, size);
    madvise(p, size, (int)advice); // may be unknown to the kernel
    if (advice == MADV_DONTNEED) CHECK(all_zero(p, size));
    fill(p, size, i);
    check_and_free(p, size, i);
    churn_some(i, 20);
  }
}

static void program_moves_the_break(size_t times, size_t b) {
  (void)b;
  char *first = NULL;
  for (size_t i = 0; i < times; i++) {
    void *p = filled_block(3000, i);
    char *more = sbrk(8192);
    if (more != (char *)-1) memset(more, 0x77, 8192), first = first ? first : more;
    churn_some(i, 50);
    check_and_free(p, 3000, i);
    if (first) CHECK(first[0] == 0x77 && first[8191] == 0x77);
  }
}

static void program_maps_in_between(size_t size, size_t b) {
  (void)b;
  void *p[40], *q[40];
  for (size_t i = 0; i < COUNT(p); i++) {
    p[i] = filled_block(size, i);
    CHECK((q[i] = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
    if (i % 3 == 0) CHECK((p[i] = realloc(p[i], size * 2)) && filled(p[i], size, i));
  }
  for (size_t i = 0; i < COUNT(p); i++) CHECK(all_zero(q[i], size)), munmap(q[i], size), free(p[i]);
}

// ---------------------------------------------------------------------------
// Large numbers.

static void many_operations(size_t size, size_t millions) {
  size_t n = (sit_long ? 100 : 1) * millions * 1000000;
  void *p[64] = {NULL};
  for (size_t i = 0; i < n; i++) {
    free(p[i % 64]);
    CHECK(p[i % 64] = malloc(size));
  }
  for (size_t i = 0; i < 64; i++) free(p[i]);
}

static void many_live(size_t size, size_t count) {
  size_t before = rss_kib();
  char **p = malloc(count * sizeof *p);
  for (size_t i = 0; i < count; i++) CHECK(p[i] = malloc(size)), p[i][0] = (char)i;
  CHECK(rss_kib() < before + (count * (size + 32) * 5 / 4 + count * sizeof *p) / KIB + 8 * KIB);
  for (size_t i = 0; i < count; i++) CHECK(p[i][0] == (char)i), free(p[i]);
  free(p);
}

// What a program does with the pages of its own blocks, and undoes before it frees them.
enum { ACCESS, FORK, CHILD_ZEROS, GUARDS, FILE_OVER, MOVED_OUT };

#ifndef MADV_GUARD_INSTALL // Linux 6.13
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MREMAP_DONTUNMAP // Linux 5.7
#define MREMAP_DONTUNMAP 4
#endif

static void map_over(void *p, size_t size, int flags, int fd) {
  CHECK(mmap(p, size, PROT_READ | PROT_WRITE, MAP_FIXED | flags, fd, 0) == p);
}

// Returns whether the contents are still there.
static bool play_with(void *p, size_t size, size_t how) {
  static const int advice[][2] = {[FORK] = {MADV_DONTFORK, MADV_DOFORK},
                                  [CHILD_ZEROS] = {MADV_WIPEONFORK, MADV_KEEPONFORK},
                                  [GUARDS] = {MADV_GUARD_INSTALL, MADV_GUARD_REMOVE}};
  if (how == ACCESS) {
    CHECK(mprotect(p, size, PROT_NONE) == 0);
    churn_some(size, 30);
    CHECK(mprotect(p, size, PROT_READ | PROT_WRITE) == 0);
  } else if (how == FILE_OVER) {
    int fd = memfd_create("situations", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    map_over(p, size, MAP_SHARED, fd);
    fill(p, size, 2);
    map_over(p, size, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    close(fd);
  } else if (how == MOVED_OUT) {
    void *q = mremap(p, size, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (q == MAP_FAILED) sit_skip("no MREMAP_DONTUNMAP");
    CHECK(filled(q, size, 1) && munmap(q, size) == 0);
  } else {
    if (madvise(p, size, advice[how][0]) != 0) sit_skip("the kernel has no such advice");
    churn_some(size, 30);
    CHECK(madvise(p, size, advice[how][1]) == 0);
  }
  return how != GUARDS && how < FILE_OVER;
}

static void played_with(size_t how, size_t times) {
  static const size_t sizes[] = {4096, 64 * KIB, 256 * KIB, 4 * MIB, 40 * MIB};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    for (size_t k = 0; k < times; k++) {
      void *p = aligned_alloc(64 * KIB, (sizes[i] + 64 * KIB - 1) & ~(64 * KIB - 1));
      CHECK(p);
      fill(p, sizes[i], 1);
      bool kept = play_with(p, sizes[i], how);
      CHECK(kept ? filled(p, sizes[i], 1) : all_zero(p, sizes[i]));
      free(p);
    }
  }
  churn(how, 500);
  pid_t pid = fork();
  if (pid == 0) churn(how + 1, 300), _exit(0);
  wait_for(pid, 0);
  churn(how + 2, 300);
}

const case_t memory_cases[] = {
    {"peak_then_idle_tiny", peak_then_idle, 200}, // glibc keeps those below 128
    {"peak_then_idle_l2", peak_then_idle, L2},
    {"peak_then_idle_l25", peak_then_idle, L25},
    {"peak_then_idle_huge", peak_then_idle, HUGE},
    {"peak_in_threads_then_idle_tiny", peak_in_threads_then_idle, 200, 4},
    {"peak_in_threads_then_idle_l2", peak_in_threads_then_idle, L2, 4},
    {"peak_in_threads_then_idle_l25", peak_in_threads_then_idle, L25, 4},
    {"peak_then_64_threads_asleep", peak_then_threads_asleep, 64, 128},
    {"holes_stay_tiny", holes_stay, 2000},
    {"holes_stay_l2", holes_stay, L2},
    EACH_RANGE("trim_after_peak", trim_after_peak, 0),
    {"peaks_repeated_tiny", peaks_repeated, TINY, 6},
    {"peaks_repeated_l2", peaks_repeated, L2, 6},
    {"peaks_repeated_l25", peaks_repeated, L25, 6},
    {"phases", phases},
    {"alternating_tiny", alternating, 40, 1000},
    {"alternating_tiny_l2", alternating, 100, 10000},
    {"alternating_l2", alternating, 2100, 50000},
    {"alternating_l2_l25", alternating, 5000, 70000},
    {"one_survivor_tiny", one_survivor, TINY, 500},
    {"one_survivor_1k", one_survivor, 1000, 100},
    {"one_survivor_l2", one_survivor, 4000, 600},
    {"random_lifetimes_tiny", random_lifetimes, 1000},
    {"random_lifetimes_l2", random_lifetimes, 50000},
    {"calloc_after_dirt_16", calloc_after_dirt, 16},
    {"calloc_after_dirt_1000", calloc_after_dirt, 1000},
    {"calloc_after_dirt_50000", calloc_after_dirt, 50000},
    {"calloc_after_dirt_l25", calloc_after_dirt, L25},
    {"calloc_after_dirt_huge", calloc_after_dirt, HUGE},
    EACH_RANGE("calloc_after_others_dirt", calloc_after_others_dirt, 0),
    {"calloc_tiny_after_huge", calloc_after_other_size, 4 * MIB, 64},
    {"calloc_l2_after_tiny", calloc_after_other_size, 100, 9000},
    {"calloc_l25_after_l2", calloc_after_other_size, 9000, 150000},
    {"calloc_tiny_after_l25", calloc_after_other_size, 150000, 500},
    {"untouched_4g", untouched, 4 * GIB, 0},
    {"untouched_calloc_4g", untouched, 4 * GIB, 1},
    {"four_gib_in_one_class", many_untouched, MIB - 100, 4300 * MIB},
    {"many_untouched_huge", many_untouched, 4 * MIB, 2000 * MIB},
    {"grow_to_1g_by_1m", grow_by_steps, GIB, MIB},
    {"grow_to_64m_by_64k", grow_by_steps, 64 * MIB, 64 * KIB},
    {"grow_to_8m_by_256", grow_by_steps, 8 * MIB, 256},
    {"grow_to_64k_by_1", grow_by_steps, 64 * KIB, 1},
    {"grow_two_by_turns_to_32m_by_4k", grow_two_by_turns, 32 * MIB, 4096},
    {"grow_two_by_turns_to_1m_by_64", grow_two_by_turns, MIB, 64},
    {"grow_without_doubling_to_256m", grow_without_doubling, 2 * MIB, 256 * MIB},
    {"shrink_64m_to_1m", shrink_gives_back, 64 * MIB, MIB},
    {"shrink_64m_to_100", shrink_gives_back, 64 * MIB, 100},
    {"shrink_many_l2_to_tiny", shrink_many, 40000, 100},
    {"shrink_many_l25_to_l2", shrink_many, 800000, 3000},
    {"shrink_many_huge_to_l25", shrink_many, 4 * MIB, 100000},
    {"up_and_down_tiny_huge", up_and_down, 40, 3 * MIB},
    {"up_and_down_l2_l25", up_and_down, 9000, 300000},
    {"up_and_down_huge", up_and_down, 2 * MIB, 8 * MIB},
    {"aligned_64k", large_alignment, 64 * KIB, 100},
    {"aligned_2m", large_alignment, 2 * MIB, 5000},
    {"aligned_4m_tiny", large_alignment, 4 * MIB, 1},
    {"aligned_64m", large_alignment, 64 * MIB, 3 * MIB},
    {"aligned_1g", large_alignment, GIB, 100000},
    {"many_aligned_512", many_aligned, 512, 40},
    {"many_aligned_4k", many_aligned, 4096, 100},
    {"many_aligned_128k", many_aligned, 128 * KIB, 4096},
    {"many_aligned_4m", many_aligned, 4 * MIB, 4096},
    EACH_RANGE("trim_versus_use", trim_versus_use, 0),
    {"locked_blocks_l2", locked_blocks, 8192},
    {"locked_blocks_l25", locked_blocks, 256 * KIB},
    {"locked_blocks_huge", locked_blocks, 4 * MIB},
    {"advised_dontneed", advised_blocks, MADV_DONTNEED, 128 * KIB},
    {"advised_free", advised_blocks, MADV_FREE, 128 * KIB},
    {"advised_hugepage", advised_blocks, MADV_HUGEPAGE, 4 * MIB},
    {"advised_dontneed_huge", advised_blocks, MADV_DONTNEED, 2 * MIB},
    {"pages_protected_and_back", played_with, ACCESS, 3},
    {"pages_not_for_children_and_back", played_with, FORK, 3},
    {"pages_wiped_in_children_and_back", played_with, CHILD_ZEROS, 3},
    {"pages_guarded_and_back", played_with, GUARDS, 3},
    {"pages_under_a_file_and_back", played_with, FILE_OVER, 3},
    {"pages_moved_out", played_with, MOVED_OUT, 3},
    {"program_moves_the_break", program_moves_the_break, 30},
    {"program_maps_in_between_l25", program_maps_in_between, 256 * KIB},
    {"program_maps_in_between_huge", program_maps_in_between, 2 * MIB},
    {"many_operations_tiny", many_operations, TINY, 5},
    {"many_operations_l2", many_operations, 3000, 2},
    {"many_live_16", many_live, 16, 1000000},
    {"many_live_100", many_live, 100, 500000},
    {NULL},
};
