// remote.h: freeing into slabs of another thread's heap: the map, its bounds, the
// remote word's QUEUED bit, and forwarding when the owner changes on the way.

#include "heaps.h"
#include "other.h"

#include "core/options.h"
#include "superslab/slab.h"
#include "thread/front.h"
#include "thread/heap.h"
#include "thread/process.h"
#include "thread/remote.h"

#define QUEUED HAK_REMOTE_QUEUED

static unsigned chain_length(hak_slab_t *slab) {
  uint64_t remote = hak_load_relaxed(&slab->remote) & ~QUEUED;
  if (hak_slab_kind(slab) == HAK_KIND_L2) return (unsigned)__builtin_popcountll(remote);
  unsigned n = 0;
  for (void *b = (void *)(uintptr_t)(remote & HAK_REMOTE_POINTER_MASK); b; b = *(void **)b) n++;
  CHECK_EQUAL(n, remote >> HAK_REMOTE_COUNT_SHIFT);
  return n;
}
static unsigned map_used(hak_heap_t *heap) {
  unsigned n = 0;
  for (unsigned i = 0; i < COUNT(heap->remote_map); i++) n += heap->remote_map[i].slab != 0;
  return n;
}

// ---------------------------------------------------------------------------

static const size_t sizes[] = {16, 64, 200, 1024, 1100, 4096, 10000, 32768, 57344};

static void one_chain_per_slab(void) {
  for (unsigned k = 0; k < COUNT(sizes); k++) {
    hak_heap_t *me = mine();
    hak_option(REMOTE_PENDING) = 16 << 20;
    hak_option(POOL_MID_INUSE_DEFERRED) = 1;
    start(&other, sizes[k], 6);
    hak_slab_t *slab = hak_slab_lookup(other.blocks[0]);
    slab -= hak_slab_kind(slab) == HAK_KIND_INTERIOR ? slab->offset : 0;
    uint64_t pushes = stat(me, HAK_STAT_remote_push), freed = stat(me, HAK_STAT_free_remote);
    // Held back: other threads see nothing.
    for (unsigned i = 0; i < 3; i++) give(other.blocks[i]);
    CHECK_EQUAL(map_used(me), 1);
    CHECK_EQUAL(me->pending, 3 * hak_class_size(hak_size_class(sizes[k])));
    CHECK_EQUAL(slab->remote, 0);
    CHECK_EQUAL(hak_slab_live_now(slab), 6);
    // Handed over: one chain, QUEUED, in the owner's inbox.
    hak_remote_flush(me);
    CHECK_EQUAL(map_used(me), 0);
    CHECK_EQUAL(me->pending, 0);
    CHECK(slab->remote & QUEUED);
    CHECK_EQUAL(chain_length(slab), 3);
    CHECK_EQUAL(hak_load_relaxed(&other.heap->inbox), hak_slab_index(slab));
    CHECK_EQUAL(hak_slab_live_now(slab), 3);
    CHECK_EQUAL(stat(me, HAK_STAT_remote_push) - pushes, 1);
    CHECK_EQUAL(stat(me, HAK_STAT_free_remote) - freed, 3);
    // More for a slab that is QUEUED: no second push.
    give(other.blocks[3]);
    hak_remote_flush(me);
    CHECK_EQUAL(chain_length(slab), 4);
    CHECK_EQUAL(stat(me, HAK_STAT_remote_push) - pushes, 1);
    CHECK_EQUAL(hak_load_relaxed(&other.heap->inbox), hak_slab_index(slab));
    // Blocks not freed keep their contents.
    CHECK(filled(other.blocks[4], sizes[k], 4) && filled(other.blocks[5], sizes[k], 5));
    tell(&other, DRAIN);
    CHECK_EQUAL(slab->remote, 0);
    CHECK_EQUAL(hak_load_relaxed(&other.heap->inbox), 0);
    CHECK_EQUAL(hak_slab_live_now(slab), 2);
    CHECK_EQUAL(stat(other.heap, HAK_STAT_remote_collect), 4);
    // Again from an empty remote word: the slab is pushed again.
    give(other.blocks[4]), give(other.blocks[5]);
    hak_remote_flush(me);
    CHECK_EQUAL(stat(me, HAK_STAT_remote_push) - pushes, 2);
    tell(&other, DRAIN);
    CHECK_EQUAL(hak_slab_live_now(slab), 0);
    other.heap->stats[HAK_STAT_remote_collect] = 0;
    tell(&other, END);
  }
}
ISOLATED(one_chain_per_slab)

static void shuffle(void **blocks, unsigned count) {
  uint64_t seed = 9;
  for (unsigned i = count - 1; i > 0; i--) {
    unsigned j = (unsigned)chance_below(&seed, i + 1);
    void *t = blocks[i];
    blocks[i] = blocks[j], blocks[j] = t;
  }
}

