#include "superslab/pool_index.h"

#include "core/options.h"
#include "superslab/shared_pool.h"

#define SETS (HAK_BAND_LAST + 1)
#define GROUPS (HAK_SUPERSLABS_MAX / 64)

hak_index_group_t hak_index_groups[GROUPS];
// A bit per group but the first, which hak_index_find always looks at: most processes need no bit.
static hak_index_group_t summary[GROUPS / 64];

// A thread that clears the summary meanwhile saw the group without the bit, and looks again.
static void set_bit(unsigned set, uint32_t number) {
  uint32_t group = number / 64;
  uint64_t group_bit = UINT64_C(1) << (group % 64);
  hak_fetch_or_seq_cst(&hak_index_groups[group].set[set], UINT64_C(1) << (number % 64));
  if (group != 0 && !(hak_load_seq_cst(&summary[group / 64].set[set]) & group_bit))
    hak_fetch_or_seq_cst(&summary[group / 64].set[set], group_bit);
}

// True if the bit was set.
static bool clear_bit(unsigned set, uint32_t number) {
  uint32_t group = number / 64;
  uint64_t bit = UINT64_C(1) << (number % 64), group_bit = UINT64_C(1) << (group % 64);
  bool was_set = (hak_fetch_and_seq_cst(&hak_index_groups[group].set[set], ~bit) & bit) != 0;
  if (group != 0 && hak_load_seq_cst(&hak_index_groups[group].set[set]) == 0) {
    hak_fetch_and_seq_cst(&summary[group / 64].set[set], ~group_bit);
    // A set_bit between the two would be lost without this second look.
    if (hak_load_seq_cst(&hak_index_groups[group].set[set]))
      hak_fetch_or_seq_cst(&summary[group / 64].set[set], group_bit);
  }
  return was_set;
}

uint32_t hak_index_find_far(unsigned set, unsigned other, uint32_t from) {
  uint32_t groups_used = (hak_superslab_count() + 63) / 64;
  for (uint32_t s = from / 4096; s * 64 < groups_used; s++) {
    uint64_t in_summary = hak_load_relaxed(&summary[s].set[set]);
    in_summary &= hak_load_relaxed(&summary[s].set[other]);
    if (s == from / 4096) in_summary &= ~UINT64_C(0) << (from / 64 % 64);
    for (; in_summary; in_summary &= in_summary - 1) {
      uint32_t group = s * 64 + hak_low_bit(in_summary);
      uint64_t bits = hak_load_relaxed(&hak_index_groups[group].set[set]);
      bits &= hak_load_relaxed(&hak_index_groups[group].set[other]);
      if (group == from / 64) bits &= ~UINT64_C(0) << (from % 64);
      if (bits) return group * 64 + hak_low_bit(bits);
    }
  }
  return 0;
}

// Without tiers all are in the first band.
static unsigned band_of(uint64_t word) {
  unsigned used = hak_used_slabs((uint32_t)word);
  if (!hak_option(TIERS)) return HAK_BAND_FIRST;
  if (word & HAK_SUPERSLAB_DRAINING) return used > 4 ? HAK_BAND_DRAINING : HAK_BAND_LAST;
  return HAK_BAND_FIRST + (used < 28) + (used < 24) + (used < 16);
}

// The sets that a SuperSlab with this free mask word belongs in.
static unsigned sets_of(uint64_t word) {
  uint32_t mask = (uint32_t)word;
  if (mask == 0) return 0;
  if (mask == HAK_ALL_FREE) return (2u << HAK_LEVEL_EMPTY) - 1;
  uint32_t twos = mask & mask >> 1, fours = twos & twos >> 2, eights = fours & fours >> 4;
  unsigned sixteens = (eights & eights >> 8) != 0;
  return 1u << band_of(word) | 1u | (unsigned)(twos != 0) << 1 | (unsigned)(fours != 0) << 2 |
         (unsigned)(eights != 0) << 3 | sixteens << 4;
}

// want: the sets of word, the value of the mask a moment ago. The loop ends only when the mask
// is still the one that was published, so the last of several racing callers leaves the index
// right (model P2).
static void publish(uint32_t number, uint64_t word, unsigned want) {
  _Atomic uint64_t *free_mask = &hak_registry.superslabs[number].free_mask;
  uint64_t bit = UINT64_C(1) << (number % 64);
  for (;;) {
    unsigned has = 0;
    HAK_UNROLL
    for (unsigned k = 0; k < SETS; k++)
      has |= (unsigned)((hak_load_seq_cst(&hak_index_groups[number / 64].set[k]) & bit) != 0) << k;
    for (unsigned wrong = (has ^ want) & ~(1u << HAK_INDEX_COLD); wrong; wrong &= wrong - 1) {
      unsigned k = hak_low_bit(wrong);
      if (has >> k & 1) clear_bit(k, number);
      else set_bit(k, number);
    }
    uint64_t now = hak_load_seq_cst(free_mask);
    if (now == word) return;
    word = now;
    want = sets_of(now);
  }
}

void hak_index_publish(uint32_t number) {
  uint64_t word = hak_load_seq_cst(&hak_registry.superslabs[number].free_mask);
  publish(number, word, sets_of(word));
}

void hak_index_change(uint32_t number, uint64_t old, uint64_t now) {
  unsigned want = sets_of(now);
  if (want != sets_of(old)) publish(number, now, want);
}

void hak_pool_add_cold(uint32_t number) { set_bit(HAK_INDEX_COLD, number); }

uint32_t hak_pool_take_cold(void) {
  for (uint32_t number = 1; (number = hak_index_find(HAK_INDEX_COLD, HAK_BAND_ANY, number)) != 0;
       number++)
    if (clear_bit(HAK_INDEX_COLD, number)) return number;
  return 0;
}

bool hak_pool_leave_cold(uint32_t number) { return clear_bit(HAK_INDEX_COLD, number); }

void hak_index_rebuild(void) {
  for (uint32_t group = 1; group * 64 < hak_superslab_count(); group++)
    for (unsigned k = 0; k < SETS; k++)
      if (hak_load_relaxed(&hak_index_groups[group].set[k])) {
        _Atomic uint64_t *word = &summary[group / 64].set[k];
        hak_store_if_other(word, hak_load_relaxed(word) | UINT64_C(1) << (group % 64));
      }
}
