// first.pml: protocol S2. The first blocks of a process: the first thread hands them out, each
// place once, until there are no more or another thread asks; any thread frees them; the pages go
// back after the last.
//
// Two threads allocate and free any live block; the first to come is the first thread. A handler
// interrupts one of them between any two steps and does the same, once or more often, before that
// thread goes on. That thread ends with the audit. Requests are too large now and then. With TWICE
// the program frees blocks twice.
//
// Mirrors src/thread/first.c: map_memory, hak_first_alloc, not_first, count_off, give_back, find,
// hak_first_free, hak_first_audit, look_at_all.
//
// Checked: a place is handed out once, as zeros with its mark; while a block is live or on its
// way its pages do not go back, so that it keeps contents and mark; correct use is not reported,
// neither by a free nor by an audit; of two frees of one block one is reported, as such; and when
// all is over, the pages have gone back if the first thread brought about that nothing is live nor
// can be handed out.
//
// model first
// broken first BROKEN_count_late: a block counts when it is made
// broken first BROKEN_look_once: who counted the last one off does not look again once it is closed
// broken first BROKEN_open_kept: the pages go back though more can be handed out
// broken first BROKEN_by_any: any thread gives the pages back
// broken first BROKEN_audit_uncounted: the audit does not count while it looks
// broken first BROKEN_others_count: a thread that gets none counts while it finds out
// broken first BROKEN_close_late: a request that is one too many counts itself off, then closes
// broken first BROKEN_used_plain: where the next place begins is loaded and then stored
// broken first BROKEN_base_plain: who has mapped the memory does not look whether it is there
// broken first BROKEN_words_late: a freed block is filled after it is said to be freed
// model first_twice -DTWICE
// broken first_twice BROKEN_gone_plain: the state is looked at and then stored

#define BLOCKS 2
#define NONE 0
#define LIVE 1
#define GONE 2
#define ZEROS 0
#define USED 1                                         // what the program writes
#define FREED 2
#ifdef TWICE
#define FREES 2
#else
#define FREES 1
#endif

bit open = 1, given_back, base;
byte first_thread, begun, used, live;
byte state[BLOCKS], place[BLOCKS], number[BLOCKS];     // number: by place, from 1 on
bit mark[BLOCKS];                                      // by place
byte words[BLOCKS];                                    // by place
// Truth.
bit out[BLOCKS];                                       // by place: is or was handed out
bit due[BLOCKS];                                       // by place: made, and not yet freed
byte frees[BLOCKS], reports[BLOCKS];                   // of a block that was handed out
bit handed[BLOCKS];
byte last_by; // who freed the last, or closed after that
bit handling;                                          // thread 1 is interrupted

inline discard() {
  d_step {
    assert(!due[0] && !due[1]);
    mark[0] = 0; mark[1] = 0; words[0] = ZEROS; words[1] = ZEROS
  }
}

inline audit() { // hak_first_audit
  if
  :: first_thread == me ->
#ifndef BROKEN_audit_uncounted
    live++;                                            // fetch_add_seq_cst(&live, 1)
#endif
    if
    :: !given_back ->                                  // look_at_all
      k = 0;
      do
      :: k < BLOCKS ->
        s = state[k];                                  // load_acquire(&block->state)
        if
        :: s != NONE -> assert(mark[place[k]]);        // report_overflow
          assert(s != GONE || words[place[k]] == FREED) // hak_misuse_written
        :: else
        fi;
        k++
      :: else -> break
      od;
      atomic { k = 0; s = 0 }
    :: else
    fi;
#ifndef BROKEN_audit_uncounted
    d_step { live--; last_by = 0 }                     // fetch_sub_seq_cst(&live, 1)
#endif
  :: else
  fi
}

inline count_off() {
  d_step {                                             // fetch_sub_seq_cst(&live, 1) == 1
    live--; last = live == 0;
    last_by = (!due[0] && !due[1] && !open -> me : last_by)
  };
  if
#ifdef BROKEN_open_kept
  :: last ->
#else
  :: last && !open ->                                  // load_seq_cst(&hak_first_is_open)
#endif
    if
#ifdef BROKEN_by_any
    :: base ->
#else
    :: first_thread == me && base ->
#endif
      if
#ifdef BROKEN_look_once
      :: true ->
#else
      :: live == 0 ->                                  // load_seq_cst(&hak_first_counts.live)
#endif
        audit();                                       // give_back
        given_back = 1;
        discard()
#ifndef BROKEN_look_once
      :: else
#endif
      fi
    :: else
    fi
  :: else
  fi;
  last = 0
}