// More slabs than map entries: the chain in an entry that is needed is handed over with seven
// others, and nothing is lost.
static void collisions(void) {
  static void *blocks[2 * BLOCKS_MAX];
  hak_heap_t *me = mine();
  hak_option(REMOTE_PENDING) = 16 << 20;
  hak_option(RELIEF) = 0; // the owners are to collect all of it
  start(&other, 1024, BLOCKS_MAX), start(&second, 1024, BLOCKS_MAX);
  unsigned slabs = 2 * (BLOCKS_MAX / hak_classes[hak_size_class(1024)].capacity + 1);
  CHECK(slabs > HAK_REMOTE_MAP_SIZE);
  for (unsigned i = 0; i < BLOCKS_MAX; i++)
    blocks[i] = other.blocks[i], blocks[BLOCKS_MAX + i] = second.blocks[i];
  shuffle(blocks, COUNT(blocks)); // every free hits another slab
  for (unsigned i = 0; i < COUNT(blocks); i++) {
    give(blocks[i]);
    unsigned held = 0;
    for (unsigned e = 0; e < COUNT(me->remote_map); e++) {
      const hak_remote_entry_t *entry = &me->remote_map[e];
      if (!entry->slab) continue;
      hak_heap_t *owner = hak_slab_owner(hak_slab_at(entry->slab));
      CHECK(owner == other.heap || owner == second.heap);
      held += (unsigned)(entry->chain >> HAK_REMOTE_COUNT_SHIFT) * 1024;
      for (unsigned f = HAK_REMOTE_LEAVING; f < e; f++)
        CHECK(me->remote_map[f].slab != entry->slab);
    }
    CHECK_EQUAL(me->pending, held);
    CHECK_EQUAL(stat(me, HAK_STAT_remote_flush) % HAK_REMOTE_LEAVING, 0);
  }
  hak_remote_flush(me);
  CHECK_EQUAL(stat(me, HAK_STAT_free_remote), COUNT(blocks));
  CHECK(stat(me, HAK_STAT_remote_push) <= slabs);
  CHECK(stat(me, HAK_STAT_remote_flush) > slabs);
  tell(&other, DRAIN), tell(&second, DRAIN);
  CHECK_EQUAL(stat(other.heap, HAK_STAT_remote_collect), BLOCKS_MAX);
  CHECK_EQUAL(stat(second.heap, HAK_STAT_remote_collect), BLOCKS_MAX);
  tell(&other, END), tell(&second, END);
}
ISOLATED(collisions)

// A slab's older chain, which has left the map, is handed over before its newer one. They
// meet, and a block freed twice, with other frees between, is found.
static other_t third;
static void older_chain_first(void) {
  hak_heap_t *me = mine();
  hak_option(REMOTE_PENDING) = 16 << 20;
  hak_option(RELIEF) = hak_option(ABORT) = 0;
  start(&other, 1024, 3), start(&second, 1024, BLOCKS_MAX);
  start(&third, 1024, BLOCKS_MAX);
  hak_slab_t *slab = hak_slab_lookup(other.blocks[0]);
  void *rival = NULL; // in a slab that has the same entry
  for (unsigned i = 0; i < 2 * BLOCKS_MAX && !rival; i++) {
    void *block = i < BLOCKS_MAX ? second.blocks[i] : third.blocks[i - BLOCKS_MAX];
    uint32_t its = hak_slab_index(hak_slab_lookup(block));
    if (hak_remote_entry(me, its) == hak_remote_entry(me, hak_slab_index(slab))) rival = block;
  }
  CHECK(rival != NULL);
  for (unsigned i = 0; i < 3; i++) give(other.blocks[i]);
  give(rival);
  CHECK_EQUAL(me->remote_map[0].slab, hak_slab_index(slab));
  CHECK_EQUAL(slab->remote, 0);
  give(other.blocks[2]);
  hak_remote_flush(me);
  CHECK_EQUAL((slab->remote & ~QUEUED) >> HAK_REMOTE_COUNT_SHIFT, 3);
  hak_link_set(other.blocks[2], other.blocks[1]); // as before the second free
  tell(&other, DRAIN);
  CHECK_EQUAL(stat(other.heap, HAK_STAT_remote_collect), 3);
  tell(&other, END), tell(&second, END), tell(&third, END);
}
ISOLATED(older_chain_first)

