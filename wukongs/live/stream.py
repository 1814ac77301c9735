"""Stream: a declared stream, as Engine.stream returns it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from wukongs.errors import StreamError
from wukongs.live.core import Core
from wukongs.live.injector import Injector
from wukongs.live.pieces import Close, Piece, timing_mask
from wukongs.live.stream_state import PUSH_PARTITION, StreamState
from wukongs.query.terms.rdf_terms import from_python
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_columns

if TYPE_CHECKING:
    import pyarrow


TABLE_COLUMNS = ("subject", "predicate", "object", "timestamp_ms")
"""The columns of a table that is pushed; it may also have a graph."""


def columns_of(
    stream_iri: str, tuples: Iterable[tuple[Any, Any, Any, int]]
) -> tuple[list[str], list[str], list[str], Int64Array] | None:
    """Return what is pushed as columns, terms as N-Triples; None if it is nothing. Raises DataError, StreamError."""
    rows = list(tuples)
    if not rows:
        return None
    for at, row in enumerate(rows):
        if len(row) != 4:
            raise StreamError(
                f"stream {stream_iri}: tuple {at} of the call has {len(row)} parts: expected (subject, predicate, "
                "object, timestamp_ms)"
            )
        check_timestamp(stream_iri, row[3], f" at tuple {at} of the call")
    subjects, predicates, objects = ([from_python(row[part]) for row in rows] for part in range(3))
    return subjects, predicates, objects, np.array([row[3] for row in rows], np.int64)


def check_table(stream_iri: str, table: pyarrow.Table) -> None:
    """Raise StreamError for a table without the columns that are pushed."""
    missing = [name for name in TABLE_COLUMNS if name not in table.column_names]
    if missing:
        raise StreamError(
            f"stream {stream_iri}: the table has no column {', '.join(missing)}: expected {', '.join(TABLE_COLUMNS)}, "
            f"found {', '.join(table.column_names) or 'none'}"
        )


def check_timestamp(stream_iri: str, value: object, place: str = "") -> None:
    """Raise StreamError for what is no time in milliseconds. place: where it stands."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or not -(1 << 63) <= int(value) < 1 << 63:  # type: ignore[call-overload]
        raise StreamError(
            f"stream {stream_iri}: timestamp {value!r}{place}: expected an integer of 64 bits, in milliseconds"
        )


class Sink(Protocol):
    """Takes what is pushed to streams: a CoreSink, or the writers of a cluster. Raises as the methods of Stream."""

    def take(self, state: StreamState, encoded: Encoded) -> None:
        """Add tuples, in order of time; they are safe when it returns."""

    def advance(self, state: StreamState, time_ms: int) -> None:
        """Close the stream batches up to a time."""

    def end(self, state: StreamState) -> None:
        """End a stream. Allowed twice."""


