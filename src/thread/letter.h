// letter.h: returns L2 blocks of other heaps' runs to their owners, many at a time (protocol R4).
//
// A thread writes the hints of such blocks (thread/ring.h) into one of its letters, one owner's to
// a letter. It sends a letter that is full or has HAK_LETTER_BYTES of blocks, and all letters when
// it hands over what it holds back. The letter stays in the owner's mail until the owner drains it
// and marks the blocks free in its runs: no other thread touches these runs' second cache lines. A
// letter is written again when its last reader is done with it.
//
// Heaps that a thread has or had get letters. If no thread has the heap (an orphan), the sender
// opens the mail at once as its owner: one claim serves all blocks of a letter (R2). If an owner
// does not open its mail, so that all letters of a thread are under way, that thread takes the mail
// and hands over all blocks in it one by one (R1), other writers' too; then it writes no letters
// for a while. So what a sleeping owner holds back is bounded, and its runs go back by relief (R3).
//
// A block in a letter is live for its run: it is in no mask. A second free is noticed at once if it
// is in the same letter; if it went another way, earlier or later, when the letter is opened.
// Tests: test/unit/test_letter.c, test/model/letter.pml. Figures: docs/decisions/0036-letters.md

#ifndef HAK_THREAD_LETTER_H
#define HAK_THREAD_LETTER_H

#include "superslab/slab.h"

#define HAK_LETTER_BYTES ((uint32_t)128 << 10)

// Of a new heap.
void hak_letter_init(hak_heap_t *heap);
// Writes a block of another heap's L2 run into a letter. False: the block has to go another way.
bool hak_letter_add(hak_heap_t *heap, hak_slab_t *slab, uint32_t block, const char *function);
// Whether this thread has written the block into a letter that it has not sent yet.
bool hak_letter_holds(const hak_heap_t *heap, const hak_slab_t *slab, uint32_t block);
// Sends all letters that this heap's thread has written.
void hak_letter_send_all(hak_heap_t *heap);
// Opens the heap's mail and takes the blocks back (owner).
void hak_letter_open_all(hak_heap_t *heap);
// Takes the mail of any heap and hands its blocks over one by one. mine: the calling thread's heap,
// for statistics; NULL if it has none.
void hak_letter_recall(hak_heap_t *heap, hak_heap_t *mine);
// In the child of a fork, once all other heaps' mail is empty: then no mail holds letters of mine.
void hak_letter_after_fork(hak_heap_t *mine);

#endif
