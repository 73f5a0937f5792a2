#include "thread/remote.h"

#include "core/misuse.h"
#include "thread/commons.h"
#include "thread/heap.h"
#include "thread/letter.h"
#include "thread/orphan.h"
#include "thread/relief.h"

static void *head_of(const hak_remote_entry_t *entry) {
  return (void *)(uintptr_t)(entry->chain & HAK_REMOTE_POINTER_MASK);
}
static void *tail_of(const hak_remote_entry_t *entry) {
  return (char *)hak_align_down((uintptr_t)head_of(entry), HAK_SLAB_SIZE) + entry->tail;
}

// The last block of the chain heads the remote word (in put: the free list): it was handed over
// last time already. Takes it off the chain and reports it. False: the chain has no other block.
HAK_COLD static bool twice(hak_remote_entry_t *entry, hak_slab_t *slab, const char *function) {
  void *block = tail_of(entry), *before = head_of(entry);
  entry->chain -= (uint64_t)1 << HAK_REMOTE_COUNT_SHIFT;
  uint64_t count = entry->chain >> HAK_REMOTE_COUNT_SHIFT;
  for (uint64_t i = 1; i < count; i++) before = hak_link_get(before);
  entry->tail = (uint16_t)(uintptr_t)before;
  hak_misuse_double_free(function, block, slab->size - HAK_TAIL);
  return count != 0;
}

// The caller has set QUEUED.
static void post(hak_slab_t *slab, hak_heap_t *mine) {
  if (mine) hak_owner_inc(&mine->stats[HAK_STAT_remote_push]);
  hak_heap_t *owner = hak_slab_owner(slab);
  hak_heap_post(owner, slab);
  // Relaxed: a thread that does not see yet that it is a commons services it once too often.
  if (!hak_load_relaxed(&owner->common) || hak_commons_due(owner)) hak_heap_service(owner);
}

// What remains to be done after a push: post a slab that was in no inbox; relief if all blocks
// are back (all: the slabs of the run, else 0).
HAK_NOINLINE static void pushed(hak_slab_t *slab, bool queued, hak_heap_t *mine, hak_heap_t *owner,
                                unsigned all) {
  if (!queued) post(slab, mine);
  if (all) hak_relief_emptied(owner, all, mine);
}

HAK_INLINE void count_push(hak_heap_t *mine, uint32_t blocks) {
  if (!mine) return;
  hak_owner_inc(&mine->stats[HAK_STAT_remote_flush]);
  hak_owner_add(&mine->stats[HAK_STAT_free_remote], blocks);
}

// Adds a chain of blocks to the remote word of their slab (R1).
// mine: this thread's heap, NULL without one; function: what the program called.
static void push_tiny(hak_slab_t *slab, hak_remote_entry_t *entry, hak_heap_t *mine,
                      const char *function) {
  uint64_t old = hak_load_relaxed(&slab->remote), now, count;
  void *tail = tail_of(entry);
  // Once a queued slab's last block is in, others may take the slab: its fields are read before.
  uint64_t capacity = slab->capacity;
  uint32_t blocks = (uint32_t)(entry->chain >> HAK_REMOTE_COUNT_SHIFT);
  if (HAK_UNLIKELY(hak_load_relaxed(&slab->thin) != 0)) hak_commons_thin_freed(slab, blocks);
  hak_heap_t *owner = hak_load_relaxed(&slab->local);
  do {
    void *top = (void *)(uintptr_t)(old & HAK_REMOTE_POINTER_MASK);
    if (HAK_UNLIKELY(tail == top)) {
      if (!twice(entry, slab, function)) return;
      tail = tail_of(entry);
    }
    hak_link_set(tail, top);
    now = entry->chain + (old & ~HAK_REMOTE_QUEUED & ~HAK_REMOTE_POINTER_MASK);
    count = now >> HAK_REMOTE_COUNT_SHIFT;
    // Release: pairs with the acquire in hak_slab_collect, which then sees the chain's links.
    // Acquire: pairs with the release there: the slab's owner is done with inbox_next, which
    // post may write.
  } while (!hak_cas_acq_rel(&slab->remote, &old, now | HAK_REMOTE_QUEUED));
  count_push(mine, (uint32_t)(entry->chain >> HAK_REMOTE_COUNT_SHIFT));
  bool queued = (old & HAK_REMOTE_QUEUED) != 0;
  if (!queued || count == capacity) pushed(slab, queued, mine, owner, count == capacity);
}

// pushed, for an L2 push of which some blocks had been handed over already.
HAK_COLD static void pushed_twice(hak_slab_t *slab, uint64_t blocks, hak_heap_t *mine,
                                  hak_heap_t *owner, unsigned all, const char *function) {
  size_t size = hak_class_size(hak_slab_class(slab));
  hak_misuse_double_free(function, slab->start + hak_low_bit(blocks) * size, size - HAK_TAIL);
  pushed(slab, true, mine, owner, all); // queued: its remote word holds blocks
}

