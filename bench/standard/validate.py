#!/usr/bin/env python3
"""Do these benchmarks tell apart allocators that are known to differ?

    python3 bench/standard/validate.py [--build DIR] [CLAIM…]

Each claim says that a benchmark costs more under one allocator than under others (or
does not), for a reason known beforehand: how the allocator is built. The table shows the
ratio to each of the others. A ratio in the wrong direction gives exit status 1.

Costs are user plus system CPU time, medians of alternating runs, and a claim requires a
factor well beyond noise. False sharing shows only while two threads really run at the same
time: for such claims only runs count in which they did, and on a machine that is too busy
(or has one CPU) the claims are skipped by name. So are allocators that are not built.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.append(str(REPO / "tools"))
from userfiles import loadable  # noqa: E402

ROUNDS = 5          # runs of each allocator
PARALLEL = 1.6      # CPUs in use with which two threads count as running together
PARALLEL_RUNS = 3   # such runs needed of each allocator
MLEAK_RUNS = 3      # of each length
PATIENCE = 40       # seconds in which to find the runs with two threads at a time
TIMEOUT = 120       # seconds per run
CHECKED = "checks, quarantine, cleared memory"
FAST = ("mimalloc", "snmalloc", "rpmalloc", "jemalloc")
# glibc, configured to return large blocks at once, or to keep them.
RETURNS = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
KEEPS = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}


@dataclass(frozen=True)
class Claim:
    name: str
    command: str
    subject: str                 # the allocator that the claim is about
    others: tuple[str, ...]
    at_least: float = 0.0        # of the ratio subject / other
    at_most: float = float("inf")
    parallel: bool = False       # only runs with two threads at the same time count
    why: str = ""


CLAIMS = (
    Claim("thrash", "cache_thrash 2 400 8 200000 2", "sharing", FAST, at_least=1.3,
          parallel=True, why="one list for all threads: active false sharing"),
    Claim("scratch", "cache_scratch 2 400 8 200000 2", "sharing", FAST, at_least=1.3,
          parallel=True, why="one list for all threads: passive false sharing"),
    Claim("thrash-1", "cache_thrash 1 300 8 100000 1", "sharing", FAST, at_most=1.2,
          why="a single thread shares with nobody"),
    Claim("xmalloc", "xmalloc_test 2 2000", "system", ("mimalloc", "snmalloc", "rpmalloc"),
          at_least=1.25, why="remote frees take the arena's lock"),
    Claim("sh8", "sh8_like 2 1000", "system", ("mimalloc", "snmalloc"), at_least=1.25,
          why="remote frees take the arena's lock"),
    Claim("rptest", "rptest 2 8 5000", "system", ("mimalloc", "rpmalloc"), at_least=1.2,
          why="remote frees, and merging of neighbours"),
    Claim("simple", "glibc_simple 30", "system", ("mimalloc", "floor"), at_least=1.5,
          why="400 and 1600 blocks do not fit into the thread's cache"),
    Claim("thread", "glibc_thread 1 2000000", "hardened", FAST, at_least=1.5,
          why=CHECKED),
    Claim("alloc", "alloc_test 1 2000000", "hardened", FAST, at_least=1.3,
          why=CHECKED),
    Claim("mstress", "mstress 1 6 400000", "hardened", ("snmalloc", "jemalloc"), at_least=1.3,
          why=CHECKED),
    Claim("sh6", "sh6_like 1 500", "hardened", FAST, at_least=1.5,
          why=CHECKED),
    Claim("cfrac", "cfrac_like 28", "hardened", FAST, at_least=1.5,
          why=CHECKED),
    Claim("espresso", "espresso_like 80 12 60", "hardened", FAST, at_least=1.3,
          why=CHECKED),
    Claim("barnes", "barnes_like 6000 6", "system", FAST, at_least=0.7, at_most=1.4,
          why="nearly all is arithmetic"),
    Claim("large", "malloc_large 80", "system returning", ("system keeping",), at_least=1.2,
          why="memory given back is cleared and faulted in again"),
)


@dataclass(frozen=True)
class Allocator:
    name: str
    library: Path | None = None
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    cpu: float
    wall: float
    peak_rss_kib: int


def find_allocators(build: Path) -> dict[str, Allocator]:
    found = {"system": Allocator("system"),
             "system returning": Allocator("system returning", env=RETURNS),
             "system keeping": Allocator("system keeping", env=KEEPS)}
    files = {"sharing": build / "bench" / "libsharing.so", "floor": build / "bench" / "libfloor.so"}
    for name in ("mimalloc", "mimalloc2", "snmalloc", "jemalloc", "rpmalloc", "tcmalloc",
                 "hardened"):
        files[name] = build / "peers" / "lib" / f"lib{name}.so"
    for name, file in files.items():
        if file.exists():
            found[name] = Allocator(name, file.resolve())
        else:
            print(f"left out: {name} is not built")
    return found


def run(build: Path, command: str, allocator: Allocator) -> Run:
    program, *arguments = command.split()
    env = {**os.environ, **allocator.env}
    env.pop("LD_PRELOAD", None)
    if allocator.library is not None:
        env["LD_PRELOAD"] = loadable(allocator.library)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([build / "bench" / program, *arguments, "--json"], env=env,
                          capture_output=True, text=True, timeout=TIMEOUT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"validate: {command} under {allocator.name}: "
                         f"status {done.returncode}: {done.stderr.strip()}")
    record = json.loads(done.stdout)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Run(cpu, record["elapsed_s"], record["peak_rss_kib"])


def measure(build: Path, claim: Claim, allocators: list[Allocator]) -> dict[str, float] | None:
    """CPU seconds per allocator; None if two threads hardly ever ran together."""
    times: dict[str, list[float]] = {a.name: [] for a in allocators}
    wanted = PARALLEL_RUNS if claim.parallel else ROUNDS
    deadline = time.monotonic() + PATIENCE
    while min(len(t) for t in times.values()) < wanted:
        if claim.parallel and time.monotonic() > deadline:
            return None
        for a in random.sample(allocators, len(allocators)):
            one = run(build, claim.command, a)
            if not claim.parallel or one.cpu >= PARALLEL * one.wall:
                times[a.name].append(one.cpu)
    return {name: statistics.median(t) for name, t in times.items()}


def line(name: str, subject: str, other: str, ratio: float, wanted: str, good: bool) -> None:
    print(f"{name:<10} {subject:<17} {other:<15} {ratio:7.2f}  {wanted:<12} "
          f"{'ok' if good else 'WRONG'}", flush=True)


def check(build: Path, claim: Claim, found: dict[str, Allocator]) -> bool | None:
    """Whether the claim holds; None if that could not be tried."""
    others = [found[o] for o in claim.others if o in found]
    if claim.subject not in found or not others:
        print(f"{claim.name:<10} skipped: {claim.subject} or all others are not built")
        return None
    costs = measure(build, claim, [found[claim.subject], *others])
    if costs is None:
        print(f"{claim.name:<10} skipped: the machine is too busy for two threads at a time")
        return None
    wanted = [f">= {claim.at_least}"] if claim.at_least else []
    wanted += [f"<= {claim.at_most}"] if claim.at_most < float("inf") else []
    right = True
    for other in others:
        ratio = costs[claim.subject] / costs[other.name]
        good = claim.at_least <= ratio <= claim.at_most
        right &= good
        line(claim.name, claim.subject, other.name, ratio, ", ".join(wanted), good)
    print(f"{'':<10} {claim.why}")
    return right


def check_mleak(build: Path, found: dict[str, Allocator]) -> bool:
    """Peak RSS must not grow with the number of threads that have lived; libfloor's does.

    With several threads at a time the peak depends on how many of them really run at
    once, which is chance (under rpmalloc a factor of two). So there is one at a time.
    """
    right = True
    for name in ("system", *FAST, "floor"):
        if name not in found:
            continue
        peaks = [[run(build, f"mleak {generations} 1", found[name]).peak_rss_kib
                  for generations in (1000, 8000)] for _ in range(MLEAK_RUNS)]
        short, long = (statistics.median(p) for p in zip(*peaks))
        ratio = long / short
        good = ratio >= 1.6 if name == "floor" else ratio <= 1.25
        right &= good
        line("mleak", name, "itself, RSS", ratio, ">= 1.6" if name == "floor" else "<= 1.25", good)
    print(f"{'':<10} 8 times as many threads; libfloor keeps what others' threads freed")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=REPO / "build", help="build folder (build)")
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help="by name (all)")
    options = parser.parse_args()
    names = [c.name for c in CLAIMS] + ["mleak"]
    for name in options.claims:
        if name not in names:
            parser.error(f"{name}: claims are {', '.join(names)}")
    build = options.build.resolve()
    found = find_allocators(build)
    print(f"{'claim':<10} {'allocator':<17} {'against':<15} {'ratio':>7}  wanted")
    results = {c.name: check(build, c, found) for c in CLAIMS
               if not options.claims or c.name in options.claims}
    if not options.claims or "mleak" in options.claims:
        results["mleak"] = check_mleak(build, found)
    wrong = [name for name, right in results.items() if right is False]
    skipped = [name for name, right in results.items() if right is None]
    right = len(results) - len(wrong) - len(skipped)
    print(f"{right} claims hold"
          + (f"; skipped: {', '.join(skipped)}" if skipped else "")
          + (f"; wrong: {', '.join(wrong)}" if wrong else ""))
    return 1 if wrong or right == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
