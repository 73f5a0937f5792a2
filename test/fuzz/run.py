#!/usr/bin/env python3
"""Runs the fuzzers for a while; behind `make fuzz` and the test fuzz.short.

    run.py [--time SECONDS] [--variants NAME,...]   fuzz; last line 'N passed, N failed'
    run.py --ends                                   the committed corpus with every option at its ends
    run.py --minimise                               write the committed corpus anew
    run.py --summary                                what build/fuzz/log.jsonl adds up to

The time is divided into slices: a variant of the allocator, HAKMEM_ options drawn at
random, a seed. The working corpus (build/fuzz/corpus) and the log are kept from run to
run. A finding is an input in build/fuzz/findings; the command that repeats it is printed.
Exit status 77: this machine lacks clang's libFuzzer.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import dataclasses
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SEEDS = HERE / "corpus"
BUILD = ROOT / "build" / "fuzz"
AFL_BUILD = ROOT / "build" / "fuzz-afl"
LIBFUZZER_VARIANTS = ("release", "secure", "debug", "threads")
AFL = "afl"
SIZE_MAX = 2048  # bytes of an input: 340 operations
SEEDS_MAX = 100 << 10  # bytes of the committed corpus

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
from gen_docs import calls, constants  # noqa: E402

# These do not change the allocator's behaviour, or (ABORT) they make misuse visible. A helper
# thread that reads what an input sets would be a race of the fuzzer's own.
NOT_DRAWN = {"OPTIONS", "QUIET", "STATS", "STATS_FILE", "ABORT", "WARM_POOL_STATS"}
NOT_DRAWN_UNDER_TSAN = {"BACKGROUND"}


def drawn_of(variant: str) -> dict[str, list[str]]:
    """The options drawn for a variant. The values of each: its words, or both ends of its
    range and the value next to the lower end."""
    values = {}
    for macro, row in calls(ROOT / "src" / "core" / "options.def"):
        if macro == "HAK_TEXT" or row[0] in NOT_DRAWN or (variant == "threads" and row[0] in NOT_DRAWN_UNDER_TSAN):
            continue
        if macro == "HAK_CHOICE":
            values[f"HAKMEM_{row[0]}"] = row[2].split("|")
            continue
        low, high = (value_of(text) for text in row[5:7])
        values[f"HAKMEM_{row[0]}"] = [str(value) for value in sorted({low, min(high, low + 1), high})]
    return values


def draw_options(generator: random.Random, variant: str) -> dict[str, str]:
    """Each option of options.def is drawn with a chance of 1 in 3, often at one of its ends."""
    drawn = {}
    for name, values in drawn_of(variant).items():
        if generator.random() > 1 / 3:
            continue
        choices = list(values)
        if all(value.isdigit() for value in values):
            low, high = int(values[0]), int(values[-1])
            choices.append(str(int(low + (high - low) ** generator.random())))
        drawn[name] = generator.choice(choices)
    return drawn


def value_of(text: str) -> int:
    return int(eval(text.replace("(uint64_t)", ""), {"__builtins__": {}, **constants()}))


@dataclasses.dataclass
class Slice:
    """One fuzzer process and its output."""
    variant: str
    seed: int
    options: dict[str, str]
    seconds: float = 0
    cpu_seconds: float = 0
    executions: int = 0
    edges: int = 0
    edges_known: int = 0
    corpus: int = 0
    finding: str = ""
    unfinished: bool = False  # there was no time to read the corpus

    def text(self) -> str:
        share = f" ({self.edges * 100 // self.edges_known} %)" if self.edges_known else ""
        return (f"{self.variant:<8}{self.executions:>10,} executions in {self.seconds:.0f} s, "
                f"{self.edges} edges{share}, corpus {self.corpus}, seed {self.seed}, "
                f"{' '.join(f'{k[7:]}={v}' for k, v in self.options.items()) or 'default options'}")


SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
              "UBSAN_OPTIONS": "print_stacktrace=1",
              # The sanitizer must handle signals: libFuzzer's handlers hang in it.
              "TSAN_OPTIONS": "halt_on_error=1:handle_abort=1:handle_sigill=1:report_signal_unsafe=0"}
AFL_SETTINGS = dict.fromkeys(("AFL_NO_UI", "AFL_SKIP_CPUFREQ", "AFL_NO_AFFINITY",
                              "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES"), "1")


def environment(*more: dict[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("HAKMEM_", "AFL_")) and k not in SANITIZERS}
    for settings in more:
        kept |= settings
    return kept


def adopt_orphans() -> None:
    """afl-fuzz kills the process from which it forks inputs and does not wait for it. The
    process becomes this one's child; otherwise its processor time would be in no figure."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def bury_orphans() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def cpu_of_children() -> float:
    bury_orphans()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


