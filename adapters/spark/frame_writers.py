"""Writers of DataFrames: to a stream exactly once (wukongs.adapters.sink), or to the stored graph.

Spark makes a writer on the driver, pickles it for each task, and calls commit on the driver once all tasks are done. A
task knows the number of its micro-batch and its query from Spark's local properties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from wukongs.adapters.frame_mapping import FrameMapping, frame_mapping
from wukongs.adapters.sink import (
    TEXT_COLUMN,
    TRIPLE_COLUMNS,
    Access,
    Sent,
    StreamWriter,
    close_batch,
    mark_of,
    next_batch,
    push_rows,
    stored_text,
)
from wukongs.adapters.spark.cells import arrow_schema
from wukongs.adapters.spark.options import WRITE, Options
from wukongs.errors import SettingsError, StreamError

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

_TEXT, _TIME = ("string",), ("timestamp", "bigint", "int")
_TIME_SAID = "timestamp, or bigint or int in ms"


@dataclass(frozen=True, slots=True)
class FrameReader:
    """Reads the rows of a task: columns of terms or of text, or those that a mapping makes triples of."""

    columns: tuple[str, ...]
    mapping: FrameMapping | None = None

    def read(self, batches: Iterator[RecordBatch]) -> Any:
        """Return a table of terms or lines of text, with times for a stream. Raises: DataError (a row, its column)."""
        import pyarrow as pa

        parts = [pa.Table.from_batches([batch]).select(self.columns) for batch in batches]
        table = pa.concat_tables(parts) if parts else pa.table({})
        return table if self.mapping is None or len(table) == 0 else self.mapping.rows(table)


@dataclass
class SentMessage(WriterCommitMessage):
    """The rows that a task has sent."""

    sent: Sent
    batch: int
    mark: int


@dataclass
class StoredMessage(WriterCommitMessage):
    """How many triples of a task are in the stored graph now that were not there before."""

    added: int


class StreamFrameWriter(DataSourceArrowWriter):
    """Writes one DataFrame to a stream, as the batch behind the writer's last one, or with a number of its own."""

    def __init__(self, writer: StreamWriter, reader: FrameReader, batch: int) -> None:
        self._writer, self._reader, self._batch = writer, reader, batch

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows, and wait until they are safe."""
        mark = mark_of(_property("sql.streaming.queryId"))
        sent = push_rows(self._writer, _task(), self._batch, mark, self._reader.read(iterator))
        return SentMessage(sent, self._batch, mark)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _close(self._writer, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Rows that were sent stay: the same batch sent again does not repeat them."""


class StreamMicroBatchWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query to a stream."""

    def __init__(self, writer: StreamWriter, reader: FrameReader, batch_base: int) -> None:
        self._writer, self._reader, self._batch_base = writer, reader, batch_base

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows, and wait until they are safe."""
        query, number = _property("sql.streaming.queryId"), _property("streaming.sql.batchId")
        if query is None or number is None:
            raise StreamError("Spark does not tell the number of the micro-batch. Use foreachBatch (docs/spark.md)")
        batch, mark = self._batch_base + int(number), mark_of(query)
        return SentMessage(push_rows(self._writer, _task(), batch, mark, self._reader.read(iterator)), batch, mark)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _close(self._writer, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Rows that were sent stay: Spark runs the same micro-batch again, and its rows are not repeated."""


class StoredFrameWriter(DataSourceArrowWriter):
    """Loads a DataFrame into the stored graph. A task that is run again adds nothing: a graph is a set."""

    def __init__(self, access: Access, reader: FrameReader, graph: str | None) -> None:
        self._access, self._reader, self._graph = access, reader, graph

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        table = self._reader.read(iterator)
        if len(table) == 0:
            return StoredMessage(0)
        text = BytesIO(stored_text(table))
        with self._access.connect() as engine:
            return StoredMessage(engine.load(text, self._graph, format="nq", strict=True))


class StoredMicroBatchWriter(DataSourceStreamArrowWriter):
    """Loads the micro-batches of a streaming query into the stored graph."""

    def __init__(self, writer: StoredFrameWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        return self._writer.write(iterator)


def frame_writer(given: Any, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Return the writer of one DataFrame. Raises: SettingsError; StreamError, NodeUnavailable (the node)."""
    options = Options(given, WRITE)
    if overwrite:
        raise SettingsError('mode "overwrite": a stream and the stored graph only grow. Use .mode("append")')
    stream = options.text("stream")
    if stream is None:
        return stored_writer(options, schema)
    writer, reader = options.stream_writer(stream), frame_reader(options, schema, has_time=True)
    _refuse(options, "graph", "batch_base")
    batch = options.number("batch", next_batch(writer) if options.text("batch") is None else 0)
    return StreamFrameWriter(writer, reader, batch)


def micro_batch_writer(given: Any, schema: StructType) -> DataSourceStreamArrowWriter:
    """Return the writer of a streaming query; Spark asks anew for each micro-batch. Raises: SettingsError."""
    options = Options(given, WRITE)
    stream = options.text("stream")
    if stream is None:
        return StoredMicroBatchWriter(stored_writer(options, schema))
    _refuse(options, "graph", "batch")
    reader = frame_reader(options, schema, has_time=True)
    return StreamMicroBatchWriter(options.stream_writer(stream), reader, options.number("batch_base", 0))


def stored_writer(options: Options, schema: StructType) -> StoredFrameWriter:
    """Raises: SettingsError (an option of streams, a column)."""
    _refuse(options, "writer", "batch", "batch_base", "partitions", "advance", "lag_ms")
    return StoredFrameWriter(options.access(), frame_reader(options, schema, has_time=False), options.text("graph"))


def _refuse(options: Options, *names: str) -> None:
    for name in names:
        if options.text(name) is not None:
            kind = "the stored graph" if options.text("stream") is None else "a stream, in this way"
            raise SettingsError(f"option {name!r} does not go with writing to {kind}: leave it out (docs/spark.md)")


def frame_reader(options: Options, schema: StructType, has_time: bool) -> FrameReader:
    """Raises: SettingsError (a column that is missing or of the wrong type, a mapping that will not do)."""
    given = options.text("mapping")
    if given is None:
        return FrameReader(columns_of(schema, has_time))
    mapping = frame_mapping(given, arrow_schema(schema), has_time)
    return FrameReader(mapping.columns, mapping)


def columns_of(schema: StructType, has_time: bool) -> tuple[str, ...]:
    """Return the columns that are written: value, or subject, predicate, object and graph if it is there; and time, of
    a stream. Raises: SettingsError (a column that is missing or of the wrong type)."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    is_text = TEXT_COLUMN in found and not any(name in found for name in TRIPLE_COLUMNS)
    names = [TEXT_COLUMN] if is_text else [*TRIPLE_COLUMNS, *(["graph"] if "graph" in found else [])]
    expected: dict[str, tuple[tuple[str, ...], str]] = dict.fromkeys(names, (_TEXT, "string, of N-Triples"))
    if has_time:
        expected["time"] = (_TIME, _TIME_SAID)
    shown = ", ".join(f"{name} {kind}" for name, kind in found.items()) or "none"
    for name, (kinds, said) in expected.items():
        if name not in found:
            raise SettingsError(
                f"column {name!r}: expected one of type {said}; the DataFrame has no such column: {shown}"
            )
        if found[name] not in kinds:
            raise SettingsError(f"column {name!r}: expected type {said}, found {found[name]}")
    return tuple(expected)


def _close(writer: StreamWriter, messages: list[WriterCommitMessage | None]) -> None:
    said = [one for one in messages if isinstance(one, SentMessage)]
    if said:
        close_batch(writer, said[0].batch, said[0].mark, [one.sent for one in said])


def _task() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def _property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
