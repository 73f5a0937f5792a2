#!/usr/bin/env python3
"""A long mixed run under HAKMEM; behind `make soak` and the test soak.short (docs/soak.md).

    run.py [--build FOLDER] [--time SECONDS] [--json FILE] [--chart FILE]

Three things at once, all with the library preloaded:
  - long_life, a process whose sizes change from phase to phase, sampled 4 times a phase or more;
  - a redis-server under redis-benchmark, sampled between its rounds;
  - programs one after the other, again and again; their output must be the same as
    without HAKMEM: python3, perl, gcc, sqlite3, and test/stress.

Then the samples are judged (bounds below), the text summary is printed, and the last line
is 'N passed, N failed'. What a machine does not have is skipped by name. A run below SHORT
seconds that failed by bounds alone is repeated: what counts is what fails again.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "test" / "preload"))
import compilers  # noqa: E402
import data  # noqa: E402
import runtimes  # noqa: E402
from harness import WAIT, Failure, Harness, Skip, end_with_parent, loadable, need, wait_until  # noqa: E402

# The bounds. What was measured when they were set: docs/soak.md.
GROWTH_MAX = 1.25        # RSS of the last third of the time to that of the first third, per phase
# In a run below SHORT seconds a phase is shorter than it takes to return the previous phases'
# memory, so that chance decides with how much a single phase begins:
SHORT = 120
HIGHEST_MAX_SHORT = 1.5  # highest RSS of all phases, likewise
GROWTH_MEAN_SHORT = 1.5  # geometric mean over the phases of the lowest RSS of each pass, likewise
GROWTH_SLACK_KIB = 8192  # growth below this does not count
RSS_PER_LIVE_MAX = 3.5   # highest RSS of a cycle of phases to the highest live bytes of that cycle
DRIFT_MAX = 3.0          # p99.9 of malloc, likewise, geometric mean over the phases
DRIFT_SAMPLES = 1000     # timed mallocs that a sample needs for a p99.9
REDIS_GROWTH_MAX = 1.25  # RSS per used byte of redis, likewise
REDIS_SAMPLES = 3        # of one round that a third needs for a comparison

CYCLES_AT_MOST = 12      # of long_life's phases, in a long run
PHASE_LEAST = 0.25       # seconds
DRAW_LIMIT = 180         # seconds
WRITTEN = 1000           # samples of each kind in the file at most

# The checks that other load on the machine can make fail.
BOUNDS = RSS, PER_LIVE, LATENCY, REDIS = ("RSS over time", "RSS per live byte", "malloc's p99.9 over time",
                                          "redis: RSS per used byte over time")


@dataclasses.dataclass
class Check:
    name: str
    ok: bool
    text: str


@dataclasses.dataclass
class Round:
    """One run of a program."""
    program: str
    at: float
    seconds: float
    result: str  # "ok", or what went wrong


# ---------------------------------------------------------------------------
# Programs

def python3(h: Harness) -> str:
    records = ROOT / "bench" / "programs" / "records.py"
    h.same(sys.executable, str(records), "2", extra={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "1"})
    return "same digest"


class Stress:
    """test/stress, each time with another seed."""

    def __init__(self, build: Path, seconds: int) -> None:
        self.program, self.seconds, self.seed = str(build / "test" / "stress" / "stress"), seconds, 100

    def __call__(self, h: Harness) -> str:
        self.seed += 1
        h.under(self.program, str(self.seed), f"{self.seconds}s", "3", extra={"EXPECT_HAKMEM": "1"})
        return f"seed {self.seed}"


def run_programs(build: Path, until: float, quick: bool) -> tuple[list[Round], list[str]]:
    """Round robin until the time is up; each program runs at least once."""
    programs = {"python3": python3, "perl": runtimes.perl, "sqlite3": data.sqlite3,
                "stress": Stress(build, 2 if quick else 10)}
    if not quick:
        programs["gcc"] = compilers.gcc
    rounds: list[Round] = []
    skipped: list[str] = []
    start, left = time.monotonic(), list(programs)
    while left or time.monotonic() < until:
        name = left.pop(0) if left else list(programs)[len(rounds) % len(programs)]
        began = time.monotonic()
        try:
            in_fresh_folder(build, programs[name])
            result = "ok"
        except Skip as reason:
            skipped.append(f"{name} ({reason})")
            del programs[name]
            continue
        except Failure as failure:
            result = str(failure)
        rounds.append(Round(name, began - start, time.monotonic() - began, result))
    return rounds, skipped


def in_fresh_folder(build: Path, program) -> str:
    folder = tempfile.mkdtemp(prefix="hakmem-soak-")
    try:
        return program(Harness(str(build / "libhakmem.so"), folder, {}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------------------
# redis: one server for the whole time

class Redis:
    def __init__(self, build: Path, folder: str) -> None:
        server, self.cli, self.benchmark = need("redis-server", "redis-cli", "redis-benchmark")
        self.folder = folder
        self.samples: list[dict] = []
        self.failure = ""
        environment = os.environ | {"LD_PRELOAD": loadable(build / "libhakmem.so")}
        self.process = subprocess.Popen(
            [server, "--port", "0", "--unixsocket", data.SOCKET, "--dir", folder, "--save", "",
             "--appendonly", "no", "--daemonize", "no"], env=environment, cwd=folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=end_with_parent)
        try:
            wait_until(self.has_opened, "redis-server did not open its socket")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def has_opened(self) -> bool:
        if self.process.poll() is not None:
            raise Failure(f"redis-server ended at start with status {self.process.returncode}")
        return os.path.exists(os.path.join(self.folder, data.SOCKET))

    def ask(self, *command: str) -> str:
        return subprocess.run([self.cli, "-s", data.SOCKET, *command], capture_output=True,
                              text=True, timeout=60, cwd=self.folder).stdout

    def load_until(self, until: float) -> None:
        """Values of changing sizes under the same keys; every eighth round all keys are deleted."""
        start, number = time.monotonic(), 0
        while number < 3 or time.monotonic() < until:
            size = (20, 300, 3000, 80)[number % 4]
            done = subprocess.run(
                [self.benchmark, "-s", data.SOCKET, "-q", "-n", "20000", "-r", "10000", "-c", "10", "-P", "8",
                 "-d", str(size), "-t", "set,get,lpush,lpop,hset,sadd"], capture_output=True, text=True,
                cwd=self.folder)
            if done.returncode != 0 or self.process.poll() is not None:
                self.failure = f"round {number}: redis-benchmark: {done.stderr[-300:]}"
                return
            memory = dict(line.split(":", 1) for line in self.ask("INFO", "memory").splitlines() if ":" in line)
            self.samples.append({"t": time.monotonic() - start, "round": number % 8,
                                 "used_kib": int(memory["used_memory"]) // 1024,
                                 "rss_kib": int(memory["used_memory_rss"]) // 1024})
            number += 1
            if number % 8 == 0:
                self.ask("FLUSHALL")
            time.sleep(0.2)

    def stop(self) -> None:
        self.ask("SHUTDOWN", "NOSAVE")
        try:
            status = self.process.wait(WAIT)
            if status != 0 and not self.failure:
                self.failure = f"redis-server ended with status {status}"
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.failure = f"redis-server did not stop in {WAIT} s"


# ---------------------------------------------------------------------------
# Judgement

def thirds(samples: list[dict]) -> tuple[list[dict], list[dict]]:
    """First and last third of the time, without the very beginning (an eighth)."""
    end = samples[-1]["t"] if samples else 0
    first = [s for s in samples if end / 8 < s["t"] <= end * 11 / 24]
    return first, [s for s in samples if s["t"] > end * 2 / 3]


def by_phase(samples: list[dict], key: str, phase: str) -> dict[str, list[float]]:
    grouped: dict[str, list[float]] = {}
    for sample in samples:
        grouped.setdefault(sample[phase], []).append(sample[key])
    return grouped


def lowest(samples: list[dict]) -> list[dict]:
    """From each pass through a phase, the sample with the lowest RSS."""
    return [min(group, key=lambda s: s["rss_kib"]) for _, group in itertools.groupby(samples, lambda s: s["phase"])]


def judge_growth(samples: list[dict]) -> Check:
    short = samples[-1]["t"] < SHORT
    first, last = (by_phase(part, "rss_kib", "phase") for part in thirds(lowest(samples) if short else samples))
    growth, text = {}, {}
    for phase in first.keys() & last.keys():
        before, after = statistics.median(first[phase]), statistics.median(last[phase])
        growth[phase] = after / before if after > before + GROWTH_SLACK_KIB else min(1.0, after / before)
        text[phase] = f"phase {phase}: {before / 1024:.0f} MiB, then {after / 1024:.0f} MiB"
    if not growth:
        return Check(RSS, False, "no phase comes twice")
    worst = max(growth, key=growth.get)
    if not short:
        return Check(RSS, growth[worst] <= GROWTH_MAX,
                     f"{growth[worst]:.2f} x ({text[worst]}; bound {GROWTH_MAX})")
    highest = [max(s["rss_kib"] for s in part) for part in thirds(samples)]
    mean, risen = statistics.geometric_mean(growth.values()), highest[1] / highest[0]
    return Check(RSS, mean <= GROWTH_MEAN_SHORT and risen <= HIGHEST_MAX_SHORT,
                 f"highest {risen:.2f} x (bound {HIGHEST_MAX_SHORT}), mean over phases {mean:.2f} x "
                 f"(bound {GROWTH_MEAN_SHORT}); {text[worst]}")


def judge_rss_per_live(samples: list[dict]) -> Check:
    _, last = thirds(samples)
    rss, live = max(s["rss_kib"] for s in last), max(s["live_kib"] for s in last)
    return Check(PER_LIVE, rss <= RSS_PER_LIVE_MAX * live,
                 f"{rss / live:.2f} ({rss / 1024:.0f} MiB for {live / 1024:.0f} MiB at the peak of the cycle; "
                 f"bound {RSS_PER_LIVE_MAX})")


def judge_latency(samples: list[dict]) -> Check:
    enough = [s for s in samples if s["timed"] >= DRIFT_SAMPLES]
    first, last = (by_phase(part, "p999", "phase") for part in thirds(enough)) if enough else ({}, {})
    ratios = [statistics.median(last[p]) / statistics.median(first[p]) for p in first.keys() & last.keys()]
    if not ratios:
        return Check(LATENCY, False, "no phase with enough timed calls")
    drift = statistics.geometric_mean(ratios)
    of = {key: statistics.median(s[key] for s in enough) for key in ("p50", "p99", "p999")}
    return Check(LATENCY, drift <= DRIFT_MAX,
                 f"{drift:.2f} x over {len(ratios)} phases (bound {DRIFT_MAX}); medians p50 {of['p50']:.0f} ns, p99 "
                 f"{of['p99']:.0f} ns, p99.9 {of['p999']:.0f} ns, slowest {max(s['max'] for s in samples) / 1e6:.1f} ms")


def judge_redis(redis: Redis) -> list[Check]:
    checks = [Check("redis-server", not redis.failure,
                    redis.failure or f"{len(redis.samples)} rounds of redis-benchmark")]
    first, last = (by_phase([s | {"ratio": s["rss_kib"] / s["used_kib"]} for s in part], "ratio", "round")
                   for part in thirds(redis.samples))
    both = [r for r in first if min(len(first[r]), len(last.get(r, []))) >= REDIS_SAMPLES]
    if both:  # else the run was too short to compare equal rounds
        growth = statistics.geometric_mean(
            [statistics.median(last[r]) / statistics.median(first[r]) for r in both])
        checks.append(Check(REDIS, growth <= REDIS_GROWTH_MAX,
                            f"{growth:.2f} x (bound {REDIS_GROWTH_MAX})"))
    return checks


def judge_programs(rounds: list[Round]) -> list[Check]:
    checks = []
    for name in dict.fromkeys(r.program for r in rounds):
        of = [r for r in rounds if r.program == name]
        bad = [r for r in of if r.result != "ok"]
        checks.append(Check(name, not bad, bad[0].result if bad else
                            f"{len(of)} runs, {statistics.median(r.seconds for r in of):.1f} s each"))
    return checks


def by_bounds_alone(checks: list[Check]) -> bool:
    failed = {check.name for check in checks if not check.ok}
    return bool(failed) and failed <= set(BOUNDS)


def again(first: list[Check], second: list[Check]) -> list[Check]:
    """The second run's checks; a bound that held in the first run counts as held."""
    kept = {check.name for check in first if check.ok and check.name in BOUNDS}
    return [dataclasses.replace(check, ok=True, text=f"{check.text}; kept the first time")
            if not check.ok and check.name in kept else check for check in second]


