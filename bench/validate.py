#!/usr/bin/env python3
"""Does each benchmark show what it exists to show?

    python3 bench/validate.py [--build DIR] [--quick] [ROW…]

Every row of the suites core, cases and programs is run, with its own program, metric and
memory, under an allocator with a flaw that the row must notice and under one without it:
libflawed.so (flawed.c), which is the system's malloc except for the flaw, or allocators
that differ in a known way. A ratio in the wrong direction gives exit status 1; a ratio of
times is first measured again, with more runs. The suite standard has standard/validate.py.

Flaws are large and runs short, so that a busy machine does not matter: the test
bench.validate runs --quick. Without --quick there are more runs, the programs, and the claims
that need two threads at a time; where two never run at once, those are skipped by name.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import measure
import suites
from allocators import Allocator
from benchmark import Benchmark
from peers import available

REPO = Path(__file__).resolve().parent.parent
FLAWS = ("none", "leak", "slow", "lock", "pad", "copy", "spike", "thread", "start", "dirty")
RUNS, QUICK_RUNS = 5, 3  # --quick: memory varies little, so one run is enough there
PARALLEL = 1.6        # CPUs in use with which two threads count as running together
AWAKE = 0.8           # CPUs in use below which threads mostly wait for a CPU, not for each other
TRIES = 20            # most pairs of runs in which to find RUNS of that kind
AGAIN = 3             # factor for the number of runs where a ratio of times was not as claimed
# glibc, configured to map every block of a page or more by itself, or to keep all its memory.
MAPS = {"MALLOC_MMAP_THRESHOLD_": "4096"}
KEEPS = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}


@dataclass(frozen=True)
class Claim:
    row: str
    subject: str             # costs more …
    key: str                 # … "time", "memory" (the row's own keys), or another of its record
    at_least: float          # the ratio to the other one
    args: str = ""           # instead of the row's quick ones
    other: str = "none"
    at_most: float = float("inf")
    cpus: float = 0          # only pairs count in which the other one's threads had that many CPUs


CORE = (
    Claim("tiny_hot", "slow", "time", 10, "200000"),
    Claim("random_mixed", "slow", "time", 3, "200000 8192 42"),
    Claim("random_mixed", "pad", "memory", 1.7, "200000 8192 42"),
    Claim("random_mixed_256", "slow", "time", 3, "200000 8192 42 256 256"),
    Claim("random_mixed_big", "pad", "memory", 2.5, "1000000 400000 42"),
    Claim("random_mixed_big", "pad", "time", 1.3, "1000000 400000 42"),
    Claim("random_mixed_cold", "slow", "time", 3),
    Claim("larson", "lock", "time", 5),
    Claim("larson", "pad", "memory", 1.7),
    Claim("larson", "lock", "time", 1.3, other="slow", cpus=PARALLEL),
    Claim("larson_1", "slow", "time", 5),
    *(Claim(f"mid_mt{n}", "system mapping", "time", 3, f"{n} {40000 // n} 256", other="system keeping")
      for n in (1, 2, 4, 8)),
    Claim("mid_mt2", "lock", "time", 1.2, other="slow", cpus=PARALLEL),
    Claim("mid_mt2_handover", "lock", "time", 2, cpus=AWAKE),
    Claim("mid_mt4_handover", "lock", "time", 2, cpus=AWAKE),
    Claim("large_mt2", "system mapping", "time", 2, "2 5000 32 --min 65536 --max 1048576", other="system keeping"),
)
CASES = (
    *(Claim(row, "leak", "memory", 3, f"128 {size} 2 2000", other="hakmem")
      for row, size in (("idle", 0), ("idle_16k", 16384), ("idle_1m", 1048576))),
    Claim("idle_kept", "leak", "memory", 2, "128 20000 2 2000 42 --keep 10", other="hakmem"),
    Claim("sleeper", "leak", "memory", 3, "64 200", other="hakmem"),
    Claim("sleeper", "lock", "time", 1.3, "64 0"),
    Claim("producer", "lock", "time", 1.7, "4 100000"),
    Claim("producer", "pad", "memory", 2),
    Claim("churn_threads", "thread", "memory", 5, "200 1"),
    Claim("churn_threads", "slow", "time", 1.5, "400 1"),
    Claim("churn_threads4", "thread", "memory", 5, "200 4"),
    Claim("fragment", "leak", "memory", 2),
    Claim("fragment", "slow", "time", 2, "2 4096"),
    Claim("realloc", "copy", "time", 2, "32768 2 1000 1000"),
    Claim("realloc_shrunk", "leak", "memory", 4),
    Claim("arrays", "leak", "memory", 2),
    Claim("arrays", "pad", "time", 2),
    Claim("arrays_mixed", "pad", "memory", 2),
    Claim("buffers", "pad", "memory", 4),
    Claim("buffers_full", "leak", "memory", 1.3),
    Claim("fork", "dirty", "memory", 3, "64 10"),
    Claim("idle_threads", "thread", "memory", 4),
    Claim("idle_threads1", "thread", "memory", 4),
    Claim("cold", "slow", "time", 2),
    Claim("start", "start", "time", 2),
    Claim("hello", "start", "memory", 3),
    Claim("hello", "start", "time", 2),
    *(Claim(row, "spike", "time", 3) for row in ("latency1_malloc", "latency1_free", "latency2_malloc")),
    Claim("latency1_malloc", "spike", "malloc_p50_ns", 0, at_most=2),
    Claim("steady", "leak", "memory", 1.5),
    Claim("scale_1m", "slow", "time", 3, "200000 1024"),
    Claim("scale_1m", "pad", "memory", 2, "200000 1024"),
    Claim("scale_64m", "pad", "memory", 2, "100000 65536"),
    Claim("scale_1g", "pad", "memory", 2, "100000 65536"),
    Claim("fill_256m", "pad", "time", 1.3),
)
# Shows that the preloaded library serves the programs at all, and that they spend time in it.
# memcached calls it for pages of 1 MiB, buffers and connections: some hundred times in all.
PROGRAMS = tuple(Claim(b.name, "pad", "memory", 2) if b.name == "memcached" else Claim(b.name, "slow", "time", 1.04)
                 for b in suites.BENCHMARKS.values() if b.suite == "programs")


def find_allocators(build: Path) -> dict[str, Allocator]:
    flawed = (build / "bench" / "libflawed.so").resolve()
    found = {name: Allocator(name, flawed, env={"FLAW": name}) for name in FLAWS}
    found |= {"system": Allocator("system"), "system mapping": Allocator("system mapping", env=MAPS),
              "system keeping": Allocator("system keeping", env=KEEPS),
              "hakmem": Allocator("hakmem", (build / "libhakmem.so").resolve())}
    return found | {name: Allocator(name, library) for name, library in available().items()}


def figures(b: Benchmark, claim: Claim, build: Path, found: dict[str, Allocator], runs: int) -> dict[str, float] | None:
    """The medians of alternating runs, or the least values if the claim only wants them alike, as
    disturbance only adds; None if the CPUs that the claim needs were hardly ever available."""
    key = {"time": b.metric, "memory": b.memory}.get(claim.key, claim.key)
    values: dict[str, list[float]] = {claim.subject: [], claim.other: []}
    for _ in range(TRIES * max(1, runs // RUNS) if claim.cpus else runs):
        pair = {name: measure.run_once(b, found[name], build, quick=True, net=False)
                for name in random.sample(list(values), 2)}
        # The subject may make its threads take turns; the condition is that the other's do not.
        condition = pair[claim.other]
        if not claim.cpus or condition["cpu_seconds"] >= claim.cpus * condition["wall_s"]:
            for name, record in pair.items():
                values[name].append(record[key])
        if len(values[claim.other]) >= runs:
            break
    if len(values[claim.other]) < runs:
        return None
    typical = statistics.median if claim.at_least else min
    return {name: typical(v) for name, v in values.items()}


def ratio_of(claim: Claim, medians: dict[str, float]) -> float:
    # Of memory below a page only its smallness is known; it counts as one page.
    return medians[claim.subject] / max(medians[claim.other], 4.0 if claim.key == "memory" else 1e-9)


def holds(claim: Claim, medians: dict[str, float]) -> bool:
    return claim.at_least <= ratio_of(claim, medians) <= claim.at_most


def check(claim: Claim, build: Path, found: dict[str, Allocator], runs: int) -> bool | None:
    """Whether the claim holds; None if that could not be tried."""
    b = suites.BENCHMARKS[claim.row]
    head = f"{claim.row:<18} {claim.subject:<15} {claim.other:<15} {claim.key:<14}"
    if missing := suites.lacking(b):
        print(f"{head} skipped: no {', '.join(missing)} here")
        return None
    measure.prepare(b, build)
    if claim.args:
        b = replace(b, quick=tuple(claim.args.split()))
    try:
        medians = figures(b, claim, build, found, runs)
        if medians and claim.key != "memory" and not holds(claim, medians):
            medians = figures(b, claim, build, found, AGAIN * runs) or medians
    except (measure.RunError, KeyError) as error:
        print(f"{head} WRONG: {error}")
        return False
    if medians is None:
        print(f"{head} skipped: the machine is too busy for threads at the same time")
        return None
    good = holds(claim, medians)
    wanted = f">= {claim.at_least:g}" if claim.at_least else f"<= {claim.at_most:g}"
    print(f"{head} {ratio_of(claim, medians):8.2f}  {wanted:<7} {'ok' if good else 'WRONG'}", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=REPO / "build", help="build folder (build)")
    parser.add_argument("--quick", action="store_true", help="core and cases only, nothing that a busy machine disturbs")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="by name (all)")
    options = parser.parse_args()
    claims = [c for c in (*CORE, *CASES, *(() if options.quick else PROGRAMS))
              if (c.row in options.rows or not options.rows) and not (options.quick and c.cpus >= PARALLEL)]
    if unknown := [row for row in options.rows if row not in {c.row for c in claims}]:
        parser.error(f"no claim about {', '.join(unknown)}")
    rows = {b.name for b in suites.BENCHMARKS.values() if b.suite in ("core", "cases")}
    if forgotten := rows - {c.row for c in (*CORE, *CASES)}:
        raise SystemExit(f"validate: nothing is claimed of {', '.join(sorted(forgotten))}")
    build = options.build.resolve()
    found = find_allocators(build)
    print(f"{'row':<18} {'costs more':<15} {'than':<15} {'':<14} {'ratio':>8}  wanted")
    held = [check(claim, build, found, RUNS if not options.quick else 1 if claim.key == "memory" else QUICK_RUNS)
            for claim in claims]
    print(f"{held.count(True)} claims hold, {held.count(False)} do not, {held.count(None)} were skipped")
    return 1 if False in held or True not in held else 0


if __name__ == "__main__":
    sys.exit(main())
