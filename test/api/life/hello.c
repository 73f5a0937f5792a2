// hello.c: the smallest ordinary program. "smaps": at its end it also prints the kernel's view of
// its mappings. "close": it closes stderr before it ends, as coreutils do. "close-all": it also
// opens a file of its own (argv[2]) under the number of every other open descriptor from 3 on.
// "own": descriptor 2 becomes a file of its own, whether or not stderr is open, in which only what
// it writes itself should be; "own-bad": it also frees a pointer inside a block.

#include "../testing.h"

static void write_smaps(void) {
  char text[4096];
  int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  ssize_t n;
  while ((n = read(fd, text, sizeof text)) > 0) CHECK(write(1, text, (size_t)n) == n);
  close(fd);
}

static void close_all(const char *path) {
  close(2);
  for (int fd = 3; fd < 1000; fd++) {
    if (close(fd) != 0) continue;
    int file = open(path, O_WRONLY | O_CREAT, 0666);
    CHECK(file >= 0 && (file == fd || dup2(file, fd) == fd));
    if (file != fd) close(file);
  }
  close(2);
}

static void use_own(const char *path, bool bad) {
  close(2);
  CHECK(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) == 2);
  if (bad) {
    char *volatile p = malloc(100);
    free(p + 8);
    free(p);
  }
  CHECK(write(2, "data", 4) == 4);
}

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "";
  printf("hello, world\n");
  fflush(stdout);
  char *p = strdup("a block of its own");
  CHECK(p && strlen(p) == 18);
  free(p);
  if (strcmp(how, "smaps") == 0) write_smaps();
  if (strcmp(how, "close") == 0) close(2);
  if (strcmp(how, "close-all") == 0) close_all(argv[2]);
  if (strncmp(how, "own", 3) == 0) use_own(argv[2], strcmp(how, "own-bad") == 0);
  return 0;
}
