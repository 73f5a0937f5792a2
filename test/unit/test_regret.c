// regret.h with times of its own.

#include "unit.h"

#include "base/regret.h"

enum { SOON = 250, FEW = 2, LEAST = 1000, MOST = 3000 };
static const hak_regret_rule_t rule = {.soon = SOON, .few = FEW, .least = LEAST, .most = MOST};
static const uint64_t begin = 1000000; // ms since the system started
#define SIZE ((uint64_t)160 << 20)

// Memory goes back and is needed `after` ms later, n times. Returns the time after that.
static uint64_t swings(hak_regret_t *regret, uint64_t now, unsigned n, uint64_t after) {
  for (unsigned i = 0; i < n; i++) {
    hak_regret_done(regret, now);
    now += after;
    hak_regret_needed(regret, now, SIZE, rule);
  }
  return now;
}

// Length of the pause from `now` on.
static uint64_t pause_from(hak_regret_t *regret, uint64_t now) {
  uint64_t end = now;
  while (hak_regret_pauses(regret, end, SIZE)) end++;
  return end - now;
}

static void a_few_make_a_pause(void **state) {
  (void)state;
  hak_regret_t regret = {0};
  assert_false(hak_regret_pauses(&regret, begin, SIZE));
  uint64_t now = swings(&regret, begin, FEW - 1, SOON);
  assert_false(hak_regret_pauses(&regret, now, SIZE));
  now = swings(&regret, now, 1, SOON);
  assert_int_equal(pause_from(&regret, now), LEAST);
}

static void what_is_needed_late_is_none(void **state) {
  (void)state;
  hak_regret_t regret = {0};
  uint64_t now = swings(&regret, begin, 10, SOON + 1);
  assert_false(hak_regret_pauses(&regret, now, SIZE));
  hak_regret_needed(&regret, begin, SIZE, rule); // a clock that lags behind another thread's
  assert_false(hak_regret_pauses(&regret, now, SIZE));
}

static void none_in_a_pause(void **state) {
  (void)state;
  hak_regret_t regret = {0};
  uint64_t now = swings(&regret, begin, FEW, 0);
  for (unsigned i = 0; i < 10; i++) hak_regret_needed(&regret, now + i, SIZE, rule);
  assert_int_equal(pause_from(&regret, now), LEAST);
  // The next pause takes as many regrets as the first.
  now = swings(&regret, now + LEAST, FEW - 1, 0);
  assert_false(hak_regret_pauses(&regret, now, SIZE));
}

static void pauses_grow(void **state) {
  (void)state;
  hak_regret_t regret = {0};
  uint64_t now = begin;
  const uint64_t lengths[] = {LEAST, 2 * LEAST, MOST, MOST};
  for (unsigned i = 0; i < COUNT(lengths); i++) {
    now = swings(&regret, now, FEW, 1);
    assert_int_equal(pause_from(&regret, now), lengths[i]);
    now += lengths[i];
  }
  // After a long calm the next pause is short again, however many regrets it takes.
  now = swings(&regret, now + HAK_PAUSE_MAX_MS, FEW, 1);
  assert_int_equal(pause_from(&regret, now), LEAST);
}

static void growth_ends_a_pause(void **state) {
  (void)state;
  const struct {
    uint64_t size, most;
  } heaps[] = {{SIZE, SIZE / 8 - 1}, {SIZE / 10, HAK_PAUSE_GROWTH_MIN - 1}};
  for (unsigned i = 0; i < COUNT(heaps); i++) {
    hak_regret_t regret = {0};
    uint64_t size = heaps[i].size;
    for (unsigned n = 0; n < FEW; n++) {
      hak_regret_done(&regret, begin);
      hak_regret_needed(&regret, begin, size, rule);
    }
    assert_true(hak_regret_pauses(&regret, begin + 1, size + heaps[i].most));
    assert_false(hak_regret_pauses(&regret, begin + 1, size + heaps[i].most + 1));
    assert_false(hak_regret_pauses(&regret, begin + 1, size)); // and the pause is over
    assert_int_equal(pause_from(&regret, swings(&regret, begin + 2, FEW, 1)), 2 * LEAST);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_few_make_a_pause),
    cmocka_unit_test(what_is_needed_late_is_none),
    cmocka_unit_test(none_in_a_pause),
    cmocka_unit_test(pauses_grow),
    cmocka_unit_test(growth_ends_a_pause),
  };
  return RUN(tests);
}
