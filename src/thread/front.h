// front.h: allocation and free of every size, above the heaps and below the standard names.
// hak_front_hit and hak_front_free are the unified cache (row F1): the straight-line code that the
// exported functions inline.
//
// Callable from any thread at any time. Nothing here sets errno.
// Tests: test/unit/test_front.c, test/unit/instructions.

#ifndef HAK_THREAD_FRONT_H
#define HAK_THREAD_FRONT_H

#include "core/misuse.h"
#include "superslab/seal.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/quarantine.h"
#include "thread/ring.h"
#include "thread/tend.h"

// Every path other than a hit. *zeroed (zeroed may be NULL) is set to whether size bytes of the
// block are known to be zero. NULL: out of memory, or size is above HAK_SIZE_MAX.
HAK_NOINLINE void *hak_front_alloc(size_t size, bool *zeroed);
// alignment is a power of two.
HAK_NOINLINE void *hak_front_alloc_aligned(size_t alignment, size_t size, bool *zeroed);
// function: name of the function that the program called, for messages.
HAK_NOINLINE void hak_front_free_slow(void *p, const char *function);
HAK_NOINLINE void hak_front_slab_event(hak_slab_t *slab);
// Like hak_front_free_slow, with fewer steps for the common cases: for a pointer outside the range,
// and for one into a slab other than the calling thread's tiny slabs.
HAK_NOINLINE void hak_front_free_outside(void *p, const char *function);
HAK_NOINLINE void hak_front_free_other(hak_slab_t *slab, void *p, const char *function);
// Fills the empty fronts of the most common classes of a newly attached heap with HAKMEM_PREWARM
// blocks each (row F3).
HAK_COLD void hak_front_prewarm(hak_heap_t *heap);

// A live block as hak_front_find finds it from its pointer.
typedef struct {
  hak_kind_t kind;  // TINY, L2, L25, GUARD, FIRST, or FREE for huge
  hak_slab_t *slab; // head of its run; NULL for the last three
  uint32_t number;  // index of the block in its slab or run (tiny, L2)
  size_t place;     // bytes of the block
  size_t usable;    // bytes of those that the program may use
} hak_block_t;
// False: p is not the start of a block or (seal.h) not of a live one. This has been reported.
bool hak_front_find(const void *p, const char *function, hak_block_t *block);
#if HAK_SECURE
// Returns a block found by hak_front_find to where it came from. heap: the calling thread's heap,
// NULL if none is available.
void hak_front_free_block(hak_heap_t *heap, const hak_block_t *block, void *p,
                          const char *function);
// Bytes of the block that starts at p.
size_t hak_front_place(const void *p);
// hak_front_find for tiny and L2 blocks, of any thread, whose seal is whole. False: look closer.
bool hak_front_find_sealed(const void *p, hak_block_t *block);
// Seals p, unless it is NULL, as a block of size bytes; one that is guarded is cut. Returns p.
void *hak_front_sealed(void *p, size_t size);
#else
HAK_INLINE void *hak_front_sealed(void *p, HAK_UNUSED size_t size) { return p; }
#endif

// A block leaves the free list of a tiny slab; next becomes its head.
HAK_INLINE void hak_front_popped(hak_slab_t *slab, void *next) {
  slab->free = next;
  // The next malloc reads the link of the new head, which may be long out of cache (decision 0025).
  __builtin_prefetch(next, 1);
  if (HAK_TAIL) __builtin_prefetch((void *)((uintptr_t)next + slab->size - 1), 1); // and its seal
  hak_owner_inc(&slab->allocs);
}

// Pops the first block off the free list of a tiny slab. The list is not empty.
#if HAK_SECURE
HAK_NOINLINE void *hak_front_pop(hak_slab_t *slab);
// The same for a request of size bytes, for which the block is sealed.
HAK_NOINLINE __attribute__((returns_nonnull)) void *hak_front_pop_for(hak_slab_t *slab,
                                                                      size_t size);
#else
HAK_INLINE void *hak_front_pop(hak_slab_t *slab) {
  void *block = slab->free;
  hak_front_popped(slab, hak_link_get(block));
  return block;
}
HAK_INLINE void *hak_front_pop_for(hak_slab_t *slab, HAK_UNUSED size_t size) {
  return hak_front_pop(slab);
}
#endif

