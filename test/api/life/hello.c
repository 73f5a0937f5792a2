// hello.c: the smallest ordinary program. With an argument it also says how much memory is
// resident (KiB) when it is done.

#include "../testing.h"

int main(int argc, char **argv) {
  (void)argv;
  printf("hello, world\n");
  fflush(stdout);
  char *p = strdup("a block of its own");
  CHECK(p && strlen(p) == 18);
  free(p);
  if (argc > 1) printf("%zu\n", rss_exact_kib());
  return 0;
}
