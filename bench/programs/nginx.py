#!/usr/bin/env python3
"""nginx under load; prints what the server used, as JSON. Argument: rounds.

One process that serves files with server-side includes (set, echo) and gzip: a pool
and buffers per request, freed at its end.
"""

from __future__ import annotations

import random
import sys
import time

from server import Server

CONFIGURATION = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors;
events { worker_connections 256; }
http {
  access_log off; keepalive_requests 100000;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  gzip on; gzip_min_length 100; gzip_types *; gzip_comp_level 1;
  server {
    listen unix:{folder}/s; root {folder};
    location / { ssi on; ssi_types *; }
    location /plain/ { alias {folder}/; }
  }
}
"""
CLIENTS = 16
FILES = 24


def page(number: int) -> str:
    generator = random.Random(number)
    words = " ".join(f"w{generator.randint(0, 9999)}" for _ in range(40 << number % 6))
    return f'<html><!--#set var="x" value="{number}" --><!--#echo var="x" --> {words}</html>\n'


def answer(stream) -> None:
    """Reads one answer, chunked or with a length."""
    if b" 200 " not in stream.readline():
        raise SystemExit("nginx: not status 200")
    length = None
    while (line := stream.readline().lower()) != b"\r\n":
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        if not line:
            raise SystemExit("nginx closed the connection")
    if length is not None:
        stream.read(length)
        return
    while (size := int(stream.readline(), 16)) > 0:
        stream.read(size + 2)
    stream.readline()


def main() -> None:
    rounds, ops = int(sys.argv[1]), 0
    pages = {f"{i}.html": page(i) for i in range(FILES)}
    generator = random.Random(4)
    with Server(["/usr/sbin/nginx", "-p", "{folder}", "-c", "{folder}/conf"],
                {**pages, "conf": CONFIGURATION}) as server:
        start = time.monotonic()
        for _ in range(rounds):
            clients = [server.connect() for _ in range(CLIENTS)]
            streams = [client.makefile("rb") for client in clients]
            for _ in range(10):
                for client in clients:
                    text = ""
                    for _ in range(4):
                        folder = generator.choice(("/", "/plain/"))
                        packed = generator.choice(("", "Accept-Encoding: gzip\r\n"))
                        text += (f"GET {folder}{generator.randrange(FILES)}.html HTTP/1.1\r\nHost: a\r\n"
                                 f"{packed}Cookie: {'c' * generator.randint(1, 900)}\r\n\r\n")
                    client.sendall(text.encode())
                for stream in streams:
                    for _ in range(4):
                        answer(stream)
                        ops += 1
            for client, stream in zip(clients, streams):
                stream.close()
                client.close()
        server.report(ops, time.monotonic() - start)


if __name__ == "__main__":
    main()