// Takes a tiny block from the front of *heap. Reads *heap only if size is tiny. NULL: a slow path
// must be taken.
HAK_INLINE void *hak_front_hit_of(hak_heap_t *const *heap, size_t size) {
  if (HAK_UNLIKELY(size > HAK_TINY_MAX - HAK_TAIL)) return NULL;
  hak_slab_t *slab = (*heap)->tiny[(size + HAK_TAIL + HAK_MIN_BLOCK - 1) >> HAK_MIN_SHIFT];
  if (HAK_UNLIKELY(slab->free == NULL)) return NULL;
#if HAK_SECURE
  // Without calls but the last, so that nothing is saved.
  void *block = slab->free, *next;
  size_t place = slab->size;
  uint64_t key = hak_seal_key(block);
  if (HAK_UNLIKELY(!hak_link_read(block, key, &next) || !hak_seal_is_free(block, place, key)))
    return hak_front_pop_for(slab, size); // reports what is wrong
  hak_front_popped(slab, next);
  hak_seal_new(block, place, size, key);
  return block;
#else
  return hak_front_pop(slab);
#endif
}
HAK_INLINE void *hak_front_hit(size_t size) { return hak_front_hit_of(&hak_tls_heap, size); }

// Takes the block named by the newest hint of a non-empty L2 ring. tend: tends once in so many hits
// (tend.h). For callers that return the block at once: calloc would have to save state across it.
// size: what the block is sealed for, if it is still sealed as a free one; else NULL is returned.
HAK_INLINE void *hak_front_pop_hint_for(hak_ring_t *ring, HAK_UNUSED size_t size, bool tend) {
  uint32_t count = ring->count - 1, hint = ring->hint[count], number = hak_hint_number(hint);
#if HAK_SECURE
  hak_slab_t *slab = hak_hint_slab(hint);
  char *block = slab->first + (size_t)number * ring->size;
  uint64_t key = hak_seal_key(block);
  if (HAK_UNLIKELY(!hak_seal_is_free(block, ring->size, key))) return NULL;
  hak_seal_new(block, ring->size, size, key);
  ring->count = count;
  hak_store_relaxed(&slab->mask, hak_load_relaxed(&slab->mask) & ~((uint64_t)1 << number));
#else
  ring->count = count;
  hak_slab_t *slab = hak_hint_slab(hint);
  hak_store_relaxed(&slab->mask, hak_load_relaxed(&slab->mask) & ~((uint64_t)1 << number));
  char *block = slab->first + (size_t)number * ring->size;
#endif
  HAK_IN_REGISTER(block); // computed before the decrement: else its flags would have to be saved
  if (HAK_SECURE && block == NULL) __builtin_unreachable();
  bool due = hak_owner_dec_negative(&ring->hits_left);
  return tend && HAK_UNLIKELY(due) ? hak_tend_ring(ring, slab, block) : block;
}

// The same for any size, and a block that was written to is reported. Never NULL.
#if HAK_SECURE
void *hak_front_pop_hint(hak_ring_t *ring);
#else
HAK_INLINE void *hak_front_pop_hint(hak_ring_t *ring) {
  return hak_front_pop_hint_for(ring, 0, false);
}
#endif

// The same for HAK_TINY_MAX < size <= HAK_L2_MAX: takes a block that this thread freed. Also NULL
// for other sizes, and for a block that was written to: a slow path reports it.
HAK_INLINE void *hak_front_hit_l2_of(hak_heap_t *const *heap, size_t size, bool tend) {
  if (HAK_UNLIKELY(!hak_size_is_l2(size + HAK_TAIL))) return NULL;
  hak_ring_t *ring = &(*heap)->ring[hak_size_class_l2(size + HAK_TAIL)];
  HAK_IN_REGISTER(ring); // else the compiler recomputes the address of each field
  if (HAK_UNLIKELY(ring->count == 0)) return NULL;
  void *block = hak_front_pop_hint_for(ring, size, tend);
  if (!HAK_SECURE && block == NULL) __builtin_unreachable();
  return block;
}

HAK_INLINE void *hak_front_hit_l2(size_t size) {
  return hak_front_hit_l2_of(&hak_tls_heap, size, true);
}

// One of the two hits, by size. Callers other than malloc try this before hak_front_alloc.
HAK_INLINE void *hak_front_hit_any_of(hak_heap_t *const *heap, size_t size) {
  return size <= HAK_TINY_MAX - HAK_TAIL ? hak_front_hit_of(heap, size)
                                         : hak_front_hit_l2_of(heap, size, false);
}
HAK_INLINE void *hak_front_hit_any(size_t size) {
  return hak_front_hit_any_of(&hak_tls_heap, size);
}

