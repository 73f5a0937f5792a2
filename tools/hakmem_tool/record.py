"""`hakmem record`: records a program's allocation trace; `hakmem trace`: summarises one."""

import glob
import os
import shlex
import signal
import subprocess
import sys

from userfiles import check_writable, loadable, preloaded

from . import ToolError, explain
from .launch import ROOT, find_program, wait_for_end
from .run import library_file
from .stats import bytes_text

RECORDER = os.path.join(ROOT, "build", "libhakmem-record.so")
SUMMARY = os.path.join(ROOT, "build", "bench", "trace_summary")
CHILDREN = ".%p"


def built(path):
    if not os.path.isfile(path):
        raise ToolError(f"{path} does not exist; build it with `make`")
    return path


def record(args):
    cmd = args.cmd[1:] if args.cmd[:1] == ["--"] else args.cmd
    if not cmd:
        raise ToolError("record: no program given")
    find_program(cmd[0])
    trace = os.path.abspath(args.output)
    if args.children and "%p" not in trace:
        trace += CHILDREN
    preload = [loadable(built(RECORDER))]
    if args.lib is None:
        preload += filter(None, [os.environ.get("LD_PRELOAD")])
    else:
        preload += filter(None, [loadable(library_file(args.lib, "--lib: the allocator")), preloaded()])
    make_way(trace)
    before = traces(trace)
    environment = os.environ | {"HAKTRACE_FILE": trace, "LD_PRELOAD": ":".join(preload)}
    if args.limit is not None:
        environment["HAKTRACE_LIMIT"] = str(args.limit)
    # Set before the program starts: a signal may arrive before Popen returns.
    process, asked_to_end = None, []
    handlers = {signal.SIGTERM: lambda *_: process.terminate() if process else asked_to_end.append(True),
                signal.SIGINT: lambda *_: None}  # the program gets it too, and decides
    for number, handler in handlers.items():
        if signal.getsignal(number) is not signal.SIG_IGN:  # or the program would cease to ignore it
            signal.signal(number, handler)
    with subprocess.Popen(cmd, env=environment) as process:
        if asked_to_end:
            process.terminate()
        status = wait_for_end(process)
    report(trace, before, cmd)
    return status


def make_way(trace):
    """Removes an existing trace, because the recorder does not replace a file."""
    if os.path.exists(trace) and not os.path.isfile(trace):
        raise ToolError(f"{trace} is there and no file")
    try:
        check_writable(trace)
        if os.path.lexists(trace):
            os.unlink(trace)
    except OSError as error:
        raise ToolError(f"{trace} cannot be written: {error.strerror}") from error


def traces(trace):
    """The existing files of that name, in which %p stands for a number; .1 and so on may follow."""
    name, mark, rest = map(glob.escape, trace.partition("%p"))
    return set(glob.glob(f"{name}[0-9]*{rest}*" if mark else name))


def report(trace, before, cmd):
    """Reports to standard error: standard output is the program's. before: files that existed."""
    recorded = traces(trace) - before  # the recorder does not replace those
    if recorded and "%p" in trace:
        print(f"hakmem record: one file per process: {trace}", file=sys.stderr)
        return
    if not recorded:
        why = explain.why_not_served(cmd, 0) or (f"{explain.program_file(cmd)} can take a preload; it cleared its "
                                                 "environment, called no malloc, or the recorder has said why")
        raise ToolError(f"nothing was recorded: {why}")
    print(f"hakmem record: {shlex.quote(trace)}, {bytes_text(os.path.getsize(trace))}; look at it with "
          "`hakmem trace`, replay it with `hakmem bench --replay`", file=sys.stderr)


def summarise(args):
    status = 0
    for path in args.files:
        done = subprocess.run([built(SUMMARY), path, *(["--json"] if args.json else [])])
        status = status or done.returncode
    return 1 if status else 0
