// regret.h: whether memory may go back before it has been idle for long is learnt. That
// some of it is needed again soon after is a regret; after HAK_REGRETS of them there is a
// pause, each twice as long as the one before.
//
// Any thread, all relaxed: they steer, nothing depends on them. Times are in ms of
// hak_os_clock_ms.

#ifndef HAK_BASE_REGRET_H
#define HAK_BASE_REGRET_H

#include "base/atomic.h"

#define HAK_REGRETS 4
#define HAK_PAUSE_MAX_MS 64000

typedef struct {
  _Atomic uint32_t count, pause;       // regrets since the last pause; its length
  _Atomic uint64_t done_at, needed_at; // memory went back; the last regret
} hak_regret_t;

// Whether there is a pause at the moment.
HAK_INLINE bool hak_regret_pauses(hak_regret_t *regret, uint64_t now) {
  if (hak_load_relaxed(&regret->count) < HAK_REGRETS) return false;
  if (now - hak_load_relaxed(&regret->needed_at) < hak_load_relaxed(&regret->pause)) return true;
  hak_store_relaxed(&regret->count, 0u);
  return false;
}

// Memory goes back now.
HAK_INLINE void hak_regret_done(hak_regret_t *regret, uint64_t now) {
  hak_store_relaxed(&regret->done_at, now);
}

// Memory like that is needed: a regret, if it went back within soon ms. The first pause has
// `least` ms, no pause more than `most`.
HAK_INLINE void hak_regret_needed(hak_regret_t *regret, uint64_t now, uint32_t soon, uint32_t least,
                                  uint32_t most) {
  if (now - hak_load_relaxed(&regret->done_at) > soon) return;
  if (hak_fetch_add_relaxed(&regret->count, 1) + 1 == HAK_REGRETS) {
    bool again = now - hak_load_relaxed(&regret->needed_at) < HAK_PAUSE_MAX_MS;
    uint32_t pause = again ? 2 * hak_load_relaxed(&regret->pause) : 0;
    if (pause < least) pause = least;
    hak_store_relaxed(&regret->pause, pause < most ? pause : most);
  }
  hak_store_relaxed(&regret->needed_at, now);
}

#endif
