"""Stream: a declared stream, as Engine.stream returns it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np

from wukongs.errors import NOT_KNOWN, PARTLY_APPLIED, DataError, SettingsError, StreamError, WukongsError
from wukongs.live.core import Core, take_piece
from wukongs.live.idleness import be_active
from wukongs.live.injector import Injector
from wukongs.live.lateness import LateTuples, Sorted, sort_in
from wukongs.live.pieces import Close, Piece, Pushed, timing_mask
from wukongs.live.stream_state import PUSH_PARTITION, StreamState
from wukongs.outcomes import Asked, asked
from wukongs.query.limits import waiting
from wukongs.query.output.html import facts_table
from wukongs.query.terms.names import plain_iri
from wukongs.query.terms.python_terms import is_table
from wukongs.query.terms.rdf_terms import from_python
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_columns
from wukongs.store.hidden_graphs import check_graphs_written

if TYPE_CHECKING:
    import pyarrow


_NO_ROWS: Int64Array = np.empty(0, np.int64)
TABLE_COLUMNS = ("subject", "predicate", "object", "timestamp_ms")
"""The columns of a table that is pushed; it may also have a graph, and an op."""
EXTRA_COLUMNS = ("graph", "op")
_TIME_PLACE = 3
_PER_MS = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}
"""How many of a unit are a millisecond; 0: one is many."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Time: TypeAlias = int | datetime
"""Milliseconds, or a datetime with a zone: the milliseconds from 1970 on, rounded down."""
Columns: TypeAlias = tuple[Any, ...]
"""Columns as encode_columns takes them."""
Pushable: TypeAlias = "pyarrow.Table | Iterable[tuple[Any, Any, Any, Time]] | None"
"""A table for Stream.push_arrow, tuples for Stream.push, or nothing."""


def columns_of(stream_iri: str, tuples: Iterable[tuple[Any, Any, Any, Time]]) -> Columns | None:
    """Return what is pushed as columns, terms as N-Triples; None if it is nothing. Raises DataError, StreamError."""
    if isinstance(tuples, str) or (isinstance(tuples, tuple) and tuples and not isinstance(tuples[0], tuple | list)):
        what = "a text" if isinstance(tuples, str) else "one tuple"
        raise StreamError(f"stream {stream_iri}: expected a list of tuples, found {what}: push([(s, p, o, time_ms)])")
    try:
        rows = list(tuples)
    except TypeError:
        raise StreamError(
            f"stream {stream_iri}: expected a list of tuples, found {type(tuples).__name__}: push([(s, p, o, time_ms)])"
        ) from None
    if not rows:
        return None
    if not all(issubclass(kind, tuple | list) for kind in set(map(type, rows))) or set(map(len, rows)) != {4}:
        raise _misshapen(stream_iri, rows)
    columns = [[row[part] for row in rows] for part in range(4)]
    terms = (_texts(stream_iri, name, column) for name, column in zip(TABLE_COLUMNS, columns[:3], strict=False))
    return *terms, _times(stream_iri, columns[3])


def _misshapen(stream_iri: str, rows: Sequence[Any]) -> StreamError:
    """Return the error for rows of which one is no tuple of four."""
    at = next(at for at, row in enumerate(rows) if not isinstance(row, tuple | list) or len(row) != 4)
    found = f"has {len(rows[at])} parts" if isinstance(rows[at], tuple | list) else f"is {rows[at]!r:.100}"
    return StreamError(
        f"stream {stream_iri}: tuple {at} of the call {found}: expected (subject, predicate, object, timestamp_ms)"
    )


def _texts(stream_iri: str, name: str, terms: list[Any]) -> list[str]:
    """Return terms as N-Triples. Raises DataError, naming the tuple and its part."""
    try:
        if set(map(type, terms)) == {str}:
            for text in set(terms):
                from_python(text)
            return terms
        return list(map(from_python, terms))
    except DataError:
        for at, term in enumerate(terms):
            try:
                from_python(term)
            except DataError as error:
                raise DataError(f"stream {stream_iri}: {name} of tuple {at} of the call: {error}") from None
        raise


