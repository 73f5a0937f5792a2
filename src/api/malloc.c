// malloc.c: malloc, calloc, realloc, free and their C23 and glibc relatives.

#include "api/api.h"

#include <string.h>

#include "api/stats.h"
#include "hakmem/hakmem.h"
#include "pool/huge.h"
#include "pool/huge_cache.h"
#include "pool/l25.h"
#include "thread/first.h"
#include "thread/front.h"
#include "thread/guard.h"
#include "thread/ring.h"
#include "thread/scarce.h"

HAK_INTERNAL extern const char hak_api_part_aligned, hak_api_part_cxx, hak_api_part_derived,
    hak_api_part_glibc, hak_api_part_jemalloc, hak_api_part_limits, hak_api_part_stats;
__attribute__((used)) static const char *const parts[] = {
    &hak_api_part_aligned,  &hak_api_part_cxx,    &hak_api_part_derived, &hak_api_part_glibc,
    &hak_api_part_jemalloc, &hak_api_part_limits, &hak_api_part_stats};

// Runs after the destructors of the program and of libraries loaded later.
__attribute__((destructor(101))) static void at_exit(void) {
  hak_audit_at_exit();
  hak_first_audit();
  hak_stats_at_exit();
}

void *hak_api_no_memory(void) {
  errno = ENOMEM;
  return NULL;
}

HAK_NOINLINE static void *alloc_first(size_t size, bool *zeroed) {
  void *p = hak_first_alloc(size);
  if (p == NULL) return hak_front_alloc(size, zeroed);
  if (zeroed) *zeroed = true;
  return p;
}

// Allocates when the request is not a hit.
HAK_INLINE void *alloc_slow(size_t size, bool *zeroed) {
  return hak_first_open() ? alloc_first(size, zeroed) : hak_front_alloc(size, zeroed);
}

HAK_NOINLINE static void *alloc_other(size_t size) {
  void *p = alloc_slow(size, NULL);
  return HAK_LIKELY(p != NULL) ? p : hak_api_no_memory();
}

HAK_NOINLINE static void *alloc_after_tiny(size_t size) {
  void *p = hak_front_hit_l2(size);
  return HAK_LIKELY(p != NULL) ? p : alloc_other(size);
}

HAK_EXPORT HAK_HOT void *hak_malloc(size_t size) {
  void *p = hak_front_hit(size);
  return HAK_LIKELY(p != NULL) ? p : alloc_after_tiny(size);
}

HAK_EXPORT HAK_HOT void hak_free(void *p) {
#if HAK_SECURE
  hak_quarantine_free(p);
#else
  hak_front_free(p, "free");
#endif
}

HAK_EXPORT void *hak_calloc(size_t count, size_t size) {
  size_t total;
  if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &total))) return hak_api_no_memory();
  void *p = hak_front_hit_any(total);
  bool zeroed = false;
  if (!p && !(p = alloc_slow(total, &zeroed))) return hak_api_no_memory();
  return zeroed ? p : memset(p, 0, total);
}

// Usable bytes of a block in one of the calling thread's slabs; 0 if p is not such a block.
HAK_INLINE size_t usable_here(const void *p) {
  hak_slab_t *slab;
  uint32_t number;
  if (HAK_CHECKS || !hak_range_find(p, &slab)) return 0;
  if (!hak_differs(&slab->local, hak_tls_heap))
    return hak_slab_block(slab, p, &number) && slab->free != p ? slab->size : 0;
  slab -= slab->offset;
  bool ours = !hak_differs(&slab->holder, hak_tls_heap) && hak_slab_block(slab, p, &number) &&
              !(hak_load_relaxed(&slab->mask) >> number & 1) &&
              hak_load_relaxed(&hak_tls_heap->mail) == NULL;
  return ours ? slab->size : 0;
}

HAK_NOINLINE static size_t usable_anywhere(const void *p) {
  hak_block_t block;
  return p && hak_front_find(p, "malloc_usable_size", &block) ? block.usable : 0;
}

// Some programs call this at every malloc and free, to count the memory that they use.
HAK_EXPORT size_t hak_malloc_usable_size(const void *p) {
  size_t usable = usable_here(p);
  return HAK_LIKELY(usable != 0) ? usable : usable_anywhere(p);
}

// ---------------------------------------------------------------------------
// realloc

static void count(hak_stat_t stat) {
  // A thread that has had first blocks only takes no heap for this.
  if (HAK_UNLIKELY(hak_tls_heap == &hak_heap_none) && hak_first_open()) return;
  hak_heap_t *heap = hak_heap_enter();
  if (!heap) return;
  hak_heap_count_stat(heap, stat, 1);
  hak_heap_leave(heap);
}

