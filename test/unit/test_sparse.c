// Slabs in use give back the OS pages that hold no live block: what is live keeps its
// contents, nothing is handed out twice, and the memory really goes.

#include "heaps.h"
#include "unit.h"

#include <pthread.h>

#include "base/bits.h"
#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "superslab/seal.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/orphan.h"
#include "thread/remote.h"
#include "thread/sparse.h"
#include "thread/warm.h"

enum { MOST = 1 << 16 };
static void *held[MOST];

static uint64_t trimmed(void) {
  hak_heap_t *heap = hak_tls_heap;
  return hak_load_relaxed(&heap->stats[HAK_STAT_page_trim]);
}

// Random frees, trims and allocations of one size.
static void contents(size_t size, unsigned most) {
  uint64_t seed = size, live = 0, trims = 0;
  unsigned keep[] = {most, most / 2, most / 16, most / 100, 0};
  for (unsigned round = 0; round < 2 * COUNT(keep); round++) {
    while (live < most) {
      CHECK((held[live] = hak_malloc(size)) != NULL);
      fill(held[live], size, (uintptr_t)held[live]);
      live++;
    }
    while (live > keep[round % COUNT(keep)]) {
      uint64_t victim = chance_below(&seed, live);
      CHECK(filled(held[victim], size, (uintptr_t)held[victim]));
      hak_free(held[victim]);
      held[victim] = held[--live];
    }
    uint64_t before = trimmed();
    hak_sparse_trim_all(hak_tls_heap);
    trims += trimmed() - before;
    hak_heap_check(hak_tls_heap);
    for (uint64_t i = 0; i < live; i++) CHECK(filled(held[i], size, (uintptr_t)held[i]));
  }
  while (live) hak_free(held[--live]);
  hak_heap_check(hak_tls_heap);
  // With FULL_MARK=1 no slab that is partly free is PARTIAL.
  bool can = hak_option(PURGE) >= 2 && hak_option(FULL_MARK) > 1;
  if (can && hak_os_page_size == 4096 && !SANITIZED) // else too few blocks
    CHECK(trims != 0);
}

static void every_class(void) {
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    size_t size = hak_class_size(c) - HAK_TAIL;
    size_t most = SCALED(4 * MIB) / size;
    contents(size, most < MOST ? (unsigned)most : MOST);
  }
}
ISOLATED(every_class)

// One block in so many survives and pins its slab.
enum { SURVIVOR = 512, ONE_IN = 100, SURVIVING = 32 * MIB / SURVIVOR };
static void *leave_survivors(void *unused) {
  for (unsigned i = 0; i < SURVIVING; i++) CHECK((held[i] = memset(hak_malloc(SURVIVOR), 1, SURVIVOR)) != NULL);
  for (unsigned i = 0; i < SURVIVING; i++)
    if (i % ONE_IN) hak_free(held[i]);
  return unused;
}
static bool survivors_matter(void) {
  if (hak_option(PURGE) < 2 || SANITIZED || hak_os_page_size != 4096) return false;
  return hak_option(FULL_MARK) != 1; // the slabs stay FULL
}
static bool are_gone(size_t full) {
  unsigned slabs = SURVIVING / (HAK_SLAB_SIZE / SURVIVOR);
  return status_kib("VmRSS:") + slabs * 12 * 4 < full; // 12 of 16 pages
}
static void pages_between_went(size_t full) {
  CHECK(are_gone(full));
  for (unsigned i = 0; i < SURVIVING; i += ONE_IN) CHECK(*(char *)held[i] == 1);
}
static void survivors(void) {
  if (!survivors_matter()) return;
  leave_survivors(NULL);
  CHECK(hak_trim(0)); // no SuperSlab is empty
  pages_between_went(SURVIVING * SURVIVOR / KIB);
}
ISOLATED(survivors)

// The same in the heap of an ended thread, requested by a thread that has no heap.
static void survivors_of_another(void) {
  if (!survivors_matter()) return;
  hak_option(NURSERY) = 0;
  unit_in_thread(leave_survivors, NULL);
  hak_heap_reclaim_all(NULL, 0);
  pages_between_went(SURVIVING * SURVIVOR / KIB);
  unit_in_thread(leave_survivors, NULL); // takes that heap over
}
ISOLATED(survivors_of_another)

