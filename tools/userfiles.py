"""Checks of files that users name: libraries to preload, files to write."""

import atexit
import functools
import os
import re
import shutil
import tempfile


@functools.cache
def loadable(path):
    """The path, or a link to it, because LD_PRELOAD ends a name at a blank or a colon."""
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
    """The libraries that the user preloads already, except HAKMEM's, in LD_PRELOAD's format."""
    names = re.split("[ :]+", os.environ.get("LD_PRELOAD", ""))
    return ":".join(name for name in names if name and not os.path.basename(name).startswith("libhakmem"))


def is_library(path):
    """True for a file that the loader may accept."""
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def check_writable(path):
    """Raises OSError unless a file can be written there. An existing file stays unchanged."""
    there = os.path.lexists(path)
    if there and not os.path.isfile(path) and not os.path.isdir(path):
        return  # a pipe's reader would take the test for the end of the data
    with open(path, "ab"):
        pass
    if not there:
        os.unlink(path)
