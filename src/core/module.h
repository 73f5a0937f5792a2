// module.h: which file or kind of memory an address belongs to, for messages. Reads
// /proc/self/maps with system calls only; any thread, also in a signal handler.
// Tests: test/abort.

#ifndef HAK_CORE_MODULE_H
#define HAK_CORE_MODULE_H

#include "base/compiler.h"

typedef struct {
  uintptr_t from, to, offset; // of the mapping; offset of its first byte in the file
  char name[256];             // "" if it has none
} hak_module_t;

// The mapping that holds p. What a module has no file contents for (.bss) has no name
// of its own, but follows the module's data at once. False: not mapped. Where it
// cannot be known (no /proc) true, and to is 0.
bool hak_module_of(const void *p, hak_module_t *m);

#endif
