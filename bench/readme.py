#!/usr/bin/env python3
"""Put the figures of a comparison into README.md, and its charts beside the result.

    python3 bench/readme.py docs/results/full.json          (make results runs it)

Writes NAME-means.svg and, of the core benchmarks, NAME.svg next to NAME.json and
replaces what lies between the two `<!-- results -->` marks of README.md. Times and
memory are ratios to the best allocator of each row, so 1.00 is the winner and losses
show.
"""

from __future__ import annotations

import sys
from pathlib import Path

import deps
import plot
import results

ROOT = Path(__file__).resolve().parent.parent
MARK = "<!-- results -->"


def cell(time: float | None, rss: float | None, missing: str) -> str:
    if time is None:
        return missing
    text = f"{time:.2f}"
    return (f"**{text}**" if text == "1.00" else text) + (f" ({rss:.2f})" if rss else "")


def means_row(result: dict, name: str, suite: str | None, allocators: list[str]) -> str:
    time, rss = (results.means(results.ratios(result, key, suite), allocators) for key in ("time_ratio", "rss_ratio"))
    count = len(results.ratios(result, "time_ratio", suite))
    cells = [cell(time.get(a), rss.get(a), "–") for a in allocators]
    return f"| {name} ({count}) | " + " | ".join(cells) + " |"


def head(what: str, allocators: list[str]) -> list[str]:
    return [f"| {what} | " + " | ".join(allocators) + " |", "|---|" + "---|" * len(allocators)]


def rows(result: dict, suite: str, allocators: list[str]) -> list[str]:
    time, rss = (results.ratios(result, key, suite) for key in ("time_ratio", "rss_ratio"))
    lines = head(f"{suite}: time (memory), 1.00 = best of the row", allocators)
    for benchmark, row in time.items():
        cells = [cell(row.get(name), rss.get(benchmark, {}).get(name), "failed") for name in allocators]
        lines.append(f"| {benchmark} | " + " | ".join(cells) + " |")
    return lines


def behind(result: dict, key: str, allocators: list[str]) -> list[tuple[float, str]]:
    """How far HAKMEM is behind the best of these allocators, worst row first."""
    found = []
    for benchmark, row in results.ratios(result, key, None).items():
        others = [row[a] for a in allocators if a != "hakmem" and row.get(a)]
        if row.get("hakmem") and others:
            found.append((row["hakmem"] / min(others), benchmark))
    return sorted(found, reverse=True)


def furthest_behind(result: dict, key: str, allocators: list[str]) -> str:
    return ", ".join(f"`{benchmark}` {ratio:.1f}" for ratio, benchmark in behind(result, key, allocators)[:5])


def behind_system(result: dict, key: str, least: float) -> str:
    """How many rows the system's malloc wins, and by how much the first five of them."""
    lost = [(ratio, benchmark) for ratio, benchmark in behind(result, key, ["system"]) if ratio > least]
    names = ", ".join(f"`{benchmark}` {ratio:.2f}" for ratio, benchmark in lost[:5])
    return f"{len(lost)} rows by more than {least - 1:.0%}" + (f" ({names})" if lost else "")


def markdown(result: dict, allocators: list[str]) -> str:
    """The means of the suites, and one suite's rows in a fold; for a single suite, its rows."""
    suites = results.suites(result)
    shown = "core" if "core" in suites else suites[0]
    of_rows = rows(result, shown, allocators)
    if len(suites) > 1:
        lines = head("geometric mean of time (memory); 1.00: best in every row", allocators)
        lines += [means_row(result, suite, suite, allocators) for suite in suites]
        lines += [means_row(result, "*all*", None, allocators)]
        lines += ["", "Furthest behind the best of them in time: "
                  f"{furthest_behind(result, 'time_ratio', allocators)}; in memory: "
                  f"{furthest_behind(result, 'rss_ratio', allocators)}."]
        if "system" in allocators:
            lines += ["", f"The system's malloc is faster in {behind_system(result, 'time_ratio', 1.05)}, and "
                      f"takes less memory in {behind_system(result, 'rss_ratio', 1.05)}."]
        folded = ["", f"<details><summary>The {len(of_rows) - 2} rows of {shown}</summary>", "", *of_rows, "",
                  "</details>"]
    else:
        lines = of_rows + [means_row(result, "*geometric mean*", shown, allocators)]
        folded = []
    machine = result["machine"]
    versions = ", ".join(f"{a['name']} {a['version']}" for a in result["allocators"]
                         if a.get("version") and a["name"] in allocators)
    missing = "–: not every benchmark ran. " if any("| – |" in line for line in lines) else ""
    lines += ["", f"<sub>{machine['cpu']}, {machine['cpus']} CPUs, Linux {machine['kernel']}, revision {machine['revision']}; medians of "
              f"{results.rounds(result)} interleaved rounds"
              f"{', less the cost of the benchmark itself where it can be told' if result['net'] else ''}. "
              f"{results.disturbed(result)} by others on the machine. "
              f"{missing}{versions}.</sub>"]
    return "\n".join(lines + folded)


def block(result: dict, source: Path, allocators: list[str]) -> str:
    """The text of README.md between the marks."""
    folder = source.parent.resolve().relative_to(ROOT)
    link = f"[`{folder / source.name}`]({folder / source.name})"
    return (f"![time and memory, geometric means]({folder / source.stem}-means.svg)\n\n"
            f"{markdown(result, allocators)}\n\n"
            "Measured by `make results` against every peer that can be had as a package; scudo and hardened_malloc, built for\n"
            f"safety, are measured too. The runs are in {link},\n"
            "how it is measured in [`bench/README.md`](bench/README.md).\n")


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source = Path(sys.argv[1])
    result = results.load(source)
    deps.need("matplotlib")
    # These are built for safety and would dwarf the others.
    shown = [name for name in results.allocators(result) if name not in ("hardened", "scudo")]
    plot.draw_means(result, source.with_name(source.stem + "-means.svg"), names=shown)
    plot.draw(result, source.with_suffix(".svg"), "core" if "core" in results.suites(result) else None)
    readme = ROOT / "README.md"
    before, _, after = readme.read_text(encoding="utf-8").split(MARK)
    readme.write_text(f"{before}{MARK}\n{block(result, source, shown)}{MARK}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
