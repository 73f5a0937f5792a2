#!/usr/bin/env python3
"""Process-level tests: how programs start, live and end with HAKMEM.

    life.py --lib LIBHAKMEM --bin FOLDER [--source FOLDER] CASE
    life.py --list

FOLDER holds the programs of life/. Exit status 0: passed, 77: this machine
cannot run the case (a line 'skipped: ...' says why), else failed.
"""

import argparse
import inspect
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

LIMIT = 100  # seconds for one command; below the CTest TIMEOUT


class Skip(Exception):
    pass


class Context:
    def __init__(self, args, folder):
        self.library, self.folder, self.source = os.path.abspath(args.lib), folder, args.source
        self.bin = os.path.abspath(args.bin)

    def program(self, name):
        return os.path.join(self.bin, name)

    def run(self, *command, preload=True, also=(), env=None, wrap="", status=0, **options):
        """Runs command in its own environment; returns (stdout, stderr) as text. wrap: a shell
        command that gets the command as "$@"."""
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        libraries = ([self.library] if preload else []) + list(also)
        if preload:
            environment["EXPECT_HAKMEM"] = "1"
        environment |= env or {}
        if libraries:  # only for the program itself, not for the shell
            command = ["/usr/bin/env", "LD_PRELOAD=" + ":".join(libraries), *command]
        if wrap:
            command = ["/bin/sh", "-c", wrap, "sh", *command]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT,
                              cwd=self.folder, **options)
        if done.returncode != status:
            raise AssertionError(f"status {done.returncode}, not {status}, of {command}\n"
                                 f"{done.stdout}{done.stderr}")
        return done.stdout, done.stderr


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(w) for w in what))


# ---------------------------------------------------------------------------
# Start and end of a process.

def constructors_and_destructors(c):
    c.run(c.program("life"), "constructors")


def options_before_constructors(c):
    """The first malloc is in .preinit_array, and a mallopt before it."""
    c.run(c.program("preinit"), env={"HAKMEM_ABORT": "0"})
    for arguments in [], ["a"] * 1000:
        _, errors = c.run(c.program("preinit"), *arguments,
                          env={"HAKMEM_OPTIONS": "help", "HAKMEM_LRU_CAP": "17"})
        check("HAKMEM_LRU_CAP = 17 (environment" in errors, errors)


def first_to_look_after_a_fork(c):
    """The child's heap is repaired before other libraries' handlers may allocate in it."""
    out, _ = c.run(c.program("atfork"))
    check(out == "1 of 1\n", out)


def helper_thread_and_fork(c):
    """It is there before main; a child has one thread, since starting another allocates."""
    c.run(c.program("life"), "fork_with_helper", env={"HAKMEM_BACKGROUND": "1"})


def main_exits_as_a_thread(c):
    c.run(c.program("life"), "main_exits_as_a_thread")


def all_threads_end(c):
    c.run(c.program("life"), "all_threads_end")
    c.run(c.program("life"), "all_threads_end", env={"HAKMEM_BACKGROUND": "1"})  # its helper does not keep the process


def exit_races_with_threads(c):
    for _ in range(20):
        c.run(c.program("life"), "exit_races_with_threads")


def exit_in_a_handler(c):
    """Whatever exit finds in an unfinished state is not reported as misuse."""
    for microseconds in range(300, 15000, 100):
        _, errors = c.run(c.program("exit_in_handler"), str(microseconds))
        check(errors == "", errors)


def load_and_unload(c):
    copy = os.path.join(c.folder, "libother.so")  # life itself is linked with the original
    shutil.copy(c.program("libctor_lib.so"), copy)
    c.run(c.program("life"), "load_and_unload", copy)


def set_up_that_allocates(c):
    """A process that would wait for itself ends, and says why."""
    _, err = c.run(c.program("hello"), also=[c.program("libauxv_lib.so")], status=-signal.SIGABRT)
    check("hakmem: malloc called amid the first malloc's set-up" in err, err)


