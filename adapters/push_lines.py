"""`wukongs push`: lines of files or of standard input go to one stream of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from wukongs.adapters.display import PlainDisplay
from wukongs.adapters.feeds.feed import WAITS, Waits
from wukongs.adapters.feeds.stdin import StdinOptions
from wukongs.adapters.mapping.mapping import MESSAGE_TIME, Mapping, TimeMap
from wukongs.adapters.mapping.times import Ambiguous, TimeFormat
from wukongs.adapters.run import run_config
from wukongs.adapters.run_config import (
    Format,
    LiveSource,
    MessageKind,
    PipelineConfig,
    RdfSource,
    RecordKind,
    RecordSource,
    RunConfig,
    StreamConfig,
    TimestampedSource,
    mapping_of,
)
from wukongs.errors import SettingsError
from wukongs.settings import Settings

if TYPE_CHECKING:
    from wukongs.engine import Engine
    from wukongs.remote.client import RemoteEngine

ENDINGS = {"ndjson": "jsonl", "json": "jsonl", "ntriples": "nt", "nquads": "nq"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """The options of a push. paths: "-" is standard input; format: "" for that of the first file's ending.

    time_column, time_predicate, is_arrival: when a record happens, one of them or none; is_last: nothing more comes."""

    stream: str
    paths: tuple[str, ...]
    format: str = ""
    mapping: str | None = None
    time_column: str | None = None
    time_predicate: str | None = None
    is_arrival: bool = False
    time_format: str = "iso"
    zone: str = "UTC"
    ambiguous: Ambiguous = "first"
    batch_ms: int | None = None
    timing: bool = False
    into: str | None = None
    name: str = ""
    lateness_ms: int = 0
    jump_max_ms: int | None = None
    is_last: bool = False
    spool: str = ""
    dead_letters: str = ""
    bad_records_max: float = 0.1
    contexts: tuple[tuple[str, str], ...] = ()


def push_lines(options: PushOptions, connect: Callable[[], Engine | RemoteEngine]) -> int:
    """Push to the engine that connect gives, and close that; return the exit status.

    A stream that the engine does not have is declared. Raises: SettingsError, DataError (options, a file);
    StreamError, NodeUnavailable."""
    format = format_of(options)
    engine = connect()
    known = options.stream in engine.stats()["streams"]
    if known and (options.batch_ms or options.timing or options.into):
        engine.close()
        raise SettingsError(
            f"the stream {options.stream} is there already: leave out --batch-ms, --timing and --into, or name another"
        )
    source = LiveSource(
        kind="stdin",
        options=StdinOptions(options.paths),
        format=format,
        waits=Waits(options.lateness_ms, idle_timeout_ms=0, is_last=options.is_last, jump_max_ms=_jump_max_ms(options)),
        name=options.name or "push",
    )
    stream = StreamConfig(
        iri=options.stream,
        sources=(source,),
        batch_ms=options.batch_ms,
        timing=options.timing or (),
        into=options.into,
        is_known=known,
    )
    pipeline = PipelineConfig(
        engine="local",
        spool=options.spool,
        dead_letters=options.dead_letters,
        bad_records_max=options.bad_records_max,
    )
    config = RunConfig(
        file="wukongs push",
        settings=Settings(),
        stored=(),
        streams=(stream,),
        queries=(),
        asks=(),
        pipeline=pipeline,
    )
    return run_config(config, PlainDisplay(each_window=False), lambda: engine)


def _jump_max_ms(options: PushOptions) -> int:
    """Return the option, or that of sources that go on: files alone are recordings, whose times are believed."""
    if options.jump_max_ms is not None:
        return options.jump_max_ms
    return WAITS.jump_max_ms if "-" in options.paths else 0


def format_of(options: PushOptions) -> Format:
    """Return what the lines are. Raises: SettingsError (options that do not go together)."""
    kind = options.format or _by_ending(options.paths)
    if kind not in get_args(MessageKind):
        what = f"--format {kind}" if options.format else f"the name {options.paths[0]} tells no format; --format"
        raise SettingsError(f"{what}: expected one of {', '.join(get_args(MessageKind))}")
    given = [options.time_column is not None, options.time_predicate is not None, options.is_arrival]
    if sum(given) > 1:
        raise SettingsError("--time-column, --time-predicate and --arrival: expected one of them")
    if kind in ("csv", "tsv", "jsonl"):
        if options.mapping is None:
            raise SettingsError(f"--format {kind}: expected --mapping FILE, which says the triples of a record")
        mapping = _timed(mapping_of(options.mapping, ()), options)
        return RecordSource(kind=cast(RecordKind, kind), paths=(), mapping=mapping)
    if options.mapping is not None:
        raise SettingsError(f"--mapping: expected csv, tsv or jsonl, found --format {kind}, which is RDF itself")
    if kind == "timestamped":
        if any(given):
            raise SettingsError("--format timestamped: each line has its time: leave out --time-... and --arrival")
        return TimestampedSource(paths=())
    if options.time_predicate is None and not options.is_arrival:
        raise SettingsError(f"--format {kind}: expected --time-predicate IRI or --arrival: when a message happens")
    return RdfSource(
        paths=(),
        predicate=options.time_predicate or "",
        time_format=_time_format(options),
        format=kind,
        contexts=options.contexts,
    )


def _timed(mapping: Mapping, options: PushOptions) -> Mapping:
    if options.time_predicate is not None:
        raise SettingsError("--time-predicate: expected messages of RDF; of records it is --time-column NAME")
    if options.is_arrival:
        return replace(mapping, time=TimeMap(MESSAGE_TIME, TimeFormat("epoch_ms")))
    if options.time_column is not None:
        return replace(mapping, time=TimeMap(options.time_column, _time_format(options)))
    if mapping.time is None:
        raise SettingsError(f"{mapping.file}: expected a [time], or --time-column NAME, or --arrival, found none")
    return mapping


def _time_format(options: PushOptions) -> TimeFormat:
    return TimeFormat(options.time_format, options.zone, options.ambiguous)


def _by_ending(paths: Sequence[str]) -> str:
    if paths[0] == "-":
        return "timestamped"
    ending = Path(paths[0].removesuffix(".gz")).suffix.lower().removeprefix(".")
    return ENDINGS.get(ending, ending)
