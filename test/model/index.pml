// index.pml: protocol P2. The index over the free masks: per set a bit per
// SuperSlab in a group word, and a bit per group word in a summary word. A thread that
// changes a free mask updates the index afterwards; any number may do so at once.
//
// Two SuperSlabs of two slabs in one group, three sets: levels 0 (a free slab) and 1
// (a run of two: empty) and the band of those that drain (the other bands are like
// it). Bit 2 of the word says that the SuperSlab drains: a release that leaves one
// slab in use may set it, a claim clears it. Threads claim and release slabs for
// ever: two threads and both SuperSlabs, or three threads and one, without the
// summary word and without draining.
//
// Mirrors src/superslab/pool_index.c (of a group that is not the first, which does without the
// summary): set_bit, clear_bit, publish, sets_of, and the calls of
// hak_index_publish and hak_index_change in src/superslab/shared_pool.c: claim_in, find_in,
// evict and release. No thread relies on the index here: claims try any SuperSlab, as after a
// stale hint.
//
// Checked: whenever no thread is at work, the index agrees with the masks, so a
// free slab is found.
//
// model index_two -DTHREADS=2 -DNUMBERS=2 -DSETS=3
// broken index_two BROKEN_publish_once: publish does not look at the mask again
// broken index_two BROKEN_publish_early: publish looks at the mask again before it changes the index
// broken index_two BROKEN_no_second_look: clear_bit does not look at the group again
// broken index_two BROKEN_look_early: the second look comes before the clear (store buffer)
// broken index_two BROKEN_summary_first: set_bit looks at the summary before it sets the group
// broken index_two BROKEN_clear_plain: clear_bit loads the group word and then stores it
// model index_three -DTHREADS=3 -DNUMBERS=1 -DSETS=2
// broken index_three BROKEN_publish_once: as above

byte mask[2];                                          // free_mask of SuperSlab 0 and 1, 4: drains
byte group[3];                                         // groups[0].set[k], bit per SuperSlab
bit summary[3];                                        // summary[0].set[k], bit of group 0
byte busy;

#define bit_of(n) (1 << n)
#define sets_of(w) ((w) == 0 -> 0 : ((w) == 3 -> 3 : (((w) & 4) -> 5 : 1))) // bit k: in set k
#define wanted(k) (((sets_of(mask[0]) >> k) & 1) | (((sets_of(mask[1]) >> k) & 1) << 1))

inline set_bit() {
#if NUMBERS == 1
  group[k] = group[k] | bit_of(n)
#else
#ifdef BROKEN_summary_first
  old = summary[k];
#endif
  group[k] = group[k] | bit_of(n); // fetch_or_seq_cst(&hak_index_groups[group].set[set], bit)
#ifndef BROKEN_summary_first
  old = summary[k]; // load_seq_cst(&summary[..].set[set])
#endif
  if
  :: old == 0 -> summary[k] = 1 // fetch_or_seq_cst(&summary[..].set[set], ..)
  :: else
  fi
#endif
}

inline clear_bit() {
#if NUMBERS == 1
  group[k] = group[k] & ~bit_of(n)
#else
#ifdef BROKEN_clear_plain
  old = group[k];
  group[k] = old & ~bit_of(n);
#else
  group[k] = group[k] & ~bit_of(n); // fetch_and_seq_cst(&hak_index_groups[..].set[set], ~bit)
#endif
  if
  :: group[k] == 0 -> // load_seq_cst(&hak_index_groups[..].set[set]) == 0
#ifdef BROKEN_look_early
    old = group[k];
    summary[k] = 0;
    if
    :: old -> summary[k] = 1
    :: else
    fi
#else
    summary[k] = 0; // fetch_and_seq_cst(&summary[..].set[set], ~..)
#ifndef BROKEN_no_second_look
    if
    :: group[k] -> summary[k] = 1 // if (load_seq_cst(&hak_index_groups..)) fetch_or_seq_cst
    :: else
    fi
#endif
#endif
  :: else
  fi
#endif
}

