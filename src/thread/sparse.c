#include "thread/sparse.h"

#include "base/bits.h"
#include "core/options.h"
#include "os/os.h"
#include "superslab/shared_pool.h"
#include "superslab/superslab.h"
#include "thread/ring.h"

#define SPARSE_BLOCKS 8 // live in a tiny slab: at least half of its pages are free then
// A slab with more may have free pages too, if blocks were freed in the order they came. Each
// such look costs as much as LIST_TRIMS trims, as the slab's whole free list is walked.
#define LIST_TRIMS 4
#define LOOKED_TRIMMED (1u << 15)

// It is a regret if slabs with absent pages become the front so soon after an early trim.
static const hak_regret_rule_t trim_rule = {
    .soon = 1000, .few = 2, .least = 4000, .most = HAK_PAUSE_MAX_MS};

// The same if a class needs a run soon after an empty one of it went back from the front.
static const hak_regret_rule_t front_rule = {
    .soon = 1000, .few = 1, .least = 4000, .most = HAK_PAUSE_MAX_MS};

// The same for tiny slabs that made room: of all heaps, so some of these slabs may be older.
static const hak_regret_rule_t room_rule = {
    .soon = 1000, .few = 8, .least = 4000, .most = HAK_PAUSE_MAX_MS};
static hak_regret_t room_regret;

// In a pause, so many runs that were to wait are skipped: nothing would come of their waiting.
#define PAUSE_SKIPS 64

// A sweep over all classes every SWEEP_MS, in parts that are PART_MS apart. A part looks
// at PART_LOOKS slabs and trims PART_TRIMS of them at most.
#define SWEEP_MS 1000
#define PART_MS 50
#define PART_LOOKS 2048
#define PART_TRIMS 64
#define OTHERS_MS 10

#define ROOM_MISSES 64 // slabs that a part looks at in vain, where it makes room

static uint64_t heap_size(void) { return hak_load_relaxed(&hak_mapped.superslab_bytes); }

static bool on(void) { return hak_option(PURGE) >= 2; }

// Returns the number of pages given back.
static uint32_t trim(hak_heap_t *heap, hak_slab_t *slab, uint64_t which) {
  uint32_t pages = hak_slab_trim(slab, which);
  hak_heap_count_stat(heap, HAK_STAT_page_trim, pages);
  if (pages) hak_pool_trimmed(slab, pages);
  return pages;
}

static bool trim_now(hak_heap_t *heap, hak_slab_t *slab) {
  if (hak_slab_kind(slab) == HAK_KIND_L2) hak_ring_forget(slab->ring, slab);
  return trim(heap, slab, ~UINT64_C(0)) != 0;
}

// ---------------------------------------------------------------------------
// Early trims.

// The run that waits in a place of the queue; NULL if none does.
static hak_slab_t *waiting(HAK_UNUSED hak_heap_t *heap, uint32_t place) {
  hak_slab_t *run = place ? hak_slab_at(place) : NULL;
  HAK_ASSERT(!run || (run->waits && hak_slab_kind(run) == HAK_KIND_L2));
  HAK_ASSERT(!run || hak_slab_owner(run) == heap);
  return run;
}

static bool is_empty_front(hak_slab_t *run) {
  return hak_slab_place(run) == HAK_PLACE_ACTIVE && hak_slab_unused(run);
}

// The run has waited: trims it if it is PARTIAL and early trims do not pause.
static void waited(hak_heap_t *heap, hak_slab_t *run) {
  run->waits = false;
  if (hak_slab_place(run) != HAK_PLACE_PARTIAL) return;
  uint64_t now = hak_os_clock_ms();
  if (hak_regret_pauses(&heap->trim_regret, now, heap_size())) {
    heap->trim_skips = PAUSE_SKIPS;
    return;
  }
  hak_regret_done(&heap->trim_regret, now);
  run->early |= trim_now(heap, run);
}

