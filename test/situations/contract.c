// contract.c: what C23, POSIX and the glibc manual promise to every program.

#include "situations.h"

#include <dlfcn.h>

// Sizes around the borders of allocators.
static const size_t borders[] = {
    0,       1,       7,       8,       15,       16,       17,      24,      31,
    32,      33,      63,      64,      65,       127,      128,     129,     255,
    256,     257,     511,     512,     513,      1007,     1008,    1009,    1023,
    1024,    1025,    1280,    1281,    2047,     2048,     2049,    4080,    4095,
    4096,    4097,
    8192,    16384,   32767,   32768,   32769,    57343,    57344,   57345,   65535,
    65536,   65537,   131072,  135168,  262144,   524288,   1048575, 1048576, 1048577,
    2097151, 2097152, 2097153, 4194304, 33554431, 33554432, 33554433};

typedef void *allocate_t(size_t);
static void *by_calloc(size_t n) { return calloc(n, 1); }
static void *by_realloc(size_t n) { return realloc(NULL, n ? n : 1); }
static void *by_aligned_alloc(size_t n) { return aligned_alloc(32, n); }
static void *by_posix_memalign(size_t n) {
  void *p = NULL;
  return posix_memalign(&p, 64, n) == 0 ? p : NULL;
}
static allocate_t *const ways[] = {malloc,           by_calloc,         by_realloc,
                                   by_aligned_alloc, by_posix_memalign, pvalloc};

// Every byte of every size, two at once, aligned for every type, usable to the end.
static void every_border(size_t way, size_t b) {
  (void)b;
  for (size_t i = 0; i < COUNT(borders); i++) {
    size_t n = borders[i];
    char *p = ways[way](n), *q = ways[way](n);
    CHECK(p && q && p != q);
    CHECK((uintptr_t)p % 16 == 0 && (uintptr_t)q % 16 == 0);
    size_t usable = malloc_usable_size(p);
    CHECK(usable >= n);
    if (way == 1) CHECK(all_zero(p, n));
    fill(p, usable, 1), fill(q, n, 2);
    CHECK(filled(p, usable, 1) && filled(q, n, 2));
    free(p), free(q);
  }
}

// From every size to many others.
static void realloc_between_borders(size_t use_usable, size_t b) {
  (void)b;
  for (size_t i = 0; i < COUNT(borders); i++)
    for (size_t j = 1; j < COUNT(borders); j += 2) {
      size_t from = borders[i], to = borders[j];
      if (from + to > 3 * MIB && (i + j) % 8) continue;
      char *p = malloc(from);
      CHECK(p);
      if (use_usable) from = malloc_usable_size(p);
      fill(p, from, i);
      CHECK(p = realloc(p, to));
      CHECK(filled(p, from < to ? from : to, i));
      p[0] = p[to - 1] = 1;
      free(p);
    }
}

static void every_small_size(size_t largest, size_t step) {
  static char *p[5000];
  for (int round = 0; round < 2; round++) {
    size_t count = 0;
    for (size_t n = 0; n <= largest; n += step) p[count++] = filled_block(n, n);
    for (size_t i = 0; i < count; i++) CHECK(malloc_usable_size(p[i]) >= i * step);
    for (size_t i = 0; i < count; i++) check_and_free(p[i], i * step, i * step);
  }
}

// ---------------------------------------------------------------------------
// Sizes that cannot be allocated.

static const size_t impossible[] = {PTRDIFF_MAX,    (size_t)PTRDIFF_MAX + 1, SIZE_MAX,
                                    SIZE_MAX - 15,  SIZE_MAX - 4095,         SIZE_MAX / 2 + 4096,
                                    (size_t)1 << 62};

#define FAILS(call) (errno = 0, (call) == NULL && errno == ENOMEM)

