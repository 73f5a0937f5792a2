// guard.h: sampled guards (HAKMEM_GUARD=1/N). One in N of the allocations of at most an OS
// page that take a slow path anyway gets a page of its own between two without access
// rights: at the end of the page, every fourth at its start. A freed one loses its rights
// too and waits until all other places have been used. A fault there is reported with the
// stacks of the access, the allocation and the free, then the signal goes on.
//
// Any thread. Places are claimed by their state word. Tests: test/abort/guard.py.

#ifndef HAK_THREAD_GUARD_H
#define HAK_THREAD_GUARD_H

#include "base/atomic.h"

// Of all places, 0: none. hak_guard_start sets the base last, with release: other threads may
// be allocating. Who acquires it finds the rest.
HAK_INTERNAL extern _Atomic uintptr_t hak_guard_base;
HAK_INTERNAL extern uintptr_t hak_guard_end;

// Relaxed, figures only: blocks handed out, of them live, bytes of those.
typedef struct {
  hak_word_t allocs, live, bytes;
} hak_guard_counts_t;
HAK_INTERNAL extern hak_guard_counts_t hak_guard_counts;

// After the program's start-up has gone far enough to allocate.
void hak_guard_start(void);
// Whether there are places. Relaxed: hak_guard_alloc looks again. A thread that has not come by the
// set-up of the process yet (I1) may ask, but must not read options.
HAK_INLINE bool hak_guard_is_on(void) { return hak_load_relaxed(&hak_guard_base) != 0; }
// A block, or NULL: it is not this one's turn, or there is no place.
HAK_COLD void *hak_guard_alloc(size_t size);

HAK_INLINE bool hak_guard_owns(const void *p) {
  uintptr_t base = hak_load_acquire(&hak_guard_base);
  return base != 0 && (uintptr_t)p - base < hak_guard_end - base;
}
// Of such an address: whether it lies in the page of a live block.
bool hak_guard_is_live(const void *p);
// Of such an address: whether a live block starts there, and its size. Else reported.
HAK_COLD bool hak_guard_find(const void *p, const char *function, size_t *size);
HAK_COLD void hak_guard_free(void *p, const char *function);

#endif
