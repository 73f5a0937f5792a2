// hak_stats_get against a model that counts every call: exact at every moment for
// one thread, and for others whenever they hold still.

#include "unit.h"

#include "api/stats.h"
#include "core/options.h"
#include "hakmem/hakmem.h"
#include "pool/huge.h"
#include "superslab/size_class.h"
#include "thread/front.h"
#include "thread/guard.h"
#include "thread/heap.h"

enum { TINY, L2, L25, HUGE_, TIERS };
typedef struct {
  uint64_t allocs[TIERS], live, bytes;
} model_t;

static int tier_of(const void *p, size_t *usable) {
  hak_block_t block;
  CHECK(hak_front_find(p, "test", &block));
  *usable = block.usable;
  return block.kind == HAK_KIND_TINY ? TINY : block.kind == HAK_KIND_L2 ? L2 : block.kind == HAK_KIND_L25 ? L25 : HUGE_;
}
static void count_alloc(model_t *m, const void *p) {
  size_t usable;
  m->allocs[tier_of(p, &usable)]++;
  m->live++, m->bytes += usable;
}
static void count_free(model_t *m, const void *p) {
  size_t usable;
  tier_of(p, &usable);
  m->live--, m->bytes -= usable;
}

static void compare(const model_t *m) {
  hak_stats_t s;
  memset(&s, 0xaa, sizeof s);
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK_EQUAL(s.size, sizeof s);
  CHECK_EQUAL(s.tiny_allocs, m->allocs[TINY]);
  CHECK_EQUAL(s.l2_allocs, m->allocs[L2]);
  CHECK_EQUAL(s.l25_allocs, m->allocs[L25]);
  CHECK_EQUAL(s.huge_allocs, m->allocs[HUGE_]);
  CHECK_EQUAL(s.allocs, m->allocs[TINY] + m->allocs[L2] + m->allocs[L25] + m->allocs[HUGE_]);
  CHECK_EQUAL(s.live_blocks, m->live);
  CHECK_EQUAL(s.live_bytes, m->bytes);
  CHECK_EQUAL(s.frees, s.allocs - m->live);
  CHECK_EQUAL(s.mapped_bytes, s.superslab_bytes + s.huge_bytes + s.huge_cached_bytes + s.metadata_bytes);
  CHECK(s.peak_bytes >= s.mapped_bytes);
  CHECK(s.live_bytes <= s.superslab_bytes + s.huge_bytes);
}

// ---------------------------------------------------------------------------

#define LIVE 600
static size_t random_size(uint64_t *seed) {
  size_t tier = chance_below(seed, 100);
  return tier < 60   ? chance_below(seed, 1100)
         : tier < 90 ? chance_below(seed, 60000)
         : tier < 98 ? chance_below(seed, MIB + 1)
                     : MIB + chance_below(seed, 4 * MIB);
}

static void one_operation(model_t *m, void **slot, uint64_t *seed) {
  size_t size = random_size(seed);
  switch (chance_below(seed, 6)) {
  case 0: case 1: // free
    if (!*slot) return;
    count_free(m, *slot);
    hak_free(*slot);
    *slot = NULL;
    return;
  case 2: { // realloc
    if (!*slot) break;
    if (size == 0) size = 1;
    size_t old_usable, new_usable;
    int from = tier_of(*slot, &old_usable);
    void *q = hak_realloc(*slot, size);
    CHECK(q != NULL);
    int to = tier_of(q, &new_usable);
    m->bytes += new_usable - old_usable;
    // Moved by copying: one block freed, one handed out.
    if (q != *slot && !(from == HUGE_ && to == HUGE_)) m->allocs[to]++;
    *slot = q;
    return;
  }
  default: break;
  }
  if (*slot) return;
  switch (chance_below(seed, 4)) {
  case 0: *slot = hak_calloc(1, size); break;
  case 1: *slot = hak_aligned_alloc((size_t)16 << chance_below(seed, 10), size); break;
  default: *slot = hak_malloc(size); break;
  }
  CHECK(*slot != NULL);
  count_alloc(m, *slot);
}

