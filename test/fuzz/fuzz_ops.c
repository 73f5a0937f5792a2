// fuzz_ops.c: the fuzz target. An input (input.h) is a sequence of calls of the whole API by
// up to four threads, with options and failing system calls. A shadow of the heap (blocks.h)
// checks contents, overlap, alignment, usable sizes, errno and zeros. At the end of an input
// nothing may be left over.
//
// The allocator's globals outlive an input, as in any process: the next input starts with what
// one input leaves (unless hak_trim returns it).

#include "blocks.h"

#include <semaphore.h>

#include "core/misuse.h"
#include "core/options.h"
#include "input.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/nursery.h"
#include "thread/quarantine.h"

enum { UNTOUCHED = 113 }; // errno before every call
#define SURE_SIZE (64 * MIB) // smaller requests are refused only under faults
#define LIVE_MAX (512 * MIB)

void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag);
void *_ZnwmSt11align_val_t(size_t size, size_t alignment);
void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *tag);
void *_Znwm(size_t size);
void *_ZnamRKSt9nothrow_t(size_t size, const void *tag);
void _ZdlPv(void *p);
void _ZdlPvm(void *p, size_t size);
void _ZdlPvRKSt9nothrow_t(void *p, const void *tag);
void _ZdlPvSt11align_val_t(void *p, size_t alignment);
void _ZdlPvmSt11align_val_t(void *p, size_t size, size_t alignment);
void _ZdaPv(void *p);
void _ZdaPvmSt11align_val_t(void *p, size_t size, size_t alignment);
void free_sized(void *p, size_t size);
void free_aligned_sized(void *p, size_t alignment, size_t size);
void *mallocx(size_t size, int flags);
void *rallocx(void *p, size_t size, int flags);
size_t xallocx(void *p, size_t size, size_t extra, int flags);
size_t sallocx(const void *p, int flags);
void dallocx(void *p, int flags);
void sdallocx(void *p, size_t size, int flags);
size_t nallocx(size_t size, int flags);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

char invocation[200];
static int null_fd;
static FILE *null_file;

static op_t ops[OPS_MAX];
static size_t op_count;
static header_t header;
static _Atomic bool faults;      // calls may fail now
static bool faults_planned;      // somewhere in this input
static _Atomic uint64_t handed_out; // blocks, in this input

// ---------------------------------------------------------------------------
// Allocation

static bool may_refuse(size_t size, size_t alignment) {
  return size > SURE_SIZE || alignment > SURE_SIZE || atomic_load(&faults) ||
         (header.at_once && faults_planned);
}

// p is the result of a call that may return NULL with errno = ENOMEM.
static bool got_block(const void *p, size_t size, size_t alignment) {
  int error = errno;
  if (p) {
    CHECK(size <= PTRDIFF_MAX);
    CHECK(error == UNTOUCHED);
    return true;
  }
  CHECK(error == ENOMEM);
  CHECK(may_refuse(size, alignment));
  return false;
}

static bool fresh(const void *p, size_t size, size_t alignment) {
  bool block = got_block(p, size, alignment);
  if (block) atomic_fetch_add(&handed_out, 1);
  return block;
}

static uint64_t seed_of(const op_t *op) { return (uint64_t)(op - ops) << 16 | op->argument; }

// Called through pointers that hide the function: the compiler may assume that any alignment
// passed to it is a power of two.
typedef void *aligned_t(size_t alignment, size_t size);
static aligned_t *volatile const std_aligned_alloc = aligned_alloc;
static aligned_t *volatile const std_memalign = memalign;

static void *aligned(const op_t *op, size_t alignment, size_t size) {
  switch (op->kind) {
  case OP_ALIGNED_ALLOC:
    return op->variant & 1 ? std_aligned_alloc(alignment, size) : hak_aligned_alloc(alignment, size);
  case OP_MEMALIGN: return op->variant & 1 ? std_memalign(alignment, size) : hak_memalign(alignment, size);
  case OP_VALLOC: return op->variant & 1 ? valloc(size) : hak_valloc(size);
  default: return op->variant & 1 ? pvalloc(size) : hak_pvalloc(size);
  }
}