// The same without a request: threads at work visit the heap, again and again.
static void survivors_of_the_ended(void) {
  if (!survivors_matter()) return;
  hak_option(NURSERY) = 0;
  hak_free(hak_malloc(1));
  unit_in_thread(leave_survivors, NULL);
  hak_heap_t *ended = hak_slab_owner(hak_slab_lookup(held[0]));
  CHECK(ended != hak_tls_heap);
  size_t full = status_kib("VmRSS:");
  for (unsigned i = 0; i < 300 && !are_gone(full); i++) {
    ended->tended_at = 0; // long ago; no thread has it
    hak_orphan_tend();
    unit_clock_step(12); // part of such heaps is visited every 10 ms
  }
  pages_between_went(full);
}
ISOLATED(survivors_of_the_ended)

// The same with threads that were too young for heaps of their own.
enum { YOUNG_BLOCKS = 500 };
static void *leave_some(void *first) {
  for (unsigned i = 0; i < YOUNG_BLOCKS; i++)
    CHECK((held[(uintptr_t)first + i] = memset(hak_malloc(SURVIVOR), 1, SURVIVOR)) != NULL);
  return NULL;
}
static void survivors_of_the_young(void) {
  if (!survivors_matter() || hak_option(NURSERY) == 0) return;
  hak_free(hak_malloc(1));
  uintptr_t count = SURVIVING - SURVIVING % YOUNG_BLOCKS;
  for (uintptr_t i = 0; i < count; i += YOUNG_BLOCKS) unit_in_thread(leave_some, (void *)i);
  hak_heap_t *nursery = hak_slab_owner(hak_slab_lookup(held[0]));
  CHECK(nursery->nursery);
  size_t full = status_kib("VmRSS:");
  for (uintptr_t i = 0; i < count; i++)
    if (i % ONE_IN) hak_free(held[i]);
  hak_remote_flush(hak_tls_heap);
  for (uintptr_t i = count; i < SURVIVING; i++) held[i] = hak_malloc(SURVIVOR), *(char *)held[i] = 1;
  for (unsigned i = 0; i < 300 && !are_gone(full); i++) {
    nursery->tended_at = 0;
    nursery->looked_at = 0; // more than a second ago, and no thread came
    hak_orphan_tend();
    unit_clock_step(12);
  }
  pages_between_went(full);
}
ISOLATED(survivors_of_the_young)

// Of a slab's blocks ever fewer stay: one in each of 8 of its 16 pages, of 4, and so on.
static void ever_fewer(void) {
  enum { SIZE = 64 };
  if (!survivors_matter()) return;
  char *p[HAK_SLAB_SIZE / SIZE];
  for (unsigned i = 0; i < COUNT(p); i++) CHECK((p[i] = hak_malloc(SIZE - HAK_TAIL)) != NULL);
  hak_slab_t *slab = hak_slab_lookup(p[COUNT(p) / 2]);
  for (unsigned i = 0; i < 3 * COUNT(p); i++) CHECK(hak_malloc(SIZE - HAK_TAIL) != NULL); // others get in front
  for (unsigned stay = 8; stay >= 1; stay /= 2) {
    uint32_t pages = 0;
    for (unsigned i = 0; i < COUNT(p); i++) {
      if (!p[i] || hak_slab_lookup(p[i]) != slab) continue;
      unsigned page = (unsigned)((uintptr_t)p[i] % HAK_SLAB_SIZE / 4096), bit = 1u << page;
      if (page % (16 / stay) == 0 && !(pages & bit)) pages |= bit;
      else hak_free(p[i]), p[i] = NULL;
    }
    heaps_let_go();
    for (unsigned i = 0; i < 3; i++) {
      hak_tls_heap->tended_at = 0;
      hak_sparse_tend(hak_tls_heap);
    }
    CHECK(hak_slab_live(slab) <= stay + 1 && hak_count_bits(slab->absent) + 2 * stay + 2 >= 16);
  }
}
ISOLATED(ever_fewer)

