#include "pool/huge_cache.h"

#include "base/bits.h"
#include "core/options.h"
#include "core/pagemap.h"
#include "os/os.h"
#include "superslab/seal.h"
#include "superslab/superslab.h"

// A place is empty (0) or names a mapping: unit of address space << 37 | length in 4 KiB.
#define LENGTH_BITS 37
#define UNIT_SHIFT 12
#define PLACES 256u

// All places are in one OS page: fork copies it at one moment. A mapping is in one place at
// most, and the thread that swaps its word for 0 owns it.
static struct {
  _Alignas(PLACES * sizeof(uint64_t)) _Atomic uint64_t place[PLACES];
} cache;
// Places from this index on were never used. Relaxed: raised before such a place is used; a thread
// that does not see it does not know of the mapping either.
static _Atomic uint32_t places_used;
static _Atomic uint64_t put_at[PLACES]; // ms; relaxed: an old time sends a mapping back early

// Stacks of mappings that the kernel refused to take back, linked through the mappings themselves.
// They are tried again when the cache is tended or trimmed, the first stack before the second. The
// program may still write to them: in the secure library a keyed hash shows it.
typedef struct hak_refused {
  struct hak_refused *next;
  size_t size;
  uint64_t hash;
} hak_refused_t;
static _Atomic(hak_refused_t *) refused[2];
#define TRIES 8
#define TRIES_AT_LEISURE 1024

// Bytes in all places and on their way in or out: added before a mapping gets its place
// and subtracted after it has left it, so the places never hold more. Relaxed: a sum
// to which every change is added; no other word is read because of it.
static _Atomic uint64_t held;

// How many bytes may stay is learnt, like the number of empty SuperSlabs (superslab/shared_pool.c).
// The bound doubles when a few mappings were made soon after one did not stay, and halves when half
// of it has sufficed for a while. All relaxed: they steer, nothing depends on them.
// Until it is first raised none stays: what a peak leaves goes back at once.
#define BOUND_MIN ((uint64_t)8 << 20)
#define REGRET_MS 900 // below CALM_MS, after which a kept mapping would be gone again
#define REGRETS_PER_DOUBLING 4
#define CALM_MS 1000
// Besides one mapping, kept bytes are limited to those of live huge blocks plus UNUSED_MOST: the
// program may fall asleep with all of them. Half of what a load had to map anew because of this
// limit is added to it: a load that swings again and again keeps more each time.
#define UNUSED_MOST ((uint64_t)16 << 20)
#define SWING_SHARE 2
// Kept and live bytes together are limited to the peak of live bytes since the tending before the
// last, plus an eighth of it or PEAK_LEAST: as lengths change, kept mappings may be of no use.
#define PEAK_PART 8
#define PEAK_LEAST ((uint64_t)8 << 20)
static _Atomic uint64_t learnt; // bytes, BOUND_MIN or more, or 0
static _Atomic uint64_t swung;  // bytes on top of UNUSED_MOST
static _Atomic uint32_t regrets;
static _Atomic uint64_t refused_at, unused_at, needed_at; // ms; unused_at: because of UNUSED_MOST
// Peak bytes of all huge blocks: since peak_since, and in the period before that.
static _Atomic uint64_t peak, peak_before, peak_since;

// Mappings whose lengths differ by a larger factor are no substitute: cutting or adding that much
// costs more. A longer one that can be split, for a block of at least 1 MiB, loses nothing.
#define DIFFER_MOST 4

static uint64_t word_of(const void *p, size_t size) {
  return (uint64_t)((uintptr_t)p >> HAK_SUPERSLAB_SHIFT) << LENGTH_BITS | size >> UNIT_SHIFT;
}
static void *start_of(uint64_t word) {
  return (void *)(uintptr_t)(word >> LENGTH_BITS << HAK_SUPERSLAB_SHIFT);
}
static size_t length_of(uint64_t word) {
  return (size_t)(word & (((uint64_t)1 << LENGTH_BITS) - 1)) << UNIT_SHIFT;
}

static bool none_stays(void) {
  return HAK_SECURE || hak_mapped_near_limit(); // secure library: freed memory must fault
}

