"""Do two results of the same build agree? `hakmem bench --agree A.json B.json`, or
`compare.py --agree A.json B.json`.

Two ratios of a row agree if their intervals have a point in common. For independent runs
with 95 % intervals as summary.py computes them, some 3 in 1,000 have none by chance. Rows
that only one result has are named. Results of different libraries, or with different
references, are refused.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import results

RATIOS = {"time_ratio": "time", "rss_ratio": "memory"}
BY_CHANCE = 0.003


@dataclass(frozen=True)
class Pair:
    """One ratio in both results, each as (low, ratio, high)."""
    benchmark: str
    allocator: str
    what: str
    one: tuple[float, float, float]
    other: tuple[float, float, float]

    @property
    def agrees(self) -> bool:
        return self.one[0] <= self.other[2] and self.other[0] <= self.one[2]

    @property
    def within(self) -> bool:
        """A stricter test that not all pairs can pass: each ratio lies in the other's interval."""
        return self.one[0] <= self.other[1] <= self.one[2] and self.other[0] <= self.one[1] <= self.other[2]

    def __str__(self) -> str:
        sides = (f"{ratio:.3f} ({low:.3f}–{high:.3f})" for low, ratio, high in (self.one, self.other))
        return f"{self.benchmark:<22} {self.allocator:<16} {self.what:<7} " + "  against  ".join(sides)


def builds(result: dict) -> dict[str, tuple]:
    return {a["name"]: (a.get("sha256", ""), tuple(sorted(a.get("env", {}).items()))) for a in result["allocators"]}


def refusal(one: dict, other: dict) -> str | None:
    """The reason why the two results cannot be compared, or None."""
    if one["reference"] != other["reference"]:
        return f"one relates to {one['reference']}, the other to {other['reference']}"
    if one["quick"] != other["quick"] or one["net"] != other["net"]:
        return "they were not measured in the same way (--quick, --net)"
    mine, theirs = builds(one), builds(other)
    for name in mine.keys() & theirs.keys():
        if mine[name] != theirs[name]:
            return f"{name} is not the same build in both"
    mine, theirs = ({b["name"]: b["args"] for b in result["benchmarks"]} for result in (one, other))
    for name in mine.keys() & theirs.keys():
        if mine[name] != theirs[name]:
            return f"{name} had other arguments"
    return None


def pairs(one: dict, other: dict) -> tuple[list[Pair], list[str]]:
    """The comparable ratios, and the benchmarks for which a result lacks a ratio or an interval."""
    found: list[Pair] = []
    single: dict[str, None] = {}
    first, second = results.rows(one), results.rows(other)
    for benchmark in dict.fromkeys([*first, *second]):
        for allocator in dict.fromkeys([*first.get(benchmark, {}), *second.get(benchmark, {})]):
            if allocator == one["reference"]:
                continue
            mine, theirs = (rows.get(benchmark, {}).get(allocator, {}) for rows in (first, second))
            for key, what in RATIOS.items():
                sides = [tuple(row[k] for k in (f"{key}_low", key, f"{key}_high")) if f"{key}_low" in row else None
                         for row in (mine, theirs)]
                if all(sides):
                    found.append(Pair(benchmark, allocator, what, *sides))
                elif key in mine or key in theirs:
                    single[benchmark] = None
    return found, list(single)


def check(paths: list[Path]) -> int:
    """Prints the differences; returns 1 if there are any, 2 if the results cannot be compared."""
    one, other = map(results.load, paths)
    if why := refusal(one, other):
        print(f"compare: {why}", file=sys.stderr)
        return 2
    found, single = pairs(one, other)
    differ = [p for p in found if not p.agrees]
    for p in differ:
        print(p)
    if single:
        print(f"not compared, as one of them has no interval: {', '.join(single)}")
    if not found:
        print("compare: nothing to compare", file=sys.stderr)
        return 2
    print(f"{len(found)} ratios of {len({p.benchmark for p in found})} benchmarks: {len(found) - len(differ)} agree, "
          f"{len(differ)} do not (by chance: {BY_CHANCE * len(found):.1f}); {sum(p.within for p in found)} lie within "
          "each other's interval")
    return 1 if differ else 0
