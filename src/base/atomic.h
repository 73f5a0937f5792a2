// atomic.h: atomics with the memory order in the name, so that a reader sees
// the order at the use and the pairing comment can say why.
//
// Two kinds of shared words exist:
//  - words that several threads write: hak_cas_*, hak_exchange_*, hak_fetch_*;
//  - owner words: one thread (the owner) writes, others may read a slightly
//    stale value (statistics, the owner test in free). They never order
//    anything, so they are relaxed. On x86-64 the owner's update is a single
//    read-modify-write instruction without lock prefix, which compilers do not
//    generate from a relaxed load and store; elsewhere and under TSan it is
//    that pair.

#ifndef HAK_BASE_ATOMIC_H
#define HAK_BASE_ATOMIC_H

#include <stdatomic.h>

#include "base/compiler.h"

#define hak_load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define hak_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define hak_load_seq_cst(p) atomic_load_explicit((p), memory_order_seq_cst)
#define hak_store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define hak_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define hak_store_seq_cst(p, v) atomic_store_explicit((p), (v), memory_order_seq_cst)
#define hak_cas_relaxed(p, expected, v) \
  atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_relaxed, \
                                          memory_order_relaxed)
#define hak_cas_release(p, expected, v) \
  atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_release, \
                                          memory_order_relaxed)
#define hak_cas_acquire(p, expected, v) \
  atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acquire, \
                                          memory_order_acquire)
#define hak_cas_acq_rel(p, expected, v) \
  atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acq_rel, \
                                          memory_order_acquire)
#define hak_cas_seq_cst(p, expected, v) \
  atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_seq_cst, \
                                          memory_order_seq_cst)
#define hak_exchange_relaxed(p, v) atomic_exchange_explicit((p), (v), memory_order_relaxed)
#define hak_exchange_acq_rel(p, v) atomic_exchange_explicit((p), (v), memory_order_acq_rel)
#define hak_exchange_seq_cst(p, v) atomic_exchange_explicit((p), (v), memory_order_seq_cst)
#define hak_fetch_or_relaxed(p, v) atomic_fetch_or_explicit((p), (v), memory_order_relaxed)
#define hak_fetch_or_seq_cst(p, v) atomic_fetch_or_explicit((p), (v), memory_order_seq_cst)
#define hak_fetch_add_seq_cst(p, v) atomic_fetch_add_explicit((p), (v), memory_order_seq_cst)
#define hak_fetch_sub_seq_cst(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_seq_cst)
#define hak_fetch_and_relaxed(p, v) atomic_fetch_and_explicit((p), (v), memory_order_relaxed)
#define hak_fetch_and_seq_cst(p, v) atomic_fetch_and_explicit((p), (v), memory_order_seq_cst)
#define hak_fetch_and_acq_rel(p, v) atomic_fetch_and_explicit((p), (v), memory_order_acq_rel)
#define hak_fetch_add_relaxed(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define hak_fetch_sub_relaxed(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_relaxed)
// After fork: writes only a value that differs, so that other pages stay shared with the parent.
#define hak_store_if_other(p, v) \
  ((void)(hak_load_relaxed(p) != (v) && (hak_store_relaxed(p, v), 0)))

typedef _Atomic uint64_t hak_word_t;

#if defined(__x86_64__) && !HAK_TSAN
#define HAK_OWNER_ASM 1
#else
#define HAK_OWNER_ASM 0
#endif

// word += 1 by its owner.
HAK_INLINE void hak_owner_inc(hak_word_t *word) {
#if HAK_OWNER_ASM
  __asm__("addq $1, %0" : "+m"(*(uint64_t *)(void *)word) : : "cc");
#else
  hak_store_relaxed(word, hak_load_relaxed(word) + 1);
#endif
}

// word += n by its owner (slow paths).
HAK_INLINE void hak_owner_add(hak_word_t *word, uint64_t n) {
  hak_store_relaxed(word, hak_load_relaxed(word) + n);
}

// word += 1 by its owner, for 32-bit words.
HAK_INLINE void hak_owner_inc32(_Atomic uint32_t *word) {
  hak_store_relaxed(word, hak_load_relaxed(word) + 1);
}

// word -= 1 by its owner; true if the result is negative.
HAK_INLINE bool hak_owner_dec_negative(hak_word_t *word) {
#if HAK_OWNER_ASM
  bool negative;
  __asm__("subq $1, %0" : "+m"(*(uint64_t *)(void *)word), "=@ccs"(negative));
  return negative;
#else
  uint64_t v = hak_load_relaxed(word) - 1;
  hak_store_relaxed(word, v);
  return (int64_t)v < 0;
#endif
}

// x >= *limit, with the load folded into the compare.
HAK_INLINE bool hak_not_below(uint64_t x, const hak_word_t *limit) {
#if HAK_OWNER_ASM
  bool r;
  __asm__("cmpq %1, %2" : "=@ccae"(r) : "m"(*(const uint64_t *)(const void *)limit), "r"(x));
  return r;
#else
  return x >= hak_load_relaxed(limit);
#endif
}

// *p != v for an owner pointer, with the load folded into the compare.
#if HAK_OWNER_ASM
#define hak_differs(p, v) \
  ({ \
    bool r_; \
    __asm__("cmpq %2, %1" \
            : "=@ccne"(r_) \
            : "m"(*(const uint64_t *)(const void *)(p)), "r"((uint64_t)(uintptr_t)(v))); \
    r_; \
  })
#else
#define hak_differs(p, v) (hak_load_relaxed(p) != (v))
#endif

#endif
