// process.h: what is done once per process: initialisation in the right order, fork handlers.

#ifndef HAK_THREAD_PROCESS_H
#define HAK_THREAD_PROCESS_H

#include "base/atomic.h"

HAK_INTERNAL extern _Atomic uint32_t hak_process_state; // 2: initialised
void hak_process_init_slow(void);
// Fits the reserved memory to the limit of address space, or to one that is about to be set. Not in
// a child of vfork: its limits are not those of the process that owns the memory.
void hak_process_fit(size_t limit);

// Starts the helper thread (HAKMEM_BACKGROUND). Not from inside an allocation: starting a thread
// allocates. So not in the child of a fork either, whose parent may have called fork in a signal
// handler that interrupted an allocation.
void hak_background_start(void);

// Initialises options, OS and registry, before the first block. Safe at any time, from any thread,
// as early as the dynamic linker's own first malloc.
HAK_INLINE void hak_process_init(void) {
  // Acquire: pairs with the release that sets 2: what was set up is visible.
  if (HAK_UNLIKELY(hak_load_acquire(&hak_process_state) != 2)) hak_process_init_slow();
}

#endif
