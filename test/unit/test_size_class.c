// size_class.h, exhaustively.

#include "unit.h"

#include "superslab/size_class.h"

static void smallest_class_that_covers(void **state) {
  (void)state;
  for (size_t size = 1; size <= HAK_L2_MAX; size++) {
    unsigned c = hak_size_class(size);
    assert_true(c < HAK_CLASSES);
    assert_true(hak_class_size(c) >= size);
    if (c > 0) assert_true(hak_class_size(c - 1) < size);
    // Rounding costs at most an eighth above 128 bytes.
    if (size > 128) assert_true((hak_class_size(c) - size) * 8 <= size);
    assert_int_equal(c < HAK_TINY_CLASSES, size <= HAK_TINY_MAX);
    if (size > HAK_TINY_MAX) assert_int_equal(hak_size_class_l2(size), c - HAK_TINY_CLASSES);
    for (unsigned d = 0; d < HAK_CLASSES; d++) assert_int_equal(hak_class_serves(d, size), d == c);
  }
}

static void serves_no_wild_size(void **state) {
  (void)state;
  const size_t wild[] = {0, HAK_L2_MAX + 1, HAK_SIZE_MAX, SIZE_MAX, SIZE_MAX - 15};
  for (unsigned c = 0; c < HAK_CLASSES; c++)
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++)
      assert_false(hak_class_serves(c, wild[i]));
}

static void classes_are_well_formed(void **state) {
  (void)state;
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    const hak_class_info_t *info = &hak_classes[c];
    size_t room = info->run * HAK_SLAB_SIZE;
    assert_int_equal(info->capacity, room / info->size - (info->size == 1024));
    assert_int_equal(info->size % HAK_MIN_BLOCK, 0);
    assert_int_equal(hak_size_class(info->size), c);
    if (c < HAK_TINY_CLASSES) {
      assert_int_equal(info->run, 1);
      continue;
    }
    assert_true(info->capacity <= HAK_L2_BLOCKS_MAX);
    // The fewest slabs with 8 blocks or more and at most 1/16 wasted.
    unsigned run = 1;
    for (;; run++) {
      size_t have = run * HAK_SLAB_SIZE, blocks = have / info->size;
      if (blocks >= 8 && (have - blocks * info->size) * 16 <= have) break;
    }
    assert_int_equal(info->run, run);
  }
  assert_int_equal(hak_class_size(HAK_TINY_CLASSES - 1), HAK_TINY_MAX);
  assert_int_equal(hak_class_size(HAK_CLASSES - 1), HAK_L2_MAX);
}

// Neighbouring slabs, and runs that begin at every second or third slab, have all gaps that
// exist. No gap takes room that blocks need.
static void gaps(void **state) {
  (void)state;
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    const hak_class_info_t *info = &hak_classes[c];
    for (unsigned step = 1; step <= 3; step++) {
      bool seen[UINT8_MAX] = {false};
      for (uint32_t n = 0; n < 4u * info->colours; n++) {
        size_t gap = hak_class_gap(c, 12345 + n * step);
        assert_int_equal(gap % HAK_COLOUR, 0);
        assert_true(gap / HAK_COLOUR < info->colours);
        assert_true(gap + (size_t)info->capacity * info->size <= info->run * HAK_SLAB_SIZE);
        seen[gap / HAK_COLOUR] = true;
      }
      for (unsigned i = 0; i < info->colours; i++) assert_true(seen[i]);
    }
    if (info->size % 4096 == 0) assert_int_equal(info->colours, 1);
  }
  assert_int_equal(hak_classes[hak_size_class(1024)].colours, 1024 / HAK_COLOUR);
}

static void multiples_of_powers_of_two(void **state) {
  (void)state;
  for (size_t power = 16; power <= HAK_SLAB_SIZE; power *= 2)
    for (size_t size = power; size <= HAK_L2_MAX; size += power)
      assert_int_equal(hak_class_size(hak_size_class(size)) % power, 0);
}

// Aligned allocation relies on this.
static void aligned_sizes(void **state) {
  (void)state;
  for (size_t alignment = 16; alignment <= HAK_SLAB_SIZE; alignment *= 2) {
    for (size_t size = 0; size <= HAK_L2_MAX; size++) {
      size_t asked = hak_aligned_size(size, alignment);
      assert_true(asked >= size && asked > 0 && asked <= 2 * (size + alignment));
      if (asked > HAK_L2_MAX) continue;
      unsigned c = hak_size_class(asked);
      assert_int_equal(hak_class_size(c) % alignment, 0);
      assert_true(alignment <= HAK_COLOUR || hak_classes[c].colours == 1);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(smallest_class_that_covers),
    cmocka_unit_test(serves_no_wild_size),
    cmocka_unit_test(classes_are_well_formed),
    cmocka_unit_test(gaps),
    cmocka_unit_test(multiples_of_powers_of_two),
    cmocka_unit_test(aligned_sizes),
  };
  return RUN(tests);
}
