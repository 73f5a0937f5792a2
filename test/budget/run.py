"""Instructions and page faults of fixed workloads against committed budgets.

    python3 test/budget/run.py --build build --lib build/libhakmem.so [--update]

Noise cannot trip it: instructions are counted by valgrind, and a workload is the same
every time. A count above its budget by more than the tolerance fails; one far below is
mentioned, so that the budget follows. --update writes what is measured now into
budgets.json; do that in the commit that changes a count on purpose. Budgets are kept
per compiler and machine; others skip. The fault count is the kernel's, without valgrind.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
BUDGETS = os.path.join(HERE, "budgets.json")
SKIP = 77
INSTRUCTIONS = 0.01           # tolerance
FAULTS, MORE_FAULTS = 0.02, 16
LOWER = 0.03                  # so far below a budget is worth a note

WORKLOADS = {
    "tiny_hot": "bench_tiny_hot 1000000",
    "random_mixed": "bench_random_mixed 1000000 8192 42",
    "random_mixed_1024": "bench_random_mixed 1000000 4096 42 1024 1024",
    "random_mixed_big": "bench_random_mixed 800000 200000 42",
    "mid": "bench_mid_large_mt 1 300000 256",
    "large": "bench_mid_large_mt 1 50000 64 --min 65536 --max 1048576",
    "realloc": "case_realloc 64 4 16 8",
    "alloc_test": "alloc_test 1 400000",
    "cold": "case_cold --child 10000",
    "hello": "case_cold --child 1",
}


def compiler():
    text = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    return f"gcc-{text.split('.')[0]}-{platform.machine()}"


def counted(command, library):
    """Instructions of the process under valgrind."""
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
         "--soname-synonyms=somalloc=nouserintercepts", *command],
        env={**os.environ, "LD_PRELOAD": library}, capture_output=True, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


def faults(command, library, build):
    """The least of three: what else the machine does only adds."""
    found = []
    for _ in range(3):
        with tempfile.NamedTemporaryFile("r") as out:
            subprocess.run([os.path.join(build, "bench", "launch"), "--out", out.name, "--env",
                            f"LD_PRELOAD={library}", "--", *command], check=True, stdout=subprocess.DEVNULL)
            found.append(json.load(out)["minor_faults"])
    return min(found)


def main():
    parser = argparse.ArgumentParser(description="Check instruction and page-fault budgets.")
    parser.add_argument("--build", default="build")
    parser.add_argument("--lib", required=True)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("skipped: no valgrind")
        return SKIP
    with open(BUDGETS, encoding="utf-8") as f:
        everyone = json.load(f)
    key = compiler()
    budgets = everyone.get(key, {})
    if not budgets and not args.update:
        print(f"skipped: no budgets for {key}")
        return SKIP
    library, over, now = os.path.realpath(args.lib), 0, {}
    for name, text in WORKLOADS.items():
        program, *words = text.split()
        command = [os.path.join(args.build, "bench", program), *words]
        now[name] = {"instructions": counted(command, library), "faults": faults(command, library, args.build)}
        for what, share, more in (("instructions", INSTRUCTIONS, 0), ("faults", FAULTS, MORE_FAULTS)):
            have, budget = now[name][what], budgets.get(name, {}).get(what)
            if budget is None:
                print(f"{name}: {have:,} {what}, no budget")
                over += not args.update
                continue
            change = have / budget - 1
            verdict = "ok"
            if have > budget * (1 + share) + more:
                verdict = "TOO MANY (if that is meant, run this with --update and say why in the commit)"
                over += not args.update
            elif change < -LOWER and budget - have > more:
                verdict = "fewer: lower the budget with --update"
            print(f"{name}: {have:,} {what}, budget {budget:,} ({change:+.1%}) {verdict}")
    if args.update:
        everyone[key] = now
        with open(BUDGETS, "w", encoding="utf-8") as f:
            json.dump(everyone, f, indent=1)
            f.write("\n")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
