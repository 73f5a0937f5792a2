// heaps.pml: protocol N2. Heaps have numbers; they lie in segments that are mapped
// when first needed, by any number of threads at once, and never unmapped.
//
// One heap per segment. Three threads make a heap each; a fourth walks all heaps by
// number, as statistics do.
//
// Mirrors src/thread/heaps.c: in_segment, hak_heap_by_id, hak_heap_new.
//
// Checked: each number goes to one thread, and all see the same memory for it; every
// number up to heap_count has memory.
//
// model heaps
// broken heaps BROKEN_segment_plain: a segment is installed by a store
// broken heaps BROKEN_count_first: the number is taken before its segment is there
// broken heaps BROKEN_count_plain: heap_count is stored without a look at what it is

#define THREADS 3
#define PIECES 9
byte heap_count;
byte segments[THREADS + 1];                            // by number here: piece of memory + 1
bit piece_mapped[PIECES];
byte taken_by[THREADS + 1];

inline in_segment() { // segment = memory for heap id
  segment = segments[id];                              // load_acquire(&segments[k])
  if
  :: segment == 0 ->
    d_step {                                           // fresh = hak_os_map(size, ..)
      fresh = 1;
      do
      :: piece_mapped[fresh - 1] -> fresh++
      :: else -> break
      od;
      piece_mapped[fresh - 1] = 1
    };
#ifdef BROKEN_segment_plain
    segments[id] = fresh; segment = fresh;
#else
    if
    :: d_step { segments[id] == 0 -> segments[id] = fresh; segment = fresh } // cas_acq_rel
    :: d_step { else -> segment = segments[id]; piece_mapped[fresh - 1] = 0 } // hak_os_unmap
    fi;
#endif
    fresh = 0
  :: else
  fi
}

proctype maker() { // hak_heap_new
  byte me = _pid, id, segment, fresh;
  id = heap_count + 1;                                 // load_acquire(&heap_count) + 1
  do
  ::
#ifndef BROKEN_count_first
    in_segment();
#endif
#ifdef BROKEN_count_plain
    heap_count = id;
    break
#else
    if
    :: d_step { heap_count == id - 1 -> heap_count = id }; break // cas_acq_rel(&heap_count, ..)
    :: d_step { else -> id = heap_count + 1; segment = 0 }
    fi
#endif
  od;
#ifdef BROKEN_count_first
  in_segment();
#endif
  assert(taken_by[id] == 0);
  taken_by[id] = me;
  assert(segments[id] == segment && piece_mapped[segment - 1])
}

proctype reader() {
  byte id = 1, count;
  count = heap_count;                                  // hak_heap_count
  do
  :: id <= count ->
    assert(segments[id] != 0 && piece_mapped[segments[id] - 1]); // hak_heap_by_id(id)
    id++
  :: else -> break
  od
}

init { atomic { run maker(); run maker(); run maker(); run reader() } }
