// test_realloc.c: realloc and reallocarray: contents survive each change of range, memory is
// returned, a failure loses nothing, growth needs no second copy.

#include "testing.h"

#include <cmocka.h>
#include <sys/wait.h>

// Resizes p and checks that the contents were kept.
static void *resized(void *p, size_t from, size_t to, uint64_t seed) {
  void *q = realloc(p, hide_size(to));
  assert_non_null(q);
  assert_int_equal((uintptr_t)q % (to >= 16 ? 16 : 8), 0);
  assert_true(malloc_usable_size(q) >= to);
  assert_true(filled(q, from < to ? from & ~(size_t)7 : to & ~(size_t)7, seed));
  return q;
}

static void null_is_malloc(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    void *p = realloc(hide(NULL), tier_sizes[i]);
    assert_non_null(p);
    fill(p, malloc_usable_size(p), i);
    free(p);
  }
  void *p = realloc(hide(NULL), hide_size(0));
  assert_non_null(p);
  free(p);
}

static void from_every_tier_to_every_tier(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    for (size_t j = 0; j < COUNT(tier_sizes); j++) {
      void *p = malloc(tier_sizes[i]);
      assert_non_null(p);
      fill(p, tier_sizes[i], i);
      p = resized(p, tier_sizes[i], tier_sizes[j], i);
      fill(p, tier_sizes[j], j);
      assert_true(filled(p, tier_sizes[j], j));
      free(p);
    }
  }
}

static void up_and_down_a_chain(void **state) {
  (void)state;
  size_t size = 1;
  void *p = malloc(size);
  fill(p, size, size);
  for (size_t to = 2; to <= 32 * MIB; to += 1 + to / 7) {
    p = resized(p, size, to, size);
    fill(p, size = to, to);
  }
  while (size > 1) {
    size_t to = size - 1 - size / 9;
    if (to == 0) break;
    p = resized(p, size, to, size);
    fill(p, size = to, to);
  }
  free(p);
}

static void random_walk(void **state) {
  (void)state;
  enum { BLOCKS = 64 };
  static struct {
    void *p;
    size_t size;
  } b[BLOCKS];
  uint64_t random = 3;
  for (unsigned step = 0; step < 60000; step++) {
    unsigned i = (unsigned)(chance(&random) % BLOCKS);
    unsigned bits = (unsigned)(4 + chance(&random) % (step % 64 ? 14 : 19));
    size_t to = 1 + chance(&random) % ((size_t)1 << bits);
    b[i].p = resized(b[i].p, b[i].p ? b[i].size : 0, to, i);
    fill(b[i].p, b[i].size = to, i);
  }
  for (unsigned i = 0; i < BLOCKS; i++) {
    assert_true(!b[i].p || filled(b[i].p, b[i].size, i));
    free(b[i].p);
  }
}

static void usable_bytes_survive(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    void *p = malloc(tier_sizes[i]);
    size_t usable = malloc_usable_size(p);
    fill(p, usable, i);
    p = realloc(p, usable + 1);
    assert_non_null(p);
    assert_true(filled(p, usable & ~(size_t)7, i));
    free(p);
  }
}

static void the_smallest_block_stays(void **state) {
  (void)state;
  if (getenv("HAKMEM_GUARD")) skip();
  for (unsigned i = 0; i < 300; i++) assert_non_null(malloc(1)); // the first have exact sizes
  void *p = malloc(8);
  for (size_t size = 1; size <= 8; size++) assert_ptr_equal(realloc(p, size), p);
  free(p);
}

static void aligned_blocks_keep_their_contents(void **state) {
  (void)state;
  for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 4) {
    for (size_t i = 0; i < COUNT(tier_sizes); i++) {
      void *p = memalign(alignment, tier_sizes[i]);
      assert_non_null(p);
      fill(p, tier_sizes[i], i);
      p = resized(p, tier_sizes[i], tier_sizes[i] * 2, i);
      free(p);
    }
  }
}

static void size_zero_frees(void **state) {
  (void)state;
  size_t before = rss_kib();
  for (unsigned i = 0; i < 3000; i++) {
    static const size_t sizes[] = {1000, 40000, 300000, 2000000};
    size_t size = sizes[i % COUNT(sizes)];
    void *p = malloc(size);
    assert_non_null(p);
    memset(p, 1, size);
    errno = 12345;
    assert_null(realloc(p, hide_size(0)));
    assert_int_equal(errno, 12345);
  }
  assert_true(rss_kib() < before + 64 * KIB); // 1.7 GiB if nothing were freed
}

static void failure_leaves_the_block(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    size_t size = tier_sizes[i];
    void *p = malloc(size), *q = hide(p);
    fill(p, size, i);
    // Includes sizes whose number of slabs becomes small if its upper half is lost.
    const size_t absurd[] = {SIZE_MAX - 4096,       (size_t)PTRDIFF_MAX, (size_t)PTRDIFF_MAX - 64 * KIB,
                             ((size_t)1 << 48) + 1, (size_t)1 << 62};
    for (size_t j = 0; j < COUNT(absurd); j++) {
      errno = 0;
      assert_null(realloc(hide(q), hide_size(absurd[j])));
      assert_int_equal(errno, ENOMEM);
    }
    assert_true(filled(q, size, i));
    assert_true(malloc_usable_size(q) >= size);
    free(q);
  }
}

