"""The table of other people's checks (docs/outside.md). A check is one package's tests: a list
of programs that report themselves whether they succeed. What a program needs is built or
looked up by a function of the check's folder, which runs without HAKMEM."""

import dataclasses
import glob
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable

from harness import Failure, Skip, need

HERE = os.path.dirname(os.path.realpath(__file__))
Command = list[str]


@dataclasses.dataclass(frozen=True)
class Check:
    """programs(folder, short) gives a name and a command for each program. A program succeeds
    if it ends with status 0 and its output has `says`; `facts` (a pattern) finds what must be
    the same under every allocator."""

    name: str
    package: str
    programs: Callable[[str, bool], dict[str, Command]]
    says: str = ""
    facts: str = ""
    limit: int = 120             # seconds for one program
    short: bool = True           # useful and quick enough for the short selection
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    counted: bool = True         # writes statistics at its end (Go's runtime never runs exit handlers)
    timing: bool = False         # may fail for lack of time: then a second run decides


def build(*command: str, cwd: str | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, text=True, errors="replace",
                          capture_output=True)
    if done.returncode != 0:
        raise Skip(f"cannot be built: {' '.join(command)[:200]}: {done.stderr[-600:]}")


# ---------------------------------------------------------------------------
# glibc's own tests of malloc, from its sources.

GLIBC_TARBALLS = "/usr/src/glibc/glibc-*.tar.*"
# What the tests need from glibc's build besides its headers.
GLIBC_BUILD_H = """
#include <limits.h>
#include <stddef.h>
#define TIMEOUTFACTOR 4
#define libc_hidden_proto(...)
#define libc_hidden_def(...)
#define attribute_hidden
#define __glibc_likely(c) __builtin_expect((c), 1)
#define __glibc_unlikely(c) __builtin_expect((c), 0)
"""
GLIBC_PATHS = ("SRCDIR", "OBJDIR", "OBJDIR_ELF_LDSO", "INSTDIR", "LIBDIR", "SLIBDIR", "BINDIR", "SBINDIR",
               "ROOTSBINDIR", "COMPLOCALEDIR", "SYSCONFDIR")
# Of interest to any malloc. The slow ones are not in the short selection.
GLIBC_TESTS = """mallocbug tst-calloc tst-free-errno tst-mallinfo2 tst-malloc tst-malloc-check tst-malloc-too-large
tst-malloc_info tst-mallocalign1 tst-mallocfork tst-memalign tst-mxfast tst-obstack tst-posix_memalign tst-pvalloc
tst-pvalloc-fortify tst-realloc tst-reallocarray tst-tcfree1 tst-tcfree2 tst-tcfree3 tst-trim1 tst-valloc""".split()
GLIBC_SLOW = "tst-mallocfork2 tst-mallocfork3 tst-malloc-tcache-leak".split()
# Not run, with the reason:
#   alloc_buffer, dynarray*, scratch_buffer: parts of glibc that are not malloc
#   interpose*, compathooks*, mallocstate, mtrace: replace or hook malloc themselves
#   malloc-backtrace, safe-linking, malloc-usable*: about glibc's own lists, messages and MALLOC_CHECK_
#   mallopt, malloc-fork-deadlock, malloc-thread-exit, malloc-thread-fail: want M_ARENA_MAX and others to be
#     accepted; mallopt here says 0 for what it does not do (test/api/test_glibc.c)
#   malloc-stats-cancellation: reads the words of glibc's malloc_stats
#   dynarray-fail also sets RLIMIT_AS after the start: test/situations, limits.as_limited_*


