// pool.pml: protocol P1. The free mask of a SuperSlab is the truth: who clears a
// bit by compare-and-swap owns the slab, who sets it gives the slab up, and who clears
// all bits at once owns the SuperSlab and may give its memory back. A number
// without memory is in the set COLD until one thread takes it.
//
// Two SuperSlabs of two slabs, one with memory and one cold; two threads that
// claim, use and release slabs and runs of two, evict and commit for ever. System
// calls fail now and then. Which SuperSlab a thread tries is left open, which
// covers every answer of the index (index.pml).
//
// The tier bits beside the free mask change in the same compare-and-swap and are
// left out, as is that a claim may take more than it needs: here the claim of two.
//
// Mirrors src/superslab/shared_pool.c: claim_in, take, hak_pool_map, evict,
// purge, hak_pool_release, hak_pool_add_cold, hak_pool_take_cold, hak_pool_leave_cold;
// src/superslab/superslab.c: commit, hak_superslab_acquire, hak_superslab_decommit (range),
// forget_another (which number it is about is left open).
//
// Checked: a slab has one owner; memory of a slab in use is never given back, nor are the
// descriptors of a SuperSlab that another thread holds; a
// slab said to be zero is zero; whenever no thread is at work, each slab is held by a
// thread, or free in its mask, or its SuperSlab is cold.
//
// model pool
// broken pool BROKEN_claim_plain: claim stores the mask instead of compare-and-swap
// broken pool BROKEN_release_plain: release stores the mask instead of compare-and-swap
// broken pool BROKEN_evict_plain: evict looks whether all is free and then stores 0
// broken pool BROKEN_cold_plain: taking a cold number is a look and a store
// broken pool BROKEN_cold_early: a number counts as cold before its memory is given back
// broken pool BROKEN_mask_early: the free mask is published before the memory is committed
// broken pool BROKEN_release_early: the bits are set before the owner is done with the slab
// broken pool BROKEN_dirty_cleared: decommit forgets what was used though the contents are kept
// broken pool BROKEN_purge_unclaimed: pages of free slabs are discarded without a claim
// broken pool BROKEN_purge_forgets: purge forgets what was used though the contents are kept
// broken pool BROKEN_dirty_late: dirty is cleared after the number became cold
// broken pool BROKEN_forget_untaken: descriptors go back without taking the number

#define NUMBERS 2
#define ALL_FREE 3

byte free_mask[NUMBERS], dirty[NUMBERS];
bit cold[NUMBERS];
// Truth.
bit mapped[NUMBERS];                                   // the memory can be used
byte content[NUMBERS];                                 // slabs whose memory is not zero
byte owner[4];                                         // of slab number * 2 + i; 0: nobody
byte whole[NUMBERS];                                   // who has taken the number; 0: nobody
byte busy;

inline own() { // the claim gave this thread `bits` of number n
  assert(!(bits & 1) || owner[n * 2] == 0);
  assert(!(bits & 2) || owner[n * 2 + 1] == 0);
  owner[n * 2] = ((bits & 1) -> me : owner[n * 2]);
  owner[n * 2 + 1] = ((bits & 2) -> me : owner[n * 2 + 1]);
  whole[n] = 0
}
inline disown() {
  owner[n * 2] = ((bits & 1) -> 0 : owner[n * 2]);
  owner[n * 2 + 1] = ((bits & 2) -> 0 : owner[n * 2 + 1])
}
inline use() { // the program and the descriptor's owner fields
  assert(mapped[n] && (!(bits & 1) || owner[n * 2] == me));
  assert(!(bits & 2) || owner[n * 2 + 1] == me);
  content[n] = content[n] | bits
}

inline take() {
  d_step {                                             // fetch_or(&superslab->dirty, bits)
    zeroed = (dirty[n] & bits) == 0; dirty[n] = dirty[n] | bits;
    assert(mapped[n]);
    assert(!zeroed || (content[n] & bits) == 0)        // slab->zeroed = !(dirty & bits)
  }
}

