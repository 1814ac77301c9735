"""A graph that is divided among nodes answers as the engine that holds it whole, whichever node is asked."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests import strategies as make
from tests.differential.spec_cases import PREFIXES, Case
from tests.differential.spec_cases.forms import FORMS
from tests.differential.spec_cases.groups import GROUPS
from tests.differential.spec_cases.patterns import PATTERNS
from tests.fuzz import TIER, first_and_slow, fuzzed, scaled
from tests.fuzzing import answers
from tests.fuzzing.graphs import Data, nquads, random_data
from tests.fuzzing.queries import random_query, text_of
from tests.fuzzing.windows import fits
from tests.oracles.rdf import Term, Triple, nquad
from tests.oracles.update_ast import Operation
from tests.oracles.values import Undefined
from tests.shards import Shards, all_quads
from tests.update_requests import NAMES, REQUESTS, request_text
from wukongs.cluster.reads.fork_join import ForkJoin
from wukongs.settings import Settings
from wukongs.store.quads import Quads

SHAPES = ((1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2))
"""(nodes, replicas)"""
WORLDS = max(len(SHAPES), scaled(len(SHAPES)))
QUERIES_PER_WORLD = 25
SPEC_CASES_EVERY = 1 if TIER == "all" else 12
CASES = Path(__file__).with_name("cases")
OPEN = re.compile(r"LIMIT|OFFSET|SAMPLE|GROUP_CONCAT")
"""Queries whose answer may change with the order of rows."""

Quad = tuple[int, ...]

pytestmark = pytest.mark.nojit


def asked(engine: wukongs.Engine, text: str) -> Any:
    try:
        return engine.query(text)
    except wukongs.WukongsError as error:
        return type(error)


def same(text: str, whole: Any, ours: Any) -> bool:
    if isinstance(whole, type) or isinstance(ours, type):
        return bool(whole == ours)
    left, right = answers.of_engine(whole), answers.of_engine(ours)
    try:
        if answers.same(left, right):
            return True
    except Undefined:  # too many blank nodes that look alike to try all their namings
        return len(whole) == len(ours)
    return OPEN.search(text) is not None and not isinstance(left, bool) and len(whole) == len(ours)


@pytest.fixture(params=["in place", "fork-join", "the better one"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How stages are run that may be run in both ways."""
    if request.param != "the better one":
        forks = request.param == "fork-join"
        monkeypatch.setattr(ForkJoin, "is_better", lambda self, wanted: forks and self.is_possible)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("number", range(WORLDS))
def test_random_queries(number: int) -> None:
    rng = random.Random(f"shards/{number}")
    count, replicas = SHAPES[number % len(SHAPES)]
    data = random_data(rng, plain=rng.random() < 0.8, blank=rng.random() < 0.8)
    split = rng.choice([(), ("http://e/p",), ("http://e/p", "http://e/v", "http://e/q")])
    with Shards(count, replicas, split=split) as shards:
        shards.load(nquads(data), "nq")
        for _ in range(QUERIES_PER_WORLD):
            text = text_of(random_query(rng, data))
            whole = asked(shards.whole, text)
            for node in rng.sample(range(count), min(count, 2)):
                ours = asked(shards.nodes[node], text)
                assert same(text, whole, ours), f"node {node} of {count}, {replicas} replicas, split {split}\n{text}\n"
        assert (shards.requests > 0) == (replicas < count), "a node that holds everything asks nobody"


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in (*PATTERNS, *GROUPS, *FORMS)[::SPEC_CASES_EVERY]])
def test_cases_of_the_specification(case: Case) -> None:
    with Shards(3) as shards:
        shards.load(PREFIXES + case.data)
        whole = asked(shards.whole, PREFIXES + case.query)
        for node in shards.nodes:
            assert same(case.query, whole, asked(node, PREFIXES + case.query))


RDF_12 = """
VERSION "1.2" PREFIX : <http://e/>
:a :p :b ~ :r {| :source :web ; :note "x"@en--ltr |} . :b :p :c {| :source :book |} . :c :q <<( :a :p :b )>> .
:a :name "A" ; :knows [ :name "B" ; :knows [ :name "C" ; :knows :a ] ] . :c :p :a .
"""


@pytest.mark.parametrize(
    "text",
    [
        "DESCRIBE :a", "DESCRIBE ?x { ?x :p ?y }", "CONSTRUCT { ?x :r [ :of ?y ] } { ?x :p ?y }",
        "SELECT * { ?x :p ?y {| :source ?s |} }", "SELECT * { << ?x :p :b ~ ?r >> ?q ?o }",
        "SELECT ?t { ?r <http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies> ?t FILTER(SUBJECT(?t) = :b) }",
        "SELECT * { :c :q <<( ?a ?p ?b )>> . ?b :p ?d }", "SELECT * { ?x :note ?n FILTER(hasLANGDIR(?n)) }",
        "SELECT * { ?x (:p|:q)+ ?y }", "SELECT * { :a (:knows/:name)* ?y }", "SELECT * { ?x !(:p|^:q) ?y }",
        "SELECT ?x (COUNT(?y) AS ?n) { ?x :p|:knows ?y } GROUP BY ?x HAVING (COUNT(?y) > 0)",
        "ASK { :a :p+ :a }", "ASK { :a :p+ :r }",
        "SELECT * { { SELECT ?x { ?x :p ?y } } FILTER EXISTS { ?x :p/:p ?z } }",
    ],
)  # fmt: skip
def test_terms_of_rdf_1_2_and_other_forms(text: str) -> None:
    with Shards(3) as shards:
        shards.load(RDF_12, "ttl")
        text = "PREFIX : <http://e/> " + text
        whole = shards.whole.query(text)
        assert len(whole.texts()) or whole.kind == "ask"
        for node in shards.nodes:
            ours = node.query(text)
            assert ours.boolean == whole.boolean
            if "CONSTRUCT" in text:  # its blank nodes have other names each time
                assert same(text, whole, ours)
            else:
                assert Counter(ours.texts()) == Counter(whole.texts())