// push_tiny for a set of L2 blocks. Calls only at the end of a path, so that nothing is saved.
HAK_INLINE void push_l2(hak_slab_t *slab, uint64_t blocks, uint32_t count, hak_heap_t *mine,
                        const char *function) {
  uint64_t old = hak_load_relaxed(&slab->remote), all = hak_slab_all(slab->capacity), now;
  unsigned run = slab->run;
  hak_heap_t *owner = hak_load_relaxed(&slab->holder);
  do now = old | blocks | HAK_REMOTE_QUEUED;
  while (!hak_cas_acq_rel(&slab->remote, &old, now)); // orders as in push_tiny
  count_push(mine, count);
  run = now == (all | HAK_REMOTE_QUEUED) ? run : 0;
  if (HAK_UNLIKELY(old & blocks)) pushed_twice(slab, old & blocks, mine, owner, run, function);
  else if (run || !(old & HAK_REMOTE_QUEUED))
    pushed(slab, (old & HAK_REMOTE_QUEUED) != 0, mine, owner, run);
}

static uint32_t count_of(hak_slab_t *slab, const hak_remote_entry_t *entry) {
  return hak_slab_kind(slab) == HAK_KIND_TINY ? (uint32_t)(entry->chain >> HAK_REMOTE_COUNT_SHIFT)
                                              : hak_count_bits64(entry->mask);
}

static void push(hak_slab_t *slab, hak_remote_entry_t *entry, hak_heap_t *mine,
                 const char *function) {
  hak_kind_t kind = hak_slab_kind(slab);
  if (kind == HAK_KIND_TINY) push_tiny(slab, entry, mine, function);
  else if (HAK_LIKELY(kind == HAK_KIND_L2))
    push_l2(slab, entry->mask, hak_count_bits64(entry->mask), mine, function);
  else // another thread freed the same blocks, and the slab went back
    hak_misuse("%s: double free of blocks in the slab at %p, which has no live block any more",
               function, slab->start);
}

// Empties the entry and returns the blocks that it held.
static hak_remote_entry_t take_out(hak_heap_t *heap, hak_remote_entry_t *entry) {
  hak_remote_entry_t chain = *entry;
  hak_slab_t *slab = hak_slab_at(chain.slab);
  entry->slab = 0;
  heap->pending -= count_of(slab, &chain) * slab->size;
  return chain;
}

// Puts the entry's chain into a slab of an orphan that this thread owns for a moment.
static void put(hak_heap_t *mine, hak_heap_t *orphan, hak_slab_t *slab, hak_remote_entry_t *entry) {
  if (HAK_UNLIKELY(tail_of(entry) == slab->free) && !twice(entry, slab, "free")) return;
  count_push(mine, count_of(slab, entry));
  hak_heap_put_chain(orphan, slab, head_of(entry), tail_of(entry), count_of(slab, entry));
}

static hak_remote_entry_t *end_of(hak_heap_t *heap) {
  return heap->remote_map + HAK_REMOTE_LEAVING + HAK_REMOTE_MAP_SIZE;
}

// If an ended thread's heap owns the slab, frees all blocks of that heap in the map as their owner
// would: pushed one after the other they would take many times as long. Not for a nursery, whose
// slabs may be in front, nor for a commons, whose blocks are taken back when somebody needs them.
static void flush_to_orphan(hak_heap_t *heap, hak_slab_t *slab) {
  hak_heap_t *owner = hak_load_relaxed(&slab->local);
  // Relaxed, all of it: hak_heap_take decides.
  if (!owner || hak_load_relaxed(&owner->state) != HAK_HEAP_ORPHAN ||
      hak_load_relaxed(&owner->nursery) || hak_load_relaxed(&owner->common) ||
      !hak_heap_take(owner, HAK_HEAP_CLAIMED))
    return;
  for (hak_remote_entry_t *entry = heap->remote_map; entry < end_of(heap); entry++) {
    slab = hak_slab_at(entry->slab);
    if (entry->slab == 0 || hak_load_relaxed(&slab->local) != owner) continue;
    hak_remote_entry_t chain = take_out(heap, entry);
    put(heap, owner, slab, &chain);
  }
  hak_heap_count_stat(owner, HAK_STAT_heap_service, 1);
  hak_orphan_let_go(owner);
}

static void flush_entry(hak_heap_t *heap, hak_remote_entry_t *entry) {
  hak_slab_t *slab = hak_slab_at(entry->slab);
  flush_to_orphan(heap, slab);
  if (entry->slab == 0) return;
  hak_remote_entry_t chain = take_out(heap, entry);
  push(slab, &chain, heap, "free");
}

