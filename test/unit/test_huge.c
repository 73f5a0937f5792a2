// huge.h: a mapping per block.

#include "unit.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "pool/huge.h"
#include "pool/huge_cache.h"
#include "superslab/superslab.h"
#include "thread/process.h"

static size_t pages(size_t n) {
  return (n + hak_os_page_size - 1) / hak_os_page_size * hak_os_page_size;
}

static void alignments(void) {
  hak_process_init();
  hak_huge_free(hak_huge_alloc(1, 1, true)); // creates the pagemap's leaf
  uint64_t bytes = hak_mapped.huge_bytes;
  for (size_t alignment = 1; alignment <= GIB; alignment *= 2) {
    const size_t sizes[] = {0, 1, 5000, MIB + 1, 3 * MIB, 5 * MIB + 4097};
    for (unsigned i = 0; i < COUNT(sizes); i++) {
      size_t mapped = status_kib("VmSize:");
      char *p = hak_huge_alloc(sizes[i], alignment, true),
           *q = hak_huge_alloc(sizes[i], alignment, true);
      CHECK(p && q && p != q);
      CHECK(((uintptr_t)p & (alignment - 1)) == 0 && ((uintptr_t)p & (2 * MIB - 1)) == 0);
      size_t usable = hak_huge_usable(p);
      CHECK_EQUAL(usable, pages(sizes[i] ? sizes[i] : 1));
      CHECK_EQUAL(hak_mapped.huge_bytes - bytes, 2 * usable);
      CHECK_EQUAL(hak_huge_count(), 2);
      // No address space beyond the block is kept.
      if (!SANITIZED) CHECK(status_kib("VmSize:") - mapped <= 2 * usable / 1024 + 256);
      p[0] = p[usable - 1] = 1;
      CHECK_EQUAL(q[0] + q[usable - 1], 0);
      CHECK_EQUAL(hak_huge_usable(p + 16), 0);
      CHECK(hak_huge_around(p + usable - 1) == p);
      CHECK(hak_huge_free(p) && hak_huge_free(q));
      CHECK(!hak_huge_free(p) && hak_huge_usable(p) == 0);
      CHECK(hak_huge_around(p) == NULL);
    }
  }
  CHECK_EQUAL(hak_mapped.huge_bytes, bytes);
  CHECK_EQUAL(hak_huge_count(), 0);
}
ISOLATED(alignments)

// Alignments that no address has are refused. Nothing is mapped, in particular not at NULL.
static void impossible_alignments(void) {
  hak_process_init();
  size_t mappings = mapping_count();
  for (unsigned shift = 47; shift < 64; shift++) {
    const size_t sizes[] = {1, 5 * MIB, (size_t)PTRDIFF_MAX / 2};
    for (unsigned i = 0; i < COUNT(sizes); i++) {
      errno = 0;
      CHECK(hak_aligned_alloc((size_t)1 << shift, sizes[i]) == NULL);
      CHECK_EQUAL(errno, ENOMEM);
      unsigned char resident;
      CHECK(mincore((void *)(uintptr_t)0, 4096, &resident) != 0 && errno == ENOMEM);
    }
  }
  CHECK(mapping_count() <= mappings + 2); // mappings of the heap itself
}
ISOLATED(impossible_alignments)

static void mappings_are_given_back(void) {
  hak_process_init();
  hak_huge_free(hak_huge_alloc(1, 1, true));
  enum { N = 100 };
  void *blocks[N];
  size_t before = mapping_count();
  for (unsigned i = 0; i < N; i++)
    CHECK((blocks[i] = hak_huge_alloc(2 * MIB + i * 4096, 1, true)) != NULL);
  CHECK(mapping_count() <=
        before + N + 1); // 1: an earlier mapping may have been merged with its neighbour
  for (unsigned i = 0; i < N; i++) CHECK(hak_huge_free(blocks[i]));
  hak_huge_cache_trim(0);
  CHECK(mapping_count() <= before + 1);
}
ISOLATED(mappings_are_given_back)

