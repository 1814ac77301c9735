"""`wukongs bench peers`: the engines that `--peers` knows, which of them are here, and how the others are fetched."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from wukongs.cli import DONE, say
from wukongs.cli.parsers import CommandParser
from wukongs.errors import SettingsError

_EPILOG = """examples:
  wukongs bench peers                    what each answers, whether it is here, and what is missing
  wukongs bench peers fetch jena         its jars, checked by their SHA-256
  wukongs bench peers fetch              all that can be fetched

Jars come from Maven Central (WUKONGS_MAVEN: another repository), packages from npm, by locked lists. They are kept in
~/.cache/wukongs/peers (XDG_CACHE_HOME, WUKONGS_PEERS).
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs bench peers",
        description="List the engines that `wukongs bench ... --peers` knows, or fetch some.",
        epilog=_EPILOG,
    )
    parser.add_argument("action", nargs="?", choices=("list", "fetch"), default="list", help="default: list")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of fetch: these (default: all that can be fetched)")
    return parser


def peers(argv: Sequence[str]) -> int:
    """Raises SettingsError (a name that is none, or is not fetched), FetchError, OSError."""
    options = make_parser().parse_args(list(argv))
    known = importlib.import_module("wukongs.bench.peers.known").KNOWN
    if options.action == "list":
        if options.names:
            raise SettingsError(f"list takes no names, found {' '.join(options.names)}: leave them out, or use fetch")
        for name, one in known.items():
            lacking = one.lacks()
            say(f"{name:<11} {f'missing: {lacking}' if lacking else 'here'}\n")
            say(f"{'':<11} answers {one.answers}; needs: {one.needs}\n")
        return DONE
    fetched = {name: one.fetched for name, one in known.items() if one.fetched is not None}
    for name in options.names:
        if name not in fetched:
            why = f"needs: {known[name].needs}" if name in known else "there is no peer of this name"
            raise SettingsError(f"{name} cannot be fetched ({why}): expected some of {', '.join(fetched)}")
    for name in options.names or fetched:
        fetched[name].fetch(lambda text: print(text, file=sys.stderr, flush=True))
        print(f"{name} is in {fetched[name].folder}", file=sys.stderr)
        lacking = known[name].lacks()
        if lacking:
            print(f"{name} still lacks: {lacking}", file=sys.stderr)
    return DONE
