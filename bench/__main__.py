"""`python -m wukongs.bench`: run benchmarks in a checkout of the source."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wukongs.bench.compare import ROUNDS, compare

BENCHMARKS = (
    "lsbench",
    "continuous",
    "paced",
    "kernels",
    "store",
    "citybench",
    "oneshot",
    "interactive",
    "rules",
    "overshoot",
    "wire",
    "nodes",
    "one-node",
    "nodes-soak",
    "pipeline",
    "http",
    "all",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks asked for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wukongs.bench", description="Medians, p99, rows and checked answers."
    )
    parser.add_argument("benchmark", nargs="?", choices=BENCHMARKS, default="lsbench", help="default: lsbench")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write tables and JSON into this folder")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data of that benchmark (default: ../shared/data)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only shows that everything runs")
    parser.add_argument("--stored", type=int, metavar="N", help="of continuous, paced: about so many stored triples")
    parser.add_argument("--minutes", type=float, metavar="M", help="of paced, nodes-soak: how long, drawn")
    parser.add_argument("--rate", type=int, metavar="N", help="of nodes-soak: tuples a second (default: 50000)")
    parser.add_argument(
        "--peer",
        metavar="COMMAND",
        help="of interactive: another engine, which prints rows of the tables as JSON lines",
    )
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="QUESTION", help="of store, pipeline, rules: these questions only"
    )
    parser.add_argument(
        "--against", type=Path, metavar="CHECKOUT", help="run by turns with another checkout, and tell the ratios"
    )
    parser.add_argument("--rounds", type=int, metavar="N", default=ROUNDS, help="with --against: pairs (default: 7)")
    options = parser.parse_args(argv)
    if options.against is not None:
        return _against(parser, options)
    wanted = (
        [name for name in BENCHMARKS if name not in ("all", "nodes-soak")]
        if options.benchmark == "all"
        else [options.benchmark]
    )
    return max(
        run(
            name,
            options.report,
            options.data,
            options.quick,
            options.only,
            options.stored,
            options.minutes,
            options.peer,
            options.rate,
        )
        for name in wanted
    )


def _against(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.benchmark == "all" or options.rounds < 1 or not (options.against / "wukongs" / "bench").is_dir():
        parser.error("--against: expected one benchmark, a checkout with wukongs/bench in it, and --rounds from 1 on")
    told = ["--quick"] if options.quick else []
    told += ["--data", str(options.data.resolve())] if options.data is not None else []
    told += ["--only", *options.only] if options.only else []
    told += ["--stored", str(options.stored)] if options.stored is not None else []
    return compare(options.against, options.benchmark, options.report, told, options.rounds)


def run(
    name: str,
    report: Path | None,
    data: Path | None,
    quick: bool,
    only: Sequence[str] = (),
    stored_count: int | None = None,
    minutes: float | None = None,
    peer: str | None = None,
    rate: int | None = None,
) -> int:
    """Run one benchmark; the modules are only imported for it."""
    if name == "continuous":
        from wukongs.bench.continuous.run import main as run_continuous

        return run_continuous(report, quick, stored_count)
    if name == "paced":
        from wukongs.bench.paced.run import main as run_paced

        return run_paced(report, quick, stored_count, minutes)
    if name == "kernels":
        from wukongs.bench.kernels.run import main as run_kernels

        return run_kernels(report, data, quick)
    if name == "citybench":
        from wukongs.bench.citybench.run import main as run_citybench

        return run_citybench(report, data, quick)
    if name == "oneshot":
        from wukongs.bench.oneshot.run import main as run_oneshot

        return run_oneshot(report, data, quick)
    if name == "interactive":
        from wukongs.bench.interactive.run import main as run_interactive

        return run_interactive(report, quick, peer)
    if name == "rules":
        from wukongs.bench.rules.run import main as run_rules

        return run_rules(report, quick, only)
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
    if name == "nodes-soak":
        from wukongs.bench.nodes.soak import main as run_soak

        return run_soak(report, quick, 0.1 if quick and minutes is None else minutes, rate)
    if name == "pipeline":
        from wukongs.bench.pipeline.run import main as run_pipeline

        return run_pipeline(report, quick, only)
    if name == "http":
        from wukongs.bench.http.run import main as run_http

        return run_http(report, quick)
    if name == "store":
        from wukongs.bench.store.run import main as run_store

        return run_store(report, quick, only)
    from wukongs.bench.lsbench.run import main as run_lsbench

    return run_lsbench(report, data, quick)


if __name__ == "__main__":
    sys.exit(main())
