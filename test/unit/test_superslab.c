// superslab.h: numbers, memory, descriptors and the lookup from pointers.

#include "pool.h"
#include "unit.h"
#include "core/options.h"
#include "os/os.h"
#include "superslab/shared_pool.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"
#include "thread/process.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static char *memory_of(uint32_t number) {
  return (char *)hak_registry.superslabs[number].base;
}

static void lookup_of_every_slab(void) {
  hak_process_init();
  for (unsigned i = 0; i < 200; i++) {
    uint32_t number = hak_superslab_acquire(true);
    CHECK(number != 0 && number < hak_superslab_count());
    char *base = memory_of(number);
    CHECK(((uintptr_t)base & (HAK_SUPERSLAB_SIZE - 1)) == 0);
    CHECK_EQUAL(hak_registry.superslabs[number].free_mask, 0);
    for (unsigned s = 0; s < HAK_SLABS_PER_SUPERSLAB; s++) {
      hak_slab_t *slab = hak_slab_at((number << HAK_SLABS_SHIFT) + s), *found;
      char *start = base + s * HAK_SLAB_SIZE;
      CHECK(hak_slab_start(slab) == start);
      CHECK(hak_slab_lookup(start) == slab);
      CHECK(hak_slab_lookup(start + 1) == slab);
      CHECK(hak_slab_lookup(start + HAK_SLAB_SIZE - 1) == slab);
      if (hak_registry.base == 0) continue;
      CHECK(hak_range_find(start, &found) && found == slab);
      CHECK(hak_range_find(start + HAK_SLAB_SIZE - 16, &found) && found == slab);
      for (unsigned bad = 1; bad < 16; bad++) CHECK(!hak_range_find(start + bad, &found));
    }
    memset(base, 1, 4096), memset(base + HAK_SUPERSLAB_SIZE - 4096, 1, 4096);
  }
}
ISOLATED(lookup_of_every_slab)

static void strangers(void) {
  hak_process_init();
  uint32_t number = hak_superslab_acquire(true);
  int local;
  static int global;
  void *heap = malloc(100);
  hak_slab_t *found;
  const void *places[] = {NULL, &local, &global, heap, (void *)1, (void *)UINTPTR_MAX,
                          (void *)((uintptr_t)1 << 47), (void *)(uintptr_t)strangers};
  for (size_t i = 0; i < COUNT(places); i++) {
    CHECK(hak_slab_lookup(places[i]) == NULL);
    CHECK(!hak_range_find(places[i], &found));
  }
  free(heap);
  // Beyond the last descriptor in the range.
  if (hak_registry.base) {
    uint32_t beyond = (hak_superslab_count() + 3000) & ~63u;
    const void *p = (void *)(hak_registry.base + ((uintptr_t)beyond << HAK_SUPERSLAB_SHIFT));
    CHECK(hak_slab_lookup(p) == NULL && !hak_range_find(p, &found));
    CHECK(hak_slab_lookup((void *)(hak_registry.base - 16)) == NULL);
    CHECK(!hak_range_find((void *)(hak_registry.base - 16), &found));
  }
  (void)number;
}
ISOLATED(strangers)

static void decommitted_numbers_come_back_zeroed(void) {
  hak_process_init();
  uint32_t numbers[10];
  uint64_t bytes = hak_mapped.superslab_bytes;
  for (unsigned i = 0; i < COUNT(numbers); i++) {
    numbers[i] = hak_superslab_acquire(true);
    memset(memory_of(numbers[i]), 0xab, HAK_SUPERSLAB_SIZE);
  }
  CHECK_EQUAL(hak_mapped.superslab_bytes - bytes, COUNT(numbers) * HAK_SUPERSLAB_SIZE);
  uint32_t count = hak_superslab_count();
  size_t resident = exact_rss_kib() << 10;
  for (unsigned i = 0; i < COUNT(numbers); i++) hak_superslab_decommit(numbers[i]);
  CHECK_EQUAL(hak_mapped.superslab_bytes, bytes);
  if (!SANITIZED) CHECK((exact_rss_kib() << 10) + 9 * HAK_SUPERSLAB_SIZE < resident);
  bool seen[COUNT(numbers)] = {false};
  for (unsigned i = 0; i < COUNT(numbers); i++) {
    uint32_t number = hak_superslab_acquire(true);
    unsigned which = 0;
    while (which < COUNT(numbers) && numbers[which] != number) which++;
    CHECK(which < COUNT(numbers) && !seen[which]);
    seen[which] = true;
    CHECK(all_zero(memory_of(number), HAK_SUPERSLAB_SIZE));
    CHECK(hak_slab_lookup(memory_of(number)) == hak_slab_at(number << HAK_SLABS_SHIFT));
  }
  CHECK_EQUAL(hak_superslab_count(), count);
}
ISOLATED(decommitted_numbers_come_back_zeroed)

