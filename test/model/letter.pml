// letter.pml: protocol R4. Threads write what they free of a heap's L2 runs into letters and send
// these into the heap's mail, a stack that is taken whole: by the owner, by a thread that looks
// after an orphan, or by a writer whose letters are all on their way.
//
// One heap, whose thread may leave it and come back; two writers with a letter each, which
// names one block. Nothing is bounded: blocks are handed out, written, sent and taken in for ever,
// and each thread may stop at any time. Then init looks at what is left.
//
// Mirrors src/thread/letter.c: hak_letter_add (find, begin), send, hak_letter_open_all,
// hak_letter_recall; src/thread/heap.c: hak_heap_service, detach, attach, hak_heap_drain. What
// becomes of blocks in a remote word is in remote.pml, relief.pml.
//
// Checked: a letter is written by its writer only while no other thread has it, and read by one
// thread at a time; what it names is what was written, and each block is taken in once; owner fields
// are touched by the owner only; and when no thread is at work, a sent letter is in the mail, and
// an orphan has no mail.
//
// model letter
// broken letter BROKEN_plain_store: send stores instead of compare-and-swap
// broken letter BROKEN_next_late: next is read after the letter was given back to its writer
// broken letter BROKEN_given_early: the letter is given back before it has been read
// broken letter BROKEN_sent_late: it is marked as sent when it is in the mail already
// broken letter BROKEN_link_late: next is written after the swap
// broken letter BROKEN_no_look: send does not look whether the owner has left
// broken letter BROKEN_leaves: the owner leaves without a last look
// broken letter BROKEN_look_plain: who looks after an orphan stores CLAIMED instead of a swap

#define WRITERS 2
#define BLOCKS 2
#define NONE 9
mtype = { ATTACHED, ORPHAN, CLAIMED };
mtype = { FREE, LIVE, LETTER, REMOTE };

mtype state = ATTACHED;
byte mail;                                             // letter + 1
byte hint[WRITERS];                                    // the block, + 1
byte next[WRITERS];
bit sent[WRITERS];
bit writing[WRITERS];                                  // letter->owner != NOBODY (writer)

// Truth.
mtype where[BLOCKS] = LIVE;
byte owner;                                            // thread that owns the heap: 0 at first
byte with[WRITERS] = NONE;                             // who took the letter out of the mail
bit posted[WRITERS];                                   // in the mail
byte running = WRITERS + 1;

// exchange_seq_cst(&heap->mail, NULL): list
inline take_mail() {
  d_step {
    list = mail; mail = 0; l = list;
    do
    :: l && with[l - 1] == NONE && posted[l - 1] ->
      with[l - 1] = _pid; posted[l - 1] = 0; l = next[l - 1]
    :: else -> break
    od;
    l = 0
  }
}

// The loops of hak_letter_open_all and hak_letter_recall: what is named becomes `to`.
inline read_mail(to) {
  take_mail();
  do
  :: list == 0 -> break
  :: else ->
    l = list - 1;
#ifndef BROKEN_next_late
    list = next[l];                                    // next = letter->next
#endif
#ifdef BROKEN_given_early
    d_step { with[l] = NONE; sent[l] = 0 };
#endif
    b = hint[l];                                       // letter->hint[i]
    d_step {                                           // open_one or deliver_one
      assert(b && where[b - 1] == LETTER);
      assert(to == REMOTE || owner == _pid);
      where[b - 1] = to
    };
#ifndef BROKEN_given_early
    d_step { with[l] = NONE; sent[l] = 0 };            // store_release(&letter->sent, false)
#endif
#ifdef BROKEN_next_late
    list = next[l]
#endif
  od;
  skip;
  d_step { l = 0; b = 0 }
}

