"""Runs one benchmark under one allocator, and detects other users of the machine."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import peers
from allocators import Allocator
from benchmark import Benchmark

REPO = Path(__file__).resolve().parent.parent
BUSY_LIMIT = 0.05     # foreign CPU time, in CPUs, above which a run counts as disturbed
SLOW_LIMIT = 1.15     # times the fastest loop of speed.c, above which a run counts as disturbed
AGAIN = 2             # times a disturbed run is repeated
WAIT = 10             # seconds that a run waits at most for processors at full speed
WAIT_STEP = 0.25      # seconds between two looks at their speed
WAIT_SHARE = 0.2      # share of a session's time that may go into waiting
QUICK_PRIME = 128     # MiB populated before quick runs of benchmarks that need much memory
TIMEOUT = 600         # seconds per run
SYSTEM = "system"
FLOOR_RUNS = 3        # of each benchmark that can measure its own cost
FLOOR_ROUND = -1
GRACE = 20            # seconds by which a round of a benchmark may exceed its deadline


# --------------------------------------------------------------------------
# The machine: its properties, and whether something else is using it

def first_match(path: str, key: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def read_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def describe_machine() -> dict:
    try:
        revision = subprocess.run(["git", "-C", str(REPO), "describe", "--always", "--dirty"],
                                  capture_output=True, text=True).stdout.strip()
    except OSError:  # no git here
        revision = ""
    return {"cpu": first_match("/proc/cpuinfo", "model name") or platform.machine(), "cpus": os.cpu_count(),
            "memory": first_match("/proc/meminfo", "MemTotal"),
            "kernel": platform.release().split("-")[0], "libc": " ".join(platform.libc_ver()),
            "thp": read_line("/sys/kernel/mm/transparent_hugepage/enabled"),
            "governor": read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            "python": platform.python_version(), "revision": revision}


@dataclass
class CpuTimes:
    """Seconds since boot in which CPUs were busy, and in which the hypervisor had taken them."""
    busy: float
    steal: float

    @staticmethod
    def now() -> "CpuTimes":
        ticks = [int(v) for v in read_line("/proc/stat").split("\n", 1)[0].split()[1:9]]
        hz = os.sysconf("SC_CLK_TCK")
        user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
        return CpuTimes((user + nice + system + irq + softirq) / hz, steal / hz)


# --------------------------------------------------------------------------
# Running

class RunError(Exception):
    pass


def command_of(b: Benchmark, a: Allocator, build: Path, quick: bool, net: bool) -> list[str]:
    arguments = [text.replace("{work}", str(work_folder(b, build))) for text in (b.quick if quick else b.full)]
    program = build / "bench" / (b.program + (a.suffix if b.static else ""))
    if not program.exists():
        program = Path(shutil.which(b.program) or b.program)
    flags = ["--json", *(["--net"] if net and b.net else [])] if b.kind == "ops" else []
    return [str(program), *arguments, *flags]


def work_folder(b: Benchmark, build: Path) -> Path:
    return build / "bench-work" / b.name


def prepare(b: Benchmark, build: Path) -> None:
    """Makes the input files once, and again if a file in the folder of what makes them has changed."""
    folder = work_folder(b, build)
    folder.mkdir(parents=True, exist_ok=True)
    if b.prepare is None:
        return
    sources = sorted(path for path in Path(inspect.getfile(b.prepare)).parent.iterdir() if path.is_file())
    mark, recipe = folder / ".prepared", hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if mark.exists() and mark.read_text() == recipe:
        return
    b.prepare(folder)
    mark.write_text(recipe)


def run_once(b: Benchmark, a: Allocator, build: Path, quick: bool, net: bool) -> dict:
    """One run; returns a flat record of the figures of benchmark, launcher and machine."""
    settings = dict(a.env)  # for the benchmark only, see launch.c
    if a.library is not None:
        settings["LD_PRELOAD"] = peers.preload(a.library)
    env_args = [word for k, v in settings.items() for word in ("--env", f"{k}={v}")]
    prime_args = ["--prime", str(QUICK_PRIME if quick else b.prime)] if b.prime else []
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    load = os.getloadavg()[0]
    with tempfile.NamedTemporaryFile("r", suffix=".json") as usage_file:
        before, start = CpuTimes.now(), time.monotonic()
        try:
            done = subprocess.run([str(build / "bench" / "launch"), "--out", usage_file.name,
                                   *env_args, *prime_args, "--", *command_of(b, a, build, quick, net)],
                                  env=environment, capture_output=True, text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, timeout=TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise RunError(f"no end within {TIMEOUT} s") from error
        elapsed, after = time.monotonic() - start, CpuTimes.now()
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            raise RunError(f"exit {done.returncode} {last}".strip())
        usage = json.load(usage_file)
    if b.kind == "ops":
        result = {k: v for k, v in json.loads(done.stdout).items() if k not in ("benchmark", "args")}
    else:
        result = {"seconds": usage["wall_s"], "peak_rss_kib": usage["maxrss_kib"]}
        if b.compare_output:
            result["output"] = hash_of(done.stdout)
    own = usage["user_s"] + usage["sys_s"]
    if missing := [key for key in (b.metric, b.memory) if key not in {**usage, **result, "cpu_seconds": own}]:
        raise RunError(f"it does not report {', '.join(missing)}")
    return {"benchmark": b.name, "allocator": a.name, "cpu_seconds": own,
            **{k: usage[k] for k in ("wall_s", "user_s", "sys_s", "maxrss_kib", "mean_rss_kib",
                                     "minor_faults", "major_faults", "involuntary_switches")},
            **result,  # overrides the launcher: a driver knows better what its servers used
            "load_before": load,
            # CPU time of all other processes during the run, in CPUs. /proc/stat counts in
            # ticks of 10 ms, so it says little about shorter runs.
            "foreign_cpus": max(0.0, (after.busy - before.busy - own - usage["prime_s"]) / elapsed),
            "steal_cpus": (after.steal - before.steal) / elapsed}


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def foreign(record: dict) -> float:
    """CPUs that other users had."""
    return record["foreign_cpus"] + record["steal_cpus"]


def crowded(record: dict) -> bool:
    return foreign(record) > BUSY_LIMIT and foreign(record) * record["wall_s"] > 0.025  # a few ticks


def pause(seconds: float) -> None:
    """The session's own waiting: subprocess sleeps too while it waits for a program."""
    time.sleep(seconds)


