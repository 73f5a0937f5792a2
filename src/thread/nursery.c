#include "thread/nursery.h"

#include "core/options.h"
#include "superslab/size_class.h"
#include "superslab/slab.h"
#include "thread/first.h"
#include "thread/front.h"
#include "thread/heap.h"
#include "thread/orphan.h"
#include "thread/remote.h"

#define TAKEN_CALLS 16 // finding a nursery taken counts as this many calls

static _Atomic(hak_heap_t *) nurseries[HAK_NURSERIES]; // hak_heap_none while one is made
static HAK_TLS struct {
  uint32_t calls; // served by nurseries; each KiB counts as one more
  uint32_t taken; // times it found a nursery taken; selects the one it uses
} tls_young;

// While many threads have heaps, a thread stays young for this many times as long: most threads
// sleep then, and a heap has a slab of each class that its thread ever used.
#define CROWD_TIMES 4

HAK_NOINLINE static bool in_crowd(size_t size) {
  if (size <= HAK_MIN_BLOCK * 2) tls_young.calls += CROWD_TIMES - 1; // it gets a whole cache line
  return hak_load_relaxed(&hak_heap_threads) > HAK_CROWD &&
         tls_young.calls < CROWD_TIMES * hak_option(NURSERY);
}

// size: of the requested block; SIZE_MAX where it is not known.
static bool is_young(size_t size) {
  // PREWARM prepares a thread's heap, and GUARD counts its slow paths: both need a heap.
  return (HAK_LIKELY(tls_young.calls < hak_option(NURSERY)) || in_crowd(size)) &&
         hak_option(PREWARM) == 0 && hak_option(GUARD) == 0;
}

HAK_INLINE bool take(hak_heap_t *heap) {
  if (!hak_heap_take(heap, HAK_HEAP_ATTACHED)) return false;
  if (HAK_LIKELY(hak_load_relaxed(&heap->nursery))) return true;
  // Since the nursery was found it became a thread's own heap, and that thread has ended.
  hak_orphan_let_go(heap);
  return false;
}

// Takes the nursery in the place. NULL: there is none, or another thread has it.
HAK_INLINE hak_heap_t *take_from(_Atomic(hak_heap_t *) *place) {
  // Acquire: pairs with the release in hak_heap_make_in, as does that of the state in take.
  hak_heap_t *heap = hak_load_acquire(place);
  return heap && heap != &hak_heap_none && take(heap) ? heap : NULL;
}

// The nursery that this thread used last was just found taken, or does not exist.
HAK_NOINLINE static hak_heap_t *enter_another(void) {
  bool no_memory = false;
  for (unsigned n = 0; n < HAK_NURSERIES; n++) {
    _Atomic(hak_heap_t *) *place = &nurseries[tls_young.taken % HAK_NURSERIES];
    // Acquire: pairs with the release in hak_heap_make_in.
    hak_heap_t *heap = hak_load_acquire(place);
    if (!heap && !no_memory) {
      heap = hak_heap_make_in(place, HAK_HEAP_ATTACHED);
      if (heap) return heap;
      // If no other thread makes one there, there is no memory, for another place either: but one
      // that is there may have some. Relaxed: nothing is read through it.
      no_memory = hak_load_relaxed(place) == NULL;
    } else if (heap && n > 0 && heap != &hak_heap_none && take(heap)) {
      return heap;
    }
    tls_young.taken++;
    if (heap) tls_young.calls += TAKEN_CALLS; // an empty place tells nothing about other threads
  }
  return NULL;
}

hak_heap_t *hak_nursery_enter(void) {
  // The first thread gets the first heap. Heaps that ended threads left are used before nurseries:
  // where there are such heaps, threads tend to need one.
  if (!is_young(SIZE_MAX) || (hak_heap_count() == 0 && !hak_first_elsewhere()) ||
      hak_orphan_any(HAK_ORPHANS_ALL))
    return NULL;
  tls_young.calls++;
  hak_heap_t *heap = take_from(&nurseries[tls_young.taken % HAK_NURSERIES]);
  return HAK_LIKELY(heap != NULL) ? heap : enter_another();
}

hak_heap_t *hak_nursery_enter_for(hak_slab_t *slab) {
  hak_heap_t *owner = hak_slab_owner(slab);
  if (!owner || !hak_load_relaxed(&owner->nursery) || !is_young(SIZE_MAX) || !take(owner))
    return NULL;
  tls_young.calls++;
  return owner;
}

void hak_nursery_leave(hak_heap_t *heap) {
  hak_heap_count_stat(heap, HAK_STAT_nursery, 1);
  if (HAK_UNLIKELY(heap->pending)) hak_remote_flush(heap);
  if (HAK_UNLIKELY(hak_load_relaxed(&heap->state) == HAK_HEAP_DEAD)) return; // fork in a handler
  // Release: pairs with the acquire in hak_heap_take. Then look for what was posted before, as
  // hak_heap_service does.
  hak_store_seq_cst(&heap->state, HAK_HEAP_ORPHAN);
  if (hak_load_seq_cst(&heap->inbox) != 0 || hak_load_seq_cst(&heap->mail) != NULL)
    hak_heap_service(heap);
}

void *hak_nursery_hit(size_t size) {
  // Acquire: pairs with the release in hak_heap_make_in, and makes the options known as well.
  hak_heap_t *heap = hak_load_acquire(&nurseries[tls_young.taken % HAK_NURSERIES]);
  if (size > HAK_L2_MAX || !heap || heap == &hak_heap_none || !is_young(size) ||
      hak_orphan_any(HAK_ORPHANS_ALL) || !take(heap))
    return NULL;
  void *p = hak_front_hit_any_of(&heap, hak_class_padded(size + HAK_TAIL) - HAK_TAIL);
  if (HAK_LIKELY(p != NULL)) tls_young.calls += 1 + (uint32_t)(size >> 10);
  hak_nursery_leave(heap);
  return p;
}

hak_heap_t *hak_nursery_grow_up(void) {
  if (tls_young.calls == 0) return NULL;
  _Atomic(hak_heap_t *) *place = &nurseries[tls_young.taken % HAK_NURSERIES];
  hak_heap_t *heap = take_from(place);
  if (!heap) return NULL;
  // Relaxed: a thread that reads the old place or flag cannot take the heap, or checks again.
  hak_store_relaxed(&heap->nursery, false);
  hak_store_relaxed(place, (hak_heap_t *)NULL);
  return heap;
}

size_t hak_nursery_takes(size_t size) {
  size_t kib = size >> 10, most = UINT32_MAX / 2;
  tls_young.calls += (uint32_t)(kib < most ? kib : most); // is_young kept it below half: it fits
  return hak_class_padded(size);
}

#if HAK_SECURE
void hak_nursery_audit(void) {
  for (unsigned i = 0; i < HAK_NURSERIES; i++) {
    hak_heap_t *heap = take_from(&nurseries[i]);
    if (!heap) continue;
    hak_quarantine_audit(heap);
    hak_orphan_let_go(heap);
  }
}
#endif

void hak_nursery_reclaim(void) {
  for (unsigned i = 0; i < HAK_NURSERIES; i++) {
    hak_heap_t *heap = take_from(&nurseries[i]);
    if (!heap) continue; // the thread that has it finds the request
    hak_heap_reclaim_own(heap);
    hak_orphan_let_go(heap); // not hak_nursery_leave: no call was served
  }
}

void hak_nursery_after_fork(void) {
  for (unsigned i = 0; i < HAK_NURSERIES; i++)
    hak_store_if_other(&nurseries[i], (hak_heap_t *)NULL);
}
