// print.h: formatted output without malloc, locale or stdio.

#ifndef HAK_CORE_PRINT_H
#define HAK_CORE_PRINT_H

#include "core/options.h"

// Collects text and writes it to fd in few system calls (one if it fits); nothing
// more after a write that failed, so that the text has an end but no holes. Lives
// on the caller's stack; not shared between threads.
typedef struct {
  int fd;
  bool failed;
  uint32_t used;
  char text[500];
} hak_print_t;

// Understands %s, %c (int), %u and %x (uint64_t), %p, %% and a field width
// (`%8u`, left-aligned `%-8s`). A %u argument has 64 bits: a uint64_t or size_t.
void hak_print(hak_print_t *out, const char *format, ...);
void hak_print_flush(hak_print_t *out);
// Writes the digits of value and a NUL so that they end at end; returns their start.
const char *hak_print_number(char *end, uint64_t value, unsigned base);

// Remembers the file that stderr is at the start of the process.
void hak_print_init(void);
// Where messages go: 2. Or -1, nowhere, if stderr was closed at the start, because 2 is then the
// number of the first file that the program opens.
HAK_INTERNAL extern int hak_message_fd;
// Whether fd is the file that stderr was at the start.
bool hak_is_first_stderr(int fd);

// "hakmem: ..." and a newline to stderr in one write.
HAK_COLD void hak_message(const char *format, ...);
// The same unless HAKMEM_QUIET=1.
#define hak_warning(...) (hak_option(QUIET) ? (void)0 : hak_message(__VA_ARGS__))

// The part of text after prefix; NULL if text does not begin with prefix.
HAK_INLINE const char *hak_skip(const char *text, const char *prefix) {
  while (*prefix && *text == *prefix) text++, prefix++;
  return *prefix ? NULL : text;
}
// Whether text is the word, followed by end.
HAK_INLINE bool hak_is(const char *text, const char *word, char end) {
  const char *rest = hak_skip(text, word);
  return rest && *rest == end;
}

#endif
