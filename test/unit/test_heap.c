// heap.h: which heap a thread works on and what becomes of it.

#include "heaps.h"
#include "pool.h"
#include "unit.h"

#include <limits.h>

#include "core/options.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "superslab/shared_pool.h"
#include "superslab/slab.h"
#include "thread/front.h"
#include "thread/heap.h"
#include "thread/process.h"
#include "thread/remote.h"

// Tiny and L2 slabs in use, of one heap or (NULL) of all.
static unsigned slabs_of(hak_heap_t *heap) {
  unsigned n = 0;
  for (uint32_t i = 32; i < hak_superslab_count() << HAK_SLABS_SHIFT; i++) {
    hak_slab_t *slab = hak_slab_at(i);
    hak_kind_t kind = hak_slab_kind(slab);
    if (kind == HAK_KIND_TINY || kind == HAK_KIND_L2) n += !heap || hak_slab_owner(slab) == heap;
  }
  return n;
}

static void fronts(void) {
  hak_process_init();
  static hak_heap_t heap;
  static hak_slab_t slabs[HAK_CLASSES];
  for (unsigned c = 0; c < HAK_CLASSES; c++) hak_heap_set_front(&heap, c, &slabs[c]);
  for (size_t size = 0; size <= HAK_TINY_MAX; size++) {
    hak_slab_t *slab = heap.tiny[(size + HAK_MIN_BLOCK - 1) >> HAK_MIN_SHIFT];
    CHECK(slab == &slabs[hak_size_class(size ? size : 1)]);
  }
  for (unsigned c = 0; c < HAK_CLASSES; c++) CHECK(hak_heap_front(&heap, c) == &slabs[c]);
  for (unsigned i = 0; i < HAK_TINY_STEPS; i++) CHECK(hak_heap_none.tiny[i] == &hak_slab_none);
  for (unsigned i = 0; i < HAK_L2_CLASSES; i++) CHECK(hak_heap_none.l2[i] == &hak_slab_none);
}
ISOLATED(fronts)

static void partial_lists(void) {
  hak_process_init();
  static hak_heap_t heap;
  hak_slab_t *slabs[6];
  for (unsigned i = 0; i < 6; i++) {
    hak_source_t source;
    hak_slab_init(slabs[i] = pool_acquire(1, &source), &heap, 4);
    hak_heap_add_partial(&heap, slabs[i]);
  }
  const unsigned order[] = {0, 5, 2, 3, 1, 4}; // last, first, middle, ..., only
  for (unsigned k = 0; k < 6; k++) {
    hak_heap_remove_partial(&heap, slabs[order[k]]);
    unsigned length = 0, before = 0;
    for (uint32_t i = heap.partial[4]; i; i = hak_slab_at(i)->next, length++) {
      CHECK(before == 0 || hak_slab_at(i)->prev == before);
      CHECK(hak_slab_at(i) != slabs[order[k]]);
      before = i;
    }
    CHECK_EQUAL(length, 5 - k);
  }
  CHECK_EQUAL(heap.partial[4], 0);
}
ISOLATED(partial_lists)

// ---------------------------------------------------------------------------
// From slab to slab.

#define TURN_SIZE 1000
#define TURN_SLABS 3
static void *turn_blocks[TURN_SLABS][HAK_SLAB_SIZE / TURN_SIZE];

// Fills the slabs; all but the last, which is in front, are used up. Returns blocks per slab.
static unsigned use_up(void) {
  unsigned c = hak_size_class(TURN_SIZE), capacity = hak_classes[c].capacity;
  for (unsigned s = 0; s < TURN_SLABS; s++)
    for (unsigned i = 0; i < capacity; i++) turn_blocks[s][i] = hak_malloc(TURN_SIZE);
  return capacity;
}
static hak_slab_t *turn_slab(unsigned s) { return hak_slab_lookup(turn_blocks[s][0]); }

