// heaps.c: all heaps, by number (protocol N2), and what becomes of them in the child of a fork. A
// heap is made once and stays.

#include "base/bits.h"
#include "os/os.h"
#include "superslab/slab.h"
#include "superslab/superslab.h"
#include "thread/commons.h"
#include "thread/heap.h"
#include "thread/letter.h"
#include "thread/nursery.h"
#include "thread/orphan.h"
#include "thread/process.h"
#include "thread/quarantine.h"
#include "thread/warm.h"

static hak_heap_t first_heap; // number 1: the main thread's, so that start-up maps no heap

// Segment k holds 8 << k of the other heaps.
#define SEGMENT_SHIFT 3
#define SEGMENTS 24
static _Atomic(hak_heap_t *) segments[SEGMENTS];
static _Atomic uint32_t heap_count; // numbers handed out

static hak_heap_t *in_segment(uint32_t id, bool make) {
  uint32_t n = ((id - 2) >> SEGMENT_SHIFT) + 1;
  unsigned k = hak_high_bit(n);
  uint32_t first = ((1u << k) - 1) << SEGMENT_SHIFT;
  if (k >= SEGMENTS) return NULL;
  // Acquire: pairs with the release of the installing cas; the memory is zero.
  hak_heap_t *segment = hak_load_acquire(&segments[k]);
  if (!segment && make) {
    size_t size = hak_align_up(sizeof(hak_heap_t) << (SEGMENT_SHIFT + k), hak_os_page_size);
    hak_heap_t *fresh = hak_os_map(size, hak_os_page_size);
    if (!fresh) hak_process_fit(hak_os_address_limit()); // the limit may have been changed
    if (!fresh && !(fresh = hak_os_map(size, hak_os_page_size))) return NULL;
    if (hak_cas_acq_rel(&segments[k], &segment, fresh)) {
      segment = fresh;
      hak_mapped_add(&hak_mapped.metadata_bytes, (int64_t)size);
    } else {
      hak_os_unmap(fresh, size);
    }
  }
  return segment ? &segment[id - 2 - first] : NULL;
}

hak_heap_t *hak_heap_by_id(uint32_t id) {
  if (id == 0 || id > hak_load_acquire(&heap_count)) return NULL;
  return id == 1 ? &first_heap : in_segment(id, false);
}

uint32_t hak_heap_count(void) { return hak_load_acquire(&heap_count); }

hak_heap_t *hak_heap_new(void) {
  uint32_t id = hak_load_acquire(&heap_count) + 1;
  for (;;) {
    hak_heap_t *heap = id == 1 ? &first_heap : in_segment(id, true);
    if (!heap) return NULL;
    uint32_t before = id - 1;
    // Release: a thread that reads the count finds the segment. Until the heap is attached its
    // state is NEW, and no other thread looks at it.
    if (hak_cas_acq_rel(&heap_count, &before, id)) {
      for (unsigned i = 0; i < HAK_TINY_STEPS; i++) heap->tiny[i] = &hak_slab_none;
      for (unsigned i = 0; i < HAK_L2_CLASSES; i++) {
        heap->l2[i] = &hak_slab_none;
        heap->ring[i].size = (uint32_t)hak_class_size(HAK_TINY_CLASSES + i);
        heap->ring[i].wanted = HAK_L2_RING_MIN;
        hak_store_relaxed(&heap->ring[i].hits_left, HAK_RING_HITS);
      }
      hak_letter_init(heap);
      hak_warm_init(heap);
      hak_quarantine_init(heap);
      heap->reclaim_met = hak_load_relaxed(&hak_heap_requests); // no earlier request is for it
      heap->id = id;
      return heap;
    }
    id = before + 1;
  }
}

hak_heap_t *hak_heap_make_in(_Atomic(hak_heap_t *) *place, uint32_t state) {
  hak_heap_t *none = NULL;
  if (!hak_cas_acquire(place, &none, &hak_heap_none)) return NULL;
  hak_heap_t *heap = hak_heap_new();
  if (heap) {
    heap->transient = state == HAK_HEAP_ATTACHED;
    hak_store_relaxed(state == HAK_HEAP_ATTACHED ? &heap->nursery : &heap->common, true);
    hak_store_seq_cst(&heap->state, state);
  }
  // Release: pairs with the acquire of the thread that finds it there.
  hak_store_release(place, heap);
  return heap;
}

// ---------------------------------------------------------------------------
// The child of a fork.

// Whether the calling thread may be in the middle of a call that has taken the heap, which is not
// its own: a signal handler may have called fork.
static bool may_be_held(hak_heap_t *heap, uint32_t state, const hak_heap_t *mine) {
  return state == HAK_HEAP_CLAIMED ||
         (state == HAK_HEAP_ATTACHED &&
          (mine == &hak_heap_none || hak_load_relaxed(&heap->nursery)));
}

// Chains of blocks that others freed may be torn, as fork copies pages one after the other: the
// child loses those blocks. A set of L2 blocks is one word and not torn; it stays, unless relief
// has taken the run. The thread's own runs are posted anew when it next drains its inbox. Not now:
// a handler that interrupted its malloc may have called fork.
static void forget_what_others_freed(hak_heap_t *mine, bool of_all) {
  uint32_t end = hak_superslab_count() << HAK_SLABS_SHIFT;
  for (uint32_t i = HAK_SLABS_PER_SUPERSLAB; i < end; i++) {
    hak_slab_t *slab = hak_slab_at(i);
    hak_kind_t kind = hak_slab_kind(slab);
    if (kind != HAK_KIND_TINY && kind != HAK_KIND_L2) continue;
    bool own = hak_slab_owner(slab) == mine;
    uint64_t remote = hak_load_relaxed(&slab->remote);
    if (remote == 0 || !(own || of_all)) continue;
    bool posted = kind == HAK_KIND_L2 && !hak_slab_is_free(slab);
    hak_store_relaxed(&slab->remote, posted ? remote & ~HAK_REMOTE_QUEUED : 0);
    if (own) mine->forked = true, mine->ticks = HAK_HEAP_TICKS;
  }
}

void hak_heap_after_fork(void) {
  hak_heap_t *mine = hak_tls_heap;
  bool held = false;
  for (uint32_t id = 1; id <= hak_heap_count(); id++) {
    hak_heap_t *heap = hak_heap_by_id(id);
    uint32_t state = hak_load_relaxed(&heap->state);
    // The heap's thread may have been in the middle of anything, and fork copies pages one after
    // the other: only single words of the heap can be trusted.
    if (heap == mine || state == HAK_HEAP_NEW) continue;
    held |= may_be_held(heap, state, mine);
    hak_store_if_other(&heap->state, HAK_HEAP_DEAD);
    // This thread's letters are in the mail, and will be written again.
    hak_store_if_other(&heap->mail, (hak_letter_t *)NULL);
    hak_store_if_other(&heap->inbox, 0u);
  }
  hak_nursery_after_fork();
  hak_commons_after_fork();
  hak_orphan_after_fork(mine);
  hak_store_if_other(&hak_heap_threads, mine != &hak_heap_none ? 1u : 0u);
  if (mine != &hak_heap_none) {
    hak_store_if_other(&mine->inbox, 0u);
    hak_letter_after_fork(mine);
  }
  if (held || mine != &hak_heap_none) forget_what_others_freed(mine, held);
}
