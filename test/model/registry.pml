// registry.pml: protocol N1. Numbers of SuperSlabs are handed out in order; their
// descriptors are committed some numbers at a time; `limit` tells free which part
// of the range is in use; and the ends of the range and of the room for descriptors fall
// when the process is given less address space. Any thread writes any of it.
//
// Two numbers per step of descriptors, two threads that take two numbers each, and one that
// gives back what is not in use.
//
// Mirrors src/superslab/superslab.c: commit_descriptors, raise_limit, new_number, shrink;
// hak_range_find and hak_slab_lookup in free. next, range_end and max are one word there.
//
// Checked: each number is handed out once; its descriptors are committed, in room that is
// there; a pointer into it is found from the moment it is known; and neither it nor the limit
// reaches address space that went back.
//
// model registry
// broken registry BROKEN_limit_late: the number is taken before the limit is raised
// broken registry BROKEN_limit_plain: limit is stored without a look at what it is
// broken registry BROKEN_commit_late: the descriptors are committed after the number is raised
// broken registry BROKEN_number_plain: the next number is loaded and then stored
// broken registry BROKEN_ends_plain: the ends are stored without a look whether numbers were used
// broken registry BROKEN_end_tight: the range ends at the next number, which may be on its way
// broken registry BROKEN_max_tight: the room ends at what is committed; a step may be on its way

#define STEP 2
#define NUMBERS 10                                     // more than racing commits can reach
byte next = 1, range_end = NUMBERS, max = NUMBERS;     // hak_registry.numbers
byte committed_numbers, limit;                         // limit in numbers
bit described[NUMBERS], given[NUMBERS];                // truth
byte range_left = NUMBERS, room_left = NUMBERS;        // truth: what is still reserved

inline commit_memory() {
  d_step {
    assert(first + STEP <= room_left);
    described[first] = 1; described[first + 1] = 1
  }
}

inline raise_limit(to) {
#ifdef BROKEN_limit_plain
  limit = (to < end -> to : end)
#else
  old = limit;                                         // old = load_relaxed(&hak_registry.limit)
  do
  :: old >= to || old >= end -> break
  :: else -> // cas_relaxed(&hak_registry.limit, &old, limit)
    if
    :: d_step { limit == old -> limit = (to < end -> to : end) }; break
    :: d_step { else -> old = limit }
    fi
  od;
#endif
  old = 0;
  assert(limit <= range_left)
}

inline commit_descriptors() {
#ifndef BROKEN_commit_late
  commit_memory(); // hak_os_commit, twice; any number of threads
#endif
  if
  :: d_step { committed_numbers == first -> committed_numbers = first + STEP } // cas_acq_rel
  :: else
  fi;
#ifdef BROKEN_commit_late
  commit_memory();
#endif
}

inline load_word() { d_step { number = next; end = range_end; most = max } }

proctype thread() {
  byte number, end, most, first, old, taken;
  do
  :: taken < 2 ->
    load_word();                                       // load_acquire(&hak_registry.numbers)
    do                                                 // new_number
    :: first = committed_numbers;                      // load_acquire(&committed_numbers)
      if
      :: number >= first && first + STEP > most -> goto out // no more of them
      :: number >= first && first + STEP <= most ->
        commit_descriptors();
        load_word()
      :: else ->
#ifndef BROKEN_limit_late
        raise_limit(number + 1);
#endif
#ifdef BROKEN_number_plain
        next = number + 1;
        break
#else
        if                                             // cas_acq_rel(&hak_registry.numbers)
        :: d_step { next == number && range_end == end && max == most -> next = number + 1 }; break
        :: d_step { else -> number = next; end = range_end; most = max }
        fi
#endif
      fi
    od;
    first = 0;
    atomic { assert(described[number] && !given[number]); given[number] = 1 };
    assert(number >= range_end || number < range_left); // in_range: its memory is there
    assert(number >= range_end || number < limit);     // free: hak_range_find
#ifdef BROKEN_limit_late
    raise_limit(number + 1);
#endif
    taken++
  :: else -> break
  od;
out: skip
}

proctype fit() {                                       // shrink, once; one thread at a time
  byte number, end, most, low, room;
  load_word();
  do
  ::
#ifdef BROKEN_end_tight
    low = number;
#else
    low = number + 1;
#endif
#ifdef BROKEN_max_tight
    room = committed_numbers;
#else
    room = number / STEP * STEP + STEP;
#endif
#ifdef BROKEN_ends_plain
    d_step { range_end = low; max = room }; break
#else
    if                                                 // cas_acq_rel(&hak_registry.numbers)
    :: d_step { next == number && range_end == end && max == most -> range_end = low; max = room };
      break
    :: d_step { else -> number = next; end = range_end; most = max }
    fi
#endif
  od;
  range_left = low;                                    // hak_os_unmap
  room_left = room
}

init { atomic { run thread(); run thread(); run fit() } }
