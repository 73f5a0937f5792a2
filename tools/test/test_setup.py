"""Tests of tools/setup.sh on a simulated system; a few are for root only."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ("gcc", "g++", "make", "ninja", "git")  # what `make build` needs beside cmake and python3
# A venv whose pip brings a CMake of version 3.31, if it brings any.
PYTHON = """case "$*" in
"-m venv build/tools/venv")
  mkdir -p build/tools/venv/bin build/tools/venv/lib/python3.1/site-packages/cmake/data/bin
  cp "$0" build/tools/venv/bin/python ;;
"-m pip "*)
  {pip} || exit
  printf '#!/bin/sh\\necho cmake version 3.31.1\\n' >build/tools/venv/lib/python3.1/site-packages/cmake/data/bin/cmake
  chmod 755 build/tools/venv/lib/python3.1/site-packages/cmake/data/bin/cmake ;;
esac"""


class Setup(unittest.TestCase):
    def setUp(self):
        self.tree = pathlib.Path(tempfile.mkdtemp(prefix="hakmem-setup-"))
        self.addCleanup(shutil.rmtree, self.tree)
        for folder in ("tools", "commands"):
            (self.tree / folder).mkdir()
        shutil.copy(ROOT / "tools" / "setup.sh", self.tree / "tools")
        for command in ("bash", "dirname", "mkdir", "cp", "rm", "ln", "chmod", "mktemp"):
            (self.tree / "commands" / command).symlink_to(shutil.which(command))
        for command in (*BUILD, "apt-get"):
            self.command(command, "exit 0")
        self.command("python3", PYTHON.format(pip="true"))
        self.cmake("3.25.1")

    def command(self, name, script):
        path = self.tree / "commands" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def cmake(self, version):
        """The CMake that is installed and offered."""
        self.command("cmake", f"echo cmake version {version}")
        self.offered(f"cmake) echo 'Candidate: {version}-1' ;; *) echo 'Candidate: 1' ;;")

    def offered(self, cases, lists="echo ' 500 file:/srv stable/main amd64 Packages'"):
        self.command("apt-cache", f'case "$2" in "") {lists} ;; {cases} esac')

    def no_lists(self):
        """An installed package has a candidate all the same."""
        self.offered("cmake | libc6) echo 'Candidate: 3.25.1' ;; *) echo 'Candidate: (none)' ;;", lists=":")

    def run_setup(self, target="build", root=False, **environment):
        other = {}
        if os.geteuid() == 0 and not root:
            other = {"user": 65534, "group": 65534, "extra_groups": []}
            try:
                for path in (self.tree, *self.tree.rglob("*")):
                    os.chown(path, 65534, 65534, follow_symlinks=False)
                subprocess.run(["sh", "-c", 'test -r "$0"', self.tree / "tools" / "setup.sh"], check=True, **other)
            except (OSError, subprocess.CalledProcessError) as why:  # root without capabilities, a TMPDIR of root's own
                self.skipTest(f"no other user can be tried: {why}")
        return subprocess.run([shutil.which("bash"), self.tree / "tools" / "setup.sh", target], text=True,
                              capture_output=True, env={"PATH": str(self.tree / "commands"), **environment}, **other)

    def test_says_nothing_if_nothing_is_missing(self):
        result = self.run_setup()
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_prints_the_one_command(self):
        (self.tree / "commands" / "ninja").unlink()
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, "sudo apt-get install -y ninja-build\n")
        self.no_lists()
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, f"sudo {self.tree}/tools/setup.sh build\n")

    def test_names_a_required_package_that_is_not_offered(self):
        (self.tree / "commands" / "ninja").unlink()
        self.offered("ninja-build) echo 'Candidate: (none)' ;; *) echo 'Candidate: 1' ;;")
        result = self.run_setup()
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(result.stderr, "setup: make build needs ninja-build, and this distribution has no such package\n")

    def test_optional_packages_stop_nobody(self):
        result = self.run_setup("bench")
        self.assertEqual((result.returncode, result.stdout), (0, "sudo apt-get install -y valgrind\n"))
        self.assertIn("going on without valgrind", result.stderr)
        self.offered("valgrind) echo 'Candidate: (none)' ;; *) echo 'Candidate: 1' ;;")
        result = self.run_setup("bench")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertEqual(result.stderr, "setup: this distribution has no valgrind (what needs them is skipped)\n")

    def test_says_that_nothing_can_be_run_in_tmpdir(self):
        with open("/proc/mounts", encoding="utf-8") as f:
            mounts = [where for _, where, kind, flags, *_ in map(str.split, f) if kind == "tmpfs" and "noexec" in flags.split(",")]
        places = [where for where in mounts if os.path.isdir(where) and os.stat(where).st_mode & 0o002]
        if not places:
            self.skipTest("no folder for all is mounted noexec")
        folder = tempfile.mkdtemp(prefix="hakmem-setup-", dir=places[0])
        self.addCleanup(shutil.rmtree, folder)
        os.chmod(folder, 0o777)
        result = self.run_setup("test", TMPDIR=folder)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, rf"\Asetup: the tests run programs in {folder}, where none .*\n\Z")
        self.assertEqual(os.listdir(folder), [])

    def test_clang_19_is_required_in_ci_only(self):
        for command in ("valgrind", "objdump"):
            self.command(command, "exit 0")
        self.offered("*19*) echo 'Candidate: (none)' ;; *) echo 'Candidate: 1' ;;")
        result = self.run_setup("test")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, "this distribution has no clang-19 .*skipped")
        result = self.run_setup("test", CI="true")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "make test needs clang-19( libclang-rt-19-dev)?, and this distribution has no")

    @unittest.skipIf(os.geteuid(), "takes root")
    def test_root_without_network(self):
        (self.tree / "commands" / "ninja").unlink()
        self.no_lists()
        result = self.run_setup(root=True)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr.splitlines()[-1],
                         "setup: make build needs ninja-build, which could not be installed (no network?)")

    @unittest.skipIf(os.geteuid(), "takes root")
    def test_root_looks_for_no_lists_if_all_that_is_missing_is_not_offered(self):
        self.command("apt-get", "echo called; exit 1")
        self.offered("valgrind) echo 'Candidate: (none)' ;; *) echo 'Candidate: 1' ;;")
        result = self.run_setup("bench", root=True)
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr, r"\Asetup: this distribution has no valgrind .*\n\Z")

    def test_fetches_a_cmake_where_the_offered_one_is_too_old(self):
        self.cmake("3.22.1")
        result = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("goes into build/tools", result.stderr)
        version = subprocess.run([self.tree / "build" / "tools" / "bin" / "cmake"], capture_output=True, text=True)
        self.assertEqual(version.stdout, "cmake version 3.31.1\n")
        self.assertEqual(self.run_setup().stderr, "")

    @unittest.skipIf(os.geteuid(), "takes root")
    def test_what_root_fetches_is_the_owner_s(self):
        (self.tree / "commands" / "chown").symlink_to(shutil.which("chown"))
        self.run_setup()  # the tree is another user's
        self.cmake("3.22.1")
        self.assertEqual(self.run_setup(root=True).returncode, 0)
        for path in ("build", "build/tools/bin/cmake"):
            self.assertEqual((self.tree / path).lstat().st_uid, 65534)

    def test_says_that_a_cmake_cannot_be_fetched(self):
        self.cmake("3.22.1")
        self.command("python3", PYTHON.format(pip="false"))
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("please install CMake 3.25 or later", result.stderr.splitlines()[-1])
        self.assertFalse((self.tree / "build" / "tools").exists())


if __name__ == "__main__":
    unittest.main()
