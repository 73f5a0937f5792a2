#!/usr/bin/env python3
"""Runs one misuse and compares what HAKMEM says, to the letter.

    run.py --lib LIBHAKMEM --program MISUSE [--go-on | --warned] [--deaf] CASE FUNCTION

The program announces the line on stdout. Without --go-on it must die by
SIGABRT; with it (HAKMEM_ABORT=0), or with --warned, it must survive. Both times the line must be
all that is on stderr. With --deaf nobody reads what is said there, and all else is as without.
"""

import argparse
import os
import signal
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--go-on", action="store_true")
    parser.add_argument("--warned", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("case")
    parser.add_argument("function")
    args = parser.parse_args()
    environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": os.path.abspath(args.lib)}
    environment |= dict(pair.split("=", 1) for pair in args.set)
    if args.go_on:
        environment["HAKMEM_ABORT"] = "0"
    stderr = subprocess.PIPE
    if args.deaf:
        reader, stderr = os.pipe()
        os.close(reader)
    done = subprocess.run([args.program, args.case, args.function], env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=stderr, timeout=50)
    announced = [line[len("expect: "):] for line in done.stdout.splitlines()
                 if line.startswith("expect: ")]
    wrong = []
    if len(announced) != 1:
        wrong.append("the program announced nothing")
    elif not args.deaf and done.stderr != announced[0] + "\n":
        wrong.append(f"expected: {announced[0]!r}\n     got: {done.stderr!r}")
    if args.go_on or args.warned:
        if done.returncode != 0 or not done.stdout.endswith("survived\n"):
            wrong.append(f"did not survive: status {done.returncode}")
    elif done.returncode != -signal.SIGABRT:
        wrong.append(f"status {done.returncode} instead of SIGABRT")
    elif "survived" in done.stdout:
        wrong.append("went on before it aborted")
    for text in wrong:
        print("FAILED:", text)
    if not wrong:
        print("ok:", announced[0])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