def _times(stream_iri: str, times: Sequence[Any]) -> Int64Array:
    """Return timestamps as milliseconds. Raises StreamError."""
    if set(map(type, times)) == {int}:
        with suppress(OverflowError):
            return np.array(times, np.int64)
    found = [time_ms_of(stream_iri, time, f" at tuple {at} of the call") for at, time in enumerate(times)]
    return np.array(found, np.int64)


def table_of_tuples(stream_iri: str, pushed: Any) -> pyarrow.Table:
    """Return a table that is pushed with its columns of terms as N-Triples, times as integers, and no other columns.

    Raises StreamError (no table, a column that is missing or there twice), DataError (a column that holds no terms)."""
    from wukongs.query.terms.arrow_terms import as_ntriples, table_of

    try:
        table = table_of(pushed, f"stream {stream_iri}")
    except SettingsError as error:
        raise StreamError(str(error)) from None
    names = table.column_names
    missing = [name for name in TABLE_COLUMNS if name not in names]
    twice = [name for name in (*TABLE_COLUMNS, *EXTRA_COLUMNS) if names.count(name) > 1]
    if missing or twice:
        wrong = f"no column {', '.join(missing)}" if missing else f"several columns {twice[0]}"
        raise StreamError(
            f"stream {stream_iri}: the table has {wrong}: expected {', '.join(TABLE_COLUMNS)}, "
            f"found {', '.join(names) or 'none'}"
        )
    table = table.select([name for name in (*TABLE_COLUMNS, *EXTRA_COLUMNS) if name in names])
    try:
        return as_ntriples(_with_times(stream_iri, table), TABLE_COLUMNS[:3])
    except DataError as error:
        raise DataError(f"stream {stream_iri}: {error}") from None


def _with_times(stream_iri: str, table: pyarrow.Table) -> pyarrow.Table:
    """Return a table whose times are milliseconds, where they are timestamps with a zone. Raises StreamError."""
    import pyarrow as pa

    column = table.column(_TIME_PLACE)
    if not pa.types.is_timestamp(column.type):
        return table
    if column.type.tz is None:
        raise StreamError(
            f"stream {stream_iri}: column 'timestamp_ms': found timestamps without a zone: give them one, or integers "
            "in milliseconds"
        )
    found = column.cast(pa.int64())
    if (per_ms := _PER_MS[column.type.unit]) >= 1:
        whole = np.asarray(found.fill_null(0).combine_chunks()) // per_ms  # rounded down, as of a datetime
        times = pa.array(whole, mask=np.asarray(found.is_null().combine_chunks()))
    else:
        times = pa.compute.multiply_checked(found, 1000)
    return table.set_column(_TIME_PLACE, TABLE_COLUMNS[_TIME_PLACE], times)