static bool power_of_two(size_t n) { return n && !(n & (n - 1)); }

static void allocate_aligned(slot_t *slot, const op_t *op, size_t size) {
  size_t alignment = alignment_of(op->argument);
  if (op->kind == OP_VALLOC || op->kind == OP_PVALLOC) alignment = hak_os_page_size;
  errno = UNTOUCHED;
  void *p = aligned(op, alignment, size);
  if (op->kind == OP_ALIGNED_ALLOC && !power_of_two(alignment)) {
    CHECK(!p && errno == EINVAL);
    return;
  }
  if (!p && op->kind == OP_MEMALIGN && errno == EINVAL) {
    CHECK(alignment > (SIZE_MAX >> 1) + 1);
    return;
  }
  size_t round = 1; // memalign's own rounding
  while (round < alignment) round *= 2;
  if (!fresh(p, size, round)) return;
  if (op->kind == OP_PVALLOC)
    size = size ? (size + hak_os_page_size - 1) & ~(hak_os_page_size - 1) : hak_os_page_size;
  keep(slot, p, size, round, seed_of(op));
}

static void allocate_posix(slot_t *slot, const op_t *op, size_t size) {
  size_t alignment = alignment_of(op->argument);
  void *p = slot; // any value; the call must not change it
  errno = UNTOUCHED;
  int result = op->variant & 1 ? posix_memalign(&p, alignment, size)
                               : hak_posix_memalign(&p, alignment, size);
  CHECK(errno == UNTOUCHED);
  bool valid = power_of_two(alignment) && alignment % sizeof(void *) == 0;
  CHECK((result == EINVAL) == !valid);
  if (result != 0) {
    CHECK(p == slot);
    CHECK(!valid || (result == ENOMEM && may_refuse(size, alignment)));
    return;
  }
  CHECK(p && size <= PTRDIFF_MAX);
  atomic_fetch_add(&handed_out, 1);
  keep(slot, p, size, alignment, seed_of(op));
}

static void allocate_new(slot_t *slot, const op_t *op, size_t size) {
  size_t alignment = 16;
  void *p;
  errno = UNTOUCHED;
  // The throwing forms are called only where they cannot throw.
  bool sure = !faults_planned && !atomic_load(&faults) && size < SURE_SIZE;
  switch (op->variant) {
  default: p = _ZnwmRKSt9nothrow_t(size, NULL); break;
  case 1: p = _ZnamRKSt9nothrow_t(size, NULL); break;
  case 2:
    alignment = (size_t)1 << (op->argument & 15);
    p = _ZnwmSt11align_val_tRKSt9nothrow_t(size, alignment, NULL);
    break;
  case 3: p = sure ? _Znwm(size) : _ZnwmRKSt9nothrow_t(size, NULL); break;
  case 4:
    if (!sure) return;
    alignment = (size_t)1 << (op->argument & 15);
    p = _ZnwmSt11align_val_t(size, alignment);
    break;
  }
  if (fresh(p, size, alignment)) keep(slot, p, size, alignment, seed_of(op));
}

static void allocate_zeroed(slot_t *slot, const op_t *op, size_t size) {
  size_t count = op->variant & 2 ? op->argument % 9 + 1 : 1, each = size / count + 1, total;
  if (op->variant & 4) count = size, each = 1;
  bool overflow = __builtin_mul_overflow(count, each, &total);
  errno = UNTOUCHED;
  void *p = op->variant & 1 ? calloc(count, each) : hak_calloc(count, each);
  if (overflow) {
    CHECK(!p && errno == ENOMEM);
    return;
  }
  if (!fresh(p, total, 1)) return;
  check_zero(p, total);
  keep(slot, p, total, 1, seed_of(op));
}

