// growth.h: which SuperSlabs may be huge pages, by what the classes did before.

#include "heaps.h"
#include "unit.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "pool/fill.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"
#include "thread/growth.h"
#include "thread/heap.h"
#include "thread/process.h"

enum { FIRST = 32 * MIB, ALL = 64 * MIB, BLOCKS_MAX = ALL / 64 };
static char *blocks[BLOCKS_MAX];
static unsigned count;

static void begin(void) {
  hak_process_init();
  unit_no_guards();
  hak_option(NURSERY) = 0;
  hak_option(PREFAULT) = 0;
}

// Allocates blocks of `size`, `all` bytes in all, and uses a byte in every stride; 0: none.
static void grow(size_t size, size_t all, size_t stride) {
  for (; count < BLOCKS_MAX && count * size < all; count++) {
    CHECK((blocks[count] = hak_malloc(size)) != NULL);
    if (stride != 0) use_every(blocks[count], size, stride);
  }
}

static unsigned huge_pages(void) {
  unsigned n = 0;
  for (uint32_t number = 1; number < hak_superslab_count(); number++)
    n += hak_registry.superslabs[number].huge == HAK_HUGE_ADVISED;
  return n;
}

static unsigned used(void) { return (unsigned)(hak_mapped.superslab_bytes / HAK_SUPERSLAB_SIZE); }

// Blocks of up to 4 KiB count as used without proof.
static void small_blocks(void) {
  begin();
  grow(256, FIRST - 2 * HAK_SUPERSLAB_SIZE, 0);
  CHECK_EQUAL(huge_pages(), 0);
  grow(256, ALL / 2, 0);
  CHECK(used() > 0);
  unsigned before = used(), huge = huge_pages();
  count = 0;
  grow(4096, ALL / 2, 0);
  CHECK_EQUAL(huge_pages() - huge, used() - before);
}
ISOLATED(small_blocks)

static void dense(size_t size) {
  begin();
  grow(size, FIRST, DENSE);
  unsigned before = used(), huge = huge_pages();
  grow(size, ALL, DENSE);
  CHECK(used() - before > 12);
  // Except for those before the first of them is proof.
  if (pages_are_told()) CHECK(huge_pages() - huge + 2 >= used() - before);
}
static void sparse(size_t size) {
  begin();
  grow(size, FIRST, SPARSE);
  grow(size, ALL, SPARSE);
  CHECK(used() > 24);
  if (pages_are_told()) CHECK_EQUAL(huge_pages(), 0);
}

// L2 classes and L2.5 blocks alike.
static void dense_l2(void) { dense(20000); }
ISOLATED(dense_l2)
static void dense_l25(void) { dense(100000); }
ISOLATED(dense_l25)
static void dense_largest(void) { dense(MIB); }
ISOLATED(dense_largest)
static void sparse_l2(void) {
  if (hak_os_page_size == 0) begin();
  if (hak_os_page_size < 20000) sparse(20000); // otherwise no page stays unused
}
ISOLATED(sparse_l2)
static void sparse_l25(void) {
  if (hak_os_page_size == 0) begin();
  if (hak_os_page_size < SPARSE) sparse(100000);
}
ISOLATED(sparse_l25)

// Blocks of several kinds in turn, so that the same kind comes first in each SuperSlab.
static void sparse_between(void) {
  begin();
  const size_t size = 128 * KIB;
  const bool sparse = hak_os_page_size < SPARSE;
  for (; count * size < 4 * ALL; count++) {
    CHECK((blocks[count] = hak_malloc(size)) != NULL);
    use_every(blocks[count], size, count % 4 == 0 ? DENSE : SPARSE);
  }
  CHECK(used() > 24);
  if (pages_are_told() && sparse) CHECK_EQUAL(huge_pages(), 0);
}
ISOLATED(sparse_between)

// A block is written while others are allocated, as if several threads wrote to theirs.
static void dense_a_little_later(void) {
  begin();
  grow(MIB, ALL, 0);
  const unsigned before = used(), huge = huge_pages();
  for (unsigned i = 0; i < count; i++) use_every(blocks[i], MIB, DENSE);
  for (unsigned end = 2 * count; count < end; count++) {
    CHECK((blocks[count] = hak_malloc(MIB)) != NULL);
    use_every(blocks[count - 1], MIB, DENSE);
  }
  CHECK(used() - before > 24);
  // After 16 MiB of doubt, as the first blocks were not written at once.
  if (pages_are_told()) CHECK(huge_pages() - huge >= (used() - before) / 2);
}
ISOLATED(dense_a_little_later)

// With huge pages all pages of a block's last slab would be resident.
static void dense_but_for_its_end(void) {
  begin();
  const size_t size = 68 * KIB;
  grow(size, ALL, DENSE);
  CHECK(used() > 24);
  if (pages_are_told()) CHECK_EQUAL(huge_pages(), 0);
}
ISOLATED(dense_but_for_its_end)

// A class is trusted until it gets blocks back.
static void proof_is_forgotten(void) {
  begin();
  if (!pages_are_told() || hak_os_page_size > 4096) return;
  const size_t size = 20000;
  grow(size, ALL, DENSE);
  unsigned huge = huge_pages();
  CHECK(huge > 0);
  for (unsigned i = 0; i < count / 8; i += 2) hak_free(blocks[i]);
  grow(size, 2 * ALL, SPARSE);
  CHECK(huge_pages() <= huge + 1);
}
ISOLATED(proof_is_forgotten)

