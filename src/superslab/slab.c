#include "superslab/slab.h"

#include "core/misuse.h"
#include "core/options.h"
#include "os/os.h"
#include "superslab/seal.h"

hak_slab_t hak_slab_none;

void hak_slab_set_owner(hak_slab_t *slab, hak_heap_t *heap) {
  // Relaxed: other threads only compare (local free needs equality with their own
  // heap) or use it as an address for the inbox, where a stale one is forwarded.
  if (hak_slab_kind(slab) == HAK_KIND_TINY) hak_store_relaxed(&slab->local, heap);
  else {
    slab->ring = &heap->ring[hak_slab_class(slab) - HAK_TINY_CLASSES];
    hak_store_relaxed(&slab->holder, heap);
  }
}

#define FEW_BLOCKS 80 // docs/decisions/0004-full-mark.md
#define FEWER_BLOCKS 64

// A FULL slab is back in use when 1/FULL_MARK of its blocks are free, at least one (L2: the
// next free); two or three times as many where these would last for few allocations only.
static uint16_t back_in_use(uint32_t capacity) {
  uint32_t times = capacity <= FEWER_BLOCKS ? 3 : capacity <= FEW_BLOCKS ? 2 : 1;
  return (uint16_t)hak_max(hak_min(capacity * times / hak_option(FULL_MARK), capacity), 1);
}

void hak_slab_init(hak_slab_t *slab, hak_heap_t *heap, unsigned size_class) {
  const hak_class_info_t *info = &hak_classes[size_class];
  bool tiny = size_class < HAK_TINY_CLASSES;
  hak_store_relaxed(&slab->size_class, (uint8_t)size_class);
  slab->capacity = info->capacity;
  slab->back = back_in_use(info->capacity);
  slab->carved = 0;
  slab->run = info->run;
  slab->offset = 0;
  hak_slab_set_place(slab, HAK_PLACE_ACTIVE);
  slab->next = slab->prev = 0;
  slab->absent = 0;
  slab->waits = slab->early = false;
  slab->looked = 0;
  hak_store_relaxed(&slab->thin, (uint16_t)0);
  hak_store_relaxed(&slab->roomy, tiny && hak_load_relaxed(&heap->nursery));
  slab->size = info->size;
  slab->inverse = UINT64_MAX / info->size + 1;
  slab->start = hak_slab_start(slab) + hak_class_gap(size_class, hak_slab_index(slab));
  hak_store_relaxed(&slab->remote, (uint64_t)0);
  if (tiny) {
    slab->free = NULL;
    slab->chains = 0;
    hak_store_relaxed(&slab->allocs, (uint64_t)0);
    hak_store_relaxed(&slab->frees_left, HAK_FREES_BIAS);
  } else {
    hak_store_relaxed(&slab->mask, hak_slab_all(info->capacity));
    slab->seen = 0;
    slab->first = slab->start;
    slab->hint = hak_slab_index(slab) << HAK_HINT_NUMBER_BITS;
    for (unsigned i = 1; i < info->run; i++) {
      slab[i].offset = (uint8_t)i;
      hak_store_relaxed(&slab[i].kind, HAK_KIND_INTERIOR);
    }
  }
  hak_store_relaxed(&slab->kind, tiny ? HAK_KIND_TINY : HAK_KIND_L2);
  hak_slab_set_owner(slab, heap);
}

void hak_slab_clear(hak_slab_t *slab) {
  HAK_ASSERT(hak_load_relaxed(&slab->remote) == 0);
  hak_store_relaxed(&slab->local, (hak_heap_t *)NULL);
  // A hint in some ring may still name this run: it must not look owned.
  hak_store_relaxed(&slab->holder, (hak_heap_t *)NULL);
  slab->last_kind = (uint8_t)hak_slab_kind(slab);
  for (unsigned i = 0; i < slab->run; i++) hak_store_relaxed(&slab[i].kind, HAK_KIND_FREE);
}

uint32_t hak_slab_live_now(hak_slab_t *slab) {
  uint32_t capacity = hak_classes[hak_slab_class(slab)].capacity;
  bool tiny = hak_slab_kind(slab) == HAK_KIND_TINY;
  uint64_t plausible = 0;
  // The owner writes the words one after the other, and this thread may lose its processor between
  // two loads: what was read belongs together if none of the words has changed meanwhile. Or the
  // owner has lost its processor between two stores: then it is to get one.
  for (unsigned tries = 0; tries < 32; tries++) {
    if (tries >= 16) hak_os_yield();
    uint64_t remote = hak_load_acquire(&slab->remote);
    uint64_t allocs = tiny ? hak_load_acquire(&slab->allocs) : 0;
    uint64_t left = hak_load_acquire(tiny ? &slab->frees_left : &slab->mask);
    uint64_t live = tiny ? allocs + left - HAK_FREES_BIAS : capacity - hak_count_bits64(left);
    uint64_t away = remote & ~HAK_REMOTE_QUEUED;
    live -= tiny ? away >> HAK_REMOTE_COUNT_SHIFT : hak_count_bits64(away);
    if (live > capacity) continue;
    plausible = live;
    if (hak_load_relaxed(&slab->remote) == remote &&
        (!tiny || (hak_load_relaxed(&slab->allocs) == allocs &&
                   hak_load_relaxed(&slab->frees_left) == left)))
      break;
  }
  return (uint32_t)plausible;
}

#if HAK_SECURE
#define SHUFFLED 256u // blocks: as many of the smallest as fill an OS page

