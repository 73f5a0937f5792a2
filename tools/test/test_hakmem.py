"""Tests of the hakmem command and of check.py; what needs a built library is skipped without it."""

import argparse
import contextlib
import io
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

TOOLS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
HAKMEM = os.path.join(os.path.dirname(TOOLS), "hakmem")
COMPARE = os.path.join(os.path.dirname(TOOLS), "bench", "compare.py")
sys.path[:0] = [TOOLS, os.path.dirname(COMPARE)]

import allocators  # noqa: E402
import check  # noqa: E402
import userfiles  # noqa: E402
from hakmem_tool import ToolError, bench, explain, record, run, stats, which  # noqa: E402
from hakmem_tool.launch import Cost  # noqa: E402


def hakmem(*arguments):
    return subprocess.run([sys.executable, HAKMEM, *arguments], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path


PROCESS = {"version": 100, "pid": 7, "allocs": 10, "tiny_allocs": 8, "l2_allocs": 2, "frees": 9,
           "live_blocks": 1, "live_bytes": 2048, "peak_bytes": 500,
           "counters": {"refills": 3}, "classes": [{"size": 16, "allocs": 8}]}


class Stats(InFolder):
    def test_adding_up_sums_counts_and_keeps_the_largest_peak(self):
        other = PROCESS | {"pid": 8, "peak_bytes": 900, "counters": {"refills": 4, "warm": 1},
                           "classes": [{"size": 16, "allocs": 1}, {"size": 32, "allocs": 5}]}
        total = stats.add_up([PROCESS, other])
        self.assertEqual(total["allocs"], 20)
        self.assertEqual(total["version"], 100)
        self.assertEqual(total["peak_bytes"], 900)
        self.assertEqual(total["counters"], {"refills": 7, "warm": 1})
        self.assertEqual(total["classes"], [{"size": 16, "allocs": 9}, {"size": 32, "allocs": 5}])

    def test_report_survives_missing_keys(self):
        text = "\n".join(stats.report({"allocs": 0}, 1))
        self.assertIn("blocks handed out", text)

    def test_command_prints_classes(self):
        path = self.write("7.json", json.dumps(PROCESS))
        done = hakmem("stats", "--classes", path, path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 processes", done.stdout)
        self.assertRegex(done.stdout, r"tiny.* 16 .*80\.00 %")
        self.assertRegex(done.stdout, r"\n +16 +16\n")

    def test_a_file_that_is_cut_short_is_left_out(self):
        self.write("7.json", json.dumps(PROCESS))
        self.write("8.json", json.dumps(PROCESS)[:100])
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(list(stats.read_folder(self.folder)), [7])
        self.assertRegex(said.getvalue(), r"^hakmem: .*8\.json.*\n$")

    def test_errors_are_one_line(self):
        for path in ("/nonexistent", self.write("a", "{"), self.write("b", "[1]"),
                     self.write("c", '{"x": 1}'), self.write("d", '{"allocs": "x", "counters": 3}'),
                     self.write("e", '{"allocs": "x"}')):
            done = hakmem("stats", path)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"^hakmem: .*\n$")


class Which(unittest.TestCase):
    def test_not_mapped(self):
        done = hakmem("which", str(os.getpid()))
        self.assertEqual(done.returncode, 1)
        self.assertIn("not mapped", done.stdout)

    def test_no_such_process(self):
        done = hakmem("which", str(2**22 + 1))
        self.assertEqual(done.returncode, 2)
        self.assertIn("no process", done.stderr)

    def mapped(self, name):
        """Of a process that maps a file of that name."""
        with tempfile.TemporaryDirectory(prefix="a b") as folder:
            path = os.path.join(folder, name)
            with open(path, "wb") as f:
                f.write(bytes(4096))
            program = ("import mmap, sys; f = open(sys.argv[1], 'rb');"
                       "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ);"
                       "print('ready', flush=True); sys.stdin.read()")
            with subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE) as process:
                process.stdout.readline()
                found = which.mapped_library(process.pid)
                return found and os.path.basename(found)

    def test_a_mapped_file_of_that_name_is_found(self):
        self.assertEqual(self.mapped("libhakmem.so"), "libhakmem.so")
        self.assertIsNone(self.mapped("libhakmem-record.so"))