def no_pthread_keys_left(c):
    keys = c.program("libkeys_lib.so")
    c.run(c.program("life"), "no_keys_left", also=[keys])  # constructors run last to first
    c.run(c.program("life"), "no_keys_left", preload=False, also=[keys, c.library],
          env={"EXPECT_HAKMEM": "1"})


def no_pthread_keys_and_no_memory(c):
    for variables in {}, {"HAKMEM_NURSERY": "0"}:
        for program in "no_keys-static", "no_keys-static-pie":
            c.run(c.program(program), preload=False, env={"HAKMEM_SS_LOOKUP_KIND": "table", **variables})


def no_pthread_keys_left_before_the_first_malloc(c):
    out, _ = c.run(c.program("hello"), also=[c.program("libkeys_lib.so")])
    check(out == "hello, world\n", repr(out))


def closed_stdio(c):
    c.run(c.program("life"), "closed_stdio", wrap='exec "$@" <&- >&- 2>&-')


def empty_environment(c):
    """A linked program, because with a preload the environment is not empty."""
    done = subprocess.run(["/usr/bin/env", "-i", c.program("life-linked"), "empty_environment"],
                          timeout=LIMIT, env={})
    check(done.returncode == 0, "status", done.returncode)


def bind_now(c):
    c.run(c.program("life"), "constructors", env={"LD_BIND_NOW": "1"})


def dlopen_at_run_time(c):
    for _ in range(10):
        c.run(c.program("dlopen_host"), c.library, preload=False)


def operators_found_at_run_time(c):
    """Those of a library that C++ programs load by dlopen go together, though the program has its own."""
    c.run(c.program("dlopen_cxx"), c.library, preload=False)


def cxx_loaded_at_run_time(c):
    """operator new fails as in any C++ program, whenever the C++ library was loaded."""
    for plugin in "libcxx_plugin.so", "libcxx_plugin_linked.so":
        for function in "throws_bad_alloc", "asks_the_handler", "throws_at_the_end":
            c.run(c.program("cxx_host"), c.program(plugin), function)


def cxx_linked_statically(c):
    """operator new fails there too; the throwing code is linked in from the C++ library."""
    c.run(c.program("new-static"), preload=False)
    c.run(c.program("new-static-libstdc++"), preload=False)


def linked_statically_without_cxx(c):
    """The whole archive in a C program, without a C++ library."""
    out, _ = c.run(c.program("hello-whole"), preload=False)
    check(out == "hello, world\n", repr(out))
    needed = subprocess.run(["readelf", "-dW", c.program("hello-whole")], text=True,
                            stdout=subprocess.PIPE, check=True).stdout
    check("libc.so" in needed and "libstdc++" not in needed, needed)


def programs_own_malloc(c):
    """Functions built on realloc and free call the program's own."""
    c.run(c.program("own_malloc"))


def addresses_in_the_program(c):
    """Who owns free and realloc is found out once, if their addresses are the program's own."""
    out, _ = c.run(c.program("address_taken"))
    asked = re.fullmatch(r"taken, asked (\d+) times\n", out)
    check(asked and int(asked[1]) <= 4, out)


def programs_own_operator_new(c):
    """The forms of new and delete that the program does not replace call those it replaces."""
    c.run(c.program("own_new"))
    c.run(c.program("own_new-static"), preload=False)


def preloaded_into_a_shell(c):
    out, _ = c.run("/bin/sh", "-c", "for i in 1 2 3; do echo $i | cat; done; echo done | sort")
    check(out == "1\n2\n3\ndone\n", repr(out))


# ---------------------------------------------------------------------------
# Limits.

def tls_is_small(c):
    out = subprocess.run(["readelf", "-lW", c.library], text=True, stdout=subprocess.PIPE,
                         check=True).stdout
    sizes = [int(line.split()[5], 16) for line in out.splitlines() if line.split()[:1] == ["TLS"]]
    check("LOAD" in out and sum(sizes) <= 64, "TLS segment sizes", sizes)
    print("TLS bytes:", sum(sizes))


