// registry.pml: protocol N1. Numbers of SuperSlabs are handed out in order; their
// descriptors are committed some numbers at a time; `limit` tells free which part
// of the range has descriptors. Three words, written by any thread.
//
// Two numbers per step of descriptors, three threads that take two numbers each.
//
// Mirrors src/superslab/superslab.c: commit_descriptors, new_number; hak_range_find
// and hak_slab_lookup in free.
//
// Checked: each number is handed out once; its descriptors are committed; and a
// pointer into it is found from the moment it is known.
//
// model registry
// broken registry BROKEN_limit_late: committed_numbers is raised before limit
// broken registry BROKEN_limit_plain: limit is stored without a look at what it is
// broken registry BROKEN_commit_late: the descriptors are committed after the number is raised
// broken registry BROKEN_number_plain: next_number is loaded and then stored

#define STEP 2
#define NUMBERS 20                                     // more than racing commits can reach
byte next_number = 1, committed_numbers, limit;        // limit in numbers
bit described[NUMBERS], given[NUMBERS];                // truth

inline commit_memory() { d_step { described[first] = 1; described[first + 1] = 1 } }

inline raise_limit() {
#ifdef BROKEN_limit_plain
  limit = first + STEP
#else
  old = limit;                                         // old = load_relaxed(&hak_registry.limit)
  do
  :: old >= first + STEP -> break
  :: else -> // cas_relaxed(&hak_registry.limit, &old, limit)
    if
    :: d_step { limit == old -> limit = first + STEP }; break
    :: d_step { else -> old = limit }
    fi
  od
#endif
}

inline commit_descriptors() {
#ifndef BROKEN_commit_late
  commit_memory(); // hak_os_commit, twice; any number of threads
#endif
#ifndef BROKEN_limit_late
  raise_limit();
#endif
  if
  :: d_step { committed_numbers == first -> committed_numbers = first + STEP } // cas_acq_rel
  :: else
  fi;
#ifdef BROKEN_limit_late
  raise_limit();
#endif
#ifdef BROKEN_commit_late
  commit_memory();
#endif
  old = 0
}

proctype thread() {
  byte number, first, old, taken;
  do
  :: taken < 2 ->
    number = next_number;                              // load_acquire(&next_number)
    do                                                 // new_number
    :: first = committed_numbers;                      // load_acquire(&committed_numbers)
      if
      :: number >= first ->
        commit_descriptors();
        number = next_number                           // load_acquire(&next_number)
      :: else ->
#ifdef BROKEN_number_plain
        next_number = number + 1;
        break
#else
        if
        :: d_step { next_number == number -> next_number = number + 1 }; break // cas_acq_rel
        :: d_step { else -> number = next_number }
        fi
#endif
      fi
    od;
    first = 0;
    atomic { assert(described[number] && !given[number]); given[number] = 1 };
    assert(number < limit);                            // free: hak_range_find
    taken++
  :: else -> break
  od
}

init { atomic { run thread(); run thread(); run thread() } }
