// scarce.h: where the system gives no more memory, a request is refused only if there is none.

#include "unit.h"

#include <dlfcn.h>
#include <sys/syscall.h>

#include "api/api.h"
#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "superslab/slab.h"
#include "thread/commons.h"
#include "thread/front.h"
#include "thread/heap.h"
#include "thread/process.h"

static void begin(void) {
  hak_process_init();
  unit_no_guards();
  hak_option(NURSERY) = 0;
}
// From now on there is the SuperSlab that this block is in.
static void *first;
static void no_more_memory(void) {
  CHECK((first = hak_malloc(1)) != NULL);
  hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_COMMIT, 0, false);
}

// Blocks of a size until there are no more.
enum { MOST = 1 << 17 };
static char *blocks[MOST];
static unsigned use_up(size_t size) {
  unsigned n = 0;
  for (void *p; (p = hak_malloc(size)) != NULL; n++) {
    CHECK(n < MOST);
    fill(blocks[n] = p, size, n);
  }
  CHECK_EQUAL(errno, ENOMEM);
  return n;
}
static void check_contents(unsigned n, size_t size) {
  for (unsigned i = 0; i < n; i++) CHECK(filled(blocks[i], size, i));
}
static uint64_t kept; // bytes of SuperSlabs that a test keeps in use
static void release(unsigned n, size_t size) {
  check_contents(n, size);
  for (unsigned i = 0; i < n; i++) hak_free(blocks[i]);
  hak_free(first);
  hak_os_fault(0, 0, false);
  hak_trim(0);
  hak_heap_check(hak_tls_heap);
  CHECK_EQUAL(hak_mapped.superslab_bytes, kept);
}

static struct {
  unsigned n, step;
} to_free;
static void *free_some(void *unused) {
  for (unsigned i = 0; i < to_free.n; i += to_free.step) hak_free(blocks[i]);
  return unused;
}

// One free block in a slab does not bring the slab back, but it is found.
static void one_of_each_slab(size_t size, bool by_another) {
  no_more_memory();
  unsigned n = use_up(size), again = 0;
  to_free.n = n, to_free.step = hak_classes[hak_size_class(size + HAK_TAIL)].capacity;
  if (by_another) unit_in_thread(free_some, NULL);
  else free_some(NULL);
  for (unsigned i = 0; i < n; i += to_free.step, again++) {
    CHECK((blocks[i] = hak_malloc(size)) != NULL);
    fill(blocks[i], size, i);
  }
  CHECK(again >= 20);
  CHECK(hak_malloc(size) == NULL);
  hak_heap_check(hak_tls_heap);
  release(n, size);
}
static void blocks_of_full_slabs(void) {
  begin();
  static const size_t sizes[] = {16, 100, 1000, 1250};
  for (unsigned i = 0; i < COUNT(sizes); i++) {
    one_of_each_slab(sizes[i], false);
    one_of_each_slab(sizes[i], true);
  }
}
ISOLATED(blocks_of_full_slabs)

// Takes back what each step-th block had, with blocks of another size. Returns how many there were.
static unsigned replace(unsigned n, unsigned step, size_t size, size_t by) {
  to_free.n = n, to_free.step = step;
  free_some(NULL);
  unsigned got = 0;
  for (unsigned i = 0; i < n; i += step) {
    char *p = got % 2 ? hak_calloc(1, by) : hak_malloc(by);
    if (got % 2 && p) CHECK(all_zero(p, by));
    blocks[i] = p;
    if (p) fill(p, by, i), got++;
  }
  for (unsigned i = 0; i < n; i++)
    if (i % step != 0) CHECK(filled(blocks[i], size, i));
  return got;
}
static void free_replaced(unsigned n, unsigned step, size_t by) {
  for (unsigned i = 0; i < n; i += step) {
    if (!blocks[i]) continue;
    CHECK(filled(blocks[i], by, i) && hak_malloc_usable_size(blocks[i]) >= by);
    if (i / step % 2) hak_free_sized(blocks[i], by);
    else hak_api_delete_sized(blocks[i], 1, by);
    blocks[i] = NULL;
  }
}

