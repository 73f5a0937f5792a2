// audit.c: the last look at the free lists of the thread that ends the process (heap.h). Tests:
// test/abort/misuse.c.

#include "core/misuse.h"
#include "superslab/seal.h"
#include "superslab/slab.h"
#include "thread/heap.h"
#include "thread/nursery.h"
#include "thread/quarantine.h"

#define BLOCKS_MAX 2048 // blocks looked at in all: some microseconds
#define SLAB_BLOCKS 32  // a slab itself is as much work as this many blocks

#if HAK_SECURE

void hak_audit_at_exit(void) {
  hak_quarantine_audit(hak_tls_heap);
  hak_nursery_audit();
}

#else

typedef struct {
  hak_slab_t *slab;
  char *start;
  size_t size;
  uint32_t length;
  uint64_t seen[HAK_SLAB_SIZE / HAK_MIN_BLOCK / 64]; // bit i = block i is on the list
} audit_t;

// Checks block, to which the link of `before` leads. False: it is not a free block, or it is on the
// list for the second time. This has been reported.
static bool look(audit_t *audit, const char *block, const char *before) {
  size_t offset = (size_t)(block - audit->start);
  if (offset >= audit->slab->capacity * audit->size || offset % HAK_MIN_BLOCK) {
    hak_misuse_written(before ? before : audit->start, 0);
    return false;
  }
  uint32_t number;
  bool whole = hak_slab_block(audit->slab, block, &number);
  uint64_t bit = (uint64_t)1 << number % 64;
  bool again = audit->seen[number / 64] & bit;
  if (!whole) hak_misuse_interior("free", block, audit->start + number * audit->size, audit->size);
  else if (again) hak_misuse_double_free("free", block, audit->size);
  audit->seen[number / 64] |= bit;
  return whole && !again;
}

// False: no more blocks may be looked at.
static bool audit_slab(hak_slab_t *slab, uint32_t *left) {
  if (*left < SLAB_BLOCKS) return false;
  *left -= SLAB_BLOCKS;
  audit_t audit = {.slab = slab, .start = slab->start, .size = slab->size};
  const char *before = NULL;
  for (char *block = slab->free; block; before = block, block = hak_link_get(block)) {
    if (*left == 0) return false;
    if (!look(&audit, block, before)) return true;
    audit.length++;
    --*left;
  }
  // Negative where a signal handler ends the process in the middle of a call.
  int64_t lost = (int64_t)slab->carved - (int64_t)audit.length - (int64_t)hak_slab_live(slab);
  if (lost > 0 && slab->absent == 0 && slab->chains == 0) hak_slab_lost(slab, (uint64_t)lost);
  return true;
}

void hak_audit_at_exit(void) {
  hak_heap_t *heap = hak_tls_heap;
  if (heap == &hak_heap_none) return;
  hak_heap_drain(heap); // reports what was freed both here and by others
  uint32_t left = BLOCKS_MAX;
  for (unsigned c = 0; c < HAK_TINY_CLASSES; c++) {
    hak_slab_t *front = hak_heap_front(heap, c);
    if (front != &hak_slab_none && !audit_slab(front, &left)) return;
    for (uint32_t i = heap->partial[c]; i != 0; i = hak_slab_at(i)->next)
      if (!audit_slab(hak_slab_at(i), &left)) return;
  }
}

#endif
