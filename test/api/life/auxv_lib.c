// auxv_lib.c: to preload: a getauxval that allocates, as a tracer's may.

#include <stdlib.h>

unsigned long getauxval(unsigned long type);
unsigned long getauxval(unsigned long type) {
  free(malloc(10));
  (void)type;
  return 0;
}
