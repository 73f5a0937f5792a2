// test_aligned.c: aligned_alloc, memalign, posix_memalign, valloc, pvalloc.

#include "testing.h"

#include <cmocka.h>

typedef void *allocate_t(size_t alignment, size_t size);

static void *by_posix(size_t alignment, size_t size) {
  void *p = NULL;
  return posix_memalign(&p, alignment < sizeof p ? sizeof p : alignment, size) == 0 ? p : NULL;
}
static void *by_aligned_alloc(size_t alignment, size_t size) {
  return aligned_alloc(alignment, size);
}
static void *by_memalign(size_t alignment, size_t size) { return memalign(alignment, size); }

static allocate_t *const functions[] = {by_aligned_alloc, by_memalign, by_posix};

static void check(void *p, size_t alignment, size_t size) {
  assert_non_null(p);
  assert_int_equal((uintptr_t)p % alignment, 0);
  assert_true(malloc_usable_size(p) >= size);
}

// All usable bytes, unless glibc counts everything up to the next aligned address as usable.
static size_t bytes_to_fill(void *p, size_t size) {
  size_t usable = malloc_usable_size(p);
  return on_hakmem() || usable < size + MIB ? usable : size;
}

static void every_alignment_and_size(void **state) {
  (void)state;
  static const size_t sizes[] = {0,    1,    7,     16,    24,    33,     100,    1000,      1024,
                                 1025, 4095, 4097,  10000, 40000, 57345,  65536,  70001,     200000,
                                 (1 << 20) - 1, (1 << 20) + 1, 3 << 20};
  for (size_t f = 0; f < COUNT(functions); f++) {
    for (size_t alignment = 1; alignment <= GIB; alignment *= 2) {
      for (size_t s = 0; s < COUNT(sizes); s++) {
        void *p[3];
        for (size_t i = 0; i < COUNT(p); i++) {
          p[i] = functions[f](hide_size(alignment), sizes[s]);
          check(p[i], alignment, sizes[s]);
          fill(p[i], bytes_to_fill(p[i], sizes[s]), i);
        }
        for (size_t i = 0; i < COUNT(p); i++) {
          assert_true(filled(p[i], bytes_to_fill(p[i], sizes[s]), i));
          free(p[i]);
        }
      }
    }
  }
}

static void all_small_sizes_at_small_alignments(void **state) {
  (void)state;
  for (size_t alignment = 8; alignment <= 4096; alignment *= 2) {
    void *p[16] = {NULL};
    for (size_t size = 0; size <= 4200; size += 3) {
      void **slot = &p[size % COUNT(p)];
      free(*slot);
      check(*slot = memalign(alignment, size), alignment, size);
      memset(*slot, 0x5a, malloc_usable_size(*slot));
    }
    for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
  }
}

static void many_at_once_with_random_alignment(void **state) {
  (void)state;
  enum { N = 5000 };
  static struct {
    void *p;
    size_t size;
  } b[N];
  uint64_t random = 4;
  for (size_t i = 0; i < N; i++) {
    size_t alignment = (size_t)1 << (chance(&random) % 15);
    b[i].size = chance(&random) % 6000;
    check(b[i].p = memalign(alignment, b[i].size), alignment, b[i].size);
    fill(b[i].p, b[i].size, i);
  }
  for (size_t i = 0; i < N; i++) {
    assert_true(filled(b[i].p, b[i].size, i));
    free(b[i].p);
  }
}

static void large_alignment_costs_no_memory(void **state) {
  (void)state;
  void *p[16];
  size_t before = rss_kib();
  for (size_t i = 0; i < COUNT(p); i++) {
    check(p[i] = memalign(GIB, 4096), GIB, 4096);
    memset(p[i], 1, 4096);
  }
  assert_true(rss_kib() < before + 4 * KIB);
  for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
}

// ---------------------------------------------------------------------------

