"""The TOML file of `wukongs run`: engine options, stored data, streams, queries, one-shot questions, pipeline.

Paths are relative to the file; `${NAME}` and `${NAME:-default}` in them stand for environment variables. A key that is
not known, a value of the wrong type and a file that is not there are refused before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping as Environment
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

from wukongs.adapters.feeds.feed import NO_WAITS, WAITS, FeedKind, Waits
from wukongs.adapters.feeds.kinds import KINDS
from wukongs.adapters.mapping.mapping import (
    MESSAGE_TIME,
    Mapping,
    check_time,
    load_mapping,
    mapping_in,
    time_format_in,
    time_in,
)
from wukongs.adapters.mapping.rml import load_rml
from wukongs.adapters.mapping.times import TimeFormat
from wukongs.csparql.algebra import Output
from wukongs.csparql.parser import parse_query
from wukongs.errors import DataError, SettingsError
from wukongs.live.declarations import EVENT_TIME
from wukongs.live.lateness import CarryRule, Late
from wukongs.live.wall_clock import WALL, IdleAdvance
from wukongs.live.windows import makes_stream
from wukongs.query.terms.names import graph_term, plain_iri
from wukongs.settings import Settings
from wukongs.settings.text_file import decode_text
from wukongs.settings.toml_reader import TableReader, engine_settings, read_toml

T = TypeVar("T")
RecordKind = Literal["csv", "tsv", "jsonl", "json", "parquet"]
RdfKind = Literal["ttl", "trig", "nt", "nq", "jsonld"]
FormatKind = Literal["timestamped", "rdf", "csv", "tsv", "jsonl", "json", "parquet"]
"""The formats of files."""
MessageKind = Literal["timestamped", "csv", "tsv", "jsonl", "ttl", "trig", "nt", "nq", "jsonld"]
"""The formats of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampedSource:
    """N-Triples or N-Quads with a time: `s p o . t_ms` (suffix), `t_ms<TAB>s p o .` (prefix). A path is a partition."""

    paths: tuple[str, ...]
    timestamps: Literal["suffix", "prefix"] = "suffix"
    is_sorted: bool = False
    """The rows of a file are put in order of time before they are read. So it is for the other kinds of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LsbenchSource:
    """A stream file of the LSBench generator (prefixed names) and the file with one time per triple."""

    path: str
    times: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSource:
    """Files of records and the mapping that makes triples of them. A path is a partition.

    constants: names and texts that each record has beside its own cells (`with`)."""

    kind: RecordKind
    paths: tuple[str, ...]
    mapping: Mapping
    constants: tuple[tuple[str, str], ...] = ()
    is_sorted: bool = False


MessageEnd = Literal["line", "empty-line", "subject", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RdfSource:
    """Files of RDF messages, each a dataset with its time in it. A path is a partition.

    predicate: of the time, a literal ("": of messages that come with a time); format: None for that of the file's
    ending; messages: where one ends, None for what is usual in the format; separator: a line that ends one, in its
    place; base: of relative IRIs; contexts: files that stand for contexts of JSON-LD, pairs of an IRI and a path."""

    paths: tuple[str, ...]
    predicate: str
    time_format: TimeFormat
    format: str | None = None
    messages: MessageEnd | None = None
    separator: str = ""
    base: str | None = None
    is_sorted: bool = False
    contexts: tuple[tuple[str, str], ...] = ()


Format = TimestampedSource | RecordSource | RdfSource
"""Says how records or messages are written and, with paths, where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSource:
    """A source that goes on while it is read (wukongs.adapters.feeds). kind: a name of KINDS; options: its own; format:
    what its messages are, without paths; name: of its source partition ("": as the kind has it)."""

    kind: str
    options: Any
    format: Format
    waits: Waits = WAITS
    name: str = ""