// jemalloc's functions: a block counts as if its whole real size had been asked for.
static void allocate_real(slot_t *slot, const op_t *op, size_t size) {
  int flags = op->argument & 0x7f; // the alignment, and whether zeroed
  if ((flags & 0x3f) > 30) flags &= 0x4f;
  size_t alignment = (size_t)1 << (flags & 0x3f), real = nallocx(size, flags);
  CHECK(real >= size || size > PTRDIFF_MAX - 4096);
  errno = UNTOUCHED;
  void *p = mallocx(size, flags);
  CHECK(!p || real);
  if (!fresh(p, real ? real : size, alignment)) return;
  if (flags & 0x40) check_zero(p, sallocx(p, 0));
  keep(slot, p, real, alignment, seed_of(op));
}

static void allocate(slot_t *slot, const op_t *op) {
  size_t size = size_of(op->code, slot->size);
  if (atomic_load(&live_bytes) > LIVE_MAX) return;
  switch (op->kind) {
  case OP_CALLOC: allocate_zeroed(slot, op, size); return;
  case OP_POSIX_MEMALIGN: allocate_posix(slot, op, size); return;
  case OP_NEW: allocate_new(slot, op, size); return;
  case OP_ALIGNED_ALLOC:
  case OP_MEMALIGN:
  case OP_VALLOC:
  case OP_PVALLOC: allocate_aligned(slot, op, size); return;
  default: break;
  }
  if (op->variant & 4) {
    allocate_real(slot, op, size);
    return;
  }
  errno = UNTOUCHED;
  void *p = op->variant & 1 ? malloc(size) : hak_malloc(size);
  if (fresh(p, size, 1)) keep(slot, p, size, 1, seed_of(op));
}

// ---------------------------------------------------------------------------
// realloc and free

static bool by_rallocx(const op_t *op) { return op->kind == OP_REALLOC && op->variant & 4; }

static void *call_realloc(const op_t *op, void *p, size_t size) {
  if (by_rallocx(op) && size) return rallocx(p, size, 0);
  if (op->kind == OP_REALLOC) return op->variant & 1 ? realloc(p, size) : hak_realloc(p, size);
  return op->variant & 1 ? reallocarray(p, size, 1) : hak_reallocarray(p, 1, size);
}

static void resize(slot_t *slot, const op_t *op) {
  size_t size = size_of(op->code, slot->size);
  if (by_rallocx(op) && size && nallocx(size, 0)) size = nallocx(size, 0);
  if (atomic_load(&live_bytes) > LIVE_MAX && size > slot->size) return;
  slot_t old = {.p = slot->p,
                .size = slot->size,
                .usable = slot->usable,
                .alignment = slot->alignment,
                .seed = slot->seed,
                .resized = slot->resized};
  if (op->kind == OP_REALLOCARRAY && op->variant & 2) {
    // Volatile avoids a warning. Without its upper half the product would be small.
    volatile size_t too_many = SIZE_MAX / 16 + 2 + op->argument % 64;
    errno = UNTOUCHED;
    CHECK(!hak_reallocarray(old.p, too_many, 16) && errno == ENOMEM);
  }
  if (old.p) forget(slot);
  errno = UNTOUCHED;
  unsigned char *p = call_realloc(op, old.p, size);
  slot->p = NULL;
  if (old.p && size == 0) {
    CHECK(!p && errno == UNTOUCHED);
    return;
  }
  if (!got_block(p, size, 1)) {
    if (!old.p) return;
    CHECK(size > old.size); // shrinking cannot fail
    each_word(old.p, old.usable, old.usable, old.seed, compare);
    keep(slot, old.p, old.size, old.alignment, old.seed);
    slot->resized = old.resized;
    CHECK(slot->usable == old.usable);
    return;
  }
  if (old.p)
    each_word(p, old.usable, size < old.size ? size : old.size, old.seed, compare);
  keep(slot, p, size, 1, seed_of(op));
  slot->resized = true;
}

