"""Random lives of streams that stand at different times, against the oracle that is given the log's order.

Streams begin late, or never, lag, fall silent, burst, repeat, leave gaps, end; their stream batches have different
lengths. Between their steps come loads, updates, queries that are registered, paused, resumed and closed, and, in a
data folder, ends of the engine. Each window has to come exactly once, with the rows of the oracle.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import wukongs
from tests import strategies as make
from tests.clusters import PATIENT, cluster
from tests.differential.scenario import (
    Advance,
    Check,
    Harness,
    Load,
    Push,
    Register,
    compare_one_shot,
    probe,
    rows_of,
    verdict_fault,
)
from tests.fuzz import fuzzed
from tests.inside import ManualClock
from tests.lives import close_and_open, crash_and_open
from tests.oracles import query_ast as ast
from tests.oracles.event_time import EventTime, Firing, Quad
from tests.oracles.rdf import Term, iri, nquad, ntriples
from tests.oracles.sparql_oracle import Row
from tests.oracles.stream_oracle import DatasetClause, OracleStream, Window, exact_dataset

SETTLE_S = 60.0
GRAPHS: list[Term | None] = [None, *make.GRAPHS]
TRIPLES = make.triples(blank=False)
GAPS = st.sampled_from([0, 0, 0, 1, 30, 99, 100, 101, 250, 250, 700])
BEGINNINGS = st.sampled_from([0, 0, 50, 100, 450, 1000, 1900, 3000, 5000])


@dataclass(frozen=True)
class End:
    stream: str


@dataclass(frozen=True)
class Update:
    deletes: frozenset[Quad]
    inserts: frozenset[Quad]


@dataclass(frozen=True)
class Close:
    name: str


@dataclass(frozen=True)
class Pause:
    name: str


@dataclass(frozen=True)
class Resume:
    name: str


@dataclass(frozen=True)
class Reopen:
    """The engine ends, or crashes, and comes back."""

    is_crash: bool


Event = Push | Advance | End | Load | Update | Register | Close | Pause | Resume | Reopen | Check


@dataclass(frozen=True)
class Life:
    """settles: after each event, whether the engine has settled before the next one, if it need not."""

    streams: list[OracleStream]
    events: list[Event]
    settles: list[bool]


# making one


@st.composite
def windows(draw: st.DrawFn, streams: list[OracleStream]) -> tuple[Window, ...]:
    """Windows over one to three streams, often all; some with names of their own."""
    count = draw(st.sampled_from([1, len(streams), len(streams)]))
    chosen = draw(st.permutations(streams))[:count]
    all_named = draw(st.integers(0, 3)) == 0
    found = []
    for stream in chosen:
        range_ms = stream.batch_ms * draw(st.sampled_from([1, 2, 3, 5, 10]))
        step_ms = stream.batch_ms * draw(st.sampled_from([1, 1, 2, 3]))
        found.append(Window(stream.iri, range_ms, step_ms, all_named or draw(st.booleans())))
        if draw(st.integers(0, 3)) == 0:
            named = all_named or draw(st.booleans())
            found.append(Window(stream.iri, stream.batch_ms, stream.batch_ms, named, own_name=f"{stream.iri}/w"))
    return tuple(found)


@st.composite
def registrations(draw: st.DrawFn, streams: list[OracleStream], name: str, reads_stored: bool) -> Register:
    """A query that shows all that its dataset holds, or a random one. A window of FROM STREAM keeps the stored default
    graph out."""
    held = draw(windows(streams))
    graphs: tuple[Term | None, ...] = ()
    named: tuple[Term, ...] = ()
    if reads_stored:
        graphs = draw(st.sampled_from([(None,), (None,), (None, make.GRAPHS[0]), (make.GRAPHS[1],), ()]))
        named = draw(st.sampled_from([(), (make.GRAPHS[0],)]))
    elif all(window.named for window in held):
        first, *others = held
        held = (Window(first.stream, first.range_ms, first.step_ms), *others)
    clause = DatasetClause(graphs, named, held)
    every_ms = draw(st.sampled_from([None, None, None, 150, 250, 700]))
    blocks = tuple(dict.fromkeys([*named, *(iri(window.name) for window in held)]))
    if draw(st.integers(0, 3)) > 0:
        return Register(name, clause, probe(blocks, any_graph=False), every_ms=every_ms)
    labels = make.Labels()
    if draw(st.booleans()):
        where = draw(make.groups(blocks, False, 2, labels))
    else:
        read = [(iri(window.name), draw(make.groups(blocks, False, 0, labels))) for window in held[:2]]
        where = ast.Group(tuple(ast.GraphPattern(block, inner) for block, inner in read))
    query = draw(make.queries(("select", "select", "grouped"), where=where))
    return Register(name, clause, query, every_ms=every_ms)


@st.composite
def lives(draw: st.DrawFn, reads_stored: bool, ends: bool = False) -> Life:
    streams = [
        OracleStream(
            f"{make.EX}stream{number}",
            draw(st.sampled_from([100, 100, 100, 200, 500, 1000])),
            draw(st.sampled_from([frozenset(), frozenset({make.PREDICATES[1].value}), True])),
            draw(st.sampled_from([None, None, make.GRAPHS[0]])),
        )
        for number in range(draw(st.sampled_from([1, 2, 2, 2, 3])))
    ]
    standing = {each.iri: OracleStream(each.iri, each.batch_ms) for each in streams}
    kinds = ["push"] * 8 + ["advance"] * 3 + ["load", "update", "check", "pause", "resume", "end", "close"]
    kinds += ["reopen", "crash"] if ends else []
    plan = draw(st.lists(st.sampled_from(kinds), min_size=8, max_size=24))
    for number in range(draw(st.integers(1, 3))):
        plan.insert(draw(st.integers(0, len(plan) // 2)), f"q{number}")
    running: dict[str, bool] = {}
    events: list[Event] = []
    for kind in plan:
        match kind:
            case "push" | "advance" | "end":
                events += draw(_moves(standing, kind))
            case "load":
                events.append(Load(draw(st.sampled_from(GRAPHS)), frozenset(draw(st.sets(TRIPLES, max_size=4)))))
            case "update":
                quads = st.frozensets(st.tuples(st.sampled_from(GRAPHS), TRIPLES), max_size=4)
                events.append(Update(draw(quads), draw(quads)))
            case "check":
                events.append(Check())
            case "reopen" | "crash":
                events.append(Reopen(kind == "crash"))
            case "pause" | "resume" | "close":
                fitting = [name for name, is_paused in running.items() if is_paused == (kind == "resume")]
                if not fitting:
                    continue
                name = draw(st.sampled_from(fitting))
                if kind == "close":
                    del running[name]
                    events.append(Close(name))
                else:
                    running[name] = kind == "pause"
                    events.append(Pause(name) if kind == "pause" else Resume(name))
            case name:
                running[name] = False
                events.append(draw(registrations(streams, name, reads_stored)))
    events += draw(_last_moves(standing))
    settles = draw(st.lists(st.booleans(), min_size=len(events), max_size=len(events)))
    return Life(streams, [*events, Check()], [*settles, True])


@st.composite
def _moves(draw: st.DrawFn, streams: dict[str, OracleStream], kind: str) -> list[Event]:
    """The next move of a stream, which is told to it; none if they have all ended."""
    running = [each for each in streams.values() if not each.is_ended]
    if not running or (kind == "end" and draw(st.integers(0, 2)) > 0):
        return []
    stream = draw(st.sampled_from(running))
    if kind == "end":
        stream.end()
        return [End(stream.iri)]
    t = stream.last_ms + 1 if stream.first_ms is not None else draw(BEGINNINGS)
    if kind == "advance":
        t += draw(GAPS) * draw(st.sampled_from([1, 1, 3]))
        t = -(-t // 100) * 100 if draw(st.booleans()) else t
        stream.advance(t)
        return [Advance(stream.iri, t)]
    is_burst = draw(st.integers(0, 3)) == 0
    tuples = []
    for triple in draw(st.lists(TRIPLES, min_size=1, max_size=8)):
        t += 0 if is_burst else draw(GAPS)
        tuples.append((triple, t))
    stream.accept(tuples)
    return [Push(stream.iri, tuple(tuples))]


@st.composite
def _last_moves(draw: st.DrawFn, streams: dict[str, OracleStream]) -> list[Event]:
    """Bring all streams to one time, in any order; some end, and a few stay as they are."""
    end_ms = max([0, *(each.last_ms for each in streams.values())]) // 1000 * 1000 + 1000
    events: list[Event] = []
    for stream in draw(st.permutations([each for each in streams.values() if not each.is_ended])):
        last: Event | None = draw(st.sampled_from([Advance(stream.iri, end_ms)] * 4 + [End(stream.iri), None]))
        events += [last] if last is not None else []
    return events


# living one


@dataclass
class Told:
    """Tells each event to the engine and to the oracle, and compares what comes back."""

    engine: Any
    ends: dict[bool, Callable[[Any], Any]] = field(default_factory=dict)
    """Ways to end the engine and to begin it again; by whether it crashes."""
    oracle: EventTime = field(default_factory=EventTime)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    streams: dict[str, Any] = field(default_factory=dict)
    queries: dict[str, Any] = field(default_factory=dict)
    registered: dict[str, Register] = field(default_factory=dict)
    found: dict[str, dict[int, list[Row] | None]] = field(default_factory=dict)
    """Per query, the rows of each window that has come; None where it was partial."""
    lives: int = 0

    def run(self, life: Life) -> None:
        for stream in life.streams:
            timing = stream.timing if isinstance(stream.timing, bool) else sorted(stream.timing)
            into = stream.into.value if stream.into else None
            options = {"timing": timing, "batch_ms": stream.batch_ms, "into": into, **self.more_options}
            self.options[stream.iri] = options
            self.streams[stream.iri] = self.engine.stream(stream.iri, **self.options[stream.iri])
            self.oracle.declare(OracleStream(stream.iri, stream.batch_ms, stream.timing, stream.into))
        for event, settles in zip(life.events, life.settles, strict=True):
            orders = self._orders(event)
            if orders:
                self.settle()
            self.do(event)
            if orders or settles:
                self.settle()

    def _orders(self, event: Event) -> bool:
        """Whether what an event does hangs on how far the engine has come with those before it: it has settled then."""
        if isinstance(event, Push | Advance | End):
            standing = self.oracle.standings[event.stream]
            return not standing.is_begun or standing.is_late
        return True

    def settle(self) -> None:
        self.engine.settle(timeout_s=SETTLE_S)

    def do(self, event: Event) -> None:
        match event:
            case Push(stream, tuples):
                if sum(t for _, t in tuples) % 2:
                    rows = [(*map(ntriples, triple), t) for triple, t in tuples]
                    assert self.engine.push_many({stream: rows}) == {stream: len(rows)}
                else:
                    Harness.push(self.streams[stream], tuples)
                self.oracle.push(stream, list(tuples))
            case Advance(stream, t):
                self.advance(stream, t)
            case End(stream):
                self.streams[stream].close()
                self.oracle.end(stream)
            case Load(graph, triples):
                data = io.BytesIO("".join(map(nquad, sorted(triples))).encode())
                self.engine.load(data, graph=graph.value if graph else None, format="nt")
                self.oracle.load(graph, set(triples))
            case Update(deletes, inserts):
                self.engine.update(f"DELETE DATA {_data(deletes)} ; INSERT DATA {_data(inserts)}")
                self.oracle.update(set(deletes), set(inserts))
            case Register(name, clause):
                self.queries[name] = self.engine.register(event.text)
                self.registered[name], self.found[name] = event, {}
                reads_default = event.query.reads_default_graph
                self.oracle.register(name, clause, event.every_ms, reads_default=reads_default)
            case Pause(name):
                self.queries[name].pause()
                self.oracle.pause(name)
            case Resume(name):
                self.queries[name].resume()
                self.oracle.resume(name)
            case Close(name):
                self.check(name)
                self.queries.pop(name).close()
                self.oracle.close(name)
            case Reopen(is_crash):
                self.engine = self.ends[is_crash](self.engine)
                self.lives += 1
                self.opened()
                self.streams = {name: self.engine.stream(name, **options) for name, options in self.options.items()}
                self.queries = {name: self.engine.register(self.registered[name].text) for name in self.queries}
            case Check():
                for name in self.queries:
                    self.check(name)
                shown = probe((), any_graph=True)
                dataset = exact_dataset(DatasetClause(), self.oracle.newest(), lambda window: set())
                text = shown.text("")
                compare_one_shot(self.engine.query(text), dataset, shown, text)

    def opened(self) -> None:
        """Prepare an engine that has just been opened."""

    @property
    def more_options(self) -> dict[str, Any]:
        """What the next stream is declared with beside what the life says."""
        return {}

    def advance(self, stream: str, t: int) -> None:
        if t % 2:
            self.engine.push_many({stream: None}, t)
        else:
            self.streams[stream].advance(t)
        self.oracle.advance(stream, t)

    def check(self, name: str) -> None:
        """Read all windows of a query that have come since the last look."""
        event, expected = self.registered[name], {each.t: each for each in self.oracle.queries[name].firings}
        ends = []
        for window in self.queries[name].results(timeout_s=0.01):
            t = window.end_ms
            where = f"{event.text}\nwindow ending {t}"
            assert t in expected, f"{where}: expected at {sorted(expected)}"
            ends.append(t)
            rows = None if window.partial else sorted(rows_of(window), key=repr)
            is_first = t not in self.found[name]
            assert is_first or self.lives, f"{where} came twice"
            assert self.found[name].setdefault(t, rows) == rows, f"{where} came again with other rows"
            if rows is None:
                assert self.lives, f"{where} is partial"  # what no query needed did not outlive the engine
            elif is_first:
                fault = self.fault_of_rows(event, expected[t], rows_of(window))
                assert not fault, f"{where}: {fault}"
        assert all(earlier < later for earlier, later in pairwise(ends)), f"{event.text}\nwindows {ends}"
        missing = [t for t, each in expected.items() if not each.is_open and t not in self.found[name]]
        assert not missing, f"{event.text}\nno windows {missing} of {sorted(expected)}"

    @staticmethod
    def fault_of_rows(event: Register, firing: Firing, rows: list[Row]) -> str:
        """Why the rows are those of none of the readings; '' if they are."""
        faults = [verdict_fault(dataset, event.query, rows, ask_rdflib=False) for dataset in firing.readings]
        return "" if "" in faults else f"{faults[0]}\ndataset {firing.readings[0]}, of {len(faults)} readings"


class ToldBySilence(Told):
    """The first stream is advanced by nobody: it falls silent, and follows the wall clock to where it is to be."""

    IDLE_MS = 3_600_000

    def run(self, life: Life) -> None:
        self.opened()
        super().run(life)

    def opened(self) -> None:
        self.clock = ManualClock(self.engine)
        self.clock.set_wall(0)

    @property
    def more_options(self) -> dict[str, Any]:
        return {} if self.options else {"idle_timeout_ms": self.IDLE_MS, "idle_advance": "wall"}

    def advance(self, stream: str, t: int) -> None:
        if stream != next(iter(self.options)) or self.oracle.standings[stream].stream.is_ended:
            super().advance(stream, t)
            return
        self.clock.set_wall(t - self.IDLE_MS)
        self.clock.pass_s(self.IDLE_MS / 1000)
        batch_ms = self.options[stream]["batch_ms"]
        self.oracle.advance(stream, t // batch_ms * batch_ms)


def _data(quads: frozenset[Quad]) -> str:
    lines = [(graph, " ".join(map(ntriples, triple))) for graph, triple in sorted(quads, key=repr)]
    return f"{{ {' '.join(f'GRAPH <{g.value}> {{ {text} }}' if g else f'{text} .' for g, text in lines)} }}"


@pytest.mark.nojit
@fuzzed(60)
@given(lives(reads_stored=False))
def test_windows_alone(life: Life) -> None:
    with wukongs.Engine() as engine:
        Told(engine).run(life)


@pytest.mark.slow
@pytest.mark.nojit
@fuzzed(60)
@given(lives(reads_stored=True))
def test_with_stored_graphs(life: Life) -> None:
    with wukongs.Engine() as engine:
        Told(engine).run(life)


@pytest.mark.parametrize("reads_stored", [False, True], ids=["windows alone", "with stored graphs"])
def test_a_data_folder_with_ends_in_between(reads_stored: bool) -> None:
    @fuzzed(30)
    @given(lives(reads_stored, ends=True))
    def live(life: Life) -> None:
        with TemporaryDirectory() as folder:
            tell_durably(life, Path(folder))

    live()


@pytest.mark.parametrize("reads_stored", [False, True], ids=["windows alone", "with stored graphs"])
def test_a_stream_that_is_silent_goes_as_far_as_one_that_is_advanced(reads_stored: bool) -> None:
    """By idle_advance = "wall" (DESIGN.md, section 6); also over the ends of an engine with a data folder."""

    @fuzzed(60)
    @given(lives(reads_stored, ends=True))
    def live(life: Life) -> None:
        with TemporaryDirectory() as folder:
            tell_durably(life, Path(folder), ToldBySilence)

    live()


def tell_durably(life: Life, folder: Path, told_as: type[Told] = Told) -> None:
    """Tell a life to an engine in a data folder; a crash goes on with a copy of the folder."""
    newest = folder / "0"
    engine = wukongs.Engine(newest)

    def crash(running: Any) -> Any:
        nonlocal newest
        before, newest = newest, folder / str(int(newest.name) + 1)
        return crash_and_open(before, newest)(running)

    def close(running: Any) -> Any:
        return close_and_open(newest)(running)

    told = told_as(engine, {False: close, True: crash})
    try:
        told.run(life)
    finally:
        told.engine.close()


@pytest.mark.slow
@pytest.mark.parametrize(("node_count", "replica_count"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("reads_stored", [False, True], ids=["windows alone", "with stored graphs"])
def test_lives_of_a_cluster(node_count: int, replica_count: int, reads_stored: bool) -> None:
    """Each life is told to another node."""
    number = iter(range(1 << 30))

    # Shrinking a life costs minutes; what is printed is enough.
    @settings(fuzzed(6), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False)
    @given(lives(reads_stored))
    def live(life: Life) -> None:
        with cluster(node_count, replica_count, silence_pulses_max=PATIENT) as nodes:
            Told(nodes[next(number) % node_count].engine).run(life)

    live()
