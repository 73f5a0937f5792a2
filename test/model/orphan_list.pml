// orphan_list.pml: protocol H2. An orphan list is a stack in one word, the number
// of the top heap and a tag; a bit of `listed` keeps a heap from being pushed twice; a heap
// may stay on the list after a thread has taken it another way.
//
// Three heaps, orphans at first. Two threads take an orphan off the list and leave
// it again, twice each; a third claims heaps without asking the list, as
// hak_heap_service does, and leaves them.
//
// Mirrors src/thread/orphan.c: push_orphan, pop_orphan, list_orphan, hak_orphan_take,
// hak_orphan_leave. Tags are 32 bits there; here they grow without end, a thread makes
// few updates. (A false match needs 2^32 updates between two steps of one thread.)
//
// Checked: no thread pushes a heap that is on the list; a heap has one owner; the
// links form the list that pushes and pops have made; in the end every heap is an
// orphan and on the list once.
//
// model orphan_list
// broken orphan_list BROKEN_no_tag: the tag does not change
// broken orphan_list BROKEN_link_late: the link is written after the swap (relaxed, not release)
// broken orphan_list BROKEN_no_listed: push without asking `listed`
// broken orphan_list BROKEN_unlist_late: listed is cleared after the look at the state
// broken orphan_list BROKEN_list_first: the heap is listed before its state says ORPHAN
// broken orphan_list BROKEN_list_load: listed is loaded and then stored, not by one fetch-or
// broken orphan_list BROKEN_look_early: listed is loaded before the state is seen (store buffer)
// broken orphan_list BROKEN_take_plain: the state is checked and then stored

#define HEAPS 3
#define ROUNDS 2
mtype = { ORPHAN, TAKEN };
mtype state[HEAPS + 1];
bit listed[HEAPS + 1];
byte next[HEAPS + 1];                                  // heap->next_orphan, by number
byte top, tag;                                         // hak_orphans[list]
// Truth: the list from bottom to top, how long it is, who owns a heap (0: nobody).
byte stack[HEAPS + 2], length;
byte taken_by[HEAPS + 1];
byte running;

inline push_orphan() {
  d_step { old_top = top; old_tag = tag };             // top = load_relaxed(&hak_orphans[list])
  do
  ::
#ifndef BROKEN_link_late
    next[h] = old_top; // store_relaxed(&heap->next_orphan[list], top)
#endif
    if
    :: d_step { top == old_top && tag == old_tag ->    // cas_release(&hak_orphans[list], &top, next)
        top = h; set_tag();
        assert(length < HEAPS);
        stack[length] = h; length++ };
      break
    :: d_step { else -> old_top = top; old_tag = tag }
    fi
  od
#ifdef BROKEN_link_late
  ; next[h] = old_top
#endif
}

inline pop_orphan() { // h = heap or 0
  d_step { old_top = top; old_tag = tag };             // top = load_acquire(&hak_orphans[list])
  do
  :: old_top == 0 -> h = 0; break
  :: else ->
    link = next[old_top];                              // load_relaxed(&heap->next_orphan[list])
    if
    :: d_step { top == old_top && tag == old_tag ->    // cas_acquire(&hak_orphans[list], &top, next)
        h = old_top; top = link; set_tag();
        length--; assert(stack[length] == h);
        stack[length] = 0;
        assert(link == (length -> stack[length - 1] : 0)) };
      break
    :: d_step { else -> old_top = top; old_tag = tag }
    fi
  od;
  atomic { old_top = 0; old_tag = 0; link = 0 }
}

inline set_tag() {
#ifdef BROKEN_no_tag
  tag = 0
#else
  tag++
#endif
}

inline list_orphan() {
#ifdef BROKEN_no_listed
  old = 0;
#else
#ifdef BROKEN_list_load
  old = listed[h];
  listed[h] = 1;
#else
#ifndef BROKEN_look_early
  old = listed[h];                                     // load_seq_cst(&heap->listed)
#endif
  if
  :: !old -> d_step { old = listed[h]; listed[h] = 1 } // fetch_or_seq_cst(&heap->listed, bit)
  :: else
  fi;
#endif
#endif
  if
  :: !old -> push_orphan()
  :: else
  fi;
  atomic { old = 0; old_top = 0; old_tag = 0 }
}

inline leave_orphan() {
#ifdef BROKEN_list_first
  list_orphan();
#endif
#ifdef BROKEN_look_early
  old = listed[h];
#endif
  d_step {                                             // store_seq_cst(&heap->state, ORPHAN)
    assert(taken_by[h] == me); taken_by[h] = 0; state[h] = ORPHAN
  };
#ifndef BROKEN_list_first
  list_orphan();
#endif
  h = 0
}

inline take() { // cas_seq_cst(&heap->state, &state, wanted)
#ifdef BROKEN_take_plain
  ok = state[h] == ORPHAN;
  if
  :: ok -> d_step { assert(taken_by[h] == 0); state[h] = TAKEN; taken_by[h] = me }
  :: else
  fi
#else
  d_step {
    ok = state[h] == ORPHAN;
    if
    :: ok -> assert(taken_by[h] == 0); state[h] = TAKEN; taken_by[h] = me
    :: else
    fi
  }
#endif
}

inline take_orphan() {
  do
  :: pop_orphan();
    if
    :: h == 0 -> break
    :: else
    fi;
#ifdef BROKEN_unlist_late
    take();
    listed[h] = 0;
#else
    listed[h] = 0;                                     // fetch_and_seq_cst(&heap->listed, ~bit)
    take();
#endif
    if
    :: ok -> break
    :: else -> h = 0                                   // dropped
    fi
  od
}

proctype taker() { // attach or adopt, then detach
  byte me = _pid, h, round, old_top, old_tag, link;
  bit ok, old;
  do
  :: round < ROUNDS ->
    round++;
    take_orphan();
    if
    :: h -> leave_orphan()
    :: else
    fi
  :: else -> break
  od;
  running--
}

proctype servant() { // hak_heap_service of one heap after the other
  byte me = _pid, h, heap = 1, old_top, old_tag, link;
  bit ok, old;
  do
  :: heap <= HEAPS ->
    h = heap; heap++;
    take();
    if
    :: ok -> leave_orphan()
    :: else -> h = 0
    fi
  :: else -> break
  od;
  running--
}

init {
  byte i, found;
  atomic {
    i = 1;
    do
    :: i <= HEAPS -> state[i] = ORPHAN; listed[i] = 1; next[i] = i - 1; stack[i - 1] = i; i++
    :: else -> break
    od;
    length = HEAPS; top = HEAPS;
    running = 3;
    run taker(); run taker(); run servant()
  };
  running == 0;
  d_step {
    i = top;
    do
    :: i -> assert(state[i] == ORPHAN && listed[i]); found++; assert(found <= HEAPS); i = next[i]
    :: else -> break
    od;
    assert(found == HEAPS && length == HEAPS)
  }
}
