// bignum.h: non-negative integers of any size for cfrac_like. Every result is a new
// block of a few bytes, which the caller frees.

#ifndef HAKMEM_BENCH_BIGNUM_H
#define HAKMEM_BENCH_BIGNUM_H

#include "standard.h"

typedef struct num {
  uint32_t count;   // limbs in use; the highest is not zero, and zero has none
  uint32_t limbs[]; // the lowest first
} num_t;

static uint64_t num_ops; // calls of malloc and free

static num_t *num_new(uint32_t limbs) {
  num_t *n = bench_alloc(NULL, sizeof *n + (limbs != 0 ? limbs : 1) * sizeof n->limbs[0]);
  num_ops++;
  n->count = limbs;
  return n;
}

static void num_free(num_t *n) {
  free(n);
  num_ops++;
}

// Puts `with` in place of *n.
static void num_replace(num_t **n, num_t *with) {
  num_free(*n);
  *n = with;
}

static num_t *num_trim(num_t *n) {
  while (n->count != 0 && n->limbs[n->count - 1] == 0) n->count--;
  return n;
}

static num_t *num_from(uint64_t value) {
  num_t *n = num_new(2);
  n->limbs[0] = (uint32_t)value;
  n->limbs[1] = (uint32_t)(value >> 32);
  return num_trim(n);
}

static num_t *num_copy(const num_t *a) {
  num_t *n = num_new(a->count);
  memcpy(n->limbs, a->limbs, a->count * sizeof a->limbs[0]);
  return n;
}

static bool num_is(const num_t *a, uint32_t value) {
  return value == 0 ? a->count == 0 : a->count == 1 && a->limbs[0] == value;
}

static int num_compare(const num_t *a, const num_t *b) {
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  for (uint32_t i = a->count; i-- > 0;)
    if (a->limbs[i] != b->limbs[i]) return a->limbs[i] < b->limbs[i] ? -1 : 1;
  return 0;
}

static num_t *num_add(const num_t *a, const num_t *b) {
  if (a->count < b->count) return num_add(b, a);
  num_t *n = num_new(a->count + 1);
  uint64_t carry = 0;
  for (uint32_t i = 0; i < a->count; i++) {
    carry += (uint64_t)a->limbs[i] + (i < b->count ? b->limbs[i] : 0);
    n->limbs[i] = (uint32_t)carry;
    carry >>= 32;
  }
  n->limbs[a->count] = (uint32_t)carry;
  return num_trim(n);
}

// a - b; b must not be larger than a.
static num_t *num_subtract(const num_t *a, const num_t *b) {
  num_t *n = num_new(a->count);
  int64_t borrow = 0;
  for (uint32_t i = 0; i < a->count; i++) {
    borrow += (int64_t)a->limbs[i] - (i < b->count ? b->limbs[i] : 0);
    n->limbs[i] = (uint32_t)borrow;
    borrow >>= 32;
  }
  if (borrow != 0) bench_wrong("a negative difference");
  return num_trim(n);
}

static num_t *num_multiply(const num_t *a, const num_t *b) {
  num_t *n = num_new(a->count + b->count);
  memset(n->limbs, 0, n->count * sizeof n->limbs[0]);
  for (uint32_t i = 0; i < a->count; i++) {
    uint64_t carry = 0;
    for (uint32_t k = 0; k < b->count; k++) {
      carry += (uint64_t)a->limbs[i] * b->limbs[k] + n->limbs[i + k];
      n->limbs[i + k] = (uint32_t)carry;
      carry >>= 32;
    }
    n->limbs[i + b->count] = (uint32_t)carry;
  }
  return num_trim(n);
}

static num_t *num_divide_small(const num_t *a, uint32_t by, uint32_t *rest) {
  num_t *n = num_new(a->count);
  uint64_t r = 0;
  for (uint32_t i = a->count; i-- > 0;) {
    r = r << 32 | a->limbs[i];
    n->limbs[i] = (uint32_t)(r / by);
    r %= by;
  }
  *rest = (uint32_t)r;
  return num_trim(n);
}

static num_t *num_shift_left(const num_t *a, unsigned bits) { // bits < 32
  num_t *n = num_new(a->count + 1);
  uint64_t carry = 0;
  for (uint32_t i = 0; i < a->count; i++) {
    carry |= (uint64_t)a->limbs[i] << bits;
    n->limbs[i] = (uint32_t)carry;
    carry >>= 32;
  }
  n->limbs[a->count] = (uint32_t)carry;
  return n; // not trimmed, because the division needs the upper limb
}

