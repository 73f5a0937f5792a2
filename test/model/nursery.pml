// nursery.pml: protocol H3. Threads without a heap are served by heaps that they share,
// call by call: a thread that takes one with a compare-and-swap has it until it leaves it; one
// that finds it taken tries the next place and, after the last, gets its own heap. A
// thread that has made its calls keeps the nursery as its own heap, if it can take it, and
// leaves it as an orphan like any other when it ends.
//
// YOUNG threads make CALLS calls each; in each one the thread drains the nursery it has.
// A freer frees a block of the nursery that the first thread has made, as soon as there is
// one, and tidies it if no thread has it (hak_heap_service).
//
// Mirrors src/thread/nursery.c: hak_nursery_enter (hak_nursery_hit is one of its calls),
// enter_another, take, hak_nursery_leave, hak_nursery_grow_up; src/thread/heaps.c:
// hak_heap_make_in; src/thread/orphan.c:
// hak_orphan_leave; src/thread/heap.c: hak_heap_post, hak_heap_service. One remote
// free stands for an inbox; what is in it is in remote.pml and orphan.pml.
//
// Checked: a nursery never has two owners, and only its owner works on it; each one that was
// made stays in its place until a thread keeps it, and is listed when that thread has ended,
// so none is lost; no thread waits; and when all threads have ended, no nursery is taken and
// nothing is left in an inbox.
//
// model nursery_two -DYOUNG=2 -DPLACES=2
// broken nursery_two BROKEN_make_plain: the place is looked at, then stored
// broken nursery_two BROKEN_take_plain: take looks at the state, then stores ATTACHED
// broken nursery_two BROKEN_no_second_look: take does not look whether it still is one
// broken nursery_two BROKEN_keep_untaken: hak_nursery_grow_up takes the place's heap without the state
// broken nursery_two BROKEN_leave_no_service: no look at the inbox after leaving
// broken nursery_two BROKEN_publish_first: the place names the heap before its state says ATTACHED
// model nursery_three -DYOUNG=3 -DPLACES=1

#define CALLS 2
#define NONE 9
#define MAKING 8                                       // &hak_heap_none in a place
#define HEAPS 6
mtype = { NEW, ATTACHED, ORPHAN, CLAIMED };

byte place[PLACES] = NONE;                             // nurseries[]
mtype state[HEAPS] = NEW;
byte inbox[HEAPS];
bit nursery[HEAPS];                                    // heap->nursery
byte count;                                            // heap_count

// Truth.
bit listed[HEAPS];                                     // on the orphan lists
byte thread_of[HEAPS] = NONE;
byte running;

#define own(h) assert(thread_of[h] == NONE); thread_of[h] = me
#define disown(h) assert(thread_of[h] == me); thread_of[h] = NONE

// hak_heap_take: cas_seq_cst(&heap->state, ORPHAN, wanted)
inline cas_state(h, wanted) {
#ifdef BROKEN_take_plain
  ok = state[h] == ORPHAN;
  if
  :: ok -> d_step { state[h] = wanted; own(h) }
  :: else
  fi
#else
  d_step {
    if
    :: state[h] == ORPHAN -> state[h] = wanted; own(h); ok = 1
    :: else -> ok = 0
    fi
  }
#endif
}

// hak_heap_drain(heap), by its owner
inline drain(h) {
  d_step { assert(thread_of[h] == me); inbox[h] = 0 }  // exchange_seq_cst(&heap->inbox, 0)
}

// hak_orphan_leave(heap)
inline leave(h) {
  // store_seq_cst(&heap->state, ORPHAN); what lists it after that is in orphan_list.pml
  d_step { disown(h); state[h] = ORPHAN; listed[h] = !nursery[h] }
}

// hak_heap_service(heap)
inline service(h) {
  do
  :: state[h] != ORPHAN -> break                       // while (load(&state) == ORPHAN &&
  :: else ->
    if
    :: inbox[h] == 0 -> break                          //        load(&inbox) != 0)
    :: else ->
      cas_state(h, CLAIMED);
      if
      :: ok -> drain(h); leave(h)
      :: else -> break
      fi
    fi
  od
}

