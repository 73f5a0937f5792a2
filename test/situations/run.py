#!/usr/bin/env python3
"""Runs the situations with one or more allocators.

    run.py --program SITUATIONS [--group GROUP]... [--case GROUP.CASE]... ALLOCATOR...

ALLOCATOR is 'system' or a library to preload. Each case is a process of its own
with a time limit. A case passes with status 0 and nothing on stderr, is skipped
with 77, and fails otherwise; a line says how. Then one table: cases passed per
group, the allocators side by side. The exit status is 1 if any case failed, 77 if
none passed.
"""

import argparse
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

variables: dict[str, str] = {}  # added to every case's environment
LIMIT = 60  # seconds for one case; the longest takes about one when the machine is idle


@dataclass
class Outcome:
    case: str
    verdict: str  # passed, failed, skipped
    why: str
    seconds: float


def run(program: str, library: str | None, case: str) -> Outcome:
    environment = {"PATH": os.environ["PATH"]} | variables
    if "SITUATIONS_LONG" in os.environ:
        environment["SITUATIONS_LONG"] = "1"
    if library:
        environment["LD_PRELOAD"] = library
    started = time.monotonic()
    # A session of its own, so that whatever a case leaves behind is ended with it.
    with subprocess.Popen([program, case], env=environment, stdin=subprocess.DEVNULL, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          start_new_session=True) as child:
        try:
            out, err = child.communicate(timeout=LIMIT)
            status: int | None = child.returncode
        except subprocess.TimeoutExpired:
            status = None
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        seconds = time.monotonic() - started
    err = err.strip()
    if status is None:
        return Outcome(case, "failed", f"did not end within {LIMIT} s {err}", seconds)
    if status == 77:
        return Outcome(case, "skipped", out.strip().removeprefix("skipped: "), seconds)
    if status == 0 and not err:
        return Outcome(case, "passed", "", seconds)
    how = f"status {status}" if status >= 0 else signal.Signals(-status).name
    return Outcome(case, "failed", f"{how}: {err}", seconds)


def run_all(program: str, library: str | None, cases: list[str], jobs: int) -> list[Outcome]:
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda case: run(program, library, case), cases))


def select(program: str, groups: list[str], names: list[str]) -> list[str]:
    cases = subprocess.run([program, "--list"], text=True, capture_output=True,
                           check=True).stdout.split()
    unknown = ({*names} - {*cases}) | ({*groups} - {case.split(".")[0] for case in cases})
    if unknown or len(cases) != len({*cases}):
        raise SystemExit(f"no such group or case, or two of one name: {unknown}")
    if not cases:
        raise SystemExit(f"{program} lists no case")
    if not groups and not names:
        return cases
    return [case for case in cases if case in names or case.split(".")[0] in groups]


def table(results: dict[str, list[Outcome]], cases: list[str]) -> None:
    """Cases passed per group; a skipped case counts as neither passed nor failed."""
    width = max(10, *(len(name) + 2 for name in results))
    print(f"{'passed':12}{'cases':>6}" + "".join(f"{name:>{width}}" for name in results))
    for group in list(dict.fromkeys(case.split(".")[0] for case in cases)) + ["all"]:
        of_group = [case for case in cases if group in ("all", case.split(".")[0])]
        cells = [sum(o.verdict == "passed" for o in outcomes if o.case in of_group)
                 for outcomes in results.values()]
        print(f"{group:12}{len(of_group):6}" + "".join(f"{cell:{width}}" for cell in cells))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--slowest", type=int, default=0, help="also name the N slowest cases")
    parser.add_argument("allocators", nargs="+", metavar="ALLOCATOR")
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    if not os.access(program, os.X_OK):
        parser.error(f"--program {args.program} is not there, or no program")
    variables.update(pair.split("=", 1) for pair in args.set)
    cases = select(program, args.group, args.case)
    results: dict[str, list[Outcome]] = {}
    for allocator in args.allocators:
        library = None if allocator == "system" else os.path.abspath(allocator)
        if library and not os.path.exists(library):
            raise SystemExit(f"no such library: {library}")
        name = os.path.basename(allocator).removeprefix("lib").removesuffix(".so")
        if name in results:
            raise SystemExit(f"two libraries are called {name}")
        started = time.monotonic()
        outcomes = results[name] = run_all(program, library, cases, args.jobs)
        for o in outcomes:
            if o.verdict != "passed":
                print(f"{name}: {o.verdict}: {o.case}: {o.why}")
        for o in sorted(outcomes, key=lambda o: -o.seconds)[:args.slowest]:
            print(f"{name}: {o.seconds:.2f} s: {o.case}")
        counts = [f"{sum(o.verdict == verdict for o in outcomes)} {verdict}"
                  for verdict in ("passed", "failed", "skipped")]
        print(f"{name}: {', '.join(counts)} in {time.monotonic() - started:.0f} s")
    if len(results) > 1 or len(cases) > 1:
        table(results, cases)
    verdicts = {o.verdict for outcomes in results.values() for o in outcomes}
    if verdicts == {"skipped"}:
        print(f"skipped: all {len(cases)} cases")
        return 77
    return int("failed" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