// Occupies the address space behind p, so that the block cannot grow in place.
static void *wall_behind(char *p) {
  void *at = p + hak_huge_usable(p);
  void *wall = mmap(at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  return wall == at ? wall : NULL; // NULL: something was there already
}

static void resize(void) {
  hak_process_init();
  hak_huge_free(hak_huge_alloc(1, 1, true));
  for (unsigned walled = 0; walled < 2; walled++) {
    char *p = hak_huge_alloc(4 * MIB, 1, true);
    fill(p, 4 * MIB, 1);
    size_t mappings = mapping_count();
    size_t size = 4 * MIB;
    unsigned moves = 0;
    while (size < 200 * MIB) {
      void *wall = walled ? wall_behind(p) : NULL;
      size_t usable = hak_huge_usable(p);
      size = usable + 1;
      char *q = hak_huge_resize(p, size);
      CHECK(q != NULL);
      moves += q != p;
      if (q != p) CHECK(hak_huge_usable(p) == 0 && !hak_huge_free(p));
      if (wall) munmap(wall, 4096);
      p = q;
      CHECK(hak_huge_usable(p) >= usable + usable / 8); // amortised
      CHECK_EQUAL(hak_mapped.huge_bytes, hak_huge_usable(p));
      CHECK_EQUAL(hak_huge_count(), 1);
      CHECK(filled(p, 4 * MIB, 1));
      CHECK(((uintptr_t)p & (2 * MIB - 1)) == 0);
      CHECK_EQUAL(p[size - 1], 0);
      p[size - 1] = 3;
      CHECK(mapping_count() <= mappings + 2);
    }
    if (walled) CHECK(moves > 0);
    // Shrinking gives the pages back and never moves the block.
    size_t mapped = status_kib("VmSize:");
    CHECK(hak_huge_resize(p, 4 * MIB) == p);
    CHECK_EQUAL(hak_huge_usable(p), 4 * MIB);
    if (!SANITIZED) CHECK(status_kib("VmSize:") + 190 * 1024 < mapped);
    CHECK(filled(p, 4 * MIB, 1));
    CHECK(hak_huge_resize(p, 4 * MIB - 1) == p);
    CHECK(hak_huge_resize(p, 4 * MIB) == p);
    CHECK(hak_huge_free(p));
    CHECK_EQUAL(hak_mapped.huge_bytes, 0);
  }
}
ISOLATED(resize)

// Grows by one page at a time: the slack that one step adds lasts for the next steps.
static void growth_in_small_steps(void) {
  hak_process_init();
  size_t page = hak_os_page_size, usable = 0;
  unsigned changes = 0;
  char *p = hak_huge_alloc(4 * MIB, 1, true);
  for (size_t size = 4 * MIB; size <= 8 * MIB; size += page) {
    CHECK((p = hak_huge_resize(p, size)) != NULL);
    CHECK(hak_huge_usable(p) >= size && hak_huge_usable(p) <= size + size / 8 + page);
    changes += hak_huge_usable(p) != usable;
    usable = hak_huge_usable(p);
  }
  CHECK(changes <= 10);
  CHECK(hak_huge_free(p));
}
ISOLATED(growth_in_small_steps)

// Row M7: a block that has to move is not copied: old + new are never both resident.
static void growth_never_holds_both(void) {
  hak_process_init();
  size_t size = 64 * MIB;
  char *p = hak_huge_alloc(size, 1, true);
  memset(p, 1, size);
  wall_behind(p);
  char *q = hak_huge_resize(p, 2 * size);
  CHECK(q && q != p);
  CHECK(q[0] == 1 && q[size - 1] == 1 && q[size] == 0);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  if (!SANITIZED) CHECK((size_t)usage.ru_maxrss < (size + size / 4) / 1024);
  CHECK(hak_huge_free(q));
}
ISOLATED(growth_never_holds_both)

static char *touched(size_t size, size_t stride, bool zero) {
  char *p = hak_huge_alloc(size, 1, zero);
  CHECK(p != NULL);
  use_every(p, size, stride);
  return p;
}

static void what_is_in_use(void) {
  if (EMULATED) return; // the emulator has page faults of its own
  hak_os_init();
  const size_t page = hak_os_page_size, size = 8 * MIB;
  char *p = hak_os_map(size, 1);
  CHECK(p != NULL);
  hak_os_huge_pages(p, size, false);
  errno = 77;
  CHECK(!hak_os_filled(p, size));
  use_every(p, size / 2, DENSE);
  CHECK(!hak_os_filled(p, size));
  const size_t rss = status_kib("VmRSS:");
  unsigned seen = 0; // pages that the two previous calls looked at
  for (size_t at = size / 2; at < size; at += page) seen += hak_os_filled(p + at, page);
  CHECK(seen <= 2);
  if (!SANITIZED) CHECK(status_kib("VmRSS:") < rss + size / 4 / KIB); // looking takes no memory
  use_every(p, size, DENSE);
  CHECK(hak_os_filled(p, size) || !pages_are_told());
  CHECK(hak_os_filled(p, page) || !pages_are_told());
  CHECK(!hak_os_filled(p, page - 1) && !hak_os_filled(p, 0));
  CHECK(!hak_os_filled(p + 1, page) && !hak_os_filled(p + page - 1, page));
  CHECK(hak_os_filled(p + 1, 2 * page - 1) || !pages_are_told());
  CHECK(mprotect(p + size / 2, size / 2, PROT_NONE) == 0);
  CHECK(!hak_os_filled(p, size));
  CHECK(hak_os_unmap(p, size));
  CHECK(!hak_os_filled(p, size));
  CHECK_EQUAL(errno, 77);
}
ISOLATED(what_is_in_use)

// Blocks get huge pages once a block without them was found in use throughout.
static void huge_pages_for_what_fills(void) {
  hak_process_init();
  if (!pages_are_told()) return;
  hak_option(HUGE_CACHE) = 0;
  const size_t page = hak_os_page_size, size = 40 * MIB;
  char *p[24];
  unsigned n = 0;
  p[n++] = touched(size, DENSE, false); // nothing is known yet
  p[n++] = touched(size, DENSE, true);  // a large array of zeros
  errno = 77;
  p[n++] = hak_huge_alloc(size, page, false); // page-aligned: the program manages its pages
  CHECK_EQUAL(hak_huge_advised(), 0);
  for (unsigned i = 0; i < 8; i++) {
    char *full = hak_huge_alloc(size, 1, false);
    CHECK_EQUAL(hak_huge_advised(), i + 1);
    CHECK(hak_huge_free(full)); // gives no evidence
  }
  CHECK_EQUAL(errno, 77);
  p[n++] = touched(size, DENSE, false); // eight times the sample's size has had huge pages by now
  CHECK_EQUAL(hak_huge_advised(), 8);
  char *large = hak_huge_alloc(8 * size + page, 1, false); // more than eight times the sample
  CHECK_EQUAL(hak_huge_advised(), 8);
  CHECK(hak_huge_free(hak_huge_alloc(7 * size, 1, false)));
  CHECK(hak_huge_free(hak_huge_alloc(size, 1, false)));
  CHECK_EQUAL(hak_huge_advised(), 10);
  p[n++] = touched(size, DENSE, false); // the last sample was not touched
  p[n++] = touched(size, DENSE, false); // now two samples in use are needed
  CHECK_EQUAL(hak_huge_advised(), 10);
  CHECK(hak_huge_free(large) && hak_huge_free(p[--n])); // a sample is looked at before it goes
  hak_option(THP) = HAK_THP_NEVER;
  p[n++] = touched(size, DENSE, false); // the next sample
  CHECK_EQUAL(hak_huge_advised(), 10);
  hak_option(THP) = HAK_THP_AUTO;
  p[n++] = hak_huge_alloc(2 * MIB - page, 1, false); // less than a huge page
  CHECK_EQUAL(hak_huge_advised(), 10);
  p[n++] = hak_huge_alloc(2 * MIB, 1, false);
  CHECK_EQUAL(hak_huge_advised(), 11);
  p[n++] = hak_huge_alloc(8 * size - 2 * MIB, 1, false);
  CHECK_EQUAL(hak_huge_advised(), 12);
  p[n++] = hak_huge_alloc(24 * size, 1, true);
  p[n++] = hak_huge_alloc(12 * size, 1, false); // at least half of what is in use
  CHECK_EQUAL(hak_huge_advised(), 13);
  while (n > 0) CHECK(hak_huge_free(p[--n]));
  // With little memory in use, the last huge page would be a large part of it.
  p[0] = touched(8 * MIB, DENSE, false);
  p[1] = touched(8 * MIB, DENSE, false);
  CHECK_EQUAL(hak_huge_advised(), 13);
  // A growing block is evidence for itself, wherever it moves.
  wall_behind(p[0]);
  CHECK((p[0] = hak_huge_resize(p[0], size)) != NULL);
  CHECK_EQUAL(hak_huge_advised(), 14);
  CHECK((p[1] = hak_huge_resize(p[1], 9 * MIB)) != NULL);
  CHECK_EQUAL(hak_huge_advised(), 15);
  wall_behind(p[0]);
  CHECK((p[0] = hak_huge_resize(p[0], 4 * size)) != NULL);
  CHECK_EQUAL(hak_huge_advised(), 15); // the end of it was not used
  for (size_t at = 0; at < 8 * MIB; at += page) CHECK_EQUAL(p[0][at], 1);
  CHECK(hak_huge_free(p[0]) && hak_huge_free(p[1]));
  CHECK_EQUAL(hak_mapped.huge_bytes, 0);
}
ISOLATED(huge_pages_for_what_fills)

// Allocates `kinds` blocks in each of `rounds` rounds. Only the first block of each round is
// used in full. Returns how many of all these blocks got huge pages.
static unsigned by_turns(unsigned rounds, unsigned kinds) {
  enum { MOST = 256 };
  const uint64_t before = hak_huge_advised();
  char *p[MOST];
  unsigned n = 0;
  for (unsigned i = 0; i < rounds; i++)
    for (unsigned k = 0; k < kinds; k++) p[n++] = touched(2 * MIB, k == 0 ? DENSE : 2 * MIB, false);
  CHECK(n <= MOST);
  const uint64_t advised = hak_huge_advised() - before;
  while (n > 0) CHECK(hak_huge_free(p[--n]));
  return (unsigned)advised;
}

static void huge_pages_for_one_kind_only(void) {
  hak_process_init();
  if (!pages_are_told()) return;
  hak_option(HUGE_CACHE) = 0;
  char *zeros = hak_huge_alloc(32 * MIB, 1, true); // this much is in use
  CHECK(by_turns(64, 4) <= 24);
  CHECK(by_turns(64, 2) <= 24);
  CHECK(by_turns(100, 1) >= 80); // it takes eight in a row, then four, then two
  CHECK(by_turns(100, 1) >= 90);
  CHECK(hak_huge_free(zeros));
}
ISOLATED(huge_pages_for_one_kind_only)

static void *ask_for_a_block(void *size) {
  char *p = hak_huge_alloc(*(size_t *)size, 1, false);
  CHECK(p != NULL && hak_huge_free(p));
  return NULL;
}

// A thread requests a block while another thread still writes to the sample.
static void huge_pages_for_other_threads(void) {
  hak_process_init();
  if (!pages_are_told()) return;
  hak_option(HUGE_CACHE) = 0;
  size_t size = 40 * MIB;
  char *p = hak_huge_alloc(size, 1, false);
  unit_join(unit_start(ask_for_a_block, &size));
  CHECK_EQUAL(hak_huge_advised(), 0);
  use_every(p, size, DENSE);
  char *q = hak_huge_alloc(size, 1, false);
  CHECK_EQUAL(hak_huge_advised(), 1);
  for (unsigned i = 0; i < 7; i++) unit_join(unit_start(ask_for_a_block, &size));
  CHECK_EQUAL(hak_huge_advised(), 8); // eight times the sample
  // The sample's thread does not ask again: after eight requests by others they look at it.
  char *sample = touched(size, DENSE, false);
  for (unsigned i = 0; i < 8; i++) unit_join(unit_start(ask_for_a_block, &size));
  CHECK_EQUAL(hak_huge_advised(), 8);
  unit_join(unit_start(ask_for_a_block, &size));
  CHECK_EQUAL(hak_huge_advised(), 9);
  CHECK(hak_huge_free(p) && hak_huge_free(q) && hak_huge_free(sample));
}
ISOLATED(huge_pages_for_other_threads)

// A sample that realloc moves or cuts is no sample any more.
static void a_sample_that_moves(void) {
  hak_process_init();
  if (!pages_are_told()) return;
  hak_option(HUGE_CACHE) = 0;
  const size_t size = 40 * MIB;
  char *p = touched(size, DENSE, false);
  wall_behind(p);
  char *moved = hak_huge_resize(p, size + size / 2);
  CHECK(moved && moved != p);
  const uint64_t before = hak_huge_advised();
  char *q = touched(size, DENSE, false), *r = hak_huge_alloc(size, 1, false);
  CHECK_EQUAL(hak_huge_advised(), before + 1); // q was in use, and nothing counts against it
  CHECK(hak_huge_free(moved) && hak_huge_free(q) && hak_huge_free(r));
}
ISOLATED(a_sample_that_moves)

// Whether the kernel was last told to use huge pages for the mapping that contains p.
static bool to_be_huge(const void *p) { return vm_flag(p, " hg"); }

// A growing block keeps its huge pages while it is used in full, except for its end.
static void huge_pages_while_it_fills(void) {
  hak_process_init();
  if (EMULATED || !pages_are_told()) return;
  hak_option(HUGE_CACHE) = 0;
  const size_t size = 40 * MIB;
  char *sample = touched(size, DENSE, false), *dense = hak_huge_alloc(size, 1, false);
  char *sparse = hak_huge_alloc(size, 1, false);
  CHECK_EQUAL(hak_huge_advised(), 2);
  if (!to_be_huge(dense)) return; // the kernel has no huge pages
  use_every(dense, size * 9 / 10, DENSE);
  use_every(sparse, size / 8, DENSE);
  CHECK((dense = hak_huge_resize(dense, 50 * MIB)) != NULL && to_be_huge(dense));
  CHECK((sparse = hak_huge_resize(sparse, 50 * MIB)) != NULL && !to_be_huge(sparse));
  CHECK(hak_huge_usable(dense) == 50 * MIB && hak_huge_usable(sparse) == 50 * MIB);
  CHECK((dense = hak_huge_resize(dense, 45 * MIB)) != NULL && to_be_huge(dense));
  CHECK((dense = hak_huge_resize(dense, 60 * MIB)) != NULL && to_be_huge(dense));
  CHECK_EQUAL(hak_huge_advised(), 2);
  use_every(sparse, 50 * MIB, DENSE);
  CHECK((sparse = hak_huge_resize(sparse, 60 * MIB)) != NULL && to_be_huge(sparse));
  CHECK_EQUAL(hak_huge_advised(), 3);
  CHECK(hak_huge_free(dense) && hak_huge_free(sparse) && hak_huge_free(sample));
}
ISOLATED(huge_pages_while_it_fills)

static void refused_growth(void) {
  hak_process_init();
  char *p = hak_huge_alloc(4 * MIB, 1, true);
  fill(p, 4 * MIB, 7);
  uint64_t bytes = hak_mapped.huge_bytes;
  for (unsigned skip = 0; skip < 4; skip++) {
    hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_REMAP, skip, false);
    char *q = hak_huge_resize(p, 40 * MIB);
    hak_os_fault(0, 0, false);
    if (q) { // grown in place, or fewer calls were needed
      CHECK(filled(q, 4 * MIB, 7));
      p = hak_huge_resize(q, 4 * MIB);
      CHECK(p == q);
    }
    CHECK(filled(p, 4 * MIB, 7));
    CHECK_EQUAL(hak_huge_usable(p), 4 * MIB);
    CHECK_EQUAL(hak_mapped.huge_bytes, bytes);
  }
  // A refused shrink leaves the block as it was, which satisfies the request.
  hak_os_fault(HAK_FAULT_ALL, 0, false);
  CHECK(hak_huge_resize(p, 2 * MIB) == p);
  hak_os_fault(0, 0, false);
  CHECK(filled(p, 4 * MIB, 7) && hak_huge_usable(p) == 4 * MIB);
  // A refused unmap is harmless too: the memory is given back nevertheless.
  hak_os_fault(HAK_FAULT_UNMAP, 0, false);
  CHECK(hak_huge_free(p));
  hak_os_fault(0, 0, false);
  CHECK_EQUAL(hak_mapped.huge_bytes, 0);
}
ISOLATED(refused_growth)

