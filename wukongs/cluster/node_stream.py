"""NodeStream: one declared stream on a node: pieces that wait, inserted stream batches, whole slices if needed.

A stream batch goes through here in these steps:

1. Its pieces wait as they came (`keep`), in bounded room. Their terms are not known to the registry.
2. When the protocol seals it (`insert`), its rows get their final ids. Its timeless rows wait in the StreamState, as
   those of an embedded engine do; the rows whose subjects this node answers for, but for retractions, join its slice
   shares.
3. If the node is a *home* of the stream, since a registered query that runs here reads it, the shares of all nodes are
   put together (`add_whole`).
4. When its end is exposed, the injector seals it: the timeless rows join the stored graph, the whole slice the ring.

The facts of the StreamState that readers see (`closed_ms`, `is_ended`, `first_ms`) follow the exposed ticks: `show`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wukongs.cluster.node_terms import NodeRegistry
from wukongs.cluster.slice_shares import ShareRows, SliceShares
from wukongs.cluster.times import batches_before, ms_of
from wukongs.errors import DataError, NodeUnavailable, StreamError
from wukongs.live.absorption import LateSigns
from wukongs.live.core import Core
from wukongs.live.pieces import Close, Piece, check_batch_number
from wukongs.live.stream_state import FRAGMENT_BYTES_PER_TUPLE, PUSH_PARTITION, StreamState, WholeSlice
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.encoded import signs_of
from wukongs.store.slice_ring import SliceRing
from wukongs.store.snapshot import TICK_MAX_MS
from wukongs.wire.assignment import SHARD_COUNT, shards_of
from wukongs.wire.sharding import hash_ids

_NOTHING = np.empty(0, np.int64)
_STANDING = (
    "key",
    "first_tick",
    "began_ms",
    "counts_ms",
    "brings",
    "brought",
    "last_batch",
    "ends",
    "is_over",
    "inserted_to",
    "stands_ms",
    "_first_advance_ms",
    "_first_piece",
    "_was_told",
)
_SHOWN = (
    "is_ended",
    "is_ending",
    "is_dropped",
    "is_made",
    "closed_ms",
    "first_ms",
    "last_ms",
    "tuple_count",
    "counts",
    "record_to",
    "joins",
    "is_idle",
    "idle_ms",
    "heard_ms",
    "late_count",
    "dropped_count",
    "followed",
    "carried_count",
    "carried_ms",
)
_NEWER: Mapping[str, Any] = {"followed": [], "carried_count": 0, "carried_ms": None}
"""Facts that are told if there is something to tell, with what they are otherwise."""
_EVERY_BATCH = 1 << 60


@dataclass(slots=True, eq=False)
class NodeStream:
    """state: the stream as its readers see it. key: how records name it (records.DeclareStream); first_tick: of its
    declaration. began_ms, counts_ms, brings, last_batch: as the log says so far (protocol/control.py): when it begins,
    behind which time it counts (None: it is late), what LateJoin records bring, its end. inserted_to: the last inserted
    stream batch."""

    state: StreamState
    key: str = ""
    first_tick: int = 0
    began_ms: int | None = None
    counts_ms: int | None = None
    brings: int | None = None
    brought: int | None = None
    """The last stream batch that LateJoin records have brought, of those that are exposed."""
    last_batch: int | None = None
    ends: bool = False
    """Its EndStream is exposed."""
    is_over: bool = False
    """The ticks have passed its end, too."""
    inserted_to: int | None = None
    stands_ms: int | None = None
    """Up to where its writer has promised that nothing more is pushed, as far as this node has heard."""
    stable_to: int | None = None
    """The last stream batch that is inserted on every node."""
    shares: SliceShares = field(default_factory=SliceShares)
    is_home: bool = False
    whole_to: int = 0
    """At a home: whole slices are here up to this stream batch."""
    late_signs: Int64Array = field(default_factory=lambda: np.zeros((2, SHARD_COUNT), np.int64))
    """Tuples that changed nothing since their event time is older, and those of them that are older than event times
    are kept, by the shards of their subjects. int64[2, 1024]"""
    _pieces: list[Piece] = field(default_factory=list)
    _inserted: list[Piece] = field(default_factory=list)
    """Pieces that are inserted and not exposed yet: a node that joins may need them as they came."""
    _opened: set[str] = field(default_factory=set)
    """The partitions of which something has come."""
    _first_advance_ms: int | None = None
    _first_piece: int | None = None
    """The earliest stream batch with a piece. `_first_advance_ms` is the earliest time of the partitions that began
    with a marker."""
    _first_whole_ms: int | None = None
    _was_told: bool = False
    """Whether the writer of what is pushed has said from when on the stream is there."""

    def __post_init__(self) -> None:
        self.state.whole = {}
        self.state.note_late_signs = self._note_late_signs
        self.state.record_to = _EVERY_BATCH  # until the record of its beginning is exposed

    def counts_by_shard(self) -> Int64Array:
        """Return how many tuples have come so far, those that wait as well, by the shards of their subjects. A replica
        of a shard knows all of that shard. int64[1024]"""
        counts = self.shares.counts.copy()
        for piece in self._pieces:
            encoded = piece.encoded
            subjects = hash_ids(encoded.subjects, encoded)[~signs_of(encoded.goes, len(encoded))]
            counts += np.bincount(shards_of(subjects), minlength=SHARD_COUNT)
        return counts

    def _note_late_signs(self, found: LateSigns) -> None:
        for counts, subjects in zip(self.late_signs, (found.late, found.dropped), strict=True):
            counts += np.bincount(shards_of(subjects), minlength=SHARD_COUNT)

    # --- how far it is ------------------------------------------------------------------------------------------------

    @property
    def before(self) -> int:
        """The last stream batch that the protocol has no number for."""
        return batches_before(self.first_tick, self.state.batch_ms)

    def end_ms(self, batch: int) -> int:
        """Return the end of a stream batch, by the protocol's number."""
        return (batch + self.before) * self.state.batch_ms

    @property
    def inserted_ms(self) -> int | None:
        """The time up to which its stream batches are inserted here."""
        return None if self.inserted_to is None else self.inserted_to * self.state.batch_ms

    def begin(self, tick: int, empty_to: int) -> tuple[int, bool]:
        """Note when the stream begins by the log: late, or its stream batches are visible behind that. empty_to: the
        protocol's number. Return up to which stream batch it has nothing, and whether it counts from there on."""
        self.began_ms = ms_of(tick)
        last = self.began_ms // self.state.batch_ms
        if self.state.is_made or last > self.before + empty_to:
            return self.before + empty_to, False
        self.counts_ms = self.began_ms
        return last, True

    def bring(self, batch: int, tick: int) -> bool:
        """Note up to which stream batch a record brings the stream while it is late: the protocol's number. Return
        whether it counts from there on."""
        self.brings = batch + self.before
        if self.state.is_made or self.brings != ms_of(tick) // self.state.batch_ms:
            return False
        self.counts_ms = ms_of(tick)
        return True

    def end_with(self, batch: int) -> None:
        """Note with which stream batch the stream ends by the log: the protocol's number."""
        self.last_batch = batch + self.before

    def begin_to_follow(self, tick: int) -> None:
        """Note that there are rules from a tick on: what it does not cover is stored by changes."""
        covered, followed = self._brought_to(ms_of(tick)), self.state.followed
        if not followed or covered > followed[-1][1]:
            followed.append((covered, covered))

    def follow(self, batch: int) -> None:
        """Note up to which stream batch changes store what is to be stored: the protocol's number."""
        followed = self.state.followed
        after, to = followed.pop() if followed else (self.before, self.before)
        followed.append((after, max(to, batch + self.before)))

    def to_follow(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the numbers of those of some stream batches (the protocol's numbers) that wait to be followed, and how
        many tuples each has. Raises NodeUnavailable (they are not inserted here)."""
        if self.inserted_to is None or last + self.before > self.inserted_to:
            raise NodeUnavailable(f"stream {self.state.iri}: stream batch {last + self.before} is not here yet")
        return self.state.waiting_sizes(first + self.before, last + self.before)

    def _brought_to(self, time_ms: int) -> int:
        """Return the last stream batch that a time shows by the log."""
        is_late = self.counts_ms is None or time_ms <= self.counts_ms
        covered = self.brings if is_late else self.covered_to(time_ms)
        return self.before if covered is None else covered

    def covered_to(self, time_ms: int) -> int | None:
        """Return the last stream batch that is visible at a time, None if there is none."""
        if self.counts_ms is None or time_ms <= self.counts_ms:
            return self.brought
        number = time_ms // self.state.batch_ms
        number = number if self.last_batch is None else min(number, self.last_batch)
        return number if number > self.before else None

    # --- taken over by a node that joins ----------------------------------------------------------------------------

    def standing(self) -> dict[str, Any]:
        """Return, as JSON, how far the stream is by the log and by what is exposed: what `restore` takes."""
        own = {name: getattr(self, name) for name in _STANDING}
        shown = {name: getattr(self.state, name) for name in _SHOWN}
        for name in _NEWER:  # nodes of an earlier release do not know them
            if not shown[name]:
                del shown[name]
        if self.state.idle_advance is None:  # nor this
            del shown["heard_ms"]
        return {**own, **shown, "opened": sorted(self._opened)}

    def restore(self, standing: Mapping[str, Any]) -> None:
        """Stand where the stream stands on another node. Raises DataError (something else than `standing` gave)."""
        # A folder of before has nothing that is followed or carried, and no stream that follows the wall clock.
        known = {**_NEWER, "heard_ms": None, **standing}
        if set(known) != {*_STANDING, *_SHOWN, "opened"}:
            expected = ", ".join((*_STANDING, *_SHOWN))
            raise DataError(f"stream {self.state.iri}: expected {expected}, found {str(standing)[:200]}")
        for name in _STANDING:
            setattr(self, name, known[name])
        for name in _SHOWN:
            setattr(self.state, name, known[name])
        self.state.joins = [(to, sn) for to, sn in known["joins"]]
        self.state.followed = [(after, to) for after, to in known["followed"]]
        self._opened = set(known["opened"])

    def kept_pieces(self) -> list[Piece]:
        """Return the pieces of stream batches that are not exposed yet, as they have come, inserted or not."""
        return [*self._inserted, *self._pieces]

    # --- what comes ---------------------------------------------------------------------------------------------------

    def check_piece(self, piece: Piece) -> None:
        """Check that a piece can be kept. Raises StreamError."""
        self.state.check_is_open(is_by_its_query=self.state.is_made)
        times, count = piece.encoded.timestamps, len(piece.encoded)
        if len(times) != count or len(piece.timing) != count or len(piece.row_places()) != count:
            raise StreamError(
                f"stream {self.state.iri}: {count} tuples with {len(times)} timestamps, {len(piece.timing)} timing "
                f"marks and {len(piece.row_places())} places: expected one of each for every tuple"
            )
        check_batch_number(piece, self.state.batch_ms, may_carry=self.state.carry_rule is not None)
        falls = np.flatnonzero(times[1:] < times[:-1])
        if len(falls):
            at = int(falls[0])
            raise StreamError(
                f"stream {self.state.iri}, partition {piece.partition!r}, rows {piece.first_offset} to "
                f"{piece.end_offset}: the timestamp falls from {times[at]} to {times[at + 1]} ms: timestamps must "
                "not decrease"
            )
        last = TICK_MAX_MS // self.state.batch_ms
        if not self.before < piece.batch_number <= last:
            raise StreamError(
                f"stream {self.state.iri}: stream batch {piece.batch_number} is outside of those that can be named "
                f"({self.before + 1} to {last}): give milliseconds since 1970"
            )
        self.state.check_room(count)
        if piece.partition != PUSH_PARTITION:  # what is pushed is checked by its writer: else some nodes would have it
            self.state.check_entries(count)

    def keep(self, piece: Piece) -> None:
        """Keep a checked piece until its stream batch is inserted."""
        self._pieces.append(piece)
        self._opened.add(piece.partition)
        known = self._first_piece
        self._first_piece = piece.batch_number if known is None else min(known, piece.batch_number)
        end_ms, heard_ms = piece.batch_number * self.state.batch_ms, self.state.heard_ms
        self.state.heard_ms = end_ms if heard_ms is None else max(end_ms, heard_ms)
        self.state.waiting_bytes += len(piece.encoded) * FRAGMENT_BYTES_PER_TUPLE

    def note_close(self, message: Close) -> None:
        """Note a marker: a stream may begin with one that comes before any row."""
        if message.partition not in self._opened:
            self._opened.add(message.partition)
            known = self._first_advance_ms
            self._first_advance_ms = message.complete_ms if known is None else min(known, message.complete_ms)
        if message.partition == PUSH_PARTITION:
            stands_ms = self.stands_ms
            self.stands_ms = message.complete_ms if stands_ms is None else max(stands_ms, message.complete_ms)

    def begin_with(self, first_ms: int, complete_ms: int | None) -> bool:
        """Note from when on the stream is there: the time of a first row or advance. complete_ms: up to where it is
        complete by the same message; None: other partitions have a say in that. Return whether that is news."""
        state, known = self.state, (self.state.first_ms, self.state.closed_ms)
        is_exact = self._was_told or self.is_home  # else it was a guess from what was closed first
        if state.first_ms is None or first_ms < state.first_ms or not is_exact:
            state.first_ms = first_ms
        self._was_told = True
        before_ms = self.before * state.batch_ms
        if state.closed_ms is None and complete_ms is not None and complete_ms >= before_ms:
            state.closed_ms = before_ms  # no stream batch up to there has a number
        return known != (state.first_ms, state.closed_ms)

    # --- inserted -----------------------------------------------------------------------------------------------------

    def insert(self, to: int, registry: NodeRegistry, mine: BoolArray) -> None:
        """Give the rows of all stream batches up to `to` their final ids. mine: the shards of this node."""
        later = []
        for piece in sorted(self._pieces, key=lambda piece: piece.batch_number):  # of one: in the order of arrival
            if piece.batch_number > to:
                later.append(piece)
                continue
            self.state.waiting_bytes -= len(piece.encoded) * FRAGMENT_BYTES_PER_TUPLE
            if len(piece.encoded):
                self._insert(piece, registry, mine)
            self._inserted.append(piece)
        self._pieces = later
        self.inserted_to = to
        self.come()

    def _insert(self, piece: Piece, registry: NodeRegistry, mine: BoolArray) -> None:
        encoded, transient_ids = registry.confirm(piece.encoded, piece.timing)
        numbers = None if self.state.carry_rule is None else np.full(len(encoded), piece.batch_number, np.int64)
        self.state.take(encoded, piece.timing, _NOTHING, piece.partition, numbers)
        columns = (encoded.subjects, encoded.predicates, encoded.objects, encoded.timestamps, piece.row_places())
        rows = ShareRows(piece.partition, piece.first_offset, *columns, transient_ids)
        is_shared = mine[shards_of(encoded.subjects)] & ~signs_of(encoded.goes, len(encoded))
        if not is_shared.all():
            rows = rows.take(is_shared, transient_ids)
        self.shares.add(piece.batch_number, rows)

    # --- whole slices -------------------------------------------------------------------------------------------------

    def become_home(self, needs_ms: int | None = None) -> None:
        """Keep whole slices from now on, and as many of those exposed already as an embedded engine would have, or from
        a time on.

        At least one is asked for, because its answer also has the counts of earlier rows."""
        state = self.state
        assert not self.is_home, state.iri
        self.is_home, state.ring = True, SliceRing()  # that of before has let go of what nobody needed here
        self.whole_to = self.before
        if state.closed_ms is not None:
            kept_after_ms = state.closed_ms - state.history_ms
            kept_after = (kept_after_ms if needs_ms is None else min(kept_after_ms, needs_ms)) // state.batch_ms
            self.whole_to = max(self.before, min(kept_after, state.closed_ms // state.batch_ms - 1))

    def leave_home(self) -> Int64Array:
        """Keep no whole slices any more; return the references that they held."""
        state = self.state
        gone = [state.ring.forget_arrivals(), state.ring.drop(1 << 60)]
        gone += [whole.transient_ids for whole in self._waiting_slices()]
        self.is_home, self._first_whole_ms = False, None
        state.ring = SliceRing()
        state.expect_none()
        return np.concatenate(gone)

    def missing_at(self, time_ms: int, *, is_ahead: bool = False) -> tuple[int, int] | None:
        """Return the first and the last stream batch that a home lacks to show a time, of those that are inserted here;
        None if it lacks none. It also lacks those that were closed ahead of that time before it became a home.
        is_ahead: also what windows read that do not wait for that time."""
        closed_ms = self.state.closed_ms
        closed_to = None if closed_ms is None else closed_ms // self.state.batch_ms
        known = [self.covered_to(time_ms), self.brings, closed_to, self.stable_to if is_ahead else None]
        named = [number for number in known if number is not None]
        if not named or not self.is_home or self.inserted_to is None:
            return None
        last = min(max(named), self.inserted_to)
        return (self.whole_to + 1, last) if last > self.whole_to else None

    @property
    def _ready_to(self) -> int:
        """The last stream batch that is complete here: inserted, and whole if this node is a home."""
        inserted = self.before if self.inserted_to is None else self.inserted_to
        return min(inserted, self.whole_to) if self.is_home else inserted

    def has(self, batch: int) -> bool:
        """Tell whether the stream batches up to one, by the protocol's number, are complete here."""
        return batch + self.before <= self._ready_to

    def ready_ms(self, time_ms: int) -> int:
        """Return the last time, up to this one, that is complete here: its stream batches are inserted (the cluster
        does not wait for a node that joins), and whole if this node is a home."""
        covered = self.covered_to(time_ms)
        if covered is None or covered <= self._ready_to:
            return time_ms
        assert self.counts_ms is not None, self.state.iri
        return max((self._ready_to + 1) * self.state.batch_ms - 1, self.counts_ms)

    def add_whole(self, last: int, slices: Mapping[int, WholeSlice], before: tuple[int, int | None]) -> Int64Array:
        """Take the whole slices of the stream batches up to `last`, which begin where the ones before ended; return
        references to terms that are not needed any more.

        slices: those with rows, in order; before: how many other rows have come by then, and in which stream batch the
        last of them. Those that are not here are lost: before this node became a home, or since a replica had to drop
        them for want of room."""
        gone, state = self._note_lost(*before), self.state
        for number, whole in slices.items():
            if self._first_whole_ms is None:  # tuples that are carried stand last
                self._first_whole_ms = max(int(whole.columns[3][0]), (number - 1) * state.batch_ms + 1)
            if state.closed_ms is not None and number * state.batch_ms <= state.closed_ms:
                state.add_slice(number, whole.columns, whole.columns, whole.transient_ids, whole.transient_bytes)
            else:
                state.expect(number, whole)
        self.whole_to = last
        self.come()
        return gone

    def _waiting_slices(self) -> list[WholeSlice]:
        assert self.state.whole is not None, self.state.iri
        return list(self.state.whole.values())

    def _note_lost(self, count: int, last: int | None) -> Int64Array:
        ring, gone = self.state.ring, _NOTHING
        arrivals, is_kept = ring.arrivals, ring.arrivals.is_kept
        lost = count - arrivals.count - sum(len(whole.columns[0]) for whole in self._waiting_slices())
        if lost:
            assert lost > 0, (self.state.iri, count, lost)
            gone = ring.forget_arrivals()
            arrivals.skip(lost)
            ring.lost_to = last
            if is_kept:
                arrivals.keep()
        return gone

    # --- exposed ------------------------------------------------------------------------------------------------------

    def come(self) -> None:
        """Let windows read the stream batches that are complete here and inserted on every node: they go by the stream
        itself, not by the ticks."""
        if self.stable_to is None:
            return
        number, state = min(self.stable_to, self._ready_to), self.state
        if number > self.before:
            if state.first_ms is None and not state.is_made:  # else its writer always says it
                state.first_ms = self._first_at(number) if self.is_home else number * state.batch_ms
            closed_ms = number * state.batch_ms
            state.closed_ms = closed_ms if state.closed_ms is None else max(closed_ms, state.closed_ms)
        if self.ends and self.last_batch is not None and number >= self.last_batch:
            state.is_ended = True

    def has_come(self, batch: int) -> bool:
        """Tell whether windows may read the stream batches up to one: the protocol's number."""
        stable_to = self.before if self.stable_to is None else self.stable_to
        return batch + self.before <= min(stable_to, self._ready_to)

    def show(self, time_ms: int) -> None:
        """Let readers see what a time covers: all stream batches that end at or before it."""
        number, state = self.covered_to(time_ms), self.state
        if number is not None:
            self._inserted = [piece for piece in self._inserted if piece.batch_number > number]
            self.stable_to = number if self.stable_to is None else max(number, self.stable_to)
        if self.brought is None and self.counts_ms is not None and time_ms > self.counts_ms:
            state.record_to = None  # another partition may have brought something of before the beginning
        self.come()
        if self.ends and (self.before if number is None else number) == self.last_batch:
            self.is_over = state.is_ended = state.counts = True
            state.record_to = None

    def begun(self, core: Core, to: int, sn: int, *, counts: bool) -> None:
        """Let readers see that the stream has begun: it has nothing up to a stream batch, and counts or is late.

        There may be something of before by now, which another partition has brought."""
        self.state.counts = counts
        self.state.record_to = to if counts else _EVERY_BATCH
        core.join_nothing(self.state, to, sn)

    def join(self, core: Core, batch: int, sn: int, *, counts: bool) -> None:
        """Show what a record brings of a late stream, and let its timeless tuples join the stored graph at its SN.
        counts: from there on it is late no more."""
        state = self.state
        self.brought = batch + self.before
        if counts:
            state.counts, state.record_to = True, self.brought
        self.show(self.brought * state.batch_ms)
        core.join(state, _EVERY_BATCH if self.is_over else self.brought, sn)

    def end(self, core: Core, shown_ms: int, sn: int) -> None:
        """Let readers see that the stream ends, at an SN: what is left of it has come, or comes until then. shown_ms:
        the time that they see. A late stream has joined the stored graph up to any time once all of it has come."""
        was_late = self.began_ms is not None and not self.state.counts
        self.ends = True
        self.show(shown_ms)
        if was_late and self.is_over:
            core.join(self.state, _EVERY_BATCH, sn)

    def _first_at(self, number: int) -> int | None:
        """Return the time of the first tuple or advance, None while the stream batches up to this one do not say."""
        after_ms = None
        if self._first_piece is not None and self._first_piece > number:
            after_ms = (self._first_piece - 1) * self.state.batch_ms
        known = [ms for ms in (self._first_advance_ms, self._first_whole_ms) if ms is not None]
        first_ms = min(known, default=None)
        return first_ms if first_ms is None or after_ms is None or first_ms <= after_ms else None

    def cut(self, batch: int, time_ms: int) -> None:
        """Let a dropped stream end with a stream batch (the protocol's number) that a time covers."""
        self.last_batch = min(batch + self.before, self._brought_to(time_ms))

    def forget(self) -> Int64Array:
        """Drop everything; return the references that were held."""
        self._pieces, self._inserted, self.state.is_dropped = [], [], True
        return np.concatenate([self.leave_home(), self.shares.drop(1 << 60)])
