// scarce.h: where the system gives no more memory, a request is refused only if there is none.

#include "unit.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "superslab/slab.h"
#include "thread/front.h"
#include "thread/heap.h"
#include "thread/process.h"

static void begin(void) {
  hak_process_init();
  hak_option(NURSERY) = 0;
  hak_option(GUARD) = 0;
}
// From now on there is the SuperSlab that this block is in.
static void *first;
static void no_more_memory(void) {
  CHECK((first = hak_malloc(1)) != NULL);
  hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_COMMIT, 0, false);
}

// Blocks of a size until there are no more.
enum { MOST = 1 << 17 };
static char *blocks[MOST];
static unsigned use_up(size_t size) {
  unsigned n = 0;
  for (void *p; (p = hak_malloc(size)) != NULL; n++) {
    CHECK(n < MOST);
    fill(blocks[n] = p, size, n);
  }
  CHECK_EQUAL(errno, ENOMEM);
  return n;
}
static void check_contents(unsigned n, size_t size) {
  for (unsigned i = 0; i < n; i++) CHECK(filled(blocks[i], size, i));
}
static void release(unsigned n, size_t size) {
  check_contents(n, size);
  for (unsigned i = 0; i < n; i++) hak_free(blocks[i]);
  hak_free(first);
  hak_os_fault(0, 0, false);
  hak_trim(0);
  hak_heap_check(hak_tls_heap);
  CHECK_EQUAL(hak_mapped.superslab_bytes, 0);
}

static struct {
  unsigned n, step;
} to_free;
static void *free_some(void *unused) {
  for (unsigned i = 0; i < to_free.n; i += to_free.step) hak_free(blocks[i]);
  return unused;
}

// One free block in a slab does not bring the slab back, but it is found.
static void one_of_each_slab(size_t size, bool by_another) {
  no_more_memory();
  unsigned n = use_up(size), again = 0;
  to_free.n = n, to_free.step = hak_classes[hak_size_class(size + HAK_TAIL)].capacity;
  if (by_another) unit_in_thread(free_some, NULL);
  else free_some(NULL);
  for (unsigned i = 0; i < n; i += to_free.step, again++) {
    CHECK((blocks[i] = hak_malloc(size)) != NULL);
    fill(blocks[i], size, i);
  }
  CHECK(again >= 20);
  CHECK(hak_malloc(size) == NULL);
  hak_heap_check(hak_tls_heap);
  release(n, size);
}
static void blocks_of_full_slabs(void) {
  begin();
  static const size_t sizes[] = {16, 100, 1000, 1250};
  for (unsigned i = 0; i < COUNT(sizes); i++) {
    one_of_each_slab(sizes[i], false);
    one_of_each_slab(sizes[i], true);
  }
}
ISOLATED(blocks_of_full_slabs)

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(blocks_of_full_slabs),
  };
  return RUN(tests);
}
