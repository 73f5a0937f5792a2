#!/usr/bin/env python3
"""Tests of the benchmark runner (bench/compare.py and its modules); needs no network.

    python3 test/bench/test_compare.py [--build build]

Runs with foreign programs need build/bench/launch; without it they are skipped by name.
"""

import argparse
import contextlib
import io
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))

import agree  # noqa: E402
import compare  # noqa: E402
import deps  # noqa: E402
import measure  # noqa: E402
import output  # noqa: E402
import peers  # noqa: E402
import readme  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
import schedule  # noqa: E402
import suites  # noqa: E402
import summary  # noqa: E402
from allocators import Allocator, parse_allocator  # noqa: E402
from benchmark import Benchmark  # noqa: E402

BUILD = ROOT / "build"


def bench(name="b", suite="core", **rest):
    return Benchmark(name, rest.pop("program", "none"), rest.pop("full", ()), rest.pop("quick", ()), "a test",
                     suite=suite, **rest)


def session_of(benchmarks, figures, floor=None):
    """A session with given runs: {(benchmark, allocator): [(ns, rss), … by round]}."""
    names = list(dict.fromkeys(a for _, a in figures))
    made = measure.Session(benchmarks, [Allocator(n) for n in names], BUILD, True, floor is not None, random.Random(1))
    for (b, a), runs in figures.items():
        for number, (ns, rss) in enumerate(runs, 1):
            record = {"round": number, "benchmark": b, "allocator": a, "ns_per_op": ns, "peak_rss_kib": rss,
                      "cpu_seconds": ns * 2, "mean_rss_kib": rss / 2, "minor_faults": 10, "foreign_cpus": 0.0,
                      "steal_cpus": 0.0, "wall_s": 1.0, "user_s": 1.0, "sys_s": 0.5, "maxrss_kib": rss,
                      "major_faults": 0}
            made.records.append(record)
    if floor is not None:
        made.floors = {b.name: [floor] for b in benchmarks}
    return made


def silent(function, *args, **named):
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        result = function(*args, **named)
    return result, out.getvalue() + err.getvalue()


class Statistics(unittest.TestCase):
    def test_disturbed_runs_count_where_there_are_no_others(self):
        session = session_of([bench()], {("b", "system"): [(10, 5), (30, 5), (12, 5)], ("b", "hakmem"): [(5, 5)] * 3})
        session.fastest_loop = 1.0
        session.records[1]["loop_s"] = 2.0
        self.assertEqual(session.values("b", "system", "ns_per_op"), [10, 12])
        for number, a in enumerate(("system", "hakmem")):  # no round in which both ran undisturbed
            for record in session.records[3 * number:3 * number + 3]:
                record["loop_s"] = 1.0 if record["round"] == number + 1 else 2.0
        self.assertEqual(session.calm_values("b", "hakmem", "ns_per_op"), [5])
        rows = summary.summarise(session, "system")["rows"]
        self.assertEqual([(r["rounds"], r["time_ratio"]) for r in rows], [(1, 1.0), (1, 0.5)])
        for record in session.records[1:]:  # hakmem has none, so system's one calm run has nothing to compare with
            record["loop_s"] = 2.0
        self.assertEqual(session.calm_values("b", "system", "ns_per_op"), [10])
        self.assertEqual(session.values("b", "system", "ns_per_op"), [10, 30, 12])
        session.enough.add(("b", "hakmem"))  # it will never have one
        self.assertEqual(session.values("b", "system", "ns_per_op"), [10])
        self.assertEqual(session.values("b", "hakmem", "ns_per_op"), [5, 5, 5])
        session.records[0]["loop_s"] = 2.0
        self.assertEqual(session.values("b", "system", "ns_per_op"), [10, 30, 12])
        self.assertEqual(session.calm_values("b", "system", "ns_per_op"), [])

    def test_geometric_mean(self):
        self.assertAlmostEqual(summary.geometric_mean([1, 4, 16]), 4)
        self.assertAlmostEqual(results.mean([0.5, 2]), 1)

    def test_interval_is_the_middle_95_percent(self):
        self.assertEqual(summary.interval(list(range(1001))[::-1]), (25, 975))

    def test_rounds_are_pairs(self):
        # A drift that affects both alike leaves no uncertainty in the ratio.
        for drift in ([1.0, 1.3, 2.0, 1.1, 5.0], [1.0, 1.3, 2.0, 1.1, 5.0, 0.7, 3.0]):
            low, high = summary.ratio_interval([3 * d for d in drift], [2 * d for d in drift],
                                               summary.draw_rounds(len(drift)))
            self.assertAlmostEqual(low, 1.5)
            self.assertAlmostEqual(high, 1.5)

    def test_intervals_of_given_data_are_always_the_same(self):
        self.assertEqual(summary.draw_rounds(7), summary.draw_rounds(7))
        self.assertEqual(len(summary.draw_rounds(4)), summary.BOOTSTRAP)

    def test_order_statistics(self):
        self.assertEqual(summary.exact_interval([1, 2, 3, 4, 5, 6]), (1, 6))       # holds 96.9 %
        self.assertEqual(summary.exact_interval(list(range(1, 10))), (2, 8))       # 96.1 %
        self.assertEqual(summary.exact_interval(list(range(1, 26))), (8, 18))      # 95.7 %

    def test_students_t_of_few_rounds(self):
        low, high = summary.exact_interval([1.0, 1.1, 1.2])  # of their logarithms, by hand
        self.assertAlmostEqual(low, 0.8748, places=3)
        self.assertAlmostEqual(high, 1.3754, places=3)
        self.assertEqual(summary.exact_interval([1.0]), (0.0, math.inf))

    def test_intervals_hold_the_truth_in_95_percent(self):
        # Noise like that of run times: usually some per cent, now and then half as much again.
        dice = random.Random(5)

        def run():
            return dice.lognormvariate(0, 0.03) * (1.5 if dice.random() < 0.1 else 1.0)
        for rounds in (3, 4, 5, 6, 9):
            draws = summary.draw_rounds(rounds)[:200]
            held = 0
            for _ in range(300):
                low, high = summary.ratio_interval([2 * run() for _ in range(rounds)],
                                                   [run() for _ in range(rounds)], draws)
                held += low <= 2 <= high
            self.assertGreater(held, 300 * 0.93, f"{rounds} rounds")


