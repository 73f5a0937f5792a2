// The secure library's gaps: numbers of SuperSlabs without memory (superslab.c).

#include "unit.h"

#include "os/os.h"
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

int main(void) {
  const struct CMUnitTest tests[] = {ISOLATED_TEST(given_once)};
  return RUN(tests);
}
