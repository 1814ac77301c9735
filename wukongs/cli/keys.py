"""`wukongs keys`: make a key pair for a node or a client."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wukongs.cli import DONE, say
from wukongs.cli.parsers import CommandParser

_EPILOG = """examples:
  wukongs keys node0
  wukongs keys alice && cat alice/key.pub >> clients

DIR/key.secret stays with its owner: only its owner may read it, and nothing prints it. DIR/key.pub is for the others:
nodes list the public keys of those that may connect, clients name that of the node.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs keys",
        usage="wukongs keys DIR",
        description="Make a key pair: DIR/key.secret and DIR/key.pub. Print the public key.",
        epilog=_EPILOG,
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder for the two files; made if need be")
    return parser


def main(argv: Sequence[str]) -> int:
    folder = make_parser().parse_args(list(argv)).folder
    from wukongs.wire.keys import SECRET_FILE, make_keys

    public = make_keys(folder)
    say(f"{public}\n")
    print(f"the secret key is in {folder / SECRET_FILE}", file=sys.stderr)
    return DONE
