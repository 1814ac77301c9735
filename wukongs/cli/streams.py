"""`wukongs streams`: the streams of a running node."""

from __future__ import annotations

from collections.abc import Sequence

from wukongs.cli import DONE, say
from wukongs.cli.server import connect_to, parser_of

_EPILOG = """examples:
  wukongs streams --server tcp://127.0.0.1:7411
"""


def main(argv: Sequence[str]) -> int:
    parser = parser_of("streams", "Print the IRIs of the streams that a running node takes.", _EPILOG)
    options = parser.parse_args(list(argv))
    with connect_to(options) as node:
        say("".join(iri + "\n" for iri in node.streams()))
    return DONE