// A used-up front makes way for the newest PARTIAL slab, and all counters go on.
static void turns(void) {
  hak_process_init();
  hak_option(FULL_MARK) = 8;
  unsigned c = hak_size_class(TURN_SIZE), capacity = use_up(), some = capacity / 2;
  hak_class_stats_t *stats = &hak_tls_heap->classes[c];
  CHECK(hak_heap_front(hak_tls_heap, c) == turn_slab(2));
  for (unsigned round = 0; round < 1000; round++) {
    unsigned from = round % 2;
    for (unsigned i = 0; i < some; i++) hak_free(turn_blocks[from][i]);
    CHECK_EQUAL(hak_slab_place(turn_slab(from)), HAK_PLACE_PARTIAL);
    uint64_t refills = stats->refills, blocks = stats->blocks, full = heaps_stat(HAK_STAT_slab_full);
    uint64_t warm = heaps_stat(HAK_STAT_refill_warm), hits = hak_tls_heap->warm[c].hits;
    for (unsigned i = 0; i < some; i++) turn_blocks[from][i] = hak_malloc(TURN_SIZE);
    CHECK(hak_heap_front(hak_tls_heap, c) == turn_slab(from));
    CHECK_EQUAL(hak_slab_place(turn_slab(from)), HAK_PLACE_ACTIVE);
    CHECK_EQUAL(hak_slab_place(turn_slab(round == 0 ? 2 : !from)), HAK_PLACE_FULL);
    CHECK_EQUAL(stats->refills - refills, 1);
    CHECK_EQUAL(stats->blocks - blocks, some);
    CHECK_EQUAL(heaps_stat(HAK_STAT_slab_full) - full, 1);
    CHECK_EQUAL(heaps_stat(HAK_STAT_refill_warm) - warm, 1);
    CHECK_EQUAL(hak_tls_heap->warm[c].hits - hits, 1);
    CHECK_EQUAL(heaps_live_blocks(), (uint64_t)TURN_SLABS * capacity);
    hak_heap_check(hak_tls_heap);
    if (round > 0) continue;
    // Once more the slow path, now without a PARTIAL slab to turn to.
    void *p = hak_malloc(TURN_SIZE);
    CHECK(hak_slab_lookup(p) != turn_slab(0) && hak_slab_place(turn_slab(0)) == HAK_PLACE_FULL);
    hak_free(p);
    for (unsigned i = 0; i < capacity; i++) hak_free(turn_blocks[2][i]);
    for (unsigned i = 0; i < capacity; i++) turn_blocks[2][i] = hak_malloc(TURN_SIZE);
  }
}
ISOLATED(turns)

// Blocks that a refill brings are counted once, also of a slab that comes back half carved.
#define SOME_SIZE 64
static hak_slab_t *some_slab;
static void *carve_some(void *argument) {
  (void)argument;
  void *blocks[100];
  for (unsigned i = 0; i < 100; i++) blocks[i] = hak_malloc(SOME_SIZE);
  some_slab = hak_slab_lookup(blocks[0]);
  for (unsigned i = 0; i < 100; i += 10) hak_free(blocks[i]);
  return NULL;
}
static void *carve_more(void *argument) {
  (void)argument;
  unsigned carved = some_slab->carved, c = hak_size_class(SOME_SIZE);
  CHECK(carved >= 100 && carved < some_slab->capacity);
  hak_class_stats_t *stats = &hak_slab_owner(some_slab)->classes[c];
  uint64_t blocks = stats->blocks, refills = stats->refills;
  while (some_slab->carved == carved) CHECK(hak_slab_lookup(hak_malloc(SOME_SIZE)) == some_slab);
  CHECK_EQUAL(stats->refills - refills, 2); // its free list, then a batch
  CHECK_EQUAL(stats->blocks - blocks, some_slab->carved - 90);
  return NULL;
}
static void refills_count_once(void) {
  hak_free(hak_malloc(1));
  unit_in_thread(carve_some, NULL);
  unit_in_thread(carve_more, NULL);
}
ISOLATED(refills_count_once)

// The mark is never above the slab: HAKMEM_FULL_MARK=1 waits for the last block.
static void mark_of_all_blocks(void) {
  hak_process_init();
  hak_option(FULL_MARK) = 1;
  unsigned capacity = use_up();
  hak_slab_t *slab = turn_slab(0);
  for (unsigned i = 0; i < capacity; i++) {
    CHECK_EQUAL(hak_slab_place(slab), HAK_PLACE_FULL);
    hak_free(turn_blocks[0][i]);
  }
  CHECK(hak_slab_kind(slab) == HAK_KIND_FREE || hak_slab_place(slab) == HAK_PLACE_SPARE);
  for (unsigned s = 1; s < TURN_SLABS; s++)
    for (unsigned i = 0; i < capacity; i++) hak_free(turn_blocks[s][i]);
  hak_trim(0);
  CHECK_EQUAL(slabs_of(NULL), 0);
}
ISOLATED(mark_of_all_blocks)

