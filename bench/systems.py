#!/usr/bin/env python3
"""What each switchable system does and costs: one load, with the system's variable at several values.

    python3 bench/systems.py [--rows S2,S3] [--rounds N]        (make systems ROWS=S2,S3)

The rows are those of docs/systems.md. Values alternate within a round. Prints the medians of CPU time
(relative to the first value), page faults and memory, and the row's counters of one more run, with statistics.
--quick runs everything once and briefly, to see that it works.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.append(str(REPO / "tools"))
from userfiles import loadable  # noqa: E402

BUILD = REPO / "build"

Stats = dict[str, int]  # totals and counters of HAKMEM_STATS=json; refills, refill_blocks of all classes


@dataclass(frozen=True)
class Row:
    name: str
    what: str
    program: str
    full: str
    quick: str
    settings: tuple[str, ...]           # VARIABLE=VALUE,… without HAKMEM_, the default first (S2, warm pool: with NURSERY=0)
    counters: tuple[str, ...] = ()
    memory: str = "peak_rss_kib"        # key of the program's record
    figures: tuple[tuple[str, Callable[[Stats], float]], ...] = ()


def share(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def trips(s: Stats) -> float:
    return s["refill_pool"] + s["refill_draining"] + s["refill_reuse"] + s["refill_map"]


HITS = ("hits %", lambda s: share(s["allocs"] - s["refills"], s["allocs"]))
TRIPS = ("trips", trips)
UNSHARED = ("no trip %", lambda s: share(s["refills"] - trips(s), s["refills"]))
TIERS = ("tier_draining", "tier_free", "tier_hot", "superslab_empty")
LRU = ("superslab_empty", "superslab_evict", "refill_reuse", "refill_map")
COLD = "100000 8192 42 128 1024"

ROWS = (
    Row("F1", "unified cache", "bench_random_mixed", "5000000 8192 42", "200000 8192 42",
        ("REFILL_BATCH=64", "REFILL_BATCH=16", "REFILL_BATCH=128"),
        figures=(HITS, ("per refill", lambda s: s["refill_blocks"] / max(s["refills"], 1)))),
    Row("F3", "prewarm", "bench_random_mixed", COLD, COLD, ("PREWARM=0", "PREWARM=16"), ("prewarm", "refill_carve")),
    Row("F6", "first blocks", "bench_random_mixed", COLD, COLD, ("FIRST=255", "FIRST=0"), ("first_alloc",)),
    Row("S2", "warm pool", "case_churn_threads", "8000 1", "400 1",
        tuple(f"NURSERY=0,{setting}" for setting in ("WARM_POOL=4", "WARM_POOL_FILL=0", "WARM_POOL=0", "WARM_POOL=16")),
        ("refill_warm", "warm_fill", "warm_keep"), "end_rss_kib", (TRIPS, UNSHARED)),
    Row("S2", "threads without a heap", "case_idle_threads", "200", "50", ("NURSERY=1024", "NURSERY=0"),
        ("nursery", "heap_attach"), "rss_per_thread_kib"),
    Row("S3", "secondary prefill", "bench_random_mixed", "2000000 400000 42", "200000 40000 42",
        ("WARM_PREFILL=3", "WARM_PREFILL=0", "WARM_PREFILL=15"), ("warm_prefill",), figures=(TRIPS, UNSHARED)),
    Row("S5", "tiers", "bench_fragment", "200 2000 10 20", "20 500 10 3", ("TIERS=1", "TIERS=0"), TIERS, "end_rss_kib"),
    Row("S6", "shared pool, each block from it", "bench_mid_large_mt", "8 40000 16 --min 65536 --max 1048576",
        "8 500 16 --min 65536 --max 1048576", ("", "L25_RING_CAP=0"), ("l25_alloc", "l25_ring")),
    Row("S7", "cache of empty SuperSlabs", "bench_mid_large_mt", "2 100000 32 --min 65536 --max 1048576",
        "2 2000 32 --min 65536 --max 1048576", ("LRU_CAP=2", "LRU_CAP=0", "LRU_CAP=64"), LRU),
    Row("S7", "pages of idle memory", "case_idle", "300 0 2 2000", "20 0 2 2000", ("PURGE=2", "PURGE=1", "PURGE=0"),
        ("slab_purge", "superslab_evict"), "idle_rss_kib"),
    Row("S8", "prefault, huge pages", "case_scale", "2 262144", "2 16384",
        ("THP=auto", "THP=never", "THP=never,PREFAULT=16", "THP=always"), ("prefault", "superslab_huge")),
    Row("S8", "huge pages for buffers", "case_buffers", "1500 128 128 1000", "400 128 128 100",
        ("THP=auto", "THP=never"), ("l25_alloc", "superslab_huge"), "rss_kib"),
    Row("S9", "helper thread", "case_idle", "300 0 2 2000", "20 0 2 2000", ("BACKGROUND=0", "BACKGROUND=1"),
        ("superslab_evict",), "idle_rss_kib"),
    Row("S10", "pointer lookup", "bench_random_mixed", "5000000 8192 42", "200000 8192 42",
        ("SS_LOOKUP_KIND=range", "SS_LOOKUP_KIND=table")),
    Row("M1", "L2 blocks borrowed", "bench_mid_large_mt", "2 2000000 256", "2 20000 256",
        ("L2_BORROW=4", "L2_BORROW=0"), ("l2_borrow", "slab_empty")),
    Row("M3", "L2 ring", "bench_mid_large_mt", "2 2000000 256", "2 20000 256",
        ("L2_RING_CAP=48", "L2_RING_CAP=0", "L2_RING_CAP=8", "L2_RING_CAP=16")),
    Row("M2", "L2.5 ring", "bench_mid_large_mt", "2 100000 8 --min 65536 --max 262144",
        "2 2000 8 --min 65536 --max 262144", ("L25_RING_CAP=16", "L25_RING_CAP=0"), ("l25_alloc", "l25_ring")),
    Row("M5", "release of unused L2 memory", "case_idle", "128 20000 2 2000 42 --keep 10", "20 20000 2 2000 42 --keep 10",
        ("PURGE=2", "PURGE=1", "PURGE=0"), ("slab_empty", "slab_purge", "page_trim"), "idle_rss_kib"),
    Row("M6", "deferred frees", "bench_mid_large_mt", "2 1000000 256 --handover 50", "2 10000 256 --handover 50",
        ("LETTERS=1", "LETTERS=0", "POOL_MID_INUSE_DEFERRED=1"),
        ("free_remote", "remote_flush", "letter_send", "remote_empty")),
    Row("M7", "huge blocks kept", "malloc_large", "400", "20", ("HUGE_CACHE=512M", "HUGE_CACHE=64M", "HUGE_CACHE=0"),
        ("huge_alloc", "huge_reuse", "huge_evict")),
    Row("M7", "huge blocks grow", "case_realloc", "65536 4 10 10", "4096 2 10 10", ("",),
        ("huge_alloc", "realloc_remap", "realloc_copy")),
    Row("M7", "huge pages for arrays", "case_arrays", "40 4 8 64", "8 4 8 16", ("THP=auto", "THP=never"),
        ("huge_alloc", "huge_reuse", "huge_fill")),
    Row("X1", "free pipeline", "larson", "1 8 1000 5000 100 4141 4", "1 8 1000 1000 10 4141 4",
        ("REMOTE_PENDING=128K", "REMOTE_PENDING=0"), ("free_remote", "remote_flush", "remote_collect", "slab_empty")),
    Row("X1", "slabs whose blocks others free", "case_producer", "4 3000000", "4 200000", ("COMMONS=1", "COMMONS=0"),
        ("free_remote", "commons_give", "refill_commons"), "steady_rss_kib"),
    Row("X3", "statistics", "bench_random_mixed", "5000000 8192 42", "200000 8192 42", ("STATS=0", "STATS=1,STATS_FILE=/dev/null")),
    Row("X4", "modes", "bench_random_mixed", "2000000 400000 42", "200000 40000 42",
        ("MODE=balanced", "MODE=lean", "MODE=fast"), figures=(TRIPS,)),
    Row("X4", "modes, threads", "case_churn_threads", "8000 4", "400 4", ("MODE=balanced", "MODE=lean", "MODE=fast"),
        (), "end_rss_kib", (TRIPS,)),
)


@dataclass(frozen=True)
class Run:
    cpu_s: float
    faults: int
    memory_kib: int
    stats: Stats | None


def run(row: Row, setting: str, quick: bool, counted: bool) -> Run:
    """Runs one process: with statistics if `counted`, otherwise timed without them."""
    command = [str(BUILD / "bench" / row.program), *(row.quick if quick else row.full).split(), "--json"]
    variables = {f"HAKMEM_{name}": value for name, _, value in
                 (pair.partition("=") for pair in setting.split(",") if pair)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "stats")
        if counted:
            variables |= {"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": str(file)}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
        process = subprocess.Popen(command, env=inherited | variables | {"LD_PRELOAD": loadable(BUILD / "libhakmem.so")},
                                   stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout as out:
            printed = out.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: status {process.returncode}")
        record = json.loads(printed)
        stats = stats_of(json.loads(file.read_text())) if counted else None
    return Run(usage.ru_utime + usage.ru_stime, usage.ru_minflt, int(record[row.memory]), stats)


def stats_of(printed: dict) -> Stats:
    of_classes = {key: sum(c[key] for c in printed["classes"]) for key in ("refills", "refill_blocks")}
    return {k: v for k, v in printed.items() if isinstance(v, int)} | printed["counters"] | of_classes


def print_row(row: Row, rounds: int, quick: bool) -> None:
    runs: dict[str, list[Run]] = {setting: [] for setting in row.settings}
    for _ in range(rounds):
        for setting in row.settings:
            runs[setting].append(run(row, setting, quick, counted=False))
    print(f"\n{row.name} {row.what}: {row.program} {row.quick if quick else row.full}")
    print(f"  {'':<28}{'time':>8}{'faults':>10}{'MiB':>9}" +
          "".join(f"{name:>17}" for name in (*(n for n, _ in row.figures), *row.counters)))
    first = statistics.median(r.cpu_s for r in runs[row.settings[0]])
    for setting in row.settings:
        time, faults, memory = (statistics.median(getattr(r, key) for r in runs[setting])
                                for key in ("cpu_s", "faults", "memory_kib"))
        stats = run(row, setting, quick, counted=True).stats
        assert stats is not None
        line = f"  {setting or 'default':<28}{time / first if first else 1:>8.2f}{faults:>10,.0f}{memory / 1024:>9.1f}"
        line += "".join(f"{figure(stats):>17,.1f}" for _, figure in row.figures)
        print(line + "".join(f"{stats[counter]:>17,}" for counter in row.counters), flush=True)


def main() -> int:
    global BUILD
    parser = argparse.ArgumentParser(description="Each system on and off.")
    parser.add_argument("--rows", help="names, comma-separated (all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--build", type=Path, default=BUILD, help="build folder")
    args = parser.parse_args()
    BUILD = args.build.resolve()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    names = list(dict.fromkeys(row.name for row in ROWS))
    wanted = args.rows.split(",") if args.rows else names
    if unknown := set(wanted) - set(names):
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(names)}")
    for row in ROWS:
        if row.name in wanted:
            print_row(row, 1 if args.quick else args.rounds, args.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
