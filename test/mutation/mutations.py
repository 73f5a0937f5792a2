"""The promises of README and docs/security.md. Each has an edit that breaks its
mechanism, and the tests that must notice the edit."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutation:
    name: str
    promise: str
    file: str
    old: str           # must occur exactly once in the file
    new: str
    targets: tuple[str, ...]  # of ninja, what the tests run
    tests: tuple[str, ...]    # of CTest: each must fail with the edit, and pass without
    short: bool = False       # part of make test


ABORT = ("hakmem", "abort_misuse")
SECURE = ("hakmem-secure", "abort_secure")

MUTATIONS = (
    Mutation("double_free", "a block freed twice in a row is named", "src/thread/front.h",
             "if (HAK_UNLIKELY(head == p)) {", "if (HAK_UNLIKELY(head == p && p == NULL)) {",
             ABORT, ("abort.free.tiny_100",), short=True),
    Mutation("inside", "a pointer inside a block is named", "src/superslab/slab.h",
             "return (uint64_t)product < slab->inverse && n < slab->capacity;", "return n < slab->capacity;",
             ABORT, ("abort.free.inside_l2_middle",)),
    Mutation("misaligned", "a misaligned pointer is named", "src/thread/front.c",
             "  if ((uintptr_t)p & (HAK_MIN_BLOCK - 1)) {", "  if (((uintptr_t)p & (HAK_MIN_BLOCK - 1)) > HAK_MIN_BLOCK) {",
             ABORT, ("abort.free.misaligned_tiny_8",)),
    Mutation("errno_kept", "free leaves errno alone", "src/os/os_linux.c",
             "{ errno = *saved; }", "{ (void)saved; }",
             ("unit_fault",), ("unit.fault",)),
    Mutation("enomem", "out of memory is NULL and ENOMEM", "src/api/malloc.c",
             "  errno = ENOMEM;\n", "",
             ("hakmem", "api_test_malloc"), ("api.malloc",)),
    Mutation("idle", "memory goes back when a load is over", "src/superslab/shared_pool.c",
             "  if (idle <= 0 || more <= 0) return 0;\n", "  if (idle <= 0 || more <= 0 || keep != UINT32_MAX) return 0;\n",
             ("unit_shared_pool",), ("unit.shared_pool",)),
    Mutation("orphans", "heaps of ended threads are taken by new ones", "src/thread/heap.c",
             "  if (!heap) heap = take_orphan();", "  if (!heap && hak_heap_count() == UINT32_MAX) heap = take_orphan();",
             ("unit_threads",), ("unit.threads",)),
    Mutation("remote", "no block freed by another thread is lost", "src/thread/heap.c",
             "  hand_over(heap);\n  hak_heap_drain(heap);\n  retire",
             "  hak_quarantine_flush(heap);\n  hak_heap_drain(heap);\n  retire",
             ("unit_threads",), ("unit.threads",)),
    Mutation("calloc", "calloc gives zeros, also where it knows better than to write them", "src/thread/front.h",
             "if (zeroed) *zeroed = slab->zeroed;", "if (zeroed) *zeroed = true;",
             ("hakmem", "api_test_malloc"), ("api.malloc",)),
    Mutation("fork", "a forked child can go on", "src/thread/process.c",
             "pthread_atfork(NULL, NULL, after_fork_in_child);", "(void)after_fork_in_child;",
             ("unit_heap",), ("unit.heap",)),
    Mutation("usable_size", "malloc_usable_size tells the truth", "src/superslab/seal.h",
             "  *size = place;", "  *size = place + 16;",
             ("hakmem", "api_test_malloc"), ("api.malloc",)),
    Mutation("deepbind", "modules loaded with RTLD_DEEPBIND use HAKMEM", "src/api/dlopen.c",
             "if (!hak_option(DEEPBIND)) ", "if (!file) ",
             ("hakmem", "situations", "sit_plugin", "sit_inner", "sit_hostile", "sit_keys", "sit_wrapper"),
             ("situations.loader",)),
    Mutation("lost", "a free list that a write cut off is noticed when its slab is full", "src/superslab/slab.c",
             "if (blocks >= HAK_LOST_MIN)", "if (blocks > UINT16_MAX)",
             ABORT, ("abort.free.list_cut",)),
    Mutation("seal", "secure library: an overflow by one byte is noticed", "src/superslab/seal.h",
             "? slack : 8]) == 0;", "? slack : 8]) != 1;",
             SECURE, ("abort.secure.overflow_tiny",), short=True),
    Mutation("quarantine", "secure library: a freed block is not reused at once", "src/superslab/seal.c",
             "hak_secret.held_bytes = hak_option(SECURE_QUARANTINE);", "hak_secret.held_bytes = 0;",
             SECURE, ("abort.secure.not_reused_at_once",), short=True),
    Mutation("gaps", "secure library: no access beyond a SuperSlab", "src/superslab/superslab.c",
             "return HAK_SECURE && next <= GAPS_END", "return HAK_SECURE && next > UINT32_MAX - 1 && next <= GAPS_END",
             SECURE, ("abort.secure.gap_behind_superslab",)),
    Mutation("holes", "what has holes is no huge page any more", "src/superslab/shared_pool.c",
             ">= IDLE_SLABS * HAK_SLAB_SIZE", ">= 2 * HAK_SUPERSLAB_SIZE",
             ("unit_shared_pool",), ("unit.shared_pool",)),
    Mutation("fit", "a limit that is set later has its address space", "src/superslab/superslab.c",
             "hak_min(hak_max(range_end, used), range_end_in(old))", "range_end_in(old)",
             ("unit_superslab",), ("unit.superslab",)),
    Mutation("guards", "HAKMEM_GUARD: a sampled block has a page without access on either side", "src/thread/guard.c",
             "hak_os_commit(page, hak_os_page_size)", "hak_os_commit(page - hak_os_page_size, 3 * hak_os_page_size)",
             ("hakmem", "abort_guard"), ("abort.guard.overflow",)),
    Mutation("first", "an overflow of one of the first blocks is named, by however little", "src/thread/first.h",
             "return !HAK_SECURE && HAK_UNLIKELY(hak_load_relaxed(&hak_first_is_open));", "return false;",
             (*ABORT, "unit_first"), ("abort.free.first_overflow_by_1-first", "unit.first")),
    Mutation("first_exit", "what was written where nobody may is found at the exit, too", "src/thread/first.c",
             "if (!hak_load_relaxed(&given_back)) look_at_all();", "(void)look_at_all;",
             ABORT, ("abort.free.first_exit_overflow-first", "abort.free.first_exit_written-first")),
    Mutation("first_handlers", "a handler that comes between any two steps loses no first block", "src/thread/first.c",
             "hak_load_seq_cst(&hak_first_counts.live) == 0)", "hak_load_seq_cst(&hak_first_counts.live) < UINT64_MAX)",
             ("unit_first",), ("unit.first",)),
    Mutation("places", "a limit that is set after a peak has the address space of that", "src/superslab/superslab.c",
             "  if (range_for(limit) == 0) leave_places();\n", "  if (limit == 0) leave_places();\n",
             ("hakmem", "unit_superslab"), ("unit.superslab",)),
    Mutation("places_found", "what comes to lie there is found", "src/superslab/superslab.c",
             "          HAK_FORGOTTEN_PLACE)\n    return", "          UINT32_MAX)\n    return",
             ("unit_superslab",), ("unit.superslab",)),
)
