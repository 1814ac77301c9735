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
from wukongs.adapters.spark.options import WRITE, Options
from wukongs.errors import SettingsError, StreamError

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

_TEXT, _TIME = ("string",), ("timestamp", "bigint", "int")
_TIME_SAID = "timestamp, or bigint or int in ms"


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

    def __init__(self, writer: StreamWriter, columns: tuple[str, ...], batch: int) -> None:
        self._writer, self._columns, self._batch = writer, columns, batch

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows, and wait until they are safe."""
        mark = mark_of(_property("sql.streaming.queryId"))
        sent = push_rows(self._writer, _task(), self._batch, mark, _table(iterator, self._columns))
        return SentMessage(sent, self._batch, mark)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _close(self._writer, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Rows that were sent stay: the same batch sent again does not repeat them."""


class StreamMicroBatchWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query to a stream."""

    def __init__(self, writer: StreamWriter, columns: tuple[str, ...], batch_base: int) -> None:
        self._writer, self._columns, self._batch_base = writer, columns, batch_base

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows, and wait until they are safe."""
        query, number = _property("sql.streaming.queryId"), _property("streaming.sql.batchId")
        if query is None or number is None:
            raise StreamError("Spark does not tell the number of the micro-batch. Use foreachBatch (docs/spark.md)")
        batch, mark = self._batch_base + int(number), mark_of(query)
        return SentMessage(push_rows(self._writer, _task(), batch, mark, _table(iterator, self._columns)), batch, mark)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _close(self._writer, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Rows that were sent stay: Spark runs the same micro-batch again, and its rows are not repeated."""


class StoredFrameWriter(DataSourceArrowWriter):
    """Loads a DataFrame into the stored graph. A task that is run again adds nothing: a graph is a set."""

    def __init__(self, access: Access, columns: tuple[str, ...], graph: str | None) -> None:
        self._access, self._columns, self._graph = access, columns, graph

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        table = _table(iterator, self._columns)
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
    writer, columns = options.stream_writer(stream), columns_of(schema, has_time=True)
    _refuse(options, "graph", "batch_base")
    batch = options.number("batch", next_batch(writer) if options.text("batch") is None else 0)
    return StreamFrameWriter(writer, columns, batch)


def micro_batch_writer(given: Any, schema: StructType) -> DataSourceStreamArrowWriter:
    """Return the writer of a streaming query; Spark asks anew for each micro-batch. Raises: SettingsError."""
    options = Options(given, WRITE)
    stream = options.text("stream")
    if stream is None:
        return StoredMicroBatchWriter(stored_writer(options, schema))
    _refuse(options, "graph", "batch")
    columns = columns_of(schema, has_time=True)
    return StreamMicroBatchWriter(options.stream_writer(stream), columns, options.number("batch_base", 0))


def stored_writer(options: Options, schema: StructType) -> StoredFrameWriter:
    """Raises: SettingsError (an option of streams, a column)."""
    _refuse(options, "writer", "batch", "batch_base", "partitions", "advance", "lag_ms")
    return StoredFrameWriter(options.access(), columns_of(schema, has_time=False), options.text("graph"))


def _refuse(options: Options, *names: str) -> None:
    for name in names:
        if options.text(name) is not None:
            kind = "the stored graph" if options.text("stream") is None else "a stream, in this way"
            raise SettingsError(f"option {name!r} does not go with writing to {kind}: leave it out (docs/spark.md)")


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


def _table(batches: Iterator[RecordBatch], columns: tuple[str, ...]) -> Any:
    import pyarrow as pa

    parts = [pa.Table.from_batches([batch]).select(columns) for batch in batches]
    return pa.concat_tables(parts) if parts else pa.table({})


def _task() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def _property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
