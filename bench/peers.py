#!/usr/bin/env python3
"""Fetch and build the allocators that HAKMEM is compared with.

    python3 bench/peers.py               fetch, build and check every peer of "all"
    python3 bench/peers.py jemalloc …    only these
    python3 bench/peers.py --list        what there is and what is built

Sources come from ordinary package registries through their ordinary clients
(cargo, apt-get), are checked against the SHA-256 pins below, and are built
below build/peers; none of them enters the repository. A peer that cannot be
obtained or does not work is named and left out; the others go on.

As a module: peers.available() -> {name: path of the shared object}.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

REPO = Path(__file__).resolve().parent.parent
sys.path.append(str(REPO / "tools"))
from userfiles import loadable  # noqa: E402

WORK = REPO / "build" / "peers"
LIB = WORK / "lib"
SRC = WORK / "src"
FETCH = WORK / "fetch"
LOGS = WORK / "log"


class PeerError(Exception):
    """A peer cannot be obtained, built or used; the text says why."""


# --------------------------------------------------------------------------
# Pins. package: (client, version, SHA-256 of the file the client downloads)

PINS = {
    "libmimalloc-sys2": (
        "cargo", "0.1.65",
        "6c68ecbf07017a81a170a98fd1486d340dd304bc1099d2ca9aceff310fc42e9d"),
    "snmalloc-sys": (
        "cargo", "0.7.6",
        "f09c93c55f9a2b8dab75738a83c771231c5f408af65b8657433fe5bc93cc76cb"),
    "tikv-jemalloc-sys": (
        "cargo", "0.7.1+5.3.1-0-g81034ce1f1373e37dc865038e1bc8eeecf559ce8",
        "1a2825c78386b4ae0314074867860ba9577875de945f05992c38815cbec327f0"),
    "rpmalloc-sys": (
        "cargo", "0.2.3+b097fd0",
        "8d4b7d5e225a53887ee57fcec492eaf114b8e290f7072d035adc6ddd6810b67b"),
    "hardened_malloc-rs": (
        "cargo", "0.1.2+12",
        "647deb1583b14d160f85f3ff626f20b6edd366e3852c9843b06077388f794cb6"),
    "libtcmalloc-minimal4": (
        "apt", "2.10-1",
        "464aa2e804b0d48300ad71edfe525599deed8765db4af7a8d9de60326dc8e4c7"),
    "libtcmalloc-sys": (
        "cargo", "0.1.14",
        "33e204268a3b09862788a2894346c768b95b2cb29cba42c5e2bb9ea7f48fa317"),
    "libtbbmalloc2": (
        "apt", "2021.8.0-2+deb12u1",
        "c1ae1a60490c415cc1bf8b3485a42f77c331b49e48f083f9ae05df6734d7c4de"),
    "libclang-rt-19-dev": (
        "apt", "1:19.1.7-3~deb12u1",
        "872464dcd1aa3538e417e177f74a4c549b19313acaa1fe9465d32b936e9ef8eb"),
}


# --------------------------------------------------------------------------
# Running commands

def run(args: list, log: Path, cwd: Path | None = None, env: dict | None = None) -> None:
    """Runs a command at low priority and appends its output to the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [str(a) for a in args]
    with log.open("a") as out:
        out.write(f"$ {' '.join(words)}\n")
        out.flush()
        try:
            code = subprocess.run(["nice", *words], cwd=cwd, env={**os.environ, **(env or {})},
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode
        except OSError as error:
            raise PeerError(f"{words[0]}: {error.strerror}") from error
    if code != 0:
        tail = " | ".join(log.read_text(errors="replace").strip().splitlines()[-2:])
        raise PeerError(f"{Path(words[0]).name} failed ({code}); see {log.relative_to(REPO)}: {tail}")


def cc() -> list[str]:
    return os.environ.get("CC", "gcc").split()


def cxx() -> list[str]:
    return os.environ.get("CXX", "g++").split()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --------------------------------------------------------------------------
# Fetching

def fetch(package: str, log: Path) -> Path:
    """Fetches a package; returns the folder with its checked sources (or files)."""
    client, version, pin = PINS[package]
    folder = SRC / f"{package}-{version}"
    mark = folder / ".sha256"
    if mark.exists() and mark.read_text() == pin:
        return folder
    archive = (fetch_crate if client == "cargo" else fetch_deb)(package, version, log)
    found = sha256(archive)
    if found != pin:
        raise PeerError(f"{archive.name}: SHA-256 is {found}, expected {pin}")
    shutil.rmtree(folder, ignore_errors=True)
    SRC.mkdir(parents=True, exist_ok=True)
    if client == "cargo":
        with tarfile.open(archive) as tar:  # unpacks into package-version
            # Not before 3.11.4 and 3.10.12; the archive's SHA-256 has been checked.
            tar.extractall(SRC, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    else:
        run(["dpkg-deb", "-x", archive, folder], log)
    mark.write_text(pin)
    return folder


def fetch_crate(package: str, version: str, log: Path) -> Path:
    """Makes cargo download one crate, by means of a temporary manifest."""
    folder = FETCH / package
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "lib.rs").touch()
    # Build metadata (after +) is not part of a version requirement.
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "throw-away"\nversion = "0.0.0"\nedition = "2021"\n\n'
        f'[workspace]\n\n[dependencies]\n{package} = "={version.split("+")[0]}"\n')
    run(["cargo", "fetch", "--manifest-path", folder / "Cargo.toml"], log)
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    found = sorted(home.glob(f"registry/cache/*/{package}-{version}.crate"))
    if not found:
        raise PeerError(f"cargo fetched no {package}-{version}.crate")
    return found[0]