// With many numbers without memory, the descriptors of all but some go back and are like those
// of never-used SuperSlabs. A SuperSlab that is used again and again keeps its descriptors.
static void descriptors_go_back(void) {
  hak_process_init();
  uint32_t numbers[40], kept = 0;
  for (unsigned i = 0; i < COUNT(numbers); i++) {
    numbers[i] = hak_superslab_acquire(false);
    memset(hak_slab_at(numbers[i] << HAK_SLABS_SHIFT), 0xab,
           HAK_SLABS_PER_SUPERSLAB * sizeof(hak_slab_t));
  }
  uint32_t same = hak_superslab_acquire(false);
  char *of_same = (char *)hak_slab_at(same << HAK_SLABS_SHIFT);
  memset(of_same, 0xab, HAK_SLABS_PER_SUPERSLAB * sizeof(hak_slab_t));
  hak_superslab_decommit(same);
  for (unsigned i = 0; i < 20; i++) {
    CHECK_EQUAL(hak_superslab_acquire(false), same);
    hak_superslab_decommit(same);
  }
  CHECK(of_same[0] == (char)0xab && of_same[4095] == (char)0xab);
  CHECK_EQUAL(hak_registry.superslabs[same].forgotten, 0);
  exact_rss_kib(); // makes its own pages resident
  size_t resident = exact_rss_kib() << 10;
  for (unsigned i = 0; i < COUNT(numbers); i++) hak_superslab_decommit(numbers[i]);
  size_t after = exact_rss_kib() << 10;
  for (unsigned i = 0; i < COUNT(numbers); i++) {
    char *slabs = (char *)hak_slab_at(numbers[i] << HAK_SLABS_SHIFT);
    bool zero = all_zero(slabs, HAK_SLABS_PER_SUPERSLAB * sizeof(hak_slab_t));
    CHECK_EQUAL(hak_registry.superslabs[numbers[i]].forgotten, zero);
    if (zero) continue;
    kept++;
    CHECK(slabs[0] == (char)0xab && slabs[4095] == (char)0xab);
  }
  if (hak_os_page_size > 4096) {
    CHECK_EQUAL(kept, COUNT(numbers));
    return;
  }
  CHECK(kept >= 7 && kept <= 8); // and perhaps the earlier one
  if (!SANITIZED) CHECK(after + (COUNT(numbers) - 8) * 4096 <= resident);
}
ISOLATED(descriptors_go_back)

// A number is in a queue once, and drops out when as many have followed as the queue holds.
// Fork may have copied the queue and the flags of its members at different times.
static void queues(void) {
  hak_process_init();
  uint32_t numbers[12];
  for (unsigned i = 0; i < COUNT(numbers); i++) numbers[i] = hak_superslab_acquire(false);
  for (unsigned i = 0; i < 4; i++) {
    CHECK_EQUAL(hak_superslab_wait(HAK_QUEUE_PURGE, numbers[i]), 0);
    CHECK_EQUAL(hak_superslab_wait(HAK_QUEUE_PURGE, numbers[i]), 0); // is in it already
  }
  for (unsigned i = 4; i < 8; i++)
    CHECK_EQUAL(hak_superslab_wait(HAK_QUEUE_PURGE, numbers[i]), numbers[i - 4]);
  CHECK_EQUAL(hak_superslab_wait(HAK_QUEUE_FORGET, numbers[4]), 0); // the other queue is empty
  _Atomic uint32_t *absent = &hak_registry.superslabs[numbers[9]].waits[HAK_QUEUE_PURGE];
  _Atomic uint32_t *present = &hak_registry.superslabs[numbers[5]].waits[HAK_QUEUE_PURGE];
  *absent = 1;
  *present = 0;
  hak_superslab_after_fork();
  CHECK(*absent == 0 && *present == 1);
  CHECK_EQUAL(hak_superslab_wait(HAK_QUEUE_PURGE, numbers[5]), 0);
  CHECK_EQUAL(hak_superslab_wait(HAK_QUEUE_PURGE, numbers[9]), numbers[4]);
  CHECK_EQUAL(hak_registry.superslabs[numbers[4]].waits[HAK_QUEUE_FORGET], 1);
}
ISOLATED(queues)