TIMED_OUT = -1000  # not the number of any signal


def run(command: list[str], environment_: dict[str, str], limit: float) -> tuple[int, str]:
    try:
        done = subprocess.run(command, env=environment_, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit,
                              errors="replace")
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as expired:
        said = expired.stdout or b""
        return TIMED_OUT, said.decode("utf-8", "replace") if isinstance(said, bytes) else said


def libfuzzer(variant: str) -> list[str]:
    """A variant's program, its limits, and the folder for its findings."""
    findings = BUILD / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    return [str(BUILD / "test" / "fuzz" / f"fuzz_{variant}"), "-timeout=200", "-rss_limit_mb=3072",
            f"-artifact_prefix={findings}/"]


def new_findings(findings: Path, before: set[Path]) -> list[Path]:
    """What libFuzzer has written since then. Inputs that took 10 s of wall-clock time are not
    findings: on a busy machine many do. Those that took -timeout are findings."""
    return sorted(path for path in set(findings.iterdir()) - before if not path.name.startswith("slow-unit-"))


def fuzz_libfuzzer(one: Slice, seconds: int) -> None:
    # Reading the working corpus takes longer than a short slice lasts.
    findings, corpus = BUILD / "findings", BUILD / ("corpus" if seconds >= 30 else "scratch")
    if seconds < 30:
        shutil.rmtree(corpus, ignore_errors=True)
    corpus.mkdir(parents=True, exist_ok=True)
    command = [*libfuzzer(one.variant), f"-max_total_time={seconds}", f"-seed={one.seed}", f"-max_len={SIZE_MAX}",
               "-len_control=20", "-print_final_stats=1", str(corpus), str(SEEDS)]
    before = set(findings.iterdir())
    status, said = run(command, environment(one.options, SANITIZERS), seconds + 300)
    read_libfuzzer(one, said)
    if status == 0:
        return
    new = new_findings(findings, before)
    # INITED: libFuzzer has read the corpus. On a busy machine it may not get that far.
    one.unfinished = status == TIMED_OUT and not new and "INITED" not in said and one.executions > 0
    if one.unfinished:
        print(f"UNFINISHED: {one.variant} did not get through its corpus in {seconds + 300} s")
        return
    ended = "no end in time" if status == TIMED_OUT else f"exit status {status}"
    one.finding = str(new[0]) if new else f"{ended}, no input written"
    print("\n".join(line for line in said.splitlines() if "NEW " not in line and "REDUCE" not in line)
          [-6000:])
    settings = " ".join(f"{k}={v}" for k, v in one.options.items())
    print(f"FINDING: to repeat: env {settings} {command[0]} {one.finding}")


def read_libfuzzer(one: Slice, said: str) -> None:
    if match := re.search(r"Loaded \d+ modules\s+\((\d+) inline", said):
        one.edges_known = int(match[1])
    for match in re.finditer(r"cov: (\d+) ft: \d+ corp: (\d+)", said):
        one.edges, one.corpus = int(match[1]), int(match[2])
    counted = re.findall(r"^(?:stat::number_of_executed_units:\s+|#)(\d+)", said, re.MULTILINE)
    one.executions = int(counted[-1]) if counted else 0


