#include "core/misuse.h"

#include "core/options.h"
#include "core/print.h"
#include "os/os.h"

static void finish(void) {
  if (hak_option(ABORT)) hak_os_abort();
}

void hak_misuse_double_free(const char *function, const void *p, size_t block_size) {
  hak_message("%s(%p): double free of a %u-byte block", function, p, (uint64_t)block_size);
  finish();
}

void hak_misuse_misaligned(const char *function, const void *p) {
  hak_message("%s(%p): misaligned pointer", function, p);
  finish();
}

void hak_misuse_interior(const char *function, const void *p, const void *block,
                         size_t block_size) {
  hak_message("%s(%p): not the start of a block; it lies %u bytes inside the %u-byte block at %p",
              function, p, (uint64_t)((uintptr_t)p - (uintptr_t)block), (uint64_t)block_size,
              block);
  finish();
}

void hak_misuse_size(const char *function, const void *p, size_t size, size_t block_size) {
  hak_message("%s(%p): size %u does not belong to a %u-byte block", function, p, (uint64_t)size,
              (uint64_t)block_size);
  finish();
}

void hak_misuse_no_seal(const char *function, const void *p, size_t block_size) {
  hak_message("%s(%p): the end of the block of up to %u bytes was overwritten, or it was never "
              "allocated",
              function, p, (uint64_t)block_size);
  finish();
}

void hak_misuse_overflow(const char *function, const void *p, size_t block_size) {
  hak_message("%s(%p): overflow: what follows the %u-byte block was overwritten", function, p,
              (uint64_t)block_size);
  finish();
}

void hak_misuse_written(const void *p, size_t block_size) {
  if (block_size)
    hak_message("use after free: the %u-byte block at %p was written to", (uint64_t)block_size, p);
  else hak_message("use after free: the link of the free block at %p was overwritten", p);
  finish();
}

// Reads one line of /proc/self/maps at a time through a small buffer.
typedef struct {
  int fd;
  long used, at;
  char buffer[512];
} reader_t;

static int next_char(reader_t *r) {
  if (r->at == r->used) {
    r->used = hak_os_read(r->fd, r->buffer, sizeof r->buffer);
    r->at = 0;
    if (r->used <= 0) return r->used = 0, -1;
  }
  return (unsigned char)r->buffer[r->at++];
}

static uintptr_t hex(reader_t *r) {
  uintptr_t v = 0;
  for (int c; (c = next_char(r)) >= 0;) {
    if (c >= '0' && c <= '9') v = v * 16 + (uintptr_t)(c - '0');
    else if (c >= 'a' && c <= 'f') v = v * 16 + (uintptr_t)(c - 'a') + 10;
    else break;
  }
  return v;
}

// One line of /proc/self/maps.
typedef struct {
  uintptr_t from, to;
  char name[256]; // "" if it has none
} mapping_t;

static bool read_mapping(reader_t *r, mapping_t *m) {
  m->from = hex(r);
  m->to = hex(r);
  int c, column = 2;
  size_t length = 0;
  // from-to permissions offset device inode      name
  for (bool gap = false; (c = next_char(r)) >= 0 && c != '\n';) {
    if (column < 6) {
      if (c == ' ' && !gap) column++;
      gap = c == ' ';
    }
    if (column == 6 && c != ' ' && length < sizeof m->name - 1) m->name[length++] = (char)c;
  }
  m->name[length] = 0;
  return c >= 0;
}

// The mapping that holds p. What a module has no file contents for (.bss) has no name
// of its own, but follows the module's data at once. False: not mapped.
static bool mapping_of(const void *p, mapping_t *m) {
  reader_t r = {.fd = hak_os_open_read("/proc/self/maps")};
  mapping_t before = {.to = 0};
  bool found = false;
  *m = before;
  if (r.fd < 0) return true;
  while (!found && read_mapping(&r, m)) {
    found = m->from <= (uintptr_t)p && (uintptr_t)p < m->to;
    if (found && m->name[0] == 0 && m->from == before.to && before.name[0] == '/') *m = before;
    before = *m;
  }
  hak_os_close(r.fd);
  return found;
}

void hak_misuse_foreign(const char *function, const void *p) {
  mapping_t m;
  if (!mapping_of(p, &m))
    hak_message("%s(%p): not allocated by hakmem: the address is not mapped", function, p);
  else
    hak_message("%s(%p): not allocated by hakmem: the address belongs to %s", function, p,
                m.name[0] ? m.name : "an anonymous mapping");
  finish();
}

#if HAK_CHECKS >= 2
_Noreturn void hak_assert_failed(const char *what, const char *file, int line) {
  hak_message("internal error: %s does not hold (%s:%u)", what, file, (uint64_t)line);
  hak_os_abort();
}
#endif
