// The secure library's seals (seal.h).

#include "unit.h"

#include "superslab/seal.h"
#include "thread/process.h"

enum { PLACE = 64 };
static _Alignas(PLACE) unsigned char memory[2 * PLACE];

// A seal leaves the request's bytes alone; each of the 8 bytes behind them that are not the seal's
// is watched.
static void edge_of_every_slack(void) {
  hak_process_init();
  for (size_t size = 0; size <= PLACE - HAK_TAIL; size++) {
    size_t slack = PLACE - HAK_TAIL - size, found;
    memset(memory, 0x5a, sizeof memory);
    hak_seal_resize(memory, PLACE, size);
    for (size_t i = 0; i < size; i++) CHECK_EQUAL(memory[i], 0x5a);
    for (size_t i = PLACE; i < sizeof memory; i++) CHECK_EQUAL(memory[i], 0x5a);
    CHECK_EQUAL(hak_seal_size(memory, PLACE), size);
    CHECK(hak_seal_is_whole(memory, PLACE, slack, &found) && found == size);
    CHECK(hak_seal_is_of(memory, PLACE, size) && !hak_seal_is_of(memory, PLACE, size + 1));
    CHECK(!hak_seal_is_of(memory, PLACE, size + 65536) && !hak_seal_is_of(memory, PLACE, SIZE_MAX));
    for (size_t i = 0; i < slack && i < 8; i++) {
      CHECK(memory[size + i] != 0);
      memory[size + i] ^= 0x10;
      CHECK(!hak_seal_is_whole(memory, PLACE, slack, &found));
      memory[size + i] ^= 0x10;
    }
    for (size_t i = 0; i < size; i++) memory[i] ^= 0xff;
    for (size_t i = size + 8; i < PLACE - HAK_TAIL; i++) memory[i] ^= 0xff;
    CHECK(hak_seal_is_whole(memory, PLACE, slack, &found));
    for (size_t i = 0; i < HAK_TAIL; i++) { // the seal itself
      memory[PLACE - HAK_TAIL + i] ^= 0x10;
      uint64_t other = hak_seal_slack(hak_seal_read(memory, PLACE));
      CHECK(other != slack);
      memory[PLACE - HAK_TAIL + i] ^= 0x10;
    }
  }
}
ISOLATED(edge_of_every_slack)

// The keys of two blocks do not differ by what those of two others at the same distance differ by.
static void differences_of_keys(void) {
  enum { N = 64 };
  uint64_t differences[N];
  hak_process_init();
  for (uintptr_t i = 0; i < N; i++) {
    char *p = (char *)(UINT64_C(0x7e0000000000) + i * 0x1230);
    uint64_t one = hak_seal_key(p), other = hak_seal_key(p + 16);
    CHECK(one != other && (one & other & 1) == 1);
    differences[i] = one < other ? other - one : one - other;
    for (uintptr_t j = 0; j < i; j++) CHECK(differences[i] != differences[j]);
  }
}
ISOLATED(differences_of_keys)

int main(void) {
  const struct CMUnitTest tests[] = {ISOLATED_TEST(edge_of_every_slack),
                                     ISOLATED_TEST(differences_of_keys)};
  return RUN(tests);
}
