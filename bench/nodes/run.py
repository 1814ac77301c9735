"""L1-L6, S1-S6 and the protocol's own traffic on clusters of 1, 2, 4 and 8 nodes, beside the embedded engine.

Every answer is compared with the embedded engine's, which was asked the same in the same order.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.lsbench.data import QUICK_DATA, LsbenchData, find_folder, generate_lsbench, read_lsbench
from wukongs.bench.nodes.control import bench_control
from wukongs.bench.nodes.engines import Bench, OpenBench, embedded, processes
from wukongs.bench.nodes.one_shot import Runs, report_one_shot, run_one_shot
from wukongs.bench.nodes.windows import Run, end_ms, last_day_of, last_days, report_windows, run_windows
from wukongs.errors import WukongsError

GENERATED = NetworkSettings(users=1000, duration_ms=20_000, positions_per_s=400)


@dataclass(frozen=True, slots=True)
class Sizes:
    """days: of the streams that are replayed; repeats: of each one-shot query; control_s: per number of streams."""

    node_counts: Sequence[int] = (1, 2, 4, 8)
    days: int = 2
    repeats: int = 30
    stream_counts: tuple[int, ...] = (0, 1, 5, 20)
    control_s: float = 3.0


QUICK = Sizes(node_counts=(1, 2), days=1, repeats=2, stream_counts=(0, 1), control_s=0.2)


def main(
    report: Path | None = None, data: Path | None = None, quick: bool = False, open_cluster: OpenBench = processes
) -> int:
    """Run the benchmark. data: a folder of LSBench files; quick: tiny generated data, two clusters.

    Returns the exit status: 1 for a wrong answer, data that cannot be read or a cluster that does not start, after one
    line on standard error."""
    try:
        results = _run(
            read_data(data, QUICK_DATA if quick else GENERATED, quick),
            QUICK if quick else Sizes(),
            open_cluster,
            report,
        )
    except (WrongAnswer, OSError, ValueError, RuntimeError, WukongsError) as error:
        print(f"wukongs: bench nodes: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    return 0


def _run(data: LsbenchData, sizes: Sizes, open_cluster: OpenBench, folder: Path | None) -> Report:
    days = last_days(data, last_day_of(data), sizes.days)
    told = {"days": f"{days.last_day - days.count}-{days.last_day}", "transport": "tcp on loopback, one machine"}
    results = Report("nodes", {**data.describe(), **told})

    def measure(bench: Bench) -> tuple[Runs, dict[str, Run]]:
        print(f"bench nodes: {bench.name}", file=sys.stderr, flush=True)
        return run_one_shot(bench, data, sizes.repeats), run_windows(bench, data, days)

    with embedded() as alone:
        wanted, wanted_windows = measure(alone)
    report_one_shot(results, alone, wanted, wanted.queries)
    report_windows(results, alone, wanted_windows, wanted_windows, data, days)
    for node_count in sizes.node_counts:
        with open_cluster(node_count) as cluster:
            answers, windows = measure(cluster)
            report_one_shot(results, cluster, answers, wanted.queries)
            report_windows(results, cluster, windows, wanted_windows, data, days)
            bench_control(results, cluster, sizes.stream_counts, sizes.control_s, end_ms(days))
        results.write(folder)  # the next one takes minutes
    return results


def read_data(data: Path | None, generated: NetworkSettings, quick: bool) -> LsbenchData:
    """Return the data of a folder, by default of the one beside the project; where there is none, or for a quick run,
    what is generated."""
    folder = None if quick and data is None else find_folder(data)
    return generate_lsbench(generated) if folder is None else read_lsbench(folder)
