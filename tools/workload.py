"""A program that allocates hard on real input; `make run` runs it.

Reads the Python standard library's own sources and processes them as typical
programs do: parses them in two worker threads (whose blocks the main thread frees),
tokenises them, counts words in dictionaries, builds an index, writes and reads it as
JSON, sorts, compresses, joins long strings.

Prints a digest of everything it computed, which is the same on every run of the same
Python under any allocator. Run it with PYTHONMALLOC=malloc; otherwise most blocks
come from Python's own small-object allocator.
"""

import ast
import collections
import concurrent.futures
import hashlib
import io
import json
import os
import sysconfig
import tokenize
import zlib

PARSE_BYTES = 5_000_000
TOKENISE_BYTES = 1_000_000
COUNT_BYTES = 8_000_000


def sources(limit):
    """The standard library's .py files, in a fixed order, up to limit bytes."""
    root = sysconfig.get_paths()["stdlib"]
    total = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            f for f in folders if f not in ("test", "tests", "site-packages", "dist-packages",
                                            "__pycache__", "idlelib", "lib2to3"))
        for name in sorted(files):
            if not name.endswith(".py"):
                continue
            with open(os.path.join(folder, name), "rb") as f:
                text = f.read().decode("utf-8", "replace")
            total += len(text)
            if total > limit:
                return
            yield os.path.relpath(os.path.join(folder, name), root), text


def parse(item):
    name, text = item
    try:
        return name, ast.parse(text)
    except SyntaxError:
        return name, ast.parse("")


def count_nodes(threads):
    """Trees that the workers build and this thread walks and frees."""
    kinds = collections.Counter()
    names = collections.defaultdict(list)
    files = list(sources(PARSE_BYTES))
    for name, tree in threads.map(parse, files):
        for node in ast.walk(tree):
            kinds[type(node).__name__] += 1
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names[node.name].append(f"{name}:{node.lineno}")
    return kinds, names


def count_tokens():
    tokens = collections.Counter()
    for _, text in sources(TOKENISE_BYTES):
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                tokens[token.string] += 1
        except (tokenize.TokenError, SyntaxError):
            pass
    return tokens


def count_words():
    words = collections.Counter()
    lines = []
    for _, text in sources(COUNT_BYTES):
        words.update(text.split())
        lines.extend(text.splitlines())
    lines.sort()
    return words, lines


def main():
    digest = hashlib.sha256()

    def add(title, value):
        text = json.dumps(value, sort_keys=True)
        digest.update(text.encode())
        print(f"{title:<28}{len(value):>10,}")
        return text

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        kinds, names = count_nodes(threads)
    add("kinds of syntax nodes", kinds)
    index = add("functions and classes", names)
    add("different tokens", count_tokens())
    words, lines = count_words()
    add("different words", words)
    add("lines, sorted", lines)

    for _ in range(3):  # growing and shrinking big blocks
        again = json.loads(index)
        index = json.dumps(again, indent=1, sort_keys=True)
    packed = zlib.compress("\n".join(lines).encode(), 1)
    unpacked = zlib.decompress(packed).decode()
    add("index, indented, characters", index)
    digest.update(unpacked.encode())
    print("digest", digest.hexdigest())


if __name__ == "__main__":
    main()
