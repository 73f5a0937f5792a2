// load.c: reads a trace. The chunks are read twice: once to count and check the events, once to
// put each at the index that its sequence number gives. resolve then turns addresses into block
// numbers in that order and closes the gaps. The input is not trusted: every length and number is
// checked first. The file is copied first, since it may still be recorded and so change.
//
// Tables are mapped, not malloc'ed, because replay measures an allocator.

#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// The kind of a realloc's first half in the list of steps, until its second half is resolved.
#define GIVEN_UP 0xff
// A sequence number greater than this many per byte of file is rejected.
#define NUMBERS_PER_BYTE 16

typedef struct {
  const char *program, *path;
  const unsigned char *file, *at, *end;
  uint64_t numbers; // highest sequence number; they start at 1
  uint64_t allocations;
  trace_t trace;
} loader_t;

static _Noreturn void fail(const loader_t *l, const char *format, ...) {
  char text[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fprintf(stderr, "%s: %s: %s\n", l->program, l->path, text);
  exit(1);
}

static _Noreturn void corrupt(const loader_t *l, const char *what) {
  fail(l, "corrupt trace: %s at byte %zu", what, (size_t)(l->at - l->file));
}

// Returns zeroed memory; pages that are never touched cost nothing.
static void *table(const loader_t *l, uint64_t count, size_t size) {
  void *p = mmap(NULL, (count + 1) * size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail(l, "no memory for a table of %zu bytes", (size_t)(count * size));
  return p;
}

// ---------------------------------------------------------------------------
// Decode

static uint64_t number(loader_t *l) {
  uint64_t v = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (l->at == l->end) corrupt(l, "a record beyond its chunk");
    unsigned char byte = *l->at++;
    v |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return v;
  }
  corrupt(l, "a number of more than 64 bits");
}

// The state of a segment, to which its records are relative.
typedef struct {
  bool begun;
  uint32_t thread;
  uint64_t sequence, address;
} segment_t;

static uint64_t read_address(loader_t *l, segment_t *s) {
  uint64_t step = (uint64_t)trace_unzigzag(number(l)) << TRACE_ADDRESS_SHIFT;
  s->address += step;
  if (s->address == 0 || s->address >> 57 != 0) corrupt(l, "an impossible address");
  return s->address;
}

static void advance(loader_t *l, segment_t *s, uint64_t by) {
  uint64_t most = (uint64_t)(l->trace.file_bytes) * NUMBERS_PER_BYTE;
  if (by > most || s->sequence + by > most) corrupt(l, "an impossible sequence number");
  s->sequence += by;
  if (s->sequence > l->numbers) l->numbers = s->sequence;
}

static void begin_segment(loader_t *l, segment_t *s) {
  uint64_t thread = number(l), sequence = number(l), microseconds = number(l);
  if (thread >= TRACE_MAX_THREADS) corrupt(l, "an impossible thread number");
  *s = (segment_t){.begun = true, .thread = (uint32_t)thread};
  advance(l, s, sequence);
  if (thread >= l->trace.threads) l->trace.threads = (uint32_t)thread + 1;
  if (microseconds > l->trace.microseconds) l->trace.microseconds = microseconds;
}

static void read_note(loader_t *l) {
  uint64_t length = number(l);
  if (length > (uint64_t)(l->end - l->at)) corrupt(l, "a record beyond its chunk");
  size_t kept = length < sizeof l->trace.command ? length : sizeof l->trace.command - 1;
  memcpy(l->trace.command, l->at, kept);
  l->at += length;
  for (size_t i = 0; i < kept; i++) // zero bytes separate the arguments
    if ((unsigned char)l->trace.command[i] < ' ') l->trace.command[i] = ' ';
  while (kept > 0 && l->trace.command[kept - 1] == ' ') l->trace.command[--kept] = '\0';
}

static void place(loader_t *l, const segment_t *s, unsigned kind, uint64_t size, unsigned align) {
  trace_step_t *step = &l->trace.steps[s->sequence];
  if (step->kind != 0) corrupt(l, "a sequence number used twice");
  if (size > TRACE_SIZE_MAX) corrupt(l, "an impossible size");
  *step = (trace_step_t){.address = s->address,
                         .size = size,
                         .kind = kind,
                         .align = align & 0xff,
                         .thread = s->thread};
}

// While no table of steps exists, an event is only checked.
static void read_event(loader_t *l, segment_t *s, unsigned first) {
  unsigned kind = first & ((1u << TRACE_KIND_BITS) - 1), ahead = first >> TRACE_KIND_BITS;
  advance(l, s, 1 + ahead + (ahead == TRACE_ADVANCE_MORE ? number(l) : 0));
  bool real = l->trace.steps != NULL;
  read_address(l, s);
  if (kind == TRACE_FREE) {
    if (real) place(l, s, kind, 0, 0);
    return;
  }
  if (kind == TRACE_REALLOC) {
    if (real) place(l, s, GIVEN_UP, 0, 0);
    read_address(l, s);
  }
  l->allocations += !real;
  uint64_t size = number(l);
  unsigned align = kind == TRACE_ALIGNED ? (unsigned)number(l) : 0;
  if (align > 47) corrupt(l, "an impossible alignment");
  if (kind == TRACE_REALLOC) {
    uint64_t by = number(l);
    if (by == 0) corrupt(l, "a realloc of no duration");
    advance(l, s, by);
  }
  if (real) place(l, s, kind, size, align);
}

static void read_chunk(loader_t *l, const trace_header_t *header) {
  segment_t s = {0};
  l->end = l->at + header->used;
  l->trace.record_bytes += header->used;
  while (l->at < l->end) {
    unsigned first = *l->at++, kind = first & ((1u << TRACE_KIND_BITS) - 1);
    if (kind == TRACE_SEGMENT) begin_segment(l, &s);
    else if (kind == TRACE_NOTE) read_note(l);
    else if (kind > TRACE_NOTE) corrupt(l, "an unknown kind of record");
    else if (!s.begun) corrupt(l, "an event of no thread");
    else read_event(l, &s, first);
  }
}

static void read_chunks(loader_t *l) {
  const unsigned char *end = l->file + l->trace.file_bytes;
  l->trace.record_bytes = 0;
  for (const unsigned char *chunk = l->file; chunk < end; chunk += TRACE_CHUNK) {
    trace_header_t header;
    l->at = chunk;
    size_t there = (size_t)(end - chunk);
    if (there < sizeof header) fail(l, "truncated: %zu bytes after the last chunk", there);
    memcpy(&header, chunk, sizeof header);
    if (header.magic != TRACE_MAGIC)
      chunk == l->file ? fail(l, "not a trace") : corrupt(l, "a chunk without a header");
    if (header.version != TRACE_VERSION)
      fail(l, "version %u; this program reads version %u", header.version, TRACE_VERSION);
    if (header.header != TRACE_HEADER || header.chunk != TRACE_CHUNK ||
        header.used > TRACE_CHUNK - TRACE_HEADER)
      corrupt(l, "a chunk with impossible sizes");
    if (header.used > there - sizeof header)
      fail(l, "truncated: %zu bytes of the last chunk are missing",
           header.used - (there - sizeof header));
    l->trace.pid = header.pid;
    l->trace.started = header.started;
    l->at += TRACE_HEADER;
    read_chunk(l, &header);
  }
}

// ---------------------------------------------------------------------------
// Resolve: maps each address to the block that lives there. A hash table with open addressing and
// linear probing, at most half full.

typedef struct {
  uint64_t *addresses; // 0: empty
  uint32_t *blocks;
  uint64_t mask, used;
} map_t;

static uint64_t home(const map_t *m, uint64_t address) {
  return (address * 0x9e3779b97f4a7c15u >> 20) & m->mask;
}

static uint64_t find(const map_t *m, uint64_t address) {
  uint64_t i = home(m, address);
  while (m->addresses[i] != 0 && m->addresses[i] != address) i = (i + 1) & m->mask;
  return i;
}

static map_t new_map(const loader_t *l, uint64_t places) {
  return (map_t){table(l, places, sizeof(uint64_t)), table(l, places, sizeof(uint32_t)), places - 1,
                 0};
}

static void end_map(map_t *m) {
  munmap(m->addresses, (m->mask + 2) * sizeof(uint64_t));
  munmap(m->blocks, (m->mask + 2) * sizeof(uint32_t));
}

static void add(const loader_t *l, map_t *m, uint64_t address, uint32_t block) {
  if (2 * m->used > m->mask) {
    map_t larger = new_map(l, 2 * (m->mask + 1));
    for (uint64_t i = 0; i <= m->mask; i++)
      if (m->addresses[i] != 0) add(l, &larger, m->addresses[i], m->blocks[i]);
    end_map(m);
    *m = larger;
  }
  uint64_t i = find(m, address);
  m->addresses[i] = address;
  m->blocks[i] = block;
  m->used++;
}

// Removes and returns the block at the address; TRACE_NO_BLOCK if there is none.
static uint32_t take(map_t *m, uint64_t address) {
  uint64_t gap = find(m, address);
  if (m->addresses[gap] == 0) return TRACE_NO_BLOCK;
  uint32_t block = m->blocks[gap];
  for (uint64_t i = (gap + 1) & m->mask; m->addresses[i] != 0; i = (i + 1) & m->mask) {
    if (((i - home(m, m->addresses[i])) & m->mask) < ((i - gap) & m->mask)) continue;
    m->addresses[gap] = m->addresses[i]; // may move into the gap: its home is not behind the gap
    m->blocks[gap] = m->blocks[i];
    gap = i;
  }
  m->addresses[gap] = 0;
  m->used--;
  return block;
}

typedef struct {
  map_t map;
  uint32_t *given_up; // by thread: the old block of the realloc that has begun
  uint64_t live_blocks, live_bytes;
} resolver_t;

static uint32_t end_block(loader_t *l, resolver_t *r, uint64_t address) {
  uint32_t block = take(&r->map, address);
  if (block == TRACE_NO_BLOCK) return block;
  r->live_blocks--;
  r->live_bytes -= l->trace.sizes[block];
  return block;
}

static void make_block(loader_t *l, resolver_t *r, trace_step_t *step) {
  trace_t *t = &l->trace;
  uint64_t address = step->address;
  if (end_block(l, r, address) != TRACE_NO_BLOCK) t->unseen_frees++;
  add(l, &r->map, address, t->blocks);
  t->sizes[t->blocks] = step->size;
  step->from = TRACE_NO_BLOCK;
  step->block = t->blocks++;
  r->live_blocks++;
  r->live_bytes += step->size;
  if (r->live_bytes >> 57 != 0) fail(l, "corrupt trace: more live than an address space holds");
  if (r->live_blocks > t->peak_blocks) t->peak_blocks = r->live_blocks;
  if (r->live_bytes > t->peak_bytes) t->peak_bytes = r->live_bytes;
}

// Returns true if the step is kept.
static bool resolve_step(loader_t *l, resolver_t *r, trace_step_t *step) {
  if (step->kind == 0) return false; // no event has this sequence number
  if (step->kind == TRACE_FREE || step->kind == GIVEN_UP) {
    uint32_t block = end_block(l, r, step->address);
    l->trace.unknown_frees += block == TRACE_NO_BLOCK;
    if (step->kind == GIVEN_UP) r->given_up[step->thread] = block;
    step->block = block;
    return step->kind == TRACE_FREE && block != TRACE_NO_BLOCK;
  }
  make_block(l, r, step);
  if (step->kind == TRACE_REALLOC) {
    step->from = r->given_up[step->thread];
    r->given_up[step->thread] = TRACE_NO_BLOCK;
  }
  return true;
}

static void resolve(loader_t *l) {
  trace_t *t = &l->trace;
  if (l->allocations >= TRACE_NO_BLOCK) fail(l, "more than 4,294,967,294 blocks");
  t->sizes_mapped = (l->allocations + 1) * sizeof *t->sizes;
  t->sizes = table(l, l->allocations, sizeof *t->sizes);
  resolver_t r = {.map = new_map(l, 1024), .given_up = table(l, t->threads, sizeof(uint32_t))};
  memset(r.given_up, 0xff, t->threads * sizeof(uint32_t)); // TRACE_NO_BLOCK
  uint64_t kept = 0;
  for (uint64_t i = 1; i <= l->numbers; i++)
    if (resolve_step(l, &r, &t->steps[i])) t->steps[kept++] = t->steps[i];
  t->step_count = kept;
  end_map(&r.map);
  munmap(r.given_up, (t->threads + 1) * sizeof(uint32_t));
}

// ---------------------------------------------------------------------------

// A header's count of records is stored after them and copied before them.
static void *copy(const loader_t *l, int fd, size_t size) {
  unsigned char *to = table(l, size, 1);
  for (size_t have = 0; have < size;) {
    ssize_t n = pread(fd, to + have, size - have, (off_t)have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(l, "%s", strerror(errno));
    if (n == 0) fail(l, "truncated while it was read");
    have += (size_t)n;
  }
  return to;
}

trace_t trace_load(const char *program, const char *path) {
  loader_t l = {.program = program, .path = path};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat about;
  if (fd < 0 || fstat(fd, &about) != 0) fail(&l, "%s", strerror(errno));
  if (!S_ISREG(about.st_mode)) fail(&l, "not a file");
  if (about.st_size == 0) fail(&l, "not a trace: the file is empty");
  l.trace.file_bytes = (uint64_t)about.st_size;
  l.file = copy(&l, fd, l.trace.file_bytes);
  close(fd);
  read_chunks(&l); // checks and counts everything
  l.trace.steps_mapped = (l.numbers + 2) * sizeof *l.trace.steps;
  l.trace.steps = table(&l, l.numbers + 1, sizeof *l.trace.steps);
  read_chunks(&l);
  munmap((void *)l.file, l.trace.file_bytes + 1);
  resolve(&l);
  l.file = NULL;
  return l.trace;
}

void trace_unload(trace_t *t) {
  munmap(t->steps, t->steps_mapped);
  munmap(t->sizes, t->sizes_mapped);
  t->steps = NULL;
  t->sizes = NULL;
}
