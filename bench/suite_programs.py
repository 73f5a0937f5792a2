"""Programs that people run, on our own input; see programs/README.md."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from benchmark import Benchmark
from programs import inputs

HERE = Path(__file__).resolve().parent / "programs"
QUOTED = shlex.quote(str(HERE))
NGINX = "/usr/sbin/nginx"  # not in everybody's PATH
# Starts the interpreter itself, never a version manager's script that starts it.
PYTHON = str(Path(sys.executable).resolve())


def _cc1plus() -> str:
    """The compiler proper: g++ only starts it."""
    if shutil.which("g++") is None:
        return "cc1plus"
    return subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True,
                          text=True).stdout.strip()


def _process(name: str, program: str, full: str, quick: str, what: str, metric: str = "cpu_seconds",
             **more) -> Benchmark:
    """Measured by the CPU time of the process, unless the waiting of threads counts as well."""
    return Benchmark(name, program, tuple(shlex.split(full)), tuple(shlex.split(quick)), what,
                     suite="programs", kind="process", metric=metric, memory="maxrss_kib",
                     compare_output=True, **more)


def _server(name: str, program: str, full: str, quick: str, what: str, *needs: str) -> Benchmark:
    """A driver that starts the server under the allocator and its own clients without it."""
    return Benchmark(name, str(HERE / program), tuple(full.split()), tuple(quick.split()),
                     f"{what} (a driver starts the server; CPU time per request is the server's)",
                     suite="programs", needs=needs)


PYTHON_MALLOC = f"PYTHONMALLOC=malloc {shlex.quote(PYTHON)} -sB"
CC1PLUS = "-quiet -std=c++17 -fpreprocessed {work}/%s.ii -O1 -o -"
GS = "-q -dSAFER -dBATCH -dNOPAUSE -sDEVICE=pnggray -r60 -sOutputFile=- {work}/%s.ps"
JAVA = "-XX:+UseSerialGC -Xms64m -Xmx64m -Xshare:auto -cp {work} Work"

BENCHMARKS: tuple[Benchmark, ...] = (
    _server("redis", "redis.py", "benchmark 12000 10", "benchmark 5000 3", "redis under redis-benchmark",
            "redis-server", "redis-benchmark"),
    _server("redis_changing", "redis.py", "changing 6", "changing 1",
            "redis: values that grow and go", "redis-server"),
    _server("memcached", "memcached.py", "12", "3", "memcached: values of 10–2000 B", "memcached"),
    _server("nginx", "nginx.py", "20", "3", "nginx: includes, gzip; pools per request", NGINX),
    _process("py_sources", "env", f"{PYTHON_MALLOC} {QUOTED}/sources.py 16", f"{PYTHON_MALLOC} {QUOTED}/sources.py 3",
             "python3: syntax trees from two threads, tokens, words", needs=("env",)),
    _process("py_records", "env", f"{PYTHON_MALLOC} {QUOTED}/records.py 6", f"{PYTHON_MALLOC} {QUOTED}/records.py 1",
             "python3: objects, dictionaries, JSON", needs=("env",)),
    _process("cc1plus", _cc1plus(), CC1PLUS % "full", CC1PLUS % "quick",
             "gcc: templates, -O1", needs=("g++",), prepare=inputs.cxx),
    _process("sqlite", "sqlite3", ":memory: '.read \"{work}/full.sql\"'", ":memory: '.read \"{work}/quick.sql\"'",
             "sqlite3: tables, indexes, many statements", needs=("sqlite3",), prepare=inputs.sql),
    _process("perl", "env", f"PERL_HASH_SEED=0 perl {QUOTED}/work.pl 10", f"PERL_HASH_SEED=0 perl {QUOTED}/work.pl 2",
             "perl: hashes, arrays, regular expressions", needs=("env", "perl")),
    _process("lua", "lua5.4", f"{QUOTED}/work.lua 45", f"{QUOTED}/work.lua 4",
             "lua: trees, tables, strings", needs=("lua5.4",)),
    _process("z3", "z3", "{work}/full.smt2", "{work}/quick.smt2",
             "z3: equations over integers and bit vectors", needs=("z3",), prepare=inputs.smt),
    _process("ghostscript", "gs", GS % "full", GS % "quick",
             "gs: text, curves, dictionaries", needs=("gs",), prepare=inputs.postscript),
    _process("rust", "env", "{work}/words 150", "{work}/words 4",
             "a Rust program: strings, maps, trees, two threads", metric="seconds", needs=("rustc",), prepare=inputs.rust),
    _process("java", "java", f"{JAVA} 25", f"{JAVA} 1",
             "java: what the virtual machine takes from malloc", metric="seconds", needs=("java", "javac"), prepare=inputs.java),
    _process("node", "node", f"{QUOTED}/work.js 25", f"{QUOTED}/work.js 2",
             "node: buffers, zlib, JSON", metric="seconds", needs=("node",)),
)
