// letter.h: L2 blocks of another thread's heap go to it many at a time, and one by one where it
// does not come by.

#include "other.h"

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "superslab/slab.h"
#include "thread/letter.h"
#include "thread/process.h"
#include "thread/relief.h"
#include "thread/remote.h"

#define SIZE 5000

static hak_slab_t *run_of(void *p) {
  hak_slab_t *slab = hak_slab_lookup(p);
  return slab - slab->offset;
}
static unsigned written(hak_heap_t *heap) {
  unsigned n = 0;
  for (unsigned i = 0; i < HAK_LETTERS; i++)
    if (heap->letters[i].owner != &hak_heap_none) n += heap->letters[i].count;
  return n;
}
static unsigned sent(hak_heap_t *heap) {
  unsigned n = 0;
  for (unsigned i = 0; i < HAK_LETTERS; i++) n += hak_load_relaxed(&heap->letters[i].sent);
  return n;
}
static bool is_free_in(hak_slab_t *run, void *p) {
  uint32_t number;
  CHECK(hak_slab_block(run, p, &number));
  return hak_load_relaxed(&run->mask) >> number & 1;
}

// Held back, sent, taken in: the run's words do not change until the owner takes them in.
static void to_the_owner(void) {
  hak_heap_t *me = mine();
  start(&other, SIZE, 6);
  hak_slab_t *run = run_of(other.blocks[0]);
  for (unsigned i = 0; i < 4; i++) give(other.blocks[i]);
  CHECK_EQUAL(written(me), 4);
  CHECK(hak_letter_holds(me, run, 0));
  CHECK(hak_load_relaxed(&other.heap->mail) == NULL);
  CHECK_EQUAL(stat(me, HAK_STAT_letter_send), 0);
  hak_remote_flush(me);
  CHECK_EQUAL(written(me), 0);
  CHECK_EQUAL(sent(me), 1);
  CHECK_EQUAL(stat(me, HAK_STAT_letter_send), 1);
  CHECK_EQUAL(stat(me, HAK_STAT_free_remote), 4);
  CHECK(hak_load_relaxed(&other.heap->mail) != NULL);
  CHECK_EQUAL(run->remote, 0);
  CHECK_EQUAL(hak_load_relaxed(&other.heap->inbox), 0);
  CHECK_EQUAL(hak_slab_live(run), 6);
  tell(&other, DRAIN);
  CHECK(hak_load_relaxed(&other.heap->mail) == NULL);
  CHECK_EQUAL(sent(me), 0);
  CHECK_EQUAL(hak_slab_live(run), 2);
  for (unsigned i = 0; i < 6; i++) CHECK_EQUAL(is_free_in(run, other.blocks[i]), i < 4);
  CHECK(filled(other.blocks[4], SIZE, 4) && filled(other.blocks[5], SIZE, 5));
  CHECK_EQUAL(stat(other.heap, HAK_STAT_remote_collect), 4);
  tell(&other, END);
}
ISOLATED(to_the_owner)

// A block that is freed again while its run goes back has no owner any more. It is in no letter, the
// one that was sent last least of all.
static void to_nobody(void) {
  hak_heap_t *me = mine();
  start(&other, SIZE, 6);
  hak_slab_t gone = {.size = SIZE};
  for (unsigned i = 0; i < 4; i++) {
    CHECK(!hak_letter_add(me, &gone, 0, "free"));
    CHECK_EQUAL(written(me), i % 2);
    if (i % 2) hak_remote_flush(me);
    else give(other.blocks[i]);
  }
  hak_option(ABORT) = 0; // and handed over late it is reported
  uint32_t reported = hak_misuse_count;
  hak_remote_push_one(&gone, other.blocks[5], 5);
  CHECK_EQUAL(hak_misuse_count, reported + 1);
  CHECK_EQUAL(gone.remote, 0);
}
ISOLATED(to_nobody)

