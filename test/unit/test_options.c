// options.h: the program starts itself again with variables set and looks at what
// the library read from them.

#include "unit.h"

#include "core/options.h"
#include "thread/process.h"

static char output[16384];

// Runs this program with the variables (NULL-terminated) and nothing else in the
// environment; what it prints to stdout and stderr is in output.
static int start(const char *const *variables) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]), close(ends[1]);
    char *argv[] = {(char *)"unit_options", (char *)"values", NULL};
    execve("/proc/self/exe", argv, (char **)(uintptr_t)variables);
    _exit(126);
  }
  close(ends[1]);
  size_t n = 0;
  for (ssize_t r; (r = read(ends[0], output + n, sizeof output - 1 - n)) > 0;) n += (size_t)r;
  output[n] = 0;
  close(ends[0]);
  int status;
  waitpid(pid, &status, 0);
  return status;
}

// The child: one line per option.
static int print_values(void) {
  hak_process_init(); // done by the library's constructor already
#define HAK_OPTION(name, ...) printf(#name "=%llu\n", (unsigned long long)hak_option(name));
#define HAK_CHOICE(name, ...) printf(#name "=%llu\n", (unsigned long long)hak_option(name));
#define HAK_TEXT(name, help) \
  printf(#name "=%s\n", hak_option_text(name) ? hak_option_text(name) : "(none)");
#include "core/options.def"
  return 0;
}

#define START(...) \
  assert_int_equal(start((const char *const[]){__VA_ARGS__ __VA_OPT__(,) NULL}), 0)

static void has(const char *line) {
  if (!strstr(output, line)) fail_msg("no \"%s\" in:\n%s", line, output);
}
static void has_not(const char *text) {
  if (strstr(output, text)) fail_msg("\"%s\" in:\n%s", text, output);
}
static void value(const char *name, uint64_t v) {
  char line[100];
  snprintf(line, sizeof line, "\n%s=%llu\n", name, (unsigned long long)v);
  has(line);
}

typedef struct {
  const char *name;
  uint64_t preset[3], min, max;
} row_t;
static const row_t numbers[] = {
#define HAK_OPTION(name, kind, balanced, lean, fast, min, max, help) \
  {#name, {balanced, lean, fast}, min, max},
#define HAK_CHOICE(name, value, words, help)
#define HAK_TEXT(name, help)
#include "core/options.def"
};

static void defaults_of_every_mode(void **state) {
  (void)state;
  static const char *const modes[] = {"HAKMEM_MODE=balanced", "HAKMEM_MODE=lean", "HAKMEM_MODE=fast"};
  for (unsigned m = 0; m < 3; m++) {
    START(modes[m]);
    has_not("hakmem:");
    for (size_t i = 0; i < COUNT(numbers); i++) value(numbers[i].name, numbers[i].preset[m]);
  }
  START();
  for (size_t i = 0; i < COUNT(numbers); i++) value(numbers[i].name, numbers[i].preset[0]);
  has("STATS_FILE=(none)");
}

static void both_ends_of_every_range(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(numbers); i++) {
    const row_t *row = &numbers[i];
    // With another mode: a given value wins over the mode, a refused one leaves the mode's default.
    for (unsigned end = 0; end < 2; end++) {
      uint64_t inside = end ? row->max : row->min;
      char variable[100];
      snprintf(variable, sizeof variable, "HAKMEM_%s=%llu", row->name, (unsigned long long)inside);
      START(variable, "HAKMEM_MODE=lean");
      value(row->name, inside);
      has_not("ignored");
      if (end ? row->max == UINT64_MAX : row->min == 0) continue;
      snprintf(variable, sizeof variable, "HAKMEM_%s=%llu", row->name,
               (unsigned long long)(end ? inside + 1 : inside - 1));
      START(variable, "HAKMEM_MODE=lean");
      value(row->name, row->preset[1]);
      has(variable);
      has("ignored");
    }
  }
}

static void refused(const char *number, const char *why) {
  char variable[100];
  snprintf(variable, sizeof variable, "HAKMEM_REMOTE_PENDING=%s", number);
  START(variable);
  value("REMOTE_PENDING", 131072);
  has(why);
}

static void suffixes(void **state) {
  (void)state;
  START("HAKMEM_REMOTE_PENDING=12k", "HAKMEM_RANGE_SIZE=2G");
  value("REMOTE_PENDING", 12288);
  value("RANGE_SIZE", (uint64_t)2 << 30);
  START("HAKMEM_REMOTE_PENDING=1M", "HAKMEM_RANGE_SIZE=1g");
  value("REMOTE_PENDING", 1 << 20);
  value("RANGE_SIZE", 1 << 30);
  START("HAKMEM_HUGE_CACHE=1T", "HAKMEM_RANGE_SIZE=2t"); // as docs/options.md prints them
  value("HUGE_CACHE", (uint64_t)1 << 40);
  value("RANGE_SIZE", (uint64_t)2 << 40);
  static const char *const bad[] = {"1P", "1KB", "K", "-1", "+1", " 1", "1 ", "0x10", "1.5"};
  static const char *const large[] = {"18446744073709551616", "99999999999999999999999",
                                      "18014398509481985K", "17179869185G", "16777217T",
                                      "18446744073709551615", "36893488147419103232"};
  for (size_t i = 0; i < COUNT(bad); i++)
    refused(bad[i], " is no number (suffixes: K, M, G, T); ignored");
  for (size_t i = 0; i < COUNT(large); i++) refused(large[i], " is not in 0..16777216; ignored");
}

static void empty_values_are_none(void **state) {
  (void)state;
  static const char *const empty[] = {
#define HAK_OPTION(name, ...) "HAKMEM_" #name "=",
#define HAK_CHOICE(name, ...) "HAKMEM_" #name "=",
#define HAK_TEXT(name, help) "HAKMEM_" #name "=",
#include "core/options.def"
    NULL};
  assert_int_equal(start(empty), 0);
  has_not("hakmem:");
  has("STATS_FILE=(none)");
  for (size_t i = 0; i < COUNT(numbers); i++) value(numbers[i].name, numbers[i].preset[0]);
}

static void words(void **state) {
  (void)state;
  START("HAKMEM_SS_LOOKUP_KIND=table", "HAKMEM_QUIET=yes", "HAKMEM_ABORT=off");
  value("SS_LOOKUP_KIND", HAK_LOOKUP_TABLE);
  value("QUIET", 1);
  value("ABORT", 0);
  START("HAKMEM_SS_LOOKUP_KIND=range", "HAKMEM_ABORT=no");
  value("SS_LOOKUP_KIND", HAK_LOOKUP_RANGE);
  value("ABORT", 0);
  START("HAKMEM_SS_LOOKUP_KIND=rang");
  value("SS_LOOKUP_KIND", HAK_LOOKUP_AUTO);
  has("HAKMEM_SS_LOOKUP_KIND=rang is not one of auto|range|table");
  START("HAKMEM_SS_LOOKUP_KIND=auto|range");
  has("is not one of");
  START("HAKMEM_MODE=turbo");
  value("LRU_CAP", 2);
  has("HAKMEM_MODE=turbo is not one of balanced|lean|fast");
  START("HAKMEM_QUIET=2");
  has("HAKMEM_QUIET=2 is not in 0..1; ignored");
  START("HAKMEM_QUIET=true");
  has("HAKMEM_QUIET=true is no number (0, 1, off, on, no, yes); ignored");
  START("HAKMEM_STATS=on", "HAKMEM_GUARD=off", "HAKMEM_PURGE=no", "HAKMEM_LRU_CAP=yes", "HAKMEM_STATS_FILE=/dev/null");
  has_not("hakmem:");
  value("STATS", 1);
  value("GUARD", 0);
  value("PURGE", 0);
  value("LRU_CAP", 1);
  START("HAKMEM_SECURE_QUARANTINE=on", "HAKMEM_HUGE_CACHE=yes", "HAKMEM_L25_RING_BYTES=off");
  value("SECURE_QUARANTINE", 256 * KIB);
  has("HAKMEM_SECURE_QUARANTINE=on is no number (");
  has("HAKMEM_HUGE_CACHE=yes is no number (");
  value("L25_RING_BYTES", 0);
  START("HAKMEM_THP=off", "HAKMEM_FULL_MARK=off", "HAKMEM_STATS_FILE=off");
  has("HAKMEM_THP=off is not one of auto|never|always; ignored");
  has("HAKMEM_FULL_MARK=off is not in 1..64; ignored");
  has("STATS_FILE=off\n");
  START("HAKMEM_STATS_FILE=/a/b=c");
  has("STATS_FILE=/a/b=c\n");
  START("HAKMEM_OPTIONS=foo");
  has("HAKMEM_OPTIONS=foo is not help; ignored");
  START("HAKMEM_GUARD=1/100");
  value("GUARD", 100);
  START("HAKMEM_FULL_MARK=1/16");
  value("FULL_MARK", 16);
  START("HAKMEM_LRU_CAP=1/16", "HAKMEM_HUGE_CACHE=1/16"); // no rates
  value("LRU_CAP", 2);
  has("HAKMEM_LRU_CAP=1/16 is no number (suffixes: K, M, G, T); ignored");
  has("HAKMEM_HUGE_CACHE=1/16 is no number ");
  START("HAKMEM_GUARD=1/0");
  value("GUARD", 0);
  has("HAKMEM_GUARD=1/0 is no number (suffixes: K, M, G, T; or 1/N); ignored");
}

// As with getenv, the first occurrence counts, whatever it says.
static void given_twice(void **state) {
  (void)state;
  START("HAKMEM_LRU_CAP=3", "HAKMEM_STATS_FILE=/first", "HAKMEM_LRU_CAP=4", "HAKMEM_MODE=lean",
        "HAKMEM_STATS_FILE=/second", "HAKMEM_MODE=fast", "HAKMEM_LRU_CAP=x");
  value("LRU_CAP", 3);
  value("WARM_POOL", 1);
  has("STATS_FILE=/first\n");
  has_not("ignored");
  START("HAKMEM_LRU_CAP=x", "HAKMEM_LRU_CAP=4");
  value("LRU_CAP", 2);
  has("HAKMEM_LRU_CAP=x is no number (suffixes: K, M, G, T); ignored");
}

static void unknown_names(void **state) {
  (void)state;
  START("HAKMEM_LRUCAP=3");
  has("unknown option HAKMEM_LRUCAP, did you mean HAKMEM_LRU_CAP?");
  START("HAKMEM_REFIL_BACH=3");
  has("did you mean HAKMEM_REFILL_BATCH?");
  START("HAKMEM_COMPLETELY_ELSE=1");
  has("unknown option HAKMEM_COMPLETELY_ELSE (HAKMEM_OPTIONS=help lists all)");
  START("HAKMEM_LRU=1"); // nearest to THP
  has("unknown option HAKMEM_LRU (HAKMEM_OPTIONS=help lists all)");
  START("HAKMEM_A_NAME_THAT_IS_MUCH_LONGER_THAN_ANY_OPTION_COULD_EVER_BE=1");
  has("unknown option HAKMEM_A_NAME_THAT");
  START("HAKMEM_LRUCAP=3", "HAKMEM_QUIET=1");
  has_not("unknown");
  START("HAKMEMX=1", "HAKME=1", "XHAKMEM_MODE=1", "hakmem_mode=1");
  has_not("hakmem:");
  START("HAKMEM_LRU_CAP", "HAKMEM_"); // no value at all
}

static void help_lists_every_row(void **state) {
  (void)state;
  START("HAKMEM_OPTIONS=help", "HAKMEM_LRU_CAP=17");
#define HAK_OPTION(name, kind, balanced, lean, fast, min, max, help) has("HAKMEM_" #name " = "), has(help);
#define HAK_CHOICE(name, value, words, help) has("HAKMEM_" #name " = "), has(words), has(help);
#define HAK_TEXT(name, help) has("HAKMEM_" #name " = "), has(help);
#include "core/options.def"
  has("HAKMEM_LRU_CAP = 17 (environment, default 2, 0..1000000)");
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "values") == 0) return print_values();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(defaults_of_every_mode), cmocka_unit_test(both_ends_of_every_range),
    cmocka_unit_test(suffixes),               cmocka_unit_test(words),
    cmocka_unit_test(given_twice),            cmocka_unit_test(unknown_names),
    cmocka_unit_test(empty_values_are_none),  cmocka_unit_test(help_lists_every_row),
  };
  return RUN(tests);
}