SourceConfig = TimestampedSource | LsbenchSource | RecordSource | RdfSource | LiveSource


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConfig:
    """A file to load before the streams start; graph None means the default graph."""

    file: str
    graph: str | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """A stream and where its tuples come from. timing: True for all, or the IRIs of the timing predicates.

    is_known: the engine has it, and it stays as it was declared."""

    iri: str
    sources: tuple[SourceConfig, ...]
    batch_ms: int | None = None
    timing: bool | tuple[str, ...] = ()
    into: str | None = None
    history_ms: int | None = None
    slice_bytes_max: int | None = None
    index: Literal["all", "matching"] = "all"
    idle_timeout_ms: int | None = None
    idle_advance: IdleAdvance | None = None
    late: Late = "drop"
    retractions: Literal["event_time"] | None = None
    is_known: bool = False

    @property
    def live_sources(self) -> tuple[LiveSource, ...]:
        """Its sources that go on while they are read."""
        return tuple(one for one in self.sources if isinstance(one, LiveSource))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConfig:
    """A query: continuous ([[query]]), or asked once before and once after the streams ([[ask]]).

    text: with white space before it where it stands in the TOML file, so that its places are those of the file;
    source: how errors are to call it; output: of a continuous query, see Engine.register."""

    name: str
    text: str
    source: str = "query"
    output: Output | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """How the streams are replayed.

    engine: "spark" runs the pipeline on local Spark, "local" in this process, without Java: the same rows are read and
    sent, so windows and answers are equal (`wukongs run --local` says the same).
    speed: milliseconds of event time per millisecond, 0 for as fast as possible.
    rate: rows a second, of all streams together, whatever event time does; 0 for as fast as possible.
    rows_per_epoch: about how many rows one epoch reads, of all streams; so many may wait until the streams are at one
    time. An epoch is as long in event time as its rows are, so sparse rows go as fast as dense ones.
    align_ms: how far, in event time, one file may run ahead of another at most (0: as far as rows_per_epoch lets it).
    A single file has nothing to wait for, and is not held back.
    start_ms, stop_ms: only rows with start_ms < t <= stop_ms are sent.
    parallelism: Spark tasks at a time.
    dead_letters: the file that rows are written to that are set aside, malformed ones and those whose time runs
    backwards: JSON, one line each, appended by every run ("": none). In a run file it is relative to this file, and by
    default this file's name with `.dead.jsonl` in place of `.toml`.
    bad_records_max: the share of the records of one file that may be set aside, 0 to 1. With more a run ends with
    status 1; it stops at once if the first 1,000 records of a file all are. 1: any number is all right.
    spool: the folder in which records wait that cannot be read again ("": a temporary one, for an engine that ends with
    the run). spool_sync_ms: 0 makes each safe from power loss before it is sent, n > 0 at most n ms later.
    spool_bytes_max: how much may wait there for the nodes, of each source; with more the source is not read on.
    """

    engine: Literal["spark", "local"] = "spark"
    speed: float = 0.0
    rate: float = 0.0
    rows_per_epoch: int = 100_000
    align_ms: int = 0
    start_ms: int | None = None
    stop_ms: int | None = None
    parallelism: int = 2
    dead_letters: str = ""
    bad_records_max: float = 0.1
    spool: str = ""
    spool_sync_ms: int = 0
    spool_bytes_max: int = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that one run needs."""

    file: str
    settings: Settings
    stored: tuple[StoredConfig, ...]
    streams: tuple[StreamConfig, ...]
    queries: tuple[QueryConfig, ...]
    asks: tuple[QueryConfig, ...]
    pipeline: PipelineConfig


def load_run_config(path: str | Path, environment: Environment[str, str] | None = None) -> RunConfig:
    """Read and check the file.

    Raises: SettingsError (a file, key or value that will not do: where, what was expected, what was found);
    QuerySyntaxError, UnsupportedFeatureError (file, line, column).
    """
    top = read_toml(path, environment)
    settings = engine_settings(top)
    config = RunConfig(
        file=top.file,
        settings=settings,
        stored=top.tables("stored", _stored),
        streams=tuple(_with_contexts(one, settings) for one in top.tables("stream", _stream)),
        queries=top.tables("query", _continuous),
        asks=top.tables("ask", _query),
        pipeline=_pipeline(top.table("pipeline")),
    )
    top.done()
    _check_unique(config)
    _check_pace(config)
    _check_queries(config)
    return config


def _with_contexts(stream: StreamConfig, settings: Settings) -> StreamConfig:
    """Let messages of JSON-LD know the files for their contexts."""

    def known(source: SourceConfig) -> SourceConfig:
        if isinstance(source, RdfSource):
            return replace(source, contexts=settings.contexts)
        if isinstance(source, LiveSource) and isinstance(source.format, RdfSource):
            return replace(source, format=replace(source.format, contexts=settings.contexts))
        return source

    return replace(stream, sources=tuple(map(known, stream.sources)))


def _stored(reader: TableReader) -> StoredConfig:
    return StoredConfig(
        file=reader.path("file"), graph=_optional_iri(reader, "graph"), format=reader.optional_text("format")
    )


def _iri(reader: TableReader, key: str) -> str:
    iri = _optional_iri(reader, key)
    if iri is None:
        raise reader.error(key, "an IRI", "nothing")
    return iri


def _optional_iri(reader: TableReader, key: str) -> str | None:
    text = reader.optional_text(key)
    return None if text is None else _plain(reader, key, text)


def _plain(reader: TableReader, key: str, text: str) -> str:
    """Return an IRI without angle brackets, as streams are compared; it may be relative, as in queries without BASE."""
    return plain_iri(reader.checked(key, text, graph_term))


def _timing(reader: TableReader) -> bool | tuple[str, ...]:
    timing = reader.timing("timing")
    return timing if isinstance(timing, bool) else tuple(_plain(reader, "timing", one) for one in timing)


def _stream(reader: TableReader) -> StreamConfig:
    stream = StreamConfig(
        iri=_iri(reader, "iri"),
        sources=_sources(reader),
        batch_ms=reader.integer("batch_ms", None, low=1),
        timing=_timing(reader),
        into=_optional_iri(reader, "into"),
        history_ms=reader.integer("history_ms", None),
        slice_bytes_max=reader.integer("slice_bytes_max", None, low=1),
        index="matching" if reader.choice("index", ("all", "matching"), "all") == "matching" else "all",
        idle_timeout_ms=reader.integer("idle_timeout_ms", None, low=1),
        idle_advance=WALL if reader.choice("idle_advance", ("", WALL), "") else None,
        late="open" if reader.choice("late", ("drop", "open"), "drop") == "open" else "drop",
        retractions="event_time" if reader.choice("retractions", ("", EVENT_TIME), "") else None,
    )
    if stream.late == "open":
        stream = _with_carry_rule(reader, stream)
    return stream if stream.idle_advance is None else _on_the_wall_clock(reader, stream)


def _on_the_wall_clock(reader: TableReader, stream: StreamConfig) -> StreamConfig:
    """Return a stream with idle_advance, whose sources follow the wall clock as well. Raises SettingsError for a source
    that has no silence of today: a recording, or a clock."""
    key = "idle_advance"
    if len(stream.live_sources) < len(stream.sources):
        raise reader.error(key, "none beside files: they are recordings, and have their own time", f"{WALL!r}")
    if stream.idle_timeout_ms is None:
        raise reader.error(key, "an idle_timeout_ms beside it: after how long the stream is idle", "none")
    sources = list[SourceConfig]()
    for source in stream.live_sources:
        kind = KINDS[source.kind]
        if kind.is_recording(source.options):
            raise reader.error(key, "none beside follow = false: what is read then is a recording", f"{WALL!r}")
        if isinstance(kind, FeedKind) and not kind.has_messages:
            raise reader.error(key, f'none beside kind = "{source.kind}", which is never silent', f"{WALL!r}")
        waits = replace(source.waits, idle_timeout_ms=stream.idle_timeout_ms, idle_advance=stream.idle_advance)
        sources.append(replace(source, waits=waits))
    return replace(stream, sources=tuple(sources))


def _sources(reader: TableReader) -> tuple[SourceConfig, ...]:
    """Return the sources of a stream: one table `source`, or several, each under [[stream.source]]."""
    if reader.is_list("source"):
        return reader.tables("source", _source)
    return (_source(reader.table("source")),)


def _with_carry_rule(reader: TableReader, stream: StreamConfig) -> StreamConfig:
    """Return a stream with late = "open": workers of its sources decide which stream batch holds a late record."""
    if len(stream.live_sources) < len(stream.sources):
        raise reader.error(
            "late", '"drop", since the source is a recording: its records come in order of time', '"open"'
        )
    if stream.batch_ms is None or stream.history_ms is None:
        name = "batch_ms" if stream.batch_ms is None else "history_ms"
        raise reader.error(name, 'an integer, in milliseconds, since late = "open"', "nothing")
    rule = CarryRule(stream.batch_ms, stream.history_ms)
    sources = (replace(one, waits=replace(one.waits, carry_rule=rule)) for one in stream.live_sources)
    return replace(stream, sources=tuple(sources))


def _source(reader: TableReader) -> SourceConfig:
    kind = reader.choice("kind", ("lsbench", *get_args(FormatKind), *KINDS))
    source: SourceConfig
    if kind in KINDS:
        source = _live(reader, kind)
    elif kind == "lsbench":
        source = LsbenchSource(path=reader.path("path"), times=reader.path("times"))
    else:
        source = _format(reader, cast(FormatKind, kind), reader.paths("path"))
    reader.done()
    return source


def _live(reader: TableReader, kind: str) -> LiveSource:
    """Return a source that goes on; its messages are as `format` says, with the keys that a file of that kind has."""
    known = KINDS[kind]
    options = known.options(reader)
    if isinstance(known, FeedKind) and not known.has_messages:
        name = reader.optional_text("name") or ""
        return LiveSource(kind=kind, options=options, format=TimestampedSource(paths=()), waits=NO_WAITS, name=name)
    return LiveSource(
        kind=kind,
        options=options,
        format=_format(reader, cast(MessageKind, reader.choice("format", get_args(MessageKind))), ()),
        waits=Waits(
            lateness_ms=reader.integer("lateness_ms", WAITS.lateness_ms) or 0,
            idle_timeout_ms=_idle_timeout_ms(reader),
            jump_max_ms=reader.integer("jump_max_ms", WAITS.jump_max_ms) or 0,
        ),
        name=reader.optional_text("name") or "",
    )


def _idle_timeout_ms(reader: TableReader) -> int:
    """Return idle_timeout_ms, which was called idle_ms before."""
    is_old = reader.has("idle_ms")
    if is_old and reader.has("idle_timeout_ms"):
        raise reader.error("idle_timeout_ms", "either idle_timeout_ms or idle_ms, its older name", "both")
    return reader.integer("idle_ms" if is_old else "idle_timeout_ms", WAITS.idle_timeout_ms) or 0


def _format(reader: TableReader, kind: FormatKind | MessageKind, paths: tuple[str, ...]) -> Format:
    """Return what records or messages are, in files at these paths or, without any, from elsewhere."""
    if kind == "timestamped":
        mark = reader.choice("timestamps", ("suffix", "prefix"), "suffix")
        timestamps: Literal["prefix", "suffix"] = "prefix" if mark == "prefix" else "suffix"
        return TimestampedSource(paths=paths, timestamps=timestamps, is_sorted=_is_sorted(reader, paths))
    if kind in get_args(RecordKind):
        return _records(reader, cast(RecordKind, kind), paths)
    if kind == "rdf":
        messages = reader.choice("messages", ("", *get_args(MessageEnd)), "")
        return RdfSource(
            paths=paths,
            predicate=_iri(time := reader.table("time"), "predicate"),
            time_format=_done(time, time_format_in(time)),
            format=reader.choice("format", ("", *get_args(RdfKind)), "") or None,
            messages=cast(MessageEnd, messages) if messages else None,
            separator=reader.optional_text("separator") or "",
            base=_optional_iri(reader, "base"),
            is_sorted=_is_sorted(reader, paths),
        )
    time = reader.table("time")
    comes_with = time.choice("column", ("", MESSAGE_TIME), "") == MESSAGE_TIME
    return RdfSource(
        paths=paths,
        predicate="" if comes_with else _iri(time, "predicate"),
        time_format=_done(time, time_format_in(time)),
        format=kind,
        base=_optional_iri(reader, "base"),
    )


def _is_sorted(reader: TableReader, paths: tuple[str, ...]) -> bool:
    """Return whether files are to be put in order of time (`sort`). Sources that go on have no such key."""
    return bool(paths) and reader.flag("sort", False)


def _done(table: TableReader, value: T) -> T:
    """Return what was the last thing to be read of a table."""
    table.done()
    return value


def _records(reader: TableReader, kind: RecordKind, paths: tuple[str, ...]) -> RecordSource:
    """Return a source of records. `mapping` is a file or a table; `time` is stronger than the mapping's."""
    if reader.is_table("mapping"):
        table = reader.table("mapping")
        mapping = mapping_in(table)
        table.done()
    else:
        mapping = mapping_of(reader.path("mapping"), paths, _optional_iri(reader, "base"))
    time = time_in(reader, "time") or mapping.time
    if time is None:
        raise reader.error("time", "when a record happens, here or as [time] of the mapping", "neither")
    constants = reader.table("with")
    with_ = tuple((name, constants.text(name)) for name in constants.names())
    check_time(reader, time, {*mapping.made, *(name for name, _ in with_)})
    is_sorted = _is_sorted(reader, paths)
    if is_sorted and time.every_ms is not None:
        raise reader.error("sort", "a time in the records (column), since every_ms counts them in order", "every_ms")
    mapping = replace(mapping, time=time)
    return RecordSource(kind=kind, paths=paths, mapping=mapping, constants=with_, is_sorted=is_sorted)


