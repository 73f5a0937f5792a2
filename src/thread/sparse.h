// sparse.h: slabs of a heap that have few live blocks give the other OS pages back
// (row M5; docs/decisions/0027-pages-in-use.md).
//
// A slab that became sparse waits until HAK_SPARSE others have, as it may soon be empty
// and go back whole. Whether that pays is learnt: pages that are needed again soon are a
// regret, and after a few of them nothing is given back until there was none for a while.
//
// Owner only. Tests: test/unit/test_sparse.c.

#ifndef HAK_THREAD_SPARSE_H
#define HAK_THREAD_SPARSE_H

#include "base/types.h"

// Live blocks at which free raises the event next for a PARTIAL slab: see HAK_FREES_BIAS.
uint64_t hak_sparse_mark(const hak_slab_t *slab);
// A PARTIAL slab has got so few live blocks that pages of it may be free.
void hak_sparse_add(hak_heap_t *heap, hak_slab_t *slab);
// Blocks of an L2 run were forgotten by their ring: the class shrinks.
void hak_sparse_look(hak_heap_t *heap, hak_slab_t *run);
// A slab with absent pages goes to the front.
void hak_sparse_needed(hak_heap_t *heap);
// All that wait are looked at now / if they have waited long.
void hak_sparse_flush(hak_heap_t *heap);
void hak_sparse_tend(hak_heap_t *heap);
// Trims every PARTIAL slab.
void hak_sparse_trim_all(hak_heap_t *heap);

#endif
