// config.h: the layout constants, given as shifts, with sizes derived from them.

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
// Colours: blocks whose size is a large power of two, or a multiple of one, would begin in few of
// the 64 sets of a cache. So slabs and runs begin with a gap of some HAK_COLOURs (size_class.c):
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

// SuperSlab numbers: 2^20 of them cover 2 TiB of blocks up to 1 MiB. Descriptors
// are reserved for as many as the address space at start allows.
#define HAK_SUPERSLABS_MAX_SHIFT 20
#define HAK_SUPERSLABS_MAX ((uint32_t)1 << HAK_SUPERSLABS_MAX_SHIFT)

// HAKMEM_THP=auto: a SuperSlab that will fill gets a huge page if it is committed while this many
// bytes are in use. On average half of the last huge page lies idle, 3 % of this amount.
#define HAK_THP_MIN_BYTES ((uint64_t)32 << 20)

// User addresses that HAKMEM can have: below 2^48 (it never asks for 5-level addresses,
// so a pointer above is foreign).
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
#define HAK_REMOTE_LEAVING 8 // entries that had to leave the map, to be handed over together

// Letters (thread/letter.h): number per thread, and L2 blocks that each has room for.
#define HAK_LETTERS 6
#define HAK_LETTER_HINTS 24

// Rings (row M3): maximum entries of the ring of an L2 class and of the L2.5 ring;
// HAKMEM_L2_RING_CAP and HAKMEM_L25_RING_CAP can lower them. make L2_RING=n L25_RING=n.
#ifndef HAK_L2_RING
#define HAK_L2_RING 48
#endif
#define HAK_L2_RING_MIN 8  // a class starts with this many and gets more if that helps (row M4)
#define HAK_RING_HINTS 464 // shared by all L2 classes of a thread
#define HAK_CROWD 8        // threads that may each keep what they are likely to need again
#define HAK_THIN 8         // slabs that wait to be given to a commons (thread/commons.h)
#define HAK_SPARSE 8       // L2 runs that wait to be trimmed or given back (thread/sparse.h)
#ifndef HAK_L25_RING
#define HAK_L25_RING 16
#endif

// Number of nurseries for new threads (thread/nursery.h), and the size of a cache line: no two of
// these threads may share one.
#define HAK_NURSERIES 32
#define HAK_CACHE_LINE ((size_t)64)

// Maximum of HAKMEM_WARM_POOL_FILL: slabs in a thread's warm pool when the thread begins.
#define HAK_WARM_FILL_MAX 16

// Maximum number of blocks in a thread's quarantine in the secure library (a power of two).
#define HAK_HELD 128

_Static_assert(HAK_L2_RING >= 1 && HAK_L2_RING <= 64 && HAK_L25_RING >= 1 && HAK_L25_RING <= 32,
               "rings have 1 to 64 and 1 to 32 entries");
_Static_assert(HAK_L2_MAX < HAK_SLAB_SIZE, "L2 blocks are smaller than a slab");
_Static_assert(HAK_L25_MAX <= HAK_SUPERSLAB_SIZE / 2, "an L2.5 run fits a SuperSlab twice");

#endif
