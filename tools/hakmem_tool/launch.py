"""Starts one program, waits for it and says what it cost."""

import dataclasses
import json
import os
import shutil
import subprocess
import time

from . import ToolError

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LAUNCHER = os.path.join(ROOT, "build", "bench", "launch")


@dataclasses.dataclass
class Cost:
    """Of the program and the children it waited for."""
    wall: float = 0.0   # seconds
    user: float = 0.0
    sys: float = 0.0
    maxrss: int = 0     # KiB, of the largest process
    minflt: int = 0
    majflt: int = 0
    status: int = 0     # exit status as a shell shows it: 128 + signal if killed
    pid: int = 0        # 0: the launcher does not say


def find_program(name):
    path = shutil.which(name)
    if path is None:
        kind = "is not an executable file" if os.path.exists(name) else "not found"
        raise ToolError(f"{name}: {kind}")
    return path


def launch(cmd, environment, out, stdin, scratch):
    """Runs cmd with environment added to ours; output goes to the file out.

    Through the C launcher where it is built: a program started from a process
    as large as Python starts life with Python's peak RSS on its account.
    """
    find_program(cmd[0])
    with open(stdin, "rb") as given, open(out, "wb") as sink:
        if os.access(LAUNCHER, os.X_OK):
            return by_launcher(cmd, environment, sink, given, os.path.join(scratch, "cost"))
        return by_hand(cmd, environment, sink, given)


def by_launcher(cmd, environment, sink, given, cost_file):
    command = [LAUNCHER, "--out", cost_file]
    for name, value in environment.items():
        command += ["--env", f"{name}={value}"]
    ended = subprocess.run(command + ["--"] + cmd, stdin=given, stdout=sink)
    try:
        with open(cost_file, encoding="utf-8") as f:
            told = json.load(f)
        os.unlink(cost_file)
    except (OSError, ValueError) as error:
        raise ToolError(f"{LAUNCHER} could not run {cmd[0]} "
                        f"(exit status {ended.returncode}): {error}") from error
    return Cost(wall=told["wall_s"], user=told["user_s"], sys=told["sys_s"],
                maxrss=told["maxrss_kib"], minflt=told["minor_faults"],
                majflt=told["major_faults"], status=told["exit"])


def by_hand(cmd, environment, sink, given):
    start = time.monotonic()
    pid = os.posix_spawnp(
        cmd[0], cmd, os.environ | environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, given.fileno(), 0),
                      (os.POSIX_SPAWN_DUP2, sink.fileno(), 1)])
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return Cost(wall=time.monotonic() - start, user=usage.ru_utime, sys=usage.ru_stime,
                maxrss=usage.ru_maxrss, minflt=usage.ru_minflt, majflt=usage.ru_majflt,
                status=code if code >= 0 else 128 - code, pid=pid)