def notes_of(streams: Sequence[StreamConfig]) -> tuple[str, ...]:
    """Return what users should know of the streams' mappings, each note once."""
    sources = (source for one in streams for source in one.sources)
    formats = (one.format if isinstance(one, LiveSource) else one for one in sources)
    records = (one for one in formats if isinstance(one, RecordSource))
    return tuple(dict.fromkeys(note for one in records for note in one.mapping.notes))


def mapping_of(path: str, data: tuple[str, ...], base: str | None = None, beside: Sequence[str] = ()) -> Mapping:
    """Return the mapping in a file, of TOML or RML (.ttl, .rml), for files of data. base, beside: as load_rml has them.

    Raises: SettingsError."""
    if path.endswith((".ttl", ".rml")):
        return load_rml(path, data, base, beside)
    if base is not None:
        raise SettingsError(
            f"{path}: expected no base, found {base}: IRIs of a TOML mapping are absolute. Leave it out"
        )
    return load_mapping(path)


def _continuous(reader: TableReader) -> QueryConfig:
    output = reader.choice("output", ("", *get_args(Output)), "")
    return replace(_query(reader), output=cast(Output, output) if output else None)


def _query(reader: TableReader) -> QueryConfig:
    name, file, text = reader.text("name"), reader.optional_path("file"), reader.optional_text("text")
    if (file is None) == (text is None):
        raise reader.error("file", "either file or text", "both" if file else "neither")
    if text is not None:
        return _inline_query(reader, name, text)
    try:
        text = decode_text(Path(str(file)).read_bytes(), "a query", str(file))
    except (OSError, DataError) as error:
        raise reader.error("file", "a query in UTF-8", f"{file} ({error})") from None
    return QueryConfig(name=name, text=text, source=str(file))