def loop_now(build: Path) -> float:
    """Seconds that the loop of speed.c takes now on the slowest processor; 0 if that is not built."""
    program = build / "bench" / "speed"
    return float(subprocess.run([str(program)], capture_output=True, check=True).stdout) if program.exists() else 0.0


class Session:
    """All runs of one comparison; schedule.py decides which."""

    def __init__(self, benchmarks: list[Benchmark], allocators: list[Allocator], build: Path,
                 quick: bool, net: bool, order: random.Random):
        self.benchmarks, self.allocators = benchmarks, allocators
        self.build, self.quick, self.net, self.order = build, quick, net, order
        self.records: list[dict] = []
        self.pairs: dict[tuple[str, str], list[dict]] = {}  # the first `indexed` records by benchmark, allocator
        self.indexed = 0
        self.floors: dict[str, list[float]] = {}  # the benchmarks' own cost, with net
        self.failures: dict[tuple[str, str], str] = {}
        self.outputs: dict[str, str] = {}  # hash of a program's output under the system allocator
        self.enough: set[tuple[str, str]] = set()  # pairs that need no more runs
        self.repeated = 0
        self.again = AGAIN
        self.fastest_loop = math.inf  # of all that were measured, seconds
        self.started, self.waited = time.monotonic(), 0.0
        self.remaining: Callable[[], str] = lambda: ""  # for the line of progress

    def warm_up(self, only_floors: bool = False) -> None:
        """Runs every benchmark briefly under one of the allocators, in turn, without recording it,
        so that programs, libraries and inputs are in the page cache. Then measures the floors. A
        floor does not depend on the allocator, so it is measured in a few separate runs; the runs
        that count do not measure it."""
        for place, b in enumerate([] if only_floors else self.benchmarks):
            self.attempt(b, self.allocators[place % len(self.allocators)], 0, "warm-up:")
        for b in self.benchmarks:
            for _ in range(FLOOR_RUNS if self.net and b.net else 0):
                record = self.attempt(b, self.order.choice(self.allocators), FLOOR_ROUND, "floors:")
                if record is not None:
                    self.floors.setdefault(b.name, []).append(record["floor_ns_per_op"])
        progress("")

    def once(self, b: Benchmark, number: int, head: str, deadline: float = math.inf) -> bool:
        """A round of one benchmark: a run under every allocator, in random order. Returns false if
        it took too long: half a round would not be a comparison."""
        made = []
        for a in self.order.sample(self.allocators, len(self.allocators)):
            if (b.name, a.name) in self.failures or (b.name, a.name) in self.enough:
                continue
            if time.monotonic() > deadline + GRACE:
                return False
            record = self.attempt(b, a, number, head)
            if record is not None:
                made.append({"round": number, **record})
        self.records += made
        return True

    def attempt(self, b: Benchmark, a: Allocator, number: int, head: str) -> dict | None:
        """A run, or None if it failed; a failure is recorded and printed."""
        if (b.name, a.name) in self.failures:
            return None
        progress(f"{head} {b.name} {a.name}  {self.remaining()}")
        try:
            return self.run(b, a, number)
        except (RunError, ValueError, OSError) as error:
            self.failures[b.name, a.name] = str(error)
            progress("")
            print(f"{b.name} under {a.name}: failed: {error}", file=sys.stderr)
            return None

    def run(self, b: Benchmark, a: Allocator, number: int) -> dict:
        """One run, repeated if something else used or slowed the machine meanwhile; the quietest counts."""
        quick = self.quick or number == 0
        quietest: dict = {}
        for attempt in range(1 if number < 1 else 1 + self.again):
            self.repeated += attempt > 0
            before = self.wait_for_speed() if number != 0 else 0.0
            record = run_once(b, a, self.build, quick, number == FLOOR_ROUND)
            record["loop_s"] = min(before, self.loop())  # slow both times: most likely all the time
            if "output" in record and record.pop("output") != self.expected_output(b, quick):
                raise RunError("it prints something else than under the system allocator")
            if not quietest or self.noise(record) < self.noise(quietest):
                quietest = record
            if not self.disturbed(record):
                break
        return quietest

    def loop(self) -> float:
        seconds = loop_now(self.build)
        if seconds > 0:
            self.fastest_loop = min(self.fastest_loop, seconds)
        return seconds

    def wait_for_speed(self) -> float:
        """Waits while a processor is slow, not for long; returns its last loop."""
        start = time.monotonic()
        allowed = min(WAIT, WAIT_SHARE * (start - self.started) - self.waited)
        while (seconds := self.loop()) > SLOW_LIMIT * self.fastest_loop and time.monotonic() - start < allowed:
            pause(WAIT_STEP)
        self.waited += time.monotonic() - start
        return seconds

    def slowness(self, record: dict) -> float:
        """How many times its fastest loop a processor took, both before and after a run."""
        return max(1.0, record.get("loop_s", 0.0) / self.fastest_loop)

    def noise(self, record: dict) -> float:
        return foreign(record) + self.slowness(record) - 1

    def disturbed(self, record: dict) -> bool:
        return crowded(record) or self.slowness(record) > SLOW_LIMIT

    def expected_output(self, b: Benchmark, quick: bool) -> str:
        key = f"{b.name} quick={quick}"
        if key not in self.outputs:
            self.outputs[key] = run_once(b, Allocator(SYSTEM), self.build, quick, False)["output"]
        return self.outputs[key]

    def by_round(self, b: str, a: str, key: str) -> dict[int, float]:
        """The values by round, of the undisturbed runs if every allocator that still runs this benchmark
        has one: an undisturbed run compares with nothing else. Empty if the pair has ever failed."""
        runs = self.runs(b, a)
        running = [x.name for x in self.allocators if (b, x.name) not in self.enough]
        if all(self.calm(made) for name in running if (made := self.runs(b, name))):
            runs = self.calm(runs) or runs
        return {r["round"]: r[key] for r in runs if key in r}

    def runs(self, b: str, a: str) -> list[dict]:
        """The records of a pair; none if it has ever failed."""
        if (b, a) in self.failures:
            return []
        for record in self.records[self.indexed:]:
            self.pairs.setdefault((record["benchmark"], record["allocator"]), []).append(record)
        self.indexed = len(self.records)
        return self.pairs.get((b, a), [])

    def calm(self, runs: list[dict]) -> list[dict]:
        return [r for r in runs if not self.disturbed(r)]

    def values(self, b: str, a: str, key: str) -> list[float]:
        return list(self.by_round(b, a, key).values())

    def calm_values(self, b: str, a: str, key: str) -> list[float]:
        """The values of the undisturbed runs alone."""
        return [r[key] for r in self.calm(self.runs(b, a)) if key in r]


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
