"""`python -m wukongs.bench`: run benchmarks in a checkout of the source."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

BENCHMARKS = ("lsbench", "kernels", "store", "citybench", "oneshot", "overshoot", "wire", "nodes", "one-node", "all")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wukongs.bench", description="Medians, p99, rows and checked answers."
    )
    parser.add_argument("benchmark", nargs="?", choices=BENCHMARKS, default="lsbench", help="default: lsbench")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write tables and JSON into this folder")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data of that benchmark (default: ../shared/data)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only shows that everything runs")
    parser.add_argument("--only", nargs="+", default=(), metavar="QUESTION", help="of store: these questions only")
    options = parser.parse_args(argv)
    wanted = [name for name in BENCHMARKS if name != "all"] if options.benchmark == "all" else [options.benchmark]
    return max(run(name, options.report, options.data, options.quick, options.only) for name in wanted)


def run(name: str, report: Path | None, data: Path | None, quick: bool, only: Sequence[str] = ()) -> int:
    """Run one benchmark; the modules are only imported for it."""
    if name == "kernels":
        from wukongs.bench.kernels.run import main as run_kernels

        return run_kernels(report, data, quick)
    if name == "citybench":
        from wukongs.bench.citybench.run import main as run_citybench

        return run_citybench(report, data, quick)
    if name == "oneshot":
        from wukongs.bench.oneshot.run import main as run_oneshot

        return run_oneshot(report, data, quick)
    if name == "overshoot":
        from wukongs.bench.oneshot.overshoot import main as run_overshoot

        return run_overshoot(report, quick)
    if name == "wire":
        from wukongs.bench.wire.run import main as run_wire

        return run_wire(report, quick)
    if name == "nodes":
        from wukongs.bench.nodes.run import main as run_nodes

        return run_nodes(report, data, quick)
    if name == "one-node":
        from wukongs.bench.nodes.one_node import main as run_one_node

        return run_one_node(report, data, quick)
    if name == "store":
        from wukongs.bench.store.run import main as run_store

        return run_store(report, quick, only)
    from wukongs.bench.lsbench.run import main as run_lsbench

    return run_lsbench(report, data, quick)


if __name__ == "__main__":
    sys.exit(main())
