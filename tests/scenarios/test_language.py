"""Subqueries, MINUS, VALUES, EXISTS and DESCRIBE in the Engine: in firings, with bindings, and by DESCRIBE's rule."""

from __future__ import annotations

import io

import pytest

import wukongs
from tests.engine_helpers import EX, A, at, node, rows

STORED = f"{node('a')} {node('q')} {node('x')} .\n{node('b')} {node('q')} {node('y')} .\n"


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (f"{{ ?s ?p ?o FILTER EXISTS {{ ?s {node('r')} ?z }} }}", {100: [("a",)] * 2, 200: [("b",)] * 2, 300: []}),
        (f"{{ ?s {node('p')} ?o FILTER NOT EXISTS {{ ?s {node('r')} ?z }} }}", {100: [("c",)], 200: [], 300: [("a",)]}),
        (f"{{ ?s {node('p')} ?o MINUS {{ ?s {node('r')} ?z }} }}", {100: [("c",)], 200: [], 300: [("a",)]}),
        (f"{{ {{ SELECT ?s {{ ?s {node('p')} ?o }} }} }}", {100: [("a",), ("c",)], 200: [("b",)], 300: [("a",)]}),
        ("{ { SELECT (COUNT(*) AS ?s) { ?x ?p ?o } } }", {100: [("3",)], 200: [("2",)], 300: [("1",)]}),
        ("{ { SELECT ?s { ?s ?p ?o } LIMIT 1 } }", {100: 1, 200: 1, 300: 1}),
        (f"{{ ?s ?p ?o VALUES ?s {{ {node('c')} {node('b')} }} }}", {100: [("c",)], 200: [("b",)] * 2, 300: []}),
        (f"{{ GRAPH <{A}> {{ ?s ?p ?o MINUS {{ ?s {node('r')} ?z }} }} }}", {100: [("c",)], 200: [], 300: [("a",)]}),
    ],
)
def test_in_windows(engine: wukongs.Engine, where: str, found: dict[int, list[tuple[str, ...]] | int]) -> None:
    """Each window is answered alone: what stands in another one neither removes nor satisfies anything."""
    stream = engine.stream(A, timing=True, batch_ms=100)
    query = engine.register(f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] WHERE {where}")
    stream.push([at("a", 50), at("a", 60, "r"), at("c", 70), at("b", 150), at("b", 160, "r"), at("a", 250)])
    stream.advance(300)
    engine.settle(timeout_s=60)
    for window in query.results(timeout_s=0):
        expected = found[window.end_ms]
        assert (len(window) if isinstance(expected, int) else rows(window)) == expected


def test_exists_in_a_window_and_minus_in_the_stored_graph(engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(STORED.encode()), format="nt", graph=EX + "g")
    stream = engine.stream(A, timing=True, batch_ms=100)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s ?g FROM NAMED <{EX}g> FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"WHERE {{ GRAPH ?g {{ ?s {node('q')} ?o }} FILTER EXISTS {{ GRAPH <{A}> {{ ?s {node('p')} ?x }} }} }}"
    )
    stream.push([at("a", 50), at("b", 150), at("b", 160, "q", "z")])
    stream.advance(200)
    engine.settle(timeout_s=60)
    found = {window.end_ms: rows(window) for window in query.results(timeout_s=0)}
    assert found == {100: [("a", "g")], 200: [("b", "g"), ("b", "streamA")]}


def test_rows_that_a_firing_cuts_do_not_depend_on_the_plan(engine: wukongs.Engine) -> None:
    """LIMIT without ORDER BY takes rows in canonical order, also inside of a subquery."""
    text = (
        f"SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"WHERE {{ {{ SELECT ?s {{ ?s ?p ?o }} LIMIT 3 }} FILTER NOT EXISTS {{ ?s {node('none')} ?z }} }}"
    )
    stream = engine.stream(A, timing=True, batch_ms=100)
    first = engine.register(f"REGISTER QUERY one AS {text}")
    second = engine.register(f"REGISTER QUERY two AS {text}")
    stream.push([at(f"n{number}", 10 + number) for number in range(50)])
    stream.push([at(f"n{number}", 110 + number) for number in reversed(range(0, 50))][::-1])
    stream.advance(200)
    engine.settle(timeout_s=60)
    windows = [[rows(window) for window in query.results(timeout_s=0)] for query in (first, second)]
    assert windows[0] == windows[1]
    assert windows[0][0] == windows[0][1], "the same rows in both windows, so the same three"
    assert len(windows[0][0]) == 3


