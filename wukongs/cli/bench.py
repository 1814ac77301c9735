"""`wukongs bench`: the benchmarks, which live in a checkout of the source and are not installed."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from wukongs.cli import REFUSED, complain

_EPILOG = """examples:
  wukongs bench lsbench
  wukongs bench citybench --report reports/
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wukongs bench",
        description="Run a benchmark: medians, p99, rows and checked answers. Works in a checkout of the source only.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("benchmark", choices=("lsbench", "citybench"))
    parser.add_argument("--report", type=Path, metavar="DIR", help="write tables and JSON into this folder")
    return parser


def checkout_root() -> Path | None:
    """Return the folder that holds both this package and bench/, or None where wukongs is installed without it."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "bench" / "__init__.py").is_file() else None


def main(argv: Sequence[str]) -> int:
    options = make_parser().parse_args(list(argv))
    root = checkout_root()
    if root is None:
        return complain(
            "bench runs in a checkout of the source, which is not here: clone the repository and call it there", REFUSED
        )
    sys.path.insert(0, str(root))
    name = f"bench.{options.benchmark}.run"
    try:
        benchmark = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return complain(f"bench {options.benchmark} is not built yet: there is no {name}", REFUSED)
    status: int = benchmark.main(report=options.report)
    return status
