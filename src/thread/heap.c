#include "thread/heap.h"

#include <errno.h>
#include <pthread.h>

#include "core/options.h"
#include "os/os.h"
#include "pool/huge_cache.h"
#include "superslab/slab.h"
#include "thread/commons.h"
#include "thread/front.h"
#include "thread/letter.h"
#include "thread/lost.h"
#include "thread/nursery.h"
#include "thread/orphan.h"
#include "thread/process.h"
#include "thread/quarantine.h"
#include "thread/relief.h"
#include "thread/remote.h"
#include "thread/ring.h"
#include "thread/sparse.h"
#include "thread/tend.h"
#include "thread/warm.h"

// Read-only: the heap of threads that have none. Every front is hak_slab_none.
hak_heap_t hak_heap_none = {
    .tiny = {[0 ... HAK_TINY_STEPS - 1] = &hak_slab_none},
    .l2 = {[0 ... HAK_L2_CLASSES - 1] = &hak_slab_none},
};

HAK_TLS hak_heap_t *hak_tls_heap = &hak_heap_none;
static HAK_TLS bool tls_ending; // heaps are taken per call: the destructor has run, or none will

// ---------------------------------------------------------------------------
// Fronts and lists (owner).

HAK_INLINE void set_front_tiny(hak_heap_t *heap, unsigned size_class, hak_slab_t *slab) {
  const hak_class_info_t *info = &hak_classes[size_class];
  hak_slab_t **last = &heap->tiny[info->size >> HAK_MIN_SHIFT];
  for (hak_slab_t **entry = last - info->spacing; entry <= last; entry++) *entry = slab;
  if (size_class == 0) heap->tiny[0] = slab;
}

void hak_heap_set_front(hak_heap_t *heap, unsigned size_class, hak_slab_t *slab) {
  if (size_class < HAK_TINY_CLASSES) set_front_tiny(heap, size_class, slab);
  else heap->l2[size_class - HAK_TINY_CLASSES] = slab;
}

HAK_INLINE void add_partial(hak_heap_t *heap, hak_slab_t *slab) {
  uint32_t index = hak_slab_index(slab), *head = &heap->partial[hak_slab_class(slab)];
  slab->next = *head;
  if (*head) hak_slab_at(*head)->prev = index;
  *head = index;
}

void hak_heap_add_partial(hak_heap_t *heap, hak_slab_t *slab) { add_partial(heap, slab); }

void hak_heap_remove_partial(hak_heap_t *heap, hak_slab_t *slab) {
  uint32_t *head = &heap->partial[hak_slab_class(slab)];
  if (*head == hak_slab_index(slab)) {
    *head = slab->next;
    return;
  }
  hak_slab_at(slab->prev)->next = slab->next;
  if (slab->next) hak_slab_at(slab->next)->prev = slab->prev;
}

void hak_heap_activate(hak_heap_t *heap, hak_slab_t *slab) {
  unsigned c = hak_slab_class(slab);
  hak_sparse_activated(heap, slab);
  hak_slab_enter_active(slab);
  // Its allocs word starts at the number of live blocks, which were counted before.
  if (c < HAK_TINY_CLASSES) hak_owner_add(&heap->classes[c].allocs, -hak_slab_live(slab));
  hak_heap_set_front(heap, c, slab);
}

void hak_heap_retire(hak_heap_t *heap, hak_slab_t *slab) {
  if (slab == &hak_slab_none) return;
  hak_heap_set_front(heap, hak_slab_class(slab), &hak_slab_none);
  hak_heap_retire_replaced(heap, slab);
}

void hak_heap_retire_replaced(hak_heap_t *heap, hak_slab_t *slab) {
  unsigned c = hak_slab_class(slab);
  if (c < HAK_TINY_CLASSES)
    hak_owner_add(&heap->classes[c].allocs, hak_load_relaxed(&slab->allocs));
  if (hak_slab_usable(slab)) {
    hak_slab_leave_active(slab, HAK_PLACE_PARTIAL, 1);
    hak_heap_add_partial(heap, slab);
    return;
  }
  hak_heap_mark_full(heap, slab);
}