// A full letter is sent by itself, as is one with enough bytes.
static void when_full(void) {
  hak_heap_t *me = mine();
  const size_t sizes[] = {2100, 5000, 20000, 57344};
  for (unsigned k = 0; k < COUNT(sizes); k++) {
    size_t size = hak_class_size(hak_size_class(sizes[k]));
    unsigned count = HAK_LETTER_BYTES / size + (HAK_LETTER_BYTES % size != 0);
    if (count > HAK_LETTER_HINTS) count = HAK_LETTER_HINTS;
    start(&other, sizes[k], count + 1);
    for (unsigned i = 0; i + 1 < count; i++) give(other.blocks[i]);
    CHECK_EQUAL(sent(me), 0);
    give(other.blocks[count - 1]);
    CHECK_EQUAL(sent(me), 1);
    give(other.blocks[count]);
    CHECK_EQUAL(written(me), 1);
    uint64_t before = stat(other.heap, HAK_STAT_remote_collect);
    tell(&other, DRAIN);
    CHECK_EQUAL(stat(other.heap, HAK_STAT_remote_collect) - before, count);
    hak_remote_flush(me);
    tell(&other, END);
    CHECK_EQUAL(sent(me), 0); // a thread's end opens its mail
  }
}
ISOLATED(when_full)

// A thread that frees what it had and allocates nothing more sends its letters before it sleeps.
static void sent_by_frees(void) {
  enum { OWN = 1500, LARGE = 16000 };
  static void *own[OWN];
  hak_heap_t *me = mine();
  for (unsigned i = 0; i < OWN; i++) CHECK((own[i] = hak_malloc(LARGE)) != NULL);
  start(&other, LARGE, 3);
  for (unsigned i = 0; i < 3; i++) give(other.blocks[i]);
  CHECK_EQUAL(written(me), 3);
  for (unsigned i = 0; i < OWN; i++) give(own[i]);
  CHECK_EQUAL(written(me), 0);
  CHECK(hak_load_relaxed(&other.heap->mail) != NULL);
  tell(&other, END);
}
ISOLATED(sent_by_frees)

// Two owners at a time, in turns.
static void two_owners(void) {
  hak_heap_t *me = mine();
  start(&other, SIZE, 40);
  start(&second, SIZE, 40);
  for (unsigned i = 0; i < 40; i++) give(other.blocks[i]), give(second.blocks[i]);
  hak_remote_flush(me);
  CHECK_EQUAL(stat(me, HAK_STAT_letter_send), 4);
  tell(&other, DRAIN), tell(&second, DRAIN);
  CHECK_EQUAL(stat(other.heap, HAK_STAT_remote_collect), 40);
  CHECK_EQUAL(stat(second.heap, HAK_STAT_remote_collect), 40);
  tell(&other, END), tell(&second, END);
}
ISOLATED(two_owners)

// An owner that sleeps: what waits for it stays bounded, and its runs go back nevertheless.
#define MANY 3000
static void owner_sleeps(void) {
  hak_heap_t *me = mine();
  start(&other, SIZE, MANY);
  uint64_t most = 0;
  for (unsigned i = 0; i < MANY; i++) {
    give(other.blocks[i]);
    uint64_t n = written(me);
    for (hak_letter_t *l = hak_load_relaxed(&other.heap->mail); l; l = l->next) n += l->count;
    if (n > most) most = n;
  }
  CHECK(most <= HAK_LETTERS * HAK_LETTER_HINTS);
  CHECK(stat(me, HAK_STAT_letter_recall) >= HAK_LETTERS);
  // As malloc_trim asks.
  hak_remote_flush(me);
  hak_relief_all(me);
  CHECK(hak_load_relaxed(&other.heap->mail) == NULL);
  CHECK_EQUAL(sent(me), 0);
  unsigned left = 0;
  for (unsigned i = 0; i < MANY; i++)
    left += hak_slab_lookup(other.blocks[i]) != NULL &&
            hak_slab_kind(run_of(other.blocks[i])) == HAK_KIND_L2 &&
            hak_slab_owner(run_of(other.blocks[i])) == other.heap;
  CHECK(left <= 2 * HAK_L2_BLOCKS_MAX); // of the run in front
  tell(&other, DRAIN);
  tell(&other, END);
}
ISOLATED(owner_sleeps)

