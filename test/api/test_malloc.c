// test_malloc.c: malloc, calloc, free, malloc_usable_size and the C23 sized frees: what they
// return for every size, and which requests must fail.

#include "testing.h"

#include <cmocka.h>

#define RING 512 // live blocks while the test walks through the sizes

typedef struct {
  unsigned char *p;
  size_t usable;
  uint64_t seed;
} block_t;

static void put_down(block_t *b) {
  if (!b->p) return;
  assert_true(filled(b->p, b->usable, b->seed));
  free(b->p);
  b->p = NULL;
}

static size_t required_alignment(size_t size) { return size >= 16 ? 16 : 8; }

static void take(block_t *b, size_t size) {
  b->p = malloc(hide_size(size));
  assert_non_null(b->p);
  assert_int_equal((uintptr_t)b->p % required_alignment(size), 0);
  b->usable = malloc_usable_size(b->p);
  assert_true(b->usable >= size);
  // A block wastes at most an eighth of itself, a borrowed one (docs/decisions/0033) at most
  // two fifths, or what rounding up to OS pages costs.
  size_t waste = b->usable - size;
  if (size > 128 && waste > b->usable / 8) {
    if (size > 1024 && size <= 52 * KIB) assert_true(b->usable <= 56 * KIB && waste <= b->usable / 5 * 2);
    else assert_true(size > 56 * KIB && waste < 4096);
  }
  b->seed = size;
  fill(b->p, b->usable, b->seed);
}

static void every_size_up_to_70000(void **state) {
  (void)state;
  static block_t ring[RING];
  uint64_t random = 1;
  for (size_t size = 0; size <= 70000; size += EMULATED ? 23 : 1) {
    block_t *b = &ring[chance(&random) % RING];
    put_down(b);
    take(b, size);
  }
  for (size_t i = 0; i < RING; i++) put_down(&ring[i]);
}

static void powers_of_two_and_their_neighbours(void **state) {
  (void)state;
  block_t b[3];
  for (size_t power = 1; power <= 64 * MIB; power *= 2) {
    for (size_t i = 0; i < 3; i++) take(&b[i], power + i - 1);
    for (size_t i = 0; i < 3; i++) put_down(&b[i]);
  }
}

static void size_zero_is_unique_and_freeable(void **state) {
  (void)state;
  static void *p[1000];
  for (size_t i = 0; i < COUNT(p); i++) {
    p[i] = malloc(hide_size(0));
    assert_non_null(p[i]);
    memset(p[i], (int)i & 255, malloc_usable_size(p[i]));
  }
  for (size_t i = 0; i < COUNT(p); i++)
    for (size_t j = 0; j < malloc_usable_size(p[i]); j++)
      assert_int_equal(((unsigned char *)p[i])[j], i & 255);
  for (size_t i = 1; i < COUNT(p); i++)
    for (size_t j = 0; j < i; j++) assert_true(p[i] != p[j]);
  for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
}

static void a_million_small_blocks_live_at_once(void **state) {
  (void)state;
  enum { N = 1000000 };
  uint64_t **p = malloc(N * sizeof *p), random = 2;
  assert_non_null(p);
  for (size_t i = 0; i < N; i++) {
    p[i] = malloc(8 + chance(&random) % 56);
    assert_non_null(p[i]);
    *p[i] = i;
  }
  for (size_t i = 0; i < N; i++) assert_int_equal(*p[i], i);
  for (size_t i = 0; i < N; i++) free(p[i]);
  free(p);
}

// ---------------------------------------------------------------------------

static void calloc_is_zero_also_on_used_memory(void **state) {
  (void)state;
  void *p[8];
  for (unsigned round = 0; round < 3; round++) {
    for (size_t t = 0; t < COUNT(tier_sizes); t++) {
      size_t size = tier_sizes[t];
      for (size_t i = 0; i < COUNT(p); i++) {
        assert_non_null(p[i] = malloc(size));
        memset(p[i], 0xdb, malloc_usable_size(p[i]));
      }
      for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
      for (size_t i = 0; i < COUNT(p); i++) {
        assert_non_null(p[i] = calloc(i & 1 ? 1 : size, i & 1 ? size : 1));
        assert_true(all_zero(p[i], size));
        memset(p[i], 0xbd, malloc_usable_size(p[i]));
      }
      for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
    }
  }
}