static void check_found(uint32_t number) {
  char *base = memory_of(number);
  base[0] = base[HAK_SUPERSLAB_SIZE - 1] = 1;
  CHECK(hak_slab_lookup(base + 100) == hak_slab_at(number << HAK_SLABS_SHIFT));
}

// Whichever call of decommit is refused, `dirty` is true to the memory. A number that has lost it is
// used again; one that keeps it stays with its holder.
static void refused_decommits(void) {
  hak_process_init();
  const unsigned kinds[] = {HAK_FAULT_UNMAP, HAK_FAULT_DISCARD, HAK_FAULT_UNMAP | HAK_FAULT_DISCARD,
                            HAK_FAULT_ALL};
  for (unsigned i = 0; i < COUNT(kinds); i++) {
    uint32_t number = hak_superslab_acquire(true);
    char *before = memory_of(number);
    hak_registry.superslabs[number].dirty = UINT32_MAX;
    memset(before, 0xab, HAK_SUPERSLAB_SIZE);
    hak_os_fault(kinds[i], 0, false);
    uint64_t bytes = hak_mapped.superslab_bytes;
    bool went = hak_superslab_decommit(number);
    hak_os_fault(0, 0, false);
    CHECK_EQUAL(went, !(kinds[i] & HAK_FAULT_UNMAP));
    CHECK_EQUAL(hak_mapped.superslab_bytes, went ? bytes - HAK_SUPERSLAB_SIZE : bytes);
    if (went) CHECK_EQUAL(hak_superslab_acquire(true), number);
    bool zero = all_zero(memory_of(number), HAK_SUPERSLAB_SIZE);
    check_found(number);
    CHECK_EQUAL(hak_registry.superslabs[number].dirty != 0, !zero);
    if (!(kinds[i] & HAK_FAULT_UNMAP)) CHECK(zero);
    memset(memory_of(number), 1, HAK_SUPERSLAB_SIZE);
  }
}
ISOLATED(refused_decommits)

// Outside the range: memory that got no entry in the page table, and could not be unmapped either,
// is what the number has next.
static void memory_without_an_entry(void) {
  hak_process_init();
  if (hak_registry.base != 0) return;
  uintptr_t base = 0;
  for (uint64_t skip = 1; skip <= 3 && !base; skip++) { // calls for an aligned mapping
    hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_UNMAP, skip, false);
    CHECK_EQUAL(hak_superslab_acquire(true), 0);
    hak_os_fault(0, 0, false);
    base = hak_registry.superslabs[1].base;
  }
  CHECK(base != 0 && hak_superslab_count() == 2);
  CHECK_EQUAL(hak_superslab_acquire(true), 1);
  CHECK_EQUAL(hak_registry.superslabs[1].base, base);
  check_found(1);
}
ISOLATED(memory_without_an_entry)

static void refused_memory(void) {
  hak_process_init();
  for (unsigned first = 0; first < 2; first++) {
    // First without any descriptor, then with some.
    uint64_t bytes = hak_mapped.superslab_bytes;
    hak_os_fault(HAK_FAULT_ALL, 0, false);
    errno = 0;
    for (unsigned i = 0; i < 10; i++) CHECK_EQUAL(hak_superslab_acquire(true), 0);
    CHECK_EQUAL(errno, 0);
    uint64_t calls = hak_os_fault_calls();
    hak_os_fault(0, 0, false);
    CHECK(calls >= 10);
    CHECK_EQUAL(hak_mapped.superslab_bytes, bytes);
    CHECK(hak_superslab_count() <= 3); // refused numbers are tried again
    uint32_t number = hak_superslab_acquire(true);
    CHECK(number != 0);
    if (!EMULATED) CHECK(!vm_flag(memory_of(number), " dd")); // in core dumps, as those that come at once
  }
}
ISOLATED(refused_memory)

// ---------------------------------------------------------------------------
// Row S4: 100 000 SuperSlabs, 200 GiB of untouched address space.

#define MANY SCALED(100000u) // a sanitizer multiplies the mappings
#define BATCH SCALED(10000u)

