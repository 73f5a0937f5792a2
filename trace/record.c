// record.c: libhakmem-record.so, a preload library that records a program's calls of its
// allocator, whichever that is (RTLD_NEXT). README.md describes the format and its use.
//
//   HAKTRACE_FILE=FILE LD_PRELOAD=libhakmem-record.so[:libother.so] PROGRAM
//
// Each thread writes into its own chunk, a shared mapping of the file. So an event needs no lock
// and no system call, and nothing has to be saved when the process ends, however it ends. Threads
// share one counter: every event takes a number from it, an allocation after the allocator has
// returned the block, a free before the block is passed to it. So events of one address are
// numbered in the order in which they happened, and the reader can tell which block a free means.
//
// Nothing here allocates, except that the C library may call the next allocator on our behalf.
// A thread is `busy` from before the next allocator is called until after the event is written:
// allocations made meanwhile by that allocator or by a signal handler pass through unrecorded.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "format.h"

#define EXPORT __attribute__((visibility("default")))
#define COLD __attribute__((cold, noinline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
  MAX_EVENT = 64,     // bytes of the largest event
  MAX_NOTE = 512,     // bytes of the command line that are kept
  MAX_SEGMENT = 32,   // bytes of the record in front of a thread's events
  MAX_IDLE = 64,      // partly filled chunks of ended threads, kept for new threads
  LEAST_ROOM = 1024,  // free bytes that such a chunk must have
  EARLY_SIZE = 16384, // for allocations before the next allocator is known
};

// ---------------------------------------------------------------------------
// The next allocator

static struct {
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void *(*reallocarray)(void *, size_t, size_t);
  void *(*aligned_alloc)(size_t, size_t);
  void *(*memalign)(size_t, size_t);
  int (*posix_memalign)(void **, size_t, size_t);
  void *(*valloc)(size_t);
  void *(*pvalloc)(size_t);
  void (*free)(void *);
} next;

// Memory for dlsym's own allocations. It is never reused, so it is always zeroed.
static _Alignas(16) char early[EARLY_SIZE];
static _Atomic size_t early_used; // Relaxed: only hands out disjoint pieces

static void *early_alloc(size_t size) {
  size_t want = size < EARLY_SIZE ? (size + 15) & ~(size_t)15 : EARLY_SIZE;
  size_t at = atomic_fetch_add_explicit(&early_used, want, memory_order_relaxed);
  return at + want <= EARLY_SIZE ? early + at : NULL;
}

static bool is_early(const void *p) { return (uintptr_t)p - (uintptr_t)early < EARLY_SIZE; }

static COLD bool resolve(void) {
  static bool resolving; // set at the process's first allocation, while it has one thread
  if (resolving) return false;
  resolving = true;
#define FIND(name) *(void **)&next.name = dlsym(RTLD_NEXT, #name)
  FIND(malloc), FIND(calloc), FIND(realloc), FIND(reallocarray), FIND(aligned_alloc);
  FIND(memalign), FIND(posix_memalign), FIND(valloc), FIND(pvalloc);
  FIND(free); // last, because `ready` tests it
#undef FIND
  resolving = false;
  return next.free != NULL;
}

// Returns false while dlsym is running: the caller then uses `early`.
static inline bool ready(void) { return LIKELY(next.free != NULL) || resolve(); }

// ---------------------------------------------------------------------------
// The state of a recording

enum { NEW, STARTING, RUNNING, OFF };
static _Atomic uint32_t phase; // NEW → STARTING → RUNNING → OFF; orders what `start` wrote

// Lies in a mapping that is zero again in a forked child, however it was forked. There `on` is 0
// while `phase` is RUNNING, and a lock that a vanished thread held is free.
typedef struct {
  _Atomic uint32_t on;   // 1: record. Relaxed; a stale value costs or adds an event
  _Atomic uint32_t lock; // spin lock that protects the fields that follow
  uint32_t idle_count;   // chunks of ended threads
  unsigned char *idle[MAX_IDLE];
  uint64_t chunks;          // number of chunks in the file
  _Atomic uint32_t threads; // thread numbers given so far. Relaxed: they only need to be unique
  // The last number given to an event. Each event increments it atomically. The increment is
  // sequentially consistent, so an event that happens after another has the greater number.
  _Alignas(64) _Atomic uint64_t sequence;
} state_t;