static void exact_for_one_thread(void) {
  static void *live[LIVE];
  model_t m = {{0}, 0, 0};
  uint64_t seed = 31;
  compare(&m);
  for (unsigned i = 0; i < SCALED(40000u); i++) {
    one_operation(&m, &live[chance_below(&seed, LIVE)], &seed);
    if (i % 97 == 0) compare(&m);
    if (i % 9001 == 0) hak_trim(0), compare(&m);
  }
  for (unsigned i = 0; i < LIVE; i++)
    if (live[i]) count_free(&m, live[i]), hak_free(live[i]);
  compare(&m);
  hak_trim(0);
  compare(&m);
  hak_stats_t s;
  hak_stats_get(&s, sizeof s);
  CHECK_EQUAL(s.superslab_bytes, 0);
  CHECK_EQUAL(s.huge_bytes, 0);
  CHECK_EQUAL(s.heaps, 1);
}
ISOLATED(exact_for_one_thread)

// Per class as well, from the report that is printed.
static void exact_for_every_class(void) {
  static void *blocks[HAK_CLASSES][40];
  for (unsigned c = 0; c < HAK_CLASSES; c++)
    for (unsigned i = 0; i < 40; i++) CHECK((blocks[c][i] = hak_malloc(hak_class_size(c))) != NULL);
  for (unsigned c = 0; c < HAK_CLASSES; c++)
    for (unsigned i = 0; i < c % 40; i++) hak_free(blocks[c][i]);
  hak_report_t r;
  hak_stats_collect(&r);
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    CHECK_EQUAL(r.classes[c].allocs, 40);
    CHECK_EQUAL(r.classes[c].live, 40 - c % 40);
    CHECK(r.classes[c].slabs >= 1 && r.classes[c].refills >= 1);
    CHECK(r.classes[c].blocks >= 40);
  }
}
ISOLATED(exact_for_every_class)

static void short_and_long_structs(void) {
  void *p = hak_malloc(10);
  struct {
    hak_stats_t s;
    unsigned char more[64];
  } big;
  memset(&big, 0xff, sizeof big);
  CHECK(hak_stats_get(&big.s, sizeof big)); // a newer program: the rest reads as zero
  CHECK(big.s.size == sizeof(hak_stats_t) && big.s.live_blocks == 1 && all_zero(big.more, 64));
  memset(&big, 0xff, sizeof big);
  CHECK(hak_stats_get(&big.s, 16)); // an older one: nothing beyond is written
  CHECK(big.s.live_blocks == 1 && big.s.live_bytes == UINT64_MAX);
  CHECK(!hak_stats_get(NULL, sizeof big.s) && !hak_stats_get(&big.s, 0));
  hak_free(p);
}
ISOLATED(short_and_long_structs)

// ---------------------------------------------------------------------------
// Another thread: right when it holds still, within bounds while it runs.

static pthread_barrier_t step;
static model_t theirs;
static void *their[LIVE];
static _Atomic bool running;
static void *other(void *argument) {
  uint64_t seed = 41;
  (void)argument;
  for (unsigned round = 0; round < 20; round++) {
    for (unsigned i = 0; i < SCALED(2000u); i++) one_operation(&theirs, &their[chance_below(&seed, LIVE)], &seed);
    pthread_barrier_wait(&step); // still
    pthread_barrier_wait(&step);
  }
  // Keeps between 100 and 200 blocks of 64 bytes while it runs.
  for (unsigned i = 0; i < LIVE; i++)
    if (their[i]) count_free(&theirs, their[i]), hak_free(their[i]), their[i] = NULL;
  for (unsigned i = 0; i < 100; i++) their[i] = hak_malloc(64);
  pthread_barrier_wait(&step);
  while (atomic_load_explicit(&running, memory_order_relaxed)) {
    for (unsigned i = 100; i < 200; i++) their[i] = hak_malloc(64);
    for (unsigned i = 100; i < 200; i++) hak_free(their[i]);
  }
  for (unsigned i = 0; i < 100; i++) hak_free(their[i]);
  return NULL;
}