inline close() { d_step { open = 0; last_by = (!due[0] && !due[1] -> me : last_by) } }

inline not_first_closing() {
#ifdef BROKEN_close_late
  count_off();
  close()
#else
  close();
  count_off()
#endif
}

inline map_memory() {
  if
  :: base
  :: !base ->                                          // load_relaxed(&hak_first_base)
#ifdef BROKEN_base_plain
    d_step { base = 1; mark[0] = 0; mark[1] = 0; words[0] = ZEROS; words[1] = ZEROS }
#else
    base = 1                                           // cas_relaxed; else hak_os_unmap of one's own
#endif
  fi
}

inline alloc() {
  if
  :: !open                                             // hak_first_open
  :: open ->
#ifdef BROKEN_others_count
    live++;
#endif
    d_step { first_thread = (first_thread == 0 -> me : first_thread) }; // cas_relaxed
    if
    :: first_thread != me -> close();
#ifdef BROKEN_others_count
      live--
#endif
    :: first_thread == me ->
#if !defined(BROKEN_others_count) && !defined(BROKEN_count_late)
      live++;                                          // fetch_add_seq_cst(&live, 1)
#endif
      d_step { i = begun; begun++ };                   // fetch_add_relaxed(&begun, 1)
      if
      :: i >= BLOCKS ->
#ifdef BROKEN_count_late
        live++;
#endif
        not_first_closing()
#ifndef BROKEN_count_late
      :: i < BLOCKS -> count_off()                     // size > HAK_FIRST_MAX
#endif
      :: i < BLOCKS ->
#ifdef BROKEN_used_plain
        at = used;
        used = at + 1;
#else
        d_step { at = used; used++ };                  // fetch_add_relaxed(&used, place)
#endif
        map_memory();
        place[i] = at;
        d_step { assert(!out[at]); out[at] = 1; due[at] = 1; mark[at] = 1 };
        state[i] = LIVE;                               // store_release
        number[at] = i + 1;                            // store_release
#ifdef BROKEN_count_late
        live++;
#endif
        d_step { assert(words[at] == ZEROS && mark[at]); words[at] = USED; handed[i] = 1 }
      fi
    fi
  fi;
  atomic { i = 0; at = 0 }
}

inline report() { // say: a double free, nothing else
  d_step { assert(frees[i] == 2 && state[i] == GONE); reports[i]++ }
}

inline free() { // block i, hak_first_free
  assert(number[place[i]] == i + 1);                   // find
  s = state[i];
  if
  :: s == LIVE && mark[place[i]] ->
    assert(frees[i] == 2 || words[place[i]] == USED);
#ifndef BROKEN_words_late
    words[place[i]] = FREED;
#endif
#ifdef BROKEN_gone_plain
    s = state[i];
    if
    :: s == LIVE -> d_step { state[i] = GONE; due[place[i]] = 0 };
#else
    if
    :: d_step { state[i] == LIVE -> state[i] = GONE; due[place[i]] = 0 }; // cas_acq_rel
#endif
#ifdef BROKEN_words_late
      words[place[i]] = FREED;
#endif
      count_off()
    :: else -> report()
    fi
  :: else -> report()
  fi;
  atomic { i = 0; s = 0 }
}

inline work() {
  do
  :: alloc()
  :: d_step { handed[0] && frees[0] < FREES -> frees[0]++; i = 0 }; free()
  :: d_step { handed[1] && frees[1] < FREES -> frees[1]++; i = 1 }; free()
  :: break
  od
}

proctype interrupted() provided (!handling) {
  byte me = 1, i, at, s, k;
  bit last;
  work();
  audit()
}

proctype handler() {
  byte me = 1, i, at, s, k;
  bit last;
  do
  :: handling = 1; work(); handling = 0
  :: break
  od
}

proctype other() {
  byte me = 2, i, at, s, k;
  bit last;
  work()
}

init {
  atomic { run interrupted(); run handler(); run other() };
  _nr_pr == 1;
#ifdef TWICE
  assert(frees[0] < 2 || reports[0] == 1);
  assert(frees[1] < 2 || reports[1] == 1)
#else
  assert(live == (state[0] == LIVE) + (state[1] == LIVE));
  assert(open || live || !base || last_by != first_thread ||
         (!mark[0] && !mark[1] && words[0] == ZEROS && words[1] == ZEROS))
#endif
}
