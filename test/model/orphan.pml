// orphan.pml: protocols H1, H2 and the part of R2 in which owners change. Heaps
// pass between threads by a compare-and-swap on their state; their slabs go with
// them or are adopted one by one; freers post slabs to their apparent owner.
//
// Three heaps, of which one or two are in use at first. Heap 0 owns slab 0 and
// perhaps slab 1, of three blocks each: PARTIAL if MASKn names free blocks, else
// FULL. Threads:
//   leaver   attached to heap 0, ends
//   adopter  attached to heap 1, adopts orphans' PARTIAL slabs, drains, ends
//   taker    a new thread: attaches an orphan if there is one, drains, ends
//   freers   free the blocks FREES1 and FREES2 (bits 0..2 of slab 0, 3..5 of slab 1); WITH_PUT: as the
//            owner, if they can take the orphan
// Each thread runs its script once, so every path ends, and then nothing may be
// left behind.
//
// Mirrors src/thread/orphan.c: hak_orphan_take, list_orphan, hak_orphan_leave;
// src/thread/heap.c: hak_heap_post, hak_heap_drain, hak_heap_give_partial, hak_heap_service,
// hak_heap_adopt, attach, detach; src/thread/remote.c: push_l2, flush_to_orphan. The words of slabs are those of L2 runs (masks); the
// tiny ones are in remote.pml. The lists are sets here; their links and tags are
// in orphan_list.pml.
//
// Checked: a heap never has two owners; owner fields of heap and slab are touched
// by the owner only; a slab is in one inbox at most; a slab given back is not
// touched again; no thread loops or waits for ever; and when all threads have ended,
// every heap is an orphan that can be found, no remote free waits anywhere, and
// every slab is empty and given back.
//
// model orphan_adopt -DWITH_ADOPTER -DMASK0=1 -DFREES1=2 -DFREES2=4
// broken orphan_adopt BROKEN_claim_plain: service checks the state, then stores CLAIMED
// broken orphan_adopt BROKEN_leave_no_service: detach does not look at the inbox after leaving
// broken orphan_adopt BROKEN_look_early: the look comes before the state is seen (store buffer)
// broken orphan_adopt BROKEN_post_no_service: push does not look at the state after posting
// broken orphan_adopt BROKEN_adopt_no_service: adopt does not look at the inbox after leaving
// broken orphan_adopt BROKEN_service_once: service does not look again after it has left the orphan
// broken orphan_adopt BROKEN_forward_no_service: drain posts a slab on and does not look further
// broken orphan_adopt BROKEN_no_forward: drain collects slabs of other heaps itself
// model orphan_full -DWITH_ADOPTER -DMASK0=0 -DFREES1=3
// broken orphan_full BROKEN_rich_before_drain: service lists by what was PARTIAL before it drained
// model orphan_attach -DWITH_TAKER -DMASK0=1 -DFREES1=2 -DFREES2=4
// broken orphan_attach BROKEN_claim_plain: as above
// broken orphan_attach BROKEN_list_first: hak_orphan_leave lists the heap before its state says ORPHAN
// broken orphan_attach BROKEN_attach_plain: hak_orphan_take checks the state, then stores ATTACHED
// broken orphan_attach BROKEN_unlist_late: hak_orphan_take clears listed after its look at the state
// model orphan_put -DWITH_PUT -DWITH_ADOPTER -DMASK0=1 -DFREES1=6
// broken orphan_put BROKEN_put_plain: whose slab it is, is not asked again when the heap was claimed
// broken orphan_put BROKEN_put_no_service: the inbox is not looked at when the heap was left
// model orphan_put_full -DWITH_PUT -DMASK0=0 -DFREES1=3 -DFREES2=4
// broken orphan_put_full BROKEN_put_unclaimed: the heap is not claimed
// model orphan_put_attach -DWITH_PUT -DWITH_TAKER -DMASK0=4 -DFREES1=1 -DFREES2=2
// model orphan_chain -DWITH_ADOPTER -DMASK0=3 -DMASK1=3 -DFREES1=36

