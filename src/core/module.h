// module.h: which file or kind of memory an address belongs to, for messages. Reads
// /proc/self/maps with system calls only; usable by any thread, also in a signal handler.
// Tests: test/abort.

#ifndef HAK_CORE_MODULE_H
#define HAK_CORE_MODULE_H

#include "base/compiler.h"

typedef struct {
  uintptr_t from, to, offset; // bounds of the mapping; file offset of its first byte
  char name[256];             // "" if it has none
} hak_module_t;

// Finds the mapping that holds p. Memory of a module without file contents (.bss) has no
// name of its own, but directly follows the module's data. False: not mapped. If it cannot
// be known (no /proc), the result is true and m->to is 0.
bool hak_module_of(const void *p, hak_module_t *m);

#endif
