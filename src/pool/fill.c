#include "pool/fill.h"

#include <errno.h>

#include "core/options.h"
#include "os/os.h"
#include "superslab/superslab.h"

// This many times the sample's bytes get huge pages, or as many bytes as are in use if that is
// more: a growing program is sampled again each time it has about doubled.
#define TRUST 8
// Where blocks may be of several kinds, each sample that is not in use doubles the number of
// samples in a row that must be in use before there is trust again: from 2 to NEEDED.
#define NEEDED 8
// A thread may still be writing to a huge block, so the block is looked at when that thread
// requests another, or when other threads have requested this many.
#define OTHERS 8
// Clearing in vain costs no memory that was not kept anyway.
#define TRUST_WHEN_FREED 32
// Where there are doubts, this many bytes go without (huge pages, or clearing) before another look.
// Few, because a sample may have been looked at before the program wrote to it.
#define DOUBT ((int64_t)16 << 20)

static bool is_asker(const hak_fill_t *fill) {
  return !fill->huge || hak_load_relaxed(&fill->asker) == (const void *)&errno;
}

static uint64_t in_use(void) {
  return hak_load_relaxed(&hak_mapped.huge_bytes) + hak_load_relaxed(&hak_mapped.superslab_bytes);
}

bool hak_fill_allowed(size_t more) {
  return hak_option(THP) == HAK_THP_AUTO && in_use() + more >= HAK_THP_MIN_BYTES;
}

void hak_fill_sample(hak_fill_t *fill, void *p, size_t size) {
  if (hak_load_relaxed(&fill->sample) && !is_asker(fill)) return;
  hak_store_relaxed(&fill->size, size);
  hak_store_relaxed(&fill->asker, (const void *)&errno);
  hak_store_relaxed(&fill->others, 0u);
  hak_store_relaxed(&fill->sample, p);
}

// A pseudo-random number between half and one and a half times as many bytes: exact doubling would
// find samples of the same kind each time where a program requests two kinds in turn.
static int64_t about(int64_t bytes) {
  uint32_t random = (uint32_t)(bytes >> 12) * 0x9e3779b9u >> 24;
  return bytes / 2 + bytes / 256 * random;
}

// Whether, with this one, as many samples in a row as needed were in use.
static bool enough_in_a_row(hak_fill_t *fill, bool filled, uint32_t needed) {
  uint32_t row = hak_load_relaxed(&fill->row) + 1;
  bool enough = filled && row >= needed;
  if (!filled && needed < NEEDED) needed = needed ? 2 * needed : 2;
  else if (enough) needed /= 2;
  hak_store_relaxed(&fill->needed, needed);
  hak_store_relaxed(&fill->row, filled && !enough ? row : 0);
  return enough;
}

void hak_fill_learn(hak_fill_t *fill, void *p) {
  int64_t size = (int64_t)hak_load_relaxed(&fill->size), used = (int64_t)in_use();
  hak_store_relaxed(&fill->sample, NULL);
  hak_fill_found_t found =
      fill->look ? fill->look(p, (size_t)size) : hak_os_filled(p, (size_t)size);
  if (found == HAK_FILL_LATER) {
    hak_store_relaxed(&fill->sample, p);
    return;
  }
  bool filled = found == HAK_FILL_YES;
  hak_store_relaxed(&fill->filled, filled);
  if (fill->huge) {
    uint32_t needed = hak_load_relaxed(&fill->needed);
    filled = enough_in_a_row(fill, filled, needed);
    used = needed < 2 ? about(used) : 0; // little is known of mixed kinds: trust few bytes
  }
  int64_t trusted = size * (fill->when_freed ? TRUST_WHEN_FREED : TRUST);
  if (trusted < used) trusted = used;
  hak_store_relaxed(&fill->trusted, filled ? trusted : fill->doubts ? -DOUBT : 0);
}

bool hak_fill_expected(hak_fill_t *fill, size_t more) {
  int64_t trusted = hak_load_relaxed(&fill->trusted);
  if (trusted < 0) {
    trusted += (int64_t)more;
    hak_store_relaxed(&fill->trusted, trusted < 0 ? trusted : 0);
    return false;
  }
  void *p = hak_load_relaxed(&fill->sample);
  if (p && trusted < (int64_t)more && !fill->when_freed &&
      (is_asker(fill) || hak_fetch_add_relaxed(&fill->others, 1u) >= OTHERS))
    hak_fill_learn(fill, p);
  if (hak_load_relaxed(&fill->trusted) < (int64_t)more) return false;
  hak_fetch_sub_relaxed(&fill->trusted, (int64_t)more);
  return true;
}