def _inline_query(reader: TableReader, name: str, text: str) -> QueryConfig:
    """Return a query whose text stands in the file: with so many lines and blanks before it that its places are those
    in the file; or, where escapes make these differ, as it is, and named by its query."""
    place = reader.text_place("text", text)
    if place is None:
        return QueryConfig(name=name, text=text, source=f"{reader.file}, text of query {name!r}")
    line, column = place
    return QueryConfig(name=name, text="\n" * (line - 1) + " " * (column - 1) + text, source=reader.file)


def _pipeline(reader: TableReader) -> PipelineConfig:
    defaults = PipelineConfig()
    config = PipelineConfig(
        engine="local" if reader.choice("engine", ("spark", "local"), defaults.engine) == "local" else "spark",
        speed=reader.number("speed", defaults.speed),
        rate=reader.number("rate", defaults.rate),
        rows_per_epoch=reader.integer("rows_per_epoch", defaults.rows_per_epoch, low=1) or 0,
        align_ms=reader.integer("align_ms", defaults.align_ms) or 0,
        start_ms=reader.integer("start_ms", None, low=-(1 << 62)),
        stop_ms=reader.integer("stop_ms", None, low=-(1 << 62)),
        parallelism=reader.integer("parallelism", defaults.parallelism, low=1) or 0,
        dead_letters=_dead_letters(reader),
        bad_records_max=_share(reader, "bad_records_max", defaults.bad_records_max),
        spool=reader.optional_place("spool") or "",
        spool_sync_ms=reader.integer("spool_sync_ms", defaults.spool_sync_ms) or 0,
        spool_bytes_max=reader.integer("spool_bytes_max", defaults.spool_bytes_max, low=1) or 0,
    )
    if config.speed and config.rate:
        raise reader.error("rate", "either speed or rate", "both")
    reader.done()
    return config


