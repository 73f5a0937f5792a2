// probe: prints which shared object really serves malloc in this process, and
// exercises it from two threads. peers.py and compare.py run it under
// LD_PRELOAD, so that no figure is ever measured under the wrong allocator.
//
// Output: one line "FUNCTION OBJECT" per function. Exit 0: works; 1: it does not.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 2000, MAX_SIZE = 100000 };

static void *churn(void *seed) {
  static _Thread_local char *blocks[BLOCKS];
  uint32_t state = (uint32_t)(uintptr_t)seed;
  for (int i = 0; i < 20 * BLOCKS; i++) {
    state = state * 1664525u + 1013904223u;
    char **slot = &blocks[(state >> 8) % BLOCKS];
    size_t size = (state >> 4) % (i % 16 == 0 ? MAX_SIZE : 512) + 1;
    free(*slot);
    *slot = i % 3 == 0 ? calloc(1, size) : malloc(size);
    // Smaller blocks cannot hold an object that needs 16 bytes of alignment.
    uintptr_t mask = size >= 16 ? 15 : 7;
    if (*slot == NULL || ((uintptr_t)*slot & mask) != 0) return "malloc failed or misaligned";
    if (i % 3 == 0 && ((*slot)[0] != 0 || (*slot)[size - 1] != 0)) return "calloc did not zero";
    if (i % 7 == 0) *slot = realloc(*slot, size * 2);
    if (*slot == NULL) return "realloc failed";
    memset(*slot, 0x5a, size);
  }
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
  return NULL;
}

int main(void) {
  static const char *const names[] = {"malloc", "free", "calloc", "realloc", "aligned_alloc"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, names[i]);
    if (address == NULL || dladdr(address, &info) == 0) {
      fprintf(stderr, "probe: cannot tell who serves %s\n", names[i]);
      return 1;
    }
    printf("%s %s\n", names[i], info.dli_fname);
  }
  pthread_t other;
  if (pthread_create(&other, NULL, churn, (void *)(uintptr_t)1) != 0) return 1;
  const char *mine = churn((void *)(uintptr_t)2);
  void *theirs = NULL;
  pthread_join(other, &theirs);
  const char *failure = mine != NULL ? mine : theirs;
  if (failure != NULL) fprintf(stderr, "probe: %s\n", failure);
  return failure != NULL;
}
