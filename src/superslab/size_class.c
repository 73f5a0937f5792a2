#include "superslab/size_class.h"

// Eight classes per doubling, and none closer than HAK_MIN_BLOCK.
#define DOUBLING(bytes) (63 - __builtin_clzll((uint64_t)(bytes) - 1))
#define SPACING(bytes) (1u << (DOUBLING((bytes) < 256 ? 256 : (bytes)) - 3 - HAK_MIN_SHIFT))

// Part of what a slab or run has left over behind its blocks goes before them instead
// (colours); the class of 1 KiB gives up a block for that. Blocks of whole pages stay aligned
// to pages, and blocks below 1 KiB keep alignments of 256 and 512, which a program may ask for.
#define GIVEN_UP(bytes) ((bytes) == 1024)
#define CAPACITY(bytes, slabs) ((slabs) * HAK_SLAB_SIZE / (bytes) - GIVEN_UP(bytes))
#define LEFT_OVER(bytes, slabs) ((slabs) * HAK_SLAB_SIZE - CAPACITY(bytes, slabs) * (bytes))
#define COLOURED(bytes) ((bytes) % ((bytes) < 1024 ? 2 * HAK_COLOUR : 4096) != 0)
#define BELOW(a, b) ((a) < (b) ? (a) : (b))
#define COLOURS(bytes, slabs) \
  (COLOURED(bytes) ? BELOW(LEFT_OVER(bytes, slabs), (bytes) - 1) / HAK_COLOUR + 1 : 1)

const hak_class_info_t hak_classes[HAK_CLASSES] = {
#define HAK_SIZE_CLASS(number, bytes, slabs) \
  [number] = {.size = (bytes), \
              .capacity = (uint16_t)CAPACITY(bytes, slabs), \
              .run = (slabs), \
              .colours = (uint8_t)COLOURS(bytes, slabs), \
              .spacing = (uint8_t)(SPACING(bytes) - 1)},
#include "superslab/size_classes.def"
};

// Ends and spacings are multiples of the step.
#define FIRST_STEP(bytes) (((bytes) - SPACING(bytes) * HAK_MIN_BLOCK) / HAK_L2_STEP)
const uint8_t hak_l2_class_of[HAK_L2_MAX / HAK_L2_STEP] = {
#define HAK_SIZE_CLASS(number, bytes, slabs)
#define HAK_L2_CLASS(number, bytes, slabs) \
  [FIRST_STEP(bytes)...(bytes) / HAK_L2_STEP - 1] = (number) - HAK_TINY_CLASSES,
#include "superslab/size_classes.def"
};

#define HAK_SIZE_CLASS(number, bytes, slabs) \
  _Static_assert(SPACING(bytes) <= UINT8_MAX + 1, "the spacing fits its field"); \
  _Static_assert(COLOURS(bytes, slabs) <= UINT8_MAX, "the colours fit their field"); \
  _Static_assert((slabs) <= HAK_SLABS_PER_SUPERSLAB, "a run fits a SuperSlab"); \
  _Static_assert((bytes) % HAK_MIN_BLOCK == 0, "blocks keep 16-byte alignment"); \
  _Static_assert((number) < HAK_TINY_CLASSES \
                     ? (bytes) <= HAK_TINY_MAX && (slabs) == 1 \
                     : (bytes) > HAK_TINY_MAX && \
                           (slabs) * HAK_SLAB_SIZE / (bytes) <= HAK_L2_BLOCKS_MAX, \
                 "tiny classes use one slab, L2 blocks fit the mask");
#include "superslab/size_classes.def"
