// types.h: glossary and the hot structures. Read this first.
//
//   block       what malloc returns: memory of one caller.
//   size class  blocks of one size (16 B .. 56 KiB); see size_classes.def.
//   slab        64 KiB of a SuperSlab; blocks of one class, owned by one heap.
//   run         1..16 neighbouring slabs of one SuperSlab used as one; its
//               first slab is the head, the others are interior.
//   SuperSlab   2 MiB, 2 MiB-aligned, 32 slabs. Classes and heaps share it
//               slab by slab.
//   descriptor  hak_slab_t: 128 bytes per slab, kept apart from the blocks, so
//               that an overflow cannot reach it.
//   heap        hak_heap_t: what one thread allocates from; when the thread
//               ends the heap becomes an orphan and another thread takes it.
//   nursery     a heap that new threads share, call by call, until they have
//               allocated enough for one of their own.
//   commons     a heap without a thread, where slabs wait whose blocks are freed by
//               threads other than their owner (thread/commons.h).
//   owner       the thread that is attached to a slab's heap or has claimed it: the
//               only one that touches the slab's owner fields.
//   tiny, L2    classes up to 1280 bytes / up to 56 KiB.
//   L2.5        above 56 KiB, up to 1 MiB: one block per run, no owner.
//   huge        above 1 MiB: a mapping of its own.
//
//   range:   base                                   (one reservation)
//            | unused | SuperSlab 1 | SuperSlab 2 | ...
//   number:      0         1             2             SuperSlab number
//   slab index = SuperSlab number * 32 + slab in SuperSlab; index 0 is "none".
//
// Invariants (hak_heap_check walks them in debug builds):
//   I1  tiny slab: live + |free| + |chains| + |remote| + |absent| + uncarved = capacity,
//       where live counts blocks that the program holds or that wait in a remote map, and
//       allocs + frees_left - HAK_FREES_BIAS = live + |remote|.
//   I2  a block is on at most one list.
//   I3  only the owner writes owner fields.
//   I4  a slab is ACTIVE, PARTIAL, SPARE or FULL in one heap, or free in its
//       SuperSlab. A SPARE slab has no block in use and no freed block on its way to it.
//   I5  L2 run: live + popcount(mask) + popcount(remote) = capacity, where live includes
//       the blocks that are in a letter.

#ifndef HAK_BASE_TYPES_H
#define HAK_BASE_TYPES_H

#include "base/atomic.h"
#include "base/config.h"
#include "base/regret.h"

typedef struct hak_heap hak_heap_t;
typedef struct hak_slab hak_slab_t;
typedef struct hak_superslab hak_superslab_t;
typedef struct hak_ring hak_ring_t;

// What a slab is used for. The thread that acquires the slab sets it before the first block
// is handed out, so any thread that legitimately holds a block reads the right kind.
typedef enum {
  HAK_KIND_FREE = 0, // in its SuperSlab's free mask
  HAK_KIND_TINY,
  HAK_KIND_L2,
  HAK_KIND_L25,
  HAK_KIND_INTERIOR, // in a run, but not its head: see offset
  HAK_KIND_GUARD,    // kind of a block only: beside a guard page (thread/guard.h)
  HAK_KIND_FIRST,    // kind of a block only: a first block (thread/first.h)
} hak_kind_t;

// Where in its heap a tiny or L2 slab is (owner field).
typedef enum {
  HAK_PLACE_ACTIVE = 1, // in heap->tiny / heap->l2
  HAK_PLACE_PARTIAL,    // in heap->partial: has free or uncarved blocks
  HAK_PLACE_FULL,       // in no list; a free brings it back
  HAK_PLACE_SPARE,      // in heap->spare: unused, kept or prefilled
} hak_place_t;

// While a tiny slab is ACTIVE, allocs counts up from its number of live blocks and
// frees_left counts down from this bias. So once in about this many frees frees_left becomes
// negative, which is an event, and hak_tend_front sets both anew. When the slab leaves the
// front, allocs = BIAS + mark and frees_left = live - mark, so that frees_left becomes
// negative, and free notices, when live falls below mark.
// In every state live = allocs + frees_left - BIAS, for every thread that reads it.
#define HAK_FREES_BIAS ((uint64_t)1 << 10)
// Number of blocks that a ring hands out between two such events.
#define HAK_RING_HITS ((uint64_t)1 << 10)