def fetch_deb(package: str, version: str, log: Path) -> Path:
    folder = FETCH / package
    folder.mkdir(parents=True, exist_ok=True)
    run(["apt-get", "download", f"{package}={version}"], log, cwd=folder)
    found = sorted(folder.glob(f"{package}_*.deb"))
    if not found:
        raise PeerError(f"apt-get downloaded no {package} {version}")
    return found[-1]


# --------------------------------------------------------------------------
# Building. Each recipe follows what upstream's own release build does on
# x86-64 Linux; it gets the checked sources and writes the shared object.

def build_mimalloc(tree: str, *defines: str) -> Callable[[Path, Path, Path, int], None]:
    def build(source: Path, out: Path, log: Path, jobs: int) -> None:
        top = source / "c_src" / tree
        run([*cc(), "-O3", "-DNDEBUG", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden",
             "-ftls-model=initial-exec", "-fno-builtin-malloc", "-DMI_MALLOC_OVERRIDE=1",
             "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", "-DMI_HAS_EXECINFOH=1",
             "-DMI_HAS_UNISTDH=1", *defines, "-I", top / "include", top / "src" / "static.c",
             "-o", out, "-pthread"], log)
    return build


def build_snmalloc(source: Path, out: Path, log: Path, jobs: int) -> None:
    top = source / "upstream"
    override = top / "src" / "snmalloc" / "override"
    run([*cxx(), "-O3", "-DNDEBUG", "-std=c++20", "-fPIC", "-shared", "-mcx16", "-mprfchw",
         "-DSNMALLOC_USE_WAIT_ON_ADDRESS=1", "-fomit-frame-pointer", "-ftls-model=initial-exec", "-I", top / "src",
         override / "new.cc", override / "malloc.cc", "-o", out, "-pthread"], log)


def build_jemalloc(source: Path, out: Path, log: Path, jobs: int) -> None:
    top = WORK / "build" / "jemalloc"
    shutil.rmtree(top, ignore_errors=True)
    shutil.copytree(source / "jemalloc", top)
    # The crate keeps the generated script beside upstream's tree.
    shutil.copy(source / "configure" / "configure", top / "configure")
    version = PINS["tikv-jemalloc-sys"][1].split("+")[1]
    run(["sh", "configure", f"--with-version={version}", "--enable-doc=no", "--enable-static=no"],
        log, cwd=top, env={"CC": " ".join(cc()), "CXX": " ".join(cxx())})
    run(["make", f"-j{jobs}", "build_lib_shared"], log, cwd=top)
    shutil.copy(top / "lib" / "libjemalloc.so.2", out)


