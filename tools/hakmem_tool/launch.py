"""Starts one program, waits for it and reports its cost."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time

from . import ToolError

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LAUNCHER = os.path.join(ROOT, "build", "bench", "launch")
MOST_OUTPUT = 1 << 30  # bytes


@dataclasses.dataclass
class Cost:
    """The cost of the program and of the children it waited for."""
    wall: float = 0.0   # seconds
    user: float = 0.0
    sys: float = 0.0
    maxrss: int = 0     # KiB, of the largest process
    minflt: int = 0
    majflt: int = 0
    status: int = 0     # exit status as a shell shows it: 128 + signal if killed
    pid: int = 0


def find_program(name):
    path = shutil.which(name)
    if path is None:
        kind = "is not an executable file" if os.path.exists(name) else "not found"
        raise ToolError(f"{name}: {kind}")
    missing = missing_interpreter(path)
    if missing:
        raise ToolError(f"{name}: its interpreter {missing} does not exist")
    return path


def script_words(path):
    """The words behind #! of the script at path; empty if it is no script."""
    try:
        with open(path, "rb") as f:
            first = f.readline(256)
    except OSError:  # it may be executable but not readable
        return []
    return first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []


def missing_interpreter(path):
    """The program that should run the script at path, if that program does not exist."""
    words = script_words(path)
    return words[0] if words and not os.path.exists(words[0]) else None


def launch(cmd, environment, out, stdin, scratch):
    """Runs cmd with environment added to ours; output goes to the file out.

    Uses the C launcher where it is built: a program started from a process
    as large as Python would begin with Python's peak RSS.
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
    with subprocess.Popen(command + ["--"] + cmd, stdin=given, stdout=sink) as process:
        status = wait(process, sink)
    try:
        with open(cost_file, encoding="utf-8") as f:
            told = json.load(f)
        os.unlink(cost_file)
    except (OSError, ValueError) as error:
        raise ToolError(f"{LAUNCHER} could not run {cmd[0]} "
                        f"(exit status {status}): {error}") from error
    return Cost(wall=told["wall_s"], user=told["user_s"], sys=told["sys_s"],
                maxrss=told["maxrss_kib"], minflt=told["minor_faults"],
                majflt=told["major_faults"], status=told["exit"], pid=told["pid"])


def wait(process, sink):
    """Its exit status. If the waiting is interrupted, ends the program: it could fill the disk."""
    try:
        while True:
            try:
                return process.wait(0.5)
            except subprocess.TimeoutExpired:
                if os.fstat(sink.fileno()).st_size > MOST_OUTPUT:
                    raise ToolError(f"the program's output, which is kept to be compared, exceeds {MOST_OUTPUT >> 30} GiB; "
                                    "send it to /dev/null") from None
    except BaseException:
        process.kill()  # kills the launcher, and so the program
        raise


def wait_for_end(process):
    """Exit status, as a shell shows it; the process gets the terminal's interrupts and decides."""
    while True:
        try:
            status = process.wait()
            return status if status >= 0 else 128 - status
        except KeyboardInterrupt:
            pass


def by_hand(cmd, environment, sink, given):
    start = time.monotonic()
    pid = os.posix_spawnp(
        cmd[0], cmd, os.environ | environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, given.fileno(), 0),
                      (os.POSIX_SPAWN_DUP2, sink.fileno(), 1)])
    try:
        _, status, usage = os.wait4(pid, 0)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    code = os.waitstatus_to_exitcode(status)
    return Cost(wall=time.monotonic() - start, user=usage.ru_utime, sys=usage.ru_stime,
                maxrss=usage.ru_maxrss, minflt=usage.ru_minflt, majflt=usage.ru_majflt,
                status=code if code >= 0 else 128 - code, pid=pid)
