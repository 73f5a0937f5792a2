#!/usr/bin/env python3
"""Runs other people's checks under HAKMEM: run.py --lib FILE... [--short] [CHECK...]

Each program of a check (checks.py) runs on the system allocator first. What does not do
well there is left out, and named. Then it runs with each library preloaded, and must do
as well. Exit status 0: everything that could be run did; 77: nothing could be run; else
something differs. `run.py --list` prints the table.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import re
import shutil
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "preload")]

from checks import CHECKS, Check  # noqa: E402
from harness import Failure, Harness, Skip, tail  # noqa: E402

JOBS = 2


@dataclasses.dataclass
class Outcome:
    """What a program did: success or not, the facts it printed, and how to show it."""
    well: bool
    facts: list[str]
    told: str
    killed: bool = False


@dataclasses.dataclass
class Count:
    same: int = 0
    left_out: list[str] = dataclasses.field(default_factory=list)
    differ: list[str] = dataclasses.field(default_factory=list)


def run(check: Check, harness: Harness, command: list[str], under: bool) -> Outcome:
    how = {"limit": check.limit, "status": None, "extra": check.environment}
    try:
        done = harness.under(*command, served=False, **how) if under else harness.plain(*command, **how)
        # A driver may leave all allocation to its children: a report of 0 is enough.
        if under and check.counted and not os.path.exists(os.path.join(harness.stats, f"{done.pid}.json")):
            raise Failure(f"{command[0]} wrote no statistics: HAKMEM was not in it")
    except Failure as failure:
        return Outcome(False, [], str(failure), killed=True)
    output = (done.out + done.err).decode("utf-8", "replace")
    well = done.status == 0 and check.says in output
    facts = re.findall(check.facts, output) if check.facts else []
    told = f"exit status {done.status}, facts {facts[-3:]}\n{tail(done.out)}{tail(done.err)}"
    return Outcome(well, facts, told, killed=done.status < 0)


def judge(check: Check, harnesses: dict[str, Harness], name: str, command: list[str], count: Count) -> None:
    """Runs one program under the system's allocator and under each library."""
    first = next(iter(harnesses.values()))
    plain = run(check, first, command, under=False)
    if not plain.well:
        count.left_out.append(name)
        return
    for library, harness in harnesses.items():
        got = run(check, harness, command, under=True)
        if not got.well and not got.killed and check.timing:
            got = run(check, harness, command, under=True)
        if not got.well or got.facts != plain.facts:
            count.differ.append(f"{name} under {library}: {got.told}\nwithout: facts {plain.facts[-3:]}")
            return
    count.same += 1


def run_check(check: Check, libraries: dict[str, str], short: bool) -> Count | None:
    """Returns None if it cannot be run here, and says so."""
    folder = tempfile.mkdtemp(prefix=f"hakmem-outside-{check.name}-")
    start = time.monotonic()
    try:
        built = os.path.join(folder, "built")
        os.mkdir(built)
        harnesses = {}
        for name, library in libraries.items():
            os.mkdir(os.path.join(folder, name))
            harnesses[name] = Harness(library, os.path.join(folder, name), {})
        try:
            programs = check.programs(built, short)
        except Skip as reason:
            print(f"left out: {check.name}: {reason} (package {check.package})", flush=True)
            return None
        except IndexError:
            print(f"left out: {check.name}: package {check.package} is not installed", flush=True)
            return None
        if not programs:
            print(f"left out: {check.name}: package {check.package} is not installed", flush=True)
            return None
        count = Count()
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            for future in [pool.submit(judge, check, harnesses, name, command, count)
                           for name, command in programs.items()]:
                future.result()
        print(f"{'FAILED' if count.differ else 'ok'}: {check.name}: {count.same} of {len(programs)} programs do as well "
              f"under {', '.join(libraries)} as without; {time.monotonic() - start:.0f} s", flush=True)
        if count.left_out:
            print(f"  left out, they fail on the system allocator: {' '.join(sorted(count.left_out))}", flush=True)
        for text in count.differ:
            print(f"  {text}", flush=True)
        return count
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(checks: list[Check]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", action="append", default=[], help="a library to preload")
    parser.add_argument("--short", action="store_true", help="a selection that takes about a minute")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("check", nargs="*", metavar="CHECK", help="of checks (all)")
    args = parser.parse_args()
    names = [c.name for c in checks]
    if unknown := [name for name in args.check if name not in names]:
        parser.error(f"no check {unknown[0]}; there are: {' '.join(names)}")
    if args.list:
        for check in checks:
            print(f"{check.name:12}{check.package:26}{'short too' if check.short else ''}")
        return 0
    missing = [library for library in args.lib if not os.path.exists(library)]
    if not args.lib or missing:
        parser.error(f"no such library: {missing[0]}" if missing else "give --lib")
    if len({os.path.basename(library) for library in args.lib}) < len(args.lib):
        parser.error("two libraries have one name")
    libraries = {os.path.basename(library).removesuffix(".so"): os.path.abspath(library) for library in args.lib}
    chosen = [c for c in checks if c.name in args.check or (not args.check and (c.short or not args.short))]
    counts = [count for check in chosen if (count := run_check(check, libraries, args.short))]
    same = sum(count.same for count in counts)
    differ = sum(len(count.differ) for count in counts)
    print(f"{same} programs of {len(counts)} checks do as well, {differ} do not")
    if not counts or same + differ == 0:
        print("skipped: none of the packages is there (tools/setup.sh outside)")
        return 77
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(CHECKS))