static state_t off_state; // used until the mapping exists; stays zero
static state_t *state = &off_state;
static char pattern[PATH_MAX]; // HAKTRACE_FILE as an absolute path
static char path[PATH_MAX];    // the pattern with %p replaced
static uint64_t chunk_limit;   // HAKTRACE_LIMIT, in chunks
static dev_t file_device;
static ino_t file_number;
static pthread_key_t key;
static uint64_t start_ns, start_seconds;

static __thread struct {
  volatile bool busy;   // also read by a signal handler of this thread
  bool ending;          // the destructors of the thread's keys run or have run
  uint32_t thread;      // number + 1, 0: none yet
  unsigned char *chunk; // NULL: none
  unsigned char *at, *end;
  uint64_t sequence, address; // those of the last event in the chunk
} me __attribute__((tls_model("initial-exec")));

static uint64_t nanoseconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Ends the recording for good; only the first reason is printed.
static COLD void stop(const char *why) {
  bool first = atomic_exchange(&phase, OFF) != OFF;
  atomic_store(&state->on, 0);
  if (!first) return;
  char text[PATH_MAX + 128];
  int n = snprintf(text, sizeof text, "hakmem-record: %s: %s; recording ended\n", path, why);
  if (n > 0) syscall(SYS_write, STDERR_FILENO, text, (size_t)n);
}

static void lock(void) {
  while (atomic_exchange_explicit(&state->lock, 1, memory_order_acquire) != 0) sched_yield();
}

static void unlock(void) { atomic_store_explicit(&state->lock, 0, memory_order_release); }

// ---------------------------------------------------------------------------
// Chunks. System calls are made by number: the C library's functions are cancellation points, and
// a program may have replaced them. The file is opened anew each time, because a program may close
// all descriptors; so the recorder also takes no descriptor from the program.

// Writes the chunk's header and zeros before it is mapped, so that a full disk is an error here
// rather than a SIGBUS later. Called with the lock held.
static const char *extend(int fd, off_t offset) {
  static const unsigned char zeros[TRACE_CHUNK - TRACE_HEADER];
  struct stat at;
  if (syscall(SYS_newfstatat, fd, "", &at, AT_EMPTY_PATH) != 0) return strerrordesc_np(errno);
  if (at.st_dev != file_device || at.st_ino != file_number) return "the file was replaced";
  struct rlimit limit; // the kernel would send SIGXFSZ for a write beyond it
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < (rlim_t)offset + TRACE_CHUNK)
    return strerrordesc_np(EFBIG);
  trace_header_t header = {.magic = TRACE_MAGIC,
                           .version = TRACE_VERSION,
                           .header = TRACE_HEADER,
                           .chunk = TRACE_CHUNK,
                           .pid = (uint32_t)syscall(SYS_getpid),
                           .started = start_seconds};
  struct iovec parts[] = {{&header, sizeof header}, {(void *)zeros, sizeof zeros}};
  long written = syscall(SYS_pwritev, fd, parts, 2, (long)offset, 0L);
  if (written == TRACE_CHUNK) return NULL;
  const char *why = strerrordesc_np(written < 0 ? errno : ENOSPC);
  syscall(SYS_ftruncate, fd, (long)offset);
  return why;
}