class Output(unittest.TestCase):
    def test_no_command_shows_them_all(self):
        done = hakmem()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("hakmem which PID", done.stderr)

    def test_a_full_disk_is_one_line(self):
        for program, name, *arguments in ((HAKMEM, "hakmem", "which", str(os.getpid())), (COMPARE, "compare", "--list")):
            with open("/dev/full", "w") as full:
                done = subprocess.run([sys.executable, program, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stderr), (1, f"{name}: output: No space left on device\n"))

    def test_closed_output_hides_no_error(self):
        done = subprocess.run(["sh", "-c", 'exec "$0" "$1" stats /nonexistent >&-', sys.executable, HAKMEM],
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (1, "hakmem: /nonexistent: No such file or directory\n"))


class Record(InFolder):
    def test_what_cannot_be_recorded(self):
        trace = os.path.join(self.folder, "trace")
        for arguments, message in (((), "record: no program given"),
                                   (("no-such-program-xyz",), "no-such-program-xyz: not found")):
            done = hakmem("record", "-o", trace, "--", *arguments)
            self.assertEqual((done.returncode, done.stderr), (1, f"hakmem: {message}\n"))
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_the_kernel_does_not_run(self):
        if not os.path.exists(record.RECORDER):
            self.skipTest("the recorder is not built")
        program = self.write("program", "#!/no-such-interpreter\n")
        os.chmod(program, 0o755)
        done = hakmem("record", "-o", os.path.join(self.folder, "trace"), program)
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"hakmem: {program}: its interpreter /no-such-interpreter does not exist\n"))
        program = self.write("folder", "#!/\n")
        os.chmod(program, 0o755)
        done = hakmem("record", "-o", os.path.join(self.folder, "trace"), program)
        self.assertEqual((done.returncode, done.stderr), (1, f"hakmem: {program}: Permission denied\n"))

    def test_no_file_of_any_process_is_an_error(self):
        if not os.path.exists(record.RECORDER):
            self.skipTest("the recorder is not built")
        self.write("trace.1", "an old one")
        command = ("record", "--children", "-o", os.path.join(self.folder, "trace"))
        done = hakmem(*command, "env", "-i", "true")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), done.stderr)
        self.assertIn("one file per process", done.stderr)  # env itself
        source, program = self.write("s.c", "int main(void) { return 0; }\n"), os.path.join(self.folder, "s")
        if subprocess.run(["gcc", "-static", "-o", program, source], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no static C library")
        done = hakmem(*command, program)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^hakmem: nothing was recorded: .*statically linked.*\n$")

    def test_a_limit_that_is_no_number_is_said_and_ignored(self):
        if not os.path.exists(record.RECORDER):
            self.skipTest("the recorder is not built")
        for limit, said in (("1x", "hakmem-record: HAKTRACE_LIMIT=1x is no number of MiB; ignored\n"), ("", "")):
            trace = os.path.join(self.folder, "trace" + limit)
            done = subprocess.run(["true"], stderr=subprocess.PIPE, text=True, env=os.environ | {
                "LD_PRELOAD": userfiles.loadable(record.RECORDER), "HAKTRACE_FILE": trace, "HAKTRACE_LIMIT": limit})
            self.assertEqual((done.returncode, done.stderr), (0, said))

    def test_an_interrupt_is_the_program_s(self):
        if not os.path.exists(record.RECORDER):
            self.skipTest("the recorder is not built")
        ready, ended = (os.path.join(self.folder, name) for name in ("ready", "ended"))
        program = f"trap 'sleep 0.6; echo >{ended}; exit 3' INT TERM; echo >{ready}; while :; do sleep 0.1; done"
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([sys.executable, HAKMEM, "record", "-o", os.path.join(self.folder, "trace"), "bash", "-c",
                                   program], stderr=subprocess.DEVNULL, start_new_session=True,
                                  preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
                try:  # the shell ignores it in the background
                    while process.poll() is None and not os.path.exists(ready):
                        time.sleep(0.01)
                    if number == signal.SIGINT:
                        os.killpg(process.pid, number)  # as the terminal does
                    else:
                        process.send_signal(number)
                    self.assertEqual(process.wait(60), 3)
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            os.unlink(ready)
            os.unlink(ended)

    def test_where_no_trace_can_be_written(self):
        for trace, why in ((self.folder, "is there and no file"), ("/dev/null", "is there and no file"),
                           ("/nonexistent/x", "cannot be written: No such file or directory")):
            if os.path.exists(record.RECORDER):
                done = hakmem("record", "-o", trace, "true")
                self.assertEqual((done.returncode, done.stderr), (1, f"hakmem: {trace} {why}\n"))
            with self.assertRaises(ToolError):
                record.make_way(trace)
        path = self.write("old", "text")
        record.make_way(path)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_trace_that_is_not_there_is_not_replayed(self):
        done = hakmem("bench", "--replay", "/nonexistent")
        self.assertEqual((done.returncode, done.stderr), (1, "compare: no such trace: /nonexistent\n"))


class Run(InFolder):
    def library(self):
        """Something that can be preloaded and is no allocator."""
        path = os.path.join(self.folder, "libnothing.so")
        subprocess.run(["gcc", "-shared", "-o", path, "-x", "c", "/dev/null"], check=True)
        return path

    def test_missing_library_and_missing_program(self):
        done = hakmem("run", "--lib", "/nonexistent.so", "true")
        self.assertEqual((done.returncode, done.stderr),
                         (1, "hakmem: the library /nonexistent.so does not exist\n"))
        done = hakmem("run", "--lib", self.library(), "no-such-program-xyz")
        self.assertEqual((done.returncode, done.stderr),
                         (1, "hakmem: no-such-program-xyz: not found\n"))

    def test_a_program_that_was_not_served_is_an_error(self):
        done = hakmem("run", "--lib", self.library(), "true")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no sign that HAKMEM served this program", done.stderr)

    def test_wrong_names_are_one_line(self):
        library, script = self.library(), self.write("script", "#!/no/such/shell -e\n")
        os.chmod(script, 0o755)
        for arguments, message in ((("--stdin", self.folder, "cat"), f"--stdin {self.folder}: Is a directory"),
                                   (("--against", "mimalloc", "ls"), "--against: the allocator mimalloc does not exist; "
                                    "a path is wanted, those of peers are in build/peers/lib"),
                                   ((script,), f"{script}: its interpreter /no/such/shell does not exist")):
            done = hakmem("run", "--lib", library, *arguments)
            self.assertEqual((done.returncode, done.stderr), (1, f"hakmem: {message}\n"))
        done = subprocess.run([sys.executable, HAKMEM, "run", "--lib", library, "true"], env=os.environ |
                              {"LD_PRELOAD": "/gone.so"}, capture_output=True, text=True)
        self.assertNotIn("--lib", done.stderr)  # the loader complains of the other one
        broken = self.write("libbroken.so", "\x7fELF and nothing else")
        for option in ("--lib", "--against"):
            done = hakmem("run", "--lib", library, option, broken, "true")
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, f"^hakmem: {option}: {re.escape(broken)} cannot be preloaded: .*libbroken.so")
        for arguments in (("run", "--runs", "x", "ls"), ("which", "abc"), ("which", "0")):
            done = hakmem(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn("is not a positive number", done.stderr)

    def test_a_request_to_end_ends_the_program_and_clears_up(self):
        environment = os.environ | {"TMPDIR": self.folder}
        with subprocess.Popen([sys.executable, HAKMEM, "run", "--quiet", "--lib", self.library(), "sh", "-c",
                               "echo $$ >\"$TMPDIR/pid\"; exec sleep 90"], env=environment) as process:
            while process.poll() is None and not os.path.exists(os.path.join(self.folder, "pid")):
                time.sleep(0.01)
            process.terminate()
            self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("hakmem-")], [])

    def test_a_static_program_is_explained(self):
        source = self.write("s.c", "int main(void) { return 0; }\n")
        program = os.path.join(self.folder, "s")
        if subprocess.run(["gcc", "-static", "-o", program, source]).returncode != 0:
            self.skipTest("no static C library")
        self.assertIn("statically linked", explain.why_not_served([program], 0))

    def test_a_32_bit_program_is_explained(self):
        program = self.write("s", "\x7fELF\x01\x01\x01")
        os.chmod(program, 0o755)
        self.assertIn("is a 32-bit program", explain.why_not_served([program], 0))

    def test_a_setuid_program_is_explained(self):
        program = self.write("s", "\x7fELF")
        os.chmod(program, 0o4755)
        self.assertIn("setuid", explain.why_not_served([program], 0))

    def test_a_script_is_judged_by_its_interpreter(self):
        program = self.write("s", f"#!{sys.executable}\n")
        os.chmod(program, 0o755)
        self.assertEqual(explain.program_file([program]), os.path.realpath(sys.executable))
        self.assertIsNone(explain.why_not_served([program], 0))
        self.assertIn("signal 9", explain.why_not_served([program], 137))

    def test_table_of_costs(self):
        lines = "\n".join(run.cost_table("system", Cost(wall=2.0, maxrss=2048),
                                         Cost(wall=1.0, maxrss=1024)))
        self.assertRegex(lines, r"time +2\.00 s +1\.00 s +0\.50")
        self.assertRegex(lines, r"peak RSS +2\.0 MiB +1\.0 MiB +0\.50")
        self.assertIn("1.2 ms", "\n".join(run.cost_table("system", Cost(wall=0.00124), Cost(wall=0.001))))

    def test_output_that_is_no_text(self):
        path = os.path.join(self.folder, "out")
        with open(path, "wb") as f:
            f.write(b"a\x1b[31m\xff\tb\n" + b"x" * 200000 + b"\nend\n")
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            run.show_output(path)
        self.assertEqual(shown.getvalue(), f"  | a\ufffd[31m\ufffd\tb\n  | {'x' * run.SHOWN_WIDTH}\n  | end\n\n")

    def test_a_program_that_is_killed_on_hakmem_alone(self):
        if not os.path.exists(run.default_library()):
            self.skipTest("the library is not built")
        done = hakmem("run", "--quiet", "sh", "-c", "case $LD_PRELOAD in *hakmem*) kill -SEGV $$;; esac")
        self.assertEqual(done.returncode, 1)
        self.assertIn("exit status 0 with system, 139 with HAKMEM: killed by signal 11", done.stderr)

    def test_the_other_run_is_without_hakmem_where_it_is_preloaded_for_all(self):
        if not os.path.exists(run.default_library()):
            self.skipTest("the library is not built")
        with unittest.mock.patch.dict(os.environ, LD_PRELOAD=f"{run.default_library()} {self.library()}"):
            self.assertEqual(userfiles.preloaded(), self.library())
            done = hakmem("run", "--quiet", "sh", "-c", "env >/dev/null; case $LD_PRELOAD in *libhakmem*) exit 3;; esac")
        self.assertEqual(done.returncode, 1)
        self.assertIn("exit status 0 with system, 3 with HAKMEM", done.stderr)

    def test_tables_of_the_library_are_not_in_the_json(self):
        if not os.path.exists(run.default_library()):
            self.skipTest("the library is not built")
        for name, table in (("WARM_POOL_STATS", "hakmem warm pool"),
                            ("POOL_MID_INUSE_DEFERRED_STATS", "hakmem deferred frees")):
            with unittest.mock.patch.dict(os.environ, {"HAKMEM_" + name: "1"}):
                done = hakmem("run", "--quiet", "ls", "/")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stderr.startswith(table), done.stderr)

    def test_served_children_count_but_nothing_does_not(self):
        ours = run.Run(Cost(pid=5), "", {6: {"allocs": 3}})
        run.check_served(["true"], ours)
        with self.assertRaisesRegex(ToolError, "allocates nothing"):
            run.check_served(["true"], run.Run(Cost(pid=5), "", {5: {"allocs": 0}}))


