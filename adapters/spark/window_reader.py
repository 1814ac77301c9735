"""Reads the windows of a registered query as a streaming DataFrame: each window's rows, with where it begins and ends.

An offset is the end of the last window that was read. The planner's side fetches windows from the node; they travel in
the partitions. It reads by a cursor of its own, which confirms nothing: the node keeps windows up to the bound of the
query's log, so a micro-batch that Spark runs again after a restart finds them there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from wukongs.adapters.sink import Access
from wukongs.adapters.spark.cells import arrow_schema, check_schema, typed_batch
from wukongs.adapters.spark.options import WINDOWS, Options
from wukongs.adapters.spark.query_reader import columns_of_form
from wukongs.csparql.algebra import Query
from wukongs.csparql.parser import parse_query
from wukongs.errors import GapError, SettingsError, StreamError

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table
    from pyspark.sql.types import StructType

    from wukongs.query.output.results import WindowResult
    from wukongs.remote.client import RemoteEngine
    from wukongs.remote.query import RemoteQuery

BEFORE_ALL_MS = -(1 << 62)
WAIT_S, REPLAY_WAIT_S = 0.2, 10.0
"""How long to wait for a window that may come, and for one that has to be there."""
BOUNDS = ("window_start", "window_end")
WINDOWS_PER_BATCH = 1000


@dataclass
class WindowPartition(InputPartition):
    """The rows of some windows, as an Arrow IPC stream."""

    content: bytes


@dataclass(frozen=True, slots=True)
class WindowSource:
    """The query that is read. text: its own, to register it if it is not there; goes_on: over windows that are lost."""

    access: Access
    query: str
    text: str | None
    goes_on: bool
    windows_per_batch: int


class FetchingReader(DataSourceStreamReader):
    """Reads what it fetches from a node. `read` is the worker's side, by partitions; all else runs in one process
    of Spark's planner."""

    def __init__(self, source: WindowSource, schema: StructType) -> None:
        self._source, self._schema = source, schema
        self._engine: RemoteEngine | None = None

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        import pyarrow as pa

        assert isinstance(partition, WindowPartition), partition
        with pa.ipc.open_stream(partition.content) as reader:
            yield from reader

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def _partition(self, tables: Iterable[Table]) -> WindowPartition:
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, arrow_schema(self._schema)) as writer:
            for table in tables:
                writer.write_table(table)
        return WindowPartition(sink.getvalue().to_pybytes())

    def _connected(self) -> Any:
        """Connect, register the query if its text is given and it is not there, and return it. Raises StreamError (it
        is not there)."""
        source = self._source
        if source.text is not None:
            with source.access.connect() as first:
                if all(query.name != source.query for query in first.queries()):
                    first.register(source.text)
        self._engine = source.access.connect()
        found = [query for query in self._engine.queries() if query.name == source.query]
        if not found:
            raise StreamError(f"there is no query named {source.query}: register it first, or give its text")
        return found[0]