// If the class has many slabs and the heaps are large, half as many free blocks bring a FULL slab
// back (docs/decisions/0004-full-mark.md).
#define MANY_SLABS 8
#define LARGE_HEAPS ((uint64_t)16 << 20)

HAK_INLINE uint32_t back_in_use(const hak_heap_t *heap, const hak_slab_t *slab) {
  uint32_t back = slab->back;
  if (hak_warm_slabs(heap, hak_slab_class(slab)) < MANY_SLABS ||
      hak_load_relaxed(&hak_mapped.superslab_bytes) < LARGE_HEAPS)
    return back;
  return (back + 1) / 2;
}

void hak_heap_mark_full(hak_heap_t *heap, hak_slab_t *slab) {
  uint64_t mark = slab->capacity - back_in_use(heap, slab) + 1;
  hak_heap_count_stat(heap, HAK_STAT_slab_full, 1);
  if (hak_slab_kind(slab) == HAK_KIND_L2) hak_sparse_leave(heap, slab);
  if (!hak_commons_give(heap, slab, mark)) hak_slab_leave_active(slab, HAK_PLACE_FULL, mark);
}

// Whether none of the other work that a refill looks after is due.
HAK_INLINE bool nothing_due(hak_heap_t *heap) {
  return hak_load_relaxed(&heap->inbox) == 0 && heap->ticks + 1 < HAK_HEAP_TICKS &&
         heap->others < HAK_OTHERS_ENOUGH && !hak_heap_reclaim_asked(heap) &&
         !hak_warm_draining(heap);
}

hak_slab_t *hak_heap_turn(hak_heap_t *heap, hak_slab_t *front) {
  unsigned c = hak_slab_class(front);
  hak_slab_t *next = hak_slab_at(heap->partial[c]);
  if (heap->partial[c] == 0 || next->free == NULL || next->absent != 0 ||
      hak_load_relaxed(&front->remote) != 0 || !nothing_due(heap) || hak_pool_draining(next) ||
      !hak_warm_hit(heap, c))
    return NULL;
  uint64_t full = front->capacity, allocs = hak_load_relaxed(&front->allocs);
  hak_slab_await(front, full, full - back_in_use(heap, front) + 1);
  hak_slab_settle(front, HAK_PLACE_FULL);
  heap->partial[c] = next->next;
  heap->warm[c].growth = 0;
  hak_slab_set_place(next, HAK_PLACE_ACTIVE);
  next->waits = false;
  uint64_t live = hak_slab_live_tiny(next);
  hak_slab_count(next, live);
  set_front_tiny(heap, c, next);
  heap->ticks++;
  hak_class_stats_t *stats = &heap->classes[c];
  hak_owner_add(&stats->allocs, allocs - live);
  hak_owner_inc(&stats->refills);
  hak_owner_add(&stats->blocks, next->carved - live);
  hak_owner_inc(&heap->stats[HAK_STAT_slab_full]);
  hak_owner_inc(&heap->stats[HAK_STAT_refill_warm]);
  return next;
}

void hak_heap_tend_shared(void) {
  if (hak_pool_tend()) hak_huge_cache_tend();
}

static void forget(hak_heap_t *heap, hak_slab_t *slab) {
  if (hak_slab_kind(slab) == HAK_KIND_L2) {
    hak_ring_forget(slab->ring, slab);
    hak_sparse_leave(heap, slab);
    heap->trimmed_gone += hak_sparse_went_early(slab);
  }
  heap->warm[hak_slab_class(slab)].slabs--;
  hak_slab_clear(slab);
  hak_heap_count_stat(heap, HAK_STAT_slab_empty, 1);
}