// A block of a larger class will do, whichever slab it is in, but an aligned one is aligned.
static void blocks_of_larger_classes(void) {
  enum { STEP = 3 };
  static const struct {
    size_t size, lender, aligned;
  } cases[] = {{9000, 12000, 8192}, {40, 1000, 512}, {100, 300, 192}, {1000, 1250, 1024}, {24, 12000, 32}, {2000, 12000, 2048}};
  begin();
  for (unsigned k = 0; k < COUNT(cases); k++) {
    size_t size = cases[k].size, lender = cases[k].lender, aligned = cases[k].aligned;
    size_t alignment = aligned & -aligned;
    no_more_memory();
    unsigned n = use_up(lender), slabs = 0, gone;
    void *slab[HAK_SLABS_PER_SUPERSLAB]; // too few of them for a run
    while (hak_slab_kind(hak_slab_lookup(blocks[n - 1])) == HAK_KIND_L25) slab[slabs++] = blocks[--n];
    CHECK((gone = (n + STEP - 1) / STEP) >= 30);
    CHECK_EQUAL(replace(n, STEP, lender, size), gone);
    CHECK(hak_malloc(size) == NULL);
    free_replaced(n, STEP, size);
    for (unsigned i = 0; i < n; i += STEP) {
      blocks[i] = hak_aligned_alloc(alignment, aligned);
      CHECK((uintptr_t)blocks[i] % alignment == 0);
      hak_free_aligned_sized(blocks[i], alignment, aligned);
      CHECK((blocks[i] = hak_malloc(size)) != NULL);
      CHECK((blocks[i] = hak_realloc(blocks[i], lender)) != NULL);
      fill(blocks[i], lender, i);
    }
    hak_heap_check(hak_tls_heap);
    while (slabs != 0) hak_free(slab[--slabs]);
    release(n, lender);
  }
}
ISOLATED(blocks_of_larger_classes)

// A slab will do where no run of the class is free. Blocks of it grow and shrink.
static void slabs_of_their_own(void) {
  enum { SIZE = 50000, LONG = 55000, SLAB = 60000, SHORT = 6000, STEP = 2 };
  begin();
  hak_option(PURGE) = 0; // free slabs are not zero
  no_more_memory();
  unsigned n = use_up(SLAB), gone = (n + STEP - 1) / STEP;
  CHECK(n >= 30);
  CHECK_EQUAL(replace(n, STEP, SLAB, SIZE), gone);
  CHECK(hak_malloc(SIZE) == NULL);
  char *p = blocks[STEP];
  CHECK((p = hak_realloc(p, SIZE + 500)) != NULL && filled(p, SIZE, STEP));
  CHECK((p = hak_realloc(p, LONG)) != NULL && filled(p, SIZE, STEP)); // other OS pages of the slab
  CHECK((p = hak_realloc(p, SHORT)) != NULL && (p = hak_realloc(p, SIZE)) != NULL);
  CHECK(filled(p, SHORT, STEP));
  fill(blocks[STEP] = p, SIZE, STEP);
  hak_heap_check(hak_tls_heap);
  free_replaced(n, STEP, SIZE);
  for (unsigned i = 0; i < n; i += STEP) {
    CHECK((blocks[i] = hak_malloc(SLAB)) != NULL);
    fill(blocks[i], SLAB, i);
  }
  release(n, SLAB);
}
ISOLATED(slabs_of_their_own)

// What an ended thread leaves is there for every thread, also when one of them has been refused
// memory for another class.
enum { LEFT = 1000, LEFT_TOO = 200, LEFT_MOST = 20000 };
static void *left[2][LEFT_MOST];
static unsigned left_count[2];
static void *leave_two_classes(void *unused) {
  CHECK((first = hak_malloc(1)) != NULL); // a heap, and there is a SuperSlab
  hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_COMMIT, 0, false);
  for (unsigned k = 0; k < 2; k++)
    while (left_count[k] < (k == 0 ? LEFT : LEFT_MOST)) {
      void *p = hak_malloc(k == 0 ? LEFT : LEFT_TOO);
      if (!p) break;
      left[k][left_count[k]++] = p;
    }
  CHECK(left_count[0] == LEFT && left_count[1] > 0 && left_count[1] < LEFT_MOST);
  for (unsigned k = 0; k < 2; k++)
    for (unsigned i = 0; i < left_count[k]; i += 2) hak_free(left[k][i]);
  return unused;
}
static _Atomic bool has_heap, may_go_on;
static void *take_the_other_class(void *unused) {
  hak_free(hak_malloc(1));
  has_heap = true;
  while (!may_go_on) usleep(100);
  for (unsigned i = 0; i < left_count[1]; i += 2) CHECK((left[1][i] = hak_malloc(LEFT_TOO)) != NULL);
  return unused;
}
static void classes_of_an_ended_thread(void) {
  begin();
  hak_option(FULL_MARK) = 8;
  hak_free(hak_malloc(1));
  pthread_t other = unit_start(take_the_other_class, NULL);
  while (!has_heap) usleep(100);
  unit_in_thread(leave_two_classes, NULL);
  unsigned n = use_up(LEFT);
  CHECK(n >= LEFT / 2);
  may_go_on = true;
  unit_join(other);
  for (unsigned k = 0; k < 2; k++)
    for (unsigned i = k == 0; i < left_count[k]; i += 2 - k) hak_free(left[k][i]);
  release(n, LEFT);
}
ISOLATED(classes_of_an_ended_thread)

