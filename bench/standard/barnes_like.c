// barnes_like: gravitation by an octree, after J. Barnes and P. Hut, "A hierarchical
// O(N log N) force-calculation algorithm", Nature 324, 1986; the load of the program
// barnes in SPLASH and in several allocator studies.
//
// In each step all BODIES are put into an octree whose cells and leaves are one block each;
// the tree is walked once per body and then freed. Blocks of two sizes are allocated in one
// order and read many times in another, so the placement of blocks matters.

#include "standard.h"

enum { BODIES, STEPS, SEED };
enum { DEPTH_MOST = 48, SAMPLES = 8 };

static const double opening = 0.5;    // a cell is one mass if size / distance is below
static const double softening = 1e-4; // added to squared distances
static const double time_step = 1e-3;

static bench_arg_t args[] = {
    {"BODIES", "bodies", 12000, 2, 1 << 26},
    {"STEPS", "each with a new tree", 10, 1, UINT32_MAX},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

typedef struct vec {
  double x, y, z;
} vec_t;

typedef struct body {
  vec_t at;
  vec_t speed;
  double mass;
} body_t;

// A leaf has one body; where bodies coincide down to the deepest level it has a list.
typedef struct node {
  double mass;
  vec_t at; // of its body, or the centre of gravity
  bool is_leaf;
  struct node *rest[]; // a leaf: the next one of its list; a cell: eight children
} node_t;

static uint64_t ops;

static node_t *new_node(bool is_leaf) {
  size_t size = sizeof(node_t) + (is_leaf ? 1 : 8) * sizeof(node_t *);
  node_t *n = bench_alloc(NULL, size);
  memset(n, 0, size);
  n->is_leaf = is_leaf;
  ops++;
  return n;
}

static node_t *new_leaf(const body_t *body) {
  node_t *n = new_node(true);
  n->mass = body->mass;
  n->at = body->at;
  return n;
}

static void free_tree(node_t *n) {
  if (n == NULL) return;
  for (unsigned i = 0; i < (n->is_leaf ? 1 : 8); i++) free_tree(n->rest[i]);
  free(n);
  ops++;
}

// The octant of `at` in a cell with edge 4 * quarter; moves *middle to the octant's middle.
static unsigned octant_of(vec_t at, vec_t *middle, double quarter) {
  unsigned octant = (at.x >= middle->x) | (at.y >= middle->y) << 1 | (at.z >= middle->z) << 2;
  middle->x += octant & 1 ? quarter : -quarter;
  middle->y += octant & 2 ? quarter : -quarter;
  middle->z += octant & 4 ? quarter : -quarter;
  return octant;
}

// Puts a leaf into the tree at *place, which covers the cube around `middle`.
static void insert(node_t **place, node_t *leaf, vec_t middle, double half, unsigned depth) {
  while (*place != NULL && !(*place)->is_leaf) {
    place = &(*place)->rest[octant_of(leaf->at, &middle, half / 2)];
    half /= 2;
    depth++;
  }
  node_t *there = *place;
  if (there == NULL || depth >= DEPTH_MOST) {
    leaf->rest[0] = there;
    *place = leaf;
    return;
  }
  *place = new_node(false);
  insert(place, there, middle, half, depth);
  insert(place, leaf, middle, half, depth);
}

static void add_mass(node_t *to, double mass, vec_t at) {
  to->at.x += mass * at.x;
  to->at.y += mass * at.y;
  to->at.z += mass * at.z;
  to->mass += mass;
}

// Computes masses and centres of gravity of cells; returns the number of bodies.
static uint64_t sum_up(node_t *n) {
  uint64_t bodies = 0;
  if (n->is_leaf) {
    for (; n != NULL; n = n->rest[0]) bodies++;
    return bodies;
  }
  for (unsigned i = 0; i < 8; i++) {
    if (n->rest[i] == NULL) continue;
    bodies += sum_up(n->rest[i]);
    for (node_t *c = n->rest[i]; c != NULL; c = c->is_leaf ? c->rest[0] : NULL)
      add_mass(n, c->mass, c->at);
  }
  n->at = (vec_t){n->at.x / n->mass, n->at.y / n->mass, n->at.z / n->mass};
  return bodies;
}

static double square_distance(vec_t a, vec_t b) {
  double x = a.x - b.x, y = a.y - b.y, z = a.z - b.z;
  return x * x + y * y + z * z;
}

static void attract(vec_t *pull, vec_t at, vec_t other, double mass) {
  double square = square_distance(at, other) + softening;
  double factor = mass / (square * sqrt(square));
  pull->x += factor * (other.x - at.x);
  pull->y += factor * (other.y - at.y);
  pull->z += factor * (other.z - at.z);
}

static void walk(const node_t *n, vec_t at, double size, vec_t *pull) {
  if (n->is_leaf) {
    for (; n != NULL; n = n->rest[0]) attract(pull, at, n->at, n->mass);
  } else if (size * size < opening * opening * square_distance(at, n->at)) {
    attract(pull, at, n->at, n->mass);
  } else {
    for (unsigned i = 0; i < 8; i++)
      if (n->rest[i] != NULL) walk(n->rest[i], at, size / 2, pull);
  }
}

// Checks on some bodies that the tree's force is about the sum over all other bodies.
static void verify(const node_t *root, const body_t *bodies, double half) {
  const uint64_t count = args[BODIES].value;
  double mass = 0;
  for (uint64_t i = 0; i < count; i++) mass += bodies[i].mass;
  if (fabs(root->mass - mass) > 1e-9 * mass) bench_wrong("mass of the tree");
  for (uint64_t s = 0; s < SAMPLES; s++) {
    vec_t at = bodies[s * count / SAMPLES].at, by_tree = {0}, exact = {0};
    walk(root, at, 2 * half, &by_tree);
    for (uint64_t i = 0; i < count; i++) attract(&exact, at, bodies[i].at, bodies[i].mass);
    // Forces may cancel out, so the mass is part of the scale. Treating a cell as one mass
    // causes an error of some per cent; a wrong tree is off by far more than 10 %.
    double error = square_distance(by_tree, exact), scale = square_distance(exact, (vec_t){0});
    if (error > 1e-2 * (scale + mass * mass)) bench_wrong("a force");
  }
}

static void move(body_t *bodies, const node_t *root, double half) {
  for (uint64_t i = 0; i < args[BODIES].value; i++) {
    body_t *b = &bodies[i];
    vec_t pull = {0};
    walk(root, b->at, 2 * half, &pull);
    b->speed.x += time_step * pull.x;
    b->speed.y += time_step * pull.y;
    b->speed.z += time_step * pull.z;
  }
  for (uint64_t i = 0; i < args[BODIES].value; i++) {
    body_t *b = &bodies[i];
    b->at.x += time_step * b->speed.x;
    b->at.y += time_step * b->speed.y;
    b->at.z += time_step * b->speed.z;
  }
}

static double half_size(const body_t *bodies) {
  double most = 0;
  for (uint64_t i = 0; i < args[BODIES].value; i++) {
    vec_t at = bodies[i].at;
    most = fmax(most, fmax(fabs(at.x), fmax(fabs(at.y), fabs(at.z))));
  }
  return most * 1.001;
}

static void step(body_t *bodies, bool check) {
  node_t *root = new_node(false);
  double half = half_size(bodies);
  for (uint64_t i = 0; i < args[BODIES].value; i++)
    insert(&root, new_leaf(&bodies[i]), (vec_t){0}, half, 0);
  if (sum_up(root) != args[BODIES].value) bench_wrong("number of bodies");
  if (check) verify(root, bodies, half);
  move(bodies, root, half);
  free_tree(root);
}

static double coordinate(bench_rng_t *rng, double scale) {
  return scale * ((double)(bench_next(rng) >> 11) / 4503599627370496.0 - 1.0); // 2^52
}

// Places half of the bodies in a small cluster and half all around.
static void place_bodies(body_t *bodies) {
  bench_rng_t rng = bench_rng(args[SEED].value, 0);
  for (uint64_t i = 0; i < args[BODIES].value; i++) {
    double scale = i % 2 == 0 ? 1.0 : 0.1;
    bodies[i].at.x = coordinate(&rng, scale);
    bodies[i].at.y = coordinate(&rng, scale);
    bodies[i].at.z = coordinate(&rng, scale);
    bodies[i].mass = 1.0 / (double)args[BODIES].value;
  }
}

int main(int argc, char **argv) {
  bench_t b = {.name = "barnes_like",
               .what = "Gravitation of bodies by an octree that is built anew in each step.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  body_t *bodies = bench_map(args[BODIES].value * sizeof *bodies);
  place_bodies(bodies);
  uint64_t start = bench_cpu_ns();
  for (uint64_t i = 0; i < args[STEPS].value; i++) step(bodies, i == 0);
  bench_run_t run = {.ns = bench_cpu_ns() - start, .ops = ops};
  if (ops % 2 != 0) bench_wrong("number of nodes freed");
  bench_report(&b, run, (bench_run_t){0}, bench_peak_rss_kib());
  return 0;
}
