"""`wukongs queries`, `wukongs streams` and `wukongs stats`: what a running node says of itself."""

from __future__ import annotations

import json
from collections.abc import Sequence

from wukongs.cli import DONE, say
from wukongs.cli.server import connect_to, elsewhere, parser_of

_QUERIES_EPILOG = """examples:
  wukongs queries --server tcp://127.0.0.1:7411
  wukongs queries --server tcp://127.0.0.1:7411 --why

Of a cluster: also those at other nodes, with the address at which to watch them.
"""
_STREAMS_EPILOG = """examples:
  wukongs streams --server tcp://127.0.0.1:7411
"""
_STATS_EPILOG = """examples:
  wukongs stats --server tcp://127.0.0.1:7411
"""


def queries(argv: Sequence[str]) -> int:
    about = "Print the names of the queries that are registered with a running node."
    parser = parser_of("queries", about, _QUERIES_EPILOG)
    parser.add_argument("--why", action="store_true", help="print what each of them waits for, and what empties it")
    options = parser.parse_args(list(argv))
    with connect_to(options) as node:
        away = elsewhere(node)
        for query in node.queries():
            at = f" at {away[query.name]}" if query.name in away else ""
            say((query.why() if options.why else query.name) + at + "\n")
    return DONE


def streams(argv: Sequence[str]) -> int:
    parser = parser_of("streams", "Print the IRIs of the streams that a running node takes.", _STREAMS_EPILOG)
    with connect_to(parser.parse_args(list(argv))) as node:
        say("".join(iri + "\n" for iri in node.streams()))
    return DONE


def stats(argv: Sequence[str]) -> int:
    about = "Print counts and sizes (bytes) of the stored graph, streams and queries of a running node, as JSON."
    with connect_to(parser_of("stats", about, _STATS_EPILOG).parse_args(list(argv))) as node:
        say(json.dumps(node.stats(), indent=2) + "\n")
    return DONE
