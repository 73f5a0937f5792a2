// quarantine.h: frees of the secure library. A freed block is checked, filled and held back. When
// HAK_HELD blocks or more than HAKMEM_SECURE_QUARANTINE bytes are held, the oldest block is checked
// once more and may be reused. Huge blocks are unmapped at once. Each heap has its own quarantine,
// a nursery too: that holds what the threads sharing it free.
//
// Owner of the heap only. Tests: test/abort/secure.c, test/misuse, unit.nursery.secure.

#ifndef HAK_THREAD_QUARANTINE_H
#define HAK_THREAD_QUARANTINE_H

#include "base/types.h"

#if HAK_SECURE
// Does all of free(p) / of function, which frees p.
HAK_NOINLINE void hak_quarantine_free(void *p);
HAK_NOINLINE void hak_quarantine_free_as(void *p, const char *function);
// For a new heap.
void hak_quarantine_init(hak_heap_t *heap);
// Releases all held blocks.
void hak_quarantine_flush(hak_heap_t *heap);
// Reports those that were written to.
void hak_quarantine_audit(const hak_heap_t *heap);
#else
HAK_INLINE void hak_quarantine_init(HAK_UNUSED hak_heap_t *heap) {}
HAK_INLINE void hak_quarantine_flush(HAK_UNUSED hak_heap_t *heap) {}
#endif

#endif