# ---------------------------------------------------------------------------

def soak(build: Path, seconds: float) -> tuple[list[Check], list[str], dict]:
    until = time.monotonic() + seconds
    folder = tempfile.mkdtemp(prefix="hakmem-soak-")
    skipped: list[str] = []
    phase = max(PHASE_LEAST, seconds / 8 / CYCLES_AT_MOST)
    long_life = subprocess.Popen(
        [str(build / "test" / "soak" / "long_life"), f"{seconds}", f"{phase}"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"LD_PRELOAD": loadable(build / "libhakmem.so")}, preexec_fn=end_with_parent)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(long_life.stdout))
    reader.start()
    redis, load = None, None
    try:
        try:
            redis = Redis(build, folder)
            load = threading.Thread(target=redis.load_until, args=(until,))
            load.start()
        except Skip as reason:
            skipped.append(f"redis ({reason})")
        rounds, missing = run_programs(build, until, quick=seconds < SHORT)
        reader.join()
        status, said = long_life.wait(), long_life.stderr.read()
    except BaseException:
        if redis:
            redis.process.kill()  # its load ends with it and not when the time is up
        raise
    finally:
        if load:
            load.join()
            redis.stop()
        long_life.kill()
        long_life.wait()
        shutil.rmtree(folder, ignore_errors=True)

    samples = [json.loads(line) for line in lines[1:]]
    checks = [Check("long_life", status == 0 and len(samples) > 8, said.strip() or f"{len(samples)} samples")]
    if checks[0].ok:
        checks += [judge_growth(samples), judge_rss_per_live(samples), judge_latency(samples)]
    if redis:
        checks += judge_redis(redis)
    checks += judge_programs(rounds)
    record = {"schema": "hakmem-soak", "version": 1, "seconds": seconds, "long_life": samples,
              "redis": redis.samples if redis else [], "programs": [dataclasses.asdict(r) for r in rounds],
              "checks": [dataclasses.asdict(c) for c in checks]}
    return checks, skipped + missing, record


