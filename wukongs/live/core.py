"""Core: the state of one engine that its parts share, and the rules by which time moves on.

Every change happens under `lock`, in this order: tuples are taken into their streams; when a time t is stable (all
streams that have begun have closed their stream batches up to t), the stream batches that end at t become slices and
their timeless tuples are sealed under the snapshot number of t; then the queries due at t fire. Batches are immutable,
so reads need the lock only to pick them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wukongs.csparql.terms import Term, iri
from wukongs.errors import StreamError, WukongsError
from wukongs.live.journal import Journal
from wukongs.live.stream_state import StreamState
from wukongs.query.reach import Reach
from wukongs.settings import Settings
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch import Batch
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, UNBOUND, Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.quads import Quads
from wukongs.store.snapshot import tick_sn
from wukongs.store.term_registry import TermRegistry
from wukongs.store.tombstones import Difference
from wukongs.store.trace import Handle

FOREVER_MS = 1 << 62
"""A stream that has ended covers all time up to here."""


@dataclass(slots=True)
class UpdateCounts:
    """Counts of the updates that this process has applied: requests, operations, triples that went and came."""

    requests: int = 0
    operations: int = 0
    deleted: int = 0
    inserted: int = 0


class Core:
    """arrangement: the stored graph; stable_ms: the event time up to which everything is sealed (None: no stream)."""

    def __init__(self, settings: Settings, registry: TermRegistry | None = None) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.registry = TermRegistry(settings.hash_bits) if registry is None else registry
        self.arrangement = Arrangement("stored graph")
        self.replayed_to: int | None = None
        """The snapshot number that a replay of the log has come to; None: there is no replay.

        The trace of the checkpoint holds more already. Whatever the replay seals below the trace's `upper` is there."""
        self.journal = Journal()
        self.default_graph = int(self.registry.reserve([iri(DEFAULT_GRAPH_IRI).text])[0][0])
        self.reserved = {iri(DEFAULT_GRAPH_IRI): self.default_graph}
        """Constants of every query, with their ids."""
        self.streams: dict[str, StreamState] = {}
        self.sealed_ms: int | None = None
        self._held: Handle | None = None
        self.is_closed = False
        self.failure: BaseException | None = None
        self.update_turn = threading.Lock()
        """Held by the update that is under way: they are serial. Taken before `lock`."""
        self.load_count = 0
        """Loads and updates that have begun: their numbers."""
        self.updated = UpdateCounts()
        self.query_count = 0
        self.malformed_count = 0
        self.reach: Reach | None = None
        """The way of a cluster's node to the whole graph; None: this core holds the graph whole."""

    @property
    def sn(self) -> int:
        """The newest stable snapshot number."""
        return max(self.arrangement.trace.upper - 1, 0)

    @property
    def upper(self) -> int:
        """The snapshot number up to which everything is sealed."""
        return self.arrangement.trace.upper if self.replayed_to is None else self.replayed_to

    @property
    def next_sn(self) -> int:
        """The snapshot number of the next load."""
        return max(self.upper, 1)

    def graph_id(self, name: Term | None) -> int:
        """Return the id of a graph that tuples are to join (None: the default graph); its name stays known for ever."""
        return self.default_graph if name is None else self.registry.keep(name.text)

    def check_is_open(self) -> None:
        """Raise WukongsError once the engine is closed, or has failed."""
        if self.failure is not None:
            raise self.stopped() from self.failure
        if self.is_closed:
            raise WukongsError("this engine is closed: make a new one with wukongs.Engine()")

    def stopped(self) -> WukongsError:
        """Return the error that says what the engine has failed with."""
        return WukongsError(f"the engine has stopped: {type(self.failure).__name__}: {self.failure}. Start a new one")

    def stream(self, stream_iri: str) -> StreamState:
        """Return a declared stream. Raises StreamError (unknown; names the known ones)."""
        found = self.streams.get(stream_iri)
        if found is None:
            known = ", ".join(sorted(self.streams)) or "none"
            raise StreamError(f"unknown stream {stream_iri}: declare it with Engine.stream first. Declared: {known}")
        return found

    def stable_ms(self) -> int | None:
        """Return the time up to which all streams that have begun are closed; FOREVER_MS if they have all ended."""
        begun = [state for state in self.streams.values() if state.is_started or state.is_ended]
        if not begun:
            return None
        closed = [state.closed_ms for state in begun if not state.is_ended]
        known = [ms for ms in closed if ms is not None]
        if len(known) < len(closed):
            return self.sealed_ms
        return min(known, default=FOREVER_MS)

    def held_back_by(self) -> dict[str, int | None]:
        """Name the streams that stand at the stable time while others are further: stream IRI -> closed_ms."""
        stable = self.stable_ms()
        running = {s.iri: s.closed_ms for s in self.streams.values() if s.is_started and not s.is_ended}
        if len(set(running.values())) < 2:
            return {}
        silent: dict[str, int | None] = {name: None for name, ms in running.items() if ms is None}
        return silent or {name: ms for name, ms in running.items() if ms == stable}

    def next_batch_end(self) -> int | None:
        """Return the earliest end of a stream batch that waits, is closed, and is stable; None if there is none."""
        stable = self.stable_ms()
        ends = [
            number * state.batch_ms
            for state in self.streams.values()
            if (number := state.next_batch()) is not None and stable is not None and number * state.batch_ms <= stable
        ]
        return min(ends, default=None)

    def seal(self, end_ms: int) -> None:
        """Seal the stream batches of all streams that end at end_ms: slices, and one batch of the stored graph."""
        columns = [
            state.seal(number)
            for state in self.streams.values()
            if (number := state.next_batch()) is not None and number * state.batch_ms == end_ms
        ]
        graphs, subjects, predicates, objects = (np.concatenate(column) for column in zip(*columns, strict=True))
        # A stream that began after others had passed this time joins the stored graph at the next number there is.
        sn = self.sn_of(end_ms)
        self.revoke_old_handles()
        if sn != tick_sn(end_ms):
            self.journal.sealed_late(sn)
        if sn >= self.arrangement.trace.upper:
            self.arrangement.absorb(sn, graphs, subjects, predicates, objects)
        self.pass_to(sn + 1)
        self.move_to(end_ms)

    def sn_of(self, end_ms: int) -> int:
        """Return the snapshot number under which stream batches that end at a time are sealed now."""
        return max(tick_sn(end_ms), self.upper)

    def sn_at(self, time_ms: int) -> int:
        """Return the snapshot number that a firing at a time reads."""
        return tick_sn(time_ms)

    def merge(self, fuel: int) -> bool:
        """Go on with merges that seals have left: each merge of the stored graph by at most `fuel` values, and the
        blocks of each stream. Return whether there is more to do.

        Nothing waits for it. The seal of the next stream batch pays for the rest."""
        is_more = self.arrangement.trace.pay(fuel)
        for state in self.streams.values():
            is_more |= state.ring.work(fuel)
        return is_more

    def move_to(self, time_ms: int) -> None:
        """Note that everything up to a time is sealed."""
        if self.sealed_ms is None or time_ms > self.sealed_ms:
            self.sealed_ms = time_ms
            self.pass_to(tick_sn(time_ms) + 1)
            # All firings at this time read one snapshot, also those that come after a load.
            sn = max(tick_sn(time_ms), self.arrangement.trace.since)
            opened = self.arrangement.open(sn, "the firings", expires=False)
            held, self._held = self._held, opened
            if held is not None:
                held.close()

    def pass_to(self, upper: int) -> None:
        """Note that everything below a snapshot number is sealed."""
        self.arrangement.trace.advance(upper)
        if self.replayed_to is not None:
            self.replayed_to = max(self.replayed_to, upper)

    def absorb(self, chunks: Iterable[Encoded], graph: int, sn: int | None = None) -> tuple[int, int]:
        """Add loaded triples, their terms confirmed, at one new snapshot number, by default the next one. Returns (SN,
        how many are new)."""
        chunks = list(chunks)
        if not chunks and sn is None:
            return self.sn, 0
        sn = self.next_sn if sn is None else sn
        self.revoke_old_handles()
        new = self.arrangement.absorb(sn, *columns_of(chunks, graph))
        self.arrangement.trace.pay()
        self.pass_to(sn + 1)
        return sn, new

    def apply(
        self,
        deletes: Iterable[Encoded],
        inserts: Iterable[Encoded],
        graph: int,
        cleared: Iterable[int] = (),
    ) -> tuple[int, int, int]:
        """Empty graphs, delete and insert triples, their terms confirmed, in this order, at the next snapshot number.

        Streams and windows are not touched. Returns (SN, how many went, how many came)."""
        sn = self.next_sn
        self.revoke_old_handles()
        gone, come = self.arrangement.apply(sn, columns_of(deletes, graph), columns_of(inserts, graph), cleared)
        self.arrangement.trace.pay()
        self.pass_to(sn + 1)
        return sn, gone, come

    def apply_difference(self, difference: Difference, sn: int) -> None:
        """Seal what an update changes at an SN."""
        self.revoke_old_handles()
        self.arrangement.apply_difference(sn, difference)
        self.arrangement.trace.pay()
        self.pass_to(sn + 1)

    def revoke_old_handles(self) -> None:
        """Take the handles from readers that have kept them too long: they would hold merging back for ever."""
        if self.settings.handle_age_max_s > 0:
            self.arrangement.trace.revoke(self.settings.handle_age_max_s)

    def drop_slices(self, state: StreamState, keep_after_ms: int) -> None:
        """Drop the slices of a stream up to a time, with the terms that only they had."""
        self.release(state.ring.drop(keep_after_ms // state.batch_ms))

    def release(self, transient_ids: Int64Array) -> None:
        """Give back references to terms that only lived in slices, waiting stream batches and arrivals."""
        if len(transient_ids):
            self.registry.release(transient_ids)


def columns_of(chunks: Iterable[Encoded], graph: int) -> Quads:
    """Join encoded triples; those without a graph of their own go to `graph`."""
    nothing = np.empty(0, np.int64)
    columns = [(nothing, nothing, nothing, nothing)]
    for encoded in chunks:
        graphs = np.where(encoded.graphs == UNBOUND, graph, encoded.graphs)
        columns.append((graphs, encoded.subjects, encoded.predicates, encoded.objects))
    joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
    return joined[0], joined[1], joined[2], joined[3]


STEP_ROWS = 1 << 16
"""Rows that the newness filter learns, and fuel for merges, in one step under the engine's lock: some milliseconds."""
PAUSE_S = 0.0002
"""Between two such steps; enough for a thread that waits for the lock to get it."""


def expect(core: Core, batch: Batch) -> None:
    """Let the newness filter know a batch that is to be sealed. Called without the lock."""
    while True:
        with core.lock:
            if core.arrangement.expect(batch, STEP_ROWS):
                return
        time.sleep(PAUSE_S)


def pay_for_merges(core: Core, row_count: int) -> None:
    """Pay what a seal of so many triples and tombstones owes for merges. Called without the lock."""
    trace, fuel = core.arrangement.trace, core.arrangement.trace.owed(row_count)
    while fuel > 0 and trace.is_merging():
        with core.lock:
            trace.work(STEP_ROWS)
        fuel -= STEP_ROWS
        if fuel > 0:
            time.sleep(PAUSE_S)
