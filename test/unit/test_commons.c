// Slabs of threads whose blocks others free: they are given away, found by whoever needs one,
// and nothing that is freed into them is lost, whether or not a thread is there to look after it.

#include "heaps.h"
#include "unit.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"
#include "thread/commons.h"
#include "thread/heap.h"
#include "thread/process.h"
#include "thread/remote.h"

// ---------------------------------------------------------------------------
// A thread that does what it is told, step by step, while the others wait.

typedef struct {
  pthread_t thread;
  pthread_barrier_t step;
  void (*what)(void *);
  void *argument;
  hak_heap_t *heap;
} worker_t;

static void *work(void *argument) {
  worker_t *w = argument;
  hak_free(hak_malloc(1));
  w->heap = hak_tls_heap;
  for (;;) {
    pthread_barrier_wait(&w->step);
    if (!w->what) return NULL;
    w->what(w->argument);
    pthread_barrier_wait(&w->step);
  }
}
static void tell(worker_t *w, void (*what)(void *), void *argument) {
  w->what = what;
  w->argument = argument;
  pthread_barrier_wait(&w->step);
  pthread_barrier_wait(&w->step);
}
static void nothing(void *argument) { (void)argument; }
static void start(worker_t *w) { // then it has its heap and what that begins with
  pthread_barrier_init(&w->step, NULL, 2);
  w->thread = unit_start(work, w);
  tell(w, nothing, NULL);
}
static void end(worker_t *w) {
  w->what = NULL;
  pthread_barrier_wait(&w->step);
  unit_join(w->thread);
}

// ---------------------------------------------------------------------------

enum { BLOCKS = 20000 };
typedef struct {
  size_t size;
  unsigned first, end, step; // of blocks
  unsigned char *blocks[BLOCKS];
} lot_t;
static lot_t lot, lot2;
static worker_t producer, another;

static void set_up(size_t size) {
  hak_process_init();
  hak_option(NURSERY) = 0;
  hak_option(COMMONS) = 1;
  hak_option(RELIEF) = 0;
  hak_option(REMOTE_PENDING) = 0;
  hak_option(FULL_MARK) = 8;
  lot.size = lot2.size = size;
  hak_free(hak_malloc(1));
}

static void allocate(void *argument) {
  lot_t *l = argument;
  for (unsigned i = l->first; i < l->end; i += l->step) {
    CHECK((l->blocks[i] = hak_malloc(l->size)) != NULL);
    fill(l->blocks[i], l->size, i);
  }
}
static void release(void *argument) {
  lot_t *l = argument;
  for (unsigned i = l->first; i < l->end; i += l->step) {
    CHECK(filled(l->blocks[i], l->size, i));
    hak_free(l->blocks[i]);
    l->blocks[i] = NULL;
  }
}
static lot_t *part(lot_t *l, unsigned first, unsigned last) {
  l->first = first;
  l->end = last;
  l->step = 1;
  return l;
}
static lot_t *every_other(lot_t *l, unsigned first) {
  l->first = first;
  l->step = 2;
  return l;
}

static hak_slab_t *slab_of(void *p) {
  hak_slab_t *slab = hak_slab_lookup(p);
  return slab - slab->offset;
}
static unsigned given(const lot_t *l, unsigned first, unsigned last) {
  unsigned n = 0;
  for (unsigned i = first; i < last; i++) n += hak_slab_owner(slab_of(l->blocks[i]))->common;
  return n;
}
static unsigned slabs_in_use(void) {
  unsigned n = 0;
  for (uint32_t i = HAK_SLABS_PER_SUPERSLAB; i < hak_superslab_count() << HAK_SLABS_SHIFT; i++)
    n += hak_slab_kind(hak_slab_at(i)) == HAK_KIND_TINY || hak_slab_kind(hak_slab_at(i)) == HAK_KIND_L2;
  return n;
}
static void nothing_is_left(void) {
  hak_trim(0);
  hak_stats_t s;
  CHECK(hak_stats_get(&s, sizeof s));
  CHECK_EQUAL(s.live_blocks, 0);
  CHECK_EQUAL(s.superslab_bytes, 0);
}
static void check_commons(void) {
  for (uint32_t id = 1; id <= hak_heap_count(); id++) {
    hak_heap_t *heap = hak_heap_by_id(id);
    if (!heap->common) continue;
    CHECK_EQUAL(hak_load_relaxed(&heap->state), HAK_HEAP_ORPHAN);
    hak_heap_check(heap);
  }
}