// seen is the mask: as the caller left it, then as it was when the loop looked again.
inline publish() {
  do
  ::
#ifdef BROKEN_publish_early
    seen = mask[n];
#endif
    // has |= load_seq_cst(&hak_index_groups[..].set[k]) & bit, for all k
    has = (group[0] >> n) & 1;
    has = has | (((group[1] >> n) & 1) << 1);
#if SETS == 3
    has = has | (((group[2] >> n) & 1) << 2);
#endif
    has = has ^ sets_of(seen);                         // wrong
    k = 0;
    do
    :: k < SETS ->
      if
      :: ((has >> k) & 1) && !((sets_of(seen) >> k) & 1) -> clear_bit()
      :: ((has >> k) & 1) && ((sets_of(seen) >> k) & 1) -> set_bit()
      :: else
      fi;
      has = has & ~bit_of(k);
      k++
    :: else -> k = 0; break
    od;
#if defined(BROKEN_publish_once) || defined(BROKEN_publish_early)
    break
#else
    if
    :: atomic { mask[n] == seen -> break } // if (load_seq_cst(free_mask) == word) return
    :: atomic { else -> seen = mask[n] }   // word = now
    fi
#endif
  od
}

inline after() {
  if
  :: old -> publish() // if (sets_of(old) != sets_of(now)) publish
  :: else
  fi;
  atomic { busy--; seen = 0; old = 0; n = (held -> n : 0) }
}

proctype thread() {
  byte n, k, seen, old, has, held;                     // held: slabs of n this thread owns
end:
  do
  :: held == 0 ->
    if
    :: n = 0
    :: n = NUMBERS - 1
    fi;
    d_step {                                           // claim_in: cas_seq_cst(free_mask, &word, rest)
      busy++;
      seen = mask[n];
      held = ((seen & 1) -> 1 : seen & 2);             // the lowest slab
      mask[n] = seen & ~(held | (held -> 4 : 0));      // word_claimed: HOT
      // none: publish(number) in hak_pool_find
      old = (sets_of(seen) != sets_of(mask[n])) || held == 0;
      seen = mask[n]
    };
    after()
  :: d_step { held == 0 && mask[0] == 3 ->             // both: a run, or evict
      busy++; n = 0; held = 3; mask[0] = 0; old = 1; seen = 0 };
    after()
  :: d_step { held != 0 -> // hak_pool_release: cas_seq_cst(free_mask, &old, now)
      busy++;
      seen = mask[n]; mask[n] = (((seen | held) & 3) == 3 -> 3 : seen | held); held = 0;
      old = sets_of(seen) != sets_of(mask[n]);
      seen = mask[n] };
    after()
#if SETS == 3
  :: d_step { held != 0 && ((mask[n] | held) & 3) != 3 -> // word_released: it drains
      busy++;
      seen = mask[n]; mask[n] = seen | held | 4; held = 0;
      old = sets_of(seen) != sets_of(mask[n]);
      seen = mask[n] };
    after()
#endif
  od
}

proctype observer() {
end:
  do
  :: d_step {
      busy == 0 ->
      assert(group[0] == wanted(0) && group[1] == wanted(1));
      assert(SETS == 2 || group[2] == wanted(2));
      assert(summary[0] || group[0] == 0 || NUMBERS == 1);
      assert(summary[1] || group[1] == 0 || NUMBERS == 1);
      assert(summary[2] || group[2] == 0 || NUMBERS == 1)
    }
  od
}

init {
  atomic {
    mask[0] = 3; mask[1] = (NUMBERS == 2 -> 3 : 0);
    group[0] = (1 << NUMBERS) - 1; group[1] = group[0]; summary[0] = 1; summary[1] = 1;
    run thread(); run thread(); run observer();
#if THREADS == 3
    run thread()
#endif
  }
}
