// Every system call the allocator makes fails in turn: once, and from some call on
// for good. A failure is absorbed or becomes NULL with errno = ENOMEM; live blocks
// keep their contents, frees work, and when the faults stop, all is as before.
// RLIMIT_AS is also used up for real.

#include "unit.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "superslab/superslab.h"
#include "thread/heap.h"
#include "thread/process.h"

// Page faults are nearly all of the cost: of large blocks every fourth page is used.
#define LARGE (256 * KIB)
#define STRIDE (16 * KIB)
static size_t stride_of(size_t size) { return size > LARGE ? STRIDE : unit_stride(size); }
static void put(void *p, size_t size, uint64_t seed) { fill_every(p, size, seed, stride_of(size)); }
static bool holds(const void *p, size_t size, uint64_t seed) { return filled_every(p, size, seed, stride_of(size)); }
static bool zeroed(const unsigned char *p, size_t size) {
  for (; size > LARGE; p += STRIDE, size -= STRIDE)
    if (!all_zero(p, 64)) return false;
  return all_zero(p, size);
}

#define BLOCKS 4000
static struct {
  unsigned char *p;
  size_t size;
} blocks[BLOCKS];
static unsigned block_count, refused;
static bool must_succeed;

// Whether the result p is a block; errno was 0 before the call.
static bool is_block(const void *p, size_t size, bool zero) {
  if (!p) {
    if (must_succeed) dprintf(2, "refused: %zu bytes\n", size);
    CHECK(!must_succeed);
    CHECK_EQUAL(errno, ENOMEM);
    refused++;
    errno = 0;
    return false;
  }
  CHECK_EQUAL(errno, 0);
  CHECK(hak_malloc_usable_size(p) >= size);
  if (zero) CHECK(zeroed(p, size));
  return true;
}
static void keep(void *p, size_t size, bool zero) {
  if (!is_block(p, size, zero)) return;
  CHECK(block_count < BLOCKS);
  put(p, size, block_count);
  blocks[block_count].p = p;
  blocks[block_count++].size = size;
}
static void check(unsigned i) {
  if (blocks[i].p) CHECK(holds(blocks[i].p, blocks[i].size, i));
}
static void drop(unsigned i) {
  check(i);
  hak_free(blocks[i].p);
  blocks[i].p = NULL;
}
static void check_all(void) {
  for (unsigned i = 0; i < block_count; i++) check(i);
}

static const size_t sizes[] = {1, 16, 100, 500, 1024, 1025, 4000, 10000, 30000, 57344,
                               57345, 100000, 300000, MIB, MIB + 1, 3 * MIB};

static void all_ranges(void) {
  for (unsigned round = 0; round < 3; round++)
    for (unsigned s = 0; s < COUNT(sizes) - (round > 0); s++) {
      keep(hak_malloc(sizes[s]), sizes[s], false);
      keep(hak_calloc(sizes[s], 1), sizes[s], true);
    }
  for (size_t alignment = 32; alignment <= 8 * MIB; alignment *= 8) {
    keep(hak_aligned_alloc(alignment, 5000), 5000, false);
    void *p = NULL;
    int result = hak_posix_memalign(&p, alignment, 100000);
    CHECK_EQUAL(errno, 0);
    CHECK(p ? result == 0 : result == ENOMEM);
    if (p) {
      keep(p, 100000, false);
    } else {
      CHECK(!must_succeed);
      refused++;
    }
  }
}

