"""What to look at next: sentences computed only from the shares."""

from .layers import HIT_PATH, LAYERS

NOISE = 0.005  # smaller shares of everything are not worth a sentence
SAMPLES = 1000  # fewer samples say little
ALL_HITS = 0.95

HINTS = {
    "libc": "see which function: memset and memcpy are the program's own, or calloc on memory not known to be zero and "
            "realloc that moves; the linker's is the start",
    "entry": "the wrappers do more than inline the front: test/unit/instructions shows the instructions",
    "front": "list the lines: a load that waits is a cache miss of slab, descriptor or block",
    "lookup": "most likely the pointers miss the range (HAKMEM_SS_LOOKUP_KIND=table?), or the descriptor is not cached",
    "refill": "the front runs empty too often: HAKMEM_REFILL_BATCH, HAKMEM_FULL_MARK; HAKMEM_STATS=1 tells the stages",
    "warm": "HAKMEM_WARM_POOL_STATS=1 tells hits and misses per class",
    "shared": "slabs come and go: HAKMEM_WARM_POOL, HAKMEM_LRU_CAP; counters refill_pool, slab_empty",
    "remote": "blocks are freed by other threads: HAKMEM_REMOTE_PENDING; counters free_remote, remote_flush",
    "large": "sizes above 1280 bytes miss their ring: HAKMEM_L2_RING_CAP, HAKMEM_L25_RING_BYTES",
    "heap": "slabs become FULL and usable again, or threads come and go: counters slab_full, slab_back, heap_attach",
    "os": "too many calls of the OS layer: the kernel's share will be larger still",
    "faults": "memory is touched for the first time: HAKMEM_PREFAULT, HAKMEM_THP, HAKMEM_LRU_CAP; is it given back "
              "and faulted in again? (superslab_evict)",
    "calls": "strace -c tells which; madvise and mmap come from HAKMEM_LRU_CAP and huge blocks",
    "kernel": "start, end and scheduling of the process: run longer",
    "other": "code the table in tools/profile_report/layers.py does not know: add a row",
}


def percent(share):
    return f"{100 * share:.1f} %"


def above_expectation(profile):
    """[(layer, share without the program, expectation)], the largest excess first."""
    found = [(name, share, LAYERS[name][1]) for name, share in profile.shares_without_program().items()
             if share > LAYERS[name][1] and profile.shares()[name] > NOISE]
    return sorted(found, key=lambda row: row[2] - row[1])


def largest_function(profile, layer):
    functions = [(n, f) for (where, f), n in profile.functions.items() if where == layer]
    return max(functions, default=(0, "?"))[1]


def compare_time_with_instructions(time, instructions):
    """Layers whose share of time is far from their share of instructions."""
    if time is None or instructions is None or time is instructions or time.source == "estimate":
        return []
    lines = []
    user = {name: time.layers[name] for name in LAYERS if name not in ("faults", "calls", "kernel")}
    total = max(1, sum(user.values()))
    for name, share in instructions.shares().items():
        if name == "program" or name not in user:
            continue
        of_time = user[name] / total
        if of_time > 1.5 * share and of_time - share > 0.05:
            lines.append(f"{LAYERS[name][0]}: {percent(share)} of the instructions but {percent(of_time)} of the "
                         "time in user space: it waits, for memory or a branch")
    return lines


def differences(runs):
    """How the second of two workloads differs from the first, outside the program."""
    if len(runs) != 2:
        return []
    one, two = ((run.time or run.instructions) for run in runs)
    if one is None or two is None:
        return []
    a, b = one.shares_without_program(), two.shares_without_program()
    moved = sorted((name for name in a if abs(a[name] - b[name]) > 0.01), key=lambda n: -abs(a[n] - b[n]))
    lines = [f"{LAYERS[name][0]}: {percent(a[name])} in {runs[0].name}, {percent(b[name])} in {runs[1].name}"
             for name in moved[:6]]
    return lines or ["no layer differs by more than 1 %"]


def of_workload(run):
    """Lines for one workload; run has name, time, instructions, usage."""
    profile = run.time or run.instructions
    if profile is None:
        return ["nothing was measured"]
    program = profile.shares()["program"]
    what = "time" if run.time else "instructions"
    lines = []
    excess = above_expectation(profile)
    outside = profile.shares_without_program()
    hit = sum(outside[name] for name in HIT_PATH)
    if hit > ALL_HITS:
        lines.append(f"{percent(hit)} of the {what} outside the program is the hit path: nothing but fewer or cheaper "
                     f"instructions there would help (largest: {largest_function(profile, 'front')}; "
                     "test/unit/instructions lists them)")
    elif excess:
        layer, share, expected = excess[0]
        lines.append(f"look at {LAYERS[layer][0]}: {percent(share)} of the {what} outside the program, "
                     f"expected at most {percent(expected)}; largest there: {largest_function(profile, layer)}")
        lines.append(HINTS[layer])
        rest = [f"{LAYERS[n][0]} ({percent(s)}, expected {percent(e)})" for n, s, e in excess[1:4]]
        if rest:
            lines.append("then: " + "; ".join(rest))
    else:
        layer = max(outside, key=outside.get)
        lines.append(f"no layer is above its expectation; the largest is {LAYERS[layer][0]} with "
                     f"{percent(outside[layer])} of the {what} outside the program")
    lines += compare_time_with_instructions(run.time, run.instructions)
    if program > 0.6:
        lines.append(f"{percent(program)} is the program's own: no allocator can make more than "
                     f"{percent(1 - program)} of the {what} go away")
    if run.time and run.time.source.startswith("perf") and run.time.total < SAMPLES:
        lines.append(f"only {run.time.total} samples: run longer before you believe shares of a few per cent")
    return lines
