// stress.c: threads allocate, resize and free at random, each other's blocks too; they end and
// are replaced, while the process forks now and then. A shadow of the heap (shadow.h) reveals
// overlap, patterns reveal lost contents.
//
//   stress SEED LENGTH THREADS     LENGTH: operations per thread, or 30s
//
// All random numbers come from SEED; with one thread a run repeats exactly, with more threads
// their interleaving differs.

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "shadow.h"

enum {
  SHARED = 768,       // slots that all threads use
  OWN = 192,          // slots of one worker; its next life inherits them
  WORKERS_MAX = 64,
  LIFE = 8000,        // operations until a thread ends, up to twice that
  FORK_EVERY = 6,     // lives of threads
  CHILD_OPERATIONS = 3000,
};

// A place for one block. The thread that holds the flag may use the other fields.
typedef struct {
  atomic_flag held;
  void *p;
  size_t size, usable;
  uint64_t seed;
} slot_t;

typedef struct {
  uint64_t random;
  size_t left;    // operations still to do
  uint64_t calls; // calls that allocated
  slot_t own[OWN];
} worker_t;

char invocation[200];
static slot_t *shared;
static worker_t *workers;
static size_t worker_count;
static time_t deadline; // 0: operations count

// ---------------------------------------------------------------------------
// Contents. Large blocks are filled at both ends and once per OS page.

static uint64_t word_at(uint64_t seed, size_t offset) {
  return (seed ^ offset) * 0x9e3779b97f4a7c15u;
}

typedef void visit_t(char *at, uint64_t word, size_t n);

static void put(char *at, uint64_t word, size_t n) { memcpy(at, &word, n); }
static void compare(char *at, uint64_t word, size_t n) {
  CHECK(memcmp(at, &word, n) == 0 /* contents kept */);
}

static void visit(char *p, size_t from, size_t to, uint64_t seed, visit_t *each) {
  for (size_t at = from; at < to; at += 8)
    each(p + at, word_at(seed, at), to - at < 8 ? to - at : 8);
}

static void each_word(void *p, size_t size, uint64_t seed, visit_t *each) {
  if (size <= 2048) {
    visit(p, 0, size, seed, each);
    return;
  }
  visit(p, 0, 512, seed, each);
  for (size_t at = 4096; at + 1024 < size; at += 4096) visit(p, at, at + 8, seed, each);
  visit(p, (size - 512) & ~(size_t)7, size, seed, each);
}

static void check_zero(const char *p, size_t size) {
  size_t step = size <= 16384 ? 1 : 61;
  for (size_t i = 0; i < size; i += step) CHECK(p[i] == 0 /* calloc */);
  if (size) CHECK(p[size - 1] == 0);
}

// ---------------------------------------------------------------------------
// One operation.

static size_t random_size(uint64_t *random) {
  unsigned r = (unsigned)(chance(random) % 1000);
  if (r < 5) return 0;
  if (r < 500) return 1 + chance(random) % 256;
  if (r < 760) return 1 + chance(random) % 1100;
  if (r < 950) return 1 + chance(random) % 60000;
  if (r < 993) return 1 + chance(random) % (1 << 20);
  return (1 << 20) + chance(random) % (4 << 20);
}

static void note(slot_t *slot, void *p, size_t size, size_t alignment, uint64_t seed) {
  CHECK(p != NULL);
  CHECK((uintptr_t)p % alignment == 0);
  slot->p = p;
  slot->size = size;
  slot->usable = t_usable(p);
  slot->seed = seed;
  CHECK(slot->usable >= size);
#if !STRESS_HAK
  if (slot->usable > size + (8 << 20)) slot->usable = size; // glibc's aligned mappings
#endif
  shadow_set(p, slot->usable, true);
  each_word(p, slot->usable, seed, put);
}

