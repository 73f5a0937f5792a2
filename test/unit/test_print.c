// print.h: every format, at the edges of the buffer too.

#include "unit.h"

#include "core/options.h"
#include "core/print.h"
#include "os/os.h"

static int pipe_ends[2];
static char got[8192];

static void open_pipe(void) { assert_int_equal(pipe(pipe_ends), 0); }
static const char *read_pipe(void) {
  close(pipe_ends[1]);
  size_t n = 0;
  for (ssize_t r; (r = read(pipe_ends[0], got + n, sizeof got - 1 - n)) > 0;) n += (size_t)r;
  close(pipe_ends[0]);
  got[n] = 0;
  return got;
}

#define PRINTS(expected, ...)              \
  do {                                     \
    open_pipe();                           \
    hak_print_t out = {.fd = pipe_ends[1]}; \
    hak_print(&out, __VA_ARGS__);          \
    hak_print_flush(&out);                 \
    assert_string_equal(read_pipe(), expected); \
  } while (0)

static void formats(void **state) {
  (void)state;
  PRINTS("", "%s", "");
  PRINTS("plain", "plain");
  PRINTS("a string b", "a %s b", "string");
  PRINTS("0 1 18446744073709551615", "%u %u %u", (uint64_t)0, (uint64_t)1, UINT64_MAX);
  PRINTS("0 ff ffffffffffffffff", "%x %x %x", (uint64_t)0, (uint64_t)255, UINT64_MAX);
  PRINTS("0x0 0xdead0", "%p %p", NULL, (void *)(uintptr_t)0xdead0);
  PRINTS("<x> 100%", "<%c> 100%%", 'x');
}

static void widths(void **state) {
  (void)state;
  PRINTS("[    7][7    ][123456]", "[%5u][%-5u][%5u]", (uint64_t)7, (uint64_t)7, (uint64_t)123456);
  PRINTS("[  ab][ab  ][abcdef]", "[%4s][%-4s][%4s]", "ab", "ab", "abcdef");
  PRINTS("[            ff]", "[%14x]", (uint64_t)255);
}

static void longer_than_the_buffer(void **state) {
  (void)state;
  char text[3000];
  for (unsigned i = 0; i < sizeof text - 1; i++) text[i] = (char)('a' + i % 26);
  for (size_t length = 498; length <= 502; length++) {
    char cut[600];
    memcpy(cut, text, length);
    cut[length] = 0;
    PRINTS(cut, "%s", cut);
  }
  text[sizeof text - 1] = 0;
  PRINTS(text, "%s", text);
}

// HAKMEM_QUIET silences warnings, not errors.
static void messages(void **state) {
  (void)state;
  open_pipe();
  int saved = dup(2);
  assert_true(dup2(pipe_ends[1], 2) == 2);
  hak_message("%s is %u", "this", (uint64_t)1);
  hak_warning("beware");
  uint64_t quiet = hak_option(QUIET);
  hak_option(QUIET) = 1;
  hak_warning("not seen");
  hak_message("errors are");
  hak_option(QUIET) = quiet;
  dup2(saved, 2);
  close(saved);
  assert_string_equal(read_pipe(), "hakmem: this is 1\nhakmem: beware\nhakmem: errors are\n");
}

static void *read_late(void *filled) {
  static char rest[1 << 17];
  nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  for (size_t left = *(size_t *)filled; left > 0;) {
    ssize_t n = read(pipe_ends[0], rest, left);
    assert_true(n > 0);
    left -= (size_t)n;
  }
  read_pipe();
  return NULL;
}

// A non-blocking descriptor takes a part of what is written, then nothing until somebody reads.
static void slow_reader(void **state) {
  (void)state;
  open_pipe();
  fcntl(pipe_ends[1], F_SETFL, O_NONBLOCK);
  fcntl(pipe_ends[1], F_SETPIPE_SZ, 4096);
  hak_print_t out = {.fd = dup(pipe_ends[1])};
  static char full[1 << 17];
  size_t filled = 0; // the pipe's size depends on the OS page
  for (ssize_t n; (n = write(out.fd, full, 512)) > 0;) filled += (size_t)n;
  assert_int_equal(errno, EAGAIN);
  assert_true(filled < sizeof full);
  pthread_t reader;
  assert_int_equal(pthread_create(&reader, NULL, read_late, &filled), 0);
  for (uint64_t i = 0; i < sizeof got / 8 - 1; i++) hak_print(&out, "%8u", i);
  hak_print_flush(&out);
  close(out.fd);
  pthread_join(reader, NULL);
  assert_int_equal(strlen(got), sizeof got - 8);
  for (uint64_t i = 0; i < sizeof got / 8 - 1; i++) assert_int_equal(strtoull(got + 8 * i, NULL, 10), i);
}

