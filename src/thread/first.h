// first.h: the first blocks of a process. While only its first thread allocates, blocks for those
// of its first HAKMEM_FIRST requests that ask for up to HAK_FIRST_MAX bytes are cut one after the
// other from memory between two guard pages. No block is used again. Behind each is a word that an
// overflow breaks. Only these blocks pay what every block costs in other allocators: overflow,
// underflow, double frees at any time and writes to freed blocks are found, at the free or at exit.
// A small program also needs no slab for each of its sizes. docs/decisions/0041-first-blocks.md.
//
//   | usable bytes, a multiple of 16 less 8 | word | next block ...
//
// Protocol S2. Blocks are handed out by one thread and freed by any. Not in the secure library.
// Tests: test/unit/test_first.c, test/abort, test/misuse.

#ifndef HAK_THREAD_FIRST_H
#define HAK_THREAD_FIRST_H

#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"

#define HAK_FIRST_MAX ((size_t)4096)        // bytes of a first block, at most
#define HAK_FIRST_MEMORY ((size_t)32 << 10) // bytes of all of them

HAK_INTERNAL extern _Atomic bool hak_first_is_open;
// Address of the memory; until it is mapped, an address that no pointer of a process has. Relaxed:
// set before the first block is handed out.
#define HAK_FIRST_NOWHERE ((uintptr_t)1 << 63)
HAK_INTERNAL extern _Atomic uintptr_t hak_first_base;

// Usable bytes of a block for a request of size bytes.
HAK_INLINE size_t hak_first_usable(size_t size) {
  return hak_align_up(size + sizeof(uint64_t), HAK_MIN_BLOCK) - sizeof(uint64_t);
}
// Whether hak_first_alloc is worth a call. Relaxed: it guards no other data.
HAK_INLINE bool hak_first_open(void) {
  return !HAK_SECURE && HAK_UNLIKELY(hak_load_relaxed(&hak_first_is_open));
}
// Returns a block of zeros, aligned to 16. NULL: the caller must allocate in another way.
HAK_NOINLINE void *hak_first_alloc(size_t size);

HAK_INLINE bool hak_first_owns(const void *p) {
  return !HAK_SECURE && (uintptr_t)p - hak_load_relaxed(&hak_first_base) < HAK_FIRST_MEMORY;
}
// For an owned address: whether a live, intact block starts there; its usable bytes. Else reports.
bool hak_first_find(const void *p, const char *function, size_t *size);
HAK_NOINLINE void hak_first_free(void *p, const char *function);
// Called by the first thread as the last thing: reports blocks written to where nobody may write.
HAK_COLD void hak_first_audit(void);
// Whether a thread other than the caller is the first thread.
bool hak_first_elsewhere(void);
// For an owned address: whether it lies in a live block.
bool hak_first_is_live(const void *p);

// Live blocks, usable bytes of those. bytes: relaxed, a figure only; live: S2.
typedef struct {
  hak_word_t live, bytes;
} hak_first_counts_t;
HAK_INTERNAL extern hak_first_counts_t hak_first_counts;

#endif
