#include "core/module.h"

#include "os/os.h"

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

static bool read_mapping(reader_t *r, hak_module_t *m) {
  m->from = hex(r);
  m->to = hex(r);
  int c, column = 4;
  size_t length = 0;
  // from-to permissions offset device inode      name
  while ((c = next_char(r)) >= 0 && c != ' ') {
  }
  m->offset = hex(r);
  for (bool gap = false; (c = next_char(r)) >= 0 && c != '\n';) {
    if (column < 6) {
      if (c == ' ' && !gap) column++;
      gap = c == ' ';
    }
    bool of_name = column == 6 && (c != ' ' || length != 0); // the name may contain spaces
    if (of_name && length < sizeof m->name - 1) m->name[length++] = (char)c;
  }
  m->name[length] = 0;
  return c >= 0;
}

bool hak_module_of(const void *p, hak_module_t *m) {
  reader_t r = {.fd = hak_os_open("/proc/self/maps", false)};
  hak_module_t before = {.to = 0};
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
