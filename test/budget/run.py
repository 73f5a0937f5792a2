#!/usr/bin/env python3
"""Has the allocator become more expensive? Counts, which noise cannot move.

    python3 test/budget/run.py [--build build] [--update | --runs N] [NAME…]

Every workload makes the same calls in every run. Counted are, under cachegrind, the
instructions executed in the library's own code ("library") and in the whole process ("total":
the program and what the C library does for it, above all memset and memcpy), and, outside
valgrind, the minor page faults. bench/budgets.json holds the limit of each count, per
compiler, major version and architecture; other compilers are skipped by name (status 77). A
count fails if the least of three measurements exceeds its budget by more than the tolerance; a
count more than 3 % below its budget gives a note: lower the budget.

--update measures and writes the budgets of this platform (with NAME…: only of these workloads).
--runs N measures N times and prints how much the counts differ.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.append(str(REPO / "tools"))
from userfiles import loadable  # noqa: E402

BUDGETS = REPO / "bench" / "budgets.json"
SKIPPED = 77
FAULT_RUNS = 3  # their median
AGAIN = 2  # more measurements of a workload that exceeds its budget
FAULT_SLACK = 16  # pages
LOWER = 0.03

# The C library's share depends on its version and on the CPU, so totals get more tolerance.
TOLERANCE = {"library": 0.01, "total": 0.05, "faults": 0.02}
UNIT = {"library": "instructions in the library", "total": "instructions in all", "faults": "page faults"}

WORKLOADS = {
    "tiny_hot": ("bench_tiny_hot", "1000000"),
    "random_mixed": ("bench_random_mixed", "600000"),
    "random_mixed_256": ("bench_random_mixed", "600000", "8192", "42", "16", "256"),
    "random_mixed_large_set": ("bench_random_mixed", "300000", "100000", "42"),
    "mid_1_thread": ("bench_mid_large_mt", "1", "150000"),
    "large_1_thread": ("bench_mid_large_mt", "1", "20000", "32", "--min", "65536", "--max", "1048576"),
    "huge_1_thread": ("bench_mid_large_mt", "1", "300", "16", "--min", "1100000", "--max", "4000000"),
    "fragment": ("bench_fragment", "8", "8", "10", "4"),
    "resize": ("budget_calls", "resize", "60000"),
    "handover": ("budget_calls", "handover", "300000"),
    "young": ("budget_calls", "young", "6000"),
    "others": ("budget_calls", "others", "150000"),
    "hello": ("budget_calls", "hello"),
}
# The start of a process is mostly the dynamic linker's work, which has no budget here.
NO_TOTAL = ("hello",)

# Nothing else from the environment: its size alone changes what a process start executes. Huge
# pages depend on what the system has free; the helper thread runs by the clock.
ENVIRONMENT = {"HAKMEM_THP": "never", "HAKMEM_BACKGROUND": "0", "LC_ALL": "C"}


def platform_key(build: Path) -> str:
    """gcc-12-x86_64, for instance: from the compiler that CMake found."""
    for file in sorted(build.glob("CMakeFiles/*/CMakeCCompiler.cmake")):
        text = file.read_text(encoding="utf-8", errors="replace")
        identity = re.search(r'set\(CMAKE_C_COMPILER_ID "([^"]+)"\)', text)
        version = re.search(r'set\(CMAKE_C_COMPILER_VERSION "(\d+)', text)
        if identity and version:
            name = {"GNU": "gcc", "Clang": "clang"}.get(identity[1], identity[1])
            return f"{name}-{version[1]}-{platform.machine()}"
    raise SystemExit(f"run.py: {build} was not configured by CMake")


def source_folder(build: Path) -> str:
    """src as the compiler was given it, without resolving symbolic links here."""
    found = re.search(r"^CMAKE_HOME_DIRECTORY:\w+=(.+)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    return f"{found[1]}/src" if found else str(REPO / "src")


def read_cachegrind(text: str, source: str) -> tuple[int, int]:
    """(instructions in files below source, instructions in all) of cachegrind's output."""
    library = total = 0
    ours = False
    for line in text.splitlines():
        if line.startswith("fl="):
            ours = line[3:].startswith(source + "/")
        elif ours and line[:1].isdigit():
            library += int(line.split()[1])
        elif line.startswith("summary:"):
            total = int(line.split()[1])
    return library, total


