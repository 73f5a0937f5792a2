#!/usr/bin/env python3
"""Compare allocators: interleaved runs, medians, confidence intervals.

    python3 bench/compare.py                                hakmem and system, suite core
    python3 bench/compare.py --peers all                    … and every peer
    python3 bench/compare.py --allocators system,old=/tmp/libold.so,hakmem
    python3 bench/compare.py --allocators hakmem,cold=hakmem:HAKMEM_PREWARM=0 --reference hakmem
    python3 bench/compare.py --benchmarks tiny_hot,larson --rounds 20 --net --json result.json

In every round each benchmark runs once under each allocator, in random order
and next to each other, so that drift of the machine hits all alike. The result
is the median over the rounds; the ratio to the reference has a 95 % bootstrap
interval in which the rounds are resampled as pairs. README.md has the method.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peers

REPO = Path(__file__).resolve().parent.parent
SCHEMA = "hakmem-bench/1"
BOOTSTRAP = 2000      # resamples per interval
BUSY_LIMIT = 0.05     # foreign CPU time, in CPUs, from which a run counts as disturbed
TIMEOUT = 600         # seconds per run
SYSTEM = "system"


# --------------------------------------------------------------------------
# Benchmarks. Argument lists for a normal and for a --quick run.

@dataclass(frozen=True)
class Benchmark:
    name: str
    program: str
    full: tuple[str, ...]
    quick: tuple[str, ...]
    what: str


def _benchmark(name: str, program: str, full: str, quick: str, what: str) -> Benchmark:
    return Benchmark(name, program, tuple(full.split()), tuple(quick.split()), what)


BENCHMARKS = {b.name: b for b in (
    _benchmark("tiny_hot", "bench_tiny_hot", "100000000", "10000000", "16 B, hit path"),
    _benchmark("random_mixed", "bench_random_mixed",
               "20000000 8192 42", "2000000 8192 42", "16–1040 B"),
    _benchmark("random_mixed_256", "bench_random_mixed",
               "20000000 8192 42 256 256", "2000000 8192 42 256 256", "256 B"),
    _benchmark("random_mixed_big", "bench_random_mixed",
               "10000000 400000 42", "2000000 400000 42", "16–1040 B, 200 000 blocks live"),
    _benchmark("random_mixed_cold", "bench_random_mixed",
               "100000 8192 42 128 1024", "100000 8192 42 128 1024", "first 100 000 operations"),
    _benchmark("larson", "larson", "2 8 1000 5000 100 4141 4", "1 8 1000 5000 100 4141 4",
               "8–1000 B, 4 lines of workers"),
    _benchmark("larson_1", "larson", "2 8 1000 5000 100 4141 1", "1 8 1000 5000 100 4141 1",
               "8–1000 B, 1 line of workers"),
    _benchmark("mid_mt2", "bench_mid_large_mt", "2 2000000 256", "2 200000 256",
               "8–32 KiB, 2 threads"),
    _benchmark("mid_mt4", "bench_mid_large_mt", "4 1000000 256", "4 100000 256",
               "8–32 KiB, 4 threads"),
    _benchmark("mid_mt2_handover", "bench_mid_large_mt", "2 1000000 256 --handover 50",
               "2 100000 256 --handover 50", "8–32 KiB, 2 threads, half freed by the other"),
    _benchmark("large_mt2", "bench_mid_large_mt", "2 100000 32 --min 65536 --max 1048576",
               "2 10000 32 --min 65536 --max 1048576", "64 KiB–1 MiB, 2 threads"),
)}

SUITES = {
    "core": ("tiny_hot", "random_mixed", "random_mixed_256", "larson", "mid_mt2",
             "mid_mt2_handover"),
    "small": ("tiny_hot", "random_mixed", "random_mixed_256", "random_mixed_big",
              "random_mixed_cold"),
    "mid": ("mid_mt2", "mid_mt4", "mid_mt2_handover", "large_mt2"),
    "threads": ("larson_1", "larson", "mid_mt2", "mid_mt4", "mid_mt2_handover"),
    "all": tuple(BENCHMARKS),
}


# --------------------------------------------------------------------------
# Allocators

@dataclass(frozen=True)
class Allocator:
    name: str
    library: Path | None = None   # preloaded; None: nothing is
    suffix: str = ""              # of the program: "_hakmem" for the linked-in variant
    env: dict[str, str] = field(default_factory=dict)


def parse_allocator(text: str, build: Path) -> Allocator:
    """[LABEL=]BASE[:K=V]…, BASE: system, hakmem, hakmem-static, floor, a peer or a path."""
    base, *settings = text.split(":")
    label, equals, rest = base.partition("=")
    base = rest if equals else label
    if not all("=" in s for s in settings):
        raise SystemExit(f"compare: {text}: settings are written K=V")
    env = dict(s.split("=", 1) for s in settings)
    name = label if equals else text if settings else base
    if base == SYSTEM:
        return Allocator(name, env=env)
    if base == "hakmem-static":
        return Allocator(name, suffix="_hakmem", env=env)
    if base in peers.PEERS:
        library = peers.available().get(base)
        if library is None:
            raise SystemExit(f"compare: {base} is not built: python3 bench/peers.py {base}")
    else:
        library = {"hakmem": build / "libhakmem.so", "floor": build / "bench" / "libfloor.so"}.get(
            base, Path(base))
        if not library.exists():
            raise SystemExit(f"compare: {library} does not exist"
                             + ("" if "/" in base or base in ("hakmem", "floor")
                                else f"; neither is {base} a known allocator"))
    return Allocator(name if "/" not in name else library.name, library.resolve(), env=env)


def describe(a: Allocator) -> dict:
    info: dict = {"name": a.name, "env": a.env}
    if a.library is not None:
        info["sha256"] = hashlib.sha256(a.library.read_bytes()).hexdigest()
        for name, library in peers.available().items():
            if library.resolve() == a.library:
                info.update({k: v for k, v in peers.details(name).items()
                             if k in ("version", "package", "package_version", "compiler")})
    return info


# --------------------------------------------------------------------------
# The machine: what it is, and whether something else is using it

def first_match(path: str, key: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def read_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def describe_machine() -> dict:
    revision = subprocess.run(["git", "-C", str(REPO), "describe", "--always", "--dirty"],
                              capture_output=True, text=True).stdout.strip()
    return {"cpu": first_match("/proc/cpuinfo", "model name"), "cpus": os.cpu_count(),
            "memory": first_match("/proc/meminfo", "MemTotal"),
            "kernel": platform.release().split("-")[0], "libc": " ".join(platform.libc_ver()),
            "thp": read_line("/sys/kernel/mm/transparent_hugepage/enabled"),
            "governor": read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            "python": platform.python_version(), "revision": revision}


@dataclass
class CpuTimes:
    """Seconds since boot that the CPUs were busy, and stolen by the hypervisor."""
    busy: float
    steal: float

    @staticmethod
    def now() -> "CpuTimes":
        ticks = [int(v) for v in read_line("/proc/stat").split("\n", 1)[0].split()[1:9]]
        hz = os.sysconf("SC_CLK_TCK")
        user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
        return CpuTimes((user + nice + system + irq + softirq) / hz, steal / hz)


# --------------------------------------------------------------------------
# Running

class RunError(Exception):
    pass


def run_once(b: Benchmark, a: Allocator, build: Path, quick: bool, net: bool) -> dict:
    """One run; a flat record of what benchmark, launcher and machine said."""
    program = build / "bench" / (b.program + a.suffix)
    command = [str(program), *(b.quick if quick else b.full), "--json", *(["--net"] if net else [])]
    settings = dict(a.env)  # for the benchmark only, see launch
    if a.library is not None:
        settings["LD_PRELOAD"] = str(a.library)
    env_args = [word for k, v in settings.items() for word in ("--env", f"{k}={v}")]
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    load = os.getloadavg()[0]
    with tempfile.NamedTemporaryFile("r", suffix=".json") as usage_file:
        before, start = CpuTimes.now(), time.monotonic()
        try:
            done = subprocess.run([str(build / "bench" / "launch"), "--out", usage_file.name,
                                   *env_args, "--", *command], env=environment,
                                  capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise RunError(f"no end within {TIMEOUT} s") from error
        elapsed, after = time.monotonic() - start, CpuTimes.now()
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            raise RunError(f"exit {done.returncode} {last}".strip())
        usage = json.load(usage_file)
    result = json.loads(done.stdout)
    own = usage["user_s"] + usage["sys_s"]
    return {"benchmark": b.name, "allocator": a.name,
            **{k: v for k, v in result.items() if k not in ("benchmark", "args")},
            **{k: usage[k] for k in ("wall_s", "user_s", "sys_s", "maxrss_kib", "minor_faults",
                                     "major_faults", "involuntary_switches")},
            "load_before": load,
            # CPU time of everybody else while the run lasted, in CPUs. /proc/stat counts
            # in ticks of 10 ms, so it says little about runs shorter than that.
            "foreign_cpus": max(0.0, (after.busy - before.busy - own) / elapsed),
            "steal_cpus": (after.steal - before.steal) / elapsed}


def disturbed(record: dict) -> bool:
    ticks = (record["foreign_cpus"] + record["steal_cpus"]) * record["wall_s"]
    return record["foreign_cpus"] + record["steal_cpus"] > BUSY_LIMIT and ticks > 0.025


class Session:
    """All runs of one comparison."""

    def __init__(self, benchmarks: list[Benchmark], allocators: list[Allocator], build: Path,
                 quick: bool, net: bool, order: random.Random):
        self.benchmarks, self.allocators = benchmarks, allocators
        self.build, self.quick, self.net, self.order = build, quick, net, order
        self.records: list[dict] = []
        self.failures: dict[tuple[str, str], str] = {}

    def round(self, number: int) -> None:
        """Runs everything once; round 0 is the warm-up and is not recorded."""
        for b in self.order.sample(self.benchmarks, len(self.benchmarks)):
            for a in self.order.sample(self.allocators, len(self.allocators)):
                if (b.name, a.name) in self.failures:
                    continue
                try:
                    record = run_once(b, a, self.build, self.quick, self.net)
                except RunError as error:
                    self.failures[b.name, a.name] = str(error)
                    progress("")
                    print(f"{b.name} under {a.name}: failed: {error}", file=sys.stderr)
                    continue
                if number > 0:
                    self.records.append({"round": number, **record})
                progress(f"round {number}: {b.name} {a.name}")
        progress("")

    def values(self, b: str, a: str, key: str) -> list[float]:
        """By round; empty if the pair failed at any time."""
        if (b, a) in self.failures:
            return []
        return [r[key] for r in self.records if r["benchmark"] == b and r["allocator"] == a]


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


# --------------------------------------------------------------------------
# Statistics

def bootstrap_ratios(mine: list[float], reference: list[float], draws: list[list[int]]) -> list[float]:
    """Ratios of the medians, one per draw of rounds (the same rounds for both)."""
    return [statistics.median([mine[i] for i in draw]) / statistics.median([reference[i] for i in draw])
            for draw in draws]


def interval(samples: list[float]) -> tuple[float, float]:
    """The middle 95 %."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return ordered[round(0.025 * last)], ordered[round(0.975 * last)]


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def floors(session: Session) -> dict[str, float]:
    """The benchmarks' own cost. It does not depend on the allocator, so all runs count."""
    return {b.name: statistics.median(
                [r["floor_ns_per_op"] for r in session.records if r["benchmark"] == b.name] or [0.0])
            for b in session.benchmarks}


