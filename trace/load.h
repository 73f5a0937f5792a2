// load.h: a trace file as a list of steps in the order in which they happened.

#ifndef HAKMEM_TRACE_LOAD_H
#define HAKMEM_TRACE_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "format.h"

#define TRACE_NO_BLOCK UINT32_MAX

// Blocks are numbered in the order of their allocation; each has its number for itself, and
// a block that realloc has resized is a new one, wherever it lies.
typedef struct {
  union {
    struct {
      uint32_t block; // made, or freed
      uint32_t from;  // TRACE_REALLOC: the block that was; may be TRACE_NO_BLOCK
    };
    uint64_t address; // while loading
  };
  uint64_t size : 48; // asked for
  uint64_t kind : 8;  // TRACE_MALLOC .. TRACE_FREE
  uint64_t align : 8; // TRACE_ALIGNED: log2
  uint32_t thread;
} trace_step_t;

typedef struct {
  trace_step_t *steps; // by time
  uint64_t step_count;
  uint32_t threads;
  uint32_t blocks;
  uint64_t *sizes;        // of each block
  uint64_t unknown_frees; // of blocks from before the recording: not among the steps
  uint64_t unseen_frees;  // blocks whose address was handed out again without a free
  uint64_t peak_blocks, peak_bytes;
  uint64_t record_bytes; // of all events
  uint64_t file_bytes;
  uint64_t microseconds; // when the last segment began
  uint64_t started;      // seconds since 1970
  uint32_t pid;
  char command[513];
  size_t steps_mapped, sizes_mapped; // bytes of the two tables
} trace_t;

// Ends the program with a message that names the file and the place if it is no whole trace.
trace_t trace_load(const char *program, const char *path);
// Gives the steps and sizes back; the figures stay.
void trace_unload(trace_t *t);

#endif
