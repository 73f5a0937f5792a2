// relief.pml: protocol R3. Slabs of a heap whose thread does not come by its inbox go back
// without it: a thread that frees their blocks takes the heap's whole inbox, keeps those that
// are nobody's any more (FULL, with all blocks in the remote word) and posts the rest again.
//
// One owner, freers, slabs of two blocks; heap 0 is the owner's, heap 1 a commons (with
// COMMONS: the owner may give a slab there when it becomes FULL). Nothing is bounded: blocks are
// handed out, freed and collected again for ever, the owner drains and the freers look into the
// inbox whenever they like (the counters emptied, emptied_due only steer that), and each thread
// may stop at any time. Then init looks into the inboxes for the last time, as their owner. Blocks
// are counted, not named; how the words treat chains is in remote.pml.
//
// With RUNS the slabs are L2 runs: hints may name blocks that the owner frees or gets back instead
// of bringing the run back, and a run that is PARTIAL or ACTIVE may wait among the sparse ones.
//
// Mirrors src/thread/relief.c: relieve, all_freed, take; src/thread/remote.c: push_tiny, push_l2, post;
// src/thread/heap.c: hak_heap_post, hak_heap_drain, take_back, below_mark, hak_heap_activate,
// hak_heap_retire_replaced, hak_heap_mark_full, hak_heap_turn; src/thread/front.c: refill,
// free_tiny, put_l2, alloc_l2; src/thread/warm.c: hak_warm_take; src/thread/ring.c: forget_oldest,
// hak_ring_push_all; src/thread/sparse.c: hak_sparse_add, hak_sparse_leave, waited;
// src/thread/commons.c: give; src/thread/scarce.c: has_unseen; src/superslab/slab.[ch]: hak_slab_collect, hak_slab_leave_active,
// hak_slab_settle.
//
// Checked: only the thread that has set QUEUED or popped a slab posts it, so it is in one inbox at
// most; a slab is taken only by the thread that popped it, when no block is live or with the owner,
// it is in no front and no list, and the owner is not working on it; the owner and freers touch no
// slab that has been given back; and after the last looks no freed block waits anywhere, each block
// is free or the program's, a slab with a free block is in front or in the list, and an unused one
// that is not in front has been given back.
//
// model relief -DSLABS=1 -DFREERS=2
// broken relief BROKEN_any_place: a slab is taken that is ACTIVE
// broken relief BROKEN_settle_early: the owner works on a slab once it is FULL
// broken relief BROKEN_not_all: a slab is taken that has a block in its remote word
// broken relief BROKEN_drop: what is not taken is not posted again
// broken relief BROKEN_place_first: the place is looked at before the blocks are in hand
// broken relief BROKEN_look_only: the blocks stay in the remote word, where the owner of an
//   ACTIVE slab collects them between the two looks, uses them up and makes the slab FULL
// broken relief BROKEN_keep_chain: the blocks of what is not taken are not put back
// broken relief BROKEN_look_after: drain looks at a FULL slab of which nothing has come back
// broken relief BROKEN_next_late: inbox_next is read after the slab was posted again
// model relief_slabs -DSLABS=2 -DFREERS=2
// broken relief_slabs BROKEN_drop: as above
// broken relief_slabs BROKEN_next_late: as above
// model relief_commons -DSLABS=1 -DFREERS=2 -DCOMMONS
// broken relief_commons BROKEN_owner_first: the owner is looked at before the place
// broken relief_commons BROKEN_any_owner: a slab is taken that is the commons'
// model relief_runs -DSLABS=1 -DFREERS=2 -DRUNS
// broken relief_runs BROKEN_not_all: as above
// broken relief_runs BROKEN_place_first: as above
// broken relief_runs BROKEN_look_after: as above
// broken relief_runs BROKEN_waits: a FULL run still waits among the sparse ones
// broken relief_runs BROKEN_stores: drain stores the mask of a run of which nothing came back

#define EVERY 2                                        // blocks of a slab
#define NOBODY 0
#define INBOX 9
mtype = { ACTIVE, PARTIAL, FULL };

byte inbox[2];                                         // slab + 1
byte front, partial;                                   // slab + 1; set of slabs (owner)

mtype place[SLABS] = FULL;
byte owner[SLABS];                                     // local
byte free[SLABS];                                      // blocks with the owner
byte sent[SLABS];                                      // remote without QUEUED
bit queued[SLABS];
byte inbox_next[SLABS];

// Truth.
bit used[SLABS] = 1;                                   // not given back
byte has[SLABS] = EVERY;                               // blocks the program has
byte with[SLABS];                                      // INBOX, or who posts it or takes it out
bit busy[SLABS];                                       // the owner is in the middle of work on it
byte running;

