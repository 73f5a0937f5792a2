#!/usr/bin/env python3
"""Weakens one memory order of src/ after the other under ThreadSanitizer: orders.py [PLACE...]

Every use of an atomic with an order above relaxed is a place, named FILE:LINE. A mutant leaves
out its acquire half, its release half, or the acquire of a cas that fails. All mutants are in one
build, of a copy of the sources in build/orders: the order is read from a table, and HAK_ORDER
changes one entry. First the tests run without a mutant; they must pass, and they show which
places they reach. Then each mutant runs with the tests that reach its place, until one reports
a race or fails, or the mutant's time is over. The script prints a line for each mutant and judges
none: docs/decisions/0042-orders.md explains why a mutant is not noticed.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import re
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

from run import read, remove_others, sources, write  # noqa: E402

USE = re.compile(r"\bhak_((load|store|cas|exchange|fetch_\w+?)_(acquire|release|acq_rel|seq_cst))\(")
LEFT_OUT = ("src/base/atomic.h",)  # the definitions
ORDERS = {"relaxed": 0, "acquire": 2, "release": 3, "acq_rel": 4, "seq_cst": 5}  # of gcc and of TSan

# Added to the copy's atomic.h. hak_order counts how often each place is reached.
HEADER = """
unsigned hak_order(unsigned place, unsigned failure);
#define hak_at_load(k, p) atomic_load_explicit((p), hak_order(k, 0))
#define hak_at_store(k, p, v) atomic_store_explicit((p), (v), hak_order(k, 0))
#define hak_at_cas(k, p, e, v) \\
  atomic_compare_exchange_strong_explicit((p), (e), (v), hak_order(k, 0), hak_order(k, 1))