// u -= q * v at limb `at`; if that goes below zero, adds v back. Returns the digit.
static uint32_t num_divide_step(num_t *u, const num_t *v, uint32_t at, uint64_t q) {
  const uint32_t count = v->count;
  uint64_t carry = 0;
  int64_t borrow = 0;
  for (uint32_t i = 0; i < count; i++) {
    carry += q * v->limbs[i];
    borrow += (int64_t)u->limbs[at + i] - (uint32_t)carry;
    u->limbs[at + i] = (uint32_t)borrow;
    borrow >>= 32;
    carry >>= 32;
  }
  borrow += (int64_t)u->limbs[at + count] - (int64_t)carry;
  u->limbs[at + count] = (uint32_t)borrow;
  if (borrow >= 0) return (uint32_t)q;
  carry = 0;
  for (uint32_t i = 0; i < count; i++) {
    carry += (uint64_t)u->limbs[at + i] + v->limbs[i];
    u->limbs[at + i] = (uint32_t)carry;
    carry >>= 32;
  }
  u->limbs[at + count] += (uint32_t)carry;
  return (uint32_t)q - 1;
}

// a / b by D. Knuth's algorithm D; unless `rest` is NULL, *rest is a new number as well.
static num_t *num_divide(const num_t *a, const num_t *b, num_t **rest) {
  if (b->count == 0) bench_wrong("a division by zero");
  if (num_compare(a, b) < 0) {
    if (rest != NULL) *rest = num_copy(a);
    return num_from(0);
  }
  uint32_t small;
  if (b->count == 1) {
    num_t *q = num_divide_small(a, b->limbs[0], &small);
    if (rest != NULL) *rest = num_from(small);
    return q;
  }
  unsigned bits = (unsigned)__builtin_clz(b->limbs[b->count - 1]);
  num_t *u = num_shift_left(a, bits), *v = num_trim(num_shift_left(b, bits));
  const uint32_t count = v->count;
  num_t *q = num_new(u->count - count);
  for (uint32_t at = u->count - count; at-- > 0;) {
    uint64_t top = (uint64_t)u->limbs[at + count] << 32 | u->limbs[at + count - 1];
    uint64_t digit = top / v->limbs[count - 1], r = top % v->limbs[count - 1];
    while (r <= UINT32_MAX && (digit > UINT32_MAX || digit * v->limbs[count - 2] >
                                                         (r << 32 | u->limbs[at + count - 2]))) {
      digit--;
      r += v->limbs[count - 1];
    }
    q->limbs[at] = num_divide_step(u, v, at, digit);
  }
  if (rest != NULL) {
    num_t *scaled = num_trim(num_copy(u));
    *rest = num_new(scaled->count);
    for (uint32_t i = 0; i < scaled->count; i++) {
      uint64_t upper = i + 1 < scaled->count ? scaled->limbs[i + 1] : 0;
      (*rest)->limbs[i] = (uint32_t)((upper << 32 | scaled->limbs[i]) >> bits);
    }
    num_trim(*rest);
    num_free(scaled);
  }
  num_free(u);
  num_free(v);
  return num_trim(q);
}

static num_t *num_modulo(const num_t *a, const num_t *by) {
  num_t *rest;
  num_free(num_divide(a, by, &rest));
  return rest;
}

static num_t *num_multiply_modulo(const num_t *a, const num_t *b, const num_t *by) {
  num_t *product = num_multiply(a, b), *rest = num_modulo(product, by);
  num_free(product);
  return rest;
}

static num_t *num_gcd(const num_t *a, const num_t *b) {
  num_t *x = num_copy(a), *y = num_copy(b);
  while (y->count != 0) {
    num_t *rest = num_modulo(x, y);
    num_free(x);
    x = y;
    y = rest;
  }
  num_free(y);
  return x;
}

// The largest integer whose square does not exceed a, by Newton's method from above.
static num_t *num_root(const num_t *a) {
  num_t *x = num_new(a->count / 2 + 2);
  memset(x->limbs, 0, x->count * sizeof x->limbs[0]);
  x->limbs[x->count - 1] = 1;
  for (;;) {
    num_t *quotient = num_divide(a, x, NULL), *sum = num_add(x, quotient);
    uint32_t odd;
    num_t *next = num_divide_small(sum, 2, &odd);
    num_free(quotient);
    num_free(sum);
    if (num_compare(next, x) >= 0) {
      num_free(next);
      return x;
    }
    num_replace(&x, next);
  }
}

// From decimal digits.
static num_t *num_parse(const char *digits) {
  num_t *n = num_from(0), *ten = num_from(10);
  for (; *digits != '\0'; digits++) {
    num_t *digit = num_from((uint64_t)(*digits - '0'));
    num_replace(&n, num_multiply(n, ten));
    num_replace(&n, num_add(n, digit));
    num_free(digit);
  }
  num_free(ten);
  return n;
}

#endif