static void a_hundred_thousand(void) {
  hak_process_init();
  uint64_t per_batch[MANY / BATCH];
  for (unsigned b = 0; b < MANY / BATCH; b++) {
    uint64_t start = unit_thread_ns();
    for (unsigned i = 0; i < BATCH; i++) {
      hak_source_t source;
      hak_slab_t *slab = pool_acquire(16, &source);
      if (!slab) {
        dprintf(2, "the system granted %u SuperSlabs only: skipped\n", hak_superslab_count() - 1);
        exit(77);
      }
      CHECK_EQUAL(source, HAK_FROM_MAP);
      CHECK(pool_acquire(16, &source) != NULL); // the other half
    }
    per_batch[b] = (unit_thread_ns() - start) / BATCH;
  }
  CHECK_EQUAL(hak_superslab_count() - 1, MANY);
  uint64_t lookup = unit_thread_ns();
  for (uint32_t number = 1; number <= MANY; number++)
    CHECK(hak_slab_lookup(memory_of(number) + 100) == hak_slab_at(number << HAK_SLABS_SHIFT));
  lookup = (unit_thread_ns() - lookup) / MANY;
  printf("ns per SuperSlab, for each 10 000:");
  for (unsigned b = 0; b < MANY / BATCH; b++) printf(" %llu", (unsigned long long)per_batch[b]);
  printf("; per lookup: %llu\n", (unsigned long long)lookup);
  // The cheapest of the last three batches against the cheapest of the first three.
  uint64_t early = UINT64_MAX, late = UINT64_MAX;
  for (unsigned b = 0; b < 3; b++) {
    if (per_batch[b] < early) early = per_batch[b];
    if (per_batch[MANY / BATCH - 1 - b] < late) late = per_batch[MANY / BATCH - 1 - b];
  }
  // A search through all of them would make it hundreds of times as much.
  CHECK(late < 10 * early + 5000);
}

static void hundred_thousand_superslabs(void **state) {
  (void)state;
  if (EMULATED) skip(); // nothing in it depends on the machine
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    a_hundred_thousand();
    exit(0);
  }
  int status;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
  assert_int_equal(status, 0);
}

// ---------------------------------------------------------------------------

#define THREADS 4
#define PER_THREAD 500
static _Atomic uint32_t holder[THREADS * PER_THREAD + 100];

static void *acquire_many(void *argument) {
  uint32_t me = (uint32_t)(uintptr_t)argument, mine[PER_THREAD];
  for (unsigned i = 0; i < PER_THREAD; i++) {
    mine[i] = hak_superslab_acquire(false); // with huge pages all would take 2.7 GB
    CHECK(mine[i] != 0 && mine[i] < COUNT(holder));
    CHECK_EQUAL(hak_exchange_acq_rel(&holder[mine[i]], me), 0);
    *memory_of(mine[i]) = (char)me;
    if (i % 3 == 2) {
      CHECK_EQUAL(hak_exchange_acq_rel(&holder[mine[i - 1]], 0), me);
      hak_superslab_decommit(mine[i - 1]);
      mine[i - 1] = 0;
    }
  }
  for (unsigned i = 0; i < PER_THREAD; i++)
    if (mine[i]) CHECK(*memory_of(mine[i]) == (char)me);
  return NULL;
}

static void numbers_are_given_once(void) {
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) threads[i] = unit_start(acquire_many, (void *)(i + 1));
  for (unsigned i = 0; i < THREADS; i++) unit_join(threads[i]);
}
ISOLATED(numbers_are_given_once)

// ---------------------------------------------------------------------------
// An address space limit that is set later.

static size_t mapped_mib(void) { return status_kib("VmSize:") / KIB; }

static uint32_t acquire_all(uint32_t most) {
  uint32_t n = 0, number;
  for (; n < most && (number = hak_superslab_acquire(false)) != 0; n++) check_found(number);
  return n;
}