static void posix_memalign_refuses(void **state) {
  (void)state;
  static const size_t bad[] = {0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 24, 40, 48, 65, 96, 4095, 4104,
                               SIZE_MAX, SIZE_MAX - 7, (size_t)PTRDIFF_MAX};
  for (size_t i = 0; i < COUNT(bad); i++) {
    void *out = &out;
    errno = 12345;
    assert_int_equal(posix_memalign(&out, hide_size(bad[i]), 100), EINVAL);
    assert_ptr_equal(out, &out);
    assert_int_equal(errno, 12345);
  }
  void *out = &out;
  assert_int_equal(posix_memalign(&out, 16, hide_size(SIZE_MAX - 100)), ENOMEM);
  assert_ptr_equal(out, &out);
}

static void aligned_alloc_refuses_no_power_of_two(void **state) {
  (void)state;
  if (!on_hakmem()) skip(); // glibc before 2.38 rounds up
  static const size_t bad[] = {0, 3, 5, 6, 7, 9, 24, 48, 100, 4097, SIZE_MAX, (size_t)PTRDIFF_MAX};
  for (size_t i = 0; i < COUNT(bad); i++) {
    errno = 0;
    assert_null(aligned_alloc(hide_size(bad[i]), 100));
    assert_int_equal(errno, EINVAL);
  }
}

static void aligned_alloc_takes_any_size(void **state) {
  (void)state;
  for (size_t size = 0; size < 300; size++) { // C23: it need not be a multiple of the alignment
    void *p = aligned_alloc(64, size);
    check(p, 64, size);
    free(p);
  }
}

static void memalign_rounds_alignment_up(void **state) {
  (void)state;
  static const struct {
    size_t asked, got;
  } cases[] = {{0, 1},     {3, 4},     {5, 8},       {9, 16},          {17, 32},
               {48, 64},   {100, 128}, {1000, 1024}, {4097, 8192},     {70000, 131072},
               {(1 << 20) + 1, 2 << 20}, {3 << 20, 4 << 20}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    void *p[8];
    for (size_t j = 0; j < COUNT(p); j++)
      check(p[j] = memalign(hide_size(cases[i].asked), 1 + 50 * j), cases[i].got, 1 + 50 * j);
    for (size_t j = 0; j < COUNT(p); j++) free(p[j]);
  }
  errno = 0;
  assert_null(memalign(hide_size(SIZE_MAX), 8)); // no power of two is that large
  assert_int_equal(errno, EINVAL);
}

static void page_aligned(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t size = 0; size <= 3 * page; size += 100) {
    void *p = valloc(size), *q = pvalloc(size);
    check(p, page, size);
    check(q, page, (size + page - 1) / page * page);
    memset(q, 1, (size + page - 1) / page * page);
    free(p), free(q);
  }
}

#ifdef __GLIBC__
// Runs before the constructors of all libraries: allocates the process's first blocks.
static void *early[2];
static void allocate_early(int argc, char **argv, char **environment) {
  (void)argc, (void)argv;
  environ = environment; // the C library has not set it yet
  early[0] = pvalloc(10);
  early[1] = valloc(10);
}
typedef void preinit_t(int argc, char **argv, char **environment);
__attribute__((section(".preinit_array"), used)) static preinit_t *const at_start = allocate_early;

static void page_aligned_from_the_start(void **state) {
  (void)state;
  const char *pretended = getenv("HAK_OS_PAGE");
  size_t page = pretended ? strtoul(pretended, NULL, 10) : (size_t)sysconf(_SC_PAGESIZE);
  check(early[0], page, page);
  check(early[1], page, 10);
}
#else
static void page_aligned_from_the_start(void **state) {
  (void)state;
  skip();
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_alignment_and_size),
      cmocka_unit_test(all_small_sizes_at_small_alignments),
      cmocka_unit_test(many_at_once_with_random_alignment),
      cmocka_unit_test(large_alignment_costs_no_memory),
      cmocka_unit_test(posix_memalign_refuses),
      cmocka_unit_test(aligned_alloc_refuses_no_power_of_two),
      cmocka_unit_test(aligned_alloc_takes_any_size),
      cmocka_unit_test(memalign_rounds_alignment_up),
      cmocka_unit_test(page_aligned),
      cmocka_unit_test(page_aligned_from_the_start),
  };
  return RUN(tests);
}