static void right_for_a_running_thread(void) {
  void *mine[LIVE / 2];
  unsigned taken = 0;
  pthread_barrier_init(&step, NULL, 2);
  pthread_t thread = unit_start(other, NULL);
  for (unsigned round = 0; round < 20; round++) {
    pthread_barrier_wait(&step);
    compare(&theirs);
    // Frees by this thread count at once, wherever they are held.
    for (unsigned i = round; i < LIVE; i += 20)
      if (their[i]) count_free(&theirs, their[i]), hak_free(their[i]), their[i] = NULL;
    compare(&theirs);
    for (; taken < (round + 1) * 10; taken++) count_alloc(&theirs, mine[taken] = hak_malloc(taken * 50));
    compare(&theirs);
    pthread_barrier_wait(&step);
  }
  running = true;
  pthread_barrier_wait(&step);
  hak_stats_t s;
  for (unsigned i = 0; i < 3000; i++) {
    CHECK(hak_stats_get(&s, sizeof s));
    if (s.live_blocks < taken + 99 || s.live_blocks > taken + 201) CHECK_EQUAL(s.live_blocks, taken + 150);
  }
  running = false;
  unit_join(thread);
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK_EQUAL(s.live_blocks, taken);
  for (unsigned i = 0; i < taken; i++) hak_free(mine[i]);
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK_EQUAL(s.live_blocks, 0);
  CHECK_EQUAL(s.live_bytes, 0);
}
ISOLATED(right_for_a_running_thread)

// Row X1, X2: the stages add up.
static void stages_add_up(void) {
  static void *live[LIVE];
  model_t m = {{0}, 0, 0};
  uint64_t seed = 51;
  for (unsigned i = 0; i < SCALED(40000u); i++) one_operation(&m, &live[chance_below(&seed, LIVE)], &seed);
  hak_report_t r;
  hak_stats_collect(&r);
  uint64_t refills = 0, stages = 0, released = r.stats[HAK_STAT_slab_empty];
  for (unsigned c = 0; c < HAK_CLASSES; c++) refills += r.classes[c].refills;
  const hak_stat_t stage[] = {HAK_STAT_refill_carve, HAK_STAT_refill_remote, HAK_STAT_refill_warm,
                              HAK_STAT_refill_commons, HAK_STAT_refill_adopt, HAK_STAT_refill_pool, HAK_STAT_refill_draining, HAK_STAT_refill_reuse,
                              HAK_STAT_refill_map,   HAK_STAT_refill_failed};
  for (unsigned i = 0; i < COUNT(stage); i++) stages += r.stats[stage[i]];
  CHECK_EQUAL(stages, refills);
  // Refills that needed another slab: the warm pool had one, or one of the other stages.
  uint64_t hits = 0, misses = 0, prefilled = 0;
  for (unsigned c = 0; c < HAK_CLASSES; c++)
    hits += r.classes[c].hits, misses += r.classes[c].misses, prefilled += r.classes[c].prefilled;
  CHECK_EQUAL(hits, r.stats[HAK_STAT_refill_warm]);
  CHECK_EQUAL(hits + misses, refills - r.stats[HAK_STAT_refill_carve] - r.stats[HAK_STAT_refill_remote]);
  CHECK_EQUAL(prefilled, r.stats[HAK_STAT_warm_prefill]);
  // A SuperSlab that became empty is still there, in use again, or evicted.
  CHECK(r.stats[HAK_STAT_superslab_evict] <= r.stats[HAK_STAT_superslab_empty]);
  CHECK(r.stats[HAK_STAT_tier_free] + r.stats[HAK_STAT_tier_hot] <= r.stats[HAK_STAT_tier_draining]);
  CHECK_EQUAL(r.stats[HAK_STAT_free_remote], 0);
  CHECK_EQUAL(r.stats[HAK_STAT_l25_alloc] - r.stats[HAK_STAT_l25_free], r.l25_live);
  CHECK_EQUAL(r.stats[HAK_STAT_huge_alloc] - r.stats[HAK_STAT_huge_free], hak_huge_count());
  CHECK(released > 0);
}
ISOLATED(stages_add_up)

