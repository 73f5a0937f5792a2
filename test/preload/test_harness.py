"""A process that the harness starts does not outlive it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
PROGRAM = f"""
import signal, sys
sys.path.insert(0, {HERE!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
import harness
harness.Harness("/nonexistent", sys.argv[1], {{}}).plain("sh", "-c", "echo $$ >pid.new; mv pid.new pid; exec sleep 300")
"""


class End(unittest.TestCase):
    def test_its_child_ends_with_it(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number), tempfile.TemporaryDirectory() as folder:
                path, deadline = os.path.join(folder, "pid"), time.monotonic() + 60
                with subprocess.Popen([sys.executable, "-B", "-c", PROGRAM, folder], stderr=subprocess.DEVNULL) as process:
                    while not os.path.exists(path) and time.monotonic() < deadline:
                        time.sleep(0.01)
                    process.send_signal(number)
                with open(path, encoding="utf-8") as f:
                    child = int(f.read())
                while running(child) and time.monotonic() < deadline:
                    time.sleep(0.01)
                if running(child):
                    os.kill(child, signal.SIGKILL)
                    self.fail(f"{child} still runs")


def running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    unittest.main()