def shadow_stacks_stay(c):
    """The C library disables shadow stacks in a process that loads a library without this mark."""
    out = subprocess.run(["readelf", "-nW", c.library], text=True, stdout=subprocess.PIPE, check=True).stdout
    if platform.machine() != "x86_64":
        raise Skip("x86-64 alone has that mark")
    check(re.search(r"x86 feature:.*\bSHSTK\b", out), out)


def _under_limit(c, kib, mib, largest=None):
    arguments = [str(mib)] + ([str(largest)] if largest else [])
    c.run(c.program("worker"), *arguments, wrap=f'ulimit -v {kib}; exec "$@"')


def address_space_128_mib(c):
    _under_limit(c, 131072, 32, 300000)


def address_space_256_mib(c):
    _under_limit(c, 262144, 64, 300000)


def address_space_1_gib(c):
    _under_limit(c, 1048576, 256, 300000)


def address_space_256_mib_small_then_huge(c):
    """Memory that small blocks used up serves huge blocks later."""
    _under_limit(c, 262144, 64, 4 << 20)


def address_space_limited_by_a_static_program(c):
    c.run(c.program("limits-static"), preload=False)


def data_limit_64_mib(c):
    c.run(c.program("worker"), "8", wrap='ulimit -d 65536; exec "$@"')


def _valgrind(c, tool):
    if not shutil.which("valgrind"):
        raise Skip("no valgrind")
    # Our malloc must run, not the tool's.
    c.run("valgrind", "-q", f"--tool={tool}", "--soname-synonyms=somalloc=nouserintercepts",
          "--error-exitcode=9", c.program("hello"))


def valgrind_none(c):
    _valgrind(c, "none")


def valgrind_memcheck(c):
    _valgrind(c, "memcheck")


def _own_kib(c, smaps):
    """Resident memory: anonymous memory, changed pages of files, and all pages of the library.
    The other pages of libc and the loader do not count: all programs share them, and how many
    a fault maps depends on glibc's build and load address (200 KiB either way)."""
    library, within, kib = os.path.realpath(c.library), False, 0
    for line in smaps.splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            within = line.endswith(" " + library)
        elif line.startswith("Rss:" if within else "Anonymous:"):
            kib += int(line.split()[1])
    return kib


def hello_rss(c):
    """Memory of hello world: at most 56 pages above the system allocator's, code included."""
    most = 56 * os.sysconf("SC_PAGESIZE") // 1024
    runs = {True: [], False: []}
    for _ in range(20):
        for preload, seen in runs.items():
            seen.append(_own_kib(c, c.run(c.program("hello"), "smaps", preload=preload)[0]))
    ours, theirs = statistics.mean(runs[True]), statistics.mean(runs[False])
    print(f"resident: {ours:.0f} KiB, system allocator {theirs:.0f} KiB")
    check(theirs > 0 and ours <= theirs + most, f"more than {most} KiB above:", round(ours - theirs))


# ---------------------------------------------------------------------------
# Options.

def _hello(c, **env):
    out, err = c.run(c.program("hello"), env=env)
    check(out == "hello, world\n", "stdout was", repr(out))
    return err


def quiet_by_default(c):
    check(_hello(c) == "", "something on stderr without being asked")


def help_lists_every_option(c):
    text = _hello(c, HAKMEM_OPTIONS="help")
    wanted = ["MODE", "OPTIONS", "QUIET", "STATS", "STATS_FILE", "ABORT", "SS_LOOKUP_KIND"]
    table = os.path.join(c.source or "", "src/core/options.def")
    if c.source and os.path.exists(table):
        with open(table, encoding="utf-8") as f:
            wanted += re.findall(r"^HAK_(?:OPTION|CHOICE|TEXT)\((\w+)", f.read(), re.M)
    missing = [name for name in wanted if not re.search(rf"\bHAKMEM_{name}\b", text)]
    check(not missing, "not in the table:", missing)
    # Each option has a row of its own, with a help text.
    rows = re.findall(r"^ +HAKMEM_(\w+)", text, re.M)
    check(len(rows) == len(set(rows)) >= len(set(wanted)), "rows:", rows)


