"""`wukongs bench`: the benchmarks, which live in a checkout of the source and are not installed."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from wukongs.cli import REFUSED, bench_results, complain
from wukongs.cli.parsers import CommandParser

_EPILOG = """examples:
  wukongs bench lsbench
  wukongs bench citybench --report reports/
  wukongs bench compare results/before results/after
  wukongs bench report results/after
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs bench",
        description="Run a benchmark: medians, p99, rows and checked answers. Works in a checkout of the source only.",
        epilog=_EPILOG,
    )
    parser.add_argument("benchmark", choices=("lsbench", "citybench"))
    parser.add_argument("--report", type=Path, metavar="DIR", help="write tables and JSON into this folder")
    return parser


def make_parsers(command: str) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of the command, under "", and those of its actions."""
    compare, report = bench_results.make_compare_parser(), bench_results.make_report_parser()
    return {"": make_parser(), "compare": compare, "report": report}


def main(argv: Sequence[str]) -> int:
    actions = {"compare": bench_results.compare, "report": bench_results.report}
    try:
        if argv and argv[0] in actions:
            return actions[argv[0]](argv[1:])
        options = make_parser().parse_args(list(argv))
        benchmark = importlib.import_module(f"wukongs.bench.{options.benchmark}.run")
    except ModuleNotFoundError as error:
        if error.name != "wukongs.bench":
            raise
        return complain(
            "bench runs in a checkout of the source, which is not here: clone the repository and call it there", REFUSED
        )
    status: int = benchmark.main(report=options.report)
    return status