static void impossible_sizes(size_t a, size_t b) {
  (void)a, (void)b;
  char *p = filled_block(300, 1), *large = filled_block(HUGE, 2);
  for (size_t i = 0; i < COUNT(impossible); i++) {
    size_t n = hide_size(impossible[i]);
    CHECK(FAILS(malloc(n)));
    CHECK(FAILS(calloc(n, 1)));
    CHECK(FAILS(calloc(1, n)));
    CHECK(FAILS(realloc(NULL, n)));
    CHECK(FAILS(realloc(p, n)));
    CHECK(FAILS(realloc(large, n)));
    CHECK(FAILS(reallocarray(p, n, 1)));
    CHECK(FAILS(aligned_alloc(64, n)));
    CHECK(FAILS(memalign(1 << 20, n)));
    CHECK(FAILS(valloc(n)));
    CHECK(FAILS(pvalloc(n)));
    void *out = &n;
    CHECK(posix_memalign(&out, 64, n) == ENOMEM && out == &n);
  }
  check_and_free(p, 300, 1);
  check_and_free(large, HUGE, 2);
}

static void products_that_overflow(size_t a, size_t b) {
  (void)a, (void)b;
  static const size_t factors[][2] = {{SIZE_MAX, 2},
                                      {2, SIZE_MAX},
                                      {(size_t)1 << 32, (size_t)1 << 32},
                                      {SIZE_MAX / 2, 3},
                                      {SIZE_MAX / 16 + 1, 16},
                                      {SIZE_MAX, SIZE_MAX},
                                      {((size_t)1 << 32) + 1, (size_t)1 << 32},
                                      {SIZE_MAX / 3, 4}};
  char *p = filled_block(100, 1);
  for (size_t i = 0; i < COUNT(factors); i++) {
    size_t n = hide_size(factors[i][0]), m = hide_size(factors[i][1]);
    CHECK(FAILS(calloc(n, m)));
    CHECK(FAILS(reallocarray(p, n, m)));
    CHECK(FAILS(reallocarray(NULL, n, m)));
  }
  check_and_free(p, 100, 1);
}

static void impossible_alignments(size_t a, size_t b) {
  (void)a, (void)b;
  // Neither the alignment nor what it adds to the size may wrap around.
  for (int shift = 48; shift < 64; shift++) {
    void *out = &out;
    CHECK(FAILS(aligned_alloc(hide_size((size_t)1 << shift), 100)));
    CHECK(posix_memalign(&out, (size_t)1 << shift, 100) == ENOMEM && out == (void *)&out);
  }
  CHECK(FAILS(aligned_alloc(4096, hide_size(SIZE_MAX - 4096))));
}

static void bad_alignments(size_t a, size_t b) {
  (void)a, (void)b;
  static const size_t bad[] = {0, 1, 2, 3, 4, 7, 9, 12, 24, 100, 4095, SIZE_MAX};
  for (size_t i = 0; i < COUNT(bad); i++) {
    void *out = &out;
    errno = 5;
    CHECK(posix_memalign(&out, hide_size(bad[i]), 100) == EINVAL && out == (void *)&out);
    CHECK(errno == 5);
  }
  // The only promise for these is that they are refused or can be freed.
  for (size_t i = 0; i < COUNT(bad) - 1; i++) {
    free(aligned_alloc(hide_size(bad[i]), 100));
    free(memalign(hide_size(bad[i]), 100));
  }
  churn(1, 300);
}

static void good_alignments(size_t largest, size_t b) {
  (void)b;
  static const size_t sizes[] = {0, 1, 100, 1024, 5000, 60000, 500000, 2500000};
  for (size_t alignment = 1; alignment <= largest; alignment *= 2)
    for (size_t i = 0; i < COUNT(sizes); i++) {
      char *p[4] = {aligned_alloc(alignment, sizes[i]), memalign(alignment, sizes[i]),
                    aligned_alloc(alignment, sizes[i]), NULL};
      if (alignment >= sizeof(void *))
        CHECK(posix_memalign((void **)&p[3], alignment, sizes[i]) == 0 && p[3]);
      for (size_t j = 0; j < 4; j++) {
        CHECK(j == 3 || p[j]);
        CHECK((uintptr_t)p[j] % alignment == 0);
        if (p[j]) fill(p[j], sizes[i], j);
      }
      for (size_t j = 0; j < 4; j++) {
        CHECK(!p[j] || malloc_usable_size(p[j]) >= sizes[i]);
        if (p[j]) check_and_free(p[j], sizes[i], j);
      }
    }
}

// ---------------------------------------------------------------------------
// Zero, NULL and errno.