// The size that a request for size bytes may have been padded to.
static size_t padded(const hak_block_t *block, size_t size) {
  bool larger = block->kind == HAK_KIND_TINY && hak_slab_roomy(block->slab);
  return larger ? hak_class_padded(size) : size;
}

// Runs that this thread keeps must not force a copy of a block: they may lie behind it, or would be
// taken for the copy, with no room behind them.
HAK_NOINLINE static bool resize_l25(hak_slab_t *slab, size_t size) {
  if (hak_l25_resize(slab, size)) return true;
  hak_heap_t *heap = size <= HAK_L25_MAX - hak_slab_gap(slab) ? hak_heap_enter() : NULL;
  if (!heap) return false;
  bool kept = heap->kept_count != 0;
  if (kept) hak_ring_release_runs(heap);
  hak_heap_leave(heap);
  return kept && hak_l25_resize(slab, size);
}

// Resizes the block in place (a huge block may be remapped); NULL if it must be copied.
HAK_INLINE void *resize_in_place(const hak_block_t *block, void *p, size_t size) {
  if (block->kind == HAK_KIND_GUARD) return NULL; // the block ends where its page does
  if (block->kind == HAK_KIND_FIRST) return hak_first_usable(size) == block->usable ? p : NULL;
  // One that is smaller than such blocks are (scarce.h) is treated as they are when it grows.
  if (block->kind == HAK_KIND_L25 && (size > HAK_L2_MAX || size + HAK_TAIL > block->place)) {
    if (!resize_l25(block->slab, size + HAK_TAIL)) return NULL;
    if (hak_l25_usable(block->slab) > block->place) hak_seal_remove(p, block->place);
    return p;
  }
  // Otherwise a block stays if at least half of it is still needed, with the padding of a nursery's
  // block; and it keeps its size unless it is a mapping of its own.
  size_t total = size + HAK_TAIL;
  bool much = padded(block, total) >= block->place / 2 || block->place == HAK_MIN_BLOCK;
  bool stays = total <= block->place && much;
  if (block->kind == HAK_KIND_FREE && (stays || size > HAK_L25_MAX))
    return hak_huge_resize(p, total);
  return stays ? p : NULL;
}

// Moves the contents to another block.
static _Atomic bool shrinking_failed; // some block is much larger than the size it was shrunk to
HAK_INLINE void *move_to(void *p, size_t usable, size_t size, size_t asked, const char *function) {
  void *q = hak_front_hit_any(asked);
  if (!q) q = alloc_slow(asked, NULL);
  if (!q && asked != size) q = alloc_slow(size, NULL);
  if (!q && size <= usable) { // shrinking cannot fail; in the secure library a seal says the size
    if (!HAK_SECURE) hak_store_relaxed(&shrinking_failed, true);
    return p;
  }
  if (!q) return hak_api_no_memory();
  memcpy(q, p, size < usable ? size : usable);
  hak_front_free(p, function);
  count(HAK_STAT_realloc_copy);
  return q;
}

// Growth in steps: heap->grown holds 16-bit tags of the four blocks that this thread's realloc last
// moved to make them longer. A block that must move again becomes longer than requested; so does
// one whose tag is equal by chance (docs/decisions/0043-steps.md).
#define STEP_MIN 1024
#define EACH UINT64_C(0x0001000100010001)

static uint64_t tag(const void *p) {
  uintptr_t n = (uintptr_t)p >> HAK_MIN_SHIFT;
  return (uint16_t)(n ^ n >> 16);
}

HAK_NOINLINE static void *move_up(void *p, size_t usable, size_t size, const char *function) {
  size_t step = size + size / 4;
  uint64_t other = hak_tls_heap->grown ^ tag(p) * EACH; // 16 zero bits: that entry is p
  bool again = (other - EACH) & ~other & (EACH << 15);
  // First and guarded blocks end where the requested size does.
  bool exact = hak_first_open() || hak_guard_is_on();
  if (!again || exact || step > HAK_L2_MAX || step > usable + usable / 2) step = size;
  void *q = move_to(p, usable, size, step, function);
  hak_heap_t *heap = hak_tls_heap;
  if (q && heap != &hak_heap_none) heap->grown = heap->grown << 16 | tag(q);
  return q;
}

static void *move(void *p, size_t usable, size_t size, const char *function) {
  if (!HAK_SECURE && size > usable && usable >= STEP_MIN) return move_up(p, usable, size, function);
  return move_to(p, usable, size, size, function);
}

