"""run.py's verdict on programs whose behaviour is known: test_run.py LIBRARY."""

import contextlib
import io
import sys
import unittest

sys.dont_write_bytecode = True
import run  # noqa: E402
from checks import Check  # noqa: E402

LIBRARY = sys.argv.pop()
WITH = 'test -n "$LD_PRELOAD"'


def judged(script: str, **how) -> tuple[int, str]:
    """Exit status and output of run.py on a check with one program, a line of shell."""
    check = Check("known", "no-package", lambda _folder, _short: {"line": ["bash", "-c", script]}, **how)
    sys.argv = ["run.py", "--lib", LIBRARY]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = run.main([check])
    return status, said.getvalue()


class Judgement(unittest.TestCase):
    def test_the_same_is_well(self):
        self.assertEqual(judged("echo 7")[0], 0)

    def test_what_fails_under_us_only_is_found(self):
        status, said = judged(f"! {WITH}")
        self.assertEqual(status, 1)
        self.assertIn("FAILED: known", said)

    def test_a_signal_is_found_also_where_a_second_run_is_allowed(self):
        self.assertEqual(judged(f"if {WITH}; then kill -SEGV $$; fi", timing=True)[0], 1)

    def test_no_end_is_found(self):
        self.assertEqual(judged(f"if {WITH}; then sleep 60; fi", limit=5)[0], 1)

    def test_facts_must_agree(self):
        self.assertEqual(judged(f"if {WITH}; then echo 12 passed; else echo 13 passed; fi", facts=r"\d+ passed")[0], 1)
        self.assertEqual(judged("echo 12 passed", facts=r"\d+ passed")[0], 0)

    def test_a_word_must_be_said(self):
        self.assertEqual(judged(f"{WITH} || echo fine", says="fine")[0], 1)

    def test_what_fails_without_us_is_left_out(self):
        status, said = judged("exit 1")
        self.assertEqual(status, 77)
        self.assertIn("left out", said)

    def test_a_program_that_was_not_served_is_found(self):
        status, said = judged("exec env -u LD_PRELOAD -u HAKMEM_STATS true")
        self.assertEqual(status, 1, said)


if __name__ == "__main__":
    unittest.main()
