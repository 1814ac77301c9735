"""`wukongs bench`: LSBench, CityBench, interactive queries and live views, with peers in the same run."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from wukongs.cli import DONE, bench_peers, bench_results
from wukongs.cli.parsers import CommandParser, integer_from

_EPILOG = """examples:
  wukongs bench lsbench
  wukongs bench lsbench --users 10000 --queries L4,L5 --rate 0.5,1,2 --experiment latency
  wukongs bench lsbench --peers pyoxigraph,rdflib --report run/       Ctrl-C, and again: it goes on
  wukongs bench citybench --data citybench/ --peers "mine=java -jar mine.jar"
  wukongs bench all --quick
  wukongs bench report run/                                          writes its report again
  wukongs bench compare before/ after/                               two runs
  wukongs bench peers                                                the engines that --peers knows

experiments:
  lsbench      latency, one-shot, one-shot-with-streams, rate, load, injection, throughput, scalarization,
               fault-tolerance; if named: nodes (or --nodes), composite, queries, scale, soak
  citybench    citybench, citybench-official
  interactive  interactive, install, sharing, fuel, join-proportionality
  views        anew, dataflow, many; if named: tpch, recursion, program. Their peers are always the same.

LSBENCH_DATA and CITYBENCH_DATA name folders as --data does. Without data both make their own.
"""
BENCHMARKS = ("lsbench", "citybench", "interactive", "views", "all")


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs bench",
        description="Run a benchmark. Answers are checked before a time is told. Medians come with 95 % intervals.",
        epilog=_EPILOG,
    )
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--data", type=Path, metavar="DIR", help="of lsbench, citybench, tpch: the folder of its files")
    parser.add_argument(
        "--users", type=integer_from(10), metavar="N", help="of lsbench: make a network of so many users"
    )
    parser.add_argument(
        "--rate", type=_rates, default=(), metavar="X,...", help="of lsbench: multiples of the rates of the streams"
    )
    parser.add_argument(
        "--queries", type=_some_names, default=(), metavar="Q,...", help="these only, as L1,L4 (default: all)"
    )
    parser.add_argument(
        "--experiment",
        type=_some_names,
        default=(),
        metavar="E,...",
        help="these only, of those below (default: all but those behind `if named`)",
    )
    parser.add_argument(
        "--nodes", type=_counts, default=(), metavar="N,...", help="of lsbench, nodes: processes of each cluster"
    )
    parser.add_argument(
        "--through",
        choices=("push", "spark"),
        default="",
        help="of lsbench, latency and rate: how the streams enter (default: push; spark needs Java)",
    )
    parser.add_argument("--repeat", type=integer_from(1), metavar="N", help="repetitions (default: 5; 1 with --quick)")
    parser.add_argument("--minutes", type=_minutes, metavar="M", help="of the soak of lsbench: how long (default: 60)")
    parser.add_argument(
        "--edges", type=integer_from(100), metavar="N", help="of program, in views: of its graph (default: 10 M)"
    )
    parser.add_argument(
        "--peers",
        action="append",
        default=[],
        metavar="A,B",
        help="engines in the same run: pyoxigraph, rdflib and others (see `wukongs bench peers`), or NAME=COMMAND for "
        "one that runs as its own process; may be given several times",
    )
    parser.add_argument("--report", type=Path, metavar="DIR", help="the folder of the run, in which it can go on")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only shows that everything runs")
    return parser


def make_parsers(command: str) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of the command, under "", and those of its actions."""
    compare, report = bench_results.make_compare_parser(), bench_results.make_report_parser()
    return {"": make_parser(), "compare": compare, "report": report, "peers": bench_peers.make_parser()}


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _some_names(text: str) -> tuple[str, ...]:
    names = _names(text)
    if not names:
        raise argparse.ArgumentTypeError(f"expected names with commas between, found {text!r}")
    return names


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(part) for part in _names(text))
    except ValueError:
        rates = ()
    if not rates or not all(0.01 <= rate <= 1000 for rate in rates):
        raise argparse.ArgumentTypeError(f"expected numbers from 0.01 to 1000 with commas between, found {text!r}")
    return rates


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(part) for part in _names(text))
    except ValueError:
        counts = ()
    if not counts or not all(1 <= count <= 64 for count in counts):
        raise argparse.ArgumentTypeError(f"expected integers from 1 to 64 with commas between, found {text!r}")
    return counts


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0.05 <= minutes <= 10_080:
        raise argparse.ArgumentTypeError(f"expected minutes from 0.05 to 10080, found {text!r}")
    return minutes


def _peers(given: Sequence[str]) -> tuple[str, ...]:
    """Return the peers by name; a command may have commas of its own."""
    found: dict[str, None] = {}
    for text in given:
        found.update(dict.fromkeys([text] if "=" in text else _names(text)))
    return tuple(found)


def main(argv: Sequence[str]) -> int:
    actions = {"compare": bench_results.compare, "report": bench_results.report, "peers": bench_peers.peers}
    if argv and argv[0] in actions:
        return actions[argv[0]](argv[1:])
    options = make_parser().parse_args(list(argv))
    runs = importlib.import_module("wukongs.bench.runs")
    runs.run(
        options.benchmark,
        runs.Options(
            data=options.data,
            users=options.users,
            rates=options.rate,
            queries=options.queries,
            repeat=options.repeat or (1 if options.quick else 5),
            peers=_peers(options.peers),
            report=options.report,
            experiments=options.experiment,
            is_quick=options.quick,
            nodes=options.nodes,
            through=options.through,
            minutes=options.minutes,
            edges=options.edges,
        ),
    )
    return DONE
