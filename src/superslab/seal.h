// seal.h: what the secure library keeps in the blocks themselves: the tail word that seals a
// block, the bytes between the request and the tail, and the links of free lists. The default
// library has plain links only.
//
//   block of the program:  | size bytes | slack bytes, the first 8 a pattern | tail word |
//   tail word = key(address) ^ (slack << 48 | state)
//
// The key is a keyed hash of the block's address, and odd. So a word that was copied,
// overwritten (even by a single NUL) or never written is no seal: the word alone tells whether
// a pointer is a live block, and of which size. A link is encoded with the key and a second
// secret, and leads to a block of the same slab.
//
// A word belongs to the thread that its block belongs to: the one that allocates or frees it,
// then the one with the heap that holds it back.
// Tests: test/unit/test_seal.c, test/abort/secure.c, test/misuse.

#ifndef HAK_SUPERSLAB_SEAL_H
#define HAK_SUPERSLAB_SEAL_H

#include "base/bits.h"
#include "base/types.h"
#include "core/misuse.h"

#define HAK_SEAL_SLACK_MAX UINT16_MAX // of a block whose slack is at least that

#if !HAK_SECURE

#define HAK_TAIL ((size_t)0)
HAK_INLINE void hak_link_set(void *block, void *next) { *(void **)block = next; }
HAK_INLINE void *hak_link_get(void *block) { return *(void **)block; }
HAK_INLINE void hak_seal_init(void) {}
HAK_INLINE unsigned hak_seal_pick(uint64_t mask, HAK_UNUSED unsigned among) {
  return hak_low_bit(mask);
}
HAK_INLINE bool hak_seal_find(HAK_UNUSED const void *block, size_t place,
                              HAK_UNUSED const char *function, size_t *size) {
  *size = place;
  return true;
}
HAK_INLINE size_t hak_seal_size(HAK_UNUSED const void *block, size_t place) { return place; }
HAK_INLINE void hak_seal_resize(HAK_UNUSED void *block, HAK_UNUSED size_t place,
                                HAK_UNUSED size_t size) {}
HAK_INLINE void hak_seal_remove(HAK_UNUSED void *block, HAK_UNUSED size_t place) {}
HAK_INLINE uint64_t hak_seal_hash(HAK_UNUSED const void *block, HAK_UNUSED uint64_t a,
                                  HAK_UNUSED uint64_t b) {
  return 0;
}

#else

#define HAK_TAIL sizeof(uint64_t) // bytes of a block that are not for the program

typedef uint64_t __attribute__((vector_size(16), aligned(1), may_alias)) hak_pair_t;
typedef uint64_t __attribute__((aligned(1), may_alias)) hak_unaligned_t;

typedef struct {
  uint64_t mix, factor;         // of the key
  uint64_t link;                // of links, besides the key
  uint64_t pattern;             // of the slack
  _Alignas(16) hak_pair_t fill; // of freed blocks (HAKMEM_SECURE_FILL)
  uint64_t held_bytes;          // HAKMEM_SECURE_QUARANTINE
  bool plain;                   // fill_bytes is HAK_FILL_BYTES, and every tiny block may be held
  uint64_t fill_bytes;          // so many bytes of each are filled, 0: none
  uint64_t mask[9];             // mask[n] selects the n lower bytes of a word; no secret
} hak_secret_t;
HAK_INTERNAL extern hak_secret_t hak_secret; // read-only once set
// Once, after the options are known.
void hak_seal_init(void);
// 64 unpredictable bits; any thread.
uint64_t hak_seal_random(void);
// splitmix64: a counter that is increased by STEP, mixed.
#define HAK_SEAL_STEP UINT64_C(0x9e3779b97f4a7c15)
HAK_INLINE uint64_t hak_seal_mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

// Number of a set bit, one of the lowest `among`; mask is not 0.
HAK_INLINE unsigned hak_seal_pick(uint64_t mask, unsigned among) {
  if ((mask & (mask - 1)) == 0) return hak_low_bit(mask);
  for (unsigned skip = (unsigned)hak_seal_random() % among; skip && (mask & (mask - 1)); skip--)
    mask &= mask - 1;
  return hak_low_bit(mask);
}

// States of a sealed block; any other value: no seal.
#define HAK_SEAL_SLACK_SHIFT 48
#define HAK_SEAL_STATE (((uint64_t)1 << HAK_SEAL_SLACK_SHIFT) - 1)
#define HAK_SEAL_LIVE ((uint64_t)0)
#define HAK_SEAL_HELD ((uint64_t)1 << 40) // freed by the program, in quarantine
#define HAK_SEAL_FREE ((uint64_t)2 << 40) // the allocator may hand it out