// Takes a block of the run in front of its class. mask is the run's mask, not 0. The lowest block
// goes first: the run stays dense, and blocks from `carved` on were never used.
#define HAK_RANDOM_BLOCKS 4 // secure library: an L2 block is picked from this many
HAK_INLINE void *hak_front_take_l2(hak_heap_t *heap, hak_ring_t *ring, hak_slab_t *slab,
                                   uint64_t mask, bool *zeroed) {
  unsigned i = hak_seal_pick(mask, HAK_RANDOM_BLOCKS);
  hak_store_relaxed(&slab->mask, HAK_SECURE ? mask & ~((uint64_t)1 << i) : mask & (mask - 1));
  slab->absent &= ~((uint64_t)1 << i);
  hak_owner_inc(&heap->classes[HAK_TINY_CLASSES + (ring - heap->ring)].allocs);
  if (i >= slab->carved) {
    slab->carved = (uint16_t)(i + 1);
    if (zeroed) *zeroed = slab->zeroed;
  }
  return slab->first + (size_t)i * ring->size;
}

// Puts a block back into a slab of the calling thread's heap.
HAK_INLINE void hak_front_put(hak_slab_t *slab, void *p, const char *function) {
  void *head = slab->free;
  if (HAK_UNLIKELY(head == p)) {
    hak_misuse_double_free(function, p, hak_class_size(hak_slab_class(slab)));
    return;
  }
  hak_link_set(p, head);
  slab->free = p;
  if (HAK_UNLIKELY(hak_owner_dec_negative(&slab->frees_left))) hak_front_slab_event(slab);
}

HAK_INLINE void hak_front_free(void *p, const char *function) {
#if HAK_SECURE
  hak_quarantine_free_as(p, function);
  return;
#elif HAK_CHECKS
  // The debug build checks every pointer in full.
  hak_front_free_slow(p, function);
  return;
#endif
  hak_slab_t *slab;
  if (HAK_UNLIKELY(!hak_range_find(p, &slab))) hak_front_free_outside(p, function);
  else if (HAK_LIKELY(!hak_differs(&slab->local, hak_tls_heap))) hak_front_put(slab, p, function);
  else hak_front_free_other(slab, p, function);
}

// The same for a block of size bytes. False: nothing was done. This happens in all less common
// cases, and if size does not fit the block.
HAK_INLINE bool hak_front_free_sized(void *p, size_t size, const char *function) {
  hak_slab_t *slab;
#if HAK_SECURE
  if (HAK_UNLIKELY(!hak_range_find(p, &slab)) ||
      HAK_UNLIKELY(hak_differs(&slab->local, hak_tls_heap)))
    return false;
  size_t place = slab->size;
  if (HAK_UNLIKELY(!hak_seal_in_slab(p, place)) || HAK_UNLIKELY(!hak_seal_is_of(p, place, size)))
    return false;
  hak_quarantine_free_as(p, function);
  return true;
#endif
  if (HAK_CHECKS || HAK_UNLIKELY(!hak_range_find(p, &slab)) ||
      HAK_UNLIKELY(hak_differs(&slab->local, hak_tls_heap)) ||
      HAK_UNLIKELY(!hak_class_serves(hak_slab_class(slab), size)))
    return false;
  hak_front_put(slab, p, function);
  return true;
}

// Whether a block of an L2 run may have been borrowed for a request of size bytes.
HAK_INLINE bool hak_front_lent(const hak_slab_t *run, size_t size) {
  if (hak_slab_kind(run) != HAK_KIND_L2 || !hak_slab_roomy(run) || !hak_size_is_l2(size))
    return false;
  return hak_slab_class(run) - hak_size_class(size) <= hak_option(L2_BORROW);
}

// The tiny and L2 blocks that hak_front_free_sized leaves: other threads' blocks and those of runs.
HAK_INLINE bool hak_front_free_sized_other(void *p, size_t size, const char *function) {
  hak_slab_t *slab;
  if (HAK_CHECKS || !hak_range_find(p, &slab)) return false;
  hak_slab_t *head = slab - slab->offset;
  hak_kind_t kind = hak_slab_kind(head);
  bool of_class = kind == HAK_KIND_L2 || kind == HAK_KIND_TINY;
  if (!of_class || !(hak_class_serves(hak_slab_class(head), size) || hak_front_lent(head, size)))
    return false;
  hak_front_free_other(slab, p, function);
  return true;
}

HAK_INLINE bool hak_front_free_sized_any(void *p, size_t size, const char *function) {
  return hak_front_free_sized(p, size, function) || hak_front_free_sized_other(p, size, function);
}

// The same, also given the alignment that the block was requested with.
HAK_INLINE bool hak_front_free_aligned_sized(void *p, size_t alignment, size_t size,
                                             const char *function) {
  if (size > HAK_L2_MAX || alignment > HAK_SLAB_SIZE) return false; // rounding up may overflow
  // A seal says the size itself.
  if (!HAK_SECURE && alignment > HAK_MIN_BLOCK) size = hak_aligned_size(size, alignment);
  return hak_front_free_sized_any(p, size, function);
}

#endif
