#include "thread/first.h"

#include "core/misuse.h"
#include "core/options.h"
#include "os/os.h"
#include "superslab/superslab.h"
#include "thread/heap.h"
#include "thread/process.h"

#define BLOCKS_MAX 255                     // a byte holds a block's number
#define MARK UINT64_C(0xa9a7a5a3a1afadab)  // behind each block
#define FREED UINT64_C(0xdfdfdfdfdfdfdfdf) // in the first 16 bytes of a freed block
#define WORD sizeof(uint64_t)
#define STEPS (HAK_FIRST_MEMORY >> HAK_MIN_SHIFT)

typedef enum { NONE, LIVE, GONE } state_t;

typedef struct {
  _Atomic uint32_t state; // state_t. Its release publishes what the last thread did with the rest
  uint16_t at;            // start of the block, in steps of HAK_MIN_BLOCK
  uint16_t usable;
} first_t;

_Atomic bool hak_first_is_open = true;
_Atomic uintptr_t hak_first_base = HAK_FIRST_NOWHERE;
hak_first_counts_t hak_first_counts;

static first_t blocks[BLOCKS_MAX];
static _Atomic uint8_t number[STEPS]; // number of the block that starts in the step, from 1
static _Atomic uint32_t begun;        // requests so far
static _Atomic uint32_t used;         // bytes of the memory taken
// The only thread that hands out blocks, as the address of its thread-local words. NULL: none yet.
static _Atomic(const void *) first_thread;
static _Atomic bool given_back; // used by that thread only

static bool is_first_thread(void) {
  return hak_load_relaxed(&first_thread) == (const void *)&hak_tls_heap;
}
bool hak_first_elsewhere(void) { return hak_load_relaxed(&first_thread) && !is_first_thread(); }

static uint64_t *words_of(const first_t *block) {
  return (uint64_t *)(hak_load_relaxed(&hak_first_base) + block->at * HAK_MIN_BLOCK);
}
static uint64_t *word_behind(const first_t *block) {
  return (uint64_t *)((uintptr_t)words_of(block) + block->usable);
}
// The step of the memory in which p lies.
static size_t step_of(const void *p) {
  return ((uintptr_t)p - hak_load_relaxed(&hak_first_base)) >> HAK_MIN_SHIFT;
}

// Maps the memory between two pages without access rights: no overflow leaves it step by step.
HAK_COLD static bool map_memory(void) {
  size_t size = hak_align_up(HAK_FIRST_MEMORY, hak_os_page_size),
         whole = size + 2 * hak_os_page_size;
  char *p = hak_os_reserve(whole, hak_os_page_size);
  if (!p) return false;
  uintptr_t nowhere = HAK_FIRST_NOWHERE, start = (uintptr_t)p + hak_os_page_size;
  bool mapped = hak_os_commit((void *)start, size);
  // A signal handler that interrupted this thread here may have mapped it first.
  if (mapped && hak_cas_relaxed(&hak_first_base, &nowhere, start)) {
    hak_mapped_add(&hak_mapped.metadata_bytes, (int64_t)size);
    return true;
  }
  hak_os_unmap(p, whole);
  return mapped;
}

// All blocks are freed and no more can come: gives the pages back. Only the first thread does this,
// as it also audits at exit. An allocation that a signal handler interrupted counts as live.
static void give_back(void) {
  hak_first_audit(); // what is in the memory now is gone at exit
  hak_store_relaxed(&given_back, true);
  void *memory = (void *)hak_load_relaxed(&hak_first_base);
  hak_os_discard(memory, hak_align_up(HAK_FIRST_MEMORY, hak_os_page_size));
}

// Counts off a block that was live or under way. After the last one, a signal handler may have got
// another before allocation was closed: hence the count is read again once that was checked.
static void count_off(void) {
  if (hak_fetch_sub_seq_cst(&hak_first_counts.live, 1) == 1 &&
      !hak_load_seq_cst(&hak_first_is_open) && is_first_thread() &&
      hak_load_relaxed(&hak_first_base) != HAK_FIRST_NOWHERE &&
      hak_load_seq_cst(&hak_first_counts.live) == 0)
    give_back();
}

static void *not_first(bool close) {
  if (close) hak_store_seq_cst(&hak_first_is_open, false);
  count_off();
  return NULL;
}

