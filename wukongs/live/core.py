"""Core: the state of one engine that its parts share, and the rules by which time moves on.

Every change happens under `lock`, in this order: tuples are taken into their streams; when the clock has passed a time
t, the stream batches that end at t become slices and their timeless tuples are sealed under the snapshot number of t;
then the queries due at t fire. Batches are immutable, so reads need the lock only to pick them.

`Progress` says how far streams and the clock have come. The streams of one engine say it themselves (`OwnProgress`); at
a node of a cluster the protocol does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wukongs.csparql.terms import Term, iri
from wukongs.errors import NodeUnavailable, StreamError, WukongsError
from wukongs.live.journal import Journal
from wukongs.live.stream_state import Columns, StreamState
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


class Progress(Protocol):
    """Says what each stream has closed, and up to where the stored graph is exposed. These are two things: a stream may
    be ahead of the clock. Called with the lock held."""

    def clock_ms(self, streams: Collection[StreamState], sealed_ms: int | None) -> int | None:
        """Return the event time that the clock of the stored graph has passed: FOREVER_MS if all streams that have
        begun have ended, None if none has begun.

        sealed_ms: the time up to which everything is sealed."""

    def exposed_ms(self) -> int:
        """Return the event time up to which reads may come. The last firing of streams that have ended may be later."""

    def closed_ms(self, streams: Collection[StreamState]) -> Mapping[str, int | None]:
        """Return up to where each stream is closed that has begun and not ended, by its IRI. None: it has closed
        nothing."""

    def before_firings(self, core: Core, at_ms: int) -> None:
        """Prepare for firings at a time, up to which everything is sealed. They pick their batches next."""

    def go_on(self, core: Core) -> bool:
        """Come to what is exposed next, when everything before is sealed and has fired. Return whether there is such a
        thing."""


class OwnProgress:
    """The Progress of an engine whose streams say themselves how far they are: the clock is the slowest of them."""

    def clock_ms(self, streams: Collection[StreamState], sealed_ms: int | None) -> int | None:
        begun = [state for state in streams if state.is_started or state.is_ended]
        if not begun:
            return None
        closed = [state.closed_ms for state in begun if not state.is_ended]
        known = [ms for ms in closed if ms is not None]
        if len(known) < len(closed):
            return sealed_ms
        return min(known, default=FOREVER_MS)

    def exposed_ms(self) -> int:
        return FOREVER_MS

    def closed_ms(self, streams: Collection[StreamState]) -> Mapping[str, int | None]:
        return {state.iri: state.closed_ms for state in streams if state.is_started and not state.is_ended}

    def before_firings(self, core: Core, at_ms: int) -> None:
        pass

    def go_on(self, core: Core) -> bool:
        return False


class Core:
    """arrangement: the stored graph; sealed_ms: the event time up to which everything is sealed (None: no stream)."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        registry: TermRegistry | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.settings = settings
        self.progress: Progress = progress or OwnProgress()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.registry = TermRegistry(settings.hash_bits) if registry is None else registry
        self.arrangement = Arrangement("stored graph")
        self.replayed_to: int | None = None
        """The snapshot number that a replay of the log has come to; None: there is no replay.

        The trace of the checkpoint holds more already. Whatever the replay seals below the trace's `upper` is there."""
        self.journal = journal
        self.default_graph = int(self.registry.reserve([iri(DEFAULT_GRAPH_IRI).text])[0][0])
        self.reserved = {iri(DEFAULT_GRAPH_IRI): self.default_graph}
        """Constants of every query, with their ids."""
        self.streams: dict[str, StreamState] = {}
        self.sealed_ms: int | None = None
        self._unsealed: dict[int, list[Columns]] = {}
        """SN -> timeless tuples that join the stored graph there; their slices are sealed already."""
        self.late_sn = -1
        """The newest SN under which tuples of a stream that began late were sealed: it is not that of their time."""
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
        self.on_close: Callable[[str], object] | None = None
        """Is told the name of a registered query that somebody closes, with the lock held; None: nobody else asks."""
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
        if isinstance(self.failure, NodeUnavailable):
            return NodeUnavailable(str(self.failure))
        return WukongsError(f"the engine has stopped: {type(self.failure).__name__}: {self.failure}. Start a new one")

    def stream(self, stream_iri: str) -> StreamState:
        """Return a declared stream. Raises StreamError (unknown; names the known ones)."""
        found = self.streams.get(stream_iri)
        if found is None:
            known = ", ".join(sorted(self.streams)) or "none"
            raise StreamError(f"unknown stream {stream_iri}: declare it with Engine.stream first. Declared: {known}")
        return found

    def clock_ms(self) -> int | None:
        """Return the event time that the clock of the stored graph has passed, as Progress.clock_ms does."""
        return self.progress.clock_ms(self.streams.values(), self.sealed_ms)

    def held_back_by(self) -> dict[str, int | None]:
        """Name the streams that hold others back, which are further: stream IRI -> the time up to which it is closed;
        None: it has closed nothing."""
        running = self.progress.closed_ms(self.streams.values())
        if len(set(running.values())) < 2:
            return {}
        silent: dict[str, int | None] = {name: None for name, ms in running.items() if ms is None}
        least = min((ms for ms in running.values() if ms is not None), default=None)
        return silent or {name: ms for name, ms in running.items() if ms == least}

    def next_batch_end(self) -> int | None:
        """Return the earliest end of a stream batch that waits, is closed, and that the clock has passed; None if there
        is none."""
        clock_ms = self.clock_ms()
        if clock_ms is None:
            return None
        waiting = [(state.next_batch(), state.batch_ms) for state in self.streams.values()]
        end_ms = min((number * batch_ms for number, batch_ms in waiting if number is not None), default=None)
        return end_ms if end_ms is not None and end_ms <= clock_ms else None

    def seal(self, end_ms: int) -> None:
        """Seal the stream batches of all streams that end at end_ms: slices, and one batch of the stored graph."""
        for state in self.streams.values():
            number = state.next_batch()
            if number is not None and number * state.batch_ms == end_ms:
                # A stream that began after others had passed this time joins the stored graph at a later number.
                sn = max(self.sn_of(end_ms), state.joins_at)
                self._unsealed.setdefault(sn, []).append(state.seal(number))
        self.move_to(end_ms)

    def sn_of(self, end_ms: int) -> int:
        """Return the snapshot number under which stream batches that end at a time are sealed now."""
        return max(tick_sn(end_ms), self.upper)

    def sn_at(self, time_ms: int) -> int:
        """Return the snapshot number that a firing at a time reads. The last firing of streams that have ended may come
        after all that is exposed; it reads the newest number."""
        return min(tick_sn(time_ms), self.sn)

    @property
    def is_absorbed(self) -> bool:
        """Whether the timeless tuples of all slices are in the stored graph."""
        return not self._unsealed

    def merge(self, fuel: int) -> bool:
        """Go on with merges that seals have left: each merge of the stored graph by at most `fuel` values, and the
        blocks of each stream. Return whether there is more to do.

        Nothing waits for it. The seal of the next stream batch pays for the rest."""
        is_more = self.arrangement.trace.pay(fuel)
        for state in self.streams.values():
            is_more |= state.ring.work(fuel)
        return is_more

    def move_to(self, time_ms: int) -> None:
        """Note that everything up to a time is sealed, and so in the stored graph, as far as that is exposed."""
        time_ms = min(time_ms, self.progress.exposed_ms())
        self._absorb_up_to(self.sn_of(time_ms), tick_sn(time_ms))
        if self.sealed_ms is None or time_ms > self.sealed_ms:
            self.sealed_ms = time_ms
            self.pass_to(tick_sn(time_ms) + 1)
            # All firings at this time read one snapshot, also those that come after a load.
            sn = max(tick_sn(time_ms), self.arrangement.trace.since)
            opened = self.arrangement.open(sn, "the firings", expires=False)
            held, self._held = self._held, opened
            if held is not None:
                held.close()

    def _absorb_up_to(self, sn: int, expected: int) -> None:
        """Seal the timeless tuples that join the stored graph at an SN or before. expected: the SN of their time."""
        for joins_at in sorted(at for at in self._unsealed if at <= sn):
            columns = [np.concatenate(column) for column in zip(*self._unsealed.pop(joins_at), strict=True)]
            self.revoke_old_handles()
            if joins_at != expected:
                self.late_sn = joins_at
            if self.replayed_to is None or joins_at >= self.arrangement.trace.upper:
                self.arrangement.absorb(joins_at, *columns)
            self.pass_to(joins_at + 1)

    def pass_to(self, upper: int) -> None:
        """Note that everything below a snapshot number is sealed."""
        self.arrangement.trace.advance(upper)
        if self.replayed_to is not None:
            self.replayed_to = max(self.replayed_to, upper)

    def absorb(self, sn: int, chunks: Iterable[Encoded], graph: int) -> None:
        """Add the triples of a load, their terms confirmed, at a new snapshot number. graph: of triples without one."""
        self.revoke_old_handles()
        self.arrangement.absorb(sn, *_columns_of(chunks, graph))
        self.arrangement.trace.pay()
        self.pass_to(sn + 1)

    def apply(
        self,
        sn: int,
        deletes: Iterable[Encoded],
        inserts: Iterable[Encoded],
        graph: int,
        cleared: Iterable[int] = (),
        read: Handle | None = None,
    ) -> Difference:
        """Empty graphs, delete and insert triples, their terms confirmed, in this order, at a new snapshot number.

        Streams and windows are not touched. read, and what is returned: as in Arrangement.apply."""
        self.revoke_old_handles()
        gone, come = _columns_of(deletes, graph), _columns_of(inserts, graph)
        difference = self.arrangement.apply(sn, gone, come, cleared, read)
        self.arrangement.trace.pay()
        self.pass_to(sn + 1)
        return difference

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


def _columns_of(chunks: Iterable[Encoded], graph: int) -> Quads:
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
