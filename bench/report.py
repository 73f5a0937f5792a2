#!/usr/bin/env python3
"""One self-contained HTML page of a comparison: charts, tables, method, losses.

    python3 bench/report.py RESULT.json OUT.html

The input is what compare.py --json writes. Charts are inline SVG (matplotlib from
build/venv, see deps.py). A click on a column's head sorts a table. Nothing is loaded
from elsewhere. The page is built as a tree of elements, so that no name or message in
the result can become markup.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import deps
import results
from output import between

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em; color: #222 }
table { border-collapse: collapse; font-size: 13px; margin: 1em 0 }
th, td { padding: 2px 8px; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th { cursor: pointer; border-bottom: 2px solid #888; position: sticky; top: 0; background: #fff }
th:first-child, td:first-child, td.text { text-align: left }
td.best { font-weight: bold } td.loss { color: #b03000 } tr.ours td { background: #fff3e8 }
.wide { overflow-x: auto } svg { max-width: 100%; height: auto } .note { color: #666; font-size: 13px }
"""
SCRIPT = """
document.querySelectorAll('th').forEach(function (head) {
  head.addEventListener('click', function () {
    var table = head.closest('table'), body = table.tBodies[0], column = head.cellIndex;
    var down = head.getAttribute('aria-sort') === 'ascending';
    function value(row) {
      var cell = row.cells[column], text = cell.dataset.value || cell.textContent, number = parseFloat(text);
      return isNaN(number) ? text : number;
    }
    var rows = Array.from(body.rows).sort(function (a, b) {
      var x = value(a), y = value(b);
      if (typeof x !== typeof y) return typeof x === 'number' ? -1 : 1;
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    });
    table.querySelectorAll('th').forEach(function (other) { other.removeAttribute('aria-sort'); });
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    rows.forEach(function (row) { body.appendChild(row); });
  });
});
"""
METHOD = (
    "In every round each benchmark runs once under each allocator (within a budget, not under those far behind), in random order and next to each other. Figures are "
    "medians over the rounds; intervals are of the ratio of medians, 95 %, and hold both the percentile bootstrap, in "
    "which the rounds are resampled as pairs, and the exact interval of the ratios round by round. Benchmarks whose "
    "intervals were wide got more rounds. Runs during which something else used more than 5 % of a CPU, or in which a "
    "processor was slow, are disturbed: they are repeated up to twice if time allows, and count only in rows where some allocator has no others. Memory is the peak of the resident memory unless the benchmark measures "
    "another; mean RSS is the mean over time of the started process's resident memory, read every 10 ms. "
    "Geometric means are over the benchmarks that every allocator has a ratio for.")


