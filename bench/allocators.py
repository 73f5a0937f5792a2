"""Allocators as they are named on the command line."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import peers

SYSTEM = "system"


@dataclass(frozen=True)
class Allocator:
    name: str
    library: Path | None = None   # to preload; None: nothing is preloaded
    suffix: str = ""              # of the program: "_hakmem" for the linked-in variant
    env: dict[str, str] = field(default_factory=dict)


def parse_allocator(text: str, build: Path) -> Allocator:
    """[LABEL=]BASE[:K=V]…, BASE: system, hakmem, hakmem-secure, hakmem-static, floor, a peer or a path."""
    base, *settings = text.split(":")
    label, equals, rest = base.partition("=")
    base = rest if equals else label
    if not all("=" in s for s in settings):
        raise SystemExit(f"compare: {text}: settings are written K=V")
    env = dict(s.split("=", 1) for s in settings)
    name = label if equals else ":".join([Path(base).name, *settings])
    if base == SYSTEM:
        return Allocator(name, env=env)
    if base == "hakmem-static":
        return Allocator(name, suffix="_hakmem", env=env)
    if base in peers.PEERS:
        library = peers.available().get(base)
        if library is None:
            raise SystemExit(f"compare: {base} is not built: python3 bench/peers.py {base}")
        env = peers.PEERS[base].env | env
    else:
        own = {"hakmem": build / "libhakmem.so", "hakmem-secure": build / "libhakmem-secure.so",
               "floor": build / "bench" / "libfloor.so"}
        library = own.get(base, Path(base))
        if not library.exists():
            raise SystemExit(f"compare: {library} does not exist" if "/" in base or base in own else
                             f"compare: {base}: neither a file nor a known allocator; see `python3 bench/compare.py --list`")
    return Allocator(name, library.resolve(), env=env)


def describe(a: Allocator) -> dict:
    info: dict = {"name": a.name, "env": a.env}
    if a.library is not None:
        info["sha256"] = hashlib.sha256(a.library.read_bytes()).hexdigest()
        for name, library in peers.available().items():
            if library.resolve() == a.library:
                info.update({k: v for k, v in peers.details(name).items()
                             if k in ("version", "package", "package_version", "compiler")})
    return info
