"""Language runtimes under HAKMEM. Each function is one program (see run.py)."""

import os
import re
import subprocess
import sys

from harness import ROOT, Failure, Skip, need

# A selection of Python's own test suite: containers, text, threads, fork, I/O.
PYTHON_TESTS = """test_json test_re test_dict test_list test_set test_collections test_itertools
test_pickle test_threading test_fork1 test_queue test_bytes test_array test_struct test_sort
test_heapq test_weakref test_gc test_sqlite3 test_zlib test_random test_descr""".split()
# Fails where a .pth file of the installation imports threading early.
PYTHON_IGNORED = "test_import_from_another_thread"
PYTHON_BROKEN = 5  # modules; if more fail without HAKMEM, the rest says little


def python3(h):
    """Every object comes from malloc: PYTHONMALLOC=malloc."""
    python = sys.executable
    environment = {"PYTHONMALLOC": "malloc"}
    found = h.plain(python, "-c", "import test.test_json, test.test_threading", status=None)
    if found.status != 0:
        raise Skip("this Python has no test suite (package libpython3-testsuite)")

    command = (python, "-m", "test", "-q", "--timeout", "1400", "-i", PYTHON_IGNORED)
    done = h.under(*command, *PYTHON_TESTS, extra=environment, status=None)
    if done.status == 0:
        return f"{len(PYTHON_TESTS)} test modules, {done.allocs:,} allocations"
    # A module may fail because of this machine: then it fails without HAKMEM too.
    output = (done.out + done.err).decode("utf-8", "replace")
    listed = re.search(r"tests? failed(?: \(env changed\))?:\n((?:    .*\n)+)", output)
    failed = listed.group(1).split() if listed else PYTHON_TESTS
    # Or once by chance; but a test that was killed, or whose child was, gets no second run.
    killed = done.status < 0 or re.search(r"code is -\d|Segmentation fault|Aborted|SIGSEGV|SIGABRT", output)
    kinds = {}
    for module in failed:
        if h.plain(*command, module, extra=environment, status=None).status != 0:
            kinds[module] = "fails without HAKMEM too"
            continue
        again = None if killed else h.under(*command, module, extra=environment, status=None)
        if killed or again.status != 0:
            more = "" if killed else (again.out + again.err).decode("utf-8", "replace")
            raise Failure(f"{module} fails under HAKMEM only\n{output[-4000:]}{more[-4000:]}")
        kinds[module] = "failed once of two times"
    broken = list(kinds.values()).count("fails without HAKMEM too")
    if broken > PYTHON_BROKEN:
        raise Skip(f"{broken} of {len(PYTHON_TESTS)} test modules of this Python fail without HAKMEM too")
    return f"{len(PYTHON_TESTS)} test modules; {', '.join(f'{module} {kind}' for module, kind in kinds.items())}"


PERL = r"""
use strict; use warnings;
my (%words, @rows); my $seed = 1;
sub rnd { $seed = ($seed * 1103515245 + 12345) % 2147483648; return $seed % $_[0] }
for my $i (1 .. 200000) { my $w = join '', map { chr(97 + rnd(26)) } 1 .. 2 + rnd(5); $words{$w}++; }
for my $w (sort { $words{$b} <=> $words{$a} || $a cmp $b } keys %words) {
  push @rows, { word => $w, count => $words{$w}, tail => [ split //, $w ] };
}
my $text = join "\n", map { "$_->{word}:$_->{count}:@{$_->{tail}}" } @rows;
my $n = () = $text =~ /(\w)\s\1/g; (my $changed = $text) =~ s/(\w+):(\d+)/$2-$1/g;
my $big = ''; $big .= $text for 1 .. 5; my $crc = unpack '%32C*', $big . $changed;
for my $round (1 .. 20) { my @copy = map { { %$_ } } @rows[0 .. 5000]; undef @copy; }
printf "%d words, %d pairs, %d bytes, sum %d\n", scalar(@rows), $n, length $big, $crc;
"""


