// espresso_like: two-level logic minimisation, after R. Brayton and others, "Logic
// Minimization Algorithms for VLSI Synthesis", 1984; the load of the program espresso
// in B. Zorn's and many later allocator studies.
//
// FUNCTIONS random sums of products are minimised: the complement of each is computed by
// recursive expansion; then its cubes are expanded against the complement, redundant cubes
// dropped and the rest reduced, until nothing improves. A cube is a block with two bits
// per variable, a cover a block of pointers to cubes; both live as long as a level of
// the recursion. The program proves, not samples, that the result equals the original.

#include "standard.h"

enum { FUNCTIONS, VARIABLES, CUBES, SEED };
enum { PER_WORD = 16, VARIABLES_MOST = 64, PASSES_MOST = 4 };

static bench_arg_t args[] = {
    {"FUNCTIONS", "to minimise", 40, 1, UINT32_MAX},
    {"VARIABLES", "of a function", 12, 2, VARIABLES_MOST},
    {"CUBES", "of a function before it is minimised", 40, 1, 4096},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

// Two bits per variable: 1 means that the variable is 0, 2 that it is 1, 3 that it is either.
typedef struct cube {
  uint32_t words; // in use
  uint32_t bits[];
} cube_t;

typedef struct cover {
  uint32_t count;
  uint32_t room;
  cube_t *cubes[];
} cover_t;

static const uint32_t low_bits = 0x55555555;
static uint32_t variables, words;
static uint32_t last_word; // the bits of the last word that are in use
static uint64_t ops;

// ---------------------------------------------------------------------------
// Cubes

static cube_t *cube_new(void) {
  cube_t *c = bench_alloc(NULL, sizeof *c + words * sizeof c->bits[0]);
  ops++;
  c->words = words;
  return c;
}

static void cube_free(cube_t *c) {
  if (c->words != words) bench_wrong("a cube's size");
  c->words = 0;
  free(c);
  ops++;
}

static uint32_t full_word(uint32_t word) { return word + 1 == words ? last_word : UINT32_MAX; }

static cube_t *cube_universe(void) {
  cube_t *c = cube_new();
  for (uint32_t i = 0; i < words; i++) c->bits[i] = full_word(i);
  return c;
}

static cube_t *cube_copy(const cube_t *a) {
  cube_t *c = cube_new();
  memcpy(c->bits, a->bits, words * sizeof c->bits[0]);
  return c;
}

static uint32_t cube_get(const cube_t *c, uint32_t variable) {
  return c->bits[variable / PER_WORD] >> variable % PER_WORD * 2 & 3;
}

static void cube_set(cube_t *c, uint32_t variable, uint32_t value) {
  uint32_t shift = variable % PER_WORD * 2, *word = &c->bits[variable / PER_WORD];
  *word = (*word & ~(3u << shift)) | value << shift;
}

static bool cube_is_universe(const cube_t *c) {
  for (uint32_t i = 0; i < words; i++)
    if (c->bits[i] != full_word(i)) return false;
  return true;
}

// Do the cubes intersect?
static bool cube_meets(const cube_t *a, const cube_t *b) {
  for (uint32_t i = 0; i < words; i++) {
    uint32_t both = a->bits[i] & b->bits[i];
    if (((both | both >> 1) & low_bits) != (full_word(i) & low_bits)) return false;
  }
  return true;
}

static bool cube_contains(const cube_t *outer, const cube_t *inner) {
  for (uint32_t i = 0; i < words; i++)
    if (inner->bits[i] & ~outer->bits[i]) return false;
  return true;
}

static uint32_t cube_literals(const cube_t *c) {
  uint32_t zeros = 0;
  for (uint32_t i = 0; i < words; i++)
    zeros += (uint32_t)__builtin_popcount(~c->bits[i] & full_word(i));
  return zeros;
}

// ---------------------------------------------------------------------------
// Covers

static cover_t *cover_new(uint32_t room) {
  cover_t *f = bench_alloc(NULL, sizeof *f + (room != 0 ? room : 1) * sizeof f->cubes[0]);
  ops++;
  f->count = 0;
  f->room = room;
  return f;
}

static void cover_free(cover_t *f) {
  for (uint32_t i = 0; i < f->count; i++) cube_free(f->cubes[i]);
  free(f);
  ops++;
}

static void cover_add(cover_t *f, cube_t *c) {
  if (f->count == f->room) bench_wrong("a full cover");
  f->cubes[f->count++] = c;
}

static cover_t *cover_copy(const cover_t *f) {
  cover_t *copy = cover_new(f->count);
  for (uint32_t i = 0; i < f->count; i++) cover_add(copy, cube_copy(f->cubes[i]));
  return copy;
}

static bool cover_has_universe(const cover_t *f) {
  for (uint32_t i = 0; i < f->count; i++)
    if (cube_is_universe(f->cubes[i])) return true;
  return false;
}

// The restriction of f to the cube `within`, as a function of the variables that the cube leaves
// open. The cube `without` of f is left out unless it is NULL.
static cover_t *cover_within(const cover_t *f, const cube_t *within, const cube_t *without) {
  cover_t *result = cover_new(f->count);
  for (uint32_t i = 0; i < f->count; i++) {
    const cube_t *c = f->cubes[i];
    if (c == without || !cube_meets(c, within)) continue;
    cube_t *opened = cube_new();
    for (uint32_t k = 0; k < words; k++)
      opened->bits[k] = (c->bits[k] | ~within->bits[k]) & full_word(k);
    cover_add(result, opened);
  }
  return result;
}

static cover_t *cover_half(const cover_t *f, uint32_t variable, uint32_t value) {
  cube_t *half = cube_universe();
  cube_set(half, variable, value);
  cover_t *result = cover_within(f, half, NULL);
  cube_free(half);
  return result;
}

// The variable that most cubes depend on, preferably one that occurs as 0 in some cubes and as 1
// in others; *both says whether there is one.
static uint32_t cover_split(const cover_t *f, bool *both) {
  uint32_t zero[VARIABLES_MOST] = {0}, one[VARIABLES_MOST] = {0};
  for (uint32_t i = 0; i < f->count; i++) {
    for (uint32_t v = 0; v < variables; v++) {
      uint32_t value = cube_get(f->cubes[i], v);
      zero[v] += value == 1;
      one[v] += value == 2;
    }
  }
  uint32_t best = 0, most = 0;
  *both = false;
  for (uint32_t v = 0; v < variables; v++) {
    bool occurs_twice = zero[v] != 0 && one[v] != 0;
    if (*both && !occurs_twice) continue;
    if (zero[v] + one[v] > most || (occurs_twice && !*both)) {
      best = v;
      most = zero[v] + one[v];
      *both = occurs_twice;
    }
  }
  return best;
}

// Is f true everywhere?
static bool cover_is_tautology(const cover_t *f) {
  if (cover_has_universe(f)) return true;
  bool both;
  uint32_t variable = cover_split(f, &both);
  if (!both) return false; // unate: only a universal cube would make it a tautology
  for (uint32_t value = 1; value <= 2; value++) {
    cover_t *half = cover_half(f, variable, value);
    bool tautology = cover_is_tautology(half);
    cover_free(half);
    if (!tautology) return false;
  }
  return true;
}

// Is the cube within f, not counting the cube `without` of f?
static bool cover_covers(const cover_t *f, const cube_t *c, const cube_t *without) {
  cover_t *within = cover_within(f, c, without);
  bool covers = cover_is_tautology(within);
  cover_free(within);
  return covers;
}

// Drops cubes that other cubes contain.
static void cover_absorb(cover_t *f) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < f->count; i++) {
    bool contained = false;
    for (uint32_t k = 0; k < f->count && !contained; k++) {
      if (k == i || f->cubes[k] == NULL || !cube_contains(f->cubes[k], f->cubes[i])) continue;
      contained = true;
    }
    if (!contained) continue;
    cube_free(f->cubes[i]);
    f->cubes[i] = NULL;
  }
  for (uint32_t i = 0; i < f->count; i++)
    if (f->cubes[i] != NULL) f->cubes[kept++] = f->cubes[i];
  f->count = kept;
}