// All unused address space goes back, also if fitted twice, and is free for others; what is in
// use stays. When the limit is raised again, there is room for as many SuperSlabs as before.
// Without a range the SuperSlabs themselves may lie where their descriptors were.
static void fits_a_limit(void) {
  hak_process_init();
  uint32_t first = hak_superslab_acquire(false), second = hak_superslab_acquire(false);
  size_t before = mapped_mib(), reserved = hak_option(RANGE_SIZE) >> 20;
  // The sanitizers map memory of their own meanwhile, lay out the address space differently,
  // and may leave no room for all of the range.
  bool alone = hak_registry.base != 0 && !SANITIZED;
  hak_superslab_decommit(first);
  hak_superslab_fit((size_t)64 << 20);
  hak_superslab_fit((size_t)64 << 20);
  size_t after = mapped_mib();
  if (alone) CHECK(after + reserved <= before + 8);
  if (!EMULATED) CHECK(after + (alone ? reserved : 0) + 4000 < before); // descriptors of 2 TiB
  check_found(second);
  // A number without memory has no place any more: anything may lie there, of ours too.
  hak_slab_t *found;
  bool leaves = hak_registry.base != 0 && hak_os_page_size == 4096;
  uint32_t again = hak_superslab_acquire(false);
  CHECK(leaves ? again > second : again == first);
  check_found(again);
  if (leaves && alone) {
    char *place = (char *)hak_registry.base + ((size_t)first << HAK_SUPERSLAB_SHIFT);
    CHECK(mmap(place, HAK_SUPERSLAB_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
               0) == place);
    CHECK(hak_range_find(place, &found) && hak_slab_kind(found) == HAK_KIND_FREE && found->local == NULL);
    CHECK(hak_slab_lookup(place) == NULL && hak_pagemap_prepare(place));
    hak_pagemap_set(place, (uint64_t)again << 2 | HAK_PAGEMAP_SUPERSLAB);
    CHECK(hak_slab_lookup(place) == hak_slab_at(again << HAK_SLABS_SHIFT));
    hak_pagemap_set(place, 0);
    CHECK_EQUAL(munmap(place, HAK_SUPERSLAB_SIZE), 0);
  }
  if (alone) {
    char *beyond = (char *)hak_registry.base + ((size_t)(again + 8) << HAK_SUPERSLAB_SHIFT);
    CHECK(mmap(beyond, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
               0) == beyond);
    CHECK(!hak_range_find(beyond, &found) && hak_slab_lookup(beyond) == NULL);
  }
  // Other SuperSlabs lie elsewhere: at least some, and at most as many as the limit allows.
  uint32_t most = (uint32_t)(hak_os_page_size / sizeof(hak_superslab_t)), n = acquire_all(3 * most);
  uint32_t bound = (leaves ? 2 : 1) * most;
  bool fits = n >= 30 && n <= bound;
  if (!fits) dprintf(2, "%u SuperSlabs, at most %u wanted, errno %d\n", n, bound, errno);
  CHECK(fits);
  hak_superslab_fit((size_t)1 << 34);
  CHECK(acquire_all(3000) == 3000 || !alone);
  // Fitting takes no more even if the caller saw another limit: what it leaves is the program's.
  struct rlimit all, now;
  CHECK(getrlimit(RLIMIT_AS, &all) == 0);
  now = (struct rlimit){(mapped_mib() + 300) * MIB, all.rlim_max};
  if (alone && !EMULATED) {
    after = mapped_mib();
    CHECK(setrlimit(RLIMIT_AS, &now) == 0);
    hak_superslab_fit(SIZE_MAX);
    CHECK(mapped_mib() < after + 100);
    CHECK(setrlimit(RLIMIT_AS, &all) == 0);
  }
  hak_superslab_fit(SIZE_MAX);
  CHECK(acquire_all(6000) == 6000 || !alone);
  check_found(again);
  check_found(second);
}
ISOLATED(fits_a_limit)

// A place whose release is refused is used as before. A child, into which fork may have copied
// first that a place went back and then that it is cold, does without it.
static void places_that_stay(void) {
  hak_process_init();
  if (hak_registry.base == 0 || hak_os_page_size != 4096) return;
  const unsigned kinds[] = {HAK_FAULT_UNMAP, HAK_FAULT_DISCARD};
  uint32_t number = hak_superslab_acquire(false);
  for (unsigned i = 0; i < COUNT(kinds); i++) {
    hak_superslab_decommit(number);
    hak_os_fault(kinds[i], 0, false);
    hak_superslab_fit((size_t)64 << 20);
    hak_os_fault(0, 0, false);
    CHECK_EQUAL(hak_superslab_acquire(false), number);
    check_found(number);
  }
  hak_superslab_decommit(number);
  hak_registry.superslabs[number].forgotten = HAK_FORGOTTEN_PLACE;
  hak_superslab_after_fork();
  for (unsigned i = 0; i < 8; i++) {
    uint32_t other = hak_superslab_acquire(false);
    CHECK(other != number);
    check_found(other);
  }
}
ISOLATED(places_that_stay)