// Number of blocks in n slabs of the size.
static unsigned slabs(unsigned n) {
  unsigned blocks = n * hak_classes[hak_size_class(lot.size)].capacity;
  CHECK(blocks <= BLOCKS);
  return blocks;
}

// Teaches the producer: its first 40 slabs are freed by this thread and come back.
static void teach(void) {
  tell(&producer, allocate, part(&lot, 0, slabs(40)));
  CHECK_EQUAL(given(&lot, 0, slabs(40)), 0);
  release(part(&lot, 0, slabs(40)));
  hak_remote_flush(hak_tls_heap);
  tell(&producer, allocate, part(&lot, 0, slabs(40)));
  CHECK(producer.heap->others > 0);
}

// The commons that has slabs of the producer's.
static hak_heap_t *common_of_lot(void) {
  hak_heap_t *common = NULL;
  for (unsigned i = 0; i < slabs(40); i++)
    if (hak_slab_owner(slab_of(lot.blocks[i]))->common) common = hak_slab_owner(slab_of(lot.blocks[i]));
  CHECK(common != NULL);
  return common;
}

static const size_t sizes[] = {256, 1000, 1100, 2048};

static void found_by_who_needs_one(void) {
  for (unsigned k = 0; k < COUNT(sizes); k++) {
    set_up(sizes[k]);
    start(&producer);
    start(&another);
    teach();
    uint64_t adopted = heaps_stat(HAK_STAT_refill_commons);
    // Used up by one thread, freed by this thread, and then used by a third.
    unsigned n = given(&lot, 0, slabs(40));
    CHECK(n >= slabs(20));
    unsigned in_use = slabs_in_use();
    release(every_other(&lot, 0));
    hak_remote_flush(hak_tls_heap);
    tell(&another, allocate, part(&lot2, 0, slabs(10)));
    CHECK(heaps_stat(HAK_STAT_refill_commons) >= adopted + 10);
    CHECK(slabs_in_use() <= in_use + 1); // it took what it needed from there
    for (unsigned i = 0; i < 3; i++) { // never looks at an empty place
      hak_commons_tend(hak_tls_heap);
      CHECK(hak_load_relaxed(&hak_commons[hak_tls_heap->common_next]) != NULL);
    }
    check_commons();
    for (unsigned i = 1; i < lot.end; i += 2) CHECK(filled(lot.blocks[i], lot.size, i));
    release(every_other(&lot, 1));
    release(part(&lot2, 0, slabs(10)));
    end(&producer);
    end(&another);
    check_commons();
    nothing_is_left();
  }
}
ISOLATED(found_by_who_needs_one)

// What a thread frees may wait with it. When it is out of memory it finds that in the commons.
static void found_by_who_is_out_of_memory(void) {
  set_up(1000);
  start(&producer);
  teach();
  hak_option(REMOTE_PENDING) = MIB;
  hak_slab_t *slab = NULL;
  for (unsigned i = 0; i < slabs(40) && !slab; i++)
    if (hak_slab_owner(slab_of(lot.blocks[i]))->common) slab = slab_of(lot.blocks[i]);
  CHECK(slab != NULL);
  hak_os_fault(HAK_FAULT_MAP | HAK_FAULT_COMMIT, 0, false);
  static void *mine[BLOCKS];
  unsigned n = 0, count = 0;
  for (; (mine[n] = hak_malloc(1000)) != NULL; n++) CHECK(n + 1 < BLOCKS);
  for (unsigned i = 0; i < slabs(40); i++)
    if (slab_of(lot.blocks[i]) == slab && count++ != 0) hak_free(lot.blocks[i]), lot.blocks[i] = NULL;
  for (; --count != 0; n++) CHECK((mine[n] = hak_malloc(1000)) != NULL);
  CHECK(hak_malloc(1000) == NULL);
  hak_os_fault(0, 0, false);
  for (unsigned i = 0; i < n; i++) hak_free(mine[i]);
  for (unsigned i = 0; i < slabs(40); i++) hak_free(lot.blocks[i]);
  end(&producer);
  check_commons();
  nothing_is_left();
}
ISOLATED(found_by_who_is_out_of_memory)

