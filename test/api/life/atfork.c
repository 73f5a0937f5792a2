// atfork.c: counts the fork handlers registered before any constructor runs. Handlers run in
// the order of registration, and those of other libraries may allocate.

#include "../testing.h"

static unsigned registered, early;

// Replaces the C library's function, which pthread_atfork calls.
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object);
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object) {
  (void)prepare, (void)parent, (void)object;
  registered += child != NULL;
  return 0;
}

static void preinit(int argc, char **argv, char **environment) {
  (void)argc, (void)argv, (void)environment;
  free(malloc(100));
  early = registered;
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) =
    preinit;

int main(void) {
  printf("%u of %u\n", early, registered);
  return 0;
}
