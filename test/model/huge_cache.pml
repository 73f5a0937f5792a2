// huge_cache.pml: protocol C1. Mappings of freed huge blocks wait in a few places for
// the next block. A place is one word; a thread that swaps it from 0 to a mapping puts the
// mapping in, a thread that swaps it back has the mapping to itself. A sum of bytes grows
// before a mapping gets its place and shrinks after it has left, so that what the places
// hold never exceeds the bound.
//
// Three mappings of 1, 1 and 2 units, two places, a bound of 2 units. Three threads free
// what they hold (put, else unmap), take, and give back (trim) in any order; of the mapping
// of 2 units all or the second. join and split are takes and puts of what is in one hand.
//
// Mirrors src/pool/huge_cache.c: hak_huge_cache_put, place, take, evict,
// hak_huge_cache_take.
//
// Checked: a mapping is in one hand or one place; the places hold no more than the
// bound; when no thread is at work the sum is what they hold, and no mapping is lost.
//
// model huge_cache
// broken huge_cache BROKEN_take_plain: the word is looked at and then stored
// broken huge_cache BROKEN_place_plain: a place is seen empty and then stored to
// broken huge_cache BROKEN_count_late: a mapping is put in before its bytes are counted
// broken huge_cache BROKEN_left_early: its bytes are taken off before it has left

#define MAPPINGS 4
#define BOUND 2
#define TURNS 2
#define length(m) (m == 3 -> 2 : (m != none -> 1 : 0)) // mappings are 1, 2, 3, and 4: the first unit of 3
#define none 0
byte place[2];
byte held;
// Truth.
byte hand[MAPPINGS + 1];                               // in how many hands
byte inside;                                           // units in the places
byte at_work;

// Inside a d_step: the mapping goes into a place, comes out of one.
inline enter(m) { assert(hand[m] == 1); hand[m]--; inside = inside + length(m); assert(inside <= BOUND) }
inline leave(m) { assert(hand[m] == 0); hand[m]++; inside = inside - length(m) }

// take(i, word): cas_acquire(&place[i], word, 0)
inline take(i, won) {
#ifdef BROKEN_left_early
  d_step { held = held - length(word) };
#endif
#ifdef BROKEN_take_plain
  won = place[i] == word;
  if
  :: won -> d_step { place[i] = none; leave(word) }
  :: else
  fi;
#else
  d_step {
    won = place[i] == word;
    if
    :: won -> place[i] = none; leave(word)
    :: else
    fi
  };
#endif
#ifdef BROKEN_left_early
  if
  :: !won -> d_step { held = held + length(word) }
  :: else
  fi
#endif
}

inline left(m) {
#ifdef BROKEN_left_early
  skip
#else
  d_step { assert(held >= length(m)); held = held - length(m) } // fetch_sub(&held, size)
#endif
}

inline evict_any(i) { // evict_oldest: of whichever place
  d_step { word = place[i] };
  if
  :: word != none ->
    take(i, won);
    if
    :: won -> d_step { assert(hand[word] == 1); hand[word]-- }; left(word) // unmapped
    :: won && word == 3 ->                             // its end; the rest goes back, counted all along
      d_step { assert(hand[3] == 1 && hand[4] == 0); hand[3]--; hand[4]++; word = 4 };
      k = 0;
      do
      :: k < 2 && word != none ->
        d_step {
          if
          :: place[k] == none -> place[k] = 4; enter(4); word = none
          :: else
          fi
        };
        k++
      :: k == 0 -> k = 2                               // others have filled all places meanwhile
      :: else -> k = 0; break
      od;
      if
      :: word != none -> d_step { assert(hand[4] == 1); hand[4]-- }; left(3)
      :: else -> left(1)                               // the unit that went
      fi
    :: else
    fi
  :: else
  fi
}

inline put(m) { // hak_huge_cache_put, then unmap if it was not kept
#ifndef BROKEN_count_late
  d_step { held = held + length(m) };                  // fetch_add(&held, size)
#endif
  if
  :: held > BOUND -> evict_any(0)
  :: held > BOUND -> evict_any(1)
  :: else
  fi;
  kept = 0;
  if
  :: held <= BOUND ->
    i = 0;
    do
    :: i < 2 && !kept ->
#ifdef BROKEN_place_plain
      if
      :: place[i] == none -> d_step { place[i] = m; kept = 1; enter(m) }
      :: else
      fi;
#else
      d_step {                                         // cas_release(&place[i], 0, word)
        if
        :: place[i] == none ->
          place[i] = m; kept = 1; enter(m)
        :: else
        fi
      };
#endif
      i++
    :: else -> break
    od
  :: else
  fi;
#ifdef BROKEN_count_late
  if :: kept -> d_step { held = held + length(m) } :: else fi;
#endif
  if
  :: kept
  :: else -> d_step { assert(hand[m] == 1); hand[m]-- }; // unmap
#ifndef BROKEN_count_late
    d_step { held = held - length(m) }
#endif
  fi;
  i = 0; kept = 0; word = none; won = 0
}

proctype thread(byte mine) {
  byte word, i, k, turns;
  bit won, kept;
  do
  :: turns < TURNS ->
    turns++;
    if
    :: mine != none -> put(mine); mine = none          // free
    :: mine == none ->                                 // hak_huge_cache_take, either place
      if
      :: i = 0
      :: i = 1
      fi;
      d_step { word = place[i] };
      if
      :: word != none ->
        take(i, won);
        if
        :: won -> left(word); mine = word
        :: else
        fi
      :: else
      fi;
      i = 0; word = none; won = 0
    :: evict_any(0); word = none; won = 0              // trim
    fi
  :: else -> break
  od;
  atomic {
    at_work--;
    assert(at_work != 0 || (held == inside && held == length(place[0]) + length(place[1])))
  }
}

init {
  atomic {
    hand[1] = 1; hand[2] = 1; hand[3] = 1; at_work = 3;
    run thread(1); run thread(2); run thread(3)
  }
}
