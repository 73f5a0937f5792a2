#!/usr/bin/env python3
"""Explores the Promela models of the lock-free protocols with spin.

    run.py --list                       every test, "NAME" or "NAME.VARIANT" a line
    run.py [--work FOLDER] [TEST...]    run those tests, all by default

A test without variant must be explored completely without an error. When all such tests
of a model's file are run, each statement must be reached by one of them, unless its
line says "not reached" and why. A variant
leaves out one step of the protocol (spin -DBROKEN_variant): the checker must find a
violated assertion or a cycle without progress, which shows that the model can
detect the error.

Each model declares its tests in its first comment:
    // model NAME [-Dmacro...] [ltl=FORMULA]
    // broken NAME BROKEN_variant: what is wrong
Exit status: 0 all well, 1 not, 77 spin or a C compiler is missing.
"""

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY_MB = 1024
SECONDS = 400


class Test:
    def __init__(self, file, name, options, variant=None):
        self.file, self.name, self.variant = file, name, variant
        self.defines = [o for o in options if o.startswith("-D")]
        self.ltl = next((o[4:] for o in options if o.startswith("ltl=")), None)
        if variant:
            self.defines.append("-DBROKEN_" + variant)
        self.title = name + ("." + variant if variant else "")


def tests():
    found = []
    for file in sorted(f for f in os.listdir(HERE) if f.endswith(".pml")):
        with open(os.path.join(HERE, file)) as opened:
            text = opened.read()
        declared = set()
        for name, options in re.findall(r"^// model (\w+)(.*)$", text, re.M):
            found.append(Test(file, name, options.split()))
            for variant in re.findall(rf"^// broken {name} BROKEN_(\w+):", text, re.M):
                found.append(Test(file, name, options.split(), variant))
                declared.add(variant)
        used = set(re.findall(r"BROKEN_(\w+)", re.sub(r"//.*", "", text)))
        if used != declared:
            sys.exit(f"{file}: declared and used variants differ: {sorted(used ^ declared)}")
    titles = [test.title for test in found]
    if len(titles) != len(set(titles)):
        sys.exit("two tests of one name")
    return found


def call(command, folder):
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=SECONDS)
    return done.returncode, done.stdout


def build(test, folder):
    """Builds the verifier of a test; returns what went wrong, or None."""
    model = os.path.join(HERE, test.file)
    status, output = call(["spin", *test.defines, "-a", model], folder)
    if status != 0 or "Error" in output:
        return "spin -a: " + output
    flags = [f"-DMEMLIM={MEMORY_MB}", "-DVECTORSZ=2048", "-DCOLLAPSE"]
    flags += ["-DNFAIR=3"] if test.ltl else ["-DSAFETY", "-DNOCLAIM"]
    status, output = call(["gcc", "-O2", "-w", *flags, "-o", "pan", "pan.c"], folder)
    return "gcc: " + output if status != 0 else None


def explore(test, folder):
    # -m: the longest path; -w: 2^22 hash buckets to begin with.
    command = ["./pan", "-m4000000", "-w22"]
    if test.ltl:
        command += ["-a", "-f", "-N", test.ltl]
    return call(command, folder)[1]


def reached(folder, output):
    """For each statement of the model, by line and text, whether the search reached it. (An
    inline has many copies of its statements: reaching one is enough.)"""
    table = call(["./pan", "-d"], folder)[1]
    copies = collections.Counter(re.findall(r"\.pml:(\d+) => (.*)", table))
    missed = collections.Counter(re.findall(r"\.pml:(\d+), state \d+, \"(.*)\"",
                                            output[output.find("unreached in"):]))
    return {place: count > missed[place] for place, count in copies.items()}


def judge(test, output):
    """What is wrong with the outcome; empty if it is right."""
    errors = re.search(r"errors: (\d+)", output)
    if not errors:
        return ["pan did not finish:\n" + output]
    complete = not re.search(r"not completed|out of memory|too small|truncated|exceed", output)
    if test.variant:
        kind = re.search(r"assertion violated|acceptance cycle|non-progress cycle", output)
        return [] if int(errors[1]) > 0 and kind else ["the error was not found\n" + output]
    wrong = []
    if int(errors[1]) > 0:
        wrong.append("errors were found\n" + output)
    elif not complete:
        wrong.append("the search was not complete\n" + output)
    return wrong


def trail(test, folder):
    model = os.path.join(HERE, test.file)
    path = os.path.join(folder, test.file + ".trail")
    command = ["spin", *test.defines, "-k", path, "-p", "-g", "-l", model]
    if os.path.exists(path):
        return "\n".join(call(command, folder)[1].splitlines()[-400:])
    return ""


def run(test, folder, show_trail, statements):
    start = time.monotonic()
    problem = build(test, folder)
    output = "" if problem else explore(test, folder)
    wrong = [problem] if problem else judge(test, output)
    if not test.variant and not test.ltl and not wrong:
        for (line, text), hit in reached(folder, output).items():
            place = test.file, int(line), text
            statements[place] = statements.get(place, False) or hit
    states = re.search(r"([\d.e+]+) states, stored", output)
    memory = re.search(r"([\d.]+)\s+total actual memory", output)
    found = re.search(r"pan:\d+: (.*)", output)
    print(f"{'FAILED' if wrong else 'ok':6}  {test.title:44} "
          f"{float(states[1]) if states else 0:>10.0f} states "
          f"{float(memory[1]) if memory else 0:>6.0f} MB {time.monotonic() - start:>5.1f} s"
          f"{'  found: ' + found[1] if found and test.variant else ''}", flush=True)
    for text in wrong:
        print(text)
    if show_trail or (wrong and not test.variant):
        print(trail(test, folder))
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--work", help="folder for the verifiers (default: a temporary one)")
    parser.add_argument("--trail", action="store_true", help="print the steps to the error")
    parser.add_argument("tests", nargs="*", metavar="TEST",
                        help="NAME, NAME.VARIANT or NAME.* for a model with its variants")
    args = parser.parse_args()
    every = tests()
    if args.list:
        print("\n".join(test.title for test in every))
        return 0
    chosen = [test for test in every if not args.tests or test.title in args.tests
              or test.name + ".*" in args.tests]
    if not chosen:
        sys.exit("no such test")
    for tool, name in (("spin", "spin"), ("gcc", "a C compiler")):
        if not shutil.which(tool):
            print(f"skipped: {name} is not installed")
            return 77
    good, statements = True, {}
    for test in chosen:
        with tempfile.TemporaryDirectory(prefix="model-", dir=args.work) as folder:
            try:
                good &= run(test, folder, args.trail, statements)
            except subprocess.TimeoutExpired as slow:
                print(f"FAILED  {test.title}: {slow.cmd[0]} took more than {SECONDS} s")
                good = False
    whole = {test.file for test in every} - {test.file for test in every if not test.variant and test not in chosen}
    for file, line, text in sorted(place for place, hit in statements.items() if not hit and place[0] in whole):
        with open(os.path.join(HERE, file), encoding="utf-8") as model:
            meant = "not reached" in model.readlines()[line - 1]
        if not meant:
            good = False
            print(f"FAILED  {file}:{line} was never reached: {text}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