// Number of frees that bring the oldest slab back when the heap is full.
static unsigned frees_until_back(void) {
  hak_slab_t *slab = turn_slab(0);
  unsigned frees = 0;
  while (hak_slab_place(slab) == HAK_PLACE_FULL) hak_free(turn_blocks[0][frees++]);
  return frees;
}

// Half as many suffice for one of many slabs where the heaps are large, and not before.
static void marks_of_large_heaps(void) {
  enum { OTHER = 600, LARGE = 16 * MIB, MANY = 8 };
  hak_process_init();
  hak_option(FULL_MARK) = 8;
  unsigned few = use_up() * 3 / 8; // a slab has at most 64 blocks
  CHECK_EQUAL(frees_until_back(), few);
  for (unsigned i = 0; i < LARGE / OTHER; i++) CHECK(hak_malloc(OTHER) != NULL);
  (void)use_up(); // the class has few slabs
  CHECK_EQUAL(frees_until_back(), few);
  for (unsigned s = 0; s < MANY; s += TURN_SLABS) (void)use_up(); // and now many
  CHECK_EQUAL(frees_until_back(), (few + 1) / 2);
}
ISOLATED(marks_of_large_heaps)

// ---------------------------------------------------------------------------
// Threads come and go.

static void *touch(void *argument) {
  (void)argument;
  CHECK(hak_tls_heap == &hak_heap_none);
  void *p = hak_malloc(100);
  CHECK(p != NULL && hak_tls_heap != &hak_heap_none);
  CHECK_EQUAL(hak_tls_heap->state, HAK_HEAP_ATTACHED);
  hak_free(p);
  return NULL;
}

static void heaps_are_used_again(void) {
  hak_free(hak_malloc(1));
  CHECK_EQUAL(hak_heap_count(), 1);
  CHECK_EQUAL(hak_tls_heap->id, 1);
  for (unsigned i = 0; i < SCALED(2000u); i++) unit_in_thread(touch, NULL);
  CHECK_EQUAL(hak_heap_count(), 2);
  CHECK_EQUAL(hak_heap_by_id(2)->state, HAK_HEAP_ORPHAN);
  CHECK_EQUAL(heaps_stat(HAK_STAT_heap_attach), 1 + SCALED(2000u));
  CHECK_EQUAL(heaps_stat(HAK_STAT_heap_orphan), SCALED(2000u));
  CHECK_EQUAL(heaps_live_blocks(), 0);
  CHECK(hak_heap_by_id(0) == NULL && hak_heap_by_id(3) == NULL);
}
ISOLATED(heaps_are_used_again)

static pthread_barrier_t together;
static void *touch_together(void *argument) {
  touch(argument);
  pthread_barrier_wait(&together);
  void *p = hak_malloc(5000);
  hak_free(p);
  return NULL;
}

static void many_at_once(void) {
  enum { N = 200 };
  for (unsigned round = 0; round < 3; round++) {
    pthread_t threads[N];
    pthread_barrier_init(&together, NULL, N);
    for (unsigned i = 0; i < N; i++) threads[i] = unit_start(touch_together, NULL);
    for (unsigned i = 0; i < N; i++) unit_join(threads[i]);
    CHECK(hak_heap_count() <= N + 1);
  }
  for (uint32_t id = 2; id <= hak_heap_count(); id++) {
    CHECK_EQUAL(hak_heap_by_id(id)->id, id);
    CHECK(hak_heap_by_id(id)->state != HAK_HEAP_CLAIMED);
  }
  CHECK_EQUAL(slabs_of(NULL), 0);
}
ISOLATED(many_at_once)

// ---------------------------------------------------------------------------
// What an ended thread leaves behind.

#define LEFT 20000
static void *left[LEFT];
static size_t left_size[LEFT];
static unsigned left_count;
static hak_heap_t *left_by;