// hak_heap_service
inline service() {
  do
  :: state != ORPHAN -> break                          // load_seq_cst(&owner->state)
  :: else ->
    if
    :: mail == 0 -> break                              // load_seq_cst(&owner->mail)
    :: else ->
#ifdef BROKEN_look_plain
      ok = 1;
      d_step { state = CLAIMED; assert(owner == NONE); owner = _pid };
#else
      d_step {                                         // hak_heap_take(owner, CLAIMED)
        ok = state == ORPHAN;
        if
        :: ok -> state = CLAIMED; assert(owner == NONE); owner = _pid
        :: else
        fi
      };
#endif
      if
      :: ok ->
        read_mail(FREE);                               // hak_heap_drain
        d_step { owner = NONE; state = ORPHAN }        // hak_orphan_leave
      :: else -> break
      fi
    fi
  od
}

active proctype thread() {
  byte l, b, list;
  bit ok;
  do
  :: owner == _pid ->
    if
    :: d_step { where[0] == FREE -> where[0] = LIVE }  // the run has it, and hands it out
    :: d_step { where[1] == FREE -> where[1] = LIVE }
    :: d_step { where[0] == REMOTE -> where[0] = FREE } // hak_slab_collect
    :: d_step { where[1] == REMOTE -> where[1] = FREE }
    :: mail != 0 -> read_mail(FREE)                    // hak_heap_drain
    :: d_step { owner = NONE; state = ORPHAN };        // detach: hak_orphan_leave
#ifndef BROKEN_leaves
       service()
#endif
    :: break
    fi
  :: owner != _pid ->
    if
    :: d_step { state == ORPHAN -> state = ATTACHED;   // attach: hak_heap_take(heap, ATTACHED)
         assert(owner == NONE); owner = _pid }
    :: break
    fi
  od;
  skip;
  d_step { running--; ok = 0 }
}

active [WRITERS] proctype writer() {
  byte me = _pid - 1, l, b, list, top;
  bit ok;
  do
  :: !writing[me] && !sent[me] ->                      // find: load_acquire(&letter->sent)
    if
    :: d_step { where[0] == LIVE -> where[0] = LETTER; b = 1 }
    :: d_step { where[1] == LIVE -> where[1] = LETTER; b = 2 }
    :: where[0] != LIVE && where[1] != LIVE -> b = 0
    fi;
    if
    :: b -> d_step { assert(with[me] == NONE && !posted[me]); hint[me] = b; writing[me] = 1; b = 0 }
    :: else
    fi
  :: writing[me] ->                                    // send
    d_step { writing[me] = 0; top = mail };            // top = load_relaxed(&owner->mail)
#ifndef BROKEN_sent_late
    sent[me] = 1;                                      // store_relaxed(&letter->sent, true)
#endif
    do
    ::
#ifndef BROKEN_link_late
      next[me] = top;                                  // letter->next = top
#endif
#ifdef BROKEN_plain_store
      d_step { mail = me + 1; ok = 1; posted[me] = 1 };
#else
      d_step {                                         // cas_seq_cst(&owner->mail, &top, letter)
        ok = mail == top;
        if
        :: ok -> mail = me + 1; posted[me] = 1
        :: else -> top = mail
        fi
      };
#endif
      if
      :: ok -> break
      :: else
      fi
    od;
#ifdef BROKEN_link_late
    next[me] = top;
#endif
#ifdef BROKEN_sent_late
    sent[me] = 1;
#endif
    skip;
    d_step { top = 0; ok = 0 };
#ifndef BROKEN_no_look
    service()                                          // hak_heap_service(owner)
#endif
  :: sent[me] -> read_mail(REMOTE)                     // make_room: hak_letter_recall
  :: break
  od;
  skip;
  d_step { running--; ok = 0 }
}

init {
  byte i;
  running == 0;
  assert(state != CLAIMED && (state == ATTACHED || mail == 0));
  d_step {
    do
    :: i < WRITERS ->
      assert(with[i] == NONE);
      assert(sent[i] == posted[i]);                    // it is in the mail, and is found there
      assert(!posted[i] || mail == i + 1 || (mail && next[mail - 1] == i + 1));
      assert(!(sent[i] || writing[i]) || where[hint[i] - 1] == LETTER);
      i++
    :: else -> break
    od
  }
}