def fuzz_afl(one: Slice, seconds: int) -> None:
    out = AFL_BUILD / "out"
    shutil.rmtree(out, ignore_errors=True)
    settings = environment(one.options, AFL_SETTINGS)
    program = str(AFL_BUILD / "test" / "fuzz" / "fuzz_afl")
    status, said = run(["afl-fuzz", "-i", str(SEEDS), "-o", str(out), "-V", str(seconds), "-t", "20000",
                        "-s", str(one.seed), "--", program], settings, seconds + 300)
    stats_file = out / "default" / "fuzzer_stats"
    if status != 0 or not stats_file.exists():
        one.finding = f"afl-fuzz ended with status {status}"
        print(said[-3000:])
        return
    stats = dict(re.findall(r"^(\w+)\s*: (.*)$", stats_file.read_text(), re.MULTILINE))
    one.executions, one.edges = int(stats["execs_done"]), int(stats["edges_found"])
    one.edges_known, one.corpus = int(stats["total_edges"]), int(stats["corpus_count"])
    (BUILD / "corpus").mkdir(parents=True, exist_ok=True)
    for path in (out / "default" / "queue").glob("id*"):
        shutil.copy(path, BUILD / "corpus" / f"afl-{one.seed}-{path.name[3:9]}")
    for folder in ("crashes", "hangs"):
        inputs = sorted((out / "default" / folder).glob("id*"))
        if inputs:
            kept = BUILD / "findings" / f"afl-{folder}-{one.seed}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(inputs[0], kept)
            one.finding = str(kept)
            print(f"FINDING: to repeat: {program} <{kept}")


def variants_there(wanted: list[str]) -> list[str]:
    """Builds what can be built here and names what cannot."""
    there = []
    for variant in wanted:
        if variant != AFL:
            there.append(variant)
        elif all(map(shutil.which, ("afl-clang-fast", "afl-fuzz"))) and SEEDS.exists():
            there.append(variant)
        else:
            print("skipped: afl (AFL++ is not installed)")
    presets = {"fuzz-afl" if variant == AFL else "fuzz" for variant in there}
    for preset in sorted(presets):
        for command in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset,
                                                        "-j", os.environ.get("JOBS", "1")]):
            done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode != 0:
                sys.exit(f"{done.stdout[-4000:]}\nrun.py: {' '.join(command)} failed")
    if not there:
        sys.exit(77)
    return there


def failures(slices: list[Slice]) -> int:
    """Counts the findings, and the variants that got through their corpus in no slice."""
    through = {one.variant for one in slices if not one.unfinished}
    return sum(bool(one.finding) for one in slices) + len({one.variant for one in slices} - through)


def fuzz(seconds: float, wanted: list[str], seed: int) -> int:
    variants = variants_there(wanted)
    adopt_orphans()
    generator = random.Random(seed)
    each = max(5, min(300, int(seconds / len(variants) / 2)))
    slices: list[Slice] = []
    end = time.monotonic() + seconds
    queue = list(variants)
    while queue and (time.monotonic() < end - 2 or len(slices) < len(variants)):
        variant = queue.pop(0)
        # The first round of a variant uses the options that every program has.
        options = draw_options(generator, variant) if len(slices) >= len(variants) else {}
        one = Slice(variant, generator.randrange(1, 1 << 31), options)
        start, cpu = time.monotonic(), cpu_of_children()
        this = max(5, min(each, int(end - start)))
        (fuzz_afl if variant == AFL else fuzz_libfuzzer)(one, this)
        one.seconds, one.cpu_seconds = time.monotonic() - start, cpu_of_children() - cpu
        slices.append(one)
        if not one.finding and not one.unfinished:  # it would be the same finding again
            queue.append(variant)
        print(one.text(), flush=True)
        with (BUILD / "log.jsonl").open("a") as log:
            log.write(json.dumps({"time": int(time.time())} | dataclasses.asdict(one)) + "\n")
    found = sum(bool(one.finding) for one in slices)
    unfinished = sum(one.unfinished for one in slices)
    failed = failures(slices)
    print(f"{sum(one.executions for one in slices):,} executions, {sum(o.cpu_seconds for o in slices):.0f} s of "
          f"processor time, {max(o.edges for o in slices)} edges, {found} findings, {unfinished} unfinished")
    print(f"{len(slices) - found - unfinished} passed, {failed} failed")
    return 1 if failed else 0