static void leave_block(size_t size) {
  CHECK(left_count < LEFT && (left[left_count] = hak_malloc(size)) != NULL);
  fill(left[left_count], size, left_count);
  left_size[left_count++] = size;
}
static void *leave_every_class(void *argument) {
  (void)argument;
  for (unsigned round = 0; round < 3; round++)
    for (unsigned c = 0; c < HAK_CLASSES; c++)
      for (unsigned i = 0; i < (c < HAK_TINY_CLASSES ? 60 : 12); i++) leave_block(hak_class_size(c) - i % 16);
  left_by = hak_tls_heap;
  return NULL;
}
static void free_left(unsigned i) {
  CHECK(filled(left[i], left_size[i], i));
  hak_free(left[i]);
}

// Frees by other threads tidy the orphan: in the end no slab is stuck in it.
static void orphans_are_serviced(void) {
  hak_free(hak_malloc(1));
  unit_in_thread(leave_every_class, NULL);
  CHECK(left_by != hak_tls_heap && left_by->state == HAK_HEAP_ORPHAN);
  unsigned had = slabs_of(left_by);
  CHECK(had >= HAK_CLASSES);
  uint64_t mapped = hak_mapped.superslab_bytes;
  for (unsigned i = 0; i < left_count; i++) free_left(i);
  hak_remote_flush(hak_tls_heap);
  CHECK(heaps_stat(HAK_STAT_heap_service) > 0);
  CHECK_EQUAL(left_by->state, HAK_HEAP_ORPHAN);
  CHECK_EQUAL(left_by->inbox, 0);
  // One empty slab of each tiny class may stay with the orphan for its next owner.
  unsigned stay = slabs_of(left_by);
  printf("slabs of an ended thread: %u, after all blocks were freed: %u\n", had, stay);
  CHECK(stay <= HAK_TINY_CLASSES);
  CHECK_EQUAL(heaps_live_blocks(), 0);
  hak_trim(0);
  CHECK_EQUAL(slabs_of(NULL), 0);
  CHECK(mapped > 0);
  CHECK_EQUAL(hak_mapped.superslab_bytes, 0);
}
ISOLATED(orphans_are_serviced)

static void *free_all_left(void *argument) {
  (void)argument;
  for (unsigned i = 0; i < left_count; i++) free_left(i);
  return NULL;
}

// The same when the freeing thread ends too, without any other slow path.
static void freers_that_end(void) {
  unit_in_thread(leave_every_class, NULL);
  unit_in_thread(free_all_left, NULL);
  CHECK_EQUAL(heaps_live_blocks(), 0);
  // The freeing thread got the orphan itself, so all slabs went back when it ended.
  CHECK_EQUAL(slabs_of(NULL), 0);
}
ISOLATED(freers_that_end)

// A running thread adopts PARTIAL slabs before it asks for new ones.
static void running_threads_adopt(void) {
  hak_option(REMOTE_PENDING) = 0;
  hak_free(hak_malloc(1));
  unit_in_thread(leave_every_class, NULL);
  uint64_t mapped = hak_mapped.superslab_bytes;
  for (unsigned i = 0; i < left_count; i += 2) free_left(i);
  hak_remote_flush(hak_tls_heap);
  uint64_t pooled = heaps_stat(HAK_STAT_refill_pool);
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    void *p = hak_malloc(hak_class_size(c));
    CHECK(p != NULL);
    fill(p, hak_class_size(c), 1);
  }
  CHECK(heaps_stat(HAK_STAT_refill_adopt) >= 1);
  // With a mark of 1 a slab stays FULL until its last block is free.
  if (hak_option(FULL_MARK) > 1) CHECK_EQUAL(heaps_stat(HAK_STAT_refill_pool), pooled);
  CHECK_EQUAL(hak_mapped.superslab_bytes, mapped);
  hak_heap_check(hak_tls_heap);
  for (unsigned i = 1; i < left_count; i += 2) free_left(i);
  CHECK_EQUAL(heaps_live_blocks(), HAK_CLASSES);
}
ISOLATED(running_threads_adopt)

static unsigned partial_groups(const hak_heap_t *heap) {
  unsigned groups = 0;
  for (unsigned c = 0; c < HAK_CLASSES; c++)
    if (heap->partial[c]) groups |= 1u << (c >> HAK_ORPHAN_GROUP_SHIFT);
  return groups;
}