@pytest.mark.parametrize("path", sorted(CASES.glob("*.rq")), ids=lambda path: path.stem)
def test_cases_that_once_failed(path: Path) -> None:
    text = PREFIXES + path.read_text(encoding="utf-8")
    [(data, rows)] = re.findall(r"^# data:(.*)\n# rows: (\d+)$", text, re.MULTILINE)
    with Shards(2) as shards:
        shards.load(data.replace(" .", " .\n"), "nq")
        for node in shards.nodes:
            found = node.query(text)
            assert len(found) == int(rows)
            assert Counter(found.texts()) == Counter(shards.whole.query(text).texts())


def test_clashing_terms_are_told_apart() -> None:
    """With 16 bits to an id many terms clash; those that no data has must not be taken for those that it has."""
    data = "".join(f"<http://e/s{n}> <http://e/p> <http://e/o{n % 97}> .\n" for n in range(2000))
    with Shards(3, settings=Settings(hash_bits=16)) as shards:
        shards.load(data, "nq")
        for node in shards.nodes:
            for number in range(0, 6000, 305 if TIER == "fast" else 61):
                for text in (
                    f"SELECT ?o {{ <http://e/s{number}> <http://e/p> ?o }}",
                    f"SELECT ?s {{ ?s <http://e/p> <http://e/o{number % 300}> }}",
                    f"SELECT ?x {{ BIND(IRI(CONCAT('http://e/s', STR({number}))) AS ?x) ?x <http://e/p> ?y }}",
                ):
                    assert Counter(node.query(text).texts()) == Counter(shards.whole.query(text).texts()), text


def test_whole_graphs_come_out(tmp_path: Path) -> None:
    data = random_data(random.Random(7), blank=True)
    with Shards(3, split=("http://e/p",)) as shards:
        shards.load(nquads(data), "nq")
        names = shards.whole.graph_names()
        for node in shards.nodes:
            assert node.graph_names() == names
            for name in (None, *names, "http://e/none"):
                assert set(node.graph(name)) == set(shards.whole.graph(name))
                count = node.dump(tmp_path / "ours.nt", name)
                assert count == shards.whole.dump(tmp_path / "whole.nt", name)
                ours, whole = (tmp_path / f"{which}.nt" for which in ("ours", "whole"))
                assert sorted(ours.read_text().splitlines()) == sorted(whole.read_text().splitlines())


@pytest.mark.parametrize("number", first_and_slow([1, 0, 2]))
def test_firings(number: int) -> None:
    """Windows are whole on each node, the stored graph is divided; whatever a query reads of both, its windows are
    those of the engine that holds all."""
    rng = random.Random(f"firings of shards/{number}")
    count = 2 + number
    stored, streamed = random_data(rng, blank=False), random_data(rng, blank=False)
    clause = " ".join(
        ["FROM <urn:x-wukongs:default> FROM STREAM <http://e/stream> [RANGE 1s STEP 500ms]"]
        + [f"FROM NAMED {name}" for name in list(stored)[1:]]
        + [f"FROM NAMED STREAM {name} [RANGE 1s STEP 500ms]" for name in list(streamed)[1:] if name not in stored]
    )
    texts = []
    while len(texts) < 15:
        query = random_query(rng, stored)
        if fits(query):
            texts.append(text_of(query, clause))
    with Shards(count, split=("http://e/p",)) as shards:
        shards.load(nquads(stored), "nq")
        engines = [shards.whole, *shards.nodes]
        registered = [registered_on(engine, streamed, texts, seed=number) for engine in engines]
        for engine in engines:
            engine.settle(timeout_s=60)
        for at, text in enumerate(texts):
            windows = [[shown(window) for window in queries[at].results(timeout_s=0)] for queries in registered]
            assert windows[0], text
            for node, ours in enumerate(windows[1:]):
                assert ours == windows[0], f"node {node}: {text}"


def registered_on(engine: wukongs.Engine, data: Data, texts: list[str], seed: int) -> list[Any]:
    """Push some data through streams of an engine, with queries registered on them."""
    rng = random.Random(seed)
    streams = {graph: engine.stream((graph or "<http://e/stream>")[1:-1], timing=True) for graph in data}
    queries = [engine.register(f"REGISTER QUERY q{at} AS {text}") for at, text in enumerate(texts)]
    for graph, triples in data.items():
        times = sorted(rng.randint(1, 2000) for _ in triples)
        streams[graph].push([(*triple, time) for triple, time in zip(triples, times, strict=True)])
    for stream in streams.values():
        stream.advance(2500)
    return queries


