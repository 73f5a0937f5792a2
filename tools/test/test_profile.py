"""Tests of profile.py: attribution on canned output of callgrind, addr2line and perf."""

import json
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

TOOLS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, TOOLS)

from profile_report import advice, callgrind, layers, output, perf, symbols  # noqa: E402
from profile_report.layers import Frame  # noqa: E402

SO = "/x/libhakmem.so"

ADDR2LINE = """0x0000000000001000
hak_owner_inc
/x/src/base/atomic.h:60
hak_front_hit
/x/src/thread/front.h:48
hak_malloc
/x/src/api/malloc.c:44
0x0000000000001010
hak_rotate_right
/x/src/base/bits.h:10
hak_range_find
/x/src/superslab/superslab.h:35
hak_front_free
/x/src/thread/front.h:86 (discriminator 2)
hak_free
/x/src/api/malloc.c:49
0x0000000000001020
refill
/x/src/thread/front.c:95
0x0000000000001030
hak_malloc
/x/src/api/malloc.c:45
0x0000000000001040
??
??:0
"""

CALLGRIND = """# callgrind format
positions: instr line
events: Ir
summary: 1176

ob=/x/program
fl=???
fn=main
0x10 5 100
cob=/x/libhakmem.so
cfn=malloc
calls=30 0x1000 44
0x14 6 999
0x18 7 100
ob=/x/libhakmem.so
fl=/x/src/api/malloc.c
fn=malloc
fi=/x/src/thread/front.h
0x1000 48 300
fe=/x/src/api/malloc.c
0x1030 45 50
fn=free
0x1010 35 200
fn=refill'2
0x1020 95 26
fn=odd
0x1040 0 4
ob=/usr/lib/x86_64-linux-gnu/libc.so.6
fn=memset
0x2000 0 396
totals: 1176
"""

PERF = """program  77 cycles:P: 
\t            1000 malloc (/x/libhakmem.so)
\t              14 main (/x/program)

program  77 cycles:P: 
\t            1010 free+0x10 (/x/libhakmem.so)

program  77 cycles:P: 
\tffffffff81000001 clear_page_erms ([kernel.kallsyms])
\tffffffff81000002 handle_mm_fault ([kernel.kallsyms])
\tffffffff81000003 asm_exc_page_fault ([kernel.kallsyms])
\t            1020 refill (/x/libhakmem.so)

program  77 cycles:P: 
\tffffffff81000004 mprotect_fixup ([kernel.kallsyms])
\tffffffff81000005 do_syscall_64 ([kernel.kallsyms])

program  77 cycles:P: 
\tffffffff81000006 tick_sched ([kernel.kallsyms])

program  77 cycles:P: 
\t              18 main (/x/program)

program  77 cycles:P: 
\t    7f0000000000 [unknown] ([unknown])

program  77 cycles:P: 
\t            2000 memset (/usr/lib/x86_64-linux-gnu/libc.so.6)
"""


class FakeLibrary(symbols.Library):
    def __init__(self):
        self.path, self.chains = SO, symbols.parse_addr2line(ADDR2LINE)
        self.loads = [(0x1000, 0x1000, 0x1000)]
        self.starts, self.names, self.by_name = [0x1000, 0x1010], ["malloc", "free"], {"malloc": 0x1000}

    def resolve(self, addresses):
        list(addresses)


def run_of(time=None, instructions=None, name="w"):
    return types.SimpleNamespace(name=name, shown=["w", "<1>"], time=time, instructions=instructions,
                                 usage={"wall_s": 1, "user_s": 0.7, "sys_s": 0.3, "minor_faults": 1000,
                                        "maxrss_kib": 10})


def profile_of(**counts):
    result = layers.Profile("perf cycles", "samples")
    for layer, n in counts.items():
        result.add(layer, f"f_{layer}", n)
    return result


class Attribution(unittest.TestCase):
    def test_addr2line_gives_chains_with_the_innermost_frame_first(self):
        chains = symbols.parse_addr2line(ADDR2LINE)
        self.assertEqual(chains[0x1000][0], Frame("hak_owner_inc", "base/atomic.h", 60))
        self.assertEqual(chains[0x1010][2].line, 86)
        self.assertEqual(chains[0x1040], [])

    def test_helpers_count_for_who_uses_them(self):
        chains = symbols.parse_addr2line(ADDR2LINE)
        self.assertEqual([layers.of_chain(chains[a])[0] for a in (0x1000, 0x1010, 0x1020, 0x1030, 0x1040)],
                         ["front", "lookup", "refill", "entry", "other"])

    def test_every_row_leads_to_a_layer(self):
        self.assertLessEqual({layer for _, _, layer in layers.TABLE}, set(layers.LAYERS))
        self.assertLessEqual(set(advice.HINTS), set(layers.LAYERS))
        self.assertEqual(set(output.COLOURS), set(layers.LAYERS))

    def test_no_source_file_is_unknown(self):
        # base/ and the accessors are transparent; all other code must have a layer.
        src = Path(TOOLS).parent / "src"
        transparent = r"base/.*|superslab/(superslab|slab|size_class|seal)\.h|core/.*\.h|.*/(warm|heap|ring|process|guard|quarantine)\.h"
        for path in sorted(src.glob("*/*.[ch]")):
            file = str(path.relative_to(src))
            if not re.fullmatch(transparent, file):
                self.assertNotEqual(layers.of_chain([Frame("anything", file, 1)])[0], "other", file)

    def test_functions_named_in_the_table_exist(self):
        # A renamed function must not fall into another layer unnoticed.
        src = Path(TOOLS).parent / "src"
        for file, function, layer in layers.TABLE:
            for name in re.findall(r"\w{4,}", function.pattern):
                files = [p for p in src.glob("*/*.[ch]") if file.fullmatch(str(p.relative_to(src)))]
                self.assertTrue(any(name in p.read_text() for p in files), f"{file.pattern} {name} ({layer})")


    def test_the_compilers_helpers_have_no_lines(self):
        p = layers.Profile("callgrind", "instructions")
        p.add_library("__popcountdi2", [], 3)
        p.add_library("odd", [], 1)
        self.assertEqual(dict(p.layers), {"libc": 3, "other": 1})


