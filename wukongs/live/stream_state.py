"""StreamState: one declared stream on this node: what has come, how far it is complete, and its recent slices.

Stream batch k holds the tuples with timestamps in ((k - 1) * batch_ms, k * batch_ms]. Tuples wait here until their
stream batch is closed on all source partitions and its time has come for the whole engine; then they become a slice,
and the timeless ones are handed on to the stored graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, TypeAlias

import numpy as np

from wukongs.errors import StreamError
from wukongs.live.ledger import PartitionLedger
from wukongs.live.slice_filter import SliceFilter
from wukongs.settings import Settings
from wukongs.store.dtypes import UNBOUND, BoolArray, Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.slice_ring import SliceRing
from wukongs.store.snapshot import TICK_MAX_MS, TICK_MIN_MS

Columns: TypeAlias = tuple[Int64Array, Int64Array, Int64Array, Int64Array]
PUSH_PARTITION = ""
"""The source partition of Stream.push; pipelines name theirs."""
FRAGMENT_BYTES_PER_TUPLE = 41
_BYTES_PER_TRANSIENT_TERM = 24
"""A dictionary takes about so much for a term, beside its text."""
_PROGRESS = ("closed_ms", "first_ms", "last_ms", "is_ended", "tuple_count")


def batch_number(timestamp_ms: int, batch_ms: int) -> int:
    """Return the number of the stream batch that a timestamp belongs to: ceil(timestamp_ms / batch_ms)."""
    return -(-timestamp_ms // batch_ms)


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

    @staticmethod
    def join(fragments: list[Fragment]) -> Fragment:
        names = (name for name in Fragment.__slots__ if name not in ("transient_bytes", "partition"))
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in fragments]) for name in names}
        return Fragment(**columns, transient_bytes=sum(part.transient_bytes for part in fragments), partition="")


_NOTHING: Int64Array = np.empty(0, np.int64)
_NO_TUPLES = Fragment(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, np.empty(0, np.bool_), _NOTHING, 0, "")


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
    evicted_to: int | None = None
    """The last stream batch that was dropped for want of room although a registered window needed it."""
    evicted_count: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    """The options of its declaration, as JSON."""
    lsn: int = 0
    """The record of the log that declared it: its name even after a stream of the same IRI is declared anew."""
    ring: SliceRing = field(default_factory=SliceRing)
    ledgers: dict[str, PartitionLedger] = field(default_factory=dict)
    closed_ms: int | None = None
    first_ms: int | None = None
    """The first tuple's timestamp or the first advance, whichever is earlier: from then on others wait for it."""
    last_ms: int | None = None
    """The newest timestamp that has come."""
    is_ended: bool = False
    is_dropped: bool = False
    joins_at: int = 0
    """Its timeless tuples join the stored graph at this SN or later."""
    whole: dict[int, WholeSlice] | None = None
    is_recovered: bool = False
    """It was found in the data folder, and nobody has asked for it yet."""
    tuple_count: int = 0
    waiting_bytes: int = 0
    _waiting: dict[int, list[Fragment]] = field(default_factory=dict)
    _numbers: list[int] = field(default_factory=list)
    """A heap of the stream batches that wait: there may be very many while another stream holds this one back."""
    _complete_ms: dict[str, int | None] = field(default_factory=dict)
    _promised_ms: dict[str, int] = field(default_factory=dict)
    """Where partitions stand for their writers; they are complete up to there once the log is safe."""
    _finished: set[str] = field(default_factory=set)

    @property
    def is_started(self) -> bool:
        return self.first_ms is not None

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

    def check_timestamps(self, timestamps: Int64Array, partition: str) -> None:
        """Raise StreamError unless timestamps do not decrease, come after what is complete, and can be named by SNs."""
        self.check_is_open()
        if len(timestamps) == 0:
            return
        falls = np.flatnonzero(timestamps[1:] < timestamps[:-1])  # a difference could overflow
        if len(falls):
            at = int(falls[0])
            raise StreamError(
                f"stream {self.iri}: the timestamp falls from {timestamps[at]} to {timestamps[at + 1]} ms at tuple "
                f"{at + 1} of the call: timestamps must not decrease. Nothing of this call was applied; sort it by time"
            )
        first, last = int(timestamps[0]), int(timestamps[-1])
        self.check_range(first)
        self.check_range(last)
        stands = [ms for ms in (self._promised_ms.get(partition), self.closed_ms) if ms is not None]
        complete = max(stands, default=None)
        if complete is not None and first <= complete:
            raise StreamError(
                f"stream {self.iri}: timestamp {first} ms at tuple 0 of the call, but the stream already stands at "
                f"{complete + 1} ms: timestamps must not decrease. Nothing of this call was applied"
            )

    def check_range(self, time_ms: int) -> None:
        """Raise StreamError for an event time that no SN can name."""
        if not TICK_MIN_MS + self.batch_ms < time_ms <= TICK_MAX_MS - self.batch_ms:
            raise StreamError(
                f"stream {self.iri}: timestamp {time_ms} ms is outside of what can be named ({TICK_MIN_MS} to "
                f"{TICK_MAX_MS} ms since 1970): give milliseconds"
            )

    @property
    def room(self) -> int:
        """How many more tuples may wait for other streams."""
        return max(0, self.settings.queued_bytes_max - self.waiting_bytes) // FRAGMENT_BYTES_PER_TUPLE

    def check_room(self, tuple_count: int) -> None:
        """Raise StreamError if this many more tuples would exceed what may wait for other streams."""
        size = tuple_count * FRAGMENT_BYTES_PER_TUPLE
        if self.waiting_bytes + size > self.settings.queued_bytes_max:
            raise StreamError(
                f"stream {self.iri}: {self.waiting_bytes + size} bytes of unsealed stream batches would exceed "
                f"queued_bytes_max = {self.settings.queued_bytes_max}: another stream holds this one back (see "
                "stats()['held_back_by']); advance or close that one, or raise queued_bytes_max"
            )

    def take(
        self, encoded: Encoded, timing: BoolArray, transient_ids: Int64Array, partition: str = PUSH_PARTITION
    ) -> None:
        """Queue tuples, sorted by time, under their stream batches. transient_ids: of the whole call."""
        # A term of several slices counts in each of them; which of the texts are the transient ones is not asked.
        share = len(transient_ids) / max(1, len(encoded.terms))
        transient_bytes = int(len(encoded.terms.text) * share) + _BYTES_PER_TRANSIENT_TERM * len(transient_ids)
        count = len(encoded)
        self.count(encoded.timestamps)
        lo = 0
        while lo < count:
            number = batch_number(int(encoded.timestamps[lo]), self.batch_ms)
            hi = int(np.searchsorted(encoded.timestamps, number * self.batch_ms, "right"))
            # The terms of one call live as long as the last of its slices.
            ids = transient_ids if hi == count else transient_ids[:0]
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
            )
            if number not in self._waiting:
                self._waiting[number] = []
                heappush(self._numbers, number)
            self._waiting[number].append(fragment)
            lo = hi
        self.waiting_bytes += count * FRAGMENT_BYTES_PER_TUPLE

    def count(self, timestamps: Int64Array) -> None:
        """Note that tuples with these times, in order, have come."""
        if len(timestamps):
            last = int(timestamps[-1])
            self.last_ms = last if self.last_ms is None else max(last, self.last_ms)
            self.tuple_count += len(timestamps)

    def begin(self, time_ms: int) -> None:
        """Note that a tuple of this time has come: from then on others wait for the stream."""
        self.first_ms = time_ms if self.first_ms is None else min(time_ms, self.first_ms)

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
        last = max(self._waiting, default=None)
        complete = [ms for ms in self._complete_ms.values() if ms is not None]
        ends = [*([last * self.batch_ms] if last is not None else []), *(self._floor(ms) for ms in complete)]
        if self.closed_ms is not None:
            ends.append(self.closed_ms)
        self.closed_ms = max(ends, default=None)

    def next_batch(self) -> int | None:
        """Return the number of the earliest stream batch that waits and is closed, None if there is none."""
        if not self._numbers or self.closed_ms is None or self._numbers[0] * self.batch_ms > self.closed_ms:
            return None
        return self._numbers[0]

    def expect(self, number: int, whole: WholeSlice) -> None:
        """Let a slice wait that has come by itself, until its stream batch is sealed."""
        assert self.whole is not None, self.iri
        self.whole[number] = whole
        if number not in self._waiting:
            heappush(self._numbers, number)

    def seal(self, number: int) -> Columns:
        """Make the earliest waiting stream batch a slice; return graphs, subjects, predicates, objects of its timeless
        tuples."""
        assert number == self._numbers[0], (number, self._numbers[0])
        while self._numbers and self._numbers[0] == number:
            heappop(self._numbers)
        fragments = self._waiting.pop(number, [])
        if not fragments:
            tuples = _NO_TUPLES
        else:
            tuples = fragments[0] if len(fragments) == 1 else Fragment.join(fragments)
        self.waiting_bytes -= len(tuples.subjects) * FRAGMENT_BYTES_PER_TUPLE
        columns = tuples.subjects, tuples.predicates, tuples.objects, tuples.timestamps
        if self.whole is None:
            arrivals = self._in_arrival_order(fragments, columns)
            self.add_slice(number, arrivals, columns, tuples.transient_ids, tuples.transient_bytes)
        elif (whole := self.whole.pop(number, None)) is not None:
            self.add_slice(number, whole.columns, whole.columns, whole.transient_ids, whole.transient_bytes)
        return self._timeless(tuples)

    def add_slice(
        self, number: int, arrivals: Columns, columns: Columns, transient_ids: Int64Array, transient_bytes: int
    ) -> None:
        """Make a slice of a whole stream batch: subjects, predicates, objects, timestamps. arrivals: the same in the
        order of their arrival."""
        self.ring.arrivals.add(number, *arrivals)
        if self.slice_filter is not None:
            mask = self.slice_filter.keep(number, columns[1])
            columns = columns[0][mask], columns[1][mask], columns[2][mask], columns[3][mask]
        self.ring.add(number, *columns, transient_ids, transient_bytes)

    def _timeless(self, whole: Fragment) -> Columns:
        """Return graphs, subjects, predicates, objects of the timeless tuples."""
        graphs = np.where(whole.graphs == UNBOUND, self.into, whole.graphs)
        columns = graphs, whole.subjects, whole.predicates, whole.objects
        if not whole.timing.any():
            return columns
        timeless = np.flatnonzero(~whole.timing)
        return columns[0][timeless], columns[1][timeless], columns[2][timeless], columns[3][timeless]

    def _in_arrival_order(self, fragments: list[Fragment], columns: Columns) -> Columns:
        """Return the tuples of a stream batch by (timestamp, source partition, offset); each partition comes in order
        of its offsets."""
        partitions = sorted({fragment.partition for fragment in fragments})
        if len(partitions) < 2 or not self.ring.arrivals.is_kept:
            return columns
        places = [partitions.index(fragment.partition) for fragment in fragments]
        order = np.lexsort((np.repeat(places, [len(f.subjects) for f in fragments]), columns[3]))
        return columns[0][order], columns[1][order], columns[2][order], columns[3][order]

    def waiting_from_ms(self) -> int | None:
        """Return the time after which everything that waits has come, None if nothing waits."""
        return (self._numbers[0] - 1) * self.batch_ms if self._numbers else None

    def progress(self) -> dict[str, Any]:
        """Return, as JSON, how far the stream has come: what restore_progress takes. Without its tuples."""
        partitions = {
            name: [ledger.end_offset, ledger.complete_ms, ledger.epoch, self._complete_ms[name], name in self._finished]
            for name, ledger in self.ledgers.items()
        }
        arrivals = self.ring.arrivals
        return {
            **{name: getattr(self, name) for name in _PROGRESS},
            "arrivals_began_after": arrivals.began_after if arrivals.is_kept else None,
            "partitions": partitions,
        }

    def restore_progress(self, progress: dict[str, Any]) -> None:
        """Stand where another one stood."""
        for name in _PROGRESS:
            setattr(self, name, progress[name])
        # What had come but waited then is not needed any more, or its log would not begin here.
        self.ring.arrivals.restore(self.tuple_count, progress.get("arrivals_began_after"))
        for name, (end_offset, ledger_ms, epoch, complete_ms, is_finished) in progress["partitions"].items():
            ledger = self.ledgers[name] = PartitionLedger(self.iri, name, end_offset)
            ledger.complete_ms, ledger.epoch = ledger_ms, epoch
            self._complete_ms[name] = complete_ms
            if complete_ms is not None:
                self.promise(name, complete_ms)
            if is_finished:
                self._finished.add(name)

    def waiting(self) -> list[tuple[int, Fragment]]:
        """Return the tuples that wait, with their stream batches."""
        return [(number, part) for number, parts in sorted(self._waiting.items()) for part in parts]

    def waiting_ids(self) -> Int64Array:
        """Return the transient ids of everything that waits, repeats kept (for dropping the stream)."""
        return np.concatenate(
            [np.empty(0, np.int64), *(f.transient_ids for fragments in self._waiting.values() for f in fragments)]
        )

    def _close_batches(self) -> None:
        open_partitions = [ms for name, ms in self._complete_ms.items() if name not in self._finished]
        if open_partitions and None not in open_partitions:
            closed = self._floor(min(ms for ms in open_partitions if ms is not None))
            self.closed_ms = closed if self.closed_ms is None else max(self.closed_ms, closed)

    def _floor(self, time_ms: int) -> int:
        return time_ms // self.batch_ms * self.batch_ms

    def check_is_open(self) -> None:
        """Raise StreamError once the stream was dropped or has ended."""
        if self.is_dropped:
            raise StreamError(f"stream {self.iri} was dropped: declare it anew with Engine.stream to push more")
        if self.is_ended:
            raise StreamError(f"stream {self.iri} is closed: declare a new one to push more")
