// hello.c: the smallest ordinary program. With an argument it also writes what the kernel says of
// its mappings (/proc/self/smaps) when it is done.

#include "../testing.h"

static void write_smaps(void) {
  char text[4096];
  int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  ssize_t n;
  while ((n = read(fd, text, sizeof text)) > 0) CHECK(write(1, text, (size_t)n) == n);
  close(fd);
}

int main(int argc, char **argv) {
  (void)argv;
  printf("hello, world\n");
  fflush(stdout);
  char *p = strdup("a block of its own");
  CHECK(p && strlen(p) == 18);
  free(p);
  if (argc > 1) write_smaps();
  return 0;
}
