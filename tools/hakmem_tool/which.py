"""`hakmem which PID`: is HAKMEM mapped in that process?"""

import os
import sys

LIBRARY = "libhakmem"
RECORDER = "libhakmem-record"  # not an allocator


def mapped_library(pid):
    """Path of the HAKMEM library mapped in process pid, or None.

    Raises OSError where /proc/PID/maps cannot be read.
    """
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            name = os.path.basename(fields[5]) if len(fields) == 6 else ""
            if name.startswith(LIBRARY) and not name.startswith(RECORDER):
                return fields[5]
    return None


def command(args):
    try:
        path = mapped_library(args.pid)
        with open(f"/proc/{args.pid}/comm", encoding="utf-8", errors="replace") as f:
            name = f.read().strip()
    except FileNotFoundError:
        print(f"hakmem: no process {args.pid}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"hakmem: process {args.pid} cannot be looked into: {error.strerror}",
              file=sys.stderr)
        return 2
    if path is None:
        print(f"{args.pid} ({name}): HAKMEM is not mapped (linked in statically, it would not show)")
        return 1
    print(f"{args.pid} ({name}): HAKMEM, {path}")
    return 0