def perl(h):
    script = h.write("work.pl", PERL)
    done = h.same(need("perl"), script, extra={"PERL_HASH_SEED": "0"})
    return done.text.strip()


NODE = r"""
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');
const crypto = require('crypto'), zlib = require('zlib');
function work(seed) {
  let s = seed; const rnd = n => (s = (Math.imul(s, 1103515245) + 12345) & 0x7fffffff) % n;
  const hash = crypto.createHash('sha256'), rows = [];
  for (let i = 0; i < 20000; i++)
    rows.push({ id: i, name: 'n' + rnd(1e6), tags: Array.from({ length: rnd(6) }, () => rnd(100)) });
  for (let round = 0; round < 3; round++) hash.update(JSON.stringify(JSON.parse(JSON.stringify(rows))));
  const kept = [];
  for (let i = 0; i < 4000; i++) {
    const b = Buffer.allocUnsafeSlow(1 + rnd(60000)); b.fill(i & 255);
    if (i % 8 === 0) kept.push(b);
    hash.update(b);
  }
  hash.update(zlib.inflateSync(zlib.deflateSync(Buffer.concat(kept))));
  return hash.digest('hex');
}
if (isMainThread) {
  const results = []; let left = 3;
  for (let i = 0; i < left; i++)
    new Worker(__filename, { workerData: i + 1 })
      .on('message', m => { results[i] = m; })
      .on('error', e => { throw e; })
      .on('exit', () => { if (--left === 0) console.log([...results, work(9)].join('\n')); });
} else parentPort.postMessage(work(workerData));
"""


def node(h):
    script = h.write("work.js", NODE)
    done = h.same(need("node"), script)
    if len(done.text.split()) != 4:
        raise Failure(f"node: a worker was lost: {done.text}")
    return f"JSON, buffers, 3 worker threads, {done.allocs:,} allocations"


# Its modules are loaded with RTLD_DEEPBIND. USE_ZEND_ALLOC=0: every block comes from malloc.
PHP = r"""<?php
mt_srand(7); $words = []; $rows = [];
for ($i = 0; $i < 60000; $i++) $words[dechex(mt_rand(0, 5000))][] = str_repeat(chr(97 + $i % 26), $i % 300);
ksort($words);
foreach ($words as $word => $list) $rows[] = ['w' => $word, 'n' => count($list), 'l' => array_slice($list, 0, 3)];
for ($round = 0; $round < 3; $round++) { $json = json_encode($rows); $rows = json_decode($json, true); }
@unlink('work.tar'); $phar = new PharData('work.tar'); foreach (array_slice($rows, 0, 50) as $r) $phar[$r['w']] = implode(' ', $r['l']);
$sum = 0; foreach (token_get_all(str_repeat('<?php $a = [1, "b" => f($x)]; ?>', 2000)) as $t) $sum += is_array($t) ? $t[0] : 1;
preg_match_all('/(\w)\1+/', $json, $found); $text = iconv('UTF-8', 'UTF-16LE', implode(' ', $found[0]));
$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
fwrite($pair[0], substr($text, 0, 5000)); $read = fread($pair[1], 5000);
printf("%d words, %d bytes, %d files, tokens %d, %s\n", count($words), strlen($json), count($phar), $sum,
  hash('sha256', $text . $read . serialize($rows)));
"""


def php(h):
    script = h.write("work.php", PHP)
    done = [h.same(need("php"), script, extra={"USE_ZEND_ALLOC": zend}) for zend in ("1", "0")]
    if "50 files" not in done[0].text:
        raise Failure(f"php: {done[0].text}")
    return f"JSON, phar, tokens, iconv, sockets, {done[1].allocs:,} allocations"