void hak_heap_release(hak_heap_t *heap, hak_slab_t *slab) {
  forget(heap, slab);
  heap->ticks++;                     // a thread that only frees takes no other slow path
  hak_pool_release(slab, slab->run); // hak_slab_clear leaves run as it was
  hak_heap_tend_shared();
}

void hak_heap_release_with(hak_heap_t *heap, hak_slab_t *slab, hak_parcel_t *parcel) {
  forget(heap, slab);
  hak_pool_release_with(slab, slab->run, parcel);
}

// A slab may be released only when no thread is about to touch its remote word. Without live blocks
// no remote free can start, but after a collected one the post may still be under way (QUEUED).
HAK_INLINE bool releasable(hak_slab_t *slab) {
  // Acquire, which costs nothing: an owner stored the 0, after the acquire in hak_slab_collect.
  return hak_slab_unused(slab) && hak_load_acquire(&slab->remote) == 0;
}

HAK_INLINE void bring_back(hak_heap_t *heap, hak_slab_t *slab) {
  if (hak_slab_place(slab) != HAK_PLACE_FULL) return;
  hak_slab_leave_active(slab, HAK_PLACE_PARTIAL, hak_commons_thin_mark(slab));
  add_partial(heap, slab);
  hak_heap_count_stat(heap, HAK_STAT_slab_back, 1);
}

void hak_heap_bring_back(hak_heap_t *heap, hak_slab_t *slab) { bring_back(heap, slab); }

// The number of live blocks of a slab that is not in front fell below its mark.
static void below_mark(hak_heap_t *heap, hak_slab_t *slab) {
  bring_back(heap, slab);
  if (!releasable(slab)) {
    hak_commons_look(heap, slab);
    return;
  }
  hak_heap_remove_partial(heap, slab);
  hak_warm_keep_or_release(heap, slab);
  hak_warm_look_for_draining(heap);
}

void hak_heap_slab_event(hak_heap_t *heap, hak_slab_t *slab) {
  if (hak_slab_place(slab) == HAK_PLACE_ACTIVE) { // then the slab is tiny
    hak_tend_front(heap, slab);
    return;
  }
  hak_commons_freed_here(heap);
  below_mark(heap, slab);
}

static void release_partial(hak_heap_t *heap) {
  hak_parcel_t parcel = {0};
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    for (uint32_t i = heap->partial[c], next; i != 0; i = next) {
      hak_slab_t *slab = hak_slab_at(i);
      next = slab->next;
      if (!releasable(slab)) continue;
      hak_heap_remove_partial(heap, slab);
      hak_heap_release_with(heap, slab, &parcel);
    }
  }
  hak_pool_release_all(&parcel);
}

void hak_heap_release_idle(hak_heap_t *heap) {
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    hak_slab_t *front = hak_heap_front(heap, c);
    if (front != &hak_slab_none && releasable(front)) hak_heap_retire(heap, front);
  }
  hak_ring_release_runs(heap);
  release_partial(heap);
  hak_warm_drop(heap);
}

void hak_heap_tidy(hak_heap_t *heap) {
  hak_heap_drain(heap);
  hak_heap_release_idle(heap);
  hak_sparse_trim_all(heap);
}

// ---------------------------------------------------------------------------
// Inbox (protocol R2): a stack of slabs, emptied all at once by the owner or by relief (R3).

void hak_heap_post(hak_heap_t *owner, hak_slab_t *slab) {
  uint32_t index = hak_slab_index(slab), top = hak_load_relaxed(&owner->inbox);
  do {
    // A signal handler has called fork since: post_forked posts the slab in the child, if needed.
    if (HAK_UNLIKELY(!(hak_load_relaxed(&slab->remote) & HAK_REMOTE_QUEUED))) return;
    slab->inbox_next = top;
    // Release: pairs with the acquire in take_posted; publishes the link.
  } while (!hak_cas_seq_cst(&owner->inbox, &top, index));
}

