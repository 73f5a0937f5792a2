"""Why HAKMEM did not serve a program."""

import os
import stat
import struct

from .launch import find_program, script_words

PT_INTERP = 3


def program_file(cmd):
    """The program that the kernel loads: for a script, its interpreter."""
    path = os.path.realpath(find_program(cmd[0]))
    return script_interpreter(path) or path


def why_not_served(cmd, status):
    """One line for the user; None if no obstacle is found."""
    path = program_file(cmd)
    mode = os.stat(path).st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID):
        return f"{path} is setuid or setgid, so the loader ignores LD_PRELOAD"
    if has_capabilities(path):
        return f"{path} has file capabilities, so the loader ignores LD_PRELOAD"
    with open(path, "rb") as f:
        if f.read(5) == b"\x7fELF\x01":
            return f"{path} is a 32-bit program, and HAKMEM is for 64-bit programs"
    if not is_dynamic_elf(path):
        return f"{path} is statically linked (or no ELF program), so nothing can be preloaded"
    if status > 128:
        return f"the program was killed by signal {status - 128}; statistics are written at exit"
    return None


def script_interpreter(path):
    """The program that runs the script at path (found by find_program); None if it is no script."""
    words = script_words(path)
    return os.path.realpath(words[0]) if words else None


def has_capabilities(path):
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def is_dynamic_elf(path):
    """True for a 64-bit little-endian ELF program with a loader."""
    with open(path, "rb") as f:
        head = f.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return False
        (table,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        for i in range(count):
            f.seek(table + i * size)
            (kind,) = struct.unpack("<I", f.read(4))
            if kind == PT_INTERP:
                return True
    return False