static void call_free(const op_t *op, void *p, size_t size, size_t alignment, bool resized) {
  switch (op->kind) {
  case OP_FREE_SIZED:
    // C23: free_sized is for malloc's blocks, not for those with an alignment.
    switch (alignment > 16 ? (op->variant & 1) | 2 : op->variant & 1) {
    case 0: hak_free_sized(p, size); return;
    case 1: free_sized(p, size); return;
    case 2: hak_free_aligned_sized(p, alignment, size); return;
    default: free_aligned_sized(p, alignment, size); return;
    }
  case OP_DELETE:
    // No operator knows the size of a block that realloc made.
    switch (resized ? 0 : alignment > 16 && op->variant == 1 ? 4 : op->variant) {
    case 0: _ZdlPv(p); return;
    case 1: _ZdlPvm(p, size); return;
    case 2: _ZdlPvRKSt9nothrow_t(p, NULL); return;
    case 3: _ZdlPvSt11align_val_t(p, alignment); return;
    case 4: _ZdlPvmSt11align_val_t(p, size, alignment); return;
    case 5: _ZdaPvmSt11align_val_t(p, size, alignment); return;
    default: _ZdaPv(p); return;
    }
  default:
    switch (op->variant) {
    default: hak_free(p); return;
    case 1:
    case 3: free(p); return;
    case 4: dallocx(p, 0); return;
    case 5: sdallocx(p, size, 0); return;
    }
  }
}

static void release(slot_t *slot, const op_t *op) {
  void *p = slot->p;
  if (p) forget(slot);
  slot->p = NULL;
  errno = UNTOUCHED;
  call_free(op, p, p ? slot->size : 0, p ? slot->alignment : 1, p && slot->resized);
  CHECK(errno == UNTOUCHED);
}

// ---------------------------------------------------------------------------
// The other operations

static void inspect(const slot_t *slot) {
  if (!slot->p) {
    CHECK(hak_malloc_usable_size(NULL) == 0 && malloc_usable_size(NULL) == 0);
    CHECK(!hak_owns(NULL) && !hak_owns(slot));
    return;
  }
  verify(slot);
  CHECK(malloc_usable_size(slot->p) == slot->usable && sallocx(slot->p, 0) == slot->usable);
  CHECK(slot->usable == 0 || xallocx(slot->p, slot->usable, 0, 0) == slot->usable);
  CHECK(hak_owns(slot->p) && hak_owns(slot->p + (slot->usable ? slot->usable - 1 : 0)));
}

// Whether either library notices at once that a block just freed is freed again
// (docs/security.md): the default library checks blocks of other threads only later.
static bool freed_here(const void *p, size_t usable) {
  hak_slab_t *slab = hak_slab_lookup(p);
  if (HAK_SECURE || slab == NULL || usable > HAK_L2_MAX) return true;
  slab -= slab->offset;
  switch (hak_slab_kind(slab)) {
  case HAK_KIND_TINY: return slab->free == p && hak_slab_owner(slab) == hak_tls_heap;
  case HAK_KIND_L2: return hak_slab_owner(slab) == hak_tls_heap;
  default: return true;
  }
}

static void realloc_wrongly(void *p, size_t size) {
  CHECK(!realloc(p, size) && (size == 0 || errno == EINVAL));
  errno = UNTOUCHED;
}

