// ctor_lib.c: linked with the program; allocates before main and frees after its end.

#include "../situations.h"

const size_t sit_ctor_size[CTOR_SIZES] = {0, 1, 100, 1024, 5000, 57344, 300000, 3000000};
void *sit_ctor_block[CTOR_SIZES];

__attribute__((constructor)) static void loaded(void) {
  for (size_t i = 0; i < CTOR_SIZES; i++) {
    if (!(sit_ctor_block[i] = malloc(sit_ctor_size[i]))) _exit(67);
    memset(sit_ctor_block[i], (int)i + 1, sit_ctor_size[i]);
  }
}

// Entries that the program has taken over are NULL here.
__attribute__((destructor)) static void unloaded(void) {
  for (size_t i = 0; i < CTOR_SIZES; i++) {
    const unsigned char *p = sit_ctor_block[i];
    for (size_t j = 0; p && j < sit_ctor_size[i]; j++)
      if (p[j] != i + 1) _exit(68);
    free(sit_ctor_block[i]);
  }
}
