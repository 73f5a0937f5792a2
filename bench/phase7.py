#!/usr/bin/env python3
"""HAKMEM against the system allocator on small blocks of one size and on larson: percentages.

    python3 bench/phase7.py [--rounds N]        (make phase7-bench)

bench_random_mixed with blocks of 128, 256, 512 and 1024 bytes, and larson;
alternating runs, medians of operations per second. 100 % is the system allocator.
"floor" is libfloor.so, which does as little as a malloc can: the limit that the
benchmark itself sets. The last column is the allocator's own time per operation above
that floor, as a share of the system allocator's. The exit status is 1 if HAKMEM is slower in a row.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.append(str(REPO / "tools"))
from userfiles import loadable  # noqa: E402

BUILD = REPO / "build"
LIBRARIES = {"system": None, "hakmem": BUILD / "libhakmem.so", "floor": BUILD / "bench" / "libfloor.so"}
ROWS = {f"random_mixed {size} B": ["bench_random_mixed", "10000000", "8192", "42", str(size), str(size)]
        for size in (128, 256, 512, 1024)}
ROWS["larson"] = ["larson", "2", "8", "1000", "5000", "100", "4141", "4"]


def ops_per_s(command: list[str], library: Path | None) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("HAKMEM_")}
    if library:
        environment["LD_PRELOAD"] = loadable(library)
    done = subprocess.run([BUILD / "bench" / command[0], *command[1:], "--json"], env=environment,
                          stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout)["ops_per_s"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Percentages against the system allocator.")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    print(f"{'benchmark':<20}{'system':>14}{'hakmem':>14}{'floor':>14}{'hakmem/system':>16}"
          f"{'floor/system':>14}{'cost above floor':>18}")
    slower = False
    for name, command in ROWS.items():
        # Under the floor a block stays with the thread that freed it, so larson's memory grows: no limit to compare with.
        libraries = {k: v for k, v in LIBRARIES.items() if not (k == "floor" and name == "larson")}
        runs: dict[str, list[float]] = {key: [] for key in libraries}
        for _ in range(args.rounds):
            for key, library in libraries.items():
                runs[key].append(ops_per_s(command, library))
        ops = {key: statistics.median(values) for key, values in runs.items()}
        line = f"{name:<20}" + "".join(f"{ops[k] / 1e6:>12.1f} M" if k in ops else f"{'-':>14}" for k in LIBRARIES)
        line += f"{100 * ops['hakmem'] / ops['system']:>14.0f} %"
        if "floor" in ops:
            above = [1 / ops[k] - 1 / ops["floor"] for k in ("hakmem", "system")]
            share = f"{above[0] / above[1]:.2f}" if above[1] > 0 else "-"
            line += f"{100 * ops['floor'] / ops['system']:>12.0f} %{share:>18}"
        print(line, flush=True)
        slower |= ops["hakmem"] < ops["system"]
    print(f"Median operations per second of {args.rounds} alternating rounds; above 100 % is faster.")
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
