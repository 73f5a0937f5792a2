// inner.c: a library that lies in a folder which only another one searches for libraries.

#include <stdlib.h>

void *inner_block(size_t n);
void *inner_block(size_t n) { return malloc(n); }
