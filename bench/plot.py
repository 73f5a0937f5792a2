#!/usr/bin/env python3
"""Draw a comparison: relative time and peak RSS per benchmark and allocator.

    python3 bench/plot.py result.json chart.svg        (or .png, .pdf)

The input is what compare.py --json writes. Bars are ratios to the reference,
whiskers the 95 % intervals. Uses matplotlib from build/venv (see deps.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import deps

WIDEST = 3.0  # longer bars are cut and say so
COLOURS = ["#7f7f7f", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d",
           "#1f78b4", "#b2df8a"]


def rows_of(result: dict) -> list[tuple[str, dict[str, dict]]]:
    """(benchmark, {allocator: row}) in the order of the result, the means last."""
    groups: dict[str, dict[str, dict]] = {}
    for row in result["rows"]:
        groups.setdefault(row["benchmark"], {})[row["allocator"]] = row
    for mean in result["geometric_means"]:
        name = "mean of all" if mean["suite"] == "all" else f"mean, {mean['suite']}"
        groups.setdefault(name, {})[mean["allocator"]] = mean
    return list(groups.items())


def draw_panel(axes, groups, allocators: list[str], key: str, title: str) -> None:
    height = 0.8 / len(allocators)
    groups = [(name, {a: r for a, r in group.items() if r.get(key) or "failure" in r}) for name, group in groups]
    values = [row.get(f"{key}_high", row[key]) for _, group in groups for row in group.values()
              if key in row]
    limit = min(WIDEST, 1.15 * max([1.0, *values]))
    for number, name in enumerate(allocators):
        for place, (_, group) in enumerate(groups):
            y = place + (number - (len(allocators) - 1) / 2) * height
            row = group.get(name, {})
            if key not in row:
                axes.text(0.01, y, "failed" if "failure" in row else "no ratio", va="center",
                          fontsize=6, color="#aa0000")
                continue
            value = row[key]
            axes.barh(y, min(value, limit), height * 0.92, color=COLOURS[number % len(COLOURS)],
                      label=name if place == 0 else None)
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


def draw(result: dict, out: Path) -> None:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "hakmem"  # the same data give the same file
    groups = rows_of(result)
    allocators = [a["name"] for a in result["allocators"]]
    figure, (time_axes, rss_axes) = pyplot.subplots(
        1, 2, sharey=True, width_ratios=(3, 2), layout="constrained",
        figsize=(10, 1.2 + len(groups) * (0.25 + 0.14 * len(allocators))))
    reference = result["reference"]
    net = " less the benchmark's own" if result["net"] else ""
    draw_panel(time_axes, groups, allocators, "time_ratio",
               f"time per operation{net}, relative to {reference} (shorter is faster)")
    draw_panel(rss_axes, groups, allocators, "rss_ratio", f"peak RSS relative to {reference}")
    time_axes.set_yticks(range(len(groups)), [name for name, _ in groups])
    handles, labels = time_axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 8), fontsize=7,
                  frameon=False)
    machine = result["machine"]
    note = (f"{machine['cpu']}, {machine['cpus']} CPUs, Linux {machine['kernel']}, {machine['libc']}; "
            f"medians of {result['rounds']} rounds, whiskers 95 % CI"
            + (f"; {result['disturbed_runs']} of {len(result['runs'])} runs disturbed"
               if result["disturbed_runs"] else "")
            + ("; quick runs, not for quoting" if result["quick"] else ""))
    figure.supxlabel(note, fontsize=6)
    metadata = {"Date": None} if out.suffix == ".svg" else None
    figure.savefig(out, dpi=160, metadata=metadata)


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw what compare.py --json wrote.")
    parser.add_argument("result", type=Path)
    parser.add_argument("out", type=Path, help="chart to write: .svg, .png or .pdf")
    args = parser.parse_args()
    if args.out.suffix not in (".svg", ".png", ".pdf"):
        parser.error("the chart's name must end in .svg, .png or .pdf")
    deps.need("matplotlib")
    result = json.loads(args.result.read_text())
    if not str(result.get("schema", "")).startswith("hakmem-bench/"):
        parser.error(f"{args.result} was not written by compare.py")
    draw(result, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