// Makes the cache keep a freed block. Returns the number of bytes kept.
static size_t keep_some(void) {
  hak_option(HUGE_CACHE) = 64 * MIB;
  for (unsigned i = 0; i < 60; i++) hak_free(memset(hak_malloc(40 * MIB), 1, 4096));
  CHECK(hak_mapped.cached_bytes >= 40 * MIB);
  return hak_mapped.cached_bytes;
}

// A block with two kinds of pages cannot be moved: no kept mapping is given up for it.
static void growth_of_two_kinds(void) {
  hak_process_init();
  size_t kept = keep_some();
  char *p = hak_huge_alloc(4 * MIB, 1, true);
  CHECK(mprotect(p + 2 * MIB, hak_os_page_size, PROT_READ) == 0);
  CHECK(hak_huge_resize(p, 8 * MIB) == NULL && hak_huge_resize(p, 4 * MIB + 1) == NULL);
  CHECK_EQUAL(hak_mapped.cached_bytes, kept);
  CHECK_EQUAL(hak_huge_usable(p), 4 * MIB);
  CHECK(mprotect(p + 2 * MIB, hak_os_page_size, PROT_READ | PROT_WRITE) == 0);
  CHECK((p = hak_huge_resize(p, 8 * MIB)) != NULL && hak_huge_free(p));
}
ISOLATED(growth_of_two_kinds)