#define HEAPS 3
#define SLABS 2
#define EVERY 7                                        // blocks of a slab
#define NONE 9
#ifndef FREES2
#define FREES2 0
#endif
#define ALL 0                                          // HAK_ORPHANS_ALL
#define RICH 1                                         // HAK_ORPHANS_RICH; where there is an adopter and so no taker, the list of a group
mtype = { NEW, ATTACHED, ORPHAN, CLAIMED };

// Heaps.
mtype state[HEAPS];
byte inbox[HEAPS];                                     // slab + 1
byte partial[HEAPS];                                   // set of PARTIAL slabs (owner)
typedef flags_t { bit list[2] };
flags_t listed[HEAPS];                                 // the bits of heap->listed
flags_t on[HEAPS];                                     // truth: is on the list

// Slabs.
byte owner[SLABS];                                     // holder / local
byte mask[SLABS];                                      // free blocks (owner)
byte sent[SLABS];                                      // remote without QUEUED
bit queued[SLABS];
byte inbox_next[SLABS];

// Truth.
byte thread_of[HEAPS];                                 // who owns the heap now, NONE
bit used[SLABS];                                       // not given back
bit posted[SLABS];
byte running;

// --------------------------------------------------------------------------

#define owns(h) (thread_of[h] == me)

inline cas_state(h, wanted) { // hak_heap_take: cas_seq_cst(&heap->state, ORPHAN, wanted), in a d_step
  if
  :: state[h] == ORPHAN ->
    state[h] = wanted; assert(thread_of[h] == NONE); thread_of[h] = me; ok = 1
  :: else -> ok = 0
  fi
}

// list_orphan(list, heap). Without a taker nobody looks at the list ALL.
#ifdef WITH_TAKER
#define list_all(h) list_orphan(ALL, h)
#else
#define list_all(h) skip
#endif
inline list_orphan(l, h) {
  old = listed[h].list[l];                             // load_seq_cst(&heap->listed)
  if
  :: !old -> d_step { old = listed[h].list[l]; listed[h].list[l] = 1 } // fetch_or_seq_cst
  :: else
  fi;
  if
  :: !old -> d_step { assert(!on[h].list[l]); on[h].list[l] = 1 } // push_orphan
  :: else
  fi
}

// hak_orphan_leave(heap)
inline leave_orphan(h) {
#ifdef BROKEN_list_first
  rich = partial[h] != 0;
  if
  :: rich -> list_orphan(RICH, h)
  :: else
  fi;
  list_all(h);
  skip;
#endif
#ifndef BROKEN_rich_before_drain
  rich = listed[h].list[RICH];                         // load_relaxed(&heap->listed)
#endif
  d_step {
    assert(owns(h));
#ifndef BROKEN_rich_before_drain
    rich = rich || partial[h] != 0;                    // has_partial(heap, list)
#endif
    state[h] = ORPHAN; thread_of[h] = NONE             // store_seq_cst(&heap->state, ORPHAN)
  };
#ifndef BROKEN_list_first
  if
  :: rich -> list_orphan(RICH, h)
  :: else
  fi;
  list_all(h)
#endif
}

// hak_orphan_take(list, wanted): got = heap, NONE if there was none.
inline take_orphan(l, wanted) {
  do
  :: d_step { on[0].list[l] -> on[0].list[l] = 0; got = 0 }; // pop_orphan: the top may be any
    take(l, wanted)
  :: d_step { on[1].list[l] -> on[1].list[l] = 0; got = 1 };
    take(l, wanted)
  :: d_step { on[2].list[l] -> on[2].list[l] = 0; got = 2 };
    take(l, wanted)
  :: d_step { !on[0].list[l] && !on[1].list[l] && !on[2].list[l] -> got = NONE }; break
  od
}
inline take(l, wanted) {
#ifdef BROKEN_unlist_late
  d_step { cas_state(got, wanted) };
  listed[got].list[l] = 0;
#else
  listed[got].list[l] = 0;                             // fetch_and_seq_cst(&heap->listed, ~bit)
#ifdef BROKEN_attach_plain
  ok = state[got] == ORPHAN;
  if
  :: ok -> d_step { state[got] = wanted; thread_of[got] = me }
  :: else
  fi;
#else
  d_step { cas_state(got, wanted) };                   // cas_seq_cst(&heap->state, &state, wanted)
#endif
#endif
  if
  :: ok -> break
  :: else                                              // dropped: who has it lists it again
  fi
}

