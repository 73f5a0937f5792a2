#!/usr/bin/env python3
"""redis-server under load; prints what the server used, as JSON.

    redis.py benchmark REQUESTS N   the first N of redis-benchmark's tests below, values of 200 bytes
    redis.py changing ROUNDS        strings that grow and are deleted, lists, hashes, sorted sets
"""

from __future__ import annotations

import random
import subprocess
import sys
import time

from server import Server

COMMAND = ["redis-server", "--port", "0", "--unixsocket", "{folder}/s", "--dir", "{folder}",
           "--save", "", "--appendonly", "no", "--daemonize", "no", "--hz", "1"]
TESTS = ("set", "get", "incr", "lpush", "rpush", "sadd", "hset", "zadd", "lrange_100", "mset")
BATCH = 500


def benchmark(server: Server, requests: int, count: int) -> int:
    tests = TESTS[:count]
    done = subprocess.run(["redis-benchmark", "-s", server.socket, "-q", "-n", str(requests), "-r", "30000",
                           "-c", "20", "-P", "16", "-d", "200", "-t", ",".join(tests)],
                          capture_output=True, text=True)
    if done.returncode != 0 or "requests per second" not in done.stdout:
        raise SystemExit(f"redis-benchmark: {done.stdout[-300:]}{done.stderr[-300:]}")
    return requests * (len(tests) + ("lrange_100" in tests))  # before lrange it fills the list by as many LPUSHes


def commands(rounds: int) -> list[list[str]]:
    generator = random.Random(11)
    made = []
    for round_ in range(rounds):
        for i in range(2000):
            key = generator.randint(0, 20000)
            made += [["SET", f"key:{key}", "v" * generator.randint(1, 100 * (round_ % 8 + 1))],
                     ["APPEND", f"key:{generator.randint(0, 20000)}", "tail" * 10],
                     ["DEL", f"key:{generator.randint(0, 20000)}"],
                     ["HSET", f"hash:{i % 700}", f"field{generator.randint(0, 300)}", "w" * (i % 90)],
                     ["RPUSH", f"list:{i % 300}", "x" * (i % 50)], ["LPOP", f"list:{key % 300}"],
                     ["ZADD", f"sorted:{i % 50}", str(key), f"member{key}"],
                     ["ZREMRANGEBYRANK", f"sorted:{i % 50}", "400", "-1"],
                     ["SADD", f"set:{i % 90}", f"s{key}"]]
    return made


def packed(command: list[str]) -> bytes:
    return b"*%d\r\n" % len(command) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in command)


def changing(server: Server, rounds: int) -> int:
    """The client sends batches of commands; every answer is one line here."""
    made = commands(rounds)
    with server.connect() as client:
        for start in range(0, len(made), BATCH):
            batch = made[start:start + BATCH]
            client.sendall(b"".join(map(packed, batch)))
            left = len(batch)
            while left > 0:
                left -= lines(client.recv(1 << 20))
    return len(made)


def lines(answer: bytes) -> int:
    """The number of answers in a piece of the stream: LPOP's have two lines, or one ($-1)."""
    if not answer or answer.startswith(b"-"):
        raise SystemExit(f"redis-server: {answer[:100]!r}")
    return answer.count(b"\r\n") - answer.count(b"$") + answer.count(b"$-1")


def main() -> None:
    with Server(COMMAND) as server:
        start = time.monotonic()
        numbers = [int(word) for word in sys.argv[2:] if word.isdigit()]
        ops = {"benchmark": benchmark, "changing": changing}[sys.argv[1]](server, *numbers)
        server.report(ops, time.monotonic() - start)


if __name__ == "__main__":
    main()