// ---------------------------------------------------------------------------
// Complement

// The complement of one cube: for each literal, the half space where the literal is false.
static cover_t *complement_of_cube(const cube_t *c) {
  cover_t *result = cover_new(variables);
  for (uint32_t v = 0; v < variables; v++) {
    uint32_t value = cube_get(c, v);
    if (value == 3) continue;
    cube_t *side = cube_universe();
    cube_set(side, v, value ^ 3);
    cover_add(result, side);
  }
  return result;
}

// Joins the complements of both halves; cubes that are in both no longer depend on the variable.
static cover_t *merge_halves(cover_t *zero, cover_t *one, uint32_t variable) {
  cover_t *result = cover_new(zero->count + one->count);
  for (uint32_t i = 0; i < zero->count; i++) {
    bool in_both = false;
    for (uint32_t k = 0; k < one->count && !in_both; k++)
      in_both = cube_contains(one->cubes[k], zero->cubes[i]);
    cube_t *c = cube_copy(zero->cubes[i]);
    if (!in_both) cube_set(c, variable, 1);
    cover_add(result, c);
  }
  for (uint32_t i = 0; i < one->count; i++) {
    cube_t *c = cube_copy(one->cubes[i]);
    bool in_both = false;
    for (uint32_t k = 0; k < zero->count && !in_both; k++)
      in_both = cube_contains(zero->cubes[k], c);
    if (!in_both) cube_set(c, variable, 2);
    cover_add(result, c);
  }
  cover_absorb(result);
  cover_free(zero);
  cover_free(one);
  return result;
}

static cover_t *complement(const cover_t *f) {
  if (f->count == 0) {
    cover_t *all = cover_new(1);
    cover_add(all, cube_universe());
    return all;
  }
  if (cover_has_universe(f)) return cover_new(0);
  if (f->count == 1) return complement_of_cube(f->cubes[0]);
  bool both;
  uint32_t variable = cover_split(f, &both);
  cover_t *halves[2];
  for (uint32_t value = 1; value <= 2; value++) {
    cover_t *half = cover_half(f, variable, value);
    halves[value - 1] = complement(half);
    cover_free(half);
  }
  return merge_halves(halves[0], halves[1], variable);
}