// Of other threads' slabs, those of running threads stay theirs. Those that ended threads have left
// are found behind the heaps of other ended threads, which have none of the class.
enum { OTHERS = 3, OTHERS_BLOCKS = 1000, OTHERS_EACH = 2 };
static const size_t others_size[OTHERS] = {1024 - HAK_TAIL, 960 - HAK_TAIL, 896 - HAK_TAIL};
static void *others[OTHERS][OTHERS_BLOCKS];
static _Atomic unsigned others_have, others_may_free;
static _Atomic bool others_may_end[OTHERS];
static void *free_some_and_wait(void *number) {
  unsigned k = (unsigned)(uintptr_t)number;
  for (unsigned i = 0; i < OTHERS_BLOCKS; i++) CHECK((others[k][i] = hak_malloc(others_size[k])) != NULL);
  others_have++;
  while (others_may_free <= k) usleep(100);
  for (unsigned i = 0; i < OTHERS_BLOCKS; i += OTHERS_EACH) hak_free(others[k][i]);
  others_have--;
  while (!others_may_end[k]) usleep(100);
  return number;
}
static unsigned get_first_class(void) {
  unsigned n = 0;
  while (n < LEFT_MOST && (left[0][n] = hak_malloc(others_size[0])) != NULL) n++;
  return n;
}
static void slabs_of_others(bool ended) {
  enum { SLAB = 60000 };
  pthread_t other[OTHERS];
  begin();
  hak_option(FULL_MARK) = ended ? 8 : 1; // 1: free blocks do not make a slab PARTIAL
  for (uintptr_t k = 0; k < OTHERS; k++) other[k] = unit_start(free_some_and_wait, (void *)k);
  while (others_have < OTHERS) usleep(100);
  no_more_memory();
  void *mine = hak_malloc(others_size[0]);
  unsigned n = use_up(SLAB), of_mine = get_first_class();
  for (unsigned k = 0; k < OTHERS; k++) { // the first one is the last to be looked at
    others_may_free = k + 1;
    while (others_have > OTHERS - 1 - k) usleep(100);
    others_may_end[k] = ended;
    if (ended) unit_join(other[k]);
  }
  hak_heap_t *heap = hak_slab_owner(hak_slab_lookup(others[0][1]));
  for (unsigned i = 0; i < of_mine; i++) hak_free(left[0][i]);
  unsigned got = get_first_class() - of_mine;
  if (ended) CHECK(got >= OTHERS_BLOCKS / OTHERS_EACH / 2);
  else CHECK(got == 0 && heap == hak_slab_owner(hak_slab_lookup(others[0][1])) && heap != hak_tls_heap);
  hak_heap_check(hak_tls_heap);
  for (unsigned i = 0; i < of_mine + got; i++) hak_free(left[0][i]);
  for (unsigned k = 0; k < OTHERS; k++) {
    for (unsigned i = 0; i < OTHERS_BLOCKS; i++)
      if (i % OTHERS_EACH != 0) hak_free(others[k][i]);
    others_may_end[k] = true;
    if (!ended) unit_join(other[k]);
  }
  hak_free(mine);
  release(n, SLAB);
}
static void slabs_of_the_ended(void) { slabs_of_others(true); }
ISOLATED(slabs_of_the_ended)
static void slabs_of_the_running(void) { slabs_of_others(false); }
ISOLATED(slabs_of_the_running)