// No kept mapping is given up for a request that no address space has room for.
static void larger_than_all_addresses(void) {
  hak_process_init();
  size_t kept = keep_some();
  void *p = hak_malloc(100);
  for (unsigned bit = HAK_ADDRESS_USER_BITS; bit < 64; bit++) {
    size_t size = (size_t)1 << bit;
    errno = 0;
    CHECK(hak_malloc(size) == NULL && errno == ENOMEM);
    CHECK(hak_calloc(size >> 3, 8) == NULL && hak_realloc(p, size) == NULL);
    CHECK(hak_aligned_alloc(size, 64) == NULL && hak_memalign(64, size) == NULL);
  }
  CHECK_EQUAL(hak_mapped.cached_bytes, kept);
  hak_free(p);
}
ISOLATED(larger_than_all_addresses)

// If the kernel gave up the address a block would have moved to, another thread would get it.
static _Atomic bool stop;
static void *map_and_use(void *unused) {
  size_t size = 64 * MIB;
  while (!hak_load_relaxed(&stop)) {
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    CHECK(p != MAP_FAILED);
    for (unsigned round = 0; round < 200; round++)
      for (unsigned i = 0; i < 20; i++) p[i * 4096] = 1; // SIGSEGV if the mapping is gone
    CHECK(munmap(p, size) == 0);
  }
  return unused;
}
static void refused_growth_is_nobody_elses(void) {
  if (EMULATED) return; // qemu keeps a record of each of the 2^32 pages requested
  unsigned char *p = hak_malloc(8 * MIB);
  fill(p, 8 * MIB, 1);
  pthread_t other = unit_start(map_and_use, NULL);
  for (unsigned i = 0; i < SCALED(6000u); i++) {
    unsigned char *q = hak_realloc(p, GIB << 14); // more than a machine has
    if (q) p = q;                                 // where the kernel grants any request
    if (q) break;
  }
  hak_store_relaxed(&stop, true);
  unit_join(other);
  CHECK(filled(p, 8 * MIB, 1));
  hak_free(p);
}
ISOLATED(refused_growth_is_nobody_elses)