// hak_heap_post(owner, slab). The link is the poster's own until the swap, so it is
// written in the step that reads the top.
inline post(h) {
  d_step {                                             // top = load_relaxed(&owner->inbox)
    top = inbox[h]; assert(used[s] && queued[s]);
    inbox_next[s] = top                                // slab->inbox_next = top
  };
  do
  :: d_step { inbox[h] == top ->                       // cas_seq_cst(&owner->inbox, &top, index)
       inbox[h] = s + 1; assert(!posted[s]); posted[s] = 1; top = 0 };
     break
  :: d_step { inbox[h] != top -> top = inbox[h]; inbox_next[s] = top }
  od
}

// hak_heap_slab_event(heap, slab): what the counts of the slab call for. L2: an
// empty run goes back unless QUEUED. (FULL with a free block becomes PARTIAL.)
inline slab_event(h) {
  if
  :: d_step { mask[s] == EVERY && sent[s] == 0 && !queued[s] -> // releasable
      partial[h] = partial[h] & ~(1 << s); used[s] = 0 } // hak_heap_release
  :: else
  fi
}

inline release_idle(x) {
  if
  :: d_step { (partial[mine] & (1 << x)) && mask[x] == EVERY && sent[x] == 0 && !queued[x] ->
      assert(owns(mine) && owner[x] == mine && used[x]);
      partial[mine] = partial[mine] & ~(1 << x); used[x] = 0 }
  :: else
  fi
}

// The functions that call each other, as labels. depth counts the calls of
// hak_heap_service from hak_heap_drain; frame 0 returns to what `then` says.
#define FRAMES 3
mtype = { DETACH, ADOPT, GO_ON, ENDED, ADOPTED, FREED };
mtype = { LEAVER, ADOPTER, TAKER, FREER };

