"""NodeStream: one declared stream on a node: pieces that wait, inserted stream batches, whole slices if needed.

A stream batch goes through here in these steps:

1. Its pieces wait as they came (`keep`), in bounded room. Their terms are not known to the registry.
2. When the protocol seals it (`insert`), its rows get their final ids. Its timeless rows wait as a stream batch of
   StreamState does; the rows whose subjects this node answers for join its slice shares.
3. If the node is a *home* of the stream, since a registered query that runs here reads it, the shares of all nodes are
   put together (`add_whole`).
4. When its end is exposed, the injector takes it: the timeless rows join the stored graph, the whole slice the ring.

The facts that readers see (`closed_ms`, `is_ended`, `first_ms`) follow the exposed ticks: `show`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from wukongs.cluster.node_terms import NodeRegistry
from wukongs.cluster.slice_shares import ShareRows, SliceShares
from wukongs.errors import DataError, StreamError
from wukongs.live.pieces import Close, Piece, check_batch_number
from wukongs.live.stream_state import FRAGMENT_BYTES_PER_TUPLE, Columns, Fragment, StreamState
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.slice_ring import SliceRing
from wukongs.store.snapshot import TICK_MIN_MS
from wukongs.wire.assignment import SHARD_COUNT, shards_of
from wukongs.wire.sharding import hash_ids

_NOTHING = np.empty(0, np.int64)
_STANDING = (
    "key",
    "first_tick",
    "began",
    "last_batch",
    "ends",
    "is_ended",
    "is_dropped",
    "inserted_to",
    "closed_ms",
    "first_ms",
    "last_ms",
    "tuple_count",
    "_first_advance_ms",
    "_first_piece",
)


def first_tick_of(batch_ms: int) -> int:
    """Return the first tick at which a stream batch of this length ends, for DeclareStream: from there on the
    protocol's stream batches are whole ones."""
    return -TICK_MIN_MS % batch_ms


@dataclass(frozen=True, slots=True, eq=False)
class WholeSlice:
    """A stream batch as all nodes have it, in the order of its arrival. transient_ids: references that it holds."""

    columns: Columns
    transient_ids: Int64Array
    transient_bytes: int