static void size_zero(size_t a, size_t b) {
  (void)a, (void)b;
  void *p[1000];
  for (size_t i = 0; i < COUNT(p); i++) {
    p[i] = i % 3 == 0 ? malloc(0) : i % 3 == 1 ? calloc(hide_size(0), i) : aligned_alloc(16, 0);
    CHECK(p[i]);
    for (size_t j = i % 50 ? i : 0; j < i; j++) CHECK(p[j] != p[i]);
  }
  for (size_t i = 0; i < COUNT(p); i++)
    if (i % 2) free(p[i]);
    else CHECK(p[i] = realloc(p[i], i + 1)), fill(p[i], i + 1, i), check_and_free(p[i], i + 1, i);
}

// glibc's way, which C23 leaves open: freed, NULL, errno unchanged.
static void realloc_to_zero(size_t size, size_t b) {
  (void)b;
  size_t before = rss_kib();
  for (size_t i = 0; i < 30 * MIB / size + 30; i++) {
    void *p = malloc(size);
    ((char *)p)[size - 1] = 1;
    errno = 5;
    CHECK(realloc(p, hide_size(0)) == NULL && errno == 5);
    CHECK(p = malloc(size));
    ((char *)p)[0] = 1;
    CHECK(reallocarray(p, hide_size(0), 8) == NULL && errno == 5);
  }
  CHECK(rss_kib() < before + 16 * KIB);
}

static void of_null(size_t a, size_t b) {
  (void)a, (void)b;
  errno = 5;
  free(NULL);
  CHECK(malloc_usable_size(hide(NULL)) == 0 && errno == 5);
  void *p = realloc(NULL, 100), *q = realloc(NULL, 0), *r = reallocarray(NULL, 0, 0);
  CHECK(p && q && r);
  free(p), free(q), free(r);
}

static void errno_untouched_by_free(size_t size, size_t b) {
  (void)b;
  size_t count = size <= 10000 ? 3000 : 40;
  void *p[3000];
  for (size_t i = 0; i < count; i++) p[i] = filled_block(size, 1);
  for (size_t i = 0; i < count; i++) {
    errno = 5;
    free(p[i]);
    CHECK(errno == 5);
  }
}

// C lets a success set errno, but programs rely on usual calls not to do so.
static void errno_untouched_by_success(size_t a, size_t b) {
  (void)a, (void)b;
  errno = 5;
  for (size_t i = 0; i < COUNT(borders); i++) {
    void *p = malloc(borders[i]), *q = calloc(1, borders[i]), *r = aligned_alloc(64, borders[i]);
    CHECK(p && (p = realloc(p, borders[i] * 2 + 1)) && q && r);
    free(p), free(q), free(r);
    CHECK(errno == 5);
  }
}

// ---------------------------------------------------------------------------
// C23's sized frees, where the C library (or the allocator) has them.

