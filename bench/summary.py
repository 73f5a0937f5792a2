"""From runs to figures: medians, bootstrap intervals, geometric means, the best of each row."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

from benchmark import Benchmark
from measure import Session

BOOTSTRAP = 2000  # resamples per interval


def draw_rounds(rounds: int) -> list[list[int]]:
    """The resamples of the rounds; of given data the intervals are always the same."""
    dice = random.Random(1)
    return [[dice.randrange(rounds) for _ in range(rounds)] for _ in range(BOOTSTRAP)]


def resampled_medians(values: list[float], draws: list[list[int]]) -> list[float]:
    """The median of each draw of rounds."""
    return [statistics.median([values[i] for i in draw]) for draw in draws]


def ratio_interval(mine: list[float], theirs: list[float]) -> tuple[float, float]:
    """Of resampled medians, which belong together as their draws are the same rounds."""
    return interval([m / t for m, t in zip(mine, theirs)])


def interval(samples: list[float]) -> tuple[float, float]:
    """The middle 95 %."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return ordered[round(0.025 * last)], ordered[round(0.975 * last)]


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def floors(session: Session) -> dict[str, float]:
    """The benchmarks' own cost. It does not depend on the allocator, so all runs count."""
    found: dict[str, list[float]] = {}
    for record in session.records:
        if "floor_ns_per_op" in record:
            found.setdefault(record["benchmark"], []).append(record["floor_ns_per_op"])
    return {name: statistics.median(values) for name, values in found.items()}


def times(session: Session, b: Benchmark, a: str, floor: dict[str, float]) -> list[float]:
    """What counts as time, by round; less the floor if there is one."""
    return [t - floor.get(b.name, 0.0) for t in session.values(b.name, a, b.metric)]


# Key of a record, of the ratio in a row. Meaningless where the run includes floor runs.
SIDE = (("cpu_seconds", "cpu_ratio"), ("mean_rss_kib", "mean_rss_ratio"), ("minor_faults", "faults_ratio"))


def summarise_pair(session: Session, b: Benchmark, a: str, floor: dict[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {"benchmark": b.name, "suite": b.suite, "allocator": a}
    mine = times(session, b, a, floor)
    if not mine:
        return {**row, "failure": session.failures.get((b.name, a), "not run")}
    row.update({"rounds": len(mine), "metric": b.metric, "time": statistics.median(mine),
                "time_min": min(mine), "time_max": max(mine), "memory": b.memory,
                "rss_kib": statistics.median(session.values(b.name, a, b.memory))})
    if b.name in floor:
        row["floor"] = floor[b.name]
    for key in ("ops_per_s", *(key for key, _ in SIDE)):
        if values := session.values(b.name, a, key):
            row[key] = statistics.median(values)
    return row


def summarise(session: Session, reference: str, rounds: int) -> dict[str, Any]:
    """Rows per benchmark and allocator, and geometric means per allocator."""
    floor = floors(session) if session.net else {}
    draws = draw_rounds(rounds)
    rows: list[dict[str, Any]] = []
    samples: dict[tuple[str, str], list[float]] = {}  # of the ratio to the reference
    for b in session.benchmarks:
        group = [summarise_pair(session, b, a.name, floor) for a in session.allocators]
        rows += group
        resampled: dict[str, list[float]] = {}
        for a in session.allocators:
            mine = times(session, b, a.name, floor)
            # A run faster than the floor leaves nothing to relate; that takes a
            # disturbed machine.
            if len(mine) == rounds and min(mine) > 0:
                resampled[a.name] = resampled_medians(mine, draws)
        relate(group, reference, resampled, b.name not in floor)
        add_best(group, resampled)
        for name in resampled if reference in resampled else ():
            samples[b.name, name] = [m / t for m, t in zip(resampled[name], resampled[reference])]
    return {"reference": reference, "rows": rows,
            "geometric_means": geometric_means(session, rows, samples)}


def relate(group: list[dict[str, Any]], reference: str, resampled: dict[str, list[float]], side: bool) -> None:
    """Adds the ratios to the reference, with intervals of that of time."""
    base = next((r for r in group if r["allocator"] == reference), {})
    for row in group:
        if row["allocator"] in resampled and reference in resampled:
            low, high = ratio_interval(resampled[row["allocator"]], resampled[reference])
            row.update({"time_ratio": row["time"] / base["time"], "time_ratio_low": low, "time_ratio_high": high})
            if row["rss_kib"] > 0 and base["rss_kib"] > 0:
                row["rss_ratio"] = row["rss_kib"] / base["rss_kib"]
        for key, name in SIDE if side else ():
            if row.get(key) and base.get(key):
                row[name] = row[key] / base[key]


def add_best(group: list[dict[str, Any]], resampled: dict[str, list[float]]) -> None:
    """Relative to the best allocator of the row (time_of_row, rss_of_row: the winner has 1),
    and to the best other one (time_to_best, rss_to_best: below 1 means first)."""
    group = [row for row in group if row["allocator"] in resampled]
    for key, of_row, to_best in (("time", "time_of_row", "time_to_best"), ("rss_kib", "rss_of_row", "rss_to_best")):
        known = [r for r in group if r[key] > 0]
        for row in known:
            row[of_row] = row[key] / min(r[key] for r in known)
            others = [r for r in known if r is not row]
            if not others:
                continue
            best = min(others, key=lambda r: r[key])
            row[to_best] = row[key] / best[key]
            row[f"{key}_best"] = best["allocator"]
            if key == "time":
                row["time_to_best_low"], row["time_to_best_high"] = ratio_interval(
                    resampled[row["allocator"]], resampled[best["allocator"]])


def geometric_means(session: Session, rows: list[dict[str, Any]],
                    samples: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
    # Only over benchmarks that every allocator has a ratio for: the means of different
    # sets of benchmarks could not be compared.
    suites = dict.fromkeys(b.suite for b in session.benchmarks)
    means = []
    for suite in [None, *(suites if len(suites) > 1 else ())]:
        common = [b.name for b in session.benchmarks if suite in (None, b.suite)
                  and all((b.name, a.name) in samples for a in session.allocators)]
        for a in session.allocators if common else []:
            mine = [r for r in rows if r["allocator"] == a.name and r["benchmark"] in common]
            low, high = interval([geometric_mean([samples[name, a.name][i] for name in common])
                                  for i in range(BOOTSTRAP)])
            mean = {"suite": suite or "all", "allocator": a.name, "benchmarks": len(common),
                    "time_ratio_low": low, "time_ratio_high": high}
            for key in ("time_ratio", "rss_ratio", "time_of_row", "rss_of_row", "time_to_best", "rss_to_best"):
                values = [r[key] for r in mine if r.get(key)]
                if len(values) == len(mine):
                    mean[key] = geometric_mean(values)
            means.append(mean)
    return means


def not_first(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Rows of an allocator that another one beats by more than noise and rounding."""
    return sorted((r for r in rows if r["allocator"] == name
                   and (r.get("time_to_best", 0) > 1.02 or r.get("rss_to_best", 0) > 1.05)),
                  key=lambda r: -max(r.get("time_to_best", 0), r.get("rss_to_best", 0)))
