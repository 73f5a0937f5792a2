#!/usr/bin/env python3
"""Put the figures of a comparison into README.md, and its charts beside the result.

    python3 bench/readme.py docs/results/full.json          (make results runs it)

Writes NAME-means.svg and, of the core benchmarks, NAME.svg next to NAME.json and
replaces what lies between the two `<!-- results -->` marks of README.md, and in the text
behind them the figures of PROSE. Times and memory are ratios to the best allocator of
each row, so 1.00 is the winner and losses show.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
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


class Figures:
    """Figures of single rows, as README's text has them."""

    def __init__(self, result: dict):
        self.rows = {(row["benchmark"], row["allocator"]): row for row in result["rows"]}
        self.peers = [name for name in results.allocators(result) if name not in ("hakmem", "system")]

    def kib(self, benchmark: str, allocator: str = "hakmem") -> float:
        return self.rows[benchmark, allocator]["rss_kib"]

    def mib(self, benchmark: str, allocator: str = "hakmem") -> str:
        mib = self.kib(benchmark, allocator) / 1024
        return f"{mib:.1f}" if mib < 10 else f"{mib:.0f}"

    def range_mib(self, benchmark: str, allocators: list[str]) -> list[str]:
        """Least and most of those that ran."""
        ran = sorted(self.kib(benchmark, a) / 1024 for a in allocators if self.rows.get((benchmark, a), {}).get("rss_kib"))
        return [f"{ran[0]:.0f}", f"{ran[-1]:.0f}"]

    def faults(self, benchmark: str, allocator: str = "hakmem") -> str:
        """Two digits from 1,000 on."""
        count = round(self.rows[benchmark, allocator]["minor_faults"])
        return f"{round(count, -(len(str(count)) - 2)) if count >= 1000 else count:,}"


SAFETY = ("scudo", "hardened")  # not in README's tables

# Text of README.md, {} for each figure, and these figures. White space is any.
PROSE: list[tuple[str, Callable[[Figures], list[str]]]] = [
    ("take {} KiB per thread, stack included", lambda f: [f"{f.kib('idle_threads'):.0f}"]),
    ("{} MiB are resident; glibc keeps {}, the peers in the table above {} to {}, scudo and hardened_malloc {} and {}",
     lambda f: [f.mib("idle_kept"), f.mib("idle_kept", "system"),
                *f.range_mib("idle_kept", [p for p in f.peers if p not in SAFETY]),
                *(f.mib("idle_kept", name) for name in SAFETY)]),
    ("another thread freed, {} stay (other allocators: {} to {};",
     lambda f: [f.mib("sleeper"), *f.range_mib("sleeper", ["system", *f.peers])]),
    ("take {} MiB (hardened_malloc {}, snmalloc {}, glibc {}, jemalloc {}, mimalloc {} and {})",
     lambda f: [f.mib("buffers"), *(f.mib("buffers", name) for name in (
         "hardened", "snmalloc", "system", "jemalloc", "mimalloc2", "mimalloc"))]),
    ("take {} page faults (glibc {}, jemalloc {}, mimalloc {} and {};",
     lambda f: [f.faults("buffers_full"), *(f.faults("buffers_full", name) for name in (
         "system", "jemalloc", "mimalloc2", "mimalloc"))]),
    ("takes about {} KiB more than with glibc (row `hello`)",
     lambda f: [f"{round(f.kib('hello') - f.kib('hello', 'system'), -1):.0f}"]),
]


def prose(text: str, result: dict) -> str:
    """README's text with the figures of PROSE from this result; a full one, of all benchmarks."""
    figures = Figures(result)
    for phrase, formula in PROSE:
        pattern = "([0-9.,]*[0-9])".join(
            r"\s+".join(re.escape(word) for word in part.split(" ")) for part in phrase.split("{}"))
        found = list(re.finditer(pattern, text))
        if len(found) != 1:
            raise SystemExit(f"README.md has not once but {len(found)} times: {phrase}")
        values = formula(figures)
        for group in range(len(values), 0, -1):
            start, end = found[0].span(group)
            text = text[:start] + values[group - 1] + text[end:]
    return text


def updated(text: str, result: dict, source: Path) -> str:
    """README's text with this result's figures."""
    # These are built for safety and would dwarf the others.
    shown = [name for name in results.allocators(result) if name not in SAFETY]
    before, _, after = text.split(MARK)
    if len(results.suites(result)) > 1:
        after = prose(after, result)
    return f"{before}{MARK}\n{block(result, source, shown)}{MARK}{after}"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source = Path(sys.argv[1])
    result = results.load(source)
    deps.need("matplotlib")
    shown = [name for name in results.allocators(result) if name not in SAFETY]
    plot.draw_means(result, source.with_name(source.stem + "-means.svg"), names=shown)
    plot.draw(result, source.with_suffix(".svg"), "core" if "core" in results.suites(result) else None)
    readme = ROOT / "README.md"
    readme.write_text(updated(readme.read_text(encoding="utf-8"), result, source), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
