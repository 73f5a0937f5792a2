#!/usr/bin/env python3
"""How many misuses of the heap does an allocator stop?

    score.py --program MISUSE_CASES [--at-least N] [--list-uncaught] ALLOCATOR...

ALLOCATOR is 'system' or a library to preload. A misuse is caught if the process
is killed by a signal, ends with a status other than 0 or says something on
stderr; the program itself says nothing there. A run that does not end within
the limit is a hang, which is not caught. With --at-least the exit status is 1
if an allocator catches fewer.
"""

import argparse
import concurrent.futures
import os
import signal
import subprocess
import sys

LIMIT = 20  # seconds for one misuse
MISSED = {"": "", "HANG": " (hangs)", "TARGET": " (malloc returns the address written)"}


def judge(program, library, case):
    """What caught the misuse; a key of MISSED if nothing did: '' or what else happened."""
    environment = {"PATH": os.environ["PATH"]}
    if library:
        environment["LD_PRELOAD"] = library
    try:
        done = subprocess.run([program, case], env=environment, stdin=subprocess.DEVNULL, text=True,
                              errors="replace", capture_output=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return "HANG"
    if done.returncode in (4, 5, 64):
        raise SystemExit(f"{case}: cannot be run: {done.stdout}{done.stderr}")
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    if done.returncode > 0:
        return "refused"
    if "object" in done.stderr and "LD_PRELOAD" in done.stderr:
        raise SystemExit(f"{library} cannot be preloaded: {done.stderr}")
    if done.stderr:
        return "message"
    return "TARGET" if "target returned" in done.stdout else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--at-least", type=int, default=0)
    parser.add_argument("--list-uncaught", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("allocators", nargs="+", metavar="ALLOCATOR")
    args = parser.parse_args()
    if not os.access(args.program, os.X_OK):
        parser.error(f"--program {args.program} is not there, or no program")
    args.program = os.path.abspath(args.program)
    cases = subprocess.run([args.program, "--list"], text=True, capture_output=True,
                           check=True).stdout.split()
    results = {}
    for allocator in args.allocators:
        library = None if allocator == "system" else os.path.abspath(allocator)
        if library and not os.path.exists(library):
            raise SystemExit(f"no such library: {library}")
        name = os.path.basename(allocator).removeprefix("lib").removesuffix(".so")
        if name in results:
            raise SystemExit(f"two libraries are called {name}")
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            found = pool.map(lambda case: judge(args.program, library, case), cases)
            results[name] = dict(zip(cases, found))

    kinds = list(dict.fromkeys(case.split(".")[0] for case in cases))
    width = max(8, *(len(name) + 1 for name in results))
    print(f"{'kind':22}{'cases':>6}" + "".join(f"{name:>{width}}" for name in results))

    def caught(result, kind=None):
        return sum(how not in MISSED for case, how in result.items()
                   if kind is None or case.split(".")[0] == kind)

    for kind in kinds:
        number = sum(case.split(".")[0] == kind for case in cases)
        print(f"{kind:22}{number:6}"
              + "".join(f"{caught(result, kind):{width}}" for result in results.values()))
    print(f"{'caught':22}{len(cases):6}"
          + "".join(f"{caught(result):{width}}" for result in results.values()))
    for how in sorted({how for result in results.values() for how in result.values() if how}):
        counts = [list(result.values()).count(how) for result in results.values()]
        print(f"{'  ' + how:28}" + "".join(f"{count:{width}}" for count in counts))
    if args.list_uncaught:
        for name, result in results.items():
            for case, how in result.items():
                if how in MISSED:
                    print(f"not caught by {name}: {case}{MISSED[how]}")
    short = [name for name, result in results.items() if caught(result) < args.at_least]
    for name in short:
        print(f"FAILED: {name} catches {caught(results[name])}, not the {args.at_least} it must")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
