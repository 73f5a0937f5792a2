// places.pml: protocol N1, the places in the range that go back when the address space is limited
// after a peak. The thread that takes a number out of the cold ones gives its place to the kernel
// for good; whatever lies there later, the program's or a SuperSlab of another number, is found by
// the table.
//
// Number 1 has its place in the range; another is mapped wherever there is room: in that place,
// when it is given up, or somewhere else. Two threads acquire, use and decommit for ever, and
// forget descriptors; one gives places up; the program maps and unmaps what it likes where there
// is room, and asks about addresses in it. System calls fail now and then. With GAPS
// number 2 is a gap of the secure library instead, which the only thread fills if it is refused
// memory.
//
// places_fork: one thread, and the child of a fork that copies the words one by one meanwhile;
// calls that change mappings wait until that is done.
//
// Mirrors src/superslab/superslab.c: commit, fill_gaps, hak_superslab_acquire, leave_place,
// leave_places, forget_another (which number it is about is left open), hak_superslab_decommit,
// hak_slab_lookup, hak_superslab_after_fork; hak_range_find in free. The table is pagemap.pml's.
//
// Checked: a number is held by one thread; memory is committed, used and decommitted only where the
// number's own mapping is; every address of a block leads to its number, by descriptors of the
// range that are in use or by the table; no address of what is not ours leads to a number, nor to a
// descriptor that says anything; and whenever no thread is at work, a number is held by a thread
// that uses it, or cold with its place, or without a place, which has gone back. In the child a cold
// number has its place, and one whose place is gone says so.
//
// model places
// broken places BROKEN_untaken: a place is given up without taking the number
// broken places BROKEN_look_only: the number is looked at and then taken
// broken places BROKEN_forgotten_late: the place is said to be forgotten after it went back
// broken places BROKEN_descriptors_late: the descriptors go back after the place
// broken places BROKEN_descriptors_kept: the descriptors do not go back
// broken places BROKEN_cold_again: the number is cold once more
// broken places BROKEN_refused_lost: a number whose place was not taken back is not cold again
// broken places BROKEN_refused_forgotten: such a place stays forgotten, though it is used again
// broken places BROKEN_forgets_place: that descriptors go back is said without taking the number
// broken places BROKEN_lookup_blind: the lookup does not ask whether the place was forgotten
// model places_gaps -DGAPS
// broken places_gaps BROKEN_gaps_plain: whether the gaps are filled is looked at and then stored
// model places_fork -DFORK
// broken places_fork BROKEN_forgotten_late: as above
// broken places_fork BROKEN_cold_late: the number is taken after the place went back
// broken places_fork BROKEN_cold_kept: the child believes a number without a place to be cold

#define NUMBERS 3                                      // from 1 on
#ifdef GAPS
#define PLACES 3                                       // from 1 on; 2 is a gap
#define TABLED 9                                       // none
#else
#define PLACES 2
#define TABLED 2                                       // the number that is not of the range
#endif
#define ELSEWHERE 0                                    // the place that is not in the range
#define PROGRAM 9
#define NOTHING 0                                      // kind FREE, never anything else
#define IN_USE 1
#define WAS_USED 2                                     // kind FREE, last_kind
#define DESCRIPTORS 1                                  // HAK_FORGOTTEN
#define PLACE 2                                        // HAK_FORGOTTEN_PLACE

byte forgotten[NUMBERS], base[NUMBERS], table[PLACES];      // table: number, by place
bit cold[NUMBERS];
byte descriptors[NUMBERS];                             // by number
bit gaps_filled;
// Truth.
byte mapped[PLACES];                                        // by place: the number, or the program
byte holder[NUMBERS];
bit left[NUMBERS];                                     // its place went back
byte busy;
bit forking;                                           // mappings do not change

// What the address of a block of number n tells, or of none for n = 0: the descriptor in the range
// if it is in use (free, usable_here), else what hak_slab_lookup says.
inline find(n, where) {
  found = (where != ELSEWHERE && descriptors[where] == IN_USE -> where : 0); // hak_range_find
#ifdef BROKEN_lookup_blind
  found = (where != ELSEWHERE -> where : found);
#else
  found = (found == 0 && where != ELSEWHERE && forgotten[where] != PLACE -> where : found);
#endif
  found = (found == 0 -> table[where] : found);        // hak_pagemap_get
  assert(found == n);
  assert(n || where == ELSEWHERE || descriptors[where] == NOTHING);
  found = 0
}