// Grows through all size ranges and back, with the contents kept whatever is refused.
static void reallocs(void) {
  static const size_t path[] = {30, 900, 5000, 50000, 70000, 800000, 2 * MIB, 3 * MIB, 6 * MIB,
                                7 * MIB, 12 * MIB, 3 * MIB, 600000, 80000, 3000, 100, 10};
  size_t size = 10;
  unsigned char *p = hak_malloc(size);
  if (!is_block(p, size, false)) return;
  put(p, size, 1);
  for (unsigned i = 0; i < COUNT(path); i++) {
    void *wall = NULL; // in the way of every second growth of a huge block
    if (i % 2 && size > MIB)
      wall = mmap(p + hak_malloc_usable_size(p), 4096, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    errno = 0;
    unsigned char *q = hak_realloc(p, path[i]);
    if (is_block(q, path[i], false)) {
      // Only the common part, as the pattern depends on the size.
      size_t n = size < path[i] ? size : path[i];
      for (size_t at = 0; at + 8 <= n; at += size > LARGE ? STRIDE : 4096) {
        uint64_t w = (1 + 1) * 0x9e3779b97f4a7c15u + at;
        CHECK(memcmp(q + at, &w, 8) == 0);
      }
      p = q, size = path[i];
    } else {
      CHECK(path[i] > size); // shrinking cannot fail
    }
    if (wall && wall != MAP_FAILED) munmap(wall, 4096);
    errno = 0;
    put(p, size, 1);
  }
  hak_free(p);
}

static void *in_thread(void *argument) {
  (void)argument;
  errno = 0;
  unsigned first = block_count;
  for (unsigned s = 0; s < COUNT(sizes); s++) keep(hak_malloc(sizes[s]), sizes[s], false);
  for (unsigned i = 0; i < first; i += 3) drop(i); // the main thread's
  for (unsigned i = first; i < block_count; i += 2) drop(i);
  return NULL;
}

static void workload(void) {
  errno = 0;
  all_ranges();
  reallocs();
  unit_in_thread(in_thread, NULL);
  unit_in_thread(in_thread, NULL);
  check_all();
  for (unsigned i = 0; i < block_count; i += 2) drop(i);
  hak_trim(0);
  all_ranges();
  check_all();
}

static void free_all(void) {
  for (unsigned i = 0; i < block_count; i++) drop(i);
  block_count = 0;
}

// ---------------------------------------------------------------------------

static unsigned kinds = HAK_FAULT_ALL;
static uint64_t skip_calls;
static bool once;
static uint64_t *calls; // shared with the children

static void under_faults(void) {
  hak_option(LRU_CAP) = 1; // decommits happen in the middle
  hak_os_fault(kinds, skip_calls, once);
  workload();
  if (skip_calls % 2) free_all(); // with and without faults
  *calls = hak_os_fault_calls();
  hak_os_fault(0, 0, false);
  if (skip_calls != UINT64_MAX && once && refused > 2) dprintf(2, "one call, %u refusals\n", refused);
  free_all();
  hak_heap_check(hak_tls_heap);
  must_succeed = true;
  workload();
  free_all();
  hak_trim(0);
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK_EQUAL(s.live_blocks, 0);
  CHECK_EQUAL(s.live_bytes, 0);
  CHECK_EQUAL(s.superslab_bytes, 0);
  CHECK_EQUAL(s.huge_bytes, 0);
}

static void share_calls(void) {
  if (!calls) calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(calls != MAP_FAILED);
}

static uint64_t call_count(unsigned of) {
  share_calls();
  kinds = of, skip_calls = UINT64_MAX, once = false;
  must_succeed = true;
  unit_in_child(under_faults);
  must_succeed = false;
  return *calls;
}

static void every_call(bool just_once) {
  uint64_t n = call_count(HAK_FAULT_ALL);
  assert_true(n > 50);
  printf("%llu system calls, each fails %s\n", (unsigned long long)n, just_once ? "once" : "and all after it");
  once = just_once;
  // Every fifth where it takes long or was done: pretended page sizes keep the order of calls.
  uint64_t step = SANITIZED || getenv("HAK_OS_PAGE") ? 5 : 1;
  for (uint64_t i = 0; i < n; i += step) {
    skip_calls = i;
    unit_in_child(under_faults);
  }
}
static void each_call_once(void **state) {
  (void)state;
  every_call(true);
}
static void all_calls_from_each_on(void **state) {
  (void)state;
  every_call(false);
}

// Calls that give memory back may fail for good without an effect on callers.
static void giving_back_always_fails(void **state) {
  (void)state;
  const unsigned harmless[] = {HAK_FAULT_UNMAP, HAK_FAULT_DISCARD, HAK_FAULT_UNMAP | HAK_FAULT_DISCARD,
                               HAK_FAULT_REMAP, HAK_FAULT_UNMAP | HAK_FAULT_DISCARD | HAK_FAULT_REMAP};
  share_calls();
  for (unsigned i = 0; i < COUNT(harmless); i++) {
    kinds = harmless[i], skip_calls = 0, once = false, must_succeed = true;
    unit_in_child(under_faults);
  }
  must_succeed = false;
}

// ---------------------------------------------------------------------------
// Faults at start-up and with a limit, in this program started again.

// Before the library's own constructor: same priority, but linked before it.
__attribute__((constructor(101))) static void fault_at_start(void) {
  const char *text = getenv("UNIT_FAULT");
  if (text && text[0] == 'h') hak_os_fault(HAK_FAULT_HIGH, 0, false);
  else if (text) hak_os_fault(HAK_FAULT_ALL, strtoull(text + 1, NULL, 10), text[0] == '1');
}

static int start_again(const char *mode, const char *fault, size_t limit) {
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    if (fault) setenv("UNIT_FAULT", fault, 1);
    struct rlimit r = {limit, limit};
    if (limit) setrlimit(RLIMIT_AS, &r);
    execl("/proc/self/exe", "unit_fault", mode, (char *)NULL);
    _exit(126);
  }
  int status;
  waitpid(pid, &status, 0);
  return status;
}