class Summary(unittest.TestCase):
    def setUp(self):
        self.benchmarks = [bench("x"), bench("y", "cases")]
        self.session = session_of(self.benchmarks, {
            ("x", "system"): [(10, 100)] * 5, ("x", "hakmem"): [(5, 200)] * 5, ("x", "other"): [(4, 400)] * 5,
            ("y", "system"): [(8, 100)] * 5, ("y", "hakmem"): [(2, 50)] * 5, ("y", "other"): [(4, 100)] * 5})
        self.summary = summary.summarise(self.session, "system")
        self.rows = {(r["benchmark"], r["allocator"]): r for r in self.summary["rows"]}

    def test_ratios_to_the_reference(self):
        row = self.rows["x", "hakmem"]
        self.assertEqual((row["time_ratio"], row["rss_ratio"], row["cpu_ratio"], row["mean_rss_ratio"]),
                         (0.5, 2, 0.5, 2))
        self.assertAlmostEqual(row["time_ratio_low"], 0.5 / 1.01)  # nothing is known better than that
        self.assertAlmostEqual(row["time_ratio_high"], 0.5 * 1.01)
        self.assertEqual(self.rows["x", "system"]["time_ratio_low"], 1)

    def test_best_of_row(self):
        row = self.rows["x", "hakmem"]
        self.assertEqual((row["time_of_row"], row["rss_of_row"]), (1.25, 2))
        self.assertEqual((row["time_to_best"], row["time_best"], row["rss_kib_best"]), (1.25, "other", "system"))
        self.assertEqual(self.rows["x", "other"]["time_of_row"], 1)
        self.assertEqual(self.rows["x", "other"]["time_to_best"], 0.8)  # to the best other one

    def test_means_over_all_and_per_suite(self):
        means = {(m["suite"], m["allocator"]): m for m in self.summary["geometric_means"]}
        self.assertAlmostEqual(means["all", "hakmem"]["time_ratio"], (0.5 * 0.25) ** 0.5)
        self.assertAlmostEqual(means["all", "hakmem"]["time_of_row"], 1.25 ** 0.5)
        self.assertAlmostEqual(means["cases", "hakmem"]["rss_of_row"], 1)
        self.assertEqual(means["cases", "other"]["benchmarks"], 1)

    def test_where_hakmem_is_not_first(self):
        self.assertEqual([r["benchmark"] for r in summary.not_first(self.summary["rows"], "hakmem")], ["x"])
        _, text = silent(output.print_notes, self.session, self.summary)
        self.assertIn("Where hakmem is not first", text)
        self.assertRegex(text, r"x +1\.25 \(1\.24–1\.26\) of other +2\.00 of system")

    def test_where_only_its_memory_has_a_ratio(self):
        for row in self.summary["rows"]:
            if row["allocator"] == "hakmem":
                row.pop("time_to_best", None)
        _, text = silent(output.print_notes, self.session, self.summary)
        self.assertRegex(text, r"x +2\.00 of system")

    def test_a_benchmark_that_failed_somewhere_is_in_no_mean(self):
        self.session.failures["y", "other"] = "exit 1"
        made = summary.summarise(self.session, "system")
        self.assertEqual({m["benchmarks"] for m in made["geometric_means"]}, {1})
        failed = next(r for r in made["rows"] if r["benchmark"] == "y" and r["allocator"] == "other")
        self.assertEqual(failed["failure"], "exit 1")

    def test_the_floor_is_subtracted(self):
        session = session_of([bench("x", net=True)], {("x", "system"): [(10, 1)] * 3, ("x", "hakmem"): [(6, 1)] * 3}, 2.0)
        rows = summary.summarise(session, "system")["rows"]
        self.assertEqual(rows[1]["time_ratio"], 0.5)
        self.assertEqual(rows[1]["floor"], 2.0)
        self.assertEqual(rows[1]["cpu_ratio"], 0.6)  # of runs less the floor

    def test_a_floor_that_a_run_undercuts_is_not_subtracted(self):
        session = session_of([bench("x", net=True)], {("x", "system"): [(10, 1)] * 3,
                                                      ("x", "hakmem"): [(5, 1), (3, 1), (5, 1)]}, 3.0)
        rows = summary.summarise(session, "system")["rows"]
        self.assertEqual(rows[1]["time_ratio"], 0.5)
        self.assertEqual((rows[1]["time"], rows[1]["floor"]), (5, 3.0))

    def test_ratios_are_of_the_rounds_that_both_have(self):
        session = session_of([bench("x")], {("x", "system"): [(10, 1), (10, 1), (10, 1), (20, 1), (20, 1)],
                                            ("x", "hakmem"): [(30, 1), (30, 1), (30, 1)]})
        row = summary.summarise(session, "system")["rows"][1]
        self.assertEqual((row["time_ratio"], row["rounds"]), (3, 3))
        self.assertAlmostEqual(row["time_ratio_high"], 3.03)

    def test_csv_has_the_columns_of_mimalloc_bench(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs.csv"
            output.write_mimalloc_csv(path, self.session)
            head, first, *_ = path.read_text().splitlines()
        self.assertEqual(head, "# benchmark allocator elapsed rss user sys page-faults page-reclaims")
        self.assertEqual(first, "x system 1.000 100 1.000 0.500 0 10")

    def test_details_are_medians_in_table_csv_and_page(self):
        b = bench("lat", details=("p50", "p99"))
        session = session_of([b], {("lat", "system"): [(1, 1)] * 3, ("lat", "hakmem"): [(1, 1)] * 3})
        for number, record in enumerate(session.records):
            record |= {"p50": 10 + number, "p99": 900}
        made = summary.summarise(session, "system")
        self.assertEqual(made["rows"][0]["details"], {"p50": 11, "p99": 900})
        self.assertIn("p50 14  p99 900", silent(output.print_details, made)[1])
        with tempfile.TemporaryDirectory() as folder:
            output.write_csv(Path(folder) / "r.csv", made)
            self.assertIn("p50,p99", (Path(folder) / "r.csv").read_text())
        page = report.Page("latency")
        report.put_details(page, {**made, "allocators": [{"name": "system"}, {"name": "hakmem"}]})
        self.assertIn("<td>900</td>", page.render())

    def test_short_runs_fit_their_columns(self):
        made = compare.described_runs(self.session, True)
        self.assertEqual({len(run) for run in made["runs"]}, {len(made["run_columns"])})

    def test_best_of_row_in_the_readme(self):
        result = {"rows": self.summary["rows"]}
        table = results.ratios(result, "time_ratio")
        self.assertEqual(table["x"]["other"], 1)
        self.assertAlmostEqual(results.means(table, ["hakmem"])["hakmem"], 1.25 ** 0.5)

    def test_readme_has_the_figures_of_the_committed_result(self):
        source = readme.ROOT / "docs" / "results" / "full.json"
        text = (readme.ROOT / "README.md").read_text(encoding="utf-8")
        result = results.load(source)
        self.assertEqual(readme.updated(text, result, source), text)
        for row in result["rows"]:
            if (row["benchmark"], row["allocator"]) in (("sleeper", "hakmem"), ("buffers_full", "system")):
                row["rss_kib"], row["minor_faults"] = 20000, 81234
        changed = readme.updated(text, result, source)
        self.assertIn("another thread freed, 20 stay", changed)
        self.assertIn("(glibc 81,000,", changed)
        with self.assertRaises(SystemExit):
            readme.updated(text.replace("KiB per thread, stack", "KiB a thread, stack"), result, source)


class Agreement(unittest.TestCase):
    def result(self, times, **rest):
        """Of a benchmark whose runs under hakmem took so long; under system 1."""
        b = bench("x")
        session = session_of([b], {("x", "system"): [(1, 100)] * len(times), ("x", "hakmem"): [(t, 50) for t in times]})
        made = summary.summarise(session, "system")
        return {"schema": "hakmem-bench/2", "quick": False, "net": False, "allocators": [
            {"name": "system", "env": {}}, {"name": "hakmem", "env": {}, "sha256": rest.get("sha256", "1")}],
            "benchmarks": [{"name": "x", "args": rest.get("args", [])}], **made}

    def check(self, one, other):
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / "a.json", Path(folder) / "b.json"]
            for path, result in zip(paths, (one, other)):
                path.write_text(json.dumps(result))
            return silent(agree.check, paths)

    def test_same_figures_agree(self):
        status, said = self.check(self.result([0.50, 0.52, 0.51, 0.53]), self.result([0.51, 0.52, 0.53, 0.54]))
        self.assertEqual(status, 0)
        self.assertIn("2 ratios of 1 benchmarks: 2 agree, 0 do not", said)  # time and memory

    def test_others_do_not(self):
        status, said = self.check(self.result([0.50, 0.52, 0.51, 0.53]), self.result([0.61, 0.62, 0.63, 0.64]))
        self.assertEqual(status, 1)
        self.assertRegex(said, r"x +hakmem +time +0\.515 .*against +0\.625")

    def test_few_rounds_are_not_compared(self):
        status, said = self.check(self.result([0.5, 0.5]), self.result([0.6, 0.6]))
        self.assertEqual(status, 2)
        self.assertIn("not compared, as one of them has no interval: x", said)

    def test_other_builds_and_arguments_are_refused(self):
        times = [0.50, 0.52, 0.51, 0.53]
        for rest, why in (({"sha256": "2"}, "not the same build"), ({"args": ["1"]}, "other arguments")):
            status, said = self.check(self.result(times), self.result(times, **rest))
            self.assertEqual(status, 2)
            self.assertIn(why, said)


