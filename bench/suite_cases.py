"""What users of allocators run into; see cases/README.md."""

from __future__ import annotations

from benchmark import Benchmark


def _case(name: str, program: str, full: str, quick: str, what: str, metric: str = "ns_per_op",
          memory: str = "peak_rss_kib") -> Benchmark:
    return Benchmark(name, program, tuple(full.split()), tuple(quick.split()), what, suite="cases",
                     metric=metric, memory=memory)


BENCHMARKS: tuple[Benchmark, ...] = (
    _case("idle_small", "case_idle", "2 300 200", "2 30 200 1", "300 MB of 200 B freed, then 2 s of sleep",
          memory="idle_rss_kib"),
    _case("idle_mid", "case_idle", "2 300 20000", "2 30 20000 1", "the same with 20 000 B", memory="idle_rss_kib"),
    _case("idle_large", "case_idle", "2 300 200000", "2 30 200000 1", "the same with 200 000 B",
          memory="idle_rss_kib"),
    _case("producer", "case_producer", "4 1000000", "4 40000 4096", "4 threads allocate, 1 frees, 47 MiB live",
          memory="steady_rss_kib"),
    _case("realloc_large", "case_realloc", "4 16384 4096 3", "2 1024 4096 1", "4 KiB steps to 16 MiB"),
    _case("realloc_small", "case_realloc", "64 4 16 100", "16 4 16 20", "16 B steps to 4 KiB"),
    _case("fork", "case_fork", "64 150 2000", "4 10 200", "children of a 64 MiB process", memory="private_kib"),
    _case("idle_threads", "case_idle_threads", "400 200", "40 50", "400 threads that hold a little",
          memory="thread_kib"),
    _case("cold", "case_cold", "300 10000", "10 1000", "the first 10 000 allocations of a process",
          memory="hello_rss_kib"),
    _case("hello", "case_cold", "500 1", "20 1", "a process that allocates one block", memory="hello_rss_kib"),
    _case("latency_p999", "bench_latency", "1 5000000", "1 200000", "malloc, the slowest of a thousand calls",
          metric="malloc_p999_ns"),
    _case("latency_p99_mt", "bench_latency", "2 3000000", "2 100000", "malloc, the slowest of a hundred, 2 threads",
          metric="malloc_p99_ns"),
)