void hak_sparse_add_now(hak_heap_t *heap, hak_slab_t *run) {
  // Not at a thread's end: the next thread with the heap begins where this one stopped.
  if (!on() || run->waits || hak_slab_place(run) != HAK_PLACE_PARTIAL || heap != hak_tls_heap)
    return;
  if (2 * hak_slab_live(run) > run->capacity) return;
  uint32_t *place;
  hak_slab_t *oldest;
  unsigned looks = 0;
  do { // an empty front may not go back from here (see sparse.h), and waits on
    if (looks++ == HAK_SPARSE) return;
    place = &heap->sparse[heap->sparse_next++ % HAK_SPARSE];
    oldest = waiting(heap, *place);
  } while (oldest && is_empty_front(oldest));
  *place = hak_slab_index(run);
  run->waits = true;
  if (oldest) waited(heap, oldest);
}

// So many runs follow an empty front before it goes back: few if many threads have some each.
static uint32_t fronts_wait(void) {
  uint32_t threads = hak_load_relaxed(&hak_heap_threads);
  return threads <= HAK_CROWD ? HAK_SPARSE : 1 + (HAK_SPARSE - 1) * HAK_CROWD / threads;
}

// A front that was not used in full stays where such fronts were needed again at once.
static bool stays(hak_heap_t *heap, const hak_slab_t *run) {
  return run->carved != run->capacity &&
         hak_regret_pauses(&heap->trim_regret, hak_os_clock_ms(), 0);
}

static void front_goes(hak_heap_t *heap, hak_slab_t *run) {
  if (run->carved != run->capacity) {
    heap->fronts_gone |= UINT64_C(1) << (hak_slab_class(run) - HAK_TINY_CLASSES);
    hak_regret_done(&heap->trim_regret, hak_os_clock_ms());
  }
  hak_heap_retire(heap, run);
  hak_heap_slab_event(heap, run);
}

void hak_sparse_add_front(hak_heap_t *heap, hak_slab_t *run) {
  if (run->waits || !on() || heap != hak_tls_heap) return;
  hak_sparse_look_from(run, run->capacity);
  if (stays(heap, run)) return;
  uint32_t next = heap->sparse_next++;
  for (uint32_t i = fronts_wait(); i <= HAK_SPARSE; i++) {
    uint32_t *place = &heap->sparse[(next - i) % HAK_SPARSE];
    hak_slab_t *older = waiting(heap, *place);
    if (!older) continue;
    if (is_empty_front(older)) {
      *place = 0;
      older->waits = false;
      front_goes(heap, older);
    } else if (i == HAK_SPARSE) {
      waited(heap, older);
    }
  }
  heap->sparse[next % HAK_SPARSE] = hak_slab_index(run);
  run->waits = true;
}

void hak_sparse_leave(hak_heap_t *heap, hak_slab_t *run) {
  if (HAK_LIKELY(!run->waits)) return;
  run->waits = false;
  for (unsigned i = 0; i < HAK_SPARSE; i++)
    if (heap->sparse[i] == hak_slab_index(run)) heap->sparse[i] = 0;
}

void hak_sparse_forget(hak_heap_t *heap) {
  for (unsigned i = 0; i < HAK_SPARSE; i++) {
    hak_slab_t *run = waiting(heap, heap->sparse[i]);
    if (run) run->waits = false;
    heap->sparse[i] = 0;
  }
}

void hak_sparse_needed(hak_heap_t *heap, hak_slab_t *slab) {
  if (hak_slab_kind(slab) == HAK_KIND_TINY) {
    if (!slab->early) return;
    slab->early = false;
    hak_regret_needed(&room_regret, hak_os_clock_ms(), heap_size(), room_rule);
    return;
  }
  uint64_t bit = UINT64_C(1) << (hak_slab_class(slab) - HAK_TINY_CLASSES);
  if (heap->fronts_gone & bit)
    hak_regret_needed(&heap->trim_regret, hak_os_clock_ms(), 0, front_rule);
  heap->fronts_gone &= ~bit;
  if (slab->absent == 0 && heap->trimmed_gone == 0) return;
  if (!hak_sparse_went_early(slab)) { // a fresh run on used memory, where one got empty
    if (slab->carved != 0 || slab->zeroed || heap->trimmed_gone == 0) return;
    heap->trimmed_gone--;
  }
  slab->early = false;
  hak_regret_needed(&heap->trim_regret, hak_os_clock_ms(), heap_size(), trim_rule);
}

