// test_jemalloc.c: mallocx, rallocx, xallocx, sallocx, dallocx, sdallocx, nallocx, as
// jemalloc(3) describes them, and mixed with malloc's own functions.

#include "testing.h"

#include <cmocka.h>

// Null without the library.
void *mallocx(size_t size, int flags) __attribute__((weak));
void *rallocx(void *p, size_t size, int flags) __attribute__((weak));
size_t xallocx(void *p, size_t size, size_t extra, int flags) __attribute__((weak));
size_t sallocx(const void *p, int flags) __attribute__((weak));
void dallocx(void *p, int flags) __attribute__((weak));
void sdallocx(void *p, size_t size, int flags) __attribute__((weak));
size_t nallocx(size_t size, int flags) __attribute__((weak));

// The manual's macros.
#define LG_ALIGN(lg) ((int)(lg))
#define ZERO 0x40
#define TCACHE_NONE (1 << 8) // (-1 + 2) << 8
#define ARENA(n) (((n) + 1) << 20)

static const size_t some_sizes[] = {1, 16, 100, 1024, 1025, 9000, 57344, 57345, 70001, 500000, (1 << 20) + 1, 3 << 20};

// Makes sure that the next blocks come from memory that was written to.
static void make_dirty(size_t size) {
  void *p[8];
  for (size_t i = 0; i < COUNT(p); i++) memset(p[i] = mallocx(size, 0), 0xa5, size);
  for (size_t i = 0; i < COUNT(p); i++) dallocx(p[i], 0);
}

static void every_size_and_alignment(void **state) {
  (void)state;
  for (size_t s = 0; s < COUNT(tier_sizes); s++) {
    size_t size = tier_sizes[s];
    for (unsigned lg = 0; lg <= 22; lg += size > MIB ? 3 : 1) {
      int flags = LG_ALIGN(lg) | (lg & 1 ? ZERO : 0) | (lg & 2 ? TCACHE_NONE : 0) | ARENA(lg);
      if (lg & 1) make_dirty(size);
      unsigned char *p = mallocx(size, flags);
      assert_non_null(p);
      assert_int_equal((uintptr_t)p % ((size_t)1 << lg), 0);
      size_t real = sallocx(p, flags);
      assert_true(real >= nallocx(size, flags) && nallocx(size, flags) >= size);
      assert_int_equal(real, malloc_usable_size(p));
      if (flags & ZERO) assert_true(all_zero(p, real));
      fill(p, real, s);
      // sdallocx may be told any size from the request to the real size.
      size_t said = lg % 3 == 0 ? size : lg % 3 == 1 ? nallocx(size, flags) : real;
      assert_true(filled(p, real, s));
      if (lg == 20) free(p);
      else if (lg == 21) dallocx(p, flags);
      else sdallocx(p, said, flags);
    }
  }
}

// gperftools' header describes nallocx by malloc, jemalloc's manual by mallocx: programs may use
// that many bytes of either's block. The first blocks of the process are among these.
static void no_more_than_any_block_has(void **state) {
  (void)state;
  for (size_t size = 1; size < 5 * MIB; size += 1 + size / 40) {
    const size_t promised = nallocx(size, 0);
    assert_true(promised >= size);
    void *p[4] = {malloc(size), calloc(1, size), mallocx(size, 0), rallocx(NULL, size, 0)};
    for (size_t i = 0; i < COUNT(p); i++) {
      assert_true(malloc_usable_size(p[i]) >= promised);
      free(p[i]);
    }
  }
}

static void sizes_that_nothing_can_have(void **state) {
  (void)state;
  static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2 + 1, SIZE_MAX / 2};
  void *p = mallocx(100, 0);
  fill(p, 100, 1);
  for (size_t i = 0; i < COUNT(sizes); i++) {
    assert_int_equal(nallocx(hide_size(sizes[i]), 0), 0);
    for (unsigned lg = 0; lg < 64; lg += 7) {
      errno = 0;
      assert_null(mallocx(hide_size(sizes[i]), LG_ALIGN(lg) | ZERO));
      assert_int_equal(errno, ENOMEM);
      assert_null(rallocx(p, hide_size(sizes[i]), LG_ALIGN(lg)));
    }
    assert_int_equal(xallocx(p, hide_size(sizes[i]), 0, 0), sallocx(p, 0));
    assert_int_equal(xallocx(p, 100, hide_size(sizes[i]), 0), sallocx(p, 0));
  }
  // What mallocx cannot have, nallocx does not promise. Addresses have 47 bits on x86-64 and 48 on
  // AArch64.
  for (unsigned lg = 48; lg < 64; lg++) {
    assert_null(mallocx(1, LG_ALIGN(lg)));
    assert_int_equal(nallocx(1, LG_ALIGN(lg)), 0);
  }
  assert_null(mallocx(hide_size((size_t)1 << 50), 0));
  assert_int_equal(nallocx(hide_size((size_t)1 << 50), 0), 0);
  assert_true(filled(p, 100, 1));
  dallocx(p, 0);
}

