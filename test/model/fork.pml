// fork.pml: protocol F. The child of a fork has the memory of a process whose other
// threads stopped at some point, and that was copied piece by piece while they ran:
// each word has a value it had at some time, and two words need not match. System
// calls that change mappings wait until the copy is complete.
//
// fork_pool: one SuperSlab of two slabs; the forking thread holds slab 1 or none;
// another thread claims, writes, releases, evicts and commits, and vanishes. The
// child then takes all there is.
// fork_chain: another thread pushes two blocks into a slab of the forking thread and
// vanishes; in the child a new thread pushes a third and the owner drains.
// fork_letter: a letter of the forking thread is on its way to another thread, which reads
// it or writes one itself, and vanishes; in the child the letter is written again, to a new thread.
// fork_set: blocks of an L2 run that another thread freed are in its remote word; a handler that
// interrupted the owner's drain, or anything else, calls fork. In the child a new thread frees one
// more.
//
// Mirrors src/superslab/shared_pool.c: hak_pool_rebuild; src/thread/heaps.c:
// hak_heap_after_fork, post_forked; and what they repair: claim, evict, hak_pool_map,
// hak_superslab_acquire, hak_superslab_decommit, push, hak_heap_post, hak_heap_drain;
// src/thread/letter.c: hak_letter_after_fork, hak_letter_add, hak_letter_open_all, hak_letter_recall.
//
// Checked, in the child: a slab is handed out once, and none that the forking thread
// holds; its memory can be used; what is said to be zero is zero; chains and inboxes are
// consistent; what a letter names is taken in once, by the thread it was written to.
//
// model fork_pool -DPOOL
// broken fork_pool BROKEN_dirty_kept: the child believes in the word `dirty`
// broken fork_pool BROKEN_cold_kept: the child believes a number with free slabs to be cold
// model fork_chain -DCHAIN
// broken fork_chain BROKEN_chain_kept: the child keeps the chains that were handed over
// broken fork_chain BROKEN_inbox_kept: the child keeps the inbox
// model fork_letter -DLETTER
// broken fork_letter BROKEN_mail_kept: the child keeps the mail of DEAD heaps
// broken fork_letter BROKEN_sent_kept: the child believes that its letter is still on its way
// broken fork_letter BROKEN_own_mail_kept: the child keeps its own mail
// model fork_set -DSET
// broken fork_set BROKEN_queued_kept: the child leaves the run QUEUED
// broken fork_set BROKEN_at_once: the child posts the run anew before the interrupted drain goes on
// broken fork_set BROKEN_post_unasked: an interrupted post goes on although the run is not QUEUED
// broken fork_set BROKEN_not_asked: the owner posts a run that the new thread has posted

bit forking, copied;                                   // the copy is being made; is complete

// A copy in any order: word i of the parent becomes word i of the child.
#define WORDS 6
byte parent[WORDS], child[WORDS];

proctype forker() {
  byte done;                                           // set of words copied
  forking = 1;
  do
  :: d_step { !(done & 1) -> child[0] = parent[0]; done = done | 1 }
  :: d_step { !(done & 2) -> child[1] = parent[1]; done = done | 2 }
  :: d_step { !(done & 4) -> child[2] = parent[2]; done = done | 4 }
  :: d_step { !(done & 8) -> child[3] = parent[3]; done = done | 8 }
  :: d_step { !(done & 16) -> child[4] = parent[4]; done = done | 16 }
  :: d_step { !(done & 32) -> child[5] = parent[5]; done = done | 32 }
  :: done == 63 -> break
  od;
  forking = 0; copied = 1
}

#ifdef POOL
#define FREE_MASK 0
#define DIRTY 1
#define COLD 2
#define MAPPED 3                                       // the kernel's page tables
#define CONTENT 4                                      // slabs whose memory is not zero
#define ALL_FREE 3
byte mine;                                             // slabs of the forking thread

