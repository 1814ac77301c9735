"""A naive engine that is told the order of the log: streams, loads, updates and queries, one operation after the other.

It says, from DESIGN.md section 6, at which times each query fires and what each firing reads. Nothing is kept up to
date: windows are found by reading all tuples again, and a snapshot by doing again, in order, all that it has.

* cover(S) = closed(S) + batch_ms(S) - 1. S has closed its latest stream-batch end <= t exactly if t <= cover(S).
* S counts for the clock once it has begun and its cover has reached the clock, until it ends. The clock is the least
  cover of the streams that count; with none of them open, the greatest end of all that have ended. It never falls.
* A snapshot number is (event time, minor). Tick t is (t, 0); a load or update is (clock, its place in the log).
* A stream batch that ends at e joins the stored graph at tick e. If the clock had passed e when it closed, it joins at
  the number of the operation that closed it.
* A firing at t that reads stored graphs reads the largest of these numbers: tick t; and for each of its streams, the
  one at which its last stream batch <= t has joined, or at which it began, if the clock had passed t by then.

In three places there is more than one answer:

* An operation may close several stream batches of a late stream. They join by one record or by several. A firing reads
  the record of its own last stream batch, and may or may not see the later ones: `Firing.readings` has each cut.
* A query may fire at times that its streams had covered when it was registered, if one of them has longer stream
  batches than another. What it would read need not be held: it may also read the snapshot of its registration.
* `Firing.is_open` marks firings of which the rules do not say whether they come: see `register`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.oracles.rdf import Term, Triple
from tests.oracles.sparql_oracle import Dataset
from tests.oracles.stream_oracle import (
    NOWHERE,
    DatasetClause,
    Graphs,
    OracleStream,
    Tuple,
    Window,
    exact_dataset,
)

Quad = tuple[Term | None, Triple]


class SN(NamedTuple):
    """minor: 0 for the tick, else the place of an operation in the log, counted from 1. part: within an operation that
    closes several stream batches of a late stream, the end of each; the least one is the beginning of the stream."""

    time_ms: int
    minor: int = 0
    part: int = NOWHERE


END_OF_OPERATION = -NOWHERE


@dataclass
class Standing:
    """How a stream stands."""

    stream: OracleStream
    counts: bool = False
    begun: tuple[SN, int] | None = None
    """The record of its beginning, or of its end if it never began, if there was a clock by then; all that ended at or
    before this time joined there."""
    late: dict[int, SN] = field(default_factory=dict)
    """The ends of stream batches that closed when the clock had passed them."""
    ended: tuple[SN, int] | None = None
    """The record of its end, if it was late then; it stands for all that would have ended at or before this time."""

    @property
    def is_begun(self) -> bool:
        return self.stream.first_ms is not None

    @property
    def is_open(self) -> bool:
        return self.is_begun and not self.stream.is_ended

    @property
    def is_late(self) -> bool:
        return self.is_open and not self.counts

    @property
    def cover_ms(self) -> int:
        return self.stream.closed_ms + self.stream.batch_ms - 1

    def joined(self, t: int) -> SN:
        """The number at which the last stream batch that ends at or before t has joined. After its end a stream has no
        other than those that had closed by then; if it was late, the record of its end stands for them."""
        end_ms = t // self.stream.batch_ms * self.stream.batch_ms
        if self.ended is not None and self.stream.closed_ms < end_ms <= self.ended[1]:
            return self.ended[0]
        end_ms = min(end_ms, self.stream.closed_ms)
        if end_ms in self.late:
            return self.late[end_ms]
        if self.begun is not None and end_ms <= self.begun[1]:
            return self.begun[0]
        return SN(t)


class Firing(NamedTuple):
    """One firing at t: the interval of each window by its name, and the datasets that it may have read, the first of
    them as the rules say. is_open: the rules do not say whether it comes."""

    t: int
    windows: dict[str, tuple[int, int]]
    readings: list[Dataset]
    is_open: bool


@dataclass
class OracleQuery:
    """from_ms: firings come after it; None: no stream of the query had begun at its registration.
    surely_ms: those after it must come. registered: the number of its registration. reads_default: some pattern reads
    the default graph."""

    clause: DatasetClause
    step_ms: int
    from_ms: int | None
    surely_ms: int
    registered: SN
    reads_default: bool
    firings: list[Firing] = field(default_factory=list)
    last_ms: int = NOWHERE
    """The last firing that was due, reported or not."""
    is_paused: bool = False

    @property
    def reads_stored(self) -> bool:
        clause = self.clause
        if clause.graphs or clause.named_graphs:
            return True
        return self.reads_default and all(window.named for window in clause.windows)


@dataclass
class EventTime:
    """Each method is one operation of the log, in its order."""

    standings: dict[str, Standing] = field(default_factory=dict)
    queries: dict[str, OracleQuery] = field(default_factory=dict)
    clock_ms: int | None = None
    changes: list[tuple[SN, set[Quad], set[Quad]]] = field(default_factory=list)
    """What loads and updates took away and brought, each by the number that it has."""
    operations: int = 0

    # --- operations ---------------------------------------------------------------------------------------------------

    def declare(self, stream: OracleStream) -> None:
        self.standings[stream.iri] = Standing(stream)

    def push(self, iri: str, tuples: list[Tuple]) -> None:
        self._move(iri, lambda stream: stream.accept(tuples))

    def advance(self, iri: str, t: int) -> None:
        self._move(iri, lambda stream: stream.advance(t))

    def end(self, iri: str) -> None:
        self._move(iri, lambda stream: stream.end())

    def load(self, graph: Term | None, triples: set[Triple]) -> None:
        self.update(set(), {(graph, triple) for triple in triples})

    def update(self, deletes: set[Quad], inserts: set[Quad]) -> None:
        self.operations += 1
        sn = SN(NOWHERE if self.clock_ms is None else self.clock_ms, self.operations)
        self.changes.append((sn, deletes, inserts))

    def register(
        self, name: str, clause: DatasetClause, every_ms: int | None = None, *, reads_default: bool = True
    ) -> None:
        """Streams that have ended count with their end in the rule of the first firing. It may also be read so that
        an ended stream has closed every later time. A query that reads stored graphs may find gone what the clock has
        passed, and what its late streams had covered. Firings in between are open."""
        self.operations += 1
        step_ms = every_ms or min(window.step_ms for window in clause.windows)
        query = self.queries[name] = OracleQuery(clause, step_ms, None, NOWHERE, self._now(), reads_default)
        query.from_ms, query.surely_ms = self._from(query)
        self._fire()

    def close(self, name: str) -> list[Firing]:
        """End a query; return what it has fired."""
        self.operations += 1
        return self.queries.pop(name).firings

    def pause(self, name: str) -> None:
        self.operations += 1
        self.queries[name].is_paused = True

    def resume(self, name: str) -> None:
        """Firings that were due while the query was paused are skipped, later ones come."""
        self.operations += 1
        self.queries[name].is_paused = False

    # --- the clock ----------------------------------------------------------------------------------------------------

    def _move(self, iri: str, change: Callable[[OracleStream], None]) -> None:
        self.operations += 1
        standing, clock_ms = self.standings[iri], self.clock_ms
        stream, was_begun, closed_ms = standing.stream, standing.is_begun, standing.stream.closed_ms
        was_late = standing.is_late
        change(stream)
        if was_late and stream.is_ended and clock_ms is not None:
            standing.ended = SN(clock_ms, self.operations), clock_ms
        if not standing.is_begun and clock_ms is not None:
            standing.begun = SN(clock_ms, self.operations), clock_ms
        elif standing.is_begun:
            standing.counts |= clock_ms is None or standing.cover_ms >= clock_ms
            if clock_ms is not None:
                if not was_begun:
                    standing.begun = SN(clock_ms, self.operations), clock_ms if standing.counts else stream.closed_ms
                first_ms = max(closed_ms, -stream.batch_ms) + stream.batch_ms
                for end_ms in range(first_ms, min(stream.closed_ms, clock_ms) + 1, stream.batch_ms):
                    standing.late[end_ms] = SN(clock_ms, self.operations, end_ms)
        self._tick()
        self._fire()

    def _tick(self) -> None:
        covers = [each.cover_ms for each in self.standings.values() if each.is_open and each.counts]
        ends = [each.stream.closed_ms for each in self.standings.values() if each.is_begun and not each.is_open]
        found = min(covers) if covers else max(ends, default=None)
        if found is not None:
            self.clock_ms = found if self.clock_ms is None else max(self.clock_ms, found)

    # --- firings ------------------------------------------------------------------------------------------------------

    def own(self, query: OracleQuery) -> list[Standing]:
        return [self.standings[iri] for iri in dict.fromkeys(window.stream for window in query.clause.windows)]

    def _from(self, query: OracleQuery) -> tuple[int | None, int]:
        """The event time from which a query counts, and the one from which it does in each reading."""
        begun = [each for each in self.own(query) if each.is_begun]
        if not begun:
            return None, NOWHERE
        closed = [each.stream.closed_ms for each in begun]
        running = [each.stream.closed_ms for each in begun if each.is_open]
        surely_ms = min(running) if running else max(closed)
        if query.reads_stored and self.clock_ms is not None:
            surely_ms = max(surely_ms, min([self.clock_ms, *(each.cover_ms for each in begun if each.is_late)]))
        return min(closed), surely_ms

    def first_ms(self, query: OracleQuery) -> int | None:
        """The first firing of a query; None while that cannot be told."""
        step = query.step_ms
        if query.from_ms is not None:
            return (query.from_ms // step + 1) * step
        own = self.own(query)
        begun = [each.stream.first_ms for each in own if each.stream.first_ms is not None]
        if not begun or not all(each.is_begun or each.stream.is_ended for each in own):
            return None
        return -(-min(begun) // step) * step

    def is_due(self, query: OracleQuery, t: int) -> bool:
        own = self.own(query)
        if not all(each.is_begun or each.stream.is_ended for each in own):
            return False
        if not all(t <= each.cover_ms for each in own if each.is_open):
            return False
        if not any(each.is_open for each in own):
            ends = [each.stream.closed_ms for each in own if each.is_begun]
            if not ends or t > -(-max(ends) // query.step_ms) * query.step_ms:
                return False
        if not query.reads_stored or not any(each.is_open and each.counts for each in self.standings.values()):
            return True
        return self.clock_ms is not None and t <= self.clock_ms

    def _fire(self) -> None:
        for query in self.queries.values():
            first_ms = self.first_ms(query)
            if first_ms is None:
                continue
            t = max(first_ms, query.last_ms + query.step_ms)
            while self.is_due(query, t):
                if not query.is_paused:
                    query.firings.append(self._firing(query, t))
                query.last_ms = t
                t += query.step_ms

    def _firing(self, query: OracleQuery, t: int) -> Firing:
        def held(window: Window) -> set[Triple]:
            end_ms = t // window.step_ms * window.step_ms
            return self.standings[window.stream].stream.window(end_ms, window.range_ms)

        intervals = {
            window.name: ((end_ms := t // window.step_ms * window.step_ms) - window.range_ms, end_ms)
            for window in query.clause.windows
        }
        stored = [self.stored(sn) for sn in self.snapshots(query, t)] if query.reads_stored else [{}]
        readings = [exact_dataset(query.clause, graphs, held) for graphs in stored]
        distinct = [each for at, each in enumerate(readings) if each not in readings[:at]]
        return Firing(t, intervals, distinct, t <= query.surely_ms)

    # --- the stored graph ---------------------------------------------------------------------------------------------

    def snapshots(self, query: OracleQuery, t: int) -> list[SN]:
        """The numbers that a firing at t may read: the first by the rules, others as the module says."""
        sn = max([SN(t), *(each.joined(t) for each in self.own(query))])
        if not sn.minor or sn <= query.registered:
            return [sn, query.registered] if sn <= query.registered else [sn]
        parts = {one for each in self.standings.values() for one in each.late.values()}
        return [sn, *sorted(one for one in parts if one.minor == sn.minor and one > sn)]

    def newest(self) -> Graphs:
        """The stored graphs as of now."""
        return self.stored(self._now())

    def _now(self) -> SN:
        return SN(NOWHERE if self.clock_ms is None else self.clock_ms, self.operations, END_OF_OPERATION)

    def stored(self, sn: SN) -> Graphs:
        """The stored graphs at a number: all that is visible there is done again, in order."""
        steps: list[tuple[SN, set[Quad], set[Quad]]] = list(self.changes)
        for each in self.standings.values():
            stream = each.stream
            for end_ms in {-(-t // stream.batch_ms) * stream.batch_ms for _, t in stream.tuples}:
                if end_ms <= stream.closed_ms:
                    brought = {(stream.into, triple) for triple in stream.sealed_at(end_ms)}
                    steps.append((each.late.get(end_ms, SN(end_ms)), set(), brought))
        quads: set[Quad] = set()
        for _, deletes, inserts in sorted((step for step in steps if step[0] <= sn), key=lambda step: step[0]):
            quads = (quads - deletes) | inserts
        graphs: Graphs = {}
        for graph, triple in quads:
            graphs.setdefault(graph, set()).add(triple)
        return graphs
