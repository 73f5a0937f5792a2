// pagemap.pml: protocol G1. The page table says what lies at a 2 MiB unit of
// address space: an entry is set before the first pointer into the unit is handed
// out and taken before the kernel may give the address to somebody else. Leaves of
// the table are made when first needed, by any number of threads at once.
//
// Three units under one leaf; two threads that map, look up, move and unmap huge
// blocks for ever, also each other's. The kernel may place a mapping at any address
// that is not mapped. An entry stands for its mapping: its value is the number of
// the thread that made it, as the size would be in the C code.
//
// Mirrors src/core/pagemap.c: hak_pagemap_prepare, hak_pagemap_set,
// hak_pagemap_take; src/pool/huge.c: hak_huge_alloc, hak_huge_free,
// hak_huge_resize, move. SuperSlabs found by the table use the same calls in the
// same order (src/superslab/superslab.c: commit, hak_superslab_decommit).
//
// Checked: the entry of a block that the program holds is there and right; an entry
// is never there without its mapping; taking an entry succeeds for the block's
// holder; no leaf is lost and none installed twice.
//
// model pagemap
// broken pagemap BROKEN_leaf_plain: a leaf is installed by a store
// broken pagemap BROKEN_set_late: the pointer is handed out before the entry is set
// broken pagemap BROKEN_unmap_first: free unmaps before it takes the entry
// broken pagemap BROKEN_move_keeps: resize moves the block and takes the old entry afterwards
// broken pagemap BROKEN_prepare_late: the entry is set before its leaf is sure to be there

#define UNITS 3
#define LEAVES 2
#define none 255
byte root;                                             // leaf + 1
bit leaf_mapped[LEAVES];
typedef leaf_t { byte entry[UNITS] };
leaf_t leaf[LEAVES];
// Truth.
byte mapped[UNITS];                                    // by whom; 0: the kernel's
bit held[UNITS];                                       // a pointer to it is in the program's hands

#define entry_of(u) leaf[root - 1].entry[u]
// As hak_pagemap_get: no leaf, no entry.
#define entry_is(u, v) ((root == 0 && v == 0) || (root != 0 && entry_of(u) == v))

inline os_map(u) { // u = any unit that is free
  if
  :: d_step { mapped[0] == 0 -> u = 0; mapped[0] = me }
  :: d_step { mapped[1] == 0 -> u = 1; mapped[1] = me }
  :: d_step { mapped[2] == 0 -> u = 2; mapped[2] = me }
  :: u = none                                          // refused
  fi
}
inline os_unmap(u) { d_step { assert(mapped[u] != 0); mapped[u] = 0 } }

inline prepare() {
  if
  :: root != 0                                         // if (load_acquire(slot)) return true
  :: root == 0 ->
    d_step {                                           // leaf = hak_os_map(size, ..)
      l = (leaf_mapped[0] -> 1 : 0); assert(!leaf_mapped[l]); leaf_mapped[l] = 1
    };
#ifdef BROKEN_leaf_plain
    root = l + 1;
#else
    if
    :: d_step { root == 0 -> root = l + 1 }            // cas_acq_rel(slot, &none, leaf)
    :: else -> leaf_mapped[l] = 0                      // hak_os_unmap(leaf, size)
    fi;
#endif
    l = 0
  fi
}

inline set(u, v) { d_step { assert(root != 0); entry_of(u) = v } } // hak_pagemap_set: store_release

inline take(u) { // hak_pagemap_take(p, entry): cas_acq_rel
  d_step { assert(root != 0 && entry_of(u) == seen); entry_of(u) = 0 }
}

inline alloc() { // hak_huge_alloc
  os_map(at);
  if
  :: at != none ->
#ifdef BROKEN_prepare_late
    set(at, me);
#endif
    prepare();
#ifdef BROKEN_set_late
    held[at] = 1;
#endif
    set(at, me);
#ifndef BROKEN_set_late
    held[at] = 1
#endif
  :: else
  fi
}

inline free() { // hak_huge_free, called by whoever the program lets
  d_step { assert(entry_is(at, mapped[at])); seen = entry_of(at) }; // hak_pagemap_get(p)
#ifdef BROKEN_unmap_first
  os_unmap(at);
  d_step { if :: entry_of(at) == seen -> entry_of(at) = 0 :: else fi }
#else
  take(at);
  os_unmap(at)
#endif
}

inline resize() { // hak_huge_resize when the block has to move
  d_step { assert(entry_is(at, mapped[at])); seen = entry_of(at) };
#ifndef BROKEN_move_keeps
  take(at);
#endif
  os_map(to);                                          // hak_os_reserve(new_total, ..)
  if
  :: to == none -> set(at, seen) // pagemap_set(p, entry): the block is as it was
  :: else ->
    prepare();
    if
    :: os_unmap(at);                                   // hak_os_move: mremap to the target
#ifdef BROKEN_move_keeps
      d_step { if :: entry_of(at) == seen -> entry_of(at) = 0 :: else fi };
#endif
      at = to;
      set(at, me)
    :: os_unmap(to);                                   // refused
      set(at, seen)
    fi
  fi;
  held[at] = 1
}

inline hold(u) { d_step { held[u] -> held[u] = 0; at = u } } // this thread frees or resizes it

proctype thread() {
  byte me = _pid, at, to, seen, l;
end:
  do
  :: alloc(); atomic { at = 0 }
  :: if :: hold(0) :: hold(1) :: hold(2) fi; free(); atomic { at = 0; seen = 0 }
  :: if :: hold(0) :: hold(1) :: hold(2) fi; resize(); atomic { at = 0; to = 0; seen = 0 }
  od
}

proctype observer() { // at every moment
end:
  do
  :: d_step { true ->
      assert(!held[0] || (mapped[0] && entry_is(0, mapped[0])));
      assert(!held[1] || (mapped[1] && entry_is(1, mapped[1])));
      assert(!held[2] || (mapped[2] && entry_is(2, mapped[2])));
      assert(mapped[0] || entry_is(0, 0));
      assert(mapped[1] || entry_is(1, 0));
      assert(mapped[2] || entry_is(2, 0))
    }
  od
}

init { atomic { run thread(); run thread(); run observer() } }
