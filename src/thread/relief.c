#include "thread/relief.h"

#include "core/options.h"
#include "superslab/shared_pool.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/letter.h"

#define AT_LEAST 16  // emptied slabs, 1 MiB, before anybody looks
#define POSTED_PER 4 // or one per so many slabs that had to be posted again last time

static bool holds_all(const hak_slab_t *slab, uint64_t remote) {
  remote &= ~HAK_REMOTE_QUEUED;
  return hak_slab_kind(slab) == HAK_KIND_TINY ? remote >> HAK_REMOTE_COUNT_SHIFT == slab->capacity
                                              : remote == hak_slab_all(slab->capacity);
}

// True: the caller now has the slab, which it popped from an inbox; false: the owner must see it.
static bool all_freed(hak_slab_t *slab) {
  uint64_t all = hak_load_relaxed(&slab->remote);
  if (!holds_all(slab, all)) return false;
  // Out of the word first: otherwise the owner of an ACTIVE slab could collect the blocks, use
  // them up and make it FULL before its place is read. Now the owner can do the last only.
  // Acquire: pairs with the pushes' compare-and-swap: this thread sees what the owner did
  // before the program got these blocks from it, and so no older place.
  if (!hak_cas_acq_rel(&slab->remote, &all, HAK_REMOTE_QUEUED)) return false;
  // Acquire: pairs with the release in hak_slab_settle: the owner is done with the slab. A
  // commons becomes its owner before that, so the owner is read last.
  if (hak_load_acquire(&slab->place) == HAK_PLACE_FULL &&
      !hak_load_relaxed(&hak_slab_owner(slab)->common))
    return true;
  // Release: pairs with the acquire in hak_slab_collect: the pushes' own release sequence ends
  // here, as this is a plain store. No block is live, so nobody pushes.
  hak_store_release(&slab->remote, all);
  return false;
}

static void take(hak_heap_t *mine, hak_slab_t *slab, hak_parcel_t *parcel) {
  hak_fetch_add_relaxed(&hak_slab_owner(slab)->taken[hak_slab_class(slab)], 1u);
  hak_store_relaxed(&slab->remote, (uint64_t)0); // no block is live: nobody else writes it
  // Acquire: pairs with the release in has_unseen (scarce.c): what the owner read there is older
  // than anything that a later owner writes.
  (void)hak_exchange_acq_rel(&slab->local, (hak_heap_t *)NULL);
  hak_slab_clear(slab);
  hak_pool_release_with(slab, slab->run, parcel);
  if (mine) hak_heap_count_stat(mine, HAK_STAT_relief, 1);
}

static void relieve(hak_heap_t *heap, hak_heap_t *mine) {
  hak_parcel_t parcel = {0};
  uint32_t posted = 0;
  // First: a run that a letter empties must not begin this anew.
  hak_store_relaxed(&heap->emptied, 0u);
  hak_letter_recall(heap, mine);
  // Acquire: as in take_posted (heap.c).
  uint32_t index = hak_exchange_seq_cst(&heap->inbox, 0);
  while (index) {
    hak_slab_t *slab = hak_slab_at(index);
    index = slab->inbox_next;
    if (all_freed(slab)) {
      take(mine, slab, &parcel);
    } else {
      hak_heap_t *owner = hak_slab_owner(slab); // still QUEUED, so this thread may post it on
      posted += slab->run;
      hak_heap_post(owner, slab);
      if (owner != heap) hak_heap_service(owner);
    }
  }
  hak_store_relaxed(&heap->emptied_due, posted / POSTED_PER);
  hak_pool_release_all(&parcel);
  hak_heap_service(heap); // it may have become an orphan meanwhile
}

// Slabs of a heap whose thread vanished in a fork may be torn; those who use a nursery or a
// commons look into its inbox.
static bool may_relieve(hak_heap_t *heap) {
  return hak_load_relaxed(&heap->state) == HAK_HEAP_ATTACHED && !hak_load_relaxed(&heap->common) &&
         !hak_load_relaxed(&heap->nursery);
}

void hak_relief_emptied(hak_heap_t *owner, unsigned slabs, hak_heap_t *mine) {
  // Relaxed, all of it: it steers who looks when.
  uint32_t n = hak_fetch_add_relaxed(&owner->emptied, slabs) + slabs;
  if (n < AT_LEAST || n < hak_load_relaxed(&owner->emptied_due) || !hak_option(RELIEF)) return;
  if (!may_relieve(owner)) return;
  relieve(owner, mine);
  hak_heap_tend_shared();
}

void hak_relief_all(hak_heap_t *mine) {
  if (!hak_option(RELIEF)) return;
  for (uint32_t id = 1; id <= hak_heap_count(); id++) {
    hak_heap_t *heap = hak_heap_by_id(id);
    if (heap == mine || !may_relieve(heap)) continue;
    hak_letter_recall(heap, mine);
    if (hak_load_relaxed(&heap->emptied) != 0) relieve(heap, mine);
  }
}