def test_describe(engine: wukongs.Engine) -> None:
    """Statements with the resource as subject, and those of the blank nodes that they lead to; in every graph."""
    a, b, p = node("a"), node("b"), node("p")
    data = f"{a} {p} _:x .\n_:x {p} _:y .\n_:y {p} _:x .\n_:y {p} {b} .\n{b} {p} {a} .\n_:z {p} {a} .\n{a} {p} 'l' .\n"
    engine.load(io.BytesIO(data.replace("'", '"').encode()), format="nt")
    engine.load(io.BytesIO(f"{a} {node('q')} {b} .\n{b} {p} {b} .\n".encode()), format="nt", graph=EX + "g")

    def described(text: str) -> int:
        result = engine.query(text)
        assert result.kind == "describe"
        assert len(result.graph()) == len(result)
        return len(result)

    assert described(f"DESCRIBE {a}") == 6
    assert described(f"DESCRIBE {node('nothing')}") == 0
    assert described(f"DESCRIBE {a} {b} {a}") == 8
    assert described(f"DESCRIBE ?x {{ ?x {p} ?y . ?y {p} {b} }}") == 3
    assert described(f"DESCRIBE * {{ ?x {p} 'l' BIND({b} AS ?y) }}") == 8
    assert described(f"DESCRIBE ?x {b} {{ ?x {p} 'none' }}") == 0
    assert described(f"DESCRIBE ?l {{ {a} {p} ?l FILTER isLiteral(?l) }}") == 0
    assert described(f"DESCRIBE {a} FROM <{EX}g>") == 1
    assert described(f"DESCRIBE {a} FROM NAMED <{EX}g>") == 1


def test_describe_in_windows(engine: wukongs.Engine) -> None:
    """Also of a stream that keeps only what queries match: DESCRIBE looks at everything."""
    stream = engine.stream(A, timing=True, batch_ms=100, index="matching")
    query = engine.register(
        f"REGISTER QUERY q AS DESCRIBE ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] WHERE {{ ?s {node('p')} ?o }}"
    )
    stream.push([at("a", 50), at("a", 60, "r"), at("c", 70, "r"), at("b", 150)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert {w.end_ms: len(w.graph()) for w in query.results(timeout_s=0)} == {100: 2, 200: 1}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT ?s ?n { { SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s } }", [("a", "1")]),
        ("SELECT ?s ?o { ?s ?p ?o { SELECT ?s { ?s ?q ?z } } }", [("a", "x")]),
        ("SELECT ?s ?o { VALUES (?s ?o) { (<http://ex/a> 1) (UNDEF 2) (<http://ex/b> 3) } }", [("a", "1"), ("a", "2")]),
        ("SELECT ?s ?o { ?s ?p ?o } VALUES ?s { <http://ex/a> <http://ex/b> }", [("a", "x")]),
        ("SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s VALUES ?s { <http://ex/a> }", [("a", "1")]),
        ("SELECT ?s ?o { ?s ?p ?o FILTER EXISTS { ?s ?q <http://ex/x> } }", [("a", "x")]),
        ("SELECT ?s ?o { ?s ?p ?o MINUS { ?s ?p ?z FILTER(?z = <http://ex/y>) } }", [("a", "x")]),
        ("SELECT ?s ?n { { SELECT (COUNT(?o) AS ?n) { ?x <http://ex/none> ?o } } }", [("a", "0")]),
        ("SELECT ?s ?o { { SELECT ?s ?o { ?s ?p ?o } LIMIT 1 } } LIMIT 1", [("a", "x")]),
    ],
)
def test_bindings_reach_into_subqueries_and_values(
    engine: wukongs.Engine, text: str, found: list[tuple[str, ...]]
) -> None:
    engine.load(io.BytesIO(STORED.encode()), format="nt")
    assert rows(engine.query(text, bindings={"s": node("a")})) == found


def test_a_blank_node_of_a_result_can_be_bound(engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(b"_:a <http://ex/p> <http://ex/o> .\n_:b <http://ex/p> <http://ex/n> .\n"), format="nt")
    text = "SELECT ?x ?o { ?x <http://ex/p> ?o }"
    for row in engine.query(text):
        assert list(engine.query(text, bindings={"x": row[0]})) == [row]
    for texts in engine.query(text).texts():
        assert engine.query(text, bindings={"x": texts[0]}).texts() == [texts]
    assert list(engine.query(text, bindings={"x": "_:a"})) == [], "a label of its own names no stored node"


def test_circles_and_lengths_of_paths(engine: wukongs.Engine) -> None:
    """Two circles, of 7 and of 3 nodes, and a chain between them."""
    edges = {(n, (n + 1) % 7) for n in range(7)} | {(n, n + 1) for n in range(6, 20)} | {(20, 18), (3, 30)}
    lines = "".join(f"{node(f'n{a}')} {node('p')} {node(f'n{b}')} .\n" for a, b in edges)
    engine.load(io.BytesIO(lines.encode()), format="nt")
    distance = dict.fromkeys(edges, 1)
    for count in range(2, 31):
        further = {(a, c) for (a, b), last in distance.items() if last == count - 1 for b2, c in edges if b == b2}
        distance |= {pair: count for pair in further if pair not in distance}

    def found(where: str, select: str) -> list[tuple[str, ...]]:
        return rows(engine.query(f"PREFIX : <{EX}> SELECT {select} {{ {where} }}"))

    on_circles = sorted((f"n{a}",) for a, b in distance if a == b)
    assert found("?x :p+ ?x", "?x") == on_circles
    assert found("?x :p ?y . ?x :p+ ?x", "DISTINCT ?x") == on_circles
    assert found("?x (:p/:p)+ ?x", "?x") == on_circles, "twice round a circle of odd length"
    every = sorted((f"n{a}", f"n{b}", str(count)) for (a, b), count in distance.items())
    assert found("?x (:p+ AS ?n) ?y", "?x ?y ?n") == every
    assert found(":n3 (:p{2,9} AS ?n) ?y", "?y ?n")[:2] == [("n0", "4"), ("n1", "5")]
    assert found(":n3 (:p+ AS ?n) :n18", "?n") == [(str(distance[3, 18]),)]


