"""Lateness: tuples that come out of order to a stream with lateness_ms or on_late (docs/decisions/0035-lateness.md).

Such a stream stands, at each moment, at the latest of: newest - lateness_ms - 1, where newest is the greatest time that
has come; its last advance; what is closed. A tuple is late if it comes at or before that. So one that comes exactly
lateness_ms behind the newest is on time, and how tuples are divided among calls makes no difference.

* Tuples on time wait under their stream batches, which close up to where the stream stands. So they need no place of
  their own to be sorted in.
* Late tuples are in no window. Those that are timeless join the stored graph at the next SN, as an update does.
* A call is one record of the log, in the order of arrival, with where the stream stood before it and that SN. Replay
  sorts it by `sort_in` again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from wukongs.errors import SettingsError
from wukongs.live.pieces import Piece, Pushed
from wukongs.query.terms.names import path_text
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.encoded import Encoded, TermCutter

if TYPE_CHECKING:
    import pyarrow

COUNT = "count"
"""The on_late of a stream whose late tuples are only counted."""
LOGGED_EVERY_S = 1.0
log = logging.getLogger("wukongs")
OnLate: TypeAlias = "Callable[[pyarrow.Table], object] | str | os.PathLike[str] | None"


def late_mask(times: Int64Array, stands_ms: int | None, lateness_ms: int | None) -> BoolArray:
    """Tell which tuples are late, bool[n]. times: in the order of arrival; stands_ms: where the stream stood before;
    lateness_ms: None if the stream does not sort, so that only what is behind where it stood is late."""
    if lateness_ms is None:
        return np.zeros(len(times), np.bool_) if stands_ms is None else times <= stands_ms
    stands = np.maximum.accumulate(times) - (lateness_ms + 1)
    return times <= (stands if stands_ms is None else np.maximum(stands, stands_ms))


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """A call, sorted. piece: the tuples on time, by time; equal times in the order of arrival. late: the late ones that
    are timeless. is_late : bool[all tuples]; complete_ms: where the stream stands now."""

    piece: Piece
    late: Encoded | None
    is_late: BoolArray
    complete_ms: int


def sort_in(pushed: Pushed, lateness_ms: int | None) -> Sorted:
    """Sort a call. The same call gives the same result when it is replayed. lateness_ms: as of late_mask."""
    piece, encoded = pushed.piece, pushed.piece.encoded
    is_late = late_mask(encoded.timestamps, pushed.stands_ms, lateness_ms)
    stands_ms = int(encoded.timestamps.max()) - (lateness_ms or 0) - 1
    complete_ms = stands_ms if pushed.stands_ms is None else max(stands_ms, pushed.stands_ms)
    on_time = np.flatnonzero(~is_late)
    order = on_time[np.argsort(encoded.timestamps[on_time], kind="stable")]
    if len(order) == len(encoded):
        return Sorted(_in_order(piece, _rows(encoded, order), order), None, is_late, complete_ms)
    cutter, timeless = TermCutter(encoded), np.flatnonzero(is_late & ~piece.timing)
    late = cutter.cut(timeless) if len(timeless) else None
    return Sorted(_in_order(piece, cutter.cut(order), order), late, is_late, complete_ms)


def _in_order(piece: Piece, encoded: Encoded, rows: Int64Array) -> Piece:
    return replace(piece, encoded=encoded, timing=piece.timing[rows])


def _rows(encoded: Encoded, rows: Int64Array) -> Encoded:
    """Return rows of encoded tuples with all the terms."""
    names = ("subjects", "predicates", "objects", "graphs", "timestamps", *(["goes"] if len(encoded.goes) else []))
    return replace(encoded, **{name: getattr(encoded, name)[rows] for name in names})


def on_late_option(on_late: OnLate) -> str | bool | None:
    """Return on_late as an option in JSON: True stands for a callable. Raises SettingsError."""
    if on_late is None or callable(on_late):
        return None if on_late is None else True
    with suppress(SettingsError):
        return path_text("on_late", on_late)
    raise SettingsError(f'on_late = {on_late!r}: expected a callable, the path of a file, or "{COUNT}"')


def late_tuples_of(stream_iri: str, options: Mapping[str, Any]) -> LateTuples:
    """Return what takes the late tuples of a stream that was declared elsewhere: they are written, if its on_late is a
    path, and else counted. Raises as LateTuples."""
    on_late = options.get("on_late")
    return LateTuples(stream_iri, on_late if isinstance(on_late, str) else COUNT)


class LateTuples:
    """Gives late tuples to the on_late of a stream. May be called from any thread, without the engine's lock."""

    def __init__(self, stream_iri: str, on_late: OnLate, now_s: Callable[[], float] = time.monotonic) -> None:
        """Raises SettingsError (a file that cannot be written)."""
        self._stream = stream_iri
        self._call = on_late if callable(on_late) else None
        is_path = not callable(on_late) and on_late is not None and on_late != COUNT
        self._path = os.fspath(on_late) if is_path else None  # type: ignore[arg-type]
        self._now_s = now_s
        self._lock = threading.Lock()
        self._failed_count = 0
        self._quiet_until_s = -1.0
        if self._path is not None:
            try:
                self._append(b"")
            except OSError as error:
                raise SettingsError(f"on_late = {self._path!r}: cannot write this file: {error.strerror}") from None

    def give(self, columns: Sequence[Any], rows: Int64Array) -> None:
        """Hand on the rows with these numbers. columns: as encode_columns takes them. An error of on_late is logged, at
        most once a second, and is no error of the push."""
        if self._call is None and self._path is None:
            return
        try:
            table = _table(columns, rows)
            if self._call is not None:
                self._call(table)
            else:
                self._append(_nquads(table))
        except Exception as error:
            self._failed(error)

    def _append(self, text: bytes) -> None:
        assert self._path is not None, self._stream
        with self._lock, open(self._path, "ab") as file:
            file.write(text)

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._failed_count += 1
            if (now_s := self._now_s()) < self._quiet_until_s:
                return
            count, self._failed_count, self._quiet_until_s = self._failed_count, 0, now_s + LOGGED_EVERY_S
        log.error(
            "stream %s: on_late failed (%d times since the last such message): %r",
            self._stream,
            count,
            error,
            exc_info=error,
        )


