"""hakmem bench: HAKMEM against other allocators; a short form of bench/compare.py."""

import os
import subprocess
import sys

from . import ToolError
from .launch import ROOT

RUNNER = os.path.join(ROOT, "bench", "compare.py")


def command(args):
    if not os.path.exists(RUNNER):
        raise ToolError("the benchmarks are not here: hakmem bench runs in the source tree")
    words = [sys.executable, "-B", RUNNER, "--suite", args.suite]
    others = [name for name in args.against.split(",") if name]
    peers = [name for name in others if name != "system" and "/" not in name]
    words += ["--allocators", ",".join(["hakmem", *(n for n in others if n not in peers)])]
    if peers:
        words += ["--peers", ",".join(peers)]
    for flag in ("quick", "net"):
        if getattr(args, flag):
            words.append(f"--{flag}")
    for name in ("rounds", "budget", "json", "csv"):
        if getattr(args, name) is not None:
            words += [f"--{name}", str(getattr(args, name))]
    for trace in args.replay:
        if not os.path.isfile(trace):
            raise ToolError(f"--replay {trace}: no such file")
        words += ["--replay", os.path.abspath(trace)]
    built = subprocess.run(["make", "-C", ROOT, "all"], stdout=subprocess.DEVNULL).returncode
    if built != 0:
        raise ToolError("make failed")
    return subprocess.run(words).returncode
