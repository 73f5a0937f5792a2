#!/usr/bin/env python3
"""Compare allocators: interleaved runs, medians, confidence intervals.

    python3 bench/compare.py                                hakmem and system, suite core
    python3 bench/compare.py --peers all                    … and every peer
    python3 bench/compare.py --allocators system,old=/tmp/libold.so,hakmem
    python3 bench/compare.py --allocators hakmem,off=hakmem:HAKMEM_WARM_POOL=0 --reference hakmem
    python3 bench/compare.py --benchmarks tiny_hot,larson --rounds 20 --net --json result.json

In every round each benchmark runs once under each allocator, in random order
and one directly after the other, so that drift of the machine affects all alike. The
result is the median over the rounds; the ratio to the reference has a 95 % interval.
README.md describes the method.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import agree
import deps
import instructions
import peers
import suites
from allocators import Allocator, describe, parse_allocator
from benchmark import Benchmark
from measure import Session, describe_machine, prepare
from output import print_details, print_notes, print_table, write_csv, write_mimalloc_csv
from schedule import LEAST_ROUNDS, MOST_ROUNDS, Schedule
from summary import summarise
from userfiles import check_writable

REPO = Path(__file__).resolve().parent.parent
SCHEMA = "hakmem-bench/2"
TRACE_MAGIC = b"HAKT"  # trace/format.h
QUICK_MINUTES = 4  # --quick ends within 5, including the run then under way, tables and charts


def choose_allocators(args: argparse.Namespace) -> list[Allocator]:
    texts = [t for t in args.allocators.split(",") if t]
    asked = len(texts)
    if args.peers:
        try:
            names = peers.chosen(args.peers.split(","))
        except ValueError as error:
            raise SystemExit(f"compare: {error}") from error
        texts += peers.build_all(names, say=lambda text: print(text, file=sys.stderr))
    chosen: list[Allocator] = []
    for text in dict.fromkeys(texts):
        a = parse_allocator(text, args.build)
        try:
            peers.probe(a.library, a.env)
        except (peers.PeerError, OSError) as error:
            if text in texts[:asked]:
                raise SystemExit(f"compare: {a.name}: {error}") from error
            print(f"compare: {a.name} left out: {error}", file=sys.stderr)
            continue
        chosen.append(a)
    if not chosen:
        raise SystemExit("compare: no allocator is left to measure")
    if len({a.name for a in chosen}) != len(chosen):
        raise SystemExit("compare: two allocators have the same name; use LABEL=…")
    return chosen


def choose_benchmarks(args: argparse.Namespace) -> list[Benchmark]:
    chosen = suites.choose((args.benchmarks or args.suite).split(","))
    if args.replay:
        if missing := [str(path) for path in args.replay if not path.is_file()]:
            raise SystemExit(f"compare: no such trace: {', '.join(missing)}")
        for path in args.replay:
            with path.open("rb") as file:
                if file.read(len(TRACE_MAGIC)) != TRACE_MAGIC:
                    raise SystemExit(f"compare: {path} is not a trace")
        names = [path.name for path in args.replay]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SystemExit(f"compare: several traces called {', '.join(twice)}: rows go by the file's name")
        chosen = [Benchmark(f"replay:{path.name}", "replay", (str(path),), (str(path), "--quick"),
                            "a recorded program", suite="replay", net=True) for path in args.replay]
    kept = []
    for b in chosen:
        if missing := suites.lacking(b):
            print(f"compare: {b.name} left out: no {', '.join(missing)} here", file=sys.stderr)
            continue
        try:
            prepare(b, args.build)
        except (OSError, RuntimeError) as error:
            print(f"compare: {b.name} left out: {error}", file=sys.stderr)
            continue
        kept.append(b)
    return kept


def parse_args() -> argparse.Namespace:
    p = argparse.ArgumentParser(description="Compare allocators by interleaved benchmark runs.")
    p.add_argument("--allocators", default="system,hakmem", metavar="A,B…",
                   help="[LABEL=]BASE[:K=V]…; BASE is system, hakmem, hakmem-secure, hakmem-static, "
                        "floor, a peer or a path (default system,hakmem)")
    p.add_argument("--peers", metavar=f"{'|'.join(peers.GROUPS)}|A,B…",
                   help="add peers, building them if necessary")
    p.add_argument("--reference", metavar="NAME", help="allocator to relate to (default the first)")
    p.add_argument("--suite", default="core", metavar="A,B…",
                   help=f"suites or selections: all, {', '.join([*suites.SUITES, *suites.SELECTIONS])}")
    p.add_argument("--benchmarks", metavar="A,B…", help="instead of a suite")
    p.add_argument("--rounds", type=int, help="measured rounds (default 10, quick 3; with --budget at most "
                   f"that many, default {MOST_ROUNDS})")
    p.add_argument("--budget", type=float, metavar="MINUTES",
                   help=f"end within that time: {LEAST_ROUNDS} rounds of everything, then more of what is "
                        f"still unsure (quick: {QUICK_MINUTES} minutes, 1 round)")
    p.add_argument("--replay", type=Path, action="append", metavar="TRACE",
                   help="replay recorded traces instead (see trace/README.md)")
    p.add_argument("--quick", action="store_true", help="small runs; for trying, not for figures")
    p.add_argument("--net", action="store_true", help="subtract each benchmark's own cost")
    p.add_argument("--instructions", action="store_true",
                   help=f"count instructions per op under callgrind as well (suites {', '.join(instructions.SUITES)}; slow)")
    p.add_argument("--seed", type=int, help="of the order of the runs (default random)")
    p.add_argument("--build", type=Path, default=REPO / "build", help="build folder")
    p.add_argument("--json", type=Path, metavar="FILE", help="write every run and the summary")
    p.add_argument("--compact", action="store_true", help="the JSON with the essentials of each run only")
    p.add_argument("--csv", type=Path, metavar="FILE", help="write the summary")
    p.add_argument("--csv-mimalloc", type=Path, metavar="FILE",
                   help="write every run, with the columns of mimalloc-bench")
    p.add_argument("--html", type=Path, metavar="FILE", help="write the page of report.py")
    p.add_argument("--out", type=Path, metavar="FOLDER",
                   help="write results.json, .csv, .html, the charts .svg and runs.csv there")
    p.add_argument("--agree", nargs=2, type=Path, metavar=("A.json", "B.json"),
                   help="run nothing: do two results of the same build agree within their intervals?")
    p.add_argument("--list", action="store_true", help="name benchmarks, suites and allocators")
    p.set_defaults(pictures=True)
    return p.parse_args()


ESSENTIALS = ("round", "benchmark", "allocator", "wall_s", "user_s", "sys_s", "maxrss_kib", "mean_rss_kib",
              "minor_faults", "major_faults")  # of each run, in addition to its metric and memory


def short(record: dict) -> dict:
    return {k: float(f"{v:.6g}") if isinstance(v, float) else short(v) if isinstance(v, dict) else v
            for k, v in record.items()}


def described_runs(session: Session, essentials: bool) -> dict:
    """Every run: with all keys, or as columns of the essential keys."""
    records = [short(r) for r in session.records]
    if not essentials:
        return {"runs": records}
    keys = {b.name: (b.metric, b.memory) for b in session.benchmarks}
    rows = [[r[k] for k in ESSENTIALS] + [r[k] for k in keys[r["benchmark"]]] + [r.get("loop_s", 0.0), int(session.disturbed(r))]
            for r in records if r["benchmark"] in keys]
    return {"run_columns": [*ESSENTIALS, "time", "memory", "loop_s", "disturbed"], "runs": rows}


def print_list() -> None:
    print("benchmarks:")
    for b in suites.BENCHMARKS.values():
        print(f"  {b.name:<18} {b.suite}: {b.program} {' '.join(b.full)}  ({b.what})")
    print("selections:")
    for name, members in suites.SELECTIONS.items():
        print(f"  {name:<18} {', '.join(members)}")
    print("allocators:\n  system, hakmem, hakmem-secure, hakmem-static, floor")
    built = peers.available()
    for name, peer in peers.PEERS.items():
        print(f"  {name:<18} {peer.version}{'' if name in built else ' (not built)'}")


def anywhere(word: str) -> str:
    """A word of a command, without the paths of this machine."""
    path = Path(word)
    if not path.is_absolute():
        return word
    return str(path.relative_to(REPO)) if path.is_relative_to(REPO) else path.name


def document(args: argparse.Namespace, session: Session, summary: dict, seed: int) -> dict:
    """The content of the JSON file."""
    counts = [row["rounds"] for row in summary["rows"] if "rounds" in row] or [0]
    return {"schema": SCHEMA, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": describe_machine(), "rounds": min(counts), "most_rounds": max(counts), "quick": args.quick, "net": args.net,
            "order_seed": seed,
            "benchmarks": [{"name": b.name, "suite": b.suite, "program": anywhere(b.program), "what": b.what,
                            "args": [anywhere(word) for word in (b.quick if args.quick else b.full)]}
                           for b in session.benchmarks],
            "allocators": [describe(a) for a in session.allocators],
            "disturbed_runs": sum(map(session.disturbed, session.records)), "repeated_runs": session.repeated,
            **{key: [short(r) for r in value] if isinstance(value, list) else value
               for key, value in summary.items()},
            **described_runs(session, args.compact)}


def files_to_write(args: argparse.Namespace) -> tuple[list[Path], ...]:
    """CSV, runs in mimalloc-bench's format, JSON, pages, charts, scatter plots of the means."""
    kinds = tuple([path] if path else [] for path in (args.csv, args.csv_mimalloc, args.json, args.html, None, None))
    if args.out:
        for files, name in zip(kinds, ("results.csv", "runs.csv", "results.json", "results.html", "results.svg",
                                       "results-means.svg")):
            files.append(args.out / name)
    return kinds if args.pictures else (*kinds[:3], [], [], [])


