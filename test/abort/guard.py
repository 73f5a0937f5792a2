#!/usr/bin/env python3
"""Runs one case of guard.c and looks at the report.

    guard.py [--lib LIBHAKMEM] --program GUARD CASE SIGNAL STACK...

The first line on stderr must be the one that the program announces. The stacks named must
follow in that order, each with frames in the program. The program must die by SIGNAL
(0: end with status 0 and say nothing).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys


def problems(program: str, done: subprocess.CompletedProcess[str], number: int,
             stacks: list[str]) -> list[str]:
    wrong = []
    if done.returncode != -number:
        wrong.append(f"status {done.returncode} instead of {-number}")
    announced = [line[len("expect: "):] for line in done.stdout.splitlines()]
    lines = done.stderr.splitlines()
    if lines[:1] != announced:
        wrong.append(f"expected {announced}, got {lines[:1]}")
    titles = [line.strip(" :") for line in lines[1:] if not line.startswith("    #")]
    if titles != stacks:
        wrong.append(f"stacks {titles} instead of {stacks}")
    for title in stacks:
        text = done.stderr.partition(f"  {title}:\n")[2]
        frames = re.match(r"(    #\d+ 0x[0-9a-f]+.*\n)*", text)
        if not frames or not re.search(re.escape(program) + r"\+0x[0-9a-f]+\n", frames[0]):
            wrong.append(f"no frame of the program under {title!r}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib", help="default: the program has one linked in")
    parser.add_argument("--program", required=True)
    parser.add_argument("case")
    parser.add_argument("signal")
    parser.add_argument("stacks", nargs="*")
    args = parser.parse_args()
    environment = {"PATH": os.environ["PATH"], "HAKMEM_GUARD": "1/1"}
    if args.lib:
        environment["LD_PRELOAD"] = os.path.abspath(args.lib)
    done = subprocess.run([args.program, args.case], env=environment, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=50)
    number = signal.Signals[args.signal].value if args.signal != "0" else 0
    wrong = problems(os.path.realpath(args.program), done, number, args.stacks)
    for text in wrong:
        print("FAILED:", text)
    print(done.stdout, done.stderr, sep="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