class WindowReader(FetchingReader):
    """Its offsets are the ends of windows."""

    def __init__(self, source: WindowSource, schema: StructType) -> None:
        super().__init__(source, schema)
        self._query: RemoteQuery | None = None
        self._windows: list[tuple[int, Table]] = []
        """Windows that were fetched and not committed, by their ends."""
        self._seen_ms: int | None = None
        """The end of the last window that has come, also of one from before the offset."""

    def initialOffset(self) -> dict[str, Any]:
        return {"end_ms": BEFORE_ALL_MS}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Return the end of the last of the next windows, or start if none comes."""
        after = start["end_ms"]
        self._fetch(after, self._source.windows_per_batch, WAIT_S)
        ends = [end for end, _ in self._windows if end > after]
        return {"end_ms": max(ends, default=after)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the windows between two offsets. Raises: GapError (the node has them no more)."""
        after, last = start["end_ms"], end["end_ms"]
        while last > max((one for one, _ in self._windows), default=after):
            if not self._fetch(after, 1, REPLAY_WAIT_S):
                raise StreamError(
                    f"query {self._source.query}: the window that ends at {last} ms was read before, and the node does "
                    "not have it any more. Begin with a new checkpoint"
                )
        return [self._partition(table for one, table in self._windows if after < one <= last)]

    def commit(self, end: dict[str, Any]) -> None:
        """Forget windows that nobody asks for any more."""
        self._windows = [(one, table) for one, table in self._windows if one > end["end_ms"]]

    def _fetch(self, after_ms: int, count: int, wait_s: float) -> bool:
        """Fetch windows that end after a time; wait for the first of them. Tell whether there was one."""
        query, found = self._attached(), 0
        while found < count:
            try:
                window = query.next(wait_s if not found else 0)
            except GapError as error:
                if not self._source.goes_on and error.to_ms > after_ms:
                    raise
                continue
            if window is None:
                break
            if window.end_ms > after_ms:
                self._check_follows(window, after_ms)
                self._windows.append((window.end_ms, self._rows(window)))
                found += 1
            self._seen_ms = window.end_ms
        return found > 0

    def _check_follows(self, window: WindowResult, after_ms: int) -> None:
        """Raises: StreamError (the first window after a restart may not be the one behind the offset)."""
        if self._seen_ms is None and after_ms != BEFORE_ALL_MS and not self._source.goes_on:
            raise StreamError(
                f"query {self._source.query}: windows up to {after_ms} ms were read before, and the oldest that the "
                f"node holds ends at {window.end_ms} ms: some between them may be lost. Set on_gap = continue to go on "
                "there, or begin with a new checkpoint"
            )

    def _attached(self) -> RemoteQuery:
        """Return the query, by a cursor that begins with the oldest window that the node holds."""
        if self._query is None:
            self._query = self._connected()
        return self._query

    def _rows(self, window: WindowResult) -> Table:
        import pyarrow as pa

        count = len(window)
        table = window.arrow()
        for name, time_ms in zip(BOUNDS, (window.start_ms, window.end_ms), strict=True):
            is_integer = self._schema[name].dataType.simpleString() == "bigint" if name in self._schema.names else True
            kind = pa.int64() if is_integer else pa.timestamp("ms", "UTC")
            table = table.append_column(name, pa.array([time_ms] * count, pa.int64()).cast(kind))
        return typed_batch(table, self._schema)


def window_reader(given: Any, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of the options. Raises: SettingsError; QuerySyntaxError."""
    options = Options(given, WINDOWS)
    name, text, query = named(options)
    check_schema(schema, None if query is None else (*BOUNDS, *columns_of_form(query.form, query.variables)))
    for field in schema.fields:
        if field.name in BOUNDS and field.dataType.simpleString() not in ("timestamp", "bigint"):
            raise SettingsError(
                f"column {field.name!r}: expected type timestamp or bigint, found {field.dataType.simpleString()}"
            )
    source = WindowSource(
        access=options.access(),
        query=name,
        text=text,
        goes_on=options.choice("on_gap", "fail", "continue") == "continue",
        windows_per_batch=options.number("windows_per_batch", WINDOWS_PER_BATCH, 1),
    )
    return WindowReader(source, schema)


def window_schema(given: Any) -> str:
    """Return the bounds and the columns of the query. Raises: SettingsError (the columns are not known)."""
    name, _, query = named(Options(given, WINDOWS))
    if query is None:
        raise SettingsError(
            f"the columns of query {name} are not known here: give its text as option 'query', or say "
            '.schema("window_start timestamp, window_end timestamp, ...")'
        )
    kinds = {"window_start": "timestamp", "window_end": "timestamp", "timestamp_ms": "bigint", "ask": "boolean"}
    columns = (*BOUNDS, *columns_of_form(query.form, query.variables))
    return ", ".join(f"`{column}` {kinds.get(column, 'string')}" for column in columns)


def named(options: Options) -> tuple[str, str | None, Query | None]:
    """Return the name of the query, its text, and the text as it was parsed.

    None: the options have no text. Raises SettingsError, QuerySyntaxError."""
    text, registered = options.text("query"), options.text("registered")
    if (text is None) == (registered is None):
        raise SettingsError(
            "expected one of the options 'query' (a REGISTER QUERY ...), 'registered' (the name of a registered query) "
            "and 'runfile'"
        )
    if text is None:
        assert registered is not None
        return registered, None, None
    query = parse_query(text)
    if query.registration is None:
        raise SettingsError("option 'query': expected REGISTER QUERY ...; ask a one-shot query with spark.read")
    return query.registration.name, text, query
