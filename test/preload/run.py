#!/usr/bin/env python3
"""Runs one real program under HAKMEM: run.py --lib FILE [--set NAME=VALUE]... PROGRAM

PROGRAM is a function of runtimes.py, compilers.py, data.py or supply.py. Exit status 0:
passed, 77: the machine lacks something (a line 'skipped: ...' says what), else
failed. `run.py --list` names the programs.
"""

import argparse
import inspect
import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True

import compilers  # noqa: E402
import data  # noqa: E402
import runtimes  # noqa: E402
import supply  # noqa: E402
from harness import Failure, Harness, Skip  # noqa: E402


def programs():
    """Every public function that the modules define."""
    return {name: function for module in (runtimes, compilers, data, supply)
            for name, function in inspect.getmembers(module, inspect.isfunction)
            if function.__module__ == module.__name__ and not name.startswith("_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib", help="the library to preload")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="an environment variable for the preloaded runs")
    parser.add_argument("--keep", action="store_true", help="keep the test's folder")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("program", nargs="?", choices=programs())
    args = parser.parse_args()
    if args.list:
        print(*programs(), sep="\n")
        return 0
    if not args.program or not args.lib or not os.path.exists(args.lib):
        parser.error("give a program and --lib with the library to preload")

    folder = tempfile.mkdtemp(prefix=f"hakmem-{args.program}-")
    try:
        options = dict(pair.split("=", 1) for pair in args.set)
        harness = Harness(os.path.abspath(args.lib), folder, options)
        said = programs()[args.program](harness)
        print(f"ok: {args.program}: {said}; HAKMEM served {harness.served_processes()} processes")
        return 0
    except Skip as reason:
        print(f"skipped: {reason}")
        return 77
    except Failure as failure:
        print(f"FAILED: {args.program}: {failure}")
        return 1
    finally:
        if args.keep:
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