def build_rpmalloc(source: Path, out: Path, log: Path, jobs: int) -> None:
    run([*cc(), "-O3", "-DNDEBUG", "-std=gnu11", "-fPIC", "-shared", "-D_GNU_SOURCE=1",
         "-DENABLE_OVERRIDE=1", "-DENABLE_PRELOAD=1", "-fno-builtin-malloc",
         source / "rpmalloc" / "rpmalloc" / "rpmalloc.c", "-o", out, "-pthread"], log)


def build_hardened(source: Path, out: Path, log: Path, jobs: int) -> None:
    objects = WORK / "build" / "hardened_malloc"
    shutil.rmtree(objects, ignore_errors=True)
    objects.parent.mkdir(parents=True, exist_ok=True)
    run(["make", f"-j{jobs}", "-C", source / "src" / "hardened_malloc", f"OUT={objects}",
         "CONFIG_NATIVE=false", "CONFIG_WERROR=false", f"CC={' '.join(cc())}"], log)
    shutil.copy(objects / "libhardened_malloc.so", out)


def build_tcmalloc_google(source: Path, out: Path, log: Path, jobs: int) -> None:
    objects = WORK / "build" / "tcmalloc-google"
    objects.mkdir(parents=True, exist_ok=True)
    # The crate's list of files; but tcmalloc.cc itself instead of the crate's bridge to
    # it, and without its INTERNAL_METHODS_ONLY: so it overrides malloc as upstream does.
    listed = re.findall(r'"(c_src/[^"]*\.(?:cc|S))"', (source / "build.rs").read_text())
    names = [name for name in listed if not name.endswith("_bridge.cc")]
    names.append("c_src/tcmalloc/tcmalloc/tcmalloc.cc")
    flags = ["-O2", "-DNDEBUG", "-DNOMINMAX", "-DTCMALLOC_INTERNAL_8K_PAGES", "-std=c++17", "-fPIC", "-w",
             "-ftls-model=initial-exec", "-I", str(source / "c_src" / "abseil-cpp"),
             "-I", str(source / "c_src" / "tcmalloc")]
    built = {f"{number}.o": source / name for number, name in enumerate(names)}
    (objects / "Makefile").write_text(f"FLAGS = {' '.join(flags)}\nall: {' '.join(built)}\n" + "".join(
        f"{made}: {file}\n\t{' '.join(cxx())} $(FLAGS) -c $< -o $@\n" for made, file in built.items()))
    run(["make", f"-j{jobs}", "-C", objects], log)
    run([*cxx(), "-shared", *(objects / made for made in built), "-o", out, "-pthread"], log)


def the_file(source: Path, pattern: str) -> Path:
    found = sorted(source.glob(pattern))
    if not found:
        raise PeerError(f"no {pattern} in the package")
    return found[0]


def build_gperftools(source: Path, out: Path, log: Path, jobs: int) -> None:
    # copy follows the link to the binary as Debian built it
    shutil.copy(the_file(source, "usr/lib/*/libtcmalloc_minimal.so.4"), out)


def build_tbbmalloc(source: Path, out: Path, log: Path, jobs: int) -> None:
    beside = LIB / "libtbbmalloc"  # preloaded together with it, see preload
    beside.mkdir(parents=True, exist_ok=True)
    shutil.copy(the_file(source, "usr/lib/*/libtbbmalloc.so.2"), beside)
    shutil.copy(the_file(source, "usr/lib/*/libtbbmalloc_proxy.so.2"), out)


def build_scudo(source: Path, out: Path, log: Path, jobs: int) -> None:
    shutil.copy(the_file(source, "usr/lib/llvm-19/lib/clang/19/lib/*/libclang_rt.scudo_standalone-x86_64.so"), out)


