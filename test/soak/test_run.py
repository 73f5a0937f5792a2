"""The soak run's judgement, tested on made-up samples."""

import json
import sys
import types
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import run  # noqa: E402


def samples(rss=lambda t: 100000, p999=lambda t: 1000, timed=5000):
    return [{"t": float(t), "phase": ("tiny", "large")[t % 2], "live_kib": 50000, "rss_kib": rss(t), "timed": timed,
             "p50": 40, "p99": 200, "p999": p999(t), "max": 9000} for t in range(1, 201)]


def redis(ratio, failure=""):
    made = [{"t": t, "round": t % 8, "used_kib": 1000, "rss_kib": 1000 * ratio(t)} for t in range(200)]
    return types.SimpleNamespace(samples=made, failure=failure)


class Judgement(unittest.TestCase):
    def test_steady_is_fine(self):
        for judge in (run.judge_growth, run.judge_rss_per_live, run.judge_latency):
            self.assertTrue(judge(samples()).ok, judge.__name__)

    def test_what_is_written_is_read(self):
        record = {"seconds": 3.5, "long_life": samples(), "redis": [], "checks": [{"name": "a", "ok": True}]}
        self.assertEqual(json.loads(run.written(record)), record)
        many = {"long_life": [{"t": t} for t in range(3600)]}
        self.assertEqual(json.loads(run.written(many))["long_life"], [{"t": t} for t in range(0, 3600, 4)])

    def test_growth_in_all_phases(self):
        self.assertFalse(run.judge_growth(samples(rss=lambda t: 100000 + 500 * t)).ok)

    def test_growth_in_one_phase(self):
        check = run.judge_growth(samples(rss=lambda t: 100000 + 600 * t * (t % 2)))
        self.assertFalse(check.ok)
        self.assertIn("phase large", check.text)

    def test_a_short_run_may_grow_more(self):
        short = [s | {"t": s["t"] / 10} for s in samples(rss=lambda t: 100000 + 500 * t)]
        self.assertTrue(run.judge_growth(short).ok)
        self.assertFalse(run.judge_growth([s | {"rss_kib": 4 ** int(s["t"] / 5) * 9000} for s in short]).ok)

    def test_a_short_run_may_not_grow_in_one_phase(self):
        def short(rss):
            return [s | {"t": s["t"] / 10} for s in samples(rss=rss)]
        self.assertFalse(run.judge_growth(short(lambda t: 100000 * (1 + 9 * (t % 2) * (t > 100)))).ok)

    def test_what_is_left_of_the_phase_before_does_not_count(self):
        many = [s | {"t": s["t"] / 10, "phase": f"phase {i % 8}"} for i, s in enumerate(samples())]
        self.assertTrue(run.judge_growth([s | {"rss_kib": 25000 if s["phase"] == "phase 1" and s["t"] < 12 else 100000}
                                          for s in many]).ok)

    def test_growth_of_little_is_no_growth(self):
        self.assertTrue(run.judge_growth(samples(rss=lambda t: 4000 + 20 * t)).ok)

    def test_the_beginning_does_not_count(self):
        self.assertTrue(run.judge_growth(samples(rss=lambda t: 10000 if t < 25 else 200000)).ok)

    def test_rss_per_live(self):
        self.assertFalse(run.judge_rss_per_live(samples(rss=lambda t: 50000 * (run.RSS_PER_LIVE_MAX + 0.1))).ok)

    def test_latency_that_drifts(self):
        self.assertFalse(run.judge_latency(samples(p999=lambda t: 1000 if t < 100 else 4000)).ok)

    def test_latency_needs_samples(self):
        self.assertFalse(run.judge_latency(samples(timed=run.DRIFT_SAMPLES - 1)).ok)

    def test_redis(self):
        self.assertTrue(all(check.ok for check in run.judge_redis(redis(lambda t: 2))))
        self.assertFalse(all(check.ok for check in run.judge_redis(redis(lambda t: 1 + t / 100))))
        self.assertFalse(run.judge_redis(redis(lambda t: 2, "it ended"))[0].ok)

    def test_a_program_that_differs(self):
        rounds = [run.Round("perl", 0, 1, "ok"), run.Round("perl", 2, 1, "output differs"), run.Round("gcc", 3, 1, "ok")]
        self.assertEqual([check.ok for check in run.judge_programs(rounds)], [False, True])

    def test_what_is_run_once_more(self):
        def checks(**ok):
            names = {"rss": run.RSS, "latency": run.LATENCY, "perl": "perl"}
            return [run.Check(name, ok.get(key, True), "") for key, name in names.items()]
        self.assertTrue(run.by_bounds_alone(checks(rss=False)))
        self.assertFalse(run.by_bounds_alone(checks(rss=False, perl=False)))
        self.assertFalse(run.by_bounds_alone(checks()))
        for first, second, expected in (({"rss": False}, {}, [True, True, True]),
                                        ({"rss": False}, {"latency": False}, [True, True, True]),
                                        ({"rss": False}, {"rss": False}, [False, True, True]),
                                        ({"rss": False}, {"perl": False}, [True, True, False])):
            self.assertEqual([c.ok for c in run.again(checks(**first), checks(**second))], expected)

    def test_every_bound_is_named(self):
        made = (run.judge_growth(samples()), run.judge_rss_per_live(samples()), run.judge_latency(samples()),
                run.judge_redis(redis(lambda t: 2))[1])
        self.assertEqual(tuple(check.name for check in made), run.BOUNDS)


if __name__ == "__main__":
    unittest.main()
