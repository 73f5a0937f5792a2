// quarantine.h: frees of the secure library. A freed block is checked, filled and held
// back; when HAK_HELD are held, or the held ones are more than
// HAKMEM_SECURE_QUARANTINE bytes, the oldest is checked once more and may be used
// again. Huge blocks are unmapped at once. Each heap has its quarantine, a nursery too: it
// holds what the threads that share it free.
//
// Owner of the heap only. Tests: test/abort/secure.c, test/misuse, unit.nursery.secure.

#ifndef HAK_THREAD_QUARANTINE_H
#define HAK_THREAD_QUARANTINE_H

#include "base/types.h"

#if HAK_SECURE
// The whole of free(p).
HAK_NOINLINE void hak_quarantine_free(void *p, const char *function);
// Lets all held blocks go.
void hak_quarantine_flush(hak_heap_t *heap);
#else
HAK_INLINE void hak_quarantine_flush(HAK_UNUSED hak_heap_t *heap) {}
#endif

#endif
