// cmocka.h: the part of cmocka's interface that the tests here use, for C libraries and
// machines for which Debian has no cmocka (docs/platforms.md). A failed assertion ends its
// test; all tests are run; the result is the number of failed ones.

#ifndef TEST_CMOCKA_CMOCKA_H
#define TEST_CMOCKA_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
  const char *name;
  void (*run)(void **state);
  int (*set_up)(void **state), (*tear_down)(void **state); // may be NULL; they return 0 on success
  void *state;
};
#define cmocka_unit_test(function) {#function, function, NULL, NULL, NULL}

static jmp_buf cmocka_end_of_test_; // longjmp's value 1: the test failed, 2: it was skipped

__attribute__((noreturn, format(printf, 3, 4), unused)) static void cmocka_fail_(
    const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  printf("%s:%d: ", file, line);
  vprintf(format, arguments);
  printf("\n");
  va_end(arguments);
  longjmp(cmocka_end_of_test_, 1);
}

#define fail_msg(...) cmocka_fail_(__FILE__, __LINE__, __VA_ARGS__)
#define fail() fail_msg("the test says so")
#define skip() longjmp(cmocka_end_of_test_, 2)
#define assert_true(x) ((x) ? (void)0 : fail_msg("%s does not hold", #x))
#define assert_false(x) assert_true(!(x))
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_null(p) assert_true((p) == NULL)
#define assert_compared_(a, holds, b) \
  do { \
    uintmax_t a_ = (uintmax_t)(a), b_ = (uintmax_t)(b); \
    if (!(a_ holds b_)) fail_msg("%s %s %s does not hold: %#jx and %#jx", #a, #holds, #b, a_, b_); \
  } while (0)
#define assert_int_equal(a, b) assert_compared_(a, ==, b)
#define assert_int_not_equal(a, b) assert_compared_(a, !=, b)
#define assert_ptr_equal(a, b) assert_compared_((uintptr_t)(a), ==, (uintptr_t)(b))
#define assert_ptr_not_equal(a, b) assert_compared_((uintptr_t)(a), !=, (uintptr_t)(b))
#define assert_string_equal(a, b) \
  do { \
    const char *a_ = (a), *b_ = (b); \
    if (strcmp(a_, b_) != 0) fail_msg("\"%s\" is not \"%s\"", a_, b_); \
  } while (0)
#define assert_in_range(x, least, most) \
  do { \
    uintmax_t x_ = (uintmax_t)(x), least_ = (uintmax_t)(least), most_ = (uintmax_t)(most); \
    if (x_ < least_ || x_ > most_) \
      fail_msg("%s = %ju is not in [%s, %s]", #x, x_, #least, #most); \
  } while (0)

__attribute__((unused)) static int cmocka_run_(const struct CMUnitTest *tests, size_t count) {
  static const char *const verdicts[] = {"ok", "FAILED", "skipped"};
  volatile int failed = 0; // changed between setjmp and longjmp
  for (volatile size_t i = 0; i < count; i++) {
    static void *state; // outlives the longjmp
    state = tests[i].state;
    printf("%s\n", tests[i].name);
    fflush(stdout);
    volatile int verdict = setjmp(cmocka_end_of_test_);
    if (verdict == 0) {
      if (tests[i].set_up && tests[i].set_up(&state) != 0) fail_msg("it could not be set up");
      tests[i].run(&state);
    }
    if (tests[i].tear_down && tests[i].tear_down(&state) != 0) verdict = 1;
    printf("%s: %s\n", tests[i].name, verdicts[verdict]);
    fflush(stdout);
    failed += verdict == 1;
  }
  return failed;
}
#define cmocka_run_group_tests(tests, set_up, tear_down) \
  cmocka_run_(tests, sizeof(tests) / sizeof *(tests))

#endif