// Adopters take what they need of an orphan and leave the rest to threads that need that.
static void adopters_leave_the_rest(void) {
  hak_option(REMOTE_PENDING) = 0;
  hak_free(hak_malloc(1));
  unit_in_thread(leave_every_class, NULL);
  for (unsigned i = 0; i < left_count; i++)
    if (i % 8) free_left(i); // 20 of 180 tiny blocks and 4 of 36 others stay
  hak_remote_flush(hak_tls_heap);
  const unsigned c = HAK_TINY_CLASSES - 1, group = c >> HAK_ORPHAN_GROUP_SHIFT;
  unsigned all = partial_groups(left_by), mine = slabs_of(hak_tls_heap), adopted = 0;
  CHECK(all >> group & 1 && all != 1u << group);
  for (; left_by->partial[c]; adopted++) {
    CHECK(hak_heap_adopt(hak_tls_heap, c));
    CHECK_EQUAL(slabs_of(hak_tls_heap), mine + adopted + 1);
  }
  CHECK(adopted > 0 && hak_tls_heap->partial[c] != 0);
  // None is left of that class: the rest of its group goes too, so that other orphans are found.
  CHECK_EQUAL(partial_groups(left_by), all);
  CHECK(hak_heap_adopt(hak_tls_heap, c));
  CHECK_EQUAL(partial_groups(left_by), all & ~(1u << group));
  CHECK(!hak_heap_adopt(hak_tls_heap, c));
  hak_heap_check(hak_tls_heap);
  hak_trim(0); // nor does it take more than what is unused
  CHECK_EQUAL(partial_groups(left_by), all & ~(1u << group));
  for (unsigned i = 0; i < left_count; i++)
    if (i % 8 == 0) free_left(i);
  CHECK_EQUAL(heaps_live_blocks(), 0);
}
ISOLATED(adopters_leave_the_rest)

// Requests made before a thread had its heap do not concern it.
static _Atomic bool left_by_other;
static void *other_thread(void *unused) {
  CHECK(hak_malloc(100) != NULL);
  while (!left_by_other) usleep(100);
  return unused;
}
static void *refill_often(void *groups) {
  for (unsigned i = 0; i < 5000; i++) CHECK(hak_malloc(100) != NULL);
  CHECK(!hak_heap_reclaim_asked(hak_tls_heap));
  CHECK_EQUAL(partial_groups(left_by) | 1u, *(unsigned *)groups | 1u); // 100 bytes: first group
  return NULL;
}
static void requests_of_the_past(void) {
  hak_option(REMOTE_PENDING) = 0;
  hak_option(NURSERY) = 0;
  hak_free(hak_malloc(1));
  hak_trim(0);
  pthread_t other = unit_start(other_thread, NULL);
  while (hak_heap_count() < 2) usleep(100);
  unit_in_thread(leave_every_class, NULL);
  left_by_other = true; // ends later, so its heap is taken first
  unit_join(other);
  for (unsigned i = 0; i < left_count; i++)
    if (i % 8) free_left(i);
  hak_remote_flush(hak_tls_heap);
  unsigned groups = partial_groups(left_by);
  CHECK((groups & ~1u) != 0);
  unit_in_thread(refill_often, &groups);
}
ISOLATED(requests_of_the_past)

// A new thread continues with the heap of the ended one.
static void *go_on(void *argument) {
  (void)argument;
  for (unsigned i = 0; i < left_count; i++) free_left(i);
  CHECK(hak_tls_heap == left_by);
  return NULL;
}
static void new_threads_take_orphans(void) {
  hak_free(hak_malloc(1));
  unit_in_thread(leave_every_class, NULL);
  unit_in_thread(go_on, NULL);
  CHECK_EQUAL(hak_heap_count(), 2);
  CHECK_EQUAL(slabs_of(NULL), 0 + slabs_of(hak_tls_heap));
  CHECK_EQUAL(heaps_stat(HAK_STAT_free_remote), 0); // they are its own by then
}
ISOLATED(new_threads_take_orphans)

