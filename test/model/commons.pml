// commons.pml: protocol H4. Slabs that are used up pass from a thread's heap to a commons, a
// heap that a thread has for a moment only, and from there to a thread that needs one,
// while other threads free their blocks and post the slabs to their apparent owner.
//
// Heap 0 is the commons, made by the first giver; heap h > 0 is attached to thread h for
// good. Slab 0 is FULL in heap 1, slab 1 in heap 2, and the program has all blocks. Threads:
//   user h   gives its slab away, or keeps it if the commons is taken; adopts a slab, uses
//            it up and gives it away again
//   freer    frees the blocks FREES one after the other (bits 0..1 of slab 0, 2..3 of slab
//            1), and looks after the commons after a post if it is time to (any time)
// Each runs its script once. What is then left in inboxes waits for a later look by design, so
// init takes those looks: each thread's next refill, and one into the commons.
//
// Mirrors src/thread/commons.c: make (hak_heap_make_in), claim, give, hak_commons_adopt; src/thread/orphan.c:
// hak_orphan_leave; src/thread/heap.c: hak_heap_post, hak_heap_drain, take_back, hak_heap_give_partial,
// hak_heap_service; src/thread/remote.c: push_l2. The words of slabs are those of L2 runs. A slab
// comes back with its first free block.
//
// Checked: owner fields of heaps and slabs are touched by the owner only; a slab is in one inbox
// at most; a slab given back is not touched again; no thread waits; and after the last
// looks no freed block waits anywhere, each block is free or the program's, a slab with a free
// block is in its owner's list, and an unused slab has been given back.
//
// model commons_two -DUSERS=2 -DSLABS=1 -DFREES=3
// broken commons_two BROKEN_publish_first: the place names the heap before its state says CLAIMED
// broken commons_two BROKEN_claim_plain: claim looks at the state, then stores CLAIMED
// broken commons_two BROKEN_give_late: give leaves the commons before the slab is of it
// broken commons_two BROKEN_leave_early: the commons is left before the slab is in the other list
// broken commons_two BROKEN_no_forward: drain collects slabs of other heaps itself
// model commons_freers -DUSERS=1 -DSLABS=1 -DFREES=1 -DFREES2=2
// model commons_slabs -DUSERS=2 -DSLABS=2 -DFREES=5
// broken commons_slabs BROKEN_make_plain: the place is looked at, then stored

#define HEAPS 3
#define EVERY 3                                        // blocks of a slab
#define NONE 9
#define MAKING 8                                       // &hak_heap_none in the place
#ifndef FREES2
#define FREES2 0
#endif
mtype = { NEW, ATTACHED, ORPHAN, CLAIMED };

byte place = NONE;                                     // hak_commons[class / 2]
mtype state[HEAPS] = NEW;
byte inbox[HEAPS];                                     // slab + 1
byte partial[HEAPS];                                   // set of PARTIAL slabs (owner)

byte owner[SLABS];                                     // holder
byte mask[SLABS];                                      // free blocks (owner)
byte sent[SLABS];                                      // remote without QUEUED
bit queued[SLABS];
byte inbox_next[SLABS];

// Truth.
byte thread_of[HEAPS] = NONE;                          // who owns the heap now
byte has[SLABS] = EVERY;                               // blocks the program has
bit used[SLABS] = 1;                                   // not given back
bit posted[SLABS];
byte running;

#define owns(h) (thread_of[h] == me)

// claim(place): ok
inline claim() {
  if
  :: place != 0 -> ok = 0                              // load_acquire(place)
  :: else ->
#ifdef BROKEN_claim_plain
    ok = state[0] == ORPHAN;
    if
    :: ok -> d_step { state[0] = CLAIMED; assert(thread_of[0] == NONE); thread_of[0] = me }
    :: else
    fi
#else
    d_step {                                           // hak_heap_take: cas_seq_cst(&heap->state, ..)
      ok = state[0] == ORPHAN;
      if
      :: ok -> state[0] = CLAIMED; assert(thread_of[0] == NONE); thread_of[0] = me
      :: else
      fi
    }
#endif
  fi
}