static void not_of_who_frees_himself(void) {
  for (unsigned k = 0; k < COUNT(sizes); k++) {
    set_up(sizes[k]);
    uint64_t before = heaps_stat(HAK_STAT_commons_give);
    start(&producer);
    for (unsigned i = 0; i < 3; i++) {
      tell(&producer, allocate, part(&lot, 0, slabs(40)));
      tell(&producer, release, part(&lot, 0, slabs(40)));
    }
    end(&producer);
    CHECK_EQUAL(heaps_stat(HAK_STAT_commons_give), before);
    nothing_is_left();
  }
}
ISOLATED(not_of_who_frees_himself)

static void not_if_switched_off(void) {
  set_up(1000);
  hak_option(COMMONS) = 0;
  start(&producer);
  tell(&producer, allocate, part(&lot, 0, slabs(40)));
  release(part(&lot, 0, slabs(40)));
  tell(&producer, allocate, part(&lot, 0, slabs(40)));
  CHECK_EQUAL(given(&lot, 0, slabs(40)), 0);
  release(part(&lot, 0, slabs(40)));
  end(&producer);
  CHECK_EQUAL(heaps_stat(HAK_STAT_commons_give), 0);
  nothing_is_left();
}
ISOLATED(not_if_switched_off)

// Some slabs stay nevertheless, so that a thread notices when it begins to free its blocks.
static void learns_that_it_frees(void) {
  set_up(1000);
  start(&producer);
  teach();
  CHECK(producer.heap->others > 0);
  unsigned kept = slabs(40) - given(&lot, 0, slabs(40));
  CHECK(kept >= slabs(1));
  tell(&producer, release, part(&lot, 0, slabs(40)));
  CHECK_EQUAL(producer.heap->others, 0);
  uint64_t before = heaps_stat(HAK_STAT_commons_give);
  tell(&producer, allocate, part(&lot, 0, slabs(40)));
  CHECK_EQUAL(heaps_stat(HAK_STAT_commons_give), before);
  tell(&producer, release, part(&lot, 0, slabs(40)));
  end(&producer);
  nothing_is_left();
}
ISOLATED(learns_that_it_frees)

// When no thread adopts any more, the freeing threads look after the commons.
static void comes_back_without_adopters(void) {
  for (unsigned k = 0; k < COUNT(sizes); k++) {
    set_up(sizes[k]);
    start(&producer);
    teach();
    end(&producer);
    unsigned in_use = slabs_in_use();
    CHECK(in_use >= 40);
    uint64_t posts = heaps_stat(HAK_STAT_remote_push);
    release(part(&lot, 0, slabs(40)));
    hak_remote_flush(hak_tls_heap);
    CHECK(slabs_in_use() <= 12);
    posts = heaps_stat(HAK_STAT_remote_push) - posts;
    CHECK(posts * 8 <= slabs(40)); // a look at each post would need a post per block
    nothing_is_left();
  }
}
ISOLATED(comes_back_without_adopters)

// At every n-th post; while a thread has it, at each from then on, and once after that.
static void is_looked_after(void) {
  set_up(1000);
  start(&producer);
  teach();
  hak_heap_t *common = common_of_lot();
  common->posts = 0;
  unsigned every = 1;
  while (!hak_commons_due(common)) CHECK(++every < 100);
  CHECK(every > 1);
  for (unsigned i = 1; i < every; i++) CHECK(!hak_commons_due(common));
  common->state = HAK_HEAP_CLAIMED;
  for (unsigned i = 0; i < every; i++) CHECK(hak_commons_due(common));
  common->state = HAK_HEAP_ORPHAN;
  CHECK(hak_commons_due(common));
  CHECK(!hak_commons_due(common));
  release(part(&lot, 0, slabs(40)));
  end(&producer);
  nothing_is_left();
}
ISOLATED(is_looked_after)

// ---------------------------------------------------------------------------
// Thin slabs.

enum { STAYS = 8 }; // one block in so many

static void thin_out(void *argument) {
  lot_t *l = argument;
  for (unsigned i = l->first; i < l->end; i++)
    if (i % STAYS != 0) hak_free(l->blocks[i]);
}
static void free_the_rest(void *argument) {
  lot_t *l = argument;
  for (unsigned i = l->first; i < l->end; i += STAYS) {
    CHECK(filled(l->blocks[i], l->size, i));
    hak_free(l->blocks[i]);
  }
}
static unsigned slabs_given(const lot_t *l) { // of those that hold the blocks that stay
  unsigned n = 0;
  const hak_slab_t *before = NULL;
  for (unsigned i = l->first; i < l->end; i += STAYS) {
    hak_slab_t *slab = slab_of(l->blocks[i]);
    n += slab != before && hak_slab_owner(slab)->common;
    before = slab;
  }
  return n;
}