@dataclass(frozen=True)
class Peer:
    version: str
    package: str
    build: Callable[[Path, Path, Path, int], None]
    note: str = ""
    env: dict[str, str] = field(default_factory=dict)  # variables that its makers require to be set
    main: bool = True  # part of "all": not a variant of another peer


PEERS = {
    "mimalloc": Peer("3.6.0", "libmimalloc-sys2", build_mimalloc("mimalloc3")),
    "mimalloc2": Peer("2.5.2", "libmimalloc-sys2", build_mimalloc("mimalloc")),
    "snmalloc": Peer("0.7.6", "snmalloc-sys", build_snmalloc),
    "jemalloc": Peer("5.3.1", "tikv-jemalloc-sys", build_jemalloc, "takes minutes"),
    "rpmalloc": Peer("1.4.3", "rpmalloc-sys", build_rpmalloc),
    "tcmalloc": Peer("2.10 (gperftools)", "libtcmalloc-minimal4", build_gperftools, "Debian's binary"),
    "tcmalloc-google": Peer("of libtcmalloc-sys 0.1.14", "libtcmalloc-sys", build_tcmalloc_google, "takes minutes",
                            {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}),  # for its per-CPU caches
    "tbbmalloc": Peer("2021.8", "libtbbmalloc2", build_tbbmalloc, "Debian's binary"),
    "scudo": Peer("19.1.7", "libclang-rt-19-dev", build_scudo, "Debian's binary; built for safety"),
    "mimalloc2-secure": Peer("2.5.2, MI_SECURE=4", "libmimalloc-sys2", build_mimalloc("mimalloc", "-DMI_SECURE=4"),
                             "built for safety", main=False),
    "hardened": Peer("12", "hardened_malloc-rs", build_hardened, "built for safety, not for speed"),
}

GROUPS = {
    "all": [name for name, peer in PEERS.items() if peer.main],
    "secure": ["mimalloc2-secure", "scudo", "hardened"],
}


def chosen(words: list[str]) -> list[str]:
    """The peers that the words name, each a peer or a group; ValueError names the unknown ones."""
    names = [name for word in words for name in GROUPS.get(word, [word])]
    if unknown := [name for name in names if name not in PEERS]:
        raise ValueError(f"unknown peer: {', '.join(unknown)}")
    return list(dict.fromkeys(names))


# --------------------------------------------------------------------------
# Checking

def preload(library: Path) -> str:
    """LD_PRELOAD for a library; for a peer, including what lies in the folder of its name."""
    beside = sorted((LIB / library.stem).glob("*.so*")) if library.resolve().parent == LIB.resolve() else []
    return ":".join(map(loadable, [library, *beside]))


def probe(library: Path | None, env: dict[str, str] | None = None) -> dict[str, str]:
    """Which object serves malloc, free … with the library preloaded: {function: object}.

    Raises PeerError if the probe does not run or anything other than the library serves.
    """
    program = WORK / "probe"
    source = REPO / "bench" / "probe.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        run([*cc(), "-O1", "-fno-builtin", source, "-o", program, "-ldl", "-pthread"],
            LOGS / "probe.log")
    environment = {**os.environ, **(env or {})}
    environment.pop("LD_PRELOAD", None)
    if library is not None:
        environment["LD_PRELOAD"] = preload(library)
    try:
        done = subprocess.run([str(program)], env=environment, capture_output=True, text=True,
                              timeout=60)
    except subprocess.TimeoutExpired as error:
        raise PeerError("the probe hangs under it") from error
    if done.returncode != 0:
        raise PeerError(f"the probe fails under it ({done.returncode}): {done.stderr.strip()}")
    served = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    if library is not None:
        for function, by in served.items():
            if Path(by).resolve() != library.resolve():
                raise PeerError(f"{function} is served by {by}")
    return served