def _dead_letters(reader: TableReader) -> str:
    place = reader.optional_place("dead_letters")
    if place is None:
        return str(Path(reader.file).with_suffix(".dead.jsonl"))
    if not Path(place).parent.is_dir() or Path(place).is_dir():
        raise reader.error("dead_letters", "a file in a folder that is there", place)
    return place


def _share(reader: TableReader, key: str, default: float) -> float:
    found = reader.number(key, default)
    if found > 1:
        raise reader.error(key, "a number from 0 to 1", str(found))
    return found


def _check_unique(config: RunConfig) -> None:
    kinds = {
        "stream": [one.iri for one in config.streams],
        "query": [one.name for one in config.queries],
        "ask": [one.name for one in config.asks],
    }
    for kind, names in kinds.items():
        for name in names:
            if names.count(name) > 1:
                raise SettingsError(f"{config.file}, [[{kind}]]: expected each name once, found {name!r} twice")


def _check_pace(config: RunConfig) -> None:
    """Refuse what is for recordings only where a source goes on while it is read."""
    live = [stream.iri for stream in config.streams if stream.live_sources]
    pipeline = config.pipeline
    pace = (("speed", pipeline.speed), ("rate", pipeline.rate))
    for key, value in (*pace, ("start_ms", pipeline.start_ms), ("stop_ms", pipeline.stop_ms)):
        if live and value:
            raise SettingsError(
                f"{config.file}: pipeline.{key}: expected none beside a source that goes on while it is read (stream "
                f"{live[0]}), found {value}: it is for recordings"
            )


def _check_queries(config: RunConfig) -> None:
    """Refuse a query that does not parse, or stands under the wrong heading, before anything is loaded."""
    declared = [one.iri for one in config.streams]
    for one in config.queries:
        query = parse_query(one.text, source=one.source)
        windows = query.dataset.windows
        if not windows and query.registration is None:
            raise SettingsError(
                f"{config.file}, [[query]] {one.name}: expected REGISTER QUERY or a window, found neither: "
                "[[ask]] is for one-shot queries"
            )
        for stream in (window.stream for window in windows if window.stream not in declared):
            raise SettingsError(
                f"{config.file}, [[query]] {one.name}: expected streams of this file, found FROM STREAM <{stream}>: "
                f"declare it under [[stream]]. Declared: {', '.join(declared) or 'none'}"
            )
        if makes_stream(query) and query.registration is not None:
            declared.append(query.registration.name)  # the queries below may read what it makes
    for one in config.asks:
        if parse_query(one.text, source=one.source).dataset.windows:
            raise SettingsError(
                f"{config.file}, [[ask]] {one.name}: expected a one-shot query, found one with FROM STREAM: "
                "[[query]] is for continuous queries"
            )