// The slack of a live block from its value. The rotation puts the state above the slack, so any
// other block or word gives more than a tiny or L2 block has. For a larger block look at the state.
_Static_assert(HAK_L2_MAX <= HAK_SEAL_SLACK_MAX, "no state passes for slack");
HAK_INLINE uint64_t hak_seal_slack(uint64_t value) {
  return value << (64 - HAK_SEAL_SLACK_SHIFT) | value >> HAK_SEAL_SLACK_SHIFT;
}

// Both halves of the product: with the lower one alone, the difference of two keys would give away
// the factor, and so all others.
HAK_INLINE uint64_t hak_seal_key(const void *block) {
  uint64_t low = (uintptr_t)block ^ hak_secret.mix, high;
#if defined(__x86_64__) // for a product of 128 bits gcc saves registers that it does not use
  __asm__("mulq %3" : "=a"(low), "=d"(high) : "0"(low), "m"(hak_secret.factor) : "cc");
#else
  unsigned __int128 product = (unsigned __int128)low * hak_secret.factor;
  low = (uint64_t)product;
  high = (uint64_t)(product >> 64);
#endif
  return (high ^ low) | 1;
}

// A keyed hash of two words that lie in the block.
HAK_INLINE uint64_t hak_seal_hash(const void *block, uint64_t a, uint64_t b) {
  return hak_seal_mix(hak_seal_mix(a ^ hak_secret.link) + b) ^ hak_seal_key(block);
}

// place: bytes of the block, that is, of its class, L2.5 run or mapping.
HAK_INLINE uint64_t *hak_seal_word(const void *block, size_t place) {
  return (uint64_t *)((uintptr_t)block + place - HAK_TAIL);
}
HAK_INLINE uint64_t hak_seal_read(const void *block, size_t place) {
  return *hak_seal_word(block, place) ^ hak_seal_key(block);
}
HAK_INLINE void hak_seal_write(void *block, size_t place, uint64_t value) {
  *hak_seal_word(block, place) = value ^ hak_seal_key(block);
}

// A block has become longer: a block that begins there later must not be taken for sealed.
HAK_INLINE void hak_seal_remove(void *block, size_t place) { *hak_seal_word(block, place) = 0; }

// A live block becomes a held one. A constant of 64 bits would take an instruction and a register.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the byte of the state");
HAK_INLINE void hak_seal_hold(void *block, size_t place) {
  ((uint8_t *)hak_seal_word(block, place))[5] ^= (HAK_SEAL_LIVE ^ HAK_SEAL_HELD) >> 40;
}

// Reports a link that was overwritten; the rest of the list is lost.
HAK_COLD void *hak_link_broken(void *block);
HAK_INLINE void hak_link_set_keyed(void *block, void *next, uint64_t key) {
  *(uint64_t *)block = (uintptr_t)next ^ key ^ hak_secret.link;
}
// False: the link was overwritten.
HAK_INLINE bool hak_link_read(const void *block, uint64_t key, void **link) {
  uint64_t next = *(const uint64_t *)block ^ key ^ hak_secret.link;
  if (HAK_UNLIKELY((next ^ (uintptr_t)block) >> HAK_SLAB_SHIFT) && next != 0) return false;
  *link = (void *)(uintptr_t)next;
  return true;
}
HAK_INLINE void *hak_link_get_keyed(void *block, uint64_t key) {
  void *next;
  return HAK_LIKELY(hak_link_read(block, key, &next)) ? next : hak_link_broken(block);
}
HAK_INLINE void hak_link_set(void *block, void *next) {
  hak_link_set_keyed(block, next, hak_seal_key(block));
}
HAK_INLINE void *hak_link_get(void *block) {
  return hak_link_get_keyed(block, hak_seal_key(block));
}

// The 8 bytes that show an overflow first: those behind the request. If the slack is less, as many
// of the lower ones count; the others are the tail's.
HAK_INLINE hak_unaligned_t *hak_seal_edge(const void *block, size_t size) {
  return (hak_unaligned_t *)((uintptr_t)block + size);
}
// Without a branch, which could not be predicted.
HAK_INLINE bool hak_seal_edge_whole(const void *block, size_t size, size_t slack) {
  uint64_t differs = *hak_seal_edge(block, size) ^ hak_secret.pattern;
  return (differs & hak_secret.mask[slack < 8 ? slack : 8]) == 0;
}

