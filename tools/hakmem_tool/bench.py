"""`hakmem bench`: HAKMEM against other allocators; a thin wrapper around bench/compare.py."""

import os
import sys

from . import ToolError
from .launch import ROOT

BENCH = os.path.join(ROOT, "bench")
MINUTES = 45  # default limit of a run; it ends earlier if all figures are settled


def peer_names():
    """compare.py's peers and groups of peers, with what is measured in addition to a group."""
    sys.path.insert(0, BENCH)
    try:
        import peers
    finally:
        sys.path.remove(BENCH)
    return list(peers.PEERS), {"all": ["system", *peers.GROUPS["all"]],
                               "secure": ["hakmem-secure", *peers.GROUPS["secure"]]}


def arguments(args, peers, groups):
    """compare.py's arguments; peers are names that it can build, a group stands for several."""
    names = [word for name in args.against.split(",") if name for word in groups.get(name, [name])]
    against = list(dict.fromkeys(names))
    if not against:
        raise ToolError("--against names no allocator")
    others = [name for name in against if name not in peers]
    built = [name for name in against if name in peers]
    words = ["--allocators", ",".join([*others, "hakmem"])]
    if built:
        words += ["--peers", ",".join(built)]
    # A peer that cannot be obtained is left out, so it cannot be the reference.
    words += ["--reference", label(others[0]) if others else "hakmem"]
    for trace in args.replay or ():
        words += ["--replay", trace]
    if not args.replay:
        words += ["--suite", args.suite]
    words += [f"--{flag}" for flag in ("quick", "net", "instructions") if getattr(args, flag)]
    if not (args.rounds or args.budget or args.quick):
        words += ["--budget", str(MINUTES)]
    for name in ("rounds", "budget", "json", "csv", "html", "out"):
        if getattr(args, name):
            words += [f"--{name}", str(getattr(args, name))]
    return words


def label(text):
    """The name that compare.py gives an allocator."""
    base, *settings = text.split(":")
    name, equals, _ = base.partition("=")
    if equals:
        return name
    return ":".join([os.path.basename(base), *settings])


def command(args):
    if args.agree:
        return compare(["--agree", *args.agree])
    if not os.path.exists(os.path.join(ROOT, "build", "bench", "launch")):
        raise ToolError("the benchmarks are not built; please run: make")
    return compare(arguments(args, *peer_names()))


def compare(words):
    # Replaces this process: compare.py gets interrupts and requests to end, and prints what it has.
    os.execv(sys.executable, [sys.executable, "-B", os.path.join(BENCH, "compare.py"), *words])
