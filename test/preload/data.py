"""Programs that keep data, under HAKMEM: git, sqlite3, redis, tar and xz. Each function is one
program (see run.py)."""

import os
import random
import re
import subprocess

from harness import LIMIT, WAIT, Failure, end_with_parent, need, read, tail, wait_until


def _words(generator, count):
    letters = "etaoinshrdlu"
    return " ".join("".join(generator.choices(letters, k=generator.randint(2, 9)))
                    for _ in range(count))


GIT_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_COMMITTER_NAME": "c", "GIT_COMMITTER_EMAIL": "c@example.org",
    "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000",
}


def git(h):
    """Builds the same history twice; commit ids, log and blame must agree."""
    program = need("git")
    results = []
    for name, run in (("plain", h.plain), ("under", h.under)):
        repo = h.path(name, "")
        generator = random.Random(5)

        def git_(*arguments):
            return run(program, *arguments, cwd=repo, extra=GIT_ENVIRONMENT)

        git_("init", "-q", "-b", "main")
        git_("config", "gc.autoDetach", "false")
        for commit in range(9):
            for _ in range(40):
                path = f"{name}/{generator.randint(0, 15)}/{generator.randint(0, 30)}.txt"
                h.write(path, "\n".join(_words(generator, 12) for _ in range(80)) + "\n")
            git_("add", "-A")
            git_("commit", "-q", "-m", f"commit {commit}")
        git_("-c", "pack.threads=2", "gc", "-q", "--aggressive", "--prune=now")
        git_("fsck", "--full", "--strict")
        file = git_("ls-files").text.split()[0]
        results.append([git_(*command).out for command in (
            ("rev-parse", "HEAD"), ("log", "-p", "--stat", "-M"), ("blame", file),
            ("grep", "-n", "-e", "nee"), ("diff", "HEAD~5", "--word-diff"))])
        git_("checkout", "-q", "HEAD~4")
        git_("clone", "-q", ".", "copy")
    if results[0] != results[1]:
        raise Failure("git: history, log, blame, grep or diff differ under HAKMEM")
    return f"9 commits, gc, fsck, clone, {len(results[1][1]):,} bytes of log"


SOCKET = "s"  # redis's, in its folder, where its clients run too: a whole path may be too long

SQL = """
pragma journal_mode = memory; pragma cache_size = -20000; pragma threads = 2;
create table author(id integer primary key, name text, born int);
create table book(id integer primary key, author int, title text, price real, body blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
  insert into author select i, printf('author-%05d', i * 7919 % 5003), 1900 + i % 90 from n;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)
  insert into book select i, i * 31 % 5000 + 1, printf('title %x of %d', i * 40503 % 65536, i % 97),
    (i * 17 % 1000) / 10.0, zeroblob(i % 300) from n;
create index book_author on book(author, price); create index book_title on book(title);
analyze;
select count(*), sum(price), sum(length(body)) from book;
select a.name, count(*), round(avg(b.price), 3), max(b.title) from author a join book b on b.author = a.id
  group by a.id having count(*) > 5 order by 3 desc, 1 limit 40;
select substr(title, 1, 8) t, count(*) c, group_concat(id % 10, '') from (select * from book order by id)
  group by t order by c desc, t limit 20;
select a.born, b.title from book b left join author a on a.id = b.author + 4990 order by b.title, b.id limit 30;
update book set title = title || upper(title) where id % 7 = 0; delete from book where id % 11 = 0;
select count(*), sum(length(title)), min(title), max(title) from book;
select name, row_number() over (order by born, name) from author order by id limit 10;
vacuum; pragma integrity_check;
"""


def sqlite3(h):
    database = h.path("books.db")
    done = h.same(need("sqlite3"), database, stdin=SQL.encode(), files=[database])
    if not done.text.rstrip().endswith("ok"):
        raise Failure(f"sqlite3: integrity check: {done.text[-300:]}")
    return f"200,000 rows, identical database, {done.allocs:,} allocations"


def _redis_commands():
    generator = random.Random(11)
    lines = []
    for i in range(30000):
        lines += [f"SET key:{i} {'v' * generator.randint(1, 400)}{i}",
                  f"HSET hash:{i % 700} field{i} value{i * 3}",
                  f"RPUSH list:{i % 300} {i} {'x' * (i % 50)}y",
                  f"ZADD sorted:{i % 50} {generator.randint(0, 9999)} member{i}",
                  f"SADD set:{i % 90} {generator.randint(0, 9999)}"]
        if i % 3 == 0:
            lines += [f"DEL key:{i // 2}", f"APPEND key:{i} {'tail' * 20}"]
    return ("\n".join(lines) + "\n").encode()