// Whether nothing was written behind a live block. slack: from hak_seal_slack, of any word. size: of
// the request.
HAK_INLINE bool hak_seal_is_whole(const void *block, size_t place, uint64_t slack, size_t *size) {
  // A write to the bytes just before the next block hits the slack.
  return !__builtin_sub_overflow(place - HAK_TAIL, slack, size) &&
         hak_seal_edge_whole(block, *size, slack);
}
// Whether it is one of exactly `size` bytes, according to its tail word.
HAK_INLINE bool hak_seal_is_of(const void *block, size_t place, size_t size) {
  uint64_t slack = place - HAK_TAIL - size;
  return slack < place && hak_seal_slack(hak_seal_read(block, place)) == slack;
}
// Whether the tail word of a block at any address in a tiny slab would lie in the slab, too:
// memory behind it may be unreadable.
HAK_INLINE bool hak_seal_in_slab(const void *block, size_t place) {
  return ((uintptr_t)block & (HAK_SLAB_SIZE - 1)) + place <= HAK_SLAB_SIZE;
}

// Seals a block as a live one of `size` bytes, which keep their contents.
HAK_INLINE void hak_seal_new(void *block, size_t place, size_t size, uint64_t key) {
  size_t slack = place - HAK_TAIL - size;
  *hak_seal_edge(block, size) = hak_secret.pattern;
  // Last: the edge may reach into it.
  *hak_seal_word(block, place) = key ^ ((uint64_t)slack << HAK_SEAL_SLACK_SHIFT | HAK_SEAL_LIVE);
}
// The same for a block of any kind.
void hak_seal_resize(void *block, size_t place, size_t size);

// Puts the first seal onto a block that was never used.
HAK_INLINE void hak_seal_carved(void *block, size_t place, uint64_t key) {
  *hak_seal_word(block, place) = key ^ HAK_SEAL_FREE;
}
// A block from a free list must have kept its seal.
HAK_INLINE bool hak_seal_is_free(const void *block, size_t place, uint64_t key) {
  return *hak_seal_word(block, place) == (key ^ HAK_SEAL_FREE);
}
HAK_INLINE void hak_seal_check_free(void *block, size_t place, uint64_t key) {
  if (HAK_UNLIKELY(!hak_seal_is_free(block, place, key)))
    hak_misuse_written(block, place - HAK_TAIL);
}

// Whether block is live and nothing was written behind it; if not, that is reported. size:
// what was asked for.
bool hak_seal_find(const void *block, size_t place, const char *function, size_t *size);
// The size of a live or quarantined block, else the most that could have been asked for.
size_t hak_seal_size(const void *block, size_t place);

// Fills a freed block, or tells whether it still is filled: as many of its first bytes as
// HAKMEM_SECURE_FILL_BYTES says, in steps of 16, and the last 16.
#define HAK_FILL_BYTES 32 // the default
void hak_seal_fill_any(void *block, size_t span);
bool hak_seal_filled_any(const void *block, size_t span);

// How many bytes of a block count as its own for the fill: some slack too where there would be
// less than a pair; in the smallest blocks a word.
HAK_INLINE size_t hak_seal_span(size_t place, size_t size) {
  return hak_max(size, place == HAK_MIN_BLOCK ? sizeof(uint64_t) : sizeof(hak_pair_t));
}

// The same if hak_secret.plain is set: the first two pairs and the last one, which may overlap.
_Static_assert(HAK_FILL_BYTES == 2 * sizeof(hak_pair_t), "two pairs");
HAK_INLINE hak_pair_t *hak_seal_last_pair(const void *block, size_t size) {
  hak_pair_t *last = (hak_pair_t *)((uintptr_t)block + size - sizeof(hak_pair_t));
  return last < (hak_pair_t *)block ? (hak_pair_t *)block : last;
}
HAK_INLINE hak_pair_t *hak_seal_second_pair(const void *block, hak_pair_t *last) {
  hak_pair_t *second = (hak_pair_t *)block + 1;
  return last < second ? last : second;
}
HAK_INLINE void hak_seal_fill(void *block, size_t place, size_t size, hak_pair_t fill) {
  if (HAK_UNLIKELY(place == HAK_MIN_BLOCK)) {
    *(hak_unaligned_t *)block = fill[0];
    return;
  }
  hak_pair_t *last = hak_seal_last_pair(block, size), *second = hak_seal_second_pair(block, last);
  *(hak_pair_t *)block = fill;
  *second = fill;
  *last = fill;
}
HAK_INLINE bool hak_seal_filled(const void *block, size_t place, size_t size, hak_pair_t fill) {
  if (HAK_UNLIKELY(place == HAK_MIN_BLOCK)) return *(const hak_unaligned_t *)block == fill[0];
  hak_pair_t *last = hak_seal_last_pair(block, size), *second = hak_seal_second_pair(block, last);
  hak_pair_t differs = (*(const hak_pair_t *)block ^ fill) | (*second ^ fill) | (*last ^ fill);
  return (differs[0] | differs[1]) == 0;
}

#endif
#endif