// Other threads' frees gave count blocks back, which may empty the slab or make it usable again. A
// FULL L2 run, whose free blocks were `before`, stays FULL if the ring can name the new ones.
HAK_INLINE void came_back(hak_heap_t *heap, hak_slab_t *slab, bool tiny, uint64_t before,
                          uint32_t count) {
  hak_heap_count_stat(heap, HAK_STAT_remote_collect, count);
  bool unused = hak_slab_unused(slab);
  if (count != 0 && unused) hak_heap_count_stat(heap, HAK_STAT_remote_empty, 1);
  if (hak_slab_place(slab) == HAK_PLACE_ACTIVE) {
    // An empty run is much memory. No thread has the nursery now, and perhaps none will soon.
    if (tiny || !unused || !hak_load_relaxed(&heap->nursery) ||
        hak_load_relaxed(&heap->state) == HAK_HEAP_ATTACHED)
      return;
    hak_heap_retire(heap, slab);
  }
  bool event = unused;
  if (tiny) event |= (int64_t)hak_load_relaxed(&slab->frees_left) < 0;
  else if (hak_slab_place(slab) == HAK_PLACE_FULL && !unused)
    event = hak_load_relaxed(&heap->common)
                ? hak_slab_live(slab) + back_in_use(heap, slab) <= slab->capacity
                : !hak_ring_push_all(slab->ring, slab, hak_load_relaxed(&slab->mask) & ~before);
  if (hak_slab_place(slab) == HAK_PLACE_FULL && (event || !tiny)) {
    hak_commons_freed_by_others(heap, slab);
    if (event && !unused && hak_commons_give_back(heap, slab)) return;
  }
  if (event) below_mark(heap, slab);
}

void hak_heap_put_chain(hak_heap_t *heap, hak_slab_t *slab, void *head, void *tail,
                        uint32_t count) {
  hak_link_set(tail, slab->free);
  slab->free = head;
  // In the same order as in hak_slab_collect.
  atomic_signal_fence(memory_order_release);
  hak_owner_add(&slab->frees_left, -(uint64_t)count);
  hak_heap_count_stat(heap, HAK_STAT_remote_collect, count);
  if (hak_slab_unused(slab)) hak_heap_count_stat(heap, HAK_STAT_remote_empty, 1);
  if ((int64_t)hak_load_relaxed(&slab->frees_left) < 0) below_mark(heap, slab);
}

static void take_back(hak_heap_t *heap, hak_slab_t *slab) {
  bool tiny = hak_slab_kind(slab) == HAK_KIND_TINY;
  uint64_t before = tiny ? 0 : hak_load_relaxed(&slab->mask);
  bool full = hak_slab_place(slab) == HAK_PLACE_FULL;
  uint32_t count = hak_slab_collect(slab, true);
  // If no block came back, a FULL slab may have been released by another thread since (R3).
  if (count != 0 || !full) came_back(heap, slab, tiny, before, count);
}

void hak_heap_take_back_l2(hak_heap_t *heap, hak_slab_t *slab, uint64_t block) {
  uint64_t before = hak_load_relaxed(&slab->mask);
  hak_store_relaxed(&slab->mask, before | block);
  came_back(heap, slab, false, before, 1);
}

// Posts the L2 runs that no inbox announces since a fork. No thread is between push and post, so
// each run whose remote word is neither 0 nor QUEUED is one, and stays the heap's until QUEUED.
HAK_COLD static void post_forked(hak_heap_t *heap) {
  heap->forked = false;
  uint32_t end = hak_superslab_count() << HAK_SLABS_SHIFT;
  for (uint32_t i = HAK_SLABS_PER_SUPERSLAB; i < end; i++) {
    hak_slab_t *slab = hak_slab_at(i);
    if (hak_slab_kind(slab) != HAK_KIND_L2 || hak_slab_owner(slab) != heap) continue;
    uint64_t remote = hak_load_relaxed(&slab->remote);
    // As in push_l2. If the cas fails, another thread was faster and posts the run.
    if (remote == 0 || remote & HAK_REMOTE_QUEUED) continue;
    if (hak_cas_acq_rel(&slab->remote, &remote, remote | HAK_REMOTE_QUEUED))
      hak_heap_post(heap, slab);
  }
}

