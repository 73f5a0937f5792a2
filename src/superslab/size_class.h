// size_class.h: request size -> size class -> block size. Pure arithmetic and
// constant tables; test/unit/test_size_class.c compares them exhaustively.

#ifndef HAK_SUPERSLAB_SIZE_CLASS_H
#define HAK_SUPERSLAB_SIZE_CLASS_H

#include "base/bits.h"
#include "base/config.h"

typedef struct {
  uint32_t size;     // bytes per block
  uint16_t capacity; // blocks per slab or run
  uint8_t run;       // slabs per run
  uint8_t spacing;   // bytes to the class below, in HAK_MIN_BLOCKs, less one
  uint8_t colours;   // its slabs or runs begin with a gap of 0 to colours - 1 HAK_COLOURs
} hak_class_info_t;

HAK_INTERNAL extern const hak_class_info_t hak_classes[HAK_CLASSES];

// Class of a request of 1 .. HAK_L2_MAX bytes.
HAK_INLINE unsigned hak_size_class(size_t size) {
  if (size <= 128) return (unsigned)((size + 15) >> 4) - 1;
  unsigned top = hak_high_bit(size - 1);
  return 8 + (top - 7) * 8 + (unsigned)(((size - 1) >> (top - 3)) & 7);
}

// Whether HAK_TINY_MAX < size <= HAK_L2_MAX.
HAK_INLINE bool hak_size_is_l2(size_t size) {
  return size - (HAK_TINY_MAX + 1) < HAK_L2_MAX - HAK_TINY_MAX;
}

// The same as hak_size_class less HAK_TINY_CLASSES, for such a size. By a table, as finding the
// highest bit is eight operations on some processors: docs/decisions/0037-class-table.md
#define HAK_L2_STEP 128 // bytes: the least spacing of L2 classes
HAK_INTERNAL extern const uint8_t hak_l2_class_of[HAK_L2_MAX / HAK_L2_STEP];
HAK_INLINE unsigned hak_size_class_l2(size_t size) {
  return hak_l2_class_of[(size - 1) / HAK_L2_STEP];
}

// What a nursery allocates for a request of size bytes: its tiny blocks are whole cache lines,
// as no two threads may share one.
HAK_INLINE size_t hak_class_padded(size_t size) {
  if (size > HAK_TINY_MAX) return size;
  return size ? hak_align_up(size, HAK_CACHE_LINE) : HAK_CACHE_LINE;
}

HAK_INLINE size_t hak_class_size(unsigned size_class) { return hak_classes[size_class].size; }

// One of `colours` gaps, the first of which is none. number: of the slab, or of the run's first
// slab. Neighbours differ (a multiplicative hash), as do runs that begin at every second slab.
HAK_INLINE size_t hak_colour(size_t colours, uint32_t number) {
  uint32_t hash = (number * 0x9e3779b9u) >> 16;
  return ((size_t)hash * colours >> 16) * HAK_COLOUR;
}
// Bytes between the start of a slab or run and its first block.
HAK_INLINE size_t hak_class_gap(unsigned size_class, uint32_t number) {
  return hak_colour(hak_classes[size_class].colours, number);
}

// What to ask a class for so that blocks of size bytes are aligned: slabs and runs start at
// multiples of 64 KiB, and a size that is a multiple of a power of two has a class that is
// one too (test_size_class.c). alignment: a power of two up to that.
HAK_INLINE size_t hak_aligned_size(size_t size, size_t alignment) {
  size_t rounded = hak_align_up(size ? size : 1, alignment);
  if (alignment <= HAK_COLOUR) return rounded;
  // Blocks of a coloured class are aligned less: the next multiple whose class has no colours.
  while (rounded <= HAK_L2_MAX && hak_classes[hak_size_class(rounded)].colours > 1)
    rounded += alignment;
  return rounded;
}

// Whether a request of size bytes is served by the class; never for size 0.
HAK_INLINE bool hak_class_serves(unsigned size_class, size_t size) {
  const hak_class_info_t *info = &hak_classes[size_class];
  return (info->size - size) >> HAK_MIN_SHIFT <= info->spacing;
}

#endif