// Updates the seal of a live block, which now has size bytes. A guarded block has none.
static void reseal_any(HAK_UNUSED void *p, HAK_UNUSED size_t size) {
#if HAK_SECURE
  size_t place = hak_front_place(p);
  if (place != 0) hak_seal_resize(p, place, size);
  if (place == 0 || hak_seal_size(p, place) != size) hak_store_relaxed(&shrinking_failed, true);
#endif
}

// The same for one that hak_front_find has found, perhaps elsewhere since.
HAK_INLINE void reseal(const hak_block_t *block, void *p, size_t size) {
  if (HAK_SECURE && (block->kind == HAK_KIND_TINY || block->kind == HAK_KIND_L2))
    hak_seal_resize(p, block->place, size);
  else reseal_any(p, size);
}

bool hak_api_resize_here(const hak_block_t *block, void *p, size_t size) {
  if (size >= HAK_ADDRESS_END) return false;
  if (block->kind == HAK_KIND_FREE && size + HAK_TAIL > block->place) return false;
  if (!resize_in_place(block, p, size)) return false;
  reseal(block, p, size);
  return true;
}

// There is no memory to move the block to: gives back the part it no longer needs. In the secure
// library the seal says the size.
static void cut_in_place(const hak_block_t *block, void *p, size_t size) {
  if (HAK_SECURE) reseal(block, p, size);
  else if (block->kind == HAK_KIND_L25 && size > HAK_L2_MAX)
    (void)hak_l25_resize(block->slab, size);
  else if (block->kind == HAK_KIND_FREE) (void)hak_huge_resize(p, size);
}

// A block above 56 KiB that could not grow in place moves. If there is no memory for another block
// either, what was given back for it, in vain, may be enough for the growth alone.
static HAK_COLD void *grow(void *p, size_t usable, size_t size, const char *function) {
  int before = errno;
  void *q = move(p, usable, size, function);
  hak_block_t block;
  if (q || !hak_front_find(p, function, &block)) return q;
  if (block.kind == HAK_KIND_L25) {
    if (!hak_api_resize_here(&block, p, size)) return NULL;
    q = p;
  } else {
    if (!hak_huge_cache_may_serve(size - usable)) return NULL;
    hak_heap_t *heap = hak_heap_enter();
    hak_heap_reclaim(heap); // the move did so only if that could serve a mapping of the whole size
    if (heap) hak_heap_leave(heap);
    if (!(q = hak_huge_resize(p, size + HAK_TAIL))) return NULL;
    reseal_any(q, size);
  }
  errno = before; // move set it
  count(q == p ? HAK_STAT_realloc_in_place : HAK_STAT_realloc_remap);
  return q;
}

static void *resize(void *p, size_t size, const char *function) {
  hak_block_t block;
  if (!hak_front_find(p, function, &block)) {
    errno = EINVAL;
    return NULL;
  }
  if (size >= HAK_ADDRESS_END) return hak_api_no_memory();
  // A program that cuts a block of many pages to less than half soon requests another such one.
  bool moves = block.kind == HAK_KIND_L25 && size > HAK_L2_MAX && size < block.usable / 2;
  void *q = moves ? NULL : resize_in_place(&block, p, size);
  if (!q) {
    if (size > block.usable && (block.kind == HAK_KIND_FREE || block.kind == HAK_KIND_L25))
      return grow(p, block.usable, size, function);
    q = move(p, block.usable, size, function);
    if (q == p) cut_in_place(&block, p, size);
    return q;
  }
  reseal(&block, q, size);
  count(q == p ? HAK_STAT_realloc_in_place : HAK_STAT_realloc_remap);
  return q;
}

HAK_EXPORT void *hak_realloc(void *p, size_t size) {
  if (p == NULL) return hak_malloc(size);
  if (size == 0) {
    hak_front_free(p, "realloc");
    return NULL;
  }
  size_t usable = usable_here(p);
  if (HAK_UNLIKELY(usable == 0 || size > HAK_SIZE_MAX)) return resize(p, size, "realloc");
  if (size > usable || (size < usable / 2 && usable != HAK_MIN_BLOCK))
    return move(p, usable, size, "realloc");
  hak_owner_inc(&hak_tls_heap->stats[HAK_STAT_realloc_in_place]);
  return p;
}

HAK_EXPORT void *hak_reallocarray(void *p, size_t count, size_t size) {
  size_t total;
  if (__builtin_mul_overflow(count, size, &total)) return hak_api_no_memory();
  return hak_realloc(p, total);
}

// ---------------------------------------------------------------------------
// C23 sized frees

