"""`hakmem bench`: HAKMEM against other allocators; a thin front of bench/compare.py."""

import os
import sys

from . import ToolError
from .launch import ROOT

BENCH = os.path.join(ROOT, "bench")
MINUTES = 45  # that a run may take, if nothing else is said; it ends earlier if all figures are settled


def peer_names():
    """Those that compare.py can build, and its groups of them, with what is measured beside a group."""
    sys.path.insert(0, BENCH)
    try:
        import peers
    finally:
        sys.path.remove(BENCH)
    return list(peers.PEERS), {"all": ["system", *peers.GROUPS["all"]],
                               "secure": ["hakmem-secure", *peers.GROUPS["secure"]]}


def arguments(args, peers, groups):
    """compare.py's arguments; peers are the names it can build, groups stand for several."""
    names = [word for name in args.against.split(",") if name for word in groups.get(name, [name])]
    against = list(dict.fromkeys(names))
    if not against:
        raise ToolError("--against names no allocator")
    others = [name for name in against if name not in peers]
    built = [name for name in against if name in peers]
    words = ["--allocators", ",".join([*others, "hakmem"])]
    if built:
        words += ["--peers", ",".join(built)]
    # A peer that cannot be had is left out, so it cannot be what others are related to.
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
    # In its place: an interrupt is compare.py's, which then prints what it has, and so is a request to end.
    os.execv(sys.executable, [sys.executable, "-B", os.path.join(BENCH, "compare.py"), *words])
