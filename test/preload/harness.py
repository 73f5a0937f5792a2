"""What the preload tests share: run a program with and without HAKMEM.

A test gets a Harness. under() runs a command with HAKMEM preloaded and fails unless HAKMEM
served exactly that process: it must have written its statistics file, with allocations in it.
plain() runs the command on the system allocator; same() does both and compares the output.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.append(os.path.join(ROOT, "tools"))
from children import end_with_parent  # noqa: E402
from userfiles import loadable  # noqa: E402

LIMIT = 1500  # seconds for one command; below the CTest TIMEOUT of the test
WAIT = 120  # seconds for what a server does at once on an idle machine


class Skip(Exception):
    """The machine cannot run this test; the text says why."""


class Failure(Exception):
    """HAKMEM, or the program under it, did something wrong."""


class Done:
    """A command that succeeded."""

    def __init__(self, out, err, pid):
        self.out, self.err, self.pid = out, err, pid
        self.allocs = 0  # from HAKMEM's statistics

    @property
    def text(self):
        return self.out.decode("utf-8", "replace")


class Harness:
    def __init__(self, library, folder, options):
        self.library, self.folder = library, folder
        self.stats = os.path.join(folder, "stats")
        os.mkdir(self.stats)
        kept = {k: v for k, v in os.environ.items()
                if k != "LD_PRELOAD" and not k.startswith(("HAKMEM_", "GIT_", "PYTHON", "CMAKE_"))}
        self.plain_environment = kept | {"LC_ALL": "C", "TZ": "UTC", "HOME": folder}
        self.environment = self.plain_environment | options | {
            "LD_PRELOAD": loadable(library),
            "HAKMEM_STATS": "json",
            "HAKMEM_STATS_FILE": os.path.join(self.stats, "%p.json"),
        }

    def path(self, *names):
        """A path in the test's own folder; its parent folders exist."""
        path = os.path.join(self.folder, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def write(self, name, text):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def plain(self, *cmd, **how):
        return self._run(cmd, self.plain_environment, **how)

    def under(self, *cmd, served=True, **how):
        done = self._run(cmd, self.environment, **how)
        if served:
            done.allocs = self.assert_served(cmd[0], done.pid)
        return done

    def same(self, *cmd, files=(), **how):
        """Runs it both ways; standard output and the named files must be identical."""
        runs = []
        for run in (self.plain, self.under):
            for name in files:
                if os.path.exists(name):
                    os.unlink(name)
            done = run(*cmd, **how)
            runs.append([done.out] + [read(name) for name in files])
        for name, expected, got in zip(("output", *files), *runs):
            if expected != got:
                raise Failure(f"{os.path.basename(cmd[0])}: {name} differs under HAKMEM: "
                              f"{difference(expected, got)}")
        return done

    def assert_served(self, program, pid):
        """HAKMEM's count of allocations in process pid, which has ended."""
        path = os.path.join(self.stats, f"{pid}.json")
        if not os.path.exists(path):
            raise Failure(f"{program} (pid {pid}) wrote no statistics: HAKMEM was not in it, or could not "
                          "write them")
        with open(path, encoding="utf-8") as f:
            allocs = json.load(f)["allocs"]
        if allocs <= 0:
            raise Failure(f"{program} (pid {pid}): HAKMEM was loaded but served nothing")
        return allocs

    def served_processes(self):
        """How many processes HAKMEM has served so far, children included."""
        return len(os.listdir(self.stats))

    def _run(self, cmd, environment, cwd=None, stdin=None, extra=None, status=0, limit=LIMIT):
        process = subprocess.Popen(
            cmd, cwd=cwd or self.folder, env=environment | (extra or {}),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=end_with_parent)
        try:
            out, err = process.communicate(stdin, limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise Failure(f"{' '.join(cmd)}: no end after {limit} s\n{tail(out)}{tail(err)}") from None
        except BaseException:  # an interrupt at the terminal does not reach it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        if status is not None and process.returncode != status:
            raise Failure(f"{' '.join(cmd)}: exit status {process.returncode} instead of {status}, "
                          f"{'with' if 'LD_PRELOAD' in environment else 'without'} HAKMEM\n"
                          f"{tail(out)}{tail(err)}")
        done = Done(out, err, process.pid)
        done.status = process.returncode
        return done


def need(*programs):
    """Paths of the programs; raises Skip if one is missing."""
    found = []
    for program in programs:
        path = shutil.which(program)
        if path is None:
            raise Skip(f"{program} is not installed")
        found.append(path)
    return found[0] if len(found) == 1 else found


def wait_until(holds, failure):
    """Waits until holds() is true; raises Failure with this text after WAIT seconds."""
    deadline = time.monotonic() + WAIT
    while not holds():
        if time.monotonic() > deadline:
            raise Failure(f"{failure} in {WAIT} s")
        time.sleep(0.05)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def tail(text, lines=30):
    kept = text.decode("utf-8", "replace").splitlines()[-lines:]
    return "".join(f"  | {line}\n" for line in kept)


def difference(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return (f"{len(a)} and {len(b)} bytes, first at byte {at}: "
            f"{a[max(0, at - 20):at + 40]!r} became {b[max(0, at - 20):at + 40]!r}")