static void take_posted(hak_heap_t *heap) {
  if (hak_load_relaxed(&heap->inbox) == 0) return;
  // Acquire: pairs with the release in hak_heap_post: the links and, through the remote words, the
  // chains are visible.
  uint32_t index = hak_exchange_seq_cst(&heap->inbox, 0);
  hak_store_relaxed(&heap->emptied, 0u);
  while (index) {
    hak_slab_t *slab = hak_slab_at(index);
    index = slab->inbox_next; // before collecting: after that it may be posted again
    hak_heap_t *owner = hak_slab_owner(slab);
    if (owner == heap) {
      take_back(heap, slab);
    } else {
      // The slab changed hands after its poster had read the owner. It is still QUEUED, so this
      // thread may post it to its new owner.
      hak_heap_post(owner, slab);
      hak_heap_service(owner);
    }
  }
}

void hak_heap_drain(hak_heap_t *heap) {
  if (hak_load_relaxed(&heap->mail) != NULL) hak_letter_open_all(heap);
  take_posted(heap);
  if (HAK_LIKELY(!heap->forked)) return;
  post_forked(heap); // after take_posted: what the interrupted call had posted is not posted again
  take_posted(heap);
  release_partial(heap); // slabs that waited for the inbox as it was before the fork
}

void hak_heap_give_partial(hak_heap_t *from, hak_heap_t *to, unsigned c) {
  hak_slab_t *slab = hak_slab_at(from->partial[c]);
  hak_heap_remove_partial(from, slab);
  hak_slab_set_owner(slab, to);
  hak_heap_add_partial(to, slab);
  from->warm[c].slabs--;
  to->warm[c].slabs++;
}

void hak_heap_service(hak_heap_t *owner) {
  // Either this thread sees ORPHAN, or the thread that makes owner an orphan sees the inbox
  // afterwards: each side writes its own word, then reads the other's, seq_cst.
  while (hak_load_seq_cst(&owner->state) == HAK_HEAP_ORPHAN &&
         (hak_load_seq_cst(&owner->inbox) != 0 || hak_load_seq_cst(&owner->mail) != NULL)) {
    if (!hak_heap_take(owner, HAK_HEAP_CLAIMED)) return;
    hak_heap_drain(owner);
    hak_heap_count_stat(owner, HAK_STAT_heap_service, 1);
    hak_orphan_leave(owner);
  }
}

// Claims an orphan, whose partial slabs this thread may take until it lets it go. A nursery takes
// none: its own slabs are padded.
static hak_heap_t *claim_from(unsigned list, const hak_heap_t *mine) {
  if (!hak_orphan_any(list) || hak_load_relaxed(&mine->nursery)) return NULL;
  hak_heap_t *orphan = hak_orphan_take(list, HAK_HEAP_CLAIMED);
  if (orphan) hak_heap_drain(orphan);
  return orphan;
}

static void give_group(hak_heap_t *from, hak_heap_t *to, unsigned group) {
  unsigned c = group << HAK_ORPHAN_GROUP_SHIFT, end = (group + 1) << HAK_ORPHAN_GROUP_SHIFT;
  for (; c < end && c < HAK_CLASSES; c++)
    while (from->partial[c]) hak_heap_give_partial(from, to, c);
}

bool hak_heap_adopt(hak_heap_t *mine, unsigned size_class) {
  unsigned group = size_class >> HAK_ORPHAN_GROUP_SHIFT;
  hak_heap_t *orphan = claim_from(HAK_ORPHANS_GROUP + group, mine);
  if (!orphan) return false;
  // Take one slab only: leave the others to the threads that will need them. If the orphan has
  // none, take all of the group, or the next look would find it again, not those below it.
  if (orphan->partial[size_class]) hak_heap_give_partial(orphan, mine, size_class);
  else give_group(orphan, mine, group);
  hak_orphan_let_go(orphan);
  return true;
}

