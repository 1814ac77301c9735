"""`wukongs cluster drain`: let a spare node of a running cluster take a node's place."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wukongs.cli import DONE
from wukongs.cli.server import add_server_options, connect_to

_EPILOG = """examples:
  wukongs cluster drain 2 --server tcp://127.0.0.1:7411
  wukongs cluster drain 2 --to 4 5 --server tcp://127.0.0.1:7411,tcp://127.0.0.1:7412

Ends when the node holds no shards any more: it may be stopped then, and is a spare one when it is started anew. Loads,
pushes and queries go on meanwhile. Said again, it waits for what is under way.
"""


def drain(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="wukongs cluster drain",
        description="Let a spare node of a running cluster take a node's place.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("node", type=int, metavar="NODE", help="the number of the node, counted from 0")
    spares = "spare nodes, among which its shards are divided (default: the first that is heard)"
    parser.add_argument("--to", type=int, nargs="+", metavar="NODE", help=spares)
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="how long it may take (default: an hour)")
    add_server_options(parser, required=True)
    options = parser.parse_args(list(argv))
    with connect_to(options) as node:
        node.drain(options.node, options.to, options.timeout)
    return DONE