static uint64_t bound_now(void) {
  if (none_stays()) return 0;
  uint64_t most = hak_option(HUGE_CACHE), bound = hak_load_relaxed(&learnt);
  return bound < most ? bound : most;
}

// Takes the word out of its place; false if another thread was faster.
static bool take(unsigned i, uint64_t word) {
  // Acquire: pairs with the release in place: the last holder has finished
  // with the mapping and its entry.
  return hak_cas_acquire(&cache.place[i], &word, (uint64_t)0);
}

static void left(size_t size) {
  // Never below 0: in the child of a fork by a handler that ran in between, held was counted anew.
  uint64_t had = hak_load_relaxed(&held), n;
  do n = had < size ? had : size;
  while (!hak_cas_relaxed(&held, &had, had - n));
  hak_mapped_add(&hak_mapped.cached_bytes, -(int64_t)n);
}

static uint64_t hash_of(const hak_refused_t *entry) {
  return hak_seal_hash(entry, (uintptr_t)entry->next, entry->size);
}
static void link_to(hak_refused_t *entry, hak_refused_t *next) {
  entry->next = next;
  entry->hash = hash_of(entry);
}
// NULL, which ends the list, if the entry was overwritten.
static hak_refused_t *checked(hak_refused_t *entry) {
  if (!HAK_SECURE || !entry || entry->hash == hash_of(entry)) return entry;
  hak_misuse_written(entry, 0);
  return NULL;
}

// Pushes one or more linked entries.
static void push_refused(_Atomic(hak_refused_t *) *stack, hak_refused_t *entry) {
  for (hak_refused_t *next, *top; (entry = checked(entry)) != NULL; entry = next) {
    next = entry->next;
    top = hak_load_relaxed(stack);
    do link_to(entry, top);
    // Release: pairs with the acquire in try_again; the entry is written.
    while (!hak_cas_release(stack, &top, entry));
  }
}

void hak_huge_cache_unmap(void *p, size_t size) {
  if (hak_os_unmap(p, size)) return;
  hak_os_discard(p, size); // at least the memory goes back
  hak_refused_t *entry = p;
  entry->size = size;
  link_to(entry, NULL);
  push_refused(&refused[0], entry);
}

// Pushes what a thread has not looked at, in one step if the stack is still empty.
static void push_rest(hak_refused_t *entry) {
  hak_refused_t *none = NULL;
  // Release: as in push_refused.
  if (entry && !hak_cas_release(&refused[0], &none, entry)) push_refused(&refused[0], entry);
}

// Whether a refused mapping serves a request of size bytes; or, if that is 0, the kernel takes it.
static bool settles(hak_refused_t *entry, size_t size) {
  if (size == 0) return hak_os_unmap(entry, entry->size);
  return entry->size >= size && (uintptr_t)entry % HAK_SUPERSLAB_SIZE == 0 &&
         hak_pagemap_prepare(entry);
}

// Tries to settle refused mappings, with size one only, which it returns, until `most` have failed:
// there may be many, and most would fail as well. Those that failed come last the next time.
static hak_refused_t *try_again(unsigned most, size_t size) {
  hak_refused_t *again = NULL, *found = NULL;
  for (unsigned i = 0; i < 2 && most && !found; i++) {
    if (hak_load_relaxed(&refused[i]) == NULL) continue;
    // Acquire: pairs with the release in push_refused. This thread now owns all entries, so
    // none returns to the stack while another thread looks at it.
    hak_refused_t *entry = hak_exchange_acq_rel(&refused[i], NULL), *next;
    for (; !found && (entry = checked(entry)) != NULL && most; entry = next) {
      next = entry->next;
      if (settles(entry, size)) {
        if (size) found = entry;
        continue;
      }
      link_to(entry, again);
      again = entry;
      most--;
    }
    push_rest(entry);
  }
  push_refused(&refused[1], again);
  return found;
}

// Not in the secure library, whose mappings have a guard page behind them.
void *hak_huge_cache_take_refused(size_t size, size_t *have) {
  hak_refused_t *found = HAK_SECURE ? NULL : try_again(TRIES_AT_LEISURE, size);
  if (found) *have = found->size;
  return found;
}

