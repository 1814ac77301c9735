"""`python -m wukongs.bench`: the runs of `wukongs bench`, and the benchmarks with which we work on parts.

The runs take the options of `wukongs bench`, `counts` its own; all others those below.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wukongs.bench.compare import ROUNDS, compare
from wukongs.bench.runs import BENCHMARKS as RUNS
from wukongs.cli import main as run_command

PARTS = (
    "continuous",
    "paced",
    "kernels",
    "store",
    "oneshot",
    "rules",
    "overshoot",
    "wire",
    "one-node",
    "nodes-folders",
    "nodes-soak",
    "pipeline",
    "http",
    "http-heavy",
    "http-idle",
    "attacks",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks asked for; return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_run = not arguments or arguments[0] in (*RUNS, "all")
    if is_run and not any(one.startswith("--against") for one in arguments):
        return run_command(["bench", *(arguments or ["lsbench"])])
    if arguments[0] == "counts":
        from wukongs.bench.counts import main as run_counts

        return run_counts(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="python -m wukongs.bench",
        description="Medians, p99, rows and checked answers of one part of the engine. "
        f"{', '.join(RUNS)} and all take the options of `wukongs bench`, or --against; counts has `counts --help`.",
    )
    parser.add_argument("benchmark", choices=(*RUNS, *PARTS))
    parser.add_argument("--report", type=Path, metavar="DIR", help="write tables and JSON into this folder")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data of that benchmark (default: ../shared/data)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only shows that everything runs")
    parser.add_argument("--stored", type=int, metavar="N", help="of continuous, paced: about so many stored triples")
    parser.add_argument("--minutes", type=float, metavar="M", help="of nodes-soak: how long")
    parser.add_argument("--rate", type=int, metavar="N", help="of nodes-soak: tuples a second (default: 50000)")
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        metavar="QUESTION",
        help="of store, pipeline, rules: these questions only",
    )
    parser.add_argument(
        "--against", type=Path, metavar="CHECKOUT", help="run by turns with another checkout, and tell the ratios"
    )
    parser.add_argument("--rounds", type=int, metavar="N", default=ROUNDS, help="with --against: pairs (default: 7)")
    options = parser.parse_args(arguments)
    if options.against is not None:
        return _against(parser, options)
    return run(
        options.benchmark,
        options.report,
        options.data,
        options.quick,
        options.only,
        options.stored,
        options.minutes,
        options.rate,
    )


def _against(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.rounds < 1 or not (options.against / "wukongs" / "bench").is_dir():
        parser.error("--against: expected a checkout with wukongs/bench in it, and --rounds from 1 on")
    told = ["--quick"] if options.quick else []
    told += ["--repeat", "1"] if options.benchmark in RUNS else []
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
    rate: int | None = None,
) -> int:
    """Run the benchmark of one part; the modules are only imported for it."""
    if name == "continuous":
        from wukongs.bench.continuous.run import main as run_continuous

        return run_continuous(report, quick, stored_count)
    if name == "paced":
        from wukongs.bench.paced.run import main as run_paced

        return run_paced(report, quick, stored_count)
    if name == "kernels":
        from wukongs.bench.kernels.run import main as run_kernels

        return run_kernels(report, data, quick)
    if name == "oneshot":
        from wukongs.bench.oneshot.run import main as run_oneshot

        return run_oneshot(report, data, quick)
    if name == "rules":
        from wukongs.bench.rules.run import main as run_rules

        return run_rules(report, quick, only)
    if name == "overshoot":
        from wukongs.bench.oneshot.overshoot import main as run_overshoot

        return run_overshoot(report, quick)
    if name == "wire":
        from wukongs.bench.wire.run import main as run_wire

        return run_wire(report, quick)
    if name == "one-node":
        from wukongs.bench.nodes.one_node import main as run_one_node

        return run_one_node(report, data, quick)
    if name == "nodes-soak":
        from wukongs.bench.nodes.soak import main as run_soak

        return run_soak(report, quick, 0.1 if quick and minutes is None else minutes, rate)
    if name == "nodes-folders":
        from wukongs.bench.nodes.folders import main as run_folders

        return run_folders(report, quick)
    if name == "pipeline":
        from wukongs.bench.pipeline.run import main as run_pipeline

        return run_pipeline(report, quick, only)
    if name == "http":
        from wukongs.bench.http.run import main as run_http

        return run_http(report, quick)
    if name == "http-heavy":
        from wukongs.bench.http.heavy import main as run_heavy

        return run_heavy(report, quick)
    if name == "http-idle":
        from wukongs.bench.http.idle import main as run_idle

        return run_idle(report, quick)
    if name == "attacks":
        from wukongs.bench.attacks.run import main as run_attacks

        return run_attacks(report, quick)
    from wukongs.bench.store.run import main as run_store

    return run_store(report, quick, only)


if __name__ == "__main__":
    sys.exit(main())
