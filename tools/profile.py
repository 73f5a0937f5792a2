"""Where the time goes, by layer of the allocator; behind `make profile`.

    python3 tools/profile.py [--only callgrind|perf] [--library FILE] [CMD ARGS…]

Runs bench_random_mixed and bench_tiny_hot, or CMD, on build/libhakmem.so: once by itself
for time and page faults, under perf for time, under callgrind for instructions. A tool that
is not installed or does not work here is named and left out. Writes build/profile/profile.txt,
.json and .html and prints the first. docs/profiling.md explains how to read it.
"""

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# When this runs as a script, its folder comes first, and this file would hide Python's "profile".
TOOLS = os.path.dirname(os.path.realpath(__file__))
sys.path[:] = [p for p in sys.path if os.path.realpath(p or ".") != TOOLS] + [TOOLS]

from profile_report import callgrind, layers, output, perf, symbols  # noqa: E402
from userfiles import loadable  # noqa: E402

ROOT = Path(TOOLS).parent
BUILD = ROOT / "build"
# Name, program, arguments for time, arguments for callgrind, under which it is fifty times slower.
BENCHMARKS = (("random_mixed", "bench_random_mixed", ("100000000",), ("1500000",)),
              ("tiny_hot", "bench_tiny_hot", ("400000000",), ("4000000",)))


@dataclasses.dataclass
class Run:
    name: str
    command: list
    counted: list  # the command for callgrind
    usage: dict = None
    time: layers.Profile = None
    instructions: layers.Profile = None

    @property
    def shown(self):
        return [os.path.basename(self.command[0]), *self.command[1:]]


def usage(command, library, environment):
    """Time and page faults of a plain run."""
    with tempfile.NamedTemporaryFile("r", prefix="hakmem-profile-") as out:
        done = subprocess.run([BUILD / "bench" / "launch", "--out", out.name, "--env", f"LD_PRELOAD={loadable(library)}", "--",
                               *command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        found = out.read()
    if not found or done.returncode in (126, 127):
        sys.exit(f"profile.py: {command[0]} could not be run")
    if done.returncode != 0:
        print(f"profile.py: {command[0]} ended with status {done.returncode}", file=sys.stderr)
    return json.loads(found)


def estimate(run):
    """Time without perf: the kernel's by getrusage, the rest in proportion to instructions."""
    user, kernel = run.usage["user_s"], run.usage["sys_s"]
    result = layers.Profile("estimate", "microseconds")
    for (layer, function), n in run.instructions.functions.items():
        result.add(layer, function, round(n / run.instructions.total * user * 1e6))
    result.add("faults", "kernel, faults and calls together", round(kernel * 1e6))
    return result


def measure(run, library, environment, only, notes):
    run.usage = usage(run.command, library.path, environment)
    with tempfile.TemporaryDirectory(prefix="hakmem-profile-") as folder:
        if only != "perf":
            if shutil.which("valgrind"):
                run.instructions, why = callgrind.run(run.counted, library, folder, environment)
            else:
                why = "valgrind is not installed: no instruction counts"
            if why and why not in notes:
                notes.append(why)
        if only != "callgrind":
            event, why = perf.event()
            if event:
                run.time, why = perf.run(run.command, library, folder, environment, event)
            if event == "cpu-clock":
                why = why or ("no hardware counters here: samples by the clock, which blame a slow instruction's "
                              "neighbour")
            if why and why not in notes:
                notes.append(why)
    profiles = [profile for profile in (run.time, run.instructions) if profile is not None]
    if profiles and not any(profile.in_library for profile in profiles):
        sys.exit(f"profile.py: {run.name} was never seen in {library.path}: is it served by it, and does it run long enough?")
    if run.time is None and run.instructions is not None and only is None:
        run.time = estimate(run)
        text = "time is an estimate: sys time is all booked as faults, user time goes by instructions"
        if text not in notes:
            notes.append(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("callgrind", "perf"), help="one source (default: both)")
    parser.add_argument("--library", type=Path, default=BUILD / "libhakmem.so")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD", help="program instead of the benchmarks")
    options = parser.parse_args()
    path = str(options.library.resolve())
    if not os.path.exists(path):
        sys.exit(f"profile.py: {path} does not exist: run make first")
    if not symbols.has_debug_lines(path):
        sys.exit(f"profile.py: {path} has no line information; release builds of this tree have it")
    library = symbols.Library(path)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if command:
        if shutil.which(command[0]) is None:
            parser.error(f"{command[0]} is not there, or no program")
        runs = [Run(os.path.basename(command[0]), command, command)]
    else:
        runs = [Run(name, [str(BUILD / "bench" / program), *long], [str(BUILD / "bench" / program), *short])
                for name, program, long, short in BENCHMARKS]
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    notes = []
    for run in runs:
        print(f"profile: {run.name}", file=sys.stderr, flush=True)
        measure(run, library, environment, options.only, notes)
    if not any(run.time or run.instructions for run in runs):
        sys.exit("profile.py: nothing could be measured: " + "; ".join(notes))
    folder = BUILD / "profile"
    folder.mkdir(parents=True, exist_ok=True)
    output.write(folder, runs, notes)
    print((folder / "profile.txt").read_text(encoding="utf-8"))
    print("wrote build/profile/profile.txt, .json and .html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