// Links fresh blocks in unpredictable order, before next, and seals them. Returns the first.
static void *link_shuffled(char *start, uint32_t count, size_t size, void *next) {
  union {
    uint64_t words[SHUFFLED / 8];
    uint8_t number[SHUFFLED];
  } left; // the blocks that are not linked yet
  for (uint32_t i = 0; i * 8 < count; i++)
    left.words[i] = UINT64_C(0x0706050403020100) + UINT64_C(0x0808080808080808) * i;
  uint64_t counter = hak_seal_random(), random = hak_seal_mix(counter);
  for (; count != 0; count--) {
    // 16 bits for each block, which multiplying maps to 0..count - 1, evenly but for 1/256.
    random = count % 4 == 0 ? hak_seal_mix(counter += HAK_SEAL_STEP) : random >> 16;
    uint32_t i = (uint32_t)(random & UINT16_MAX) * count >> 16;
    char *block = start + left.number[i] * size;
    left.number[i] = left.number[count - 1];
    uint64_t key = hak_seal_key(block);
    hak_link_set_keyed(block, next, key);
    hak_seal_carved(block, size, key);
    next = block;
  }
  return next;
}

void hak_slab_list(hak_slab_t *slab, char *block, uint32_t count) {
  void *list = NULL;
  for (uint32_t n; count != 0; count -= n, block += n * slab->size) {
    n = (uint32_t)hak_min(count, SHUFFLED);
    list = link_shuffled(block, n, slab->size, list);
  }
  slab->free = list;
}

#else

void hak_slab_list(hak_slab_t *slab, char *block, uint32_t count) {
  char *first = block;
  size_t size = slab->size;
  for (; count > 1; count--, block += size) hak_link_set(block, block + size);
  hak_link_set(block, NULL);
  // A signal handler that ends the process looks at the list (audit.c).
  atomic_signal_fence(memory_order_release);
  slab->free = first;
}

#endif

uint32_t hak_slab_carve(hak_slab_t *slab, uint32_t batch) {
  size_t size = slab->size;
  uint32_t left = (uint32_t)slab->capacity - slab->carved;
  uint32_t in_page = (uint32_t)(4096 / size);
  if (batch > in_page) batch = in_page;
  if (batch > left) batch = left;
  if (batch == 0) return hak_slab_carve_absent(slab);
  hak_slab_list(slab, slab->start + slab->carved * size, batch);
  slab->carved = (uint16_t)(slab->carved + batch);
  return batch;
}

void hak_slab_lost(hak_slab_t *slab, uint64_t blocks) {
  hak_owner_add(&slab->allocs, blocks); // as if the program had them, for good
  if (blocks >= HAK_LOST_MIN)
    hak_misuse("use after free, or double free: a link among the %u-byte blocks at %p was "
               "overwritten; %u free blocks are lost",
               (uint64_t)slab->size, hak_slab_start(slab), blocks);
}

// A chain longer than WALK_MAX is not walked, as each of its links may be in another CPU's
// cache; it is kept whole until the free list is empty. (The secure library's blocks have no
// second word to spare.)
#define WALK_MAX (HAK_SECURE ? UINT32_MAX : 4) // docs/decisions/0023-remote-frees.md

void *hak_slab_chain_end(void *block, uint32_t count) {
  for (void *next; count > 1 && (next = hak_link_get(block)) != NULL; count--) block = next;
  return block;
}

static uint32_t collect_tiny(hak_slab_t *slab, uint64_t remote) {
  uint32_t count = (uint32_t)(remote >> HAK_REMOTE_COUNT_SHIFT);
  void *head = (void *)(uintptr_t)(remote & HAK_REMOTE_POINTER_MASK);
  if (slab->free && count > WALK_MAX) {
    ((void **)head)[1] = (void *)(uintptr_t)slab->chains;
    slab->chains = remote;
  } else {
    if (slab->free) hak_link_set(hak_slab_chain_end(head, count), slab->free);
    slab->free = head;
  }
  // Last: a signal handler that ends the process counts what is in no list (audit.c).
  atomic_signal_fence(memory_order_release);
  hak_owner_add(&slab->frees_left, -(uint64_t)count);
  return count;
}

uint32_t hak_slab_collect(hak_slab_t *slab, bool dequeue) {
  uint64_t remote;
  bool tiny = hak_slab_kind(slab) == HAK_KIND_TINY;
  // Acquire: pairs with the release in push (thread/remote.c) and all_freed (thread/relief.c):
  // the chain's links are there. Release, in the exchange: a later push finds the slab as this
  // thread leaves it.
  if (dequeue) remote = hak_exchange_acq_rel(&slab->remote, (uint64_t)0);
  else if ((hak_load_relaxed(&slab->remote) & ~HAK_REMOTE_QUEUED) == 0) return 0;
  else remote = hak_fetch_and_acq_rel(&slab->remote, HAK_REMOTE_QUEUED);
  remote &= ~HAK_REMOTE_QUEUED;
  if (remote == 0) return 0; // and another thread may take it from here on (R3)
  if (tiny) return collect_tiny(slab, remote);
  uint64_t mask = hak_load_relaxed(&slab->mask);
  if (HAK_UNLIKELY(mask & remote)) { // freed here and by another thread
    size_t size = slab->size;
    hak_misuse_double_free("free", slab->start + hak_low_bit(mask & remote) * size,
                           size - HAK_TAIL);
    remote &= ~mask;
  }
  hak_store_relaxed(&slab->mask, mask | remote);
  uint32_t count = 0;
  for (; remote != 0; remote &= remote - 1) count++; // few as a rule
  return count;
}