// Outside the range: fork copied the address of memory that was gone by then.
static void bases_older_than_the_memory(void) {
  hak_process_init();
  if (hak_registry.base != 0) return;
  uint32_t number = hak_superslab_acquire(false);
  uintptr_t base = hak_registry.superslabs[number].base;
  hak_superslab_decommit(number);
  CHECK_EQUAL(hak_registry.superslabs[number].base, 0);
  hak_registry.superslabs[number].base = base;
  hak_pool_rebuild();
  CHECK_EQUAL(hak_superslab_acquire(false), number);
  memset((void *)hak_registry.superslabs[number].base, 1, HAK_SUPERSLAB_SIZE);
  check_found(number);
}
ISOLATED(bases_older_than_the_memory)

// Fitting takes no address space from threads that acquire SuperSlabs meanwhile: they write to
// what they have.
static void fits_beside_threads(void) {
  pthread_t threads[THREADS];
  hak_process_init();
  for (uintptr_t i = 0; i < THREADS; i++) threads[i] = unit_start(acquire_many, (void *)(i + 1));
  uint32_t from = (uint32_t)getpid() % 7 * 100;
  while (hak_superslab_count() < from) sched_yield();
  hak_superslab_fit((size_t)16 << 30);
  for (unsigned i = 0; i < 20; i++) hak_superslab_fit(i % 2 ? (size_t)16 << 30 : SIZE_MAX);
  for (unsigned i = 0; i < THREADS; i++) unit_join(threads[i]);
}
ISOLATED(fits_beside_threads)

#if !SANITIZED // they read limits themselves before they are ready for code that they instrument
// Fitting reads the limit once more amid its work: then amid_fit is called, once.
static void (*amid_fit)(void);
int limit_of(int resource, struct rlimit *limit) __asm__("getrlimit");
int limit_of(int resource, struct rlimit *limit) {
  void (*call)(void) = amid_fit;
  amid_fit = NULL;
  if (call) call();
  return (int)syscall(SYS_prlimit64, 0, resource, NULL, limit);
}

static bool fitted;
static void note(void) { fitted = true; }
static void fit_and_note(void) {
  fitted = false;
  amid_fit = note;
  hak_superslab_fit(SIZE_MAX);
  amid_fit = NULL;
}
static void fork_and_fit(void) {
  pid_t pid = fork();
  if (pid == 0) {
    fit_and_note();
    _exit(fitted ? 0 : 1);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

// One fits at a time, and none waits for ever for the other; the child of a thread that forks
// meanwhile does not wait at all.
static void one_fits_at_a_time(void) {
  hak_process_init();
  CHECK(hak_superslab_acquire(false) != 0);
  alarm(100); // instead of for ever
  fit_and_note();
  if (hak_registry.base == 0) return; // nothing is reserved
  CHECK(fitted);
  amid_fit = fit_and_note;
  hak_superslab_fit(SIZE_MAX);
  CHECK(!fitted);
  amid_fit = fork_and_fit;
  hak_superslab_fit(SIZE_MAX);
  fit_and_note();
  CHECK(fitted);
}
ISOLATED(one_fits_at_a_time)
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(lookup_of_every_slab),
    ISOLATED_TEST(strangers),
    ISOLATED_TEST(decommitted_numbers_come_back_zeroed),
    ISOLATED_TEST(descriptors_go_back),
    ISOLATED_TEST(queues),
    ISOLATED_TEST(refused_decommits),
    ISOLATED_TEST(memory_without_an_entry),
    ISOLATED_TEST(refused_memory),
    cmocka_unit_test(hundred_thousand_superslabs),
    ISOLATED_TEST(numbers_are_given_once),
    ISOLATED_TEST(fits_a_limit),
    ISOLATED_TEST(places_that_stay),
    ISOLATED_TEST(bases_older_than_the_memory),
    ISOLATED_TEST(fits_beside_threads),
    ISOLATED_TEST(fits_beside_threads),
    ISOLATED_TEST(fits_beside_threads),
#if !SANITIZED
    ISOLATED_TEST(one_fits_at_a_time),
#endif
  };
  return RUN(tests);
}
