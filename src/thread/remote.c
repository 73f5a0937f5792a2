#include "thread/remote.h"

#include "core/misuse.h"
#include "core/options.h"
#include "superslab/seal.h"
#include "superslab/slab.h"
#include "thread/commons.h"
#include "thread/heap.h"
#include "thread/relief.h"

// The block that the chain ends with was handed over last time already: it is taken off
// again and reported. False: there is no other.
HAK_COLD static bool twice(hak_remote_entry_t *entry, hak_slab_t *slab, const char *function) {
  void *block = entry->tail, *before = entry->head;
  for (uint32_t i = 2; i < entry->count; i++) before = hak_link_get(before);
  entry->tail = before;
  entry->count--;
  hak_misuse_double_free(function, block, hak_class_size(hak_slab_class(slab)));
  return entry->count != 0;
}

// The caller has set QUEUED.
static void post(hak_slab_t *slab, hak_heap_t *mine) {
  if (mine) hak_owner_inc(&mine->stats[HAK_STAT_remote_push]);
  hak_heap_t *owner = hak_slab_owner(slab);
  hak_heap_post(owner, slab);
  // Relaxed: who does not see yet that it is a commons looks after it, once too often.
  if (!hak_load_relaxed(&owner->common) || hak_commons_due(owner)) hak_heap_service(owner);
}

// Adds a chain (tiny) or set (L2) of blocks to the slab's remote word (R1).
// mine: this thread's heap, NULL without one; function: what the program called.
HAK_INLINE void push_kind(hak_slab_t *slab, bool tiny, hak_remote_entry_t *entry, hak_heap_t *mine,
                          const char *function) {
  uint64_t old = hak_load_relaxed(&slab->remote), now;
  // Of a slab that is queued others may take care as soon as its last block is in.
  uint64_t count = 0, capacity = slab->capacity;
  unsigned run = slab->run;
  hak_heap_t *owner = hak_load_relaxed(tiny ? &slab->local : &slab->holder);
  do {
    if (tiny) {
      void *top = (void *)(uintptr_t)(old & HAK_REMOTE_POINTER_MASK);
      if (HAK_UNLIKELY(entry->tail == top) && !twice(entry, slab, function)) return;
      count = ((old & ~HAK_REMOTE_QUEUED) >> HAK_REMOTE_COUNT_SHIFT) + entry->count;
      hak_link_set(entry->tail, top);
      now = (uintptr_t)entry->head | count << HAK_REMOTE_COUNT_SHIFT;
    } else {
      now = old | entry->mask;
    }
    // Release: pairs with the acquire in hak_slab_collect, which then sees the
    // chain's links. Seq_cst: also orders the look at the owner's state (R2).
  } while (!hak_cas_seq_cst(&slab->remote, &old, now | HAK_REMOTE_QUEUED));
  if (mine) {
    hak_owner_inc(&mine->stats[HAK_STAT_remote_flush]);
    hak_owner_add(&mine->stats[HAK_STAT_free_remote], entry->count);
  }
  if (!tiny && (old & entry->mask))
    hak_misuse_double_free(function,
                           slab->start + hak_low_bit(old & entry->mask) *
                                             hak_class_size(hak_slab_class(slab)),
                           hak_class_size(hak_slab_class(slab)));
  if (!(old & HAK_REMOTE_QUEUED)) post(slab, mine);
  bool all = tiny ? count == capacity : (now & ~HAK_REMOTE_QUEUED) == hak_slab_all(capacity);
  if (HAK_UNLIKELY(all)) hak_relief_emptied(owner, run, mine);
}

static void push(hak_slab_t *slab, hak_remote_entry_t *entry, hak_heap_t *mine,
                 const char *function) {
  push_kind(slab, hak_slab_kind(slab) == HAK_KIND_TINY, entry, mine, function);
}