static void sized_frees(size_t a, size_t b) {
  (void)a, (void)b;
  void (*sized)(void *, size_t) =
      (void (*)(void *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_sized");
  void (*aligned)(void *, size_t, size_t) =
      (void (*)(void *, size_t, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_aligned_sized");
  if (!sized || !aligned) sit_skip("no free_sized here");
  sized(NULL, 10), aligned(NULL, 16, 10);
  for (size_t i = 0; i < COUNT(borders); i++) {
    size_t n = borders[i];
    errno = 5;
    sized(malloc(n), n);
    sized(calloc(1, n), n);
    if (n) sized(realloc(malloc(7), n), n);
    for (size_t alignment = 16; alignment <= 65536; alignment *= 8)
      aligned(aligned_alloc(alignment, n), alignment, n);
    CHECK(errno == 5);
  }
}

static void usable_size_survives_realloc(size_t size, size_t b) {
  (void)b;
  for (size_t n = size; n < size * 2; n += size / 8 + 1) {
    char *p = malloc(n);
    size_t usable = malloc_usable_size(p);
    fill(p, usable, n);
    CHECK((p = realloc(p, usable)) && filled(p, usable, n));
    CHECK((p = realloc(p, usable + 1)) && filled(p, usable, n));
    CHECK((p = realloc(p, n / 2 + 1)) && filled(p, n / 2 + 1, n));
    free(p);
  }
}

static void aligned_block_reallocated(size_t alignment, size_t b) {
  (void)b;
  for (size_t n = 1; n < 4 * MIB; n = n * 3 + 1) {
    char *p = aligned_alloc(alignment, n);
    fill(p, n, n);
    CHECK((p = realloc(p, n * 2)) && filled(p, n, n) && (uintptr_t)p % 16 == 0);
    CHECK((p = realloc(p, n / 3 + 1)) && filled(p, n / 3 + 1, n));
    free(p);
  }
}

static void blocks_do_not_overlap(size_t largest, size_t count) {
  struct {
    char *p;
    size_t n;
  } *block = malloc(count * sizeof *block);
  uint64_t random = largest;
  for (size_t i = 0; i < count; i++) {
    block[i].p = malloc(block[i].n = chance(&random) % largest);
    CHECK(block[i].p);
    fill(block[i].p, malloc_usable_size(block[i].p), i);
  }
  for (size_t i = 0; i < count; i++) check_and_free(block[i].p, block[i].n, i);
  free(block);
}

// glibc's other functions may be called, whatever they do.
static void statistics_and_parameters(size_t a, size_t b) {
  (void)a, (void)b;
  char *text = NULL;
  size_t n = 0;
  void *p = filled_block(5000, 1);
  FILE *stream = open_memstream(&text, &n);
  CHECK(stream && malloc_info(0, stream) == 0 && fclose(stream) == 0 && n > 0 && text[0] == '<');
  free(text);
  CHECK(malloc_info(7, stdout) != 0);
  struct mallinfo2 info = mallinfo2();
  CHECK(info.uordblks > 0 && info.uordblks < GIB);
  static const int parameters[] = {M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX, M_PERTURB,
                                   M_TOP_PAD,        M_MMAP_MAX,       M_MXFAST,    -77};
  for (size_t i = 0; i < COUNT(parameters); i++) {
    int accepted = mallopt(parameters[i], 0);
    CHECK(accepted == 0 || accepted == 1);
    churn(i, 50);
  }
  churn(1, 500);
  int trimmed = malloc_trim(0);
  CHECK(trimmed == 0 || trimmed == 1);
  check_and_free(p, 5000, 1);
}

const case_t contract_cases[] = {
    {"every_border_malloc", every_border, 0},
    {"every_border_calloc", every_border, 1},
    {"every_border_realloc", every_border, 2},
    {"every_border_aligned_alloc", every_border, 3},
    {"every_border_posix_memalign", every_border, 4},
    {"every_border_pvalloc", every_border, 5},
    {"realloc_between_borders", realloc_between_borders, 0},
    {"realloc_between_usable_sizes", realloc_between_borders, 1},
    {"every_size_to_4096", every_small_size, 4096, 1},
    {"every_17th_size_to_70000", every_small_size, 70000, 17},
    {"impossible_sizes", impossible_sizes},
    {"products_that_overflow", products_that_overflow},
    {"impossible_alignments", impossible_alignments},
    {"bad_alignments", bad_alignments},
    {"good_alignments", good_alignments, 8 * MIB},
    {"size_zero", size_zero},
    {"realloc_to_zero_tiny", realloc_to_zero, TINY},
    {"realloc_to_zero_l2", realloc_to_zero, L2},
    {"realloc_to_zero_huge", realloc_to_zero, HUGE},
    {"of_null", of_null},
    EACH_RANGE("errno_untouched_by_free", errno_untouched_by_free, 0),
    {"errno_untouched_by_success", errno_untouched_by_success},
    {"sized_frees", sized_frees},
    EACH_RANGE("usable_size_survives_realloc", usable_size_survives_realloc, 0),
    {"aligned_64_reallocated", aligned_block_reallocated, 64},
    {"aligned_8k_reallocated", aligned_block_reallocated, 8 * KIB},
    {"aligned_4m_reallocated", aligned_block_reallocated, 4 * MIB},
    {"blocks_do_not_overlap_tiny", blocks_do_not_overlap, 600, 50000},
    {"blocks_do_not_overlap_l2", blocks_do_not_overlap, 40000, 3000},
    {"blocks_do_not_overlap_huge", blocks_do_not_overlap, 4 * MIB, 50},
    {"statistics_and_parameters", statistics_and_parameters},
    {NULL},
};
