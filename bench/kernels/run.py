"""The kernels on the real design: 63-bit ids, fences, live base batches, windows read through merged blocks."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.kernels.batches import bench_build, bench_find_key, bench_merge
from wukongs.bench.kernels.steps import bench_steps

SEED = 20_170


def main(report: Path | None = None, data: Path | None = None, quick: bool = False) -> int:
    """Run all kernel benchmarks; the data is random, so `data` is not used. Returns the exit status."""
    found = Report("kernels", {"source": "random graph", "seed": SEED, "clock": "CPU time of one thread"})
    rng = np.random.default_rng(SEED)
    try:
        if quick:
            bench_steps(found, 2_000, (4,), rng)
            bench_find_key(found, (10, 1_000), rng)
            bench_build(found, (1_000,), rng)
            bench_merge(found, ((2_000, 500),), rng)
        else:
            bench_steps(found, 5_000_000, (4, 50), rng)
            bench_find_key(found, (10_000, 100_000, 1_000_000, 5_000_000, 20_000_000), rng)
            bench_build(found, (1_000, 10_000, 100_000, 1_000_000, 4_000_000), rng)
            bench_merge(found, ((1_000, 1_000), (100_000, 10_000), (1_000_000, 500_000), (2_000_000, 2_000_000)), rng)
    except WrongAnswer as error:
        print(f"wukongs: {error}", file=sys.stderr)
        return 1
    found.publish(report)
    return 0
