// pagemap.h on invented addresses: nothing is mapped at them.

#include "unit.h"

#include "base/atomic.h"
#include "core/pagemap.h"
#include "os/os.h"

#define LEAF_SPAN ((uintptr_t)1 << (HAK_SUPERSLAB_SHIFT + HAK_PAGEMAP_LEAF_SHIFT))
#define LEAF_BYTES (sizeof(hak_pagemap_entry_t) << HAK_PAGEMAP_LEAF_SHIFT)
static const void *address(uintptr_t a) { return (const void *)a; }

static void nothing_at_first(void **state) {
  (void)state;
  const uintptr_t places[] = {0, 1, 0x10000, 0x7fffffffffff, (uintptr_t)1 << 47,
                              ((uintptr_t)1 << 48) - 1, (uintptr_t)1 << 48, UINTPTR_MAX};
  for (size_t i = 0; i < COUNT(places); i++) {
    assert_null(hak_pagemap_entry(address(places[i])));
    assert_true(hak_pagemap_get(address(places[i])) == 0);
    assert_false(hak_pagemap_take(address(places[i]), 1));
  }
}

static void set_get_take(void **state) {
  (void)state;
  uintptr_t unit = 0x600000000000;
  assert_true(hak_pagemap_prepare(address(unit)));
  assert_true(hak_pagemap_prepare(address(unit)));
  assert_true(hak_pagemap_get(address(unit)) == 0);
  hak_pagemap_set(address(unit), 5 << 2 | HAK_PAGEMAP_SUPERSLAB);
  // Covers every address of the unit and none of its neighbours.
  assert_true(hak_pagemap_get(address(unit + HAK_SUPERSLAB_SIZE - 1)) == 21);
  assert_true(hak_pagemap_get(address(unit + HAK_SUPERSLAB_SIZE)) == 0);
  assert_true(hak_pagemap_get(address(unit - 1)) == 0);
  assert_false(hak_pagemap_take(address(unit), 22));
  assert_true(hak_pagemap_take(address(unit), 21));
  assert_false(hak_pagemap_take(address(unit), 21));
  assert_true(hak_pagemap_get(address(unit)) == 0);
}

static void limits_of_the_address_space(void **state) {
  (void)state;
  uintptr_t last = ((uintptr_t)1 << HAK_ADDRESS_BITS) - 1;
  assert_true(hak_pagemap_prepare(address(last)));
  hak_pagemap_set(address(last), 9);
  assert_true(hak_pagemap_get(address(last)) == 9);
  assert_true(hak_pagemap_take(address(last), 9));
  assert_true(hak_pagemap_prepare(address(0)));
  assert_true(hak_pagemap_get(address(0)) == 0);
  assert_false(hak_pagemap_prepare(address(last + 1)));
  assert_false(hak_pagemap_prepare(address(UINTPTR_MAX)));
}

static void one_leaf_per_span(void **state) {
  (void)state;
  uintptr_t base = 0x500000000000;
  size_t before = hak_pagemap_bytes();
  for (unsigned i = 0; i < 8; i++) assert_true(hak_pagemap_prepare(address(base + i * LEAF_SPAN / 8)));
  assert_int_equal(hak_pagemap_bytes() - before, LEAF_BYTES);
  assert_true(hak_pagemap_prepare(address(base + LEAF_SPAN)));
  assert_int_equal(hak_pagemap_bytes() - before, 2 * LEAF_BYTES);
}

static void refused_leaf(void **state) {
  (void)state;
  const void *p = address(0x480000000000);
  size_t before = hak_pagemap_bytes();
  errno = 0;
  hak_os_fault(HAK_FAULT_MAP, 0, false);
  bool prepared = hak_pagemap_prepare(p);
  hak_os_fault(0, 0, false);
  assert_false(prepared);
  assert_int_equal(errno, 0);
  assert_int_equal(hak_pagemap_bytes(), before);
  assert_null(hak_pagemap_entry(p));
  assert_true(hak_pagemap_prepare(p));
}

// ---------------------------------------------------------------------------

#define THREADS 4
#define UNITS 3000
static const uintptr_t crowd = 0x400000000000;
static _Atomic unsigned taken[UNITS];
static pthread_barrier_t barrier;

static void *in_a_crowd(void *argument) {
  (void)argument;
  pthread_barrier_wait(&barrier);
  CHECK(hak_pagemap_prepare(address(crowd)));
  for (unsigned i = 0; i < UNITS; i++) {
    const void *p = address(crowd + i * HAK_SUPERSLAB_SIZE);
    if (hak_pagemap_take(p, i + 1)) hak_fetch_add_relaxed(&taken[i], 1);
  }
  return NULL;
}

static void taken_once(void **state) {
  (void)state;
  size_t before = hak_pagemap_bytes();
  pthread_t threads[THREADS];
  pthread_barrier_init(&barrier, NULL, THREADS + 1);
  for (unsigned i = 0; i < THREADS; i++) threads[i] = unit_start(in_a_crowd, NULL);
  assert_true(hak_pagemap_prepare(address(crowd)));
  for (unsigned i = 0; i < UNITS; i++)
    hak_pagemap_set(address(crowd + i * HAK_SUPERSLAB_SIZE), i + 1);
  pthread_barrier_wait(&barrier);
  for (unsigned i = 0; i < THREADS; i++) unit_join(threads[i]);
  for (unsigned i = 0; i < UNITS; i++) assert_int_equal(taken[i], 1);
  assert_int_equal(hak_pagemap_bytes() - before, LEAF_BYTES);
}

static void *prepare_all(void *argument) {
  (void)argument;
  pthread_barrier_wait(&barrier);
  for (unsigned i = 0; i < 64; i++)
    CHECK(hak_pagemap_prepare(address(0x300000000000 + i * LEAF_SPAN)));
  return NULL;
}

// Threads that install the same leaf: one stays, the others give theirs back.
static void racing_leaves(void **state) {
  (void)state;
  size_t before = hak_pagemap_bytes();
  pthread_t threads[THREADS];
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (unsigned i = 0; i < THREADS; i++) threads[i] = unit_start(prepare_all, NULL);
  for (unsigned i = 0; i < THREADS; i++) unit_join(threads[i]);
  assert_int_equal(hak_pagemap_bytes() - before, 64 * LEAF_BYTES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_at_first), cmocka_unit_test(set_get_take),
    cmocka_unit_test(limits_of_the_address_space), cmocka_unit_test(one_leaf_per_span),
    cmocka_unit_test(refused_leaf), cmocka_unit_test(taken_once),
    cmocka_unit_test(racing_leaves),
  };
  return RUN(tests);
}