// ---------------------------------------------------------------------------
// Minimisation

static bool meets_any(const cover_t *f, const cube_t *c) {
  for (uint32_t i = 0; i < f->count; i++)
    if (cube_meets(f->cubes[i], c)) return true;
  return false;
}

// Drops as many literals of each cube as the off-set allows.
static void expand(cover_t *f, const cover_t *off, uint32_t first) {
  for (uint32_t i = 0; i < f->count; i++) {
    for (uint32_t k = 0; k < variables; k++) {
      uint32_t variable = (first + k) % variables;
      if (cube_get(f->cubes[i], variable) == 3) continue;
      cube_t *wider = cube_copy(f->cubes[i]);
      cube_set(wider, variable, 3);
      if (meets_any(off, wider)) {
        cube_free(wider);
      } else {
        cube_free(f->cubes[i]);
        f->cubes[i] = wider;
      }
    }
  }
  cover_absorb(f);
}

// Drops cubes that the other cubes together cover.
static void make_irredundant(cover_t *f) {
  for (uint32_t i = f->count; i-- > 0;) {
    if (!cover_covers(f, f->cubes[i], f->cubes[i])) continue;
    cube_free(f->cubes[i]);
    f->cubes[i] = f->cubes[--f->count];
  }
}

// Shrinks each cube to the smallest one that contains what the others do not cover.
static void reduce(cover_t *f) {
  for (uint32_t i = 0; i < f->count; i++) {
    cover_t *others = cover_within(f, f->cubes[i], f->cubes[i]), *needed = complement(others);
    if (needed->count == 0) bench_wrong("a redundant cube");
    for (uint32_t k = 0; k < words; k++) {
      uint32_t all = 0;
      for (uint32_t n = 0; n < needed->count; n++) all |= needed->cubes[n]->bits[k];
      f->cubes[i]->bits[k] &= all;
    }
    cover_free(others);
    cover_free(needed);
  }
}

static uint64_t cost_of(const cover_t *f) {
  uint64_t cost = 0;
  for (uint32_t i = 0; i < f->count; i++) cost += 1000 + cube_literals(f->cubes[i]);
  return cost;
}

static cover_t *minimise(const cover_t *on, const cover_t *off) {
  cover_t *f = cover_copy(on);
  uint64_t cost = UINT64_MAX;
  for (uint32_t pass = 0; pass < PASSES_MOST; pass++) {
    if (pass != 0) reduce(f);
    expand(f, off, pass * variables / PASSES_MOST);
    make_irredundant(f);
    if (cost_of(f) >= cost) break;
    cost = cost_of(f);
  }
  return f;
}

static void verify(const cover_t *on, const cover_t *off, const cover_t *result) {
  for (uint32_t i = 0; i < on->count; i++)
    if (!cover_covers(result, on->cubes[i], NULL)) bench_wrong("a point got lost");
  for (uint32_t i = 0; i < result->count; i++)
    if (meets_any(off, result->cubes[i])) bench_wrong("a point was added");
  if (result->count > on->count) bench_wrong("more cubes than before");
  cover_t *all = cover_new(on->count + off->count);
  for (uint32_t i = 0; i < on->count; i++) cover_add(all, cube_copy(on->cubes[i]));
  for (uint32_t i = 0; i < off->count; i++) cover_add(all, cube_copy(off->cubes[i]));
  if (!cover_is_tautology(all)) bench_wrong("the complement");
  cover_free(all);
}

// Each variable is left open with probability 1/2.
static cover_t *random_function(bench_rng_t *rng) {
  cover_t *f = cover_new((uint32_t)args[CUBES].value);
  for (uint32_t i = 0; i < f->room; i++) {
    cube_t *c = cube_universe();
    for (uint32_t v = 0; v < variables; v++) {
      uint64_t dice = bench_next(rng) >> 62;
      if (dice < 2) cube_set(c, v, (uint32_t)dice + 1);
    }
    cover_add(f, c);
  }
  return f;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "espresso_like",
               .what = "Minimises logic functions: small bit sets and lists of them.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  variables = (uint32_t)args[VARIABLES].value;
  words = (variables + PER_WORD - 1) / PER_WORD;
  last_word = variables % PER_WORD == 0 ? UINT32_MAX : (1u << variables % PER_WORD * 2) - 1;
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  uint64_t before = 0, after = 0;
  uint64_t start = bench_cpu_ns();
  for (uint64_t i = 0; i < args[FUNCTIONS].value; i++) {
    cover_t *on = random_function(&rng), *off = complement(on), *result = minimise(on, off);
    verify(on, off, result);
    before += on->count;
    after += result->count;
    cover_free(on);
    cover_free(off);
    cover_free(result);
  }
  bench_run_t run = {.ns = bench_cpu_ns() - start, .ops = ops};
  if (ops % 2 != 0) bench_wrong("number of blocks freed");
  if (!b.json)
    printf("cubes: %llu, were %llu\n", (unsigned long long)after, (unsigned long long)before);
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
