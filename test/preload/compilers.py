"""Compilers, build tools and debuggers under HAKMEM. Each function is one program (see
run.py). Object files must be byte for byte the same as without HAKMEM."""

import os

from harness import ROOT, Failure, Skip, loadable, need


def _generated_c(functions):
    """C with much for an optimiser to do: loops, switches, structs, calls between functions."""
    lines = ["#include <math.h>", "#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>",
             "typedef struct node { struct node *next; long key; double value; char name[24]; } node;"]
    for i in range(functions):
        calls = "".join(f" + f{i - k}(x ^ {k}, n)" for k in (1, 7, 31) if i >= k and i % (k + 1) == 0)
        cases = "".join(f"    case {c}: s += x * {c + i}; n = n->next ? n->next : n; break;\n"
                        for c in range(i % 13 + 2))
        lines.append(f"""
long f{i}(long x, node *n) {{
  long s = {i}, a[{i % 29 + 3}] = {{0}};
  for (long k = 0; k < x % {i % 17 + 5}; k++) {{
    a[k % {i % 29 + 3}] += (long)(sqrt((double)(k + {i})) * n->value);
    switch ((k ^ x) % {i % 13 + 3}) {{
{cases}    default: snprintf(n->name, sizeof n->name, "n%ld-{i}", s);
    }}
    s += a[k % {i % 29 + 3}] + (long)strlen(n->name);
  }}
  return s{calls};
}}""")
    lines.append(f"int main(int c, char **v) {{ (void)v; node n = {{&n, c, 1.5, \"x\"}}; "
                 f"printf(\"%ld\\n\", f{functions - 1}(c + 40, &n)); return 0; }}")
    return "\n".join(lines) + "\n"


CPP = r"""
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>
template <int N> struct Tower { using type = std::map<std::string, typename Tower<N - 1>::type>; };
template <> struct Tower<0> { using type = std::vector<std::variant<int, std::string>>; };
int main() {
  Tower<8>::type tower; tower["a"]["b"]["c"]["d"]["e"]["f"]["g"]["h"].emplace_back("x");
  std::regex word("([a-z]+)([0-9]*)"); std::set<std::string> found; std::ostringstream text;
  std::mt19937 random(1); for (int i = 0; i < 5000; i++) text << "w" << random() % 997 << ' ';
  const std::string all = text.str();
  for (std::sregex_iterator i(all.begin(), all.end(), word), end; i != end; ++i) found.insert(i->str());
  std::unordered_map<std::string, std::shared_ptr<std::string>> shared;
  std::thread other([&] { for (auto &s : found) shared[s] = std::make_shared<std::string>(s + s); });
  other.join();
  std::vector<std::function<size_t()>> jobs;
  for (auto &entry : shared) jobs.push_back([p = entry.second] { return p->size(); });
  size_t sum = 0; for (auto &job : jobs) sum += job();
  std::cout << found.size() << ' ' << sum << ' ' << tower.size() << '\n';
}
"""


def _compile_and_run(h, compiler, source, *options):
    """Compiles through a temporary .s and as; then links and runs, under HAKMEM."""
    before = h.served_processes()
    h.same(compiler, *options, "-c", source, "-o", "work.o", files=[h.path("work.o")])
    children = h.served_processes() - before - 1
    if children < 1:
        raise Failure(f"{compiler}: HAKMEM served no child process (cc1, as)")
    h.under(compiler, "work.o", "-o", "work", "-lm", "-pthread")
    done = h.same(h.path("work"))
    return f"identical object, it prints {done.text.strip()}"


def gcc(h):
    source = h.write("big.c", _generated_c(300))
    return _compile_and_run(h, need("gcc"), source, "-O2", "-g", "-w")


def gxx(h):
    return _compile_and_run(h, need("g++"), h.write("work.cpp", CPP), "-O2", "-g", "-std=c++17")