// make(place): ok
inline make() {
#ifdef BROKEN_make_plain
  ok = place == NONE;
  if
  :: ok -> place = MAKING
  :: else
  fi;
#else
  d_step {                                             // cas_acquire(place, NULL, &hak_heap_none)
    ok = place == NONE;
    if
    :: ok -> place = MAKING
    :: else
    fi
  };
#endif
  if
  :: ok ->
    d_step { assert(state[0] == NEW && thread_of[0] == NONE); thread_of[0] = me }; // hak_heap_new
#ifdef BROKEN_publish_first
    place = 0;
    state[0] = ORPHAN;
    state[0] = CLAIMED
#else
    state[0] = CLAIMED;                                // store_seq_cst(&heap->state, CLAIMED)
    place = 0                                          // store_release(place, heap)
#endif
  :: else
  fi
}

// hak_orphan_leave(common)
inline leave() {
  d_step { assert(owns(0)); thread_of[0] = NONE; state[0] = ORPHAN }
}

// hak_heap_post(h, x)
inline post(h, x) {
  d_step {                                             // top = load_relaxed(&owner->inbox)
    top = inbox[h]; assert(used[x] && queued[x]);
    inbox_next[x] = top                                // slab->inbox_next = top
  };
  do
  :: d_step { inbox[h] == top ->                       // cas_seq_cst(&owner->inbox, &top, index)
       inbox[h] = x + 1; assert(!posted[x]); posted[x] = 1; top = 0 };
     break
  :: d_step { inbox[h] != top -> top = inbox[h]; inbox_next[x] = top }
  od
}

// give(heap, slab x)
inline give(x) {
  claim();
  if
  :: !ok -> make()
  :: else
  fi;
  if
  :: ok ->
#ifdef BROKEN_give_late
    leave();
#endif
    d_step { assert(owns(owner[x]) && used[x]);
             owner[x] = 0;                             // hak_slab_set_owner(slab, common)
             if
             :: mask[x] -> assert(owns(0)); partial[0] = partial[0] | (1 << x) // hak_heap_bring_back
             :: else
             fi };
#ifndef BROKEN_give_late
    leave()
#endif
  :: else
  fi
}

// hak_heap_drain(h), by its owner. A slab of another heap is posted on; that heap is looked after
// by its thread, or if it is the commons by who takes it next (here hak_heap_service may
// look at once, which is one of the freers' looks).
inline drain(h) {
  d_step { assert(owns(h)); list = inbox[h]; inbox[h] = 0 }; // exchange_seq_cst(&heap->inbox, 0)
  do
  :: d_step { list == 0 -> s = 0; o = 0 }; break
  :: else ->
    d_step {                                           // index = slab->inbox_next
      s = list - 1; assert(used[s] && posted[s]); list = inbox_next[s]; posted[s] = 0;
      o = owner[s]                                     // hak_slab_owner(slab)
    };
    if
#ifndef BROKEN_no_forward
    :: o != h -> post(o, s)                            // hak_heap_post(owner, slab)
#endif
    :: else ->
      d_step {                                         // take_back: hak_slab_collect(slab, true)
        assert(owns(owner[s]) && owner[s] == h && used[s] && (mask[s] & sent[s]) == 0);
        mask[s] = mask[s] | sent[s]; sent[s] = 0; queued[s] = 0
      };
      if
      :: h != 0 && mask[s] != 0 && mask[s] != EVERY -> give(s) // hak_commons_give_back
      :: else
      fi;
      if
      :: owner[s] == h ->                              // below_mark
        d_step {
          if
          :: mask[s] -> partial[h] = partial[h] | (1 << s) // hak_heap_bring_back
          :: else
          fi
        };
        release(h)
      :: else
      fi
    fi
  od
}

