"""`wukongs queries`: the queries that are registered with a running node."""

from __future__ import annotations

from collections.abc import Sequence

from wukongs.cli import DONE, say
from wukongs.cli.server import connect_to, elsewhere, parser_of

_EPILOG = """examples:
  wukongs queries --server tcp://127.0.0.1:7411
  wukongs queries --server tcp://127.0.0.1:7411 --why

Of a cluster: also those at other nodes, with the address at which to watch them.
"""


def main(argv: Sequence[str]) -> int:
    parser = parser_of("queries", "Print the names of the queries that are registered with a running node.", _EPILOG)
    parser.add_argument("--why", action="store_true", help="print what each of them waits for")
    options = parser.parse_args(list(argv))
    with connect_to(options) as node:
        away = elsewhere(node)
        for query in node.queries():
            at = f" at {away[query.name]}" if query.name in away else ""
            say((query.why() if options.why else query.name) + at + "\n")
    return DONE
