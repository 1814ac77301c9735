"""`wukongs run`: streams, stored data and continuous queries from one TOML file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from wukongs.cli.logs import add_log_options, begin_logs
from wukongs.cli.parsers import CommandParser, integer_from
from wukongs.cli.query import check_file, say_if_compiling
from wukongs.cli.server import add_server_options, check_server_options, connect_to

_EPILOG = """examples:
  wukongs run traffic.toml
  wukongs run --check traffic.toml
  wukongs run --local traffic.toml
  wukongs run --plain traffic.toml > windows.txt
  wukongs run --server tcp://127.0.0.1:7411 traffic.toml

Sources are files, or go on while they are read: folder, stdin, tcp, mqtt, websocket, sse, kafka, and clock (a tick
each n ms). A stream with idle_advance = "wall" follows the wall clock while its source is silent.

With --server, streams, stored data and queries go to a running node, or to a cluster by any of its nodes; the settings
of the file are not used then. With --local, streams are read and sent in this process: no Java is needed, nothing has
to start, and windows and answers are the same.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs run",
        description="Load stored data, feed streams (through local Spark, or in this process) and report the windows "
        "of continuous queries, all as one TOML file says.",
        epilog=_EPILOG,
    )
    parser.add_argument("config", metavar="CONFIG.toml", help="what to load, stream and register")
    parser.add_argument(
        "--local", action="store_true", help='without Spark and Java, in this process (as engine = "local" in the file)'
    )
    parser.add_argument("--plain", action="store_true", help="plain lines instead of a live table on a terminal")
    parser.add_argument(
        "--rows",
        type=integer_from(0),
        metavar="N",
        help="print the first N rows of each window, as N-Triples (plain lines only; default: the newest rows of each "
        "query now and then, as people read them)",
    )
    parser.add_argument(
        "--check", action="store_true", help="only read the file, its mappings, and the first records of each source"
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="keep Spark's checkpoint in this folder, of this run file alone"
    )
    parser.add_argument(
        "--http",
        type=integer_from(0, 65535),
        metavar="PORT",
        help="serve the run's engine, with the console, at this port of loopback",
    )
    add_server_options(parser)
    add_log_options(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    from wukongs.adapters.milestones import passed

    passed("command line")
    parser = make_parser()
    options = parser.parse_args(list(argv))
    check_server_options(options, parser)
    check_file(options.config, "a TOML file")
    begin_logs(options)
    say_if_compiling()
    if options.check:
        from wukongs.adapters.check import check

        return check(Path(options.config))
    from wukongs.adapters.run import run

    if options.http is not None and options.server is not None:
        parser.error("--http: the node of --server has its own ([http] in its file)")
    connect = None if options.server is None else partial(connect_to, options)
    beside = None
    if options.http is not None:
        from wukongs.cli.console import console

        beside = console(options.http, opens_browser=False)
    return run(
        Path(options.config),
        plain=options.plain,
        rows_shown=options.rows,
        connect=connect,
        is_local=options.local,
        checkpoint=options.checkpoint,
        beside=beside,
    )
