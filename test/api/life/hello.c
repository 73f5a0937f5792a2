// hello.c: the smallest ordinary program. With an argument it says its highest
// resident memory (KiB) instead of greeting twice.

#include "../testing.h"

int main(int argc, char **argv) {
  (void)argv;
  printf("hello, world\n");
  fflush(stdout);
  char *p = strdup("a block of its own");
  CHECK(p && strlen(p) == 18);
  free(p);
  if (argc > 1) printf("%zu\n", status_kib("VmHWM:"));
  return 0;
}
