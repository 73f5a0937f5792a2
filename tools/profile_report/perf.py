"""Time by sampling: perf with hardware cycles, or with its clock where there are no counters."""

import os
import re
import shutil
import subprocess

from userfiles import loadable

from . import layers

FREQUENCY = "2999"  # in step with no other periodic event
FRAME = re.compile(r"^\s+([0-9a-f]+) (.*) \(([^()]*(?:\(deleted\))?)\)$")


def event():
    """"cycles", "cpu-clock", or None and why."""
    if not shutil.which("perf"):
        return None, "perf is not installed (Debian: linux-perf)"
    why = ""
    for name in ("cycles", "cpu-clock"):
        done = subprocess.run(["perf", "stat", "-x,", "-e", name, "true"], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        if done.returncode == 0 and "<not" not in done.stderr:
            return name, None
        why = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode)
    return None, f"perf does not work here: {why[:200]}"


def parse(text):
    """[[(ip, symbol, object)...]...]: one chain per sample, innermost frame first."""
    samples, chain = [], None
    for line in text:
        frame = FRAME.match(line)
        if frame and chain is not None:
            symbol = frame[2].split("+0x")[0]
            chain.append((int(frame[1], 16), "" if symbol == "[unknown]" else symbol, frame[3]))
        elif line.strip():
            chain = []
            samples.append(chain)
    return [chain for chain in samples if chain]


def profile(samples, library, name):
    result = layers.Profile(f"perf {name}", "samples")
    ours = os.path.realpath(library.path)
    real = {path: os.path.realpath(path) for path in {chain[0][2] for chain in samples}}
    place = {(ip, symbol): library.address(ip, symbol)
             for ip, symbol, path in (chain[0] for chain in samples) if real[path] == ours}
    library.resolve(place.values())
    for chain in samples:
        ip, symbol, path = chain[0]
        if real[path] == ours:
            address = place[ip, symbol]
            name_there = library.symbol(address) if address is not None else symbol
            result.add_library(symbol or name_there, library.chain(address), 1)
        elif layers.KERNEL_OBJECT.search(path):
            kernel = [s for _, s, p in chain if layers.KERNEL_OBJECT.search(p)]
            result.add(layers.of_kernel(kernel), f"{symbol or '?'} (kernel)", 1)
        else:
            result.add(layers.of_object(path), f"{symbol or '?'} ({os.path.basename(path)})", 1)
    return result


def run(command, library, folder, environment, name):
    """Profile of a run of command; None and why if there is none."""
    data = os.path.join(folder, "perf.data")
    # Preloads the library into the program, not into perf.
    done = subprocess.run(["perf", "record", "-q", "-g", "-F", FREQUENCY, "-e", name, "-o", data, "--",
                           "env", f"LD_PRELOAD={loadable(library.path)}", *command], env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          errors="replace")
    if not os.path.exists(data):
        return None, f"perf record ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    script = subprocess.run(["perf", "script", "-i", data, "-F", "comm,pid,event,ip,sym,dso"],
                            capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    samples = parse(script.stdout.splitlines())
    if not samples:
        return None, f"perf took no samples: {script.stderr.strip()[-300:]}"
    return profile(samples, library, name), None
