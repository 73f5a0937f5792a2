"""What the tools want of files that users name: libraries to preload, files to write."""

import atexit
import functools
import os
import re
import shutil
import tempfile


@functools.cache
def loadable(path):
    """The path, or a link to it: LD_PRELOAD ends a name at a blank or a colon."""
    path = os.path.abspath(path)
    if not ends_early(path):
        return path
    folder = tempfile.mkdtemp(prefix="hakmem-preload-", dir="/tmp" if ends_early(tempfile.gettempdir()) else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    link = os.path.join(folder, os.path.basename(path).replace(" ", "_").replace(":", "_"))
    os.symlink(path, link)
    return link


def ends_early(path):
    return " " in path or ":" in path


def preloaded():
    """What the user preloads already, but for HAKMEM's libraries; as LD_PRELOAD has it."""
    names = re.split("[ :]+", os.environ.get("LD_PRELOAD", ""))
    return ":".join(name for name in names if name and not os.path.basename(name).startswith("libhakmem"))


def is_library(path):
    """True for a file that the loader may take."""
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def check_writable(path):
    """Raises OSError unless a file can be written there. What is there stays as it is."""
    there = os.path.lexists(path)
    if there and not os.path.isfile(path) and not os.path.isdir(path):
        return  # a pipe's reader would take it for the end
    with open(path, "ab"):
        pass
    if not there:
        os.unlink(path)
