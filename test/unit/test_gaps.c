// The secure library's gaps: numbers of SuperSlabs without memory (superslab.c); and huge mappings
// that are to be unmapped later (huge_cache.c), and guards (huge.c).

#include "unit.h"

#include "core/misuse.h"
#include "core/options.h"
#include "os/os.h"
#include "pool/huge.h"
#include "pool/huge_cache.h"
#include "superslab/superslab.h"
#include "thread/process.h"

// Gaps go to threads that want memory once the kernel has no room for another mapping, and
// none of them is in use already. From 16384 on the numbers have no gaps.
static void given_once(void) {
  enum { END = 16384, REFUSED_AT = END / 2 + 100 };
  static bool given[2 * END];
  hak_process_init();
  for (unsigned i = 1; i < END + 200; i++) {
    if (i == REFUSED_AT) hak_os_fault(HAK_FAULT_COMMIT, 0, true);
    uint32_t number = hak_superslab_acquire(false);
    CHECK(number != 0 && number < COUNT(given));
    CHECK(i >= REFUSED_AT || number % 2 == 1 || number >= END);
    CHECK(!given[number]);
    given[number] = true;
  }
  for (unsigned number = 1; number < END + 200; number++) CHECK(given[number]);
}
ISOLATED(given_once)

// Mappings that the kernel refused to unmap link each other: a write to the link or the length is
// noticed, and nothing else is unmapped because of it.
static void refused_links(void) {
  enum { N = 3, WORDS = 3 };
  hak_process_init();
  hak_option(ABORT) = 0;
  char *other = hak_os_map(N * HAK_SUPERSLAB_SIZE, hak_os_page_size), *p[N];
  for (unsigned word = 0; word <= WORDS; word++) {
    uint32_t before = hak_misuse_count;
    for (unsigned i = 0; i < N; i++) CHECK((p[i] = hak_huge_alloc(HAK_SUPERSLAB_SIZE, 1, false)) != NULL);
    hak_os_fault(HAK_FAULT_UNMAP, 0, false);
    for (unsigned i = 0; i < N; i++) CHECK(hak_huge_free(p[i]));
    hak_os_fault(0, 0, false);
    if (word < WORDS) ((uint64_t *)(void *)p[N - 1])[word] = word ? 2 * HAK_SUPERSLAB_SIZE : (uintptr_t)other;
    hak_huge_cache_trim(0);
    CHECK_EQUAL(hak_misuse_count - before, word < WORDS);
    CHECK_EQUAL(hak_os_reserve_at(p[0], hak_os_page_size), word == WORDS);
    other[0] = 1;
  }
}
ISOLATED(refused_links)

// While a huge block grows another thread maps something in the place of its guard, and the block
// cannot be moved either: what lies there then is never touched.
static void lost_guard(void) {
  const size_t total = HAK_SUPERSLAB_SIZE, page = hak_os_page_size;
  hak_process_init();
  for (unsigned how = 0; how < 3; how++) {
    char *p = hak_huge_alloc(total, 1, false), *behind = p + total, *q = p;
    CHECK(p != NULL && !hak_os_reserve_at(behind, page));
    p[total - 1] = 1;
    hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_REMAP, 0, false);
    CHECK(hak_huge_resize(p, 2 * total) == NULL && hak_huge_usable(p) == total);
    hak_os_fault(0, 0, false);
    CHECK(hak_os_reserve_at(behind, page));
    if (how == 1) CHECK(hak_huge_resize(p, total / 2) == p);
    if (how == 2) CHECK((q = hak_huge_resize(p, 2 * total)) != NULL && q != p && q[total - 1] == 1);
    if (how > 0) CHECK(!hak_os_reserve_at(q + hak_huge_usable(q), page)); // a new guard
    CHECK(hak_huge_free(q) && hak_mapped.huge_bytes == 0);
    CHECK(hak_os_reserve_at(p, total) && !hak_os_reserve_at(behind, page));
    CHECK(hak_os_unmap(p, total + page));
  }
}
ISOLATED(lost_guard)

int main(void) {
  const struct CMUnitTest tests[] = {ISOLATED_TEST(given_once), ISOLATED_TEST(refused_links), ISOLATED_TEST(lost_guard)};
  return RUN(tests);
}