static unsigned char *new_chunk(void) {
  if (state->chunks >= chunk_limit) return stop("HAKTRACE_LIMIT is reached"), NULL;
  off_t offset = (off_t)(state->chunks * TRACE_CHUNK);
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return stop(strerrordesc_np(errno)), NULL;
  const char *wrong = extend(fd, offset);
  void *p = MAP_FAILED;
  if (wrong == NULL) {
    state->chunks++;
    p = mmap(NULL, TRACE_CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
    if (p == MAP_FAILED) wrong = strerrordesc_np(errno);
  }
  syscall(SYS_close, fd);
  if (wrong != NULL) stop(wrong);
  return p != MAP_FAILED ? p : NULL;
}

static unsigned char *put(unsigned char *at, uint64_t v) {
  for (; v >= 0x80; v >>= 7) *at++ = (unsigned char)(v | 0x80);
  *at++ = (unsigned char)v;
  return at;
}

static void publish(unsigned char *at) {
  me.at = at;
  trace_header_t *header = (trace_header_t *)me.chunk;
  // Release: pairs with nothing in this process; a reader of the file finds complete records.
  __atomic_store_n(&header->used, (uint32_t)(at - me.chunk) - TRACE_HEADER, __ATOMIC_RELEASE);
}

// Begins a segment for this thread's next events; the first has a number above `sequence`.
static void begin_segment(unsigned char *at, uint64_t sequence) {
  *at++ = TRACE_SEGMENT;
  at = put(at, me.thread - 1);
  at = put(at, me.sequence = sequence);
  at = put(at, (nanoseconds(CLOCK_MONOTONIC) - start_ns) / 1000);
  me.address = 0;
  publish(at);
}

// Makes room for events from number `sequence` on. Returns false if recording has ended.
static COLD bool next_chunk(uint64_t sequence) {
  int saved = errno;
  unsigned char *full = me.chunk, *chunk = NULL;
  if (full == NULL && !me.ending) pthread_setspecific(key, &me); // so that thread_ending runs
  lock();
  if (atomic_load(&state->on) != 0)
    chunk = state->idle_count > 0 ? state->idle[--state->idle_count] : new_chunk();
  unlock();
  if (full != NULL) munmap(full, TRACE_CHUNK);
  if (chunk != NULL && me.thread == 0) {
    me.thread = atomic_fetch_add(&state->threads, 1) + 1;
    if (me.thread > TRACE_MAX_THREADS) {
      stop("more threads than a trace can hold");
      munmap(chunk, TRACE_CHUNK);
      chunk = NULL;
    }
  }
  me.chunk = me.at = me.end = chunk;
  if (chunk != NULL) {
    me.end = chunk + TRACE_CHUNK;
    begin_segment(chunk + TRACE_HEADER + ((trace_header_t *)chunk)->used, sequence - 1);
  }
  errno = saved;
  return chunk != NULL;
}

// Leaves the rest of the chunk to a later thread, so that many short threads share one chunk.
static COLD void let_chunk_go(void) {
  unsigned char *chunk = me.chunk;
  // In a forked child `on` is 0: the chunk is its parent's.
  if (chunk != NULL && atomic_load(&state->on) != 0) {
    int saved = errno;
    lock();
    if (me.end - me.at >= LEAST_ROOM && state->idle_count < MAX_IDLE)
      state->idle[state->idle_count++] = chunk, chunk = NULL;
    unlock();
    if (chunk != NULL) munmap(chunk, TRACE_CHUNK);
    errno = saved;
  }
  me.chunk = me.at = me.end = NULL;
}

// From now on the thread borrows a chunk for each event: nothing tells when the last destructor
// has run, and the C library frees some memory even later.
static void thread_ending(void *unused) {
  (void)unused;
  bool was_busy = me.busy;
  me.busy = true;
  me.ending = true;
  let_chunk_go();
  me.busy = was_busy;
}

// ---------------------------------------------------------------------------
// Start

static void read_limit(const char *text) {
  const uint64_t per_mib = 1048576 / TRACE_CHUNK;
  chunk_limit = UINT64_MAX;
  if (text == NULL || text[0] == '\0') return;
  if (text[strspn(text, "0123456789")] == '\0') {
    uint64_t limit = strtoull(text, NULL, 10);
    if (limit < UINT64_MAX / per_mib) chunk_limit = limit * per_mib;
    return;
  }
  char line[256];
  snprintf(line, sizeof line, "hakmem-record: HAKTRACE_LIMIT=%.100s is no number of MiB; ignored\n",
           text);
  syscall(SYS_write, STDERR_FILENO, line, strlen(line));
}

static bool read_settings(void) {
  const char *name = getenv("HAKTRACE_FILE");
  if (name == NULL || name[0] == '\0') return false;
  read_limit(getenv("HAKTRACE_LIMIT"));
  char folder[PATH_MAX] = "";
  if (name[0] != '/' && syscall(SYS_getcwd, folder, sizeof folder - 1) < 0) return false;
  int n = snprintf(pattern, sizeof pattern, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
  return n > 0 && (size_t)n < sizeof pattern - 32;
}

// Reads up to size bytes of a file; returns their number, -1 on errors.
static long read_once(const char *name, char *text, size_t size) {
  long fd = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return -1;
  long n = syscall(SYS_read, fd, text, size);
  syscall(SYS_close, fd);
  return n;
}

// When the process began, before any exec, in seconds since 1970; UINT64_MAX if not known.
static uint64_t began_seconds(void) {
  char text[1024];
  long n = read_once("/proc/self/stat", text, sizeof text - 1);
  text[n > 0 ? n : 0] = '\0';
  const char *at = strrchr(text, ')'); // ends the program's name, which is the second field
  for (unsigned field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
  if (at == NULL) return UINT64_MAX;
  uint64_t second = 1000000000, tick = second / (uint64_t)sysconf(_SC_CLK_TCK);
  uint64_t age = nanoseconds(CLOCK_BOOTTIME) - strtoull(at + 1, NULL, 10) * tick;
  return (nanoseconds(CLOCK_REALTIME) - age) / second;
}

// Whether the file is this process's own, recorded before it called exec. An older file belongs to
// an earlier process that had the same process number.
static bool is_ours(int fd) {
  trace_header_t header = {0};
  syscall(SYS_pread64, fd, &header, sizeof header, 0L);
  return header.magic == TRACE_MAGIC && header.pid == (uint32_t)syscall(SYS_getpid) &&
         began_seconds() - 1 <= header.started; // 1: both are whole seconds
}

// Creates `path`; returns a negative number if another process's file is there. Our own file is
// unlinked rather than truncated: if a process has it mapped after all, it must not get SIGBUS.
static int open_new(bool replace) {
  const int how = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  long fd = syscall(SYS_openat, AT_FDCWD, path, how, 0666);
  if (fd >= 0 || errno != EEXIST || !replace) return (int)fd;
  fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  bool ours = fd >= 0 && is_ours((int)fd);
  if (fd >= 0) syscall(SYS_close, fd);
  if (ours) syscall(SYS_unlinkat, AT_FDCWD, path, 0);
  return (int)syscall(SYS_openat, AT_FDCWD, path, how, 0666);
}

// With %p, every process has its own file, and so has every program that it becomes by exec.
// Without it there is one file, for the first process and the last program that it became.
static const char *create_file(void) {
  const char *mark = strstr(pattern, "%p");
  int fd = -1;
  for (unsigned i = 0; fd < 0 && i < (mark != NULL ? 100 : 1); i++) {
    char again[16] = "";
    if (i > 0) snprintf(again, sizeof again, ".%u", i);
    if (mark == NULL) snprintf(path, sizeof path, "%s", pattern);
    else
      snprintf(path, sizeof path, "%.*s%ld%s%s", (int)(mark - pattern), pattern,
               syscall(SYS_getpid), mark + 2, again);
    fd = open_new(mark == NULL);
    if (fd < 0 && errno != EEXIST) return strerrordesc_np(errno);
  }
  if (fd < 0) return "";
  struct stat made;
  long failed = syscall(SYS_newfstatat, fd, "", &made, AT_EMPTY_PATH);
  const char *why = failed ? strerrordesc_np(errno) : NULL;
  syscall(SYS_close, fd);
  file_device = made.st_dev;
  file_number = made.st_ino;
  return why;
}

static bool map_state(void) {
  if (state != &off_state) return true; // in a forked child; the mapping is zero again
  void *p = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || madvise(p, sizeof *state, MADV_WIPEONFORK) != 0) return false;
  state = p;
  return pthread_key_create(&key, thread_ending) == 0;
}

static void write_note(void) {
  char text[MAX_NOTE];
  long n = read_once("/proc/self/cmdline", text, sizeof text);
  if (n <= 0 || !next_chunk(1)) return;
  unsigned char *at = me.at;
  *at++ = TRACE_NOTE;
  at = put(at, (uint64_t)n);
  publish(mempcpy(at, text, (size_t)n));
}

// Called while nothing is recorded: at the first allocation of a process or of a forked child,
// and at every call once recording has ended. Returns true if recording is on now.
static COLD bool start(void) {
  uint32_t was = atomic_load(&phase);
  if (atomic_load(&state->on) != 0) return true; // another thread was first
  if (was == STARTING || was == OFF || environ == NULL) return false;
  if (!atomic_compare_exchange_strong(&phase, &was, STARTING)) return false;
  int saved = errno;
  memset(&me, 0, sizeof me); // in a forked child it holds the parent's state
  me.busy = true;
  bool child = was == RUNNING;
  bool wanted = child ? strstr(pattern, "%p") != NULL : read_settings();
  const char *wrong = !wanted ? "" : map_state() ? create_file() : strerrordesc_np(errno);
  if (wrong == NULL) {
    start_ns = nanoseconds(CLOCK_MONOTONIC);
    start_seconds = nanoseconds(CLOCK_REALTIME) / 1000000000u;
    atomic_store(&state->on, 1);
    atomic_store(&phase, RUNNING);
    write_note();
  } else if (wrong[0] != '\0') {
    stop(wrong);
  } else {
    atomic_store(&phase, OFF);
  }
  me.busy = false;
  errno = saved;
  return wrong == NULL;
}

// ---------------------------------------------------------------------------
// Events

// Returns true if this call is to be recorded; the caller must then call leave().
static inline bool enter(void) {
  if (UNLIKELY(me.busy)) return false;
  if (UNLIKELY(atomic_load_explicit(&state->on, memory_order_relaxed) == 0) && !start())
    return false;
  me.busy = true;
  atomic_signal_fence(memory_order_seq_cst);
  return true;
}

static inline void leave(void) {
  if (UNLIKELY(me.ending)) let_chunk_go();
  atomic_signal_fence(memory_order_seq_cst);
  me.busy = false;
}

static inline uint64_t number(void) { return atomic_fetch_add(&state->sequence, 1) + 1; }

static unsigned char *put_kind(unsigned char *at, unsigned kind, uint64_t sequence) {
  uint64_t advance = sequence - me.sequence - 1;
  me.sequence = sequence;
  if (LIKELY(advance < TRACE_ADVANCE_MORE)) {
    *at++ = (unsigned char)(advance << TRACE_KIND_BITS | kind);
    return at;
  }
  *at++ = (unsigned char)(TRACE_ADVANCE_MORE << TRACE_KIND_BITS | kind);
  return put(at, advance - TRACE_ADVANCE_MORE);
}

static unsigned char *put_address(unsigned char *at, const void *p) {
  int64_t difference = (int64_t)((uintptr_t)p - me.address);
  me.address = (uintptr_t)p;
  return put(at, trace_zigzag(difference >> TRACE_ADDRESS_SHIFT));
}

static inline bool room(uint64_t sequence) {
  return LIKELY(me.end - me.at >= MAX_EVENT + MAX_SEGMENT) || next_chunk(sequence);
}

// Every allocator returns multiples of 8, so this excludes only a program's mistakes.
static bool is_block(const void *p) { return p != NULL && ((uintptr_t)p & 7) == 0; }

static void note_alloc(unsigned kind, const void *p, size_t size, size_t alignment) {
  if (!is_block(p)) return;
  uint64_t sequence = number();
  if (!room(sequence)) return;
  unsigned char *at = put_kind(me.at, kind, sequence);
  at = put(put_address(at, p), size);
  if (kind == TRACE_ALIGNED)
    *at++ = alignment > 1 ? (unsigned char)(64 - __builtin_clzll(alignment - 1)) : 0;
  publish(at);
}

static void note_free(const void *p, uint64_t sequence) {
  if (!is_block(p) || !room(sequence)) return;
  publish(put_address(put_kind(me.at, TRACE_FREE, sequence), p));
}

// Two numbers: `before`, after which another thread may own the old block's memory, and one now.
static void note_realloc(const void *old, const void *p, size_t size, uint64_t before) {
  if (!is_block(old) || !is_block(p)) return;
  uint64_t now = number();
  if (!room(before)) return;
  unsigned char *at = put_address(put_kind(me.at, TRACE_REALLOC, before), old);
  at = put(put(put_address(at, p), size), now - before);
  me.sequence = now;
  publish(at);
}

// ---------------------------------------------------------------------------
// The interface

__attribute__((constructor(101))) static void at_load(void) {
  if (ready() && enter()) leave(); // so that a program that never allocates has a file too
}

// Records the run time. A program that is killed or ends by _exit has that of its last chunk.
__attribute__((destructor(101))) static void at_exit(void) {
  // In a forked child `on` is 0: the chunk is its parent's.
  if (me.chunk == NULL || me.busy || atomic_load(&state->on) == 0) return;
  me.busy = true;
  if (me.end - me.at >= MAX_SEGMENT) begin_segment(me.at, me.sequence);
  me.busy = false;
}

// CALL calls the next allocator; it is recorded as one allocation of `size` bytes.
#define ALLOCATE(kind, size, alignment, CALL) \
  do { \
    if (UNLIKELY(!ready())) return early_alloc(size); \
    bool on = enter(); \
    void *p_ = (CALL); \
    if (on) { \
      note_alloc(kind, p_, size, alignment); \
      leave(); \
    } \
    return p_; \
  } while (0)

EXPORT void *malloc(size_t size) { ALLOCATE(TRACE_MALLOC, size, 0, next.malloc(size)); }

EXPORT void *calloc(size_t count, size_t size) {
  ALLOCATE(TRACE_CALLOC, count * size, 0, next.calloc(count, size)); // NULL on overflow
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) {
  ALLOCATE(TRACE_ALIGNED, size, alignment, next.aligned_alloc(alignment, size));
}

EXPORT void *memalign(size_t alignment, size_t size) {
  ALLOCATE(TRACE_ALIGNED, size, alignment, next.memalign(alignment, size));
}

EXPORT void *valloc(size_t size) {
  ALLOCATE(TRACE_ALIGNED, size, (size_t)sysconf(_SC_PAGESIZE), next.valloc(size));
}

EXPORT void *pvalloc(size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) & -page;
  ALLOCATE(TRACE_ALIGNED, whole, page, next.pvalloc(size));
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t size) {
  if (!ready()) return ENOMEM;
  bool on = enter();
  int error = next.posix_memalign(out, alignment, size);
  if (on) {
    if (error == 0) note_alloc(TRACE_ALIGNED, *out, size, alignment);
    leave();
  }
  return error;
}

EXPORT void free(void *p) {
  if (p == NULL || is_early(p) || !ready()) return;
  bool on = enter();
  if (on) note_free(p, number());
  next.free(p);
  if (on) leave();
}

EXPORT void free_sized(void *p, size_t size) {
  (void)size;
  free(p);
}

EXPORT void free_aligned_sized(void *p, size_t alignment, size_t size) {
  (void)alignment, (void)size;
  free(p);
}

static void *move_early(void *p, size_t size) {
  void *q = malloc(size);
  size_t most = (size_t)(early + EARLY_SIZE - (char *)p);
  return q != NULL ? memcpy(q, p, size < most ? size : most) : NULL;
}

EXPORT void *realloc(void *p, size_t size) {
  if (UNLIKELY(p != NULL && is_early(p))) return move_early(p, size);
  if (UNLIKELY(!ready())) return early_alloc(size);
  bool on = enter();
  uint64_t before = on && p != NULL ? number() : 0;
  void *q = next.realloc(p, size);
  if (on) {
    if (p == NULL) note_alloc(TRACE_MALLOC, q, size, 0);
    else if (q != NULL) note_realloc(p, q, size, before);
    else if (size == 0) note_free(p, before);
    leave();
  }
  return q;
}

EXPORT void *reallocarray(void *p, size_t count, size_t size) {
  size_t total;
  if (__builtin_mul_overflow(count, size, &total)) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc(p, total);
}