def shown(window: Any) -> Any:
    """A window without what differs between engines: the order of rows that no order was asked of."""
    return window.end_ms, window.boolean, Counter(window.texts()) if window.kind != "ask" else None


@pytest.mark.usefixtures("mode")
def test_pairs_and_walks_whose_ends_are_elsewhere() -> None:
    """Checks of both ends, and paths of several links, for all pairs of nodes, under split predicates and others."""
    rng = random.Random(3)
    names = [f"<http://e/n{n}>" for n in range(14)]
    lines = [f"{rng.choice(names)} <http://e/{rng.choice('pqr')}> {rng.choice(names)} ." for _ in range(60)]
    pairs = f"VALUES ?x {{ {' '.join(names)} }} VALUES ?y {{ {' '.join(names)} }}"
    with Shards(3, split=("http://e/p",)) as shards:
        shards.load("\n".join(lines), "nq")
        for pattern in (
            "?x :p ?y", "?x :q ?y", "?x ?e ?y", "?x :p/:q+ ?y", "?x (:p/:q)+/^:r ?y", "?x ^:p/(:r|:q)* ?y", "?x !:p ?y",
            "?x (:p|:q){1,2} ?y", "?x :r{2} ?y", "?x (:p/:q){,2} ?y", "?x (:p|^:q)+ ?y",
        ):  # fmt: skip
            for text in (f"{{ {pairs} {pattern} }}", f"{{ {pattern} }}", f"{{ VALUES ?y {{ {names[0]} }} {pattern} }}"):
                query = f"PREFIX : <http://e/> SELECT * {text}"
                whole = Counter(shards.whole.query(query).texts())
                for node in shards.nodes:
                    assert Counter(node.query(query).texts()) == whole, query
        for line in lines:  # one pair at a time: nothing else fetches what it needs
            assert all(node.query(f"ASK {{ {line} }}").boolean for node in shards.nodes), line


def test_what_an_update_deletes_may_be_elsewhere() -> None:
    graphs = [f"<http://e/g{n}>" for n in range(3)]
    quads = [(f"<http://e/s{n}> <http://e/p> <http://e/o{n % 3}>", graphs[n % 3]) for n in range(24)]
    with Shards(3, split=("http://e/p",)) as shards:
        shards.load("\n".join(f"{triple} {graph} ." for triple, graph in quads), "nq")
        before = quad_set(all_quads(shards.core))
        gone = " ".join(f"GRAPH {graph} {{ {triple} }}" for triple, graph in quads if graph == graphs[1])
        more = "GRAPH <http://e/seen> { ?g a <http://e/Graph> }"
        text = f"DELETE DATA {{ {gone} }} ; CLEAR GRAPH {graphs[2]} ; INSERT {{ {more} }} WHERE {{ GRAPH ?g {{}} }}"
        made = [evaluated_on(shards, node, text) for node in range(3)]
        shards.whole.update(text)
        after = quad_set(all_quads(shards.core))
        assert len(after) == 8 + 1, "one graph is left, and what was seen of it"
        for change in made:
            assert change is not None
            assert len(change[0]) == 8
            assert {quad for quad in before - change[0] if quad[0] not in change[2]} | change[1] == after


@fuzzed(25)
@given(st.lists(st.tuples(NAMES, make.triples(blank=False)), max_size=25), REQUESTS, st.sampled_from(SHAPES[1:]))
def test_updates(
    quads: list[tuple[Term | None, Triple]], requests: list[list[Operation]], shape: tuple[int, int]
) -> None:
    """A request evaluated on any node makes the same changes as on the engine that holds everything."""
    with Shards(*shape, split=(make.PREDICATES[0].value,)) as shards:
        shards.load("".join(nquad(triple, graph) for graph, triple in quads), "nq")
        for number, request in enumerate(requests):
            text = request_text(request)
            before = quad_set(all_quads(shards.core))
            made = [evaluated_on(shards, node, text) for node in {number % shape[0], (number + 1) % shape[0]}]
            try:
                shards.whole.update(text)
            except wukongs.UpdateError:
                assert made == [None] * len(made), text
                continue
            shards.share()
            after = quad_set(all_quads(shards.core))
            for change in made:
                assert change is not None, text
                gone, come, cleared = change
                assert gone <= before, "what goes was there"
                assert {quad for quad in before - gone if quad[0] not in cleared} | come == after, text


def evaluated_on(shards: Shards, node: int, text: str) -> tuple[set[Quad], set[Quad], list[int]] | None:
    try:
        gone, come, cleared = shards.evaluated(node, text)
    except wukongs.UpdateError:
        return None
    return quad_set(gone), quad_set(come), cleared.tolist()


def quad_set(quads: Quads) -> set[Quad]:
    return set(zip(*(column.tolist() for column in quads), strict=True))
