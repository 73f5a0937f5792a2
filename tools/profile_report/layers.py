"""The layers and the code that belongs to each: the only table of the profiler.

A place in the library is a chain of frames, the innermost inlined function first, as
addr2line -i gives it. The first frame that matches a row of TABLE decides. Files without a
row (atomics, bits, accessors of a slab) are transparent: their cost counts for the caller.
"""

import collections
import re

Frame = collections.namedtuple("Frame", "function file line")  # file below src/

# Name, description, and the share of everything except the program above which the layer is
# worth a look. Entry, front and lookup are the hit path: a good workload consists of these.
HIT_PATH = ("entry", "front", "lookup")
LAYERS = {
    "program": ("the program itself", None),
    "libc": ("C library, dynamic linker, compiler's helpers", 0.05),
    "entry": ("entry: the exported names, realloc, statistics", 0.20),
    "front": ("front: the hit path of malloc and free", 0.75),
    "lookup": ("lookup: from a pointer to its slab", 0.30),
    "refill": ("refill: misses of the front, carving, collecting", 0.06),
    "warm": ("warm pool", 0.02),
    "shared": ("shared pool and SuperSlabs", 0.02),
    "remote": ("frees between threads", 0.05),
    "large": ("L2 misses, L2.5, huge", 0.08),
    "heap": ("heaps: slab events, threads, start", 0.03),
    "os": ("OS layer, in user space", 0.01),
    "faults": ("kernel: page faults", 0.10),
    "calls": ("kernel: system calls", 0.03),
    "kernel": ("kernel: the rest (start, scheduling, interrupts)", 0.05),
    "other": ("not attributed", 0.03),
}

# (file below src/, function, layer): regular expressions that must match file and function
# entirely; the first row that matches decides.
TABLE = [(re.compile(file), re.compile(function), layer) for file, function, layer in (
    (r"superslab/superslab\.[ch]", r"hak_range_find|hak_slab_lookup", "lookup"),
    (r"core/pagemap\.[ch]", r".*", "lookup"),
    (r"thread/front\.c", r"free_foreign", "remote"),
    (r"thread/front\.c", r"hak_front_find|not_ours|in_free_slab|is_free_l2", "lookup"),
    (r"thread/front\.h", r".*", "front"),
    (r"superslab/seal\.c|thread/(quarantine|sealed)\.c", r".*", "front"),
    (r"thread/front\.c", r"put_l2.*|free_l2|hak_front_free_other", "front"),
    (r"thread/front\.c", r".*(l2|l25|huge).*", "large"),
    (r"thread/front\.c", r"hak_front_slab_event|hak_front_free_.*|free_tiny|free_block", "heap"),
    (r"thread/(front|scarce)\.c", r".*", "refill"),
    (r"superslab/slab\.c", r"hak_slab_collect|collect_tiny", "remote"),
    (r"superslab/(slab|trim)\.c", r".*", "refill"),
    (r"thread/remote\.[ch]", r".*", "remote"),
    (r"thread/(letter|relief)\.[ch]", r".*", "remote"),
    (r"thread/heap\.c", r"hak_heap_drain|take_back|hak_heap_post|hak_heap_service", "remote"),
    (r"thread/warm\.[ch]", r".*", "warm"),
    (r"thread/ring\.c", r".*", "large"),
    (r"thread/.*\.c|thread/(audit|commons|first|growth|lost|nursery|orphan|scarce|sparse|tend)\.h", r".*", "heap"),
    (r"thread/heap\.h", r"hak_heap_(enter|leave|count).*", "heap"),
    (r"superslab/(pool_index|shared_pool|superslab)\.c", r".*", "shared"),
    (r"superslab/(pool_index|shared_pool)\.h", r".*", "shared"),
    (r"superslab/size_class\.c", r".*", "heap"),
    (r"pool/.*", r".*", "large"),
    (r"os/.*", r".*", "os"),
    (r"core/.*\.c", r".*", "heap"),
    (r"api/.*", r".*", "entry"),
)]

KERNEL_FAULT = re.compile(r"page_fault|user_addr_fault|handle_mm_fault|faultin_page|populate")
KERNEL_CALL = re.compile(r"do_syscall|entry_SYSCALL|el0_svc|invoke_syscall|ret_from_fork")
KERNEL_START = re.compile(r"execve|do_exit|exit_mmap|bprm")
# perf writes [kernel.kallsyms] and modules as [name]; it also brackets some user memory.
KERNEL_OBJECT = re.compile(r"^\[(?!unknown|heap|stack|anon|vdso|vsyscall).*\]|/vmlinux|\.ko\b")
LIBC_OBJECT = re.compile(r"/(libc|libm|libpthread|ld-linux|ld|libstdc\+\+|libgcc_s)[-.\w]*\.so|\[vdso\]|/valgrind/")


def of_chain(chain):
    """(layer, the frame that decided) of a place in the library; ("other", None)."""
    for frame in chain:
        for file, function, layer in TABLE:
            if file.fullmatch(frame.file) and function.fullmatch(frame.function):
                return layer, frame
    return "other", None


def of_kernel(symbols):
    """Layer of a kernel sample, from its call chain with the innermost symbol first."""
    chain = [s for s in symbols if s]
    if any(KERNEL_START.search(s) for s in chain):
        return "kernel"
    if any(KERNEL_FAULT.search(s) for s in chain):
        return "faults"
    if any(KERNEL_CALL.search(s) for s in chain):
        return "calls"
    return "kernel"


def of_object(path):
    """Layer of code outside the library and the kernel."""
    return "libc" if LIBC_OBJECT.search(path) else "program"


class Profile:
    """Counts by layer, function and line; only add() fills it."""

    def __init__(self, source, unit):
        self.source, self.unit = source, unit
        self.layers, self.functions, self.lines = (collections.Counter() for _ in range(3))

    @property
    def total(self):
        return sum(self.layers.values())

    @property
    def in_library(self):
        return sum(self.layers[layer] for layer in {layer for _, _, layer in TABLE})

    def add(self, layer, function, count, line=None):
        self.layers[layer] += count
        self.functions[layer, function] += count
        if line:
            self.lines[line] += count

    def add_library(self, symbol, chain, count):
        layer, frame = of_chain(chain)
        if frame is None:
            # The compiler's own functions (__popcountdi2) are linked in and have no lines.
            layer = "libc" if not chain and symbol.startswith("__") else layer
            self.add(layer, symbol or "?", count)
            return
        # Does not use the symbol: malloc and hak_malloc are the same code.
        outer = chain[-1].function
        name = frame.function if outer == frame.function else f"{frame.function} in {outer}"
        self.add(layer, name, count, f"{frame.file}:{frame.line}")

    def shares(self):
        """{layer: share of everything}, in the order of LAYERS."""
        return {name: self.layers[name] / max(1, self.total) for name in LAYERS}

    def shares_without_program(self):
        rest = max(1, self.total - self.layers["program"])
        return {name: self.layers[name] / rest for name in LAYERS if name != "program"}

    def as_json(self):
        return {"source": self.source, "unit": self.unit, "total": self.total,
                "shares": {k: round(v, 5) for k, v in self.shares().items()},
                "functions": [{"layer": layer, "function": f, "share": round(n / max(1, self.total), 5)}
                              for (layer, f), n in self.functions.most_common(40)],
                "lines": [{"line": line, "share": round(n / max(1, self.total), 5)}
                          for line, n in self.lines.most_common(40)]}
