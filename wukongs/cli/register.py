"""`wukongs register`: register a continuous query with a running node, where it stays."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

from wukongs.cli import DONE, say
from wukongs.cli.query import read_argument
from wukongs.cli.server import add_server_options, connect_to
from wukongs.csparql.algebra import Output
from wukongs.csparql.parser import parse_query

_EPILOG = """examples:
  wukongs register --server tcp://127.0.0.1:7411 @traffic.rq
  wukongs watch --server tcp://127.0.0.1:7411 traffic

The query stays registered when this command ends. Its windows wait at the node until somebody reads them.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wukongs register",
        usage="wukongs register --server URL [options] QUERY|@FILE",
        description="Register a continuous query (C-SPARQL or RSP-QL) with a running node; print its name.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("query", metavar="QUERY|@FILE", help="the query, or @FILE that holds it; @- is stdin")
    add_server_options(parser, required=True)
    parser.add_argument("--base", metavar="IRI", help="resolve relative IRIs of the query against it")
    parser.add_argument("--output", choices=get_args(Output), help="which rows of a firing are reported")
    return parser


def main(argv: Sequence[str]) -> int:
    options = make_parser().parse_args(list(argv))
    text, source = read_argument(options.query, "a query")
    parse_query(text, options.base, source)  # a wrong query is refused by the name of its file
    with connect_to(options) as node:
        say(node.register(text, base=options.base, output=options.output).name + "\n")
    return DONE