inline claim() {
  seen = free_mask[n];                                 // mask = load_relaxed(free_mask)
  do
  :: (seen & want) != want && (want == 3 || seen == 0) -> bits = 0; break // if (!runs) return NULL
  :: else ->
    bits = (want == 3 -> 3 : ((seen & 1) -> 1 : 2));   // one slab from the low end
#ifdef BROKEN_claim_plain
    d_step { free_mask[n] = seen & ~bits; own() };
    break
#else
    if
    :: d_step { free_mask[n] == seen ->                // cas_seq_cst(free_mask, &mask, rest)
        free_mask[n] = seen & ~bits; own() }; break
    :: d_step { else -> seen = free_mask[n]; bits = 0 }
    fi
#endif
  od;
  if
  :: bits -> take()
  :: else
  fi
}

// purge: claims the free slabs that were used, whichever they are, gives their pages back
// and forgets that they were used; the release below ends it.
inline purge() {
  seen = free_mask[n];                                 // word = load_relaxed(&free_mask)
  do
  :: (seen & dirty[n]) == 0 || seen == ALL_FREE -> bits = 0; break // if (!bits || all) return 0
  :: else ->
    bits = seen & dirty[n];
#ifdef BROKEN_purge_unclaimed
    break
#else
    if
    :: d_step { free_mask[n] == seen -> free_mask[n] = seen & ~bits; own() }; break
    :: d_step { else -> seen = free_mask[n]; bits = 0 }
    fi
#endif
  od;
  if
  :: bits ->
    if
    :: d_step {                                        // hak_os_discard
        assert((!(bits & 1) || owner[n * 2] == 0 || owner[n * 2] == me)
               && (!(bits & 2) || owner[n * 2 + 1] == 0 || owner[n * 2 + 1] == me));
        content[n] = content[n] & ~bits };
      dirty[n] = dirty[n] & ~bits                      // fetch_and(&superslab->dirty, ~bits)
    :: true                                            // refused, contents kept
#ifdef BROKEN_purge_forgets
      ; dirty[n] = dirty[n] & ~bits
#endif
    fi
  :: else
  fi
#ifdef BROKEN_purge_unclaimed
  ; bits = 0
#endif
}

inline add_cold() { d_step { cold[n] = 1; whole[n] = 0 } } // hak_pool_add_cold: set_bit(COLD, number)

inline take_cold() {                                   // clear_bit(COLD, number): fetch_and
  d_step {
    taken = cold[n]; cold[n] = 0;
    if
    :: taken -> whole[n] = me
    :: else
    fi
  }
}

inline acquire_superslab() { // hak_superslab_acquire and the rest of hak_pool_map
#ifdef BROKEN_cold_plain
  taken = cold[n];
  cold[n] = 0;
#else
  take_cold();
#endif
  if
  :: taken ->
#ifdef BROKEN_mask_early
    d_step { free_mask[n] = ALL_FREE & ~want; bits = want; own() };
#endif
    if
    :: d_step { mapped[n] = 1; assert(content[n] == 0) } // hak_os_commit
    :: taken = 0                                       // hak_os_commit refused
    fi;
    if
    :: taken ->
#ifndef BROKEN_mask_early
      d_step { bits = want; own() };
#endif
      take();
#ifndef BROKEN_mask_early
      free_mask[n] = ALL_FREE & ~bits;                 // store_seq_cst(free_mask, ~bits)
#endif
      taken = 0
    :: else -> add_cold()
    fi
  :: else
  fi
}

inline forget_descriptors() { // forget_another, of a number that may have become any
#ifdef BROKEN_forget_untaken
  taken = cold[n];
#else
  take_cold();                                         // hak_pool_leave_cold(other)
#endif
  if
  :: taken ->                                          // hak_os_discard of the descriptors
    d_step { assert(owner[n * 2] == 0 && owner[n * 2 + 1] == 0 && free_mask[n] == 0
                    && (whole[n] == 0 || whole[n] == me)) };
    add_cold();
    taken = 0
  :: else
  fi
}