static bool place(uint64_t word, uint64_t at) {
  for (uint32_t i = 0; i < PLACES; i++) {
    uint64_t none = 0;
    if (hak_load_relaxed(&cache.place[i])) continue;
    uint32_t used = hak_load_relaxed(&places_used);
    while (used <= i && !hak_cas_relaxed(&places_used, &used, i + 1)) {
    }
    hak_store_relaxed(&put_at[i], at);
    // Release: pairs with the acquire in take.
    if (hak_cas_release(&cache.place[i], &none, word)) return true;
  }
  return false;
}

// Evicts at least `much` bytes at a mapping's end; returns how many, 0: another thread took it.
#define ALL_OF_IT (SIZE_MAX / 2)
static size_t evict(unsigned i, uint64_t word, size_t much) {
  uint64_t at = hak_load_relaxed(&put_at[i]);
  if (!take(i, word)) return 0;
  char *p = start_of(word);
  size_t size = length_of(word), keep = 0;
  if (much + HAK_SUPERSLAB_SIZE < size) keep = hak_align_down(size - much, HAK_SUPERSLAB_SIZE);
  // Placed first, so that others find it while the kernel unmaps the rest.
  if (keep && !place(word_of(p, keep), at)) keep = 0;
  hak_huge_cache_unmap(p + keep, size - keep);
  left(size - keep);
  hak_fetch_add_relaxed(&hak_counter(huge_evict), 1);
  return size - keep;
}

// Evicts at least `much` bytes or all of the oldest mapping; returns how many, 0 if there is none.
static size_t evict_oldest(size_t much) {
  for (;;) {
    unsigned oldest = PLACES;
    uint64_t word = 0;
    for (unsigned i = 0; i < hak_load_relaxed(&places_used); i++) {
      uint64_t found = hak_load_relaxed(&cache.place[i]);
      if (!found || (word && hak_load_relaxed(&put_at[i]) >= hak_load_relaxed(&put_at[oldest])))
        continue;
      oldest = i;
      word = found;
    }
    if (!word) return 0;
    size_t went = evict(oldest, word, much);
    if (went) return went;
  }
}

// Evicts until at most `most` bytes are held; returns the bytes evicted.
static size_t evict_above(uint64_t most) {
  size_t sum = 0, went;
  uint64_t now;
  while ((now = hak_load_relaxed(&held)) > most && (went = evict_oldest(now - most)) != 0)
    sum += went;
  return sum;
}

uint64_t hak_huge_cache_room(void) {
  if (none_stays() || !hak_option(HUGE_CACHE)) return 0;
  uint64_t bound = bound_now();
  return bound > UNUSED_MOST ? bound : UNUSED_MOST;
}

void hak_huge_cache_used(void) {
  uint64_t live = hak_load_relaxed(&hak_mapped.huge_bytes);
  if (live > hak_load_relaxed(&peak)) hak_store_relaxed(&peak, live);
}

// Number of bytes that may be held beside `live` bytes in use.
static uint64_t beside(uint64_t live) {
  if (none_stays()) return 0;
  uint64_t top = hak_load_relaxed(&peak), before = hak_load_relaxed(&peak_before);
  if (top < before) top = before;
  if (top < live) top = live;
  uint64_t more = top / PEAK_PART > PEAK_LEAST ? top / PEAK_PART : PEAK_LEAST;
  return top - live + more;
}

// Number of bytes that may be held including a mapping of size bytes; 0: it may not be kept.
// *unused: the number is reduced because of UNUSED_MOST.
static uint64_t bound_with(size_t size, bool *unused) {
  uint64_t bound = bound_now(), live = hak_load_relaxed(&hak_mapped.huge_bytes);
  if (size > bound) return 0;
  uint64_t most = UNUSED_MOST + hak_load_relaxed(&swung) + live, room = beside(live);
  if (room > bound) room = bound;
  *unused = most < room;
  if (!*unused) most = room;
  return most > size ? most : size;
}

// Kept mappings that end where p starts, or start where it ends, become part of it, up to `most`
// bytes. To the kernel they may remain several, which it does not move in one call.
static void *join(char *p, size_t *size, uint64_t most) {
  for (unsigned i = 0; i < hak_load_relaxed(&places_used); i++) {
    uint64_t word = hak_load_relaxed(&cache.place[i]);
    char *start = start_of(word);
    if (!word || (start + length_of(word) != p && p + *size != start)) continue;
    if (*size + length_of(word) > most || !take(i, word)) continue;
    left(length_of(word));
    if (start < p) p = start;
    *size += length_of(word);
  }
  return p;
}

