"""Instructions per malloc hit, local free and malloc_usable_size, and what they are.

    python3 measure.py UNIT_HITS LIBHAKMEM_SO

Runs the program under callgrind with N and with 2 N rounds. The difference, in
the library's own object, is exactly what N rounds cost, start-up and refills
aside. The instructions that are then executed more often are the hit paths: none of
them may be a call, a push or a pop, or use the stack otherwise (rows F2, F4).
Exit status 77 (skipped) where valgrind is missing, and elsewhere than on x86-64.
"""

import collections
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROUNDS = 400  # twice as many are fewer than HAK_FREES_BIAS: no event
SIZES = (16, 256, 1024)
BUDGET = {"usable_size": 27, "malloc": 17, "free": 20}  # the first that is in a function's name
GCC_11 = {"usable_size": 28}  # what is more with it


def counts(program, library, rounds, size):
    """{(function, address): executions} inside the library."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-strings=no",
             "--compress-pos=no", f"--callgrind-out-file={out}", program, str(rounds), str(size)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"callgrind ended with {run.returncode}:\n{run.stderr}")
        executed = collections.Counter()
        ours, function, skip = False, "", False
        with open(out, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("ob="):
                    ours = os.path.realpath(line[3:].strip()) == library
                elif line.startswith("fn="):
                    function = line[3:].strip()
                elif line.startswith("calls="):
                    skip = True  # the next line is the callee's share
                elif re.match(r"0x[0-9a-f]+ ", line):
                    if ours and not skip:
                        executed[function, int(line.split()[0], 16)] += int(line.split()[2])
                    skip = False
        return executed


def disassembly(library):
    """{address: instruction text}"""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library],
                          capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ *([0-9a-f]+):\t(.+)$", text, re.MULTILINE)
    return {int(address, 16): instruction for address, instruction in found}


def measure(program, library, code, size):
    """({kind: instructions per call}, faults) for one size."""
    once, twice = (counts(program, library, n, size) for n in (ROUNDS, 2 * ROUNDS))
    total, faults = collections.Counter(), []
    for (function, address), n in sorted(twice.items()):
        more = n - once[function, address]
        if more == 0:
            continue
        kind = next((k for k in BUDGET if k in function), None)
        if kind is None:
            faults.append(f"{function} is on the hit path")
            continue
        total[kind] += more
        instruction = code.get(address)
        if instruction is None:
            faults.append(f"{function}: no code at {address:#x}")
        elif re.match(r"(call|push|pop|enter|leave)", instruction) or re.search(
                r"%(r|e)?[sb]p\b", instruction):
            faults.append(f"{function}: {instruction}")
    return {kind: total[kind] / ROUNDS for kind in BUDGET}, faults


def budget(library):
    """For the compiler that the library names itself, in .comment."""
    with open(library, "rb") as f:
        return BUDGET | GCC_11 if re.search(rb"GCC: \([^)]*\) 11\.", f.read()) else BUDGET


def main(program, library):
    if platform.machine() != "x86_64":
        print("skipped: the budgets are of x86-64")
        return 77
    for tool in ("valgrind", "objdump"):
        if not shutil.which(tool):
            print(f"skipped: {tool} is not installed")
            return 77
    library = os.path.realpath(library)
    code, at_most = disassembly(library), budget(library)
    failed = False
    for size in SIZES:
        per_call, faults = measure(program, library, code, size)
        print(f"{size:5} bytes: " + ", ".join(
            f"{per_call[kind]:g} instructions per {kind} (at most {most})" for kind, most in at_most.items()))
        for fault in faults:
            print(f"      {fault}")
        # A count of nothing would mean that the library was not measured at all.
        failed |= bool(faults) or not all(3 < per_call[kind] <= most for kind, most in at_most.items())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
