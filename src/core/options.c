#include "core/options.h"

#include "core/print.h"
#include "os/os.h"

typedef enum { BOOL, COUNT, RATE, SIZE, CHOICE, TEXT } kind_t;

typedef struct {
  const char *name;
  kind_t kind;
  uint64_t preset[3]; // by HAKMEM_MODE
  uint64_t min, max;
  const char *words; // CHOICE
  const char *help;
} row_t;

static const row_t rows[HAK_OPTS] = {
#define HAK_OPTION(name, kind, balanced, lean, fast, min, max, help) \
  {#name, kind, {balanced, lean, fast}, min, max, NULL, help},
#define HAK_CHOICE(name, value, words, help) \
  {#name, CHOICE, {value, value, value}, 0, 0, words, help},
#define HAK_TEXT(name, help) {#name, TEXT, {0, 0, 0}, 0, 0, NULL, help},
#include "core/options.def"
};

uint64_t hak_option_values[HAK_OPTS] = {
#define HAK_OPTION(name, kind, balanced, lean, fast, min, max, help) balanced,
#define HAK_CHOICE(name, value, words, help) value,
#define HAK_TEXT(name, help) 0,
#include "core/options.def"
};

static bool given[HAK_OPTS]; // set by a variable rather than by the preset
// The text of an option's variable after HAKMEM_. Of duplicates the first counts, as for getenv.
static const char *variable[HAK_OPTS];

// Values of text options are copied: programs that set their own process title
// overwrite the environment.
#define TEXT_SIZE 512
static char texts[2][TEXT_SIZE];
static char *text_of(hak_opt_t option) { return texts[option == HAK_OPT_STATS_FILE]; }

static const char prefix[] = "HAKMEM_";

// Parses a number with an optional K, M, G or T suffix; false if s is not one. A number too large
// for 64 bits becomes UINT64_MAX, which no option accepts.
static bool parse_number(const char *s, uint64_t *value) {
  uint64_t v = 0;
  bool large = false;
  if (*s < '0' || *s > '9') return false;
  for (; *s >= '0' && *s <= '9'; s++) {
    large |= __builtin_mul_overflow(v, 10, &v);
    large |= __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v);
  }
  unsigned unit = 0;
  while (unit < 4 && (*s | 0x20) != "kmgt"[unit]) unit++;
  unsigned shift = unit < 4 ? s++, 10 * (unit + 1) : 0;
  *value = large || v << shift >> shift != v ? UINT64_MAX : v << shift;
  return !*s;
}

// Index of s among the words "a|b|c"; false if it is none of them.
static bool parse_word(const char *words, const char *s, uint64_t *value) {
  for (uint64_t n = 0;; n++) {
    const char *t = s;
    while (*words && *words != '|' && *words == *t) words++, t++;
    if ((!*words || *words == '|') && !*t) return *value = n, true;
    while (*words && *words != '|') words++;
    if (!*words++) return false;
  }
}

static bool parse_text(const row_t *row, const char *s, uint64_t *value) {
  char *text = text_of((hak_opt_t)(row - rows));
  size_t length = 0;
  while (s[length]) length++;
  if (length >= TEXT_SIZE) return false;
  for (size_t i = 0; i <= length; i++) text[i] = s[i];
  *value = (uintptr_t)text;
  return true;
}

// Replaces the shorthand for a choice or a number by its plain form.
static const char *plain(const row_t *row, const char *s) {
  if (hak_is(s, "off", 0) || hak_is(s, "no", 0)) return "0";
  bool yes = hak_is(s, "on", 0) || hak_is(s, "yes", 0);
  if (yes && row->kind != SIZE) return "1"; // a size of one byte is not what was meant
  return row->kind == RATE && s[0] == '1' && s[1] == '/' && s[2] != '0' ? s + 2 : s;
}

static bool parse(const row_t *row, const char *s, uint64_t *value) {
  uint64_t v = 0;
  if (row->kind == TEXT) return parse_text(row, s, value);
  s = plain(row, s);
  if (row->words ? !parse_word(row->words, s, &v)
                 : !parse_number(s, &v) || v < row->min || v > row->max)
    return false;
  *value = v;
  return true;
}

void hak_options_init(void) {
  char **environment = hak_os_environ();
  for (char **e = environment; e && *e; e++) {
    const char *name = hak_skip(*e, prefix);
    for (unsigned i = 0; name && i < HAK_OPTS; i++) {
      if (!hak_is(name, rows[i].name, '=') || variable[i]) continue;
      const char *value = variable[i] = name;
      while (*value != '=') value++;
      // An empty value counts as unset.
      if (value[1] && parse(&rows[i], value + 1, &hak_option_values[i])) given[i] = true;
    }
  }
  uint64_t mode = hak_option(MODE);
  for (unsigned i = 0; i < HAK_OPTS; i++)
    if (!given[i]) hak_option_values[i] = i == HAK_OPT_MODE ? mode : rows[i].preset[mode];
}

// Levenshtein distance of two names of at most 31 characters.
static unsigned distance(const char *a, unsigned a_length, const char *b) {
  unsigned row[33], b_length = 0;
  while (b[b_length]) b_length++;
  if (a_length > 31 || b_length > 31) return 99;
  for (unsigned j = 0; j <= b_length; j++) row[j] = j;
  for (unsigned i = 1; i <= a_length; i++) {
    unsigned diagonal = row[0];
    row[0] = i;
    for (unsigned j = 1; j <= b_length; j++) {
      unsigned best = diagonal + (a[i - 1] != b[j - 1]);
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[b_length];
}

static void warn_unknown(const char *name) {
  char text[40];
  unsigned length = 0;
  while (name[length] && name[length] != '=' && length < sizeof text - 1)
    text[length] = name[length], length++;
  text[length] = 0;
  unsigned best = 99, nearest = 0;
  for (unsigned i = 0; i < HAK_OPTS; i++) {
    unsigned d = distance(text, length, rows[i].name);
    if (d < best) best = d, nearest = i;
  }
  if (best <= 4 && 2 * best < length)
    hak_warning("unknown option %s%s, did you mean %s%s?", prefix, text, prefix,
                rows[nearest].name);
  else hak_warning("unknown option %s%s (HAKMEM_OPTIONS=help lists all)", prefix, text);
}

static void warn_value(const row_t *row, const char *value) {
  static const char *const forms[] = {
      [BOOL] = "0, 1, off, on, no, yes",
      [COUNT] = "suffixes: K, M, G, T",
      [RATE] = "suffixes: K, M, G, T; or 1/N",
      [SIZE] = "suffixes: K, M, G, T",
  };
  uint64_t ignored;
  if (row->kind == TEXT) hak_warning("%s%s is too long; ignored", prefix, row->name);
  else if (row->words)
    hak_warning("%s%s=%s is not one of %s; ignored", prefix, row->name, value, row->words);
  else if (parse_number(plain(row, value), &ignored))
    hak_warning("%s%s=%s is not in %u..%u; ignored", prefix, row->name, value, row->min, row->max);
  else
    hak_warning("%s%s=%s is no number (%s); ignored", prefix, row->name, value, forms[row->kind]);
}

static void check_entry(const char *name) {
  for (unsigned i = 0; i < HAK_OPTS; i++) {
    if (!hak_is(name, rows[i].name, '=')) continue;
    uint64_t ignored;
    if (name != variable[i]) return;
    while (*name != '=') name++;
    if (name[1] && !parse(&rows[i], name + 1, &ignored)) warn_value(&rows[i], name + 1);
    return;
  }
  warn_unknown(name);
}

static void print_value(hak_print_t *out, const row_t *row, uint64_t value) {
  if (row->kind == TEXT) {
    hak_print(out, "%s", value ? (const char *)(uintptr_t)value : "-");
  } else if (row->kind == CHOICE) {
    const char *w = row->words;
    for (; value > 0; w++) value -= *w == '|';
    for (; *w && *w != '|'; w++) hak_print(out, "%c", *w);
  } else {
    hak_print(out, "%u", value);
  }
}

static void print_help(void) {
  hak_print_t out = {.fd = hak_message_fd};
  hak_print(&out, "hakmem: environment variables (value now, where from, default, range)\n");
  for (unsigned i = 0; i < HAK_OPTS; i++) {
    const row_t *row = &rows[i];
    hak_print(&out, "  %s%s = ", prefix, row->name);
    print_value(&out, row, hak_option_values[i]);
    hak_print(&out, " (%s", given[i] ? "environment" : "default");
    if (row->kind != TEXT) {
      hak_print(&out, ", default ");
      print_value(&out, row, row->preset[hak_option(MODE)]);
    }
    if (row->words) hak_print(&out, ", %s", row->words);
    else if (row->kind != TEXT) hak_print(&out, ", %u..%u", row->min, row->max);
    hak_print(&out, ")\n      %s\n", row->help);
  }
  hak_print_flush(&out);
}

void hak_options_report(void) {
  for (char **e = hak_os_environ(); e && *e; e++) {
    const char *name = hak_skip(*e, prefix);
    if (name) check_entry(name);
  }
  const char *request = hak_option_text(OPTIONS);
  if (!request) return;
  if (hak_is(request, "help", 0)) print_help();
  else hak_warning("%sOPTIONS=%s is not help; ignored", prefix, request);
}