// A thread. mine: heap it is attached to at first.
proctype thread(mtype role; byte mine; byte frees) {
  byte heap[FRAMES], list[FRAMES], depth, s, o, top, got, me = _pid;
  mtype then;
  bit ok, old, rich;
#ifdef BROKEN_look_early
  bit early;
#endif

  if
  :: role == LEAVER -> goto thread_end
  :: role == ADOPTER -> goto adopt
  :: role == TAKER -> goto attach
  :: role == FREER -> goto free
  fi;

  // ------------------------------------------------------------------------
free: // remote.c push of one block after the other; frees: those still to free
  if
  :: atomic { frees == 0 -> goto ended }
  :: d_step { frees ->
      s = ((frees & 7) -> 0 : 1);
      o = (s -> frees >> 3 : frees);
      o = o & ~(o - 1);                                // lowest block
      frees = frees & ~(s -> o << 3 : o) }
  fi;
#ifdef WITH_PUT
  got = owner[s];                                      // flush_to_orphan: load_relaxed(&slab->local)
  if
  :: state[got] != ORPHAN -> goto push                 // load_relaxed(&owner->state)
  :: else
  fi;
#ifdef BROKEN_put_unclaimed
  ok = 1;
#else
  d_step { cas_state(got, CLAIMED) };                  // hak_heap_take(owner, CLAIMED)
#endif
  if
  :: ok
  :: else -> goto push
  fi;
  if
#ifndef BROKEN_put_plain
  :: owner[s] == got ->
#else
  :: true ->
#endif
    d_step {                                           // hak_heap_put_chain
      assert(owns(got) && owner[s] == got && used[s] && !(mask[s] & o));
      mask[s] = mask[s] | o; o = 0;
      partial[got] = partial[got] | (1 << s)           // below_mark: bring_back
    };
    slab_event(got)
#ifndef BROKEN_put_plain
  :: else -> frees = frees | (s -> o << 3 : o)         // pushed when the heap was left, or so once more
#endif
  fi;
  leave_orphan(got);                                   // hak_orphan_let_go
#ifdef BROKEN_put_no_service
  goto free;
#endif
  atomic { then = FREED; heap[0] = got; goto service };
push:
#endif
  atomic { // cas_acq_rel(&slab->remote, &old, now | QUEUED)
    assert(used[s]); sent[s] = sent[s] | o; old = queued[s]; queued[s] = 1; o = 0;
    if
    :: old -> goto free                                // if (old & QUEUED) return
    :: else
    fi
  };
  o = owner[s];                                        // hak_slab_owner(slab)
  post(o);                                             // hak_heap_post(owner, slab)
#ifdef BROKEN_post_no_service
  goto free;
#endif
  atomic { then = FREED; heap[0] = o; goto service };  // hak_heap_service(owner)

  // ------------------------------------------------------------------------
adopt: // hak_heap_adopt(mine)
  take_orphan(RICH, CLAIMED);
  if
  :: got == NONE -> goto adopted
  :: else -> atomic { then = ADOPT; heap[0] = got; goto drain } // hak_heap_drain(orphan)
  fi;
adopt_drained:
  do                                                   // hak_heap_give_partial, give_group: one or more
  :: d_step { partial[got] ->
      assert(owns(got) && owns(mine));
      s = ((partial[got] & 1) -> 0 : 1);
      partial[got] = partial[got] & ~(1 << s);
      assert(owner[s] == got); owner[s] = mine;        // hak_slab_set_owner(slab, to)
      partial[mine] = partial[mine] | (1 << s) }
  :: true -> break
  od;
  leave_orphan(got);                                   // hak_orphan_leave(orphan)
#ifdef BROKEN_adopt_no_service
  goto adopted;
#endif
  atomic { then = ADOPTED; goto service };             // hak_heap_service(orphan)
adopted:
  atomic { then = GO_ON; heap[0] = mine; goto drain }; // next refill: hak_heap_drain(mine)

  // ------------------------------------------------------------------------
attach: // attach()
  take_orphan(RICH, ATTACHED);
  if
  :: got == NONE -> take_orphan(ALL, ATTACHED)
  :: else
  fi;
  if
  :: d_step { got == NONE -> got = 2; assert(state[2] == NEW && thread_of[2] == NONE);
              // hak_heap_new; store_seq_cst(&heap->state, ATTACHED)
              state[2] = ATTACHED; thread_of[2] = me }
  :: else
  fi;
  mine = got;
  atomic { then = GO_ON; heap[0] = mine; goto drain }; // a refill: hak_heap_drain(mine)

  // ------------------------------------------------------------------------
thread_end: // hak_heap_thread_end: detach(mine). Fronts are PARTIAL or FULL already.
  atomic { then = DETACH; heap[0] = mine; goto drain }; // hak_heap_drain(heap)
detach_drained:
  release_idle(0);                                     // hak_heap_release_idle(heap)
  release_idle(1);
#ifdef BROKEN_look_early
  early = inbox[mine] == 0;
#endif
  leave_orphan(mine);                                  // hak_orphan_leave(heap)
#ifdef BROKEN_leave_no_service
  goto ended;
#endif
#ifdef BROKEN_look_early
  if
  :: early -> goto ended
  :: else
  fi;
#endif
  atomic { then = ENDED; heap[0] = mine; goto service }; // hak_heap_service(heap)

  // ------------------------------------------------------------------------
drain: // hak_heap_drain(heap[depth]). Only its owner empties an inbox: a look at it and the
  // exchange can be one step.
#ifdef BROKEN_rich_before_drain
  rich = partial[heap[depth]] != 0;
#endif
  if
  :: inbox[heap[depth]] == 0 -> goto drained // if (load_relaxed(&heap->inbox) == 0) return
  :: d_step { inbox[heap[depth]] ->                    // exchange_seq_cst(&heap->inbox, 0)
      assert(owns(heap[depth])); list[depth] = inbox[heap[depth]]; inbox[heap[depth]] = 0 }
  fi;
next_posted:
  if
  :: list[depth] == 0 -> goto drained
  :: else
  fi;
  d_step {                                             // index = slab->inbox_next
    s = list[depth] - 1; assert(used[s] && posted[s]); list[depth] = inbox_next[s]; posted[s] = 0;
    o = owner[s]                                       // hak_slab_owner(slab)
  };
  if
#ifndef BROKEN_no_forward
  :: o != heap[depth] ->
    post(o);                                           // hak_heap_post(owner, slab)
#ifndef BROKEN_forward_no_service
    // hak_heap_service(owner)
    atomic { depth++; assert(depth < FRAMES); heap[depth] = o; goto service }
#endif
#endif
  :: else ->
    d_step {                                           // hak_slab_collect(slab, true)
      assert(owns(owner[s]) && owner[s] == heap[depth] && used[s] && (mask[s] & sent[s]) == 0);
      mask[s] = mask[s] | sent[s]; sent[s] = 0; queued[s] = 0;
      if
      :: mask[s] -> partial[heap[depth]] = partial[heap[depth]] | (1 << s)
      :: else
      fi
    };
    slab_event(heap[depth])                            // collected
  fi;
  goto next_posted;
drained:
  if
  :: depth == 0 && then == DETACH -> goto detach_drained
  :: depth == 0 && then == ADOPT -> goto adopt_drained
  :: depth == 0 && then == GO_ON -> goto thread_end
  :: else
  fi;
  leave_orphan(heap[depth]);                           // hak_heap_service: hak_orphan_leave(owner)
#ifdef BROKEN_service_once
  goto serviced;
#endif
service: // hak_heap_service(heap[depth])
  if
  :: state[heap[depth]] != ORPHAN -> goto serviced // while (load_seq_cst(&state) == ORPHAN &&
  :: else
  fi;
  if
  :: inbox[heap[depth]] == 0 -> goto serviced          //        load_seq_cst(&owner->inbox) != 0)
  :: else
  fi;
#ifdef BROKEN_claim_plain
  d_step { ok = 1; assert(thread_of[heap[depth]] == NONE);
           state[heap[depth]] = CLAIMED; thread_of[heap[depth]] = me };
#else
  d_step { cas_state(heap[depth], CLAIMED) }; // cas_seq_cst(&owner->state, &state, CLAIMED)
#endif
  if
  :: ok -> goto drain
  :: else
  fi;
serviced:
  if
  :: depth != 0 -> atomic { heap[depth] = 0; depth--; goto next_posted }
  :: depth == 0 && then == ENDED -> goto ended
  :: depth == 0 && then == ADOPTED -> goto adopted
  :: depth == 0 && then == FREED -> goto free
  fi;
ended:
  atomic { heap[0] = 0; mine = 0; running-- }
}