def unknown_option_names_the_nearest(c):
    cases = {"HAKMEM_STAT": "HAKMEM_STATS", "HAKMEM_ABROT": "HAKMEM_ABORT",
             "HAKMEM_QUEIT": "HAKMEM_QUIET", "HAKMEM_SS_LOOKUP": "HAKMEM_SS_LOOKUP_KIND"}
    for wrong, right in cases.items():
        err = _hello(c, **{wrong: "0"})
        if wrong == "HAKMEM_SS_LOOKUP":  # perhaps too far away for a guess
            check(err.startswith(f"hakmem: unknown option {wrong}"), repr(err))
        else:
            check(err == f"hakmem: unknown option {wrong}, did you mean {right}?\n", repr(err))


def unknown_option_unlike_any(c):
    err = _hello(c, HAKMEM_XYZZY_PLUGH_FROTZ="1")
    check(re.fullmatch(r"hakmem: unknown option HAKMEM_XYZZY_PLUGH_FROTZ.*\n", err), repr(err))


def quiet_silences_warnings(c):
    check(_hello(c, HAKMEM_STAT="1", HAKMEM_QUIET="1") == "", "a warning in spite of HAKMEM_QUIET=1")


def bad_values_warn_and_change_nothing(c):
    for name, value in (("HAKMEM_STATS", "yes please"), ("HAKMEM_ABORT", "7"),
                        ("HAKMEM_SS_LOOKUP_KIND", "magic"), ("HAKMEM_MODE", "turbo")):
        err = _hello(c, **{name: value})
        check(err.startswith("hakmem: ") and name in err and err.count("\n") == 1, repr(err))


def stats_as_text(c):
    err = _hello(c, HAKMEM_STATS="1")
    for figure in ("allocs", "frees", "live_blocks", "mapped_bytes"):
        check(re.search(rf"\b{figure}\b +\d+", err), "no", figure, "in", err)


def _consistent(stats):
    """The sums that must hold in every report."""
    check(stats["allocs"] >= 2, stats)
    check(stats["allocs"] == stats["tiny_allocs"] + stats["l2_allocs"] + stats["l25_allocs"]
          + stats["huge_allocs"] + stats["guard_allocs"] + stats["first_allocs"], "size ranges do not add up:", stats)
    check(stats["allocs"] - stats["frees"] == stats["live_blocks"], "live_blocks:", stats)
    check(stats["mapped_bytes"] == stats["superslab_bytes"] + stats["huge_bytes"]
          + stats["huge_cached_bytes"] + stats["metadata_bytes"], "mapped_bytes:", stats)
    check(stats["peak_bytes"] >= stats["mapped_bytes"] >= stats["live_bytes"], "peak:", stats)


def stats_as_json(c):
    _consistent(json.loads(_hello(c, HAKMEM_STATS="json")))
    guarded = json.loads(_hello(c, HAKMEM_STATS="json", HAKMEM_GUARD="1"))
    _consistent(guarded)
    check(guarded["guard_allocs"] > 0, "no block beside guard pages:", guarded)


def stats_of_a_program_that_closes_stderr(c):
    env = {"HAKMEM_STATS": "json"}
    _consistent(json.loads(c.run(c.program("hello"), "close", env=env)[1]))
    check(c.run(c.program("hello"), "close")[1] == "", "something on stderr without being asked")
    # The program's own file is open under the number that was kept.
    own = os.path.join(c.folder, "own")
    check(c.run(c.program("hello"), "close-all", own, env=env)[1] == "", "stderr was closed altogether")
    check(os.path.getsize(own) == 0, "statistics in the program's file")