// The first calls are the reservations: refused once, the library makes do with
// less; refused for good, it says ENOMEM.
static int started_with_faults(void) {
  bool for_good = getenv("UNIT_FAULT")[0] != '1';
  must_succeed = !for_good;
  workload();
  hak_os_fault(0, 0, false);
  free_all();
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK_EQUAL(s.live_blocks, 0);
  return 0;
}
static void faults_at_start(void **state) {
  (void)state;
  for (unsigned i = 0; i < 8; i++) {
    char fault[16];
    snprintf(fault, sizeof fault, "1%u", i);
    if (i < 4) assert_int_equal(start_again("start", fault, 0), 0); // the library's part is over by then
    snprintf(fault, sizeof fault, "0%u", i);
    assert_int_equal(start_again("start", fault, 0), 0);
  }
}

#define LIMIT (256 * MIB)

// Blocks of a size until there are no more, in a list through themselves.
typedef struct node {
  struct node *next;
  uint64_t seed;
} node_t;
static size_t used_up_stride(size_t size) { return size > 4096 ? STRIDE : 8; }
static size_t use_up(size_t size, node_t **list) {
  size_t n = 0;
  errno = 0;
  for (node_t *p; (p = hak_malloc(size)) != NULL; n++) {
    p->seed = n;
    fill_every(p + 1, size - sizeof *p, n, used_up_stride(size));
    p->next = *list;
    *list = p;
    CHECK(n < LIMIT / size + 1);
  }
  CHECK_EQUAL(errno, ENOMEM);
  return n;
}
static void free_list(size_t size, node_t *list) {
  while (list) {
    node_t *p = list;
    CHECK(filled_every(p + 1, size - sizeof *p, p->seed, used_up_stride(size)));
    list = p->next;
    hak_free(p);
  }
}

static int with_a_limit(void) {
  static const size_t kinds[] = {48, 1024, 5000, 57344, 65536, 300000, MIB, 5 * MIB};
  for (unsigned round = 0; round < 2; round++)
    for (unsigned t = 0; t < COUNT(kinds); t++) {
      node_t *list = NULL, *small = NULL, *again = NULL;
      size_t n = use_up(kinds[t], &list);
      if (n * kinds[t] < LIMIT / 2)
        dprintf(2, "only %zu blocks of %zu bytes\n", n, kinds[t]);
      CHECK(n * kinds[t] >= LIMIT / 2);
      use_up(16, &small); // what is left
      free_list(kinds[t], list);
      free_list(16, small);
      hak_trim(0);
      size_t more = use_up(kinds[t], &again);
      if (more < n - n / 20) dprintf(2, "%zu bytes: first %zu blocks, then %zu\n", kinds[t], n, more);
      CHECK(more >= n - n / 20);
      free_list(kinds[t], again);
    }
  must_succeed = true;
  block_count = 0;
  for (unsigned s = 0; s < COUNT(kinds); s++) errno = 0, keep(hak_malloc(kinds[s]), kinds[s], false);
  free_all();
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK_EQUAL(s.live_blocks, 0);
  return 0;
}
static void address_space_used_up(void **state) {
  (void)state;
  if (SANITIZED) skip(); // their shadow alone is larger
  assert_int_equal(start_again("limit", NULL, LIMIT), 0);
}

// A thread has no heap yet, and no address space is left for one: kept memory is given up.
enum { FIRST_HEAPS = 8, TOGETHER, LAST, END }; // beside the main thread's, in one mapping
static _Atomic int thread_turn;
static void await_turn(int turn) {
  while (thread_turn < turn) usleep(100);
}
static void *take_heap(void *turn) {
  await_turn((int)(intptr_t)turn);
  CHECK(hak_malloc(10) != NULL);
  thread_turn++;
  await_turn(END); // no thread leaves its heap to another
  return NULL;
}
static int thread_with_a_limit(void) {
  pthread_t threads[LAST + 1];
  hak_process_init();
  hak_option(NURSERY) = 0;
  for (unsigned i = 0; i < 40; i++) hak_free(hak_malloc(2 * MIB)); // then one is kept
  for (intptr_t i = 1; i <= LAST; i++)
    if (i != TOGETHER) CHECK(pthread_create(&threads[i], NULL, take_heap, (void *)i) == 0);
  thread_turn = 1;
  await_turn(TOGETHER);
  CHECK_EQUAL(hak_heap_count(), 1 + FIRST_HEAPS);
  hak_free(hak_malloc(2 * MIB));
  CHECK(hak_mapped.cached_bytes != 0);
  for (size_t size = LIMIT; size >= hak_os_page_size; size /= 2)
    while (mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) continue;
  thread_turn = LAST;
  await_turn(END);
  CHECK_EQUAL(hak_heap_count(), 2 + FIRST_HEAPS);
  CHECK_EQUAL(hak_mapped.cached_bytes, 0);
  for (unsigned i = 1; i <= LAST; i++)
    if (i != TOGETHER) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}
