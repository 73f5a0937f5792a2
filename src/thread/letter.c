#include "thread/letter.h"

#include "core/misuse.h"
#include "core/options.h"
#include "superslab/seal.h"
#include "thread/commons.h"
#include "thread/heap.h"
#include "thread/remote.h"
#include "thread/ring.h"

#define OFF_BLOCKS 1024 // after an owner left its mail unopened: docs/decisions/0036-letters.md

// Owner of a letter that is not being written: not NULL, as a slab's holder is when a block of it is
// freed again while the slab goes back.
#define NOBODY (&hak_heap_none)

// Relaxed: the thread that sends a letter checks its owner once more (hak_heap_service).
static bool gets_letters(hak_heap_t *owner) {
  return hak_load_relaxed(&owner->state) != HAK_HEAP_DEAD && !hak_load_relaxed(&owner->common) &&
         !hak_load_relaxed(&owner->nursery);
}

static void deliver_one(hak_heap_t *mine, uint32_t hint) {
  hak_slab_t *slab = hak_hint_slab(hint);
  uint32_t number = hak_hint_number(hint);
  if (HAK_LIKELY(hak_slab_kind(slab) == HAK_KIND_L2 && number < slab->capacity)) {
    hak_remote_push_l2(slab, (uint64_t)1 << number, mine);
    return;
  }
  // A block that was not freed before would have kept its run in use.
  hak_misuse("free: double free of block %u in the run at %p, which has no live block any more",
             (uint64_t)number, hak_slab_start(slab));
}

// Takes a heap's mail and calls `one` for each hint in it. Returns the number of letters.
HAK_INLINE uint32_t read_mail(hak_heap_t *heap, void (*one)(hak_heap_t *, uint32_t),
                              hak_heap_t *mine) {
  // Acquire: pairs with the release in send: the letters' contents.
  hak_letter_t *letter = hak_exchange_seq_cst(&heap->mail, NULL), *next;
  uint32_t letters = 0;
  for (; letter; letter = next, letters++) {
    next = letter->next;
    for (unsigned i = 0; i < letter->count; i++) one(mine, letter->hint[i]);
    // Release: pairs with the acquire in find; this thread is done with the letter.
    hak_store_release(&letter->sent, false);
  }
  return letters;
}

void hak_letter_recall(hak_heap_t *heap, hak_heap_t *mine) {
  if (hak_load_relaxed(&heap->mail) == NULL) return;
  uint32_t letters = read_mail(heap, deliver_one, mine);
  if (mine) hak_heap_count_stat(mine, HAK_STAT_letter_recall, letters);
}

static void send(hak_heap_t *heap, hak_letter_t *letter) {
  hak_heap_t *owner = letter->owner;
  hak_letter_t *top = hak_load_relaxed(&owner->mail);
  letter->owner = NOBODY;
  letter->to = owner;
  hak_heap_count_stat(heap, HAK_STAT_letter_send, 1);
  hak_store_relaxed(&letter->sent, true); // published with the letter
  do letter->next = top;
  // Release: pairs with the acquire in read_mail. Seq_cst: also orders the look at the
  // owner's state, as a post does (R2).
  while (!hak_cas_seq_cst(&owner->mail, &top, letter));
  if (hak_load_relaxed(&owner->state) == HAK_HEAP_DEAD) hak_letter_recall(owner, heap);
  else hak_heap_service(owner);
}

void hak_letter_send_all(hak_heap_t *heap) {
  for (unsigned i = 0; i < HAK_LETTERS; i++)
    if (heap->letters[i].owner != NOBODY) send(heap, &heap->letters[i]);
}

// The letter being written for the owner, else one that can be begun. NULL: there is neither.
static hak_letter_t *find(hak_heap_t *heap, const hak_heap_t *owner) {
  hak_letter_t *found = NULL;
  for (unsigned i = 0; i < HAK_LETTERS; i++) {
    hak_letter_t *letter = &heap->letters[i];
    if (letter->owner == owner) return letter;
    // Acquire: pairs with the release of the thread that opened it or took it back.
    if (letter->owner == NOBODY && !hak_load_acquire(&letter->sent)) found = letter;
  }
  return found;
}