void hak_huge_cache_put(void *p, size_t size, uint64_t since) {
  bool kept = false, evicted = false, unused = false;
  uint64_t bound = bound_with(size, &unused), now = hak_os_clock_ms();
  if (!since) since = now;
  if (bound) {
    p = join(p, &size, bound);
    hak_fetch_add_relaxed(&held, size);
    hak_mapped_add(&hak_mapped.cached_bytes, (int64_t)size);
    evicted = evict_above(bound) != 0;
    while (hak_load_relaxed(&held) <= bound && !(kept = place(word_of(p, size), since)) &&
           evict_oldest(ALL_OF_IT))
      evicted = true;
    if (!kept) left(size);
  } else if (none_stays()) {
    evict_above(0);
  }
  if (!kept) hak_huge_cache_unmap(p, size);
  if (!kept || evicted) {
    hak_store_relaxed(&refused_at, now);
    if (unused) hak_store_relaxed(&unused_at, now);
  }
}

// `fresh` bytes of a request for size bytes have to be mapped because they were not kept.
static void missed(size_t size, size_t fresh) {
  uint64_t now = hak_os_clock_ms(), most = hak_option(HUGE_CACHE);
  evict_above(beside(hak_load_relaxed(&hak_mapped.huge_bytes) + size));
  // A request for more than may be kept teaches nothing, nor does one without a recent refusal.
  if (size > most || now - hak_load_relaxed(&refused_at) > REGRET_MS) return;
  hak_store_relaxed(&needed_at, now);
  if (now - hak_load_relaxed(&unused_at) <= REGRET_MS && hak_load_relaxed(&swung) < most)
    hak_fetch_add_relaxed(&swung, fresh / SWING_SHARE);
  if (hak_fetch_add_relaxed(&regrets, 1) < REGRETS_PER_DOUBLING) return;
  hak_store_relaxed(&regrets, 0u);
  uint64_t bound = hak_load_relaxed(&learnt);
  if (bound < most) hak_store_relaxed(&learnt, bound ? bound * 2 : BOUND_MIN);
}

// Whether a mapping of b bytes serves a request better than one of a bytes.
static bool better(size_t b, size_t a, size_t size) {
  if (b < size) return b > a && b >= size / DIFFER_MOST;
  bool can_be_split = size >= HAK_SUPERSLAB_SIZE / 2;
  return (can_be_split || b <= size * DIFFER_MOST) && (a < size || b < a);
}

void *hak_huge_cache_take(size_t size, size_t *have, uint64_t *since) {
  for (;;) {
    uint64_t word = 0;
    unsigned best = 0;
    for (unsigned i = 0; i < hak_load_relaxed(&places_used); i++) {
      uint64_t found = hak_load_relaxed(&cache.place[i]);
      if (!found || !better(length_of(found), length_of(word), size)) continue;
      best = i;
      word = found;
    }
    if (!word) {
      missed(size, size);
      return NULL;
    }
    *since = hak_load_relaxed(&put_at[best]);
    if (!take(best, word)) continue;
    if (hak_load_relaxed(&held) > bound_now() / 2) hak_store_relaxed(&needed_at, hak_os_clock_ms());
    *have = length_of(word);
    left(*have);
    if (*have < size) missed(size, size - *have);
    hak_fetch_add_relaxed(&hak_counter(huge_reuse), 1);
    return start_of(word);
  }
}

size_t hak_huge_cache_trim(size_t keep) {
  try_again(TRIES, 0);
  return evict_above(keep);
}

#define AWAIT_MOST 64
bool hak_huge_cache_await(unsigned tries) {
  if (tries == AWAIT_MOST || hak_load_relaxed(&held) == 0) return false;
  hak_os_sleep_ms(1);
  return true;
}