proctype other() {
  byte bits;
  do
  :: d_step { bits == 0 && parent[FREE_MASK] ->        // claim
      bits = ((parent[FREE_MASK] & 1) -> 1 : 2);
      parent[FREE_MASK] = parent[FREE_MASK] & ~bits };
    parent[DIRTY] = parent[DIRTY] | bits               // take
  :: bits -> parent[CONTENT] = parent[CONTENT] | bits  // the program writes
  :: bits -> parent[FREE_MASK] = parent[FREE_MASK] | bits; bits = 0 // hak_pool_release
  :: d_step { bits == 0 && parent[FREE_MASK] == ALL_FREE -> parent[FREE_MASK] = 0 }; // evict
    if                                                 // hak_os_decommit: a system call
    :: d_step { !forking -> parent[MAPPED] = 0; parent[CONTENT] = 0 };
      parent[DIRTY] = 0;
      parent[COLD] = 1                                 // hak_pool_add_cold
    :: !forking -> parent[FREE_MASK] = ALL_FREE        // refused, contents kept
    fi
  :: d_step { bits == 0 && parent[COLD] -> parent[COLD] = 0 }; // hak_pool_take_cold
    if                                                 // commit
    :: d_step { !forking -> parent[MAPPED] = 1 }
    :: parent[MAPPED]                                  // mapped earlier, without an entry
    fi;
    bits = 1;
    parent[DIRTY] = parent[DIRTY] | bits;
    parent[FREE_MASK] = ALL_FREE & ~bits
  :: copied -> break
  od
}

inline handed_out() {
  d_step {
    assert((bits & mine) == 0 && (bits & given) == 0);
    assert(child[MAPPED]);
    assert((child[DIRTY] & bits) || !(child[CONTENT] & bits)); // slab->zeroed
    given = given | bits;
    child[DIRTY] = child[DIRTY] | bits;
    child[CONTENT] = child[CONTENT] | bits
  }
}

proctype in_child() {
  byte bits, given;
  copied;
  // hak_pool_rebuild
#ifndef BROKEN_dirty_kept
  child[DIRTY] = ALL_FREE;
#endif
#ifndef BROKEN_cold_kept
  if
  :: child[FREE_MASK] != 0 -> child[COLD] = 0
  :: else
  fi;
#endif
  do
  :: child[FREE_MASK] ->                               // claim, take
    d_step { bits = ((child[FREE_MASK] & 1) -> 1 : 2);
             child[FREE_MASK] = child[FREE_MASK] & ~bits };
    handed_out()
  :: child[COLD] ->                                    // hak_superslab_acquire
    child[COLD] = 0;
    child[MAPPED] = 1;                                 // pages the other thread left stay
    bits = 1;
    handed_out();
    child[FREE_MASK] = ALL_FREE & ~1
  :: else -> break
  od
}

init {
  atomic {
    parent[MAPPED] = 1;
    if
    :: parent[FREE_MASK] = 3
    :: parent[FREE_MASK] = 1; mine = 2; parent[DIRTY] = 2; parent[CONTENT] = 2
    :: parent[COLD] = 1
    fi;
    run forker(); run other(); run in_child()
  }
}
#endif

#ifdef CHAIN
// Blocks 1, 2 (the other thread's) and 3 (the child's). A slab of the forking thread.
#define REMOTE 0                                       // first block | length << 2 | QUEUED << 4
#define LINK1 1                                        // first word of block 1: garbage before
#define LINK2 2
#define INBOX 3
#define INBOX_NEXT 4
#define LINK3 5
#define GARBAGE 77
#define QUEUED 16

// push and hak_heap_post by the only thread that does: the link (*entry->tail = old &
// POINTER_MASK), the compare-and-swap of the word, and if that set QUEUED,
// slab->inbox_next = top and the compare-and-swap of the inbox.
#define push(w, x, link)                                                          \
  w[link] = w[REMOTE] & 3;                                                        \
  d_step { old = w[REMOTE]; w[REMOTE] = x | ((((old >> 2) & 3) + 1) << 2) | QUEUED }; \
  if                                                                              \
  :: !(old & QUEUED) -> w[INBOX_NEXT] = w[INBOX]; w[INBOX] = 1                    \
  :: else                                                                         \
  fi

