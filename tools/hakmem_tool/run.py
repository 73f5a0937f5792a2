"""`hakmem run`: a program on the system allocator and on HAKMEM, side by side."""

import dataclasses
import filecmp
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from userfiles import is_library, loadable, preloaded

from . import ToolError, explain, stats
from .launch import ROOT, Cost, launch

SHOWN_LINES = 40   # of the program's output
SHOWN_WIDTH = 300  # characters of each


@dataclasses.dataclass
class Run:
    cost: Cost
    out: str            # file with the program's output
    processes: dict     # pid -> HAKMEM's figures; empty without HAKMEM


def default_library():
    return os.path.join(ROOT, "build", "libhakmem.so")


def default_command():
    # PYTHONHASHSEED makes dictionaries, and so allocations, equal in both runs.
    return ([sys.executable, os.path.join(ROOT, "tools", "workload.py")],
            {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"})


def preload(library):
    """LD_PRELOAD with library in front of the libraries that the user preloads already."""
    return ":".join(filter(None, (loadable(library), preloaded())))


class Runner:
    """Runs one command under different allocators, with a folder for its files."""

    def __init__(self, cmd, environment, stdin, folder):
        self.cmd, self.environment, self.stdin, self.folder = cmd, environment, stdin, folder
        self.count = 0

    def run(self, extra, serves=False):
        self.count += 1
        mine = os.path.join(self.folder, str(self.count))
        os.mkdir(mine)
        environment = self.environment | extra
        if serves:
            environment |= {"HAKMEM_STATS": "json",
                            "HAKMEM_STATS_FILE": os.path.join(mine, "%p.json")}
        out = os.path.join(mine, "out")
        cost = launch(self.cmd, environment, out, self.stdin, mine)
        return Run(cost, out, stats.read_folder(mine) if serves else {})


def library_file(path, what):
    if not os.path.isfile(path):
        hint = "; build it with `make`" if path == default_library() else (
            "" if "/" in path else "; a path is wanted, those of peers are in build/peers/lib")
        raise ToolError(f"{what} {path} does not exist{hint}")
    if not is_library(path):
        raise ToolError(f"{what} {path} is no shared library")
    return os.path.abspath(path)


def try_preload(library, option):
    try:
        tried = subprocess.run(["true"], env=os.environ | {"LD_PRELOAD": preload(library)}, stdin=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, errors="replace", timeout=60)
    except subprocess.TimeoutExpired as late:
        raise ToolError(f"{option}: {library}: `true` with it does not end") from late
    if tried.returncode or f"'{loadable(library)}' from LD_PRELOAD cannot be preloaded" in tried.stderr:
        raise ToolError(f"{option}: {library} cannot be preloaded: {tried.stderr.strip()[-300:]}")


def command(args):
    library = library_file(args.lib, "the library")
    try_preload(library, "--lib")
    other = {"LD_PRELOAD": preloaded()} if "LD_PRELOAD" in os.environ else {}  # HAKMEM may be in it
    if args.against != "system":
        peer = library_file(args.against, "--against: the allocator")
        try_preload(peer, "--against")
        other = {"LD_PRELOAD": preload(peer)}
    try:
        with open(args.stdin, "rb"):
            pass
    except OSError as error:
        raise ToolError(f"--stdin {args.stdin}: {error.strerror}") from error
    cmd = args.cmd[1:] if args.cmd[:1] == ["--"] else args.cmd
    environment = {}
    if not cmd:
        cmd, environment = default_command()

    # Ensures that the folder is removed and the program ended.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda received, _: sys.exit(128 + received))
    folder = tempfile.mkdtemp(prefix="hakmem-run-")
    try:
        runner = Runner(cmd, environment, args.stdin, folder)
        print(f"hakmem run: {shlex.join(cmd)}", flush=True)
        base, ours = [], []
        for _ in range(args.runs):
            base.append(runner.run(other))
            ours.append(runner.run({"LD_PRELOAD": preload(library)}, serves=True))
        return judge(args, runner, other, base, ours)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judge(args, runner, other, base, ours):
    """Checks the runs and prints the report; returns the exit status."""
    if not args.quiet:
        show_output(ours[0].out)
    fastest = lambda runs: min(runs, key=lambda r: r.cost.wall)  # noqa: E731
    peer, mine = fastest(base), fastest(ours)
    title = "system" if args.against == "system" else os.path.basename(args.against)

    print("\n".join(cost_table(title, peer.cost, mine.cost)))
    if args.runs == 1:
        print("  one run each: too few to quote; --runs 5 alternates and shows the fastest")
    print()

    killed = [run for run in ours if run.cost.status > 128 and not run.processes]
    if killed and not any(run.cost.status > 128 for run in base):
        raise ToolError(f"exit status {statuses(base)} with {title}, {statuses(ours)} with HAKMEM: killed by signal "
                        f"{killed[0].cost.status - 128} there, so it wrote no statistics")
    for run in ours:
        check_served(runner.cmd, run)
    print("\n".join(stats.report(stats.add_up(mine.processes.values()), len(mine.processes))))
    if mine.cost.pid and mine.cost.pid not in mine.processes:
        print("  (the program itself wrote no statistics; these are its child processes')")
    print()

    problems = []
    if len({run.cost.status for run in base + ours}) > 1:
        problems.append(f"exit status {statuses(base)} with {title}, {statuses(ours)} with HAKMEM")
    verdict = "output not compared"
    if not args.no_compare:
        different = [run for run in base[1:] + ours if not same_output(base[0], run)]
        verdict = f"identical output (SHA-256 {digest(mine.out)[:16]})"
        if different and not same_output(base[0], runner.run(other)):
            verdict = "output varies from run to run without HAKMEM too, so it was not compared"
        elif different:
            problems.append(f"the output differs from the one with {title} (programs that print "
                            "times or addresses: --no-compare)")
    if problems:
        raise ToolError("; ".join(problems))
    status = mine.cost.status
    ended = f", exit status {status} with either" if status else ""
    print(f"ok: served by {os.path.relpath(args.lib)}, {verdict}{ended}")
    return status


def statuses(runs):
    return ", ".join(dict.fromkeys(str(run.cost.status) for run in runs))


def check_served(cmd, run):
    """Raises ToolError unless HAKMEM really was this program's allocator."""
    main = run.processes.get(run.cost.pid) if run.cost.pid else None
    served = run.processes.values() if main is None else [main]
    if any(figures["allocs"] > 0 for figures in served):
        return
    if served:
        raise ToolError(f"HAKMEM was there, but served nothing: {explain.program_file(cmd)} allocates nothing or brings its own "
                        "malloc")
    why = explain.why_not_served(cmd, run.cost.status)
    if why:
        raise ToolError(f"HAKMEM did not serve this program: {why}")
    raise ToolError(f"no sign that HAKMEM served this program: {explain.program_file(cmd)} can take a preload, but wrote no "
                    "statistics; it ended with _exit, as dash (sh) does, cleared its environment, gave up the rights to write "
                    "here or brings its own malloc")


def cost_table(title, peer, mine):
    yield f"  {'':<14}{title[:18]:>18}{'HAKMEM':>14}{'ratio':>9}"
    rows = (("time", peer.wall, mine.wall, seconds),
            ("  in program", peer.user, mine.user, seconds),
            ("  in kernel", peer.sys, mine.sys, seconds),
            ("peak RSS", peer.maxrss / 1024, mine.maxrss / 1024, "{:,.1f} MiB".format),
            ("page faults", peer.minflt + peer.majflt, mine.minflt + mine.majflt, "{:,}".format))
    for name, theirs, ours, form in rows:
        ratio = f"{ours / theirs:.2f}" if theirs else "-"
        yield f"  {name:<14}{form(theirs):>18}{form(ours):>14}{ratio:>9}"


def seconds(value):
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"


def printable(line):
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line[:SHOWN_WIDTH])


def lines_of(file):
    """The lines, each cut to a limited length."""
    while line := file.readline(1 << 16):
        yield line
        while line and not line.endswith("\n"):
            line = file.readline(1 << 16)


def show_output(path):
    count = 0
    with open(path, encoding="utf-8", errors="replace") as f:
        for count, line in enumerate(lines_of(f), 1):
            if count <= SHOWN_LINES:
                print("  | " + printable(line.rstrip("\n")))
    if count > SHOWN_LINES:
        print(f"  | ... {count - SHOWN_LINES:,} more lines")
    print()


def same_output(a, b):
    return filecmp.cmp(a.out, b.out, shallow=False)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()