// The sender opens the mail of a heap without a thread: one claim for each letter.
static void owner_has_ended(void) {
  hak_heap_t *me = mine();
  start(&other, SIZE, 8);
  hak_slab_t *run = run_of(other.blocks[0]);
  for (unsigned i = 0; i < 3; i++) give(other.blocks[i]);
  hak_heap_t *old = other.heap;
  tell(&other, END);
  CHECK_EQUAL(hak_load_relaxed(&old->state), HAK_HEAP_ORPHAN);
  hak_remote_flush(me);
  CHECK(hak_load_relaxed(&old->mail) == NULL);
  CHECK_EQUAL(hak_slab_live(run), 5);
  CHECK_EQUAL(stat(old, HAK_STAT_heap_service), 1);
  for (unsigned i = 3; i < 8; i++) give(other.blocks[i]);
  CHECK_EQUAL(written(me), 5);
  CHECK_EQUAL(hak_slab_live(run), 5);
  hak_remote_flush(me);
  CHECK_EQUAL(sent(me), 0);
  CHECK_EQUAL(hak_load_relaxed(&old->state), HAK_HEAP_ORPHAN);
  CHECK_EQUAL(stat(old, HAK_STAT_heap_service), 2);
  CHECK_EQUAL(stat(me, HAK_STAT_remote_push), 0);
  CHECK_EQUAL(hak_slab_kind(run), HAK_KIND_FREE);
}
ISOLATED(owner_has_ended)

// The run is another heap's when the letter is opened: it is passed on.
static void adopted_meanwhile(void) {
  hak_heap_t *me = mine();
  start(&other, SIZE, 8);
  start(&second, 64, 1);
  hak_slab_t *run = run_of(other.blocks[0]);
  hak_heap_t *old = other.heap;
  for (unsigned i = 0; i < 3; i++) give(other.blocks[i]);
  tell(&other, END);
  CHECK(hak_heap_adopt(me, hak_slab_class(run)));
  CHECK(hak_slab_owner(run) == me);
  hak_remote_flush(me); // to the old owner, which is an orphan
  CHECK(hak_load_relaxed(&old->mail) == NULL);
  CHECK(run->remote & HAK_REMOTE_QUEUED);
  hak_heap_drain(me);
  CHECK_EQUAL(hak_slab_live(run), 5);
  hak_heap_check(me);
  tell(&second, END);
}
ISOLATED(adopted_meanwhile)

// A block freed twice, in two letters: its run goes once, and the second free is reported.
static void freed_again(void) {
  hak_heap_t *me = mine();
  hak_option(ABORT) = 0;
  hak_option(WARM_POOL) = 0;
  start(&other, SIZE, 40);
  hak_slab_t *run = run_of(other.blocks[0]);
  give(other.blocks[0]);
  hak_remote_flush(me);
  for (unsigned i = 1; i < run->capacity; i++) give(other.blocks[i]);
  hak_remote_flush(me);
  give(other.blocks[0]);
  hak_remote_flush(me);
  CHECK_EQUAL(sent(me), 3);
  uint32_t reported = hak_misuse_count;
  tell(&other, DRAIN); // the last one is opened first
  CHECK_EQUAL(hak_misuse_count, reported + 1);
  CHECK_EQUAL(hak_slab_kind(run), HAK_KIND_FREE);
  CHECK_EQUAL(run->remote, 0);
  CHECK_EQUAL(sent(me), 0);
  tell(&other, END);
}
ISOLATED(freed_again)

static void not_for_all(void) {
  hak_heap_t *me = mine();
  start(&other, 2000, 4); // of a class that goes to the commons
  give(other.blocks[0]);
  CHECK_EQUAL(written(me), 0);
  tell(&other, END);
  hak_option(LETTERS) = 0;
  start(&other, SIZE, 4);
  give(other.blocks[0]);
  CHECK_EQUAL(written(me), 0);
  CHECK(run_of(other.blocks[0])->remote & HAK_REMOTE_QUEUED);
  tell(&other, END);
}
ISOLATED(not_for_all)