// When one entry has to go, all held-back blocks of an ended thread go at once: its heap is
// this thread's for a moment, and nothing is posted.
static void ended_threads_blocks(void) {
  hak_heap_t *me = mine();
  hak_option(REMOTE_PENDING) = 16 << 20;
  start(&other, 1200, BLOCKS_MAX), start(&second, 1024, 1);
  tell(&other, END);
  CHECK_EQUAL(hak_load_relaxed(&other.heap->state), HAK_HEAP_ORPHAN);
  shuffle(other.blocks, BLOCKS_MAX);
  unsigned more = 0;
  for (unsigned i = 0; i < BLOCKS_MAX; i++) {
    if (i == BLOCKS_MAX / 2) give(second.blocks[0]); // of a thread that is alive: stays
    uint64_t visits = stat(other.heap, HAK_STAT_heap_service);
    uint32_t slab = hak_slab_index(hak_slab_lookup(other.blocks[i]));
    hak_remote_entry_t *entry = hak_remote_entry(me, slab);
    bool collides = entry->slab != 0 && entry->slab != slab;
    bool goes = collides && me->leaving == HAK_REMOTE_LEAVING;
    unsigned used = map_used(me);
    more += goes && used > 1;
    give(other.blocks[i]);
    unsigned held = 0;
    for (unsigned e = 0; e < COUNT(me->remote_map); e++)
      if (me->remote_map[e].slab)
        held += (unsigned)(me->remote_map[e].chain >> HAK_REMOTE_COUNT_SHIFT) *
                hak_slab_at(me->remote_map[e].slab)->size;
    CHECK_EQUAL(me->pending, held);
    if (goes) CHECK(map_used(me) <= 2);
    CHECK_EQUAL(stat(other.heap, HAK_STAT_heap_service), visits + goes);
    CHECK_EQUAL(hak_load_relaxed(&other.heap->state), HAK_HEAP_ORPHAN);
  }
  CHECK(more > 10);
  CHECK(stat(me, HAK_STAT_remote_push) <= 1); // the live thread's, if it was in the way
  hak_remote_flush(me);
  CHECK_EQUAL(me->pending, 0);
  CHECK_EQUAL(stat(me, HAK_STAT_remote_push), 1);
  CHECK_EQUAL(stat(me, HAK_STAT_free_remote), BLOCKS_MAX + 1);
  CHECK_EQUAL(stat(other.heap, HAK_STAT_remote_collect), BLOCKS_MAX);
  CHECK(stat(other.heap, HAK_STAT_slab_empty) > 0 && stat(other.heap, HAK_STAT_remote_empty) > 0);
  tell(&second, END);
  CHECK_EQUAL(heaps_live_blocks(), 0);
}
ISOLATED(ended_threads_blocks)

// A thread that could not, or may not, have the heap does not free as its owner: it posts.
static void heaps_that_are_not_visited(void) {
  hak_heap_t *me = mine();
  hak_option(REMOTE_PENDING) = 0;
  hak_option(COMMONS) = 0;
  start(&other, 1024, 64);
  tell(&other, END);
  uint64_t pushes = 0;
  for (unsigned i = 0; i < 5; i++) {
    if (i == 1) hak_store_seq_cst(&other.heap->state, HAK_HEAP_CLAIMED);
    hak_store_relaxed(&other.heap->nursery, i == 2);
    hak_store_relaxed(&other.heap->common, i == 3);
    give(other.blocks[i]);
    if (i == 1) hak_store_seq_cst(&other.heap->state, HAK_HEAP_ORPHAN);
    pushes += i % 4 != 0;
    CHECK_EQUAL(stat(me, HAK_STAT_remote_push), pushes);
    CHECK_EQUAL(hak_load_relaxed(&other.heap->state), HAK_HEAP_ORPHAN);
    hak_heap_service(other.heap);
    CHECK_EQUAL(hak_load_relaxed(&other.heap->inbox), 0);
    CHECK_EQUAL(heaps_live_blocks(), 63 - i);
  }
}
ISOLATED(heaps_that_are_not_visited)

static void what_is_held_back_is_bounded(void) {
  hak_heap_t *me = mine();
  const size_t limits[] = {0, 1, 1000, 65536};
  for (unsigned l = 0; l < COUNT(limits); l++) {
    hak_option(REMOTE_PENDING) = limits[l];
    start(&other, 48, 3000);
    for (unsigned i = 0; i < other.count; i++) {
      give(other.blocks[i]);
      CHECK(me->pending <= limits[l]);
    }
    hak_remote_flush(me);
    tell(&other, END);
  }
  // However little is held back, refills hand it over.
  hak_option(REMOTE_PENDING) = 16 << 20;
  start(&other, 48, 1);
  give(other.blocks[0]);
  CHECK_EQUAL(me->pending, 48);
  for (unsigned i = 0; i < 65536 / 1024 * 100; i++) CHECK(hak_front_alloc(1024, NULL) != NULL);
  CHECK_EQUAL(me->pending, 0);
  tell(&other, END);
}
ISOLATED(what_is_held_back_is_bounded)

