#!/usr/bin/env python3
"""Do the benchmarks run? Every "ops" benchmark of the suites found, shortly.

    python3 test/bench/smoke.py --build build --lib build/libhakmem.so [NAME…]

Each benchmark runs with its quick arguments and the library preloaded. It must end with status
0 and print one JSON object with a positive number of ops, elapsed time and peak RSS; with
--net too if it supports that. Its speed does not matter here.

Benchmarks of kind "process" run foreign programs and are not tried. Programs that are not
built, or that need a missing command, are named; it is a failure if none is built, or if no
suite is found.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
TIMEOUT = 120  # seconds per run; a run takes far less than one


def find_benchmarks() -> list:
    sys.path.insert(0, str(BENCH))
    found = []
    for file in sorted(BENCH.glob("suite_*.py")):
        found += importlib.import_module(file.stem).BENCHMARKS
    return [b for b in found if b.kind == "ops"]


def complaint(benchmark, program: Path, library: Path, work: Path) -> str | None:
    """What is wrong with a quick run, or None."""
    arguments = [a.replace("{work}", str(work)) for a in benchmark.quick]
    if benchmark.prepare is not None:
        benchmark.prepare(work)
    command = [program, *arguments, "--json", *(["--net"] if benchmark.net else [])]
    try:
        run = subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(library)},
                             cwd=work, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"took more than {TIMEOUT} s"
    if run.returncode != 0:
        return f"status {run.returncode}: {run.stderr.strip()[-500:]}"
    if "cannot be preloaded" in run.stderr:
        return run.stderr.strip()
    try:
        record = json.loads(run.stdout)
    except json.JSONDecodeError as error:
        return f"no JSON: {error}: {run.stdout[:200]!r}"
    wanted = {"ops", "elapsed_s", benchmark.metric, benchmark.memory} - {"cpu_seconds"}  # the launcher's
    if benchmark.net:
        wanted.add("floor_ns_per_op")
    bad = sorted(k for k in wanted if not record.get(k, 0) > 0)
    return f"no positive {', '.join(bad)}" if bad else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="build folder")
    parser.add_argument("--lib", type=Path, required=True, help="the library to preload")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of benchmarks (all)")
    options = parser.parse_args()
    library = options.lib.resolve()
    if not library.exists():
        raise SystemExit(f"smoke: {library} does not exist")

    benchmarks = [b for b in find_benchmarks() if not options.names or b.name in options.names]
    ran = failed = 0
    with tempfile.TemporaryDirectory(prefix="hakmem-smoke-") as work:
        for b in benchmarks:
            lacking = [command for command in b.needs if shutil.which(command) is None]
            if lacking:
                print(f"left out: {b.suite}.{b.name}: no {', '.join(lacking)} here")
                continue
            program = (options.build / "bench" / b.program).resolve()
            if not program.exists():
                print(f"left out: {b.suite}.{b.name}: {b.program} is not built")
                continue
            wrong = complaint(b, program, library, Path(work))
            ran += 1
            failed += wrong is not None
            print(f"{'ok' if wrong is None else 'FAILED'}: {b.suite}.{b.name}"
                  + (f": {wrong}" if wrong is not None else ""), flush=True)
    print(f"{ran} ran, {failed} failed")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
