#include "pool/fill.h"

#include "core/options.h"
#include "os/os.h"
#include "superslab/superslab.h"

// So many times the sample's bytes get huge pages, or as many as are in use if that is more:
// a program that grows is asked again each time it has doubled.
#define TRUST 8

static uint64_t in_use(void) {
  return hak_load_relaxed(&hak_mapped.huge_bytes) + hak_load_relaxed(&hak_mapped.superslab_bytes);
}

bool hak_fill_allowed(size_t more) {
  return hak_option(THP) == HAK_THP_AUTO && in_use() + more >= HAK_THP_MIN_BYTES;
}

void hak_fill_learn(hak_fill_t *fill, void *p) {
  size_t size = hak_load_relaxed(&fill->size);
  hak_store_relaxed(&fill->sample, NULL);
  int64_t trusted = 0;
  if (hak_os_filled(p, size))
    trusted = in_use() > (uint64_t)size * TRUST ? (int64_t)in_use() : (int64_t)size * TRUST;
  hak_store_relaxed(&fill->trusted, trusted);
}

bool hak_fill_expected(hak_fill_t *fill, size_t more) {
  void *p = hak_load_relaxed(&fill->sample);
  if (p && hak_load_relaxed(&fill->trusted) < (int64_t)more) hak_fill_learn(fill, p);
  if (hak_load_relaxed(&fill->trusted) < (int64_t)more) return false;
  hak_fetch_sub_relaxed(&fill->trusted, (int64_t)more);
  return true;
}
