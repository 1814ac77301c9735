"""`wukongs map`: the triples that a mapping makes, as N-Triples with times, as `kind = "timestamped"` reads them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from wukongs.cli.parsers import CommandParser
from wukongs.cli.query import check_file, say_if_compiling

if TYPE_CHECKING:
    from wukongs.adapters.run_config import RecordKind, StreamConfig

_ENDINGS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet"}
_EPILOG = """examples:
  wukongs map run.toml --limit 10
  wukongs map run.toml --stream http://example.org/trips > trips.nt
  wukongs map trips-mapping.toml trips.csv --limit 10
  wukongs map trips.rml.ttl trips.csv
  wukongs map mapping.toml readings.csv.gz --with sensor=http://example.org/s1

Triples go to standard output, records that are set aside to standard error. A record is printed whole: --limit counts
records, of each file.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs map",
        description="Print the triples that mappings make of records, with their times in ms if the mapping has any. "
        "FILE is a run file, or a mapping if DATA is given.",
        epilog=_EPILOG,
    )
    parser.add_argument("file", metavar="FILE", help="a run file, or a mapping: TOML, or RML (.ttl, .rml)")
    parser.add_argument("data", metavar="DATA", nargs="*", help="files of records for a mapping")
    parser.add_argument("--limit", type=_count, metavar="N", help="the first N records of each file (default: all)")
    parser.add_argument("--stream", metavar="IRI", help="of a run file: this stream only")
    parser.add_argument(
        "--kind",
        choices=sorted(set(_ENDINGS.values())),
        help="how DATA is written (default: by the ending of its name)",
    )
    parser.add_argument("--base", metavar="IRI", help="of RML: what stands before relative IRIs")
    parser.add_argument(
        "--with",
        dest="constants",
        type=_constant,
        action="append",
        default=[],
        metavar="NAME=TEXT",
        help="a cell of each record",
    )
    return parser


def _count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected an integer from 1 on, found {text!r}")


def _constant(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=TEXT, found {text!r}")
    return name, value


def main(argv: Sequence[str]) -> int:
    parser = make_parser()
    options = parser.parse_args(list(argv))
    if options.data and options.stream:
        parser.error("--stream names a stream of a run file: leave DATA out")
    if not options.data and (options.kind or options.constants or options.base):
        parser.error("--kind, --with and --base are for DATA: a run file says these itself")
    for file in (options.file, *options.data):
        check_file(file, "a file")
    say_if_compiling()
    from wukongs.adapters.check import mapped, streams_of
    from wukongs.adapters.run_config import notes_of

    streams = _streams(options, parser) if options.data else streams_of(Path(options.file), options.stream)
    for note in notes_of(streams):
        print(note, file=sys.stderr)
    good = bad = 0
    for one in mapped(streams, options.limit):
        sys.stdout.write(one.text)
        good += len(one.rows.encoded)
        for fault in (*one.rows.malformed, *one.rows.backwards):
            print(fault, file=sys.stderr)
            bad += 1
    sys.stdout.flush()
    if bad:
        print(f"{bad:,} records were set aside, {good:,} triples made", file=sys.stderr)
    return 1 if bad and not good else 0


def _streams(options: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[StreamConfig, ...]:
    """Return one stream a file of data."""
    from wukongs.adapters.run_config import RecordSource, StreamConfig, mapping_of

    found = []
    for path in options.data:
        kind = options.kind or _ENDINGS.get(Path(path.removesuffix(".gz")).suffix.lower())
        if kind is None:
            parser.error(f"expected one of {', '.join(_ENDINGS)} at the end of {path}, found another: give --kind")
        source = RecordSource(
            kind=cast("RecordKind", kind),
            paths=(path,),
            mapping=mapping_of(options.file, (path,), options.base, options.data),
            constants=tuple(options.constants),
        )
        found.append(StreamConfig(iri="urn:x-wukongs:mapped", sources=(source,)))
    return tuple(found)
