"""`wukongs bench compare` and `wukongs bench report`: what is done with the results of runs."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from wukongs.cli import DONE, REFUSED, complain, say
from wukongs.cli.parsers import CommandParser

_RUN = "the folder of a run, or the run.json in it"
_COMPARE_EPILOG = """examples:
  wukongs bench compare results/monday results/friday
  wukongs bench compare --fail-above 1.1 results/before results/after

A time, rate or size has changed if the 95 % interval of its ratio does not hold 1. Counts of work (rows, bytes, probes)
are compared exactly. Two checkouts are run by turns by `python -m wukongs.bench BENCHMARK --against CHECKOUT`.

exit status: 0 done, 1 a folder without results, or something is worse than --fail-above allows, 2 wrong usage
"""
_REPORT_EPILOG = """examples:
  wukongs bench report results/monday
  xdg-open results/monday/report.html
"""


def make_compare_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs bench compare",
        description="Compare the results of two runs: what got slower, what got quicker, which counts of work changed.",
        epilog=_COMPARE_EPILOG,
    )
    parser.add_argument("before", type=Path, metavar="BEFORE", help=_RUN)
    parser.add_argument("after", type=Path, metavar="AFTER", help="the same of a later run")
    parser.add_argument(
        "--fail-above",
        type=_ratio,
        metavar="RATIO",
        help="end with 1 if something is slower, takes more, or counts more work by more than RATIO times",
    )
    return parser


def make_report_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs bench report",
        description="Write report.md and report.html, with its pictures inside, from the results of a run.",
        epilog=_REPORT_EPILOG,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help=_RUN)
    return parser


def compare(argv: Sequence[str]) -> int:
    """Raises ResultsError."""
    options = make_compare_parser().parse_args(list(argv))
    two_runs = importlib.import_module("wukongs.bench.report.two_runs")
    found = two_runs.compare_runs(options.before, options.after)
    say(found.to_text())
    failed = [] if options.fail_above is None else found.worse_than(options.fail_above)
    if not failed:
        return DONE
    figures = "one figure is" if len(failed) == 1 else f"{len(failed)} figures are"
    return complain(f"bench compare: {figures} worse by more than {options.fail_above:g} times, see above", REFUSED)


def report(argv: Sequence[str]) -> int:
    """Raises ResultsError and OSError."""
    options = make_report_parser().parse_args(list(argv))
    folder = options.folder.parent if options.folder.name == "run.json" else options.folder
    importlib.import_module("wukongs.bench.report").write_report(folder)
    print(f"{folder / 'report.html'}, {folder / 'report.md'}", file=sys.stderr)
    return DONE


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (isfinite(value) and value >= 1):
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, such as 1.1, found {text!r}")
    return value