def ends(wanted: list[str]) -> int:
    """The committed corpus, one option at a time at each end: random draws seldom hit those."""
    todo = [(variant, name, value) for variant in variants_there(wanted) if variant != AFL
            for name, values in drawn_of(variant).items() for value in values]

    def one(task: tuple[str, str, str]) -> tuple[int, str]:
        variant, name, value = task
        return run([*libfuzzer(variant), "-runs=0", str(SEEDS)], environment({name: value}, SANITIZERS), 900)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "1"))) as pool:
        for (variant, name, value), (status, said) in zip(todo, pool.map(one, todo)):
            if status != 0:
                failed += 1
                print(f"{said[-3000:]}\nFINDING: {variant} with {name}={value}", flush=True)
    print(f"{len(todo) - failed} passed, {failed} failed")
    return 1 if failed else 0


def needed(path: Path) -> Path:
    """A file that earlier runs must have left."""
    if not path.exists():
        sys.exit("run.py: no runs yet; make fuzz first")
    return path


def summary() -> None:
    rows = [json.loads(line) for line in needed(BUILD / "log.jsonl").read_text().splitlines()]
    print("| variant | processor hours | executions | edges | findings |\n|---|---|---|---|---|")
    for variant in (*LIBFUZZER_VARIANTS, AFL, "all"):
        of = [r for r in rows if variant in (r["variant"], "all")]
        if of:
            print(f"| {variant} | {sum(r['cpu_seconds'] for r in of) / 3600:.2f} | "
                  f"{sum(r['executions'] for r in of):,} | {max(r['edges'] for r in of)} | "
                  f"{sum(bool(r['finding']) for r in of)} |")


def minimise() -> None:
    """Finds the smallest inputs that together reach what the working corpus reaches."""
    corpus = needed(BUILD / "corpus")
    variants_there(["debug"])
    fresh = BUILD / "minimised"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    status, said = run([str(BUILD / "test" / "fuzz" / "fuzz_debug"), "-set_cover_merge=1", "-timeout=60",
                        str(fresh), str(corpus), str(SEEDS)], environment(SANITIZERS), 3600)
    if status != 0:
        sys.exit(said[-3000:])
    regressions = sorted(path for path in SEEDS.iterdir() if path.name.startswith("regression-"))
    for path in set(SEEDS.iterdir()) - set(regressions):
        path.unlink()
    total = sum(path.stat().st_size for path in regressions)
    for path in sorted(fresh.iterdir(), key=lambda p: p.stat().st_size):
        total += path.stat().st_size
        if total > SEEDS_MAX:
            break
        shutil.copy(path, SEEDS / path.name[:12])
    print(f"{len(list(SEEDS.iterdir()))} inputs, {sum(p.stat().st_size for p in SEEDS.iterdir()):,} bytes")


def missing_packages() -> str:
    """What is missing of clang-19 and libclang-rt-19-dev (libFuzzer, the sanitizers)."""
    if shutil.which("clang-19") is None:
        return "clang-19"
    links = subprocess.run(["clang-19", "-fsanitize=fuzzer,address", "-x", "c", "-", "-o", os.devnull], text=True,
                           input="int LLVMFuzzerTestOneInput(void) { return 0; }", capture_output=True).returncode == 0
    return "" if links else "libclang-rt-19-dev"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--time", type=float, default=300, help="seconds, all variants together")
    parser.add_argument("--variants", default=",".join((*LIBFUZZER_VARIANTS, AFL)))
    parser.add_argument("--seed", type=int, default=None, help="of the options drawn and of the fuzzers")
    parser.add_argument("--ends", action="store_true")
    parser.add_argument("--minimise", action="store_true")
    parser.add_argument("--summary", action="store_true")
    args = parser.parse_args()
    if missing := missing_packages():
        print(f"skipped: {missing} is not installed")
        return 77
    if args.summary:
        summary()
    elif args.minimise:
        minimise()
    else:
        wanted = args.variants.split(",")
        if unknown := set(wanted) - {*LIBFUZZER_VARIANTS, AFL}:
            parser.error(f"no variant {unknown.pop()}")
        if args.ends:
            return ends(wanted)
        seed = random.randrange(1 << 30) if args.seed is None else args.seed
        return fuzz(args.time, wanted, seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