def _table(columns: Sequence[Any], rows: Int64Array) -> pyarrow.Table:
    """Return rows of what was pushed as a table that push_arrow takes."""
    import pyarrow as pa

    subjects, predicates, objects, times, *extra = columns
    found = {"subject": subjects, "predicate": predicates, "object": objects}
    found |= {name: column for name, column in zip(("graph", "op"), extra, strict=False) if column is not None}
    taken = {name: _taken(column, rows) for name, column in found.items()}
    return pa.table({**taken, "timestamp_ms": pa.array(np.asarray(times)[rows], pa.int64())})


def _taken(column: Any, rows: Int64Array) -> Any:
    import pyarrow as pa

    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column.take(pa.array(rows))
    return pa.array([column[row] for row in rows.tolist()], pa.large_string())


def _nquads(table: pyarrow.Table) -> bytes:
    """Return tuples as lines of N-Quads, with their times in comments. A retraction is a comment as a whole."""
    names = [name for name in ("subject", "predicate", "object", "graph") if name in table.column_names]
    parts = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    times = table.column("timestamp_ms").to_pylist()
    ops = table.column("op").to_pylist() if "op" in table.column_names else ["+"] * len(times)
    lines = (
        f"{'# - ' if op == '-' else ''}{' '.join(filter(None, terms))} . # {ms} ms\n"
        for terms, ms, op in zip(parts, times, ops, strict=True)
    )
    return "".join(lines).encode()