// Address space mapped beside a block for its alignment does not count as memory.
static void aligned_within_a_limit(void) {
  if (SANITIZED || EMULATED) return;
  hak_process_init();
  struct rlimit limit, all;
  CHECK(getrlimit(RLIMIT_DATA, &all) == 0);
  limit = all, limit.rlim_cur = status_kib("VmData:") * KIB + 64 * MIB;
  CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
  char *p[6];
  for (unsigned i = 0; i < COUNT(p); i++) {
    CHECK((p[i] = hak_aligned_alloc(GIB, 4096)) != NULL && (uintptr_t)p[i] % GIB == 0);
    memset(p[i], 1, 4096);
  }
  errno = 0;
  CHECK(hak_aligned_alloc(GIB, 80 * MIB) == NULL && errno == ENOMEM);
  size_t address_space = status_kib("VmSize:"), mappings = mapping_count();
  for (unsigned i = 0; i < 20; i++) CHECK(hak_aligned_alloc(GIB, 80 * MIB) == NULL);
  CHECK(status_kib("VmSize:") < address_space + 100 * KIB && mapping_count() <= mappings + 2);
  for (unsigned i = 0; i < COUNT(p); i++) hak_free(p[i]);
  CHECK(setrlimit(RLIMIT_DATA, &all) == 0);
}
ISOLATED(aligned_within_a_limit)