#define hak_at_exchange(k, p, v) atomic_exchange_explicit((p), (v), hak_order(k, 0))
#define hak_at_fetch_or(k, p, v) atomic_fetch_or_explicit((p), (v), hak_order(k, 0))
#define hak_at_fetch_and(k, p, v) atomic_fetch_and_explicit((p), (v), hak_order(k, 0))
#define hak_at_fetch_add(k, p, v) atomic_fetch_add_explicit((p), (v), hak_order(k, 0))
#define hak_at_fetch_sub(k, p, v) atomic_fetch_sub_explicit((p), (v), hak_order(k, 0))
"""
# Appended to a source that is part of every program.
TABLE_FILE = "src/os/os_linux.c"
TABLE = """
#include <stdio.h>
#include <stdlib.h>
static unsigned char orders[][2] = {%s};
static uint32_t *hits;
__attribute__((no_sanitize("thread"))) unsigned hak_order(unsigned place, unsigned failure) {
  if (hits) __atomic_fetch_add(&hits[place], 1, __ATOMIC_RELAXED);
  return orders[place][failure];
}
__attribute__((constructor(101))) static void choose_orders(void) {
  unsigned k, order, failure;
  const char *one = getenv("HAK_ORDER"), *file = getenv("HAK_ORDER_HITS");
  if (one && sscanf(one, "%%u:%%u:%%u", &k, &order, &failure) == 3)
    orders[k][0] = (unsigned char)order, orders[k][1] = (unsigned char)failure;
  int fd = file ? open(file, O_RDWR) : -1;
  if (fd >= 0) hits = mmap(NULL, sizeof orders * 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), close(fd);
}
"""


@dataclasses.dataclass(frozen=True)
class Place:
    number: int
    name: str    # FILE:LINE
    what: str    # load_acquire
    order: str
    line: str

    def mutants(self) -> list[tuple[str, int, int]]:
        """The mutants as (what is left out, order, order on failure)."""
        o, load, store = ORDERS, self.what.startswith("load"), self.what.startswith("store")
        acquires, releases = not store and self.order != "release", not load and self.order != "acquire"
        failure = o["acquire"] if acquires else o["relaxed"]
        result = []
        if acquires:
            result.append(("acquire", o["release"] if releases else o["relaxed"], o["relaxed"]))
        if releases:
            result.append(("release", o["acquire"] if acquires else o["relaxed"], failure))
        if acquires and self.what.startswith("cas"):
            result.append(("failure", o[self.order], o["relaxed"]))
        return result


@dataclasses.dataclass(frozen=True)
class Run:
    name: str
    command: tuple[str, ...]
    environment: tuple[str, ...] = ()


TIGHT = tuple(f"HAKMEM_{v}=0" for v in ("REMOTE_PENDING", "LRU_CAP", "WARM_POOL", "WARM_PREFILL", "WARM_POOL_FILL",
                                        "NURSERY", "TIERS", "PURGE", "HUGE_CACHE", "L2_BORROW", "LETTERS"))
YOUNG, TABLE_LOOKUP = ("HAKMEM_NURSERY=1000000",), ("HAKMEM_SS_LOOKUP_KIND=table",)
MODULES = ("pagemap", "letter", "nursery", "slab", "remote", "first", "superslab", "commons", "stats", "l25", "warm",
           "sparse", "ring", "shared_pool", "heap", "relief", "huge_cache", "huge", "front")
RUNS = tuple(
    [Run("orders", ("unit/unit_orders",)), Run("orders.table", ("unit/unit_orders",), TABLE_LOOKUP)] +
    [Run("threads", ("unit/unit_threads",)), Run("threads.table", ("unit/unit_threads",), TABLE_LOOKUP),
     Run("threads.tight", ("unit/unit_threads",), TIGHT), Run("threads.young", ("unit/unit_threads",), YOUNG),
     Run("stress.1", ("stress/stress", "1", "7500", "6"))] +
    [Run(name, (f"unit/unit_{name}",)) for name in MODULES] +
    [Run("producer.mid", ("stress/producer", "mid")), Run("producer.exited", ("stress/producer", "owner_has_exited"))] +
    [Run(f"stress.{n}", ("stress/stress", str(n), "7500", "6"), e)
     for n, e in ((2, TIGHT), (3, YOUNG), (4, TABLE_LOOKUP), (5, ()), (6, ()))] +
    [Run("threads.guard", ("unit/unit_threads",), ("HAKMEM_GUARD=20",))])


class Copy:
    def __init__(self, folder: str):
        self.source, self.build = os.path.join(folder, "source"), os.path.join(folder, "build")
        self.places: list[Place] = []
        paths = sources(ROOT)
        texts = {path: read(os.path.join(ROOT, path)) or b"" for path in paths}
        for path in sorted(paths):
            if path.startswith("src/") and path.endswith((".c", ".h")) and path not in LEFT_OUT:
                texts[path] = self._number(path, texts[path].decode()).encode()
        header = texts["src/base/atomic.h"].decode()
        texts["src/base/atomic.h"] = re.sub(r"(#endif\s*)$", lambda m: HEADER + m[1], header).encode()
        texts[TABLE_FILE] += (TABLE % ", ".join(
            f"{{{ORDERS[p.order]}, {ORDERS['relaxed' if p.order == 'release' else 'acquire']}}}" for p in self.places)).encode()
        for path, text in texts.items():
            if read(os.path.join(self.source, path)) != text:
                os.makedirs(os.path.dirname(os.path.join(self.source, path)), exist_ok=True)
                write(os.path.join(self.source, path), text)
        remove_others(self.source, paths)

    def _number(self, path: str, text: str) -> str:
        lines = text.split("\n")
        for i, line in enumerate(lines):
            def numbered(m: re.Match) -> str:
                self.places.append(Place(len(self.places), f"{os.path.basename(path)}:{i + 1}", m[1], m[3], line.strip()))
                return f"hak_at_{m[2]}({len(self.places) - 1}, "
            lines[i] = USE.sub(numbered, line)
        return "\n".join(lines)

    def make(self, jobs: str, runs: list[Run]) -> None:
        programs = sorted({os.path.basename(run.command[0]) for run in runs})
        for command in (("cmake", "-G", "Ninja", "-S", self.source, "-B", self.build, "-DCMAKE_BUILD_TYPE=Debug",
                         "-DHAK_SANITIZE=thread", "-DHAK_TESTS=ON", "-DHAK_BENCH=OFF"),
                        ("cmake", "--build", self.build, "-j", jobs, "--target", *programs)):
            done = subprocess.run(command, stdin=subprocess.DEVNULL, text=True, errors="replace", capture_output=True)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")

    def run(self, run: Run, limit: float = 120, **environment: str) -> str:
        """'' if the run passes, else what it printed."""
        words = dict(os.environ, TSAN_OPTIONS="halt_on_error=1 exitcode=66", **environment)
        words.update(v.split("=") for v in run.environment)
        try:
            done = subprocess.run([os.path.join(self.build, "test", run.command[0]), *run.command[1:]], timeout=limit,
                                  stdin=subprocess.DEVNULL, text=True, errors="replace", capture_output=True, env=words)
        except subprocess.TimeoutExpired:
            return "does not end"
        said = done.stdout + done.stderr
        if m := re.search(r"SUMMARY: ThreadSanitizer: (.*)", said):
            return re.sub(r"\(\S*\)? ?|/\S*/", "", m[1])
        return "" if done.returncode == 0 else f"fails ({done.returncode}) " + "".join(
            line for line in said.splitlines() if "does not hold" in line or "hakmem" in line)[:100]


def hits_of(copy: Copy, run: Run, folder: str) -> tuple[int, ...]:
    """How often the run reaches each place."""
    path, program = os.path.join(folder, f"hits.{run.name}"), os.path.join(copy.build, "test", run.command[0])
    if os.path.exists(path) and os.path.getmtime(path) > os.path.getmtime(program):
        return struct.unpack(f"<{len(copy.places)}I", read(path) or b"")
    write(path + ".new", bytes(4 * len(copy.places)))
    if wrong := copy.run(run, HAK_ORDER_HITS=path + ".new"):
        raise SystemExit(f"{run.name} does not pass as things are: {wrong}")
    os.replace(path + ".new", path)  # only after a complete run
    return struct.unpack(f"<{len(copy.places)}I", read(path) or b"")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "orders"))
    parser.add_argument("--jobs", default=os.environ.get("JOBS", "2"))
    parser.add_argument("--time", type=float, default=0, help="seconds for a mutant that is not noticed (one run)")
    parser.add_argument("--runs", default="orders orders.table", help=f"of {' '.join(run.name for run in RUNS)}")
    parser.add_argument("place", nargs="*", metavar="PLACE", help="FILE or FILE:LINE (all)")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    copy = Copy(args.folder)
    known = {place.name for place in copy.places} | {place.name.split(":")[0] for place in copy.places}
    if unknown := [name for name in args.place if name not in known]:
        parser.error(f"no place {unknown[0]}")
    if unknown := [name for name in args.runs.split() if name not in [run.name for run in RUNS]]:
        parser.error(f"no run {unknown[0]}")
    runs = [run for run in RUNS if run.name in args.runs.split()]
    copy.make(args.jobs, runs)
    hits = {run: hits_of(copy, run, args.folder) for run in runs}

    def judge(place: Place, mutant: tuple[str, int, int]) -> tuple[str, str]:
        which = [run for run in runs if hits[run][place.number]]
        if not which:
            return "NOT REACHED", ""
        end, tries = time.monotonic() + args.time, 0
        while tries == 0 or time.monotonic() < end:
            for run in which:
                tries += 1
                if said := copy.run(run, HAK_ORDER=f"{place.number}:{mutant[1]}:{mutant[2]}"):
                    return run.name, said
                if time.monotonic() > end:
                    break
        return "NOT NOTICED", f"{tries} runs of {len(which)} tests"

    chosen = [(place, mutant) for place in copy.places for mutant in place.mutants()
              if not args.place or place.name in args.place or place.name.split(":")[0] in args.place]
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(int(args.jobs)) as pool:
        for (place, mutant), (by, said) in zip(chosen, pool.map(lambda c: judge(*c), chosen)):
            missed += by.startswith("NOT")
            print(f"{place.name}\t{place.what}\t{mutant[0]}\t{by}\t{said}\t{place.line}", flush=True)
    print(f"{len(copy.places)} places, {len(chosen)} mutants, {missed} not noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