class Page:
    """A tree of elements, and pictures that are inserted at the end."""

    def __init__(self, title: str):
        self.root = ElementTree.Element("html", lang="en")
        head = self.add(self.root, "head")
        self.add(head, "meta", charset="utf-8")
        self.add(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
        self.add(head, "title", title)
        self.add(head, "style", STYLE)
        self.body = self.add(self.root, "body")
        self.pictures: list[str] = []

    @staticmethod
    def add(parent: ElementTree.Element, tag: str, text: str = "", **attributes: str) -> ElementTree.Element:
        element = ElementTree.SubElement(parent, tag, {k.rstrip("_"): v for k, v in attributes.items()})
        element.text = text
        return element

    def put(self, tag: str, text: str = "", **attributes: str) -> ElementTree.Element:
        return self.add(self.body, tag, text, **attributes)

    def table(self, head: list[str], rows: list[list[str | tuple[str, str]]], ours: str | None = None) -> None:
        """A table; each cell is a text or a pair (text, class)."""
        table = self.add(self.put("div", class_="wide"), "table")
        line = self.add(self.add(table, "thead"), "tr")
        for name in head:
            self.add(line, "th", name)
        body = self.add(table, "tbody")
        for row in rows:
            mine = ours is not None and ours in [c if isinstance(c, str) else c[0] for c in row[:2]]
            line = self.add(body, "tr", **({"class_": "ours"} if mine else {}))
            for cell in row:
                text, kind = (cell, "") if isinstance(cell, str) else cell
                self.add(line, "td", text, **({"class_": kind} if kind else {}))

    def picture(self, svg: str) -> None:
        # A character of the private use area marks the place: no text of a result contains it.
        self.put("div", chr(0xE000 + len(self.pictures)), class_="wide")
        self.pictures.append(svg)

    def render(self) -> str:
        self.add(self.body, "script", SCRIPT)
        text = "<!DOCTYPE html>\n" + ElementTree.tostring(self.root, "unicode", method="html")
        return re.sub("[\ue000-\uf8ff]", lambda mark: self.pictures[ord(mark[0]) - 0xE000], text) + "\n"


def clean(value):
    """The result without characters of the private use area."""
    if isinstance(value, str):
        return re.sub("[\ue000-\uf8ff]", "?", value)
    if isinstance(value, list):
        return [clean(v) for v in value]
    return {k: clean(v) for k, v in value.items()} if isinstance(value, dict) else value


def svg_of(number: int, draw) -> str | None:
    """The SVG that draw(path) writes, made fit for a page that contains others."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "chart.svg"
        if draw(out) is False:
            return None
        text = out.read_text(encoding="utf-8")
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    # Marks and clip paths are referenced by ids, which must differ from chart to chart.
    text = re.sub(r'\bid="', f'id="c{number}-', text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>c{number}-", text)


def figure(row: dict, key: str, digits: int = 2) -> str:
    return f"{row[key]:.{digits}f}" if row.get(key) else "–"


def put_head(page: Page, result: dict) -> None:
    page.put("h1", "Allocators compared")
    machine, commit = result["machine"], result["machine"].get("revision", "")
    page.put("p", f"{results.machine(result)}, {machine.get('memory', '')}; huge pages: {machine.get('thp') or 'unknown'}. "
                  f"Commit {commit or 'unknown'}, measured {result['time']}. "
                  f"{len(result['benchmarks'])} benchmarks, {results.rounds(result)} rounds, {len(result['runs'])} runs; "
                  f"{result.get('repeated_runs', 0)} disturbed runs were done again, "
                  f"{result['disturbed_runs']} remained disturbed.")
    if result["quick"]:
        page.put("p", "These are quick runs: for trying, not for quoting.", class_="loss")


def put_means(page: Page, result: dict) -> None:
    names, ours = results.allocators(result), results.ours(result)
    page.put("h2", "Geometric means")
    for suite in [results.ALL, *(s for s in results.suites(result) if len(results.suites(result)) > 1)]:
        means = results.geometric_means(result, suite)
        if not means:
            page.put("p", f"Suite {suite}: no benchmark has a figure of every allocator.", class_="note")
            continue
        count = next(iter(means.values()))["benchmarks"]
        page.put("h3", f"{'All suites' if suite == results.ALL else f'Suite {suite}'}: {count} benchmarks")
        page.table(["allocator", "time, of best", "memory, of best", f"time / {result['reference']}", "95 % CI",
                    f"memory / {result['reference']}"],
                   [[name, figure(m, "time_of_row"), figure(m, "rss_of_row"), figure(m, "time_ratio"),
                     between(m, "time_ratio"), figure(m, "rss_ratio")] for name, m in means.items()], ours)
    page.put("p", "Of best: relative to the best allocator of each row, so that 1.00 would be the winner of every row. "
                  + ", ".join(names) + ".", class_="note")


def put_losses(page: Page, result: dict) -> None:
    from summary import not_first
    ours = results.ours(result)
    if ours is None:
        return
    losses = not_first(result["rows"], ours)
    failed = [r for r in result["rows"] if "failure" in r]
    page.put("h2", f"Where {ours} is not first")
    page.put("p", f"Of {len(results.rows(result))} benchmarks, {len(losses)}: more than 2 % behind the best other in time, or more than "
                  "5 % in memory. Relative to that best other; an interval around 1 means that these data cannot tell.")
    if losses:
        page.table(["benchmark", "suite", "time", "95 % CI", "best time", "memory", "best memory"],
                   [[r["benchmark"], r["suite"], (figure(r, "time_to_best"), "loss" if r.get("time_to_best", 0) > 1.02 else ""),
                     between(r, "time_to_best"), r.get("time_best", "–"),
                     (figure(r, "rss_to_best"), "loss" if r.get("rss_to_best", 0) > 1.05 else ""),
                     r.get("rss_kib_best", "–")] for r in losses])
    if failed:
        page.put("h2", "What failed")
        page.table(["benchmark", "allocator", "why"],
                   [[r["benchmark"], r["allocator"], (r["failure"], "text")] for r in failed], ours)


def put_rows(page: Page, result: dict) -> None:
    ours = results.ours(result)
    what = {b["name"]: b["what"] for b in result["benchmarks"]}
    for suite in results.suites(result):
        page.put("h2", f"Suite {suite}")
        groups = results.rows(result, suite)
        names = results.allocators(result)
        lines = []
        for benchmark, group in groups.items():
            best = min((r["time_of_row"] for r in group.values() if r.get("time_of_row")), default=0)
            lines.append([benchmark, (what.get(benchmark, ""), "text")] + [
                (f"{figure(group.get(n, {}), 'time_of_row')} ({figure(group.get(n, {}), 'rss_of_row')})",
                 "best" if best and group.get(n, {}).get("time_of_row") == best else "") for n in names])
        page.put("p", "Time (memory), relative to the best of the row.", class_="note")
        page.table(["benchmark", "what", *names], lines)
        details = page.put("details")
        page.add(details, "summary", "All figures")
        before, page.body = page.body, details
        page.table(["benchmark", "allocator", "time", "metric", f"/ {result['reference']}", "95 % CI", "CPU ratio",
                    "memory MiB", "memory ratio", "mean RSS ratio", "faults ratio", "instr/op"],
                   [[r["benchmark"], (r["allocator"], "text"), figure(r, "time", 3), (r.get("metric", "failed"), "text"),
                     figure(r, "time_ratio", 3), between(r, "time_ratio"), figure(r, "cpu_ratio"),
                     f"{r['rss_kib'] / 1024:.2f}" if "rss_kib" in r else "–", figure(r, "rss_ratio"),
                     figure(r, "mean_rss_ratio"), figure(r, "faults_ratio"), figure(r, "instr_per_op")]
                    for group in groups.values() for r in group.values()], ours)
        page.body = before
        import plot
        page.picture(svg_of(len(page.pictures), lambda out, s=suite: plot.draw(result, out, s)) or "")


def put_details(page: Page, result: dict) -> None:
    groups = {name: group for name, group in results.rows(result).items() if any("details" in r for r in group.values())}
    if not groups:
        return
    page.put("h2", "Latency of single calls")
    page.put("p", "In ns, with the cost of reading the clock; the largest holds whatever interrupted the thread.", class_="note")
    for name, group in groups.items():
        keys = list(dict.fromkeys(key for row in group.values() for key in row.get("details", {})))
        page.table([name, *keys], [[allocator, *(f"{row['details'][key]:.0f}" for key in keys)]
                                   for allocator, row in group.items() if "details" in row], results.ours(result))


def render(result: dict) -> str:
    import plot
    result = clean(result)
    page = Page("Allocators compared: HAKMEM and others")
    put_head(page, result)
    if scatter := svg_of(0, lambda out: plot.draw_means(result, out)):
        page.put("h2", "Time against memory")
        page.picture(scatter)
    put_means(page, result)
    put_losses(page, result)
    put_rows(page, result)
    put_details(page, result)
    page.put("h2", "Allocators")
    page.table(["allocator", "version", "package", "compiler", "settings", "SHA-256"],
               [[a["name"], a.get("version", ""), (a.get("package", ""), "text"), (a.get("compiler", ""), "text"),
                 (" ".join(f"{k}={v}" for k, v in a.get("env", {}).items()), "text"),
                 (a.get("sha256", "")[:16], "text")] for a in result["allocators"]], results.ours(result))
    page.put("h2", "Method")
    page.put("p", METHOD + (" Of benchmarks that can tell it, their own cost is subtracted from the time."
                            if result["net"] else ""))
    page.put("p", "Not shown: other machines, compilers and link orders. Two builds of the same source can differ by "
                  "some percent. Benchmarks are not your program: measure that.", class_="note")
    return page.render()


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the page of what compare.py --json wrote.")
    parser.add_argument("result", type=Path)
    parser.add_argument("out", type=Path, metavar="OUT.html")
    args = parser.parse_args()
    result = results.load(args.result)
    deps.need("matplotlib")
    args.out.write_text(render(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
