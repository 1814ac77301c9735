"""StreamState: one declared stream on this node: what has come, how far it is complete, and its recent slices.

Stream batch k holds the tuples with timestamps in ((k - 1) * batch_ms, k * batch_ms]. Tuples wait here until their
stream batch is closed on all source partitions. Then two things become of it, each in order of the batches and apart
from the other: its tuples become a slice (`make_slice`), and the timeless ones join the stored graph (`take_timeless`).
A slice is made as soon as a window may need it; the stored graph waits for the clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any, TypeAlias

import numpy as np

from wukongs.errors import StreamError
from wukongs.live.absorption import LateSigns, Timeless
from wukongs.live.lateness import CarryRule, Sorted
from wukongs.live.ledger import PartitionLedger
from wukongs.live.pieces import Piece
from wukongs.live.slice_filter import SliceFilter
from wukongs.live.wall_clock import IdleAdvance
from wukongs.settings import Settings
from wukongs.store.batch import distinct_predicates
from wukongs.store.dtypes import UNBOUND, BoolArray, Int64Array
from wukongs.store.encoded import NO_SIGNS, Encoded, signs, signs_of
from wukongs.store.event_times import ENTRY_BYTES, EventTimes
from wukongs.store.slice_ring import SliceRing
from wukongs.store.snapshot import TICK_MAX_MS, TICK_MIN_MS

Columns: TypeAlias = tuple[Int64Array, Int64Array, Int64Array, Int64Array]
PUSH_PARTITION = ""
"""The source partition of Stream.push; pipelines name theirs."""
FRAGMENT_BYTES_PER_TUPLE = 41
_BYTES_PER_TRANSIENT_TERM = 24
"""A dictionary takes about so much for a term, beside its text."""
_PROGRESS = ("closed_ms", "first_ms", "last_ms", "is_ended", "tuple_count")
_LATER = {
    "late_count": 0,
    "dropped_count": 0,
    "carried_count": 0,
    "carried_ms": None,
    "is_idle": False,
    "idle_ms": None,
    "is_made": False,
    "refused": (),
}
"""Fields that heads of older logs do not have, with what they stand at then."""
_CLOCK = ("counts", "record_to", "joins")
"""How the stream stands to the clock of the stored graph; segments of older logs do not say it."""
FOREVER_MS = 1 << 62
"""A stream that has ended covers all time up to here."""


def batch_number(timestamp_ms: int, batch_ms: int) -> int:
    """Return the number of the stream batch that a timestamp belongs to: ceil(timestamp_ms / batch_ms)."""
    return -(-timestamp_ms // batch_ms)


_COLUMNS = ("subjects", "predicates", "objects", "graphs", "timestamps", "timing")


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """Tuples of one stream batch, from one call of one source partition. Columns : int64[n]; timing : bool[n];
    transient_ids : int64[m], and about how many bytes their texts take."""

    subjects: Int64Array
    predicates: Int64Array
    objects: Int64Array
    graphs: Int64Array
    timestamps: Int64Array
    timing: BoolArray
    transient_ids: Int64Array
    transient_bytes: int
    partition: str
    goes: BoolArray = field(default_factory=lambda: NO_SIGNS)
    """Which tuples are retractions, bool[n], empty if none is."""

    @staticmethod
    def join(fragments: list[Fragment]) -> Fragment:
        if len(fragments) == 1:
            return fragments[0]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in fragments]) for name in (*_COLUMNS, "transient_ids")
        }
        if any(len(part.goes) for part in fragments):
            columns["goes"] = np.concatenate([signs_of(part.goes, len(part.subjects)) for part in fragments])
        return Fragment(**columns, transient_bytes=sum(part.transient_bytes for part in fragments), partition="")

    def come(self) -> Fragment:
        """Return the tuples that windows hold: all but retractions."""
        if not len(self.goes):
            return self
        columns: dict[str, Any] = {name: getattr(self, name)[~self.goes] for name in _COLUMNS}
        return replace(self, **columns, goes=NO_SIGNS)


_NOTHING: Int64Array = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class WholeSlice:
    """The tuples of a stream batch that its slice holds, in the order of their arrival. transient_ids: references to
    terms that it holds, and about how many bytes their texts take."""

    columns: Columns
    transient_ids: Int64Array
    transient_bytes: int


@dataclass(slots=True, eq=False)
class StreamState:
    """iri: without brackets; timing: True, or the IRIs of the timing predicates; into: id of the graph that timeless
    tuples without a graph term of their own join. closed_ms: all stream batches up to there are complete.
    slice_filter: None if all tuples enter the slices. whole: slices that come by themselves, by stream batch, since
    only a share of the tuples waits here; None: slices are made of the tuples that wait."""

    iri: str
    batch_ms: int
    timing: bool | tuple[str, ...]
    into: int
    into_iri: str | None
    history_ms: int
    settings: Settings
    slice_bytes_max: int = 1 << 32
    slice_filter: SliceFilter | None = None
    evicted_count: int = 0
    """Stream batches that were dropped for want of room although a registered window needed them."""
    lateness_ms: int = 0
    sorts: bool = False
    """Whether what is pushed may be out of order (wukongs.live.lateness)."""
    late_count: int = 0
    """Tuples that have come too late for their windows."""
    dropped_count: int = 0
    """Those of them that are timing, and so are nowhere."""
    carry_rule: CarryRule | None = None
    """How stream batches carry late tuples. None: late tuples are in no window."""
    event_times: EventTimes | None = None
    """Those of the engine's stored graph, if signs of this stream go by event time."""
    note_late_signs: Callable[[LateSigns], None] | None = None
    """At a node of a cluster: counts the tuples of its share that changed nothing, since their event time is older.
    None: they are among late_count and dropped_count."""
    carried_count: int = 0
    """Late tuples that stream batches have carried; late_count has them, too."""
    piped_carried_count: int = 0
    """At a node of a cluster: those of pipelines, which late_count and carried_count do not have there. The writer of
    what is pushed goes on counting from these."""
    passed_over_count: int = 0
    """Rows of pipelines that came again to this node of a cluster, for stream batches that were closed."""
    carried_ms: int | None = None
    """The end of the last stream batch that carries a late tuple."""
    idle_timeout_ms: int | None = None
    idle_advance: IdleAdvance | None = None
    """Says what it follows while it is idle. "wall": the wall clock; None: the other streams (idleness.py)."""
    active_s: float = 0.0
    """When it was declared, opened again, pushed to or advanced last, by the engine's clock."""
    is_idle: bool = False
    idle_ms: int | None = None
    """It was closed up to there for want of tuples: a tuple behind that is late, and no error."""
    options: dict[str, Any] = field(default_factory=dict)
    """The options of its declaration, as JSON."""
    lsn: int = 0
    """The record of the log that declared it: its name even after a stream of the same IRI is declared anew."""
    ring: SliceRing = field(default_factory=SliceRing)
    awaited_ms: int | None = None
    """Queries that are on their way to this node of a cluster need slices from there on; None: there are none."""
    ledgers: dict[str, PartitionLedger] = field(default_factory=dict)
    closed_ms: int | None = None
    first_ms: int | None = None
    """The first tuple's timestamp or the first advance, whichever is earlier: from then on others wait for it."""
    last_ms: int | None = None
    """The newest timestamp that has come."""
    heard_ms: int | None = None
    """At a node of a cluster: the end of the newest stream batch with rows at any node, as far as this one knows."""
    is_ended: bool = False
    is_ending: bool = False
    """Its end is known at this node of a cluster, though its readers do not see it yet."""
    is_dropped: bool = False
    is_made: bool = False
    """A query makes it (wukongs.live.made_streams): it never counts for the clock, and nobody else pushes to it."""
    refused: tuple[tuple[int, int], ...] = ()
    """Stream batches, from the first to the last of each run, that were not taken for want of room although a query had
    made tuples for them, as far back as slices are held."""
    counts: bool = False
    """Whether it has begun and has reached the clock of the stored graph, which waits for it from then on."""
    record_to: int | None = None
    """The timeless tuples of stream batches up to this one join the stored graph by records of the log, since the clock
    had passed them. None: those of all stream batches join when the clock passes them."""
    joins: list[tuple[int, int]] = field(default_factory=list)
    """These records, in order: the stream batch up to which each has brought the stream, and its SN."""
    followed: list[tuple[int, int]] = field(default_factory=list)
    """Stream batches after < k <= to whose timeless tuples changes of the log store, with what follows by rules: at a
    node of a cluster."""
    whole: dict[int, WholeSlice] | None = None
    is_recovered: bool = False
    """It was found in the data folder, and nobody has asked for it yet."""
    tuple_count: int = 0
    """Tuples that have come; retractions are none."""
    waiting_bytes: int = 0
    _to_slice: dict[int, list[Fragment]] = field(default_factory=dict)
    _to_join: dict[int, list[Fragment]] = field(default_factory=dict)
    """Tuples by stream batch: of those that are no slices yet, and of those with timeless tuples that wait for the
    stored graph."""
    _predicates: dict[int, tuple[int, frozenset[int]]] = field(default_factory=dict)
    """By stream batch, how many calls have brought the timeless tuples that wait, and the predicates of these."""
    _slice_numbers: list[int] = field(default_factory=list)
    _join_numbers: list[int] = field(default_factory=list)
    """Heaps of these stream batches: there may be very many while another stream is behind."""
    _complete_ms: dict[str, int | None] = field(default_factory=dict)
    _promised_ms: dict[str, int] = field(default_factory=dict)
    """Where partitions stand for their writers; they are complete up to there once the log is safe."""
    _finished: set[str] = field(default_factory=set)

    @property
    def is_started(self) -> bool:
        return self.first_ms is not None

    @property
    def may_begin_earlier(self) -> bool:
        """Whether tuples may still come of an earlier stream batch than its first ones: late ones, or those of a source
        partition that is behind the one with the first row or advance."""
        if self.is_ended or self.closed_ms is None or self.first_ms is None:
            return not self.is_ended
        return self.closed_ms < self.floor(self.first_ms - 1)

    @property
    def pipelines_ms(self) -> list[int | None]:
        """Up to where the source partitions of pipelines that are not at their end are complete. None: nothing is."""
        done = self._finished | {PUSH_PARTITION}
        return [ms for name, ms in self._complete_ms.items() if name not in done]

    def open_partition(self, partition: str) -> PartitionLedger:
        """Declare a source partition: the stream's batches close only when it says so, too."""
        if partition not in self.ledgers:
            self.check_is_open()
            self.ledgers[partition] = PartitionLedger(self.iri, partition)
            self._complete_ms[partition] = None
        return self.ledgers[partition]

    def opened_partition(self, partition: str) -> PartitionLedger:
        """Return a partition that was declared. Raises StreamError for any other: it would hold the stream for ever."""
        if partition not in self.ledgers:
            raise StreamError(
                f"stream {self.iri}, partition {partition!r}: no writer has opened it here. If the stream was dropped "
                "and declared anew, start the pipeline anew too"
            )
        return self.ledgers[partition]

    def numbered(self, piece: Piece) -> Piece:
        """Return a piece of a pipeline with the stream batch of each tuple, if that may be another than that of its
        timestamp: its writer has decided it."""
        if self.carry_rule is None or piece.partition == PUSH_PARTITION:
            return piece
        return replace(piece, numbers=np.full(len(piece.encoded), piece.batch_number, np.int64))

    def check_piece(self, piece: Piece) -> None:
        """Raise StreamError as check_timestamps, for a piece of a pipeline. Where stream batches carry late tuples, its
        stream batch has to be open, whatever its timestamps; of a stream that was idle they are judged anew."""
        times, complete_ms = piece.encoded.timestamps, self.stands_ms(piece.partition)
        if self.carry_rule is None:
            self.check_timestamps(times, piece.partition)
            return
        self.check_is_open()
        if len(times) and (np.diff(times) < 0).any():
            raise StreamError(
                f"stream {self.iri}, partition {piece.partition!r}, rows {piece.first_offset} to {piece.end_offset}: "
                "timestamps must not decrease within a piece"
            )
        self._check_ranges(*(int(time_ms) for time_ms in (*times[:1], *times[-1:])))
        is_closed = complete_ms is not None and piece.batch_number * self.batch_ms <= complete_ms
        if is_closed and complete_ms is not None and self.idle_ms is None:
            raise StreamError(
                f"stream {self.iri}, partition {piece.partition!r}: stream batch {piece.batch_number} is closed, since "
                f"the partition stands at {complete_ms + 1} ms: an open stream batch carries late rows"
            )

    def check_timestamps(self, timestamps: Int64Array, partition: str) -> None:
        """Raise StreamError unless timestamps can be named by SNs, do not decrease and come after what is complete. The
        last two are not asked of a stream that sorts what this partition brings, nor of what comes behind the time up
        to which the stream was idle."""
        self.check_is_open()
        if len(timestamps) == 0:
            return
        ends = int(timestamps.min()), int(timestamps.max())
        if self.lateness_of(partition) is not None:
            self._check_ranges(*ends)
            return
        places = np.arange(len(timestamps)) if self.idle_ms is None else np.flatnonzero(timestamps > self.idle_ms)
        times = timestamps[places]
        falls = np.flatnonzero(times[1:] < times[:-1])  # a difference could overflow
        if len(falls):
            at = int(falls[0])
            raise StreamError(
                f"stream {self.iri}: the timestamp falls from {times[at]} to {times[at + 1]} ms at tuple "
                f"{places[at + 1]} of the call: timestamps must not decrease. Nothing of this call was applied; sort "
                "it by time, or declare the stream with lateness_ms or on_late"
            )
        self._check_ranges(*ends)
        complete = self.stands_ms(partition)
        if complete is not None and len(times) and times[0] <= complete:
            raise StreamError(
                f"stream {self.iri}: timestamp {times[0]} ms at tuple {places[0]} of the call, but the stream already "
                f"stands at {complete + 1} ms: timestamps must not decrease. Nothing of this call was applied"
            )

    def _check_ranges(self, *times_ms: int) -> None:
        for time_ms in times_ms:
            self.check_range(time_ms)

    def lateness_of(self, partition: str) -> int | None:
        """Return how far behind the newest tuple of a partition another may come; None: they have to come in order."""
        return self.lateness_ms if self.sorts and partition == PUSH_PARTITION else None

    @property
    def may_be_late(self) -> bool:
        """Whether a tuple that comes behind others is late, at least at times, in place of an error."""
        return self.sorts or self.idle_timeout_ms is not None

    def stands_ms(self, partition: str) -> int | None:
        """Return the time up to which nothing more is taken from a partition, None if it has no bound yet."""
        stands = [ms for ms in (self._promised_ms.get(partition), self.closed_ms) if ms is not None]
        return max(stands, default=None)

    def check_range(self, time_ms: int) -> None:
        """Raise StreamError for an event time that no SN can name."""
        if not TICK_MIN_MS + self.batch_ms < time_ms <= TICK_MAX_MS - self.batch_ms:
            raise StreamError(
                f"stream {self.iri}: timestamp {time_ms} ms is outside of what can be named ({TICK_MIN_MS} to "
                f"{TICK_MAX_MS} ms since 1970): give milliseconds"
            )

    @property
    def room(self) -> int:
        """How many more tuples may wait for other streams, and have their event times kept."""
        room = max(0, self.settings.queued_bytes_max - self.waiting_bytes) // FRAGMENT_BYTES_PER_TUPLE
        if self.event_times is None:
            return room
        return min(room, max(0, self.settings.retraction_bytes_max - self._entries_bytes(0)) // ENTRY_BYTES)

    def _entries_bytes(self, tuple_count: int) -> int:
        """Return what event times of triples would take with those of the tuples that wait, and of so many more."""
        if self.event_times is None:
            return 0
        waiting_count = self.waiting_bytes // FRAGMENT_BYTES_PER_TUPLE
        return self.event_times.size_bytes + ENTRY_BYTES * (waiting_count + tuple_count)

    def check_entries(self, tuple_count: int) -> None:
        """Raise StreamError if this many more tuples would exceed what event times of triples may take."""
        entries_bytes = self._entries_bytes(tuple_count)
        if entries_bytes > self.settings.retraction_bytes_max:
            raise StreamError(
                f"stream {self.iri}: {entries_bytes} bytes of event times of triples would exceed "
                f"retraction_bytes_max = {self.settings.retraction_bytes_max}: raise it, or declare the streams "
                'with retractions = "event_time" with a shorter history_ms'
            )

    def check_room(self, tuple_count: int) -> None:
        """Raise StreamError if this many more tuples would exceed what may wait for other streams."""
        size = tuple_count * FRAGMENT_BYTES_PER_TUPLE
        if self.waiting_bytes + size > self.settings.queued_bytes_max:
            raise StreamError(
                f"stream {self.iri}: {self.waiting_bytes + size} bytes of unsealed stream batches would exceed "
                f"queued_bytes_max = {self.settings.queued_bytes_max}: another stream holds this one back (see "
                "stats()['held_back_by']), or its own lateness_ms; advance or close that one, or raise queued_bytes_max"
            )

    def take(
        self,
        encoded: Encoded,
        timing: BoolArray,
        transient_ids: Int64Array,
        partition: str = PUSH_PARTITION,
        numbers: Int64Array | None = None,
    ) -> None:
        """Queue tuples, sorted by stream batch and time, under their stream batches.

        transient_ids: of the whole call.
        numbers : int64[n]    the stream batch of each tuple; None: that of its timestamp.
        """
        # A term of several slices counts in each of them; which of the texts are the transient ones is not asked.
        share = len(transient_ids) / max(1, len(encoded.terms))
        transient_bytes = int(len(encoded.terms.text) * share) + _BYTES_PER_TRANSIENT_TERM * len(transient_ids)
        count, goes = len(encoded), encoded.goes
        self.count(encoded.timestamps, goes)
        ends = encoded.timestamps if numbers is None else numbers * self.batch_ms
        if numbers is not None:
            self._note_carried(encoded.timestamps, numbers)
        # The terms of one call live as long as the last of its slices.
        last = int(np.flatnonzero(~goes)[-1]) if len(goes) and not goes.all() else count - 1
        lo = 0
        while lo < count:
            number = batch_number(int(ends[lo]), self.batch_ms)
            hi = int(np.searchsorted(ends, number * self.batch_ms, "right"))
            ids = transient_ids if lo <= last < hi else transient_ids[:0]
            fragment = Fragment(
                encoded.subjects[lo:hi],
                encoded.predicates[lo:hi],
                encoded.objects[lo:hi],
                encoded.graphs[lo:hi],
                encoded.timestamps[lo:hi],
                timing[lo:hi],
                ids,
                transient_bytes if len(ids) else 0,
                partition,
                signs(goes[lo:hi]) if len(goes) else NO_SIGNS,
            )
            size_before = self._size(number)
            if self.whole is None and not (len(fragment.goes) and fragment.goes.all()):
                _wait(self._to_slice, self._slice_numbers, number, fragment.come())
            if not fragment.timing.all():
                _wait(self._to_join, self._join_numbers, number, fragment)
            self.waiting_bytes += self._size(number) - size_before
            lo = hi

    def _size(self, number: int) -> int:
        """Return how many bytes the tuples of a stream batch take that wait."""
        waiting = self._to_slice.get(number, ()), self._to_join.get(number, ())
        return max(sum(len(part.subjects) for part in parts) for parts in waiting) * FRAGMENT_BYTES_PER_TUPLE

    def count(self, timestamps: Int64Array, goes: BoolArray = NO_SIGNS) -> None:
        """Note that tuples with these times, in order, and signs have come."""
        if len(timestamps):
            last = int(timestamps[-1] if self.carry_rule is None else timestamps.max())
            self.last_ms = last if self.last_ms is None else max(last, self.last_ms)
            self.tuple_count += len(timestamps) - int(np.count_nonzero(goes))

    def count_late(self, call: Sorted, timing: BoolArray) -> None:
        """Count the late tuples of a call. timing : bool[all tuples]."""
        carried_count = int(call.is_carried.sum())
        self.late_count += int(call.is_late.sum()) + carried_count
        self.dropped_count += int((call.is_late & timing).sum())
        self.carried_count += carried_count

    @property
    def all_late_count(self) -> int:
        """Late tuples, those of pipelines included."""
        return self.late_count + self.piped_carried_count

    @property
    def all_carried_count(self) -> int:
        """Late tuples that stream batches have carried, those of pipelines included."""
        return self.carried_count + self.piped_carried_count

    def count_late_signs(self, found: LateSigns) -> None:
        """Count tuples that changed nothing in the stored graph, since their event time is older."""
        if self.note_late_signs is not None:
            self.note_late_signs(found)
            return
        self.late_count += found.late_count
        self.dropped_count += found.dropped_count

    def count_carried(self, piece: Piece) -> None:
        """Count the tuples of a pipeline's piece that its stream batch carries."""
        if piece.numbers is not None:
            carried_count = int(self.is_early(piece.batch_number, piece.encoded.timestamps).sum())
            self.late_count += carried_count
            self.carried_count += carried_count

    def is_early(self, number: int, timestamps: Int64Array) -> BoolArray:
        """Tell which tuples stream batch `number` carries although their timestamps lie before it, bool[n]."""
        return timestamps <= (number - 1) * self.batch_ms

    def waits_to_ms(self, timestamps: Int64Array, numbers: Int64Array | None) -> Int64Array:
        """Return for each tuple its timestamp, or the end of the stream batch that carries it, int64[n] in ms. numbers:
        see take."""
        if numbers is None:
            return timestamps
        is_carried = timestamps <= (numbers - 1) * self.batch_ms
        return np.where(is_carried, numbers * self.batch_ms, timestamps)

    def _note_carried(self, timestamps: Int64Array, numbers: Int64Array) -> None:
        """Note up to where stream batches carry tuples. numbers : int64[n], the stream batch of each tuple."""
        carriers = numbers[timestamps <= (numbers - 1) * self.batch_ms]
        if len(carriers):
            end_ms = int(carriers.max()) * self.batch_ms
            self.carried_ms = end_ms if self.carried_ms is None else max(end_ms, self.carried_ms)

    def has_refused(self, at_ms: int) -> bool:
        """Return whether tuples with a time found no room."""
        number = batch_number(at_ms, self.batch_ms)
        return any(first <= number <= last for first, last in self.refused)

    def refuse(self, number: int) -> None:
        """Note that a stream batch is not taken, for want of room."""
        dropped_to = self.ring.dropped_to
        runs = [(first, last) for first, last in self.refused if dropped_to is None or last > dropped_to]
        follows = bool(runs) and runs[-1][1] == number - 1
        first = runs.pop()[0] if follows else number
        self.refused = (*runs, (first, number))

    def begin_with(self, timestamps: Int64Array, numbers: Int64Array | None = None) -> None:
        """Note that tuples with these times, in order, are safe: from then on others wait for the stream. numbers: see
        take; a stream does not begin with a tuple that is carried."""
        if numbers is not None:
            timestamps = timestamps[timestamps > (numbers - 1) * self.batch_ms]
        if len(timestamps):
            time_ms = int(timestamps[0])
            self.first_ms = time_ms if self.first_ms is None else min(time_ms, self.first_ms)

    @property
    def known_ms(self) -> object:
        """The state on which due firings depend: while it is equal, no other firing is due."""
        return self.first_ms, self.closed_ms, self.record_to, self.counts, self.is_idle

    def promise(self, partition: str, complete_ms: int) -> None:
        """Refuse what comes at or before complete_ms from a partition; `complete` follows once that is safe."""
        self._promised_ms[partition] = max(complete_ms, self._promised_ms.get(partition, complete_ms))

    def complete(self, partition: str, complete_ms: int) -> None:
        """Note that nothing at or before complete_ms will come from a partition any more."""
        self.promise(partition, complete_ms)
        known = self._complete_ms.get(partition)
        if known is None or complete_ms > known:
            self._complete_ms[partition] = complete_ms
        if self.first_ms is None:
            self.first_ms = complete_ms
        self._close_batches()

    @property
    def follows_others(self) -> bool:
        """Whether it is idle and goes as far as the others do: then nothing waits for it."""
        return self.is_idle and self.idle_advance is None

    @property
    def newest_ms(self) -> int | None:
        """The time of the newest tuple, as far as it is known. Without a tuple: that of the newest advance, until
        idleness has closed the stream further. None: there is none."""
        known = [ms for ms in (self.last_ms, self.heard_ms) if ms is not None]
        if known or self.closed_ms is None:
            return max(known, default=None)
        return self.closed_ms if self.idle_ms is None or self.closed_ms > self.idle_ms else None

    @property
    def newest_end_ms(self) -> int | None:
        """The end of the last stream batch with a tuple, None if there is no tuple."""
        if self.last_ms is None:
            return None
        end_ms = batch_number(self.last_ms, self.batch_ms) * self.batch_ms
        return end_ms if self.carried_ms is None else max(end_ms, self.carried_ms)

    def close_idle(self, time_ms: int) -> None:
        """Close what ends at or before a time, although nobody has said so: what comes behind it is late."""
        time_ms = self.floor(time_ms)
        self.closed_ms = time_ms if self.closed_ms is None else max(self.closed_ms, time_ms)
        self.idle_ms = self.closed_ms
        if self.first_ms is None:
            self.first_ms = self.closed_ms

    def finish(self, partition: str) -> None:
        """Note that a partition is at its end. The last one to finish ends the stream: it holds nobody back."""
        self._finished.add(partition)
        if all(name in self._finished for name in self.ledgers):
            self.end()
        else:
            self._close_batches()

    def end(self) -> None:
        """End the stream: its last stream batch closes, and time passes it by."""
        self.is_ended = True
        last = max((*self._slice_numbers, *self._join_numbers), default=None)
        complete = [ms for ms in self._complete_ms.values() if ms is not None]
        ends = [*([last * self.batch_ms] if last is not None else []), *(self.floor(ms) for ms in complete)]
        if self.closed_ms is not None:
            ends.append(self.closed_ms)
        self.closed_ms = max(ends, default=None)

    @property
    def cover_ms(self) -> int | None:
        """The time up to which each stream batch that ends by then is closed. None: nothing is closed."""
        if self.is_ended:
            return FOREVER_MS
        if self.closed_ms is None:
            return None
        # Where it ends says which firing is the last one.
        return self.floor(self.closed_ms) + (0 if self.is_ending else self.batch_ms - 1)

    @property
    def joined_ms(self) -> int | None:
        """The time up to which no stream batch waits for a record that lets it join the stored graph. None: all do."""
        if self.record_to is None or (self.joins and self.joins[-1][0] >= self.record_to):
            return FOREVER_MS
        return (self.joins[-1][0] + 1) * self.batch_ms - 1 if self.joins else None

    @property
    def record_ms(self) -> int:
        """The time up to which stream batches join the stored graph by records."""
        return FOREVER_MS if self.record_to is None else (self.record_to + 1) * self.batch_ms - 1

    def joined_at(self, time_ms: int) -> int:
        """Return the SN of the record that brought the last stream batch up to a time, or else of the first record. -1:
        that stream batch has joined when the clock passed it."""
        place = bisect_left(self.joins, time_ms // self.batch_ms, key=lambda join: join[0])
        return self.joins[place][1] if place < len(self.joins) else -1

    def forget_joins(self, before_ms: int) -> None:
        """Forget the records that no firing at or after a time reads by; the last one stays."""
        while len(self.joins) > 1 and (self.joins[0][0] + 1) * self.batch_ms <= before_ms:
            self.joins.pop(0)

    @property
    def next_waiting(self) -> int | None:
        """The earliest stream batch with tuples that is no slice yet, closed or not."""
        return self._slice_numbers[0] if self._slice_numbers else None

    @property
    def next_joining(self) -> int | None:
        """The earliest stream batch whose timeless tuples wait for the stored graph, closed or not."""
        return self._join_numbers[0] if self._join_numbers else None

    def next_slice(self) -> int | None:
        """Return the number of the earliest stream batch that is closed and no slice yet, None if there is none."""
        return self._next(self._slice_numbers)

    def next_join(self) -> int | None:
        """Return the number of the earliest stream batch that is closed and whose timeless tuples wait, None if there
        is none."""
        return self._next(self._join_numbers)

    def _next(self, numbers: list[int]) -> int | None:
        if not numbers or self.closed_ms is None or numbers[0] * self.batch_ms > self.closed_ms:
            return None
        return numbers[0]

    def sliced_ms(self) -> int | None:
        """Return the time up to which what is closed is in slices; None if nothing is closed."""
        number = self.next_slice()
        return self.closed_ms if number is None else (number - 1) * self.batch_ms

    def expect(self, number: int, whole: WholeSlice) -> None:
        """Let a slice wait that has come by itself, until its time comes."""
        assert self.whole is not None, self.iri
        self.whole[number] = whole
        heappush(self._slice_numbers, number)

    def expect_none(self) -> None:
        """Let no slice wait any more that has come by itself."""
        self.whole = {}
        self._slice_numbers.clear()

    def make_slice(self, number: int) -> None:
        """Make a slice of the earliest stream batch that is none yet."""
        assert number == self._slice_numbers[0], (number, self._slice_numbers[0])
        heappop(self._slice_numbers)
        if self.whole is not None:
            whole = self.whole.pop(number)
            self.add_slice(number, whole.columns, whole.columns, whole.transient_ids, whole.transient_bytes)
            return
        self.waiting_bytes -= self._size(number)
        fragments = self._to_slice.pop(number)
        self.waiting_bytes += self._size(number)
        tuples = Fragment.join(fragments)
        columns = tuples.subjects, tuples.predicates, tuples.objects, tuples.timestamps
        arrivals = self._in_arrival_order(number, fragments, columns)
        self.add_slice(number, arrivals, columns, tuples.transient_ids, tuples.transient_bytes)

    def prepare_ahead(self) -> bool:
        """Build the slice of the stream batch that comes next, if windows read it, and find the predicates of what
        joins the stored graph next. More tuples may come: a slice is built again when there are twice as many, so
        all this takes at most twice as long as building it once. Return whether a slice was built."""
        if (number := self.next_joining) is not None:
            self._joining_predicates(number)
        number = self.next_waiting
        if number is None or self.whole is not None or self.slice_filter is not None or not self.ring.is_read:
            return False
        fragments = self._to_slice[number]
        count = sum(len(fragment.subjects) for fragment in fragments)
        is_enough = count >= max(1, 2 * self.ring.count_ahead(number))
        if not is_enough or not self.ring.has_room_ahead(count, self.slice_bytes_max):
            return False
        tuples = Fragment.join(fragments)
        if self.carry_rule is not None and self.is_early(number, tuples.timestamps).any():
            return False
        self.ring.build_ahead(number, (tuples.subjects, tuples.predicates, tuples.objects, tuples.timestamps))
        return True

    def joining_predicates(self, to: int) -> Iterator[frozenset[int]]:
        """Yield the predicates of the timeless tuples of stream batches up to number `to` that wait for the stored
        graph."""
        numbers, places = self._join_numbers, [0]
        while places:
            place = places.pop()
            if place < len(numbers) and numbers[place] <= to:  # or else none behind it in the heap is meant
                places += 2 * place + 1, 2 * place + 2
                yield self._joining_predicates(numbers[place])

    def _joining_predicates(self, number: int) -> frozenset[int]:
        """Return the predicates of the timeless tuples of a stream batch that wait."""
        fragments = self._to_join[number]
        known, found = self._predicates.get(number, (0, frozenset[int]()))
        for tuples in fragments[known:]:
            timeless = tuples.predicates[~tuples.timing] if tuples.timing.any() else tuples.predicates
            found = found.union(distinct_predicates(timeless).tolist())
        self._predicates[number] = len(fragments), found
        return found

    def take_timeless(self, number: int) -> Timeless | None:
        """Return the timeless tuples of the earliest stream batch that has some, None if changes store them. They wait
        no more."""
        assert number == self._join_numbers[0], (number, self._join_numbers[0])
        heappop(self._join_numbers)
        self.waiting_bytes -= self._size(number)
        fragments = self._to_join.pop(number)
        self._predicates.pop(number, None)
        self.waiting_bytes += self._size(number)
        if any(after < number <= to for after, to in self.followed):
            return None
        return self._timeless(number, fragments)

    def waiting_sizes(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the stream batches first <= k <= last that wait to join, and how many tuples each has."""
        return [
            (k, sum(len(one.subjects) for one in parts)) for k, parts in self._to_join.items() if first <= k <= last
        ]

    def timeless(self, number: int) -> Timeless:
        """Return the timeless tuples of a stream batch that waits to join, and goes on waiting."""
        return self._timeless(number, self._to_join[number])

    def _timeless(self, number: int, fragments: list[Fragment]) -> Timeless:
        tuples = Fragment.join(fragments)
        graphs = np.where(tuples.graphs == UNBOUND, self.into, tuples.graphs)
        partitions = sorted({fragment.partition for fragment in fragments})
        places: Int64Array = np.repeat(
            [partitions.index(fragment.partition) for fragment in fragments], [len(f.subjects) for f in fragments]
        )
        timeless = Timeless(
            (graphs, tuples.subjects, tuples.predicates, tuples.objects),
            tuples.goes,
            self.iri,
            number * self.batch_ms,
            tuples.timestamps,
            places,
            *((None,) * 2 if self.event_times is None else ((number - 1) * self.batch_ms,) * 2),
        )
        return timeless if not tuples.timing.any() else timeless.take(np.flatnonzero(~tuples.timing))

    def add_slice(
        self, number: int, arrivals: Columns, columns: Columns, transient_ids: Int64Array, transient_bytes: int
    ) -> None:
        """Make a slice of a whole stream batch: subjects, predicates, objects, timestamps. arrivals: the same in the
        order of their arrival."""
        self.ring.arrivals.add(number, *arrivals)
        if self.slice_filter is not None:
            columns = _rows(columns, self.slice_filter.keep(number, columns[1]))
        if self.carry_rule is not None and (is_early := self.is_early(number, columns[3])).any():
            early = _rows(columns, is_early)
            self.ring.carry(number, -(-early[3] // self.batch_ms), early)
            columns = _rows(columns, ~is_early)
        self.ring.add(number, *columns, transient_ids, transient_bytes)

    def _in_arrival_order(self, number: int, fragments: list[Fragment], columns: Columns) -> Columns:
        """Return the tuples of a stream batch by (timestamp, source partition, offset), behind them those that it
        carries; each partition comes in order of its offsets."""
        partitions = sorted({fragment.partition for fragment in fragments})
        is_in_order = len(partitions) < 2 and not self.sorts
        if is_in_order or not self.ring.arrivals.is_kept:
            return columns
        places = [partitions.index(fragment.partition) for fragment in fragments]
        keys = [np.repeat(places, [len(f.subjects) for f in fragments]), columns[3]]
        if self.carry_rule is not None:
            keys.append(self.is_early(number, columns[3]))
        return _rows(columns, np.lexsort(keys))

    def waiting_from_ms(self) -> int | None:
        """Return the time after which everything that waits has come, None if nothing waits."""
        firsts = [numbers[0] for numbers in (self._slice_numbers, self._join_numbers) if numbers]
        return (min(firsts) - 1) * self.batch_ms if firsts else None

    def progress(self) -> dict[str, Any]:
        """Return, as JSON, how far the stream has come: what restore_progress takes. Without its tuples."""
        partitions = {
            name: [ledger.end_offset, ledger.complete_ms, ledger.epoch, self._complete_ms[name], name in self._finished]
            for name, ledger in self.ledgers.items()
        }
        arrivals = self.ring.arrivals
        return {
            **{name: getattr(self, name) for name in (*_PROGRESS, *_LATER, *_CLOCK)},
            "arrivals_began_after": arrivals.began_after if arrivals.is_kept else None,
            "partitions": partitions,
            "closed_offsets": {name: ledger.closed_offset for name, ledger in self.ledgers.items()},
        }

    def restore_progress(self, progress: dict[str, Any]) -> None:
        """Stand where another one stood."""
        for name in _PROGRESS:
            setattr(self, name, progress[name])
        for name, default in _LATER.items():
            setattr(self, name, progress.get(name, default))
        self.counts = progress.get("counts", self.is_started or self.is_ended)
        self.record_to = progress.get("record_to")
        self.joins = [(to, sn) for to, sn in progress.get("joins", ())]
        # What had come but waited then is not needed any more, or its log would not begin here.
        self.ring.arrivals.restore(self.tuple_count, progress.get("arrivals_began_after"))
        for name, (end_offset, ledger_ms, epoch, complete_ms, is_finished) in progress["partitions"].items():
            ledger = self.ledgers[name] = PartitionLedger(self.iri, name, end_offset)
            ledger.complete_ms, ledger.epoch = ledger_ms, epoch
            ledger.closed_offset = progress.get("closed_offsets", {}).get(name)
            self._complete_ms[name] = complete_ms
            if complete_ms is not None:
                self.promise(name, complete_ms)
            if is_finished:
                self._finished.add(name)

    def waiting(self) -> list[tuple[int, Fragment]]:
        """Return the tuples whose stream batches wait for the stored graph, with these stream batches."""
        return [(number, part) for number, parts in sorted(self._to_join.items()) for part in parts]

    def wait_to_join(self, number: int, fragment: Fragment) -> None:
        """Let tuples wait for the stored graph that are counted already, and that no slice needs."""
        size_before = self._size(number)
        _wait(self._to_join, self._join_numbers, number, fragment)
        self.waiting_bytes += self._size(number) - size_before

    def waiting_ids(self) -> Int64Array:
        """Return the transient ids of everything that waits, repeats kept (for dropping the stream)."""
        return np.concatenate(
            [np.empty(0, np.int64), *(f.transient_ids for fragments in self._to_slice.values() for f in fragments)]
        )

    def _close_batches(self) -> None:
        open_partitions = [ms for name, ms in self._complete_ms.items() if name not in self._finished]
        if open_partitions and None not in open_partitions:
            closed = self.floor(min(ms for ms in open_partitions if ms is not None))
            self.closed_ms = closed if self.closed_ms is None else max(self.closed_ms, closed)

    def floor(self, time_ms: int) -> int:
        """Return the last end of a stream batch at or before a time."""
        return time_ms // self.batch_ms * self.batch_ms

    def check_is_open(self, *, is_by_its_query: bool = False) -> None:
        """Raise StreamError once the stream was dropped or has ended, or if a query makes it and somebody else asks."""
        if self.is_dropped:
            raise StreamError(f"stream {self.iri} was dropped: declare it anew with Engine.stream to push more")
        if self.is_ended:
            raise StreamError(f"stream {self.iri} is closed: declare a new one to push more")
        if self.is_made and not is_by_its_query:
            raise StreamError(f"stream {self.iri} is made by a registered query: nothing else is pushed to it")


def _rows(columns: Columns, rows: Int64Array | BoolArray) -> Columns:
    """Return some rows of columns, by their numbers or by a mask."""
    return columns[0][rows], columns[1][rows], columns[2][rows], columns[3][rows]


def _wait(waiting: dict[int, list[Fragment]], numbers: list[int], number: int, fragment: Fragment) -> None:
    if number not in waiting:
        waiting[number] = []
        heappush(numbers, number)
    waiting[number].append(fragment)