@functools.cache
def compiler(*words: str) -> str:
    done = subprocess.run([*words, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True)
    return f"{' '.join(words)} {done.stdout.strip()}"


def recipe(name: str) -> dict[str, str]:
    """A description of what a build depends on; a cached library with another recipe is stale."""
    peer = PEERS[name]
    client, version, pin = PINS[peer.package]
    made_by = inspect.getsource(peer.build) + repr(sorted(inspect.getclosurevars(peer.build).nonlocals.items()))
    return {"name": name, "version": peer.version, "package": peer.package,
            "package_version": version, "package_sha256": pin,
            "compiler": "Debian's" if client == "apt" else f"{compiler(*cc())}, {compiler(*cxx())}",
            "build_sha256": hashlib.sha256(made_by.encode()).hexdigest()}


def paths(name: str) -> tuple[Path, Path]:
    return LIB / f"lib{name}.so", LIB / f"{name}.json"


def details(name: str) -> dict[str, str]:
    """Version, package and checksums of a built peer, for the results; empty if it is not built."""
    library, stamp = paths(name)
    try:
        return json.loads(stamp.read_text()) if library.exists() else {}
    except (OSError, ValueError):  # missing or truncated
        return {}


def is_built(name: str) -> bool:
    return bool(details(name))


def build(name: str, jobs: int = 1, force: bool = False) -> Path:
    """Fetches, builds and checks one peer unless that has been done already.

    A library whose pins, compiler or build function have changed is built again.
    """
    library, stamp = paths(name)
    wanted = recipe(name)
    had = details(name)
    if not force and all(had.get(k) == v for k, v in wanted.items()):
        return library
    LIB.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    log = LOGS / f"{name}.log"
    log.unlink(missing_ok=True)
    fresh = LIB / f"lib{name}.so.new"
    try:
        PEERS[name].build(fetch(PEERS[name].package, log), fresh, log, jobs)
        os.replace(fresh, library)
        probe(library, PEERS[name].env)
    except (PeerError, OSError, tarfile.TarError) as error:
        library.unlink(missing_ok=True)
        fresh.unlink(missing_ok=True)
        raise PeerError(str(error)) from error
    fresh.write_text(json.dumps({**wanted, "library_sha256": sha256(library)}, indent=1) + "\n")
    os.replace(fresh, stamp)
    return library


def available() -> dict[str, Path]:
    """The peers that have been built and found to work."""
    return {name: paths(name)[0] for name in PEERS if is_built(name)}


def build_all(names: list[str], jobs: int = 1, force: bool = False,
              say: Callable[[str], None] = print) -> dict[str, Path]:
    """Builds the named peers; those that cannot be obtained are named and left out."""
    have = {}
    for number, name in enumerate(names, 1):
        peer = PEERS[name]
        head = f"[{number}/{len(names)}] {name} {peer.version}"
        if not is_built(name) and peer.note:
            say(f"{head}: {peer.note}")
        start = time.monotonic()
        try:
            have[name] = build(name, jobs, force)
            say(f"{head}: {have[name].relative_to(REPO)} ({time.monotonic() - start:.0f} s)")
        except (PeerError, OSError) as error:
            say(f"{head}: left out: {error}")
    return have


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch and build the peers HAKMEM is compared with.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PEERS)}, or a group: {', '.join(GROUPS)} (default all)")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument("--force", action="store_true", help="build again")
    parser.add_argument("--jobs", type=int, default=1, help="parallel jobs of make (default 1)")
    args = parser.parse_args()
    try:
        names = chosen(args.names or (list(PEERS) if args.list else ["all"]))
    except ValueError as error:
        parser.error(str(error))
    if args.list:
        for name in names:
            peer = PEERS[name]
            state = "built" if is_built(name) else "not built"
            note = f"  ({peer.note})" if peer.note else ""
            print(f"{name:<17} {peer.version:<26} {peer.package:<22} {state}{note}")
        return 0
    have = build_all(names, args.jobs, args.force, lambda text: print(text, flush=True))
    return 0 if len(have) == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
