// regret.h: whether memory may go back before it has been idle for long is learnt. That
// some of it is needed again soon after is a regret; a few of them make a pause, and
// each pause is twice as long as the one before. It ends early if SuperSlab memory has
// grown by an eighth, where its size is told: a load that grows does not live on what the
// pause keeps.
//
// Any thread, all relaxed: they steer, nothing depends on them. Times are in ms of
// hak_os_clock_ms.

#ifndef HAK_BASE_REGRET_H
#define HAK_BASE_REGRET_H

#include "base/atomic.h"

#define HAK_PAUSE_MAX_MS 64000

// Whether ms have passed since *last, which then is now: true for one of those that ask. Signed,
// as another thread may have asked the clock later, and stored it before.
HAK_INLINE bool hak_is_due(_Atomic uint64_t *last, uint64_t now, int64_t ms) {
  uint64_t before = hak_load_relaxed(last);
  return (int64_t)(now - before) >= ms && hak_cas_relaxed(last, &before, now);
}

typedef struct {
  _Atomic uint32_t count, pause;   // regrets since the last pause; its length
  _Atomic uint64_t done_at, until; // memory went back; the pause ends
  _Atomic uint64_t size;           // bytes of SuperSlabs when the pause began
} hak_regret_t;

#define HAK_PAUSE_GROWTH_MIN ((uint64_t)16 << 20)

// What one kind of memory allows: a regret is what is needed again within `soon` ms, `few` of
// them make a pause. It has `least` ms, or twice as many as the last one if that ended less
// than HAK_PAUSE_MAX_MS ago; never more than `most`.
typedef struct {
  uint32_t soon, few, least, most;
} hak_regret_rule_t;

// Whether there is a pause at the moment, with so many bytes of SuperSlabs (0: growth does not
// matter).
HAK_INLINE bool hak_regret_pauses(hak_regret_t *regret, uint64_t now, uint64_t size) {
  if (now >= hak_load_relaxed(&regret->until)) return false;
  uint64_t before = hak_load_relaxed(&regret->size), more = before / 8;
  if (size < before + (more > HAK_PAUSE_GROWTH_MIN ? more : HAK_PAUSE_GROWTH_MIN)) return true;
  hak_store_relaxed(&regret->until, now);
  return false;
}

// Memory goes back now.
HAK_INLINE void hak_regret_done(hak_regret_t *regret, uint64_t now) {
  hak_store_relaxed(&regret->done_at, now);
}

// Memory like that is needed: a regret, if it went back so soon before. None in a pause, for
// what is needed then went back before it, and the same load would make it longer and longer.
HAK_INLINE void hak_regret_needed(hak_regret_t *regret, uint64_t now, uint64_t size,
                                  hak_regret_rule_t rule) {
  if (now - hak_load_relaxed(&regret->done_at) > rule.soon || hak_regret_pauses(regret, now, size))
    return;
  if (hak_fetch_add_relaxed(&regret->count, 1) + 1 < rule.few) return;
  bool again = now - hak_load_relaxed(&regret->until) < HAK_PAUSE_MAX_MS;
  uint32_t pause = again ? 2 * hak_load_relaxed(&regret->pause) : 0;
  if (pause < rule.least) pause = rule.least;
  if (pause > rule.most) pause = rule.most;
  hak_store_relaxed(&regret->pause, pause);
  hak_store_relaxed(&regret->size, size);
  hak_store_relaxed(&regret->until, now + pause);
  hak_store_relaxed(&regret->count, 0u);
}

#endif