// A block that would lie in a SuperSlab gets a mapping, where there is no memory for a SuperSlab.
static void *mapped(void *(*alloc)(size_t), size_t size) {
  void *p = alloc(size);
  // A hole that is just large enough is taken first, and is not aligned: it is to be filled.
  for (unsigned i = 0; !p && i < 5000; i++) {
    CHECK(mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    p = alloc(size);
  }
  CHECK(p != NULL && hak_malloc_usable_size(p) >= size);
  return p;
}
static void *zeros(size_t size) { return hak_calloc(1, size); }
static void *paged(size_t size) { return hak_aligned_alloc(4096, size); }
static void *aligned(size_t size) { return hak_aligned_alloc(MIB / 2, size); }

static void mappings_of_their_own(void) {
  enum { SIZE = 600000, SHORT = 400000, LONG = 700000 };
  begin();
  CHECK((first = hak_malloc(1)) != NULL);
  uint64_t superslabs = hak_mapped.superslab_bytes;
  hak_os_fault(HAK_FAULT_COMMIT, 0, false);
  for (unsigned n = 0; n < 20; n++) {
    char *p = mapped(hak_malloc, SIZE), *q = mapped(zeros, SIZE), *r = mapped(aligned, SIZE);
    uint32_t requests = hak_heap_requests;
    hak_free(p);
    CHECK((p = hak_malloc(SIZE)) != NULL);
    CHECK_EQUAL(hak_heap_requests, requests); // the kept mapping serves, and nothing is given back
    CHECK(all_zero(q, SIZE) && (uintptr_t)r % (MIB / 2) == 0);
    fill(p, SIZE, n), fill(q, SIZE, n + 1), fill(r, SIZE, n + 2);
    CHECK((p = hak_realloc(p, SHORT)) != NULL && filled(p, SHORT, n));
    char *s = hak_realloc(p, LONG);
    if (s) p = s;
    CHECK(filled(p, SHORT, n) && filled(q, SIZE, n + 1) && filled(r, SIZE, n + 2));
    hak_free_sized(p, s ? LONG : SHORT);
    hak_free(q);
    blocks[n] = r;
  }
  if (hak_option(SS_LOOKUP_KIND) != HAK_LOOKUP_TABLE) {
    CHECK_EQUAL(hak_mapped.superslab_bytes, superslabs);
    CHECK(hak_mapped.huge_bytes >= 15 * SIZE);
  }
  unsigned n = 20;
  if (hak_option(SS_LOOKUP_KIND) != HAK_LOOKUP_TABLE) { // so do small blocks, where no slab is left
    do blocks[n] = mapped(n % 2 ? hak_malloc : paged, 8 * KIB);
    while (hak_slab_lookup(blocks[n++]));
    hak_free_sized(mapped(hak_malloc, 8 * KIB), 8 * KIB);
    blocks[n++] = hak_realloc(mapped(zeros, 8 * KIB), 4 * KIB);
    CHECK(blocks[n - 1] != NULL && all_zero(blocks[n - 1], 4 * KIB));
  }
  while (n != 0) hak_free(blocks[--n]);
  release(0, 0);
  CHECK_EQUAL(hak_mapped.huge_bytes, 0);
}
ISOLATED(mappings_of_their_own)

// The slab behind a block is used for nothing, but kept: the block grows into it.
static void growth_into_what_is_kept(void) {
  enum { SLAB = 60000, TINY = 1000, LONG = 100000 };
  begin();
  no_more_memory();
  unsigned n = use_up(SLAB), i = 0, next = 1;
  while (hak_slab_lookup(blocks[i]) + 1 != hak_slab_lookup(blocks[next])) {
    if (++next == n) {
      CHECK(++i < n);
      next = 0;
    }
  }
  hak_free(blocks[next]);
  hak_free(hak_malloc(TINY));
  errno = EILSEQ;
  CHECK(hak_realloc(blocks[i], LONG) == blocks[i]);
  CHECK_EQUAL(errno, EILSEQ);
  CHECK(hak_malloc_usable_size(blocks[i]) >= LONG && filled(blocks[i], SLAB, i));
  CHECK(hak_realloc(blocks[i], LONG + SLAB) == NULL && errno == ENOMEM);
  CHECK(hak_realloc(blocks[i], SLAB) == blocks[i]);
  CHECK((blocks[next] = hak_malloc(SLAB)) != NULL);
  fill(blocks[next], SLAB, next);
  release(n, SLAB);
}
ISOLATED(growth_into_what_is_kept)

// Many requests that are refused do not make the other threads give back what they keep each time,
// but a request to trim does.
static void asks_now_and_then(void) {
  enum { MS = 50 };
  begin();
  void *p = hak_malloc(4 * MIB);
  CHECK(p != NULL);
  hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_COMMIT | HAK_FAULT_REMAP, 0, false);
  uint32_t before = hak_heap_requests;
  for (unsigned times = 1; times <= 3; times++) {
    unit_clock_step(MS);
    for (unsigned i = 0; i < 100; i++) {
      CHECK(hak_malloc(i % 2 ? MIB : 4 * MIB) == NULL);
      CHECK(hak_realloc(p, 8 * MIB) == NULL);
    }
    CHECK_EQUAL(hak_heap_requests, before + times);
  }
  before = hak_heap_requests;
  for (unsigned i = 0; i < 10; i++) hak_trim(0);
  CHECK_EQUAL(hak_heap_requests, before + 10);
  CHECK(!hak_heap_reclaim_asked(hak_tls_heap));
}
ISOLATED(asks_now_and_then)

