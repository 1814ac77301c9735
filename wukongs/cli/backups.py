"""`wukongs backup` and `wukongs restore`: a running node or cluster, to and from a data folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from wukongs.cli import DONE
from wukongs.cli.server import connect_to, parser_of

_BACKUP_EPILOG = """examples:
  wukongs backup --server tcp://127.0.0.1:7411 backups/monday
  wukongs query --data-dir backups/monday 'SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }'

The node writes the folder on its own machine; it is whole, or not there. Of a cluster, any node writes all of it, as of
one snapshot, while everything goes on.
"""
_RESTORE_EPILOG = """examples:
  wukongs restore --server tcp://127.0.0.1:7411 backups/monday
  wukongs cluster --nodes 5 --replicas 2 --restore backups/monday

The node reads the folder on its own machine: a backup, or the data folder of an engine that has ended. The node, or its
cluster, has to be empty. Streams and queries begin with what is pushed from then on.
"""

_TEXTS = {
    "backup": (
        "Write the graph, streams and queries of a running node, or of its cluster, to a data folder.",
        _BACKUP_EPILOG,
    ),
    "restore": (
        "Fill an empty node, or its cluster, with the graph, streams and queries of a data folder.",
        _RESTORE_EPILOG,
    ),
}
"""Description and examples of each command."""


def backup(argv: Sequence[str]) -> int:
    options = _parser("backup").parse_args(list(argv))
    with connect_to(options) as node:
        node.backup(options.folder)
    return DONE


def restore(argv: Sequence[str]) -> int:
    options = _parser("restore").parse_args(list(argv))
    with connect_to(options) as node:
        node.restore(options.folder)
    return DONE


def make_parsers(command: str) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of backup or restore, under ""."""
    return {"": _parser(command)}


def _parser(command: str) -> argparse.ArgumentParser:
    parser = parser_of(command, *_TEXTS[command])
    folder = "on the node's machine; relative to the folder in which you are"
    parser.add_argument("folder", type=lambda text: Path(text).absolute(), metavar="FOLDER", help=folder)
    return parser