// The first blocks of a slab stay: more than a few, but in few pages. Each such state is
// looked at once, because a look walks the whole free list.
static void rows_that_stay(void) {
  enum { SIZE = 64, STAY = 3 * 4096 };
  if (!survivors_matter()) return;
  char *p[HAK_SLAB_SIZE / SIZE];
  for (unsigned i = 0; i < COUNT(p); i++) CHECK((p[i] = hak_malloc(SIZE - HAK_TAIL)) != NULL);
  hak_slab_t *slab = hak_slab_lookup(p[COUNT(p) / 2]);
  for (unsigned i = 0; i < 3 * COUNT(p); i++) CHECK(hak_malloc(SIZE - HAK_TAIL) != NULL); // others get in front
  unsigned stay = 0;
  for (unsigned i = 0; i < COUNT(p); i++) {
    bool stays = hak_slab_lookup(p[i]) == slab && (uintptr_t)p[i] % HAK_SLAB_SIZE < STAY;
    if (!stays) hak_free(p[i]), p[i] = NULL;
    stay += stays;
  }
  heaps_let_go();
  uint64_t trims[5] = {trimmed()};
  for (unsigned i = 1; i < COUNT(trims); i++) {
    if (i == COUNT(trims) - 1) // another state: one page less
      for (unsigned k = 0; k < COUNT(p); k++)
        if (p[k] && (uintptr_t)p[k] % HAK_SLAB_SIZE >= STAY - 4096) hak_free(p[k]), p[k] = NULL, stay--;
    for (unsigned looks = 0; looks < 1 + (i == COUNT(trims) - 1); looks++) {
      hak_tls_heap->tended_at = 0;
      hak_sparse_tend(hak_tls_heap);
    }
    trims[i] = trimmed();
  }
  heaps_let_go();
  CHECK_EQUAL(hak_slab_live(slab), stay);
  if (HAK_SECURE) return; // heaps_let_go trims
  CHECK(trims[1] == trims[0] && trims[2] >= trims[1] + 12);
  CHECK(trims[3] == trims[2] && trims[4] == trims[3] + 1);
  CHECK_EQUAL(hak_count_bits(slab->absent), 16 - STAY / 4096 + 1);
}
ISOLATED(rows_that_stay)

// A tenth of a mid-size peak stays, and no thread does anything afterwards.
static void mid_peak(void) {
  enum { COUNT_ = 16000, BLOCK_KIB = 20, SIZE = BLOCK_KIB * KIB - HAK_TAIL };
  if (hak_option(PURGE) < 2 || SANITIZED || !hak_option(L2_RING_CAP)) return;
  if (hak_option(LRU_CAP) > 16) return; // kept empty SuperSlabs keep memory
  uint64_t seed = 3;
  size_t before = status_kib("VmRSS:"), live = 0;
  for (unsigned i = 0; i < COUNT_; i++) CHECK((held[i] = memset(hak_malloc(SIZE), 1, SIZE)) != NULL);
  for (unsigned i = 0; i < COUNT_; i++) {
    if (chance_below(&seed, 10) == 0) live += BLOCK_KIB;
    else hak_free(held[i]);
  }
  // Beside live blocks: waiting runs, 4 SuperSlabs, and what the ring may use again.
  CHECK(status_kib("VmRSS:") < before + live + live / 5 + HAK_SPARSE * 8 * BLOCK_KIB + 4 * 2048);
}
ISOLATED(mid_peak)

// In a pause nothing is trimmed early and little is done for it; afterwards trims resume.
static void after_a_pause(void) {
  enum { COUNT_ = 4000, SIZE = 20 * KIB };
  if (hak_option(PURGE) < 2 || SANITIZED || !hak_option(L2_RING_CAP)) return;
  uint64_t seed = 4, pages[2];
  unit_clock_step(0);
  for (unsigned round = 0; round < COUNT(pages); round++) {
    for (unsigned i = 0; i < COUNT_; i++) CHECK((held[i] = hak_malloc(SIZE)) != NULL);
    hak_heap_t *heap = hak_tls_heap;
    heap->trim_regret.until = round == 0 ? hak_os_clock_ms() + 60000 : 0;
    heap->trim_regret.size = hak_mapped.superslab_bytes; // or growth would end it
    pages[round] = trimmed();
    for (unsigned i = 0; i < COUNT_; i++)
      if (chance_below(&seed, 10) != 0) hak_free(held[i]), held[i] = NULL;
    pages[round] = trimmed() - pages[round];
    if (round == 0) CHECK(heap->trim_skips != 0);
    for (unsigned i = 0; i < COUNT_; i++) hak_free(held[i]);
  }
  CHECK_EQUAL(pages[0], 0);
  CHECK(pages[1] > COUNT_);
}
ISOLATED(after_a_pause)