// Hands over all blocks of other heaps that this heap holds back.
static void hand_over(hak_heap_t *heap) {
  hak_quarantine_flush(heap);
  hak_remote_flush(heap);
}

// Protocol T1: a request increments this number. Each owner compares it with the last one it has
// met whenever it does not hit the front. Relaxed: nothing is published through it.
_Atomic uint32_t hak_heap_requests;

static void reclaim(hak_heap_t *heap, size_t keep) {
  if (heap) hand_over(heap);
  hak_commons_reclaim(); // first: slabs that it posts on are for the heaps that follow
  hak_nursery_reclaim();
  if (heap) hak_heap_reclaim_own(heap);
  hak_orphan_reclaim();
  hak_relief_all(heap);
  hak_huge_cache_trim(keep);
  size_t kept = hak_load_relaxed(&hak_mapped.cached_bytes);
  hak_pool_trim(keep > kept ? (keep - kept) >> HAK_SUPERSLAB_SHIFT : 0);
  hak_process_fit(hak_os_address_limit()); // the limit may have been changed
  hak_pool_purge();
}

void hak_heap_reclaim_all(hak_heap_t *heap, size_t keep) {
  hak_fetch_add_relaxed(&hak_heap_requests, 1);
  reclaim(heap, keep);
}

#define ASK_MS 50

void hak_heap_reclaim(hak_heap_t *heap) {
  static _Atomic uint64_t asked_at; // ms; relaxed: it steers
  if (hak_is_due(&asked_at, hak_os_clock_ms(), ASK_MS))
    hak_fetch_add_relaxed(&hak_heap_requests, 1);
  reclaim(heap, 0);
}

void hak_heap_reclaim_own(hak_heap_t *heap) {
  heap->reclaim_met = hak_load_relaxed(&hak_heap_requests);
  hand_over(heap);
  hak_heap_tidy(heap);
}

void hak_heap_reclaim_if_asked(hak_heap_t *heap) {
  if (HAK_UNLIKELY(hak_heap_reclaim_asked(heap))) hak_heap_reclaim_own(heap);
}

// ---------------------------------------------------------------------------
// Start and end of a thread.

static pthread_key_t key;
static _Atomic bool have_key; // false at first: a thread does without the key then

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *) __attribute__((weak));

void hak_heap_init_keys(void) {
  // Release: pairs with the acquire in notice_of_the_end; key is there.
  if (pthread_key_create(&key, hak_heap_thread_end) == 0) hak_store_release(&have_key, true);
}

// Both calls may allocate, which is fine: the heap is attached already. The second ends the process
// where it finds no memory, so it is not tried after the first.
static bool notice_of_the_end(void) {
  // Acquire: pairs with the release in hak_heap_init_keys.
  if (hak_load_acquire(&have_key)) return pthread_setspecific(key, hak_tls_heap) == 0;
  // The third argument is an address by which glibc knows which object the function is in.
  return __cxa_thread_atexit_impl && __cxa_thread_atexit_impl(hak_heap_thread_end, NULL, &key) == 0;
}

_Atomic uint32_t hak_heap_threads;

static void one_thread_less(void) {
  // Never below 0: if a signal handler has called fork meanwhile, the child has counted anew.
  uint32_t n = hak_load_relaxed(&hak_heap_threads);
  while (n != 0 && !hak_cas_relaxed(&hak_heap_threads, &n, n - 1)) {
  }
}

// From now on the thread takes a heap for each call.
static void leave_own(void) {
  tls_ending = true;
  hak_tls_heap = &hak_heap_none; // first: if a handler calls fork, the child counts by it
  one_thread_less();
}

// Makes sure that the destructor runs when this thread ends.
static void arm(void) {
  int before = errno;
  bool noticed = notice_of_the_end();
  errno = before;
  hak_heap_t *heap = hak_tls_heap;
  if (noticed || heap->id == 1) return; // the main thread's end is the program's
  leave_own();
  heap->transient = true; // this heap is for one call, too
}

