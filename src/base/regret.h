// regret.h: learns whether memory may be given back before it has been idle for long. If
// memory that went back is needed again soon after, that is a regret. A few regrets cause a
// pause, and each pause is twice as long as the one before. A pause ends early if SuperSlab
// memory has grown by an eighth, where the caller passes its size: a growing load does not
// live on what the pause keeps.
//
// Any thread may call these. Relaxed: all words only steer, nothing depends on them. Times are
// in ms of hak_os_clock_ms.

#ifndef HAK_BASE_REGRET_H
#define HAK_BASE_REGRET_H

#include "base/atomic.h"
#include "base/bits.h"

#define HAK_PAUSE_MAX_MS 64000

// Whether ms have passed since *last, which is then set to now; true for only one of the threads
// that ask. Signed: another thread may have read the clock later but stored its time first.
HAK_INLINE bool hak_is_due(_Atomic uint64_t *last, uint64_t now, int64_t ms) {
  uint64_t before = hak_load_relaxed(last);
  return (int64_t)(now - before) >= ms && hak_cas_relaxed(last, &before, now);
}

typedef struct {
  _Atomic uint32_t count, pause;   // regrets since the last pause; the pause's length
  _Atomic uint64_t done_at, until; // times when memory last went back, and when the pause ends
  _Atomic uint64_t size;           // bytes of SuperSlabs when the pause began
} hak_regret_t;

#define HAK_PAUSE_GROWTH_MIN ((uint64_t)16 << 20)

// The rule for one kind of memory: it is a regret if memory is needed again within `soon` ms, and
// `few` regrets cause a pause. A pause lasts `least` ms, or twice as long as the last one if that
// ended less than HAK_PAUSE_MAX_MS ago; never more than `most` ms.
typedef struct {
  uint32_t soon, few, least, most;
} hak_regret_rule_t;

// Whether there is a pause at the moment. size: bytes of SuperSlabs now (0: growth does not
// matter).
HAK_INLINE bool hak_regret_pauses(hak_regret_t *regret, uint64_t now, uint64_t size) {
  if (now >= hak_load_relaxed(&regret->until)) return false;
  uint64_t before = hak_load_relaxed(&regret->size);
  if (size < before + hak_max(before / 8, HAK_PAUSE_GROWTH_MIN)) return true;
  hak_store_relaxed(&regret->until, now);
  return false;
}

// Memory goes back now.
HAK_INLINE void hak_regret_done(hak_regret_t *regret, uint64_t now) {
  hak_store_relaxed(&regret->done_at, now);
}

// Memory of this kind is needed: a regret if some went back within the last `soon` ms. Not in a
// pause: what is needed then went back before it, and the same load would make it ever longer.
HAK_INLINE void hak_regret_needed(hak_regret_t *regret, uint64_t now, uint64_t size,
                                  hak_regret_rule_t rule) {
  if (now - hak_load_relaxed(&regret->done_at) > rule.soon || hak_regret_pauses(regret, now, size))
    return;
  if (hak_fetch_add_relaxed(&regret->count, 1) + 1 < rule.few) return;
  bool again = now - hak_load_relaxed(&regret->until) < HAK_PAUSE_MAX_MS;
  uint32_t longer = again ? 2 * hak_load_relaxed(&regret->pause) : 0;
  uint32_t pause = (uint32_t)hak_min(hak_max(longer, rule.least), rule.most);
  hak_store_relaxed(&regret->pause, pause);
  hak_store_relaxed(&regret->size, size);
  hak_store_relaxed(&regret->until, now + pause);
  hak_store_relaxed(&regret->count, 0u);
}

#endif
