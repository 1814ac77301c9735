"""Reads the reports of a live view as a streaming DataFrame: rows that were inserted or deleted, with their snapshots.

An offset is the position up to which changes were read. The planner's side fetches reports from the node; partitions
carry them. It reads by a cursor of its own, whose first report, the whole content, gives the first rows. A later
reset cannot be told as changes, so it is an error: the stream begins again with a new checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from wukongs.adapters.spark.cells import check_schema, typed_batch
from wukongs.adapters.spark.options import WINDOWS, Options
from wukongs.adapters.spark.query_reader import columns_of_form
from wukongs.adapters.spark.window_reader import (
    REPLAY_WAIT_S,
    WAIT_S,
    WINDOWS_PER_BATCH,
    FetchingReader,
    WindowSource,
    named,
)
from wukongs.errors import SettingsError, StreamError

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql.types import StructType

    from wukongs.query.output.view_report import ViewReport
    from wukongs.remote.query import RemoteView

CHANGE_TYPE, COMMIT_VERSION = "_change_type", "_commit_version"
KINDS = {CHANGE_TYPE: "string", COMMIT_VERSION: "bigint"}
BEFORE_ALL = (-1, 0)
Position = tuple[int, int]


@dataclass(slots=True)
class _Fetched:
    """A report that was fetched and not committed.

    position: its end, as SN and the version of the arguments.
    rows: one for each row that was inserted or deleted."""

    position: Position
    rows: Table


class ChangeReader(FetchingReader):
    """Its offsets are positions of the view."""

    def __init__(self, source: WindowSource, schema: StructType) -> None:
        super().__init__(source, schema)
        self._view: RemoteView | None = None
        self._fetched: list[_Fetched] = []
        self._has_begun = False
        """A report has arrived."""

    def initialOffset(self) -> dict[str, Any]:
        return _offset(BEFORE_ALL)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Return the end of the last of the next reports, or start if there is none."""
        after = _position(start)
        self._fetch(after, self._source.windows_per_batch, WAIT_S)
        return _offset(max((one.position for one in self._fetched if one.position > after), default=after))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the changes between two offsets. Raises StreamError (the node has them no more)."""
        after, last = _position(start), _position(end)
        while last > max((one.position for one in self._fetched), default=after):
            if not self._fetch(after, 1, REPLAY_WAIT_S):
                raise self._lost(
                    f"changes up to SN {last[0]} were read before, and the node does not have them any more"
                )
        return [self._partition(one.rows for one in self._fetched if after < one.position <= last)]

    def commit(self, end: dict[str, Any]) -> None:
        """Forget reports that nobody asks for any more."""
        last = _position(end)
        self._fetched = [one for one in self._fetched if one.position > last]

    def _fetch(self, after: Position, count: int, wait_s: float) -> bool:
        """Fetch reports; wait for the first of them. Return whether there was one."""
        view, found = self._attached(), 0
        while found < count and (report := view.next(wait_s if not found else 0)) is not None:
            is_behind = not self._has_begun and after != BEFORE_ALL
            if is_behind or (report.is_reset and self._has_begun):
                raise self._lost("it has begun again, so what has changed since the last batch is not known")
            self._has_begun = True
            self._fetched.append(_Fetched((report.snapshot, report.minor), self._rows(report)))
            found += 1
        return found > 0

    def _lost(self, what: str) -> StreamError:
        return StreamError(f"view {self._source.query}: {what}. Begin with a new checkpoint, and an empty target")

    def _attached(self) -> RemoteView:
        from wukongs.remote.query import RemoteView

        if self._view is None:
            found = self._connected()
            if not isinstance(found, RemoteView):
                raise StreamError(
                    f"query {self._source.query} has windows, and is no live view: read window_start, window_end"
                )
            self._view = found
        return self._view

    def _rows(self, report: ViewReport) -> Table:
        """Return a row for each one that was inserted or deleted, as often as its weight says."""
        import numpy as np
        import pyarrow as pa

        is_inserted, counts = report.weights > 0, np.abs(report.weights)
        if report.kind == "ask":
            table = pa.table({"ask": pa.array(is_inserted)})
        else:
            table = report.arrow()
            table = table.remove_column(table.num_columns - 1)  # the weight
        kinds = pa.array(np.where(is_inserted, "insert", "delete").tolist(), pa.string())
        versions = pa.array(np.full(len(counts), report.snapshot, np.int64))
        table = table.append_column(CHANGE_TYPE, kinds).append_column(COMMIT_VERSION, versions)
        repeated = table.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        return typed_batch(repeated, self._schema)


def reads_changes(given: Any, schema: StructType | None = None) -> bool:
    """Return whether options name a live view: by their text, or by a schema that has the columns of changes."""
    _, _, query = named(Options(given, WINDOWS))
    if query is not None:
        return not query.dataset.windows
    return schema is not None and not KINDS.keys().isdisjoint(schema.names)


def change_reader(given: Any, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of the options. Raises SettingsError, QuerySyntaxError."""
    options = Options(given, WINDOWS)
    name, text, query = named(options)
    check_schema(schema, None if query is None else (*columns_of_form(query.form, query.variables), *KINDS))
    for field in schema.fields:
        if (kind := KINDS.get(field.name)) is not None and field.dataType.simpleString() != kind:
            raise SettingsError(f"column {field.name!r}: expected type {kind}, found {field.dataType.simpleString()}")
    if options.choice("on_gap", "fail", "continue") == "continue":
        raise SettingsError("option 'on_gap': expected fail for a live view, whose changes are of no use behind a gap")
    per_batch = options.number("windows_per_batch", WINDOWS_PER_BATCH, 1)
    return ChangeReader(WindowSource(options.access(), name, text, False, per_batch), schema)


def change_schema(given: Any) -> str:
    """Return the columns of a live view that is named by its text."""
    _, _, query = named(Options(given, WINDOWS))
    assert query is not None, "reads_changes"
    kinds = {**KINDS, "ask": "boolean"}
    columns = (*columns_of_form(query.form, query.variables), *KINDS)
    return ", ".join(f"`{column}` {kinds.get(column, 'string')}" for column in columns)


def _offset(position: Position) -> dict[str, Any]:
    return {"sn": position[0], "minor": position[1]}


def _position(offset: dict[str, Any]) -> Position:
    return offset["sn"], offset["minor"]