def test_a_variable_that_nothing_binds_is_told(engine: wukongs.Engine) -> None:
    told = engine.warnings("SELECT ?x ?nme { ?x ?p ?name }")
    assert told == ("?nme is selected, but nothing binds it: did you mean ?name?",)
    assert engine.warnings("SELECT ?x ?name { ?x ?p ?name }") == ()


def test_a_predicate_that_nothing_has_is_told(engine: wukongs.Engine) -> None:
    """With the nearest one that is there: by its local name, then by its namespace. Streams count, too. A node of a
    cluster knows the names of its own share, so there is a triple of each on all of them."""
    asked = f"PREFIX : <{EX}> SELECT ?s {{ ?s :knws/^:q ?o . ?s :nothing_like_it ?x FILTER NOT EXISTS {{ ?s :P ?o }} }}"
    assert engine.warnings(asked) == ()  # there is no data at all
    predicates = node("knows"), "<http://other/knws>"
    stored = [f"{node(f's{number}')} {one} {node(f'o{number}')} .\n" for number in range(40) for one in predicates]
    engine.load(io.BytesIO(f"{STORED}{''.join(stored)}".encode()), format="nt")
    told = f"nothing has predicate {node('{}')} so far, neither the stored graph nor a stream"
    assert sorted(engine.warnings(asked)) == [
        told.format("P"),
        f"{told.format('knws')}: did you mean <http://other/knws>?",
        told.format("nothing_like_it"),
    ]
    stream = engine.stream(A, timing=True, batch_ms=100)
    text = f"REGISTER QUERY r AS SELECT ?s FROM STREAM <{A}> [RANGE 1s STEP 1s] WHERE {{ ?s <{EX}zz> ?o }}"
    query = engine.register(text)
    assert query.warnings() == ()  # the stream has brought nothing so far
    stream.push([at("a", 50), at("b", 60)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert query.warnings() == (told.format("zz"),)
    stream.push([at("a", 150, "zz"), at("b", 160, "zz")])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert query.warnings() == ()
    assert engine.warnings(f"SELECT * {{ ?s <{EX}knows>|<{EX}q> ?o . ?o !<{EX}q> ?x }}") == ()


@pytest.mark.faces("embedded", "durable", "connect")
def test_a_predicate_of_a_stream_is_near_and_known(engine: wukongs.Engine) -> None:
    """On a cluster a node has its part of the slices only."""
    stream = engine.stream(A, timing=True, batch_ms=100)
    stream.push([at("a", 50, "temperature")])
    stream.advance(100)
    engine.settle(timeout_s=60)
    (told,) = engine.warnings(f"SELECT * {{ ?s <{EX}Temprature> ?o }}")
    assert told.endswith(f"did you mean <{EX}temperature>?")
    assert engine.warnings(f"SELECT * {{ ?s <{EX}temperature> ?o }}") == ()


def test_a_graph_that_does_not_exist_is_told(engine: wukongs.Engine) -> None:
    engine.load(io.BytesIO(STORED.encode()), graph=EX + "people", format="nt")
    engine.stream(A, into=EX + "places")
    dataset = f"FROM <{EX}people> FROM NAMED <{EX}peopel> FROM <{EX}places>"
    asked = f"SELECT * {dataset} {{ ?s ?p ?o GRAPH <{EX}peopel> {{ ?s ?q ?o }} }}"
    near = f"there is no graph {node('peopel')} so far: did you mean {node('people')}?"
    assert engine.warnings(asked) == (near,)
    assert engine.warnings("SELECT * FROM <urn:x-wukongs:default> { GRAPH <x:none> { ?s ?p ?o } }") == (
        "there is no graph <x:none> so far",
    )
    query = engine.register(
        f"REGISTER QUERY r AS SELECT * FROM STREAM <{A}> [RANGE 1s STEP 1s] FROM <{EX}peopel> WHERE {{ ?s ?p ?o }}"
    )
    assert query.warnings() == (near,)
    engine.load(io.BytesIO(STORED.encode()), graph=EX + "peopel", format="nt")
    assert engine.warnings(asked) == query.warnings() == ()