def stderr_that_is_the_programs_own_file(c):
    own = os.path.join(c.folder, "own")

    def run(how, wrap="", **env):
        _, err = c.run(c.program("hello"), how, own, env=env, wrap=wrap)
        with open(own, encoding="utf-8") as f:
            text = f.read()
        check(text == "data", "in the program's file:", repr(text))
        return err

    _consistent(json.loads(run("own", HAKMEM_STATS="json")))
    for text in {"HAKMEM_STATS": "1", "HAKMEM_WARM_POOL_STATS": "1"}, {"HAKMEM_OPTIONS": "help"}:
        run("own-bad", wrap='exec "$@" 2>&-', HAKMEM_ABORT="0", HAKMEM_STAT="1", **text)
    file = os.path.join(c.folder, "stats.json")
    run("own", wrap='exec "$@" 2>&-', HAKMEM_STATS="json", HAKMEM_STATS_FILE=file)
    with open(file, encoding="utf-8") as f:
        _consistent(json.load(f))


def stats_go_to_a_file(c):
    pattern = os.path.join(c.folder, "stats-%p-%p.json")
    for _ in range(2):
        check(_hello(c, HAKMEM_STATS="json", HAKMEM_STATS_FILE=pattern) == "", "stderr used as well")
    names = [name for name in os.listdir(c.folder) if name.startswith("stats-")]
    check(len(names) == 2, names)
    for name in names:
        numbers = re.fullmatch(r"stats-(\d+)-(\d+)\.json", name)
        check(numbers and numbers[1] == numbers[2], name)
        with open(os.path.join(c.folder, name), encoding="utf-8") as f:
            stats = json.load(f)
        _consistent(stats)
        check(str(stats.get("pid", numbers[1])) == numbers[1], stats)


def stats_file_that_cannot_be_written(c):
    err = _hello(c, HAKMEM_STATS="json", HAKMEM_STATS_FILE="/proc/no/such/place")
    check(err.startswith("hakmem: ") and "/proc/no/such/place" in err, repr(err))


def stats_that_nobody_reads(c):
    """A closed pipe ends no program that only wrote its statistics."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([c.program("hello")], env={"LD_PRELOAD": c.library, "HAKMEM_STATS": "1"},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=writer,
                              timeout=LIMIT)
    finally:
        os.close(writer)
    check(done.returncode == 0 and done.stdout == b"hello, world\n", done)


def stats_file_that_may_not_grow(c):
    path = os.path.join(c.folder, "stats.json")
    c.run(c.program("hello"), env={"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": path},
          wrap='ulimit -f 0; exec "$@"')
    check(os.path.getsize(path) == 0, os.path.getsize(path))


def stats_file_without_stats(c):
    path = os.path.join(c.folder, "unwanted")
    check(_hello(c, HAKMEM_STATS_FILE=path) == "hakmem: HAKMEM_STATS_FILE is not written without HAKMEM_STATS\n", "silent")
    check(not os.path.exists(path), "written all the same")


def stats_file_with_a_long_name(c):
    """The whole name or nothing: a truncated name is somebody else's file."""
    folder = os.path.join(c.folder, "x" * 150, "x" * 150)
    folder += "x" * (350 - len(folder))
    os.makedirs(folder)
    for length in (480, 495, 511):
        path = os.path.join(folder, "y" * (length - len(folder) - 1))
        _hello(c, HAKMEM_STATS="json", HAKMEM_STATS_FILE=path)
        check(os.listdir(folder) == [os.path.basename(path)], length, os.listdir(folder))
        os.remove(path)
    err = _hello(c, HAKMEM_STATS="json", HAKMEM_STATS_FILE=os.path.join(folder, 80 * "%p"))
    check(err.startswith("hakmem: cannot write") or os.getpid() < 1000, repr(err))
    check(os.listdir(folder) == [] or os.getpid() < 1000, os.listdir(folder))


