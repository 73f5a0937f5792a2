// changing.c: preloaded into a program that reads a trace. At each of its anonymous mappings
// NEW_CONTENTS is written over the file OLD_FILE, as the recorder would amid the reading.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void change(void) {
  static char text[1 << 17];
  int from = open(getenv("NEW_CONTENTS"), O_RDONLY | O_CLOEXEC);
  int to = open(getenv("OLD_FILE"), O_WRONLY | O_CLOEXEC);
  ssize_t n = read(from, text, sizeof text);
  if (n <= 0 || write(to, text, (size_t)n) != n) abort();
  close(from), close(to);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  if (flags & MAP_ANONYMOUS) change();
  return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}
