"""`wukongs stats`: counts and sizes of a running node."""

from __future__ import annotations

import json
from collections.abc import Sequence

from wukongs.cli import DONE, say
from wukongs.cli.server import connect_to, parser_of

_EPILOG = """examples:
  wukongs stats --server tcp://127.0.0.1:7411
"""


def main(argv: Sequence[str]) -> int:
    description = "Print counts and sizes (bytes) of the stored graph, streams and queries of a running node, as JSON."
    options = parser_of("stats", description, _EPILOG).parse_args(list(argv))
    with connect_to(options) as node:
        say(json.dumps(node.stats(), indent=2) + "\n")
    return DONE
