"""HAKMEM's own four programs; see README.md."""

from __future__ import annotations

from benchmark import Benchmark


def _benchmark(name: str, program: str, full: str, quick: str, what: str, prime: int = 0) -> Benchmark:
    return Benchmark(name, program, tuple(full.split()), tuple(quick.split()), what,
                     suite="core", net=True, static=True, prime=prime)


BENCHMARKS: tuple[Benchmark, ...] = (
    _benchmark("tiny_hot", "bench_tiny_hot", "60000000", "10000000", "16 B, hit path"),
    _benchmark("random_mixed", "bench_random_mixed",
               "12000000 8192 42", "2000000 8192 42", "16–1040 B"),
    _benchmark("random_mixed_256", "bench_random_mixed",
               "12000000 8192 42 256 256", "2000000 8192 42 256 256", "256 B"),
    _benchmark("random_mixed_big", "bench_random_mixed",
               "8000000 400000 42", "2000000 400000 42", "16–1040 B, 200 000 blocks live", prime=192),
    _benchmark("random_mixed_cold", "bench_random_mixed",
               "100000 8192 42 128 1024", "100000 8192 42 128 1024", "first 100 000 operations"),
    _benchmark("larson", "larson", "1 8 1000 5000 100 4141 4", "1 8 1000 5000 100 4141 4",
               "8–1000 B, 4 lines of workers"),
    _benchmark("larson_1", "larson", "1 8 1000 5000 100 4141 1", "1 8 1000 5000 100 4141 1",
               "8–1000 B, 1 line of workers"),
    _benchmark("mid_mt1", "bench_mid_large_mt", "1 4000000 256", "1 200000 256", "8–32 KiB, 1 thread"),
    _benchmark("mid_mt2", "bench_mid_large_mt", "2 4000000 256", "2 200000 256",
               "8–32 KiB, 2 threads"),
    _benchmark("mid_mt4", "bench_mid_large_mt", "4 2000000 256", "4 100000 256",
               "8–32 KiB, 4 threads"),
    _benchmark("mid_mt8", "bench_mid_large_mt", "8 1000000 256", "8 50000 256", "8–32 KiB, 8 threads"),
    _benchmark("mid_mt2_handover", "bench_mid_large_mt", "2 2000000 256 --handover 50",
               "2 100000 256 --handover 50", "8–32 KiB, 2 threads, half freed by the other", prime=96),
    _benchmark("mid_mt4_handover", "bench_mid_large_mt", "4 1000000 256 --handover 50",
               "4 50000 256 --handover 50", "8–32 KiB, 4 threads, half freed by the next", prime=256),
    _benchmark("large_mt2", "bench_mid_large_mt", "2 100000 32 --min 65536 --max 1048576",
               "2 10000 32 --min 65536 --max 1048576", "64 KiB–1 MiB, 2 threads", prime=192),
)