class Stream:
    """Tuples in. All methods may be called from any thread; calls of one stream are taken one after the other."""

    def __init__(self, state: StreamState, sink: Sink, hash_bits: int) -> None:
        self.iri = state.iri
        self.batch_ms = state.batch_ms
        self._state = state
        self._sink = sink
        self._hash_bits = hash_bits

    def __repr__(self) -> str:
        return f"<Stream {self.iri}: {self._state.tuple_count} tuples, closed up to {self._state.closed_ms} ms>"

    @property
    def options(self) -> dict[str, Any]:
        """The options of its declaration, defaults filled in, as JSON."""
        return self._state.options

    def push(self, tuples: Iterable[tuple[Any, Any, Any, int]]) -> int:
        """Add (subject, predicate, object, timestamp_ms) tuples, in order of time; return how many.

        Terms are rdflib terms or N-Triples strings. Raises DataError (a malformed term), StreamError (a timestamp that
        falls, a closed stream, too much waiting); then nothing of the call was applied. In a durable engine, push
        returns when the tuples are safe; StorageError says that they are not. On a full disk they are kept in memory,
        and become safe with the next write once there is room.
        """
        columns = columns_of(self.iri, tuples)
        return self._encode_and_take(*columns) if columns is not None else 0

    def push_arrow(self, table: pyarrow.Table) -> int:
        """Add a table with the columns subject, predicate, object (N-Triples strings), timestamp_ms (int64) and, if a
        tuple names its graph, graph; in order of time. Returns and raises as push."""
        check_table(self.iri, table)
        subjects, predicates, objects, times = (table.column(name) for name in TABLE_COLUMNS)
        graphs = table.column("graph") if "graph" in table.column_names else None
        return self._encode_and_take(subjects, predicates, objects, times, graphs)

    def advance(self, timestamp_ms: int) -> None:
        """Promise that nothing at or before this time comes any more: stream batches up to there close.

        Raises StreamError (a closed stream, a time that is no time in ms), StorageError (it cannot be logged)."""
        check_timestamp(self.iri, timestamp_ms)
        self._sink.advance(self._state, int(timestamp_ms))

    def close(self) -> None:
        """End the stream: its last stream batch closes, and others no longer wait for it. Closing twice is allowed."""
        self._sink.end(self._state)

    def _encode_and_take(self, *columns: Any) -> int:
        """Encode the columns of encode_columns, blank nodes in the scope of this stream, and take the tuples."""
        encoded = encode_columns(*columns, scope=self.iri.encode(), hash_bits=self._hash_bits)
        self._sink.take(self._state, encoded)
        return len(encoded)


class CoreSink:
    """Queues what is pushed in the core of an engine."""

    def __init__(self, core: Core, injector: Injector) -> None:
        self._core, self._injector = core, injector

    def take(self, state: StreamState, encoded: Encoded) -> None:
        core = self._core
        with core.lock:
            core.check_is_open()
            if not len(encoded):
                return
            state.check_timestamps(encoded.timestamps, PUSH_PARTITION)
            state.check_room(len(encoded))
            core.journal.prepare()
            timing = timing_mask(encoded, state.timing)
            ledger = state.open_partition(PUSH_PARTITION)
            end_offset = ledger.end_offset + len(encoded)
            piece = Piece(state.iri, PUSH_PARTITION, 0, ledger.end_offset, end_offset, 0, 0, encoded, timing)
            complete_ms = int(encoded.timestamps[-1]) - 1
            take_piece(core, state, piece)
            state.promise(PUSH_PARTITION, complete_ms)
            lsn = core.journal.note(piece, lambda: self._complete(state, complete_ms))
        core.journal.wait(lsn)

    def advance(self, state: StreamState, time_ms: int) -> None:
        core = self._core
        with core.lock:
            core.check_is_open()
            state.check_timestamps(np.array([], np.int64), PUSH_PARTITION)
            state.check_range(time_ms)
            core.journal.prepare()
            end_offset = state.open_partition(PUSH_PARTITION).end_offset
            state.promise(PUSH_PARTITION, time_ms)
            close = Close(state.iri, PUSH_PARTITION, 0, end_offset, time_ms)
            lsn = core.journal.note(close, lambda: self._complete(state, time_ms))
        core.journal.wait(lsn)

    def end(self, state: StreamState) -> None:
        core = self._core
        with core.lock:
            if not state.is_ended and not state.is_dropped and not core.is_closed:
                core.journal.commit({"op": "end", "stream": state.iri})
                state.end()
                core.progress.moved(core)
                self._injector.wake()

    def _complete(self, state: StreamState, complete_ms: int) -> None:
        state.complete(PUSH_PARTITION, complete_ms)
        self._core.progress.moved(self._core)
        self._injector.wake()


def take_piece(core: Core, state: StreamState, piece: Piece) -> None:
    """Make the terms of a piece known, and queue its tuples under their stream batches. Called with the lock held."""
    encoded, transient_ids = core.registry.confirm(piece.encoded, piece.timing)
    if len(encoded):
        state.begin(int(encoded.timestamps[0]))
    state.take(encoded, piece.timing, transient_ids, piece.partition)
    state.ledgers[piece.partition].taken(piece)