def times(session: Session, b: str, a: str, floor: dict[str, float]) -> list[float]:
    """Nanoseconds per operation, by round; less the floor if there is one."""
    return [t - floor.get(b, 0.0) for t in session.values(b, a, "ns_per_op")]


def summarise_pair(session: Session, b: str, a: str, floor: dict[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {"benchmark": b, "allocator": a}
    mine = times(session, b, a, floor)
    if not mine:
        return {**row, "failure": session.failures.get((b, a), "not run")}
    metric = "net_ns_per_op" if floor else "ns_per_op"
    row.update({"rounds": len(mine), metric: statistics.median(mine),
                f"{metric}_min": min(mine), f"{metric}_max": max(mine)})
    if floor:
        row["floor_ns_per_op"] = floor[b]
    for key in ("ops_per_s", "peak_rss_kib", "minor_faults"):
        row[key] = statistics.median(session.values(b, a, key))
    return row


def summarise(session: Session, reference: str, rounds: int) -> dict[str, Any]:
    """Rows per benchmark and allocator, and geometric means per allocator."""
    floor = floors(session) if session.net else {}
    dice = random.Random(1)  # the intervals of given data are always the same
    draws = [[dice.randrange(rounds) for _ in range(rounds)] for _ in range(BOOTSTRAP)]
    rows: list[dict[str, Any]] = []
    samples: dict[tuple[str, str], list[float]] = {}
    for b in session.benchmarks:
        base = times(session, b.name, reference, floor)
        base_rss = session.values(b.name, reference, "peak_rss_kib")
        for a in session.allocators:
            row = summarise_pair(session, b.name, a.name, floor)
            rows.append(row)
            mine = times(session, b.name, a.name, floor)
            # A run faster than the floor leaves nothing to relate; that takes a
            # disturbed machine.
            if mine and base and min(mine) > 0 and min(base) > 0:
                ratios = bootstrap_ratios(mine, base, draws)
                low, high = interval(ratios)
                row.update({"time_ratio": statistics.median(mine) / statistics.median(base),
                            "time_ratio_low": low, "time_ratio_high": high,
                            "rss_ratio": row["peak_rss_kib"] / statistics.median(base_rss)})
                samples[b.name, a.name] = ratios
    return {"metric": "net_ns_per_op" if floor else "ns_per_op", "reference": reference,
            "rows": rows, "geometric_means": geometric_means(session, rows, samples)}


def geometric_means(session: Session, rows: list[dict[str, Any]],
                    samples: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
    # Only over benchmarks that every allocator has a ratio for: the means of different
    # sets of benchmarks could not be compared.
    common = [b.name for b in session.benchmarks
              if all((b.name, a.name) in samples for a in session.allocators)]
    means = []
    for a in session.allocators if common else []:
        mine = [r for r in rows if r["allocator"] == a.name and r["benchmark"] in common]
        low, high = interval([geometric_mean([samples[name, a.name][i] for name in common])
                              for i in range(BOOTSTRAP)])
        means.append({"allocator": a.name, "benchmarks": len(common),
                      "time_ratio": geometric_mean([r["time_ratio"] for r in mine]),
                      "time_ratio_low": low, "time_ratio_high": high,
                      "rss_ratio": geometric_mean([r["rss_ratio"] for r in mine])})
    return means


# --------------------------------------------------------------------------
# Output

def verdict(row: dict, reference: str) -> str:
    if row["allocator"] == reference or row.get("rounds", 5) < 5:
        return ""  # the interval of fewer rounds is too narrow to judge by
    return "faster" if row["time_ratio_high"] < 1 else "slower" if row["time_ratio_low"] > 1 else "="


def table_rows(summary: dict) -> list[list[str]]:
    metric, reference = summary["metric"], summary["reference"]
    out = []
    for row in summary["rows"]:
        if "failure" in row:
            out.append([row["benchmark"], row["allocator"], "failed", "", "", "", "", ""])
            continue
        ratio = ["", "", ""]
        if "time_ratio" in row:
            ratio = [f"{row['time_ratio']:.3f}",
                     f"{row['time_ratio_low']:.3f}–{row['time_ratio_high']:.3f}",
                     verdict(row, reference)]
        out.append([row["benchmark"], row["allocator"], f"{row[metric]:.2f}",
                    f"{row['ops_per_s'] / 1e6:.2f}", *ratio, f"{row['peak_rss_kib'] / 1024:.1f}"])
    for mean in summary["geometric_means"]:
        out.append([f"geometric mean of {mean['benchmarks']}", mean["allocator"], "", "",
                    f"{mean['time_ratio']:.3f}",
                    f"{mean['time_ratio_low']:.3f}–{mean['time_ratio_high']:.3f}",
                    "", f"×{mean['rss_ratio']:.2f}"])
    return out


def print_table(summary: dict) -> None:
    head = ["benchmark", "allocator", "net ns/op" if summary["metric"].startswith("net") else "ns/op",
            "M ops/s", "time ratio", "95 % CI", "", "peak RSS MiB"]
    rows = table_rows(summary)
    for this, before in reversed(list(zip(rows[1:], rows))):
        if this[0] == before[0]:
            this[0] = ""  # name each benchmark once
    try:
        if not sys.stdout.isatty():
            raise ImportError("rich would cut the table to 80 columns")
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
        for row in [head, ["-" * w for w in widths], *rows]:
            cells = [c.ljust(w) if i < 2 or i == 6 else c.rjust(w)
                     for i, (c, w) in enumerate(zip(row, widths))]
            print("  ".join(cells).rstrip())
        return
    table = Table()
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i < 2 or i == 6 else "right", no_wrap=True)
    for row, after in zip(rows, [*rows[1:], None]):
        table.add_row(*row, end_section=after is not None and after[0] != "")
    Console().print(table)


def print_notes(session: Session, summary: dict, rounds: int) -> None:
    what = "Time per operation" + (" less the benchmark's own cost" if session.net else "")
    print(f"{what}, median of {rounds} rounds; ratio to {summary['reference']}: below 1 is faster.")
    if rounds < 5:
        print("Fewer than 5 rounds: the intervals are narrower than they should be.")
    noisy = [r for r in session.records if disturbed(r)]
    if noisy:
        worst = max(r["foreign_cpus"] + r["steal_cpus"] for r in noisy)
        print(f"Disturbed: during {len(noisy)} of {len(session.records)} runs something else used the "
              f"machine (up to {worst:.2f} CPUs).")
    for (b, a), why in session.failures.items():
        print(f"Failed: {b} under {a}: {why}")


def write_csv(path: Path, summary: dict) -> None:
    names = list(dict.fromkeys(k for row in summary["rows"] for k in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(summary["rows"])


# --------------------------------------------------------------------------

def choose_allocators(args: argparse.Namespace) -> list[Allocator]:
    texts = [t for t in args.allocators.split(",") if t]
    if args.peers:
        names = list(peers.PEERS) if args.peers == "all" else args.peers.split(",")
        unknown = [name for name in names if name not in peers.PEERS]
        if unknown:
            raise SystemExit(f"compare: unknown peer: {', '.join(unknown)}")
        texts += peers.build_all(names, say=lambda text: print(text, file=sys.stderr))
    chosen = [parse_allocator(text, args.build) for text in dict.fromkeys(texts)]
    if len({a.name for a in chosen}) != len(chosen):
        raise SystemExit("compare: two allocators have the same name; use LABEL=…")
    for a in chosen:
        try:
            peers.probe(a.library, a.env)
        except peers.PeerError as error:
            raise SystemExit(f"compare: {a.name}: {error}") from error
    return chosen


def choose_benchmarks(args: argparse.Namespace) -> list[Benchmark]:
    names = args.benchmarks.split(",") if args.benchmarks else SUITES[args.suite]
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise SystemExit(f"compare: unknown benchmark: {', '.join(unknown)}; see --list")
    return [BENCHMARKS[name] for name in names]


def parse_args() -> argparse.Namespace:
    p = argparse.ArgumentParser(description="Compare allocators by interleaved benchmark runs.")
    p.add_argument("--allocators", default="system,hakmem", metavar="A,B…",
                   help="[LABEL=]BASE[:K=V]…; BASE is system, hakmem, hakmem-static, floor, a peer "
                        "or a path (default system,hakmem)")
    p.add_argument("--peers", metavar="all|A,B…", help="add peers, building them if necessary")
    p.add_argument("--reference", metavar="NAME", help="allocator to relate to (default the first)")
    p.add_argument("--suite", choices=SUITES, default="core")
    p.add_argument("--benchmarks", metavar="A,B…", help="instead of a suite")
    p.add_argument("--rounds", type=int, help="measured rounds (default 10, quick 3)")
    p.add_argument("--quick", action="store_true", help="small runs; for trying, not for figures")
    p.add_argument("--net", action="store_true", help="subtract each benchmark's own cost")
    p.add_argument("--seed", type=int, help="of the order of the runs (default random)")
    p.add_argument("--build", type=Path, default=REPO / "build", help="build folder")
    p.add_argument("--json", type=Path, metavar="FILE", help="write every run and the summary")
    p.add_argument("--csv", type=Path, metavar="FILE", help="write the summary")
    p.add_argument("--list", action="store_true", help="name benchmarks, suites and allocators")
    return p.parse_args()


def print_list() -> None:
    print("benchmarks:")
    for b in BENCHMARKS.values():
        print(f"  {b.name:<18} {b.program} {' '.join(b.full)}  ({b.what})")
    print("suites:")
    for name, members in SUITES.items():
        print(f"  {name:<18} {', '.join(members)}")
    print("allocators:\n  system, hakmem, hakmem-static, floor")
    built = peers.available()
    for name, peer in peers.PEERS.items():
        print(f"  {name:<18} {peer.version}{'' if name in built else ' (not built)'}")


def main() -> int:
    args = parse_args()
    if args.list:
        print_list()
        return 0
    args.build = args.build.resolve()
    rounds = args.rounds if args.rounds is not None else 3 if args.quick else 10
    if rounds < 1:
        raise SystemExit("compare: --rounds must be at least 1")
    benchmarks, allocators = choose_benchmarks(args), choose_allocators(args)
    for program in ["launch", *(b.program + a.suffix for b in benchmarks for a in allocators)]:
        if not (args.build / "bench" / program).exists():
            raise SystemExit(f"compare: {args.build / 'bench' / program} is not built")
    reference = args.reference or allocators[0].name
    if reference not in [a.name for a in allocators]:
        raise SystemExit(f"compare: the reference {reference} is not among the allocators")

    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.2 * cpus:
        print(f"Note: the machine is busy (load {load:.2f} on {cpus} CPUs).", file=sys.stderr)
    session = Session(benchmarks, allocators, args.build, args.quick, args.net, random.Random(seed))
    try:
        for number in range(rounds + 1):
            session.round(number)
    except KeyboardInterrupt:
        progress("")
        print("compare: interrupted; no result", file=sys.stderr)
        return 130

    summary = summarise(session, reference, rounds)
    print_table(summary)
    print_notes(session, summary, rounds)
    if args.csv:
        write_csv(args.csv, summary)
    if args.json:
        args.json.write_text(json.dumps({
            "schema": SCHEMA, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": describe_machine(), "rounds": rounds, "quick": args.quick, "net": args.net,
            "order_seed": seed,
            "benchmarks": [{"name": b.name, "program": b.program, "what": b.what,
                            "args": list(b.quick if args.quick else b.full)} for b in benchmarks],
            "allocators": [describe(a) for a in allocators],
            "disturbed_runs": sum(map(disturbed, session.records)),
            **summary, "runs": session.records}, indent=1, ensure_ascii=False) + "\n")
    return 1 if session.failures else 0


if __name__ == "__main__":
    sys.exit(main())