// Blocks of another size used the memory before and were freed in between.
static void calloc_is_zero_where_another_size_was(void **state) {
  (void)state;
  enum { N = 4000 };
  static void *p[N];
  static const size_t sizes[] = {64, 1000, 5000, 20000, 1000, 70000, 3000};
  for (size_t s = 1; s < COUNT(sizes); s++) {
    size_t before = 4 * MIB / sizes[s - 1], after = 4 * MIB / sizes[s];
    if (before > N) before = N;
    if (after > N) after = N;
    for (size_t i = 0; i < before; i++) {
      assert_non_null(p[i] = malloc(sizes[s - 1]));
      memset(p[i], 0xdb, malloc_usable_size(p[i]));
    }
    for (size_t i = 0; i < before; i++) free(p[i]);
    for (size_t i = 0; i < after; i++) {
      assert_non_null(p[i] = calloc(1, sizes[s]));
      assert_true(all_zero(p[i], sizes[s]));
    }
    for (size_t i = 0; i < after; i++) free(p[i]);
  }
}

static void calloc_of_every_tiny_size_is_zero(void **state) {
  (void)state;
  for (size_t size = 0; size <= 2100; size++) {
    unsigned char *p = malloc(size), *q;
    assert_non_null(p);
    memset(p, 0xff, malloc_usable_size(p));
    free(p);
    assert_non_null(q = calloc(1, size));
    assert_true(all_zero(q, size));
    memset(q, 0xff, malloc_usable_size(q));
    free(q);
  }
}

static void calloc_of_nothing(void **state) {
  (void)state;
  void *a = calloc(hide_size(0), 10), *b = calloc(10, hide_size(0)), *c = calloc(hide_size(0), 0);
  assert_true(a && b && c && a != b && b != c && a != c);
  free(a), free(b), free(c);
}

static void sparse_calloc_stays_untouched(void **state) {
  (void)state;
  size_t before = rss_kib();
  unsigned char *p = calloc(256, MIB);
  assert_non_null(p);
  for (size_t at = 0; at < 256 * MIB; at += 64 * MIB) {
    assert_int_equal(p[at], 0);
    p[at] = 1;
  }
  assert_true(rss_kib() < before + 32 * KIB); // may also fall: earlier tests' memory is returned
  free(p);
}

static void calloc_overflow(void **state) {
  (void)state;
  static const size_t cases[][2] = {
      {SIZE_MAX, SIZE_MAX},      {SIZE_MAX / 2 + 1, 2}, {2, SIZE_MAX / 2 + 1},
      {(size_t)1 << 32, (size_t)1 << 32}, {SIZE_MAX / 16 + 2, 16}, {SIZE_MAX / 24 + 1, 24},
      {3, SIZE_MAX / 3 + 1},     {SIZE_MAX, 2}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    errno = 0;
    assert_null(calloc(hide_size(cases[i][0]), hide_size(cases[i][1])));
    assert_int_equal(errno, ENOMEM);
  }
}

// ---------------------------------------------------------------------------

static const size_t impossible[] = {
    PTRDIFF_MAX,     (size_t)PTRDIFF_MAX + 1,    (size_t)PTRDIFF_MAX - 4096,
    SIZE_MAX,        SIZE_MAX - 1,               SIZE_MAX - 7,
    SIZE_MAX - 8,    SIZE_MAX - 15,              SIZE_MAX - 16,
    SIZE_MAX - 31,   SIZE_MAX - 63,              SIZE_MAX - 64,
    SIZE_MAX - 4095, SIZE_MAX - 4096,            SIZE_MAX - 8192,
    SIZE_MAX - 65535, SIZE_MAX - 65536,          SIZE_MAX - 2 * MIB,
    SIZE_MAX - 4 * MIB, SIZE_MAX / 2 + 2 * MIB};