// HAKMEM_WARM_POOL_STATS: a row per class that needed slabs, and the sum.
static const char *printed_at_exit(uint64_t *option) {
  static char text[4096];
  char path[40];
  int ends[2];
  CHECK(pipe(ends) == 0);
  snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
  hak_option(STATS_FILE) = (uint64_t)(uintptr_t)path;
  *option = 1;
  hak_stats_at_exit();
  *option = hak_option(STATS_FILE) = 0;
  close(ends[1]);
  ssize_t n = read(ends[0], text, sizeof text - 1);
  CHECK(n > 0);
  text[n] = 0;
  return text;
}

static void warm_pool_table(void) {
  static void *blocks[6400];
  for (unsigned i = 0; i < 6400; i++) blocks[i] = hak_malloc(1024);
  const char *text = printed_at_exit(&hak_option(WARM_POOL_STATS));
  CHECK(strstr(text, "hakmem warm pool of process ") == text);
  hak_warm_t *c = &hak_heap_by_id(1)->warm[31];
  char row[200];
  unsigned long long hits = c->hits, misses = c->misses, prefilled = c->prefilled;
  snprintf(row, sizeof row, "\n  %8u %12llu %12llu %12llu %8llu %%\n       all", 1024, hits, misses,
           prefilled, hits * 100 / (hits + misses));
  CHECK(strstr(text, row) != NULL);
  for (unsigned i = 0; i < 6400; i++) hak_free(blocks[i]);
}
ISOLATED(warm_pool_table)

// HAKMEM_POOL_MID_INUSE_DEFERRED_STATS: 100 blocks of a few runs, freed by another thread
// together or one by one.
static void *middle[100];
static void *free_middle(void *unused) {
  (void)unused;
  for (unsigned i = 0; i < COUNT(middle); i++) hak_free(middle[i]);
  return NULL;
}
static bool has_row(const char *text, const char *what, unsigned long long value) {
  char row[100];
  snprintf(row, sizeof row, "\n  %-34s %11llu\n", what, value);
  return strstr(text, row) != NULL;
}
static uint64_t deferred;
static void deferred_frees(void) {
  hak_free(hak_malloc(1));
  hak_option(NURSERY) = 0; // a shared heap hands over at each call
  hak_option(POOL_MID_INUSE_DEFERRED) = deferred;
  hak_option(LETTERS) = 0; // one by one, if not deferred
  hak_option(REMOTE_PENDING) = 16 * MIB;
  for (unsigned i = 0; i < COUNT(middle); i++) CHECK((middle[i] = hak_malloc(3000)) != NULL);
  unit_join(unit_start(free_middle, NULL));
  hak_trim(0);
  const char *text = printed_at_exit(&hak_option(POOL_MID_INUSE_DEFERRED_STATS));
  CHECK(strstr(text, "hakmem deferred frees of process ") == text);
  CHECK(has_row(text, "blocks handed over", COUNT(middle)));
  unsigned slabs = (COUNT(middle) + 20) / 21; // 21 blocks of 3072 bytes to a slab
  CHECK(has_row(text, "slabs drained", deferred ? slabs : COUNT(middle)));
  CHECK(has_row(text, "hits: slab in map, or by letter", deferred ? COUNT(middle) - slabs : 0));
  CHECK(has_row(text, "drains of the whole map", deferred));
  CHECK(has_row(text, "empty transitions", slabs));
  // As if a thread had counted what it handed over but not yet the blocks of it.
  hak_heap_count_stat(hak_tls_heap, HAK_STAT_remote_flush, 1000);
  text = printed_at_exit(&hak_option(POOL_MID_INUSE_DEFERRED_STATS));
  CHECK(has_row(text, "hits: slab in map, or by letter", 0));
}
static void deferred_or_not(void **state) {
  (void)state;
  for (deferred = 0; deferred < 2; deferred++) unit_in_child(deferred_frees);
}

