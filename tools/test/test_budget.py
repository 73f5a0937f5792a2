"""Tests of test/budget/run.py that run nothing."""

import importlib.util
import os
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
spec = importlib.util.spec_from_file_location("budget_run", os.path.join(ROOT, "test", "budget", "run.py"))
budget = importlib.util.module_from_spec(spec)
spec.loader.exec_module(budget)

CACHEGRIND = """desc: I1 cache: none
cmd: ./program
events: Ir
fl=???
fn=main
0 100
fl=/x/src/thread/front.h
fn=malloc
45 30
46 30
fl=/x/srcs/other.c
fn=other
1 7
summary: 167
"""


class Budget(unittest.TestCase):
    def test_library_is_what_lies_below_the_sources(self):
        self.assertEqual(budget.read_cachegrind(CACHEGRIND, "/x/src"), (60, 167))

    def test_judgement(self):
        for kind, count, state in (("library", 1010000, "ok"), ("library", 1010001, "over"),
                                   ("library", 970000, "ok"), ("library", 969999, "lower"),
                                   ("total", 1050000, "ok"), ("total", 1050001, "over")):
            self.assertEqual(budget.judge("w", kind, count, 1000000)[0], state, (kind, count))
        self.assertEqual(budget.judge("w", "faults", 118, 100)[0], "ok")
        self.assertEqual(budget.judge("w", "faults", 119, 100)[0], "over")

    def test_message_says_what_to_do(self):
        line = budget.judge("w", "library", 12345, 12000)[1]
        self.assertIn("w: 12,345 instructions in the library, budget 12,000 (+2.9 %)", line)
        self.assertIn("if intended run test/budget/run.py --update w", line)

    def test_what_is_over_is_measured_again(self):
        for counts, least in (((1000, 5000, 5000), 1000), ((1200, 1005, 1100), 1005), ((1200, 1100, 1150), 1100)):
            with mock.patch.object(budget, "measure", side_effect=[{"library": n} for n in counts]):
                self.assertEqual(budget.least_if_over("w", None, {"library": 1000}), {"library": least})


if __name__ == "__main__":
    unittest.main()
