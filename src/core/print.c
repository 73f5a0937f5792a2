#include "core/print.h"

#include <stdarg.h>

#include "os/os.h"

int hak_message_fd = 2;
static hak_os_file_t first_stderr;

void hak_print_init(void) {
  if (!hak_os_file(2, &first_stderr)) hak_message_fd = -1;
}

bool hak_is_first_stderr(int fd) {
  hak_os_file_t file;
  return hak_message_fd >= 0 && fd >= 0 && hak_os_file(fd, &file) &&
         file.device == first_stderr.device && file.inode == first_stderr.inode;
}

static void put(hak_print_t *out, char c) {
  if (out->used == sizeof out->text) hak_print_flush(out);
  out->text[out->used++] = c;
}

void hak_print_flush(hak_print_t *out) {
  if (!out->failed) out->failed = !hak_os_write(out->fd, out->text, out->used);
  out->used = 0;
}

const char *hak_print_number(char *end, uint64_t value, unsigned base) {
  *--end = 0;
  do *--end = "0123456789abcdef"[value % base];
  while (value /= base);
  return end;
}

static void print_v(hak_print_t *out, const char *format, va_list args) {
  char digits[24];
  for (const char *f = format; *f; f++) {
    if (*f != '%') {
      put(out, *f);
      continue;
    }
    bool left = false;
    unsigned width = 0;
    if (*++f == '-') left = true, f++;
    while (*f >= '0' && *f <= '9') width = width * 10 + (unsigned)(*f++ - '0');
    const char *s = digits;
    switch (*f) {
    case 's': s = va_arg(args, const char *); break;
    case 'u': s = hak_print_number(digits + sizeof digits, va_arg(args, uint64_t), 10); break;
    case 'x': s = hak_print_number(digits + sizeof digits, va_arg(args, uint64_t), 16); break;
    case 'p':
      put(out, '0'), put(out, 'x');
      s = hak_print_number(digits + sizeof digits, (uintptr_t)va_arg(args, const void *), 16);
      break;
    case 'c': digits[0] = (char)va_arg(args, int), digits[1] = 0; break;
    default: digits[0] = *f, digits[1] = 0; break;
    }
    unsigned length = 0;
    while (s[length]) length++;
    for (unsigned i = length; !left && i < width; i++) put(out, ' ');
    while (*s) put(out, *s++);
    for (unsigned i = length; left && i < width; i++) put(out, ' ');
  }
}

void hak_print(hak_print_t *out, const char *format, ...) {
  va_list args;
  va_start(args, format);
  print_v(out, format, args);
  va_end(args);
}

void hak_message(const char *format, ...) {
  hak_print_t out = {.fd = hak_message_fd};
  va_list args;
  hak_print(&out, "hakmem: ");
  va_start(args, format);
  print_v(&out, format, args);
  va_end(args);
  hak_print(&out, "\n");
  hak_print_flush(&out);
}
