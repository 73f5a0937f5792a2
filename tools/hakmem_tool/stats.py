"""Reads, sums up and prints HAKMEM's statistics files.

A file holds the one JSON object that a process wrote at its end under HAKMEM_STATS=json.
"""

import json
import os
import sys

from . import ToolError

RANGES = (("tiny_allocs", "tiny, to 1280 B"), ("l2_allocs", "L2, to 56 KiB"),
         ("l25_allocs", "L2.5, to 1 MiB"), ("huge_allocs", "huge, above"), ("guard_allocs", "beside guard pages"),
         ("first_allocs", "the first ones"))
# Figures that a sum over processes would misstate, as these did not all live at once.
LARGEST_NOT_SUM = {"version", "pid", "peak_bytes"}


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            figures = json.load(f)
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{path}: not a HAKMEM statistics file ({error})") from error
    if not isinstance(figures, dict) or "allocs" not in figures:
        raise ToolError(f"{path}: not a HAKMEM statistics file (no 'allocs')")
    return figures


def read_folder(folder):
    """The figures of every process that wrote a file in folder, by pid. A file may be cut short: its
    process was killed while it wrote, or still writes."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            try:
                figures = read(os.path.join(folder, name))
            except ToolError as error:
                print(f"hakmem: one process's statistics are left out: {error}", file=sys.stderr)
                continue
            found[int(figures.get("pid", 0))] = figures
    return found


def add_up(many):
    """One object for several processes: the sums, but the largest of peak_bytes."""
    total = {"counters": {}, "classes": []}
    classes = {}
    for figures in many:
        for key, value in figures.items():
            if key == "counters":
                for name, count in value.items():
                    total["counters"][name] = total["counters"].get(name, 0) + count
            elif key == "classes":
                for row in value:
                    sums = classes.setdefault(row.get("size", 0), {})
                    for name, count in row.items():
                        if name != "size" and isinstance(count, (int, float)):
                            sums[name] = sums.get(name, 0) + count
            elif not isinstance(value, (int, float)):
                total.setdefault(key, value)
            elif key in LARGEST_NOT_SUM:
                total[key] = max(total.get(key, 0), value)
            else:
                total[key] = total.get(key, 0) + value
    total["classes"] = [{"size": size} | classes[size] for size in sorted(classes)]
    return total


def version_text(number):
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def bytes_text(count):
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def report(figures, processes, with_classes=False):
    """Lines that describe what the heap did."""
    get = lambda key: figures.get(key, 0)  # noqa: E731
    allocs = get("allocs")
    whose = "1 process" if processes == 1 else f"{processes} processes, added up"
    yield f"What the heap did ({whose}; HAKMEM {version_text(int(get('version')))})"
    yield f"  {'blocks handed out':<24}{allocs:>16,}"
    for key, title in RANGES:
        share = f"{100 * get(key) / allocs:6.2f} %" if allocs else ""
        yield f"    {title:<22}{get(key):>16,}  {share}"
    yield f"  {'blocks taken back':<24}{get('frees'):>16,}"
    yield (f"  {'live at exit':<24}{get('live_blocks'):>16,}  "
           f"blocks, {bytes_text(get('live_bytes'))}")
    peak_note = "  the largest process" if processes > 1 else ""
    yield f"  {'peak mapped':<24}{bytes_text(get('peak_bytes')):>16}{peak_note}"
    yield (f"  {'mapped at exit':<24}{bytes_text(get('mapped_bytes')):>16}  "
           f"SuperSlabs {bytes_text(get('superslab_bytes'))}, huge {bytes_text(get('huge_bytes'))}, "
           f"kept {bytes_text(get('huge_cached_bytes'))}, "
           f"metadata {bytes_text(get('metadata_bytes'))}")
    yield f"  {'heaps made':<24}{get('heaps'):>16,}"
    counters = {name: count for name, count in figures.get("counters", {}).items() if count}
    if counters:
        yield "  counters"
        for name, count in counters.items():
            yield f"    {name:<22}{count:>16,}"
    if with_classes:
        yield from class_lines(figures.get("classes", []))


def class_lines(classes):
    used = [row for row in classes if any(v for k, v in row.items() if k != "size")]
    columns = []
    for row in used:
        columns += [name for name in row if name not in columns]
    yield "  size classes in use"
    widths = {name: max(len(name), *(len(f"{row.get(name, 0):,}") for row in used)) + 2
              for name in columns}
    yield "  " + "".join(f"{name:>{widths[name]}}" for name in columns)
    for row in used:
        yield "  " + "".join(f"{row.get(name, 0):>{widths[name]},}" for name in columns)


def command(args):
    many = [read(path) for path in args.files]
    try:
        lines = list(report(add_up(many), len(many), args.classes))
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:  # a value is not the expected number
        raise ToolError(f"{', '.join(args.files)}: no HAKMEM statistics ({error})") from error
    print("\n".join(lines))
    return 0