def stats_after_threads_and_work(c):
    path = os.path.join(c.folder, "stats.json")
    c.run(c.program("worker"), env={"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": path})
    with open(path, encoding="utf-8") as f:
        stats = json.load(f)
    _consistent(stats)
    check(stats["allocs"] >= 60000 and stats["live_blocks"] < 100, stats)


def memory_limit_of_a_process(c):
    """Near the limit nothing is kept, though the load has shown that it needs it again."""
    path = os.path.join(c.folder, "stats.json")
    c.run(c.program("life"), "swinging", env={"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": path,
                                              "HAKMEM_MEMORY_LIMIT": "64M"})
    with open(path, encoding="utf-8") as f:
        stats = json.load(f)
    _consistent(stats)
    check(stats["counters"]["superslab_evict"] > 0 and stats["superslab_bytes"] <= 64 << 20, stats)


def names_and_values_are_matched_whole(c):
    """Names that only begin like an option are unknown; values keep their '='."""
    err = _hello(c, HAKMEM_STATSX="json")
    check(err.startswith("hakmem: unknown option HAKMEM_STATSX"), repr(err))
    path = os.path.join(c.folder, "a=b")
    _hello(c, HAKMEM_STATS="json", HAKMEM_STATS_FILE=path)
    check(os.path.exists(path), "no file with '=' in its name")


def setuid_programs_ignore_options(c):
    if os.geteuid() != 0:
        raise Skip("only the superuser can make a setuid program")
    os.chmod(c.folder, 0o777)
    program = os.path.join(c.folder, "hello-setuid")
    shutil.copy(c.program("hello-static"), program)
    os.chmod(program, 0o4755)
    file = os.path.join(c.folder, "stats.json")
    env = {"HAKMEM_STATS": "json", "HAKMEM_STATS_FILE": file, "HAKMEM_STAT": "1",
           "PATH": os.environ["PATH"]}

    def run(user):
        if os.path.exists(file):
            os.unlink(file)
        try:
            done = subprocess.run([program], env=env, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=LIMIT, user=user, cwd="/")
        except OSError as why:  # root without capabilities, or a TMPDIR of root's own
            raise Skip(f"user {user} cannot run {program}: {why.strerror}") from None
        check(done.returncode == 0 and done.stdout == "hello, world\n", done)
        return os.path.exists(file), done.stderr

    check(run(0) == (True, "hakmem: unknown option HAKMEM_STAT, did you mean HAKMEM_STATS?\n"),
          "as its owner the program must heed its options")
    if os.statvfs(c.folder).f_flag & os.ST_NOSUID:
        raise Skip("the temporary folder's file system ignores setuid")
    written, err = run(65534)
    check(not written and err == "", "options heeded by a setuid program:", written, repr(err))


# ---------------------------------------------------------------------------

def cases():
    return {name: function for name, function in globals().items()
            if inspect.isfunction(function) and not name.startswith("_")
            and list(inspect.signature(function).parameters) == ["c"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib")
    parser.add_argument("--bin")
    parser.add_argument("--source")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("case", nargs="?", choices=cases())
    args = parser.parse_args()
    if args.list:
        print(*cases(), sep="\n")
        return 0
    if not (args.lib and args.bin and args.case):
        parser.error("give --lib, --bin and a case")
    with tempfile.TemporaryDirectory(prefix="hakmem-life-") as folder:
        try:
            cases()[args.case](Context(args, folder))
        except Skip as why:
            print("skipped:", why)
            return 77
        except (AssertionError, subprocess.SubprocessError, ValueError, KeyError) as failure:
            print(f"FAILED: {args.case}: {type(failure).__name__}: {failure}")
            return 1
    print("ok:", args.case)
    return 0


if __name__ == "__main__":
    sys.exit(main())
