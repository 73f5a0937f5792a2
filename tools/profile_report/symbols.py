"""Maps an address in the library to its chain of (inlined) functions, by binutils."""

import bisect
import re
import subprocess

from .layers import Frame


def has_debug_lines(library):
    text = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
    return ".debug_line" in text


def parse_addr2line(text):
    """{address: [Frame...], innermost first} from the output of addr2line -a -f -i."""
    chains, current, function = {}, None, None
    for line in text.splitlines():
        if line.startswith("0x"):
            current = chains.setdefault(int(line, 16), [])
            function = None
        elif current is not None and function is None:
            function = line
        elif current is not None:
            path, _, number = line.partition(" ")[0].rpartition(":")
            if path not in ("", "??"):
                # Folders above the last "src" belong to the build machine.
                file = path.rsplit("/src/", 1)[-1]
                current.append(Frame(function, file, int(number) if number.isdigit() else 0))
            function = None
    return chains


class Library:
    def __init__(self, path):
        self.path, self.chains = path, {}
        segments = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
        self.loads = [tuple(int(n, 16) for n in found) for found in re.findall(
            r"^ *LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+)", segments, re.MULTILINE)]
        symbols = subprocess.run(["nm", "--defined-only", "-n", path], capture_output=True, text=True).stdout
        found = re.findall(r"^(\w+) [tTwW] (\S+)$", symbols, re.MULTILINE)
        self.starts = [int(address, 16) for address, _ in found]
        self.names = [name for _, name in found]
        self.by_name = dict(zip(self.names, self.starts))

    def address(self, offset, symbol=None):
        """The address of perf's file offset, or of the symbol's start if it is no file offset."""
        for file_offset, address, size in self.loads:
            if file_offset <= offset < file_offset + size:
                return offset - file_offset + address
        return self.by_name.get(symbol)

    def symbol(self, address):
        i = bisect.bisect_right(self.starts, address) - 1
        return self.names[i] if i >= 0 else ""

    def resolve(self, addresses):
        """Looks these addresses up for chain(), all in one call of addr2line."""
        missing = sorted({a for a in addresses if a is not None} - self.chains.keys())
        if missing:
            done = subprocess.run(["addr2line", "-a", "-f", "-i", "-e", self.path], text=True, check=True,
                                  input="".join(f"{a:#x}\n" for a in missing), capture_output=True)
            self.chains |= parse_addr2line(done.stdout)

    def chain(self, address):
        return self.chains.get(address, [])