inline take_cold(taken) {                              // clear_bit(COLD, number): fetch_and
  d_step {
    taken = cold[n];
    cold[n] = 0;
    assert(!taken || holder[n] == 0);
    holder[n] = (taken -> _pid : holder[n])
  }
}
inline add_cold() { d_step { cold[n] = 1; holder[n] = 0 } }

#ifdef GAPS
inline fill_gaps() {
  d_step { taken = !gaps_filled; gaps_filled = 1 };    // exchange_seq_cst(&gaps_filled, true)
  if
  :: taken -> n = 2; add_cold()
  :: else
  fi
}
#endif

inline acquire() {
  take_cold(taken);
  if
  :: taken ->
    if                                                 // commit
    :: n != TABLED -> d_step { assert(mapped[n] == n); base[n] = n } // hak_os_commit
    :: n == TABLED && base[n] != ELSEWHERE                  // it could not be unmapped
    :: n == TABLED && base[n] == ELSEWHERE && table[ELSEWHERE] == n
    :: n == TABLED && table[base[n]] != n ->                // hak_os_map, hak_pagemap_set
      if
      :: d_step { !forking && mapped[1] == 0 -> mapped[1] = n }; base[n] = 1
      :: d_step { !forking && mapped[ELSEWHERE] == 0 -> mapped[ELSEWHERE] = n }; base[n] = ELSEWHERE
      fi;
      table[base[n]] = n
    :: taken = 0                                       // refused
    fi;
    if
    :: taken -> taken = 0
    :: else -> add_cold();
#ifdef GAPS
      fill_gaps();
#endif
      n = 0; taken = 0
    fi
  :: else -> n = 0
  fi
}

inline forget_another() {
#ifdef BROKEN_forgets_place
  forgotten[n] = DESCRIPTORS;
#endif
  take_cold(taken);                                    // hak_pool_leave_cold
  if
  :: taken ->
    forgotten[n] = DESCRIPTORS;
    if
    :: d_step { !forking -> descriptors[n] = NOTHING } // hak_os_discard
    :: true
    fi;
    add_cold()
  :: else
  fi;
  n = 0; taken = 0
}

inline decommit() {
  if
  :: n != TABLED ->
    if                                                 // hak_os_decommit
    :: d_step { !forking -> assert(mapped[n] == n) }
    :: true                                            // refused
    fi
  :: else ->
    table[base[n]] = 0;                                // hak_pagemap_take
    if
    :: d_step { !forking -> assert(mapped[base[n]] == n); mapped[base[n]] = 0 }; base[n] = ELSEWHERE
    :: table[base[n]] = n                              // refused
    fi
  fi;
  add_cold();
  n = 0
}

proctype thread() {
  byte n, found;
  bit taken;
end:
  do
  :: atomic { n == 0 -> busy++; n = 1 }; acquire(); busy--
  :: atomic { n == 0 -> busy++; n = 2 }; acquire(); busy--
  :: atomic { n == 0 -> busy++; n = 1 }; forget_another(); busy--
  :: atomic { n == 0 -> busy++; n = 2 }; forget_another(); busy--
  :: d_step { n -> assert(mapped[base[n]] == n) };     // a block, which is written to
    descriptors[n] = IN_USE;
    find(n, base[n]);                                  // free, by anybody
    descriptors[n] = WAS_USED                          // its slab goes back
  :: atomic { n -> busy++ }; decommit(); busy--
  od
}

inline unmap_place() { // hak_os_unmap(place)
  d_step { !forking -> assert(mapped[n] == n); mapped[n] = 0; left[n] = 1 }
}
inline discard_descriptors() { // hak_os_discard
  d_step { !forking -> assert(holder[n] == 0 || holder[n] == _pid); descriptors[n] = NOTHING }
}

