// bits.h: arithmetic on words, addresses and bit masks.

#ifndef HAK_BASE_BITS_H
#define HAK_BASE_BITS_H

#include "base/compiler.h"

HAK_INLINE bool hak_is_pow2(size_t x) { return x != 0 && (x & (x - 1)) == 0; }

HAK_INLINE size_t hak_min(size_t a, size_t b) { return a < b ? a : b; }
HAK_INLINE size_t hak_max(size_t a, size_t b) { return a > b ? a : b; }

// Alignment must be a power of two; the caller rules out overflow.
HAK_INLINE size_t hak_align_up(size_t x, size_t alignment) {
  return (x + alignment - 1) & ~(alignment - 1);
}
HAK_INLINE size_t hak_align_down(size_t x, size_t alignment) { return x & ~(alignment - 1); }

// Number of the lowest and highest set bit; x != 0.
HAK_INLINE unsigned hak_low_bit(uint64_t x) { return (unsigned)__builtin_ctzll(x); }
HAK_INLINE unsigned hak_high_bit(uint64_t x) { return 63u ^ (unsigned)__builtin_clzll(x); }

HAK_INLINE uint64_t hak_rotate_right(uint64_t x, unsigned n) { return (x >> n) | (x << (64 - n)); }

// Positions at which n (1..32) neighbouring bits of mask are set: bit i of the
// result is set if bits i .. i+n-1 of mask are.
HAK_INLINE uint32_t hak_runs_of(uint32_t mask, unsigned n) {
  unsigned have = 1;
  while (have < n) {
    unsigned step = have < n - have ? have : n - have;
    mask &= mask >> step;
    have += step;
  }
  return mask;
}

// Number of set bits of mask. Spelt out: without a popcount instruction compilers call a function.
HAK_INLINE unsigned hak_count_bits(uint32_t mask) {
  mask -= mask >> 1 & 0x55555555u;
  mask = (mask & 0x33333333u) + (mask >> 2 & 0x33333333u);
  return ((mask + (mask >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

HAK_INLINE unsigned hak_count_bits64(uint64_t mask) {
  return hak_count_bits((uint32_t)mask) + hak_count_bits((uint32_t)(mask >> 32));
}

// The lowest run of ones in mask, which is neither 0 nor full: *n ones from bit *first on.
HAK_INLINE uint64_t hak_low_run(uint64_t mask, unsigned *first, unsigned *n) {
  *first = hak_low_bit(mask);
  *n = hak_low_bit(~(mask >> *first));
  return (((uint64_t)1 << *n) - 1) << *first;
}

// n (1..32) ones from bit position on.
HAK_INLINE uint32_t hak_ones(unsigned position, unsigned n) {
  return (uint32_t)(((UINT64_C(1) << n) - 1) << position);
}

#endif
