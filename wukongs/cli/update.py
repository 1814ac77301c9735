"""`wukongs update`: apply one SPARQL Update request to a data folder or a running node."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wukongs.cli import DONE
from wukongs.cli.parsers import CommandParser
from wukongs.cli.query import add_context_option, contexts_given, parse_seconds, read_argument, say_if_compiling
from wukongs.cli.server import add_server_options, check_server_options, connect_to
from wukongs.settings import Settings

_EPILOG = """examples:
  wukongs update --data-dir db 'INSERT DATA { <http://ex/a> <http://ex/knows> <http://ex/b> }'
  wukongs update --data-dir db @tidy.ru
  wukongs update --data-dir db 'LOAD <people.ttl> INTO GRAPH <http://ex/people>'
  wukongs update --server tcp://127.0.0.1:7411 @tidy.ru
  generate | wukongs update --data-dir db --quiet -
  wukongs query --data-dir db 'SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }'

All of the request is applied, or, with an error, nothing.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs update",
        usage="wukongs update --data-dir DIR|--server URL [options] UPDATE|@FILE|-",
        description="Apply one SPARQL Update request to a data folder or a running node; say on standard error what\n"
        "it has done.",
        epilog=_EPILOG,
    )
    parser.add_argument("update", metavar="UPDATE|@FILE|-", help="the request, @FILE that holds it, or - for stdin")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="the data folder; made if need be")
    add_server_options(parser)
    parser.add_argument("--base", metavar="IRI", help="resolve relative IRIs of the request against it")
    parser.add_argument("--timeout", type=parse_seconds, metavar="SECONDS", help="give up after this time")
    parser.add_argument(
        "--load-from",
        action="append",
        metavar="IRI",
        help="let LOAD fetch what begins with this IRI, such as http://ex.org/data/; may be repeated (default: "
        "what WUKONGS_LOAD_FROM names, or files of this machine only)",
    )
    add_context_option(parser)
    parser.add_argument("--quiet", action="store_true", help="do not say what was done")
    return parser


def main(argv: Sequence[str]) -> int:
    from wukongs.csparql.parser_update import parse_update

    parser = make_parser()
    options = parser.parse_args(list(argv))
    check_server_options(options, parser, "data_dir", "load_from", "context")
    if options.data_dir is None and options.server is None:
        parser.error("no --data-dir and no --server: say what to update")
    if os.path.exists(options.update):
        parser.error(f"no update: the last argument, {options.update!r}, is a file; give it as @{options.update}")
    text, source = read_argument("@-" if options.update == "-" else options.update, "an update")
    # Parsed before the folder is opened: a wrong request is refused at once, by the name of its file.
    parse_update(text, options.base, source)
    if options.server is not None:
        with connect_to(options) as node:
            sn = node.update(text, base=options.base, timeout_s=options.timeout)
        if not options.quiet:
            print(f"snapshot {sn}", file=sys.stderr)
        return DONE
    allowed = options.load_from
    given: dict[str, Any] = {} if allowed is None else {"load_from": tuple(allowed)}
    settings = Settings.from_environment(**given, **contexts_given(options))
    say_if_compiling()
    from wukongs.durable.recovery import check_is_ours
    from wukongs.engine import Engine

    check_is_ours(options.data_dir)

    with Engine(options.data_dir, settings=settings) as engine:
        sn = engine.update(text, base=options.base, timeout_s=options.timeout)
        done = engine.stats()["updates"]
    if not options.quiet:
        counts = (
            f"operations: {done['operations']:,}, triples deleted: {done['deleted']:,}, inserted: {done['inserted']:,}"
        )
        print(f"{counts}; snapshot {sn}", file=sys.stderr)
    return DONE
