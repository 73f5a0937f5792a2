"""A server under the measured allocator, for the drivers beside this file.

The runner starts a driver with LD_PRELOAD; only the server gets it, not the driver's clients.
The figures are those of the server: CPU seconds and peak RSS.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from children import end_with_parent  # noqa: E402

START_LIMIT = 10  # seconds within which the server must listen
PRELOAD = os.environ.pop("LD_PRELOAD", None)
SOCKET_LONGEST = 107  # bytes of a socket's path (unix(7))


def status_kib(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise SystemExit(f"no {key} in /proc/{pid}/status")


class Server:
    """A server that runs in its own folder and listens on the Unix socket s in it."""

    def __init__(self, command: list[str], files: dict[str, str] | None = None):
        self.folder = tempfile.mkdtemp(prefix="hak")
        self.socket = os.path.join(self.folder, "s")
        if len(os.fsencode(self.socket)) > SOCKET_LONGEST:
            os.rmdir(self.folder)
            self.folder = tempfile.mkdtemp(prefix="hak", dir="/tmp")
            self.socket = os.path.join(self.folder, "s")
        for name, text in (files or {}).items():
            Path(self.folder, name).write_text(text.replace("{folder}", self.folder))
        environment = dict(os.environ)
        if PRELOAD is not None:
            environment["LD_PRELOAD"] = PRELOAD
        command = [word.replace("{folder}", self.folder) for word in command]
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(command, env=environment, cwd=self.folder, preexec_fn=end_with_parent,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self) -> "Server":
        end = time.monotonic() + START_LIMIT
        while time.monotonic() < end and self.process.poll() is None:
            try:
                self.connect().close()
                return self
            except OSError:
                time.sleep(0.005)
        self.__exit__()
        raise SystemExit(f"{self.process.args[0]} does not listen")

    def __exit__(self, *_) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(self.socket)
        except OSError:
            client.close()
            raise
        return client

    def report(self, ops: int, elapsed: float) -> None:
        """Stops the server and prints the record that the runner reads."""
        peak = status_kib(self.process.pid, "VmHWM")
        now = status_kib(self.process.pid, "VmRSS")
        self.process.terminate()
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode not in (0, -15):
            raise SystemExit(f"{self.process.args[0]} ended with status {self.process.returncode}")
        cpu = used.ru_utime + used.ru_stime
        json.dump({"ops": ops, "ns_per_op": cpu * 1e9 / ops, "peak_rss_kib": peak,
                   "last_rss_kib": now, "elapsed_s": elapsed, "cpu_seconds": cpu,
                   "user_s": used.ru_utime, "sys_s": used.ru_stime, "maxrss_kib": peak,
                   "minor_faults": used.ru_minflt}, sys.stdout)
        print()


def drive(client: socket.socket, requests: list[bytes], expected: list[int]) -> None:
    """Sends every request in one piece and reads its answer of the given number of bytes."""
    buffer = bytearray(1 << 20)
    for request, length in zip(requests, expected, strict=True):
        client.sendall(request)
        while length > 0:
            got = client.recv_into(buffer)
            if got == 0:
                raise SystemExit("the server closed the connection")
            length -= got
        if length != 0:
            raise SystemExit(f"the server answered {-length} bytes too many")
