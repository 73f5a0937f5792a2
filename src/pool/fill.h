// fill.h: learns whether a program uses all of the memory it requests, from samples: blocks without
// huge pages. (In memory with huge pages every page is resident.)
//
// All relaxed: what is learnt only steers, no other word is read or written because of it. If the
// sample is gone when it is looked at, or is another block, its pages tell as much or nothing.
// docs/decisions/0034-dense-huge-blocks.md. Tests: test/unit/test_huge.c, test_growth.c.

#ifndef HAK_POOL_FILL_H
#define HAK_POOL_FILL_H

#include "base/types.h"

typedef enum { HAK_FILL_NO, HAK_FILL_YES, HAK_FILL_LATER } hak_fill_found_t; // LATER: look again

typedef struct {
  _Atomic(void *) sample;      // NULL: none
  _Atomic size_t size;         // of the sample
  _Atomic int64_t trusted;     // bytes that may have huge pages until the next look at a sample;
                               // negative: bytes that go without them until then
  _Atomic bool filled;         // what the last look found
  _Atomic(const void *) asker; // if huge: thread that requested the sample, by its errno's address
  _Atomic uint32_t others;     // number of blocks that others requested since then
  _Atomic uint32_t row;        // samples in a row that were in use
  _Atomic uint32_t needed;     // length that such a row must have to be trusted
  bool huge;       // whether blocks take long to be written, and may be of several kinds in turn
  bool doubts;     // whether a look that finds a sample not in use is the last one for a while
  bool when_freed; // whether samples are looked at only when they are freed
  hak_fill_found_t (*look)(const void *p, size_t size); // looks at the sample; NULL: hak_os_filled
} hak_fill_t;

// Whether HAKMEM_THP is auto and enough memory is in use, `more` bytes included, for huge
// pages to be worth it.
bool hak_fill_allowed(size_t more);
// Whether `more` bytes will be used in full; they are subtracted from the bytes trusted or doubted.
bool hak_fill_expected(hak_fill_t *fill, size_t more);
// p has no huge pages: it may be the next sample.
void hak_fill_sample(hak_fill_t *fill, void *p, size_t size);
// Looks at the sample, p, now, and learns from it.
void hak_fill_learn(hak_fill_t *fill, void *p);

// p is about to go. Learns from it if it is the sample and there are no doubts.
HAK_INLINE void hak_fill_freed(hak_fill_t *fill, void *p) {
  if (p == hak_load_relaxed(&fill->sample) && hak_load_relaxed(&fill->trusted) >= 0)
    hak_fill_learn(fill, p);
}

// Blocks turn out to be less used than the sample was: nothing is trusted before another look.
HAK_INLINE void hak_fill_mistrust(hak_fill_t *fill) {
  if (hak_load_relaxed(&fill->trusted) > 0) hak_store_relaxed(&fill->trusted, (int64_t)0);
}

// The address or length of p has changed.
HAK_INLINE void hak_fill_forget(hak_fill_t *fill, const void *p) {
  if (p == hak_load_relaxed(&fill->sample)) hak_store_relaxed(&fill->sample, (void *)NULL);
}

#endif