inline start(role, mine, frees) {
  running++; run thread(role, mine, frees)
}

init {
  byte i;
  atomic {
    state[0] = ATTACHED; state[1] = NEW; state[2] = NEW;
    mask[0] = MASK0; used[0] = 1;
    partial[0] = MASK0 != 0;
#ifdef MASK1
    mask[1] = MASK1; used[1] = 1;
    partial[0] = partial[0] | (MASK1 != 0) << 1;
#else
    mask[1] = EVERY;
#endif
    thread_of[0] = NONE; thread_of[1] = NONE; thread_of[2] = NONE;
    start(LEAVER, 0, 0); thread_of[0] = _nr_pr - 1;
#ifdef WITH_ADOPTER
    state[1] = ATTACHED; start(ADOPTER, 1, 0); thread_of[1] = _nr_pr - 1;
#endif
#ifdef WITH_TAKER
    start(TAKER, NONE, 0);
#endif
    start(FREER, NONE, FREES1);
#if FREES2
    start(FREER, NONE, FREES2)
#endif
  };
  running == 0;
  // Everybody has gone.
  d_step {
    i = 0;
    do
    :: i < HEAPS ->
      assert(inbox[i] == 0 && thread_of[i] == NONE);
      assert(state[i] == NEW || state[i] == ORPHAN);
#ifdef WITH_TAKER
      assert(state[i] == NEW || on[i].list[ALL]);
#endif
      assert(partial[i] == 0 || on[i].list[RICH]);
      i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < SLABS ->
      assert(!queued[i] && sent[i] == 0 && !posted[i]);
      assert(used[i] == (mask[i] != EVERY));               // empty slabs have gone back
      assert(!used[i] || mask[i] == 0 || (partial[owner[i]] & (1 << i)));
      i++
    :: else -> break
    od
  }
}