// A rewritten letter is for its owner only: it was in the mail of a heap that is no more.
static void to_another_in_a_child(hak_heap_t *me) {
  if (SANITIZED) return; // no threads in such a child: TSan, qemu
  hak_stats_t all;
  start(&second, SIZE, 60);
  for (unsigned i = 0; i < 5; i++) give(second.blocks[i]);
  CHECK(hak_stats_get(&all, sizeof all)); // opens the mail of all heaps
  hak_remote_flush(me);
  tell(&second, DRAIN);
  CHECK_EQUAL(stat(second.heap, HAK_STAT_remote_collect), 5);
  tell(&second, END);
}

// In a forked child no letter of others is opened, and all of its own can be written again.
static void in_a_child(void) {
  hak_heap_t *me = mine();
  start(&other, SIZE, 60);
  for (unsigned i = 0; i < 30; i++) give(other.blocks[i]);
  CHECK_EQUAL(sent(me), 1);
  pid_t child = fork();
  if (child == 0) {
    CHECK_EQUAL(sent(me), 0);
    to_another_in_a_child(me);
    for (unsigned i = 30; i < 60; i++) give(other.blocks[i]); // of a heap without a thread now
    hak_remote_flush(me);
    CHECK_EQUAL(sent(me), 0);
    for (unsigned i = 0; i < 1000; i++) CHECK(hak_front_alloc(SIZE, NULL) != NULL);
    hak_heap_check(me);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  hak_remote_flush(me);
  tell(&other, DRAIN);
  CHECK_EQUAL(stat(other.heap, HAK_STAT_remote_collect), 30);
  tell(&other, END);
}
ISOLATED(in_a_child)

// Threads in a circle: each frees what the one before it allocated in the round before, while
// it allocates for the next one. A barrier ends a round: else a thread that has the processor for
// itself gets its own blocks back.
#define CIRCLE 4
#define PLACES 64
static void *places[2][CIRCLE][PLACES];
static pthread_barrier_t all;
static void check_and_give(size_t *p) {
  size_t last = p[0] / sizeof *p - 1;
  CHECK_EQUAL(p[last], ~p[0]);
  p[last] = 0;
  give(p);
}
static void *in_circle(void *argument) {
  unsigned me = (unsigned)(uintptr_t)argument;
  uint64_t seed = me;
  for (unsigned round = 0; round < SCALED(1600); round++) {
    pthread_barrier_wait(&all);
    for (unsigned i = 0; i < PLACES; i++) {
      size_t size = 2049 + chance_below(&seed, 30000);
      size_t *p = hak_front_alloc(size, NULL), *given = places[round & 1][me][i];
      CHECK(p != NULL);
      p[0] = size, p[size / sizeof *p - 1] = ~size;
      places[(round + 1) & 1][(me + 1) % CIRCLE][i] = p;
      if (given) check_and_give(given);
    }
  }
  return NULL;
}
static void circle(void) {
  mine();
  pthread_t threads[CIRCLE];
  pthread_barrier_init(&all, NULL, CIRCLE);
  for (unsigned i = 0; i < CIRCLE; i++) threads[i] = unit_start(in_circle, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < CIRCLE; i++) unit_join(threads[i]);
  uint64_t letters = 0;
  for (uint32_t id = 1; id <= hak_heap_count(); id++) {
    hak_heap_t *heap = hak_heap_by_id(id);
    letters += stat(heap, HAK_STAT_letter_send);
    CHECK(hak_load_relaxed(&heap->mail) == NULL);
    CHECK_EQUAL(sent(heap) + written(heap), 0);
  }
  CHECK(letters > SCALED(1000));
}
ISOLATED(circle)

int main(void) {
  hak_option(NURSERY) = 0; // threads have heaps of their own here
  const struct CMUnitTest tests[] = {
      ISOLATED_TEST(to_the_owner),      ISOLATED_TEST(to_nobody),    ISOLATED_TEST(when_full),    ISOLATED_TEST(sent_by_frees),
      ISOLATED_TEST(two_owners),        ISOLATED_TEST(owner_sleeps), ISOLATED_TEST(owner_has_ended),
      ISOLATED_TEST(adopted_meanwhile), ISOLATED_TEST(freed_again),  ISOLATED_TEST(not_for_all),
      ISOLATED_TEST(in_a_child),        ISOLATED_TEST(circle),
  };
  return RUN(tests);
}