// Allocates and frees after the heap's end, from keys whose destructors run again. Not in the
// last round under TSan: it has dropped the thread by then, and its own code crashes.
enum { LATE_ROUNDS = PTHREAD_DESTRUCTOR_ITERATIONS - HAK_TSAN };
static pthread_key_t late_key;
static _Atomic unsigned late_runs;
static void late(void *value) {
  uintptr_t n = (uintptr_t)value;
  void *p = hak_malloc(1000), *q = hak_malloc(50000);
  CHECK(p && q);
  hak_free(p), hak_free(q);
  if (n > 1) leave_block(n * 100); // this one stays
  hak_fetch_add_relaxed(&late_runs, 1);
  if (n > 1) pthread_setspecific(late_key, (void *)(n - 1));
}
static void *end_late(void *argument) {
  pthread_setspecific(late_key, (void *)(uintptr_t)LATE_ROUNDS);
  return touch(argument);
}
static void after_the_heaps_end(void) {
  hak_process_init();
  CHECK(pthread_key_create(&late_key, late) == 0); // after the library's: runs later
  hak_free(hak_malloc(1));
  for (unsigned i = 0; i < 50; i++) unit_in_thread(end_late, NULL);
  CHECK_EQUAL(late_runs, 50 * LATE_ROUNDS);
  CHECK_EQUAL(hak_heap_count(), 2);
  CHECK_EQUAL(hak_heap_by_id(2)->state, HAK_HEAP_ORPHAN);
  CHECK(!hak_heap_by_id(2)->transient);
  CHECK_EQUAL(heaps_live_blocks(), 50 * (LATE_ROUNDS - 1));
  for (unsigned i = 0; i < left_count; i++) free_left(i);
  CHECK_EQUAL(heaps_live_blocks(), 0);
}
ISOLATED(after_the_heaps_end)

// Threads that get their first heap in the last round of key destructors: nothing tells the library
// of their end. A thread that starts in such a thread's place gets its heap; in a child none does.
enum { LAST_ROUNDS = 40 };
static pthread_key_t last_key;
static void *last_places[LAST_ROUNDS + 1];
static unsigned last_count, last_distinct;
static void in_last_round(void *round) {
  uintptr_t n = (uintptr_t)round;
  if (n < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(last_key, (void *)(n + 1));
    return;
  }
  bool again = false;
  for (unsigned i = 0; i < last_count; i++) again |= last_places[i] == &hak_tls_heap;
  last_distinct += !again;
  last_places[last_count++] = &hak_tls_heap;
  leave_block(last_count * 50);
  for (size_t size = 1; size < 60000; size += size / 4 + 1) hak_free(hak_malloc(size));
  CHECK(hak_tls_heap != &hak_heap_none && hak_tls_heap->keeper == &hak_tls_heap);
  hak_heap_check(hak_tls_heap);
}
static void *end_in_last_round(void *unused) {
  (void)unused;
  pthread_setspecific(last_key, (void *)(uintptr_t)1);
  return NULL;
}
static void *end_with_notice(void *unused) {
  (void)unused;
  hak_free(hak_malloc(1));
  return NULL;
}
static void new_heap_in_child(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    uint32_t heaps = hak_heap_count();
    unit_in_thread(end_with_notice, NULL);
    CHECK_EQUAL(hak_heap_count(), heaps + 1);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}
static void lost_heaps_are_found(void) {
  if (HAK_TSAN) return; // it has dropped the thread by then, and its own code crashes
  hak_process_init();
  hak_option(NURSERY) = 0;
  CHECK(pthread_key_create(&last_key, in_last_round) == 0); // after the library's: runs later
  hak_free(hak_malloc(1));
  for (unsigned i = 0; i < LAST_ROUNDS; i++) unit_in_thread(end_in_last_round, NULL);
  CHECK_EQUAL(last_count, LAST_ROUNDS);
  CHECK(last_distinct < LAST_ROUNDS / 2);
  CHECK_EQUAL(hak_heap_count(), 1 + last_distinct);
  unit_in_thread(end_with_notice, NULL);
  hak_heap_t *found = hak_heap_by_id(hak_heap_count());
  CHECK(found->state == HAK_HEAP_ORPHAN && found->keeper == NULL);
  unit_in_thread(end_in_last_round, NULL); // adopts the orphan, and loses it
  CHECK_EQUAL(hak_heap_count(), 1 + last_distinct);
  CHECK_EQUAL(found->state, HAK_HEAP_ATTACHED);
  if (!EMULATED) new_heap_in_child(); // qemu survives no such forks
  for (unsigned i = 0; i < left_count; i++) free_left(i);
  unit_in_thread(end_with_notice, NULL);
  CHECK_EQUAL(heaps_live_blocks(), 0);
}
ISOLATED(lost_heaps_are_found)