#define FAILS(call)                  \
  do {                               \
    errno = 0;                       \
    assert_null(hide(call));         \
    assert_int_equal(errno, ENOMEM); \
  } while (0)

static void impossible_sizes_fail_everywhere(void **state) {
  (void)state;
  char *old = malloc(100);
  strcpy(old, "kept");
  for (size_t i = 0; i < COUNT(impossible); i++) {
    size_t n = hide_size(impossible[i]);
    FAILS(malloc(n));
    FAILS(calloc(1, n));
    FAILS(calloc(n, 1));
    FAILS(realloc(NULL, n));
    FAILS(realloc(hide(old), n));
    FAILS(reallocarray(NULL, n, 1));
    FAILS(reallocarray(hide(old), 1, n));
    FAILS(aligned_alloc(16, n));
    FAILS(aligned_alloc(64, n));
    FAILS(aligned_alloc(2 * MIB, n));
    FAILS(memalign(32, n));
    FAILS(memalign(8192, n));
    FAILS(memalign(GIB, n));
    FAILS(valloc(n));
    FAILS(pvalloc(n));
    void *out = &out;
    for (size_t alignment = 8; alignment <= GIB; alignment *= 8)
      assert_int_equal(posix_memalign(&out, alignment, n), ENOMEM);
    assert_ptr_equal(out, &out);
    assert_string_equal(old, "kept");
  }
  free(old);
}

static void possible_after_impossible(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    FAILS(malloc(hide_size(SIZE_MAX - 15)));
    void *p = malloc(tier_sizes[i]);
    assert_non_null(p);
    fill(p, tier_sizes[i], i);
    assert_true(filled(p, tier_sizes[i], i));
    free(p);
  }
}

// ---------------------------------------------------------------------------

static void null_is_a_block_of_no_bytes(void **state) {
  (void)state;
  errno = 12345;
  free(hide(NULL));
  assert_int_equal(malloc_usable_size(hide(NULL)), 0);
  assert_int_equal(errno, 12345);
}

static void free_keeps_errno(void **state) {
  (void)state;
  for (unsigned round = 0; round < 200; round++) {
    for (size_t i = 0; i < COUNT(tier_sizes); i++) {
      if (round > 3 && tier_sizes[i] > MIB) continue;
      void *p = malloc(tier_sizes[i]);
      assert_non_null(p);
      memset(p, 1, tier_sizes[i] < 4096 ? tier_sizes[i] : 4096);
      void *q = memalign(4096, tier_sizes[i]);
      assert_non_null(q);
      errno = 12345;
      free(p);
      assert_int_equal(errno, 12345);
      free(q);
      assert_int_equal(errno, 12345);
    }
  }
}

static void success_keeps_errno_of_posix_memalign(void **state) {
  (void)state;
  if (!on_hakmem()) skip(); // glibc sets errno
  void *out;
  errno = 12345;
  assert_int_equal(posix_memalign(&out, 64, 1000), 0);
  free(out);
  assert_int_equal(posix_memalign(&out, 64, hide_size(SIZE_MAX)), ENOMEM);
  assert_int_equal(posix_memalign(&out, 3, 8), EINVAL);
  assert_int_equal(errno, 12345);
}

static void sized_frees(void **state) {
  (void)state;
  void (*free_sized)(void *, size_t) = FIND(void (*)(void *, size_t), "free_sized");
  void (*free_aligned_sized)(void *, size_t, size_t) =
      FIND(void (*)(void *, size_t, size_t), "free_aligned_sized");
  if (!on_hakmem()) skip(); // this version of glibc has neither
  assert_true(free_sized && free_aligned_sized);
  free_sized(NULL, 0);
  free_aligned_sized(NULL, 64, 0);
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    size_t size = tier_sizes[i];
    void *p = malloc(size), *q = calloc(1, size), *r = aligned_alloc(256, size);
    assert_true(p && q && r);
    errno = 12345;
    free_sized(p, size);
    free_sized(q, size);
    free_aligned_sized(r, 256, size);
    assert_int_equal(errno, 12345);
  }
}

