// load.h: loads a trace file as a list of steps in the order in which they happened.

#ifndef HAKMEM_TRACE_LOAD_H
#define HAKMEM_TRACE_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "format.h"

#define TRACE_NO_BLOCK UINT32_MAX

// Blocks are numbered in the order of their allocation, and no number is used twice. A block that
// realloc has resized is a new block, whether or not it moved.
typedef struct {
  union {
    struct {
      uint32_t block; // the block allocated or freed
      uint32_t from;  // TRACE_REALLOC: the old block; may be TRACE_NO_BLOCK
    };
    uint64_t address; // while loading
  };
  uint64_t size : 48; // the requested size
  uint64_t kind : 8;  // TRACE_MALLOC .. TRACE_FREE
  uint64_t align : 8; // TRACE_ALIGNED: log2
  uint32_t thread;
} trace_step_t;

typedef struct {
  trace_step_t *steps; // in the order of time
  uint64_t step_count;
  uint32_t threads;
  uint32_t blocks;
  uint64_t *sizes;        // by block
  uint64_t unknown_frees; // frees of blocks from before the recording; not among the steps
  uint64_t unseen_frees;  // blocks whose address was handed out again without a recorded free
  uint64_t peak_blocks, peak_bytes;
  uint64_t record_bytes; // bytes of all records
  uint64_t file_bytes;
  uint64_t microseconds; // when the last segment began
  uint64_t started;      // seconds since 1970
  uint32_t pid;
  char command[513];
  size_t steps_mapped, sizes_mapped; // bytes of the two tables
} trace_t;

// Ends the program with a message that names file and place if the file is no complete trace.
trace_t trace_load(const char *program, const char *path);
// Unmaps the steps and sizes; the figures stay valid.
void trace_unload(trace_t *t);

#endif