class UserFiles(InFolder):
    def test_the_loader_gets_a_path_that_it_can_read(self):
        self.assertEqual(userfiles.loadable("/a/b.so"), "/a/b.so")
        path = self.write("a b:c.so", "text")
        link = userfiles.loadable(path)
        self.assertFalse(set(" :") & set(link))
        self.assertEqual(os.path.realpath(link), os.path.realpath(path))
        script = f"import userfiles; print(userfiles.loadable({path!r}))"
        done = subprocess.run([sys.executable, "-c", script], cwd=TOOLS, capture_output=True, text=True)
        self.assertFalse(os.path.lexists(done.stdout.strip()), "still there afterwards")

    def test_a_library_with_blanks_in_its_path_is_preloaded(self):
        marker, source = os.path.join(self.folder, "loaded"), self.write("s.c", "#include <fcntl.h>\n"
            '__attribute__((constructor)) static void run(void) { open(getenv("MARKER"), O_CREAT, 0600); }\n')
        library = os.path.join(self.folder, "a b.so")
        subprocess.run(["gcc", "-shared", "-fPIC", "-include", "stdlib.h", "-o", library, source], check=True)
        subprocess.run([sys.executable, HAKMEM, "run", "--lib", library, "true"], capture_output=True,
                       env=os.environ | {"MARKER": marker})
        self.assertTrue(os.path.exists(marker))

    def test_text_is_no_library(self):
        path = self.write("lib.so", "text")
        done = hakmem("run", "--lib", path, "true")
        self.assertEqual((done.returncode, done.stderr), (1, f"hakmem: the library {path} is no shared library\n"))

    def test_looking_whether_a_file_can_be_written_leaves_it(self):
        path = self.write("kept", "text")
        userfiles.check_writable(path)
        with open(path, encoding="utf-8") as f:
            self.assertEqual(f.read(), "text")
        userfiles.check_writable(path + ".new")
        self.assertEqual(os.listdir(self.folder), ["kept"])
        for wrong in (self.folder, "/nonexistent/x"):
            with self.assertRaises(OSError):
                userfiles.check_writable(wrong)


