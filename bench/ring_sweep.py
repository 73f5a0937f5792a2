#!/usr/bin/env python3
"""Time and memory over the sizes of the rings, in interleaved runs.

    python3 bench/ring_sweep.py [--sizes 0,4,8,...] [--rounds N] [--out FOLDER]

Builds one library with L2 rings of 64 entries and an L2.5 ring of 32 (build/ring-sweep)
and limits both at run time (HAKMEM_L2_RING_CAP, HAKMEM_L25_RING_CAP, the latter to at
most 16); compares it also with the normal library. Prints compare.py's table and
writes FOLDER/ring-sweep.json, .csv and .svg (default build/ring-sweep).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "ring-sweep"
BENCHMARKS = "mid_mt2,mid_mt4,mid_mt2_handover,large_mt2,random_mixed"


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Sweep the sizes of the rings.")
    parser.add_argument("--sizes", default="0,2,4,8,12,16,24,32,48,64", help="entries, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--benchmarks", default=BENCHMARKS)
    parser.add_argument("--out", type=Path, default=FOLDER)
    args = parser.parse_args()
    sizes = args.sizes.split(",")
    if not all(size.isdecimal() and int(size) <= 64 for size in sizes):
        parser.error("sizes are 0..64")
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    run("cmake", "-S", ".", "-B", FOLDER, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DHAK_TESTS=OFF",
        "-DHAK_BENCH=OFF", "-DHAK_L2_RING=64", "-DHAK_L25_RING=32")
    run("cmake", "--build", FOLDER, "--target", "hakmem")
    run("cmake", "--build", "build")
    library = FOLDER / "libhakmem.so"
    allocators = ["hakmem"] + [
        f"ring{size}={library}:HAKMEM_L2_RING_CAP={size}:HAKMEM_L25_RING_CAP={min(int(size), 16)}" for size in sizes]
    args.out.mkdir(parents=True, exist_ok=True)
    result = args.out / "ring-sweep.json"
    run(sys.executable, "-B", "bench/compare.py", "--allocators", ",".join(allocators), "--benchmarks",
        args.benchmarks, "--net", "--rounds", args.rounds, "--json", result, "--csv", result.with_suffix(".csv"))
    run(sys.executable, "-B", "bench/plot.py", result, result.with_suffix(".svg"))
    print(f"wrote {result}, {result.with_suffix('.csv').name}, {result.with_suffix('.svg').name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
