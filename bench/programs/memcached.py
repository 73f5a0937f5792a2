#!/usr/bin/env python3
"""memcached under load; prints what the server used, as JSON. Argument: rounds.

Uses values of 10 to 2000 bytes, connections that open and close, and requests of 50 keys.
"""

from __future__ import annotations

import os
import random
import sys
import time

from server import Server, drive

COMMAND = ["memcached", "-s", "{folder}/s", "-m", "64", "-t", "2",
           *(["-u", "root"] if os.geteuid() == 0 else [])]
KEYS = 20000
CLIENTS = 20


def main() -> None:
    rounds, ops = int(sys.argv[1]), 0
    generator = random.Random(2)
    sizes = [0] * KEYS
    plan = []  # per connection: requests and the lengths of their answers
    for _ in range(rounds * CLIENTS):
        requests, expected = [], []
        for _ in range(6):
            keys = [generator.randrange(KEYS) for _ in range(50)]
            text = b""
            for key in keys:
                sizes[key] = generator.randint(10, 2000)
                text += b"set k%d 0 0 %d\r\n%s\r\n" % (key, sizes[key], b"v" * sizes[key])
            requests.append(text)
            expected.append(len(b"STORED\r\n") * len(keys))
            wanted = [generator.choice(keys) for _ in range(50)]
            requests.append(b"get " + b" ".join(b"k%d" % key for key in wanted) + b"\r\n")
            expected.append(5 + sum(len(b"VALUE k%d 0 %d\r\n\r\n" % (key, sizes[key])) + sizes[key]
                                    for key in wanted))
            ops += 100
        plan.append((requests, expected))
    with Server(COMMAND) as server:
        start = time.monotonic()
        for requests, expected in plan:
            with server.connect() as client:
                drive(client, requests, expected)
        server.report(ops, time.monotonic() - start)


if __name__ == "__main__":
    main()