def written(record: dict) -> str:
    """A record of a long run keeps every n-th sample, one to a line; all were judged."""
    def text(value: object) -> str:
        if not isinstance(value, list):
            return json.dumps(value)
        every = max(1, math.ceil(len(value) / WRITTEN))
        return "[\n" + ",\n".join(json.dumps(item, separators=(",", ":")) for item in value[::every]) + "\n]"

    return "{" + ",\n".join(f"{json.dumps(key)}: {text(value)}" for key, value in record.items()) + "}\n"


def draw(record: Path, chart: Path) -> None:
    command = [sys.executable, "-B", str(Path(__file__).parent / "plot.py"), str(record), str(chart)]
    try:  # matplotlib may have to be downloaded first
        done = subprocess.run(command, capture_output=True, text=True, timeout=DRAW_LIMIT)
        print(f"chart: {chart}" if done.returncode == 0 else f"no chart: {done.stderr.strip()[-300:]}")
    except subprocess.TimeoutExpired:
        print(f"no chart: not drawn in {DRAW_LIMIT} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--time", type=float, default=600)
    parser.add_argument("--json", type=Path, help="where the samples go")
    parser.add_argument("--chart", type=Path, help="where a chart of them goes; needs --json")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    for path in filter(None, (args.json, args.chart)):
        path.parent.mkdir(parents=True, exist_ok=True)  # fail now and not after a day
    checks, skipped, record = soak(args.build.resolve(), args.time)
    if args.time < SHORT and by_bounds_alone(checks):
        for check in checks:
            if not check.ok:
                print(f"once more: {check.name}: {check.text}", flush=True)
        second, skipped, record = soak(args.build.resolve(), args.time)
        checks = again(checks, second)
        record["checks"] = [dataclasses.asdict(check) for check in checks]
    for check in checks:
        print(f"{'ok    ' if check.ok else 'FAILED'} {check.name}: {check.text}")
    for name in skipped:
        print(f"skipped: {name}")
    if args.json:
        args.json.write_text(written(record))
        if args.chart:
            draw(args.json, args.chart)
    failed = sum(not check.ok for check in checks)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
