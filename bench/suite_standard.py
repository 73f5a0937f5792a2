"""The field's standard allocator benchmarks, written afresh; see standard/README.md."""

from __future__ import annotations

from benchmark import Benchmark


def _benchmark(name: str, program: str, full: str, quick: str, what: str, prime: int = 0) -> Benchmark:
    return Benchmark(name, program, tuple(full.split()), tuple(quick.split()), what,
                     suite="standard", prime=prime)


BENCHMARKS: tuple[Benchmark, ...] = (
    _benchmark("xmalloc_test2", "xmalloc_test", "2 4000", "2 500",
               "8–2047 B, one producer, one consumer"),
    _benchmark("xmalloc_test4", "xmalloc_test", "4 5000", "4 500",
               "8–2047 B, two producers, two consumers"),
    _benchmark("cache_scratch1", "cache_scratch", "1 1000 8 100000 1", "1 150 8 100000 1",
               "8 B, writes; 1 thread"),
    _benchmark("cache_scratch2", "cache_scratch", "2 1500 8 100000 2", "2 200 8 100000 2",
               "8 B, passive false sharing, 2 threads"),
    _benchmark("cache_scratch4", "cache_scratch", "4 1500 8 100000 4", "4 200 8 100000 4",
               "8 B, passive false sharing, 4 threads"),
    _benchmark("cache_thrash1", "cache_thrash", "1 1000 8 100000 1", "1 150 8 100000 1",
               "8 B, writes; 1 thread"),
    _benchmark("cache_thrash2", "cache_thrash", "2 1500 8 100000 2", "2 200 8 100000 2",
               "8 B, active false sharing, 2 threads"),
    _benchmark("cache_thrash4", "cache_thrash", "4 1500 8 100000 4", "4 200 8 100000 4",
               "8 B, active false sharing, 4 threads"),
    _benchmark("mstress1", "mstress", "1 40 400000", "1 6 400000",
               "mixed sizes and lifetimes, 1 thread at a time"),
    _benchmark("mstress2", "mstress", "2 40 400000", "2 6 400000",
               "mixed sizes and lifetimes, 2 threads at a time"),
    _benchmark("mstress4", "mstress", "4 40 400000", "4 6 400000",
               "mixed sizes and lifetimes, 4 threads at a time"),
    _benchmark("rptest1", "rptest", "1 8 16000", "1 4 5000", "16–16000 B, 1 thread"),
    _benchmark("rptest2", "rptest", "2 8 16000", "2 4 5000", "16–16000 B, 2 threads", prime=128),
    _benchmark("rptest4", "rptest", "4 8 16000", "4 4 5000", "16–16000 B, 4 threads", prime=256),
    _benchmark("alloc_test1", "alloc_test", "1 8000000", "1 1000000",
               "8–1024 B, working set, 1 thread"),
    _benchmark("alloc_test2", "alloc_test", "2 16000000", "2 1500000",
               "8–1024 B, working set, 2 threads"),
    _benchmark("alloc_test4", "alloc_test", "4 16000000", "4 1500000",
               "8–1024 B, working set, 4 threads"),
    _benchmark("glibc_simple", "glibc_simple", "150", "10", "bursts of one size, 16–4096 B"),
    _benchmark("glibc_thread1", "glibc_thread", "1 8000000", "1 800000",
               "8 B–32 KiB, random replacement, 1 thread"),
    _benchmark("glibc_thread2", "glibc_thread", "2 15000000", "2 1500000",
               "8 B–32 KiB, random replacement, 2 threads"),
    _benchmark("glibc_thread4", "glibc_thread", "4 15000000", "4 1500000",
               "8 B–32 KiB, random replacement, 4 threads"),
    _benchmark("sh6_like1", "sh6_like", "1 4000", "1 300", "8–1000 B, batches, 1 thread"),
    _benchmark("sh6_like4", "sh6_like", "4 7000", "4 500", "8–1000 B, batches, 4 threads"),
    _benchmark("sh8_like2", "sh8_like", "2 4000", "2 300",
               "8–1000 B, batches, a third freed by the other of 2 threads"),
    _benchmark("sh8_like4", "sh8_like", "4 5000", "4 400",
               "8–1000 B, batches, a third freed by the next of 4 threads"),
    _benchmark("mleak1", "mleak", "4000 1", "300 1", "a dying thread's blocks, 1 at a time"),
    _benchmark("mleak4", "mleak", "800 4", "100 4", "dying threads' blocks, 4 at a time"),
    _benchmark("malloc_large", "malloc_large", "200", "20", "5–25 MiB", prime=640),
    _benchmark("barnes_like", "barnes_like", "12000 4", "3000 4", "an octree per step"),
    _benchmark("cfrac_like", "cfrac_like", "34 1 250", "26", "8–40 B, arithmetic"),
    _benchmark("espresso_like", "espresso_like", "300 12 60", "40 12 60",
               "16 B and lists, logic minimisation"),
)