proctype other() {
  byte old, x = 1;
  do
  :: x <= 2 ->
    push(parent, x, x);                                // LINK1 and LINK2 are 1 and 2
    x++
  :: else -> break
  od
}

proctype in_child() {
  byte old, index, slabs, block, count;
  copied;
  // hak_heap_after_fork
#ifndef BROKEN_inbox_kept
  child[INBOX] = 0;                                    // store_if_other(&mine->inbox, 0)
#endif
#ifndef BROKEN_chain_kept
  child[REMOTE] = 0;                                   // store_relaxed(&slab->remote, 0)
#endif
  // A new thread frees block 3.
  push(child, 3, LINK3);
  // hak_heap_drain
  d_step { index = child[INBOX]; child[INBOX] = 0 };
  do
  :: index ->
    slabs++;
    assert(slabs <= 1);                                // posted once
    index = child[INBOX_NEXT];
    d_step {                                           // hak_slab_collect(slab, true)
      block = child[REMOTE] & 3; count = (child[REMOTE] >> 2) & 3; child[REMOTE] = 0;
      do
      :: count ->
        assert(block >= 1 && block <= 3);
        block = ((block == 1) -> child[LINK1] : ((block == 2) -> child[LINK2] : child[LINK3]));
        count--
      :: else -> break
      od;
      assert(block == 0)                               // the chain ends where its length says
    }
  :: else -> break
  od;
  assert(slabs == 1)                                   // what the child freed is found
}

init {
  atomic {
    parent[LINK1] = GARBAGE; parent[LINK2] = GARBAGE; parent[LINK3] = GARBAGE;
    run forker(); run other(); run in_child()
  }
}
#endif

#ifdef LETTER
// The forking thread's letter may be in the mail of another heap, whose thread may be reading it, or
// not have been sent yet; that thread may be writing one to the forking thread. In the child a new
// thread has a heap.
#define MAIL 0                                         // other heap's: the forking thread's letter
#define SENT 1                                         // letter->sent of it
#define OWN_MAIL 2                                     // forking thread's: the other thread's letter
#define OTHERS_HINT 3                                  // what that one names: garbage before
#define BLOCK 5
#define OLD 0                                          // block of the other heap
#define NEW 1                                          // block of the new thread's
mtype = { LIVE, IN_LETTER, FREE };
bit begun;                                             // the letter is being written at the fork

proctype other() {
  if
  :: parent[MAIL] ->                                   // hak_letter_open_all
    parent[MAIL] = 0;                                  // exchange_seq_cst(&heap->mail, NULL)
    parent[SENT] = 0
  :: parent[OTHERS_HINT] = BLOCK;                      // hak_letter_add, send
    parent[OWN_MAIL] = 1
  fi
}