// The FULL slabs of an ended thread, a commons or a nursery that have a few free blocks are in no
// list.
static size_t size_of_others;
typedef enum { BY_NURSERY, BY_ENDED, BY_ANOTHER, BY_COMMONS, BY_ENDS } by_t; // no orphans at first
static void *use_up_and_free_some(void *by) {
  no_more_memory();
  hak_heap_t *heap = hak_tls_heap;
  uint64_t given = heap->stats[HAK_STAT_commons_give];
  if (*(by_t *)by == BY_COMMONS) heap->others = HAK_OTHERS_ENOUGH;
  CHECK_EQUAL(hak_tls_heap == &hak_heap_none, *(by_t *)by == BY_NURSERY);
  to_free.n = use_up(size_of_others);
  to_free.step = hak_classes[hak_size_class(size_of_others + HAK_TAIL)].capacity;
  CHECK_EQUAL(heap->stats[HAK_STAT_commons_give] > given, *(by_t *)by == BY_COMMONS);
  if (*(by_t *)by != BY_ANOTHER) free_some(NULL);
  return NULL;
}
static void full_slabs_of_nobody(void) {
  begin();
  hak_option(COMMONS) = 1;
  static const size_t sizes[] = {24, 100, 1000, 1250, 2000};
  void *other = hak_malloc(1); // this thread's heap is another
  kept = hak_mapped.superslab_bytes;
  for (by_t by = 0; by < BY_ENDS; by++) {
    for (unsigned i = 0; i < COUNT(sizes); i++) {
      size_t size = sizes[i];
      if (by == BY_NURSERY) size = hak_class_padded(size + HAK_TAIL) - HAK_TAIL;
      // L2 runs of a nursery or a commons are left out.
      if ((by == BY_NURSERY || by == BY_COMMONS) && size > HAK_TINY_MAX) continue;
      size_of_others = size;
      hak_option(NURSERY) = by == BY_NURSERY ? 1000000 : 0;
      unit_in_thread(use_up_and_free_some, &by);
      if (by == BY_ANOTHER) free_some(NULL);
      for (unsigned k = 0; k < to_free.n; k += to_free.step) {
        CHECK((blocks[k] = hak_malloc(size)) != NULL);
        fill(blocks[k], size, k);
      }
      CHECK(hak_malloc(size) == NULL);
      release(to_free.n, size);
    }
  }
  hak_free(other);
}
ISOLATED(full_slabs_of_nobody)

// Mappings that the kernel does not take back serve again, whether or not it drops their pages.
static void mappings_that_stay(void) {
  enum { N = 30, SIZE = 3 * MIB, REFUSED = HAK_FAULT_MAP | HAK_FAULT_COMMIT | HAK_FAULT_UNMAP | HAK_FAULT_REMAP };
  if (HAK_SECURE) return; // they have a guard page behind them
  begin();
  CHECK((first = hak_malloc(1)) != NULL);
  for (unsigned round = 0; round < 2; round++) {
    for (unsigned i = 0; i < N; i++) {
      CHECK((blocks[i] = hak_malloc(SIZE)) != NULL);
      fill(blocks[i], SIZE, i);
    }
    hak_os_fault(REFUSED | (round ? HAK_FAULT_DISCARD : 0), 0, false);
    for (unsigned i = 1; i < N; i++) hak_free(blocks[i]);
    for (unsigned i = 1; i < N; i++) {
      CHECK((blocks[i] = i % 2 ? hak_malloc(SIZE - MIB) : hak_calloc(1, SIZE - MIB)) != NULL);
      if (i % 2 == 0) CHECK(all_zero(blocks[i], SIZE - MIB));
      fill(blocks[i], SIZE - MIB, i);
    }
    CHECK(hak_malloc(SIZE) == NULL && errno == ENOMEM);
    for (unsigned i = 1; i < N; i++) CHECK(filled(blocks[i], SIZE - MIB, i));
    hak_os_fault(0, 0, false);
    for (unsigned i = 0; i < N; i++) hak_free(blocks[i]);
    for (unsigned i = 0; i < N; i++) hak_trim(0);
    CHECK_EQUAL(hak_mapped.huge_bytes + hak_mapped.cached_bytes, 0);
  }
  hak_free(first);
}
ISOLATED(mappings_that_stay)

