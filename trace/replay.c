// replay: repeats a recorded program's calls on an allocator (README.md).
//
// Every recorded thread is a thread here and makes its own calls in its own order. A free of
// another thread's block waits until that thread has allocated it. The trace's events are cut
// into epochs of --window events. A thread enters an epoch when all threads have finished the
// epoch before the previous one. A thread starts when it may enter its first epoch and the
// threads that ended before its first event have ended. So no thread runs far ahead of the others,
// no more threads run at once than in the recorded program, and memory in use stays near its own.
//
// All tables are mapped and filled before the measured part. The peak RSS of the process is
// reset then, and the size of the tables is subtracted.

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "common.h"
#include "load.h"

enum { ROUNDS, WINDOW, QUICK, CHECK };
#define QUICK_EVENTS 200000u
#define SPINS 300u // attempts before a thread waits in the kernel
#define STACK_SIZE 262144u

static bench_arg_t args[] = {
    {"--rounds", "times to replay the whole trace", 1, 1, 1000000},
    {"--window", "events in an epoch, 0: let threads run freely", 16384, 0, UINT32_MAX},
    {"--quick", "only the first 200,000 events", 0, 0, 0},
    {"--check", "fill every block, verify it when it is freed", 0, 0, 0},
    {0},
};

// One operation of a thread's sequence. Kinds are those of format.h; TRACE_SEGMENT means: enter
// epoch `size`. A realloc is followed by an op whose size is the old block's.
typedef struct {
  uint32_t block;
  uint32_t from;      // realloc: the old block
  uint64_t size : 48; // free: the block's size, for --check
  uint64_t kind : 8;
  uint64_t align : 8;
} op_t;

typedef struct {
  op_t *ops;
  uint64_t count;
  uint64_t first, last;                     // numbers of its first and last event
  uint64_t epoch;                           // while compiling: its last event's; 0: none yet
  uint64_t live_bytes, peak_bytes, largest; // of the blocks that it allocates
  pthread_t thread;                         // not set for the first replayer
  bench_ring_t ring;                        // for the floor
} __attribute__((aligned(128))) replayer_t;

// The address of each block. The allocating thread writes it once per round (release). The
// freeing thread reads it (acquire) and waits while it is NULL.
static _Atomic(char *) *blocks;
static uint32_t block_count;

static replayer_t *replayers; // in the order of their first events
static replayer_t **by_end;   // the same in the order of their last events
static uint32_t replayer_count;
static replayer_t survivors; // frees the blocks that the program never freed; not measured

// By epoch: how many threads take part in it, and how many of those have not finished it. The last
// thread's decrement releases what all of them did in the epoch; waiting threads acquire it.
static uint32_t *epoch_threads;
static _Atomic uint32_t *epoch_left;
static uint64_t epochs, window;

static void (*play)(replayer_t *);

static uint64_t live_peak;   // peak of live bytes over the replayed events
static uint64_t table_bytes; // mapped by this program, all of it resident
static int statm = -1;
static _Atomic uint64_t rss_sum, rss_samples, rss_most; // in OS pages; only statistics

static void *table(uint64_t count, size_t size) {
  uint64_t bytes = (count * size + BENCH_OS_PAGE) & ~(uint64_t)(BENCH_OS_PAGE - 1);
  table_bytes += bytes;
  return bench_map(bytes);
}

// ---------------------------------------------------------------------------
// Waiting