def check_files(args: argparse.Namespace) -> None:
    """Checked before anything runs, so that no measurements are lost at the end."""
    try:
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
        for path in (path for files in files_to_write(args) for path in files):
            check_writable(path)
    except OSError as error:
        raise SystemExit(f"compare: {error.filename} cannot be written: {error.strerror}") from error


def check_pictures(args: argparse.Namespace) -> None:
    """Fetches the drawing packages if needed, before the budget starts: it may take minutes."""
    if (args.out or args.html) and not deps.there("matplotlib"):
        pictures = [str(path) for files in files_to_write(args)[3:] for path in files]
        print(f"compare: left out: {', '.join(pictures)}", file=sys.stderr)
        args.pictures = False


def write_files(args: argparse.Namespace, session: Session, summary: dict, seed: int) -> bool:
    """False if a file could not be written; a message has then been printed."""
    csvs, runs, jsons, pages, charts, scatters = files_to_write(args)
    for path in csvs:
        write_csv(path, summary)
    for path in runs:
        write_mimalloc_csv(path, session)
    text = json.dumps(document(args, session, summary, seed), indent=None if args.compact else 1,
                      ensure_ascii=False) + "\n"
    for path in jsons:
        path.write_text(text, encoding="utf-8")
    failed: list[Path] = []
    drawn = [*((["report.py"], p) for p in pages), *((["plot.py"], p) for p in charts)]
    if len(session.allocators) > 1:
        drawn += [(["plot.py", "--means"], p) for p in scatters]
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
        file.write(text)
        file.flush()
        for (tool, *flags), path in drawn:
            # Run as processes, because they restart themselves in build/venv if they have to.
            if subprocess.run([sys.executable, "-B", str(REPO / "bench" / tool), *flags, file.name, str(path)]).returncode:
                print(f"compare: {path} could not be written", file=sys.stderr)
                failed.append(path)
    if args.out:
        written = [p.name for p in (*csvs, *runs, *jsons, *(p for _, p in drawn)) if p.parent == args.out and p not in failed]
        print(f"wrote to {args.out}: {', '.join(written)} (runs.csv as mimalloc-bench has it)")
    return not failed