// ---------------------------------------------------------------------------
// Sweeps.

// Blocks that were free at the last look already, and that the ring does not hand out next.
static uint64_t idle_blocks(hak_slab_t *run) {
  uint64_t mask = hak_load_relaxed(&run->mask), idle = mask & run->seen;
  run->seen = mask;
  return idle & ~run->absent;
}

// Carved pages that are not absent.
static unsigned pages_of(const hak_slab_t *slab) {
  size_t carved = hak_slab_gap(slab) + (size_t)slab->carved * slab->size;
  return (unsigned)((carved + hak_os_page_size - 1) / hak_os_page_size) -
         hak_count_bits(slab->absent);
}

// True once, if as many blocks are live as at the last look, and at most half of those carved.
static bool idle_list(hak_slab_t *slab, unsigned live) {
  if (2 * live > slab->carved || slab->looked == (live | LOOKED_TRIMMED)) return false;
  bool same = slab->looked == live;
  slab->looked = (uint16_t)(live | (same ? LOOKED_TRIMMED : 0));
  return same;
}

static bool idle_tiny(hak_slab_t *slab) {
  unsigned live = (unsigned)hak_slab_live(slab);
  if (live > SPARSE_BLOCKS) return idle_list(slab, live);
  // A block is in two pages at most, and carving goes on in one: so few hold nothing to give back.
  if (slab->absent && pages_of(slab) <= 2 * live + 1) return false;
  bool was_sparse = slab->waits;
  slab->waits = true;
  return was_sparse;
}

// Trims what is idle in the slab. Returns the cost, in trims.
static unsigned tend_slab(hak_heap_t *heap, hak_slab_t *slab) {
  bool tiny = hak_slab_kind(slab) == HAK_KIND_TINY;
  uint64_t idle = tiny ? idle_tiny(slab) : idle_blocks(slab);
  if (idle) trim(heap, slab, idle);
  return idle == 0 ? 0 : tiny && hak_slab_live(slab) > SPARSE_BLOCKS ? LIST_TRIMS : 1;
}

static void unsee_hints(hak_ring_t *ring) {
  for (uint32_t i = 0; i < ring->count; i++)
    hak_hint_slab(ring->hint[i])->seen &= ~((uint64_t)1 << hak_hint_number(ring->hint[i]));
}

typedef struct {
  unsigned looks, trims;
} part_t;

static bool is_over(const part_t *part) {
  return part->looks >= PART_LOOKS || part->trims >= PART_TRIMS;
}

// Tends slabs of the class from i on. Returns where the part is over, 0: at their end.
static uint32_t tend_slabs(hak_heap_t *heap, unsigned c, uint32_t i, part_t *part) {
  if (c >= HAK_TINY_CLASSES) unsee_hints(&heap->ring[c - HAK_TINY_CLASSES]);
  for (; i != 0 && !is_over(part); part->looks++) {
    hak_slab_t *slab = hak_slab_at(i);
    part->trims += tend_slab(heap, slab);
    i = slab->next;
  }
  return i;
}

static uint32_t tend_class(hak_heap_t *heap, unsigned c, part_t *part) {
  if (c >= HAK_TINY_CLASSES) hak_ring_forget_idle(heap, c - HAK_TINY_CLASSES);
  uint32_t i = tend_slabs(heap, c, heap->partial[c], part);
  hak_slab_t *front = hak_heap_front(heap, c);
  if (c >= HAK_TINY_CLASSES && front != &hak_slab_none) part->trims += tend_slab(heap, front);
  return i;
}

// The slab, where a part before stopped, if it is still there; else 0.
static uint32_t stopped_at(hak_heap_t *heap, unsigned c, uint32_t index) {
  hak_slab_t *slab = hak_slab_at(index);
  bool there = hak_slab_is_partial_of(slab, heap) && hak_slab_class(slab) == c;
  return there ? index : 0;
}

