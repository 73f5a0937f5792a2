// bits.h against the obvious loops.

#include "unit.h"

#include "base/bits.h"

static void powers_and_alignment(void **state) {
  (void)state;
  for (size_t x = 0; x < 70000; x++) {
    unsigned ones = 0;
    for (unsigned i = 0; i < 32; i++) ones += (x >> i) & 1;
    assert_int_equal(hak_is_pow2(x), ones == 1);
  }
  assert_true(hak_is_pow2((size_t)1 << 63));
  assert_false(hak_is_pow2(SIZE_MAX));
  for (size_t a = 1; a <= 65536; a *= 2)
    for (size_t x = 0; x < 300; x++) {
      size_t base = x * 1021;
      assert_int_equal(hak_align_down(base, a), base / a * a);
      assert_int_equal(hak_align_up(base, a), (base + a - 1) / a * a);
    }
}

static void single_bits(void **state) {
  (void)state;
  for (unsigned i = 0; i < 64; i++) {
    uint64_t bit = UINT64_C(1) << i;
    assert_int_equal(hak_low_bit(bit), i);
    assert_int_equal(hak_high_bit(bit), i);
    assert_int_equal(hak_low_bit(bit | (UINT64_C(1) << 63)), i);
    assert_int_equal(hak_high_bit(bit | 1), i);
    if (i > 0) assert_true(hak_rotate_right(1, 64 - i) == bit);
  }
  assert_true(hak_rotate_right(0xf, 4) == UINT64_C(0xf) << 60);
  assert_true(hak_rotate_right(0x123456789abcdef0, 4) == 0x0123456789abcdef);
}

static uint32_t runs_slowly(uint32_t mask, unsigned n) {
  uint32_t result = 0;
  for (unsigned i = 0; i + n <= 32; i++) {
    bool all = true;
    for (unsigned j = i; j < i + n; j++) all = all && ((mask >> j) & 1);
    if (all) result |= UINT32_C(1) << i;
  }
  return result;
}

static void runs(void **state) {
  (void)state;
  uint64_t seed = 1;
  for (unsigned round = 0; round < 2000; round++) {
    // Sparse, dense and everything between.
    uint32_t mask = (uint32_t)(chance(&seed) >> 32);
    for (unsigned k = 0; k < round % 5; k++) mask |= (uint32_t)(chance(&seed) >> 32);
    for (unsigned k = 0; k < round % 7; k++) mask &= (uint32_t)(chance(&seed) >> 32);
    if (round == 0) mask = UINT32_MAX;
    for (unsigned n = 1; n <= 32; n++) assert_int_equal(hak_runs_of(mask, n), runs_slowly(mask, n));
  }
}

static void ones(void **state) {
  (void)state;
  for (unsigned n = 1; n <= 32; n++)
    for (unsigned at = 0; at + n <= 32; at++) {
      uint32_t expected = 0;
      for (unsigned i = at; i < at + n; i++) expected |= UINT32_C(1) << i;
      assert_int_equal(hak_ones(at, n), expected);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(powers_and_alignment),
    cmocka_unit_test(single_bits),
    cmocka_unit_test(runs),
    cmocka_unit_test(ones),
  };
  return RUN(tests);
}
