"""A naive stream engine: lists of tuples, every window and every snapshot found by reading them all again.

It says, from DESIGN.md section 6, which windows a registered query reports and what the exact dataset of each is:

* stream batch k of a stream holds ((k-1) * batch_ms, k * batch_ms]; it is closed once a later timestamp or an advance
  to its end has come. A stream covers all times before the end of the next one. The stable time is the least that a
  stream covers which counts: it has had a tuple or an advance, and has reached the stable time since.
* a query fires at the multiples of its smallest STEP that its own streams cover, once all of them have started; if it
  reads stored graphs, the stable time covers it, too. Each window is (t' - range, t'] at its own latest closing
  t' <= t; the stored graphs are those of the snapshot of t: the timeless tuples of stream batches that end at or before
  t, and the loads committed while the stable time was below t. Streams that are late are not told of here: see
  event_time.py.

* a window that counts triples holds, at t, the last n of the arrivals up to the newest one whose number is a multiple
  of its step, of the stream batches that end at or before t; what came before a query counted is lost. A query that has
  such windows only fires at the end of each stream batch in which that newest one changes.

Where the specification leaves the first firing open (the stable time has passed what a query would read first), `first`
is a range: windows from its end on must come, those inside may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.oracles.rdf import Term, Triple
from tests.oracles.sparql_oracle import Dataset

NOWHERE = -(10**15)
DEFAULT_GRAPH_IRI = "urn:x-wukongs:default"
Tuple = tuple[Triple, int]
Graphs = dict[Term | None, set[Triple]]
"""Stored graphs by their names; the default graph under None."""


@dataclass(frozen=True)
class Window:
    """FROM [NAMED] STREAM <stream> [RANGE range_ms STEP step_ms], or FROM [NAMED] WINDOW <own_name> ON <stream>; with
    `counted` these many triples."""

    stream: str
    range_ms: int
    step_ms: int
    named: bool = False
    counted: bool = False
    own_name: str = ""

    @property
    def name(self) -> str:
        return self.own_name or self.stream

    def text(self) -> str:
        if self.counted:
            step = f" STEP {self.step_ms}" if self.step_ms > 1 else ""
            return f"FROM {'NAMED ' if self.named else ''}STREAM <{self.stream}> [RANGE TRIPLES {self.range_ms}{step}]"
        size = "TUMBLING" if self.range_ms == self.step_ms and not self.named else f"STEP {self.step_ms}ms"
        if self.own_name:
            seconds = f"PT{self.range_ms // 1000}.{self.range_ms % 1000:03}S"
            on = f"WINDOW <{self.own_name}> ON <{self.stream}>"
            return f"FROM {'NAMED ' if self.named else ''}{on} [RANGE {seconds} {size}]"
        return f"FROM {'NAMED ' if self.named else ''}STREAM <{self.stream}> [RANGE {self.range_ms}ms {size}]"


@dataclass(frozen=True)
class DatasetClause:
    """The dataset of a query. A graph of None is the stored default graph. No entry at all: no dataset clause."""

    graphs: tuple[Term | None, ...] = ()
    named_graphs: tuple[Term, ...] = ()
    windows: tuple[Window, ...] = ()

    def text(self) -> str:
        lines = [f"FROM <{graph.value if graph else DEFAULT_GRAPH_IRI}>" for graph in self.graphs]
        lines += [f"FROM NAMED <{graph.value}>" for graph in self.named_graphs]
        return "\n".join(lines + [window.text() for window in self.windows])


def reads_stored(clause: DatasetClause) -> bool:
    return bool(clause.graphs or clause.named_graphs) or all(window.named for window in clause.windows)


def exact_dataset(clause: DatasetClause, stored: Graphs, held: Callable[[Window], set[Triple]]) -> Dataset:
    """The dataset that a clause names. held: the triples of each of its windows."""
    if clause == DatasetClause():
        named = {name: graph for name, graph in stored.items() if name is not None and graph}
        return Dataset(set(stored.get(None, set())), named)
    dataset = Dataset()
    graphs = clause.graphs
    if not graphs and not clause.named_graphs and clause.windows and all(each.named for each in clause.windows):
        graphs = (None,)  # windows that are NAMED alone leave the default graph as it is without a clause
    for graph in graphs:
        dataset.default |= stored.get(graph, set())
    for name in clause.named_graphs:
        dataset.named[name] = set(stored.get(name, set()))
    for window in clause.windows:
        if not window.named:
            dataset.default |= held(window)
    # GRAPH <s> reads the window of FROM NAMED STREAM, or, without one, that of FROM STREAM.
    for window in sorted(clause.windows, key=lambda each: each.named):
        dataset.named[Term("iri", window.name)] = held(window)
    return dataset


@dataclass
class OracleStream:
    """timing: None for no predicate, True for all, or a set of predicates."""

    iri: str
    batch_ms: int
    timing: frozenset[str] | bool = frozenset()
    into: Term | None = None
    tuples: list[Tuple] = field(default_factory=list)
    first_ms: int | None = None
    last_ms: int = NOWHERE
    closed_ms: int = NOWHERE
    is_ended: bool = False
    counts: bool = False
    counted_after: int | None = None
    """How many tuples had been sealed when the first query that counts them came."""
    kept: int = 0
    """How many arrivals are kept at least, for the queries that count them."""
    widened: list[tuple[int, int]] = field(default_factory=list)
    """Each time that a query came which reaches further back: how many were kept until then, and how many tuples had
    come."""

    def accept(self, tuples: list[Tuple]) -> None:
        """Add tuples whose timestamps do not decrease. Raises ValueError, with nothing added, where they do."""
        times = [self.last_ms, *(t for _, t in tuples)]
        if any(later < earlier for earlier, later in pairwise(times)):
            raise ValueError(f"timestamps decrease: {times}")
        for triple, t in tuples:
            self.tuples.append((triple, t))
            self._reach(t, (-(-t // self.batch_ms) - 1) * self.batch_ms)

    def advance(self, t: int) -> None:
        self._reach(t, t // self.batch_ms * self.batch_ms)

    def end(self) -> None:
        """Close the stream batch of the last tuple; nothing comes any more."""
        self.is_ended = True
        if self.tuples:
            self._reach(self.tuples[-1][1], -(-self.tuples[-1][1] // self.batch_ms) * self.batch_ms)

    def _reach(self, t: int, closed_ms: int) -> None:
        self.first_ms = t if self.first_ms is None else self.first_ms
        self.last_ms = max(self.last_ms, t)
        self.closed_ms = max(self.closed_ms, closed_ms)

    @property
    def cover_ms(self) -> int:
        return self.closed_ms if self.closed_ms == NOWHERE else self.closed_ms + self.batch_ms - 1

    def window(self, end_ms: int, range_ms: int) -> set[Triple]:
        return {triple for triple, t in self.tuples if end_ms - range_ms < t <= end_ms}

    def arrived(self, t: int) -> int:
        """How many tuples are in the stream batches that end at or before a time."""
        return sum(-(-time // self.batch_ms) * self.batch_ms <= t for _, time in self.tuples)

    def edge(self, t: int, step: int) -> int:
        return self.arrived(t) // step * step

    def last(self, t: int, count: int, step: int) -> set[Triple]:
        """The last `count` arrivals up to the edge, without those that came before anybody counted."""
        edge = self.edge(t, step)
        start = max(edge - count, self.counted_after or 0)
        return {triple for triple, _ in self.tuples[start:edge]}

    def lacks(self, t: int, count: int, step: int) -> bool:
        edge = self.edge(t, step)
        return max(edge - count, 0) < min(edge, self.counted_after or 0)

    def timeless(self, until_ms: int) -> set[Triple]:
        """The tuples that are stored, of all stream batches that end at or before a time."""
        return {
            triple
            for triple, t in self.tuples
            if -(-t // self.batch_ms) * self.batch_ms <= until_ms and not self._is_timing(triple)
        }

    def sealed_at(self, t: int) -> set[Triple]:
        """The tuples that are stored, of the stream batch that ends at a time, if one does."""
        return {
            triple
            for triple, time in self.tuples
            if -(-time // self.batch_ms) * self.batch_ms == t and not self._is_timing(triple)
        }

    def _is_timing(self, triple: Triple) -> bool:
        return self.timing if isinstance(self.timing, bool) else triple[1].value in self.timing


@dataclass
class OracleQuery:
    """bounds: for each stream that had started at registration, the time after which the first firing lies."""

    clause: DatasetClause
    bounds: list[int]
    waiting: list[str]
    every_ms: int | None = None
    doubtful: dict[str, int] = field(default_factory=dict)
    """Per stream: of so many first tuples nobody knows whether they were still held when this query came, since it
    reaches further back than those that had counted them before, or they have fired already."""

    @property
    def step_ms(self) -> int | None:
        """None if all its windows count triples, and no period is given."""
        steps = (window.step_ms for window in self.clause.windows if not window.counted)
        return self.every_ms or min(steps, default=None)


@dataclass
class StreamOracle:
    streams: dict[str, OracleStream] = field(default_factory=dict)
    loads: list[tuple[Term | None, set[Triple], int]] = field(default_factory=list)
    queries: dict[str, OracleQuery] = field(default_factory=dict)
    _stable_ms: int = NOWHERE

    def stream(self, stream: OracleStream) -> None:
        self.streams[stream.iri] = stream

    def push(self, iri: str, tuples: list[Tuple]) -> None:
        self.streams[iri].accept(tuples)

    def advance(self, iri: str, t: int) -> None:
        self.streams[iri].advance(t)

    def load(self, graph: Term | None, triples: set[Triple]) -> None:
        self.loads.append((graph, set(triples), self.stable_ms()))

    def stable_ms(self) -> int:
        """The stable time: never falls, also when a stream starts late. To be asked after each event that matters."""
        for stream in self.streams.values():
            stream.counts |= stream.first_ms is not None and stream.cover_ms >= self._stable_ms
        covers = [stream.cover_ms for stream in self.streams.values() if stream.counts]
        self._stable_ms = max(self._stable_ms, min(covers, default=NOWHERE))
        return self._stable_ms

    def register(self, name: str, clause: DatasetClause, every_ms: int | None = None) -> None:
        own = [self.streams[iri] for iri in dict.fromkeys(window.stream for window in clause.windows)]
        least = min((stream.closed_ms for stream in own if stream.first_ms is not None), default=None)
        bounds = [] if least is None else [least]
        if least is not None and reads_stored(clause):
            bounds.append(max(least, self.stable_ms()))
        for window in clause.windows:
            stream = self.streams[window.stream]
            if window.counted and stream.counted_after is None:
                # What is ahead of the stable time may be sealed already, for a query over windows alone or on a node.
                stream.counted_after = stream.arrived(min(self.stable_ms(), stream.closed_ms))
                ahead = stream.arrived(stream.closed_ms)
                stream.widened += [(0, ahead)] if ahead > stream.counted_after else []
        waiting = [stream.iri for stream in own if stream.first_ms is None]
        reaches = [(self.streams[w.stream], w.range_ms + w.step_ms - 1) for w in clause.windows if w.counted]
        doubtful: dict[str, int] = {}
        for stream, reach in reaches:
            if reach > stream.kept > 0:
                stream.widened.append((stream.kept, len(stream.tuples)))
            # Those that came later find no more than the first of them has found.
            found = [count for kept, count in stream.widened if reach > kept]
            if stream.kept:  # Those that counted before may have fired already, and drop what they do not need.
                found.append(stream.arrived(stream.closed_ms) - stream.kept)
            doubtful[stream.iri] = max([doubtful.get(stream.iri, 0), *found])
        for window in clause.windows:
            stream = self.streams[window.stream]
            stream.kept = max(stream.kept, window.range_ms if window.counted else 0)
        self.queries[name] = OracleQuery(clause, bounds, waiting, every_ms, doubtful)

    # firings

    def first(self, name: str) -> tuple[int, int] | None:
        """Earliest and latest allowed first firing; None while a stream of the query has not started."""
        query = self.queries[name]
        step = query.step_ms or 1
        candidates = [bound // step * step + step for bound in query.bounds]
        firsts = [self.streams[iri].first_ms for iri in query.waiting]
        known = [ms for ms in firsts if ms is not None]
        if len(known) < len(firsts):
            return None
        if not candidates:
            candidates.append(-(-min(known) // step) * step)
        return min(candidates), max(candidates)

    def firings(self, name: str) -> list[int]:
        """Every window end that may have been reported by now, in order; those from first()[1] on must have been."""
        bounds = self.first(name)
        step = self.queries[name].step_ms
        if bounds is None:
            return []
        if step is None:
            return [t for t in self._moves(name, is_certain=True) if bounds[0] <= t <= self.covered_ms(name)]
        return list(range(bounds[0], self.covered_ms(name) + 1, step))

    def _moves(self, name: str, is_certain: bool = False) -> list[int]:
        """The ends of stream batches at which a window of the query that counts triples moves on. is_certain: without
        those of which nobody knows whether they were sealed before anybody counted."""
        found: set[int] = set()
        for window in self.queries[name].clause.windows:
            stream = self.streams[window.stream]
            for number in {-(-time // stream.batch_ms) for _, time in stream.tuples}:
                end = number * stream.batch_ms
                if is_certain and any(kept == 0 and stream.arrived(end) <= count for kept, count in stream.widened):
                    continue
                if stream.edge(end, window.step_ms) != stream.edge(end - stream.batch_ms, window.step_ms):
                    found.add(end)
        return sorted(found)

    def covered_ms(self, name: str) -> int:
        """The time up to which the query can fire."""
        clause = self.queries[name].clause
        covered = min(self.streams[window.stream].cover_ms for window in clause.windows)
        return min(covered, self.stable_ms()) if reads_stored(clause) else covered

    def latest_ms(self, name: str) -> int:
        """The time up to which the query may have fired: one whose windows are NAMED alone waits for the stored graph
        only if a pattern stands outside of them."""
        clause = self.queries[name].clause
        if clause.graphs or clause.named_graphs:
            return self.covered_ms(name)
        return min(self.streams[window.stream].cover_ms for window in clause.windows)

    def fault_of_firings(self, name: str, ends: list[int]) -> str:
        """Why these reported window ends are wrong; '' if they are right."""
        allowed = self.firings(name)
        step = self.queries[name].step_ms
        late = self.latest_ms(name)
        if not ends:
            bounds = self.first(name)
            missing = [t for t in allowed if bounds and t >= bounds[1]]
            return f"no windows, expected {missing}" if missing else ""
        bounds = self.first(name)
        if step is None:
            must = [t for t in allowed if bounds and t >= bounds[1]]
            found = sorted(set(ends))
            may = [t for t in self._moves(name) if t <= late and bounds and t >= bounds[0]]
            is_right = found == ends and set(must) <= set(ends) <= set(may)
            return "" if is_right else f"windows {ends}, expected {must}, allowed {may}"
        if ends != list(range(ends[0], ends[-1] + 1, step)):
            return f"windows {ends} are not every multiple of {step} once"
        if bounds is None or not bounds[0] <= ends[0] <= bounds[1]:
            return f"first window {ends[0]}, expected between {bounds}"
        if ends[-1] > late or (allowed and ends[-1] < allowed[-1]):
            return f"last window {ends[-1]}, expected {allowed[-1] if allowed else None}, closed are {late}"
        return ""

    def reported(self, name: str, policies: frozenset[str]) -> list[int] | None:
        """The firings that REPORT lets through: those with a tuple in some window ("non-empty"), and those with other
        tuples in some window than the last one that was let through ("change"). None where the first firing is open."""
        bounds = self.first(name)
        if bounds is None or bounds[0] != bounds[1]:
            return None
        windows = self.queries[name].clause.windows
        last: list[list[Tuple]] = [[] for _ in windows]
        found = []
        for t in self.firings(name):
            held = [self.tuples_in(window, t) for window in windows]
            if ("change" in policies and held == last) or ("non-empty" in policies and not any(held)):
                continue
            last = held
            found.append(t)
        return found

    def tuples_in(self, window: Window, t: int) -> list[Tuple]:
        """The tuples, repeats included, in a time window as it stands at a firing."""
        end_ms = t // window.step_ms * window.step_ms
        return [each for each in self.streams[window.stream].tuples if end_ms - window.range_ms < each[1] <= end_ms]

    # datasets

    def dataset(self, name: str, end_ms: int) -> Dataset:
        """The exact dataset of one firing of a registered query."""
        return exact_dataset(self.queries[name].clause, self.stored(end_ms), lambda window: self._held(window, end_ms))

    def one_shot(self, clause: DatasetClause) -> Dataset:
        """The exact dataset of a one-shot query now."""
        return exact_dataset(clause, self.stored(self.stable_ms(), newest=True), lambda window: set())

    def stored(self, t: int, newest: bool = False) -> Graphs:
        """The stored graphs at the snapshot of t; newest: with all loads so far."""
        graphs: Graphs = {}
        for graph, triples, stable_ms in self.loads:
            if newest or stable_ms < t:
                graphs.setdefault(graph, set()).update(triples)
        for stream in self.streams.values():
            graphs.setdefault(stream.into, set()).update(stream.timeless(min(t, stream.closed_ms) if newest else t))
        return graphs

    def _held(self, window: Window, t: int) -> set[Triple]:
        stream = self.streams[window.stream]
        if window.counted:
            return stream.last(t, window.range_ms, window.step_ms)
        return stream.window(t // window.step_ms * window.step_ms, window.range_ms)

    def is_partial(self, name: str, t: int) -> bool | None:
        """Whether a window of this firing lacks arrivals that came before anybody counted them; None: it may."""
        if any(stream.lacks(t, w.range_ms, w.step_ms) for stream, w in self._counted(name)):
            return True
        return None if self.is_in_doubt(name, t) else False

    def is_in_doubt(self, name: str, t: int) -> bool:
        """Whether a window of this firing reaches back to arrivals of which nobody knows whether they were still held,
        or came before anybody counted."""
        doubtful = self.queries[name].doubtful
        starts = [(stream.iri, stream.edge(t, w.step_ms) - w.range_ms) for stream, w in self._counted(name)]
        return any(start < doubtful.get(iri, -1) for iri, start in starts)

    def _counted(self, name: str) -> list[tuple[OracleStream, Window]]:
        return [(self.streams[w.stream], w) for w in self.queries[name].clause.windows if w.counted]
