"""LSBench: L1-L6 latency, load rate and injection, on the sample beside the project or on a generated network."""

from __future__ import annotations

import sys
from pathlib import Path

from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.lsbench.data import LsbenchData, find_folder, generate_lsbench, read_lsbench
from wukongs.bench.lsbench.latency import bench_latency
from wukongs.bench.lsbench.load import bench_load
from wukongs.bench.store.injection import bench_injection

GENERATED = NetworkSettings(users=1000, duration_ms=20_000, positions_per_s=400)
QUICK = NetworkSettings(users=60, friends=8, duration_ms=2000, posts_per_s=40, photos_per_s=30, positions_per_s=20)


def main(report: Path | None = None, data: Path | None = None, quick: bool = False) -> int:
    """Run the benchmark. data: a folder of LSBench files; quick: tiny generated data.

    Returns the exit status: 1 for a wrong answer or data that cannot be read, after one line on standard error."""
    try:
        found = _read(data, quick)
        results = Report("lsbench", found.describe())
        days = min(stream.times[-1] for name, stream in found.streams.items() if name != "GPS") // 86_400_000
        bench_latency(results, found, int(days), (1,) if quick else (2, int(days) - 1, int(days)))
        loaded = bench_load(results, found, 2_000 if quick else 1_000_000, 1 if quick else 3)
        if not quick:
            loaded = bench_load(results, found, 3_000_000, 1)
        bench_injection(results, found, loaded.core, 6 if quick else 120, 10, 200 if quick else 1)
    except (WrongAnswer, OSError, ValueError) as error:
        print(f"wukongs: bench lsbench: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    return 0


def _read(data: Path | None, quick: bool) -> LsbenchData:
    if quick and data is None:
        return generate_lsbench(QUICK)
    folder = find_folder(data)
    return generate_lsbench(GENERATED) if folder is None else read_lsbench(folder)