// Kept memory is in SuperSlabs or in places. The kernel refuses memory (but not address space)
// by sums (strict overcommit, RLIMIT_DATA) or by the length alone (of one mapping, all memory and
// swap). So if it also refuses the request less all kept bytes, giving those back is in vain.
// Address space and the number of mappings are not such sums: if one of these may be short, giving
// back is tried, as under RLIMIT_AS, where reserved address space goes back as well.
HAK_COLD bool hak_huge_cache_may_serve(size_t size) {
  size_t limit = hak_os_address_limit();
  if (limit != SIZE_MAX) return size < limit;
  // All relaxed: what others give or take meanwhile could as well have come a moment later.
  uint64_t most =
      hak_load_relaxed(&hak_mapped.superslab_bytes) + hak_load_relaxed(&hak_mapped.cached_bytes);
  if (hak_load_relaxed(&refused[0]) || hak_load_relaxed(&refused[1])) return true;
  if (size <= most) return true;
  size = hak_align_up(size - most, hak_os_page_size);
  void *p = hak_os_map(size, hak_os_page_size);
  if (p) {
    hak_huge_cache_unmap(p, size);
    return true;
  }
  size += hak_align_up(most, hak_os_page_size);
  if (!(p = hak_os_reserve(size, hak_os_page_size))) return true;
  hak_os_unmap(p, size); // if that is refused, address space is lost, but no memory
  return false;
}

void hak_huge_cache_tend(void) {
  uint64_t now = hak_os_clock_ms();
  if (none_stays()) evict_above(0);
  if ((int64_t)(now - hak_load_relaxed(&needed_at)) >= CALM_MS) {
    hak_store_relaxed(&needed_at, now); // once per period: threads that end call this more often
    uint64_t half = hak_load_relaxed(&learnt) / 2;
    hak_store_relaxed(&learnt, half < BOUND_MIN ? 0 : half);
    hak_store_relaxed(&swung, hak_load_relaxed(&swung) / 2);
  }
  // Kept bytes beyond what the peak allows go back too: mappings that are used a little stay young.
  if ((int64_t)(now - hak_load_relaxed(&peak_since)) >= CALM_MS) {
    hak_store_relaxed(&peak_since, now);
    hak_store_relaxed(&peak_before, hak_load_relaxed(&peak));
    uint64_t live = hak_load_relaxed(&hak_mapped.huge_bytes);
    hak_store_relaxed(&peak, live);
    evict_above(beside(live));
    try_again(TRIES_AT_LEISURE, 0);
  }
  for (unsigned i = 0; i < PLACES; i++) {
    uint64_t word = hak_load_relaxed(&cache.place[i]);
    // Signed: it may have been put after the clock was read.
    if (word && (int64_t)(now - hak_load_relaxed(&put_at[i])) >= CALM_MS) evict(i, word, ALL_OF_IT);
  }
}

// A kept mapping contains no block. But fork may have copied pages of entries before these were
// taken (also those of joined parts), or after others were set, or the root before it had the leaf.
static void forget(char *p, size_t size) {
  for (char *end = p + size; p < end; p += HAK_SUPERSLAB_SIZE) {
    hak_pagemap_entry_t *entry = hak_pagemap_entry(p);
    if (entry) hak_store_if_other(entry, (uint64_t)0);
  }
}

void hak_huge_cache_after_fork(void) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < PLACES; i++) {
    uint64_t word = hak_load_relaxed(&cache.place[i]);
    if (!word) continue;
    // The page of places_used may have been copied before it was raised.
    if (hak_load_relaxed(&places_used) <= i) hak_store_relaxed(&places_used, i + 1);
    forget(start_of(word), length_of(word));
    if (hak_pagemap_prepare(start_of(word))) {
      sum += length_of(word);
    } else {
      hak_store_relaxed(&cache.place[i], (uint64_t)0);
      hak_os_unmap(start_of(word), length_of(word));
    }
  }
  hak_store_if_other(&held, sum);
  uint64_t had = hak_load_relaxed(&hak_mapped.cached_bytes);
  if (had != sum) hak_mapped_add(&hak_mapped.cached_bytes, (int64_t)(sum - had));
  // For the same reason a stack's links may be older than its top: the child forgets the stacks.
  for (unsigned i = 0; i < 2; i++) hak_store_if_other(&refused[i], (hak_refused_t *)NULL);
}
