// case_fragment: a long run whose sizes change. Some blocks survive each phase, and the
// blocks of the next phase do not fit between them.
//
// Each phase allocates LIVE_KIB of blocks of its sizes, replaces a random one STEPS times,
// frees all but KEEP percent, and frees half of the survivors of earlier phases. The phases
// use 16 to 64 bytes, 64 to 512, 512 to 4096, 4 to 32 KiB, and all of these mixed. Resident
// memory is read at the end of each phase, when it is full and after the frees.

#include "cases.h"

enum { PHASES, LIVE_KIB, STEPS, KEEP, SEED };
enum { MAX_PHASES = 100, SURVIVORS = 1 << 22, MAX_SIZE = 32768 };

static bench_arg_t args[] = {
    {"PHASES", "phases", 10, 1, MAX_PHASES},
    {"LIVE_KIB", "alive in a phase", 32768, 1024, 1 << 22},
    {"STEPS", "replacements per phase, in units of the blocks alive / 100", 100, 0, 100000},
    {"KEEP", "percent of a phase's blocks that survive", 5, 0, 100},
    {"SEED", "of the random numbers", 42, 0, UINT64_MAX},
    {0},
};

// Exponents of 2.
static const struct {
  unsigned low, high;
} sizes[] = {{4, 6}, {6, 9}, {9, 12}, {12, 15}, {4, 15}};

typedef struct phase {
  uint64_t live_kib, rss_kib;           // after the frees
  uint64_t full_live_kib, full_rss_kib; // before
} phase_t;

static bench_rng_t rng;
static uint64_t live; // bytes
static uint64_t ops;
static void **blocks, **survivors;
static uint64_t survivor_count;

static void *alloc_one(unsigned kind) {
  size_t size = bench_log_size(&rng, sizes[kind].low, sizes[kind].high);
  live += size;
  ops++;
  return case_alloc_paged(size);
}

static void free_one(void *p) {
  live -= unmark(p, MAX_SIZE);
  free(p);
  ops++;
}

static void thin_out(void) {
  uint64_t kept = 0;
  for (uint64_t i = 0; i < survivor_count; i++) {
    if (bench_next(&rng) >> 63) survivors[kept++] = survivors[i];
    else free_one(survivors[i]);
  }
  survivor_count = kept;
}

static phase_t run_phase(unsigned kind) {
  const uint64_t bytes = args[LIVE_KIB].value << 10, before = live;
  phase_t phase = {0};
  uint64_t count = 0;
  while (live - before < bytes) blocks[count++] = alloc_one(kind);
  const uint64_t steps = count * args[STEPS].value / 100;
  for (uint64_t i = 0; i < steps; i++) {
    void **victim = &blocks[bench_high(bench_next(&rng), count)];
    free_one(*victim);
    *victim = alloc_one(kind);
  }
  phase.full_live_kib = live >> 10;
  phase.full_rss_kib = case_rss_kib();
  thin_out();
  for (uint64_t i = 0; i < count; i++) {
    if (bench_high(bench_next(&rng), 100) < args[KEEP].value && survivor_count < SURVIVORS)
      survivors[survivor_count++] = blocks[i];
    else free_one(blocks[i]);
  }
  phase.live_kib = live >> 10;
  phase.rss_kib = case_rss_kib();
  return phase;
}

static void *map_lazily(size_t size) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  if (p == MAP_FAILED) bench_die("mmap");
  return p;
}

// Returns the keys of all phases; the names remain valid until the end.
static const bench_value_t *values(const phase_t *phases, uint64_t count, uint64_t base) {
  static char names[MAX_PHASES][2][32];
  static bench_value_t list[2 * MAX_PHASES + 8];
  bench_value_t *v = list;
  const phase_t *last = &phases[count - 1];
  const double tables = (double)base;
  *v++ = (bench_value_t){"base_rss_kib", tables};
  *v++ = (bench_value_t){"live_kib", (double)last->live_kib};
  *v++ = (bench_value_t){"end_rss_kib", (double)last->rss_kib - tables};
  if (last->live_kib != 0)
    *v++ = (bench_value_t){"rss_per_live", ((double)last->rss_kib - tables) / (double)last->live_kib};
  *v++ = (bench_value_t){"full_rss_per_live",
                         ((double)last->full_rss_kib - tables) / (double)last->full_live_kib};
  for (uint64_t i = 0; i < count; i++) {
    snprintf(names[i][0], sizeof names[i][0], "phase%u_live_kib", (unsigned)i + 1);
    snprintf(names[i][1], sizeof names[i][1], "phase%u_rss_kib", (unsigned)i + 1);
    *v++ = (bench_value_t){names[i][0], (double)phases[i].live_kib};
    *v++ = (bench_value_t){names[i][1], (double)phases[i].rss_kib - tables};
  }
  return list;
}

int main(int argc, char **argv) {
  bench_t b = {.name = "case_fragment",
               .what = "Phases of different sizes, with survivors from each.",
               .args = args,
               .no_net = true};
  bench_parse(&b, argc, argv);
  const uint64_t count = args[PHASES].value;
  rng = bench_rng(args[SEED].value, 0);
  // Populated, so that readings differ only by the allocator's memory.
  blocks = bench_map(((args[LIVE_KIB].value << 10) / 16 + 1) * sizeof *blocks);
  survivors = map_lazily(SURVIVORS * sizeof *survivors);
  static phase_t phases[MAX_PHASES];
  const uint64_t base = case_rss_kib();
  uint64_t start = bench_cpu_ns();
  for (uint64_t i = 0; i < count; i++) phases[i] = run_phase((unsigned)(i % (sizeof sizes / sizeof sizes[0])));
  bench_run_t run = {.ns = bench_cpu_ns() - start};
  for (uint64_t i = 0; i < survivor_count; i++) free_one(survivors[i]);
  run.ops = ops;
  if (live != 0) bench_wrong("bytes freed");
  bench_report_extra(&b, run, (bench_run_t){0}, bench_peak_rss_kib(), values(phases, count, base));
  return 0;
}
