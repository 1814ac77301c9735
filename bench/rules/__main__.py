"""`python -m wukongs.bench.rules`: the benchmark of rules, with its sizes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from wukongs.bench.rules.run import QUESTIONS, QUICK, Sizes
from wukongs.bench.rules.run import main as run


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m wukongs.bench.rules", description="Closures, at rest and moving.")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write tables, JSON and a picture into this folder")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only shows that everything runs")
    parser.add_argument(
        "--only", nargs="+", choices=QUESTIONS, default=(), metavar="QUESTION", help=", ".join(QUESTIONS)
    )
    for field in fields(Sizes):
        parser.add_argument(f"--{field.name}", type=int, metavar="N", help=f"default: {field.default:,}")
    options = parser.parse_args(argv)
    given = {field.name: value for field in fields(Sizes) if (value := getattr(options, field.name)) is not None}
    if any(value < 1 for value in given.values()):
        parser.error("sizes are counts from 1 on")
    return run(options.report, options.quick, options.only, replace(QUICK if options.quick else Sizes(), **given))


if __name__ == "__main__":
    sys.exit(main())