// From each size to every other: contents, alignment, zeros in the added bytes.
static void reallocation(void **state) {
  (void)state;
  for (size_t a = 0; a < COUNT(some_sizes); a++) {
    for (size_t b = 0; b < COUNT(some_sizes); b++) {
      for (unsigned lg = 0; lg <= 16; lg += 4) {
        size_t from = some_sizes[a], to = some_sizes[b];
        unsigned char *p = mallocx(from, ZERO);
        size_t real = sallocx(p, 0);
        fill(p, from, a);
        make_dirty(to);
        p = rallocx(p, to, LG_ALIGN(lg) | ZERO);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % ((size_t)1 << lg), 0);
        size_t now = sallocx(p, 0);
        assert_true(now >= to);
        assert_true(filled(p, from < to ? from / 8 * 8 : to / 8 * 8, a));
        if (now > real) assert_true(all_zero(p + real, now - real));
        dallocx(p, 0);
      }
    }
  }
  static const struct {
    size_t size;
    int flags;
  } aligned[] = {{64 * MIB, LG_ALIGN(22)}, {100000, LG_ALIGN(17)}, {3 * MIB, LG_ALIGN(20)}};
  for (size_t i = 0; i < COUNT(aligned); i++) { // runs and mappings, which nothing moves
    void *p = mallocx(aligned[i].size, aligned[i].flags);
    assert_ptr_equal(rallocx(p, aligned[i].size, aligned[i].flags), p);
    assert_ptr_equal(rallocx(p, aligned[i].size / 4 * 3, aligned[i].flags), p);
    dallocx(p, 0);
  }
  void *p = rallocx(NULL, 100, 0);
  assert_true(sallocx(p, 0) >= 100);
  free(realloc(p, 5000)); // malloc's functions accept the block too
}

static void resizing_in_place(void **state) {
  (void)state;
  for (size_t a = 0; a < COUNT(some_sizes); a++) {
    for (size_t b = 0; b < COUNT(some_sizes); b++) {
      size_t from = some_sizes[a], to = some_sizes[b];
      unsigned char *p = mallocx(from, ZERO);
      size_t real = sallocx(p, 0);
      fill(p, from, a);
      size_t now = xallocx(p, to, to / 4, ZERO);
      assert_int_equal(now, sallocx(p, 0));
      assert_true(filled(p, from < now ? from / 8 * 8 : now / 8 * 8, a));
      if (now > real) assert_true(all_zero(p + real, now - real));
      memset(p, 1, now);
      dallocx(p, 0);
    }
  }
  // A run of whole slabs has room behind a block that does not fill it.
  void *p = mallocx(70001, 0);
  size_t grown = xallocx(p, 100000, 0, 0);
  if (!getenv("HAKMEM_GUARD")) assert_true(grown >= 100000);
  // A block whose size is already between size and size + extra stays as it is.
  const size_t usable = sallocx(p, 0);
  fill(p, usable, 1);
  assert_int_equal(xallocx(p, 66000, 100 << 20, 0), usable);
  assert_int_equal(xallocx(p, 66000, SIZE_MAX, 0), usable);
  assert_true(filled(p, usable, 1));
  assert_true(xallocx(p, 66000, 0, 0) <= grown);
  sdallocx(p, 66000, 0);
}

// A block shrinks, or keeps its size, and moves: what the one before left there must not show.
static void zeros_behind_a_smaller_block(void **state) {
  (void)state;
  for (size_t a = 0; a < COUNT(some_sizes); a++) {
    for (unsigned lg = 0; lg <= 16; lg += 4) {
      for (size_t part = 1; part <= 32; part *= 2) {
        const size_t from = some_sizes[a], to = from / part ? from / part : 1;
        void *dirty[3];
        for (size_t i = 0; i < COUNT(dirty); i++) {
          dirty[i] = mallocx(to, LG_ALIGN(lg));
          memset(dirty[i], 0xa5, sallocx(dirty[i], 0));
        }
        unsigned char *p = mallocx(from, ZERO);
        for (size_t i = 0; i < COUNT(dirty); i++) dallocx(dirty[i], 0);
        fill(p, to, a);
        p = rallocx(p, to, LG_ALIGN(lg) | ZERO);
        const size_t real = sallocx(p, 0);
        assert_true(filled(p, to, a));
        assert_true(all_zero(p + to, real - to));
        dallocx(p, 0);
      }
    }
  }
}