// With little memory left a block grows by the requested amount, not by an eighth, and what is
// kept for reuse is given back for it.
static void growth_within_a_limit(void) {
  if (SANITIZED) return;
  unsigned char *p = hak_malloc(200 * MIB);
  fill(p, 8 * MIB, 1);
  keep_some();
  struct rlimit limit, all;
  CHECK(getrlimit(RLIMIT_DATA, &all) == 0);
  limit = all, limit.rlim_cur = status_kib("VmData:") * KIB + 10 * MIB;
  CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
  errno = 0;
  CHECK((p = hak_realloc(p, 205 * MIB)) != NULL); // 225 MiB were not available
  CHECK(hak_malloc_usable_size(p) < 210 * MIB);
  CHECK((p = hak_realloc(p, 220 * MIB)) != NULL); // nor would this be beside the kept mapping
  CHECK_EQUAL(hak_mapped.cached_bytes, 0);
  CHECK(hak_realloc(p, 300 * MIB) == NULL && errno == ENOMEM);
  CHECK(filled(p, 8 * MIB, 1));
  // The address range that the block was to move to is not lost either.
  size_t address_space = status_kib("VmSize:"), mappings = mapping_count();
  for (unsigned i = 0; i < 50; i++) CHECK(hak_realloc(p, 300 * MIB) == NULL);
  CHECK(status_kib("VmSize:") < address_space + 100 * KIB && mapping_count() <= mappings + 2);
  CHECK(setrlimit(RLIMIT_DATA, &all) == 0);
  hak_free(p);
}
ISOLATED(growth_within_a_limit)

