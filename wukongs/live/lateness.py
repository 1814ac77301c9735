"""Lateness: tuples that come out of order to a stream with lateness_ms or on_late (docs/decisions/0035-lateness.md).

Such a stream stands, at each moment, at the latest of: newest - lateness_ms - 1, where newest is the greatest time that
has come; its last advance; what is closed. A tuple is late if it comes at or before that. So one that comes exactly
lateness_ms behind the newest is on time, and how tuples are divided among calls makes no difference.

* Tuples on time wait under their stream batches, which close up to where the stream stands. So they need no place of
  their own to be sorted in.
* Late tuples are in no window. Those that are timeless join the stored graph at the next SN, as an update does.
* With late="open" (docs/decisions/0114-late-tuples-in-open-windows.md) a tuple is late if its own stream batch is
  closed where the stream stands when it arrives. The first stream batch that is not closed there carries it. It keeps
  its own timestamp. Tuples older than history_ms before the end of the last closed stream batch are treated as without
  that option.
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
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

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
DROP, OPEN = "drop", "open"
"""The two ways with a late tuple: it is in no window, or it joins the windows that end after the watermark."""
_NOWHERE_MS = -(1 << 61)
_HISTORY_MS_MAX = 1 << 60
log = logging.getLogger("wukongs")
Late: TypeAlias = Literal["drop", "open"]
OnLate: TypeAlias = "Callable[[pyarrow.Table], object] | str | os.PathLike[str] | None"


def late_mask(times: Int64Array, stands_ms: int | None, lateness_ms: int | None) -> BoolArray:
    """Tell which tuples are late, bool[n]. times: in the order of arrival; stands_ms: where the stream stood before;
    lateness_ms: None if the stream does not sort, so that only what is behind where it stood is late."""
    return times <= _watermarks(times, stands_ms, lateness_ms)


def _watermarks(times: Int64Array, stands_ms: int | None, lateness_ms: int | None) -> Int64Array:
    """Return where the stream stands when each tuple arrives, int64[n] in ms. The parameters are those of late_mask."""
    before_ms = _NOWHERE_MS if stands_ms is None else stands_ms
    if lateness_ms is None:
        return np.full(len(times), before_ms, np.int64)
    watermarks: Int64Array = np.maximum(np.maximum.accumulate(times) - (lateness_ms + 1), before_ms)
    return watermarks


@dataclass(frozen=True, slots=True)
class CarryRule:
    """How a stream with late="open" carries late tuples.

    batch_ms : length of a stream batch
    history_ms : a tuple older than this, before the end of the last closed stream batch, is dropped
    """

    batch_ms: int
    history_ms: int

    def oldest_ms(self, closed_ms: Int64Array) -> Int64Array:
        """Return the earliest timestamp that is not dropped, int64[n]. closed_ms : int64[n], the ends of the last
        closed stream batches."""
        return closed_ms - min(self.history_ms, _HISTORY_MS_MAX)

    def numbers(self, times: Int64Array, closed: Int64Array) -> Int64Array:
        """Return the stream batch that holds each tuple, int64[n]. closed : int64[n], the last closed stream batch when
        it arrives."""
        return np.maximum(-(-times // self.batch_ms), closed + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Where each tuple of a call belongs.

    is_late : bool[n]        behind where the stream stood when it arrived, and carried by no stream batch
    is_carried : bool[n]     its own stream batch was closed when it arrived, and a later one carries it
    numbers : int64[n]       the stream batch of each tuple; None without a CarryRule: that of its timestamp
    """

    is_late: BoolArray
    is_carried: BoolArray
    numbers: Int64Array | None


def judge(times: Int64Array, stands_ms: int | None, lateness_ms: int | None, rule: CarryRule | None) -> Verdict:
    """Decide which tuples are late and which stream batch holds each of the others, tuple by tuple in the order of
    arrival. rule: None if late tuples are dropped; the other parameters are those of late_mask."""
    watermarks = _watermarks(times, stands_ms, lateness_ms)
    if rule is None:
        return Verdict(times <= watermarks, np.zeros(len(times), np.bool_), None)
    closed = watermarks // rule.batch_ms
    is_late = times < rule.oldest_ms(closed * rule.batch_ms)
    is_carried = (times <= closed * rule.batch_ms) & ~is_late
    return Verdict(is_late, is_carried, rule.numbers(times, closed))


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """A call, sorted. piece: the tuples on time and those that stream batches carry, by stream batch and time; equal
    times in the order of arrival. late: the late ones that are timeless. is_late : bool[all tuples], those that no
    stream batch carries; is_carried : bool[all tuples]; complete_ms: where the stream stands now."""

    piece: Piece
    late: Encoded | None
    is_late: BoolArray
    is_carried: BoolArray
    complete_ms: int


def sort_in(pushed: Pushed, lateness_ms: int | None, rule: CarryRule | None = None) -> Sorted:
    """Sort a call. The same call gives the same result when it is replayed. The parameters are those of judge."""
    piece, encoded = pushed.piece, pushed.piece.encoded
    found = judge(encoded.timestamps, pushed.stands_ms, lateness_ms, rule)
    if piece.numbers is not None and found.numbers is not None and rule is not None:  # its writer has decided it, too
        decided = np.maximum(found.numbers, piece.numbers)
        is_carried = (encoded.timestamps <= (decided - 1) * rule.batch_ms) & ~found.is_late
        found = Verdict(found.is_late, is_carried, decided)
    stands_ms = int(encoded.timestamps.max()) - (lateness_ms or 0) - 1
    complete_ms = stands_ms if pushed.stands_ms is None else max(stands_ms, pushed.stands_ms)
    kept = np.flatnonzero(~found.is_late)
    numbers = found.numbers if found.is_carried.any() else None
    if numbers is None:
        order = kept[np.argsort(encoded.timestamps[kept], kind="stable")]
    else:
        order = kept[np.lexsort((encoded.timestamps[kept], numbers[kept]))]
    if len(order) == len(encoded):
        in_order, late = _in_order(piece, _rows(encoded, order), order, numbers), None
    else:
        cutter, timeless = TermCutter(encoded), np.flatnonzero(found.is_late & ~piece.timing)
        late = cutter.cut(timeless) if len(timeless) else None
        in_order = _in_order(piece, cutter.cut(order), order, numbers)
    return Sorted(in_order, late, found.is_late, found.is_carried, complete_ms)


def _in_order(piece: Piece, encoded: Encoded, rows: Int64Array, numbers: Int64Array | None) -> Piece:
    numbers = None if numbers is None else numbers[rows]
    return replace(piece, encoded=encoded, timing=piece.timing[rows], numbers=numbers)


def _rows(encoded: Encoded, rows: Int64Array) -> Encoded:
    """Return rows of encoded tuples with all the terms."""
    names = ("subjects", "predicates", "objects", "graphs", "timestamps", *(["goes"] if len(encoded.goes) else []))
    return replace(encoded, **{name: getattr(encoded, name)[rows] for name in names})


def late_option(late: object) -> str:
    """Return the option `late` of a stream. Raises SettingsError."""
    if late not in (DROP, OPEN):
        raise SettingsError(f'late = {late!r}: expected "{DROP}" or "{OPEN}"')
    return str(late)


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