// All letters are under way or being written for other owners.
static void make_room(hak_heap_t *heap) {
  if (heap->letter->owner != NOBODY) {
    send(heap, heap->letter);
    return;
  }
  heap->letters_off = OFF_BLOCKS;
  for (unsigned i = 0; i < HAK_LETTERS; i++)
    // Relaxed: if the letter was opened meanwhile, the mail is taken all the same.
    if (hak_load_relaxed(&heap->letters[i].sent)) hak_letter_recall(heap->letters[i].to, heap);
}

// Makes the owner's letter the one that is written next. False: there is none.
HAK_NOINLINE static bool begin(hak_heap_t *heap, hak_heap_t *owner) {
  if (heap->letters_off != 0) {
    heap->letters_off--;
    return false;
  }
  // A letter begun in a nursery would wait for another thread to send it.
  if (!owner || !hak_option(LETTERS) || !gets_letters(owner) || hak_load_relaxed(&heap->nursery))
    return false;
  hak_letter_t *letter = find(heap, owner);
  if (!letter) {
    make_room(heap);
    return false;
  }
  heap->letter = letter;
  if (letter->owner == owner) return true;
  *letter = (hak_letter_t){.owner = owner};
  return true;
}

static bool names(const hak_letter_t *letter, uint32_t hint) {
  uint32_t found = 0;
  for (unsigned i = 0; i < HAK_LETTER_HINTS; i++) found |= letter->hint[i] == hint;
  return found != 0;
}

bool hak_letter_add(hak_heap_t *heap, hak_slab_t *slab, uint32_t block, const char *function) {
  hak_heap_t *owner = hak_load_relaxed(&slab->holder);
  uint32_t hint = slab->hint | block, size = slab->size;
  if (size <= HAK_COMMONS_BLOCK_MAX) return false;
  if (HAK_UNLIKELY(heap->letter->owner != owner) && !begin(heap, owner)) return false;
  hak_letter_t *letter = heap->letter;
  if (HAK_UNLIKELY(names(letter, hint))) {
    hak_misuse_double_free(function, slab->start + (size_t)block * size, size - HAK_TAIL);
    return true;
  }
  hak_owner_inc(&heap->stats[HAK_STAT_free_remote]);
  letter->hint[letter->count++] = hint;
  letter->bytes += size;
  if (letter->count == HAK_LETTER_HINTS || letter->bytes >= HAK_LETTER_BYTES) send(heap, letter);
  return true;
}

bool hak_letter_holds(const hak_heap_t *heap, const hak_slab_t *slab, uint32_t block) {
  for (unsigned i = 0; i < HAK_LETTERS; i++)
    if (heap->letters[i].owner != NOBODY && names(&heap->letters[i], slab->hint | block))
      return true;
  return false;
}

// The run may be another heap's by now; if the block was freed twice, it may be no run any more.
static void open_one(hak_heap_t *heap, uint32_t hint) {
  hak_slab_t *slab = hak_hint_slab(hint);
  uint64_t bit = (uint64_t)1 << hak_hint_number(hint);
  size_t size = slab->size;
  if (HAK_UNLIKELY(hak_load_relaxed(&slab->holder) != heap)) deliver_one(heap, hint);
  else if (HAK_UNLIKELY(hak_load_relaxed(&slab->mask) & bit))
    hak_misuse_double_free("free", slab->start + hak_hint_number(hint) * size, size - HAK_TAIL);
  else hak_heap_take_back_l2(heap, slab, bit);
}

void hak_letter_open_all(hak_heap_t *heap) { read_mail(heap, open_one, heap); }

void hak_letter_init(hak_heap_t *heap) {
  heap->letter = heap->letters;
  for (unsigned i = 0; i < HAK_LETTERS; i++) heap->letters[i].owner = NOBODY;
}

void hak_letter_after_fork(hak_heap_t *mine) {
  for (unsigned i = 0; i < HAK_LETTERS; i++) hak_store_if_other(&mine->letters[i].sent, false);
  hak_store_if_other(&mine->mail, (hak_letter_t *)NULL);
}
