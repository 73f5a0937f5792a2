"""The definition of a benchmark; the suites (suite_*.py) list theirs as BENCHMARKS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Benchmark:
    """One program with its arguments.

    An "ops" program is one of ours: it takes --json and prints one JSON object with ops,
    ns_per_op, peak_rss_kib and whatever else it measures (with --net also floor_ns_per_op).
    A "process" is any command; its figures are the wall-clock and CPU time of the process.
    """
    name: str
    program: str                   # in build/bench, or a command of PATH, or an absolute path
    full: tuple[str, ...]          # arguments of a normal run; {work} is the prepared folder
    quick: tuple[str, ...]         # arguments of a --quick run
    what: str                      # what it shows, in a few words
    suite: str = "core"
    kind: str = "ops"              # "ops" or "process"
    metric: str = "ns_per_op"      # key of the record that is compared as time
    memory: str = "peak_rss_kib"   # key of the record that is compared as memory
    details: tuple[str, ...] = ()  # further keys of the record to show, in ns
    net: bool = False              # takes --net: its own cost can be subtracted
    static: bool = False           # PROGRAM_hakmem exists: the same linked to the library
    needs: tuple[str, ...] = ()    # required commands; without them it is left out, by name
    prepare: Callable[[Path], None] | None = None  # makes its input files in {work}, once
    prime: int = 0                 # MiB populated before each full run, see launch.c
    compare_output: bool = False   # stdout must be the same as under the system allocator
