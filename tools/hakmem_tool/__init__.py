"""The hakmem command: run programs on HAKMEM, show what its heap did.

cli.py      arguments and subcommands
run.py      `hakmem run`: a program on the system allocator and on HAKMEM
stats.py    `hakmem stats`: sums up and prints statistics files
bench.py    `hakmem bench`: HAKMEM against other allocators, by bench/compare.py
which.py    `hakmem which`: is HAKMEM in that process?
record.py   `hakmem record`, `hakmem trace`: allocation traces
launch.py   starts one program and measures it
explain.py  why HAKMEM did not serve a program

Python's standard library only.
"""


class ToolError(Exception):
    """An error that is shown to the user as one line; the command ends with status 1."""