static void allocate(slot_t *slot, uint64_t *random) {
  size_t size = random_size(random), alignment = size >= 16 ? 16 : 8;
  uint64_t seed = chance(random);
  void *p;
  switch (chance(random) % 8) {
  case 0:
  case 1:
    p = t_calloc(seed & 1 ? size : 1, seed & 1 ? 1 : size);
    CHECK(p);
    check_zero(p, size);
    break;
  case 2:
    alignment = (size_t)8 << chance(random) % (chance(random) % 50 ? 10 : 20);
    p = t_memalign(alignment, size);
    break;
  case 3: p = t_realloc(NULL, size); break;
  default: p = t_malloc(size); break;
  }
  note(slot, p, size, alignment, seed);
}

static void verify(slot_t *slot) {
  each_word(slot->p, slot->usable, slot->seed, compare);
  CHECK(t_usable(slot->p) >= slot->size);
}

static void release(slot_t *slot) {
  verify(slot);
  shadow_set(slot->p, slot->usable, false);
  t_free(slot->p);
  slot->p = NULL;
}

static void resize(slot_t *slot, uint64_t *random) {
  verify(slot);
  size_t to = chance(random) % 3 ? random_size(random) : slot->size + chance(random) % 64;
  if (to == 0) to = 1;
  // The block may use all usable bytes, but realloc keeps only those that were asked for.
  size_t kept = slot->size < to ? slot->size : to, whole = slot->usable <= 2048 ? kept : 512;
  shadow_set(slot->p, slot->usable, false);
  char *p = t_realloc(slot->p, to);
  CHECK(p);
  visit(p, 0, whole < kept ? whole : kept, slot->seed, compare);
  for (size_t at = 4096; at + 1024 < slot->usable && at + 8 <= kept; at += 4096)
    visit(p, at, at + 8, slot->seed, compare);
  note(slot, p, to, to >= 16 ? 16 : 8, chance(random));
}

// False: another thread uses this slot.
static bool operate(slot_t *slot, uint64_t *random, uint64_t *calls) {
  if (atomic_flag_test_and_set(&slot->held)) return false;
  unsigned r = (unsigned)(chance(random) % 16);
  if (!slot->p) {
    allocate(slot, random);
    ++*calls;
  } else if (r < 3) {
    resize(slot, random);
  } else {
    release(slot);
    if (r < 8) {
      allocate(slot, random);
      ++*calls;
    }
  }
  atomic_flag_clear(&slot->held);
  return true;
}

static void *live(void *argument) {
  worker_t *me = argument;
  size_t life = LIFE + chance(&me->random) % LIFE;
  while (life-- && me->left) {
    uint64_t r = chance(&me->random);
    slot_t *slot = r & 1 ? &shared[(r >> 8) % SHARED] : &me->own[(r >> 8) % OWN];
    operate(slot, &me->random, &me->calls);
    if (!deadline) me->left--;
    else if (life % 256 == 0 && time(NULL) >= deadline) me->left = 0;
  }
  return NULL;
}

// ---------------------------------------------------------------------------
// The process.

static void release_all(bool in_child) {
  for (size_t i = 0; i < SHARED + worker_count * OWN; i++) {
    slot_t *slot = i < SHARED ? &shared[i] : &workers[(i - SHARED) / OWN].own[(i - SHARED) % OWN];
    bool held = atomic_flag_test_and_set(&slot->held);
    CHECK(in_child || !held);
    if (held) continue; // its thread was using it and is not in this process
    if (slot->p) release(slot);
    atomic_flag_clear(&slot->held);
  }
}

#if defined(__SANITIZE_THREAD__)
// A child has no threads to join: the parent's threads are not its leaks.
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "report_thread_leaks=0"; }
#endif

static void fork_and_check(uint64_t seed) {
  if (EMULATED) return; // qemu itself cannot fork while it has other threads, ending ones too
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    alarm(100);
    uint64_t random = seed, calls = 0;
    release_all(true);
    for (unsigned i = 0; i < CHILD_OPERATIONS; i++)
      operate(&shared[chance(&random) % SHARED], &random, &calls);
    release_all(true);
    _exit(0);
  }
  int status;
  while (waitpid(pid, &status, 0) < 0) CHECK(errno == EINTR);
  CHECK(status == 0 /* the child was well */);
}

