"""Turns runs into figures: medians, intervals, geometric means, the best of each row."""

from __future__ import annotations

import functools
import math
import random
import statistics
from typing import Any

from benchmark import Benchmark
from measure import Session

BOOTSTRAP = 2000  # resamples per interval
LEAST_RUNS = 3    # for an interval; with fewer it would be correct, but uselessly wide
# The least width of an interval to either side: two sessions differ a little in what all rounds
# of one have in common, such as the place of files in memory, and page counts are rough.
RESOLUTION = 0.01

# Student's t, two-sided 95 %, by degrees of freedom from 1.
STUDENT = (12.71, 4.30, 3.18, 2.78)
# From this many rounds on, the smallest and the largest ratio enclose the median in more than
# 95 % of all cases; then order statistics are used, which assume nothing.
ORDER_ROUNDS = len(STUDENT) + 2


@functools.cache
def draw_rounds(rounds: int) -> list[list[int]]:
    """The resamples of the rounds; the same data always give the same intervals."""
    dice = random.Random(1)
    return [[dice.randrange(rounds) for _ in range(rounds)] for _ in range(BOOTSTRAP)]


def resampled_medians(values: list[float], draws: list[list[int]]) -> list[float]:
    """The median of each resample."""
    return [statistics.median([values[i] for i in draw]) for draw in draws]


def paired(mine: list[float], theirs: list[float]) -> list[float]:
    """The ratios round by round; empty if the numbers of rounds differ or a value is <= 0."""
    if len(mine) != len(theirs) or not mine or min(*mine, *theirs) <= 0:
        return []
    return [m / t for m, t in zip(mine, theirs)]


def exact_interval(ratios: list[float]) -> tuple[float, float]:
    """95 % interval of the median of paired ratios: by order statistics, which hold for any
    distribution, or with few rounds by Student's t of the logarithms. One round says nothing."""
    n = len(ratios)
    if n < 2:
        return 0.0, math.inf
    if n >= ORDER_ROUNDS:
        ordered, rank, outside = sorted(ratios), 0, 0.5 ** n
        while 2 * outside <= 0.05:  # the chance that the median lies beyond the rank-th ratio
            rank += 1
            outside += math.comb(n, rank) * 0.5 ** n
        return ordered[rank - 1], ordered[n - rank]
    logs = [math.log(r) for r in ratios]
    half = STUDENT[n - 2] * statistics.stdev(logs) / math.sqrt(n)
    return math.exp(statistics.fmean(logs) - half), math.exp(statistics.fmean(logs) + half)


def ratio_interval(mine: list[float], theirs: list[float], draws: list[list[int]]) -> tuple[float, float]:
    """95 % interval of the ratio of medians: the union of the exact interval and the bootstrap's,
    which resamples the same rounds of both. With few rounds a bootstrap alone hardly reaches
    beyond the observed values and is too narrow."""
    low, high = exact_interval(paired(mine, theirs))
    samples = [m / t for m, t in zip(resampled_medians(mine, draws), resampled_medians(theirs, draws))]
    return min(low, interval(samples)[0]), max(high, interval(samples)[1])


def interval(samples: list[float]) -> tuple[float, float]:
    """The range of the middle 95 % of the samples."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return ordered[round(0.025 * last)], ordered[round(0.975 * last)]


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def subtracted(session: Session, b: Benchmark) -> float:
    """The floor, or 0 if some allocator's run took no longer than it: the other allocators' net
    times could not be related to that one."""
    floor = statistics.median(session.floors.get(b.name, [0.0]))
    runs = (session.by_round(b.name, a.name, b.metric).values() for a in session.allocators)
    return floor if all(t > floor for by_round in runs for t in by_round) else 0.0


def times(session: Session, b: Benchmark, a: str) -> dict[int, float]:
    """The benchmark's time by round, less the floor if there is one that can be subtracted."""
    floor = subtracted(session, b)
    return {number: t - floor for number, t in session.by_round(b.name, a, b.metric).items()}


def common(mine: dict[int, float], theirs: dict[int, float]) -> tuple[list[float], list[float]]:
    """The values of the rounds that both have."""
    both = [number for number in mine if number in theirs]
    return [mine[number] for number in both], [theirs[number] for number in both]


# Key of a record; key of the ratio in a row.
SIDE = (("cpu_seconds", "cpu_ratio"), ("mean_rss_kib", "mean_rss_ratio"), ("minor_faults", "faults_ratio"))
# Key of a row; keys of its ratio to the reference, to the best of the row, to the best other.
KINDS = (("time", "time_ratio", "time_of_row", "time_to_best"), ("rss_kib", "rss_ratio", "rss_of_row", "rss_to_best"))