// Word `remote` of a slab: the blocks that other threads freed and the owner has not yet
// taken back. Bit 63 is QUEUED: the slab is in some heap's inbox, or the thread
// that set the bit is about to put it there.
//   tiny: bits 0..47 first block of a chain, bits 48..62 its length
//   L2:   bit i = block i
// Word `chains` has the tiny format; 0 = none.
#define HAK_REMOTE_QUEUED ((uint64_t)1 << 63)
#define HAK_REMOTE_COUNT_SHIFT 48
#define HAK_REMOTE_POINTER_MASK (((uint64_t)1 << HAK_REMOTE_COUNT_SHIFT) - 1)

// Two cache lines. Every free reads the first, whoever owns the slab; it is written when the slab
// changes hands or an L2.5 block is resized, else rarely (thin, looked, roomy, early, zeroed). The
// second is the owner's; others touch it once per batch they hand over (docs/decisions/0002).
// The words that statistics read at any time are atomic whatever the slab is used for.
struct hak_slab {
  _Atomic(hak_heap_t *) local; // tiny: the owning heap; NULL sends free to the slow path
  union {
    _Atomic(hak_heap_t *) holder; // L2: the owning heap (local is NULL)
    hak_word_t bytes;             // L2.5: usable bytes of the block
  };
  char *start;                // address of block 0
  uint64_t inverse;           // tiny, L2: ceil(2^64 / size)
  hak_ring_t *ring;           // L2: the ring of the owner and class (owner field)
  uint32_t hint;              // L2: the hint that names block 0, see thread/ring.h
  uint32_t size;              // tiny, L2: bytes of a block
  uint16_t capacity;          // blocks in the slab or run
  uint16_t back;              // tiny, L2: number of free blocks at which a FULL slab is back in use
  _Atomic uint8_t size_class; // 0..HAK_CLASSES-1
  _Atomic uint8_t kind;       // hak_kind_t
  uint8_t run;                // slabs in the run (head)
  uint8_t offset;             // slabs back to the head of the run, 0 in the head
  bool zeroed;                // the memory was zero when the slab was acquired (owner); tiny:
                              // or its uncarved part was given back since (trim.c)
  uint8_t last_kind;          // of a free slab: its last kind, for messages
  // Some blocks may be of a larger class than requested. tiny: the slab once belonged to a
  // nursery; L2: some blocks were borrowed (thread/front.c).
  _Atomic bool roomy;
  bool early;      // what is absent may be needed again soon (owner, see sparse.c)
  uint16_t looked; // tiny: live blocks at the last look, and whether it was trimmed then; L2: see
                   // hak_sparse_look_from (owner)
  _Atomic uint16_t thin; // tiny: when it was given away as thin; 0: not lately (commons.c)

  _Alignas(64) union {
    void *free;    // tiny: LIFO list of free blocks (owner)
    uint64_t seen; // L2: blocks that were free at the last look (owner)
  };
  union {
    uint64_t chains; // tiny: chains taken back; a head's second word links the next (owner)
    char *first;     // L2: copy of start, in the mask's cache line (owner)
  };
  hak_word_t allocs; // tiny: see HAK_FREES_BIAS (owner word)
  union {
    hak_word_t frees_left; // tiny: negative = event (owner word)
    hak_word_t mask;       // L2: bit i = block i is free (owner word)
  };
  _Atomic uint64_t remote; // see HAK_REMOTE_*; protocol R1 in docs/concurrency.md
  uint32_t next, prev;     // links in heap->partial and (next only) spare: indices, 0 = end;
                           // the first slab's prev has no meaning (owner)
  uint32_t inbox_next;     // link in an inbox, valid while QUEUED (protocol R2)
  uint16_t carved;         // tiny: blocks ever on the free list; L2: ever handed out (owner)
  _Atomic uint8_t place;   // hak_place_t (owner); FULL is read by others (protocol R3)
  bool waits;              // tiny: was sparse at the last look; L2: is in heap->sparse (owner)
  uint64_t absent; // OS pages (tiny) or blocks (L2) given back to the system (owner, see trim.c)
};
#define HAK_SLAB_DESCRIPTOR_SHIFT 7
_Static_assert(sizeof(hak_slab_t) == 1 << HAK_SLAB_DESCRIPTOR_SHIFT, "two cache lines");