// Whether a request for size bytes is served by a block of this kind and size.
static bool served_by(const hak_block_t *block, size_t alignment, size_t size) {
  if (!HAK_SECURE && block->kind == HAK_KIND_GUARD && alignment > HAK_MIN_BLOCK)
    return size <= block->usable;
  if (HAK_SECURE || block->kind == HAK_KIND_GUARD) return size == block->usable;
  if (block->kind == HAK_KIND_FREE) return size <= block->usable; // growth adds more than requested
  if (size > block->usable) return false;
  if (hak_load_relaxed(&hak_scarce_lends)) return true;
  if (block->kind == HAK_KIND_FIRST) return hak_first_usable(size) == block->usable;
  if (size == 0) size = 1;
  if (block->kind == HAK_KIND_L25) return hak_l25_rounded(block->slab, size) == block->usable;
  if (alignment > HAK_SLAB_SIZE) return false;
  if (alignment > HAK_MIN_BLOCK) size = hak_aligned_size(size, alignment);
  unsigned c = hak_slab_class(block->slab);
  return hak_class_serves(c, size) || hak_class_serves(c, padded(block, size)) ||
         hak_front_lent(block->slab, size);
}

// Whether realloc may have shrunk the block to size in place, because half of it was still
// needed or there was no smaller one. In the secure library a seal says the size of a block that is
// not guarded, unless it is a very large block's that is hardly used.
static bool shrunk_to(const hak_block_t *block, size_t size) {
  if (HAK_SECURE && block->kind != HAK_KIND_GUARD &&
      block->place - HAK_TAIL - block->usable != HAK_SEAL_SLACK_MAX)
    return false;
  bool exact = HAK_SECURE || block->kind == HAK_KIND_FIRST || block->kind == HAK_KIND_GUARD;
  return size <= block->usable && ((!exact && padded(block, size) >= block->usable / 2) ||
                                   hak_load_relaxed(&shrinking_failed));
}

// Or may have grown it to size by steps.
static bool grown_to(const hak_block_t *block, size_t size) {
  // The block that it asked for is never huge, and an L2.5 one only where memory is short (scarce.h).
  bool can = !HAK_SECURE && (block->kind == HAK_KIND_TINY || block->kind == HAK_KIND_L2 ||
                             block->kind == HAK_KIND_L25);
  return can && size <= block->usable && served_by(block, 1, size + size / 4);
}

bool hak_api_is_of_size(const hak_block_t *block, size_t size) {
  if (!HAK_SECURE || block->kind == HAK_KIND_GUARD) return size <= block->usable;
  return size == block->usable || shrunk_to(block, size);
}

// Frees p; if the process continues (HAKMEM_ABORT=0) also with a wrong size, since p identifies the
// block. Not in the secure library.
static void free_checked(const char *function, void *p, size_t alignment, size_t size,
                         bool reallocated, hak_misuse_size_t *report) {
  hak_block_t block;
  if (!p || !hak_front_find(p, function, &block)) return;
  bool right = served_by(&block, alignment, size) ||
               (reallocated && (shrunk_to(&block, size) || grown_to(&block, size)));
  if (!right) {
    report(function, p, size, block.usable);
    if (HAK_SECURE) return;
  }
  hak_front_free(p, function);
}

void hak_api_delete_sized(void *p, size_t alignment, size_t size) {
  free_checked("operator delete", p, alignment, size, false, hak_misuse_delete_size);
}

HAK_EXPORT void hak_free_sized(void *p, size_t size) {
  if (!hak_front_free_sized_any(p, size, "free_sized"))
    free_checked("free_sized", p, 1, size, true, hak_misuse_size);
}

HAK_EXPORT void hak_free_aligned_sized(void *p, size_t alignment, size_t size) {
  if (!hak_front_free_aligned_sized(p, alignment, size, "free_aligned_sized"))
    free_checked("free_aligned_sized", p, alignment, size, false, hak_misuse_size);
}

// ---------------------------------------------------------------------------

#if !HAK_NO_OVERRIDE
HAK_ALIAS(hak_malloc) void *malloc(size_t size);
HAK_ALIAS(hak_malloc) void *__libc_malloc(size_t size);
HAK_ALIAS(hak_free) void free(void *p);
HAK_ALIAS(hak_free) void __libc_free(void *p);
HAK_ALIAS(hak_free) void __libc_cfree(void *p);
HAK_ALIAS(hak_calloc) void *calloc(size_t count, size_t size);
HAK_ALIAS(hak_calloc) void *__libc_calloc(size_t count, size_t size);
HAK_ALIAS(hak_realloc) void *realloc(void *p, size_t size);
HAK_ALIAS(hak_realloc) void *__libc_realloc(void *p, size_t size);
HAK_ALIAS(hak_reallocarray) void *__libc_reallocarray(void *p, size_t count, size_t size);
HAK_ALIAS(hak_malloc_usable_size) size_t malloc_usable_size(const void *p);
#endif