#ifdef RUNS
byte hints[SLABS];                                     // blocks that the ring names (owner)
bit waits[SLABS];                                      // in heap->sparse (owner)
#endif

// --------------------------------------------------------------------------
// Inboxes.

// hak_heap_post(h, x)
inline post(h, x) {
  d_step {                                             // top = load_relaxed(&owner->inbox)
    top = inbox[h]; assert(used[x] && queued[x] && with[x] == _pid);
    inbox_next[x] = top                                // slab->inbox_next = top
  };
  do
  :: d_step { inbox[h] == top ->                       // cas_seq_cst(&owner->inbox, &top, index)
       inbox[h] = x + 1; with[x] = INBOX; top = 0 };
     break
  :: d_step { inbox[h] != top -> top = inbox[h]; inbox_next[x] = top }
  od
}

// index = exchange_seq_cst(&heap->inbox, 0): list
inline pop_all(h) {
  d_step {
    inbox[h] -> list = inbox[h]; inbox[h] = 0; s = list; // load_relaxed(&heap->inbox)
    do
    :: s -> assert(with[s - 1] == INBOX); with[s - 1] = _pid; s = inbox_next[s - 1]
    :: else -> break
    od;
    s = 0
  }
}

// --------------------------------------------------------------------------
// The owner.

inline bring_back(x) {
  if
  :: place[x] == FULL && free[x] -> place[x] = PARTIAL; partial = partial | (1 << x)
  :: else
  fi
}

// Blocks of slab s came back to its owner, who touches no slab of others'. below_mark, with a mark
// of all blocks: one free brings it back.
inline below_mark() {
  d_step { assert(used[s] && busy[s]); bring_back(s); busy[s] = 0 };
  release()
}

// releasable(slab): the word is not the owner's
inline release() {
  if
  :: d_step { place[s] == PARTIAL && free[s] == EVERY && sent[s] == 0 && !queued[s] ->
       assert(used[s] && has[s] == 0 && with[s] == NOBODY);
       partial = partial & ~(1 << s); free[s] = 0;
#ifdef RUNS
       hints[s] = 0; waits[s] = 0;                     // forget
#endif
       used[s] = 0 }
  :: else
  fi
}

inline drain(h) {
  pop_all(h);
  do
  :: d_step { list == 0 -> s = 0; o = 0; is_full = 0; got = 0 }; break
  :: else ->
    d_step {                                           // index = slab->inbox_next
      s = list - 1; assert(used[s]); list = inbox_next[s];
      o = owner[s];                                    // hak_slab_owner(slab)
      is_full = o == h && place[s] == FULL             // its own field, while it is QUEUED
    };
    if
    :: o != h -> post(o, s)                            // hak_heap_post(owner, slab)
    :: else ->                                         // take_back
      d_step {                                         // exchange_acq_rel(&slab->remote, 0)
        assert(used[s] && queued[s] && with[s] == _pid);
        got = sent[s]; free[s] = free[s] + got; sent[s] = 0; queued[s] = 0; with[s] = NOBODY;
#ifdef RUNS
        by_hint = got && place[s] == FULL && free[s] != EVERY; // if the ring has room
        had = got;
#endif
#ifdef BROKEN_look_after
        is_full = 0;
#else
        is_full = is_full && got == 0;
#endif
        busy[s] = !is_full; got = 0
      };
#ifdef BROKEN_stores
      assert(used[s]);                                 // store_relaxed(&slab->mask, mask | remote)
#endif
      if
      :: is_full -> is_full = 0                        // from the exchange on it may be taken
#ifdef RUNS
      :: by_hint -> d_step { hints[s] = hints[s] + had; busy[s] = 0 } // hak_ring_push_all
      :: !is_full -> below_mark()
      fi;
      by_hint = 0; had = 0
#else
      :: else -> below_mark()
      fi
#endif
    fi
  od
}

// Slab s is used up and was in front: hak_heap_mark_full, or hak_heap_turn, which gives nothing.
inline mark_full() {
  d_step { assert(used[s] && place[s] == ACTIVE && front == s + 1); busy[s] = 1; front = 0 };
  leave_sparse();
#ifdef BROKEN_settle_early
  place[s] = FULL;
  d_step { assert(used[s]); busy[s] = 0 }              // hak_slab_await
#elif defined(COMMONS)
  if
  :: true -> settle()                                  // the commons is taken
  :: true ->                                           // give
    owner[s] = 1;                                      // hak_slab_set_owner(slab, common)
    place[s] = FULL;                                   // hak_slab_leave_active
    d_step { assert(used[s] && free[s] == 0); busy[s] = 0 } // if (hak_slab_usable(slab))
  fi
#else
  settle()
#endif
}