// take(heap)
inline take(h) {
  cas_state(h, ATTACHED);
#ifndef BROKEN_no_second_look
  if
  :: ok && !nursery[h] -> leave(h); service(h); ok = 0
  :: else
  fi
#endif
}

proctype young() {
  byte calls, n, heap, me = _pid;
  bit ok, known;
next_call:
  if
  :: calls == CALLS -> goto grow_up
  :: calls != 0 -> goto ended                          // most threads need no more
  :: calls < CALLS -> calls++
  fi;
  heap = place[n];                                     // load_acquire(place), take_from
  known = 1;                                           // enter_another does not try it again
  if
  :: heap != NONE && heap != MAKING ->
    take(heap);
    if
    :: ok -> goto entered
    :: else
    fi
  :: else
  fi;
look: // enter_another: for (n = 0; n < HAK_NURSERIES; n++, taken++). It may find no more
  // taken than that in all its calls.
  if
  :: n == PLACES -> goto ended                         // its own heap
  :: else
  fi;
  heap = place[n];                                     // load_acquire(place)
  if
  :: heap == NONE ->
#ifdef BROKEN_make_plain
    d_step { place[n] = MAKING; ok = 1 };
#else
    d_step {                                           // cas_acquire(place, NULL, &hak_heap_none)
      ok = place[n] == NONE; heap = place[n];
      if
      :: ok -> place[n] = MAKING
      :: else
      fi
    };
#endif
    if
    :: ok ->                                           // hak_heap_make_in
      d_step { heap = count; count++; own(heap) };     // hak_heap_new
#ifdef BROKEN_publish_first
      nursery[heap] = 1;
      place[n] = heap;
      state[heap] = ORPHAN;
      state[heap] = ATTACHED;
#else
      nursery[heap] = 1;
      state[heap] = ATTACHED;                          // store_seq_cst(&heap->state, ATTACHED)
      d_step { assert(place[n] == MAKING); place[n] = heap }; // store_release(place, heap)
#endif
      goto entered
    :: else
    fi
  :: else
  fi;
  if
  :: !known && heap != MAKING -> take(heap)            // n > 0 && take(heap)
  :: else -> ok = 0
  fi;
  if
  :: ok -> goto entered
  :: else -> n++; known = 0; goto look
  fi;
entered:
  drain(heap);                                         // a refill
  leave(heap);                                         // hak_nursery_leave
#ifndef BROKEN_leave_no_service
  if
  :: inbox[heap] != 0 -> service(heap)                 // load(&inbox) != 0
  :: else
  fi
#endif
  goto next_call;
grow_up:
  heap = place[n];                                     // load_acquire(place)
  if
  :: heap == NONE || heap == MAKING -> goto ended
  :: else
  fi;
#ifdef BROKEN_keep_untaken
  d_step { own(heap); state[heap] = ATTACHED; ok = 1 };
#else
  take(heap);
#endif
  if
  :: !ok -> goto ended
  :: else
  fi;
  nursery[heap] = 0;                                   // store_relaxed(&heap->nursery, false)
  d_step { assert(place[n] == heap); place[n] = NONE }; // store_relaxed(place, NULL)
  drain(heap);                                         // it lives on, and ends: detach
  leave(heap);
  service(heap);
ended:
  running--
}

proctype freer() {
  byte heap, me = _pid;
  bit ok;
  state[0] != NEW;                                     // it got a block of heap 0
  inbox[heap] = 1;                                     // hak_heap_post(owner, slab)
  service(heap);
  running--
}

init {
  byte i;
  atomic {
    running = YOUNG + 1;
    do
    :: i < YOUNG -> run young(); i++
    :: else -> break
    od;
    run freer()
  };
  running == 0;
  d_step {
    i = 0;
    do
    :: i < count ->
      assert(state[i] == ORPHAN && thread_of[i] == NONE && inbox[i] == 0);
#if PLACES == 1
      assert(nursery[i] == (place[0] == i));
#else
      assert(nursery[i] == (place[0] == i || place[1] == i));
#endif
      assert(nursery[i] != listed[i]);
      i++
    :: else -> break
    od
  }
}
