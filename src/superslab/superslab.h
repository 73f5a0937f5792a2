// superslab.h: the registry of all SuperSlabs: numbers, memory, descriptors, and
// the lookup from a pointer to its slab (row S10).
//
// Owns the reserved range, the descriptor arrays and the numbering. Any thread
// may call anything here. Memory of a SuperSlab is committed and decommitted only
// by the thread that holds all its 32 bits (protocol P1 in docs/concurrency.md).
// Tests: test/unit/test_superslab.c.

#ifndef HAK_SUPERSLAB_SUPERSLAB_H
#define HAK_SUPERSLAB_SUPERSLAB_H

#include "base/bits.h"
#include "base/types.h"
#include "core/pagemap.h"

// What free reads comes first, in one cache line. All is in one OS page: fork copies it at one
// moment. hak_superslab_init writes it in the set-up of the process, for which other threads
// wait (I1); only the limit, which grows, and the last two words change later (protocol N1).
typedef struct {
  _Alignas(128) uintptr_t base; // start of the range, 0 without one
  hak_word_t limit;             // slabs of used numbers in the range << 12
  hak_slab_t *slabs;            // descriptors by slab index
  hak_superslab_t *superslabs;  // by number

  // Three fields of HAK_NUMBER_BITS: the first number never used, the end of the numbers whose
  // memory is in the range, and the end of those with room for descriptors. In one word, so that
  // neither end falls below a number in use, and a used number never changes its side of an end.
  _Alignas(64) hak_word_t numbers;
  _Atomic uint32_t committed_numbers; // numbers below have descriptors
} hak_registry_t;
HAK_INTERNAL extern hak_registry_t hak_registry;
#define HAK_NUMBER_BITS 21u
_Static_assert(HAK_SUPERSLABS_MAX_SHIFT < HAK_NUMBER_BITS, "three numbers in a word");

void hak_superslab_init(void);

// The straight-line part of free: the descriptor of the slab that p lies in, if p
// is 16-byte aligned and in the range. It may be a free or interior slab: check
// kind or local.
//
// Rotating the offset right by 4 moves misaligned low bits to the top, where
// they fail the limit test: one compare rules out NULL, foreign and misaligned.
HAK_INLINE bool hak_range_find(const void *p, hak_slab_t **slab) {
  uint64_t offset = hak_rotate_right((uintptr_t)p - hak_registry.base, HAK_MIN_SHIFT);
  if (HAK_UNLIKELY(hak_not_below(offset, &hak_registry.limit))) return false;
  *slab = (hak_slab_t *)((char *)hak_registry.slabs +
                         ((offset >> (HAK_SLAB_SHIFT - HAK_MIN_SHIFT - HAK_SLAB_DESCRIPTOR_SHIFT)) &
                          ~(uint64_t)(sizeof(hak_slab_t) - 1)));
  return true;
}

// Descriptor by either lookup; NULL if p lies in no SuperSlab. No alignment test.
hak_slab_t *hak_slab_lookup(const void *p);

HAK_INLINE uint32_t hak_slab_index(const hak_slab_t *slab) {
  return (uint32_t)(slab - hak_registry.slabs);
}
// Number of the SuperSlab that the slab is in.
HAK_INLINE uint32_t hak_superslab_number(const hak_slab_t *slab) {
  return hak_slab_index(slab) >> HAK_SLABS_SHIFT;
}
// The bits of n slabs from this one on in the masks of their SuperSlab.
HAK_INLINE uint32_t hak_slab_bits(const hak_slab_t *slab, unsigned n) {
  return hak_ones(hak_slab_index(slab) & (HAK_SLABS_PER_SUPERSLAB - 1), n);
}
// Whether the slab is free, that is, in the pool.
HAK_INLINE bool hak_slab_is_free(const hak_slab_t *slab) {
  const hak_superslab_t *superslab = &hak_registry.superslabs[hak_superslab_number(slab)];
  return (hak_load_relaxed(&superslab->free_mask) & hak_slab_bits(slab, 1)) != 0;
}
HAK_INLINE hak_slab_t *hak_slab_at(uint32_t index) { return &hak_registry.slabs[index]; }
HAK_INLINE char *hak_slab_start(const hak_slab_t *slab) {
  uint32_t index = hak_slab_index(slab);
  return (char *)hak_registry.superslabs[index >> HAK_SLABS_SHIFT].base +
         ((size_t)(index & (HAK_SLABS_PER_SUPERSLAB - 1)) << HAK_SLAB_SHIFT);
}

// Returns a SuperSlab with committed memory that the caller holds whole (free_mask 0): a
// decommitted one if there is one, else a new number. 0: memory or numbers ran out.
// fills: all of it is going to be used soon, so a huge page is worth having.
uint32_t hak_superslab_acquire(bool fills);
// Gives the memory of a SuperSlab that the caller holds whole back to the system. False: the kernel
// refuses, as it has no room for another mapping. Then only the pages went back, and the caller
// still holds it.
bool hak_superslab_decommit(uint32_t number);

// The SuperSlab, a slab of which the caller holds, does without huge pages from now on. Otherwise the
// kernel (khugepaged) fills the holes that pages given back leave, and all of it stays resident.
void hak_superslab_no_huge_page(hak_superslab_t *superslab);
// Has the huge page split that such a SuperSlab of the range was. Only then the holes are free memory,
// but it takes longer than to give all of it back, so it is done where it has stayed. It may get empty
// meanwhile, or even be mapped anew: then it is split in vain. False: there was nothing to split.
bool hak_superslab_split(uint32_t number);

// Puts a number at the end of a queue unless it is in it already. Returns the number that this
// pushes out, 0: none. All relaxed: at worst one is in a queue twice, or is lost to it.
uint32_t hak_superslab_wait(unsigned queue, uint32_t number);
// Repairs after fork what it may have copied at different times: the queues and the marks of
// who is in them; whether a number has a place and whether it is cold.
void hak_superslab_after_fork(void);

// Called when the limit of the address space (RLIMIT_AS) has changed, or may have. Gives back
// what is reserved for future SuperSlabs and their descriptors, as far as it would not have
// been reserved under this limit, and, if there would be no range, also the places in it
// without memory. Takes again the room for descriptors that it gave back, if the limit allows
// it. A thread that finds another one in here yields to it a limited number of times.
void hak_superslab_fit(size_t limit);

// Numbers handed out so far are 1 .. hak_superslab_count() - 1.
HAK_INLINE uint32_t hak_superslab_count(void) {
  // Acquire, both: pair with the releases in new_number and commit_descriptors.
  uint32_t next = hak_load_acquire(&hak_registry.numbers) & ((1u << HAK_NUMBER_BITS) - 1);
  if (!HAK_SECURE) return next;
  // The gap after the last number may lie beyond the descriptors.
  return (uint32_t)hak_min(next, hak_load_acquire(&hak_registry.committed_numbers));
}

// Bytes mapped for blocks and metadata, now and at most (statistics).
typedef struct {
  _Atomic uint64_t superslab_bytes, huge_bytes, cached_bytes, metadata_bytes, mapped, peak;
} hak_mapped_t;
HAK_INTERNAL extern hak_mapped_t hak_mapped;
void hak_mapped_add(_Atomic uint64_t *which, int64_t bytes);
// Near a limit of memory or of address space the process keeps nothing that is not in use.
bool hak_mapped_near_limit(void);
bool hak_mapped_near_memory_limit(void);
// Looks at the resident memory when it matters. To be called every now and then.
void hak_mapped_look(void);

#endif
