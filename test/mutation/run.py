#!/usr/bin/env python3
"""Breaks one mechanism after the other, and demands that tests notice: run.py [NAME...]

Works on a copy of the sources in build/mutation. The tests named in mutations.py must pass
there; then, for each mutation, its tests must fail after the edit. An edit that no longer
applies is a failure: the table must follow the sources. --short runs only a few mutations,
but checks for all of them whether they apply.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

from mutations import MUTATIONS, Mutation  # noqa: E402

COPIED = ("CMakeLists.txt", "include", "src", "test", "tools", "bench", "trace")


class Copy:
    """A copy of the sources and its build, separate from those of the tree."""

    def __init__(self, folder: str, jobs: str):
        self.source, self.build, self.jobs = os.path.join(folder, "source"), os.path.join(folder, "build"), jobs
        os.makedirs(folder, exist_ok=True)
        paths = sources(ROOT)
        for path in paths:
            self._refresh(path)
        remove_others(self.source, paths)
        self._do("cmake", "-G", "Ninja", "-S", self.source, "-B", self.build, "-DCMAKE_BUILD_TYPE=Release",
                 "-DHAK_TESTS=ON", "-DHAK_BENCH=OFF")

    def _refresh(self, path: str) -> None:
        """Copies the file if it differs; others keep their times, so that little is rebuilt."""
        if read(os.path.join(ROOT, path)) != read(os.path.join(self.source, path)):
            os.makedirs(os.path.dirname(os.path.join(self.source, path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(self.source, path))

    def _do(self, *command: str) -> None:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, text=True, errors="replace", capture_output=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")

    def make(self, targets: set[str]) -> None:
        self._do("cmake", "--build", self.build, "-j", self.jobs, "--target", *sorted(targets))

    def passes(self, test: str) -> bool:
        """Runs one test of CTest; a test that does not exist is a mistake in the table."""
        done = subprocess.run(["ctest", "--test-dir", self.build, "-R", f"^{re.escape(test)}$", "--timeout", "300"],
                              stdin=subprocess.DEVNULL, text=True, errors="replace", capture_output=True)
        if "No tests were found" in done.stdout + done.stderr or "***Skipped" in done.stdout:
            raise SystemExit(f"{test} is not there, or was skipped:\n{done.stdout}{done.stderr}")
        if "***Timeout" in done.stdout:
            raise SystemExit(f"{test} was not done in time:\n{done.stdout}")
        return done.returncode == 0

    def edit(self, mutation: Mutation) -> bytes:
        """Applies the mutation; returns the file's previous content."""
        path = os.path.join(self.source, mutation.file)
        before = read(path) or b""
        write(path, before.replace(mutation.old.encode(), mutation.new.encode()))
        return before

    def restore(self, mutation: Mutation, before: bytes) -> None:
        write(os.path.join(self.source, mutation.file), before)


def sources(root: str) -> list[str]:
    """The files below root that are copied, relative to root."""
    return [name for name in COPIED if os.path.isfile(os.path.join(root, name))] + [
        os.path.relpath(os.path.join(base, file), root)
        for name in COPIED for base, _, files in os.walk(os.path.join(root, name)) for file in files]


def remove_others(copy: str, paths: list[str]) -> None:
    """Removes files that the tree no longer has; the copy would build or find them by pattern."""
    for path in set(sources(copy)) - set(paths):
        os.remove(os.path.join(copy, path))


def read(path: str) -> bytes | None:
    if not os.path.exists(path):
        return None
    with open(path, "rb") as f:
        return f.read()


def write(path: str, content: bytes) -> None:
    with open(path, "wb") as f:
        f.write(content)


def applies(mutation: Mutation) -> bool:
    return (read(os.path.join(ROOT, mutation.file)) or b"").count(mutation.old.encode()) == 1


def unnoticed(copy: Copy, mutation: Mutation) -> str:
    """'' if all of its tests notice the mutation, else what is wrong."""
    before = copy.edit(mutation)
    try:
        copy.make(set(mutation.targets))
        passed = [test for test in mutation.tests if copy.passes(test)]
    finally:
        copy.restore(mutation, before)
    return f"{' '.join(passed)} still pass" if passed else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "mutation"))
    parser.add_argument("--jobs", default=os.environ.get("JOBS", "2"))
    parser.add_argument("name", nargs="*", metavar="NAME", help="of mutations (all)")
    args = parser.parse_args()
    names = [m.name for m in MUTATIONS]
    if unknown := [name for name in args.name if name not in names]:
        parser.error(f"no mutation {unknown[0]}; there are: {' '.join(names)}")
    stale = [m for m in MUTATIONS if not applies(m)]
    for mutation in stale:
        print(f"FAILED: {mutation.name}: no longer applies: {mutation.file} does not have, or has more than once: "
              f"{mutation.old!r}", flush=True)
    chosen = [m for m in MUTATIONS if m not in stale and
              (m.name in args.name or (not args.name and (m.short or not args.short)))]
    copy = Copy(args.folder, args.jobs)
    copy.make({target for m in chosen for target in m.targets})
    failed = [test for test in sorted({test for m in chosen for test in m.tests}) if not copy.passes(test)]
    for test in failed:
        print(f"FAILED: {test} does not pass as things are", flush=True)
    failed += [mutation.name for mutation in stale]
    for mutation in chosen:
        start = time.monotonic()
        wrong = unnoticed(copy, mutation)
        print(f"{'FAILED' if wrong else 'ok'}: {mutation.name}: {mutation.promise}: "
              f"{wrong or 'noticed by ' + ' '.join(mutation.tests)}; {time.monotonic() - start:.0f} s", flush=True)
        if wrong:
            failed.append(mutation.name)
    print(f"{len(chosen)} mutations, {len(failed)} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