static void without_a_heap(void) {
  mine();
  for (unsigned k = 0; k < COUNT(sizes); k++) {
    start(&other, sizes[k], 4);
    hak_block_t block;
    for (unsigned i = 0; i < 4; i++) {
      CHECK(hak_front_find(other.blocks[i], "free", &block));
      hak_remote_push_one(block.slab, other.blocks[i], block.number);
      CHECK_EQUAL(chain_length(block.slab), i + 1);
    }
    tell(&other, DRAIN);
    CHECK_EQUAL(hak_slab_live_now(block.slab), 0);
    tell(&other, END);
  }
}
ISOLATED(without_a_heap)

// A drain takes all blocks of a slab back, and one block of the next, and maps nothing.
static void owner_takes_all_back(void) {
  mine();
  start(&second, 1024, 64); // one slab and one block, all of it handed out
  for (unsigned i = 0; i < 64; i++) give(second.blocks[i]);
  hak_remote_flush(hak_tls_heap);
  uint64_t before = hak_mapped.superslab_bytes;
  CHECK_EQUAL(stat(second.heap, HAK_STAT_remote_collect), 0);
  tell(&second, DRAIN);
  CHECK_EQUAL(stat(second.heap, HAK_STAT_remote_collect), 64);
  CHECK_EQUAL(hak_mapped.superslab_bytes, before);
  tell(&second, END);
}
ISOLATED(owner_takes_all_back)

// ---------------------------------------------------------------------------
// A slab is adopted while a poster is between its compare-and-swap and the inbox:
// what it posts to the old owner is passed on to the new one, once.

static void adopted_meanwhile(void) {
  const size_t kinds[] = {64, 4096};
  for (unsigned k = 0; k < COUNT(kinds); k++) {
    hak_heap_t *me = mine();
    hak_option(REMOTE_PENDING) = 16 << 20;
    start(&other, kinds[k], 8);
    hak_heap_t *old = other.heap;
    hak_block_t block;
    CHECK(hak_front_find(other.blocks[0], "free", &block));
    hak_slab_t *slab = block.slab;
    // The poster's first half, as push does it, with a block that no thread holds any more.
    void *freed = other.blocks[0];
    if (hak_slab_kind(slab) == HAK_KIND_TINY) {
      *(void **)freed = NULL;
      hak_store_seq_cst(&slab->remote, (uintptr_t)freed | UINT64_C(1) << HAK_REMOTE_COUNT_SHIFT | QUEUED);
    } else {
      hak_store_seq_cst(&slab->remote, UINT64_C(1) << block.number | QUEUED);
    }
    tell(&other, END);
    CHECK_EQUAL(hak_load_relaxed(&old->state), HAK_HEAP_ORPHAN);
    CHECK(hak_slab_owner(slab) == old);
    CHECK(hak_heap_adopt(me, hak_slab_class(slab)));
    CHECK(hak_slab_owner(slab) == me);
    CHECK(slab->remote & QUEUED);
    // Meanwhile the new owner frees blocks, until the slab is empty but for one: the slab must
    // not go back while QUEUED.
    for (unsigned i = 1; i < 8; i++) give(other.blocks[i]);
    CHECK(hak_slab_kind(slab) != HAK_KIND_FREE);
    // The poster's second half, with the owner it had read before.
    hak_heap_post(old, slab);
    hak_heap_service(old);
    CHECK_EQUAL(hak_load_relaxed(&old->inbox), 0);
    CHECK_EQUAL(hak_load_relaxed(&old->state), HAK_HEAP_ORPHAN);
    CHECK_EQUAL(hak_load_relaxed(&me->inbox), hak_slab_index(slab));
    CHECK(slab->remote & QUEUED);
    hak_heap_drain(me);
    CHECK_EQUAL(hak_load_relaxed(&me->inbox), 0);
    hak_heap_check(me);
    CHECK(hak_slab_kind(slab) == HAK_KIND_FREE || hak_slab_live(slab) == 0);
    hak_heap_release_idle(me);
    CHECK_EQUAL(hak_slab_kind(slab), HAK_KIND_FREE);
  }
}
ISOLATED(adopted_meanwhile)

int main(void) {
  hak_option(NURSERY) = 0; // threads have heaps of their own here
  const struct CMUnitTest tests[] = {
    ISOLATED_TEST(one_chain_per_slab),
    ISOLATED_TEST(collisions),
    ISOLATED_TEST(older_chain_first),
    ISOLATED_TEST(ended_threads_blocks),
    ISOLATED_TEST(heaps_that_are_not_visited),
    ISOLATED_TEST(what_is_held_back_is_bounded),
    ISOLATED_TEST(without_a_heap),
    ISOLATED_TEST(owner_takes_all_back),
    ISOLATED_TEST(adopted_meanwhile),
  };
  return RUN(tests);
}