def instructions(command: list[str], library: Path, source: str) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="hakmem-budget-") as folder:
        out = Path(folder) / "out"
        run = subprocess.run(
            ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={out}", *command],
            env=ENVIRONMENT | {"LD_PRELOAD": loadable(library), "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if run.returncode != 0:
            raise SystemExit(f"cachegrind {' '.join(command)}: status {run.returncode}:\n{run.stderr[-2000:]}")
        ours, total = read_cachegrind(out.read_text(encoding="utf-8", errors="replace"), source)
    if ours == 0:
        raise SystemExit(f"cachegrind {' '.join(command)}: the library was not used, or has no debug information")
    return {"library": ours, "total": total}


def faults_counted() -> bool:
    """MADV_POPULATE_WRITE gets resident pages without faults; without it there are more faults."""
    version = re.match(r"(\d+)\.(\d+)", platform.release())
    return bool(version) and (int(version[1]), int(version[2])) >= (5, 14)


def faults(command: list[str], library: Path, launch: Path) -> int:
    counts = []
    for _ in range(FAULT_RUNS):
        environment = ENVIRONMENT | {"LD_PRELOAD": loadable(library)}
        options = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        with tempfile.NamedTemporaryFile("r", prefix="hakmem-budget-") as out:
            subprocess.run([launch, "--out", out.name, *options, "--", *command], check=True,
                           env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            counts.append(json.load(out)["minor_faults"])
    return round(statistics.median(counts))


def measure(name: str, build: Path) -> dict[str, int]:
    program, *arguments = WORKLOADS[name]
    command = [str(build / "bench" / program), *arguments]
    counts = instructions(command, build / "libhakmem.so", source_folder(build))
    if name in NO_TOTAL:
        del counts["total"]
    if faults_counted():
        counts["faults"] = faults(command, build / "libhakmem.so", build / "bench" / "launch")
    return counts


def judge(name: str, kind: str, count: int, budget: int) -> tuple[str, str]:
    """Returns ("ok", "lower" or "over", the text to print)."""
    change = (count - budget) / budget
    line = f"{name}: {count:,} {UNIT[kind]}, budget {budget:,} ({100 * change:+.1f} %)"
    slack = FAULT_SLACK if kind == "faults" else 0
    if count > budget * (1 + TOLERANCE[kind]) + slack:
        pages = f" + {slack} pages" if slack else ""
        return "over", (f"FAILED: {line}; tolerance {100 * TOLERANCE[kind]:g} %{pages}; "
                        f"if intended run test/budget/run.py --update {name}")
    if count < budget * (1 - LOWER) - slack:
        return "lower", f"note: {line}: lower the budget: test/budget/run.py --update {name}"
    return "ok", line


def least_if_over(name: str, build: Path, budget: dict[str, int]) -> dict[str, int]:
    """The counts of a workload; if one exceeds its budget, the least of several measurements.
    Threads that wait for each other and pages already present make a small difference."""
    counts = measure(name, build)
    if any(judge(name, kind, count, budget[kind])[0] == "over" for kind, count in counts.items() if kind in budget):
        for more in [measure(name, build) for _ in range(AGAIN)]:
            counts = {kind: min(count, more[kind]) for kind, count in counts.items()}
    return counts


def check(names: list[str], build: Path, budgets: dict, page_size: int) -> int:
    states = []
    for name in names:
        if name not in budgets["workloads"]:
            states.append("over")
            print(f"FAILED: {name} has no budget; run test/budget/run.py --update {name}")
            continue
        budget = dict(budgets["workloads"][name])
        if page_size != budgets["page_size"]:
            budget.pop("faults", None)
        for kind, count in least_if_over(name, build, budget).items():
            if kind not in budget:
                continue
            state, line = judge(name, kind, count, budget[kind])
            states.append(state)
            print(line, flush=True)
    if not faults_counted():
        print("page faults not compared: this kernel is older than 5.14")
    print(f"{len(states)} counts, {states.count('over')} over budget, {states.count('lower')} to be lowered")
    return int("over" in states)


def update(names: list[str], build: Path, document: dict, key: str) -> int:
    mine = document["platforms"].setdefault(key, {"workloads": {}})
    mine["page_size"] = os.sysconf("SC_PAGE_SIZE")
    for name in names:
        before, now = mine["workloads"].get(name, {}), measure(name, build)
        mine["workloads"][name] = now
        print(f"{name}:", ", ".join(f"{kind} {before.get(kind, 0):,} -> {n:,}" for kind, n in now.items()))
    mine["workloads"] = {name: mine["workloads"][name] for name in WORKLOADS if name in mine["workloads"]}
    BUDGETS.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {BUDGETS.relative_to(REPO)} ({key})")
    return 0


def repeat(names: list[str], build: Path, runs: int) -> int:
    for name in names:
        all_counts = [measure(name, build) for _ in range(runs)]
        for kind in all_counts[0]:
            values = [counts[kind] for counts in all_counts]
            spread = 100 * (max(values) - min(values)) / max(1, min(values))
            print(f"{name:<24}{kind:<9}{min(values):>13,}{max(values):>13,}{spread:>9.3f} %", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=REPO / "build", help="build folder (build)")
    parser.add_argument("--update", action="store_true", help="write the budgets of this platform")
    parser.add_argument("--runs", type=int, metavar="N", help="only show the spread of N measurements")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of workloads (all)")
    options = parser.parse_args()
    build = options.build.resolve()
    names = options.names or list(WORKLOADS)
    if unknown := [name for name in names if name not in WORKLOADS]:
        parser.error(f"no workload {unknown[0]}; there are: {' '.join(WORKLOADS)}")
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        return SKIPPED
    if options.runs:
        return repeat(names, build, options.runs)
    key = platform_key(build)
    document = {"platforms": {}}
    if BUDGETS.exists():
        document = json.loads(BUDGETS.read_text(encoding="utf-8"))
    if options.update:
        return update(names, build, document, key)
    if key not in document["platforms"]:
        print(f"skipped: bench/budgets.json has no budgets for {key}, only for {', '.join(document['platforms'])}")
        return SKIPPED
    return check(names, build, document["platforms"][key], os.sysconf("SC_PAGE_SIZE"))


if __name__ == "__main__":
    sys.exit(main())
