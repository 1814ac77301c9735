"""`wukongs register`: register a continuous query with a running node, where it stays."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wukongs.cli import DONE, say
from wukongs.cli.parsers import CommandParser
from wukongs.cli.query import check_file, read_argument
from wukongs.cli.server import add_server_options, connect_to
from wukongs.errors import DataError

if TYPE_CHECKING:
    import pyarrow

OUTPUTS = ("rstream", "istream", "dstream")
"""The values of csparql.algebra.Output, which is not imported for the help alone."""

_EPILOG = """examples:
  wukongs register --server tcp://127.0.0.1:7411 @traffic.rq
  wukongs watch --server tcp://127.0.0.1:7411 traffic
  wukongs register --server tcp://127.0.0.1:7411 --bindings sensors.csv @sensor.rq

The query stays registered when this command ends. Its windows wait at the node until somebody reads them.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs register",
        usage="wukongs register --server URL [options] QUERY|@FILE",
        description="Register a continuous query (C-SPARQL or RSP-QL) with a running node; print its name.",
        epilog=_EPILOG,
    )
    parser.add_argument("query", metavar="QUERY|@FILE", help="the query, or @FILE that holds it; @- is stdin")
    add_server_options(parser, required=True)
    parser.add_argument("--base", metavar="IRI", help="resolve relative IRIs of the query against it")
    parser.add_argument("--output", choices=OUTPUTS, help="which rows of a firing are reported")
    parser.add_argument(
        "--bindings",
        metavar="FILE",
        help="a .parquet, .arrow or .csv file of N-Triples terms: register the query for each of its rows, as one; the "
        "columns are named like variables of the query",
    )
    return parser


def read_bindings(file: str) -> pyarrow.Table:
    """Return the table of a file: Parquet, Arrow IPC (file or stream), or CSV with a header. Raises DataError."""
    import pyarrow as pa

    check_file(file, "a file of bindings")
    kind = Path(file).suffix
    if kind not in _READERS:
        raise DataError(f"expected bindings in a file {', '.join(_READERS)}", file)
    try:
        return _READERS[kind](file)
    except (pa.ArrowException, OSError, UnicodeDecodeError, StopIteration) as error:
        told = str(error).partition("\n")[0] or "it is empty"
        raise DataError(f"expected a table: {told}", file) from None


def _read_parquet(file: str) -> pyarrow.Table:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(file)


def _read_arrow(file: str) -> pyarrow.Table:
    import pyarrow as pa

    content = pa.py_buffer(Path(file).read_bytes())
    try:
        return pa.ipc.open_file(content).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(content).read_all()


def _read_csv(file: str) -> pyarrow.Table:
    import pyarrow as pa
    import pyarrow.csv

    with Path(file).open(newline="", encoding="utf-8-sig") as lines:
        names = next(csv.reader(lines))
    options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), null_values=[""])
    return pyarrow.csv.read_csv(file, convert_options=options)


_READERS = {".parquet": _read_parquet, ".arrow": _read_arrow, ".csv": _read_csv}


def main(argv: Sequence[str]) -> int:
    from wukongs.csparql.parser import parse_query

    options = make_parser().parse_args(list(argv))
    text, source = read_argument(options.query, "a query")
    parse_query(text, options.base, source)  # a wrong query is refused by the name of its file
    bindings = None if options.bindings is None else read_bindings(options.bindings)
    with connect_to(options) as node:
        query = node.register(text, base=options.base, output=options.output, bindings=bindings)
        for warning in query.warnings():
            print(f"warning: {warning}", file=sys.stderr)
        say(query.name + "\n")
    return DONE
