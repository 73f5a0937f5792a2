// input.h: the meaning of an input's bytes. Every string of bytes is an input.
//
//   header   8 bytes: threads, options, the first fault plan (hak_header_t)
//   records  6 bytes each: operation + variant, slot, code (2), argument (2)
//
// code stands for a size (size_of), argument for an alignment or a second number.

#ifndef TEST_FUZZ_INPUT_H
#define TEST_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../os_testing.h"
#include "os/os.h"
#include "superslab/size_class.h"

enum { HEADER_BYTES = 8, RECORD_BYTES = 6, OPS_MAX = 2000, THREADS_MAX = 4 };

// SWITCH selects the thread that does the operations that follow; END ends that thread, half
// of the time with late destructors that allocate.
typedef enum {
  OP_MALLOC, OP_CALLOC, OP_REALLOC, OP_REALLOCARRAY, OP_ALIGNED_ALLOC, OP_POSIX_MEMALIGN,
  OP_MEMALIGN, OP_VALLOC, OP_PVALLOC, OP_NEW, OP_FREE, OP_FREE_SIZED, OP_DELETE,
  OP_INSPECT, // one block: usable size, hak_owns; or (variants 4 to 7) misuse of it
  OP_FILL,    // a row of slots with blocks of one size
  OP_CLEAR,   // a row of slots
  OP_THIN,    // all blocks but every n-th
  OP_REPORT,  // statistics in all their forms
  OP_TRIM, OP_FAULT, OP_SWITCH, OP_END,
  OPS
} op_kind_t;

typedef struct {
  uint8_t kind, variant; // op_kind_t, 0..7
  uint8_t slot, thread;
  uint16_t code, argument;
} op_t;

typedef struct {
  unsigned threads;  // 1..4
  bool at_once;      // threads run freely; else one operation at a time, repeatable
  bool keep;         // the next input starts with what the heap keeps
  unsigned fault_kinds, fault_skip; // armed at the start, 0: none
  bool fault_once;
  uint64_t lru_cap, full_mark, remote_pending, refill_batch, prefault, prewarm, warm_prefill, tiers;
} header_t;

static inline header_t read_header(const uint8_t *b) {
  static const uint64_t lru_caps[] = {2, 0, 1, 64}, full_marks[] = {8, 1, 2, 64};
  static const uint64_t pendings[] = {131072, 0, 100, 1 << 24}, batches[] = {64, 16, 17, 128};
  static const uint64_t prefaults[] = {0, 1, 16, 254}, prewarms[] = {0, 1, 7, 64};
  static const uint64_t prefills[] = {0, 1, 3, 15};
  static const unsigned kinds[] = {HAK_FAULT_ALL, HAK_FAULT_MAP, HAK_FAULT_COMMIT, HAK_FAULT_REMAP,
                                   HAK_FAULT_UNMAP, HAK_FAULT_UNMAP | HAK_FAULT_DISCARD,
                                   HAK_FAULT_MAP | HAK_FAULT_COMMIT};
  header_t h = {
    .threads = 1 + (b[0] & 3),
    .at_once = b[0] >> 2 & 1,
    .keep = b[0] >> 3 & 1,
    .fault_kinds = b[1] < 128 ? 0 : kinds[b[1] % (sizeof kinds / sizeof *kinds)],
    .fault_skip = b[2] & 127,
    .fault_once = b[2] >> 7,
    .lru_cap = lru_caps[b[3] & 3], .full_mark = full_marks[b[3] >> 2 & 3],
    .remote_pending = pendings[b[3] >> 4 & 3], .refill_batch = batches[b[3] >> 6 & 3],
    .prefault = prefaults[b[4] & 3], .prewarm = prewarms[b[4] >> 2 & 3],
    .warm_prefill = prefills[b[4] >> 4 & 3], .tiers = !(b[4] >> 6 & 1),
  };
  return h; // b[5..7]: free for later
}

// Fills ops; returns how many.
static inline size_t read_ops(const uint8_t *b, size_t size, unsigned threads, op_t *ops) {
  size_t n = 0;
  uint8_t thread = 0;
  for (; n < OPS_MAX && size >= RECORD_BYTES; b += RECORD_BYTES, size -= RECORD_BYTES, n++) {
    op_t *op = &ops[n];
    op->kind = (b[0] & 31) % OPS;
    op->variant = b[0] >> 5;
    op->slot = b[1];
    op->code = (uint16_t)(b[2] | b[3] << 8);
    op->argument = (uint16_t)(b[4] | b[5] << 8);
    if (op->kind == OP_SWITCH) thread = b[1] % (uint8_t)threads;
    op->thread = thread;
  }
  return n;
}

// Most sizes are small; edges of classes and ranges and absurd sizes occur too.
static inline size_t size_of(uint16_t code, size_t before) {
  size_t m = code & 0xfff;
  switch (code >> 12) {
  default: return m % 1040;
  case 4: case 5: return m * 15;                              // L2
  case 6: case 7: return HAK_L2_MAX + m * 240;                // L2.5
  case 8: return HAK_L25_MAX - 2048 + m * 1024;               // to 5 MiB
  case 9: case 10: return hak_class_size((unsigned)(m % HAK_CLASSES)) + m / HAK_CLASSES % 5 - 2;
  case 11: return ((size_t)1 << (m % 23)) + (m >> 8) - 8;
  case 12: return (m % 600) * 4096 + m / 600 - 3;             // OS pages
  case 13: return before + m % 64 - 8;                        // a little more or less
  case 14: return before / 2 + m % 16 * before / 8;           // to 2.4 times
  case 15: // half of them are impossible
    return m & 1 ? m & 2 ? SIZE_MAX - m : (size_t)PTRDIFF_MAX - (m >> 4) + (m >> 2 & 3) * 16
                 : (size_t)1 << (24 + m % 21);
  }
}

static inline size_t alignment_of(uint16_t argument) {
  unsigned shift = argument & 31;
  if (shift < 24) return (size_t)1 << shift;
  if (shift < 28) return argument >> 5; // usually no power of two
  if (shift == 28) return 0;
  // TSan does not survive mappings far from the others.
  return (size_t)1 << (24 + (argument >> 5) % (HAK_TSAN ? 12 : 40));
}

#endif
