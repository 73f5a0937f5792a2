"""Where real programs' refills come from (rows S2 and X2): of all refills of a program at work, more than 90 %
are served by the slab in front or the warm pool, without the shared search. `supply` prints a line for each program:

    make check R=preload.supply V=1
"""

import json
import os
import sys

import compilers
import data
from harness import Failure, Skip, need

AT_LEAST = 0.9
SLABS_AT_LEAST = 50000  # slabs that larson uses up: with fewer, its start decides its share
STAGES = ("carve", "remote", "warm", "commons", "adopt", "pool", "draining", "reuse", "map", "failed")
UNSHARED = STAGES[:5]

PYTHON = """
import collections, json, random, re
random.seed(1)
records = [{"id": i, "name": f"n{i}", "tags": [str(random.random()) for _ in range(5)], "sub": {"a": i, "b": [1, 2, i]}}
           for i in range(20000)]
for _ in range(3):
  text = json.dumps(records)
  again = json.loads(text)
  count = collections.Counter(tag for record in again for tag in record["tags"])
  words = re.findall(r"n[0-9]+", text)
  by_name = {record["name"]: record for record in again}
  ordered = sorted(by_name.values(), key=lambda record: record["tags"][0])
"""

CPP = """
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>
template <int N> struct Step {
  std::map<std::string, std::vector<std::variant<int, double, std::string>>> map;
  std::unordered_map<int, std::function<int(int)>> functions;
  int go(int x) {
    map["a"].push_back(x);
    functions[x] = [=](int y) { return x * y + N; };
    std::set<std::pair<int, std::string>> set;
    for (int i = 0; i < x; i++) set.insert({i, std::to_string(i)});
    return (int)set.size() + functions[x](N) + std::regex_match("abc", std::regex("a(b|c)*"));
  }
};
template <int N> int all(int x) { Step<N> step; if constexpr (N > 0) return step.go(x) + all<N - 1>(x); else return 0; }
int main(int argc, char **) { std::cout << all<40>(argc); }
"""


def _greatest(h, before):
    """Statistics of the process with the most allocations whose file is not in `before`."""
    found = []
    for name in set(os.listdir(h.stats)) - before:
        with open(os.path.join(h.stats, name), encoding="utf-8") as file:
            found.append(json.load(file))
    return max(found, key=lambda stats: stats["allocs"])


def _benchmark(h, name, *arguments):
    program = os.path.join(os.path.dirname(h.library), "bench", name)
    if not os.path.exists(program):
        raise Skip(f"{name} is not built")
    h.under(program, *arguments)


def _random_mixed(h):
    _benchmark(h, "bench_random_mixed", "10000000", "8192", "42", "256", "256")


def _python(h):
    h.under(sys.executable, h.write("work.py", PYTHON), extra={"PYTHONMALLOC": "malloc"})


def _gcc(h):
    h.under(need("gcc"), "-O2", "-g", "-w", "-c", h.write("big.c", compilers._generated_c(500)), "-o", h.path("big.o"))


def _gxx(h):
    h.under(need("g++"), "-O2", "-std=c++17", "-c", h.write("work.cpp", CPP), "-o", h.path("work.o"))


def _redis(h):
    need("redis-server", "redis-cli", "redis-benchmark")
    data._redis_life(h, "under", h.environment)


def supply(h):
    said, low = [], []
    for name, run in (("random_mixed 256 B", _random_mixed), ("python3", _python), ("gcc", _gcc), ("g++", _gxx),
                      ("redis", _redis)):
        before = set(os.listdir(h.stats))
        try:
            run(h)
        except Skip as reason:
            said.append(f"{name}: {reason}")
            continue
        stats = _greatest(h, before)
        stage = {s: stats["counters"][f"refill_{s}"] for s in STAGES}
        share = sum(stage[s] for s in UNSHARED) / sum(stage.values())
        said.append(f"{name}: {stats['allocs']:,} allocations, {sum(stage.values()):,} refills, {100 * share:.1f} % "
                    f"without the shared search ({', '.join(f'{s} {n:,}' for s, n in stage.items() if n)})")
        if share <= AT_LEAST:
            low.append(name)
    print(*said, sep="\n")
    if low:
        raise Failure(f"at most {100 * AT_LEAST:.0f} %: {', '.join(low)}")
    return f"{len(said)} programs"


LARSON = "8", "1000", "5000", "100", "4141", "4"  # these follow the seconds


def commons(h):
    """Only threads whose blocks others free give slabs away (docs/decisions/0029-commons.md)."""
    said, shares = [], []
    for run in (("case_producer", "4", "400000"), ("larson", "1", *LARSON)):
        before = set(os.listdir(h.stats))
        _benchmark(h, *run)
        counters = _greatest(h, before)["counters"]
        if run[0] == "larson" and counters["slab_full"] < SLABS_AT_LEAST:
            before = set(os.listdir(h.stats))
            _benchmark(h, "larson", "10", *LARSON)
            counters = _greatest(h, before)["counters"]
        shares.append(counters["commons_give"] / counters["slab_full"])
        said.append(f"{run[0]}: {counters['commons_give']:,} given of {counters['slab_full']:,} slabs used up")
    print(*said, sep="\n")
    if shares[0] < 0.5 or shares[1] > 0.01:
        raise Failure("; ".join(said))
    return f"{len(said)} programs"