// A kept mapping loses its huge pages when it serves a block whose pages the program manages.
static void reused_without_huge_pages(void) {
  hak_option(HUGE_CACHE) = 64 * MIB;
  for (unsigned i = 0; i < 60; i++) hak_free(memset(hak_malloc(40 * MIB), 1, 40 * MIB));
  if (hak_huge_advised() == 0) return; // the kernel does not report which pages are in use
  CHECK(hak_mapped.cached_bytes >= 40 * MIB);
  unsigned char *p = hak_aligned_alloc(hak_os_page_size, 160 * MIB);
  CHECK_EQUAL(hak_mapped.cached_bytes, 0);
  size_t before = status_kib("VmRSS:");
  for (size_t i = 40 * MIB; i < 160 * MIB; i += 2 * MIB) p[i] = 1;
  CHECK(status_kib("VmRSS:") <= before + 4 * KIB); // KiB
  hak_free(p);
}
ISOLATED(reused_without_huge_pages)

#define THREADS 4
#define BLOCKS 300
static void *blocks[BLOCKS];
static _Atomic unsigned winners[BLOCKS];
static pthread_barrier_t barrier;
static void *free_all(void *argument) {
  (void)argument;
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (i % 30 == 0) pthread_barrier_wait(&barrier);
    if (hak_huge_free(blocks[i])) hak_fetch_add_relaxed(&winners[i], 1);
  }
  return NULL;
}
static void one_of_many_frees_wins(void) {
  hak_process_init();
  for (unsigned i = 0; i < BLOCKS; i++)
    CHECK((blocks[i] = hak_huge_alloc(MIB + 1, 1, true)) != NULL);
  pthread_t threads[THREADS];
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (unsigned i = 0; i < THREADS; i++) threads[i] = unit_start(free_all, NULL);
  for (unsigned i = 0; i < THREADS; i++) unit_join(threads[i]);
  for (unsigned i = 0; i < BLOCKS; i++) CHECK_EQUAL(winners[i], 1);
  CHECK_EQUAL(hak_huge_count(), 0);
  CHECK_EQUAL(hak_mapped.huge_bytes, 0);
}
ISOLATED(one_of_many_frees_wins)

