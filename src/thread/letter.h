// letter.h: L2 blocks of other heaps' runs go home many at a time (protocol R4).
//
// A thread writes the hints of such blocks (thread/ring.h) into one of its letters, one owner's
// to a letter, and sends it when it is full or has HAK_LETTER_BYTES of blocks, and whenever all
// that is held back is handed over. It is in the owner's mail then, until the owner drains it
// and marks the blocks free in its runs, whose second lines no other thread has touched. A letter
// is written again when its last reader is done with it.
//
// Heaps that a thread has or had get letters. Of one that none has, an orphan, the sender opens
// the mail at once as its owner, so that one claim serves all blocks of a letter (R2). Does an
// owner not come by its mail, so that all letters of a thread are on their way, that thread takes it
// and hands the blocks over one by one (R1), for itself and all others; it writes none for a while
// then. So what a sleeping owner holds back is bounded, and its runs go back by relief (R3).
//
// A block in a letter is live for its run: it is in no mask. Twice in one letter is noticed
// at once, freed before or again elsewhere when the letter is opened.
// Tests: test/unit/test_letter.c, test/model/letter.pml. Figures: docs/decisions/0036-letters.md

#ifndef HAK_THREAD_LETTER_H
#define HAK_THREAD_LETTER_H

#include "superslab/slab.h"

#define HAK_LETTER_BYTES ((uint32_t)128 << 10)

// Writes a block of an L2 run of another heap's into a letter; false: it has to go another way.
bool hak_letter_add(hak_heap_t *heap, hak_slab_t *slab, uint32_t block, const char *function);
// Whether this thread has written the block into one that it has not sent yet.
bool hak_letter_holds(const hak_heap_t *heap, const hak_slab_t *slab, uint32_t block);
// Sends all that this heap's thread has written.
void hak_letter_send_all(hak_heap_t *heap);
// Takes in what is in the heap's mail (owner).
void hak_letter_open_all(hak_heap_t *heap);
// Takes the mail of any heap and hands the blocks over one by one. mine: the calling thread's
// heap, NULL without one; for statistics.
void hak_letter_recall(hak_heap_t *heap, hak_heap_t *mine);
// In the child of a fork, once the mail of all others is empty: nobody has its letters any more.
void hak_letter_after_fork(hak_heap_t *mine);

#endif