static void cfree_frees(void **state) {
  (void)state;
  void (*cfree)(void *) = FIND(void (*)(void *), "cfree");
  if (!on_hakmem()) skip(); // glibc has removed it
  assert_non_null(hide((void *)(uintptr_t)cfree));
  size_t before = rss_kib();
  for (unsigned i = 0; i < 2000; i++) cfree(memset(malloc(MIB / 2), 1, MIB / 2));
  cfree(NULL);
  assert_true(rss_kib() < before + 64 * KIB); // 1 GiB if cfree freed nothing
}

// ---------------------------------------------------------------------------

static void twins_mix_with_the_standard_names(void **state) {
  (void)state;
  if (!on_hakmem()) skip();
  void *(*hak_malloc)(size_t) = FIND(void *(*)(size_t), "hak_malloc");
  void *(*hak_calloc)(size_t, size_t) = FIND(void *(*)(size_t, size_t), "hak_calloc");
  void *(*hak_realloc)(void *, size_t) = FIND(void *(*)(void *, size_t), "hak_realloc");
  void *(*hak_memalign)(size_t, size_t) = FIND(void *(*)(size_t, size_t), "hak_memalign");
  size_t (*hak_usable)(const void *) = FIND(size_t (*)(const void *), "hak_malloc_usable_size");
  void (*hak_free)(void *) = FIND(void (*)(void *), "hak_free");
  bool (*hak_owns)(const void *) = FIND(bool (*)(const void *), "hak_owns");
  for (size_t i = 0; i < COUNT(tier_sizes); i++) {
    size_t size = tier_sizes[i];
    char *a = hak_malloc(size), *b = malloc(size), *c = hak_calloc(1, size);
    char *d = hak_memalign(512, size);
    assert_true(a && b && c && d);
    assert_true(hak_owns(a) && hak_owns(b) && hak_owns(c + size / 2) && hak_owns(d + size - 1));
    assert_int_equal(malloc_usable_size(a), hak_usable(a));
    fill(a, size, 1), fill(b, size, 2), fill(d, size, 3);
    assert_non_null(a = realloc(a, size + 1000));
    assert_non_null(b = hak_realloc(b, size + 1000));
    assert_non_null(d = realloc(d, size + 1000));
    assert_true(filled(a, size, 1) && filled(b, size, 2) && filled(d, size, 3));
    assert_true(all_zero(c, size));
    free(a), hak_free(b), free(c), free(d);
  }
  int on_stack;
  assert_false(hak_owns(&on_stack));
  assert_false(hak_owns(NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(size_zero_is_unique_and_freeable),
      cmocka_unit_test(every_size_up_to_70000),
      cmocka_unit_test(powers_of_two_and_their_neighbours),
      cmocka_unit_test(a_million_small_blocks_live_at_once),
      cmocka_unit_test(calloc_is_zero_also_on_used_memory),
      cmocka_unit_test(calloc_is_zero_where_another_size_was),
      cmocka_unit_test(calloc_of_every_tiny_size_is_zero),
      cmocka_unit_test(calloc_of_nothing),
      cmocka_unit_test(sparse_calloc_stays_untouched),
      cmocka_unit_test(calloc_overflow),
      cmocka_unit_test(impossible_sizes_fail_everywhere),
      cmocka_unit_test(possible_after_impossible),
      cmocka_unit_test(null_is_a_block_of_no_bytes),
      cmocka_unit_test(free_keeps_errno),
      cmocka_unit_test(success_keeps_errno_of_posix_memalign),
      cmocka_unit_test(sized_frees),
      cmocka_unit_test(cfree_frees),
      cmocka_unit_test(twins_mix_with_the_standard_names),
  };
  return RUN(tests);
}
