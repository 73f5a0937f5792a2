#!/usr/bin/env python3
"""Draws what run.py recorded: plot.py soak.json soak.svg (matplotlib from build/venv)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import deps  # noqa: E402


def main() -> None:
    deps.need("matplotlib")
    from matplotlib import pyplot
    record = json.loads(Path(sys.argv[1]).read_text())
    figure, (memory, latency, redis) = pyplot.subplots(3, 1, figsize=(11, 9), constrained_layout=True)

    def lines(axes, samples: list[dict], *keys: str, scale: float) -> None:
        for key in keys:
            axes.plot([s["t"] for s in samples], [s[key] * scale for s in samples], label=key.split("_")[0], lw=1)
        axes.legend(loc="upper right")

    lines(memory, record["long_life"], "rss_kib", "live_kib", scale=1 / 1024)
    memory.set(title="long_life: resident and live, MiB", ylim=0)
    timed = [s for s in record["long_life"] if s["timed"] >= 1000]
    lines(latency, timed, "p50", "p99", "p999", "max", scale=1e-3)
    latency.set(title="long_life: time of a malloc, µs", yscale="log")
    lines(redis, record["redis"], "rss_kib", "used_kib", scale=1 / 1024)
    redis.set(title="redis-server: resident and used, MiB", ylim=0, xlabel="seconds")
    figure.savefig(sys.argv[2])


if __name__ == "__main__":
    main()