static void call_wrongly(slot_t *slot, const op_t *op) {
  unsigned char *p = slot->p;
  size_t usable = slot->usable, steps = usable / 16;
  size_t inside = steps > 1 ? (1 + op->code % (steps - 1)) * 16 : 0;
  op_t freeing = {.kind = OP_FREE, .variant = op->variant & 1};
  switch (op->argument % 8) {
  case 0: free(p + 1 + op->code % 15); return;
  case 1: free(slots); return;
  case 2: // reported, and the block is freed; not in the secure library
    if (!HAK_SECURE) forget(slot), slot->p = NULL;
    hak_free_sized(p, 2 * usable + 100);
    return;
  case 3:
    release(slot, &freeing);
    if (freed_here(p, usable)) hak_free(p);
    else free(slots);
    return;
  case 4:
    release(slot, &freeing);
    if (freed_here(p, usable)) realloc_wrongly(p, op->code);
    else free(slots);
    return;
  default: break; // inside a block
  }
  if (inside == 0) free(p + 8);
  else if (op->argument % 8 == 5) realloc_wrongly(p + inside, op->code);
  else if (op->argument % 8 == 6) CHECK(hak_malloc_usable_size(p + inside) == 0);
  else if (usable > HAK_TINY_MAX || HAK_CHECKS != 0) free(p + inside);
  else free(slots);
}

// A wrong call with HAKMEM_ABORT=0, on the first block from slot on: it is reported once, and
// nothing else changes.
static void misuse(slot_t *slot, const op_t *op) {
  if (header.at_once) return; // a report could be another thread's
  for (size_t i = 0; i < SLOTS && !slot->p; i++)
    slot = slot + 1 < slots + SLOTS ? slot + 1 : slots;
  if (!slot->p) return;
  hold(slot);
  uint32_t before = hak_misuse_count;
  int saved = dup(2);
  dup2(null_fd, 2);
  hak_option_values[HAK_OPT_ABORT] = 0;
  errno = UNTOUCHED;
  call_wrongly(slot, op);
  hak_option_values[HAK_OPT_ABORT] = 1;
  int error = errno;
  dup2(saved, 2);
  close(saved);
  CHECK(error == UNTOUCHED);
  CHECK(hak_misuse_count == before + 1);
  if (slot->p) verify(slot);
  let_go(slot);
}

