"""The copies that are mutated follow the tree."""

import os
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import orders  # noqa: E402
import run  # noqa: E402


class Copies(unittest.TestCase):
    def test_what_the_tree_has_lost_goes_and_the_rest_keeps_its_time(self):
        def times(copy):
            return {path: os.stat(os.path.join(copy.source, path)).st_mtime_ns for path in run.sources(copy.source)}
        for make in (lambda folder: run.Copy(folder, "1")), orders.Copy:
            with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(run.Copy, "_do"):
                copy = make(folder)
                before = times(copy)
                self.assertEqual(set(before), set(run.sources(run.ROOT)))
                run.write(os.path.join(copy.source, "src", "core", "gone.c"), b"")
                self.assertEqual(times(make(folder)), before)


if __name__ == "__main__":
    unittest.main()
