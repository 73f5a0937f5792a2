// first.h: the first blocks of a process. While only its first thread allocates, what that asks
// for of up to HAK_FIRST_MAX bytes, HAKMEM_FIRST times, is cut one after the other from memory
// between two guard pages, never to be used again, each with a word behind it that an overflow
// breaks. What every block costs in other allocators is paid by these alone: overflow, underflow,
// double frees, at any time, and writes to what was freed are found, at the free or at the exit.
// And a small program needs no slab for each of its sizes. docs/decisions/0041-first-blocks.md.
//
//   | usable bytes, 8 less than whole 16s | word | next block ...
//
// Protocol S2. Blocks are handed out by one thread and freed by any. Not in the secure library.
// Tests: test/unit/test_first.c, test/abort, test/misuse.

#ifndef HAK_THREAD_FIRST_H
#define HAK_THREAD_FIRST_H

#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"

#define HAK_FIRST_MAX ((size_t)4096)        // bytes of such a block, at most
#define HAK_FIRST_MEMORY ((size_t)32 << 10) // of all of them

HAK_INTERNAL extern _Atomic bool hak_first_is_open;
// Where the memory is; before that where no pointer of a process leads. Relaxed: set before the
// first block is handed out.
#define HAK_FIRST_NOWHERE ((uintptr_t)1 << 63)
HAK_INTERNAL extern _Atomic uintptr_t hak_first_base;

// Bytes of a block for size bytes.
HAK_INLINE size_t hak_first_usable(size_t size) {
  return hak_align_up(size + sizeof(uint64_t), HAK_MIN_BLOCK) - sizeof(uint64_t);
}
// Whether hak_first_alloc is worth a call. Relaxed: nothing else is read by it.
HAK_INLINE bool hak_first_open(void) {
  return !HAK_SECURE && HAK_UNLIKELY(hak_load_relaxed(&hak_first_is_open));
}
// A block of zeros, aligned to 16, or NULL: another way must be taken.
HAK_NOINLINE void *hak_first_alloc(size_t size);

HAK_INLINE bool hak_first_owns(const void *p) {
  return !HAK_SECURE && (uintptr_t)p - hak_load_relaxed(&hak_first_base) < HAK_FIRST_MEMORY;
}
// Of such an address: whether a live block starts there, whole, and its usable bytes. Else reported.
bool hak_first_find(const void *p, const char *function, size_t *size);
HAK_NOINLINE void hak_first_free(void *p, const char *function);
// By the first thread, as the last thing: reports one that was written to where nobody may.
HAK_COLD void hak_first_audit(void);
// Whether another thread is the first one.
bool hak_first_elsewhere(void);
// Of such an address: whether it lies in a live block.
bool hak_first_is_live(const void *p);

// Relaxed, figures only: blocks handed out, of them live, usable bytes of those.
typedef struct {
  hak_word_t allocs, live, bytes;
} hak_first_counts_t;
HAK_INTERNAL extern hak_first_counts_t hak_first_counts;

#endif
