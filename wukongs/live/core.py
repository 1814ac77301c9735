"""Core: the state of one engine that its parts share, and the rules by which time moves on.

Every change happens under `lock`. Tuples are taken into their streams. Time then moves on in two ways. Each stream goes
by what it has closed itself: its stream batches become slices, and queries over windows alone fire. The stored graph
goes by its clock: when the clock has passed a time t, the timeless tuples of the stream batches that end at t are
sealed under the snapshot number of t; then queries that read stored graphs fire. Stream batches that come behind the
clock join the stored graph by records of the log (`join`). Batches are immutable, so reads need the lock only to pick
them.

`Progress` says how far streams and the clock have come. The streams of one engine say it themselves (`OwnProgress`); at
a node of a cluster the protocol does.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from wukongs.csparql.algebra import Output, Query
from wukongs.csparql.terms import Term, iri
from wukongs.errors import ForkError, NodeUnavailable, StorageError, StreamError, WukongsError
from wukongs.forks import Disowned, Lock, fork_error, note_owner
from wukongs.live.absorption import Timeless, settled, settled_by_event_time
from wukongs.live.answer_cache import AnswerCache
from wukongs.live.engine_windows import EngineWindows
from wukongs.live.journal import Journal
from wukongs.live.merger import Merger
from wukongs.live.pieces import Piece
from wukongs.live.running import RunningQueries
from wukongs.live.stream_state import FOREVER_MS, StreamState
from wukongs.live.wall_clock import wall_clock_ms
from wukongs.live.window_log import UnreadBudget
from wukongs.outcomes import Asked, Found, Outcomes
from wukongs.query.memory import Kind, Reservation, budget_of
from wukongs.query.paths.reach import PathIndexes
from wukongs.query.reach import Reach
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.rules.inference import Inference
from wukongs.settings import Settings
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch import Batch
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, UNBOUND, Int64Array
from wukongs.store.encoded import NO_SIGNS, Encoded, signs, signs_of
from wukongs.store.event_times import EventTimes
from wukongs.store.quads import Quads, joined
from wukongs.store.snapshot import TICK_MIN_MS, tick_of, tick_sn
from wukongs.store.term_registry import TermRegistry
from wukongs.store.tombstones import Difference
from wukongs.store.trace import Handle

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("wukongs")
NOT_YET_MS = -FOREVER_MS
IN_USE = (
    "has opened this engine: a data folder has one process. Open the engine after the fork, in one process alone, and "
    "reach it from the others with wukongs.connect()"
)


@dataclass(slots=True)
class UpdateCounts:
    """Counts of the updates that this process has applied: requests, operations, triples that went and came."""

    requests: int = 0
    operations: int = 0
    deleted: int = 0
    inserted: int = 0


class QueryLog(Protocol):
    """The changes of registered queries in the log of a cluster. A query becomes what the log says where its record is
    carried out. Methods raise also NodeUnavailable."""

    def close_query(self, name: str) -> None:
        """Note that a query that ran here was closed. Called with the lock held; nobody waits."""

    def name_readers(self, name: str, group: str) -> None:
        """Note that a query has a group of readers, wherever it runs later. Called with the lock held; nobody waits."""

    def note_reader(self, name: str, group: str, stands: str) -> Callable[[], None]:
        """Note where a named reader of a live view stands, though nobody waits. Return what waits until the log has it.
        Called with the lock held, the other without."""

    def inference(self) -> Inference:
        """Return what explains triples by the rules of the log. Called without the lock."""

    def catch_up(self) -> None:
        """Wait, but not for ever, until what was pushed is seen and has fired. Called without the lock."""

    def drop_unread(self, streams: Collection[str]) -> None:
        """Drop those of some streams that queries make, that no query makes any more and none reads. Called without the
        lock, when a query was closed."""

    def replace_query(self, name: str, text: str, base: str | None, output: Output | None) -> None:
        """Give a query another text, as ContinuousQuery.replace. Called without the lock."""

    def pause_query(self, name: str, is_paused: bool) -> None:
        """Pause a query, or let it go on. Called without the lock."""

    def change_arguments(
        self, name: str, terms: pyarrow.Table | None, change: Callable[[], tuple[str, Int64Array]]
    ) -> Int64Array:
        """Bind or unbind arguments of a live view that stands here; return what `change` does. terms: those that it
        names; change: returns the text of the change, and the numbers. It is called with the lock held, each time when
        the view is what the log says, until no other change comes first. Called without the lock."""


class Observer(Protocol):
    """Follows the stored graph. Called with the lock held."""

    def wake(self) -> None:
        """Note that the stored graph has a newer SN."""

    def pass_time(self, time_ms: int) -> None:
        """Note that what is sealed next comes after an event time, and nothing before has come later."""

    def next_period_ms(self) -> int | None:
        """Return the event time whose snapshot it reads next; None: it reads the newest."""

    def check_query(self, query: Query) -> None:
        """Raise StreamError if by a query with windows it would read what is made of its own triples."""


class Progress(Protocol):
    """Says what each stream has closed, and up to where the stored graph is exposed. These are two things: a stream may
    be ahead of the clock. Called with the lock held."""

    stands_ms: int | None
    """The event time at which the clock of an engine's own stored graph stands; None: it has none, or the protocol has
    it."""

    def moved(self, core: Core) -> None:
        """Note that a stream has begun, come further, ended or gone."""

    def clock_ms(self, core: Core) -> int | None:
        """Return the event time that the clock of the stored graph has passed: FOREVER_MS if all streams that it waits
        for have ended, None if none has begun."""

    def settled_clock_ms(self, core: Core) -> int | None:
        """Return what clock_ms will be once all that is closed has been read. Threads that lag do not change it."""

    def exposed_ms(self) -> int:
        """Return the event time up to which reads may come. The last firing of streams that have ended may be later."""

    def closed_ms(self, core: Core) -> Mapping[str, int | None]:
        """Return up to where each stream is closed that has begun and not ended, by its IRI. None: it has closed
        nothing."""

    def is_behind(self, core: Core) -> bool:
        """Whether stream batches that are closed still have to join the stored graph by records, made by `go_on`."""

    def before_firings(self, core: Core, at_ms: int) -> None:
        """Prepare for firings at a time, up to which everything is sealed. They pick their batches next."""

    def go_on(self, core: Core) -> bool:
        """Come to what is exposed next, when everything before is sealed and has fired. Return whether there is such a
        thing."""


class OwnProgress:
    """The Progress of an engine whose streams say themselves how far they are.

    The clock is the smallest `cover_ms` of the streams that count and have not ended. A stream counts once it has begun
    and has reached the clock, so one that begins behind it holds nothing back until it has caught up. With no stream
    open, the clock stands at the greatest end. It never falls. Where it stands depends on the order of the log only,
    since `moved` is called for each of its messages."""

    def __init__(self) -> None:
        self.stands_ms: int | None = None
        self._is_open = False
        self._cap_ms = FOREVER_MS
        """Ticks wait here for the record that brings what a stream has closed behind the clock, now that it counts."""
        self._cannot_log = False

    def moved(self, core: Core) -> None:
        self._cannot_log = False
        stands_ms, begun = self.stands_ms, self._begun(core)
        # is_idle is asked first: this is done for each message.
        idle = [one for one in core.streams.values() if one.is_idle and one.follows_others and not one.is_ended]
        if idle:
            _follow([one for one in begun if one.counts and not (one.is_ended or one.follows_others)], idle)
            begun = self._begun(core)
        running = [state for state in begun if not state.is_ended]
        covers = [state.cover_ms for state in running if state.counts and state.cover_ms is not None]
        # One that has closed nothing may still begin earlier than its first tuple so far.
        is_held = any(one.closed_ms is None and _is_at(one.first_ms, stands_ms) for one in running)
        self._is_open = is_held or bool(covers)
        if not self._is_open:
            covers = [max((one.closed_ms for one in begun if one.closed_ms is not None), default=NOT_YET_MS)]
        if not is_held and covers != [NOT_YET_MS]:
            self.stands_ms = min(covers) if stands_ms is None else max(stands_ms, min(covers))
        caps = [one.record_ms for one in begun if one.counts and one.joined_ms != FOREVER_MS]
        self._cap_ms = min(caps, default=FOREVER_MS)

    def _begun(self, core: Core) -> list[StreamState]:
        """Return the streams that have begun, after those that have reached the clock were let count."""
        own = [one for one in core.streams.values() if not one.is_made]
        begun = [one for one in own if one.is_started or one.is_ended]
        for state in begun:
            if not state.counts:
                _begin_to_count(state, self.stands_ms)
        return begun

    def clock_ms(self, core: Core) -> int | None:
        settled_ms = self.settled_clock_ms(core)
        return None if settled_ms is None else min(settled_ms, self._cap_ms)

    def settled_clock_ms(self, core: Core) -> int | None:
        """Return the clock without the stops at which it waits for records of late streams."""
        if self.stands_ms is None:
            return None
        return self.stands_ms if self._is_open else FOREVER_MS

    def exposed_ms(self) -> int:
        return FOREVER_MS if self.stands_ms is None else self.stands_ms

    def closed_ms(self, core: Core) -> Mapping[str, int | None]:
        streams = core.streams.values()
        return {state.iri: state.closed_ms for state in streams if state.is_started and not state.is_ended}

    def before_firings(self, core: Core, at_ms: int) -> None:
        pass

    def is_behind(self, core: Core) -> bool:
        is_late = any(state.joined_ms != FOREVER_MS for state in core.streams.values())
        return is_late and not self._cannot_log

    def go_on(self, core: Core) -> bool:
        """Let a stream that is behind the clock join the stored graph, as far as it is closed. One record brings all
        that has come meanwhile. The replay of a log takes the records from there."""
        if core.replayed_to is not None or not self.is_behind(core):
            return False
        state = next(one for one in core.streams.values() if one.joined_ms != FOREVER_MS)
        to, sn = state.record_to, core.next_sn  # messages that wait for their records may bring more meanwhile
        assert to is not None, state.iri
        try:
            core.journal.commit({"op": "join", "stream": state.iri, "to": to, "sn": sn})
        except StorageError as error:
            self._cannot_log = True
            log.warning("stream %s is behind, and does not join the stored graph yet: %s", state.iri, error)
            return False
        core.join(state, to, sn)
        self.moved(core)
        return True


def _follow(leading: Collection[StreamState], idle: Collection[StreamState]) -> None:
    """Close idle streams as far as the slowest of the others (wukongs.live.idleness)."""
    closed = [state.closed_ms for state in leading if state.closed_ms is not None]
    if closed:
        for state in idle:
            state.close_idle(min(closed))


def _begin_to_count(state: StreamState, clock_ms: int | None) -> None:
    """Let a stream that has begun count if it has reached the clock; else note what is to join by records."""
    if state.cover_ms is None:
        return
    if _is_at(state.cover_ms, clock_ms):
        state.counts = True
        state.record_to = None if clock_ms is None else clock_ms // state.batch_ms
    elif state.closed_ms is not None:
        state.record_to = state.closed_ms // state.batch_ms


def _is_at(time_ms: int | None, clock_ms: int | None) -> bool:
    return clock_ms is None or (time_ms is not None and time_ms >= clock_ms)


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
        self.now_s: Callable[[], float] = time.monotonic
        """The clock of the machine; event time does not hang on it but for streams with an idle_timeout_ms."""
        self.wall_ms: Callable[[], int] = wall_clock_ms
        """Its wall clock, in ms since 1970; event time does not hang on it but for streams with an idle_advance."""
        self.progress: Progress = progress or OwnProgress()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.registry = TermRegistry(settings.hash_bits) if registry is None else registry
        self.default_graph = int(self.registry.reserve([iri(DEFAULT_GRAPH_IRI).text])[0][0])
        known = self.registry
        self.inference = Inference(
            known, lambda: QueryTerms(known, known.snapshot_reader()), self.default_graph, settings
        )
        self.arrangement = Arrangement("stored graph", self.inference)
        self.windows = EngineWindows(self.arrangement)
        self.answers = AnswerCache(self.arrangement.trace)
        self.merger = Merger(self.lock, self.arrangement.trace, self.windows.tidy_now)
        self.replayed_to: int | None = None
        """The snapshot number that a replay of the log has come to; None: there is no replay.

        The trace of the checkpoint holds more already. Whatever the replay seals below the trace's `upper` is there."""
        self.journal = journal
        self.reserved = {iri(DEFAULT_GRAPH_IRI): self.default_graph}
        """Constants of every query, with their ids."""
        self.streams: dict[str, StreamState] = {}
        self.event_times: EventTimes | None = None
        """Those of the triples of streams with retractions="event_time"; None: there was no such stream."""
        self.sealed_ms: int | None = None
        self.open_ms: int | None = None
        """The time of firings that may have been reported before the tuples that join the stored graph then, as they
        match none of them. None: there are none."""
        self.late_sn = -1
        """The newest SN under which tuples of a stream that was late were sealed: it is not that of their time."""
        self._held: Handle | None = None
        self.is_closed = False
        self.failure: BaseException | None = None
        self.update_turn = threading.Lock()
        """Held by the update that is under way: they are serial. Taken before `lock`."""
        self.load_count = 0
        """Loads and updates that have begun: their numbers."""
        self.updated = UpdateCounts()
        self.outcomes = Outcomes()
        """The results of the changes that clients have numbered."""
        self._outcome_count = 0
        self.budget = budget_of(settings.memory_bytes_max)
        self.unread = UnreadBudget(settings.results_bytes_max, Reservation(self.budget, Kind.WINDOWS))
        self.query_count = 0
        self.running = RunningQueries()
        self.malformed_count = 0
        self.observer: Observer | None = None
        """The live views."""
        self.paths = PathIndexes()
        """The indexes of paths that are kept."""
        self.query_log: QueryLog | None = None
        """The log of a cluster, which decides on the changes of queries; None: they are decided here."""
        self.reach: Reach | None = None
        """The way of a cluster's node to the whole graph; None: this core holds the graph whole."""
        note_owner(self)

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

    def note_outcome(self, by: Asked | None, found: Found) -> None:
        """Note, in the order of the log, what has come of a client's change; nothing for one that no client has
        numbered. Called with the lock held."""
        if by is not None:
            self._outcome_count += 1
            self.outcomes = self.outcomes.noted(by, found, self._outcome_count)

    def restore_outcomes(self, outcomes: Outcomes) -> None:
        """Go on from the outcomes of a log before. Called with the lock held."""
        self.outcomes = outcomes
        self._outcome_count = max((client.last for client in outcomes.clients.values()), default=0)

    @contextmanager
    def storing(self, sn: int) -> Iterator[None]:
        """Store a change that the log has under an SN. If that fails, the next change gets another SN: of two with one,
        recovery would take the second for stored. Called with the lock held."""
        try:
            yield
        except BaseException:
            self.pass_to(sn + 1)
            raise
        if self.observer is not None:
            self.observer.wake()

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
        if isinstance(self.failure, NodeUnavailable | ForkError):
            return type(self.failure)(str(self.failure))
        return WukongsError(f"the engine has stopped: {type(self.failure).__name__}: {self.failure}. Start a new one")

    @property
    def held_over_forks(self) -> tuple[Lock, ...]:
        """The lock of readers of windows, which wait for others than the injector."""
        return (self.unread.lock,)

    def disown(self) -> None:
        """Refuse all calls, in a forked child."""
        self.failure = self.unread.failure = fork_error(IN_USE)
        self.lock = self.changed = self.update_turn = Disowned(IN_USE)  # type: ignore[assignment]

    def check_is_own(self) -> None:
        """Raise ForkError in a forked child."""
        if self.is_disowned:
            raise self.stopped()

    @property
    def is_disowned(self) -> bool:
        """Whether this process was forked from the one that opened the engine."""
        return isinstance(self.failure, ForkError)

    def stream(self, stream_iri: str) -> StreamState:
        """Return a declared stream. Raises StreamError (unknown; names the known ones)."""
        found = self.streams.get(stream_iri)
        if found is None:
            known = ", ".join(sorted(self.declared)) or "none"
            raise StreamError(f"unknown stream {stream_iri}: declare it with Engine.stream first. Declared: {known}")
        return found

    @property
    def declared(self) -> dict[str, StreamState]:
        """The streams by their IRIs, without those that were dropped and whose tuples are still sealed."""
        return {name: state for name, state in self.streams.items() if not state.is_dropped}

    @property
    def moving(self) -> list[StreamState]:
        """The streams of which something has come: the others have neither slices nor stream batches that wait."""
        return [one for one in self.streams.values() if one.closed_ms is not None or one.last_ms is not None]

    def clock_ms(self) -> int | None:
        """Return the event time that the clock of the stored graph has passed, as Progress.clock_ms does."""
        return self.progress.clock_ms(self)

    def held_back_by(self) -> dict[str, int | None]:
        """Name the streams that hold others back, which are further: stream IRI -> the time up to which it is closed;
        None: it has closed nothing."""
        closed_ms = self.progress.closed_ms(self)
        running = {
            name: closed_ms[name] for name, one in self.declared.items() if name in closed_ms and not one.is_made
        }
        if len(set(running.values())) < 2:
            return {}
        silent: dict[str, int | None] = {name: None for name, ms in running.items() if ms is None}
        least = min((ms for ms in running.values() if ms is not None), default=None)
        return silent or {name: ms for name, ms in running.items() if ms == least}

    def next_end(self, ahead_ms: Mapping[str, int]) -> int | None:
        """Return the earliest end of a closed stream batch that may become a slice or join the stored graph now. None:
        there is none.

        ahead_ms: per stream, the time up to which slices are needed although the clock has not passed it."""
        clock_ms = self.clock_ms()
        ends = []
        for state in self.moving:
            number = state.next_slice()
            if number is not None and number * state.batch_ms <= self._slices_to(state, clock_ms, ahead_ms):
                ends.append(number * state.batch_ms)
            if (number := self._joins_next(state, clock_ms)) is not None:
                ends.append(self._tick_end(number * state.batch_ms))
        return min(ends, default=None)

    def _joins_next(self, state: StreamState, clock_ms: int | None) -> int | None:
        """Return the stream batch of a stream that joins the stored graph next, if the clock has passed the tick by
        which it does; None: there is none. clock_ms: see clock_ms(), asked once for all streams."""
        number = state.next_join()
        if number is None or clock_ms is None or self._tick_end(number * state.batch_ms) > clock_ms:
            return None
        return None if state.record_to is not None and number <= state.record_to else number

    def _tick_end(self, end_ms: int) -> int:
        """Return when stream batches that end at a time join the stored graph: with coarse ticks at the next one; at
        the latest when all streams have ended."""
        tick_ms = self.settings.tick_ms
        if not tick_ms:
            return end_ms
        tick_end_ms = -(-end_ms // tick_ms) * tick_ms
        is_over = self.clock_ms() == FOREVER_MS
        return max(end_ms, min(tick_end_ms, self.progress.exposed_ms())) if is_over else tick_end_ms

    def joined_to_ms(self, sn: int) -> int | None:
        """Return the end of the stream batches up to which all have joined the stored graph by an SN, but for those of
        streams that were late then. None: none has."""
        time_ms, tick_ms = tick_of(sn), self.settings.tick_ms
        return time_ms if time_ms is None or not tick_ms else time_ms // tick_ms * tick_ms

    def slice(self, end_ms: int, ahead_ms: Mapping[str, int]) -> None:
        """Make slices of the stream batches of all streams that end at end_ms. ahead_ms: as for next_end."""
        clock_ms = self.clock_ms()
        for state in self.moving:
            number = state.next_slice()
            if number is not None and number * state.batch_ms == end_ms <= self._slices_to(state, clock_ms, ahead_ms):
                state.make_slice(number)

    def seal(self, end_ms: int, to_ms: int | None = None) -> None:
        """Let the timeless tuples of the stream batches that end at end_ms join the stored graph, if the clock has
        passed that time.

        to_ms: nobody reads the stored graph as of a time before it. Then up to SEALED_TOGETHER more tuples of later
        stream batches join in the same batch, as if it had been merged of theirs."""
        if self.observer is not None:
            self.observer.pass_time(end_ms - 1)
        clock_ms, first_ms, timeless, count = self.clock_ms(), end_ms, list[Timeless](), 0
        moving = self.moving
        while True:
            for state in moving:
                while (number := self._joins_next(state, clock_ms)) is not None:
                    if self._tick_end(number * state.batch_ms) != end_ms:
                        break
                    if (part := state.take_timeless(number)) is not None:
                        timeless.append(part)
                        count += len(part.times)
            next_ms = None if to_ms is None or count > SEALED_TOGETHER else self._next_tick_end()
            if next_ms is None or to_ms is None or next_ms > to_ms:
                break
            end_ms = next_ms
        self._absorb(self.sn_of(end_ms), timeless, self.sn_of(first_ms))
        if clock_ms is not None and end_ms <= clock_ms:
            self.move_to(end_ms)
        self.open_ms = None

    def _next_tick_end(self) -> int | None:
        clock_ms = self.clock_ms()
        ends = ((state, self._joins_next(state, clock_ms)) for state in self.moving)
        return min((self._tick_end(n * state.batch_ms) for state, n in ends if n is not None), default=None)

    def joining_predicates(self, end_ms: int) -> frozenset[int]:
        """Return the predicates of the tuples that `seal` is going to let join the stored graph at a time."""
        found, clock_ms = frozenset[int](), self.clock_ms()
        for state in self.moving:
            if self._joins_next(state, clock_ms) is not None:
                found = found.union(*state.joining_predicates(end_ms // state.batch_ms))
        return found

    def finish_tick(self) -> None:
        """Let join the stored graph what firings that were reported come after. For whoever reads the newest snapshot:
        it holds all that has come by the time of these. Called with the lock held."""
        if self.open_ms is not None and self.failure is None and not self.is_closed:
            self.seal(self.open_ms)

    def _slices_to(self, state: StreamState, clock_ms: int | None, ahead_ms: Mapping[str, int]) -> int:
        """Return the time up to which slices of a stream are made: what is ahead of all readers waits as it came."""
        joined_ms = state.joined_ms
        to_ms = NOT_YET_MS if clock_ms is None or joined_ms is None else min(clock_ms, joined_ms)
        return max(to_ms, ahead_ms.get(state.iri, to_ms))

    def join(self, state: StreamState, to: int, sn: int) -> None:
        """Let the stream batches of a stream up to number `to`, which the clock has passed, join the stored graph at a
        new snapshot number."""
        found = []
        while (number := state.next_join()) is not None and number <= to:
            if (part := state.take_timeless(number)) is not None:
                found.append(part)
        self._join(state, to, sn, found)

    def join_nothing(self, state: StreamState, to: int, sn: int) -> None:
        """Note that a stream has nothing up to number `to`, at a new snapshot number. Tuples that are there by
        now join with the next tick."""
        self._join(state, to, sn, [])

    def _join(self, state: StreamState, to: int, sn: int, found: list[Timeless]) -> None:
        state.joins.append((to, sn))
        if found:
            self.late_sn = max(sn, self.late_sn)
        clock_ms = self._clock_at(sn)
        self._absorb(sn, [part if part.clock_ms is None else replace(part, clock_ms=clock_ms) for part in found])
        self.pass_to(sn + 1)
        self._hold(sn)

    def sn_of(self, end_ms: int) -> int:
        """Return the snapshot number under which stream batches that end at a time are sealed now."""
        return max(tick_sn(end_ms), self.upper)

    def sn_at(self, time_ms: int, states: Collection[StreamState] = ()) -> int:
        """Return the snapshot number that a firing at a time reads. states: the streams of its windows.

        That is the number of the time, or of the record that brought the last stream batch up to then of one of the
        streams. The last firing of streams that have ended may come after all that is exposed: it reads the newest."""
        return min(self.sn_due(time_ms, states), self.upper - 1)

    def sn_due(self, time_ms: int, states: Collection[StreamState] = ()) -> int:
        """Return the snapshot number that a firing at a time reads once everything up to then is sealed. states: as for
        sn_at."""
        if time_ms > self.progress.exposed_ms():
            return self.upper - 1
        return max(tick_sn(time_ms), *(state.joined_at(time_ms) for state in states), -1)

    def prepare_ahead(self) -> bool:
        """Do some of the next tick's work for a stream, before its stream batch is closed. Return whether there was
        any."""
        return any(state.prepare_ahead() for state in self.moving)

    def merge(self, fuel: int) -> bool:
        """Go on with merges that seals have left: each merge of the stored graph by at most `fuel` values, and the
        blocks of each stream. Return whether there is more to do.

        Nothing waits for it. The seal of the next stream batch pays for the rest."""
        is_more = self.arrangement.trace.pay(fuel)
        for state in self.moving:
            is_more |= state.ring.work(fuel)
        return is_more

    def merge_further(self, fuel: int) -> bool:
        """Merge batches of the stored graph that no seal has to pay for, so that later reads ask fewer of them."""
        return self.arrangement.trace.merge_further(fuel)

    def move_to(self, time_ms: int) -> None:
        """Note that everything up to a time is sealed, and so in the stored graph, as far as that is exposed."""
        time_ms = min(time_ms, self.progress.exposed_ms())
        if self.sealed_ms is None or time_ms > self.sealed_ms:
            self.sealed_ms = time_ms
            self.pass_to(tick_sn(time_ms) + 1)
            # All firings at this time read one snapshot, also those that come after a load.
            self._hold(tick_sn(time_ms))
            if self.observer is not None:
                self.observer.pass_time(time_ms)
            if self.event_times is not None:
                history_ms, kept_ms = self._entries_kept_ms()
                self.event_times.forget(time_ms - kept_ms, history_ms // 8 + 1)

    def _hold(self, sn: int) -> None:
        """Keep a snapshot for the firings that come next, in place of the one before."""
        opened = self.arrangement.open(self.arrangement.trace.readable_from(sn), "the firings", expires=False)
        held, self._held = self._held, opened
        if held is not None:
            held.close()

    def _absorb(self, sn: int, timeless: Sequence[Timeless], first_sn: int | None = None) -> None:
        """Seal timeless tuples under a snapshot number. first_sn: that of the first of them, if it is another."""
        if not timeless:
            return
        self.revoke_old_handles()
        is_stored = self.replayed_to is not None and sn < self.arrangement.trace.upper
        if self.event_times is not None:
            gone, come = self._settled_by_event_time(timeless, self.event_times)
        elif not is_stored:
            gone, come = settled(timeless)
        if not is_stored:
            self.arrangement.absorb(sn, *come, gone=gone, first_sn=first_sn)
        self.pass_to(sn + 1)
        self.note_pauses()

    def _settled_by_event_time(self, timeless: Sequence[Timeless], entries: EventTimes) -> tuple[Quads, Quads]:
        """Return the quads that go and those that come; count what has changed nothing."""
        gone, come, told = settled_by_event_time(timeless, entries, self._entries_kept_ms()[0])
        for name, late in told.items():
            if name in self.streams:
                self.streams[name].count_late_signs(late)
        return gone, come

    def _entries_kept_ms(self) -> tuple[int, int]:
        """Return how far behind the clock a tuple may be that still counts, and how far an entry may be that one of
        those can meet: a stream batch joins behind the clock of its beginning."""
        streams = [state for state in self.streams.values() if state.event_times is not None]
        history_ms = max((state.history_ms for state in streams), default=0)
        return history_ms, history_ms + max((state.batch_ms for state in streams), default=0)

    def take_in(self, state: StreamState) -> None:
        """Add a stream that is declared now. Called with the lock held.

        With a longer history_ms than before, tuples count that did not count before. So all entries are forgotten that
        could be by now: which ones were forgotten already hangs on how many stream batches were sealed together."""
        if state.event_times is not None:
            state.event_times.forget_now(self._clock_at(self.upper - 1) - self._entries_kept_ms()[1])
        self.streams[state.iri] = state

    def erase_event_times(self, quads: Quads, graphs: Iterable[int] = ()) -> None:
        """Note that a load or an update has changed triples, or emptied graphs: it has no event time."""
        if self.event_times is not None:
            self.event_times.erase_graphs(list(graphs))
            self.event_times.erase(quads)

    def note_pauses(self) -> None:
        """Log the rules that were paused by the change before, or by a replay before it. Called with the lock held."""
        if not self.inference.is_changed or self.replayed_to is not None:
            return
        sn = self.next_sn
        try:
            self.journal.commit(self.inference.ruleset.as_record(sn))
        except StorageError as error:
            log.warning("that a rule is paused could not be logged: %s", error)
            return
        self.inference.is_changed = False
        self.pass_to(sn + 1)

    def pass_to(self, upper: int) -> None:
        """Note that everything below a snapshot number is sealed."""
        self.arrangement.trace.advance(upper)
        if self.observer is not None:
            self.observer.wake()
        if self.replayed_to is not None:
            self.replayed_to = max(self.replayed_to, upper)

    def absorb_late(
        self, stream_iri: str, into: int, sn: int, chunks: Sequence[Encoded], *, by_event_time: bool
    ) -> None:
        """Let late timeless tuples of a call to a stream, in the order of their arrival, join the stored graph at a new
        snapshot number. into: the graph of those without one; by_event_time: whether their signs go by it."""
        quads, goes = columns_of(chunks, into), [signs_of(late.goes, len(late)) for late in chunks]
        times: Int64Array = np.concatenate([quads[0][:0], *(late.timestamps for late in chunks)])
        part = Timeless(quads, signs(np.concatenate([NO_SIGNS, *goes])), stream_iri, 0, times, np.zeros_like(times))
        if by_event_time:
            part = replace(part, clock_ms=self._clock_at(sn), counted_ms=FOREVER_MS)
        self._absorb(sn, [part])
        self.arrangement.trace.pay()

    def _clock_at(self, sn: int) -> int:
        """Return the time that the clock of the stored graph has passed at a snapshot number."""
        time_ms = tick_of(sn)
        return TICK_MIN_MS if time_ms is None else time_ms

    def absorb(self, sn: int, chunks: Iterable[Encoded], graph: int) -> None:
        """Add the triples of a load, their terms confirmed, at a new snapshot number. graph: of triples without one."""
        self.revoke_old_handles()
        quads = columns_of(chunks, graph)
        self.erase_event_times(quads)
        self.arrangement.absorb(sn, *quads)
        self.arrangement.trace.pay()
        self.pass_to(sn + 1)
        self.note_pauses()

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
        gone, come, cleared = columns_of(deletes, graph), columns_of(inserts, graph), list(cleared)
        self.erase_event_times(joined([gone, come]), cleared)
        difference = self.arrangement.apply(sn, gone, come, cleared, read)
        self.arrangement.trace.pay()
        self.pass_to(sn + 1)
        return difference

    def revoke_old_handles(self) -> None:
        """Take the handles from readers that have kept them too long: they would hold merging back for ever."""
        self.arrangement.trace.revoke(self.settings.handle_age_max_s or math.inf)

    def drop_slices(self, state: StreamState, keep_after_ms: int) -> None:
        """Drop the slices of a stream up to a time, with the terms that only they had."""
        self.release(state.ring.drop(keep_after_ms // state.batch_ms))

    def drop_stream(self, state: StreamState) -> None:
        """Forget a stream, what waits in it and its slices."""
        del self.streams[state.iri]
        state.is_dropped = True
        self.release(state.waiting_ids())
        self.release(state.ring.forget_arrivals())
        self.drop_slices(state, 1 << 60)
        self.progress.moved(self)

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
    whole = [np.concatenate(column) for column in zip(*columns, strict=True)]
    return whole[0], whole[1], whole[2], whole[3]


def take_piece(core: Core, state: StreamState, piece: Piece) -> None:
    """Make the terms of a piece known, and queue its tuples under their stream batches. Called with the lock held.

    The stream begins with them (`StreamState.begin_with`) once they are safe, as others move on then: the replay of a
    log does both in the order of its records."""
    if len(piece.encoded):
        encoded, transient_ids = core.registry.confirm(piece.encoded, piece.timing)
        state.take(encoded, piece.timing, transient_ids, piece.partition, piece.numbers)
    state.ledgers[piece.partition].taken(piece)


SEALED_TOGETHER = 1 << 16
"""Stream batches with more tuples than this join the stored graph in several batches."""
STEP_ROWS = 1 << 16
"""Rows that the newness filter learns in one step under the engine's lock: some milliseconds."""
PAUSE_S = 0.0002
"""Between two such steps; enough for a thread that waits for the lock to get it."""


def expect(core: Core, batch: Batch) -> None:
    """Let the newness filter know a batch that is to be sealed. Called without the lock."""
    while True:
        with core.lock:
            if core.arrangement.expect(batch, STEP_ROWS):
                return
        time.sleep(PAUSE_S)
