#!/usr/bin/env python3
"""Recording and replaying: known programs, real ones, and what can go wrong.

    python3 test/trace/run.py --build build [Class[.test]...]

Needs the libraries and programs of a build. Each class is one CTest test.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build"
LIMIT = 120  # seconds for one command
CHUNK, HEADER = 65536, 32


class TraceTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="hakmem-trace-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.trace = self.folder / "trace"
        self.allocators = {"system": None, "hakmem": BUILD / "libhakmem.so"}

    def run_command(self, *command: object, status: int = 0, preload: object = None,
                    **settings: object) -> subprocess.CompletedProcess:
        environment = {k: v for k, v in os.environ.items()
                       if k != "LD_PRELOAD" and not k.startswith(("HAKMEM_", "HAKTRACE_"))}
        environment |= {k: str(v) for k, v in settings.items() if k.isupper()}
        if preload is not None:
            environment["LD_PRELOAD"] = str(preload)
        other = {k: v for k, v in settings.items() if not k.isupper()}
        done = subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=LIMIT, **other)
        self.assertEqual(done.returncode, status, f"{command}: {done.stdout[-500:]}{done.stderr[-500:]}")
        return done

    def record(self, *command: object, above: Path | None = None,
               **settings: object) -> subprocess.CompletedProcess:
        preload = ":".join(str(p) for p in (BUILD / "libhakmem-record.so", above) if p is not None)
        return self.run_command(*command, preload=preload, **({"HAKTRACE_FILE": self.trace} | settings))

    def traced(self, *arguments: object, **how: object) -> dict:
        """Records the test program; returns what is then in the trace."""
        if self.trace.exists():
            self.trace.unlink()
        self.record(BUILD / "test" / "traced", *arguments, **how)
        return self.summary()

    def summary(self, trace: Path | None = None) -> dict:
        return json.loads(self.run_command(BUILD / "bench" / "trace_summary", trace or self.trace, "--json").stdout)

    def replay(self, *arguments: object, allocator: str = "system", trace: Path | None = None) -> dict:
        return json.loads(self.run_command(BUILD / "bench" / "replay", trace or self.trace, "--json", *arguments,
                                           preload=self.allocators[allocator]).stdout)

    def replay_everywhere(self) -> None:
        """Replays under each allocator and checks contents; all recorded calls are made."""
        operations = self.summary()["operations"]
        for allocator in self.allocators:
            result = self.replay("--check", allocator=allocator)
            self.assertEqual(result["ops"], operations, allocator)


class RoundTrip(TraceTest):
    """Programs that make a known number of calls."""

    def known(self, mode: str, n: int, *threads: int, above: Path | None = None) -> dict:
        """The counts that n calls of each kind add to those of a run with no calls."""
        base = self.traced(mode, 0, *threads, above=above)
        full = self.traced(mode, n, *threads, above=above)
        self.assertEqual((full["unknown_frees"], full["unseen_frees"]), (0, 0))
        counts = ("operations", "malloc", "calloc", "aligned", "realloc", "free", "cross_thread_frees",
                  "live_at_end", "allocated_bytes", "blocks")
        return {name: full[name] - base[name] for name in counts}

    def swap(self, above: Path | None) -> None:
        n, threads = 5000, 4
        each = n * threads
        got = self.known("swap", n, threads, above=above)
        self.assertEqual(got, {"operations": 7 * each, "malloc": each, "calloc": each, "aligned": each,
                               "realloc": each, "free": 3 * each, "cross_thread_frees": 3 * each,
                               "live_at_end": 0, "allocated_bytes": 500 * each, "blocks": 4 * each})
        self.replay_everywhere()

    def test_threads_that_free_their_neighbours_blocks(self) -> None:
        self.swap(None)

    def test_above_other_allocators(self) -> None:
        for library in (BUILD / "libhakmem.so", BUILD / "bench" / "libfloor.so"):
            self.swap(library)

    def test_producer_and_consumer(self) -> None:
        got = self.known("pass", 100_000)
        self.assertEqual((got["malloc"], got["free"], got["cross_thread_frees"]), (100_000,) * 3)
        self.replay_everywhere()

    def test_every_window_makes_the_same_calls(self) -> None:
        operations = self.traced("swap", 2000, 3)["operations"]
        for window in (0, 1, 7, 1000):
            result = self.replay("--window", window, "--check", allocator="hakmem")
            self.assertEqual((result["ops"], result["threads"]), (operations, 4), window)

    def test_replay_keeps_memory_near_what_was_live(self) -> None:
        summary = self.traced("pass", 200_000)
        result = self.replay()
        self.assertAlmostEqual(result["live_peak_kib"], summary["peak_live_bytes"] / 1024, places=1)
        allowed = 8192 + 2 * summary["peak_live_bytes"] / 1024  # what the windows and the process add
        self.assertLess(result["peak_rss_kib"], allowed)
        self.assertGreater(result["peak_rss_kib"], summary["peak_live_bytes"] / 1024)

    def test_a_recorded_replay_is_the_program_again(self) -> None:
        before = self.traced("swap", 20_000, 4)
        original = self.trace.rename(self.folder / "original")
        self.record(BUILD / "bench" / "replay", original)
        after = self.summary()
        added = 20  # calls that replay itself makes: starting threads, printing
        for kind in ("malloc", "calloc", "aligned", "realloc", "free", "cross_thread_frees"):
            self.assertTrue(before[kind] <= after[kind] <= before[kind] + added, (kind, before[kind], after[kind]))
        self.assertEqual((after["threads"], after["unknown_frees"]), (before["threads"] + 1, 0))
        window = 16384  # how far threads may drift apart without the program's own barriers
        self.assertAlmostEqual(after["peak_live_blocks"], before["peak_live_blocks"], delta=2 * window)

    def test_rounds_quick_and_net(self) -> None:
        operations = self.traced("pass", 150_000)["operations"]
        self.assertGreater(operations, 200_000)
        self.assertEqual(self.replay("--quick")["ops"], 200_000)
        self.assertEqual(self.replay("--rounds", 3)["ops"], 3 * operations)
        net = self.replay("--net")
        self.assertAlmostEqual(net["ns_per_op"] - net["floor_ns_per_op"], net["net_ns_per_op"], places=3)

    def test_operators_new_and_delete(self) -> None:
        program = BUILD / "test" / "traced_new"
        for above in (None, BUILD / "libhakmem.so"):
            counts = []
            for n in (0, 1000):
                self.trace.unlink(missing_ok=True)
                self.record(program, n, above=above)
                counts.append(self.summary())
            base, full = counts
            self.assertEqual([full[k] - base[k] for k in ("malloc", "aligned", "free")], [4000, 4000, 8000], above)


class Process(TraceTest):
    """How processes start and end."""

    def files(self) -> list[dict]:
        return sorted((self.summary(f) for f in self.folder.iterdir()), key=lambda s: (s["operations"], s["unknown_frees"]))

    def test_a_forked_child_is_not_recorded(self) -> None:
        summary = self.traced("fork", 1000)
        self.assertEqual((summary["malloc"], summary["free"], summary["live_at_end"]), (1000, 0, 1000))

    def test_a_forked_child_has_a_file_of_its_own_with_p(self) -> None:
        self.record(BUILD / "test" / "traced", "fork", 1000, HAKTRACE_FILE=f"{self.trace}.%p")
        parent, child = self.files()
        self.assertEqual((parent["malloc"], parent["free"]), (1000, 0))
        # The child frees blocks from before its recording.
        self.assertEqual((child["malloc"], child["free"], child["unknown_frees"]), (1000, 0, 1000))
        self.assertNotEqual(parent["pid"], child["pid"])

    def test_exec_starts_anew(self) -> None:
        summary = self.traced("exec", 500, 2)
        self.assertEqual((summary["aligned"], summary["realloc"]), (1000, 1000))
        self.assertEqual(self.traced("swap", 500, 2)["operations"], summary["operations"])

    def test_a_file_of_a_process_with_the_same_number_is_left_alone(self) -> None:
        self.traced("swap", 500, 2)
        whole = self.trace.read_bytes()
        pid, started = 16, 24  # their offsets in the header (format.h)

        def in_the_process(age: int) -> Callable[[], None]:
            def write() -> None:
                data = bytearray(whole)
                struct.pack_into("<I", data, pid, os.getpid())
                struct.pack_into("<Q", data, started, int(time.time()) - age)
                self.trace.write_bytes(data)
            return write

        done = self.record(BUILD / "test" / "traced", "swap", 10, preexec_fn=in_the_process(100))
        self.assertEqual(done.stderr, "")
        self.assertEqual(self.trace.stat().st_size, len(whole))
        self.record(BUILD / "test" / "traced", "swap", 10, preexec_fn=in_the_process(0))
        self.assertLess(self.summary()["operations"], 100)

    def test_exec_has_a_file_for_each_program_with_p(self) -> None:
        self.record(BUILD / "test" / "traced", "exec", 500, 1, HAKTRACE_FILE=f"{self.trace}.%p")
        before, after = self.files()
        self.assertEqual((before["operations"], before["pid"]), (500, after["pid"]))
        self.assertEqual(after["realloc"], 500)

    def test_nothing_is_lost_when_the_program_is_killed(self) -> None:
        self.trace.unlink(missing_ok=True)
        self.record(BUILD / "test" / "traced", "kill", 30_000, status=-9)
        self.assertEqual(self.summary()["malloc"], 30_000)

    def test_how_long_it_took(self) -> None:
        self.trace.unlink(missing_ok=True)
        self.record("sleep", 0.4)
        self.assertGreaterEqual(self.summary()["microseconds"], 400_000)
        self.assertLess(self.summary()["microseconds"], LIMIT * 1_000_000)

    def test_closed_descriptors(self) -> None:
        self.assertEqual(self.traced("closed", 50_000)["malloc"], 50_000)

    def test_short_threads_share_chunks(self) -> None:
        summary = self.traced("short", 3000)
        self.assertEqual((summary["malloc"], summary["threads"]), (3000, 3001))
        self.assertLess(summary["file_bytes"], 10 * CHUNK)
        self.assertEqual(self.replay(allocator="hakmem")["threads"], summary["threads"])

    def test_the_last_destructors_of_a_thread_are_recorded(self) -> None:
        summary = self.traced("late", 500)
        self.assertEqual((summary["malloc"], summary["unknown_frees"]), (2000, 0))
        self.assertLess(summary["file_bytes"], 10 * CHUNK)
        self.replay_everywhere()

    def test_forks_while_threads_allocate(self) -> None:
        children = 20
        self.record(BUILD / "test" / "traced", "storm", children, 3, HAKTRACE_FILE=f"{self.trace}.%p")
        files = self.files()
        self.assertEqual(len(files), children + 1)
        for summary in files[:-1]:
            self.assertEqual((summary["malloc"], summary["free"], summary["unseen_frees"]), (100, 100, 0))
        self.assertEqual((files[-1]["threads"], files[-1]["unknown_frees"], files[-1]["unseen_frees"]), (4, 0, 0))

    def test_another_programs_file_is_left_alone(self) -> None:
        self.trace.write_text("precious")
        self.record(BUILD / "test" / "traced", "swap", 10)
        self.assertEqual(self.trace.read_text(), "precious")

    def stops(self, why: str, **how: object) -> None:
        self.trace.unlink(missing_ok=True)
        done = self.record(BUILD / "test" / "traced", "swap", 100_000, 2, **how)
        self.assertEqual(done.stderr, f"hakmem-record: {self.trace}: {why}; recording ended\n")
        summary = self.summary()
        self.assertTrue(0 < summary["operations"] < 1_400_000, summary["operations"])
        self.assertLessEqual(summary["file_bytes"], 1 << 20)
        self.replay_everywhere()

    def test_the_limit_ends_the_recording_not_the_program(self) -> None:
        self.stops("HAKTRACE_LIMIT is reached", HAKTRACE_LIMIT=1)

    def test_the_largest_file_ends_the_recording_not_the_program(self) -> None:
        self.stops("File too large", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, 900_000)))

    def test_a_full_disk_ends_the_recording_not_the_program(self) -> None:
        mount = "mount -t tmpfs -o size=512k none \"$0\" && exec \"$@\""
        inside = ["unshare", "-rm", "sh", "-c", mount, str(self.folder)]
        if shutil.which("unshare") is None or subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespace here")
        script = ('HAKTRACE_FILE="$1" LD_PRELOAD="$2" "$3" swap 100000 2 && "$4" "$1" --json')
        done = self.run_command(*inside, "sh", "-c", script, "sh", self.trace, BUILD / "libhakmem-record.so",
                                BUILD / "test" / "traced", BUILD / "bench" / "trace_summary")
        self.assertEqual(done.stderr,
                         f"hakmem-record: {self.trace}: No space left on device; recording ended\n")
        self.assertGreater(json.loads(done.stdout)["operations"], 50_000)

    def test_a_folder_that_is_not_there(self) -> None:
        missing = self.folder / "no" / "such"
        done = self.record(BUILD / "test" / "traced", "swap", 10, HAKTRACE_FILE=missing)
        self.assertEqual(done.stderr, f"hakmem-record: {missing}: No such file or directory; recording ended\n")


class Programs(TraceTest):
    """Real programs, and the hakmem command."""

    def hakmem(self, *arguments: object, **how: object) -> subprocess.CompletedProcess:
        return self.run_command(sys.executable, "-B", ROOT / "hakmem", *arguments, **how)

    def test_python(self) -> None:
        program = "import json, threading\n" \
                  "def work(): json.loads(json.dumps([{'k': str(i)} for i in range(5000)]))\n" \
                  "threads = [threading.Thread(target=work) for _ in range(3)]\n" \
                  "[t.start() for t in threads]; [t.join() for t in threads]; print('done')"
        done = self.hakmem("record", "-o", self.trace, "--", sys.executable, "-c", program, PYTHONMALLOC="malloc")
        self.assertEqual(done.stdout, "done\n")
        summary = self.summary()
        self.assertGreater(summary["operations"], 100_000)
        self.assertEqual(summary["threads"], 4)
        self.replay_everywhere()

    def test_sqlite(self) -> None:
        if shutil.which("sqlite3") is None:
            self.skipTest("no sqlite3")
        script = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n limit 20000) " \
                 "insert into t select i, hex(i) from n; select count(*), sum(length(b)) from t group by a % 7;"
        plain = self.run_command("sqlite3", ":memory:", script)
        done = self.hakmem("record", "-o", self.trace, "sqlite3", ":memory:", script)
        self.assertEqual(done.stdout, plain.stdout)
        self.assertGreater(self.summary()["operations"], 1000)
        self.replay_everywhere()

    def test_children(self) -> None:
        self.hakmem("record", "--children", "-o", self.trace, "sh", "-c", "cat /dev/null; ls / >/dev/null; :")
        commands = {self.summary(f)["command"].split()[0] for f in self.folder.iterdir()}
        self.assertEqual(commands, {"sh", "cat", "ls"})

    def test_status_and_a_program_that_cannot_be_recorded(self) -> None:
        self.hakmem("record", "-o", self.trace, "sh", "-c", "exit 7", status=7)
        static = self.folder / "static"
        source = self.folder / "s.c"
        source.write_text("int main(void) { return 0; }\n")
        if subprocess.run(["gcc", "-static", "-o", static, source], capture_output=True).returncode != 0:
            self.skipTest("no static C library")
        done = self.hakmem("record", "-o", self.trace, static, status=1)
        self.assertIn("nothing was recorded", done.stderr)
        self.assertIn("statically linked", done.stderr)

    def test_trace_command(self) -> None:
        summary = self.traced("swap", 1000, 2)
        text = self.hakmem("trace", self.trace).stdout
        self.assertRegex(text, r"operations +14,0\d\d\n")
        self.assertRegex(text, r"freed by another thread +6,000 +75\.00 %")
        self.assertEqual(json.loads(self.hakmem("trace", "--json", self.trace).stdout), summary)
        self.assertEqual(sum(size_range["blocks"] for size_range in summary["ranges"].values()), summary["blocks"])
        self.assertEqual(sum(summary["sizes"].values()), summary["blocks"])
        self.assertEqual(sum(summary["lifetimes"].values()) + summary["live_at_end"], summary["blocks"])
        with open("/dev/full", "w") as full:
            done = subprocess.run([BUILD / "bench" / "trace_summary", self.trace], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr), (1, b"trace_summary: output: No space left on device\n"))

    def test_compare_replays(self) -> None:
        self.traced("swap", 1000, 2)
        result = self.folder / "result.json"
        self.run_command(sys.executable, "-B", ROOT / "bench" / "compare.py", "--build", BUILD, "--quick", "--net",
                         "--rounds", 1, "--replay", self.trace, "--json", result)
        rows = json.loads(result.read_text())["rows"]
        self.assertEqual([row["allocator"] for row in rows], ["system", "hakmem"])
        for row in rows:
            self.assertGreater(row["floor"], 0)
            self.assertGreater(row["rss_kib"], 0)
            self.assertGreater(row["minor_faults"], 0)


class Damage(TraceTest):
    """Anything but a whole trace is refused with one line that names it."""

    def setUp(self) -> None:
        super().setUp()
        self.traced("swap", 3000, 2)
        self.whole = self.trace.read_bytes()

    def refused(self, data: bytes, message: str) -> None:
        self.trace.write_bytes(data)
        for program in ("replay", "trace_summary"):
            done = self.run_command(BUILD / "bench" / program, self.trace, status=1)
            self.assertRegex(done.stderr, rf"^{program}: {re.escape(str(self.trace))}: {message}.*\n$")

    def test_not_a_trace(self) -> None:
        self.refused(b"", "not a trace: the file is empty")
        self.refused(b"#!/bin/sh\n" * 10, "not a trace")
        self.refused(bytes(CHUNK), "not a trace")
        self.trace.unlink()
        done = self.run_command(BUILD / "bench" / "replay", self.trace, status=1)
        self.assertIn("No such file", done.stderr)
        self.run_command(BUILD / "bench" / "replay", self.folder, status=1)
        self.run_command(BUILD / "bench" / "replay", status=2)

    def test_truncated(self) -> None:
        self.refused(self.whole[:20], "truncated: 20 bytes after the last chunk")
        self.refused(self.whole[:CHUNK + HEADER + 100], r"truncated: \d+ bytes of the last chunk are missing")
        self.refused(self.whole[:CHUNK + 5], "truncated: 5 bytes after the last chunk")

    def test_another_version(self) -> None:
        self.refused(self.whole[:4] + b"\2\0" + self.whole[6:], "version 2; this program reads version 1")

    def test_headers(self) -> None:
        self.refused(self.whole[:CHUNK] + bytes(CHUNK), "corrupt trace: a chunk without a header at byte 65536")
        self.refused(self.whole[:12] + b"\xff\xff\xff\xff" + self.whole[16:],
                     "corrupt trace: a chunk with impossible sizes")

    def chunk(self, records: bytes) -> bytes:
        return self.whole[:12] + len(records).to_bytes(4, "little") + self.whole[16:HEADER] + records

    @staticmethod
    def varint(value: int) -> bytes:
        data = bytearray()
        while value >= 0x80:
            data.append(value & 0x7f | 0x80)
            value >>= 7
        return bytes(data) + bytes([value])

    def test_records(self) -> None:
        segment = bytes([0, 0, 0, 0])
        for records, message in (
                (b"\1\2\3", "an event of no thread"),
                (segment + b"\7", "an unknown kind of record"),
                (segment + b"\1\x80", "a record beyond its chunk"),
                (segment + b"\5" + b"\xff" * 10 + b"\1", "a number of more than 64 bits"),
                (segment + b"\5\0", "an impossible address"),
                (segment + b"\xfd\xff\xff\xff\xff\x0f\2", "an impossible sequence number"),
                (segment + b"\1\2\xff\xff\xff\xff\xff\xff\xff\x7f", "an impossible size"),
                (segment + b"\3\2\1\x40", "an impossible alignment"),
                (segment + b"\4\2\2\1\0", "a realloc of no duration"),
                (segment + b"\1\2\1" + segment + b"\1\2\1", "a sequence number used twice"),
                (b"\0\xff\xff\xff\x0f\0\0", "an impossible thread number"),
                (b"\6\x7fxy", "a record beyond its chunk")):
            with self.subTest(message):
                self.refused(self.chunk(records), f"corrupt trace: {message} at byte ")
        self.trace.write_bytes(self.chunk(segment + b"\1\2\1\5\0"))
        self.assertEqual(self.summary()["operations"], 2)
        self.assertEqual(self.replay("--check")["ops"], 2)

    def test_a_file_that_is_still_recorded(self) -> None:
        """What is read is one state of the file, whatever the recorder adds meanwhile."""
        segment, events = bytes([0, 0, 0, 0]), 20_000
        later = self.folder / "later"
        later.write_bytes(self.chunk(segment + b"\1\2\1" * events).ljust(CHUNK, b"\0"))
        changing = {"preload": BUILD / "test" / "libchanging.so", "NEW_CONTENTS": later, "OLD_FILE": self.trace}
        for program in ("trace_summary", "replay"):
            self.trace.write_bytes(self.chunk(segment + b"\1\2\1").ljust(CHUNK, b"\0"))
            done = self.run_command(BUILD / "bench" / program, self.trace, "--json", **changing)
            result = json.loads(done.stdout)
            self.assertEqual(result.get("operations", result.get("ops")), events, program)

    def test_a_block_larger_than_the_machine_is_not_replayed(self) -> None:
        self.trace.write_bytes(self.chunk(bytes([0, 0, 0, 0, 1, 2]) + b"\xff" * 6 + b"\x01"))
        self.assertEqual(self.summary()["operations"], 1)
        done = self.run_command(BUILD / "bench" / "replay", self.trace, status=1)
        self.assertIn("are live at once", done.stderr)

    def test_what_quick_leaves_out_may_be_larger(self) -> None:
        pairs, giant = b"\1\2\1\5\0" + b"\1\0\1\5\0" * 9_999, b"\1\2" + b"\xff" * 6 + b"\x01"
        chunks = [self.chunk(bytes([0, 0]) + number + b"\0" + pairs).ljust(CHUNK, b"\0")
                  for number in (self.varint(20_000 * i) for i in range(10))]
        self.trace.write_bytes(b"".join(chunks) + self.chunk(bytes([0, 0]) + self.varint(200_000) + b"\0" + giant))
        self.assertEqual(self.replay("--quick")["ops"], 200_000)
        done = self.run_command(BUILD / "bench" / "replay", self.trace, status=1)
        self.assertIn("are live at once", done.stderr)

    def test_random_damage_never_crashes_the_reader(self) -> None:
        dice = random.Random(1)
        refused = 0
        used = int.from_bytes(self.whole[12:16], "little")
        for _ in range(300):
            data = bytearray(self.whole)
            for _ in range(dice.choice((1, 1, 3, 50))):
                data[dice.randrange(HEADER + used)] = dice.randrange(256)
            self.trace.write_bytes(data)
            done = subprocess.run([BUILD / "bench" / "trace_summary", self.trace], capture_output=True, text=True,
                                  timeout=LIMIT, errors="replace")
            self.assertIn(done.returncode, (0, 1), done.stderr)
            if done.returncode == 1:
                self.assertRegex(done.stderr, rf"^trace_summary: {re.escape(str(self.trace))}: .*\n$")
                refused += 1
        self.assertTrue(50 < refused < 300, refused)  # some damage is seen, a wrong size cannot be


def main() -> None:
    global BUILD
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=BUILD)
    args, rest = parser.parse_known_args()
    BUILD = args.build.resolve()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