class Packages(unittest.TestCase):
    def test_an_older_matplotlib_will_not_do(self):
        for version, usable in (("3.5.1", False), ("3.6.3", False), ("3.7.0", True), ("3.10.0rc1", True), ("4.0", True)):
            with unittest.mock.patch.object(deps.importlib.util, "find_spec", lambda module: object()), \
                    unittest.mock.patch.object(deps.importlib.metadata, "version", lambda module: version):
                self.assertEqual(deps.usable("matplotlib"), usable, version)
        self.assertTrue(deps.usable("json"))
        self.assertFalse(deps.usable("no_such_module"))

    def test_the_packages_of_another_python_are_not_kept(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.multiple(
                deps, VENV=Path(folder), PYTHON=Path(sys.executable), STAMP=Path(folder) / "stamp"), \
                unittest.mock.patch.object(deps.subprocess, "run") as run:
            for version, made in ((sys.version_info, True), (sys.version_info, False), ((3, 99), True), ((3, 99), False)):
                run.reset_mock()
                with unittest.mock.patch.object(deps.sys, "version_info", version):
                    silent(deps.ensure)
                self.assertEqual(run.called, made)

    def test_pictures_that_cannot_be_drawn_are_left_out_by_name(self):
        with unittest.mock.patch.object(sys, "argv", ["compare.py", "--out", "o", "--html", "page.html", "--json", "x.json"]):
            args = compare.parse_args()
        with unittest.mock.patch.object(deps, "there", lambda module: True):
            self.assertEqual(silent(compare.check_pictures, args)[1], "")
        with unittest.mock.patch.object(deps, "there", lambda module: False):
            self.assertEqual(silent(compare.check_pictures, args)[1],
                             "compare: left out: page.html, o/results.html, o/results.svg, o/results-means.svg\n")
        left = [str(path) for files in compare.files_to_write(args) for path in files]
        self.assertEqual(left, ["o/results.csv", "o/runs.csv", "x.json", "o/results.json"])


class UserErrors(unittest.TestCase):
    """Each problem is one line, printed before anything is measured."""

    def compare(self, *arguments, tool="compare.py"):
        done = subprocess.run([sys.executable, "-B", ROOT / "bench" / tool, *arguments], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stderr

    def test_results_that_are_none(self):
        for path, why in (("/nonexistent", "No such file or directory"), (__file__, "not JSON")):
            self.assertEqual(self.compare("--agree", path, path), (2, f"compare: {path}: {why}\n"))
        self.assertEqual(self.compare("/nonexistent", "x.svg", tool="plot.py"),
                         (2, "plot: /nonexistent: No such file or directory\n"))

    def test_files_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as folder:
            for flag, path in (("--json", "/nonexistent/x.json"), ("--csv", folder), ("--out", "/proc/x"), ("--out", __file__)):
                status, said = self.compare("--quick", "--benchmarks", "tiny_hot", flag, path)
                self.assertEqual(status, 1)
                self.assertRegex(said, rf"^compare: {re.escape(path)}\S* cannot be written: .*\n$")
            self.assertEqual(os.listdir(folder), [])

    def test_what_is_no_trace(self):
        self.assertEqual(self.compare("--replay", __file__), (1, f"compare: {__file__} is not a trace\n"))

    def test_a_list_that_nobody_reads_to_the_end(self):
        done = subprocess.run(f"'{sys.executable}' -B '{ROOT}/bench/compare.py' --list | head -1", shell=True,
                              capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("benchmarks:\n", ""))


class Names(unittest.TestCase):
    def test_system_and_settings(self):
        self.assertEqual(parse_allocator("system", BUILD), Allocator("system"))
        made = parse_allocator("off=system:A=1:B=2", BUILD)
        self.assertEqual((made.name, made.library, made.env), ("off", None, {"A": "1", "B": "2"}))
        self.assertEqual(parse_allocator("system:A=1", BUILD).name, "system:A=1")

    def test_static_is_another_program(self):
        self.assertEqual(parse_allocator("hakmem-static", BUILD).suffix, "_hakmem")

    def test_paths(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            made = parse_allocator(f"mine={file.name}", BUILD)
            self.assertEqual((made.name, made.library), ("mine", Path(file.name).resolve()))
            self.assertEqual(parse_allocator(file.name, BUILD).name, Path(file.name).name)

    def test_wrong_ones_are_named(self):
        for text in ("nosuch", "/no/such.so", "system:A"):
            with self.assertRaises(SystemExit) as caught:
                parse_allocator(text, BUILD)
            self.assertIn(text.split(":")[0], str(caught.exception))

    def test_only_a_peer_is_preloaded_with_what_lies_beside_it(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(peers, "LIB", Path(folder)):
            library = Path(folder) / "libtbb.so"
            beside = library.with_suffix("") / "libhelper.so.2"
            beside.parent.mkdir()
            beside.touch()
            self.assertEqual(peers.preload(library), f"{library}:{beside}")
            self.assertEqual(peers.preload(Path("/elsewhere/libtbb.so")), "/elsewhere/libtbb.so")

    def test_a_peer_whose_stamp_is_cut_short_is_not_built(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(peers, "LIB", Path(folder)):
            library, stamp = peers.paths("jemalloc")
            library.touch()
            for text, built in (('{"name": "jemalloc"}', ["jemalloc"]), ('{"name": "jema', []), ("", [])):
                stamp.write_text(text)
                self.assertEqual(list(peers.available()), built)

    def test_a_peer_that_does_not_work_is_left_out(self):
        def probe(library, env):
            if library is not None:
                raise peers.PeerError("broken")
        with unittest.mock.patch.object(peers, "probe", probe), \
                unittest.mock.patch.object(peers, "build_all", lambda names, say: {"/bin/true": None}):
            args = argparse.Namespace(allocators="system", peers="mimalloc", build=BUILD)
            chosen, said = silent(compare.choose_allocators, args)
            self.assertEqual([a.name for a in chosen], ["system"])
            self.assertIn("true left out: broken", said)
            with self.assertRaisesRegex(SystemExit, "broken"):
                compare.choose_allocators(argparse.Namespace(allocators="/bin/true", peers=None, build=BUILD))

    def test_every_peer_has_a_pin(self):
        for peer in peers.PEERS.values():
            self.assertRegex(peers.PINS[peer.package][2], "^[0-9a-f]{64}$")


class Suites(unittest.TestCase):
    def write(self, folder, name, names):
        listed = ", ".join(f"Benchmark('{n}', 'p', (), (), 'w', suite='{name}')" for n in names)
        (Path(folder) / f"suite_{name}.py").write_text(
            f"from benchmark import Benchmark\nBENCHMARKS = ({listed},)\n")
        self.addCleanup(sys.modules.pop, f"suite_{name}", None)

    def load(self, *written):
        with tempfile.TemporaryDirectory() as folder:
            for name, names in written:
                self.write(folder, name, names)
            sys.path.insert(0, folder)
            self.addCleanup(sys.path.remove, folder)
            with unittest.mock.patch.object(suites, "HERE", Path(folder)):
                return suites.load()

    def test_every_file_that_exists_is_loaded(self):
        self.assertEqual(list(self.load(("zzone", ["a", "b"]), ("atwo", ["c"]))), ["c", "a", "b"])

    def test_names_are_unique(self):
        with self.assertRaisesRegex(SystemExit, "called twice"):
            self.load(("zzthree", ["twice"]), ("zzfour", ["twice"]))

    def test_choice(self):
        self.assertEqual([b.name for b in suites.choose(["small", "tiny_hot"])], list(suites.SELECTIONS["small"]))
        self.assertEqual(len(suites.choose(["all"])), len(suites.BENCHMARKS))
        self.assertEqual({b.suite for b in suites.choose(["core"])}, {"core"})
        with self.assertRaisesRegex(SystemExit, "nosuch"):
            suites.choose(["nosuch"])

    def test_a_suite_that_is_not_in_the_tree_is_named(self):
        with unittest.mock.patch.object(suites, "SUITES", ("core",)):
            chosen, said = silent(suites.choose, ["programs"])
        self.assertEqual(chosen, [])
        self.assertIn("programs left out", said)

    def test_what_is_needed(self):
        self.assertEqual(suites.lacking(bench(needs=("sh", "no-such-command"))), ["no-such-command"])


class Processes(unittest.TestCase):
    """Kind "process", really run, under the system allocator and a copy of it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)
        if not (BUILD / "bench" / "launch").exists():
            self.skipTest(f"{BUILD}/bench/launch is not built")
        (self.build / "bench").mkdir()
        (self.build / "bench" / "launch").symlink_to((BUILD / "bench" / "launch").resolve())
        self.other = Allocator("other", env={"OTHER": "1"})

    def process(self, script, **rest):
        return bench("p", kind="process", metric="seconds", program="sh", full=("-c", script),
                     quick=("-c", script), **rest)

    def session(self, b, *allocators):
        return measure.Session([b], list(allocators or (Allocator("system"), self.other)), self.build, True, False,
                               random.Random(3))

    def test_record(self):
        session = self.session(self.process("sleep 0.5; exit 0"))
        silent(session.once, session.benchmarks[0], 1, "")
        self.assertEqual(session.failures, {})
        record = session.records[0]
        self.assertGreater(record["seconds"], 0.5)
        self.assertAlmostEqual(record["cpu_seconds"], record["user_s"] + record["sys_s"])
        self.assertGreater(record["peak_rss_kib"], 0)
        self.assertGreater(record["minor_faults"], 0)
        if os.path.exists("/proc/self/statm"):
            self.assertGreater(record["mean_rss_kib"], 0)
            self.assertLess(record["mean_rss_kib"], 1.5 * record["maxrss_kib"])

    def test_memory_put_in_place_is_not_the_programs(self):
        session = self.session(self.process("true", prime=1), Allocator("system"))  # quick: measure.QUICK_PRIME
        silent(session.once, session.benchmarks[0], 1, "")
        self.assertLess(session.values("p", "system", "maxrss_kib")[0], measure.QUICK_PRIME * 1024 / 4)

    def test_the_launcher_tells_what_that_took_and_who_ran(self):
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
            done = subprocess.run([self.build / "bench" / "launch", "--out", out.name, "--prime", "128", "--", "sh", "-c", "echo $$"],
                                  capture_output=True, text=True, check=True)
            told = json.load(out)
        self.assertEqual(told["pid"], int(done.stdout))
        self.assertGreater(told["prime_s"], 0.001)
        self.assertLess(told["user_s"] + told["sys_s"], told["prime_s"] + 0.1)

    def test_cpu_time_of_the_process_as_metric(self):
        session = self.session(replace(self.process("true"), metric="cpu_seconds"))
        silent(session.once, session.benchmarks[0], 1, "")
        self.assertEqual(session.failures, {})
        self.assertGreater(session.values("p", "system", "cpu_seconds")[0], 0)

    def test_other_output_is_a_failure_of_the_other_allocator(self):
        for allocators in ((self.other, Allocator("system")), (self.other,)):
            session = self.session(self.process('echo "hello $OTHER"', compare_output=True), *allocators)
            _, said = silent(session.once, session.benchmarks[0], 1, "")
            self.assertEqual(list(session.failures), [("p", "other")])
            self.assertIn("p under other: failed: it prints something else than under the system allocator", said)

    def test_same_output_is_not(self):
        session = self.session(self.process("echo hello", compare_output=True))
        silent(session.once, session.benchmarks[0], 1, "")
        self.assertEqual(session.failures, {})
        self.assertEqual(len(session.records), 2)

    def test_output_is_ignored_otherwise(self):
        session = self.session(self.process('echo "hello $OTHER"'))
        silent(session.once, session.benchmarks[0], 1, "")
        self.assertEqual(session.failures, {})

    def test_exit_status_is_a_failure(self):
        session = self.session(self.process("echo broken >&2; exit 7"))
        silent(session.once, session.benchmarks[0], 1, "")
        self.assertEqual(session.failures["p", "other"], "exit 7 broken")

    def test_a_missing_figure_is_named(self):
        session = self.session(self.process("true", memory="idle_rss_kib"))
        silent(session.once, session.benchmarks[0], 1, "")
        self.assertIn("idle_rss_kib", session.failures["p", "system"])

    def test_prepare_once_and_work_folder(self):
        calls = []

        def make(work):
            calls.append(work)
            (work / "input").write_text("prepared")

        b = self.process('test "$(cat {work}/input)" = prepared', prepare=make)
        for _ in range(2):
            measure.prepare(b, self.build)
        self.assertEqual(calls, [self.build / "bench-work" / "p"])
        (self.build / "bench-work" / "p" / ".prepared").write_text("by an older recipe")
        measure.prepare(b, self.build)
        self.assertEqual(len(calls), 2)
        session = self.session(b)
        silent(session.once, session.benchmarks[0], 1, "")
        self.assertEqual(session.failures, {})

    def test_a_disturbed_run_is_repeated_at_most_twice(self):
        session = self.session(self.process("true"), Allocator("system"))
        with unittest.mock.patch.object(measure, "crowded", lambda record: True):
            silent(session.once, session.benchmarks[0], 1, "")
        self.assertEqual((session.repeated, len(session.records)), (2, 1))

    def test_the_quietest_of_repeated_runs_counts(self):
        session = self.session(self.process("true"), Allocator("system"))
        made = [{"foreign_cpus": busy, "steal_cpus": 0.0, "wall_s": 1.0} for busy in (0.5, 0.2, 0.9)]
        with unittest.mock.patch.object(measure, "run_once", unittest.mock.Mock(side_effect=made)):
            self.assertEqual(session.run(session.benchmarks[0], Allocator("system"), 1)["foreign_cpus"], 0.2)

    def test_a_run_on_a_slow_processor_is_disturbed(self):
        session = self.session(self.process("true"), Allocator("system"))
        session.again, session.started = 1, -1e9  # it may wait
        loops = iter((0.001, 0.0013, 0.00116, 0.0011, 0.002, 0.00105, 0.001))
        with unittest.mock.patch.object(measure, "loop_now", lambda build: next(loops)), \
                unittest.mock.patch.object(measure, "pause") as slept:
            session.loop()
            silent(session.once, session.benchmarks[0], 1, "")  # waits twice, begins at 0.0011
            silent(session.once, session.benchmarks[0], 2, "")
        self.assertEqual((slept.call_count, session.repeated, next(loops, None)), (2, 0, None))
        self.assertEqual([r["loop_s"] for r in session.records], [0.0011, 0.001])
        self.assertFalse(session.disturbed(session.records[0]))
        self.assertTrue(session.disturbed({**session.records[0], "loop_s": 0.00116}))

    def test_without_an_end_of_slowness_a_run_waits_no_longer(self):
        session = self.session(self.process("true"), Allocator("system"))
        session.fastest_loop = 0.001
        for started, expected in ((0, 0), (-1e9, measure.WAIT)):
            clock = [0.0]
            session.started, session.waited = started, 0.0
            with unittest.mock.patch.object(measure, "loop_now", lambda build: 0.002), \
                    unittest.mock.patch.object(measure.time, "monotonic", lambda: clock[0]), \
                    unittest.mock.patch.object(measure, "pause", lambda s: clock.__setitem__(0, clock[0] + s)):
                self.assertEqual(session.wait_for_speed(), 0.002)
            self.assertEqual((clock[0], session.waited), (expected, expected))

    def test_speed_takes_a_loops_time(self):
        self.assertTrue(0 < measure.loop_now(BUILD) < 1)
        self.assertEqual(measure.loop_now(self.build), 0)  # not built there

    def test_half_a_round_does_not_count(self):
        session = self.session(self.process("true"))
        done, _ = silent(session.once, session.benchmarks[0], 1, "", deadline=0)
        self.assertEqual((done, session.records), (False, []))

    def test_pairs_with_runs_enough_are_left_out(self):
        session = self.session(self.process("true"))
        session.enough.add(("p", "other"))
        silent(session.once, session.benchmarks[0], 1, "")
        self.assertEqual([r["allocator"] for r in session.records], ["system"])

    def test_floors_are_runs_of_their_own(self):
        b = bench("f", program="floor.sh", net=True)
        script = self.build / "bench" / "floor.sh"
        script.write_text('#!/bin/sh\ncase "$*" in *--net*) net=", \\"floor_ns_per_op\\": 2";; esac\n'
                          'echo "{\\"ns_per_op\\": 5, \\"peak_rss_kib\\": 1$net}"\n')
        script.chmod(0o755)
        session = self.session(b)
        session.net = True
        silent(session.warm_up)
        silent(session.once, b, 1, "")
        self.assertEqual(session.failures, {})
        self.assertEqual(session.floors, {"f": [2] * measure.FLOOR_RUNS})
        self.assertEqual([r.get("floor_ns_per_op") for r in session.records], [None, None])


class Clock:
    """A session whose rounds of a benchmark take so many minutes; figures scatter by `noise`."""

    def __init__(self, minutes, noise=None):
        self.minutes, self.now, self.again, self.net = minutes, 0.0, 2, False
        self.noise = noise or {}
        self.session = session_of([bench(name) for name in minutes], {})
        self.allocators = [Allocator("system"), Allocator("hakmem")]
        self.benchmarks, self.order, self.floors = self.session.benchmarks, random.Random(1), {}
        self.ran, self.figures, self.walls, self.enough = [], {}, {}, set()
        self.remaining = None
        self.calm_values = self.values

    def warm_up(self, only_floors):
        self.now += 0 if only_floors else 1

    def once(self, b, number, head, deadline):
        self.now += self.minutes[b.name]
        self.ran.append(b.name)
        for a in ("system", "hakmem"):
            spread = self.noise.get(b.name, 0.0) if a == "hakmem" else 0.0
            self.figures.setdefault((b.name, a), []).append(1.0 + spread * (number % 3 - 1))
        return True

    def by_round(self, b, a, key):
        return dict(enumerate(self.figures.get((b, a), []), 1))

    def values(self, b, a, key):
        return self.walls.get(a, []) if key == "wall_s" else self.figures.get((b, a), [])


class Budget(unittest.TestCase):
    def schedule(self, clock, rounds, budget, quick=False):
        with unittest.mock.patch.object(schedule.time, "monotonic", lambda: 60 * clock.now):
            made = schedule.Schedule(clock, rounds, budget, quick, "system")
            _, said = silent(made.run)
        return said

    def test_what_is_unsure_gets_the_rounds(self):
        clock = Clock({"sure": 1, "unsure": 1}, {"unsure": 0.3})
        self.schedule(clock, 25, 20)
        self.assertEqual(clock.ran.count("sure"), schedule.LEAST_ROUNDS)
        self.assertGreater(clock.ran.count("unsure"), 2 * schedule.LEAST_ROUNDS)
        self.assertLessEqual(clock.now, 20)

    def test_ends_when_all_is_settled(self):
        clock = Clock({"a": 1, "b": 1})
        self.schedule(clock, 25, 1000)
        self.assertEqual(len(clock.ran), 2 * schedule.LEAST_ROUNDS)

    def test_nothing_begins_that_would_end_later(self):
        clock = Clock({"long": 4, "short": 1}, {"long": 0.3, "short": 0.3})
        self.schedule(clock, 25, 13)
        self.assertLessEqual(clock.now, 13)
        self.assertGreaterEqual(clock.ran.count("short"), 2)

    def test_disturbed_runs_are_repeated_if_there_is_time(self):
        for budget, again in ((3, 0), (100, measure.AGAIN)):
            clock = Clock({"a": 1})
            self.schedule(clock, 25, budget)
            self.assertEqual(clock.again, again)

    def test_what_never_ran_is_left_out_by_name(self):
        clock = Clock({"a": 3, "b": 3})
        said = self.schedule(clock, 3, 2, quick=True)
        self.assertEqual([len(clock.ran), len(clock.benchmarks)], [1, 1])
        self.assertIn("Left out, as there was no time left: b", said)  # quick: in their order

    def test_quick_is_one_round_without_warm_up(self):
        clock = Clock({"a": 1, "b": 1}, {"a": 0.3, "b": 0.3})
        self.schedule(clock, 3, 2.2, quick=True)
        self.assertEqual((clock.now, sorted(clock.ran)), (2, ["a", "b"]))

    def test_who_takes_far_longer_runs_less_often(self):
        clock = Clock({"a": 1}, {"a": 0.3})
        clock.allocators.append(Allocator("slow"))
        clock.walls = {"system": [1.0], "hakmem": [1.5], "slow": [9.0]}
        self.schedule(clock, 25, 30)
        self.assertEqual(clock.enough, {("a", "slow")})

    def test_a_single_run_takes_more_to_convince(self):
        for wall, rounds in ((13.0, 1), (9.0, 2)):  # of 1.5
            clock = Clock({"a": 1}, {"a": 0.3})
            clock.allocators.append(Allocator("slow"))
            clock.walls = {"system": [1.0], "hakmem": [1.5], "slow": [wall]}
            left_out, once = [], clock.once
            clock.once = lambda *args: (left_out.append(bool(clock.enough)), once(*args))[1]
            self.schedule(clock, 25, 30)
            self.assertEqual(left_out.index(True), rounds)

    def test_who_will_not_be_first_makes_room_for_those_who_may(self):
        clock = Clock({"a": 1}, {"a": 0.3})
        clock.allocators += [Allocator("near"), Allocator("far")]
        clock.walls = dict.fromkeys(("system", "hakmem", "near", "far"), [1.0])
        clock.figures = {("a", "near"): [1.0, 2.0], ("a", "far"): [1.2, 1.2]}  # hakmem's fastest takes 0.7
        self.schedule(clock, 25, 30)
        self.assertEqual(clock.enough, {("a", "far")})

    def test_what_was_measured_before_an_interrupt_counts(self):
        clock = Clock({"a": 1, "b": 1}, {"a": 0.3, "b": 0.3})
        once = clock.once

        def until_the_fifth(*args):
            if len(clock.ran) == 4:
                raise KeyboardInterrupt
            return once(*args)

        clock.once = until_the_fifth
        said = self.schedule(clock, 25, 0)
        self.assertEqual([len(clock.ran), len(clock.benchmarks)], [4, 2])
        self.assertIn("Interrupted", said)

    def test_quick_goes_on_until_there_is_an_interval(self):
        clock = Clock({"a": 1})
        self.schedule(clock, 9, 100, quick=True)
        self.assertEqual(len(clock.ran), summary.LEAST_RUNS)

    def test_without_budget_all_get_the_same(self):
        clock = Clock({"a": 1, "b": 1}, {"a": 0.3})
        self.schedule(clock, 7, 0)
        self.assertEqual([clock.ran.count(name) for name in "ab"], [7, 7])


class Page(unittest.TestCase):
    def test_names_cannot_become_markup(self):
        page = report.Page("<title>")
        page.table(["<b>"], [["<script>alert(1)</script>"], [("a & b", "text")]])
        page.picture("<svg>picture</svg>")
        text = page.render()
        self.assertNotIn("<script>alert", text)
        self.assertIn("&lt;script&gt;alert(1)", text)
        self.assertIn("a &amp; b", text)
        self.assertIn('<div class="wide"><svg>picture</svg></div>', text)

    def test_marks_of_pictures_cannot_come_from_results(self):
        self.assertEqual(report.clean({"a": ["\ue000x"]}), {"a": ["?x"]})


if __name__ == "__main__":
    if "--build" in sys.argv:
        place = sys.argv.index("--build")
        BUILD = Path(sys.argv[place + 1]).resolve()
        del sys.argv[place:place + 2]
    unittest.main()
