"""Random lives of an engine: streams, pushes, loads and registrations, told to the Engine and to the oracle."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hypothesis import strategies as st

from tests import strategies as make
from tests.oracles import query_ast as ast
from tests.oracles.judge import NoVerdict, Verdict, judge
from tests.oracles.query_ast import Query
from tests.oracles.rdf import Term, Triple, bnode, from_rdflib, iri, nquad, ntriples, to_rdflib
from tests.oracles.sparql_oracle import Dataset, Row, TooBig
from tests.oracles.stream_oracle import DatasetClause, OracleStream, StreamOracle, Tuple, Window
from tests.oracles.values import Undefined

if TYPE_CHECKING:
    import wukongs

FINAL_STEP_MS = 1000
POLICIES = {"change": "ON CONTENT CHANGE", "non-empty": "NON EMPTY CONTENT"}
SETTLE_S = 60.0


@dataclass(frozen=True)
class Push:
    stream: str
    tuples: tuple[Tuple, ...]


@dataclass(frozen=True)
class Advance:
    stream: str
    t: int


@dataclass(frozen=True)
class Load:
    graph: Term | None
    triples: frozenset[Triple]


@dataclass(frozen=True)
class Register:
    """policies: of REPORT, as the oracle calls them."""

    name: str
    clause: DatasetClause
    query: Query
    output: str = "QUERY"
    every_ms: int | None = None
    policies: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        every = f" COMPUTED EVERY {self.every_ms}ms" if self.every_ms else ""
        report = " AND ".join(POLICIES[policy] for policy in sorted(self.policies))
        head = f"REGISTER {self.output} {self.name}{every}{f' REPORT {report}' if report else ''} AS"
        text = f"{head}\n{self.query.text(self.clause.text())}"
        for window in self.clause.windows:
            text = text.replace(f"GRAPH <{window.own_name}>", f"WINDOW <{window.own_name}>")
        return text


@dataclass(frozen=True)
class Ask:
    clause: DatasetClause
    query: Query


@dataclass(frozen=True)
class Check:
    """Settle, then compare all that has been reported so far."""


Event = Push | Advance | Load | Register | Ask | Check


@dataclass
class Scenario:
    streams: list[OracleStream]
    events: list[Event]


# making one


@st.composite
def clauses(draw: st.DrawFn, streams: list[OracleStream]) -> DatasetClause:
    windows = []
    for stream in draw(st.lists(st.sampled_from(streams), min_size=1, max_size=2, unique_by=lambda each: each.iri)):
        named = draw(st.booleans())
        for is_named in [named, not named] if draw(st.integers(0, 3)) == 3 else [named]:
            range_ms = stream.batch_ms * draw(st.sampled_from([1, 2, 3, 5, 10]))
            step_ms = stream.batch_ms * draw(st.sampled_from([1, 2, 3, 5]))
            if draw(st.integers(0, 2)) == 2:
                count, step = draw(st.sampled_from([1, 2, 3, 7])), draw(st.sampled_from([1, 1, 2, 3]))
                windows.append(Window(stream.iri, count, step, is_named, counted=True))
            else:
                windows.append(Window(stream.iri, range_ms, step_ms, is_named))
        if draw(st.integers(0, 2)) == 2:
            ranges = draw(st.lists(st.sampled_from([1, 2, 5]), min_size=1, max_size=2))
            windows += [
                Window(
                    stream.iri, stream.batch_ms * n, stream.batch_ms, draw(st.booleans()), own_name=f"{stream.iri}/w{i}"
                )
                for i, n in enumerate(ranges)
            ]
    g0, g1 = make.GRAPHS
    graphs: list[tuple[Term | None, ...]] = [(None,), (None, g0), (g0,), (), (None, g1)]
    named_graphs = draw(st.sampled_from([(), (g0,), (g1,)]))
    return DatasetClause(draw(st.sampled_from(graphs)), named_graphs, tuple(windows))


@st.composite
def registrations(draw: st.DrawFn, streams: list[OracleStream], name: str) -> Register:
    """A continuous query whose patterns reach its windows: in its default graph, in GRAPH blocks, or both."""
    clause = draw(clauses(streams))
    names = tuple(dict.fromkeys([*clause.named_graphs, *(iri(window.name) for window in clause.windows)]))
    every_ms = draw(st.sampled_from([None, None, None, 50, 150, 700]))
    # Whether GRAPH ?g ranges over a window of FROM STREAM is not said: only asked where all windows are named.
    any_graph = all(window.named for window in clause.windows)
    if draw(st.booleans()):
        output = draw(st.sampled_from(["QUERY", "QUERY", "RSTREAM", "ISTREAM", "DSTREAM"]))
        policies = draw(st.sampled_from([(), (), ("change",), ("non-empty",), ("change", "non-empty")]))
        if any(window.counted for window in clause.windows):
            policies = ()
        return Register(name, clause, probe(names, any_graph), output, every_ms, frozenset(policies))
    labels = make.Labels()
    if any_graph or draw(st.booleans()):
        blocks = [iri(window.name) for window in clause.windows]
        parts: list[Any] = [
            ast.GraphPattern(each, draw(make.groups(names, any_graph, 0, labels))) for each in dict.fromkeys(blocks)
        ]
        parts += draw(make.groups(names, any_graph, 1, labels)).elements if draw(st.booleans()) else ()
        where = ast.Group(tuple(parts))
    else:
        where = draw(make.groups(names, any_graph, 2, labels))
    return Register(name, clause, draw(make.queries(("select", "select", "grouped"), where=where)), every_ms=every_ms)


def probe(names: tuple[Term, ...], any_graph: bool) -> Query:
    """A query that shows all that its dataset holds: ?a of the default graph, ?c of named graphs and windows."""
    a, b, c, d, g = (ast.Var(name) for name in "abcdg")
    inner = ast.Group((ast.Bgp(((c, d, b),)),))
    blocks: list[ast.Node] = [g] if any_graph else list(names)
    groups = [ast.Group((ast.GraphPattern(each, inner),)) for each in blocks]
    where = ast.Group((ast.Union((ast.Group((ast.Bgp(((a, d, b),)),)), *groups)),))
    return Query("select", where, tuple(map(ast.Column, (a, b, c, d, g) if any_graph else (a, b, c, d))))


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    clause = draw(
        st.sampled_from(
            [
                DatasetClause(),
                DatasetClause((None,)),
                DatasetClause((make.GRAPHS[0],)),
                DatasetClause((None, make.GRAPHS[0]), (make.GRAPHS[0], make.GRAPHS[1])),
                DatasetClause((), (make.GRAPHS[0],)),
            ]
        )
    )
    return Ask(clause, probe((), True) if draw(st.booleans()) else draw(make.queries(named=tuple(make.GRAPHS))))


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Streams with gaps, repeats and skew; a stream that starts late starts behind the stable time."""
    timings: list[frozenset[str] | bool] = [frozenset(), frozenset({make.PREDICATES[1].value}), True]
    streams = [
        OracleStream(
            f"{make.EX}stream{i}",
            draw(st.sampled_from([100, 100, 200, 500])),
            draw(st.sampled_from(timings)),
            draw(st.sampled_from([None, make.GRAPHS[0]])),
        )
        for i in range(draw(st.sampled_from([1, 2, 2, 3])))
    ]
    shadow = StreamOracle({each.iri: OracleStream(each.iri, each.batch_ms) for each in streams})
    names = [f"q{i}" for i in range(draw(st.integers(1, 3)))]
    kinds = ["push"] * 4 + ["advance", "load", "load", "ask", "check"]
    plan = draw(st.lists(st.sampled_from(kinds), min_size=6, max_size=16))
    for name in names:
        plan.insert(draw(st.integers(0, len(plan))), name)
    advanced: set[str] = set()
    events: list[Event] = []
    for kind in plan:
        if kind in names:
            events.append(draw(registrations(streams, kind)))
        elif kind in ("push", "advance"):
            iri_ = draw(st.sampled_from(streams)).iri
            events.append(draw(_move(shadow, iri_, kind, iri_ in advanced)))
            (advanced.add if kind == "advance" else advanced.discard)(iri_)
        elif kind == "load":
            events.append(
                Load(draw(st.sampled_from([None, None, *make.GRAPHS])), frozenset(draw(make.graphs(max_size=6))))
            )
        else:
            events.append(draw(asks()) if kind == "ask" else Check())
    end_ms = max([0, *(stream.last_ms for stream in shadow.streams.values())])
    end_ms = (end_ms // FINAL_STEP_MS + 1) * FINAL_STEP_MS
    events += [Advance(stream.iri, end_ms) for stream in draw(st.permutations(streams))]
    return Scenario(streams, [*events, Check(), draw(asks())])


@st.composite
def _move(draw: st.DrawFn, shadow: StreamOracle, name: str, kind: str, after_advance: bool) -> Push | Advance:
    """The next push or advance of one stream: at, just behind, or well behind its last time, often on a boundary. An
    advance may also jump over many windows."""
    stream = shadow.streams[name]
    t = stream.last_ms if stream.first_ms is not None else max(0, shadow.stable_ms() + 1)
    t += int(after_advance)
    gap = st.sampled_from([0, 0, 0, 1, 30, 99, 100, 101, 250, 700])
    if kind == "advance":
        t += draw(st.sampled_from([3000, 5000])) if draw(st.integers(0, 3)) == 3 else draw(gap)
        t = -(-t // 100) * 100 if draw(st.booleans()) else t
        shadow.advance(name, t)
        shadow.stable_ms()
        return Advance(name, t)
    tuples = []
    for triple in draw(st.lists(make.triples(odd=draw(st.booleans())), min_size=1, max_size=8)):
        t += draw(gap)
        t = -(-t // 100) * 100 if draw(st.integers(0, 2)) == 2 else t
        tuples.append((triple, t))
    shadow.push(name, tuples)
    shadow.stable_ms()
    return Push(name, tuple(tuples))


# living one


@dataclass
class Harness:
    """Tells each event to the engine and to the oracle and compares what comes back."""

    engine: wukongs.Engine
    index: Literal["all", "matching"] = "all"
    oracle: StreamOracle = field(default_factory=StreamOracle)
    handles: dict[str, Any] = field(default_factory=dict)
    registered: dict[str, Register] = field(default_factory=dict)
    ends: dict[str, list[int]] = field(default_factory=dict)
    streams: dict[str, Any] = field(default_factory=dict)

    def run(self, scenario: Scenario) -> None:
        for stream in scenario.streams:
            timing = stream.timing if isinstance(stream.timing, bool) else sorted(stream.timing)
            into = stream.into.value if stream.into else None
            self.streams[stream.iri] = self.engine.stream(
                stream.iri, timing=timing, batch_ms=stream.batch_ms, into=into, index=self.index
            )
            self.oracle.stream(OracleStream(stream.iri, stream.batch_ms, stream.timing, stream.into))
        for event in scenario.events:
            self.do(event)

    def do(self, event: Event) -> None:
        match event:
            case Push(stream, tuples):
                self.push(self.streams[stream], tuples)
                self.oracle.push(stream, [(_scoped(triple, stream), t) for triple, t in tuples])
            case Advance(stream, t):
                self.streams[stream].advance(t)
                self.oracle.advance(stream, t)
            case Load(graph, triples):
                data = io.BytesIO("".join(map(nquad, sorted(triples))).encode())
                self.engine.load(data, graph=graph.value if graph else None, format="nt")
                scope = f"load{len(self.oracle.loads)}"
                self.oracle.load(graph, {_scoped(triple, scope) for triple in triples})
            case Register(name, clause):
                self.handles[name] = self.engine.register(event.text)
                self.registered[name], self.ends[name] = event, []
                self.oracle.register(name, clause, event.every_ms)
            case Ask():
                self.engine.settle(timeout_s=SETTLE_S)
                self.ask(event)
            case Check():
                self.engine.settle(timeout_s=SETTLE_S)
                for name in self.handles:
                    self.check(name)
        self.oracle.stable_ms()

    @staticmethod
    def push(stream: Any, tuples: tuple[Tuple, ...]) -> None:
        """Push by one of the three ways in, by the number of tuples, so that each run takes the same one."""
        if len(tuples) % 3 == 0:
            import pyarrow as pa

            columns = {
                name: [ntriples(triple[place]) for triple, _ in tuples]
                for place, name in enumerate(("subject", "predicate", "object"))
            }
            stream.push_arrow(pa.table({**columns, "timestamp_ms": pa.array([t for _, t in tuples], pa.int64())}))
        else:
            convert = to_rdflib if len(tuples) % 3 == 1 else ntriples
            stream.push([(*map(convert, triple), t) for triple, t in tuples])

    def ask(self, event: Ask) -> None:
        dataset = self.oracle.one_shot(event.clause)
        text = event.query.text(event.clause.text())
        compare_one_shot(self.engine.query(text), dataset, event.query, text)

    def check(self, name: str) -> None:
        """Every window of one query that has been reported since the last check."""
        event = self.registered[name]
        for window in self.handles[name].results(timeout_s=0.01):
            self.ends[name].append(window.end_ms)
            where = f"{event.text}\nwindow ending {window.end_ms}"
            is_partial = self.oracle.is_partial(name, window.end_ms)
            fault = f"{where}: partial is {window.partial}, expected {is_partial}"
            assert is_partial is None or window.partial == is_partial, fault
            if len(event.clause.windows) == 1 and not event.clause.windows[0].counted:
                assert window.start_ms == window_start(event.clause.windows[0], window.end_ms), where
            assert list(window.vars) == [column.var.name for column in event.query.columns], where
            if any(self.oracle.is_in_doubt(name, end_ms) for end_ms in self.ends[name][-2:]):
                continue
            dataset = self.oracle.dataset(name, window.end_ms)
            fault = self.fault_of_rows(event, dataset, rows_of(window))
            assert not fault, f"{where}: {fault}\ndataset {dataset}"
        if event.policies:
            expected = self.oracle.reported(name, event.policies)
            assert expected in (None, self.ends[name]), f"{event.text}\n{self.ends[name]}, expected {expected}"
        else:
            fault = self.oracle.fault_of_firings(name, self.ends[name])
            assert not fault, f"{event.text}\n{fault}"

    def fault_of_rows(self, event: Register, dataset: Dataset, found: list[Row]) -> str:
        """Why the rows of the newest window are wrong; '' if they are right."""
        ends = self.ends[event.name]
        if event.output not in ("ISTREAM", "DSTREAM"):
            return verdict_fault(dataset, event.query, found, ask_rdflib=len(ends) == 3)
        rows = [Counter(self.all_rows(event, dataset))]
        rows.append(Counter(self.all_rows(event, self.oracle.dataset(event.name, ends[-2])) if len(ends) > 1 else ()))
        new, gone = (rows[0] - rows[1], rows[1] - rows[0])
        expected = list((new if event.output == "ISTREAM" else gone).elements())
        return Verdict(event.query, [expected]).fault(found)

    @staticmethod
    def all_rows(event: Register, dataset: Dataset) -> list[Row]:
        (rows,) = judge(dataset, event.query, ask_rdflib=False).allowed
        assert isinstance(rows, list)
        return rows


def window_start(window: Window, end_ms: int) -> int:
    return end_ms // window.step_ms * window.step_ms - window.range_ms


def _scoped(triple: Triple, scope: str) -> Triple:
    """The triple with its blank nodes renamed for the place that their labels are valid in."""
    subject, predicate, term = (bnode(f"{scope.rsplit('/')[-1]}x{t.value}") if t.kind == "bnode" else t for t in triple)
    return subject, predicate, term


def rows_of(result: Iterable[tuple[Any, ...]]) -> list[Row]:
    return [tuple(from_rdflib(term) if term is not None else None for term in row) for row in result]


def verdict_fault(dataset: Dataset, query: Query, answer: Any, ask_rdflib: bool = True) -> str:
    """Why an answer is wrong; '' if it is right, or if the oracles cannot tell."""
    try:
        return judge(dataset, query, ask_rdflib).fault(answer)
    except (NoVerdict, TooBig, Undefined):
        return ""


def compare_one_shot(result: Any, dataset: Dataset, query: Query, text: str) -> None:
    assert result.kind == query.kind, text
    if query.kind == "ask":
        answer: Any = result.boolean
    elif query.kind == "construct":
        answer = {tuple(map(from_rdflib, triple)) for triple in result.graph()}
    else:
        assert list(result.vars) == [column.var.name for column in query.columns], text
        answer = rows_of(result)
    fault = verdict_fault(dataset, query, answer)
    assert not fault, f"{text}\n{fault}\ndataset {dataset}"