// Tiers (row S5), in one word with the free mask so that both change at once.
// USED_WELL: three quarters of the SuperSlab have been in use. DRAINING: since then, use
// has fallen to at most a quarter. Neither: HOT, or FREE if all bits are set.
#define HAK_SUPERSLAB_USED_WELL ((uint64_t)1 << 32)
#define HAK_SUPERSLAB_DRAINING ((uint64_t)1 << 33)

// BEFORE: advised until it was purged or trimmed. SPLIT: the kernel was asked to split it, too.
enum { HAK_HUGE_NO, HAK_HUGE_ADVISED, HAK_HUGE_BEFORE, HAK_HUGE_SPLIT };

enum { HAK_FORGOTTEN = 1, HAK_FORGOTTEN_PLACE }; // descriptors; for good: the place in the range

// Queues in which SuperSlabs wait until some others have followed (hak_superslab_wait).
enum { HAK_QUEUE_PURGE, HAK_QUEUE_FORGET, HAK_QUEUES };

struct hak_superslab {
  _Atomic uint64_t free_mask; // bit i < 32 = slab i is free, then HAK_SUPERSLAB_*; protocol P1
  _Atomic uint32_t dirty;     // bit i = slab i was used since the memory was last zero
  _Atomic uint32_t recent;    // bit i = slab i was released since the last look at idle ones
  uintptr_t base;             // first byte; written before free_mask is first nonzero
  _Atomic uint32_t huge;      // HAK_HUGE_*: memory that is not dirty may be resident nonetheless
  _Atomic uint32_t forgotten; // HAK_FORGOTTEN*: what was given back once
  _Atomic uint32_t waits[HAK_QUEUES]; // 1: it is in that queue
  _Atomic uint32_t purged; // bit i = slab i was not claimed since its pages were given back
  _Atomic uint32_t holes;  // OS pages that slabs in use gave back since it was advised
  uint32_t reserved[4];
};
_Static_assert(sizeof(hak_superslab_t) == 64, "no two SuperSlabs share a line");

// Remote frees this thread has not handed over yet, one slab per entry.
typedef struct {
  union {
    uint64_t chain; // tiny: as in `remote`, linked through the blocks' first word
    uint64_t mask;  // L2: likewise
  };
  uint32_t slab; // its index, 0: none
  uint16_t tail; // tiny: the chain's last block, as its offset in bytes modulo HAK_SLAB_SIZE
} hak_remote_entry_t;
_Static_assert(sizeof(hak_remote_entry_t) == 16 && HAK_SLAB_SHIFT == 16, "1 KiB for 64 of them");

// Hints at L2 blocks of another heap's runs that this thread freed, on their way to that heap: see
// thread/letter.h.
typedef struct hak_letter {
  hak_heap_t *owner;       // while it is being written: the heap it is for; else hak_heap_none
  struct hak_letter *next; // link in the mail of `to`, valid while sent (protocol R4)
  hak_heap_t *to;          // the heap it was last sent to
  uint32_t bytes;          // sum of the sizes of the blocks in it
  uint16_t count;          // number of blocks in it
  _Atomic bool sent;       // false: it belongs to its writer
  uint32_t hint[HAK_LETTER_HINTS]; // names the blocks, as in a ring; 0: none
} hak_letter_t;
_Static_assert(sizeof(hak_letter_t) == 128, "two cache lines");

// L2 ring of a class, see thread/ring.h.
struct hak_ring {
  uint32_t *hint;       // its part of heap->hints
  uint32_t count;       // hints in it, the newest last
  uint32_t capacity;    // hints that it has room for
  uint32_t size;        // of the class's blocks, in bytes
  uint16_t wanted;      // capacity that it has or will begin with
  bool missed;          // was found empty since it last was full
  uint8_t borrowed;     // blocks of larger classes used since the class last took a run instead
  hak_word_t hits_left; // of HAK_RING_HITS, see hak_tend_ring (owner word)
};

typedef struct {
  // Blocks handed out, without what the allocs words of ACTIVE tiny slabs count
  // (a value to be added modulo 2^64).
  hak_word_t allocs;
  hak_word_t refills; // times the front had to be refilled
  hak_word_t blocks;  // blocks those refills brought
} hak_class_stats_t;