@dataclass(slots=True, eq=False)
class NodeStream(StreamState):
    """key: how records name it (records.DeclareStream); first_tick: of its declaration. began, last_batch: as the log
    says so far, in the protocol's ticks and numbers; inserted_to: the last inserted one, by its real number."""

    key: str = ""
    first_tick: int = 0
    began: int | None = None
    last_batch: int | None = None
    ends: bool = False
    """Its EndStream is exposed."""
    inserted_to: int | None = None
    shares: SliceShares = field(default_factory=SliceShares)
    is_home: bool = False
    whole_to: int = 0
    """At a home: whole slices are here up to this stream batch (its real number)."""
    _pieces: list[Piece] = field(default_factory=list)
    _inserted: list[Piece] = field(default_factory=list)
    """Pieces that are inserted and not exposed yet: a node that joins may need them as they came."""
    _whole: dict[int, WholeSlice] = field(default_factory=dict)
    _opened: set[str] = field(default_factory=set)
    """The partitions of which something has come."""
    _first_advance_ms: int | None = None
    _first_piece: int | None = None
    """The earliest stream batch of the partitions that began with a piece. `_first_advance_ms` is the earliest time of
    the partitions that began with a marker."""
    _first_whole_ms: int | None = None

    def counts_by_shard(self) -> Int64Array:
        """Return how many tuples have come so far, those that wait as well, by the shards of their subjects. A replica
        of a shard knows all of that shard. int64[1024]"""
        counts = self.shares.counts.copy()
        for piece in self._pieces:
            subjects = hash_ids(piece.encoded.subjects, piece.encoded)
            counts += np.bincount(shards_of(subjects), minlength=SHARD_COUNT)
        return counts

    # --- numbers ------------------------------------------------------------------------------------------------------

    @property
    def shift(self) -> int:
        """The real number of a stream batch, less the protocol's number."""
        return (self.first_tick + TICK_MIN_MS) // self.batch_ms

    def _batch_at(self, tick: int) -> int:
        """Return the last stream batch that a tick covers, by the protocol's number, 0 if there is none."""
        if self.began is None or tick <= self.began:
            return 0
        batch = max((tick - self.first_tick) // self.batch_ms, 0)
        return batch if self.last_batch is None else min(batch, self.last_batch)

    def covered_to(self, tick: int) -> int | None:
        """Return the last stream batch that a tick covers, by its real number, None if there is none."""
        return self._batch_at(tick) + self.shift if self._batch_at(tick) else None

    def closed_at_beginning(self) -> int | None:
        """Return how far the stream was closed right after it had begun, in ms; None if it has not begun, or nothing
        was closed by then."""
        if self.began is None or self.inserted_to is None:
            return None
        began_ms = (self.began + TICK_MIN_MS) // self.batch_ms * self.batch_ms
        return min(self.inserted_to * self.batch_ms, began_ms)

    def visible_tick(self, number: int) -> int:
        """Return the tick from which on a stream batch is visible."""
        assert self.began is not None, self.iri
        return max(number * self.batch_ms - TICK_MIN_MS, self.began + 1)

    # --- taken over by a node that joins ----------------------------------------------------------------------------

    def standing(self) -> dict[str, Any]:
        """Return, as JSON, how far the stream is by the log and by what is exposed: what `restore` takes."""
        return {**{name: getattr(self, name) for name in _STANDING}, "opened": sorted(self._opened)}

    def restore(self, standing: Mapping[str, Any]) -> None:
        """Stand where the stream stands on another node. Raises DataError (something else than `standing` gave)."""
        if standing.keys() != {*_STANDING, "opened"}:
            raise DataError(f"stream {self.iri}: expected {', '.join(_STANDING)}, found {str(standing)[:200]}")
        for name in _STANDING:
            setattr(self, name, standing[name])
        self._opened = set(standing["opened"])

    def inserted_fragments(self) -> list[tuple[int, Fragment]]:
        """Return what is inserted and not exposed yet, with its stream batches."""
        return [(number, part) for number, parts in sorted(self._waiting.items()) for part in parts]

    def kept_pieces(self) -> list[Piece]:
        """Return the pieces of stream batches that are not exposed yet, as they have come, inserted or not."""
        return [*self._inserted, *self._pieces]

    # --- what comes ---------------------------------------------------------------------------------------------------

    def check_piece(self, piece: Piece) -> None:
        """Check that a piece can be kept. Raises StreamError."""
        self.check_is_open()
        times, count = piece.encoded.timestamps, len(piece.encoded)
        if len(times) != count or len(piece.timing) != count or len(piece.row_places()) != count:
            raise StreamError(
                f"stream {self.iri}: {count} tuples with {len(times)} timestamps, {len(piece.timing)} timing marks and "
                f"{len(piece.row_places())} places: expected one of each for every tuple"
            )
        check_batch_number(piece, self.batch_ms)
        falls = np.flatnonzero(times[1:] < times[:-1])
        if len(falls):
            at = int(falls[0])
            raise StreamError(
                f"stream {self.iri}, partition {piece.partition!r}, rows {piece.first_offset} to {piece.end_offset}: "
                f"the timestamp falls from {times[at]} to {times[at + 1]} ms: timestamps must not decrease"
            )
        if piece.batch_number <= self.shift:
            raise StreamError(
                f"stream {self.iri}: stream batch {piece.batch_number} ends before the first one that can be named, "
                f"{self.shift + 1}: give milliseconds since 1970"
            )
        self.check_room(count)

    def keep(self, piece: Piece) -> None:
        """Keep a checked piece until its stream batch is inserted."""
        self._pieces.append(piece)
        if piece.partition not in self._opened:
            self._opened.add(piece.partition)
            known = self._first_piece
            self._first_piece = piece.batch_number if known is None else min(known, piece.batch_number)
        self.waiting_bytes += len(piece.encoded) * FRAGMENT_BYTES_PER_TUPLE

    def note_close(self, message: Close) -> None:
        """Note a marker: a stream may begin with one that comes before any row."""
        if message.partition not in self._opened:
            self._opened.add(message.partition)
            known = self._first_advance_ms
            self._first_advance_ms = message.complete_ms if known is None else min(known, message.complete_ms)

    def count(self, timestamps: Int64Array) -> None:
        """Count as StreamState.count does; `show` says when the stream has begun."""
        first_ms = self.first_ms
        StreamState.count(self, timestamps)
        self.first_ms = first_ms

    # --- inserted -----------------------------------------------------------------------------------------------------

    def insert(self, to: int, registry: NodeRegistry, mine: BoolArray) -> None:
        """Give the rows of all stream batches up to `to` their final ids. mine: the shards of this node."""
        later = []
        for piece in self._pieces:
            if piece.batch_number > to:
                later.append(piece)
                continue
            self.waiting_bytes -= len(piece.encoded) * FRAGMENT_BYTES_PER_TUPLE
            if len(piece.encoded):
                self._insert(piece, registry, mine)
            self._inserted.append(piece)
        self._pieces = later
        self.inserted_to = to

    def _insert(self, piece: Piece, registry: NodeRegistry, mine: BoolArray) -> None:
        encoded, transient_ids = registry.confirm(piece.encoded, piece.timing)
        self.take(encoded, piece.timing, _NOTHING, piece.partition)
        columns = (encoded.subjects, encoded.predicates, encoded.objects, encoded.timestamps, piece.row_places())
        rows = ShareRows(piece.partition, piece.first_offset, *columns, transient_ids)
        is_mine = mine[shards_of(encoded.subjects)]
        if not is_mine.all():
            rows = rows.take(is_mine, transient_ids)
        self.shares.add(piece.batch_number, rows)

    # --- whole slices -------------------------------------------------------------------------------------------------

    def become_home(self) -> None:
        """Keep whole slices from now on, and as many of those exposed already as an embedded engine would have.

        At least one is asked for, because its answer also has the counts of earlier rows."""
        assert not self.is_home, self.iri
        self.is_home = True
        self.whole_to = self.shift
        if self.closed_ms is not None:
            kept_after = (self.closed_ms - self.history_ms) // self.batch_ms
            self.whole_to = max(self.shift, min(kept_after, self.closed_ms // self.batch_ms - 1))

    def leave_home(self) -> Int64Array:
        """Keep no whole slices any more; return the references that they held."""
        gone = [self.ring.forget_arrivals(), self.ring.drop(1 << 60)]
        gone += [whole.transient_ids for whole in self._whole.values()]
        self.is_home = False
        self.ring, self._whole, self._first_whole_ms, self.evicted_to = SliceRing(), {}, None, None
        return np.concatenate(gone)

    def missing_at(self, tick: int) -> tuple[int, int] | None:
        """Return the first and the last stream batch that a home lacks to expose a tick, of those that are inserted
        here; None if it lacks none."""
        covered = self.covered_to(tick) if self.is_home else None
        if covered is None or self.inserted_to is None:
            return None
        last = min(covered, self.inserted_to)
        return (self.whole_to + 1, last) if last > self.whole_to else None

    def ready_tick(self, tick: int) -> int:
        """Return the last tick, up to this one, that is complete here: its stream batches are inserted (the cluster
        does not wait for a node that joins), and whole if this node is a home."""
        ready_to = self.shift if self.inserted_to is None else self.inserted_to
        ready_to = min(ready_to, self.whole_to) if self.is_home else ready_to
        covered = self.covered_to(tick)
        if covered is None or covered <= ready_to:
            return tick
        assert self.began is not None, self.iri
        return max((ready_to + 1) * self.batch_ms - TICK_MIN_MS - 1, self.began)

    def add_whole(self, last: int, slices: Mapping[int, WholeSlice], before: tuple[int, int | None]) -> Int64Array:
        """Take the whole slices of the stream batches up to `last`, which begin where the ones before ended; return
        references to terms that are not needed any more.

        slices: those with rows, in order; before: how many other rows have come by then, and in which stream batch the
        last of them. Those that are not here are lost: before this node became a home, or since a replica had to drop
        them for want of room."""
        gone = self._note_lost(*before)
        for number, whole in slices.items():
            if self._first_whole_ms is None:
                self._first_whole_ms = int(whole.columns[3][0])
            if self.closed_ms is not None and number * self.batch_ms <= self.closed_ms:
                self.add_slice(number, whole.columns, whole.columns, whole.transient_ids, whole.transient_bytes)
                continue
            self._whole[number] = whole
            if number not in self._waiting:
                heappush(self._numbers, number)
        self.whole_to = last
        return gone

    def _note_lost(self, count: int, last: int | None) -> Int64Array:
        arrivals, is_kept, gone = self.ring.arrivals, self.ring.arrivals.is_kept, _NOTHING
        lost = count - arrivals.count - sum(len(whole.columns[0]) for whole in self._whole.values())
        if lost:
            assert lost > 0, (self.iri, count, lost)
            gone = self.ring.forget_arrivals()
            arrivals.skip(lost)
            self.ring.lost_to = last
            if is_kept:
                arrivals.keep()
        return gone

    # --- exposed ------------------------------------------------------------------------------------------------------

    def show(self, tick: int) -> None:
        """Let readers see what a tick covers: all stream batches that end at or before it."""
        number = self.covered_to(tick)
        if number is not None:
            self._inserted = [piece for piece in self._inserted if piece.batch_number > number]
            if self.first_ms is None:
                self.first_ms = self._first_at(number) if self.is_home else number * self.batch_ms
            if self.first_ms is not None:
                self.closed_ms = tick + TICK_MIN_MS
        if self.ends and self._batch_at(tick) == self.last_batch:
            self.is_ended = True
            self.closed_ms = None if number is None else number * self.batch_ms

    def _first_at(self, number: int) -> int | None:
        """Return the time of the first tuple or advance, None while the stream batches up to this one do not say."""
        after_ms = None
        if self._first_piece is not None and self._first_piece > number:
            after_ms = (self._first_piece - 1) * self.batch_ms
        known = [ms for ms in (self._first_advance_ms, self._first_whole_ms) if ms is not None]
        first_ms = min(known, default=None)
        return first_ms if first_ms is None or after_ms is None or first_ms <= after_ms else None

    def seal(self, number: int) -> Columns:
        """Seal as StreamState.seal does; the slice is the whole one, if this node is a home."""
        whole = self._whole.pop(number, None)
        columns: Columns = (_NOTHING, _NOTHING, _NOTHING, _NOTHING)
        if number in self._waiting:
            columns = self.timeless(self.pop(number)[0])
        else:
            assert number == heappop(self._numbers), number
        if whole is not None:
            self.add_slice(number, whole.columns, whole.columns, whole.transient_ids, whole.transient_bytes)
        return columns

    def cut(self, batch: int, tick: int) -> None:
        """Let a dropped stream end with a stream batch (the protocol's number) that a tick covers."""
        self.last_batch = min(batch, self._batch_at(tick))

    def forget(self) -> Int64Array:
        """Drop everything; return the references that were held."""
        self._pieces, self._inserted, self.is_dropped = [], [], True
        return np.concatenate([self.leave_home(), self.shares.drop(1 << 60)])