JAVA = r"""
import java.nio.ByteBuffer; import java.util.*; import java.util.concurrent.*;
import java.util.stream.*; import java.util.zip.*;
public class Work {
  static long work(int seed) throws Exception {
    Random r = new Random(seed); Map<String, List<Integer>> m = new TreeMap<>();
    for (int i = 0; i < 100000; i++)
      m.computeIfAbsent("k" + r.nextInt(5000), k -> new ArrayList<>()).add(i);
    long sum = 0;
    for (var e : m.entrySet()) sum = sum * 31 + e.getKey().hashCode() + e.getValue().size();
    for (int i = 0; i < 200; i++) {             // malloc: direct buffers, zlib
      ByteBuffer b = ByteBuffer.allocateDirect(1 + r.nextInt(200000));
      while (b.hasRemaining()) b.put((byte) i);
      CRC32 c = new CRC32(); b.flip(); c.update(b); sum += c.getValue();
      Deflater d = new Deflater(1); d.setInput(new byte[5000]); d.finish();
      sum += d.deflate(new byte[6000]); d.end();
    }
    return sum;
  }
  public static void main(String[] a) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(3);
    List<Future<Long>> all = new ArrayList<>();
    for (int i = 0; i < 6; i++) { final int seed = i; all.add(pool.submit(() -> work(seed))); }
    for (var f : all) System.out.println(f.get());
    pool.shutdown();
  }
}
"""


def java(h):
    javac, program = need("javac", "java")
    source = h.write("Work.java", JAVA)
    h.same(javac, "-J-Xmx256m", source, files=[h.path("Work.class")])
    done = h.same(program, "-Xmx256m", "-cp", h.folder, "Work")
    return f"javac and a threaded program, {done.allocs:,} allocations"


BASH = r"""
set -euo pipefail
declare -A seen; text=''
for ((i = 0; i < 20000; i++)); do seen[key$((i * 7919 % 4001))]=$i; done
for key in "${!seen[@]}"; do text+="$key=${seen[$key]} "; done
printf '%s\n' $text | sort -t= -k2n | awk -F= '{ n += $2; print $1, n % 1000 }' | sort | uniq -c |
  sort -rn --parallel=2 -S 4M | sed 's/key/k/; s/^ *//' | tr a-z A-Z | sed -n 1,500p | tee all | cksum
seq 1 200000 | sort -R --random-source=/dev/zero | sort -n | tail -n 3
for i in $(seq 1 60); do (echo "$i $(wc -l <all | tr -d ' ')") & done | sort -n | cksum
wait
x=$(seq 1 50000); y=${x//1/one}; echo "${#y}"
grep -c 1 <<<"$x"; find /usr/include -name '*.h' 2>/dev/null | sort | xargs cat 2>/dev/null | wc -c
"""


def bash(h):
    done = h.same(need("bash"), h.write("work.sh", BASH))
    return f"pipelines of coreutils, {done.allocs:,} allocations in the shell"


def hakmem_command(h):
    """The hakmem command on the real library: run, stats and which."""
    command = (sys.executable, os.path.join(ROOT, "hakmem"))
    report = h.plain(*command, "run", "--lib", h.library).text  # the default workload
    if "identical output" not in report or not re.search(r"blocks handed out +[0-9,]{9}", report):
        raise Failure(f"hakmem run:\n{report}")
    children = h.plain(*command, "run", "--lib", h.library, "bash", "-c", "ls / | sort | tail -n 1").text
    if "processes, added up" not in children:
        raise Failure(f"hakmem run of a pipeline does not tell of its children:\n{children}")
    with subprocess.Popen([need("cat")], env=h.environment, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as cat:
        cat.stdin.write(b"x")
        cat.stdin.flush()
        cat.stdout.read(1)  # it is running
        told = h.plain(*command, "which", str(cat.pid)).text
        cat.stdin.close()
    if os.path.realpath(h.library) not in told:
        raise Failure(f"hakmem which: {told}")
    h.assert_served("cat", cat.pid)
    stats = h.plain(*command, "stats", "--classes", os.path.join(h.stats, f"{cat.pid}.json")).text
    if "size classes in use" not in stats:
        raise Failure(f"hakmem stats:\n{stats}")
    return "run, which, stats"