// What a thread that may sleep now leaves behind is of use to another.
static void thin_ones_are_given(void) {
  static const size_t tiny[] = {64, 256, 1000};
  for (unsigned k = 0; k < COUNT(tiny); k++) {
    set_up(tiny[k]);
    unsigned n = slabs(k == 0 ? 15 : 40) / STAYS * STAYS;
    start(&producer);
    start(&another);
    tell(&producer, allocate, part(&lot, 0, n));
    unsigned in_use = slabs_in_use();
    tell(&producer, thin_out, part(&lot, 0, n));
    unsigned have = slabs_given(&lot);
    CHECK(have + HAK_THIN + 2 >= n / slabs(1));
    uint64_t adopted = heaps_stat(HAK_STAT_refill_commons);
    tell(&another, allocate, part(&lot2, 0, slabs(have / 2)));
    CHECK(heaps_stat(HAK_STAT_refill_commons) >= adopted + have / 2);
    CHECK(slabs_in_use() <= in_use + 1);
    check_commons();
    tell(&producer, free_the_rest, part(&lot, 0, n));
    tell(&another, release, part(&lot2, 0, slabs(have / 2)));
    end(&producer);
    end(&another);
    check_commons();
    nothing_is_left();
  }
}
ISOLATED(thin_ones_are_given)

// No thread, or few, could use them.
static void thin_ones_of_few_stay(void) {
  set_up(256);
  start(&producer);
  unsigned n = slabs(40) / STAYS * STAYS;
  tell(&producer, allocate, part(&lot, 0, n));
  tell(&producer, thin_out, part(&lot, 0, n));
  CHECK_EQUAL(slabs_given(&lot), 0);
  tell(&producer, free_the_rest, part(&lot, 0, n));
  end(&producer);
  nothing_is_left();
}
ISOLATED(thin_ones_of_few_stay)

// A thread that goes on to free all of them pays more, which it notices. Those slabs do not
// count as slabs that others free, whichever thread has adopted them.
static void thin_ones_in_vain(void) {
  set_up(256);
  unsigned n = slabs(40) / STAYS * STAYS, in_vain = 0, rounds = 0;
  start(&producer);
  start(&another);
  for (; in_vain < 3 && rounds < 50; rounds++) {
    unit_clock_step(30);
    tell(&producer, allocate, part(&lot, 0, n));
    uint64_t before = heaps_stat(HAK_STAT_commons_give);
    tell(&producer, thin_out, part(&lot, 0, n));
    in_vain = heaps_stat(HAK_STAT_commons_give) == before ? in_vain + 1 : 0;
    tell(&producer, free_the_rest, part(&lot, 0, n));
  }
  CHECK(rounds > 3 && in_vain == 3);
  CHECK(producer.heap->others < HAK_OTHERS_ENOUGH);
  end(&producer);
  end(&another);
  nothing_is_left();
}
ISOLATED(thin_ones_in_vain)

// A thread that was cancelled while it held a commons blocks no other thread.
static void taken_for_good(void) {
  set_up(1000);
  start(&producer);
  teach();
  hak_heap_t *common = common_of_lot();
  common->state = HAK_HEAP_CLAIMED;
  uint64_t before = heaps_stat(HAK_STAT_commons_give), adopted = heaps_stat(HAK_STAT_refill_commons);
  release(part(&lot, 0, slabs(40)));
  for (unsigned i = 0; i < 3; i++) {
    tell(&producer, allocate, part(&lot, 0, slabs(40)));
    CHECK_EQUAL(given(&lot, 0, slabs(40)), 0);
    release(part(&lot, 0, slabs(40)));
  }
  CHECK_EQUAL(heaps_stat(HAK_STAT_commons_give), before);
  CHECK_EQUAL(heaps_stat(HAK_STAT_refill_commons), adopted);
  end(&producer);
  common->state = HAK_HEAP_ORPHAN;
  nothing_is_left();
}
ISOLATED(taken_for_good)