def clang(h):
    # -fintegrated-cc1 (the default) compiles in the driver's own process; ask for children, as
    # with gcc, so that both are checked.
    return _compile_and_run(h, need("clang-19"), h.write("big.c", _generated_c(300)),
                            "-O2", "-g", "-w", "-fno-integrated-cc1")


MAKEFILE = """
objects := $(patsubst %.c,%.o,$(sort $(wildcard part*.c)))
program: $(objects)
\tcc -o $@ $^
%.o: %.c parts.h
\tcc -O1 -w -c -o $@ $<
"""


def make(h):
    """make -j2 of a small project: identical objects, and the program runs."""
    need("cc")
    parts = 24
    h.write("parts.h", "".join(f"int part{i}(int);\n" for i in range(parts)))
    for i in range(parts):
        before = f"part{i - 1}(x)" if i else "0"
        h.write(f"part{i}.c", '#include <stdio.h>\n#include "parts.h"\n'
                f"int part{i}(int x) {{ return x * {i + 3} % 1009 + {before}; }}\n")
    h.write("partmain.c", '#include <stdio.h>\n#include "parts.h"\n'
            f'int main(void) {{ printf("%d\\n", part{parts - 1}(77)); }}\n')
    h.write("Makefile", MAKEFILE)
    objects = [h.path(f"part{i}.o") for i in range(parts)]
    program = h.path("program")
    h.same(need("make"), "-s", "-j2", "program", files=[*objects, program],
           extra={"MAKEFLAGS": "", "MAKELEVEL": "0"})
    done = h.plain(program)
    return f"{parts} identical objects, the program prints {done.text.strip()}"


def self_build(h):
    """Configures and builds HAKMEM with itself preloaded; then the result is preloaded in turn."""
    cmake = need("cmake")
    need("ninja")
    build = h.path("build")
    h.under(cmake, "-G", "Ninja", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
            "-DHAK_TESTS=OFF", "-DHAK_BENCH=OFF")
    h.under(cmake, "--build", build, "--target", "hakmem", "-j", "2")
    library = os.path.join(build, "libhakmem.so")
    if not os.path.exists(library):
        raise Failure("the build ended well but there is no libhakmem.so")
    h.under(need("git"), "--version", extra={"LD_PRELOAD": loadable(library)})
    return "the library built under itself serves git"


GDB = """
set confirm off
set pagination off
break inner
run
backtrace
print total
print *item
info line inner
watch total
continue
delete
continue
"""
DEBUGGED = """
#include <stdio.h>
#include <stdlib.h>
struct item { int key; double weight; };
static int total;
__attribute__((noinline)) void inner(struct item *item) { total += item->key; }
int main(void) {
  struct item *item = malloc(sizeof *item);
  item->key = 41; item->weight = 2.5;
  inner(item);
  printf("total %d\\n", total);
  free(item);
  return 0;
}
"""


def gdb(h):
    """Breakpoint, backtrace, watchpoint; the debugger is served by HAKMEM."""
    debugger, compiler = need("gdb", "gcc")
    h.plain(compiler, "-g", "-O0", "-o", "debugged", h.write("debugged.c", DEBUGGED))
    commands = h.write("commands.gdb", GDB)
    command = (debugger, "-nx", "-batch", "-x", commands, h.path("debugged"))
    expected = "total 41"
    if expected not in h.plain(*command, status=None).text:
        raise Skip("gdb cannot trace a program on this machine")
    done = h.under(*command)
    for text in ("inner (item=", "key = 41, weight = 2.5", "New value = 41", expected):
        if text not in done.text:
            raise Failure(f"gdb: no '{text}' in its output:\n{done.text}")
    return f"breakpoint, watchpoint, {done.allocs:,} allocations"


def valgrind(h):
    """Valgrind's core with the library loaded into its client (no tool replaces malloc)."""
    done = h.same(need("valgrind"), "--tool=none", "-q", need("git"), "--version")
    return f"client: {done.text.strip()}"