inline leave_sparse() {
#if defined(RUNS) && !defined(BROKEN_waits)
  waits[s] = 0                                         // hak_sparse_leave
#else
  skip
#endif
}

inline settle() {
  assert(used[s]);                                     // hak_slab_await
  d_step { place[s] = FULL; busy[s] = 0 }              // store_release(&slab->place, FULL)
}

// A block of slab x: hak_front_pop, free_tiny; alloc_l2 (the ring is empty), put_l2
inline alloc() {
#ifdef RUNS
  d_step { front && free[front - 1] && hints[front - 1] == 0 ->
#else
  d_step { front && free[front - 1] ->
#endif
    assert(used[front - 1] && place[front - 1] == ACTIVE);
    free[front - 1]--; has[front - 1]++ }
}

inline local_free(x) {
  d_step { has[x] && owner[x] == 0 -> assert(used[x]); has[x]--; free[x]++; busy[x] = 1; s = x };
#ifdef RUNS
  if
  :: true -> d_step { hints[s]++; by_hint = free[s] != EVERY || place[s] == ACTIVE }
  :: true -> d_step { hints[s]++; by_hint = place[s] == ACTIVE } // put_l2_full
  fi;
  if
  :: by_hint -> d_step { busy[s] = 0; by_hint = 0 }
  :: else -> below_mark()
  fi;
#else
  below_mark();                                        // hak_heap_slab_event
#endif
  s = 0
}

#ifdef RUNS
inline alloc_by_hint(x) {                              // hak_front_pop_hint
  d_step { hints[x] -> assert(used[x] && owner[x] == 0 && free[x] >= hints[x]);
           hints[x]--; free[x]--; has[x]++ }
}

inline forget_hint(x) {                                // forget_oldest
  d_step { hints[x] -> assert(used[x]); hints[x]--; bring_back(x) };
  if
  :: d_step { place[x] == PARTIAL -> waits[x] = 1 }    // hak_sparse_add
  :: true
  fi
}

inline waited(x) {
  d_step { waits[x] -> assert(used[x] && owner[x] == 0 && place[x] != FULL); waits[x] = 0 };
  if
  :: d_step { place[x] == PARTIAL -> hints[x] = 0 }    // trim_now
  :: else
  fi
}
#endif

inline activate(x) {                                   // hak_warm_take
  d_step { front == 0 && (partial >> x & 1) -> assert(used[x] && place[x] == PARTIAL);
           partial = partial & ~(1 << x); busy[x] = 1 };
#ifdef RUNS
  if
  :: free[x] == 0 ->                                   // hak_heap_mark_full
    s = x; leave_sparse(); settle(); s = 0
  :: else -> d_step { assert(used[x]); place[x] = ACTIVE; front = x + 1; busy[x] = 0 }
  fi
#else
  d_step { assert(used[x]); place[x] = ACTIVE; front = x + 1; busy[x] = 0 }
#endif
}

inline acquire(x) {                                    // hak_slab_init
  d_step { front == 0 && !used[x] ->
    assert(has[x] == 0 && free[x] == 0 && with[x] == NOBODY && !busy[x] && !(partial >> x & 1));
    used[x] = 1; owner[x] = 0; sent[x] = 0; queued[x] = 0; inbox_next[x] = 0; place[x] = ACTIVE;
    free[x] = EVERY; front = x + 1 }
}

inline bring_unseen(x) {                               // has_unseen: cas_acq_rel(&slab->local, ..)
  d_step { place[x] == FULL && owner[x] == 0 && free[x] -> assert(used[x]); bring_back(x) }
}

proctype thread() {
  byte s, o, list, top, got;
  bit is_full;
#ifdef RUNS
  byte had;
  bit by_hint;
#endif
  do
  :: alloc()
#ifdef RUNS
  :: alloc_by_hint(0)
  :: forget_hint(0)
  :: waited(0)
#else
  :: bring_unseen(0)
#endif
  :: local_free(0)
  :: drain(0); skip
  :: activate(0)
  :: acquire(0)
#if SLABS == 2
  :: local_free(1)
  :: bring_unseen(1)
  :: activate(1)
  :: acquire(1)
#endif
  :: d_step { front && free[front - 1] == 0 -> s = front - 1 }; // refill
    if
    :: sent[s] ->                                      // load_relaxed(remote) & ~QUEUED
      d_step { assert(used[s]);                        // fetch_and_acq_rel(&slab->remote, QUEUED)
               free[s] = free[s] + sent[s]; sent[s] = 0 }
    :: else -> mark_full()                             // hak_heap_retire_replaced
    fi;
    s = 0
  :: break
  od;
  running--
}

// --------------------------------------------------------------------------
// Freers.

inline push(x) {
  d_step { has[x] ->                                   // cas_acq_rel(&slab->remote, ..)
    assert(used[x]); has[x]--; sent[x]++; assert(sent[x] + free[x] + has[x] == EVERY);
    is_full = !queued[x];
    if
    :: is_full -> assert(with[x] == NOBODY); with[x] = _pid; queued[x] = 1
    :: else
    fi };
  if
  :: is_full -> o = owner[x]; post(o, x); o = 0; is_full = 0 // post
  :: else
  fi
}

// all_freed: all, is_full, o. While this thread has all blocks in its hands, the slab's owner can
// only make it FULL, if it was in front.
inline all_freed() {
#ifdef BROKEN_owner_first
  o = owner[s];
#endif
#ifdef BROKEN_place_first
  is_full = place[s] == FULL;
#endif
#ifdef BROKEN_look_only
  all = sent[s] == EVERY;
#else
  d_step {                                             // cas_acq_rel(&slab->remote, &old, QUEUED)
    assert(used[s] && queued[s] && with[s] == _pid);
#ifdef BROKEN_not_all
    all = sent[s] != 0;
#else
    all = sent[s] == EVERY;
#endif
    sent[s] = (all -> 0 : sent[s])
  };
#endif
  if
  :: all ->
#ifdef BROKEN_any_place
    is_full = 1;
#elif !defined(BROKEN_place_first)
    is_full = place[s] == FULL;                        // load_acquire(&slab->place)
#endif
#ifdef BROKEN_any_owner
    o = 0
#elif !defined(BROKEN_owner_first)
    o = owner[s]                                       // hak_slab_owner(slab)->common
#else
    skip
#endif
  :: else
  fi
}

inline take() {
  d_step {                                             // store_relaxed(&slab->remote, 0)
    assert(used[s] && with[s] == _pid && place[s] == FULL && owner[s] == 0 && !busy[s]);
    assert(front != s + 1 && !(partial >> s & 1) && has[s] == 0 && free[s] == 0);
#ifdef RUNS
    assert(hints[s] == 0);
#endif
    sent[s] = 0; queued[s] = 0
  };
  d_step {                                             // exchange_acq_rel(&slab->local, NULL),
                                                       // hak_slab_clear, hak_pool_release_with
    assert(used[s] && with[s] == _pid && !busy[s] && has[s] == 0 && sent[s] == 0);
    with[s] = NOBODY; used[s] = 0
  }
}

inline put_back() {
#if !defined(BROKEN_look_only) && !defined(BROKEN_keep_chain)
  if
  :: all ->                                            // store_release(&slab->remote, old)
    d_step { assert(used[s] && has[s] == 0 && free[s] == 0 && sent[s] == 0); sent[s] = EVERY }
  :: else
  fi
#else
  skip
#endif
}

inline relieve() {
  pop_all(0);                                          // exchange_seq_cst(&heap->inbox, 0)
  do
  :: d_step { list == 0 -> s = 0; o = 0; all = 0; is_full = 0 }; break
  :: else ->
#ifdef BROKEN_next_late
    s = list - 1;
#else
    d_step { s = list - 1; assert(used[s]); list = inbox_next[s]; // index = slab->inbox_next
             is_full = 0; o = 0 };
#endif
    all_freed();
    if
    :: all && is_full && o == 0 -> take()
    :: else ->
      put_back();
#ifndef BROKEN_drop
      o = owner[s];                                    // hak_slab_owner(slab)
      post(o, s);
#endif
      skip
    fi;
#ifdef BROKEN_next_late
    d_step { assert(used[s]); list = inbox_next[s] };
#endif
    skip
  od
}

proctype freer() {
  byte s, o, list, top;
  bit all, is_full;
  do
  :: push(0)
#if SLABS == 2
  :: push(1)
#endif
  :: relieve(); skip                                   // hak_relief_emptied, hak_relief_all
  :: break
  od;
  running--
}

init {
  byte s, o, list, top, got;
  bit is_full;
#ifdef RUNS
  byte had;
  bit by_hint;
#endif
  atomic {
    running = FREERS + 1;
    run thread(); run freer();
#if FREERS == 2
    run freer()
#endif
  };
  running == 0;
  if
  :: drain(0); skip
  :: else
  fi;
  if
  :: drain(1); skip
  :: else
  fi;
  d_step {
    do
    :: s < SLABS ->
      assert(sent[s] == 0 && !queued[s] && with[s] == NOBODY && !busy[s]);
      assert(has[s] + free[s] == (used[s] -> EVERY : 0));
#ifdef RUNS
      assert(front == s + 1 || (partial >> s & 1) || free[s] == hints[s]);
#else
      assert(front == s + 1 || (free[s] != 0) == (partial >> s & 1));
#endif
      assert(front == s + 1 || free[s] != EVERY);
      s++
    :: else -> break
    od
  }
}
