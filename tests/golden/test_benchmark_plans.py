"""The plans of L1-L6, S1-S6 and C1-C11 over a network and a city that the project makes itself.

Their texts have their homes elsewhere: L1-L6 in examples/lsbench/, the others in bench/lsbench/queries/ and
bench/citybench/queries/. plans/lsbench and plans/citybench hold the output of `explain`, with sizes counted from lists
of triples, so that only the planner changes them. An engine over the same data has to take the same steps and give the
answers of pyoxigraph. The cost of a plan is counted in the rows that all its steps make together.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyoxigraph as ox
import pytest

import wukongs
from tests.golden import city
from tests.unit.csparql.counted_triples import CountedTriples, Triple
from wukongs.adapters.lsbench_generator import STREAM_NAMES, STREAM_NAMESPACE, NetworkSettings, generate_network
from wukongs.bench.oneshot.queries import S_QUERIES
from wukongs.csparql import explain, parse_query, rewrite
from wukongs.csparql.algebra import DEFAULT, GraphRef, Query
from wukongs.csparql.terms import iri
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI

ROOT = Path(__file__).resolve().parents[2]
PLANS = Path(__file__).parent / "plans"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NETWORK = NetworkSettings(
    users=200,
    friends=10,
    duration_ms=23 * HOUR_MS,
    posts_per_s=0.003,
    comments_per_s=0.002,
    photos_per_s=0.003,
    positions_per_s=0.002,
)
"""Most of a day: the window of L1-L6 that ends with the day has everything in it."""

ROWS_MAX = {
    "L1": 15,
    "L2": 15,
    "L3": 50,
    "L4": 5400,
    "L5": 5000,
    "L6": 2900,
    "S1": 50,
    "S2": 15,
    "S3": 60,
    "S4": 100,
    "S5": 50,
    "S6": 1100,
    "C1": 100,
    "C2": 450,
    "C3": 100,
    "C4": 650,
    "C5": 650,
    "C6": 60,
    "C7": 50,
    "C8": 50,
    "C9": 1900,
    "C10": 1100,
    "C11": 30,
}
"""How many rows all steps of a query make together, at most. By hand: a start from a constant makes its few neighbours;
L4-L6 scan one predicate of a window; C1-C11 scan a stream's observations, and a product multiplies once, after all that
makes its factors small (the least that 9 garage readings x 40 events x 5 patterns can take is 5 * 360: C9)."""
NAMES = tuple(ROWS_MAX)


@dataclass(frozen=True, slots=True)
class Data:
    """stored: triples; streams: IRI -> (triple, event time in ms); absorbed: whether the stored graph takes them in;
    batch_ms and end_ms: of a stream batch, and of the window that is looked at, which no stream has reached yet."""

    stored: list[Triple]
    streams: dict[str, list[tuple[Triple, int]]]
    absorbed: bool
    batch_ms: int
    end_ms: int
    constants: Mapping[str, str]

    def text(self, name: str) -> str:
        """Return the text of a query with constants that this data has."""
        if name.startswith("S"):
            return next(query for query in S_QUERIES if query.name == name).text(dict(self.constants))
        folder = "examples/lsbench" if self.absorbed else "bench/citybench/queries"
        text = (ROOT / folder / f"{name}.rq").read_text("utf-8")
        return text.replace("sibu:u864", f"sibu:{self.constants.get('user')}").replace(
            "sibp:p864", f"sibp:{self.constants.get('person')}"
        )

    def graphs(self, query: Query) -> dict[GraphRef, list[Triple]]:
        """Return what a query's default graph and its named graphs hold."""
        stored = self.stored
        if self.absorbed:
            timeless = (triples for name, triples in self.streams.items() if not name.endswith("/gps"))
            stored = stored + [triple for triples in timeless for triple, _ in triples]
        clause = query.dataset
        found: dict[GraphRef, list[Triple]] = {DEFAULT: []}
        if clause.is_empty or DEFAULT_GRAPH_IRI in clause.default_graphs:
            found[DEFAULT] = stored
        for window in clause.windows:
            start_ms = self.end_ms - window.range_ms
            triples = [triple for triple, t in self.streams[window.stream] if start_ms < t <= self.end_ms]
            if window.named:
                found[iri(window.name)] = triples
            else:
                found[DEFAULT] = found[DEFAULT] + triples
        return found


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Data:
    made = generate_network(tmp_path_factory.mktemp("network"), NETWORK)

    def triples(path: str) -> Iterator[list[str]]:
        return (line.split(" ", 2) for line in Path(path).read_text("utf-8").splitlines())

    stored = [(s, p, rest.removesuffix(" .")) for s, p, rest in triples(made.stored)]
    streams = {}
    for name in STREAM_NAMES:
        timed = ((s, p, *rest.rsplit(" . ", 1)) for s, p, rest in triples(made.streams[name]))
        streams[STREAM_NAMESPACE + name] = [((s, p, o), int(t)) for s, p, o, t in timed]
    busiest = made.busiest_user
    constants = {"user": f"u{busiest}", "person": f"p{busiest}", "other": f"p{busiest}", "group": "g0"}
    return Data(stored, streams, True, HOUR_MS, DAY_MS, constants)


@pytest.fixture(scope="module")
def aarhus() -> Data:
    named = {name: city.observed(name) for name in city.KINDS if not re.search(r"1[78]0\d\d\d|GARAGE", name)}
    streams = {city.SERVICE + name: triples for name, triples in named.items()}
    return Data(city.stored_city(), streams, False, 500, city.SECONDS * 1000, {})