// Flushes the chains that have left the map, and the entries of the map up to end.
static void flush_until(hak_heap_t *heap, const hak_remote_entry_t *end) {
  for (hak_remote_entry_t *entry = heap->remote_map; entry < end; entry++)
    if (entry->slab) flush_entry(heap, entry);
  heap->leaving = 0;
}

void hak_remote_flush(hak_heap_t *heap) {
  hak_letter_send_all(heap);
  if (heap->pending == 0) return;
  hak_owner_inc(&heap->stats[HAK_STAT_remote_drain]);
  flush_until(heap, end_of(heap));
}

HAK_INLINE void added(hak_heap_t *heap, size_t size) {
  heap->pending += (uint32_t)size;
  if (HAK_UNLIKELY(heap->pending > hak_option(REMOTE_PENDING))) hak_remote_flush(heap);
}

// The entry's chain is to be handed over together with those that leave after it: a
// compare-and-swap waits until the cache lines of all blocks written before it have arrived,
// one cache miss after the other if each free has one. May empty the entry.
HAK_NOINLINE static void leave(hak_heap_t *heap, const hak_remote_entry_t *entry) {
  if (heap->leaving == HAK_REMOTE_LEAVING) {
    flush_until(heap, heap->remote_map + HAK_REMOTE_LEAVING);
    if (entry->slab == 0) return;
  }
  heap->remote_map[heap->leaving++] = *entry;
  __builtin_prefetch(&hak_slab_at(entry->slab)->remote, 1);
}

// Gives an entry to another slab.
HAK_INLINE void begin_entry(hak_heap_t *heap, hak_remote_entry_t *entry, hak_remote_entry_t first) {
  if (entry->slab) leave(heap, entry);
  *entry = first;
}

void hak_remote_free_tiny(hak_heap_t *heap, hak_slab_t *slab, void *p, const char *function) {
  uint32_t index = hak_slab_index(slab);
  hak_remote_entry_t *entry = hak_remote_entry(heap, index);
  if (entry->slab == index) {
    void *head = head_of(entry);
    if (HAK_UNLIKELY(head == p)) {
      hak_misuse_double_free(function, p, slab->size - HAK_TAIL);
      return;
    }
    hak_link_set(p, head);
    entry->chain += (uint64_t)(uintptr_t)p - (uint64_t)(uintptr_t)head;
  } else {
    hak_link_set(p, NULL);
    begin_entry(
        heap, entry,
        (hak_remote_entry_t){.chain = (uintptr_t)p, .slab = index, .tail = (uint16_t)(uintptr_t)p});
  }
  entry->chain += (uint64_t)1 << HAK_REMOTE_COUNT_SHIFT;
  added(heap, slab->size);
}

bool hak_remote_holds_l2(hak_heap_t *heap, hak_slab_t *slab, uint32_t block) {
  uint32_t index = hak_slab_index(slab);
  const hak_remote_entry_t *entry = hak_remote_entry(heap, index);
  bool found = entry->slab == index && (entry->mask >> block & 1);
  for (entry = heap->remote_map; entry < heap->remote_map + HAK_REMOTE_LEAVING; entry++)
    found |= entry->slab == index && (entry->mask >> block & 1);
  return found || hak_letter_holds(heap, slab, block);
}

HAK_NOINLINE static void free_l2_deferred(hak_heap_t *heap, hak_slab_t *slab, uint32_t block,
                                          const char *function) {
  uint32_t index = hak_slab_index(slab);
  hak_remote_entry_t *entry = hak_remote_entry(heap, index);
  if (entry->slab != index) begin_entry(heap, entry, (hak_remote_entry_t){.slab = index});
  if (HAK_UNLIKELY(entry->mask >> block & 1)) {
    hak_misuse_double_free(function, slab->start + (size_t)block * slab->size,
                           slab->size - HAK_TAIL);
    return;
  }
  entry->mask |= (uint64_t)1 << block;
  added(heap, slab->size);
}

void hak_remote_free_l2(hak_heap_t *heap, hak_slab_t *slab, uint32_t block, const char *function) {
  if (HAK_UNLIKELY(hak_option(POOL_MID_INUSE_DEFERRED)))
    free_l2_deferred(heap, slab, block, function);
  else if (!hak_letter_add(heap, slab, block, function))
    push_l2(slab, (uint64_t)1 << block, 1, heap, function);
}

void hak_remote_push_l2(hak_slab_t *slab, uint64_t block, hak_heap_t *mine) {
  push_l2(slab, block, 0, mine, "free"); // counted when its letter was written
}

void hak_remote_push_one(hak_slab_t *slab, void *p, uint32_t block) {
  hak_remote_entry_t entry = {.mask = (uint64_t)1 << block};
  if (hak_slab_kind(slab) == HAK_KIND_TINY) {
    entry.chain = (uintptr_t)p | (uint64_t)1 << HAK_REMOTE_COUNT_SHIFT;
    entry.tail = (uint16_t)(uintptr_t)p;
  }
  push(slab, &entry, NULL, "free");
}