static void array_overflow(void **state) {
  (void)state;
  void *p = malloc(64), *q = hide(p);
  fill(q, 64, 0);
  errno = 0;
  assert_null(reallocarray(hide(q), hide_size(SIZE_MAX / 2 + 1), 2));
  assert_int_equal(errno, ENOMEM);
  errno = 0;
  assert_null(reallocarray(hide(q), hide_size(16), SIZE_MAX / 16 + 1));
  assert_int_equal(errno, ENOMEM);
  errno = 0;
  assert_null(reallocarray(NULL, hide_size((size_t)1 << 32), (size_t)1 << 32));
  assert_int_equal(errno, ENOMEM);
  assert_true(filled(q, 64, 0));
  assert_non_null(q = reallocarray(q, 1000, 64));
  assert_true(filled(q, 64, 0));
  assert_null(reallocarray(q, hide_size(0), 64));
}

// ---------------------------------------------------------------------------
// Memory.

// A block cut to less than half is moved in every size range: the next long block reuses its pages.
static void cut_to_less_than_half_moves(void **state) {
  (void)state;
  const size_t froms[] = {1000, 30000, 200000, MIB}, tos[] = {480, 14000, 90000, 500000};
  for (unsigned i = 0; i < COUNT(froms); i++) {
    char *p = malloc(froms[i]);
    uintptr_t before = (uintptr_t)p;
    fill(p, froms[i], i);
    p = resized(p, froms[i], tos[i], i);
    if (on_hakmem()) assert_true((uintptr_t)p != before);
    free(p);
  }
}

static void shrinking_gives_memory_back(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    for (size_t j = 0; j < i; j++) {
      size_t from = tier_sizes[i], to = tier_sizes[j];
      if (from < 4 * to || from < 16 * KIB) continue;
      void *p = malloc(from);
      fill(p, from, i);
      p = resized(p, from, to, i);
      // Half of the old size may stay idle, plus one OS page for a mapping.
      assert_true(malloc_usable_size(p) <= from / 2 + 4096);
      free(p);
    }
  }
  size_t before = rss_kib();
  void *p = malloc(128 * MIB);
  memset(p, 1, 128 * MIB);
  assert_true(rss_kib() > before + 120 * KIB);
  p = realloc(p, 2 * MIB);
  assert_true(rss_kib() < before + 16 * KIB);
  p = realloc(p, 100);
  assert_true(malloc_usable_size(p) <= 8192);
  free(p);
}

// In a child process, so that the peak RSS is its own.
static void growth_to_1_gib_never_holds_two_copies(void **state) {
  (void)state;
  pid_t pid = fork();
  if (pid == 0) {
    size_t size = 100 * KIB;
    char *p = malloc(size);
    CHECK(p);
    memset(p, 1, size);
    while (size < GIB) {
      size_t to = size + size / 4;
      if (to > GIB) to = GIB;
      CHECK((p = realloc(p, to)) != NULL);
      memset(p + size, 1, to - size);
      size = to;
    }
    for (size_t at = 0; at < size; at += 4096) CHECK(p[at] == 1);
    size_t peak = status_kib("VmHWM:");
    CHECK(peak > GIB / KIB && peak < GIB / KIB * 13 / 10);
    free(p);
    CHECK(rss_kib() < 128 * KIB);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

// A block that grows by small steps is copied a few times per doubling, one block at a time.
static void steps_are_few_copies(void **state) {
  (void)state;
  enum { BUFFERS = 3, STEP = 64, MOST = 50000 };
  char *p[BUFFERS] = {NULL};
  unsigned moves = 0;
  for (size_t size = STEP; size <= MOST; size += STEP) {
    for (unsigned i = 0; i < BUFFERS; i++) {
      char *before = p[i];
      assert_non_null(p[i] = realloc(p[i], size));
      moves += size > 2048 && p[i] != before;
      memset(p[i] + size - STEP, (int)(size / STEP + i), STEP);
    }
  }
  for (unsigned i = 0; i < BUFFERS; i++) {
    for (size_t size = STEP; size <= MOST; size += STEP)
      for (size_t at = size - STEP; at < size; at++)
        assert_int_equal((unsigned char)p[i][at], (unsigned char)(size / STEP + i));
    if (i > 0) free(p[i]);
  }
  char *last = p[0];
  // There are 37 classes from 2 KiB to 50 KB; growth by a quarter needs 15 moves. Blocks of
  // the secure library have no spare bytes, and neither has any block while some are guarded.
  bool exact = malloc_usable_size(last) == MOST / STEP * STEP || getenv("HAKMEM_GUARD");
  if (on_hakmem() && !exact) assert_in_range(moves, 0, BUFFERS * 20);
  free(last);
}

static void growth_in_small_steps_is_amortised(void **state) {
  (void)state;
  size_t size = 16;
  char *p = malloc(size), *last = NULL;
  unsigned moves = 0;
  for (; size < 64 * MIB; size += 1 + size / 500) {
    assert_non_null(p = realloc(p, size));
    p[size - 1] = 1;
    if (size > 4 * MIB) moves += p != last;
    last = p;
  }
  // 1400 steps above 4 MiB.
  if (on_hakmem()) assert_in_range(moves, 0, 200);
  free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(null_is_malloc),
      cmocka_unit_test(from_every_tier_to_every_tier),
      cmocka_unit_test(up_and_down_a_chain),
      cmocka_unit_test(random_walk),
      cmocka_unit_test(usable_bytes_survive),
      cmocka_unit_test(the_smallest_block_stays),
      cmocka_unit_test(aligned_blocks_keep_their_contents),
      cmocka_unit_test(size_zero_frees),
      cmocka_unit_test(failure_leaves_the_block),
      cmocka_unit_test(array_overflow),
      cmocka_unit_test(cut_to_less_than_half_moves),
      cmocka_unit_test(shrinking_gives_memory_back),
      cmocka_unit_test(growth_to_1_gib_never_holds_two_copies),
      cmocka_unit_test(steps_are_few_copies),
      cmocka_unit_test(growth_in_small_steps_is_amortised),
  };
  return RUN(tests);
}
