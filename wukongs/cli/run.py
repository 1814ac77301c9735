"""`wukongs run`: streams, stored data and continuous queries from one TOML file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from wukongs.cli.query import check_file, say_if_compiling

_EPILOG = """examples:
  wukongs run traffic.toml
  wukongs run --plain traffic.toml > windows.txt
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wukongs run",
        description="Load stored data, feed streams through local Spark and report the windows of continuous queries, "
        "all as one TOML file says.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("config", metavar="CONFIG.toml", help="what to load, stream and register")
    parser.add_argument("--plain", action="store_true", help="plain lines instead of a live table on a terminal")
    parser.add_argument(
        "--rows", type=_count, default=0, metavar="N", help="print the first N rows of each window (plain lines only)"
    )
    return parser


def _count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"expected an integer from 0 on, found {text!r}")


def main(argv: Sequence[str]) -> int:
    options = make_parser().parse_args(list(argv))
    check_file(options.config, "a TOML file")
    say_if_compiling()
    from adapters.run import run

    return run(Path(options.config), plain=options.plain, rows_shown=options.rows)