void hak_sparse_tend(hak_heap_t *heap) {
  if (!on()) return;
  uint64_t now = hak_os_clock_ms();
  uint32_t i = heap->tend_slab;
  unsigned c = heap->tend_class;
  if (now - heap->tended_at < (c != 0 || i != 0 ? PART_MS : SWEEP_MS)) return;
  // All heaps without a thread together get one part every OTHERS_MS, so that nobody's malloc
  // takes long because of them.
  static _Atomic uint64_t others_at; // relaxed: it steers who looks when
  if (heap != hak_tls_heap && !hak_is_due(&others_at, now, OTHERS_MS)) return;
  heap->tended_at = now;
  part_t part = {0};
  if (c == 0 && i == 0) heap->trimmed_gone = 0; // that was long ago
  if (i != 0 && (i = tend_slabs(heap, c, stopped_at(heap, c, i), &part)) == 0) c++;
  for (; i == 0 && c < HAK_CLASSES && !is_over(&part); c += i == 0) i = tend_class(heap, c, &part);
  heap->tend_slab = i;
  heap->tend_class = (uint8_t)(c < HAK_CLASSES ? c : 0);
}

// ---------------------------------------------------------------------------
// Room.

typedef struct {
  part_t part;
  size_t bytes; // to be given back
  unsigned misses;
} room_t;

static bool is_enough(const room_t *room) {
  return room->bytes == 0 || room->misses >= ROOM_MISSES || is_over(&room->part);
}

// A slab that was used in full and has few live blocks left: the first look marks it, the next one,
// or that of a sweep, trims it.
static void look_for_room(hak_heap_t *heap, hak_slab_t *slab, room_t *room) {
  room->part.looks++;
  if (slab->carved != slab->capacity || hak_slab_live(slab) > SPARSE_BLOCKS) {
    room->misses++;
  } else if (!slab->waits) {
    slab->waits = true;
  } else if (slab->absent == 0) {
    size_t given = trim(heap, slab, ~UINT64_C(0)) * hak_os_page_size;
    slab->early = given != 0;
    room->misses += given == 0;
    room->part.trims++;
    room->bytes -= given < room->bytes ? given : room->bytes;
  }
}

void hak_sparse_make_room(hak_heap_t *heap) {
  // Before a process's first SuperSlab, not even the clock is to be touched.
  if (!on() || heap_size() == 0 || heap != hak_tls_heap) return;
  uint64_t now = hak_os_clock_ms();
  if (hak_regret_pauses(&room_regret, now, heap_size())) return;
  room_t room = {.bytes = HAK_SUPERSLAB_SIZE};
  unsigned c = heap->room_class;
  uint32_t i = heap->room_slab ? stopped_at(heap, c, heap->room_slab) : 0;
  for (unsigned classes = i != 0;; classes++) {
    for (; i != 0 && !is_enough(&room); i = hak_slab_at(i)->next)
      look_for_room(heap, hak_slab_at(i), &room);
    if (i != 0 || classes == HAK_TINY_CLASSES) break;
    c = (c + 1) % HAK_TINY_CLASSES;
    i = heap->partial[c];
  }
  if (room.bytes < HAK_SUPERSLAB_SIZE) hak_regret_done(&room_regret, now);
  heap->room_slab = i;
  heap->room_class = (uint8_t)c;
}

void hak_sparse_trim_all(hak_heap_t *heap) {
  if (!on()) return;
  hak_ring_forget_all(heap);
  for (unsigned c = 0; c < HAK_CLASSES; c++) {
    for (uint32_t i = heap->partial[c]; i != 0; i = hak_slab_at(i)->next)
      trim_now(heap, hak_slab_at(i));
    hak_slab_t *front = hak_heap_front(heap, c);
    if (c >= HAK_TINY_CLASSES && front != &hak_slab_none) trim_now(heap, front);
  }
}
