"""`wukongs push`: records from files or standard input to a stream."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wukongs.cli.parsers import CommandParser, read_iri
from wukongs.cli.query import add_context_option, check_file, contexts_given, say_if_compiling
from wukongs.cli.server import add_server_options, check_server_options, connect_to

if TYPE_CHECKING:
    from wukongs.engine import Engine

_EPILOG = """examples:
  sensors | wukongs push --server tcp://127.0.0.1:7411 --stream http://ex/s -
  tail -F app.jsonl | wukongs push --server tcp://127.0.0.1:7411 --stream http://ex/s --format jsonl \\
      --mapping app.toml --arrival -
  wukongs push --data-dir db --stream http://ex/trips --mapping trips-mapping.toml --end trips.csv
  wukongs push --server tcp://127.0.0.1:7411 --stream http://ex/s --time-predicate http://ex/at events.ttl

Without --format standard input is lines of N-Triples with a time in ms behind the dot: `s p o . 1000`. A message of
RDF is a line. Everything up to just before the newest time is declared complete; --end closes the rest, and the stream.
What is read waits in --spool DIR until the engine has it; without it what was read and not yet sent ends with us.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs push",
        usage="wukongs push --data-dir DIR|--server URL --stream IRI [options] FILE...|-",
        description="Send records from files, or line by line from standard input, to a stream of a running node or\n"
        "of a data folder. A stream that is not there is declared.",
        epilog=_EPILOG,
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a file of lines, also .gz; - is standard input")
    parser.add_argument("--stream", required=True, type=read_iri, metavar="IRI", help="the stream")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="the data folder; made if need be")
    add_server_options(parser)
    what = parser.add_argument_group("what the lines are")
    what.add_argument(
        "--format",
        default="",
        metavar="KIND",
        help="timestamped, csv, tsv, jsonl, nt, nq, ttl, trig or jsonld (default: by the first file's ending)",
    )
    what.add_argument("--mapping", metavar="FILE", help="what triples a record of CSV, TSV or JSON makes")
    what.add_argument("--time-column", metavar="NAME", help="when a record happens, in place of the mapping's [time]")
    what.add_argument(
        "--time-predicate", type=read_iri, metavar="IRI", help="when a message of RDF happens: its literal"
    )
    what.add_argument("--arrival", action="store_true", help="a record happens when it is read")
    what.add_argument(
        "--time-format",
        default="iso",
        metavar="FORMAT",
        help="iso, epoch_s, epoch_ms, epoch_us, epoch_ns or a pattern as strptime has them (default: iso)",
    )
    what.add_argument("--zone", default="UTC", metavar="ZONE", help="of times that name none (default: UTC)")
    what.add_argument(
        "--ambiguous",
        choices=("first", "second", "infer"),
        default="first",
        help="which one a time is that a clock change repeats; infer: by the order of records (default: first)",
    )
    what.add_argument(
        "--lateness-ms", type=_count, default=0, metavar="MS", help="how far a record may lie behind the newest one"
    )
    add_context_option(what)
    what.add_argument(
        "--jump-max-ms",
        type=_count,
        metavar="MS",
        help="how far a record's time may be ahead of the clock; 0: any time (default: a day; files alone: any time)",
    )
    new = parser.add_argument_group("of a stream that is declared by this")
    new.add_argument("--batch-ms", type=_count, metavar="MS", help="how long a stream batch is")
    new.add_argument("--timing", action="store_true", help="all triples live in windows only")
    new.add_argument("--into", type=read_iri, metavar="IRI", help="the stored graph that timeless triples go to")
    how = parser.add_argument_group("how they are sent")
    how.add_argument("--end", action="store_true", help="nothing more comes from here: close what is open")
    how.add_argument("--name", default="", help="of this source, if several push to one stream (default: push)")
    how.add_argument("--spool", metavar="DIR", default="", help="where what is read waits until the engine has it")
    how.add_argument("--dead-letters", metavar="FILE", default="", help="a file for the records that are set aside")
    return parser


def _count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"expected an integer from 0 on, found {text!r}")


def main(argv: Sequence[str]) -> int:
    parser = make_parser()
    options = parser.parse_args(list(argv))
    check_server_options(options, parser, "data_dir")
    if options.data_dir is None and options.server is None:
        parser.error("no --data-dir and no --server: say where the stream is")
    for path in options.files:
        if path != "-":
            check_file(path, "a file of lines")
    if options.mapping is not None:
        check_file(options.mapping, "a mapping")
    say_if_compiling()
    from wukongs.adapters.push_lines import PushOptions, push_lines
    from wukongs.settings import Settings

    given = PushOptions(
        stream=options.stream,
        paths=tuple(options.files),
        format=options.format,
        mapping=options.mapping,
        time_column=options.time_column,
        time_predicate=options.time_predicate,
        is_arrival=options.arrival,
        time_format=options.time_format,
        zone=options.zone,
        ambiguous=options.ambiguous,
        batch_ms=options.batch_ms,
        timing=options.timing,
        into=options.into,
        name=options.name,
        lateness_ms=options.lateness_ms,
        jump_max_ms=options.jump_max_ms,
        is_last=options.end,
        spool=options.spool,
        dead_letters=options.dead_letters,
        contexts=Settings.from_environment(**contexts_given(options)).contexts,
    )
    return push_lines(
        given, partial(_engine, options.data_dir) if options.server is None else partial(connect_to, options)
    )


def _engine(folder: Path) -> Engine:
    from wukongs.durable.recovery import check_is_ours
    from wukongs.engine import Engine
    from wukongs.settings import Settings

    check_is_ours(folder)
    return Engine(folder, settings=Settings.from_environment())