inline evict() { // and hak_superslab_decommit
#ifdef BROKEN_evict_plain
  taken = free_mask[n] == ALL_FREE;
  if
  :: taken -> free_mask[n] = 0
  :: else
  fi;
#else
  d_step {                                             // cas_seq_cst(free_mask, &all, 0)
    taken = free_mask[n] == ALL_FREE;
    if
    :: taken -> free_mask[n] = 0
    :: else
    fi
  };
#endif
  if
  :: taken ->
#ifdef BROKEN_cold_early
    add_cold();
#endif
    if                                                 // hak_os_decommit(p, size, &dirty)
    :: d_step { assert(owner[n * 2] == 0 && owner[n * 2 + 1] == 0);
                mapped[n] = 0; content[n] = 0 };
      forget = 1; refused = 0
    :: d_step { content[n] = 0 }; forget = 1; refused = 1 // refused, contents discarded
    :: forget = 0; refused = 1                         // refused, contents kept
    fi;
#ifdef BROKEN_dirty_cleared
    forget = 1;
#endif
#ifdef BROKEN_dirty_late
    if
    :: refused
    :: else -> add_cold()
    fi;
    if
    :: forget -> dirty[n] = 0
    :: else
    fi;
    if
    :: refused -> free_mask[n] = ALL_FREE
    :: else
    fi;
#else
    if
    :: forget -> dirty[n] = 0 // if (!dirty) store_relaxed(&superslab->dirty, 0)
    :: else
    fi;
    if
    :: refused -> free_mask[n] = ALL_FREE              // store_seq_cst(free_mask, HAK_ALL_FREE)
    :: !refused ->
#ifndef BROKEN_cold_early
      add_cold()
#else
      skip
#endif
    fi;
#endif
    taken = 0; forget = 0; refused = 0
  :: else
  fi
}

proctype thread() {
  byte me = _pid, n, bits, want, seen;             // bits: slabs of n it holds
  bit zeroed, taken, forget, refused, lent;        // lent: held to be purged only
end:
  do
  :: atomic { bits == 0 -> busy++; n = 0; want = 1 }; claim(); atomic { busy--; seen = 0; want = 0 }
  :: atomic { bits == 0 -> busy++; n = 1; want = 1 }; claim(); atomic { busy--; seen = 0; want = 0 }
  :: atomic { bits == 0 -> busy++; n = 0; want = 3 }; claim(); atomic { busy--; seen = 0; want = 0 }
  :: atomic { bits == 0 && cold[0] -> busy++; n = 0; want = 1 }; // find(COLD, LEVELS, number)
    acquire_superslab(); atomic { busy--; want = 0 }
  :: atomic { bits == 0 && cold[1] -> busy++; n = 1; want = 2 };
    acquire_superslab(); atomic { busy--; want = 0 }
  :: atomic { bits == 0 && free_mask[0] == ALL_FREE -> busy++; n = 0 }; // hak_pool_trim
    evict(); busy--
  :: atomic { bits == 0 -> busy++; n = 0 }; forget_descriptors(); busy--
  :: atomic { bits == 0 -> busy++; n = 0 }; purge(); atomic { busy--; seen = 0; lent = (bits != 0) }
  :: bits && !lent -> d_step { use() }
  :: atomic { bits -> busy++ };                        // hak_pool_release
#ifdef BROKEN_release_plain
    seen = free_mask[n];
    d_step { disown(); free_mask[n] = seen | bits; seen = seen | bits };
#else
    seen = free_mask[n];                               // old = load_relaxed(free_mask)
    do
    :: d_step { free_mask[n] == seen ->                // cas_seq_cst(free_mask, &old, now)
        assert((seen & bits) == 0);
#ifndef BROKEN_release_early
        disown();
#endif
        free_mask[n] = seen | bits; seen = free_mask[n] }; break
    :: d_step { else -> seen = free_mask[n] }
    od;
#ifdef BROKEN_release_early
    skip;
    d_step { use(); disown() };
#endif
#endif
    bits = 0; lent = 0;
    if
    :: seen == ALL_FREE -> evict()                     // empties > keep
    :: true                                            // kept
    fi;
    atomic { busy--; seen = 0 }
  od
}

proctype observer() {
  byte i;
end:
  do
  :: d_step { busy == 0 ->
      i = 0;
      do
      :: i < NUMBERS ->
        assert(!cold[i] || (free_mask[i] == 0 && owner[i * 2] == 0 && owner[i * 2 + 1] == 0));
        assert(cold[i] || mapped[i]);
        assert(cold[i] || (((free_mask[i] & 1) != 0) == (owner[i * 2] == 0)
                           && ((free_mask[i] & 2) != 0) == (owner[i * 2 + 1] == 0)));
        i++
      :: else -> break
      od;
      i = 0
    }
  od
}

init {
  atomic {
    free_mask[0] = 3; mapped[0] = 1; cold[1] = 1;
    run thread(); run thread(); run observer()
  }
}
