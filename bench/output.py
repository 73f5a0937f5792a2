"""What a comparison prints and writes."""

from __future__ import annotations

import csv
from itertools import zip_longest
from pathlib import Path

import results
from measure import Session
from summary import LEAST_RUNS, not_first

UNIT = {"ns_per_op": "ns/op", "net_ns_per_op": "ns/op", "seconds": "s", "cpu_seconds": "s", "wall_s": "s"}


def verdict(row: dict, reference: str) -> str:
    if row["allocator"] == reference or "time_ratio_low" not in row:
        return ""  # too few rounds for an interval
    return "faster" if row["time_ratio_high"] < 1 else "slower" if row["time_ratio_low"] > 1 else "="


COLUMNS = ["benchmark", "allocator", "time", "", "ratio", "95 % CI", "", "CPU", "memory MiB", "ratio", "mean RSS"]
LEFT = (0, 1, 3, 6)


def between(row: dict, key: str) -> str:
    return f"{row[key + '_low']:.2f}–{row[key + '_high']:.2f}" if f"{key}_low" in row else "–"


def number(row: dict, key: str) -> str:
    return f"{row[key]:.2f}" if row.get(key) else ""


def table_rows(summary: dict) -> list[list[str]]:
    out = []
    for row in summary["rows"]:
        if "failure" in row:
            out.append([row["benchmark"], row["allocator"], "failed", *[""] * 8])
            continue
        ratio = ["", "", ""]
        if "time_ratio" in row:
            ratio = [f"{row['time_ratio']:.3f}", between(row, "time_ratio"), verdict(row, summary["reference"])]
        digits = 2 if row["time"] >= 1 else 4
        out.append([row["benchmark"], row["allocator"], f"{row['time']:.{digits}f}", UNIT.get(row["metric"], ""),
                    *ratio, number(row, "cpu_ratio"), f"{row['rss_kib'] / 1024:.1f}",
                    number(row, "rss_ratio"), number(row, "mean_rss_ratio")])
    for mean in summary["geometric_means"]:
        name = f"mean of {mean['benchmarks']}" + (f", {mean['suite']}" if mean["suite"] != "all" else "")
        best = f"{mean['time_of_row']:.3f} of best" if "time_of_row" in mean else ""
        out.append([name, mean["allocator"], best, "", f"{mean['time_ratio']:.3f}",
                    between(mean, "time_ratio"), "", "",
                    f"{mean['rss_of_row']:.2f} of best" if "rss_of_row" in mean else "",
                    number(mean, "rss_ratio"), ""])
    return out


def print_table(summary: dict) -> None:
    head, rows = list(COLUMNS), table_rows(summary)
    if any("instr_per_op" in row for row in summary["rows"]):
        head.append("instr/op")
        for cells, row in zip_longest(rows, summary["rows"], fillvalue={}):
            cells.append(number(row, "instr_per_op"))
    for this, before in reversed(list(zip(rows[1:], rows))):
        if this[0] == before[0]:
            this[0] = ""  # name each benchmark once
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * w for w in widths], *rows]:
        cells = [c.ljust(w) if i in LEFT else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def print_details(summary: dict) -> None:
    """A row's further figures besides time and memory: the latencies of single calls."""
    for row in summary["rows"]:
        if "details" in row:
            print(f"{row['benchmark']:<18} {row['allocator']:<16} "
                  + "  ".join(f"{key} {value:.0f}" for key, value in row["details"].items()))


def print_notes(session: Session, summary: dict) -> None:
    counts = [row["rounds"] for row in summary["rows"] if "rounds" in row] or [0]
    what = "less the benchmark's own cost where it can be told" if session.net else "of the whole benchmark"
    print(f"Time {what}, median of {results.span(min(counts), max(counts))} rounds; ratio to {summary['reference']}: below 1 is faster. "
          "Of best: relative to the best allocator of each row.")
    if min(counts) < LEAST_RUNS:
        print(f"With fewer than {LEAST_RUNS} rounds nothing is known of how certain a figure is.")
    noisy = [r for r in session.records if session.disturbed(r)]
    if noisy or session.repeated:
        print(f"Disturbed by something else on the machine: {session.repeated} runs were done again; "
              f"{len(noisy)} of {len(session.records)} remained so and count only in rows where some allocator has no others.")
    for (b, a), why in session.failures.items():
        print(f"Failed: {b} under {a}: {why}")
    if len(session.allocators) > 2:
        ours = next((a.name for a in session.allocators if a.name.startswith("hakmem")), None)
        losses = not_first(summary["rows"], ours) if ours else []
        if losses:
            print(f"\nWhere {ours} is not first: time (95 % CI) and memory relative to the best other")
        for row in losses:
            # Either may be missing: times below the benchmark's own cost have no ratio.
            time = (f"{row['time_to_best']:6.2f} ({between(row, 'time_to_best')}) of {row['time_best']}"
                    if "time_to_best" in row else "")
            print(f"  {row['benchmark']:<22} {time:<36}"
                  + (f"{row['rss_to_best']:6.2f} of {row['rss_kib_best']}" if "rss_to_best" in row else ""))


def write_csv(path: Path, summary: dict) -> None:
    rows = [{k: v for k, v in row.items() if k != "details"} | row.get("details", {}) for row in summary["rows"]]
    names = list(dict.fromkeys(k for row in rows for k in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def write_mimalloc_csv(path: Path, session: Session) -> None:
    """One line per run, with the columns of mimalloc-bench."""
    with path.open("w", encoding="utf-8") as file:
        file.write("# benchmark allocator elapsed rss user sys page-faults page-reclaims\n")
        for r in session.records:
            file.write(f"{r['benchmark']} {r['allocator']} {r['wall_s']:.3f} {r['maxrss_kib']} "
                       f"{r['user_s']:.3f} {r['sys_s']:.3f} {r['major_faults']} {r['minor_faults']}\n")
