"""Builds the presets, runs their tests, adds up the results; behind `make test`.

    python3 tools/check.py [STAGE...]      (default: all of them, in this order)

A stage configures and builds one preset and runs its CTest tests. Results come
from CTest's JUnit files, not from its prose. The last line, unless the only stage just builds (clang), is

    N passed, N failed

alone, over all stages. A build that fails counts as one failure; so does a
stage in which no test ran. Above that line are listed the names of skipped tests,
and the parts that passing tests have skipped.
The exit status is 0 only if nothing failed and something passed, or was only to be built.
"""

import dataclasses
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# The CMake that tools/setup.sh fetched, if it did.
for inherited in [name for name in os.environ if name.startswith("HAKMEM_") or name == "HAK_OS_PAGE"]:
    del os.environ[inherited]  # the tests set what they need
os.environ["PATH"] = os.pathsep.join((os.path.join(ROOT, "build", "tools", "bin"), os.environ.get("PATH", os.defpath)))
STARTS = 20  # of a program; none of them fails where its sanitizer works
JOBS = str(os.environ.get("JOBS") or len(os.sched_getaffinity(0)))


@dataclasses.dataclass(frozen=True)
class Stage:
    preset: str
    folder: str                # the preset's binary folder
    labels: str | None = None  # CTest label pattern; None: all tests
    tests: bool = True         # False: building is the check
    needs: tuple[str, ...] = () # commands without which the stage is skipped
    define: tuple = ()
    sanitizer: str = ""


THREADS_AND_MODULES = "^(unit|stress|fuzz)$"
STAGES = {
    "release": Stage("release", "build", define=("-DHAK_TESTS=ON", "-DHAK_BENCH=ON")),
    "asan": Stage("asan", "build/asan", THREADS_AND_MODULES, sanitizer="address"),
    "ubsan": Stage("ubsan", "build/ubsan", THREADS_AND_MODULES),
    "tsan": Stage("tsan", "build/tsan", THREADS_AND_MODULES, sanitizer="thread"),
    # A second compiler's warnings are the check.
    "clang": Stage("clang", "build/clang", tests=False, needs=("clang-19",), define=("-DHAK_WERROR=ON",)),
    # Another machine and another C library: docs/platforms.md.
    "aarch64": Stage("aarch64", "build/aarch64", needs=("aarch64-linux-gnu-g++", "qemu-aarch64")),
    "musl": Stage("musl", "build/musl", needs=("musl-gcc",)),
}


@dataclasses.dataclass
class Result:
    passed: int = 0
    failed: list = dataclasses.field(default_factory=list)
    skipped: list = dataclasses.field(default_factory=list)
    parts: list = dataclasses.field(default_factory=list)  # skipped within a test that passed
    seconds: float = 0.0


def step(*command):
    print("+", " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode == 0


def build(stage):
    return (step("cmake", "--preset", stage.preset, *stage.define)
            and step("cmake", "--build", "--preset", stage.preset, "-j", JOBS))


def runner(sanitizer):
    """The command that starts the sanitizer's programs: an old one's fixed addresses may be those that the kernel
    chose (github.com/google/sanitizers/issues/1716), except under setarch -R. None if that does not help either."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program")
        compiler = [*shlex.split(os.environ.get("CC") or "cc"), f"-fsanitize={sanitizer}", "-x", "c", "-", "-o", program]
        if subprocess.run(compiler, input=b"int main(void) { return 0; }\n", capture_output=True).returncode != 0:
            return []  # the build will print why
        for command in [], ["setarch", platform.machine(), "-R"]:
            if (not command or shutil.which(command[0])) and all(
                    subprocess.run([*command, program], capture_output=True).returncode == 0 for _ in range(STARTS)):
                return command
    return None


def run_stage(name):
    stage, result, start = STAGES[name], Result(), time.monotonic()
    print(f"\n=== {name} " + "=" * (60 - len(name)), flush=True)
    missing = [command for command in stage.needs if shutil.which(command) is None]
    start_by = runner(stage.sanitizer) if stage.sanitizer else []
    if missing:
        result.skipped.append(f"{name} (no {' and no '.join(missing)} on this machine)")
    elif start_by is None:
        result.skipped.append(f"{name} (programs with -fsanitize={stage.sanitizer} fail at start here; "
                              "sysctl vm.mmap_rnd_bits=28 may help)")
    elif not build(stage):
        result.failed.append("(build)")
    elif stage.tests:
        run_tests(stage, result, start_by)
    result.seconds = time.monotonic() - start
    return result


def run_tests(stage, result, start_by):
    junit = os.path.join(ROOT, stage.folder, "junit.xml")
    if os.path.exists(junit):
        os.unlink(junit)
    command = [*start_by, "ctest", "--test-dir", stage.folder, "--output-on-failure", "-j", JOBS,
               "--output-junit", junit, "--test-output-size-passed", "65536"]
    if stage.labels:
        command += ["-L", stage.labels]
    succeeded = step(*command)
    read_junit(junit, result)
    if not result.passed and not result.failed:
        result.failed.append("(no test ran)")
    if not succeeded and not result.failed:
        result.failed.append("(ctest)")


def read_junit(path, result):
    """Adds the results in a JUnit file of ctest to result."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            root = ElementTree.fromstring(re.sub("[^\t\n\r -\ufffd]", "?", f.read()))
    except (OSError, ElementTree.ParseError) as error:
        print(f"check.py: {path}: {error}", flush=True)
        return
    for case in root.iter("testcase"):
        name, status = case.get("name"), case.get("status")
        reason = case.find("skipped")
        message = "" if reason is None else reason.get("message", "")
        if status == "run":
            result.passed += 1
            result.parts += [f"{name}: {reason}" for reason in skip_reasons(case)]
        elif status == "disabled" or message.startswith("SKIP_"):
            result.skipped.append(f"{name}{''.join(f' ({reason})' for reason in skip_reasons(case)[:1])}")
        else:  # failed, timed out, or its program is not there
            result.failed.append(name)


def skip_reasons(case):
    """The test's own lines 'skipped: ...', which may begin with a library's name."""
    return re.findall(r"^(?:[\w-]+: )?skipped: *(.*\S)", case.findtext("system-out") or "", re.MULTILINE)


def summary(results):
    """Prints the results, the totals last; returns True if all is well."""
    print("\n=== summary " + "=" * 52)
    for name, result in results.items():
        print(f"{name:<10}{result.passed:>5} passed{len(result.failed):>5} failed"
              f"{len(result.skipped):>5} skipped{result.seconds:>8.0f} s")
    for name, result in results.items():
        for test in result.skipped + result.parts:
            print(f"skipped: {name}: {test}")
    for name, result in results.items():
        for test in result.failed:
            print(f"FAILED: {name}: {test}")
    passed = sum(result.passed for result in results.values())
    failed = sum(len(result.failed) for result in results.values())
    print(f"{passed} passed, {failed} failed", flush=True)
    return passed > 0 and failed == 0


def main():
    names = sys.argv[1:] or list(STAGES)
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        sys.exit(f"check.py: no stage {unknown[0]}; there are: {' '.join(STAGES)}")
    if not all(STAGES[name].tests for name in names) and len(names) == 1:
        result = run_stage(names[0])  # a build alone has no tests to count
        for test in result.skipped:
            print(f"skipped: {test}")
        sys.exit(1 if result.failed or result.skipped else 0)
    sys.exit(0 if summary({name: run_stage(name) for name in names}) else 1)


if __name__ == "__main__":
    main()