static void check_stats(const hak_stats_t *s) {
  CHECK(s->size == sizeof *s);
  CHECK(s->tiny_allocs + s->l2_allocs + s->l25_allocs + s->huge_allocs + s->guard_allocs +
            s->first_allocs ==
        s->allocs);
  CHECK(s->mapped_bytes == s->superslab_bytes + s->huge_bytes + s->huge_cached_bytes + s->metadata_bytes);
  if (header.at_once) return; // figures of running threads are only nearly exact
  CHECK(s->allocs - s->frees == s->live_blocks);
  CHECK(s->peak_bytes >= s->mapped_bytes);
  // They may exceed it by what other threads freed and still hold back.
  CHECK(s->live_blocks >= atomic_load(&live_blocks));
  CHECK(s->live_bytes >= atomic_load(&live_bytes));
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static struct mallinfo old_mallinfo(void) { return mallinfo(); }
#pragma GCC diagnostic pop

static void check_mallinfo(void) {
  struct mallinfo2 m = mallinfo2();
  struct mallinfo old = old_mallinfo();
  if (header.at_once) return;
  CHECK(m.uordblks + m.hblkhd >= atomic_load(&live_bytes));
  CHECK(m.uordblks + m.fordblks == m.arena);
  CHECK(m.arena > INT32_MAX || (size_t)old.arena == m.arena);
  CHECK(m.hblkhd > INT32_MAX || (size_t)old.hblkhd == m.hblkhd);
}

static void print_stats_quietly(void) {
  if (header.at_once) return; // another thread's sanitizer report would be lost
  int saved = dup(2);
  dup2(null_fd, 2);
  malloc_stats();
  dup2(saved, 2);
  close(saved);
}

static void report(const op_t *op) {
  unsigned char partial[sizeof(hak_stats_t) + 64];
  hak_stats_t stats;
  size_t size = op->code % sizeof partial;
  errno = UNTOUCHED;
  switch (op->variant) {
  case 0:
    CHECK(hak_stats_get(&stats, sizeof stats));
    check_stats(&stats);
    break;
  case 1:
    memset(partial, 0xa5, sizeof partial);
    CHECK(hak_stats_get((hak_stats_t *)(void *)partial, size) == (size > 0));
    for (size_t i = size; i < sizeof partial; i++) CHECK(partial[i] == 0xa5);
    CHECK(!hak_stats_get(NULL, size));
    break;
  case 2: check_mallinfo(); break;
  case 3:
    CHECK(malloc_info(0, null_file) == 0);
    CHECK(malloc_info(1 + op->code, null_file) == -1 && errno == EINVAL);
    return;
  case 4: hak_stats_print(null_fd, op->code & 1); break;
  case 5:
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    mallopt((int)(op->code % 64) - 32, (int)op->argument);
    break;
  case 6: print_stats_quietly(); return;
  default:
    CHECK(hak_version() == HAKMEM_VERSION);
    hak_heap_check(hak_tls_heap);
  }
  CHECK(errno == UNTOUCHED);
}

static void trim(const op_t *op) {
  size_t keep_bytes = size_of(op->code, 0);
  errno = UNTOUCHED;
  if (op->variant & 1) malloc_trim(keep_bytes);
  else hak_trim(keep_bytes);
  CHECK(errno == UNTOUCHED);
}

static void plan_faults(unsigned kinds, unsigned skip, bool once) {
  if (kinds) atomic_store(&faults, true);
  hak_os_fault(kinds, skip, once);
  if (!kinds) atomic_store(&faults, false);
}

typedef void each_t(slot_t *slot, const op_t *op);

static void refill_slot(slot_t *slot, const op_t *op) {
  op_t freeing = {.kind = OP_FREE, .variant = op->variant & 1};
  if (slot->p) release(slot, &freeing);
  allocate(slot, op);
}
static void clear_slot(slot_t *slot, const op_t *op) {
  op_t freeing = {.kind = op->code % 3 == 0 ? OP_FREE : op->code % 3 == 1 ? OP_FREE_SIZED : OP_DELETE,
                  .variant = op->variant};
  if (slot->p) release(slot, &freeing);
}

// Calls each on every step-th of the n slots from the operation's on.
static void for_slots(const op_t *op, size_t n, size_t step, each_t *each) {
  for (size_t i = 0; i < n; i += step) {
    slot_t *slot = &slots[(op->slot * SLOTS_PER_BYTE + i) % SLOTS];
    hold(slot);
    each(slot, op);
    let_go(slot);
  }
}

// At most the blocks that fit into 1 MiB, or two.
static size_t row_length(const op_t *op) {
  size_t size = size_of(op->code, 0), most = size > MIB / 2 ? 2 : MIB / (size + 1);
  size_t n = op->argument % 1100;
  return n < most ? n : most;
}

// A key's destructor that runs twice after the heap has left its thread: it frees and
// allocates.
static pthread_key_t late_key;
static void late_work(void *op) {
  static __thread bool again;
  for_slots(op, 1 + ((op_t *)op)->argument % 40, 1, refill_slot);
  if (!again) pthread_setspecific(late_key, op);
  again = true;
}

static void do_op(const op_t *op) {
  slot_t *slot = &slots[op->slot * SLOTS_PER_BYTE + (op->argument >> 8) % SLOTS_PER_BYTE];
  switch ((op_kind_t)op->kind) {
  case OP_FILL: for_slots(op, row_length(op), 1, refill_slot); return;
  case OP_CLEAR: for_slots(op, op->argument % 1100, 1, clear_slot); return;
  case OP_THIN:
    for (size_t keep_one = 2 + op->code % 60, i = 1; i < keep_one; i += 1 + op->variant)
      for_slots(&(op_t){.kind = op->kind, .code = (uint16_t)i, .slot = (uint8_t)(op->slot + i)},
                op->argument % SLOTS, keep_one, clear_slot);
    return;
  case OP_REPORT: report(op); return;
  case OP_TRIM: trim(op); return;
  case OP_FAULT: plan_faults(op->argument & HAK_FAULT_ALL, op->code & 63, op->variant & 1); return;
  case OP_END: // ends a thread that is not the caller
    if (op->thread && op->variant & 1) pthread_setspecific(late_key, op);
    return;
  case OP_SWITCH:
  case OPS: return;
  case OP_INSPECT:
    if (op->variant < 4) break;
    misuse(slot, op);
    return;
  default: break;
  }
  hold(slot);
  switch ((op_kind_t)op->kind) {
  case OP_REALLOC:
  case OP_REALLOCARRAY: resize(slot, op); break;
  case OP_FREE:
  case OP_FREE_SIZED:
  case OP_DELETE: release(slot, op); break;
  case OP_INSPECT: inspect(slot); break;
  default: refill_slot(slot, op); break;
  }
  let_go(slot);
}

// ---------------------------------------------------------------------------
// Threads. The caller is number 0 and never ends.

typedef struct {
  pthread_t thread;
  unsigned number;
  bool alive;      // started and not joined
  size_t from, to; // its part of ops; to == 0: end (in turn)
  sem_t go, done;
} worker_t;
static worker_t workers[THREADS_MAX];
static _Atomic unsigned at_the_start;

static void start(worker_t *w, void *(*body)(void *)) {
  CHECK(pthread_create(&w->thread, NULL, body, w) == 0);
  w->alive = true;
}
static void join(worker_t *w) {
  CHECK(pthread_join(w->thread, NULL) == 0);
  w->alive = false;
}

// At once: does all operations of the thread, up to an END. In turn: does a part each time.
static void *run_at_once(void *argument) {
  worker_t *w = argument;
  for (; w->from < op_count; w->from++) {
    if (ops[w->from].thread != w->number) continue;
    do_op(&ops[w->from]);
    if (ops[w->from].kind == OP_END && w->number > 0) return w->from++, NULL;
  }
  return NULL;
}
static void *start_at_once(void *argument) {
  atomic_fetch_sub(&at_the_start, 1);
  while (atomic_load(&at_the_start)) sched_yield();
  return run_at_once(argument);
}

static void all_at_once(void) {
  atomic_store(&at_the_start, header.threads);
  for (unsigned i = 0; i < header.threads; i++) workers[i].from = 0;
  for (unsigned i = 1; i < header.threads; i++) start(&workers[i], start_at_once);
  start_at_once(&workers[0]);
  for (bool more = true; more;) {
    more = false;
    for (unsigned i = 1; i < header.threads; i++) {
      worker_t *w = &workers[i];
      if (!w->alive) continue;
      join(w);
      if (w->from == op_count) continue;
      start(w, run_at_once); // the next life continues where this one ended
      more = true;
    }
  }
}

static void *run_in_turn(void *argument) {
  worker_t *w = argument;
  for (;;) {
    while (sem_wait(&w->go) != 0) {}
    if (w->to == 0) return NULL;
    for (size_t i = w->from; i < w->to; i++) do_op(&ops[i]);
    sem_post(&w->done);
  }
}

static void hand_over(worker_t *w, size_t from, size_t to) {
  if (!w->alive) start(w, run_in_turn);
  w->from = from, w->to = to;
  sem_post(&w->go);
  while (sem_wait(&w->done) != 0) {}
}
static void end(worker_t *w) {
  if (!w->alive) return;
  w->to = 0;
  sem_post(&w->go);
  join(w);
}

static void in_turn(void) {
  for (size_t from = 0, to; from < op_count; from = to) {
    worker_t *w = &workers[ops[from].thread];
    for (to = from + 1; to < op_count && ops[to].thread == w->number; to++)
      if (ops[to - 1].kind == OP_END) break;
    if (w->number == 0)
      for (size_t i = from; i < to; i++) do_op(&ops[i]);
    else hand_over(w, from, to);
    if (ops[to - 1].kind == OP_END) end(w);
  }
  for (unsigned i = 1; i < header.threads; i++) end(&workers[i]);
}

// ---------------------------------------------------------------------------
// An input

static void set_options(void) {
  static bool read_once[8]; // what the environment sets takes precedence
  static const char *names[] = {"LRU_CAP", "FULL_MARK", "REMOTE_PENDING", "REFILL_BATCH",
                                "PREFAULT", "PREWARM", "WARM_PREFILL", "TIERS"};
  static const hak_opt_t options[] = {
    HAK_OPT_LRU_CAP, HAK_OPT_FULL_MARK, HAK_OPT_REMOTE_PENDING, HAK_OPT_REFILL_BATCH,
    HAK_OPT_PREFAULT, HAK_OPT_PREWARM, HAK_OPT_WARM_PREFILL, HAK_OPT_TIERS};
  uint64_t values[] = {header.lru_cap, header.full_mark, header.remote_pending, header.refill_batch,
                       header.prefault, header.prewarm, header.warm_prefill, header.tiers};
  for (unsigned i = 0; i < 8; i++) {
    char name[40];
    snprintf(name, sizeof name, "HAKMEM_%s", names[i]);
    read_once[i] = read_once[i] || getenv(name);
    if (!read_once[i]) hak_option_values[options[i]] = values[i];
  }
}

// Blocks held back in quarantines count as live, so this empties them: this thread's, and
// those of nurseries, which outlive the threads that shared them.
static void let_held_go(void) {
  if (hak_tls_heap->id) hak_quarantine_flush(hak_tls_heap);
  for (uint32_t id = 1; id <= hak_heap_count(); id++) {
    hak_heap_t *heap = hak_heap_by_id(id);
    if (!atomic_load(&heap->nursery)) continue;
    while (!hak_heap_take(heap, HAK_HEAP_ATTACHED)) sched_yield(); // a helper thread has it
    hak_quarantine_flush(heap);
    hak_nursery_leave(heap);
  }
}

static void check_end(const hak_stats_t *before) {
  hak_stats_t now;
  CHECK(atomic_load(&live_blocks) == 0 && atomic_load(&live_bytes) == 0);
  let_held_go();
  CHECK(hak_stats_get(&now, sizeof now));
  CHECK(now.live_blocks == 0 && now.live_bytes == 0);
  CHECK(now.allocs == now.frees);
  CHECK(now.allocs - before->allocs >= atomic_load(&handed_out));
  CHECK(now.huge_bytes == 0);
  CHECK(now.peak_bytes >= now.mapped_bytes);
  // Per thread one heap to use and one to tidy up; and 20 commons.
  CHECK(now.heaps <= 2 * THREADS_MAX + 1 + 20);
  if (header.keep) return;
  hak_trim(0);
  CHECK(hak_stats_get(&now, sizeof now));
  if (!hak_option(BACKGROUND)) CHECK(now.superslab_bytes == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  report_fd = dup(2);
  null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
  null_file = fdopen(null_fd, "w");
  pthread_key_create(&late_key, late_work); // made after the heap's key: it runs later
  shadow_init();
  for (unsigned i = 0; i < THREADS_MAX; i++) {
    workers[i].number = i;
    sem_init(&workers[i].go, 0, 0);
    sem_init(&workers[i].done, 0, 0);
  }
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < HEADER_BYTES + RECORD_BYTES) return -1; // not worth keeping
  header = read_header(data);
  op_count = read_ops(data + HEADER_BYTES, size - HEADER_BYTES, header.threads, ops);
  faults_planned = header.fault_kinds != 0;
  for (size_t i = 0; i < op_count; i++) faults_planned |= ops[i].kind == OP_FAULT;
  set_options();
  hak_stats_t before;
  CHECK(hak_stats_get(&before, sizeof before));
  atomic_store(&handed_out, 0);

  plan_faults(header.fault_kinds, header.fault_skip, header.fault_once);
  if (header.at_once && header.threads > 1) all_at_once();
  else in_turn();
  plan_faults(0, 0, false);

  for_slots(&(op_t){.slot = 0}, SLOTS, 1, clear_slot);
  check_end(&before);
  return 0;
}
