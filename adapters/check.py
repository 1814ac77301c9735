"""`wukongs run --check` and `wukongs map`: what a run file's mappings make of the first records, without an engine.

Queries are read for likely mistakes, too."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from wukongs.adapters.bad_records import OUT_OF_ORDER
from wukongs.adapters.feeds.feed import Kind
from wukongs.adapters.feeds.kinds import KINDS
from wukongs.adapters.feeds.lines import opened
from wukongs.adapters.feeds.opening import open_feeds
from wukongs.adapters.mapping.mapping import TimeMap
from wukongs.adapters.planner import CHUNK_ROWS
from wukongs.adapters.run_config import (
    LiveSource,
    PipelineConfig,
    RecordSource,
    RunConfig,
    SourceConfig,
    StreamConfig,
    load_run_config,
    notes_of,
)
from wukongs.adapters.scratch import ScratchFolder
from wukongs.adapters.source import NO_TIME, Rows, SetAside, SourceIndex, StreamSource
from wukongs.adapters.sources import prepare
from wukongs.adapters.sources.record_file import RecordFile, prepare_records
from wukongs.csparql.parser import parse_query
from wukongs.csparql.warnings import query_warnings
from wukongs.errors import DataError, SettingsError
from wukongs.settings.toml_reader import read_toml

CHECKED_RECORDS = 1000
SHOWN_FAULTS = 5
LOOK_S = 2.0
"""So long the first records of a source that goes on are waited for."""
BAD_SHARE_MAX = 0.1
_HEAD_BYTES = 1 << 24
_SCOPE, _HASH_BITS = b"check", 62


def check(path: Path, out: TextIO | None = None) -> int:
    """Say what a run file reads and what the first records of its sources become.

    Returns the exit status: 1 if more than a tenth of these are bad, in any source.

    Raises: SettingsError, DataError, QuerySyntaxError, UnsupportedFeatureError (the first fault of the file itself)."""
    out = out or sys.stdout
    config = load_run_config(path)
    counts = [
        f"{len(found)} {name}"
        for name, found in (
            ("[[stored]]", config.stored),
            ("[[stream]]", config.streams),
            ("[[query]]", config.queries),
            ("[[ask]]", config.asks),
        )
    ]
    print(f"{path}: {', '.join(counts)}", file=out)
    for note in notes_of(config.streams):
        print(note, file=out)
    is_bad = False
    for stream in config.streams:
        print(f"stream {stream.iri}", file=out)
        with ScratchFolder("check") as folder:
            for one in stream.sources:
                of_it = replace(stream, sources=(one,))
                if isinstance(one, LiveSource):
                    is_bad |= _check_feeds(of_it, one, folder, out)
                    continue
                for source, index, is_whole in _opened(of_it, one, folder):
                    is_bad |= _check_source(source, index, is_whole, out)
    for query in config.queries:
        for warning in query_warnings(parse_query(query.text, source=query.source)):
            print(f"query {query.name}: warning: {warning}", file=out)
    print("not ready: see above" if is_bad else "ready to run", file=out)
    return 1 if is_bad else 0


def _opened(
    stream: StreamConfig, config: SourceConfig, folder: Path
) -> Iterator[tuple[StreamSource, SourceIndex, bool]]:
    """Yield each source partition of a stream with one source, with its index, and whether that is of all records."""
    if not isinstance(config, RecordSource):
        for one in prepare([stream], folder):
            yield one.source, one.index, True
        return
    for path in config.paths:
        record_file, index = prepare_records(config, path, folder, _HEAD_BYTES)
        with opened(path) as file:
            is_whole = config.kind in ("json", "parquet") or len(file.read(_HEAD_BYTES + 1)) <= _HEAD_BYTES
        yield record_file, index, is_whole


def _check_feeds(stream: StreamConfig, source: LiveSource, folder: Path, out: TextIO) -> bool:
    """Read the first records of a source that goes on, if a run finds them later, too; tell whether many are bad."""
    kind = KINDS[source.kind]
    if isinstance(kind, Kind) and not kind.can_look:
        print(f"  {source.kind}: not looked at, a run would not find again what was read", file=out)
        return False
    feeds = open_feeds([stream], PipelineConfig(), folder, lambda text: print(f"  {text}", file=out), threading.Event())
    is_bad = False
    try:
        for feed in feeds:
            first, deadline = feed.begin(0), time.monotonic() + LOOK_S
            while (look := feed.look()).is_open and look.end_row - first < CHECKED_RECORDS:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
            end = min(look.end_row, first + CHECKED_RECORDS)
            ranges = feed.ranges(first, end, NO_TIME) if first < end else ()
            parts = [feed.source.read(one, _SCOPE, _HASH_BITS) for one in ranges]
            triples = sum(len(part.encoded) for part in parts)
            faults = [fault for part in parts for fault in (*part.malformed, *part.backwards)]
            found = _counted(look.end_row - first, "record") + (" so far" if look.is_open else "")
            print(
                f"  {feed.source.partition}: {found}; the first {end - first:,} give {_counted(triples, 'triple')}",
                file=out,
            )
            is_bad |= _has_too_many(faults, end - first, triples, out)
    finally:
        for feed in feeds:
            feed.close()
    return is_bad


def _check_source(source: StreamSource, index: SourceIndex, is_whole: bool, out: TextIO) -> bool:
    """Read the first records and say what they are; tell whether too many of them are bad."""
    count = min(len(index), CHECKED_RECORDS)
    first = index.range(0, count)
    unseen: list[str] = []
    if isinstance(source, RecordFile):
        made = source.make(first, _SCOPE, _HASH_BITS)
        rows, unseen = made.reported(), source.unseen(made)
    else:
        rows = source.read(first, _SCOPE, _HASH_BITS)
    faults = [*rows.malformed, *rows.backwards]
    triples = len(rows.encoded)
    of_all = f"{'' if is_whole else 'over '}{_counted(len(index), 'record')}"
    span = ""
    if len(index):
        last = f" to {_shown(int(index.times[-1]))}" if is_whole else ""
        span = f", from {_shown(int(index.times[0]))}{last}"
    print(f"  {source.partition}: {of_all}{span}; the first {count:,} give {_counted(triples, 'triple')}", file=out)
    is_bad = _has_too_many(faults, count, triples, out)
    for name in unseen:
        print(f"    no record has a value at {name}", file=out)
    return is_bad


def _has_too_many(faults: Sequence[SetAside], count: int, triples: int, out: TextIO) -> bool:
    """Show the first faults among so many records; tell whether there are too many, or no triple at all."""
    for fault in faults[:SHOWN_FAULTS]:
        print(f"    {fault}", file=out)
    if len(faults) > SHOWN_FAULTS:
        print(f"    and {len(faults) - SHOWN_FAULTS:,} more", file=out)
    if any(fault.time_ms is not None for fault in faults):
        print(f"    {OUT_OF_ORDER}", file=out)
    if count and not triples:
        print("    no triple at all: see the conditions of the mapping, and which cells are empty", file=out)
    return len(faults) > BAD_SHARE_MAX * count or (count > 0 and not triples)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _shown(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Mapped:
    """A range of records after their mapping: lines of N-Triples, with their times if the mapping has any, and the
    records set aside."""

    text: str
    rows: Rows


def mapped(streams: Sequence[StreamConfig], limit: int | None) -> Iterator[Mapped]:
    """Yield what the mappings of the streams' sources make of the first records of each file (limit None: of all).

    Raises: SettingsError, DataError; DataError (no stream that has a mapping)."""
    sources = [one for stream in streams for one in stream.sources if isinstance(one, RecordSource)]
    if not sources:
        raise DataError("expected a stream whose source has a mapping (csv, tsv, json, jsonl or parquet), found none")
    for source in sources:
        has_times = source.mapping.time is not None
        timed = (
            source if has_times else replace(source, mapping=replace(source.mapping, time=TimeMap(None, every_ms=1)))
        )
        for path in source.paths:
            with ScratchFolder("map") as folder:
                head_bytes = None if limit is None or limit > CHUNK_ROWS else _HEAD_BYTES
                record_file, index = prepare_records(timed, path, folder, head_bytes)
                count = len(index) if limit is None else min(limit, len(index))
                for first in range(0, count, CHUNK_ROWS):
                    made = record_file.make(index.range(first, min(first + CHUNK_ROWS, count)), _SCOPE, _HASH_BITS)
                    rows, text = made.reported(), made.text.tobytes().decode()
                    if has_times:
                        lines, times = text.split("\n")[:-1], rows.encoded.timestamps.tolist()
                        text = "".join(f"{line} {time}\n" for line, time in zip(lines, times, strict=True))
                    yield Mapped(text, rows)


def streams_of(path: Path, stream: str | None) -> tuple[StreamConfig, ...]:
    """Return the streams of a run file, or one of them. Raises: SettingsError, DataError (no such stream)."""
    if "triple" in read_toml(path).names():
        raise SettingsError(f"{path}: expected a run file, found a mapping: name files of records behind it")
    config: RunConfig = load_run_config(path)
    found = tuple(one for one in config.streams if stream is None or one.iri == stream)
    if not found:
        raise DataError(
            f"expected a [[stream]]{'' if stream is None else f' of the IRI {stream}'}, "
            f"found {', '.join(one.iri for one in config.streams) or 'none'}",
            str(path),
        )
    return found