static void flush_entry(hak_heap_t *heap, hak_remote_entry_t *entry) {
  hak_remote_entry_t chain = *entry;
  entry->slab = NULL;
  unsigned c = hak_slab_class(chain.slab);
  heap->pending -= chain.count * (uint32_t)hak_class_size(c);
  push(chain.slab, &chain, heap, "free");
}

void hak_remote_flush(hak_heap_t *heap) {
  heap->ticks = 0;
  if (heap->pending == 0) return;
  hak_owner_inc(&heap->stats[HAK_STAT_remote_drain]);
  for (unsigned i = 0; i < HAK_REMOTE_MAP_SIZE; i++)
    if (heap->remote_map[i].slab) flush_entry(heap, &heap->remote_map[i]);
}

// Neighbouring slabs go to different entries.
static hak_remote_entry_t *entry_of(hak_heap_t *heap, const hak_slab_t *slab) {
  uint32_t index = hak_slab_index(slab);
  return &heap->remote_map[(index ^ index >> HAK_REMOTE_MAP_SHIFT) & (HAK_REMOTE_MAP_SIZE - 1)];
}

HAK_NOINLINE HAK_HOT static void give_entry(hak_heap_t *heap, hak_remote_entry_t *entry,
                                            hak_slab_t *slab) {
  if (entry->slab) flush_entry(heap, entry);
  *entry = (hak_remote_entry_t){.slab = slab};
}

HAK_INLINE hak_remote_entry_t *entry_for(hak_heap_t *heap, hak_slab_t *slab) {
  hak_remote_entry_t *entry = entry_of(heap, slab);
  if (HAK_UNLIKELY(entry->slab != slab)) give_entry(heap, entry, slab);
  return entry;
}

HAK_INLINE void added(hak_heap_t *heap, hak_remote_entry_t *entry, size_t size) {
  entry->count++;
  heap->pending += (uint32_t)size;
  if (HAK_UNLIKELY(heap->pending > hak_option(REMOTE_PENDING))) hak_remote_flush(heap);
}

void hak_remote_free_tiny(hak_heap_t *heap, hak_slab_t *slab, void *p, const char *function) {
  hak_remote_entry_t *entry = entry_for(heap, slab);
  if (HAK_UNLIKELY(entry->head == p)) {
    hak_misuse_double_free(function, p, hak_class_size(hak_slab_class(slab)));
    return;
  }
  hak_link_set(p, entry->head);
  entry->head = p;
  if (entry->count == 0) entry->tail = p;
  added(heap, entry, hak_class_size(hak_slab_class(slab)));
}

bool hak_remote_holds_l2(hak_heap_t *heap, hak_slab_t *slab, uint32_t block) {
  const hak_remote_entry_t *entry = entry_of(heap, slab);
  return entry->slab == slab && (entry->mask >> block & 1);
}

void hak_remote_free_l2(hak_heap_t *heap, hak_slab_t *slab, uint32_t block, const char *function) {
  if (HAK_LIKELY(!hak_option(POOL_MID_INUSE_DEFERRED))) {
    hak_remote_entry_t one = {.slab = slab, .mask = (uint64_t)1 << block, .count = 1};
    push_kind(slab, false, &one, heap, function);
    return;
  }
  size_t size = hak_class_size(hak_slab_class(slab));
  hak_remote_entry_t *entry = entry_for(heap, slab);
  if (HAK_UNLIKELY(entry->mask >> block & 1)) {
    hak_misuse_double_free(function, slab->start + block * size, size - HAK_TAIL);
    return;
  }
  entry->mask |= (uint64_t)1 << block;
  added(heap, entry, size);
}

void hak_remote_push_one(hak_slab_t *slab, void *p, uint32_t block) {
  hak_remote_entry_t entry = {.slab = slab, .count = 1};
  if (hak_slab_kind(slab) == HAK_KIND_TINY) entry.head = entry.tail = p;
  else entry.mask = (uint64_t)1 << block;
  push(slab, &entry, NULL, "free");
}