// Buffers that are filled, shrunk and kept: the memory of their former ends goes back.
static void tails_of_shrunk_blocks(void) {
  enum { COUNT_ = 100, FROM = 1000000, TO = 510000 };
  if (hak_option(PURGE) < 2 || SANITIZED || HAK_SECURE || hak_option(GUARD)) return;
  uint64_t purged = hak_counter(slab_purge);
  for (unsigned i = 0; i < COUNT_; i++) {
    CHECK((held[i] = hak_malloc(FROM)) != NULL);
    memset(held[i], 1, FROM);
    CHECK(hak_realloc(held[i], TO) == held[i]);
  }
  CHECK(hak_counter(slab_purge) - purged > COUNT_ * (FROM - TO) / HAK_SLAB_SIZE / 2);
  for (unsigned i = 0; i < COUNT_; i++) hak_free(held[i]);
}
ISOLATED(tails_of_shrunk_blocks)

// In a crowd an empty front waits among the runs to be trimmed and does not block them.
static void past_an_empty_front(void) {
  enum { COUNT_ = 4000, SIZE = 20 * KIB, OTHER = 8000 };
  if (hak_option(PURGE) < 2 || SANITIZED || HAK_SECURE || hak_option(GUARD) || !hak_option(L2_RING_CAP)) return;
  hak_option(NURSERY) = 0;
  hak_free(hak_malloc(1));
  hak_heap_threads = HAK_CROWD + 1;
  unsigned capacity = hak_classes[hak_size_class(OTHER)].capacity;
  void *other[HAK_L2_BLOCKS_MAX];
  for (unsigned i = 0; i < capacity; i++) CHECK((other[i] = hak_malloc(OTHER)) != NULL);
  hak_slab_t *run = hak_slab_lookup(other[0]);
  for (unsigned i = 0; i < capacity; i++) hak_free(other[i]);
  CHECK(run->waits && hak_slab_place(run) == HAK_PLACE_ACTIVE && hak_slab_live(run) == 0);
  uint64_t seed = 4, pages = trimmed();
  for (unsigned i = 0; i < COUNT_; i++) CHECK((held[i] = hak_malloc(SIZE)) != NULL);
  for (unsigned i = 0; i < COUNT_; i++)
    if (chance_below(&seed, 10) != 0) hak_free(held[i]), held[i] = NULL;
  CHECK(trimmed() - pages > COUNT_);
  CHECK(run->waits);
  for (unsigned i = 0; i < COUNT_; i++) hak_free(held[i]);
}
ISOLATED(past_an_empty_front)

// A thread that goes on working trims what is idle unasked, even if only one class is idle.
static void sweeps(void) {
  enum { SIZE = 1000, ONE_IN = 64 };
  if (hak_option(PURGE) < 2 || SANITIZED || hak_os_page_size != 4096) return;
  if (hak_option(FULL_MARK) == 1) return; // the slabs stay FULL
  unsigned count = 48 * MIB / SIZE, much = 24 * MIB / KIB;
  for (unsigned i = 0; i < count; i++) CHECK((held[i] = memset(hak_malloc(SIZE), 1, SIZE)) != NULL);
  for (unsigned i = 0; i < count; i++)
    if (i % ONE_IN) hak_free(held[i]);
  size_t before = status_kib("VmRSS:");
  for (unsigned steps = 0; steps < 1000 && status_kib("VmRSS:") + much > before; steps++) {
    for (unsigned i = 0; i < 20000; i++) hak_free(hak_malloc(i % 500)); // hits
    void *some[2000];
    for (unsigned i = 0; i < COUNT(some); i++) some[i] = hak_malloc(100); // and refills
    for (unsigned i = 0; i < COUNT(some); i++) hak_free(some[i]);
    unit_clock_step(60); // more than a part of a sweep waits for the next
  }
  CHECK(status_kib("VmRSS:") + much <= before);
}
ISOLATED(sweeps)

