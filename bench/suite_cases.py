"""Situations that users of allocators meet; see cases/README.md."""

from __future__ import annotations

from benchmark import Benchmark


def _benchmark(name: str, program: str, full: str, quick: str, what: str,
               memory: str = "peak_rss_kib", metric: str = "ns_per_op", **more) -> Benchmark:
    return Benchmark(name, program, tuple(full.split()), tuple(quick.split()), what,
                     suite="cases", metric=metric, memory=memory, **more)


IDLE = "idle_rss_kib"
CPU = "cpu_seconds"  # of the whole process, which does little and then sleeps
MALLOC, FREE = (tuple(f"{call}_{part}_ns" for part in ("p50", "p99", "p999", "max")) for call in ("malloc", "free"))

BENCHMARKS: tuple[Benchmark, ...] = (
    _benchmark("idle", "case_idle", "128 0 2 2000", "40 0 2 1000",
               "16–1039 B, all freed, then asleep", memory=IDLE, metric=CPU, prime=256),
    _benchmark("idle_16k", "case_idle", "128 16384 2 2000", "40 16384 2 1000",
               "16 KiB, all freed, then asleep", memory=IDLE, metric=CPU, prime=256),
    _benchmark("idle_1m", "case_idle", "128 1048576 2 2000", "40 1048576 2 1000",
               "1 MiB, all freed, then asleep", memory=IDLE, metric=CPU, prime=256),
    _benchmark("idle_kept", "case_idle", "128 20000 2 2000 42 --keep 10", "40 20000 2 1000 42 --keep 10",
               "20 KB, all but a random tenth freed, then asleep", memory=IDLE, metric=CPU, prime=256),
    _benchmark("sleeper", "case_sleeper", "256 1000", "40 200",
               "16–1039 B, freed by another thread while this one sleeps", memory=IDLE, prime=512),
    _benchmark("producer", "case_producer", "4 2000000", "4 400000",
               "4 threads allocate, 1 frees, 35 to 47 MiB live", memory="steady_rss_kib", prime=128),
    _benchmark("churn_threads", "case_churn_threads", "5000 1", "800 1",
               "short threads, one after the other", memory="end_rss_kib", metric="thread_ns"),
    _benchmark("churn_threads4", "case_churn_threads", "5000 4", "800 4",
               "short threads, 4 at once", memory="end_rss_kib", metric="thread_ns"),
    _benchmark("fragment", "case_fragment", "10", "4 16384",
               "phases of changing sizes with survivors", memory="end_rss_kib", prime=192),
    _benchmark("realloc", "case_realloc", "65536 2 20000 1000000", "4096 2 5000 200000",
               "growing vectors and strings, then shrinking", prime=384),
    _benchmark("realloc_shrunk", "case_realloc", "32768 4 1000 0", "2048 4 1000 0",
               "vectors that grew, shrunk to a 64th", memory="shrunk_rss_kib", prime=384),
    _benchmark("arrays", "case_arrays", "40 4 8 64", "8 2 8 16",
               "arrays of 8–64 MiB, written and read in full", prime=320),
    _benchmark("arrays_mixed", "case_arrays", "60 4 8 64 42 --sparse 2", "8 2 8 16 42 --sparse 2",
               "arrays of 8–64 MiB, every second used sparsely", prime=320),
    _benchmark("buffers", "case_buffers", "1000 256 8 2000", "100 256 8 100",
               "buffers of 256 KiB, 8 KiB of each used", memory="rss_kib", prime=64),
    _benchmark("buffers_full", "case_buffers", "1500 128 128 1000", "200 128 128 100",
               "buffers of 128 KiB, used in full", memory="rss_kib", prime=192),
    _benchmark("fork", "case_fork", "64 60", "16 20",
               "children of a parent with a large heap", memory="dirty_kib", metric="child_ns", prime=128),
    _benchmark("idle_threads", "case_idle_threads", "200", "50",
               "200 threads with 32 blocks each, asleep", memory="rss_per_thread_kib", metric=CPU, prime=256),
    _benchmark("idle_threads1", "case_idle_threads", "200 1", "100 1",
               "200 threads with 1 block each, asleep", memory="rss_per_thread_kib", metric=CPU, prime=256),
    _benchmark("cold", "case_cold", "10000 51", "10000 11", "10,000 blocks in a fresh process"),
    _benchmark("start", "case_cold", "10 101", "10 31", "start of a process",
               metric="cold_ns"),
    _benchmark("hello", "case_hello", "1", "1", "a process with one block", memory="rss_kib", metric=CPU),
    _benchmark("latency1_malloc", "bench_latency", "1 2500000", "1 400000",
               "99.9 % of mallocs, 16 B–32 KiB, 1 thread", metric="malloc_p999_ns", details=MALLOC),
    _benchmark("latency1_free", "bench_latency", "1 2500000 20000 16 32768 1", "1 400000",
               "99.9 % of frees, 16 B–32 KiB, 1 thread", metric="free_p999_ns", details=FREE),
    _benchmark("latency2_malloc", "bench_latency", "2 4000000", "2 400000",
               "99.9 % of mallocs, 16 B–32 KiB, 2 threads", metric="malloc_p999_ns", details=MALLOC),
    _benchmark("steady", "case_steady", "8000000", "1000000 16384",
               "memory over time, 16 B–64 KiB replaced", memory="mean_rss_kib", prime=192),
    _benchmark("scale_1m", "case_scale", "20000000 1024", "2000000 1024",
               "16–1039 B replaced, 1 MiB live", memory="rss_kib"),
    _benchmark("scale_64m", "case_scale", "12000000 65536", "500000 65536",
               "16–1039 B replaced, 64 MiB live", memory="rss_kib", prime=128),
    _benchmark("scale_1g", "case_scale", "1000000 1048576", "200000 65536",
               "16–1039 B replaced, 1 GiB live", memory="rss_kib", prime=1400),
    _benchmark("fill_256m", "case_scale", "2 262144", "2 32768",
               "a heap of 256 MiB filled", metric="fill_ns_per_op", memory="rss_kib", prime=384),
)
