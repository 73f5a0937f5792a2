"""Profile-guided build of libhakmem.so; behind `make pgo`.

    python3 tools/pgo.py [--no-compare]

Builds an instrumented library in build/pgo-train, runs the project's benchmarks
and the program of `make run` on it, and builds build/pgo/libhakmem.so with the
counts and link-time optimisation. Then compares it with build/libhakmem.so in
interleaved runs, which shows whether it gains anything.
"""

import argparse
import os
import shutil
import subprocess
import sys

from userfiles import loadable

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BUILD = os.path.join(ROOT, "build")
TRAIN, FOLDER = os.path.join(BUILD, "pgo-train"), os.path.join(BUILD, "pgo")
PROFILE = os.path.join(TRAIN, "profile")
WORK = (("bench/bench_tiny_hot", "5000000"), ("bench/bench_random_mixed", "4000000", "8192", "42"),
        ("bench/bench_random_mixed", "1000000", "400000", "42"),
        ("bench/larson", "1", "8", "1000", "5000", "100", "4141", "4"),
        ("bench/bench_mid_large_mt", "2", "300000", "256"),
        ("bench/bench_mid_large_mt", "2", "200000", "256", "--handover", "50"))


def run_quietly(*command):
    """Prints what the command said only if it fails: Ninja's compiler errors are on its standard output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        sys.exit(f"{done.stdout}pgo.py: {' '.join(command[:3])} ... failed")


def build(folder, pgo):
    run_quietly("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                "-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++", "-DHAK_TESTS=OFF", "-DHAK_BENCH=OFF",
                f"-DHAK_PGO={pgo}", f"-DHAK_PGO_FOLDER={PROFILE}")
    run_quietly("cmake", "--build", folder, "--target", "hakmem")
    return os.path.join(folder, "libhakmem.so")


def train(library):
    shutil.rmtree(PROFILE, ignore_errors=True)
    environment = os.environ | {"LD_PRELOAD": loadable(library), "PYTHONMALLOC": "malloc"}
    for command in WORK:
        print("training:", *command, flush=True)
        subprocess.run([os.path.join(BUILD, command[0]), *command[1:]], env=environment, check=True,
                       stdout=subprocess.DEVNULL)
    print("training: tools/workload.py", flush=True)
    subprocess.run([sys.executable, os.path.join(ROOT, "tools", "workload.py")], env=environment, check=True,
                   stdout=subprocess.DEVNULL)
    counts = [name for _, _, names in os.walk(PROFILE) for name in names if name.endswith(".gcda")]
    if not counts:
        sys.exit("pgo.py: the instrumented library has left no counts")
    print(f"{len(counts)} files of counts")


def move_counts():
    """gcc looks for the counts by the object's path, which differs in FOLDER."""
    for path, _, names in os.walk(PROFILE):
        for name in names:
            if "pgo-train" in name:
                os.rename(os.path.join(path, name), os.path.join(path, name.replace("pgo-train", "pgo")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-compare", action="store_true", help="do not compare it with build/libhakmem.so")
    args = parser.parse_args()
    train(build(TRAIN, "generate"))
    move_counts()
    shutil.rmtree(FOLDER, ignore_errors=True)
    library = build(FOLDER, "use")
    print("built", os.path.relpath(library, ROOT))
    if args.no_compare:
        return 0
    return subprocess.run([sys.executable, "-B", os.path.join(ROOT, "bench", "compare.py"), "--allocators",
                           f"plain={BUILD}/libhakmem.so,pgo={library}", "--benchmarks",
                           "tiny_hot,random_mixed,random_mixed_256,larson,mid_mt2", "--net", "--rounds", "9"],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
