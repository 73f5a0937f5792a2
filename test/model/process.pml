// process.pml: protocol I1. What is set up once per process, by the thread that
// comes first; the others wait until it is done.
//
// Three threads. Mirrors src/thread/process.c: hak_process_init_slow,
// hak_process_init.
//
// Checked: the set-up runs once and is done before any thread goes on; with a fair
// scheduler every thread goes on.
//
// model process
// broken process BROKEN_state_plain: the state is looked at and then stored
// broken process BROKEN_done_early: the state says done before the set-up is
// broken process BROKEN_no_wait: a thread that comes second does not wait
// model process_progress ltl=all_go_on
// broken process_progress BROKEN_never_done: the state never says done

#define THREADS 3
byte state, set_up, started, through;

proctype thread() {
  byte seen;
  seen = state;                                        // load_acquire(&hak_process_state) != 2
  if
  :: seen == 2
  :: else ->
#ifdef BROKEN_state_plain
    seen = state;
    if
    :: seen == 0 -> state = 1
    :: else
    fi;
#else
    d_step { seen = state; if :: seen == 0 -> state = 1 :: else fi }; // cas_acquire(&state, &0, 1)
#endif
    if
    :: seen == 0 ->
#ifdef BROKEN_done_early
      state = 2;
#endif
      started++;
      set_up++;                                        // hak_os_init .. hak_superslab_init
#ifndef BROKEN_never_done
      state = 2                                        // store_release(&hak_process_state, 2)
#endif
    :: else ->
#ifndef BROKEN_no_wait
      do // while (load_acquire(..) != 2) hak_os_yield()
      :: state == 2 -> break
      :: state != 2
      od
#endif
    fi
  fi;
#ifndef BROKEN_never_done
  assert(started == 1 && set_up == 1);
#endif
  through++
}

init { atomic { run thread(); run thread(); run thread() } }

ltl all_go_on { <> (through == THREADS) }