static hak_heap_t *take_orphan(void) {
  hak_heap_t *heap = hak_orphan_take(HAK_ORPHANS_RICH, HAK_HEAP_ATTACHED);
  if (!heap) heap = hak_orphan_take(HAK_ORPHANS_ALL, HAK_HEAP_ATTACHED);
  // Requests made while it had no thread were carried out by others (not if one just had it).
  if (heap) heap->reclaim_met = hak_load_relaxed(&hak_heap_requests);
  return heap;
}

static hak_heap_t *attach(void) {
  hak_heap_t *heap = hak_lost_find();
  if (heap) one_thread_less(); // for the thread that lost it
  if (!heap && !tls_ending) heap = hak_nursery_grow_up();
  if (!heap) heap = take_orphan();
  if (!heap) {
    if (!(heap = hak_heap_new())) return NULL;
    hak_store_seq_cst(&heap->state, HAK_HEAP_ATTACHED);
  }
  hak_heap_count_stat(heap, HAK_STAT_heap_attach, 1);
  return heap;
}

hak_heap_t *hak_heap_enter_new(void) {
  hak_process_init();
  // The set-up may have allocated, in the C library's pthread_key_create and pthread_atfork.
  if (hak_tls_heap != &hak_heap_none) return hak_tls_heap;
  hak_heap_t *heap = tls_ending ? NULL : hak_nursery_enter();
  if (heap || !(heap = attach())) return heap;
  heap->transient = tls_ending;
  if (!tls_ending) {
    hak_tls_heap = heap;
    hak_fetch_add_relaxed(&hak_heap_threads, 1u);
    arm();
    if (!heap->transient) hak_lost_keep(heap), hak_warm_fill(heap);
    if (hak_option(PREWARM)) hak_front_prewarm(heap);
  }
  return heap;
}

hak_heap_t *hak_heap_enter_again(void) {
  hak_heap_reclaim(NULL);
  return hak_heap_enter();
}

static void retire_fronts(hak_heap_t *heap) {
  hak_parcel_t parcel = {0};
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    hak_slab_t *front = hak_heap_front(heap, c);
    if (front == &hak_slab_none) continue;
    hak_warm_was_used(heap, c);
    bool idle = releasable(front);
    hak_heap_retire(heap, front);
    if (!idle) continue;
    hak_heap_remove_partial(heap, front);
    hak_heap_release_with(heap, front, &parcel);
  }
  hak_pool_release_all(&parcel);
}

// Separates the heap from its thread: hands over all that is held back and releases empty slabs;
// the rest waits for an adopter. If an ending thread had the heap for one call only, no slab that
// the call did not use is empty.
static void detach(hak_heap_t *heap, bool for_a_call) {
  hand_over(heap);
  hak_heap_drain(heap);
  retire_fronts(heap);
  hak_ring_release_runs(heap);
  hak_warm_drop(heap);
  hak_ring_forget_all(heap);
  hak_sparse_forget(heap);
  if (!for_a_call) {
    hak_pool_trim_idle(hak_pool_keep_now());
    hak_huge_cache_tend();
  }
  hak_commons_freed_here(heap); // the next thread may behave differently
  hak_heap_count_stat(heap, HAK_STAT_heap_orphan, 1);
  hak_heap_check(heap);
  hak_orphan_let_go(heap);
}

void hak_heap_detach_transient(hak_heap_t *heap) {
  if (hak_load_relaxed(&heap->nursery)) {
    hak_nursery_leave(heap);
    return;
  }
  heap->transient = false;
  detach(heap, true);
}

void hak_heap_thread_end(HAK_UNUSED void *unused) {
  hak_heap_t *heap = hak_tls_heap;
  if (heap == &hak_heap_none) return;
  hak_lost_left(heap); // first: otherwise a handler in between would find the heap lost
  leave_own();
  detach(heap, false);
}