// How well the warm pool has served a class (thread/warm.c): for statistics, and lately.
typedef struct {
  // Refills that needed a slab other than the front:
  _Atomic uint32_t hits;      // the warm pool had one
  _Atomic uint32_t misses;    // it had none: a trip to shared structures
  _Atomic uint32_t prefilled; // unused slabs those trips brought along
  uint32_t slabs;             // slabs of the class that the heap has
  uint8_t spares;             // SPARE ones among them
  uint8_t budget;             // unused slabs a trip brings along
  uint8_t had, lacked;        // hits and misses since the budget was last looked at
  uint8_t keep;               // emptied slabs that may stay
  uint8_t released;           // emptied slabs that did not stay, since the last miss
  uint8_t growth;             // fresh slabs taken in a row (up to 255)
} hak_warm_t;

typedef enum {
#define HAK_STAT(name, text) HAK_STAT_##name,
#include "base/stats.def"
  HAK_STATS
} hak_stat_t;
// The process's own counters. Relaxed: figures; heaps use tier_draining as the hint that another
// SuperSlab drains.
HAK_INTERNAL extern hak_word_t hak_counters[HAK_STATS];
#define hak_counter(name) hak_counters[HAK_STAT_##name]

// Heap states (protocol H1). CLAIMED: a thread works on an orphan for a moment
// without being attached to it.
#define HAK_HEAP_NEW 0u
#define HAK_HEAP_ATTACHED 1u
#define HAK_HEAP_ORPHAN 2u
#define HAK_HEAP_CLAIMED 3u
#define HAK_HEAP_DEAD 4u // its thread vanished in fork: frees are accepted, nothing is reused

// Orphan lists (protocol H2): all orphans; those with partial slabs; from _GROUP on, those with
// partial slabs of one group of classes. A group spans one doubling of the size.
#define HAK_ORPHAN_GROUP_SHIFT 3
#define HAK_ORPHAN_GROUPS (((HAK_CLASSES - 1) >> HAK_ORPHAN_GROUP_SHIFT) + 1)
enum {
  HAK_ORPHANS_ALL,
  HAK_ORPHANS_RICH,
  HAK_ORPHANS_GROUP,
  HAK_ORPHAN_LISTS = HAK_ORPHANS_GROUP + HAK_ORPHAN_GROUPS
};
_Static_assert(HAK_ORPHAN_LISTS <= 32, "heap->listed has a bit for each");

