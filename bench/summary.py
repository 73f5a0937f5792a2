"""From runs to figures: medians, bootstrap intervals, geometric means, the best of each row."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

from benchmark import Benchmark
from measure import Session

BOOTSTRAP = 2000  # resamples per interval


def bootstrap_ratios(mine: list[float], reference: list[float], draws: list[list[int]]) -> list[float]:
    """Ratios of the medians, one per draw of rounds (the same rounds for both)."""
    return [statistics.median([mine[i] for i in draw]) / statistics.median([reference[i] for i in draw])
            for draw in draws]


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


def ratio(mine: float, theirs: float) -> float | None:
    return mine / theirs if mine > 0 and theirs > 0 else None


def summarise(session: Session, reference: str, rounds: int) -> dict[str, Any]:
    """Rows per benchmark and allocator, and geometric means per allocator."""
    floor = floors(session) if session.net else {}
    dice = random.Random(1)  # the intervals of given data are always the same
    draws = [[dice.randrange(rounds) for _ in range(rounds)] for _ in range(BOOTSTRAP)]
    rows: list[dict[str, Any]] = []
    samples: dict[tuple[str, str], list[float]] = {}
    for b in session.benchmarks:
        base = times(session, b, reference, floor)
        group = [summarise_pair(session, b, a.name, floor) for a in session.allocators]
        rows += group
        of_base = next((r for r in group if r["allocator"] == reference), {})
        for row in group:
            mine = times(session, b, row["allocator"], floor)
            # A run faster than the floor leaves nothing to relate; that takes a
            # disturbed machine.
            if len(mine) == len(base) == rounds and min(mine) > 0 and min(base) > 0:
                ratios = bootstrap_ratios(mine, base, draws)
                low, high = interval(ratios)
                row.update({"time_ratio": statistics.median(mine) / statistics.median(base),
                            "time_ratio_low": low, "time_ratio_high": high,
                            "rss_ratio": ratio(row["rss_kib"], of_base["rss_kib"])})
                samples[b.name, row["allocator"]] = ratios
            if b.name not in floor:
                for key, name in SIDE:
                    if key in row and of_base.get(key):
                        row[name] = ratio(row[key], of_base[key])
    add_best(rows)
    return {"reference": reference, "rows": rows,
            "geometric_means": geometric_means(session, rows, samples)}


def add_best(rows: list[dict[str, Any]]) -> None:
    """time_to_best, rss_to_best: relative to the best other allocator of the row, so that
    below 1 means first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "time_ratio" in row:
            groups.setdefault(row["benchmark"], []).append(row)
    for group in groups.values():
        for row in group:
            for key, name in (("time", "time_to_best"), ("rss_kib", "rss_to_best")):
                others = [r[key] for r in group if r is not row and r[key] > 0]
                if others and row[key] > 0:
                    row[name] = row[key] / min(others)


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
            for key in ("time_ratio", "rss_ratio", "time_to_best", "rss_to_best"):
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
