"""`wukongs watch`: print the windows of a query that is registered with a running node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from wukongs.cli import DONE, say
from wukongs.cli.parsers import CommandParser
from wukongs.cli.query import parse_seconds, print_result
from wukongs.cli.server import add_server_options, connect_to, elsewhere
from wukongs.errors import GapError, StreamError
from wukongs.query.output.formats import FORMATS
from wukongs.query.output.results import WindowResult
from wukongs.remote.query import RemoteQuery

_EPILOG = """examples:
  wukongs watch --server tcp://127.0.0.1:7411 traffic
  wukongs watch --server tcp://127.0.0.1:7411 traffic --format csv --windows 10 > rows.csv

It begins with the oldest window that the node still holds, and each who watches gets every window. Ctrl-C ends it;
the query goes on.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs watch",
        usage="wukongs watch --server URL [options] NAME",
        description="Print the windows of a registered query as they come, until Ctrl-C or until the query is closed.\n"
        "Which window it is stands above a table, or on standard error.",
        epilog=_EPILOG,
    )
    parser.add_argument("name", metavar="NAME", help="the name that the query was registered under")
    add_server_options(parser, required=True)
    parser.add_argument(
        "--format", choices=FORMATS, default="table", help="of the windows (default: table; ttl and nt for CONSTRUCT)"
    )
    parser.add_argument("--windows", type=_count, metavar="N", help="end after N windows")
    parser.add_argument("--timeout", type=parse_seconds, metavar="SECONDS", help="end when no window comes for so long")
    return parser


def _count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected an integer from 1 on, found {text!r}")


def main(argv: Sequence[str]) -> int:
    options = make_parser().parse_args(list(argv))
    with connect_to(options) as node:
        address = elsewhere(node).get(options.name)
        if address is not None:
            raise StreamError(f"query {options.name} is at another node: watch it with --server {address}")
        queries = {query.name: query for query in node.queries()}
        query = queries.get(options.name)
        if query is None:
            known = ", ".join(sorted(queries)) or "none"
            raise StreamError(f"no query named {options.name} is registered: register it first. Registered: {known}")
        for number, window in enumerate(_read(query, options.timeout), start=1):
            _print(window, options.format)
            if number == options.windows:
                query.confirm()
                break
    return DONE


def _read(query: RemoteQuery, timeout_s: float | None) -> Iterator[WindowResult]:
    """Iterate over the windows; gaps are told on standard error."""
    while True:
        try:
            yield from query.results(timeout_s=timeout_s)
        except GapError as gap:
            print(gap, file=sys.stderr, flush=True)
        else:
            return


def _print(window: WindowResult, format: str) -> None:
    partial = ", partial" if window.partial else ""
    head = f"{window.query} ({window.start_ms}, {window.end_ms}] ms{partial}, {len(window)} rows"
    if format == "table":
        say(head + "\n")
    else:
        print(head, file=sys.stderr, flush=True)
    print_result(window, format, "")
    say("\n" if format == "table" else "")
