#!/usr/bin/env python3
"""What recording costs: CPU time and bytes per event, by interleaved runs.

    python3 trace/overhead.py [--build build] [--rounds 5]

CPU time of the process (user and system), as a busy machine stretches the other kind.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
from userfiles import loadable  # noqa: E402

PROGRAMS = {
    "bench_tiny_hot 50000000": "one thread, hot",
    "bench_random_mixed 20000000": "one thread, 16 to 1,040 B in random order",
    "larson 1 8 1000 5000 100 4141 2": "two threads that do nothing else",
}


def cpu_seconds(build: Path, command: list[str], settings: dict[str, str], usage: Path) -> tuple[float, str]:
    """Of one run, and what it printed."""
    words = [word for k, v in settings.items() for word in ("--env", f"{k}={v}")]
    done = subprocess.run([build / "bench" / "launch", "--out", usage, *words, "--", *command], check=True,
                          capture_output=True, text=True)
    used = json.loads(usage.read_text())
    return used["user_s"] + used["sys_s"], done.stdout


def measure(build: Path, program: str, rounds: int, folder: Path) -> dict[str, float]:
    name, *arguments = program.split()
    command = [str(build / "bench" / name), *arguments, "--json"]
    trace, usage = folder / "trace", folder / "usage"
    recorder = {"LD_PRELOAD": loadable(build / "libhakmem-record.so")}
    settings = {"without": {}, "idle": recorder, "recorded": recorder | {"HAKTRACE_FILE": str(trace)}}
    found: dict[str, list[float]] = {kind: [] for kind in settings}
    for _ in range(rounds):
        for kind, extra in settings.items():
            trace.unlink(missing_ok=True)
            seconds, printed = cpu_seconds(build, command, extra, usage)
            found[kind].append(seconds * 1e9 / json.loads(printed)["ops"])  # larson's vary
    told = subprocess.run([build / "bench" / "trace_summary", trace, "--json"], check=True, capture_output=True)
    return {kind: statistics.median(v) for kind, v in found.items()} | {
        "spread": statistics.stdev(a - b for a, b in zip(found["recorded"], found["without"])) if rounds > 1 else 0,
        "bytes": json.loads(told.stdout)["bytes_per_event"]}


def main() -> None:
    parser = argparse.ArgumentParser(description="What recording costs.")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    print("| CPU ns per event | without | preloaded only | recorded | costs | bytes per event |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="hakmem-trace-") as folder:
        for program, what in PROGRAMS.items():
            m = measure(args.build, program, args.rounds, Path(folder))
            print(f"| `{program}`: {what} | {m['without']:.1f} | {m['idle']:.1f} | {m['recorded']:.1f} | "
                  f"{m['recorded'] - m['without']:.1f} ± {m['spread']:.1f} | {m['bytes']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