// Bytes that go without huge pages before the next look, after one found a sample that was not
// in use: with doubts, and without, where looking again does not matter.
static void doubts_last(void) {
  begin();
  if (!pages_are_told()) return;
  grow(256, FIRST, 0);
  hak_fill_t doubting = {.doubts = true}, other = {.doubts = false};
  char *p = hak_os_map(MIB, 1);
  CHECK(p != NULL);
  hak_os_huge_pages(p, MIB, false);
  hak_fill_sample(&doubting, p, MIB);
  hak_fill_sample(&other, p, MIB);
  CHECK(!hak_fill_expected(&doubting, HAK_SUPERSLAB_SIZE));
  CHECK(!hak_fill_expected(&other, HAK_SUPERSLAB_SIZE));
  use_every(p, MIB, DENSE);
  hak_fill_sample(&other, p, MIB);
  CHECK(hak_fill_expected(&other, HAK_SUPERSLAB_SIZE));
  unsigned without = 0;
  do hak_fill_sample(&doubting, p, MIB);
  while (!hak_fill_expected(&doubting, HAK_SUPERSLAB_SIZE) && ++without < 1000);
  CHECK_EQUAL(without * HAK_SUPERSLAB_SIZE, 16 * MIB);
  CHECK(hak_os_unmap(p, MIB));
}
ISOLATED(doubts_last)

// Runs that heaps have only begun do not make them well filled.
static void begun_runs_do_not_count(void) {
  begin();
  CHECK(hak_malloc(16) != NULL);
  hak_heap_t *heap = hak_tls_heap;
  uint64_t mapped = hak_mapped.superslab_bytes, slabs = HAK_CLASSES;
  hak_mapped.superslab_bytes = hak_heap_count() * slabs * HAK_SLAB_SIZE;
  CHECK(hak_growth_fills(heap, 0));
  for (unsigned c = HAK_TINY_CLASSES; c < HAK_CLASSES; c++) {
    heap->warm[c].slabs++;
    slabs += 2u * hak_classes[c].run;
  }
  CHECK(!hak_growth_fills(heap, 0));
  hak_mapped.superslab_bytes = hak_heap_count() * slabs * HAK_SLAB_SIZE;
  CHECK(hak_growth_fills(heap, 0));
  hak_mapped.superslab_bytes -= 1;
  CHECK(!hak_growth_fills(heap, 0));
  for (unsigned c = HAK_TINY_CLASSES; c < HAK_CLASSES; c++) heap->warm[c].slabs--;
  hak_mapped.superslab_bytes = mapped;
}
ISOLATED(begun_runs_do_not_count)

// The run that was used up last may be gone, and its SuperSlab too.
static void used_up_is_gone(void) {
  begin();
  CHECK(hak_malloc(16) != NULL);
  hak_heap_t *heap = hak_tls_heap;
  unsigned c = hak_size_class(20000);
  heap->warm[c].growth = 100; // it grows
  char *const nowhere[] = {NULL, (char *)&heap};
  for (unsigned i = 0; i < COUNT(nowhere); i++) {
    heap->used_up = nowhere[i];
    CHECK(!hak_growth_fills(heap, c));
  }
  heap->warm[c].growth = 0, heap->used_up = NULL;
}
ISOLATED(used_up_is_gone)

static void switched_off(void) {
  begin();
  hak_option(THP) = HAK_THP_NEVER;
  grow(20000, ALL, DENSE);
  CHECK_EQUAL(huge_pages(), 0);
}
ISOLATED(switched_off)

// Slabs of a class that has taken so many slabs are made resident as a whole.
static void prefaulted(unsigned after) {
  const unsigned more = 20;
  hak_option(THP) = HAK_THP_NEVER;
  hak_option(PREFAULT) = after;
  grow(256, (after + more) * HAK_SLAB_SIZE, 0);
  uint64_t n = heaps_stat(HAK_STAT_prefault);
  CHECK(n >= more - 2 && n <= more + 2);
}
static void prefault_early(void) {
  begin();
  prefaulted(2);
}
ISOLATED(prefault_early)
static void prefault_late(void) {
  begin();
  prefaulted(253); // the largest value of the option
}
ISOLATED(prefault_late)
static void prefault_never(void) {
  begin();
  grow(256, ALL / 2, 0);
  CHECK_EQUAL(heaps_stat(HAK_STAT_prefault), 0);
}
ISOLATED(prefault_never)

int main(void) {
  const struct CMUnitTest tests[] = {
      ISOLATED_TEST(small_blocks),       ISOLATED_TEST(dense_l2),   ISOLATED_TEST(dense_l25),
      ISOLATED_TEST(dense_largest),      ISOLATED_TEST(sparse_l2),  ISOLATED_TEST(sparse_l25),
      ISOLATED_TEST(sparse_between),     ISOLATED_TEST(dense_but_for_its_end),
      ISOLATED_TEST(dense_a_little_later),
      ISOLATED_TEST(proof_is_forgotten), ISOLATED_TEST(switched_off), ISOLATED_TEST(prefault_early),
      ISOLATED_TEST(prefault_late),      ISOLATED_TEST(prefault_never), ISOLATED_TEST(doubts_last),
      ISOLATED_TEST(begun_runs_do_not_count), ISOLATED_TEST(used_up_is_gone),
  };
  return RUN(tests);
}