class _Redis:
    """A redis-server of its own for the test, on a Unix socket in folder."""

    def __init__(self, h, folder, environment):
        self.h, self.cli, self.folder = h, need("redis-cli"), folder
        self.log = os.path.join(folder, "log")
        with open(self.log, "ab") as log:
            self.process = self._start(folder, environment, log)
        try:
            wait_until(self._has_opened, "redis-server did not open its socket")
        except BaseException:
            self.kill()
            raise

    def _has_opened(self):
        if self.process.poll() is not None:
            raise Failure(f"redis-server ended at start with status {self.process.returncode}\n"
                          f"{tail(read(self.log))}")
        return os.path.exists(os.path.join(self.folder, SOCKET))

    def _start(self, folder, environment, log):
        server = need("redis-server")
        version = re.search(r"v=(\d+)", self.h.plain(server, "--version").text)
        # Before Redis 7 the command is open to everybody, and the option is an error.
        debug = ["--enable-debug-command", "local"] if version and int(version[1]) >= 7 else []
        return subprocess.Popen(
            [server, "--port", "0", "--unixsocket", SOCKET, "--dir", folder,
             "--save", "", "--appendonly", "no", *debug, "--io-threads", "2", "--daemonize", "no"],
            env=environment, cwd=folder, stdout=log, stderr=log, preexec_fn=end_with_parent)

    def ask(self, *command, stdin=None):
        return self.h.plain(self.cli, "-s", SOCKET, *command, stdin=stdin, cwd=self.folder).text.strip()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.h.plain(self.cli, "-s", SOCKET, "SHUTDOWN", "NOSAVE", status=None, cwd=self.folder)
        try:
            status = self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"redis-server did not stop in {WAIT} s") from None
        if status != 0:
            raise Failure(f"redis-server stopped with status {status}\n{tail(read(self.log))}")


def _redis_life(h, name, environment):
    """Load, benchmark, save in a forked child, restart: size and digest, twice."""
    folder = h.path(name, "")
    facts = []
    served = []
    server = _Redis(h, folder, environment)
    try:
        if name == "under":
            with open(f"/proc/{server.process.pid}/maps", encoding="utf-8") as maps:
                if os.path.realpath(h.library) not in maps.read():
                    raise Failure("redis-server: HAKMEM is not in its /proc/PID/maps")
        server.ask("--pipe", stdin=_redis_commands())
        bench = (need("redis-benchmark"), "-s", SOCKET, "-q", "-n", "20000", "-c", "20",
                 "-P", "4", "-d", "300", "--dbnum", "9", "-t", "set,get,lpush,lrange_100,hset,mset")
        (h.under if name == "under" else h.plain)(*bench, limit=LIMIT / 2, cwd=folder)
        if server.ask("-n", "9", "DBSIZE") == "0":
            raise Failure("redis-benchmark left nothing in its database")
        server.ask("-n", "9", "FLUSHDB")
        facts += [server.ask("DBSIZE"), server.ask("DEBUG", "DIGEST")]
        server.ask("BGSAVE")
        wait_until(lambda: "rdb_bgsave_in_progress:0" in server.ask("INFO", "persistence"),
                   "redis-server: the forked child that saves did not end")
        if "rdb_last_bgsave_status:ok" not in server.ask("INFO", "persistence"):
            raise Failure("redis-server: the forked child that saves failed")
        served.append(server.process.pid)
        server.stop()
        server = _Redis(h, folder, environment)  # loads the dump
        wait_until(lambda: "loading:0" in server.ask("INFO", "persistence"),
                   "redis-server did not load what it had saved")
        facts += [server.ask("DBSIZE"), server.ask("DEBUG", "DIGEST")]
        served.append(server.process.pid)
        server.stop()
    finally:
        server.kill()
    if facts[:2] != facts[2:]:
        raise Failure(f"redis-server: saved {facts[:2]}, loaded {facts[2:]}")
    if name == "under":
        try:
            return facts, sum(h.assert_served("redis-server", pid) for pid in served)
        except Failure as failure:
            raise Failure(f"{failure}\n{tail(read(server.log), 3)}") from None
    return facts, 0


def redis(h):
    need("redis-server", "redis-cli", "redis-benchmark")
    expected, _ = _redis_life(h, "plain", h.plain_environment)
    got, allocs = _redis_life(h, "under", h.environment)
    if expected != got:
        raise Failure(f"redis-server: DBSIZE and digest {expected[:2]} became {got[:2]}")
    return f"{got[0]} keys, digest {got[1][:12]}, saved and loaded, {allocs:,} allocations"


def tar_xz(h):
    """Packs a tree with tar, compresses it with two threads of xz, unpacks and compares it."""
    tar, xz = need("tar", "xz")
    generator = random.Random(3)
    for i in range(200):
        h.write(f"tree/{i % 10}/{i}.txt", _words(generator, 8000) + "\n")
    archive, packed = h.path("tree.tar"), h.path("tree.tar.xz")
    h.same(tar, "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-cf", archive, "tree",
           files=[archive])
    h.same(xz, "-T2", "--block-size=1MiB", "-k", "-3", archive, files=[packed])
    # Newer versions deny themselves all files but the open ones, including the statistics file.
    h.under(xz, "-T2", "-t", packed, served=False)
    done = h.under(xz, "-T2", "-dc", packed, served=False)
    if done.out != read(archive):
        raise Failure("xz: unpacking does not give back what was packed")
    os.mkdir(h.path("back"))
    h.under(tar, "-xf", packed, "-C", h.path("back"))
    h.plain(need("diff"), "-r", h.path("tree"), h.path("back", "tree"))
    return f"{len(done.out):,} bytes there and back"