static pthread_barrier_t all_alive;
static void *warm_up(void *argument) {
  pthread_barrier_wait(&all_alive);
  t_free(t_malloc(100));
  return argument;
}

// Makes libc allocate what it keeps for threads (it caches stacks) before the statistics are
// first read.
static void have_been(size_t threads) {
  pthread_t thread[WORKERS_MAX];
  // Uses up the process's first blocks too: they have other sizes than later ones.
  void *first[300];
  for (unsigned i = 0; i < 300; i++) first[i] = t_malloc(100);
  for (unsigned i = 0; i < 300; i++) t_free(first[i]);
  pthread_barrier_init(&all_alive, NULL, (unsigned)threads);
  for (size_t i = 0; i < threads; i++)
    CHECK(pthread_create(&thread[i], NULL, warm_up, NULL) == 0);
  for (size_t i = 0; i < threads; i++) CHECK(pthread_join(thread[i], NULL) == 0);
}

static void check_statistics(const hak_stats_t *before, uint64_t calls) {
  hak_stats_t now;
  CHECK(statistics(&now));
  CHECK(now.live_blocks == before->live_blocks);
  CHECK(now.live_bytes == before->live_bytes);
  CHECK(now.allocs - now.frees == now.live_blocks);
  CHECK(now.allocs - before->allocs >= calls);
  CHECK(now.tiny_allocs + now.l2_allocs + now.l25_allocs + now.huge_allocs + now.guard_allocs +
            now.first_allocs ==
        now.allocs);
  CHECK(now.huge_bytes == before->huge_bytes);
  CHECK(now.mapped_bytes == now.superslab_bytes + now.huge_bytes + now.huge_cached_bytes + now.metadata_bytes);
  CHECK(now.peak_bytes >= now.mapped_bytes);
  CHECK(now.heaps <= before->heaps + worker_count + 2 + 32 + 20); // nurseries, commons
}

int main(int argc, char **argv) {
  if (argc != 4) return dprintf(2, "usage: stress SEED OPERATIONS|SECONDSs THREADS\n"), 2;
  snprintf(invocation, sizeof invocation, "stress %s %s %s", argv[1], argv[2], argv[3]);
  dprintf(1, "%s\n", invocation);
  CHECK(right_allocator());
  char *unit;
  uint64_t seed = strtoull(argv[1], NULL, 10);
  size_t length = strtoul(argv[2], &unit, 10);
  worker_count = strtoul(argv[3], NULL, 10);
  CHECK(length > 0 && worker_count > 0 && worker_count <= WORKERS_MAX);
  if (*unit == 's') deadline = time(NULL) + (time_t)length;

  shadow_init();
  shared = mapped(SHARED * sizeof *shared);
  workers = mapped(worker_count * sizeof *workers);
  have_been(worker_count);
  hak_stats_t before = {.size = 0};
  bool ours = statistics(&before);

  pthread_t thread[WORKERS_MAX];
  for (size_t i = 0; i < worker_count; i++) {
    workers[i].random = (seed + 1) * 0x9e3779b97f4a7c15u + i * 0x7f4a7c15u + 1;
    workers[i].left = length;
    CHECK(pthread_create(&thread[i], NULL, live, &workers[i]) == 0);
  }
  size_t running = worker_count, lives = 0;
  uint64_t calls = 0;
  bool ended[WORKERS_MAX] = {false};
  for (size_t i = 0; running; i = (i + 1) % worker_count) {
    if (ended[i]) continue;
    CHECK(pthread_join(thread[i], NULL) == 0);
    if (workers[i].left) CHECK(pthread_create(&thread[i], NULL, live, &workers[i]) == 0);
    else ended[i] = true, running--, calls += workers[i].calls;
    if (++lives % FORK_EVERY == 0) fork_and_check(seed + lives);
  }
  fork_and_check(seed);
  release_all(false);
  if (ours) check_statistics(&before, calls);
  dprintf(1, "ok: %llu allocations, %zu thread lives\n", (unsigned long long)calls, lives);
  return 0;
}