static void no_room_for_a_heap(void **state) {
  (void)state;
  if (SANITIZED) skip();
  assert_int_equal(start_again("thread", NULL, LIMIT), 0);
}

// The limit is set when the process already has its reservation.
static void limit_after_start(void) {
  hak_free(hak_malloc(1));
  struct rlimit r = {LIMIT, LIMIT};
  CHECK(setrlimit(RLIMIT_AS, &r) == 0);
  errno = 0;
  CHECK(hak_malloc(LIMIT) == NULL && errno == ENOMEM); // huge: a new mapping
  errno = 0;
  for (unsigned s = 0; s < COUNT(sizes); s++) {
    void *p = hak_malloc(sizes[s]);
    if (is_block(p, sizes[s], false)) hak_free(p);
  }
}

static void limit_set_late(void **state) {
  (void)state;
  if (SANITIZED) skip();
  unit_in_child(limit_after_start);
}

// Sizes that no address space can hold are refused without asking the system.
static void impossible_sizes(void) {
  void *p = hak_malloc(100);
  hak_os_fault(HAK_FAULT_ALL, UINT64_MAX, false); // none fails, all are counted
  for (unsigned shift = 48; shift < 64; shift++) {
    size_t size = ((size_t)1 << shift) + 1;
    errno = 0;
    CHECK(hak_malloc(size) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(hak_calloc(size, 1) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(hak_realloc(p, size) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(hak_aligned_alloc(64, size + 63) == NULL && errno == ENOMEM);
  }
  CHECK_EQUAL(hak_os_fault_calls(), 0);
  hak_os_fault(0, 0, false);
  hak_free(p);
}
ISOLATED(impossible_sizes)

// A kernel returns addresses above HAK_ADDRESS_BITS: they are not used, and go back.
static void addresses_too_high(void) {
  unsigned char *huge = hak_malloc(3 * MIB), *tiny = hak_malloc(100), *q;
  fill(huge, 3 * MIB, 1), fill(tiny, 100, 2);
  void *wall = mmap(huge + hak_malloc_usable_size(huge), 65536, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  size_t before = mapping_count();
  hak_os_fault(HAK_FAULT_HIGH, 0, false);
  errno = 0;
  CHECK(!hak_os_map(65536, 65536) && !hak_os_map(65536, 64 * MIB) && !hak_os_reserve(MIB, 65536));
  CHECK_EQUAL(errno, 0);
  CHECK(hak_os_fault_calls() >= 3);
  CHECK(!(q = hak_malloc(3 * MIB)) && errno == ENOMEM);
  errno = 0;
  if (wall != MAP_FAILED) CHECK(!(q = hak_realloc(huge, 30 * MIB)) && errno == ENOMEM);
  for (unsigned i = 0; i < 4000 && (q = hak_malloc(60000)) != NULL; i++) fill(q, 60000, i);
  CHECK(hak_option(SS_LOOKUP_KIND) != HAK_LOOKUP_TABLE || !q); // the range is there already
  if (hak_option(SS_LOOKUP_KIND) == HAK_LOOKUP_TABLE) CHECK(mapping_count() <= before + 1);
  hak_os_fault(0, 0, false);
  CHECK(filled(huge, 3 * MIB, 1) && filled(tiny, 100, 2));
  hak_free(huge), hak_free(tiny);
  must_succeed = true;
  workload();
}
ISOLATED(addresses_too_high)

// The same from the start: there is no heap, and calls fail with ENOMEM.
static int started_too_high(void) {
  for (unsigned s = 0; s < COUNT(sizes); s++) {
    errno = 0;
    CHECK(hak_malloc(sizes[s]) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(hak_calloc(1, sizes[s]) == NULL && errno == ENOMEM);
  }
  hak_free(NULL);
  return 0;
}
static void addresses_too_high_from_the_start(void **state) {
  (void)state;
  assert_int_equal(start_again("high", "h", 0), 0);
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "high") == 0) return started_too_high();
  if (argc == 2 && strcmp(argv[1], "start") == 0) return started_with_faults();
  if (argc == 2 && strcmp(argv[1], "limit") == 0) return with_a_limit();
  if (argc == 2 && strcmp(argv[1], "thread") == 0) return thread_with_a_limit();
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(addresses_too_high),          cmocka_unit_test(addresses_too_high_from_the_start),
    cmocka_unit_test(each_call_once),           cmocka_unit_test(all_calls_from_each_on),
    cmocka_unit_test(giving_back_always_fails), cmocka_unit_test(faults_at_start),
    cmocka_unit_test(address_space_used_up),    cmocka_unit_test(limit_set_late),
    cmocka_unit_test(no_room_for_a_heap),       ISOLATED_TEST(impossible_sizes),
  };
  return RUN(tests);
}
