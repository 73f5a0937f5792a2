"""The rules of the source tree that a script can see.

    python3 check_layers.py SRC

- A file includes only its own folder's headers and those of folders to the left
  of it in base < os < core < superslab < pool < thread < api.
- Only src/os maps, unmaps, protects or advises memory.
- No source file is longer than 600 lines.
- Rows of .def tables have a help text, and names of their own.
- The allocator's sources that exist are the ones that are built.
"""

import pathlib
import re
import sys

LAYERS = ("base", "os", "core", "superslab", "pool", "thread", "api")
LINES_MAX = 600
MEMORY_CALLS = re.compile(r"\b(mmap|mmap64|munmap|mremap|mprotect|madvise|brk|sbrk)\s*\(")


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def without_strings(text):
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def check_file(source, path):
    layer = path.relative_to(source).parts[0]
    text = path.read_text(encoding="utf-8")
    code = without_comments(text)
    if len(text.splitlines()) > LINES_MAX:
        yield f"{len(text.splitlines())} lines, more than {LINES_MAX}"
    for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', code, re.MULTILINE):
        folder = included.split("/")[0]
        if included == "hakmem/hakmem.h":
            if layer != "api":
                yield "includes the public header below api"
        elif folder not in LAYERS or not (source / included).is_file():
            yield f"includes {included}, which is no header of this tree"
        elif LAYERS.index(folder) > LAYERS.index(layer):
            yield f"includes {included}, which is above {layer}"
    if layer == "os":
        return
    if re.search(r"#\s*include\s+<(sys/mman|sys/syscall|linux/[^>]+)\.h>", code):
        yield "includes a system-call header outside os"
    for call in MEMORY_CALLS.findall(without_strings(code)):
        yield f"calls {call} outside os"


def rows(text):
    """Macro rows of a table with their last argument's string, joined."""
    for row in re.finditer(r"^HAK_(?:OPTION|CHOICE|TEXT|STAT)\s*\(((?:[^()\"]|\"(?:\\.|[^\"\\])*\"|"
                           r"\([^()]*\))*)\)", without_comments(text), re.MULTILINE):
        arguments = row.group(1)
        help_text = re.search(r'((?:"(?:\\.|[^"\\])*"\s*)+)$', arguments)
        parts = re.findall(r'"((?:\\.|[^"\\])*)"', help_text.group(1)) if help_text else []
        yield arguments.split(",")[0].strip(), "".join(parts).strip()


def check_table(path):
    found = list(rows(path.read_text(encoding="utf-8")))
    heads = len(re.findall(r"^HAK_\w+\s*\(", path.read_text(encoding="utf-8"), re.MULTILINE))
    if not found or len(found) != heads:
        yield f"{heads} rows, of which {len(found)} could be read"
    for name, help_text in found:
        if len(help_text) < 10:
            yield f"{name} has no help text"
    names = [name for name, _ in found]
    for name in set(names):
        if names.count(name) > 1:
            yield f"{name} is there twice"


def check_built(source):
    built = set(re.findall(r"\b([\w/]+\.c(?:pp)?)\b", (source / "CMakeLists.txt").read_text(encoding="utf-8")))
    there = {str(p.relative_to(source)) for p in source.rglob("*.c*") if p.suffix in (".c", ".cpp")}
    for name in sorted(built ^ there):
        yield f"{name} is " + ("not built" if name in there else "built, but not there")


def main(source):
    source = pathlib.Path(source)
    faults = []
    files = sorted(p for kind in ("*.c", "*.cpp", "*.h", "*.def") for p in source.rglob(kind))
    for path in files:
        if path.relative_to(source).parts[0] not in LAYERS:
            faults.append(f"{path}: in no layer")
            continue
        faults += [f"{path}: {fault}" for fault in check_file(source, path)]
    for name in ("core/options.def", "base/stats.def"):
        faults += [f"{source / name}: {fault}" for fault in check_table(source / name)]
    faults += [f"{source / 'CMakeLists.txt'}: {fault}" for fault in check_built(source)]
    print("\n".join(faults) if faults else f"{len(files)} files keep the rules")
    return int(bool(faults) or len(files) < 20)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
