// preinit.c: a program that calls malloc before any constructor runs and before the C library
// is set up.

#include "../testing.h"

static void *early;
static void preinit(int argc, char **argv, char **environment) {
  (void)argc, (void)argv, (void)environment;
  early = malloc(100);
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) =
    preinit;

int main(void) {
  CHECK(early);
  free(early);
  return 0;
}
