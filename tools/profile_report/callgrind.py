"""Instructions by function and address, from callgrind."""

import collections
import os
import subprocess

from userfiles import loadable

from . import layers


def parse(text):
    """{(object, function, address): instructions} of callgrind's uncompressed output."""
    counts, objects, function, skip = collections.Counter(), "", "", False
    for line in text:
        first = line[:1]
        if first == "0":
            if skip:  # the cost of a callee
                skip = False
                continue
            words = line.split()
            if len(words) >= 3 and words[0].startswith("0x"):
                counts[objects, function, int(words[0], 16)] += int(words[2])
        elif line.startswith("calls="):
            skip = True
        elif line.startswith("fn="):
            function = line[3:].strip()
        elif line.startswith("ob="):
            objects = line[3:].strip()
    return counts


def profile(counts, library):
    """Profile of parsed counts; library is a symbols.Library."""
    result = layers.Profile("callgrind", "instructions")
    ours = os.path.realpath(library.path)
    real = {name: os.path.realpath(name) for name in {key[0] for key in counts}}
    library.resolve(address for (name, _, address) in counts if real[name] == ours)
    for (name, function, address), n in counts.items():
        if real[name] == ours:
            result.add_library(function.split("'")[0], library.chain(address), n)
        else:
            result.add(layers.of_object(name), f"{function} ({os.path.basename(name)})", n)
    return result


def count(command, library, folder, environment):
    """How a run of command with the library preloaded ended, and its counts; None if there are none."""
    out = os.path.join(folder, "callgrind.out")
    done = subprocess.run(["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-strings=no",
                           "--compress-pos=no", f"--callgrind-out-file={out}", *command],
                          env=environment | {"LD_PRELOAD": loadable(library)}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    if not os.path.exists(out):
        return done, None
    with open(out, encoding="utf-8", errors="replace") as f:
        return done, parse(f)


def run(command, library, folder, environment):
    """Profile of a run of command; None and the reason if it failed."""
    done, counts = count(command, library.path, folder, environment)
    if counts is None:
        return None, f"callgrind ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    return profile(counts, library), None