@pytest.fixture
def data(name: str, request: pytest.FixtureRequest) -> Data:
    found = request.getfixturevalue("aarhus" if name.startswith("C") else "network")
    assert isinstance(found, Data)
    return found


@pytest.fixture(scope="module")
def ran(network: Data, aarhus: Data) -> dict[str, Ran]:
    of_network, one_shot, of_city = (tuple(name for name in NAMES if name.startswith(kind)) for kind in "LSC")
    return run_registered(network, of_network) | run_one_shot(network, one_shot) | run_registered(aarhus, of_city)


@dataclass(frozen=True, slots=True)
class Ran:
    """An engine's work on a query: EXPLAIN with actual rows, and its answer by lexical forms."""

    explained: str
    answer: Counter[tuple[str, ...]]


def steps_of(explained: str) -> list[tuple[str, ...]]:
    """Return (kind, pattern and place, actual rows if they are told) of each step. From which end a scan goes is left
    out: both read the same, and the engine counts the keys of each block of a window by itself."""
    found = re.findall(r"^ +\d+ +(\w+) +(?:in|out) +(.*)  ~\S+ rows(?: +(\d+) rows)?$", explained, re.MULTILINE)
    return [(kind, re.sub("  +", "  ", what).strip(), rows) for kind, what, rows in found]


def run_registered(data: Data, names: tuple[str, ...]) -> dict[str, Ran]:
    """Run continuous queries for the window that ends at data.end_ms."""
    ran = {}
    with wukongs.Engine() as engine:
        engine.load(_n_triples(data.stored), format="nt")
        streams = {
            name: engine.stream(name, timing=not data.absorbed or name.endswith("/gps"), batch_ms=data.batch_ms)
            for name in data.streams
        }
        registered = {name: engine.register(data.text(name)) for name in names}
        for stream in streams.values():
            stream.advance(0)  # so that none is sealed before another has begun
        for name, stream in streams.items():
            stream.push([(*triple, t) for triple, t in data.streams[name]])
        for stream in streams.values():
            stream.advance(data.end_ms - data.batch_ms)
        engine.settle(60)
        explained = {name: query.explain(analyze=True) for name, query in registered.items()}
        for stream in streams.values():
            stream.advance(data.end_ms)
        engine.settle(60)
        for name, query in registered.items():
            (window,) = (found for found in query.results(timeout_s=0) if found.end_ms == data.end_ms)
            ran[name] = Ran(explained[name], Counter(tuple(map(str, row)) for row in window))
    return ran


def run_one_shot(data: Data, names: tuple[str, ...]) -> dict[str, Ran]:
    """Run one-shot queries over the stored graph with what it has absorbed, loaded at once."""
    ran = {}
    with wukongs.Engine() as engine:
        engine.load(_n_triples(data.graphs(parse_query("ASK {}"))[DEFAULT]), format="nt")
        for name in names:
            text = data.text(name)
            answer = Counter(tuple(map(str, row)) for row in engine.query(text))
            ran[name] = Ran(engine.explain(text, analyze=True), answer)
    return ran


def _n_triples(triples: list[Triple]) -> io.BytesIO:
    return io.BytesIO("".join(f"{s} {p} {o} .\n" for s, p, o in triples).encode())


def asked_naively(data: Data, name: str) -> Counter[tuple[str, ...]]:
    """Ask pyoxigraph: a fresh store, windows as named graphs."""
    text = data.text(name)
    store = ox.Store()
    for graph, triples in data.graphs(parse_query(text)).items():
        place = ox.DefaultGraph() if graph == DEFAULT else ox.NamedNode(str(graph)[1:-1])
        store.bulk_load(_n_triples(triples), format=ox.RdfFormat.N_TRIPLES, to_graph=place)
    solutions = store.query(re.sub(r"(?m)^(FROM|REGISTER) .*$", "", text))
    assert isinstance(solutions, ox.QuerySolutions)
    names = [variable.value for variable in solutions.variables]
    return Counter(tuple(row[name].value for name in names) for row in solutions)


@pytest.mark.parametrize("name", NAMES)
def test_plan_text(name: str, data: Data, request: pytest.FixtureRequest) -> None:
    query = rewrite(parse_query(data.text(name), source=name))
    text = explain(query, CountedTriples(data.graphs(query)))
    expected = _plan_path(data, name)
    if request.config.getoption("--update-golden"):
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_plan_in_the_engine(name: str, data: Data, ran: dict[str, Ran]) -> None:
    expected = asked_naively(data, name)
    assert expected, "a plan that finds nothing shows nothing"
    assert ran[name].answer == expected
    steps = steps_of(ran[name].explained)
    assert [step[:2] for step in steps] == [step[:2] for step in steps_of(_plan_path(data, name).read_text("utf-8"))]
    rows = [int(rows) for *_, rows in steps]
    assert rows[-1] == expected.total()
    assert sum(rows) <= ROWS_MAX[name]


def _plan_path(data: Data, name: str) -> Path:
    return PLANS / ("lsbench" if data.absorbed else "citybench") / f"{name}.plan"


def test_every_plan_has_a_query() -> None:
    assert {path.stem for folder in ("lsbench", "citybench") for path in (PLANS / folder).glob("*.plan")} == set(NAMES)