def glibc(folder: str, short: bool) -> dict[str, Command]:
    tarball = sorted(glob.glob(GLIBC_TARBALLS))[-1]
    compiler, archiver = need("gcc", "ar")
    with tarfile.open(tarball) as tar:
        top = tar.getnames()[0].split("/")[0]
        wanted = re.compile(rf"{re.escape(top)}/(malloc|support|include|sysdeps/generic|test-skeleton\.c)(/|$)")
        tar.extractall(folder, [m for m in tar.getmembers() if wanted.match(m.name)],
                       **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # not before 3.11.4
    source = os.path.join(folder, top)
    header = os.path.join(folder, "build.h")
    with open(header, "w", encoding="utf-8") as f:
        f.write(GLIBC_BUILD_H + "".join(f'#define {name}_PATH "/"\n' for name in GLIBC_PATHS))
    options = ["-w", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-fno-builtin", "-include", header, "-I.", "-Isupport",
               "-idirafter", "include", "-idirafter", "sysdeps/generic"]
    # Its support library, as far as it compiles outside glibc: the linker says what is missing.
    objects = []
    for file in sorted(os.listdir(os.path.join(source, "support"))):
        if not file.endswith(".c") or file.startswith("tst-"):
            continue
        out = os.path.join(folder, file[:-2] + ".o")
        if subprocess.run([compiler, *options, "-c", f"support/{file}", "-o", out], cwd=source,
                          stderr=subprocess.DEVNULL).returncode == 0:
            objects.append(out)
    library = os.path.join(folder, "libsupport.a")
    build(archiver, "rcs", library, *objects)
    tests = GLIBC_TESTS + ([] if short else GLIBC_SLOW)
    for name in tests:
        if os.path.exists(os.path.join(source, "malloc", name + ".c")):
            build(compiler, *options, f"malloc/{name}.c", "-o", os.path.join(folder, name), library, "-pthread",
                  cwd=source)
    return {name: [os.path.join(folder, name)] for name in tests if os.path.exists(os.path.join(folder, name))}


# ---------------------------------------------------------------------------
# glib's installed tests.

GLIB_FOLDER = "/usr/share/installed-tests/glib"
# Seconds of waiting with few allocations; or they need a bus or the network.
GLIB_NOT = re.compile(r".*(refcount|slow|-dbus|portal|monitor|network|resolver|gdbus|\.py$|performance$)|1bit-mutex|"
                      r"timeout|mainloop|io-channel-basic|thread-deprecated|static-link")
GLIB_SHORT = ("array-test asyncqueue bytes dataset hash hook keyfile list markup-parse mem-overflow node option-context "
              "queue rcbox regex sequence slice slice-concurrent slist sort spawn-test strfuncs string thread thread-pool "
              "threadtests tree unicode uri utils variant value performance-threaded").split()


def glib(_folder: str, short: bool) -> dict[str, Command]:
    programs = {}
    for file in sorted(glob.glob(os.path.join(GLIB_FOLDER, "*.test"))):
        name = os.path.basename(file).removesuffix(".test")
        if GLIB_NOT.fullmatch(name) or (short and name not in GLIB_SHORT):
            continue
        with open(file, encoding="utf-8") as f:
            command = re.search(r"^Exec=(\S+)$", f.read(), re.MULTILINE)
        if command and os.access(command.group(1), os.X_OK):
            programs[name] = [command.group(1)]
    return programs


# ---------------------------------------------------------------------------
# stress-ng: stressors that rely on malloc, or take memory beside it, with --verify.

STRESSORS = {
    "malloc": "--malloc 2 --malloc-ops 10000 --malloc-bytes 16M",
    "malloc-threads": "--malloc 1 --malloc-pthreads 6 --malloc-ops 10000 --malloc-bytes 1M",
    "malloc-touch": "--malloc 1 --malloc-touch --malloc-zerofree --malloc-ops 1000 --malloc-bytes 1M",
    "bigheap": "--bigheap 1 --bigheap-ops 1500",
    "brk-beside": "--brk 1 --brk-ops 5000 --malloc 1 --malloc-ops 5000 --malloc-bytes 256K",
    "pthread": "--pthread 1 --pthread-ops 1000",
    "fork": "--fork 1 --fork-ops 100 --malloc 1 --malloc-ops 5000 --malloc-bytes 256K",
    "mremap-beside": "--mremap 1 --mremap-ops 20 --malloc 1 --malloc-ops 5000 --malloc-bytes 256K",
    "vm-beside": "--vm 1 --vm-bytes 16m --vm-ops 200 --malloc 1 --malloc-ops 5000 --malloc-bytes 256K",
    "tree": "--tree 1 --tree-size 50000 --tree-ops 1", "tsearch": "--tsearch 1 --tsearch-ops 3",
    "hsearch": "--hsearch 1 --hsearch-ops 5", "judy": "--judy 1 --judy-ops 1",
    "skiplist": "--skiplist 1 --skiplist-ops 10", "list": "--list 1 --list-ops 10",
    "zlib": "--zlib 1 --zlib-ops 5", "radixsort": "--radixsort 1 --radixsort-ops 1",
    "stack": "--stack 1 --stack-ops 10", "daemon": "--daemon 1 --daemon-ops 100",
}
STRESSORS_SHORT = "malloc malloc-threads bigheap brk-beside fork tsearch".split()


def stress_ng(folder: str, short: bool) -> dict[str, Command]:
    program = need("stress-ng")
    return {name: [program, "--verify", "--no-rand-seed", "--temp-path", folder, "--timeout", "60", *options.split()]
            for name, options in STRESSORS.items() if not short or name in STRESSORS_SHORT}


# ---------------------------------------------------------------------------
# Language runtimes.

PYTHON_SHORT = "test_capi test_memoryview test_xml_etree_c".split()
PYTHON = PYTHON_SHORT + """test_ast test_bigmem test_buffer test_builtin test_bz2 test_compile test_concurrent_futures
test_context test_coroutines test_csv test_ctypes test_decimal test_deque test_difflib test_email test_exceptions test_float
test_frame test_fstring test_functools test_generators test_gzip test_hashlib test_io test_long test_lzma test_marshal test_mmap
test_multiprocessing_fork test_ordered_dict test_pyexpat test_posix test_repl test_signal test_slice test_socket test_ssl test_str
test_subprocess test_tarfile test_thread test_threadsignals test_tokenize test_tuple test_unicodedata test_userdict
test_xml_etree test_zipfile""".split()

# Recognises freed memory by the patterns of Python's or glibc's debug allocators, and reads it.
PYTHON_NOT = "test_pyobject_freed_is_freed"


def python(_folder: str, short: bool) -> dict[str, Command]:
    """Modules beyond those of preload.python3; every object comes from malloc."""
    interpreter = need("python3")
    if subprocess.run([interpreter, "-c", "import test.test_json"], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("this Python has no test suite")
    found = subprocess.run([interpreter, "-m", "test", "--list-tests"], text=True, capture_output=True).stdout.split()
    return {name: [interpreter, "-m", "test", "-q", "--timeout", "300", "-i", PYTHON_NOT, name]
            for name in (PYTHON_SHORT if short else PYTHON) if name in found}


NUMPY_SHORT = ["test_array_coercion", "test_indexing"]
NUMPY = NUMPY_SHORT + """test_mem_overlap test_multiarray test_umath test_regression test_dtype test_einsum test_nditer test_records
test_shape_base test_ufunc test_overrides test_casting_unittests test_item_selection""".split()


def numpy(_folder: str, short: bool) -> dict[str, Command]:
    interpreter = "/usr/bin/python3"  # Debian's: numpy is its module
    core = subprocess.run([interpreter, "-c", "import numpy, pytest, hypothesis\n"
                           "print('_core' if hasattr(numpy, '_core') else 'core')"],  # _core since numpy 2
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()
    if not core:
        raise Skip("no numpy, pytest and hypothesis for /usr/bin/python3")
    return {name: [interpreter, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs",
                   f"numpy.{core}.tests.{name}"]
            for name in (NUMPY_SHORT if short else NUMPY)}


def rust(folder: str, _short: bool) -> dict[str, Command]:
    out = os.path.join(folder, "threads")
    build(need("rustc"), "-O", "-o", out, os.path.join(HERE, "threads.rs"))
    return {"threads": [out]}


def go(folder: str, _short: bool) -> dict[str, Command]:
    compiler, _ = need("go", "gcc")
    source = os.path.join(folder, "source")
    shutil.copytree(os.path.join(HERE, "cgo"), source)
    build(compiler, "build", "-o", os.path.join(folder, "cgo"), ".", cwd=source)
    return {"cgo": [os.path.join(folder, "cgo")]}


def go_own(folder: str, short: bool) -> dict[str, Command]:
    """Go's own tests of cgo, if its sources are installed."""
    compiler, _ = need("go", "gcc")
    root = subprocess.run([compiler, "env", "GOROOT"], text=True, capture_output=True).stdout.strip()
    programs: dict[str, Command] = {}
    for package in ("test", "testtls", "testnocgo", "teststdio"):
        source = os.path.join(root, "src/cmd/cgo/internal", package)
        out = os.path.join(folder, package)
        if not glob.glob(os.path.join(source, "*_test.go")):
            continue
        build(compiler, "test", "-c", "-o", out, ".", cwd=source)
        if os.path.exists(out):
            programs[package] = ["/bin/sh", "-c", f'cd "{source}" && exec "{out}"'
                                 + (" -test.short" if short else "")]
    if not programs:
        raise Skip("this Go has no sources of cgo's tests")
    return programs


CHECKS = [
    Check("glibc", "glibc-source", glibc, limit=150),
    Check("stress_ng", "stress-ng", stress_ng, says="successful run completed", limit=90),
    Check("glib", "libglib2.0-tests", glib, limit=60, timing=True),
    Check("python", "libpython3.11-testsuite", python, says="SUCCESS", limit=320, timing=True,
          environment={"PYTHONMALLOC": "malloc"}),
    Check("numpy", "python3-numpy", numpy, facts=r"\d+ passed(?:, \d+ skipped)?", limit=300,
          environment={"PYTHONMALLOC": "malloc"}),
    Check("rust", "rustc", rust, facts=r".+", limit=60),
    Check("go", "golang-go", go, facts=r".+", limit=60, counted=False),
    Check("go_own", "golang-go", go_own, says="PASS", limit=120, counted=False),
]