class Callgrind(unittest.TestCase):
    def test_costs_of_callees_are_not_counted_twice(self):
        counts = callgrind.parse(CALLGRIND.splitlines())
        self.assertEqual(sum(counts.values()), 1176)

    def test_layers(self):
        p = callgrind.profile(callgrind.parse(CALLGRIND.splitlines()), FakeLibrary())
        self.assertEqual(dict(p.layers), {"program": 200, "front": 300, "entry": 50, "lookup": 200,
                                          "refill": 26, "other": 4, "libc": 396})
        self.assertEqual(p.functions["front", "hak_front_hit in hak_malloc"], 300)
        self.assertEqual(p.lines["superslab/superslab.h:35"], 200)


class Perf(unittest.TestCase):
    def test_layers(self):
        p = perf.profile(perf.parse(PERF.splitlines()), FakeLibrary(), "cycles")
        self.assertEqual(dict(p.layers), {"front": 1, "lookup": 1, "faults": 1, "calls": 1, "kernel": 1,
                                          "program": 2, "libc": 1})

    def test_an_address_outside_the_file_falls_back_to_the_symbol(self):
        library = FakeLibrary()
        self.assertEqual(library.address(0x7f0000001008, "malloc"), 0x1000)
        self.assertIsNone(library.address(0x7f0000001008, "nobody"))


class Advice(unittest.TestCase):
    def test_the_largest_excess_is_named_first(self):
        lines = advice.of_workload(run_of(time=profile_of(program=4000, front=3000, faults=2500, warm=500)))
        self.assertIn("look at kernel: page faults: 41.7 %", lines[0])
        self.assertIn("HAKMEM_PREFAULT", lines[1])
        self.assertIn("warm pool", lines[2])

    def test_nothing_but_hits(self):
        lines = advice.of_workload(run_of(time=profile_of(program=1000, front=6000, lookup=2000, entry=900)))
        self.assertIn("is the hit path", lines[0])

    def test_waiting_and_few_samples_and_mostly_program(self):
        lines = "\n".join(advice.of_workload(run_of(
            time=profile_of(program=70, lookup=25, front=5),
            instructions=profile_of(program=700, lookup=50, front=250))))
        self.assertIn("it waits", lines)
        self.assertIn("only 100 samples", lines)
        self.assertIn("70.0 % is the program's own", lines)

    def test_differences_need_two_workloads(self):
        one, two = run_of(time=profile_of(front=90, faults=10), name="a"), run_of(time=profile_of(front=10), name="b")
        self.assertEqual(advice.differences([one]), [])
        self.assertIn("90.0 % in a, 100.0 % in b", "\n".join(advice.differences([one, two])))


class Programs(unittest.TestCase):
    def test_what_is_no_program_is_refused_before_anything_runs(self):
        library = os.path.join(os.path.dirname(TOOLS), "build", "libhakmem.so")
        if not os.path.exists(library):
            self.skipTest("no build/libhakmem.so")
        for name in ("no-such-program-xyz", os.path.join(TOOLS, "check.py")):
            done = subprocess.run([sys.executable, os.path.join(TOOLS, "profile.py"), "--", name],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"{name} is not there, or no program", done.stderr)

    def test_a_profile_without_the_library_is_known(self):
        self.assertFalse(profile_of(program=10, libc=5, faults=3, other=1).in_library)
        self.assertTrue(profile_of(program=10, front=1).in_library)


class Reports(unittest.TestCase):
    def test_three_files(self):
        p = callgrind.profile(callgrind.parse(CALLGRIND.splitlines()), FakeLibrary())
        with tempfile.TemporaryDirectory() as folder:
            output.write(Path(folder), [run_of(instructions=p), run_of(time=p, name="v")], ["a note"])
            document = json.loads(Path(folder, "profile.json").read_text())
            text, page = Path(folder, "profile.txt").read_text(), Path(folder, "profile.html").read_text()
        self.assertEqual((document["schema"], document["version"]), ("hakmem-profile", 1))
        self.assertAlmostEqual(sum(document["workloads"][0]["instructions"]["shares"].values()), 1, places=3)
        self.assertIn("note: a note", text)
        self.assertIn("What to look at next", text)
        self.assertIn("<svg", page)
        self.assertNotIn("w <1>", page)  # escaped
        self.assertNotRegex(page, r'(src|href)="?http')


if __name__ == "__main__":
    unittest.main()
