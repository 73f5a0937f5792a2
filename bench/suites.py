"""All benchmarks: those that the suite_*.py beside this file list as BENCHMARKS."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

from benchmark import Benchmark

HERE = Path(__file__).resolve().parent


def load() -> dict[str, Benchmark]:
    """The benchmarks by name, suite after suite, the core first."""
    names = sorted(path.stem for path in HERE.glob("suite_*.py"))
    names.sort(key=lambda name: name != "suite_core")
    found: dict[str, Benchmark] = {}
    for name in names:
        for b in importlib.import_module(name).BENCHMARKS:
            if b.name in found:
                raise SystemExit(f"two benchmarks are called {b.name}")
            found[b.name] = b
    return found


BENCHMARKS = load()
# Parts of the core that are of use alone; headline: one row per kind of load.
SELECTIONS = {
    "headline": ("tiny_hot", "random_mixed", "random_mixed_256", "larson", "mid_mt2", "mid_mt2_handover"),
    "small": ("tiny_hot", "random_mixed", "random_mixed_256", "random_mixed_big", "random_mixed_cold"),
    "mid": ("mid_mt1", "mid_mt2", "mid_mt4", "mid_mt8", "mid_mt2_handover", "large_mt2"),
    "threads": ("larson_1", "larson", "mid_mt2", "mid_mt4", "mid_mt2_handover"),
}
SUITES = tuple(dict.fromkeys(b.suite for b in BENCHMARKS.values()))
OWN_SUITES = ("core", "standard", "cases", "programs")  # some may be missing from a tree


def choose(words: list[str]) -> list[Benchmark]:
    """Benchmarks chosen by name, by suite, by selection, or as "all"; each at most once."""
    names: dict[str, None] = {}
    for word in words:
        if word == "all":
            names.update(dict.fromkeys(BENCHMARKS))
        elif word in SELECTIONS:
            names.update(dict.fromkeys(SELECTIONS[word]))
        elif word in SUITES:
            names.update(dict.fromkeys(n for n, b in BENCHMARKS.items() if b.suite == word))
        elif word in BENCHMARKS:
            names[word] = None
        elif word in OWN_SUITES:
            print(f"suite {word} left out: it is not in this tree", file=sys.stderr)
        else:
            raise SystemExit(f"no benchmark, suite or selection is called {word}; see `python3 bench/compare.py --list`")
    return [BENCHMARKS[name] for name in names]


def lacking(b: Benchmark) -> list[str]:
    """Commands that the benchmark needs and this machine lacks."""
    return [command for command in b.needs if shutil.which(command) is None]