// More blocks than a process may have mappings: beyond some thousands, blocks adjoin each other.
static void many_blocks_few_mappings(void) {
  if (SANITIZED || HAK_SECURE) return;
  enum { APART = 16384, N = APART + 4096 };
  static char *p[N];
  const size_t size = 1100000, page = hak_os_page_size;
  hak_process_init();
  hak_huge_free(hak_huge_alloc(1, 1, true));
  size_t mappings = mapping_count(), space = 0, resident = 0;
  for (unsigned i = 0; i < N; i++) {
    if (i == APART) {
      CHECK(mapping_count() >= mappings + APART - 64);
      space = status_kib("VmSize:"), resident = status_kib("VmRSS:");
    }
    p[i] = hak_huge_alloc(size, 1, i % 3 == 0);
    if (!p[i] && i < APART) return; // less address space or fewer mappings than usual
    CHECK_EQUAL(hak_huge_usable(p[i]), pages(size));
    if (i >= APART) p[i][0] = 1;
  }
  CHECK_EQUAL(hak_mapped.huge_bytes, N * pages(size));
  CHECK(mapping_count() <= mappings + APART + 64);
  // Only touched pages are resident, even where the system backs everything by huge pages.
  CHECK(status_kib("VmRSS:") <= resident + (N - APART) * page / KIB + 2 * KIB);
  CHECK(status_kib("VmSize:") <= space + (N - APART) * 2 * KIB + 64 * KIB);
  // Within its mapping a block grows and shrinks in place; the pages it gives up are not kept.
  char *q = p[N - 9];
  CHECK(hak_huge_resize(q, 2 * MIB) == q && hak_huge_usable(q) == 2 * MIB);
  use_every(q, 2 * MIB, DENSE);
  resident = status_kib("VmRSS:");
  CHECK(hak_huge_resize(q, size) == q && hak_huge_usable(q) == pages(size));
  CHECK(status_kib("VmRSS:") + 512 <= resident);
  CHECK_EQUAL(hak_mapped.huge_bytes, N * pages(size));
  CHECK((q = hak_huge_resize(q, 5 * MIB)) != NULL && hak_huge_usable(q) == 5 * MIB);
  CHECK(q[0] == 1 && q[pages(size) - page] == 1);
  CHECK((p[N - 9] = hak_huge_resize(q, size)) == q && hak_huge_usable(q) == pages(size));
  CHECK(mapping_count() <= mappings + APART + 68);
  // The part of a kept mapping behind the block that reuses it goes back.
  char *kept = NULL;
  for (unsigned i = 0; i < 20; i++) {
    CHECK((kept = hak_huge_alloc(2 * MIB, 1, false)) != NULL);
    use_every(kept, 2 * MIB, DENSE);
    CHECK(hak_huge_free(kept));
  }
  resident = status_kib("VmRSS:");
  CHECK(hak_huge_alloc(size, 1, false) == kept && hak_huge_usable(kept) == pages(size));
  CHECK(status_kib("VmRSS:") + 512 <= resident);
  CHECK(hak_huge_free(kept));
  hak_huge_cache_trim(0);
  // When the kernel refuses to split mappings, nothing is lost.
  hak_os_fault(HAK_FAULT_UNMAP, 0, false);
  for (unsigned i = APART; i < N; i += 2) CHECK(hak_huge_free(p[i]));
  hak_huge_cache_trim(0);
  hak_os_fault(0, 0, false);
  for (unsigned i = APART + 1; i < N; i += 2) CHECK(p[i][0] == 1);
  for (unsigned i = 0; i < N; i++)
    if (i < APART || i % 2) CHECK(hak_huge_free(p[i]));
  hak_huge_cache_trim(0);
  CHECK_EQUAL(hak_mapped.huge_bytes, 0);
  CHECK(mapping_count() <= mappings + 8);
  CHECK(status_kib("VmSize:") <= space - APART * (size / KIB) + 64 * KIB);
}
ISOLATED(many_blocks_few_mappings)

int main(void) {
  const struct CMUnitTest tests[] = {
      ISOLATED_TEST(alignments),
      ISOLATED_TEST(impossible_alignments),
      ISOLATED_TEST(mappings_are_given_back),
      ISOLATED_TEST(resize),
      ISOLATED_TEST(growth_in_small_steps),
      ISOLATED_TEST(growth_never_holds_both),
      ISOLATED_TEST(what_is_in_use),
      ISOLATED_TEST(huge_pages_for_what_fills),
      ISOLATED_TEST(huge_pages_for_one_kind_only),
      ISOLATED_TEST(huge_pages_for_other_threads),
      ISOLATED_TEST(a_sample_that_moves),
      ISOLATED_TEST(huge_pages_while_it_fills),
      ISOLATED_TEST(refused_growth),
      ISOLATED_TEST(growth_of_two_kinds),
      ISOLATED_TEST(larger_than_all_addresses),
      ISOLATED_TEST(aligned_within_a_limit),
      ISOLATED_TEST(refused_growth_is_nobody_elses),
      ISOLATED_TEST(growth_within_a_limit),
      ISOLATED_TEST(reused_without_huge_pages),
      ISOLATED_TEST(one_of_many_frees_wins),
      ISOLATED_TEST(many_blocks_few_mappings),
  };
  return RUN(tests);
}