// A thread whose blocks of one size have nearly all gone takes as many of another size at once.
enum { FIRST = 100, THEN = 500, AMOUNT = 24 * MIB, FIRST_ONE_IN = HAK_SLAB_SIZE / FIRST };
static void *first[AMOUNT / FIRST];
static void take_first(void) {
  for (unsigned i = 0; i < COUNT(first); i++) {
    if (first[i]) continue;
    CHECK((first[i] = hak_malloc(FIRST)) != NULL);
    fill(first[i], FIRST, i);
  }
  for (unsigned i = 0; i < COUNT(first); i++) {
    if (i % FIRST_ONE_IN) hak_free(first[i]), first[i] = NULL;
  }
}
// Returns the number of pages trimmed meanwhile, which no sweep did.
static uint64_t take_then(size_t amount) {
  uint64_t before = trimmed();
  for (unsigned i = 0; i < amount / THEN; i++)
    CHECK((held[i] = memset(hak_malloc(THEN), 1, THEN)) != NULL);
  return trimmed() - before;
}
static void room_for_others(void) {
  if (!survivors_matter()) return;
  hak_option(NURSERY) = 0;
  unit_clock_step(0);
  hak_free(hak_malloc(1));
  hak_tls_heap->tended_at = hak_os_clock_ms(); // no sweep is due
  take_first();
  CHECK(take_then(AMOUNT) > AMOUNT / hak_os_page_size / 2);
  // The first size needs these pages at once. That is learnt, and no more are given back until much
  // more memory is needed.
  take_first();
  CHECK_EQUAL(take_then(8 * MIB), 0); // a pause
  for (unsigned i = 0; i < COUNT(first); i += FIRST_ONE_IN) CHECK(filled(first[i], FIRST, i));
  hak_heap_check(hak_tls_heap);
}
ISOLATED(room_for_others)

// All blocks of a class are freed in any order and needed again at once. The heap learns that
// runs trimmed on the way become empty and that fresh ones take their places.
static void trimmed_runs_that_get_empty(void) {
  enum { BLOCKS = 4000, SIZE = 5000, ROUNDS = 16 };
  if (hak_option(PURGE) < 2 || SANITIZED || EMULATED) return;
  hak_option(NURSERY) = 0;
  hak_option(LRU_CAP) = 256;
  unit_clock_step(0);
  static void *p[BLOCKS];
  uint64_t trimmed[ROUNDS + 1] = {0}, random = 1;
  for (unsigned round = 0; round < ROUNDS; round++) {
    for (unsigned i = 0; i < BLOCKS; i++) CHECK((p[i] = hak_malloc(SIZE)) != NULL);
    for (unsigned i = 0; i < BLOCKS; i++) { // any order: Fisher-Yates
      random = random * 6364136223846793005u + 1442695040888963407u;
      unsigned j = i + (unsigned)((random >> 33) % (BLOCKS - i));
      void *freed = p[j];
      p[j] = p[i];
      hak_free(freed);
    }
    trimmed[round + 1] = hak_tls_heap->stats[HAK_STAT_page_trim];
  }
  CHECK(trimmed[1] > 0);
  CHECK_EQUAL(trimmed[ROUNDS], trimmed[ROUNDS / 2]); // a pause
}
ISOLATED(trimmed_runs_that_get_empty)

