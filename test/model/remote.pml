// remote.pml: protocols R1 and R2. Threads that do not own a slab hand blocks
// back to it through its word `remote`; the first of them also puts the slab into
// the inbox of the owning heap. One owner, two slabs (of two blocks and of one),
// two freers, interleaved in every way there is. Nothing is bounded:
// blocks are allocated, freed and collected again for ever.
//
// Mirrors src/thread/remote.c (hak_remote_free_tiny, hak_remote_free_l2, push_tiny, push_l2),
// src/thread/heap.c (hak_heap_post, hak_heap_drain, take_back, came_back, releasable),
// src/superslab/slab.c (hak_slab_collect), src/thread/front.c (is_free_l2). Each
// step names its statement. Chains that are kept whole (slab->chains) belong to the owner
// alone and are left out. What becomes of heaps whose thread has ended is in orphan.pml.
//
// Checked: a block is in one place at a time and never handed out twice; a slab is
// in the inbox at most once; a slab that goes back to its SuperSlab is not touched
// by a freer any more; and whenever no thread is at work, what was freed remotely is
// in a slab that is QUEUED and in the inbox, where the owner finds it.
//
// model remote
// broken remote BROKEN_plain_store: push stores instead of compare-and-swap
// broken remote BROKEN_link_late: the chain is linked after the swap (relaxed, not release)
// broken remote BROKEN_post_always: every push posts, not only the one that set QUEUED
// broken remote BROKEN_post_link_late: inbox_next is written after the inbox's swap
// broken remote BROKEN_queued_late: drain takes the chain first and clears QUEUED afterwards
// broken remote BROKEN_queued_early: a collect outside drain clears QUEUED too
// broken remote BROKEN_next_late: drain reads inbox_next after it has collected
// broken remote BROKEN_release_queued: an empty slab is released while QUEUED
// model remote_l2 -DL2
// broken remote_l2 BROKEN_plain_store: as above, with masks
// broken remote_l2 BROKEN_post_always: as above
// broken remote_l2 BROKEN_queued_late: as above
// broken remote_l2 BROKEN_queued_early: as above
// broken remote_l2 BROKEN_release_queued: as above

#define SLABS 2
#define BLOCKS 3
#define home(b) (b / 2)                    // slab of block 0, 1: 0; of block 2: 1
#define capacity(s) (2 - s)
#define bit(b) (1 << b)
#define all(s) (3 + s)                     // blocks of slab 0: bits 0, 1; of slab 1: bit 2
#define blocks_of(s) ((s) -> 4 : 3)

// The word `remote`. tiny: first block + 1 (0: none), length. L2: mask.
byte head[SLABS], count[SLABS];
bit queued[SLABS];                         // HAK_REMOTE_QUEUED
// The owner's fields. tiny: slab->free and the links in the blocks. L2: slab->mask.
byte free[SLABS];
byte next[BLOCKS];                         // first word of a free block, block + 1
byte inbox_next[SLABS], inbox;             // slab + 1, 0: end

// What is true, whatever the words say.
mtype = { LIVE, MAP, SENT, FREE };         // held by the program; in a remote map; in
mtype where[BLOCKS];                       // a remote word; on the owner's list
bit used[SLABS];                           // 0: given back to the SuperSlab
bit posted[SLABS];                         // between post and drain
byte busy;                                 // threads in the middle of something

#define empty(s) ((s == 0 && where[0] == FREE && where[1] == FREE) || (s == 1 && where[2] == FREE))

// --------------------------------------------------------------------------
// thread/remote.c: push_tiny, push_l2, with the chain or mask in chain_*.

inline post_slab() { // hak_heap_post
  d_step { top = inbox };                              // top = load_relaxed(&owner->inbox)
  do
  ::
#ifndef BROKEN_post_link_late
    d_step { assert(used[s]); inbox_next[s] = top };   // slab->inbox_next = top
#endif
    d_step {                                           // cas_seq_cst(&owner->inbox, &top, index)
      if
      :: inbox == top -> inbox = s + 1; assert(!posted[s]); posted[s] = 1; done = 1
      :: else -> top = inbox; done = 0
      fi
    };
    if
    :: done -> break
    :: else
    fi
  od;
#ifdef BROKEN_post_link_late
  skip;
  d_step { assert(used[s]); inbox_next[s] = top };
#endif
  skip
}

