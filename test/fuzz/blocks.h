// blocks.h: the fuzzer's own record of the heap, outside the allocator under test: 2,048 slots
// for blocks. One thread at a time holds a slot. Each block is filled with a pattern of its
// own; shadow.h detects two blocks that share a byte.

#ifndef TEST_FUZZ_BLOCKS_H
#define TEST_FUZZ_BLOCKS_H

#include <pthread.h>
#include <sched.h>

// A finding: libFuzzer and AFL++ take the trap for a crash and keep the input.
#define CHECK(x)                                                                          \
  do {                                                                                    \
    if (!(x)) {                                                                           \
      dprintf(report_fd, "FINDING %s:%d: %s does not hold (errno %d)\n", __FILE__, __LINE__, \
              #x, errno);                                                                 \
      __builtin_trap();                                                                   \
    }                                                                                     \
  } while (0)
static int report_fd = 2; // malloc_stats's output is redirected, findings are not

#define STRESS_HAK 1
#include "../stress/shadow.h"

enum { SLOTS = 2048, SLOTS_PER_BYTE = SLOTS / 256 };
#define MIB ((size_t)1 << 20)
#define MARKED MIB // above twice that, only a block's first and last MARKED bytes are in the shadow

typedef struct {
  atomic_flag held;
  unsigned char *p;
  size_t size, usable, alignment; // as asked for, but usable: as malloc_usable_size says
  uint64_t seed;
  bool resized; // by realloc, which may leave a block larger than a new one would be
} slot_t;

static slot_t slots[SLOTS];
static _Atomic uint64_t live_blocks, live_bytes;

static void hold(slot_t *slot) {
  while (atomic_flag_test_and_set_explicit(&slot->held, memory_order_acquire)) sched_yield();
}
static void let_go(slot_t *slot) {
  atomic_flag_clear_explicit(&slot->held, memory_order_release);
}

// ---------------------------------------------------------------------------
// Contents. Above 2 KiB: both ends, and a word at the start of OS pages between; in large
// blocks not in every OS page, because page faults would take most of the time.

static size_t stride(size_t size) {
  return size <= 64 * 1024 ? 4096 : size <= 4 * MIB ? 16384 : size / 256 & ~(size_t)4095;
}

typedef void visit_t(unsigned char *at, uint64_t word, size_t n);
static void put(unsigned char *at, uint64_t word, size_t n) { memcpy(at, &word, n); }
static void compare(unsigned char *at, uint64_t word, size_t n) {
  CHECK(memcmp(at, &word, n) == 0 /* contents kept */);
}

// Visits the bytes of [from, to) that lie below limit.
static void visit(unsigned char *p, size_t from, size_t to, size_t limit, uint64_t seed,
                  visit_t *each) {
  if (to > limit) to = limit;
  for (size_t at = from; at < to; at += 8)
    each(p + at, (seed ^ at) * 0x9e3779b97f4a7c15u, to - at < 8 ? to - at : 8);
}

static void each_word(unsigned char *p, size_t size, size_t limit, uint64_t seed, visit_t *each) {
  if (size <= 2048) {
    visit(p, 0, size, limit, seed, each);
    return;
  }
  visit(p, 0, 512, limit, seed, each);
  for (size_t at = 4096; at + 1024 < size; at += stride(size))
    visit(p, at, at + 8, limit, seed, each);
  visit(p, (size - 512) & ~(size_t)7, size, limit, seed, each);
}

static void check_zero(const unsigned char *p, size_t size) {
  static const unsigned char zero[4096];
  for (size_t at = 0; at < size; at += at ? stride(size) : 4096) { // where the patterns are
    size_t n = size - at < 4096 ? size - at : 4096;
    CHECK(memcmp(p + at, zero, n) == 0 /* calloc */);
  }
  size_t n = size < 512 ? size : 512;
  CHECK(memcmp(p + size - n, zero, n) == 0 /* calloc */);
}

static void mark(const slot_t *slot, bool live) {
  if (slot->usable <= 2 * MARKED) {
    shadow_set(slot->p, slot->usable, live);
  } else {
    shadow_set(slot->p, MARKED, live);
    shadow_set(slot->p + slot->usable - MARKED, MARKED, live);
  }
}

static void verify(const slot_t *slot) {
  each_word(slot->p, slot->usable, slot->usable, slot->seed, compare);
  CHECK(hak_malloc_usable_size(slot->p) == slot->usable);
}

// Records a block that was just handed out for size bytes.
static void keep(slot_t *slot, void *p, size_t size, size_t alignment, uint64_t seed) {
  CHECK((uintptr_t)p % (alignment < 16 ? 16 : alignment) == 0);
  slot->p = p;
  slot->size = size;
  slot->alignment = alignment;
  slot->usable = hak_malloc_usable_size(p);
  slot->seed = seed;
  slot->resized = false;
  CHECK(slot->usable >= size);
  mark(slot, true);
  each_word(p, slot->usable, slot->usable, seed, put);
  atomic_fetch_add(&live_blocks, 1);
  atomic_fetch_add(&live_bytes, slot->usable);
}

// Called before the block is freed or may move: other blocks may get its bytes from now on.
static void forget(slot_t *slot) {
  verify(slot);
  mark(slot, false);
  atomic_fetch_sub(&live_blocks, 1);
  atomic_fetch_sub(&live_bytes, slot->usable);
}

#endif