// Each of many threads that have freed all their blocks keeps few empty runs.
enum { CROWD = 24 };
static pthread_barrier_t all_have_heaps, all_have_freed;
static _Atomic unsigned empty_runs, all_runs;
static void *use_and_wait(void *threads) {
  static const size_t sizes[] = {4096, 8192, 12288, 16384, 24576, 32768, 49152};
  for (unsigned i = 0; i < 4000; i++) hak_free(hak_malloc(100)); // no nursery after that
  pthread_barrier_wait(&all_have_heaps);
  hak_heap_t *heap = hak_tls_heap;
  unsigned empty = 0, all = 0;
  for (unsigned s = 0; s < COUNT(sizes); s++) {
    void *p[64];
    unsigned n = hak_classes[hak_size_class(sizes[s])].capacity;
    for (unsigned i = 0; i < n; i++) CHECK((p[i] = hak_malloc(sizes[s])) != NULL);
    for (unsigned i = 0; i < n; i++) hak_free(p[i]);
  }
  hak_heap_check(heap);
  for (unsigned c = HAK_TINY_CLASSES; c < HAK_CLASSES; c++) {
    hak_slab_t *front = hak_heap_front(heap, c);
    if (front != &hak_slab_none && hak_slab_unused(front)) empty++;
    all += hak_warm_slabs(heap, c);
    CHECK((uintptr_t)threads <= HAK_CROWD || heap->spare[c] == 0);
  }
  empty_runs += empty;
  all_runs += all;
  pthread_barrier_wait(&all_have_freed);
  return NULL;
}
static void use_by(unsigned threads) {
  pthread_t thread[CROWD];
  empty_runs = all_runs = 0;
  CHECK(pthread_barrier_init(&all_have_heaps, NULL, threads) == 0);
  CHECK(pthread_barrier_init(&all_have_freed, NULL, threads) == 0);
  for (unsigned i = 0; i < threads; i++)
    CHECK(pthread_create(&thread[i], NULL, use_and_wait, (void *)(uintptr_t)threads) == 0);
  for (unsigned i = 0; i < threads; i++) CHECK(pthread_join(thread[i], NULL) == 0);
}
static void a_crowd_shares(void) {
  if (hak_option(PURGE) < 2 || HAK_SECURE || hak_option(GUARD)) return;
  hak_option(NURSERY) = 0;
  use_by(4);
  CHECK(empty_runs >= 4 * 6);
  use_by(CROWD);
  CHECK(empty_runs > 0 && empty_runs <= CROWD * (2 + HAK_SPARSE * HAK_CROWD / CROWD));
  CHECK(all_runs <= CROWD * (2 + HAK_SPARSE * HAK_CROWD / CROWD));
}
ISOLATED(a_crowd_shares)

// Runs of which few blocks were used go back as well, unless their classes need them again.
static unsigned empty_fronts_after_use(void) {
  static const size_t sizes[] = {4096, 8192, 12288, 16384, 24576, 32768, 49152};
  unsigned empty = 0;
  for (unsigned s = 0; s < COUNT(sizes); s++) hak_free(hak_malloc(sizes[s]));
  for (unsigned s = 0; s < COUNT(sizes); s++) {
    hak_slab_t *front = hak_heap_front(hak_tls_heap, hak_size_class(sizes[s]));
    empty += front != &hak_slab_none && hak_slab_unused(front);
  }
  hak_heap_check(hak_tls_heap);
  return empty;
}
static void little_used_fronts(void) {
  if (hak_option(PURGE) < 2 || HAK_SECURE || hak_option(GUARD)) return;
  hak_option(NURSERY) = hak_option(L2_BORROW) = 0;
  hak_free(hak_malloc(1));
  CHECK_EQUAL(empty_fronts_after_use(), 7);
  hak_heap_reclaim_own(hak_tls_heap);
  hak_heap_threads = HAK_SPARSE * HAK_CROWD;
  CHECK_EQUAL(empty_fronts_after_use(), 1);
  unsigned rounds = 0; // more than one if the thread did not run for a second
  while (empty_fronts_after_use() != 7 && rounds < 20) rounds++;
  CHECK(rounds < 20);
}
ISOLATED(little_used_fronts)

int main(void) {
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(little_used_fronts),
    ISOLATED_TEST(a_crowd_shares),
    ISOLATED_TEST(trimmed_runs_that_get_empty),
    ISOLATED_TEST(room_for_others),
    ISOLATED_TEST(every_class),
    ISOLATED_TEST(survivors),
      ISOLATED_TEST(survivors_of_another),
    ISOLATED_TEST(survivors_of_the_ended),
    ISOLATED_TEST(survivors_of_the_young),
    ISOLATED_TEST(ever_fewer),
    ISOLATED_TEST(rows_that_stay),
    ISOLATED_TEST(mid_peak),
    ISOLATED_TEST(after_a_pause),
    ISOLATED_TEST(past_an_empty_front),
    ISOLATED_TEST(tails_of_shrunk_blocks),
    ISOLATED_TEST(sweeps),
  };
  return RUN(tests);
}
