#!/usr/bin/env python3
"""Put the figures of a comparison into README.md, and its charts beside the result.

    python3 bench/readme.py docs/results/full.json          (make results runs it)

Writes full-means.svg and full.svg next to the result and replaces what lies
between the two `<!-- results -->` marks of README.md. Times and peak RSS are
ratios to the best allocator of each row, so 1.00 is the winner and losses show.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import deps
from suites import SELECTIONS

ROOT = Path(__file__).resolve().parent.parent
MARK = "<!-- results -->"


def ratios(result: dict, key: str) -> dict[str, dict[str, float]]:
    """benchmark -> allocator -> value relative to the least of its row."""
    table: dict[str, dict[str, float]] = {}
    for row in result["rows"]:
        if row.get(key):
            table.setdefault(row["benchmark"], {})[row["allocator"]] = row[key]
    for row in table.values():
        best = min(row.values())
        for name in row:
            row[name] /= best
    return table


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def means(table: dict[str, dict[str, float]], allocators: list[str]) -> dict[str, float]:
    """Geometric means, of allocators that have a figure in every row."""
    return {name: mean([row[name] for row in table.values()])
            for name in allocators if all(name in row for row in table.values())}


def markdown(result: dict, allocators: list[str]) -> str:
    time, rss = ratios(result, "time_ratio"), ratios(result, "rss_ratio")
    lines = ["| time (peak RSS), 1.00 = best of the row | " + " | ".join(allocators) + " |",
             "|---|" + "---|" * len(allocators)]

    def cell(t: float | None, r: float | None) -> str:
        if t is None:
            return "failed"
        text = f"{t:.2f}"
        return (f"**{text}**" if text == "1.00" else text) + (f" ({r:.2f})" if r else "")

    for benchmark, row in time.items():
        if benchmark not in SELECTIONS["headline"]:
            continue
        cells = [cell(row.get(name), rss.get(benchmark, {}).get(name)) for name in allocators]
        lines.append(f"| {benchmark} | " + " | ".join(cells) + " |")
    suites = {row["benchmark"]: row["suite"] for row in result["rows"]}
    for suite in [*dict.fromkeys(suites.values()), None]:
        of_suite = {b: row for b, row in time.items() if suite in (None, suites[b])}
        if suite is not None and len(set(suites.values())) == 1:
            continue
        time_means = means(of_suite, allocators)
        rss_means = means({b: rss[b] for b in of_suite if b in rss}, allocators)
        cells = [f"{time_means[name]:.2f} ({rss_means.get(name, 0):.2f})" if name in time_means else "–"
                 for name in allocators]
        lines.append(f"| *mean of {len(of_suite)}{', ' + suite if suite else ''}* | " + " | ".join(cells) + " |")
    machine = result["machine"]
    versions = ", ".join(f"{a['name']} {a['version']}" for a in result["allocators"] if a.get("version"))
    lines += ["", f"<sub>{machine['cpu']}, {machine['cpus']} CPUs, Linux {machine['kernel']}; medians of "
              f"{result['rounds']} interleaved rounds{', less the cost of the benchmark itself' if result['net'] else ''}. "
              f"{versions}.</sub>"]
    return "\n".join(lines)


def draw_means(result: dict, allocators: list[str], out: Path) -> None:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "hakmem"
    time, rss = (means(ratios(result, key), allocators) for key in ("time_ratio", "rss_ratio"))
    figure, axes = pyplot.subplots(figsize=(6.4, 3.2), layout="constrained")
    for name in time:
        ours = name.startswith("hakmem")
        axes.scatter(time[name], rss[name], s=60 if ours else 30, zorder=3,
                     color="#d95f02" if ours else "#666666")
        axes.annotate(name, (time[name], rss[name]), xytext=(5, 4), textcoords="offset points",
                      fontsize=9 if ours else 8, fontweight="bold" if ours else None)
    axes.set(xscale="log", yscale="log", xlabel="time, geometric mean relative to the best of each row",
             ylabel="peak RSS, likewise")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%.1f"))
        axis.set_minor_formatter(matplotlib.ticker.FormatStrFormatter("%.1f"))
    axes.tick_params(which="both", labelsize=7)
    axes.grid(which="both", linewidth=0.3)
    axes.set_title("lower left is better", fontsize=8, loc="left")
    figure.savefig(out, metadata={"Date": None})


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    deps.need("matplotlib")
    source = Path(sys.argv[1])
    result = json.loads(source.read_text())
    allocators = [a["name"] for a in result["allocators"]]
    shown = [name for name in allocators if name != "hardened"]
    draw_means(result, allocators, source.with_name(source.stem + "-means.svg"))
    import plot
    plot.draw(result, source.with_suffix(".svg"))
    readme = ROOT / "README.md"
    before, _, after = readme.read_text().split(MARK)
    readme.write_text(f"{before}{MARK}\n{markdown(result, shown)}\n{MARK}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