// A signal handler may run between any two steps and allocate here too, or free.
void *hak_first_alloc(size_t size) {
  hak_process_init();
  const void *nobody = NULL;
  if (!hak_cas_relaxed(&first_thread, &nobody, (const void *)&hak_tls_heap) && !is_first_thread()) {
    hak_store_seq_cst(&hak_first_is_open, false);
    return NULL;
  }
  hak_fetch_add_seq_cst(&hak_first_counts.live, 1); // before the block has a place: see give_back
  // PREWARM prepares a thread, GUARD samples its slow paths: both are for a thread with a heap.
  if (hak_option(PREWARM) != 0 || hak_option(GUARD) != 0) return not_first(true);
  uint32_t i = hak_fetch_add_relaxed(&begun, 1u);
  if (i >= hak_option(FIRST)) return not_first(true);
  if (size > HAK_FIRST_MAX) return not_first(false);
  uint32_t place = (uint32_t)(hak_first_usable(size) + WORD);
  uint32_t at = hak_fetch_add_relaxed(&used, place);
  if (at + place > HAK_FIRST_MEMORY) return not_first(true);
  if (HAK_UNLIKELY(hak_load_relaxed(&hak_first_base) == HAK_FIRST_NOWHERE) && !map_memory())
    return not_first(true);
  first_t *block = &blocks[i];
  block->at = (uint16_t)(at >> HAK_MIN_SHIFT);
  block->usable = (uint16_t)(place - WORD);
  *word_behind(block) = MARK;
  // Release: pairs with the acquires in find, block_at and hak_first_audit.
  hak_store_release(&block->state, LIVE);
  hak_store_release(&number[block->at], (uint8_t)(i + 1));
  hak_fetch_add_relaxed(&hak_counter(first_alloc), 1);
  hak_fetch_add_relaxed(&hak_first_counts.bytes, block->usable);
  return words_of(block);
}

// The block that starts in the step of p, else the nearest one before it. NULL: there is none.
HAK_COLD static first_t *block_at(const void *p) {
  size_t step = step_of(p);
  for (;; step--) {
    uint8_t n = hak_load_acquire(&number[step]);
    if (n) return &blocks[n - 1];
    if (step == 0) return NULL;
  }
}

bool hak_first_is_live(const void *p) {
  const first_t *block = block_at(p);
  return block && hak_load_acquire(&block->state) == LIVE &&
         (const char *)p < (const char *)word_behind(block);
}

static void report_overflow(const first_t *block, const char *function) {
  hak_misuse_overflow(function, words_of(block), block->usable);
  *word_behind(block) = MARK; // it has been reported
}

// Reports what is wrong with p.
HAK_COLD static void say(const void *p, const char *function) {
  const first_t *block = block_at(p);
  if (!block || (const char *)p > (const char *)word_behind(block)) hak_misuse_foreign(function, p);
  else if ((uintptr_t)p & (HAK_MIN_BLOCK - 1)) hak_misuse_misaligned(function, p);
  else if (p != words_of(block)) hak_misuse_interior(function, p, words_of(block), block->usable);
  else if (hak_load_acquire(&block->state) != LIVE)
    hak_misuse_double_free(function, p, block->usable);
  else report_overflow(block, function);
}

// The live, intact block that starts at p. NULL: there is none, and this has been reported.
static first_t *find(const void *p, const char *function) {
  size_t step = step_of(p);
  uint8_t n = hak_load_acquire(&number[step]);
  first_t *block = n ? &blocks[n - 1] : NULL;
  if (HAK_LIKELY(block && ((uintptr_t)p & (HAK_MIN_BLOCK - 1)) == 0 &&
                 hak_load_acquire(&block->state) == LIVE && *word_behind(block) == MARK))
    return block;
  say(p, function);
  return NULL;
}

bool hak_first_find(const void *p, const char *function, size_t *size) {
  const first_t *block = find(p, function);
  *size = block ? block->usable : 0;
  return block != NULL;
}

static void look_at_all(void) {
  for (first_t *block = blocks; block < blocks + BLOCKS_MAX; block++) {
    // Acquire: pairs with the releases of the thread that made or freed the block.
    uint32_t state = hak_load_acquire(&block->state);
    if (state == NONE) continue;
    uint64_t *words = words_of(block);
    if (*word_behind(block) != MARK) report_overflow(block, "exit");
    else if (state == GONE &&
             (words[0] != FREED || (block->usable >= 2 * WORD && words[1] != FREED)))
      hak_misuse_written(words, block->usable);
  }
}

void hak_first_audit(void) {
  if (!is_first_thread()) return;
  // Counts as live meanwhile: else a handler that frees the last block would give the pages back.
  hak_fetch_add_seq_cst(&hak_first_counts.live, 1);
  if (!hak_load_relaxed(&given_back)) look_at_all();
  hak_fetch_sub_seq_cst(&hak_first_counts.live, 1);
}

void hak_first_free(void *p, const char *function) {
  first_t *block = find(p, function);
  if (HAK_UNLIKELY(!block)) return;
  size_t size = block->usable;
  uint64_t *words = p;
  words[0] = FREED;
  if (size >= 2 * WORD) words[1] = FREED;
  uint32_t state = LIVE;
  // Release: pairs with the acquire in hak_first_audit.
  if (!hak_cas_acq_rel(&block->state, &state, GONE)) {
    hak_misuse_double_free(function, p, size);
    return;
  }
  hak_fetch_sub_relaxed(&hak_first_counts.bytes, size);
  count_off();
}
