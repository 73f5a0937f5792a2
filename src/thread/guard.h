// guard.h: sampled guards (HAKMEM_GUARD=1/N). Of the allocations of at most an OS page that take a
// slow path anyway, one in N gets a page of its own between two pages without access rights. The
// block lies at the end of its page, every fourth at the start. The page of a freed block loses its
// access rights too and waits until all other places have been used. A fault there is reported with
// the stacks of the access, the allocation and the free; then the signal goes on.
//
// Any thread. Places are claimed by their state word. Tests: test/abort/guard.py.

#ifndef HAK_THREAD_GUARD_H
#define HAK_THREAD_GUARD_H

#include "base/atomic.h"

// The address range of all places; base 0: there are none. hak_guard_start sets the base last, with
// release, as other threads may be allocating. A thread that acquires it sees the rest.
HAK_INTERNAL extern _Atomic uintptr_t hak_guard_base;
HAK_INTERNAL extern uintptr_t hak_guard_end;

// Relaxed, figures only: blocks handed out, blocks live, bytes of the live ones.
typedef struct {
  hak_word_t allocs, live, bytes;
} hak_guard_counts_t;
HAK_INTERNAL extern hak_guard_counts_t hak_guard_counts;

// To be called once the program's start-up has gone far enough to allocate.
void hak_guard_start(void);
// Whether there are places. Relaxed: hak_guard_alloc checks again. A thread that has not yet passed
// the set-up of the process (I1) may call this, but must not read options.
HAK_INLINE bool hak_guard_is_on(void) { return hak_load_relaxed(&hak_guard_base) != 0; }
// Returns a guarded block. NULL: this allocation is not sampled, or no place is free.
HAK_COLD void *hak_guard_alloc(size_t size);
// The new block at p was asked for with fewer bytes than it was made with.
HAK_COLD void hak_guard_cut(void *p, size_t size);

HAK_INLINE bool hak_guard_owns(const void *p) {
  uintptr_t base = hak_load_acquire(&hak_guard_base);
  return base != 0 && (uintptr_t)p - base < hak_guard_end - base;
}
// For an owned address: whether it lies in the page of a live block.
bool hak_guard_is_live(const void *p);
// For an owned address: whether a live block starts there, and its size. Else reports the misuse.
HAK_COLD bool hak_guard_find(const void *p, const char *function, size_t *size);
HAK_COLD void hak_guard_free(void *p, const char *function);

#endif