inline push() {
  d_step {                                             // old = load_relaxed(&slab->remote)
    assert(used[s]); old_head = head[s]; old_count = count[s]; old_queued = queued[s]
  };
  do
  ::
#if !defined(L2) && !defined(BROKEN_link_late)
    d_step { next[chain_tail - 1] = old_head };        // *entry->tail = old & POINTER_MASK
#endif
#ifdef BROKEN_plain_store
    d_step { done = 1; sent() }
#else
    d_step { // cas_acq_rel(&slab->remote, &old, now | QUEUED)
      assert(used[s]);
      if
      :: head[s] == old_head && count[s] == old_count && queued[s] == old_queued -> done = 1; sent()
      :: else -> done = 0; old_head = head[s]; old_count = count[s]; old_queued = queued[s]
      fi
    }
#endif
    if
    :: done -> break
    :: else
    fi
  od;
#if !defined(L2) && defined(BROKEN_link_late)
  skip;
  d_step { next[chain_tail - 1] = old_head };
#endif
#ifdef BROKEN_post_always
  post_slab()
#else
  if
  :: old_queued                                        // if (old & QUEUED) return
  :: else -> post_slab()                               // hak_heap_post(owner, slab)
  fi
#endif
}

inline sent() { // the word becomes old plus the chain, with QUEUED
#ifdef L2
  head[s] = old_head | chain_head;
#else
  head[s] = chain_head; count[s] = old_count + chain_count;
#endif
  queued[s] = 1;
  b = 0;
  do
  :: b < BLOCKS -> if :: chain & bit(b) -> assert(where[b] == MAP); where[b] = SENT :: else fi; b++
  :: else -> break
  od
}

inline add(x) { // hak_remote_free_tiny, hak_remote_free_l2: only this thread's memory
  where[x] = MAP; chain = chain | bit(x);
#ifdef L2
  chain_head = chain_head | bit(x)
#else
  next[x] = chain_head; chain_head = x + 1;
  chain_tail = (chain_count == 0 -> x + 1 : chain_tail);
  chain_count++
#endif
}

proctype freer() {
  byte s, b, top, chain, chain_head, chain_tail, chain_count;
  byte old_head, old_count;
  bit old_queued, done;
end:
  do
  ::
    // The program frees one block, or both of a slab, that it holds.
    if
    :: atomic { where[0] == LIVE -> busy++; s = 0; add(0) }
    :: atomic { where[1] == LIVE -> busy++; s = 0; add(1) }
    :: atomic { where[2] == LIVE -> busy++; s = 1; add(2) }
    :: atomic { where[0] == LIVE && where[1] == LIVE -> busy++; s = 0; add(1); add(0) }
    fi;
#ifdef L2
    // thread/front.c is_free_l2: no block the program holds looks like a free one,
    // however late the two words are read: (mask | remote) >> number & 1
    d_step { assert(used[s]); assert((free[s] & chain) == 0) };
    d_step { assert(used[s]); assert((head[s] & chain) == 0) };
#endif
    push();
    d_step {
      busy--;
      s = 0; b = 0; top = 0; chain = 0; chain_head = 0; chain_tail = 0; chain_count = 0;
      old_head = 0; old_count = 0; old_queued = 0; done = 0
    }
  od
}

// --------------------------------------------------------------------------
// The owner.

// superslab/slab.c: what was taken out of the word (got_*) joins the free list.
inline join() {
#ifdef L2
  d_step {
    free[s] = free[s] | got;                           // slab->mask |= remote
    b = 0;
    do
    :: b < BLOCKS -> if :: got & bit(b) -> assert(where[b] == SENT); where[b] = FREE :: else fi; b++
    :: else -> break
    od;
    got = 0; b = 0
  }
#else
  d_step {                                             // collect_tiny
    if
    :: got != 0 ->
      b = got; n = 1;
      do                                               // walk to the tail
      :: n < got_count -> assert(b != 0); b = next[b - 1]; n++
      :: else -> break
      od;
      assert(b != 0);
      if
      :: free[s] -> next[b - 1] = free[s]              // *tail = slab->free
      :: else
      fi;
      free[s] = got;                                   // slab->free = head
      // What the chain said must be what was sent: walk the list now.
      b = free[s]; n = 0;
      do
      :: b -> assert(where[b - 1] == (n < got_count -> SENT : FREE)); where[b - 1] = FREE;
        n++; assert(n <= capacity(s)); b = next[b - 1]
      :: else -> break
      od
    :: else
    fi;
    got = 0; got_count = 0; b = 0; n = 0
  }
#endif
}

inline collect() { // hak_slab_collect(slab, false): QUEUED stays as it is
  d_step {                                             // fetch_and_acq_rel(&slab->remote, QUEUED)
    got = head[s]; got_count = count[s]; head[s] = 0; count[s] = 0
#ifdef BROKEN_queued_early
    ; queued[s] = 0
#endif
  };
  join()
}