#if defined(__GLIBC__) && !SANITIZED
// A request waits for what another thread is about to unmap: the system calls take long here.
static _Atomic bool slow, unmapping;
int munmap(void *p, size_t size) {
  if (!slow) return (int)syscall(SYS_munmap, p, size);
  slow = false;
  unmapping = true;
  usleep(500);
  int result = (int)syscall(SYS_munmap, p, size);
  unmapping = false;
  return result;
}
void *mmap(void *p, size_t size, int protection, int flags, int file, off_t offset) {
  if (!unmapping) return (void *)syscall(SYS_mmap, p, size, protection, flags, file, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}
static void *trim(void *unused) {
  hak_trim(0);
  return unused;
}
static void what_others_unmap(void) {
  enum { SIZE = 4 * MIB };
  begin();
  hak_option(HUGE_CACHE) = 64 * MIB;
  for (unsigned i = 0; i < 20; i++) hak_free(hak_malloc(SIZE));
  for (unsigned zero = 0; zero < 2; zero++) {
    if (!HAK_SECURE) CHECK_EQUAL(hak_mapped.cached_bytes, SIZE);
    slow = !HAK_SECURE;
    pthread_t other = unit_start(trim, NULL);
    while (slow) sched_yield();
    char *p = zero ? hak_calloc(1, SIZE) : hak_malloc(SIZE);
    CHECK(p != NULL && (!zero || all_zero(p, SIZE)));
    unit_join(other);
    hak_free(p);
  }
}
ISOLATED(what_others_unmap)

// The C library finds no memory to call the library when a thread ends. Then it takes a heap for each
// call. (__cxa_thread_atexit_impl would end the process.)
static _Atomic bool refuse_notice;
int pthread_setspecific(pthread_key_t key, const void *value) {
  static int (*_Atomic real)(pthread_key_t, const void *);
  if (refuse_notice) return ENOMEM;
  if (!real) real = (int (*)(pthread_key_t, const void *))dlsym(RTLD_NEXT, "pthread_setspecific");
  return real(key, value);
}
int __cxa_thread_atexit_impl(void (*f)(void *), void *object, void *dso) {
  (void)f, (void)object, (void)dso;
  CHECK(!refuse_notice);
  return -1;
}
static void *without_notice(void *unused) {
  for (unsigned i = 0; i < 100; i++) {
    CHECK((blocks[i] = hak_malloc(i * 100)) != NULL);
    fill(blocks[i], i * 100, i);
    CHECK(hak_tls_heap == &hak_heap_none);
  }
  return unused;
}
static void no_notice_of_the_end(void) {
  begin();
  CHECK((first = hak_malloc(1)) != NULL);
  refuse_notice = true;
  unit_in_thread(without_notice, NULL);
  refuse_notice = false;
  CHECK_EQUAL(hak_heap_threads, 1);
  for (unsigned i = 0; i < 100; i++) {
    CHECK(filled(blocks[i], i * 100, i));
    hak_free(blocks[i]);
  }
  release(0, 0);
}
ISOLATED(no_notice_of_the_end)
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(blocks_of_full_slabs),
    ISOLATED_TEST(blocks_of_larger_classes),
    ISOLATED_TEST(slabs_of_their_own),
    ISOLATED_TEST(classes_of_an_ended_thread),
    ISOLATED_TEST(slabs_of_the_ended),
    ISOLATED_TEST(slabs_of_the_running),
    ISOLATED_TEST(mappings_of_their_own),
    ISOLATED_TEST(growth_into_what_is_kept),
    ISOLATED_TEST(asks_now_and_then),
#if defined(__GLIBC__) && !SANITIZED
    ISOLATED_TEST(what_others_unmap),
    ISOLATED_TEST(no_notice_of_the_end),
#endif
    ISOLATED_TEST(mappings_that_stay),
    ISOLATED_TEST(full_slabs_of_nobody),
  };
  return RUN(tests);
}
