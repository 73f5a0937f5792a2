#!/usr/bin/env python3
"""docs/systems.md and bench/systems.py name what there is: rows, variables, counters, files, tests; and the runner runs."""

import argparse
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]
from gen_docs import calls  # noqa: E402

import systems  # noqa: E402

BUILD = ROOT / "build"
SYSTEMS = (sys.executable, "-B", ROOT / "bench" / "systems.py")
DOC = (ROOT / "docs" / "systems.md").read_text()
NAMES = [*(f"F{i}" for i in range(1, 7)), *(f"S{i}" for i in range(1, 11)), *(f"M{i}" for i in range(1, 8)),
         *(f"X{i}" for i in range(1, 9))]
OPTIONS = {row[0] for _, row in calls(ROOT / "src" / "core" / "options.def")}
COUNTERS = {row[0] for _, row in calls(ROOT / "src" / "base" / "stats.def")}
# Totals of HAKMEM_STATS=json, and columns of its classes.
TOTALS = {"allocs", "l2_allocs", "superslab_bytes", "refills", "refill_blocks", "slabs"}


def rows() -> dict[str, list[str]]:
    """Maps the name of a row to its cells, from the tables with five columns."""
    lines = [line.strip("| ").split(" | ") if " | " in line else [] for line in DOC.replace("| |", "|  |").splitlines()]
    return {cells[0].split()[0]: cells for cells in lines if re.match(r"[FSMX]\d+ \w", cells[0] if cells else "")}


class Document(unittest.TestCase):
    def test_every_system_has_a_row_and_a_command(self):
        self.assertEqual(sorted(rows()), sorted(NAMES))
        for name, cells in rows().items():
            self.assertRegex(cells[-1], r"`.+`", name)

    def test_variables_and_counters_exist(self):
        for name in re.findall(r"HAKMEM_(\w+)", DOC):
            self.assertIn(name, OPTIONS)
        for name, cells in rows().items():
            for counter in re.findall(r"`([a-z]\w*_?\w*)`", cells[2]):
                self.assertIn(counter, COUNTERS | TOTALS, name)

    def test_files_tests_and_targets_exist(self):
        for link in re.findall(r"\]\(([^)]+)\)", DOC):
            self.assertTrue((ROOT / "docs" / link).exists(), link)
        tests = subprocess.run(["ctest", "--test-dir", BUILD, "-N"], capture_output=True, text=True).stdout
        patterns = re.findall(r"make check R=([\w.]+)", DOC)
        self.assertTrue(patterns)
        for pattern in patterns:
            self.assertRegex(tests, rf"Test +#\d+: \S*{pattern}", pattern)
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        for target in re.findall(r"`make ([a-z][\w-]*)", DOC):
            self.assertIn(target, targets)

    def test_rows_of_the_runner(self):
        for name in re.findall(r"make systems ROWS=(\w+)", DOC):
            self.assertIn(name, {row.name for row in systems.ROWS})
        for row in systems.ROWS:
            self.assertIn(f"make systems ROWS={row.name}`", DOC)
            self.assertLessEqual(set(row.counters), COUNTERS)
            for pair in filter(None, ",".join(row.settings).split(",")):
                self.assertIn(pair.split("=")[0], OPTIONS)


class Runner(unittest.TestCase):
    def test_off_and_on_differ(self):
        row = next(row for row in systems.ROWS if row.name == "S2")
        trips = {setting: systems.trips(systems.run(row, setting, quick=True, counted=True).stats)
                 for setting in ("NURSERY=0,WARM_POOL_FILL=16", "NURSERY=0,WARM_POOL_FILL=0")}
        self.assertLess(2 * trips["NURSERY=0,WARM_POOL_FILL=16"], trips["NURSERY=0,WARM_POOL_FILL=0"])

    def test_prefill_halves_the_trips(self):
        row = next(row for row in systems.ROWS if row.name == "S3")
        trips = {setting: systems.trips(systems.run(row, setting, quick=False, counted=True).stats)
                 for setting in ("WARM_PREFILL=3", "WARM_PREFILL=0")}
        self.assertLessEqual(2 * trips["WARM_PREFILL=3"], trips["WARM_PREFILL=0"])

    def test_a_row_is_printed(self):
        done = subprocess.run([*SYSTEMS, "--build", BUILD, "--quick", "--rows", "F1,S3"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in ("F1 unified cache", "REFILL_BATCH=128", "S3 secondary prefill", "no trip %"):
            self.assertIn(text, done.stdout)

    def test_an_unknown_row_is_refused(self):
        done = subprocess.run([*SYSTEMS, "--rows", "S99"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no row S99", done.stderr)

    def test_no_rounds_are_refused(self):
        done = subprocess.run([*SYSTEMS, "--rounds", "0"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--rounds must be at least 1", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=BUILD)
    args, rest = parser.parse_known_args()
    BUILD = systems.BUILD = args.build.resolve()
    unittest.main(argv=[sys.argv[0], *rest])
