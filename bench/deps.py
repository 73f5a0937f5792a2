#!/usr/bin/env python3
"""Python packages for the tools, in build/venv, made on demand.

    python3 bench/deps.py            make or update build/venv
    python3 bench/deps.py MODULE     only if the module is nowhere else; status 1 if that fails

As a module: deps.need("matplotlib") returns if the package can be imported and is
new enough; otherwise it restarts the running script with the interpreter of
build/venv, which is made first if necessary.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"
VENV = REPO / "build" / "venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".requirements"
LEAST = {"matplotlib": (3, 7)}  # legends outside the axes


def ensure() -> Path:
    """Makes build/venv hold what requirements.txt asks for; returns its python."""
    # Packages installed for an older Python are useless to an upgraded one.
    python = f"{os.path.realpath(sys.executable)} {sys.version_info[0]}.{sys.version_info[1]}"
    wanted = f"{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()} {python}"
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text() == wanted:
        return PYTHON
    print("deps: installing the packages of bench/requirements.txt into build/venv …", file=sys.stderr)
    # Not run in this folder: -m venv must not pick up modules from it.
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True, cwd=REPO)
    subprocess.run([str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    "--requirement", str(REQUIREMENTS)], check=True, cwd=REPO)
    STAMP.write_text(wanted)
    return PYTHON


def usable(module: str) -> bool:
    """Whether this Python has the module in a version that is new enough."""
    if importlib.util.find_spec(module) is None:
        return False
    try:
        version = importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    return tuple(map(int, re.findall(r"\d+", version)[:2])) >= LEAST.get(module, ())


def there(module: str) -> bool:
    """Makes build/venv if the module is nowhere else; if that fails, prints why, returns false."""
    if usable(module):
        return True
    try:
        ensure()
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"{sys.argv[0]}: needs {module}, and build/venv cannot be made: {error}", file=sys.stderr)
        return False
    return True


def need(module: str) -> None:
    """Returns if the module can be imported; otherwise restarts the script in build/venv."""
    if usable(module):
        return
    if Path(sys.prefix).resolve() == VENV.resolve():
        sys.exit(f"{sys.argv[0]}: {module} is not in bench/requirements.txt")
    if not there(module):
        sys.exit(1)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(0 if there(sys.argv[1]) else 1)
    print(ensure())
