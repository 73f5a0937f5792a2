// format.h: the constants of a trace file, for its writer (record.c) and its reader
// (load.c). README.md describes the format byte by byte.

#ifndef HAKMEM_TRACE_FORMAT_H
#define HAKMEM_TRACE_FORMAT_H

#include <stdint.h>

#define TRACE_MAGIC 0x544b4148u // "HAKT", little-endian
#define TRACE_VERSION 1
#define TRACE_CHUNK 65536u // bytes; a multiple of every OS page size
#define TRACE_HEADER 32u
#define TRACE_MAX_THREADS (1u << 20) // a reader rejects larger thread numbers

// The header of every chunk. `used` counts the bytes of records behind the header. It is stored
// after the bytes it counts, so the file is valid whenever its program dies.
typedef struct {
  uint32_t magic;
  uint16_t version;
  uint16_t header; // TRACE_HEADER
  uint32_t chunk;  // TRACE_CHUNK
  uint32_t used;
  uint32_t pid;
  uint32_t zero;
  uint64_t started; // seconds since 1970
} trace_header_t;
_Static_assert(sizeof(trace_header_t) == TRACE_HEADER, "header");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "traces are little-endian");

// The record's kind is the low three bits of its first byte. The upper five bits are the advance
// of the sequence number less one, or TRACE_ADVANCE_MORE: then a varint with the rest follows.
enum {
  TRACE_SEGMENT, // thread, sequence number before the first event, microseconds since the start
  TRACE_MALLOC,  // address, size
  TRACE_CALLOC,  // address, size
  TRACE_ALIGNED, // address, size, log2 of the alignment
  TRACE_REALLOC, // old address, new address, size, advance between the two
  TRACE_FREE,    // address
  TRACE_NOTE,    // length, then that many bytes of text: the command line
};
#define TRACE_KIND_BITS 3
#define TRACE_ADVANCE_MORE 31u

// Addresses are multiples of 8. Each is stored as its difference from the segment's previous
// address, in units of 8 and zigzag-encoded: 0, -1, 1, -2 … become 0, 1, 2, 3 …
#define TRACE_ADDRESS_SHIFT 3
#define TRACE_SIZE_MAX (((uint64_t)1 << 47) - 1)

static inline uint64_t trace_zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }
static inline int64_t trace_unzigzag(uint64_t v) { return (int64_t)(v >> 1) ^ -(int64_t)(v & 1); }

#endif
