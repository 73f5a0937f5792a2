// fill.h: whether a program uses what it asks for in full, learnt from samples: blocks that
// have no huge pages. Of memory that has them every page is resident.
//
// All relaxed: what is learnt steers, nothing is read or written by it. If the sample is gone by
// the time it is looked at, or another's, its pages tell as much or nothing.
// docs/decisions/0034-dense-huge-blocks.md. Tests: test/unit/test_huge.c, test_growth.c.

#ifndef HAK_POOL_FILL_H
#define HAK_POOL_FILL_H

#include "base/types.h"

typedef enum { HAK_FILL_NO, HAK_FILL_YES, HAK_FILL_LATER } hak_fill_found_t; // LATER: look again

typedef struct {
  _Atomic(void *) sample;      // NULL: none
  _Atomic size_t size;         // of the sample
  _Atomic int64_t trusted;     // bytes that may have huge pages before another sample is looked at;
                               // negative: bytes that go without before
  _Atomic bool filled;         // what the last look found
  _Atomic(const void *) asker; // if huge: thread that asked for the sample, by its errno's address
  _Atomic uint32_t others;     // and how many others asked for since then
  _Atomic uint32_t row;        // samples that were in use, one after the other,
  _Atomic uint32_t needed;     // of so many before there is trust again
  bool huge;       // whether blocks take long to be written, and may be of several kinds by turns
  bool doubts;     // whether a look that finds a sample not in use is the last for a while
  bool when_freed; // whether samples are looked at only when they are freed
  hak_fill_found_t (*look)(const void *p, size_t size); // at the sample; NULL: hak_os_filled
} hak_fill_t;

// Whether so much is in use, with `more` bytes, that huge pages are worth it, and
// HAKMEM_THP leaves it to be judged.
bool hak_fill_allowed(size_t more);
// Whether `more` bytes will be used in full; they are taken off what is trusted, or doubted.
bool hak_fill_expected(hak_fill_t *fill, size_t more);
// p has no huge pages: it may be the next sample.
void hak_fill_sample(hak_fill_t *fill, void *p, size_t size);
// The sample, which is p, is about to go: what it tells, now.
void hak_fill_learn(hak_fill_t *fill, void *p);

// p is about to go. It tells, if it is the sample and there are no doubts.
HAK_INLINE void hak_fill_freed(hak_fill_t *fill, void *p) {
  if (p == hak_load_relaxed(&fill->sample) && hak_load_relaxed(&fill->trusted) >= 0)
    hak_fill_learn(fill, p);
}

// Blocks turn out to be less in use than the sample was: nothing is trusted before another look.
HAK_INLINE void hak_fill_mistrust(hak_fill_t *fill) {
  if (hak_load_relaxed(&fill->trusted) > 0) hak_store_relaxed(&fill->trusted, (int64_t)0);
}

// p is not where or as long as it was.
HAK_INLINE void hak_fill_forget(hak_fill_t *fill, const void *p) {
  if (p == hak_load_relaxed(&fill->sample)) hak_store_relaxed(&fill->sample, (void *)NULL);
}

#endif
