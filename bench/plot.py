#!/usr/bin/env python3
"""Draw a comparison: relative time and peak RSS per benchmark and allocator.

    python3 bench/plot.py result.json chart.svg        (or .png, .pdf)
    python3 bench/plot.py --means result.json chart.svg

The input is what compare.py --json writes. Bars are ratios to the reference, whiskers the 95 %
intervals; --means draws a scatter plot of the geometric means. Uses matplotlib (see deps.py).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import deps
import results

WIDEST = 3.0  # longer bars are cut off and marked
COLOURS = ["#7f7f7f", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d",
           "#1f78b4", "#b2df8a", "#fb9a99", "#cab2d6", "#33a02c"]


def rows_of(result: dict, suite: str | None) -> list[tuple[str, dict[str, dict]]]:
    """(benchmark, {allocator: row}) in the order of the result, the means last."""
    groups = list(results.rows(result, suite).items())
    if means := results.geometric_means(result, suite):
        groups.append(("geometric mean", means))
    return groups


def draw_panel(axes, groups, allocators: list[str], key: str, title: str) -> None:
    height = 0.8 / len(allocators)
    values = [row.get(f"{key}_high", row[key]) for _, group in groups for row in group.values()
              if row.get(key)]
    limit = min(WIDEST, 1.15 * max([1.0, *values]))
    for number, name in enumerate(allocators):
        for place, (_, group) in enumerate(groups):
            y = place + (number - (len(allocators) - 1) / 2) * height
            row = group.get(name, {})
            if not row.get(key):
                axes.text(0.01, y, "failed" if "failure" in row else "no ratio", va="center",
                          fontsize=6, color="#aa0000")
                continue
            value = row[key]
            axes.barh(y, min(value, limit), height * 0.92, color=COLOURS[number % len(COLOURS)])
            low, high = (min(row.get(f"{key}_{end}", value), limit) for end in ("low", "high"))
            if low < high:
                axes.plot([low, high], [y, y], color="black", linewidth=0.8)
            text = f"{value:.2f}" if value <= limit else f"{value:.1f} →"
            axes.text(min(max(value, high), limit) + 0.01 * limit, y, text, va="center", fontsize=6)
    axes.axvline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlim(0, limit * 1.1)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def pyplot_for(out: Path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "hakmem"  # makes the same data give the same file
    matplotlib.rcParams["svg.fonttype"] = "none"    # keeps text as text, which is smaller
    return pyplot, {"metadata": {"Date": None}} if out.suffix == ".svg" else {"dpi": 160}


def draw(result: dict, out: Path, suite: str | None = None) -> None:
    """Bars per benchmark of one suite, or of all."""
    pyplot, options = pyplot_for(out)
    groups = rows_of(result, suite)
    allocators = results.allocators(result)
    figure, (time_axes, rss_axes) = pyplot.subplots(
        1, 2, sharey=True, width_ratios=(3, 2), layout="constrained",
        figsize=(10, 1.2 + len(groups) * (0.2 + 0.11 * len(allocators))))
    reference = result["reference"]
    net = " less the benchmark's own" if result["net"] else ""
    draw_panel(time_axes, groups, allocators, "time_ratio",
               f"time{net}, relative to {reference} (shorter is faster)")
    draw_panel(rss_axes, groups, allocators, "rss_ratio", f"memory relative to {reference}")
    time_axes.set_yticks(range(len(groups)), [name for name, _ in groups])
    patches = [pyplot.Rectangle((0, 0), 1, 1, color=COLOURS[i % len(COLOURS)]) for i in range(len(allocators))]
    figure.legend(patches, allocators, loc="outside upper center", ncols=min(len(allocators), 7), fontsize=7,
                  frameon=False)
    note = (f"{results.machine(result)}; medians of {results.rounds(result)} rounds, whiskers 95 % CI"
            + (f"; {results.disturbed(result)}" if result["disturbed_runs"] else "")
            + ("; quick runs, not for quoting" if result["quick"] else ""))
    figure.supxlabel(note, fontsize=6)
    figure.savefig(out, **options)
    pyplot.close(figure)


def draw_means(result: dict, out: Path, suite: str | None = None, names: list[str] | None = None) -> bool:
    """Draws geometric means, time against memory; false if no allocator has all figures."""
    pyplot, options = pyplot_for(out)
    from matplotlib.ticker import FormatStrFormatter
    time, rss = (results.means(results.ratios(result, key, suite), names or results.allocators(result))
                 for key in ("time_ratio", "rss_ratio"))
    shown = [name for name in time if name in rss]
    if not shown:
        return False
    figure, axes = pyplot.subplots(figsize=(6.4, 3.2), layout="constrained")
    for name in shown:
        ours = name.startswith("hakmem")
        axes.scatter(time[name], rss[name], s=60 if ours else 30, zorder=3,
                     color="#d95f02" if ours else "#666666")
        axes.annotate(name, (time[name], rss[name]), xytext=(5, 4), textcoords="offset points",
                      fontsize=9 if ours else 8, fontweight="bold" if ours else None)
    axes.set(xscale="log", yscale="log", xlabel="time, geometric mean relative to the best of each row",
             ylabel="memory, likewise")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FormatStrFormatter("%.1f"))
        axis.set_minor_formatter(FormatStrFormatter("%.1f"))
    axes.tick_params(which="both", labelsize=7)
    axes.grid(which="both", linewidth=0.3)
    axes.set_title("lower left is better", fontsize=8, loc="left")
    figure.savefig(out, **options)
    pyplot.close(figure)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw what compare.py --json wrote.")
    parser.add_argument("result", type=Path)
    parser.add_argument("out", type=Path, help="chart to write: .svg, .png or .pdf")
    parser.add_argument("--suite", help="only its benchmarks")
    parser.add_argument("--means", action="store_true", help="time against memory, geometric means")
    args = parser.parse_args()
    if args.out.suffix not in (".svg", ".png", ".pdf"):
        parser.error("the chart's name must end in .svg, .png or .pdf")
    result = results.load(args.result)
    deps.need("matplotlib")
    if args.suite and args.suite not in results.suites(result):
        parser.error(f"suites there: {', '.join(results.suites(result))}")
    if args.means:
        if not draw_means(result, args.out, args.suite):
            parser.error("no allocator has a figure for every benchmark")
    else:
        draw(result, args.out, args.suite)
    return 0


if __name__ == "__main__":
    sys.exit(main())
