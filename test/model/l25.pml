// l25.pml: the kind word of L2.5 runs (protocol L1). A run has no owner: whoever
// frees it turns its kind from L25 to FREE, once, and gives its slabs to the shared
// pool, where another thread may take them at once.
//
// One run of two slabs. Two threads free it at the same time (the program is wrong);
// a third takes slabs as they become free and makes tiny slabs of them.
//
// Mirrors src/pool/l25.c: hak_l25_free; src/superslab/slab.c: hak_slab_init.
//
// Checked: the slabs are given back once; no thread writes a descriptor that is not
// its own; one of the two frees reports the error.
//
// model l25
// broken l25 BROKEN_kind_plain: the kind is looked at and then stored
// broken l25 BROKEN_release_first: the slabs go back before the kinds say FREE
// broken l25 BROKEN_kind_last: the kind of the head changes after the interior ones

mtype = { FREE, L25, INTERIOR, TINY };
mtype kind[2] = L25;
byte free_mask;                                        // of the two slabs
bit ours[2];                                           // truth: part of the run still
byte reported, released, running = 2;

inline release() { // hak_pool_release(head, n)
  d_step { assert(free_mask == 0 && ours[0] && ours[1]); ours[0] = 0; ours[1] = 0;
           free_mask = 3; released++ }
}

proctype freer() {
  bit won;
#if defined(BROKEN_kind_plain)
  won = kind[0] == L25;
  if
  :: won -> kind[0] = FREE
  :: else
  fi;
#elif defined(BROKEN_kind_last)
  won = kind[0] == L25;
#elif defined(BROKEN_release_first)
  d_step { won = kind[0] == L25 && !released; if :: won -> released = 1 :: else fi };
#else
  d_step {                                             // cas_relaxed(&head->kind, L25, FREE)
    won = kind[0] == L25;
    if
    :: won -> kind[0] = FREE
    :: else
    fi
  };
#endif
  if
  :: won ->
#ifdef BROKEN_release_first
    d_step { ours[0] = 0; ours[1] = 0; free_mask = 3 };
    d_step { kind[0] = FREE };
    d_step { kind[1] = FREE }
#else
    d_step { assert(ours[1]); kind[1] = FREE };        // store_relaxed(&head[i].kind, FREE)
#ifdef BROKEN_kind_last
    d_step { assert(ours[0]); kind[0] = FREE };
#endif
    release()
#endif
  :: else -> reported++                                // hak_misuse_double_free
  fi;
  running--
}

proctype other() {
  byte i;
  do
  :: i < 2 ->
    if
    :: d_step { free_mask & (1 << i) -> free_mask = free_mask & ~(1 << i) }; // claim
      d_step { assert(kind[i] == FREE); kind[i] = TINY } // hak_slab_init
    :: true                                            // it does not want this one
    fi;
    i++
  :: else -> break
  od;
  running == 0;
  assert(released == 1 && reported == 1);
  assert(kind[0] == (free_mask & 1 -> FREE : TINY));
  assert(kind[1] == (free_mask & 2 -> FREE : TINY))
}

init {
  atomic {
    kind[1] = INTERIOR; ours[0] = 1; ours[1] = 1;
    run freer(); run freer(); run other()
  }
}