// What no longer gets through ends the text: nothing follows, also once there is room again.
static void no_reader(void **state) {
  (void)state;
  static char text[1 << 20], first[1 << 20];
  memset(text, 'x', sizeof text - 1);
  open_pipe();
  fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
  fcntl(pipe_ends[1], F_SETFL, O_NONBLOCK);
  fcntl(pipe_ends[1], F_SETPIPE_SZ, 4096);
  hak_print_t out = {.fd = pipe_ends[1]};
  hak_print(&out, "%s", text); // more than the pipe holds
  assert_true(read(pipe_ends[0], first, sizeof first) > 0);
  hak_print(&out, "%s", text);
  hak_print_flush(&out);
  while (read(pipe_ends[0], first, sizeof first) > 0) continue;
  hak_print(&out, "the end");
  hak_print_flush(&out);
  fcntl(pipe_ends[0], F_SETFL, 0);
  assert_string_equal(read_pipe(), "");
}

// After that a write waits again once one has got through.
static void waits_again(void **state) {
  PRINTS("room", "room");
  slow_reader(state);
}

// A text longer than the pipe, to a reader that takes a little at a time, with signals all the
// while. What counts is the time without progress, not that of the whole.
enum { LONG_TEXT = 1 << 18, SIGNALS = 20 };
static char long_text[LONG_TEXT], long_got[LONG_TEXT + 1];
static pthread_t long_writer;
static void ignore(int unused) { (void)unused; }
static void *read_slowly(void *unused) {
  for (size_t n = 0, part = 0; n < LONG_TEXT;) {
    if (n >= part * (LONG_TEXT / SIGNALS)) {
      part++;
      unit_clock_step(900); // less than half of what a write waits
      nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
      pthread_kill(long_writer, SIGUSR1);
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    ssize_t r = read(pipe_ends[0], long_got + n, 4096);
    if (r <= 0) break;
    n += (size_t)r;
  }
  return unused;
}
static void long_text_and_signals(void **state) {
  (void)state;
  struct sigaction action = {.sa_handler = ignore}, before; // no SA_RESTART
  assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
  for (size_t i = 0; i < LONG_TEXT; i++) long_text[i] = (char)('a' + i / 7 % 26);
  for (int flags = 0; flags <= O_NONBLOCK; flags += O_NONBLOCK) {
    open_pipe();
    fcntl(pipe_ends[1], F_SETFL, flags);
    long_writer = pthread_self();
    memset(long_got, 0, sizeof long_got);
    unit_clock_step(0);
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, read_slowly, NULL), 0);
    bool written = hak_os_write(pipe_ends[1], long_text, LONG_TEXT);
    close(pipe_ends[1]);
    pthread_join(reader, NULL);
    close(pipe_ends[0]);
    hak_os_clock_set(0);
    assert_true(written);
    CHECK(memcmp(long_got, long_text, LONG_TEXT) == 0);
  }
  sigaction(SIGUSR1, &before, NULL);
}

static void fails_quietly(int fd, int number) {
  sigset_t set, now;
  CHECK(!hak_os_write(fd, "text", 4)); // the default action would end the process
  CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, number));
  sigemptyset(&set);
  sigaddset(&set, number);
  CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
  CHECK(!hak_os_write(fd, "text", 4));
  CHECK(sigpending(&now) == 0 && !sigismember(&now, number));
  raise(number);
  CHECK(!hak_os_write(fd, "text", 4));
  CHECK(sigpending(&now) == 0 && sigismember(&now, number));
}
static void broken_pipe(void) {
  signal(SIGPIPE, SIG_DFL);
  CHECK(pipe(pipe_ends) == 0);
  close(pipe_ends[0]);
  fails_quietly(pipe_ends[1], SIGPIPE);
}
static void full_file(void) {
  char name[] = "/tmp/hakmem-print-XXXXXX";
  int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0);
  struct rlimit none = {0, 0};
  CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
  fails_quietly(fd, SIGXFSZ);
}

// A write that would raise a signal fails, and no signal comes, except one that was pending before.
// The thread's mask is as before.
static void no_signals(void **state) {
  (void)state;
  unit_in_child(broken_pipe);
  unit_in_child(full_file);
}

static void errno_is_kept(void **state) {
  (void)state;
  hak_print_t out = {.fd = -1};
  errno = 77;
  hak_print(&out, "nowhere");
  hak_print_flush(&out);
  assert_int_equal(errno, 77);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(formats),
    cmocka_unit_test(widths),
    cmocka_unit_test(longer_than_the_buffer),
    cmocka_unit_test(messages),
    cmocka_unit_test(slow_reader),
    cmocka_unit_test(no_reader),
    cmocka_unit_test(waits_again),
    cmocka_unit_test(long_text_and_signals),
    cmocka_unit_test(no_signals),
    cmocka_unit_test(errno_is_kept),
  };
  return RUN(tests);
}