struct hak_heap {
  // Hot: one pointer per 16 bytes of request size; several entries of one class
  // hold the same slab. Never NULL: hak_slab_none stands in.
  hak_slab_t *tiny[HAK_TINY_STEPS];
  hak_slab_t *l2[HAK_L2_CLASSES];
  _Alignas(64) hak_ring_t ring[HAK_L2_CLASSES];
  uint32_t hints[HAK_RING_HINTS]; // of all L2 rings
  // Heads of the lists of PARTIAL slabs; padded to whole groups, for hak_orphan_leave.
  uint32_t partial[HAK_ORPHAN_GROUPS << HAK_ORPHAN_GROUP_SHIFT];
  uint32_t spare[HAK_CLASSES]; // heads of the lists of SPARE slabs (thread/warm.h)
  uint64_t grown;              // the blocks that realloc last made longer (api/malloc.c)
  uint32_t pending;            // bytes in remote_map
  uint32_t ticks;              // slow paths and emptied slabs since hak_tend_now (thread/tend.h)
  hak_remote_entry_t remote_map[HAK_REMOTE_LEAVING + HAK_REMOTE_MAP_SIZE]; // oldest first
  hak_letter_t letters[HAK_LETTERS];
  hak_letter_t *letter;   // the one of them that was written to last
  uint32_t leaving;       // number of taken places before the map (thread/remote.c)
  uint32_t letters_off;   // L2 blocks to hand over at once before another letter is begun
  uint16_t hints_used;    // hints that rings use, from the start
  uint16_t rings_refused; // times a ring got no places since all hints were last dropped
  bool kept_used;         // the L2.5 ring was asked since it was last tended
  bool kept_refused;      // a run did not stay in it since the last regret
  uint8_t kept_regrets;
  uint8_t ring_looked[HAK_L2_CLASSES]; // approximate state of each L2 ring at the last look
  uint32_t kept_count, kept_slabs;     // runs and slabs in kept
  uint32_t kept_most;                  // slabs that kept may hold; 0: not learnt yet
  uint64_t kept_used_at;               // ms
  uint32_t kept[HAK_L25_RING];         // freed runs, see thread/ring.c
  uint32_t sparse[HAK_SPARSE];         // L2 runs that wait, 0: none (thread/sparse.h)
  uint32_t sparse_next;                // position of the oldest of them, modulo HAK_SPARSE
  hak_regret_t trim_regret;            // thread/sparse.c, like all that follow
  uint64_t fronts_gone;                // bit i: an empty run in front of L2 class i went back
  uint64_t tended_at;                  // ms
  uint32_t tend_slab; // where a sweep continues: this slab of its class; 0: the class's beginning
  uint8_t tend_class;
  uint8_t trim_skips; // number of next runs that do not wait for a trim, because of a pause
  uint8_t room_class; // where hak_sparse_make_room continues; a slab of 0: behind that class
  uint32_t room_slab;
  uint32_t trimmed_gone; // L2 runs that were trimmed early and became empty, in about a second
  hak_class_stats_t classes[HAK_CLASSES];
  hak_word_t stats[HAK_STATS];
  hak_warm_t warm[HAK_CLASSES];
  char *used_up;        // L2: the run used up last, if its pages tell anything (growth.h)
  uint64_t used[2];     // bit c: class c had a front when the last thread left (warm.c)
  uint32_t spares;      // slabs of SPARE runs, and SPARE slabs, of all classes
  uint32_t drainings;   // hak_counter(tier_draining) at the last look through the SPARE slabs
  uint32_t reclaim_met; // the last request to give memory back (protocol T1) it has followed
  uint8_t others;       // slabs in a row that remote frees brought back (thread/commons.c)
  uint8_t given;        // slabs in a row given to a commons
  uint8_t common_next;  // the commons to be tended next
  uint8_t thin_next;    // position of the oldest in thin, modulo HAK_THIN
  bool transient;       // attached for one call only: the thread is ending, or it is a nursery
  bool forked;          // in the child of a fork: slabs whose blocks others freed are in no inbox
  _Atomic bool nursery; // changed by its owner only
  uint32_t thin[HAK_THIN]; // slabs that wait to be given away, if they are thin still; 0: none
  uint32_t id;             // number for hak_heap_by_id, from 1
  // The thread whose heap it is, if for more than one call (protocol H5).
  _Atomic(void *) keeper;
#if HAK_SECURE
  // The quarantine, see thread/quarantine.h. The block at position i: its address << 16, and the
  // slack in its seal; the head of its run, hak_slab_none at positions without a block but held_end.
  uint64_t held_end;   // position behind the newest block
  uint64_t held_count; // number of blocks
  uint64_t held_bytes; // their sizes
  uint64_t held[HAK_HELD];
  hak_slab_t *held_slab[HAK_HELD];
#endif

  // Shared: written by other threads. The mail is looked at more often than the inbox.
  _Alignas(64) _Atomic(hak_letter_t *) mail;      // letters for this heap (protocol R4)
  _Alignas(64) _Atomic uint32_t inbox;            // slabs with remote frees (protocol R2)
  _Atomic uint32_t state;                         // HAK_HEAP_*
  _Atomic uint32_t next_orphan[HAK_ORPHAN_LISTS]; // links, by heap number (protocol H2)
  _Atomic uint32_t listed;                        // bit l: on list l
  _Atomic uint32_t posts;                  // of a commons: since an adopter or a due poster took it
  _Atomic bool common;                     // a commons (thread/commons.h); set before it is found
  _Atomic uint32_t emptied;                // slabs emptied since the inbox was taken (protocol R3)
  _Atomic uint32_t emptied_due;            // emptied slabs before others look again
  _Atomic uint32_t looked_at, looked_uses; // of a nursery: ms, and its uses then (thread/orphan.c)
  _Atomic uint32_t taken[HAK_CLASSES];     // slabs and runs that other threads gave back
};
#define HAK_RINGS_SIZE \
  (HAK_L2_CLASSES * sizeof(hak_ring_t) + HAK_RING_HINTS * sizeof(uint32_t) + \
   HAK_L25_RING * sizeof(uint32_t))
_Static_assert(HAK_RINGS_SIZE <= 3584, "row M3: 3.5 KiB of rings");
_Static_assert(sizeof(hak_heap_t) <= 8192 + 128 + 3584 + (HAK_SECURE ? (HAK_HELD + 4) * 16 : 0),
               "8 KiB, what leaves the map, and the rings; the quarantine has its own");

#endif