JUNIT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="x" tests="6">
 <testcase name="good" status="run"><system-out>\x01
skipped: redis (no redis-server)
hakmem: skipped: loader.audit: no compiler
1 passed, 0 skipped: all
  </system-out></testcase>
 <testcase name="bad" status="fail"><failure message=""/></testcase>
 <testcase name="absent" status="notrun"><skipped message="Unable to find executable"/></testcase>
 <testcase name="skip" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
  <system-out>skipped: no perl
</system-out></testcase>
 <testcase name="off" status="disabled"/>
</testsuite>
"""


class Bench(InFolder):
    def words(self, **changes):
        wanted = {"against": "system", "suite": "core", "quick": False, "net": False, "rounds": None,
                  "budget": None, "json": None, "csv": None, "html": None, "out": None, "replay": None,
                  "instructions": False, **changes}
        return " ".join(bench.arguments(argparse.Namespace(**wanted), ["jemalloc", "mimalloc", "hardened"],
                                        {"all": ["system", "jemalloc", "mimalloc"], "secure": ["own", "hardened"]}))

    def test_defaults(self):
        self.assertEqual(self.words(), "--allocators system,hakmem --reference system --suite core --budget 45")
        self.assertEqual(self.words(rounds=3), "--allocators system,hakmem --reference system --suite core --rounds 3")

    def test_peers_are_built_and_no_reference(self):
        self.assertEqual(self.words(against="mimalloc,system", quick=True),
                         "--allocators system,hakmem --peers mimalloc --reference system --suite core --quick")
        self.assertIn("--allocators hakmem --peers jemalloc --reference hakmem", self.words(against="jemalloc"))
        self.assertIn("--allocators system,hakmem --peers jemalloc,mimalloc ", self.words(against="all"))
        self.assertIn("--allocators own,hakmem --peers hardened,mimalloc ", self.words(against="secure,mimalloc"))

    def test_traces_replace_the_suite(self):
        self.assertEqual(self.words(replay=["a", "b"], html="p.html"),
                         "--allocators system,hakmem --reference system --replay a --replay b --budget 45 --html p.html")

    def test_no_allocator(self):
        with self.assertRaises(ToolError):
            self.words(against=",")

    def test_labels(self):
        self.assertEqual(bench.label("old=/tmp/x.so:A=1"), "old")
        self.assertEqual(bench.label("/tmp/libx.so"), "libx.so")

    def test_labels_are_those_of_compare(self):
        library = self.write("libx.so.1.2", "")
        link = os.path.join(self.folder, "libx.so")
        os.symlink(library, link)
        for text in (link, f"{link}:A=1", f"old={link}", "system:A=1"):
            self.assertEqual(bench.label(text), allocators.parse_allocator(text, pathlib.Path("/nonexistent")).name)

    def test_a_request_to_end_is_compare_s(self):
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo)
        process = subprocess.Popen([sys.executable, HAKMEM, "bench", "--agree", fifo, fifo], stderr=subprocess.PIPE)
        with open(os.open(fifo, os.O_RDWR), "w"), process:
            time.sleep(1)  # it reads by now, and there is no end
            process.terminate()
            process.communicate(timeout=30)  # whoever is left has standard error open


class Check(InFolder):
    def test_junit_is_counted(self):
        result = check.Result()
        check.read_junit(self.write("j.xml", JUNIT), result)
        self.assertEqual(result.passed, 1)
        self.assertEqual(result.failed, ["bad", "absent"])
        self.assertEqual(result.skipped, ["skip (no perl)", "off"])
        self.assertEqual(result.parts, ["good: redis (no redis-server)", "good: loader.audit: no compiler"])

    def test_an_unreadable_file_counts_nothing(self):
        result = check.Result()
        with open(os.devnull, "w") as null:
            stdout, sys.stdout = sys.stdout, null
            try:
                check.read_junit(self.write("j.xml", "<a"), result)
            finally:
                sys.stdout = stdout
        self.assertEqual((result.passed, result.failed), (0, []))

    def test_where_a_sanitizer_wants_fixed_addresses(self):
        setarch = ["setarch", platform.machine(), "-R"]
        compiler = self.write("cc", "#!/bin/sh\nfor out; do :; done\necho \"$PROGRAM\" >\"$out\"\nchmod 755 \"$out\"\n")
        os.chmod(compiler, 0o755)
        wanted = {"exit 0": [], "exit 1": None}
        if subprocess.run(f"{' '.join(setarch)} true", shell=True, stderr=subprocess.DEVNULL).returncode == 0:
            wanted["grep -q 4....$ /proc/self/personality"] = setarch  # ADDR_NO_RANDOMIZE
        for program, command in wanted.items():
            with unittest.mock.patch.dict(os.environ, CC=compiler, PROGRAM=f"#!/bin/sh\n{program}"):
                self.assertEqual(check.runner("thread"), command)
        with unittest.mock.patch.object(check, "runner", lambda sanitizer: None), \
                contextlib.redirect_stdout(io.StringIO()):
            self.assertRegex(check.run_stage("tsan").skipped[0], r"^tsan \(.*-fsanitize=thread .*vm.mmap_rnd_bits=28")

    def test_a_stage_that_cannot_run_is_named(self):
        script = ("import check, sys; check.STAGES['clang'] = check.Stage('clang', 'build/clang', tests=False, "
                  "needs=('no-such-compiler',)); check.main()")
        for stages, last in ((["clang"], "skipped: clang (no no-such-compiler on this machine)"),
                             (["clang", "clang"], "0 passed, 0 failed")):
            done = subprocess.run([sys.executable, "-B", "-c", script, *stages], cwd=TOOLS, text=True,
                                  capture_output=True, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stdout.splitlines()[-1], last)
            self.assertIn("(no no-such-compiler on this machine)", done.stdout)


if __name__ == "__main__":
    unittest.main()