inline leave_place(is_gap) {
  if
  :: is_gap; refused = 0
#if defined(BROKEN_descriptors_late) || defined(BROKEN_descriptors_kept)
  :: !is_gap; refused = 0
#else
  :: !is_gap; discard_descriptors(); refused = 0
#endif
  :: !is_gap; refused = 1
  fi;
  if
  :: !refused ->
#ifdef BROKEN_forgotten_late
    if
    :: unmap_place();
      forgotten[n] = PLACE
#else
    forgotten[n] = PLACE;
    if
    :: unmap_place()
#endif
#ifdef BROKEN_descriptors_late
      ; discard_descriptors()
#endif
      ; holder[n] = 0
#ifdef BROKEN_cold_again
      ; add_cold()
#endif
    :: refused = 1;
#ifndef BROKEN_refused_forgotten
      forgotten[n] = DESCRIPTORS
#endif
    fi
  :: else
  fi;
#ifndef BROKEN_refused_lost
  if
  :: refused && !is_gap -> add_cold()
  :: else
  fi;
#endif
  refused = 0
}

proctype leaver() {                                    // hak_superslab_fit, one at a time
  byte n;
  bit taken, refused, gaps;
end:
  do
  :: atomic { busy++; n = 1 };
#ifdef GAPS
#ifdef BROKEN_gaps_plain
    gaps = !gaps_filled;
    gaps_filled = 1;
#else
    d_step { gaps = !gaps_filled; gaps_filled = 1 };   // exchange_seq_cst(&gaps_filled, true)
#endif
#endif
    do
    :: n < PLACES ->
      if
      :: gaps && n == 2 -> leave_place(1)
      :: else ->
#if defined(BROKEN_untaken) || defined(BROKEN_cold_late)
        taken = cold[n];
#else
#ifdef BROKEN_look_only
        taken = cold[n];
        if
        :: taken -> d_step { cold[n] = 0; holder[n] = _pid }
        :: else
        fi;
#else
        take_cold(taken);                              // hak_pool_leave_cold
#endif
#endif
        if
        :: taken -> leave_place(0)
        :: else
        fi
#ifdef BROKEN_cold_late
        ; cold[n] = 0
#endif
      fi;
      n++
    :: else -> break
    od;
    atomic { assert(holder[1] != _pid && holder[2] != _pid); busy--; n = 0; taken = 0; gaps = 0 }
  od
}

proctype program() {
  byte where, found;
end:
  do
  :: where = 1
#ifdef GAPS
  :: where = 2
#endif
  :: d_step { !forking && mapped[where] == 0 -> mapped[where] = PROGRAM };
    find(0, where);                                    // hak_owns, or a free that is wrong
    d_step { !forking -> mapped[where] = 0 }
  od
}

proctype observer() {
  byte i;
end:
  do
  :: d_step { busy == 0 ->
      i = 1;
      do
      :: i < NUMBERS ->
        assert((holder[i] != 0) + cold[i] + left[i] == 1
#ifdef GAPS
               || (i == 2 && !holder[i] && !cold[i] && !left[i]) // a gap
#endif
        );
        assert(left[i] == (forgotten[i] == PLACE));
        assert(i == TABLED || left[i] || mapped[i] == i);
        i++
      :: else -> break
      od;
      i = 0
    }
  od
}

#ifdef FORK
// The words of number 1 and of the index, in any order, and what the kernel copies.
byte child_forgotten, child_descriptors;
bit child_cold, child_mapped;
proctype forker() {
  byte done;
  forking = 1;
  child_mapped = mapped[1] == 1;
  do
  :: d_step { !(done & 1) -> child_cold = cold[1]; done = done | 1 }
  :: d_step { !(done & 2) -> child_forgotten = forgotten[1]; done = done | 2 }
  :: d_step { !(done & 4) -> child_descriptors = descriptors[1]; done = done | 4 }
  :: done == 7 -> break
  od;
  forking = 0;
  d_step {
#ifndef BROKEN_cold_kept
    child_cold = (child_forgotten == PLACE -> 0 : child_cold); // hak_superslab_after_fork
#endif
    assert(!child_cold || (child_mapped && child_forgotten != PLACE)); // it will be committed
    assert(child_mapped || (child_forgotten == PLACE && child_descriptors == NOTHING))
  }
}
#endif

init {
  atomic {
    mapped[1] = 1; cold[1] = 1;
#ifdef GAPS
    mapped[2] = 2;
#else
    cold[2] = 1;
#endif
    run thread(); run leaver();
#ifdef FORK
    run forker()
#else
#ifndef GAPS
    run thread();
#endif
    run program(); run observer()
#endif
  }
}