// below_mark: an unused slab goes back unless it is on its way to an inbox.
inline release(h) {
  if
  :: d_step { mask[s] == EVERY && sent[s] == 0 && !queued[s] ->
      assert(owns(owner[s])); partial[h] = partial[h] & ~(1 << s); used[s] = 0 }
  :: else
  fi
}

// hak_commons_adopt(heap): ok, slab got
inline adopt() {
  claim();
  if
  :: ok ->
    drain(0);
    ok = partial[0] != 0;
#ifdef BROKEN_leave_early
    got = ((partial[0] & 1) -> 0 : 1);
    leave();
#endif
    if
    :: ok ->                                           // hak_heap_give_partial
      d_step { assert(owns(mine));
#ifndef BROKEN_leave_early
        assert(owns(0));
        got = ((partial[0] & 1) -> 0 : 1);
#endif
        assert(owner[got] == 0 && used[got]);
        partial[0] = partial[0] & ~(1 << got); owner[got] = mine }
    :: else
    fi
#ifndef BROKEN_leave_early
    ; leave()
#endif
  :: else
  fi
}

proctype user(byte mine) {
  byte s, o, list, top, got, me = _pid;
  bit ok;
  if
  :: mine <= SLABS -> give(mine - 1)                   // hak_heap_mark_full
  :: else
  fi;
  drain(mine);                                         // a refill: next_slab
  adopt();
  if
  :: ok ->
    d_step { assert(owner[got] == mine && used[got]);  // its free blocks are handed out
             has[got] = has[got] | mask[got]; mask[got] = 0 };
    give(got)
  :: else
  fi;
  d_step { running--; got = 0; ok = 0 }
}

proctype freer(byte frees) {
  byte s, x, o, h, list, top, me = _pid;
  bit ok;
  do
  :: d_step { frees == 0 -> x = 0; s = 0 }; break
  :: d_step { frees ->
       x = ((frees & 3) -> 0 : 1);
       o = (x -> frees >> 2 : frees);
       o = o & ~(o - 1);                               // lowest block
       frees = frees & ~(x -> o << 2 : o) };
     d_step {                                          // push: cas_acq_rel(&slab->remote, ..)
       assert(used[x] && (has[x] & o)); has[x] = has[x] & ~o;
       sent[x] = sent[x] | o; ok = !queued[x]; queued[x] = 1; o = 0 };
     if
     :: ok ->
       h = owner[x];                                   // hak_slab_owner(slab)
       post(h, x);
       if
       :: true                                         // not yet: hak_commons_due
       :: state[h] == ORPHAN && inbox[h] != 0 ->       // hak_heap_service(owner)
         claim();
         if
         :: ok -> drain(0); leave()
         :: else
         fi
       fi
     :: else
     fi
  od;
  running--
}

init {
  byte s, o, list, top, got, looks, me = _pid;
  bit ok;
  atomic {
    owner[0] = 1; owner[SLABS - 1] = SLABS;
    running = USERS + 1 + (FREES2 != 0);
    got = run user(1); thread_of[1] = got;
#if USERS == 2
    got = run user(2); thread_of[2] = got;
#endif
    run freer(FREES);
    if
    :: FREES2 -> run freer(FREES2)
    :: else
    fi
  };
  running == 0;
  do                                                   // the last looks
  :: looks == 2 -> break
  :: looks < 2 ->
    claim();
    if
    :: ok -> drain(0); leave()
    :: else
    fi;
    thread_of[1] = me; drain(1);
    thread_of[2] = me; drain(2);
    looks++
  od;
  s = 0;
  atomic {
    do
    :: s < SLABS ->
      o = mask[s];
      assert(sent[s] == 0 && !queued[s] && !posted[s]);
      assert((has[s] | o) == EVERY && (has[s] & o) == 0);
      assert(used[s] == (o != EVERY));
      assert(!used[s] || (o != 0) == (partial[owner[s]] >> s & 1));
      s++
    :: else -> break
    od
  }
}