static void wait_for(_Atomic uint32_t *word) {
  for (unsigned i = 0; i < SPINS; i++)
    if (atomic_load_explicit(word, memory_order_acquire) == 0) return;
  uint32_t value;
  while ((value = atomic_load_explicit(word, memory_order_acquire)) != 0)
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void count_down(_Atomic uint32_t *word) {
  if (atomic_fetch_sub_explicit(word, 1, memory_order_acq_rel) == 1)
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static BENCH_COLD char *wait_for_block(uint32_t block) {
  for (unsigned i = 0;; i++) {
    char *p = atomic_load_explicit(&blocks[block], memory_order_acquire);
    if (p != NULL) return p;
    if (i >= SPINS) sched_yield();
    if (i >= 2 * SPINS) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
}

static void sample_rss(void) {
  char text[64];
  ssize_t n = pread(statm, text, sizeof text - 1, 0);
  text[n > 0 ? n : 0] = '\0';
  char *second = strchr(text, ' ');
  uint64_t pages = second != NULL ? strtoull(second, NULL, 10) : 0, most = rss_most;
  atomic_fetch_add(&rss_sum, pages);
  atomic_fetch_add(&rss_samples, 1);
  while (pages > most && !atomic_compare_exchange_weak(&rss_most, &most, pages)) continue;
}

// Epochs count from 1. The thread waits for the two epochs before the previous one: if it waited
// for only one, a thread that skips epochs could leave a straggler further behind.
static void wait_to_enter(uint64_t epoch) {
  if (epoch > 3) wait_for(&epoch_left[epoch - 3]);
  if (epoch > 2) wait_for(&epoch_left[epoch - 2]);
}

static BENCH_NOINLINE void change_epoch(uint64_t from, uint64_t to) {
  if (from != 0) {
    if (epoch_left[from] == 1) sample_rss();
    count_down(&epoch_left[from]);
  }
  if (to != 0) wait_to_enter(to);
}

// ---------------------------------------------------------------------------
// --check: every byte of a block depends on the block and the byte's offset

static uint64_t pattern(uint32_t block, size_t offset) {
  return (block + 1) * 0x9e3779b97f4a7c15u + offset;
}

static BENCH_COLD _Noreturn void damaged(uint32_t block, size_t size, const char *what) {
  fprintf(stderr, "replay: block %u of %zu bytes: %s\n", block, size, what);
  exit(1);
}

static BENCH_NOINLINE void fill(char *p, size_t size, uint32_t block) {
  size_t i = 0;
  uint64_t word;
  for (; i + 8 <= size; i += 8) {
    word = pattern(block, i);
    __builtin_memcpy(p + i, &word, 8);
  }
  word = pattern(block, i);
  memcpy(p + i, &word, size - i);
}

static BENCH_NOINLINE void verify(const char *p, size_t size, uint32_t block) {
  size_t i = 0;
  uint64_t word = 0, wrong = 0;
  for (; i + 8 <= size; i += 8) {
    __builtin_memcpy(&word, p + i, 8);
    wrong |= word ^ pattern(block, i);
  }
  word = pattern(block, i);
  if (wrong != 0 || memcmp(p + i, &word, size - i) != 0)
    damaged(block, size, "its contents changed");
}

static BENCH_NOINLINE void verify_new(const char *p, const op_t *op) {
  size_t alignment = op->kind == TRACE_ALIGNED ? (size_t)1 << op->align : op->size >= 16 ? 16 : 8;
  if (((uintptr_t)p & (alignment - 1)) != 0) damaged(op->block, op->size, "it is misaligned");
  for (size_t i = 0; op->kind == TRACE_CALLOC && i < op->size; i++)
    if (p[i] != 0) damaged(op->block, op->size, "calloc did not clear it");
}

// ---------------------------------------------------------------------------
// The calls

static BENCH_INLINE char *get(uint32_t block) {
  char *p = atomic_load_explicit(&blocks[block], memory_order_acquire);
  return __builtin_expect(p != NULL, 1) ? p : wait_for_block(block);
}

// Uses the block as a program would: writes a byte of each OS page from byte `from` on, and the
// last byte; reads them instead in a block from calloc.
static BENCH_INLINE void touch(char *p, size_t from, size_t size, bool write) {
  if (from >= size) return;
  for (size_t i = from; i < size; i += BENCH_OS_PAGE) {
    if (write) bench_touch(p, i);
    else (void)((volatile char *)p)[i];
  }
  if (write) bench_touch(p, size - 1);
  else (void)((volatile char *)p)[size - 1];
}

static BENCH_INLINE char *allocate(bench_ring_t *ring, const op_t *op) {
  if (ring != NULL) return bench_alloc(ring, op->size);
  void *p = NULL;
  if (op->kind == TRACE_MALLOC) p = malloc(op->size);
  else if (op->kind == TRACE_CALLOC) p = calloc(1, op->size);
  else if (posix_memalign(&p, (size_t)1 << (op->align > 3 ? op->align : 3), op->size) != 0)
    p = NULL;
  if (__builtin_expect(p == NULL, 0)) bench_die("replay: out of memory");
  return p;
}

static BENCH_INLINE char *resize(bench_ring_t *ring, bool check, const op_t *op, size_t had) {
  char *old = get(op->from);
  if (check) verify(old, had, op->from);
  if (ring != NULL) return bench_alloc(ring, op->size);
  // Not to size 0, which would be a free: in the recording realloc returned a block.
  char *p = realloc(old, op->size != 0 ? op->size : 1);
  if (__builtin_expect(p == NULL, 0)) bench_die("replay: out of memory");
  if (check) verify(p, had < op->size ? had : op->size, op->from);
  return p;
}

static BENCH_INLINE void loop(bench_ring_t *ring, bool check, const replayer_t *r) {
  uint64_t epoch = 0;
  for (const op_t *op = r->ops, *end = op + r->count; op < end; op++) {
    if (op->kind == TRACE_FREE) {
      char *p = get(op->block);
      if (check) verify(p, op->size, op->block);
      bench_free(ring, p);
      continue;
    }
    if (op->kind == TRACE_SEGMENT) {
      change_epoch(epoch, op->size);
      epoch = op->size;
      continue;
    }
    const op_t *this = op;
    size_t had = 0;
    char *p;
    if (this->kind == TRACE_REALLOC) {
      had = (++op)->size;
      p = resize(ring, check, this, had);
    } else {
      p = allocate(ring, this);
    }
    if (check) {
      verify_new(p, this);
      fill(p, this->size, this->block);
    } else {
      touch(p, had, this->size, this->kind != TRACE_CALLOC);
    }
    atomic_store_explicit(&blocks[this->block], p, memory_order_release);
  }
  if (epoch != 0) change_epoch(epoch, 0);
}

static BENCH_NOINLINE void play_real(replayer_t *r) { loop(NULL, false, r); }
static BENCH_NOINLINE void play_checked(replayer_t *r) { loop(NULL, true, r); }
static BENCH_NOINLINE void play_floor(replayer_t *r) {
  bench_ring_t local = r->ring;
  loop(&local, false, r);
}

// ---------------------------------------------------------------------------
// Threads. The main thread replays the program's first thread, so that allocators that treat the
// main thread specially do so here. A trace of one thread is replayed without further threads.
// One thread that does nothing else starts the others.

static void start_thread(pthread_t *thread, void *(*function)(void *), void *argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_SIZE);
  errno = pthread_create(thread, &attributes, function, argument);
  if (errno != 0) bench_die("replay: pthread_create");
  pthread_attr_destroy(&attributes);
}

static void *run_thread(void *r) {
  play(r);
  return NULL;
}

// Joins the threads, from by_end[at] on, whose last event is before `event`.
static uint32_t join_before(uint64_t event, uint32_t at) {
  for (; at < replayer_count && by_end[at]->last < event; at++)
    if (by_end[at] != replayers) pthread_join(by_end[at]->thread, NULL);
  return at;
}

static void *run_others(void *unused) {
  uint32_t joined = 0;
  for (uint32_t i = 1; i < replayer_count; i++) {
    joined = join_before(replayers[i].first, joined);
    wait_to_enter(replayers[i].first / window + 1);
    start_thread(&replayers[i].thread, run_thread, &replayers[i]);
  }
  join_before(UINT64_MAX, joined);
  return unused;
}

static bench_run_t run_round(uint64_t events) {
  memset((void *)blocks, 0, block_count * sizeof *blocks);
  for (uint64_t e = 1; e <= epochs; e++) epoch_left[e] = epoch_threads[e];
  pthread_t others;
  uint64_t start = bench_now_ns();
  if (replayer_count > 1) start_thread(&others, run_others, NULL);
  play(&replayers[0]);
  if (replayer_count > 1) pthread_join(others, NULL);
  bench_run_t run = {.ops = events, .ns = bench_now_ns() - start};
  play(&survivors);
  return run;
}

static bench_run_t run_rounds(uint64_t events) {
  bench_run_t sum = {0};
  for (uint64_t i = 0; i < args[ROUNDS].value; i++) {
    bench_run_t run = run_round(events);
    sum.ops += run.ops;
    sum.ns += run.ns;
  }
  return sum;
}

// ---------------------------------------------------------------------------
// Compiles a trace into the operations of each thread

typedef struct {
  uint32_t *place;  // by recorded thread: number of its replayer + 1
  uint32_t *owners; // by block: the replayer that allocated it
  uint8_t *ended;   // by block
  uint64_t live_bytes;
  bool write; // false: only count
} compiler_t;

static void emit(const compiler_t *c, replayer_t *r, op_t op) {
  if (c->write) r->ops[r->count] = op;
  r->count++;
}

static void end_block(compiler_t *c, const trace_t *t, uint32_t block) {
  c->ended[block] = 1;
  c->live_bytes -= t->sizes[block];
  replayers[c->owners[block]].live_bytes -= t->sizes[block];
}

static void make_block(compiler_t *c, replayer_t *r, uint32_t block, uint64_t size) {
  c->owners[block] = (uint32_t)(r - replayers);
  c->live_bytes += size;
  if (c->live_bytes > live_peak) live_peak = c->live_bytes;
  r->live_bytes += size;
  if (r->live_bytes > r->peak_bytes) r->peak_bytes = r->live_bytes;
  if (size > r->largest) r->largest = size;
}

static void compile_step(compiler_t *c, const trace_t *t, uint64_t number) {
  const trace_step_t *s = &t->steps[number];
  if (c->place[s->thread] == 0) c->place[s->thread] = ++replayer_count;
  replayer_t *r = &replayers[c->place[s->thread] - 1];
  uint64_t epoch = number / window + 1;
  if (r->epoch == 0) r->first = number;
  r->last = number;
  if (r->epoch != epoch) {
    r->epoch = epoch;
    epoch_threads[epoch] += !c->write;
    emit(c, r, (op_t){.kind = TRACE_SEGMENT, .size = epoch});
  }
  op_t op = {
      .block = s->block, .from = s->from, .size = s->size, .kind = s->kind, .align = s->align};
  if (s->kind == TRACE_FREE) {
    op.size = t->sizes[s->block];
    end_block(c, t, s->block);
  } else {
    make_block(c, r, s->block, s->size);
  }
  // A realloc of a block from before the recording is replayed as malloc.
  if (s->kind == TRACE_REALLOC && s->from == TRACE_NO_BLOCK) op.kind = TRACE_MALLOC;
  emit(c, r, op);
  if (op.kind == TRACE_REALLOC) {
    emit(c, r, (op_t){.size = t->sizes[s->from]});
    end_block(c, t, s->from);
  }
}

// Emits frees of the blocks that are never freed, in the order of their allocation.
static void compile_survivors(const compiler_t *c, const trace_t *t) {
  survivors.count = 0;
  for (uint32_t block = 0; block < block_count; block++)
    if (!c->ended[block])
      emit(c, &survivors, (op_t){.block = block, .size = t->sizes[block], .kind = TRACE_FREE});
}

static void compile_pass(compiler_t *c, const trace_t *t, uint64_t events) {
  memset(c->place, 0, t->threads * sizeof *c->place);
  memset(c->ended, 0, t->blocks);
  replayer_count = 0;
  block_count = 0;
  c->live_bytes = 0;
  for (uint32_t i = 0; i < t->threads; i++)
    replayers[i].count = replayers[i].epoch = replayers[i].live_bytes = 0;
  for (uint64_t i = 0; i < events; i++) {
    if (t->steps[i].kind != TRACE_FREE) block_count = t->steps[i].block + 1;
    compile_step(c, t, i);
  }
  compile_survivors(c, t);
}

static void order_by_end(compiler_t *c, const trace_t *t, uint64_t events) {
  uint32_t left = replayer_count;
  for (uint64_t i = events; left > 0 && i-- > 0;) {
    uint32_t *place = &c->place[t->steps[i].thread];
    if (*place != 0) by_end[--left] = &replayers[*place - 1];
    *place = 0;
  }
}

static void compile(const trace_t *t, uint64_t events) {
  window = args[WINDOW].value != 0 ? args[WINDOW].value : UINT64_MAX;
  epochs = events != 0 ? (events - 1) / window + 1 : 0;
  replayers = table(t->threads, sizeof *replayers);
  epoch_threads = table(epochs + 1, sizeof *epoch_threads);
  epoch_left = table(epochs + 1, sizeof *epoch_left);
  size_t place_size = (t->threads + 1) * sizeof(uint32_t), block_size = t->blocks + 1;
  compiler_t c = {.place = bench_map(place_size),
                  .owners = bench_map(block_size * sizeof(uint32_t)),
                  .ended = bench_map(block_size)};
  compile_pass(&c, t, events);
  for (uint32_t i = 0; i < replayer_count; i++)
    replayers[i].ops = table(replayers[i].count, sizeof(op_t));
  survivors.ops = table(survivors.count, sizeof(op_t));
  c.write = true;
  compile_pass(&c, t, events);
  blocks = table(block_count, sizeof *blocks);
  by_end = table(replayer_count, sizeof(replayer_t *));
  order_by_end(&c, t, events);
  munmap(c.place, place_size);
  munmap(c.owners, block_size * sizeof(uint32_t));
  munmap(c.ended, block_size);
}

// ---------------------------------------------------------------------------

static void refuse_too_much(const bench_t *b) {
  uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  if (live_peak <= memory / 4 * 3) return;
  fprintf(stderr, "replay: %s: %llu MiB are live at once, and replay touches all of it\n", b->file,
          (unsigned long long)(live_peak >> 20));
  exit(1);
}

// Resets VmHWM, so that it is the peak from now on; false if the kernel does not allow that.
static bool reset_peak(void) {
  int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  bool done = fd >= 0 && write(fd, "5", 1) == 1;
  if (fd >= 0) close(fd);
  return done;
}

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

int main(int argc, char **argv) {
  bench_t b = {.name = "replay",
               .what = "A recorded program's calls of malloc and free; "
                       "see trace/README.md.",
               .args = args,
               .file_name = "TRACE"};
  bench_parse(&b, argc, argv);
  trace_t t = trace_load("replay", b.file);
  uint64_t events = t.step_count;
  if (args[QUICK].value != 0 && events > QUICK_EVENTS) events = QUICK_EVENTS;
  if (events == 0) {
    fprintf(stderr, "replay: %s: there is nothing in this trace\n", b.file);
    return 1;
  }
  compile(&t, events);
  refuse_too_much(&b);
  trace_unload(&t);
  statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  bool reset = reset_peak();
  double own = (double)table_bytes / 1024, page = (double)sysconf(_SC_PAGESIZE) / 1024;

  struct rusage before, after;
  play = args[CHECK].value != 0 ? play_checked : play_real;
  getrusage(RUSAGE_SELF, &before);
  bench_run_t real = run_rounds(events), floor = {0};
  getrusage(RUSAGE_SELF, &after);
  double peak = (reset ? (double)bench_peak_rss_kib() : (double)rss_most * page) - own;
  double mean = rss_samples != 0 ? (double)rss_sum / (double)rss_samples * page - own : peak;
  if (b.net) {
    play = play_floor;
    for (uint32_t i = 0; i < replayer_count; i++)
      replayers[i].ring = bench_ring(replayers[i].peak_bytes, replayers[i].largest);
    for (int i = 0; i < BENCH_FLOOR_RUNS; i++) floor = bench_least(floor, run_rounds(events));
  }
  const bench_value_t extra[] = {
      {"mean_rss_kib", mean},
      {"live_peak_kib", (double)live_peak / 1024},
      {"minor_faults", (double)(after.ru_minflt - before.ru_minflt)},
      {"cpu_seconds", seconds(after.ru_utime) - seconds(before.ru_utime) + seconds(after.ru_stime) -
                          seconds(before.ru_stime)},
      {"threads", replayer_count},
      {0},
  };
  bench_report_extra(&b, real, floor, peak > 0 ? (uint64_t)peak : 0, extra);
  return 0;
}
