"""Arguments and subcommands of the hakmem command."""

import argparse
import os
import signal
import sys

from . import ToolError, bench, record, run, stats, which

DESCRIPTION = """\
Runs programs on the HAKMEM allocator and shows what its heap did.

  hakmem run ./app args    the program on the system allocator and on HAKMEM:
                           same output? which is faster? what did the heap do?
  hakmem bench             the benchmarks, against the system allocator or others
  hakmem stats FILE...     prints statistics files (HAKMEM_STATS=json)
  hakmem which PID         is HAKMEM in use in that process?
  hakmem record -o FILE ./app args
                           writes down every allocation of the program
  hakmem trace FILE        what is in such a file; bench --replay FILE runs it
"""


def build_parser():
    parser = argparse.ArgumentParser(
        prog="hakmem", description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    p = commands.add_parser(
        "run", help="run a program on the system allocator and on HAKMEM",
        description="Runs CMD once per allocator, alternating, checks that HAKMEM served it and "
        "that the output is the same, and prints what the heap did. Exits 0 if all is well, 1 if "
        "HAKMEM did not serve the program or the output differs, else with the program's own "
        "status. Without CMD: tools/workload.py, a Python program that allocates hard.")
    p.add_argument("--against", metavar="ALLOCATOR", default="system",
                   help="what to compare with: 'system' (default) or the path of another "
                   "preloadable allocator")
    p.add_argument("--lib", metavar="FILE", default=run.default_library(),
                   help="the library to preload (default: %(default)s)")
    p.add_argument("--runs", metavar="N", type=positive, default=1,
                   help="runs per allocator; the fastest of each is shown (default 1)")
    p.add_argument("--stdin", metavar="FILE", default=os.devnull,
                   help="standard input of every run (default: empty)")
    p.add_argument("--no-compare", action="store_true",
                   help="do not compare the outputs (programs that print times or addresses)")
    p.add_argument("--quiet", action="store_true", help="do not show the program's output")
    p.add_argument("cmd", nargs=argparse.REMAINDER, metavar="CMD...", help="program and arguments")
    p.set_defaults(function=run.command)

    p = commands.add_parser(
        "bench", help="measure HAKMEM against other allocators",
        description="Runs benchmarks under each allocator in turn and prints the ratios; see "
        "bench/README.md. Needs what `make` builds.")
    p.add_argument("--against", metavar="A,B...", default="system",
                   help="system (default), a peer of bench/peers.py (built if necessary), the path of "
                   "a library, all, or secure: what is built for safety")
    p.add_argument("--suite", metavar="S", default="core",
                   help="a suite, selection or benchmark of bench/compare.py --list, or all (default core)")
    p.add_argument("--quick", action="store_true", help="small runs; for trying, not for figures")
    p.add_argument("--net", action="store_true", help="subtract each benchmark's own cost")
    p.add_argument("--instructions", action="store_true", help="count instructions per operation as well (slow)")
    p.add_argument("--rounds", metavar="N", type=positive, help="rounds of everything (quick: 3), instead of a budget")
    p.add_argument("--budget", metavar="MINUTES", type=positive, help="end within that time, and spend it where figures are unsure (default 45; quick: 4)")
    p.add_argument("--json", metavar="FILE", help="write every run and the summary")
    p.add_argument("--csv", metavar="FILE", help="write the summary")
    p.add_argument("--html", metavar="FILE", help="write a page with charts and tables")
    p.add_argument("--out", metavar="FOLDER", help="write all of these, the charts and every run there")
    p.add_argument("--replay", metavar="TRACE", action="append",
                   help="instead of a suite: replay a recorded trace; may be repeated")
    p.add_argument("--agree", nargs=2, metavar=("A.json", "B.json"),
                   help="run nothing: do two results of the same build agree within their intervals?")
    p.set_defaults(function=bench.command)

    p = commands.add_parser(
        "stats", help="print statistics files",
        description="Adds up and prints the files that programs wrote with HAKMEM_STATS=json "
        "HAKMEM_STATS_FILE=/some/where/%p.json.")
    p.add_argument("--classes", action="store_true", help="one line per size class too")
    p.add_argument("files", nargs="+", metavar="FILE")
    p.set_defaults(function=stats.command)

    p = commands.add_parser(
        "which", help="is HAKMEM in use in a process?",
        description="Says whether libhakmem is mapped in process PID, and which file. Exits 0 if "
        "it is, 1 if not, 2 if that cannot be found out.")
    p.add_argument("pid", type=positive, metavar="PID")
    p.set_defaults(function=which.command)

    p = commands.add_parser(
        "record", help="record a program's allocations",
        description="Runs CMD with a library preloaded that writes every call of malloc, free and "
        "their relatives to FILE, with threads and order (trace/README.md). Exits with the "
        "program's own status, 1 if nothing was recorded.")
    p.add_argument("-o", "--output", metavar="FILE", required=True,
                   help="the trace; %%p in it is replaced by the process's number")
    p.add_argument("--children", action="store_true",
                   help="record child processes too, each in FILE.PID")
    p.add_argument("--lib", metavar="FILE", help="the allocator to record above (default: the system's)")
    p.add_argument("--limit", metavar="MIB", type=positive, help="stop recording at that file size")
    p.add_argument("cmd", nargs=argparse.REMAINDER, metavar="CMD...", help="program and arguments")
    p.set_defaults(function=record.record)

    p = commands.add_parser(
        "trace", help="what is in a trace",
        description="Operations, threads, peak of live memory, sizes, frees by other "
        "threads and lifetimes of blocks.")
    p.add_argument("--json", action="store_true", help="one JSON object per file")
    p.add_argument("files", nargs="+", metavar="FILE")
    p.set_defaults(function=record.summarise)
    return parser


def positive(text):
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def open_what_is_closed():
    """Opens standard files that the caller closed, so that no other file gets their number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")
    sys.stdout.reconfigure(errors="backslashreplace")  # for file names that are not valid text here


def main(argv=None):
    open_what_is_closed()
    parser = build_parser()
    if not (argv or sys.argv[1:]):
        parser.print_help(sys.stderr)
        return 2
    args = parser.parse_args(argv)
    try:
        status = args.function(args)
        sys.stdout.flush()
        return status
    except ToolError as error:
        sys.stdout.flush()
        print(f"hakmem: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # | head
        sys.stdout = open(os.devnull, "w")
        return 128 + signal.SIGPIPE
    except OSError as error:  # a full disk, a program that cannot be run
        sys.stdout = open(os.devnull, "w")
        print(f"hakmem: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 1
