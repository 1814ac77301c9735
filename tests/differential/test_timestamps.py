"""timestamp() over random streams: every window against loops over the lists of what was pushed."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

import wukongs
from tests.engine_helpers import EX, A, B, node
from tests.fuzz import fuzzed
from wukongs.settings import Settings

Name = str
Arrival = tuple[tuple[Name, Name, Name], int]
PREFIX = f"PREFIX : <{EX}> PREFIX f: <http://larkc.eu/csparql/sparql/jena/ext#> "
END_MS = 1000
names = st.sampled_from("abc")
arrivals = st.lists(st.tuples(st.tuples(names, st.sampled_from("pq"), names), st.integers(1, END_MS)), max_size=14).map(
    lambda found: sorted(found, key=lambda each: each[1])
)

ENGINE = f"FROM <{EX}stored> FROM STREAM <{A}> [RANGE 400ms STEP 1s] FROM NAMED STREAM <{B}> [RANGE TRIPLES 5 STEP 1]"
QUERIES = {
    "join": "SELECT ?x ?y ?z (timestamp(?x) AS ?t) (timestamp(?y) AS ?u) { ?x :p ?y . ?y :q ?z }",
    "tuple": "SELECT ?x ?y (f:timestamp(?x, :q, ?y) AS ?t) { ?x :p ?y }",
    "filter": "SELECT ?x ?y { ?x :p ?y FILTER(timestamp(?y) > 800) }",
    "optional": "SELECT ?x ?y ?z (timestamp(?x) AS ?t) { ?x :p ?y OPTIONAL { GRAPH ?g { ?x :q ?z } } }",
    "union": "SELECT ?x ?y (timestamp(?x) AS ?t) { { ?x :p ?y } UNION { GRAPH ?g { ?x :p ?y } } }",
    "newest": "SELECT ?x (MAX(timestamp(?x)) AS ?t) { ?x ?y ?z } GROUP BY ?x",
}
Times = dict[tuple[Name, Name, Name], int]


def newest(found: list[Arrival]) -> Times:
    """Each tuple with its newest time, given in order of time."""
    return dict(found)


def larger(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)


def expected(
    name: str, stored: set[tuple[Name, Name, Name]], window: Times, last: Times
) -> Counter[tuple[object, ...]]:
    """The rows of a query: its default graph is stored and window, its one named graph `last`."""
    default = stored | set(window)
    p = [(s, o) for s, predicate, o in default if predicate == "p"]
    q = [(s, o) for s, predicate, o in default if predicate == "q"]
    rows: list[tuple[object, ...]] = []
    if name == "join":
        for (x, y), (y2, z) in product(p, q):
            if y == y2:
                first, second = window.get((x, "p", y)), window.get((y, "q", z))
                rows.append((x, y, z, first, larger(first, second)))
    elif name == "tuple":
        rows = [(x, y, larger(window.get((x, "q", y)), last.get((x, "q", y)))) for x, y in p]
    elif name == "filter":
        rows = [(x, y) for x, y in p if (window.get((x, "p", y)) or 0) > 800]
    elif name == "optional":
        for x, y in p:
            found = [(z, t) for (s, predicate, z), t in last.items() if (s, predicate) == (x, "q")]
            rows += [(x, y, z, larger(window.get((x, "p", y)), t)) for z, t in found or [(None, None)]]
    elif name == "union":
        rows = [(x, y, window.get((x, "p", y))) for x, y in p]
        rows += [(x, y, t) for (x, predicate, y), t in last.items() if predicate == "p"]
    else:
        for x in {s for s, _, _ in default}:
            times = [window.get(triple) for triple in default if triple[0] == x]
            rows.append((x, larger(*times) if None not in times else None))  # an error makes MAX one
    return Counter(rows)


@fuzzed(25)
@given(arrivals, arrivals, st.sets(st.tuples(names, st.sampled_from("pq"), names), max_size=3))
def test_every_time_is_that_of_the_newest_tuple(
    first: list[Arrival], second: list[Arrival], stored: set[tuple[Name, Name, Name]]
) -> None:
    with wukongs.Engine(settings=Settings(batch_ms=100)) as engine:
        streams = {A: engine.stream(A, timing=True), B: engine.stream(B, timing=True)}
        if stored:
            lines = "".join(" ".join(map(node, triple)) + " .\n" for triple in sorted(stored))
            engine.update(f"INSERT DATA {{ GRAPH <{EX}stored> {{ {lines} }} }}")
        registered = {
            name: engine.register(f"{PREFIX}REGISTER QUERY {name} COMPUTED EVERY 1s AS {head} {ENGINE} {{ {where}")
            for name, text in QUERIES.items()
            for head, where in [text.split(" { ", 1)]
        }
        for iri, pushed in ((A, first), (B, second)):
            if pushed:
                streams[iri].push([(*map(node, triple), t) for triple, t in pushed])
            streams[iri].advance(END_MS)
        engine.settle(timeout_s=60)
        window = newest([each for each in first if each[1] > END_MS - 400])
        last = newest(second[-5:])
        for name, query in registered.items():
            (result,) = [found for found in query.results(timeout_s=0) if found.end_ms == END_MS]
            rows = Counter(tuple(_plain(term) for term in row) for row in result)
            assert rows == expected(name, stored, window, last), name


def _plain(term: object) -> object:
    if term is None:
        return None
    text = str(term)
    return text.removeprefix(EX) if text.startswith(EX) else int(text)
