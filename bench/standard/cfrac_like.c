// cfrac_like: the factors of a number by continued fractions (M. Morrison and
// J. Brillhart, 1975), the load of the program cfrac in B. Zorn's and many later
// allocator studies.
//
// For the convergents A/B of the continued fraction of the square root of N, each A * A is
// congruent modulo N to a small signed number Q. Those Q that have only small prime factors
// are collected until the product of some of them is a square. That gives two squares that
// are congruent modulo N and, with luck, a factor. Every result of the arithmetic is a
// block of 8 to 40 bytes that lives for some nanoseconds. The factors are verified.

#include "bignum.h"

enum { DIGITS, TIMES, PRIMES };
enum { PRIMES_MOST = 512, DIGITS_MIN = 16, DIGITS_MAX = 36, EXTRA = 10, EARLY = 40 };

static bench_arg_t args[] = {
    {"DIGITS", "of the number, 16 to 36; rounded down to even", 26, DIGITS_MIN, DIGITS_MAX},
    {"TIMES", "that it is factored", 1, 1, UINT32_MAX},
    {"PRIMES", "in the factor base", 150, 20, PRIMES_MOST},
    {0},
};

// Numbers of 16, 18, 20 … 36 digits, each the product of two primes of about the same size.
static const char *const numbers[] = {
    "3404072802069437",
    "230453158422189487",
    "41615544180021984433",
    "1445520800933978747929",
    "319874149970683928455067",
    "79295137826801844327001313",
    "8090913944172097155069725429",
    "211855378555312941638384584393",
    "11609279543105195470679072285159",
    "1130127259619177319538129101681899",
    "766619674634880107668235744409419153",
};

// A * A = Q modulo N, where Q is the product of the base's primes with these exponents;
// base[0] stands for -1. The first set of bits marks the odd exponents; the second marks the
// relations that have been multiplied to get this one.
typedef struct relation {
  num_t *a;
  uint8_t exponents[PRIMES_MOST];
  uint64_t odd[PRIMES_MOST / 64];
  uint64_t members[(PRIMES_MOST + EXTRA + 63) / 64];
} relation_t;

typedef struct search {
  num_t *n;
  uint32_t primes; // in use
  uint32_t base[PRIMES_MOST];
  uint32_t count; // of relations
  relation_t *relations[PRIMES_MOST + EXTRA];
} search_t;

static bool bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> i % 64 & 1; }
static void flip(uint64_t *bits, uint32_t i) { bits[i / 64] ^= (uint64_t)1 << i % 64; }

static uint64_t power_modulo(uint64_t base, uint32_t exponent, uint32_t by) {
  uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = result * base % by;
    base = base * base % by;
  }
  return result;
}

// Sets the base to -1, 2 and the odd primes modulo which N is a square; no others divide a Q.
static void choose_base(search_t *s, uint32_t primes) {
  s->base[0] = 1;
  s->base[1] = 2;
  s->primes = 2;
  for (uint32_t p = 3; s->primes < primes; p += 2) {
    bool prime = true;
    for (uint32_t d = 3; prime && d * d <= p; d += 2) prime = p % d != 0;
    if (!prime) continue;
    uint32_t rest;
    num_free(num_divide_small(s->n, p, &rest));
    if (power_modulo(rest, (p - 1) / 2, p) <= 1) s->base[s->primes++] = p;
  }
}

// Divides q by the base's primes; true if 1 remains. Gives up early if q has shrunk little.
static bool is_smooth(const search_t *s, const num_t *q, uint8_t *exponents) {
  num_t *left = num_copy(q);
  for (uint32_t i = 1; i < s->primes && !num_is(left, 1); i++) {
    if (i == EARLY && left->count >= q->count && left->count > 1) break;
    for (;;) {
      uint32_t rest;
      num_t *quotient = num_divide_small(left, s->base[i], &rest);
      if (rest != 0) {
        num_free(quotient);
        break;
      }
      num_replace(&left, quotient);
      exponents[i]++;
    }
  }
  bool smooth = num_is(left, 1);
  num_free(left);
  return smooth;
}

static void collect(search_t *s, const num_t *a, const num_t *q, bool negative) {
  uint8_t exponents[PRIMES_MOST] = {0};
  if (!is_smooth(s, q, exponents)) return;
  relation_t *r = bench_alloc(NULL, sizeof *r);
  num_ops++;
  memset(r, 0, sizeof *r);
  r->a = num_copy(a);
  exponents[0] = negative;
  memcpy(r->exponents, exponents, sizeof exponents);
  for (uint32_t i = 0; i < s->primes; i++)
    if (exponents[i] % 2 != 0) flip(r->odd, i);
  flip(r->members, s->count);
  s->relations[s->count++] = r;
}