def main() -> int:
    args = parse_args()
    if args.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # | head
        print_list()
        return 0
    if args.agree:
        return agree.check(args.agree)
    args.build = args.build.resolve()
    rounds = args.rounds if args.rounds is not None else 3 if args.quick else MOST_ROUNDS if args.budget else 10
    if rounds < 1:
        raise SystemExit("compare: --rounds must be at least 1")
    if args.budget is not None and args.budget <= 0:
        raise SystemExit("compare: --budget must be above 0")
    check_files(args)
    benchmarks = choose_benchmarks(args)
    if not benchmarks:
        raise SystemExit("compare: no benchmark is left")
    allocators = choose_allocators(args)
    linked = [a.name for a in allocators if a.suffix]
    if linked and (plain := [b.name for b in benchmarks if not b.static]):
        raise SystemExit(f"compare: {', '.join(linked)}: only the suite core is linked to the library, not {', '.join(plain)}")
    own = [b for b in benchmarks if b.kind == "ops" and not b.program.endswith(".py")]
    for program in ["launch", *(b.program + (a.suffix if b.static else "") for b in own for a in allocators)]:
        if not (args.build / "bench" / program).exists():
            raise SystemExit(f"compare: {args.build / 'bench' / program} is not built")
    reference = args.reference or allocators[0].name
    if reference not in [a.name for a in allocators]:
        raise SystemExit(f"compare: the reference {reference} is not among the allocators")

    check_pictures(args)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.2 * cpus:
        print(f"Note: the machine is busy (load {load:.2f} on {cpus} CPUs).", file=sys.stderr)
    session = Session(benchmarks, allocators, args.build, args.quick, args.net, random.Random(seed))
    schedule = Schedule(session, rounds, args.budget or (QUICK_MINUTES if args.quick else 0), args.quick, reference)
    schedule.run()
    benchmarks = session.benchmarks
    if not benchmarks:
        print("compare: nothing was measured", file=sys.stderr)
        return 130 if schedule.interrupted else 1
    summary = summarise(session, reference)
    if args.instructions and not schedule.interrupted:
        try:
            instructions.add(session, summary["rows"])
        except KeyboardInterrupt:
            print("\nInterrupted: not all instructions are counted.", file=sys.stderr)
    print_table(summary)
    print_details(summary)
    print_notes(session, summary)
    if schedule.interrupted:
        return 130  # keeps the files of earlier runs, which are better than part of this one
    written = write_files(args, session, summary, seed)
    return 1 if session.failures or not written else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = main()
        sys.stdout.flush()
    except OSError as error:  # | head, a full disk
        sys.stdout = open(os.devnull, "w")
        if isinstance(error, BrokenPipeError):
            sys.exit(141)
        sys.exit(f"compare: {error.filename or 'output'}: {error.strerror}")
    sys.exit(status)
