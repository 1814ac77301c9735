"""`wukongs cluster add | drain | remove`: change the nodes of a running cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wukongs.cli import DONE
from wukongs.cli.parsers import CommandParser
from wukongs.cli.server import add_server_options, connect_to

_EPILOG = """examples:
  wukongs cluster drain 2 --server tcp://127.0.0.1:7411
  wukongs cluster drain 2 --to 4 5 --server tcp://127.0.0.1:7411,tcp://127.0.0.1:7412

Ends when the node holds no shards any more: it may be stopped then, and is a spare one when it is started anew. Loads,
pushes and queries go on meanwhile. Said again, it waits for what is under way.
"""


_ADD_EPILOG = """examples:
  wukongs cluster add --clients tcp://127.0.0.1:7420 --peers tcp://127.0.0.1:7520 --server tcp://127.0.0.1:7411

Prints the node's number. Its file has this number, the same [[node]] list as the files of the others, and its addresses
under [added]; `wukongs node --config FILE` runs it, before or after. It is a spare node then: `wukongs cluster drain`
lets it take another one's place.
"""
_REMOVE_EPILOG = """examples:
  wukongs cluster remove 2 --server tcp://127.0.0.1:7411

The node was drained and stopped before. Its number is not used again.
"""


def add(argv: Sequence[str]) -> int:
    options = add_parser().parse_args(list(argv))
    with connect_to(options) as node:
        print(node.add_node(options.clients, options.peers, options.public_key))
    return DONE


def add_parser() -> argparse.ArgumentParser:
    parser = _parser("add", "Let a node that no file names join a running cluster, as a spare one.", _ADD_EPILOG)
    parser.add_argument("--clients", required=True, metavar="ADDRESS", help="where clients and pipelines find it")
    parser.add_argument("--peers", required=True, metavar="ADDRESS", help="where the other nodes find it")
    parser.add_argument("--public-key", default="", metavar="KEY", help="its public key, if each node has keys")
    add_server_options(parser, required=True)
    return parser


def remove(argv: Sequence[str]) -> int:
    options = remove_parser().parse_args(list(argv))
    with connect_to(options) as node:
        node.remove_node(options.node, options.timeout)
    return DONE


def remove_parser() -> argparse.ArgumentParser:
    parser = _parser("remove", "Take a node off a running cluster that was drained and stopped.", _REMOVE_EPILOG)
    parser.add_argument("node", type=int, metavar="NODE", help="the number of the node, counted from 0")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="how long it may still run (default: 30)")
    add_server_options(parser, required=True)
    return parser


def drain(argv: Sequence[str]) -> int:
    options = drain_parser().parse_args(list(argv))
    with connect_to(options) as node:
        node.drain(options.node, options.to, options.timeout)
    return DONE


def drain_parser() -> argparse.ArgumentParser:
    parser = _parser("drain", "Let a spare node of a running cluster take a node's place.", _EPILOG)
    parser.add_argument("node", type=int, metavar="NODE", help="the number of the node, counted from 0")
    spares = "spare nodes, among which its shards are divided (default: the first that is heard)"
    parser.add_argument("--to", type=int, nargs="+", metavar="NODE", help=spares)
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="how long it may take (default: an hour)")
    add_server_options(parser, required=True)
    return parser


def _parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    return CommandParser(
        prog=f"wukongs cluster {name}",
        description=description,
        epilog=epilog,
    )
