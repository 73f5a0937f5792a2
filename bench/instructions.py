"""Instructions per operation, counted by callgrind: a figure without noise.

It counts everything that the process executes in user space, including its start and the
benchmark itself, so only differences between allocators are meaningful. Threads take turns
under valgrind, and the costs of the kernel and the caches are not included.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from allocators import Allocator
from benchmark import Benchmark
from measure import RunError, Session, command_of, progress
import peers

SUITES = ("core", "standard")
TIMEOUT = 300  # seconds; a quick run takes some fifty times as long as without valgrind


def count(b: Benchmark, a: Allocator, build: Path) -> float:
    """Instructions per op of one quick run."""
    environment = {**{k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}, **a.env}
    if a.library is not None:
        environment["LD_PRELOAD"] = peers.preload(a.library)
    try:
        done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                               *command_of(b, a, build, quick=True, net=False)], env=environment,
                              capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                              timeout=TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"no end within {TIMEOUT} s") from error
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or collected is None:
        raise RunError(f"exit {done.returncode}")
    return int(collected[1]) / json.loads(done.stdout)["ops"]


def add(session: Session, rows: list[dict]) -> None:
    """Adds instr_per_op to the rows; names the benchmarks that do not run under valgrind."""
    if shutil.which("valgrind") is None:
        print("compare: no instructions are counted: no valgrind here", file=sys.stderr)
        return
    benchmarks = {b.name: b for b in session.benchmarks if b.kind == "ops" and b.suite in SUITES}
    allocators = {a.name: a for a in session.allocators}
    for row in rows:
        b = benchmarks.get(row["benchmark"])
        if b is None or "failure" in row:
            continue
        progress(f"instructions: {b.name} {row['allocator']}")
        try:
            row["instr_per_op"] = count(b, allocators[row["allocator"]], session.build)
        except (RunError, ValueError, KeyError, OSError) as error:
            progress("")
            print(f"{b.name} under {row['allocator']} and valgrind: failed: {error}", file=sys.stderr)
    progress("")