def summarise_pair(session: Session, b: Benchmark, a: str) -> dict[str, Any]:
    row: dict[str, Any] = {"benchmark": b.name, "suite": b.suite, "allocator": a}
    mine = list(times(session, b, a).values())
    if not mine:
        return {**row, "failure": session.failures.get((b.name, a), "not run")}
    row.update({"rounds": len(mine), "metric": b.metric, "time": statistics.median(mine),
                "time_min": min(mine), "time_max": max(mine), "memory": b.memory,
                "rss_kib": statistics.median(session.values(b.name, a, b.memory))})
    if b.name in session.floors:
        row["floor"] = statistics.median(session.floors[b.name])
    for key in ("ops_per_s", *(key for key, _ in SIDE)):
        if values := session.values(b.name, a, key):
            row[key] = statistics.median(values)
    if b.details:
        row["details"] = {key: statistics.median(session.values(b.name, a, key)) for key in b.details}
    return row


class Group:
    """The rows of one benchmark, and the runs that they summarise."""

    def __init__(self, session: Session, b: Benchmark):
        self.rows = {a.name: summarise_pair(session, b, a.name) for a in session.allocators}
        self.runs = {(a.name, "time"): times(session, b, a.name) for a in session.allocators} \
            | {(a.name, "rss_kib"): session.by_round(b.name, a.name, b.memory) for a in session.allocators}
        # Excludes failures.
        self.known = {key: [name for name in self.rows if min(self.runs[name, key].values(), default=0) > 0]
                      for key in ("time", "rss_kib")}

    def relate(self, name: str, other: str, key: str, ratio: str) -> None:
        """Adds the ratio of the two medians over the rounds that both have, and its interval if
        there are enough rounds. Undisturbed runs may be of different rounds."""
        mine, theirs = common(self.runs[name, key], self.runs[other, key])
        if not mine:
            mine, theirs = list(self.runs[name, key].values()), list(self.runs[other, key].values())
            self.rows[name][ratio] = statistics.median(mine) / statistics.median(theirs)
            return
        value = statistics.median(mine) / statistics.median(theirs)
        row = self.rows[name]
        row[ratio] = value
        if len(mine) < LEAST_RUNS:
            return
        low, high = ratio_interval(mine, theirs, draw_rounds(len(mine)))
        if name != other:
            low, high = min(low, value / (1 + RESOLUTION)), max(high, value * (1 + RESOLUTION))
        row[f"{ratio}_low"], row[f"{ratio}_high"] = low, high

    def relate_all(self, reference: str) -> None:
        for key, ratio, of_row, to_best in KINDS:
            known = self.known[key]
            for name in known:
                row = self.rows[name]
                row[of_row] = row[key] / min(self.rows[n][key] for n in known)
                if reference in known:
                    self.relate(name, reference, key, ratio)
                if others := [n for n in known if n != name]:
                    row[f"{key}_best"] = min(others, key=lambda n: self.rows[n][key])
                    self.relate(name, row[f"{key}_best"], key, to_best)
        base = self.rows.get(reference, {})
        for key, name in SIDE:
            for row in self.rows.values():
                if row.get(key) and base.get(key):
                    row[name] = row[key] / base[key]


def summarise(session: Session, reference: str) -> dict[str, Any]:
    """The rows per benchmark and allocator, and the geometric means per allocator."""
    rows: list[dict[str, Any]] = []
    for b in session.benchmarks:
        group = Group(session, b)
        group.relate_all(reference)
        rows += group.rows.values()
    return {"reference": reference, "rows": rows, "geometric_means": geometric_means(session, rows)}


def geometric_means(session: Session, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # Only over benchmarks for which every allocator has a ratio: means over different
    # sets of benchmarks could not be compared.
    suites = dict.fromkeys(b.suite for b in session.benchmarks)
    means = []
    for suite in [None, *(suites if len(suites) > 1 else ())]:
        ours = [r for r in rows if suite in (None, r["suite"])]
        lacking = {r["benchmark"] for r in ours if "time_ratio" not in r}
        for a in session.allocators:
            mine = [r for r in ours if r["allocator"] == a.name and r["benchmark"] not in lacking]
            if not mine:
                continue
            mean = {"suite": suite or "all", "allocator": a.name, "benchmarks": len(mine)}
            for _, ratio, of_row, to_best in KINDS:
                for key in (ratio, of_row, to_best):
                    if all(r.get(key) for r in mine):
                        mean[key] = geometric_mean([r[key] for r in mine])
                if ratio in mean:
                    mean.update(interval_of_mean(mine, ratio, mean[ratio]))
            means.append(mean)
    return means


def interval_of_mean(rows: list[dict[str, Any]], ratio: str, mean: float) -> dict[str, float]:
    """The interval for independent rows: the squares of the (logarithmic) deviations add up."""
    if not all(f"{ratio}_low" in r for r in rows):
        return {}
    down, up = (math.sqrt(sum(math.log(r[f"{ratio}_{end}"] / r[ratio]) ** 2 for r in rows)) / len(rows)
                for end in ("low", "high"))
    return {f"{ratio}_low": mean * math.exp(-down), f"{ratio}_high": mean * math.exp(up)}


def not_first(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The rows in which another allocator beats this one by more than noise and rounding."""
    return sorted((r for r in rows if r["allocator"] == name
                   and (r.get("time_to_best", 0) > 1.02 or r.get("rss_to_best", 0) > 1.05)),
                  key=lambda r: -max(r.get("time_to_best", 0), r.get("rss_to_best", 0)))