// Another thread's counters while it runs: its heap is read before it takes a slab of blocks,
// its slabs after that.
static void no_frees_below_zero(void) {
  unsigned c = hak_size_class(64);
  void *p[10];
  for (unsigned i = 0; i < COUNT(p); i++) p[i] = hak_malloc(64);
  hak_owner_add(&hak_tls_heap->classes[c].allocs, (uint64_t)-5);
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK(s.allocs >= s.live_blocks && s.frees <= s.allocs);
  hak_owner_add(&hak_tls_heap->classes[c].allocs, (uint64_t)-10); // and gave one of these away
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK(s.allocs >= s.live_blocks && s.allocs < 1000 && s.frees <= s.allocs);
  hak_owner_add(&hak_tls_heap->classes[c].allocs, 15);
  hak_report_t r;
  hak_stats_collect(&r);
  CHECK_EQUAL(r.classes[c].allocs, COUNT(p));
  for (unsigned i = 0; i < COUNT(p); i++) hak_free(p[i]);
}
ISOLATED(no_frees_below_zero)

// A block of 64 KiB or more becomes a run of blocks while it is looked at: the word with its
// bytes then names a heap.
static void no_heap_counts_as_bytes(void) {
  void *p = hak_malloc(100000);
  hak_slab_t *head = hak_slab_lookup(p);
  uint64_t bytes = hak_load_relaxed(&head->bytes);
  hak_store_relaxed(&head->holder, hak_tls_heap);
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK(s.live_bytes <= s.superslab_bytes + s.huge_bytes);
  hak_store_relaxed(&head->bytes, bytes);
  CHECK(hak_stats_get(&s, sizeof s) && s.live_bytes >= 100000);
  hak_free(p);
}
ISOLATED(no_heap_counts_as_bytes)

// Sampled blocks are in no slab but are counted nevertheless.
static void guarded_blocks(void) {
  hak_free(hak_malloc(1));
  hak_option(GUARD) = 1;
  hak_guard_start();
  hak_stats_t before = {0}, now = {0};
  CHECK(hak_stats_get(&before, sizeof before));
  void *small = hak_malloc(100), *page = hak_aligned_alloc(64, 2048);
  CHECK(hak_guard_owns(small) && hak_guard_owns(page));
  CHECK(hak_stats_get(&now, sizeof now));
  CHECK_EQUAL(now.allocs - before.allocs, 2);
  CHECK_EQUAL(now.guard_allocs - before.guard_allocs, 2);
  CHECK_EQUAL(now.tiny_allocs + now.l2_allocs + now.l25_allocs + now.huge_allocs + now.guard_allocs + now.first_allocs,
              now.allocs);
  CHECK_EQUAL(now.live_blocks - before.live_blocks, 2);
  CHECK(now.live_bytes >= before.live_bytes + 100 + 2048);
  hak_free(small);
  hak_free(page);
  CHECK(hak_stats_get(&now, sizeof now));
  CHECK_EQUAL(now.frees - before.frees, 2);
  CHECK_EQUAL(now.live_bytes, before.live_bytes);
}
ISOLATED(guarded_blocks)

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(exact_for_one_thread),
    ISOLATED_TEST(exact_for_every_class),
    ISOLATED_TEST(short_and_long_structs),
    ISOLATED_TEST(right_for_a_running_thread),
    ISOLATED_TEST(stages_add_up),
    ISOLATED_TEST(warm_pool_table),
    ISOLATED_TEST(guarded_blocks),
    ISOLATED_TEST(no_frees_below_zero),
    ISOLATED_TEST(no_heap_counts_as_bytes),
    cmocka_unit_test(deferred_or_not),
  };
  return RUN(tests);
}