// A block that rallocx has moved is free, so its place serves again.
static void what_moved_is_free(void **state) {
  (void)state;
  enum { N = 3000, SEEN = 1024, PAGE = LG_ALIGN(12) };
  static void *seen[SEEN];
  unsigned again = 0;
  for (unsigned i = 0; i < N; i++) {
    void *p = mallocx(40000, PAGE), *q = rallocx(p, 300000, PAGE);
    assert_non_null(q);
    bool found = false;
    for (unsigned k = 0; k < SEEN; k++) found |= seen[k] == p;
    again += found;
    seen[i % SEEN] = p;
    dallocx(q, PAGE);
  }
  assert_true(again >= N / 10);
}

// rallocx would have to move such a block.
static void no_resizing_of_a_misaligned_block(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(some_sizes); i++) {
    const size_t size = some_sizes[i];
    void *p = mallocx(size, 0);
    const size_t real = sallocx(p, 0);
    fill(p, real, i);
    unsigned lg = 4;
    while ((uintptr_t)p % ((size_t)1 << lg) == 0) lg++;
    assert_int_equal(xallocx(p, size / 2 + 1, 0, LG_ALIGN(lg)), real);
    assert_int_equal(xallocx(p, 2 * size, size, LG_ALIGN(lg) | ZERO), real);
    assert_int_equal(sallocx(p, 0), real);
    assert_true(filled(p, real, i));
    const size_t now = xallocx(p, 2 * size, size, LG_ALIGN(lg - 1)); // this alignment it has
    assert_true(now >= size && now == sallocx(p, 0));
    dallocx(p, 0);
  }
}

static void nothing_and_no_block(void **state) {
  (void)state;
  assert_int_equal(nallocx(0, 0), 1);
  void *p = mallocx(0, 0), *q = mallocx(0, LG_ALIGN(6) | ZERO);
  assert_true(p != NULL && q != NULL && p != q);
  assert_non_null(p = rallocx(p, 0, 0));
  sdallocx(p, 0, 0);
  sdallocx(q, 0, LG_ALIGN(6));
  assert_int_equal(xallocx(NULL, 100, 0, 0), 0);
  assert_int_equal(sallocx(NULL, 0), 0);
  dallocx(NULL, 0);
  sdallocx(NULL, 100, 0);
}

// One that has an address, but for which there is no memory.
static void no_memory_sets_errno(void **state) {
  (void)state;
  static const size_t sizes[] = {((size_t)1 << 47) - 65536, ((size_t)1 << 48) - 65536, SIZE_MAX};
  void *p = mallocx(100, 0);
  fill(p, 100, 1);
  for (size_t i = 0; i < COUNT(sizes); i++) {
    for (unsigned lg = 0; lg <= 12; lg += 12) {
      errno = 0;
      void *q = mallocx(hide_size(sizes[i]), LG_ALIGN(lg));
      assert_true(q != NULL || errno == ENOMEM);
      dallocx(q, 0);
      errno = 0;
      q = rallocx(p, hide_size(sizes[i]), LG_ALIGN(lg));
      assert_true(q != NULL || errno == ENOMEM);
      if (q != NULL) p = q;
      assert_true(filled(p, 100, 1));
    }
  }
  dallocx(p, 0);
}

int main(void) {
  if (!mallocx) {
    fprintf(stderr, "needs the library\n");
    return 1;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_more_than_any_block_has), // must be the first
      cmocka_unit_test(every_size_and_alignment),
      cmocka_unit_test(what_moved_is_free),
      cmocka_unit_test(sizes_that_nothing_can_have),
      cmocka_unit_test(reallocation),
      cmocka_unit_test(zeros_behind_a_smaller_block),
      cmocka_unit_test(resizing_in_place),
      cmocka_unit_test(no_resizing_of_a_misaligned_block),
      cmocka_unit_test(nothing_and_no_block),
      cmocka_unit_test(no_memory_sets_errno),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