// Expands the continued fraction until there are enough relations.
static void expand(search_t *s) {
  num_t *root = num_root(s->n);
  num_t *p = num_from(0), *q = num_from(1), *digit = num_copy(root);
  num_t *before = num_from(1), *a = num_copy(root); // numerators of convergents
  for (bool negative = true; s->count < s->primes + EXTRA; negative = !negative) {
    num_t *product = num_multiply(digit, q);
    num_replace(&p, num_subtract(product, p));
    num_replace(&product, num_multiply(p, p));
    num_replace(&product, num_subtract(s->n, product));
    num_t *rest;
    num_replace(&q, num_divide(product, q, &rest));
    if (rest->count != 0 || q->count == 0) bench_wrong("the continued fraction");
    num_free(rest);
    num_free(product);
    collect(s, a, q, negative);

    num_t *sum = num_add(root, p);
    num_replace(&digit, num_divide(sum, q, NULL));
    num_replace(&sum, num_multiply(digit, a));
    num_replace(&sum, num_add(sum, before));
    num_free(before);
    before = a;
    a = num_modulo(sum, s->n);
    num_free(sum);
  }
  num_t *all[] = {root, p, q, digit, before, a};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) num_free(all[i]);
}

// Returns the factor that these relations yield, or NULL. Their product is X * X = Y * Y.
static num_t *try_members(const search_t *s, const uint64_t *members) {
  uint32_t exponents[PRIMES_MOST] = {0};
  num_t *x = num_from(1), *y = num_from(1);
  for (uint32_t i = 0; i < s->count; i++) {
    if (!bit(members, i)) continue;
    num_replace(&x, num_multiply_modulo(x, s->relations[i]->a, s->n));
    for (uint32_t k = 0; k < s->primes; k++) exponents[k] += s->relations[i]->exponents[k];
  }
  for (uint32_t k = 0; k < s->primes; k++) {
    if (exponents[k] % 2 != 0) bench_wrong("an odd exponent");
    num_t *prime = num_from(s->base[k]);
    for (uint32_t e = 0; e < exponents[k] / 2; e++)
      num_replace(&y, num_multiply_modulo(y, prime, s->n));
    num_free(prime);
  }
  num_t *sum = num_add(x, y), *factor = num_gcd(sum, s->n);
  num_free(x);
  num_free(y);
  num_free(sum);
  if (!num_is(factor, 1) && num_compare(factor, s->n) != 0) return factor;
  num_free(factor);
  return NULL;
}

// Gaussian elimination modulo 2; every relation that loses all its bits may yield a factor.
static num_t *combine(search_t *s) {
  bool used[PRIMES_MOST + EXTRA] = {false};
  for (uint32_t column = 0; column < s->primes; column++) {
    uint32_t pivot = 0;
    while (pivot < s->count && (used[pivot] || !bit(s->relations[pivot]->odd, column))) pivot++;
    if (pivot == s->count) continue;
    used[pivot] = true;
    const relation_t *from = s->relations[pivot];
    for (uint32_t i = 0; i < s->count; i++) {
      relation_t *to = s->relations[i];
      if (i == pivot || !bit(to->odd, column)) continue;
      for (unsigned w = 0; w < sizeof to->odd / 8; w++) to->odd[w] ^= from->odd[w];
      for (unsigned w = 0; w < sizeof to->members / 8; w++) to->members[w] ^= from->members[w];
    }
  }
  num_t *factor = NULL;
  for (uint32_t i = 0; factor == NULL && i < s->count; i++)
    if (!used[i]) factor = try_members(s, s->relations[i]->members);
  return factor;
}

static void verify(const num_t *n, const num_t *factor) {
  num_t *rest, *other = num_divide(n, factor, &rest), *product = num_multiply(factor, other);
  if (rest->count != 0 || num_compare(product, n) != 0 || num_is(factor, 1) || num_is(other, 1))
    bench_wrong("the factor");
  num_free(rest);
  num_free(other);
  num_free(product);
}

static void factor_number(const char *digits) {
  search_t s = {.n = num_parse(digits)};
  choose_base(&s, (uint32_t)args[PRIMES].value);
  expand(&s);
  num_t *factor = combine(&s);
  if (factor == NULL) bench_wrong("no factor was found");
  verify(s.n, factor);
  for (uint32_t i = 0; i < s.count; i++) {
    num_free(s.relations[i]->a);
    free(s.relations[i]);
    num_ops++;
  }
  num_free(factor);
  num_free(s.n);
}

int main(int argc, char **argv) {
  bench_t b = {.name = "cfrac_like",
               .what = "Factors a number by continued fractions: very many tiny blocks.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  uint64_t start = bench_cpu_ns();
  for (uint64_t i = 0; i < args[TIMES].value; i++)
    factor_number(numbers[(args[DIGITS].value - DIGITS_MIN) / 2]);
  bench_run_t run = {.ns = bench_cpu_ns() - start, .ops = num_ops};
  if (num_ops % 2 != 0) bench_wrong("number of numbers freed");
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