proctype in_child() {
  mtype where[2];
  byte hint;                                           // what the forking thread's letter names
  bit writing, posted;                                 // it is being written; in the new heap's mail
  copied;
  d_step { where[OLD] = IN_LETTER; where[NEW] = LIVE; hint = OLD; writing = begun };
  // hak_heap_after_fork, hak_letter_after_fork
#ifndef BROKEN_mail_kept
  child[MAIL] = 0;                                     // store_relaxed(&heap->mail, NULL)
#endif
#ifndef BROKEN_sent_kept
  child[SENT] = 0;                                     // store_relaxed(&letters[i].sent, false)
#endif
#ifndef BROKEN_own_mail_kept
  child[OWN_MAIL] = 0;                                 // store_relaxed(&mine->mail, NULL)
#endif
  do
  :: !child[SENT] && !writing && where[NEW] == LIVE -> // hak_letter_add: find, begin
    d_step { hint = NEW; where[NEW] = IN_LETTER; writing = 1 }
  :: writing && hint == NEW ->                         // send, to the new heap
    d_step { child[SENT] = 1; writing = 0; posted = 1 }
  :: writing && hint == OLD ->                         // to the one that is DEAD
    d_step { child[SENT] = 1; writing = 0; child[MAIL] = 1 }
  :: posted ->                                         // hak_letter_open_all by the new thread
    d_step { assert(where[hint] == IN_LETTER);
             where[hint] = FREE; posted = 0; child[SENT] = 0 }
  :: where[NEW] == FREE -> where[NEW] = LIVE           // handed out again
  :: child[MAIL] ->                                    // hak_letter_recall of a DEAD heap's
    d_step { child[MAIL] = 0;
             assert(where[hint] == IN_LETTER && !writing && !posted);
             where[hint] = FREE; child[SENT] = 0 }
  :: !child[OWN_MAIL] -> child[OWN_MAIL] = 2           // one from the new thread
  :: child[OWN_MAIL] ->                                // hak_letter_open_all
    d_step { assert(child[OWN_MAIL] == 2 || child[OTHERS_HINT] == BLOCK); child[OWN_MAIL] = 0 }
  :: break
  od;
  assert(!child[SENT] || posted || child[MAIL])        // it can be written again some time
}

init {
  atomic {
    parent[OTHERS_HINT] = 77;
    if
    :: parent[MAIL] = 1; parent[SENT] = 1
    :: begun = 1
    :: skip
    fi;
    run forker(); run other(); run in_child()
  }
}
#endif

#ifdef SET
// One run. Block 1 was freed before the fork, block 2 in the child.
byte remote = 1, collected;                            // sets of blocks
bit queued = 1, in_inbox = 1, inbox, may_start, pushed; // inbox: in that of the child's heap

// The run is in the inbox once at most: its link is one word.
#define post() d_step { assert(!in_inbox); in_inbox = 1; inbox = 1 }

// hak_slab_collect(slab, true) by the owner.
#define collect()                                                                 \
  d_step { assert(!(collected & remote)); collected = collected | remote; remote = 0; queued = 0 }

proctype owner() {
  bit mid_drain, mid_post, forked, announce;
  // The inbox was emptied by the drain that the handler came into the middle of, or was not; or it was
  // another heap's, of which the run had been, and it is about to be posted on.
  if
  :: in_inbox = 0; mid_drain = 1
  :: in_inbox = 0; mid_post = 1
  :: in_inbox = 0                                      // store_if_other(&mine->inbox, 0)
  fi;
  // hak_heap_after_fork
#ifndef BROKEN_queued_kept
  queued = 0; forked = 1;
#endif
#ifdef BROKEN_at_once
  queued = 1; post(); forked = 0;
#endif
  if
  :: mid_drain -> collect()                            // the drain goes on
#ifdef BROKEN_post_unasked
  :: mid_post -> post()
#else
  :: mid_post && queued -> post()                      // hak_heap_post; not reached: QUEUED is gone
#endif
  :: else
  fi;
  may_start = 1;
  do
  :: collected != 3 ->                                 // hak_heap_drain
    if
    :: forked ->                                       // post_forked
      forked = 0;
#ifdef BROKEN_not_asked
      announce = remote && !queued;
      if
      :: announce -> queued = 1; post()
      :: else
      fi
#else
      d_step { announce = remote && !queued; queued = queued || announce };
      if
      :: announce -> post()
      :: else
      fi
#endif
    :: else
    fi;
    if
    :: inbox -> d_step { inbox = 0; in_inbox = 0 }; collect()
    :: !inbox && pushed -> assert(collected == 3); break // not reached: then all is collected
    fi
  :: else -> break
  od;
  assert(collected == 3)                               // nothing is lost to the child
}

proctype pusher() {
  bit first;
  may_start;
  d_step { first = !queued; remote = remote | 2; queued = 1 };
  if
  :: first -> post()
  :: else
  fi;
  pushed = 1
}

init { atomic { run owner(); run pusher() } }
#endif
