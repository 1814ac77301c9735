"""`wukongs demo`: the main job on a social network that it makes itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from wukongs.cli.parsers import CommandParser, integer_from
from wukongs.cli.query import say_if_compiling

_EPILOG = """examples:
  wukongs demo
  wukongs demo --users 2000 --seconds 30 --seed 7
  wukongs demo --plain | tee demo.txt

Its engine is served over HTTP meanwhile, with a console for the browser. On a terminal with a display it opens one;
then the console stays until Ctrl-C.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs demo",
        description="Make a small social network, stream its posts, likes, photos and positions through local Spark, "
        "run continuous and one-shot queries over them, and sum up.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--users",
        type=integer_from(10),
        metavar="N",
        help="people, 10 or more (default: 1000; fewer, and fewer tuples, where kernels are not compiled yet)",
    )
    parser.add_argument(
        "--seconds", type=integer_from(1), default=20, metavar="N", help="event time that is streamed (default: 20)"
    )
    parser.add_argument("--seed", type=integer_from(0), default=1, metavar="N", help="of the generator (default: 1)")
    parser.add_argument(
        "--port", type=integer_from(0, 65535), default=0, metavar="N", help="port of the console (default: a free one)"
    )
    parser.add_argument("--no-browser", action="store_true", help="open no browser, and end with the demo")
    parser.add_argument("--plain", action="store_true", help="plain lines instead of a live table on a terminal")
    return parser


def main(argv: Sequence[str]) -> int:
    options = make_parser().parse_args(list(argv))
    from wukongs.adapters.demo import USERS, USERS_INTERPRETED, small_network, whole_network
    from wukongs.adapters.demo import main as demo
    from wukongs.cli.console import console, has_browser
    from wukongs.store.jit import are_kernels_interpreted, is_compiled_behind

    if options.users is None and are_kernels_interpreted():
        sizes = f"{USERS_INTERPRETED} users and a tenth of the tuples"
        why = f"kernels are interpreted, since WUKONGS_KERNELS=interpret: so {sizes}; --users {USERS} is the whole demo"
        if is_compiled_behind():
            when = "kernels are being compiled behind this, once (about two minutes): until then"
            why = f"{when} {sizes}; the next run has {USERS:,} users"
        print(why, file=sys.stderr, flush=True)
        settings = small_network(options.seconds, options.seed)
    else:
        say_if_compiling()
        settings = whole_network(options.users or USERS, options.seconds, options.seed)
    beside = console(options.port, not options.no_browser and has_browser())
    return demo(settings=settings, plain=options.plain, beside=beside)