inline dequeue() { // hak_slab_collect(slab, true)
#ifdef BROKEN_queued_late
  collect();
  d_step { posted[s] = 0; queued[s] = 0 }
#else
  d_step {                                             // exchange_acq_rel(&slab->remote, 0)
    got = head[s]; got_count = count[s]; head[s] = 0; count[s] = 0; queued[s] = 0;
    posted[s] = 0
  };
  join()
#endif
}

// hak_heap_release when releasable(slab): live is the owner's own knowledge, the
// word `remote` is not.
inline release_if_empty() {
  if
  :: empty(s) ->
    if
#ifdef BROKEN_release_queued
    :: d_step { head[s] == 0 -> used[s] = 0 };
#else
    :: d_step { head[s] == 0 && !queued[s] -> used[s] = 0 }; // load_acquire(&slab->remote) == 0
#endif
      // Another heap, or this one, acquires it again: hak_slab_init.
      d_step { used[s] = 1; head[s] = 0; count[s] = 0; queued[s] = 0; inbox_next[s] = 0 }
    :: else
    fi
  :: else
  fi
}

inline alloc(x) { // hak_front_hit, alloc_l2: the program gets a block
#ifdef L2
  b = ((free[x] & 1) -> 0 : ((free[x] & 2) -> 1 : 2));
  free[x] = free[x] & ~bit(b);
#else
  b = free[x] - 1;
  free[x] = next[b];
#endif
  assert(used[x] && home(b) == x && where[b] == FREE);
  where[b] = LIVE; b = 0
}

inline local_free(x) { // hak_front_put, free_l2
#ifdef L2
  free[home(x)] = free[home(x)] | bit(x);
#else
  next[x] = free[home(x)]; free[home(x)] = x + 1;
#endif
  where[x] = FREE
}

proctype owner() {
  byte s, b, list, got, got_count, n;
end:
  do
  :: d_step { free[0] -> alloc(0) }
  :: d_step { free[1] -> alloc(1) }
  :: d_step { where[0] == LIVE -> local_free(0) }
  :: d_step { where[2] == LIVE -> local_free(2) }
  // thread/front.c refill: what came back to the slab in front, which has nothing left:
  // (load_relaxed(remote) & ~QUEUED) != 0
  :: d_step { !free[0] && head[0] -> s = 0; busy++ }; collect(); d_step { s = 0; busy-- }
  :: d_step { !free[1] && head[1] -> s = 1; busy++ }; collect(); d_step { s = 0; busy-- }
  // hak_heap_release_idle, and slab events of local frees
  :: s = 0; release_if_empty()
  :: s = 1; release_if_empty(); s = 0
  // hak_heap_drain: if (load_relaxed(&heap->inbox) == 0) return
  :: d_step { inbox -> busy++ };
    d_step { list = inbox; inbox = 0 };                // exchange_seq_cst(&heap->inbox, 0)
    do
    :: list ->
      d_step { s = list - 1; assert(used[s]) };
#ifdef BROKEN_next_late
      dequeue();
      list = inbox_next[s];
#else
      list = inbox_next[s];                            // index = slab->inbox_next
      dequeue();
#endif
      release_if_empty()                               // came_back: below_mark
    :: atomic { else -> s = 0; busy--; break }
    od
  od
}

// Whenever nobody is at work: nothing is lost.
proctype observer() {
end:
  do
  :: d_step {
      busy == 0 ->
      assert(queued[0] == posted[0] && queued[1] == posted[1]);
      assert(queued[0] || head[0] == 0);
      assert(queued[1] || head[1] == 0);
      // The inbox holds the posted slabs and no others.
      assert((inbox != 0) == (posted[0] || posted[1]));
      assert(inbox == 0 || posted[inbox - 1]);
      assert(!(posted[0] && posted[1]) || (inbox_next[inbox - 1] == 3 - inbox
                                           && inbox_next[2 - inbox] == 0));
      // What was sent is in a remote word.
#ifdef L2
      assert((head[0] | head[1]) == (where[0] == SENT) + 2 * (where[1] == SENT)
                                    + 4 * (where[2] == SENT));
#else
      assert(count[0] + count[1] == (where[0] == SENT) + (where[1] == SENT) + (where[2] == SENT));
#endif
    }
  od
}

init {
  atomic {
    used[0] = 1; used[1] = 1;
    where[0] = LIVE; where[1] = LIVE; where[2] = LIVE;
    run freer(); run freer(); run owner(); run observer()
  }
}