def time_ms_of(stream_iri: str, value: object, place: str = "") -> int:
    """Return a time in milliseconds; a datetime with a zone is that of the clock. place: where it stands, for the
    StreamError that it raises for anything else."""
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return (value - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and -(1 << 63) <= int(value) < 1 << 63:
        return int(value)
    what = "a datetime without a zone" if isinstance(value, datetime) else f"{value!r:.100}"
    raise StreamError(
        f"stream {stream_iri}: timestamp {what}{place}: expected an integer of 64 bits, in milliseconds, or a datetime "
        "with a zone"
    )


Declared = TypeVar("Declared")
Calls: TypeAlias = Sequence[tuple[StreamState, Encoded | None]]
"""The tuples that are pushed to each of some streams; None: nothing."""
Taken: TypeAlias = tuple[list[Int64Array | int | None], WukongsError | None]
"""The numbers of the late tuples of each call, in order, None for a call that was not taken, and left out behind the
last one that was; of a call that was taken before, how many tuples it then had, without the late ones. The first error,
if any."""


class Sink(Protocol):
    """Takes what is pushed to streams: a CoreSink, or the writers of a cluster. Raises as the methods of Stream."""

    def take_all(self, calls: Calls, advance_ms: int | None = None) -> Taken:
        """Add tuples to streams, each in order of time if the stream does not sort them, then close the stream batches
        of all these streams up to a time (None: of none). All calls are checked before the first is taken. If one is
        refused later than that, those before it stay and no stream advances. In a cluster each call stands alone.
        Everything that was taken is safe when it returns."""

    def end(self, state: StreamState) -> None:
        """End a stream. Allowed twice."""


class Stream:
    """Tuples in. All methods may be called from any thread; calls of one stream are taken one after the other."""

    def __init__(self, state: StreamState, sink: Sink, hash_bits: int, late: LateTuples) -> None:
        self.iri = state.iri
        self.batch_ms = state.batch_ms
        self._state = state
        self._sink = sink
        self._hash_bits = hash_bits
        self._late = late

    def __repr__(self) -> str:
        return f"<Stream {self.iri}: {self._state.tuple_count} tuples, closed up to {self._state.closed_ms} ms>"

    def _repr_html_(self) -> str:
        return facts_table(
            f"Stream {self.iri}",
            lambda: {"tuples": self._state.tuple_count, "closed up to": f"{self._state.closed_ms} ms", **self.options},
        )

    @property
    def options(self) -> dict[str, Any]:
        """The options of its declaration, defaults filled in, as JSON."""
        return self._state.options

    def push(self, tuples: Iterable[tuple[Any, Any, Any, Time]], *, timeout_s: float | None = None) -> int:
        """Add (subject, predicate, object, timestamp_ms) tuples, in order of time; return how many.

        A stream with lateness_ms or on_late sorts them; late ones, which its windows do not have, are not counted.
        Terms are N-Triples strings, Python values (numbers, bool, Decimal, datetime, date, timedelta), or terms of
        rdflib or pyoxigraph; timestamp_ms may be a datetime with a zone. Raises DataError (a malformed term),
        StreamError (a timestamp that falls, a closed stream, too much waiting); then nothing of the call was applied.
        In a durable engine, push returns when the tuples are safe; StorageError says that they are not. On a full disk
        they are kept in memory, and become safe with the next write once there is room. timeout_s: how long other nodes
        are waited for (default: a minute), until NodeUnavailable says that they do not answer.
        """
        return self._push(columns_of(self.iri, tuples), timeout_s)

    def push_arrow(self, table: pyarrow.Table, *, timeout_s: float | None = None) -> int:
        """Add a table, or a data frame, with the columns subject, predicate, object (N-Triples strings or values),
        timestamp_ms (integers, or timestamps with a zone) and, if a tuple names its graph, graph; in order of time. op,
        if there is one: "+" for a tuple, "-" for a retraction: the stored graph loses the triple, and no window has it.
        Returns and raises as push; also StreamError for the retraction of a timing tuple."""
        return self._push(_table_columns(self.iri, table), timeout_s)

    def advance(self, timestamp_ms: Time, *, timeout_s: float | None = None) -> None:
        """Promise that nothing at or before this time comes any more: stream batches up to there close. timeout_s: as
        in push.

        Raises StreamError (a closed stream, a time that is no time in ms), StorageError (it cannot be logged)."""
        time_ms = time_ms_of(self.iri, timestamp_ms)
        with waiting(timeout_s):
            _take([(self, None)], time_ms)

    def close(self) -> None:
        """End the stream: its last stream batch closes, and others no longer wait for it. Closing twice is allowed."""
        self._sink.end(self._state)

    def _push(self, columns: Columns | None, timeout_s: float | None) -> int:
        with waiting(timeout_s):
            return _take([(self, columns)], None)[self.iri] if columns is not None else 0


def push_many(
    tables: Sequence[tuple[Stream, Pushable]], advance_ms: Time | None, timeout_s: float | None = None
) -> dict[str, int]:
    """Do what Engine.push_many does. All streams are of one engine."""
    time_ms = check_call([stream.iri for stream, _ in tables], advance_ms)
    with waiting(timeout_s):
        return _take([(stream, _columns(stream.iri, pushed)) for stream, pushed in tables], time_ms)


def check_call(stream_iris: Sequence[str], advance_ms: object) -> int | None:
    """Return the time up to which streams are to advance, None for no time.

    Raises StreamError (a stream that is named twice, a time that is no time in ms)."""
    for stream_iri, count in Counter(stream_iris).items():
        if count > 1:
            raise StreamError(f"stream {stream_iri} is named twice in this call: give its tuples in one table")
    if advance_ms is None or not stream_iris:
        return None
    return time_ms_of(stream_iris[0], advance_ms, " to advance to")


def check_tables(tables: object) -> None:
    """Raise StreamError for what push_many cannot take: it wants a dictionary."""
    if not isinstance(tables, Mapping):
        raise StreamError(f"push_many: expected a dictionary: stream -> table or tuples, found {type(tables).__name__}")


def named(stream_iri: str, known: Mapping[str, Declared]) -> Declared:
    """Return the stream of a name, of those that its caller has declared. Raises StreamError for another one."""
    found = known.get(plain_iri(stream_iri))
    if found is None:
        names = ", ".join(sorted(known)) or "none"
        raise StreamError(
            f"stream {stream_iri} was not declared here: call Engine.stream first. Declared here: {names}"
        )
    return found


def _columns(stream_iri: str, pushed: Pushable) -> Columns | None:
    if pushed is None:
        return None
    return _table_columns(stream_iri, pushed) if is_table(pushed) else columns_of(stream_iri, pushed)


def _table_columns(stream_iri: str, table: pyarrow.Table) -> Columns:
    table = table_of_tuples(stream_iri, table)
    extra = (table.column(name) if name in table.column_names else None for name in EXTRA_COLUMNS)
    return *(table.column(name) for name in TABLE_COLUMNS), *extra


def _take(calls: Sequence[tuple[Stream, Columns | None]], advance_ms: int | None) -> dict[str, int]:
    """Encode columns, blank nodes in the scopes of their streams, and take the tuples. Return how many, by stream."""
    if not calls:
        return {}
    encoded = [
        None if columns is None else encode_columns(*columns, scope=stream.iri.encode(), hash_bits=stream._hash_bits)
        for stream, columns in calls
    ]
    sink, states = calls[0][0]._sink, [stream._state for stream, _ in calls]
    for state, one in zip(states, encoded, strict=True):
        _check_signs(state, one)
        if one is not None:
            check_graphs_written(one)
    found, refusal = sink.take_all(list(zip(states, encoded, strict=True)), advance_ms)
    counts = {}
    for (stream, columns), one, late in zip(calls, encoded, found, strict=False):
        if late is None:
            continue
        if isinstance(late, int):
            counts[stream.iri] = late
            continue
        if len(late) and columns is not None:
            stream._late.give(columns, late)
        counts[stream.iri] = (0 if one is None else len(one)) - len(late)
    if refusal is not None:
        raise refusal
    return counts


def _check_signs(state: StreamState, encoded: Encoded | None) -> None:
    """Raise StreamError for the retraction of a tuple that is in windows only."""
    if encoded is None or not len(encoded.goes):
        return
    rows = np.flatnonzero(encoded.goes & timing_mask(encoded, state.timing))
    if len(rows):
        only = "of this stream" if state.timing is True else "with this predicate"
        raise StreamError(
            f"stream {state.iri}: row {rows[0]}, column 'op': found - , but tuples {only} are timing: the stored graph "
            "has none of them. Nothing of this call was applied"
        )


def partly_taken(error: WukongsError, taken: Sequence[str], others: Sequence[WukongsError] = ()) -> WukongsError:
    """Return the same error of one of several streams, with the names of those whose tuples were taken, and what others
    say that were not."""
    if not (taken or others):
        return error
    said = [f"The tuples of this call for {', '.join(taken)} were taken"] if taken else []
    found = type(error)(". ".join([str(error), *said, *(f"Also: {other}" for other in others)]))
    found.__cause__ = error
    if NOT_KNOWN in (error.outcome, *(other.outcome for other in others)):
        found.outcome = NOT_KNOWN
    elif taken:
        found.outcome = PARTLY_APPLIED
    return found


class CoreSink:
    """Queues what is pushed in the core of an engine."""

    def __init__(self, core: Core, injector: Injector) -> None:
        self._core, self._injector = core, injector

    def take_all(self, calls: Calls, advance_ms: int | None = None) -> Taken:
        timings = [None if tuples is None else timing_mask(tuples, state.timing) for state, tuples in calls]
        try:
            with self._core.lock:
                self._injector.submit()
                late, refusal, record = self._take_calls(calls, timings, advance_ms)
        finally:
            self._injector.run_submitted()
        if record is not None:
            self._core.journal.wait(*record)
        return late, refusal

    def _take_calls(
        self, calls: Calls, timings: Sequence[BoolArray | None], advance_ms: int | None
    ) -> tuple[list[Int64Array | int | None], WukongsError | None, tuple[int | None] | None]:
        """Do the same, and return the record to wait for; (None,): all that there are. Called with the lock held."""
        core = self._core
        late, taken = list[Int64Array | int | None](), list[str]()
        by = asked()
        lsn: int | None = None
        refusal: WukongsError | None = None
        core.check_is_open()
        known = core.outcomes.of(by) or {}
        if not known and by is not None and core.outcomes.is_over(by):
            raise StreamError(f"push {by.number} of this client was given up: nothing was done")
        touched = [one for one in calls if advance_ms is not None or (one[1] is not None and len(one[1]))]
        for state, _ in touched:
            state.check_is_open()
            if advance_ms is not None:
                state.check_range(advance_ms)
        for state, tuples in touched:
            if be_active(core, state):
                self._injector.wake()
            if state.iri not in known:
                _check(state, tuples)
        is_checked = True
        for (state, tuples), timing in zip(calls, timings, strict=True):
            rows = _NO_ROWS
            if state.iri in known:
                late.append(known[state.iri])
                continue
            if tuples is not None and timing is not None and len(tuples):
                try:
                    if not is_checked:
                        core.check_is_open()
                        _check(state, tuples)
                    lsn, rows = self._take(state, tuples, timing, by)
                    core.note_outcome(by, {state.iri: len(tuples) - len(rows)})
                except WukongsError as error:
                    refusal = partly_taken(error, taken)
                    break
                taken.append(state.iri)
                is_checked = is_checked and not state.may_be_late  # late tuples may have let go of the lock
            late.append(rows)
        if advance_ms is not None and refusal is None:
            for state, _ in calls:
                lsn = self._advance(state, advance_ms)
        return late, refusal, (lsn,) if lsn is not None or known else None

    def _take(
        self, state: StreamState, encoded: Encoded, timing: BoolArray, by: Asked | None
    ) -> tuple[int, Int64Array]:
        """Take tuples that were checked. Return the record, to wait for, and the numbers of those that are late."""
        core = self._core

        def piece() -> Piece:
            first = state.open_partition(PUSH_PARTITION).end_offset
            return Piece(state.iri, PUSH_PARTITION, 0, first, first + len(encoded), 0, 0, encoded, timing, by=by)

        def checked() -> Piece:
            core.check_is_open()
            _check(state, encoded)
            return piece()

        if state.may_be_late:
            return take_call(core, self._injector, state, checked)
        taken, complete_ms = piece(), int(encoded.timestamps[-1]) - 1

        def complete() -> None:
            before = state.known_ms
            state.begin_with(encoded.timestamps)
            self._complete(state, complete_ms, before)

        core.journal.prepare()
        take_piece(core, state, taken)
        state.promise(PUSH_PARTITION, complete_ms)
        return core.journal.note(taken, complete), _NO_ROWS

    def _advance(self, state: StreamState, time_ms: int) -> int:
        core = self._core
        core.journal.prepare()
        end_offset = state.open_partition(PUSH_PARTITION).end_offset
        state.promise(PUSH_PARTITION, time_ms)
        close = Close(state.iri, PUSH_PARTITION, 0, end_offset, time_ms)
        return core.journal.note(close, lambda: self._complete(state, time_ms, state.known_ms))

    def end(self, state: StreamState) -> None:
        core = self._core
        with core.lock:
            # A stream that has ended covers no more than its end, which may be less than it has covered before.
            self._injector.let_fire(state)
            if not state.is_ended and not state.is_dropped and not core.is_closed:
                state.check_is_open()
                core.journal.commit({"op": "end", "stream": state.iri})
                state.end()
                core.progress.moved(core)
                self._injector.wake()

    def _complete(self, state: StreamState, complete_ms: int, before: object) -> None:
        """Complete the stream up to a time. before: its known_ms before the call."""
        state.complete(PUSH_PARTITION, complete_ms)
        self._core.progress.moved(self._core)
        if before == state.known_ms:  # nothing can be due that was not
            self._injector.prepare_ahead(state)
        else:
            self._injector.wake()


def _check(state: StreamState, encoded: Encoded | None) -> None:
    """Raise StreamError for tuples that a stream does not take as it stands now."""
    if encoded is not None and len(encoded):
        state.check_timestamps(encoded.timestamps, PUSH_PARTITION)
        state.check_room(len(encoded))
        state.check_entries(len(encoded))


def take_call(core: Core, injector: Injector, state: StreamState, piece: Callable[[], Piece]) -> tuple[int, Int64Array]:
    """Take a call of which tuples may be late; return its record, to wait for, and the numbers of those that are.

    piece: checks the call as the stream stands now, and returns it in the order of arrival; it is asked again if the
    lock was let go of. Called with the lock held. Raises what piece raises, and StorageError."""
    pushed = _pushed(state, piece())
    partition = pushed.piece.partition
    lateness_ms = state.lateness_of(partition)
    call = sort_in(pushed, lateness_ms, state.carry_rule)
    if call.late is not None:
        injector.catch_up()  # it lets go of the lock
        pushed = replace(_pushed(state, piece()), sn=core.next_sn)
        call = sort_in(pushed, lateness_ms, state.carry_rule)

    def complete() -> None:
        state.begin_with(call.piece.encoded.timestamps, call.piece.numbers)
        if partition == PUSH_PARTITION:
            state.complete(partition, call.complete_ms)
        core.progress.moved(core)
        injector.wake()

    if call.late is not None:
        lsn = core.journal.commit(pushed)
    else:
        core.journal.prepare()
    state.count_late(call, pushed.piece.timing)
    take_piece(core, state, call.piece)
    if call.late is not None:
        store_late(core, state, pushed, call)
        complete()
    else:
        if partition == PUSH_PARTITION:
            state.promise(partition, call.complete_ms)
        lsn = core.journal.note(pushed, complete)
    return lsn, np.flatnonzero(call.is_late)


def _pushed(state: StreamState, piece: Piece) -> Pushed:
    return Pushed(piece, state.stands_ms(piece.partition), None)


def store_late(core: Core, state: StreamState, pushed: Pushed, call: Sorted) -> None:
    """Let the late timeless tuples of a call join the stored graph, unless a checkpoint holds them already. Called with
    the lock held."""
    if call.late is None or pushed.sn is None:
        return
    is_stored = pushed.sn < core.arrangement.trace.upper
    if is_stored and core.event_times is None:
        core.pass_to(pushed.sn + 1)
        return
    with core.storing(pushed.sn):
        late, _ = core.registry.confirm(call.late)
        core.absorb_late(state.iri, state.into, pushed.sn, [late], by_event_time=state.event_times is not None)