// A thread whose heap has got all blocks of its slabs back releases the idle slabs.
static void idle_slabs_go(void) {
  leave_every_class(NULL);
  for (unsigned i = 0; i < left_count; i++) free_left(i);
  hak_heap_check(hak_tls_heap);
  // Per class the front and, for tiny classes, one empty slab kept against ping-pong.
  CHECK(slabs_of(NULL) <= HAK_CLASSES + HAK_TINY_CLASSES);
  hak_heap_release_idle(hak_tls_heap);
  CHECK_EQUAL(slabs_of(NULL), 0);
  for (unsigned c = 0; c < HAK_CLASSES; c++)
    CHECK(hak_heap_front(hak_tls_heap, c) == &hak_slab_none && hak_tls_heap->partial[c] == 0);
}
ISOLATED(idle_slabs_go)

// ---------------------------------------------------------------------------
// Fork

static _Atomic bool stop;
static _Atomic unsigned churning;
static void *churn(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  void *blocks[64] = {NULL};
  atomic_fetch_add_explicit(&churning, 1, memory_order_relaxed);
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    unsigned k = (unsigned)chance_below(&seed, 64);
    hak_free(blocks[k]);
    blocks[k] = hak_malloc(chance_below(&seed, 40) ? chance_below(&seed, 3000) : 200000);
  }
  for (unsigned k = 0; k < 64; k++) hak_free(blocks[k]);
  return NULL;
}

static void child_of_a_threaded_parent(void) {
  // All blocks of the parent can be freed, and all sizes can be allocated.
  for (unsigned i = 0; i < left_count; i++) free_left(i);
  for (uint32_t id = 1; id <= hak_heap_count(); id++)
    if (id != hak_tls_heap->id) CHECK_EQUAL(hak_heap_by_id(id)->state, HAK_HEAP_DEAD);
  left_count = 0;
  leave_every_class(NULL);
  hak_heap_check(hak_tls_heap);
  for (unsigned i = 0; i < left_count; i++) free_left(i);
  left_count = 0;
#if !defined(__SANITIZE_THREAD__) && !HAK_TSAN // TSan has no threads after such a fork
  unit_in_thread(leave_every_class, NULL);
  for (unsigned i = 0; i < left_count; i++) free_left(i);
#endif
  hak_trim(0);
  _exit(0);
}

static void fork_while_others_allocate(void) {
  if (EMULATED) return; // qemu itself cannot fork while it has other threads
  pthread_t threads[3];
  unit_in_thread(leave_every_class, NULL); // orphaned blocks too
  for (uintptr_t i = 0; i < 3; i++) threads[i] = unit_start(churn, (void *)(i + 1));
  // A sanitizer's runtime allocates under a lock of its own when a thread starts.
  while (atomic_load_explicit(&churning, memory_order_relaxed) < 3) hak_os_yield();
  for (unsigned i = 0; i < 20; i++) {
    leave_block(100 + i), leave_block(3000 * i), leave_block(100000);
    pid_t pid = fork();
    if (pid == 0) child_of_a_threaded_parent();
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQUAL(status, 0);
  }
  stop = true;
  for (unsigned i = 0; i < 3; i++) unit_join(threads[i]);
  for (unsigned i = 0; i < left_count; i++) free_left(i);
  CHECK_EQUAL(heaps_live_blocks(), 0);
}
ISOLATED(fork_while_others_allocate)

int main(void) {
  hak_option(NURSERY) = 0; // threads have heaps of their own here
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(fronts),
    ISOLATED_TEST(partial_lists),
    ISOLATED_TEST(turns),
    ISOLATED_TEST(refills_count_once),
    ISOLATED_TEST(mark_of_all_blocks),
    ISOLATED_TEST(marks_of_large_heaps),
    ISOLATED_TEST(heaps_are_used_again),
    ISOLATED_TEST(many_at_once),
    ISOLATED_TEST(orphans_are_serviced),
    ISOLATED_TEST(freers_that_end),
    ISOLATED_TEST(running_threads_adopt),
    ISOLATED_TEST(adopters_leave_the_rest),
    ISOLATED_TEST(requests_of_the_past),
    ISOLATED_TEST(new_threads_take_orphans),
    ISOLATED_TEST(after_the_heaps_end),
    ISOLATED_TEST(lost_heaps_are_found),
    ISOLATED_TEST(idle_slabs_go),
    ISOLATED_TEST(fork_while_others_allocate),
  };
  return RUN(tests);
}
