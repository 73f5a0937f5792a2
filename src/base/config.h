// config.h: the constants of the layout, shift first, sizes derived.

#ifndef HAK_BASE_CONFIG_H
#define HAK_BASE_CONFIG_H

#include "base/compiler.h"

#define HAK_MIN_SHIFT 4 // smallest block and alignment of every block: 16 bytes
#define HAK_MIN_BLOCK ((size_t)1 << HAK_MIN_SHIFT)

#define HAK_SLAB_SHIFT 16 // 64 KiB
#define HAK_SLAB_SIZE ((size_t)1 << HAK_SLAB_SHIFT)
#define HAK_SUPERSLAB_SHIFT 21 // 2 MiB: one x86-64 huge page
#define HAK_SUPERSLAB_SIZE ((size_t)1 << HAK_SUPERSLAB_SHIFT)
#define HAK_SLABS_SHIFT (HAK_SUPERSLAB_SHIFT - HAK_SLAB_SHIFT)
#define HAK_SLABS_PER_SUPERSLAB (1u << HAK_SLABS_SHIFT)

#define HAK_TINY_MAX ((size_t)1280) // one slab, many blocks: docs/decisions/0015-end-of-tiny.md
// Colours: blocks of a large power of two, or a multiple of one, would begin in few of the 64
// sets of a cache. So slabs and runs begin with a gap of some HAK_COLOUR bytes (size_class.c):
// docs/decisions/0013-colour.md, 0025-single-thread.md
#define HAK_COLOUR ((size_t)128)
#define HAK_L2_MAX ((size_t)56 << 10)      // a run of slabs, 8 to 46 blocks
#define HAK_L25_MAX ((size_t)1 << 20)      // a run of 1 to 16 slabs, one block
#define HAK_SIZE_MAX ((size_t)PTRDIFF_MAX) // larger requests are ENOMEM

#define HAK_TINY_CLASSES 34
#define HAK_L2_CLASSES 44
#define HAK_CLASSES (HAK_TINY_CLASSES + HAK_L2_CLASSES)
#define HAK_TINY_STEPS ((HAK_TINY_MAX >> HAK_MIN_SHIFT) + 1) // entries of heap->tiny
#define HAK_L2_BLOCKS_MAX 62 // bits 0..61 of a mask; bit 63 is HAK_REMOTE_QUEUED

// SuperSlab numbers: 2^20 of them are 2 TiB of blocks up to 1 MiB. Descriptors
// are reserved for as many as the address space at start allows.
#define HAK_SUPERSLABS_MAX_SHIFT 20
#define HAK_SUPERSLABS_MAX ((uint32_t)1 << HAK_SUPERSLABS_MAX_SHIFT)

// HAKMEM_THP=auto: a SuperSlab that will fill, committed while this many bytes are in use, gets
// a huge page; half of the last one lies idle on average, 3 % of that.
#define HAK_THP_MIN_BYTES ((uint64_t)32 << 20)

// User addresses that can be ours: below 2^48 (5-level addresses are never
// asked for, so a pointer above is foreign).
#define HAK_ADDRESS_BITS 48
#if defined(__x86_64__)
#define HAK_ADDRESS_USER_BITS 47
#else
#define HAK_ADDRESS_USER_BITS HAK_ADDRESS_BITS
#endif
#define HAK_ADDRESS_END ((size_t)1 << HAK_ADDRESS_USER_BITS) // no block is that large

// Deferred remote frees: a direct-mapped map of this many slabs per thread.
// 64 entries: docs/decisions/0003, 0023.
#define HAK_REMOTE_MAP_SHIFT 6
#define HAK_REMOTE_MAP_SIZE (1u << HAK_REMOTE_MAP_SHIFT)
#define HAK_REMOTE_LEAVING 8 // that many had to make room in it and are handed over together

// Letters (thread/letter.h): a thread has so many, each with room for so many L2 blocks.
#define HAK_LETTERS 6
#define HAK_LETTER_HINTS 24

// Rings (row M3): the most entries an L2 class and the L2.5 ring can have, of which
// HAKMEM_L2_RING_CAP and HAKMEM_L25_RING_CAP can ask for less. make L2_RING=n L25_RING=n.
#ifndef HAK_L2_RING
#define HAK_L2_RING 48
#endif
#define HAK_L2_RING_MIN 8  // a class starts with so many and gets more if that helps (row M4)
#define HAK_RING_HINTS 464 // all L2 classes of a thread share so many
#define HAK_CROWD 8        // threads that may each keep what they are likely to need again
#define HAK_THIN 8         // slabs that wait to be given to a commons (thread/commons.h)
#define HAK_SPARSE 8       // L2 runs that wait to be trimmed or given back (thread/sparse.h)
#ifndef HAK_L25_RING
#define HAK_L25_RING 16
#endif

// New threads that nurseries serve at the same time (thread/nursery.h), and what no two of
// them may share.
#define HAK_NURSERIES 32
#define HAK_CACHE_LINE ((size_t)64)

// Slabs that HAKMEM_WARM_POOL_FILL may ask for: a thread's warm pool when it begins.
#define HAK_WARM_FILL_MAX 16

// Blocks that the secure library's quarantine of a thread holds at most (a power of two).
#define HAK_HELD 128

_Static_assert(HAK_L2_RING >= 1 && HAK_L2_RING <= 64 && HAK_L25_RING >= 1 && HAK_L25_RING <= 32,
               "rings have 1 to 64 and 1 to 32 entries");
_Static_assert(HAK_L2_MAX < HAK_SLAB_SIZE, "L2 blocks are smaller than a slab");
_Static_assert(HAK_L25_MAX <= HAK_SUPERSLAB_SIZE / 2, "an L2.5 run fits a SuperSlab twice");

#endif
