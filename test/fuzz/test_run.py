"""The fuzzers' driver without a fuzzer: options drawn from options.def, libFuzzer's output."""

import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import run  # noqa: E402


class Driver(unittest.TestCase):
    def test_every_option_is_drawn_within_its_range(self):
        generator, seen = random.Random(1), {}
        for _ in range(300):
            for name, value in run.draw_options(generator, "debug").items():
                seen.setdefault(name.removeprefix("HAKMEM_"), set()).add(value)
        rows = {row[0]: (macro, row) for macro, row in run.calls(run.ROOT / "src" / "core" / "options.def")}
        self.assertEqual(set(seen), {name for name, (macro, _) in rows.items()
                                     if macro != "HAK_TEXT" and name not in run.NOT_DRAWN})
        for name, values in seen.items():
            macro, row = rows[name]
            if macro == "HAK_CHOICE":
                self.assertEqual(values, set(row[2].split("|")))
                continue
            low, high = run.value_of(row[5]), run.value_of(row[6])
            self.assertLessEqual({str(low), str(high)}, values, name)
            self.assertTrue(all(low <= int(value) <= high for value in values), name)

    def test_ends_are_those_of_the_table(self):
        values = run.drawn_of("debug")
        self.assertEqual(values["HAKMEM_GUARD"][:2], ["0", "1"])
        self.assertEqual(values["HAKMEM_LRU_CAP"], ["0", "1", "1000000"])
        self.assertEqual(values["HAKMEM_THP"], ["auto", "never", "always"])
        self.assertFalse({"HAKMEM_ABORT", "HAKMEM_STATS_FILE"} & set(values))

    def test_no_helper_thread_under_the_thread_sanitizer(self):
        generator = random.Random(1)
        self.assertFalse(any("HAKMEM_BACKGROUND" in run.draw_options(generator, "threads") for _ in range(200)))

    def test_what_libfuzzer_says(self):
        one = run.Slice("debug", 1, {})
        run.read_libfuzzer(one, "INFO: Loaded 1 modules   (3279 inline 8-bit counters): 3279 [0x1, 0x2),\n"
                                "#557\tINITED cov: 1089 ft: 4174 corp: 329/4629b exec/s: 0 rss: 58Mb\n"
                                "#900\tNEW    cov: 1102 ft: 4405 corp: 330/7922b lim: 17 exec/s: 3185 rss: 117Mb\n"
                                "stat::number_of_executed_units: 19584\n")
        self.assertEqual((one.edges_known, one.edges, one.corpus, one.executions), (3279, 1102, 330, 19584))

    def test_a_slow_input_is_no_finding(self):
        with tempfile.TemporaryDirectory() as folder:
            old, slow, late, crash = (Path(folder, name) for name in ("crash-1", "slow-unit-2", "timeout-3", "crash-4"))
            old.touch()
            before = set(Path(folder).iterdir())
            for path in (slow, late, crash):
                path.touch()
            self.assertEqual(run.new_findings(Path(folder), before), [crash, late])

    def test_executions_of_a_run_that_was_cut_short(self):
        one = run.Slice("debug", 1, {})
        run.read_libfuzzer(one, "#900\tNEW    cov: 1102 ft: 4405 corp: 330/7922b\n")
        self.assertEqual(one.executions, 900)

    def test_a_slice_that_did_not_finish(self):
        fine, late = run.Slice("debug", 1, {}), run.Slice("debug", 2, {}, unfinished=True)
        found = run.Slice("secure", 3, {}, finding="crash-1")
        self.assertEqual(run.failures([fine, late]), 0)
        self.assertEqual(run.failures([late, late]), 1)
        self.assertEqual(run.failures([fine, late, found]), 1)


if __name__ == "__main__":
    unittest.main()
