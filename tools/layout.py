#!/usr/bin/env python3
"""Which functions of the library do programs execute? Writes src/layout.txt.

    python3 -B tools/layout.py [--build build] [--check]

The linker places what src/layout.txt names first and in its order (src/Layout.cmake): the
kernel maps a file by 64 KiB at a touch, so the fewer of these parts hold what runs, the less of
the library is resident (docs/decisions/0044-layout.md). Functions come first that most of
PROGRAMS execute, under callgrind; NAME.hot stands for a function without the rare part that the
compiler split off and no program executes. Then come the small variables and tables. A name that
no longer exists does no harm, and a new function comes behind the others.

--check writes nothing. It fails unless all that the first program executes lies within the
library's first 64 KiB; with another compiler than the list's, or without valgrind, it is skipped
(status 77).
"""

from __future__ import annotations

import argparse
import bisect
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO / "tools"))
from profile_report import callgrind  # noqa: E402
from userfiles import loadable  # noqa: E402

LIST = REPO / "src" / "layout.txt"
WINDOW = 64 * 1024  # fault_around_bytes, Linux's default
LARGE = 2500  # bytes: of larger variables but the first heap, a page here and there is used

PROGRAMS = [
    ["case_hello"],
    ["bench_tiny_hot", "10000"],
    ["bench_random_mixed", "200000", "256", "1"],
    ["bench_random_mixed", "200000", "4096", "1"],
    ["bench_mid_large_mt", "2", "20000", "64"],
    ["larson", "1", "8", "1000", "500", "10", "4141", "2"],
    ["cfrac_like", "16"],
    ["espresso_like", "2"],
    ["mstress", "2", "4", "2000"],
    ["xmalloc_test", "2", "20"],
    ["case_realloc", "1024", "4", "100", "100"],
    [sys.executable, "-c", "print(len(str([{'n': str(i)} for i in range(20000)])))"],
]

SKIPPED = 77
HEAD = """\
# The library's functions by the number of programs that execute them, and its small variables:
# what the linker places first. Written by tools/layout.py; names of {compiler}.
"""


class Symbols:
    """What nm tells of a library: functions by address, and variables."""

    def __init__(self, library: Path):
        text = subprocess.run(["nm", "-n", "-S", str(library)], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"^(\w+) (\w+) (\w) ([^@\s]+)", text, re.MULTILINE)
        functions: dict[int, tuple[int, list[str]]] = {}
        self.variables: list[tuple[str, int]] = []
        for address, size, kind, name in found:
            if kind in "tTwW":
                functions.setdefault(int(address, 16), (int(size, 16), []))[1].append(name)
            elif kind in "bBrR":
                self.variables.append((name, int(size, 16)))
        self.starts = sorted(functions)
        self.functions = functions

    def function(self, address: int) -> int | None:
        """Where the function starts that has the address."""
        i = bisect.bisect_right(self.starts, address) - 1
        if i < 0 or address >= self.starts[i] + self.functions[self.starts[i]][0]:
            return None
        return self.starts[i]


def executed(program: list[str], library: Path, build: Path) -> set[int]:
    """The addresses of the instructions of the library that the program executes."""
    path = build / "bench" / program[0]
    command = [str(path) if path.exists() else program[0], *program[1:]]
    with tempfile.TemporaryDirectory() as folder:
        done, counts = callgrind.count(command, str(library), folder, os.environ)
    if done.returncode != 0 or counts is None:
        sys.exit(f"{' '.join(command)}: {done.returncode} {done.stderr[-300:]}")
    ours = os.path.realpath(loadable(str(library)))
    found = {address for name, _, address in counts if os.path.realpath(name) == ours}
    if not found:
        sys.exit(f"{' '.join(command)}: executed nothing of {library}")
    return found


def plain(name: str) -> str:
    """The name of the function's section: without what the compiler adds to copies and parts."""
    return re.sub(r"\.(localalias|cold|part|constprop|isra)(\.\d+)*", "", name)


def write(library: Path, build: Path) -> None:
    symbols = Symbols(library)
    programs: collections.Counter[int] = collections.Counter()
    for program in PROGRAMS:
        used = {symbols.function(a) for a in executed(program, library, build)} - {None}
        programs.update(used)
        print(f"{program[0]}: {len(used)} functions, {sum(symbols.functions[a][0] for a in used)} bytes")
    rare = {plain(name): address for address, (_, names) in symbols.functions.items()
            for name in names if name.endswith(".cold")}
    lines: dict[str, None] = {}
    for address, _ in sorted(programs.items(), key=lambda x: (-x[1], x[0])):
        names = [plain(name) for name in symbols.functions[address][1] if not name.endswith(".cold")]
        for name in [n for n in names if n.startswith("hak_")] or names:  # not its aliases
            lines[name if rare.get(name, address) in programs else f"{name}.hot"] = None
    small = dict(sorted(symbols.variables, key=lambda v: (v[1], v[0])))
    small = [name for name, size in small.items() if size < LARGE or name == "first_heap"]
    LIST.write_text(HEAD.format(compiler=compiler_of(library)) + "".join(f"{name}\n" for name in lines) + "\n" + "".join(f"{name}\n" for name in small))
    print(f"{LIST}: {len(lines)} functions, {len(small)} variables, "
          f"{sum(symbols.functions[a][0] for a in programs)} bytes of code")


def compiler_of(library: Path) -> str:
    """Such as "gcc 12": later versions split functions otherwise."""
    text = subprocess.run(["readelf", "-p", ".comment", str(library)], capture_output=True, text=True).stdout
    found = re.search(r"GCC: .*?(\d+)\.\d+\.\d+", text)
    return f"gcc {found[1]}" if found else "another compiler"


def check(library: Path, build: Path) -> None:
    compiler = compiler_of(library)
    if not shutil.which("valgrind") or f"names of {compiler}.\n" not in LIST.read_text():
        print(f"skipped: no valgrind, or src/layout.txt is not of {compiler}")
        sys.exit(SKIPPED)
    symbols = Symbols(library)
    behind = {symbols.function(a) for a in executed(PROGRAMS[0], library, build) if a >= WINDOW}
    names = sorted(symbols.functions[a][1][0] if a is not None else "?" for a in behind)
    if names:
        sys.exit(f"FAILED: behind the library's first {WINDOW // 1024} KiB: {', '.join(names)}; "
                 "run tools/layout.py and build again")
    print(f"all that {PROGRAMS[0][0]} executes lies within the library's first {WINDOW // 1024} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=REPO / "build")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    (check if args.check else write)(args.build / "libhakmem.so", args.build)


if __name__ == "__main__":
    main()
