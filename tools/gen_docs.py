#!/usr/bin/env python3
"""Writes docs/options.md and docs/stats.md from src/core/options.def, src/base/stats.def and hakmem.h.

gen_docs.py          write them
gen_docs.py --check  exit 1 if they are not what would be written
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"


def calls(path):
    """(macro, [arguments]) for each row of a .def file; strings are joined."""
    text = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M)
    for match in re.finditer(r"^(HAK_\w+)\((.*?)\)\s*$", text, flags=re.M | re.S):
        body = re.sub(r'"\s*\n\s*"', "", match.group(2))
        args = re.findall(r'\s*("(?:[^"\\]|\\.)*"|[^,"]+)\s*,?', body)
        yield match.group(1), [a.strip().strip('"') for a in args if a.strip()]


def constants():
    """Numeric constants of the layout that rows may name."""
    text = (SRC / "base" / "config.h").read_text()
    return {name: int(value) for name, value in
            re.findall(r"^#define (HAK_\w+) (\d+)\b", text, re.MULTILINE)}


def number(text):
    value = eval(text.replace("(uint64_t)", ""), {"__builtins__": {}, **constants()})
    for shift, suffix in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if value and value % (1 << shift) == 0:
            return f"{value >> shift}{suffix}"
    return str(value)


def options():
    out = ["# Options", "",
           "Environment variables, read once at start; ignored when the program is setuid. Generated from "
           "`src/core/options.def` by `tools/gen_docs.py`; `HAKMEM_OPTIONS=help` prints the values in force, "
           "with the defaults of the mode in force. "
           "Numbers take K, M, G and T (powers of 1024), rates also the form 1/N; of numbers 0 may be written off or no, 1 on or yes (but "
           "for sizes). An empty value is as good as none. A name that is unknown (the nearest one is told) or a value out of range "
           "is named on stderr at the start of each process, unless `HAKMEM_QUIET=1`, and ignored.", "",
           "| variable | balanced | lean | fast | range | meaning |", "|---|---|---|---|---|---|"]
    for macro, args in calls(SRC / "core" / "options.def"):
        name = f"`HAKMEM_{args[0]}`"
        if macro == "HAK_TEXT":
            out.append(f"| {name} | – | – | – | text | {args[1]} |")
        elif macro == "HAK_CHOICE":
            words = args[2].split("|")
            value = words[int(args[1])]
            out.append(f"| {name} | {value} | {value} | {value} | {', '.join(words)} | {args[3]} |")
        else:
            presets = " | ".join(number(a) for a in args[2:5])
            out.append(f"| {name} | {presets} | {number(args[5])}..{number(args[6])} | {args[7]} |")
    return "\n".join(out) + "\n"


def totals():
    """(field, meaning) for the fields of hak_stats_t except its size."""
    header = (ROOT / "include" / "hakmem" / "hakmem.h").read_text()
    body = re.search(r"struct hak_stats \{(.*?)\}", header, re.DOTALL).group(1)
    body = re.sub(r"\n\s*//", "", body)  # joins comments that continue on a second line
    return re.findall(r"uint64_t (\w+);\s*// (.*)", body)


CLASSES = (("size", "bytes of its blocks"), ("allocs", "blocks handed out"), ("frees", "blocks taken back"),
           ("live", "blocks not freed yet"), ("refills", "times the slab in front had none left"),
           ("refill_blocks", "blocks that refills brought (those that lay ready in a slab, though freed by others, may be counted "
            "again when they come to its free list); as text `per refill`, their mean number"),
           ("slabs", "slabs, or runs of slabs, in use"))


def table(head, rows):
    return [f"| {head} | meaning |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in rows), ""]


def stats():
    out = ["# Statistics", "",
           "What `HAKMEM_STATS=1` (text), `HAKMEM_STATS=json` and `hak_stats_print` report. Generated from `hak_stats_t` in "
           "`include/hakmem/hakmem.h` and from `src/base/stats.def` by `tools/gen_docs.py`.", "",
           "`./hakmem stats FILE...` adds up and prints what programs wrote with `HAKMEM_STATS=json "
           "HAKMEM_STATS_FILE=/some/where/%p.json` (of `peak_bytes` the largest; `--classes`: size classes too).", "",
           "As JSON one object: `version` (of the library, as `hak_version` gives it), `pid`, the totals, and", "",
           "- `counters`: an object with all counters; the text leaves out those that are 0;",
           "- `classes`: an array with an object for each size class that is or was in use.", "", "## Totals", ""]
    out += table("total", totals())
    out += ["## Size classes", "", "Blocks up to 56 KiB.", "", *table("key", CLASSES), "## Counters", ""]
    out += table("counter", (args[:2] for _, args in calls(SRC / "base" / "stats.def")))
    return "\n".join(out[:-1]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="say what is stale, and write nothing")
    check = parser.parse_args().check
    stale = False
    for name, text in (("options.md", options()), ("stats.md", stats())):
        path = ROOT / "docs" / name
        if check:
            if not path.exists() or path.read_text() != text:
                print(f"docs/{name} is stale: run tools/gen_docs.py")
                stale = True
        else:
            path.write_text(text)
    return 1 if stale else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        sys.exit(f"gen_docs.py: {error.filename}: {error.strerror}")