#if !EMULATED && !defined(__SANITIZE_THREAD__) && !HAK_TSAN
#define CAN_FORK 1 // with other threads: qemu cannot, and TSan has no threads afterwards
// The child frees blocks that lay in a commons, and has its own commons.
static void after_fork(void) {
  set_up(1000);
  start(&producer);
  teach();
  CHECK(given(&lot, 0, slabs(40)) > 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    release(part(&lot, 0, slabs(40)));
    hak_remote_flush(hak_tls_heap);
    start(&another);
    for (unsigned i = 0; i < 3; i++) {
      tell(&another, allocate, part(&lot2, 0, slabs(40)));
      release(part(&lot2, 0, slabs(40)));
    }
    tell(&another, allocate, part(&lot2, 0, slabs(40)));
    bool ok = given(&lot2, 0, slabs(40)) > 0;
    release(part(&lot2, 0, slabs(40)));
    end(&another);
    _exit(ok ? 0 : 1);
  }
  int status;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK_EQUAL(status, 0);
  release(part(&lot, 0, slabs(40)));
  end(&producer);
  nothing_is_left();
}
ISOLATED(after_fork)
#endif

// Many threads at once: all sizes, some of them not for the commons.
enum { THREADS = 6, ROUNDS = 400, BATCH = 200 };
typedef struct {
  unsigned char *block;
  size_t size;
} handed_t;
static _Atomic(handed_t *) handed[THREADS];
static const size_t mixed[] = {16, 100, 500, 1024, 1500, 2048, 3000, 9000};

static void *produce(void *argument) {
  uintptr_t me = (uintptr_t)argument;
  for (unsigned round = 0; round < SCALED((unsigned)ROUNDS); round++) {
    handed_t *batch = hak_malloc(BATCH * sizeof *batch);
    CHECK(batch != NULL);
    for (unsigned i = 0; i < BATCH; i++) {
      size_t size = mixed[(i + round) % COUNT(mixed)];
      batch[i] = (handed_t){hak_malloc(size), size};
      CHECK(batch[i].block != NULL);
      fill(batch[i].block, size, i);
    }
    handed_t *none = NULL;
    while (!atomic_compare_exchange_weak(&handed[me], &none, batch)) {
      none = NULL;
      sched_yield();
    }
  }
  return NULL;
}
static _Atomic unsigned done;
static void *consume(void *unused) {
  while (atomic_load(&done) < THREADS * SCALED((unsigned)ROUNDS)) {
    for (unsigned t = 0; t < THREADS; t++) {
      handed_t *batch = atomic_exchange(&handed[t], NULL);
      if (!batch) continue;
      for (unsigned i = 0; i < BATCH; i++) {
        CHECK(filled(batch[i].block, batch[i].size, i));
        hak_free_sized(batch[i].block, batch[i].size);
      }
      hak_free(batch);
      atomic_fetch_add(&done, 1);
    }
  }
  return unused;
}
static void many_at_once(void) {
  set_up(16);
  hak_option(REMOTE_PENDING) = 65536;
  pthread_t producers[THREADS], consumers[2];
  for (uintptr_t t = 0; t < THREADS; t++) producers[t] = unit_start(produce, (void *)t);
  for (unsigned i = 0; i < 2; i++) consumers[i] = unit_start(consume, NULL);
  for (unsigned t = 0; t < THREADS; t++) unit_join(producers[t]);
  for (unsigned i = 0; i < 2; i++) unit_join(consumers[i]);
  CHECK(heaps_stat(HAK_STAT_commons_give) > 0 && heaps_stat(HAK_STAT_refill_commons) > 0);
  check_commons();
  nothing_is_left();
  CHECK_EQUAL(slabs_in_use(), 0);
}
ISOLATED(many_at_once)

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(found_by_who_needs_one), ISOLATED_TEST(found_by_who_is_out_of_memory),
    ISOLATED_TEST(not_of_who_frees_himself),
    ISOLATED_TEST(not_if_switched_off),
    ISOLATED_TEST(learns_that_it_frees),
    ISOLATED_TEST(comes_back_without_adopters),
    ISOLATED_TEST(is_looked_after),
    ISOLATED_TEST(thin_ones_are_given),
    ISOLATED_TEST(thin_ones_of_few_stay),
    ISOLATED_TEST(thin_ones_in_vain),
    ISOLATED_TEST(taken_for_good),
#if CAN_FORK
    ISOLATED_TEST(after_fork),
#endif
    ISOLATED_TEST(many_at_once),
  };
  return RUN(tests);
}
