"""`wukongs serve`: an engine over HTTP, in memory or on a data folder."""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wukongs.cli import DONE, INTERRUPTED, say
from wukongs.cli.logs import add_log_options, begin_logs
from wukongs.cli.parsers import CommandParser
from wukongs.cli.query import add_context_option, check_file, contexts_given, parse_seconds, say_if_compiling
from wukongs.settings import Settings, take_turns_quickly

PORT = 7480
_EPILOG = """examples:
  wukongs serve
  wukongs serve --data people.ttl --port 8080
  wukongs serve --data-dir db
  curl http://127.0.0.1:7480/sparql --data-urlencode 'query=SELECT * { ?s ?p ?o } LIMIT 10'
  curl http://127.0.0.1:7480/queries -H 'Content-Type: application/sparql-query' --data-binary @query.rq
  curl -N -H 'Accept: text/event-stream' http://127.0.0.1:7480/queries/q/windows

Paths: /sparql (SPARQL Protocol), /store (Graph Store Protocol), /streams, /queries, /healthz, /readyz; docs/http.md
has all of them. Once it serves it prints its address. It ends with Ctrl-C or SIGTERM.

On loopback nothing else is needed. Any other address needs a file with tokens, one a line, of which clients name one.
Behind a token may stand a role, read, write or admin (without one: admin), and the graphs and streams that there are
for it: "TOKEN read http://ex.org/g default".
  wukongs serve --host 0.0.0.0 --tokens tokens.txt --tls-cert cert.pem --tls-key key.pem
  curl -H "Authorization: Bearer $TOKEN" https://host:7480/sparql ...
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs serve",
        description="Serve an engine over HTTP: queries, updates, graphs, streams, registered queries and their\n"
        "windows as they come.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="the data folder, made if need be; in memory if none"
    )
    parser.add_argument(
        "--data", nargs="+", action="extend", default=[], metavar="FILE", help="load these RDF files first"
    )
    parser.add_argument(
        "--rules",
        action="append",
        default=[],
        metavar="FILE",
        help="follow these rules: a rule file, or a set: rdfs, owl-rl; may be repeated (not those over windows)",
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="listen there (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=PORT, metavar="N", help=f"listen at this port, 0: a free one (default: {PORT})"
    )
    parser.add_argument(
        "--tokens",
        metavar="FILE",
        help="clients have to name one of these tokens; a line: TOKEN [read|write|admin [GRAPH ...]] [# comment]",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="a certificate in PEM, with its chain; beside --tls-key")
    parser.add_argument("--tls-key", metavar="FILE", help="the key of the certificate in PEM")
    parser.add_argument(
        "--cors",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this origin ask, such as https://yasgui.org, or * for all; may be repeated",
    )
    parser.add_argument(
        "--service",
        action="append",
        metavar="IRI",
        help="let SERVICE ask this endpoint, or with a slash at the end all that lie there; may be repeated",
    )
    add_context_option(parser)
    parser.add_argument(
        "--timeout", type=parse_seconds, metavar="SECONDS", help="no query or update runs longer, whatever it asks for"
    )
    add_log_options(parser, has_http=True)
    return parser


def _collect_rarely() -> None:
    """Let the garbage collector pass over what is loaded by now, and look through old objects much more rarely. Each
    time it holds everything up for 200 ms, and finds little: objects are freed without it, but for a few cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 1000)


def main(argv: Sequence[str]) -> int:
    parser = make_parser()
    options = parser.parse_args(list(argv))
    if not 0 <= options.port < 1 << 16:
        parser.error(f"--port {options.port}: expected a port from 0 to 65535")
    for file in options.data:
        check_file(file, "an RDF file")
    begin_logs(options)
    say_if_compiling()
    take_turns_quickly()
    from wukongs.cli.node import reload_on_hangup
    from wukongs.durable.recovery import check_is_ours
    from wukongs.engine import Engine
    from wukongs.server.face import Bounds
    from wukongs.server.http_server import HttpServer, HttpSettings, check

    settings = HttpSettings(
        host=options.host,
        port=options.port,
        tokens_file=options.tokens,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        origins=tuple(options.cors),
        bounds=Bounds(timeout_max_s=options.timeout),
    )
    check(settings)
    if options.data_dir is not None:
        check_is_ours(options.data_dir)
    allowed: dict[str, Any] = {} if options.service is None else {"service_allowed": tuple(options.service)}
    ended, signals = threading.Event(), list[int]()

    def end(number: int, _: object) -> None:
        signals.append(number)
        ended.set()

    settings_of_engine = Settings.from_environment(**allowed, **contexts_given(options))
    with Engine(options.data_dir, settings=settings_of_engine, rules=options.rules) as engine:
        for file in options.data:
            engine.load(file)
            print(f"loaded {file}", file=sys.stderr, flush=True)
        server = HttpServer(engine, settings, owns_queries=True)
        _collect_rarely()
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, end)
            reload_on_hangup(server.reload_trust)
            say(f"{server.address}\n")
            ended.wait()
        finally:
            server.close()
    return INTERRUPTED if signals[0] == signal.SIGINT else DONE
