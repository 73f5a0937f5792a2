"""Reads results of compare.py --json: suites, ratios to the best of each row, means."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

ALL = "all"


def load(path: Path) -> dict:
    """Reads a result; if that fails, ends the program with status 2 and a line."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        wrong = error.strerror
    except ValueError:
        wrong = "not JSON"
    else:
        if isinstance(result, dict) and str(result.get("schema", "")).startswith("hakmem-bench/"):
            return result
        wrong = "was not written by compare.py"
    print(f"{Path(sys.argv[0]).stem}: {path}: {wrong}", file=sys.stderr)
    raise SystemExit(2)


def allocators(result: dict) -> list[str]:
    return [a["name"] for a in result["allocators"]]


def ours(result: dict) -> str | None:
    """The name of HAKMEM in the result."""
    return next((name for name in allocators(result) if name.startswith("hakmem")), None)


def suites(result: dict) -> list[str]:
    return list(dict.fromkeys(row.get("suite", "core") for row in result["rows"]))


def rows(result: dict, suite: str | None = None) -> dict[str, dict[str, dict]]:
    """benchmark -> allocator -> row, for one suite or for all."""
    groups: dict[str, dict[str, dict]] = {}
    for row in result["rows"]:
        if suite in (None, ALL, row.get("suite", "core")):
            groups.setdefault(row["benchmark"], {})[row["allocator"]] = row
    return groups


def geometric_means(result: dict, suite: str | None = None) -> dict[str, dict]:
    """allocator -> its means relative to the reference; a single suite's means are not repeated."""
    wanted = suite if suite is not None and len(suites(result)) > 1 else ALL
    return {m["allocator"]: m for m in result["geometric_means"] if m.get("suite", ALL) == wanted}


def ratios(result: dict, key: str, suite: str | None = None) -> dict[str, dict[str, float]]:
    """benchmark -> allocator -> value relative to the smallest of its row."""
    table: dict[str, dict[str, float]] = {}
    for benchmark, group in rows(result, suite).items():
        known = {name: row[key] for name, row in group.items() if row.get(key)}
        if known:
            table[benchmark] = {name: value / min(known.values()) for name, value in known.items()}
    return table


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def means(table: dict[str, dict[str, float]], names: list[str]) -> dict[str, float]:
    """Geometric means, for allocators that have a figure in every row."""
    return {name: mean([row[name] for row in table.values()])
            for name in names if table and all(name in row for row in table.values())}


def span(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def rounds(result: dict) -> str:
    """The number of rounds as a text: benchmarks may differ."""
    return span(result["rounds"], result.get("most_rounds", result["rounds"]))


def disturbed(result: dict) -> str:
    """How many of the runs that count were disturbed, as a text."""
    return f"{result['disturbed_runs']} of {len(result['runs'])} runs disturbed"


def machine(result: dict) -> str:
    m = result["machine"]
    return f"{m['cpu']}, {m['cpus']} CPUs, Linux {m['kernel']}, {m['libc']}"
