"""`(path AS ?n)`, the length of a shortest path, against sets of walks of each length; and where it may stand."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import wukongs
from tests.engine_helpers import EX, A, at, register_text, rows
from tests.unit.query.test_path_queries import PREFIX, ask, engine_with
from wukongs.errors import QuerySyntaxError

Pairs = set[tuple[int, int]]
NODES = 12
LENGTHS = 40
"""No shortest walk here is longer: an automaton has at most three states of which a walk sees each node once."""


def edges_of(seed: int) -> dict[str, Pairs]:
    rng = random.Random(seed)
    return {p: {(rng.randrange(NODES), rng.randrange(NODES)) for _ in range(11)} for p in "pq"}


def triples_of(edges: dict[str, Pairs]) -> str:
    return " ".join(f":n{a} :{p} :n{b} ." for p, pairs in edges.items() for a, b in sorted(pairs))


def joined(left: Pairs, right: Pairs) -> Pairs:
    return {(a, c) for a, b in left for b2, c in right if b == b2}


def nodes_of(edges: dict[str, Pairs]) -> set[int]:
    return {node for pairs in edges.values() for pair in pairs for node in pair}


def shortest(part: dict[int, Pairs], low: int, high: int, edges: dict[str, Pairs]) -> dict[tuple[int, int], int]:
    """The number of triples of a shortest walk for each pair that low to high parts lead between.

    part: for each number of triples, the pairs between which one part leads by so many."""
    walks: dict[int, Pairs] = {0: {(node, node) for node in nodes_of(edges)}}
    found: dict[tuple[int, int], int] = {}
    for count in range(high + 1):
        if count >= low:
            for length, pairs in walks.items():
                for pair in pairs:
                    found[pair] = min(length, found.get(pair, length))
        longer: dict[int, Pairs] = {}
        for length, pairs in walks.items():
            for more, next_pairs in part.items():
                if length + more <= LENGTHS:
                    longer[length + more] = longer.get(length + more, set()) | joined(pairs, next_pairs)
        walks = longer
    return found


PARTS: dict[str, Callable[[dict[str, Pairs]], dict[int, Pairs]]] = {
    ":p": lambda edges: {1: edges["p"]},
    "(:p|^:q)": lambda edges: {1: edges["p"] | {(b, a) for a, b in edges["q"]}},
    "(:p/:q)": lambda edges: {2: joined(edges["p"], edges["q"])},
    "(:p|:q/:q)": lambda edges: {1: edges["p"], 2: joined(edges["q"], edges["q"])},
}
BOUNDS = {"*": (0, LENGTHS), "+": (1, LENGTHS), "?": (0, 1), "{1,4}": (1, 4), "{,3}": (0, 3), "{2,4}": (2, 4),
          "{3}": (3, 3), "{2,}": (2, LENGTHS)}  # fmt: skip


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("part", PARTS)
def test_lengths_from_every_side(part: str, bounds: str) -> None:
    """No end known, one, or both; one pair at a time, and many by a prepared query."""
    edges = edges_of(len(part))
    engine = engine_with(triples_of(edges))
    expected = shortest(PARTS[part](edges), *BOUNDS[bounds], edges)
    path = f"({part}{bounds} AS ?n)"
    every = sorted((f"n{a}", f"n{b}", str(n)) for (a, b), n in expected.items())
    assert ask(engine, f"?x {path} ?y", "?x ?y ?n") == every
    assert ask(engine, f"?x {path} ?x", "?x ?n") == [(x, n) for x, y, n in every if x == y]
    assert ask(engine, f"?y (^{part}{bounds} AS ?n) ?x", "?x ?y ?n") == every
    for node in ("n1", "n5"):
        assert ask(engine, f":{node} {path} ?y", "?y ?n") == [(y, n) for x, y, n in every if x == node]
        assert ask(engine, f"?x {path} :{node}", "?x ?n") == [(x, n) for x, y, n in every if y == node]
    pairs = [(a, b) for a in range(NODES) for b in range(NODES) if {a, b} <= nodes_of(edges)]
    for a, b in pairs[::13]:
        found = ask(engine, f":n{a} {path} :n{b}", "?n")
        assert found == ([(str(expected[a, b]),)] if (a, b) in expected else []), (a, b)
    arguments = [{"x": f"<{EX}n{a}>", "y": f"<{EX}n{b}>"} for a, b in pairs]
    prepared = engine.prepare(f"{PREFIX} SELECT ?n {{ ?x {path} ?y }}")
    for some in (arguments, arguments[:20]):
        many = prepared.many(some)
        lengths = [int(text.split('"')[1]) for text in many.column("n").to_pylist()]
        wanted = [(at, expected[pair]) for at, pair in enumerate(pairs[: len(some)]) if pair in expected]
        assert list(zip(many.column("argument").to_pylist(), lengths, strict=True)) == wanted


def test_a_length_is_an_integer_to_reckon_with() -> None:
    engine = engine_with(":a :p :b . :b :p :c . :c :p :a . :c :q :d .")
    assert ask(engine, ":a (:p+ AS ?n) ?y FILTER(?n > 1) BIND(?n * 10 AS ?m)", "?y ?m") == [("a", "30"), ("c", "20")]
    assert ask(engine, ":a (:p{2,} AS ?n) :b", "?n") == [("4",)], "at least two: once round, and on"
    assert ask(engine, ":a (:p{1,3} AS ?n) :a", "(DATATYPE(?n) AS ?d)") == [
        ("http://www.w3.org/2001/XMLSchema#integer",)
    ]
    assert ask(engine, ":nowhere (:p* AS ?n) ?y", "?y ?n") == [("nowhere", "0")]
    assert ask(engine, "?x (:p* AS ?n) :d", "?x ?n") == [("d", "0")]
    assert ask(engine, "?x (:p+ AS ?n) ?y", "(MAX(?n) AS ?diameter) (COUNT(*) AS ?pairs)") == [("3", "9")]
    text = f"{PREFIX} SELECT ?y {{ :a (:p* AS ?n) ?y }} ORDER BY DESC(?n) LIMIT 2"
    assert [str(y) for (y,) in engine.query(text)] == [f"{EX}c", f"{EX}b"]


def test_a_length_joins_with_what_binds_its_variable() -> None:
    engine = engine_with(":a :p :b . :b :p :c . :c :p :d . :d :p :a . :x :level 2 . :z :level 7 . :a :near :c , :b .")
    assert ask(engine, "?x :level ?n . :a (:p+ AS ?n) ?y", "?y") == [("c",)]
    assert ask(engine, ":a (:p+ AS ?n) ?y . ?y (:p+ AS ?n) :a", "?y ?n") == [("a", "4"), ("c", "2")]
    assert ask(engine, "VALUES ?n { 1 3 } :a (:p+ AS ?n) ?y", "?y ?n") == [("b", "1"), ("d", "3")]
    assert ask(engine, "VALUES (?x ?y ?n) { (:a :c 2) (:a :b 2) (:a :d UNDEF) } ?x (:p+ AS ?n) ?y", "?y ?n") == [
        ("c", "2"), ("d", "3")
    ]  # fmt: skip
    assert ask(engine, ":a :near ?y . :a (:p+ AS ?n) ?y", "?y ?n") == [("b", "1"), ("c", "2")]
    assert ask(engine, ":a :near ?y FILTER EXISTS { :a (:p+ AS ?n) ?y FILTER(?n = 2) }", "?y") == [("c",)]
    assert ask(engine, "?x :level ?n FILTER EXISTS { :a (:p+ AS ?n) ?y }", "?x") == [("x",)]
    prepared = engine.prepare(f"{PREFIX} SELECT ?y {{ ?x (:p+ AS ?n) ?y }}")
    two = '"2"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert rows(prepared(x=f"<{EX}a>", n=two)) == [("c",)]
    assert rows(prepared(x=f"<{EX}a>", y=f"<{EX}c>", n=two)) == [("c",)]
    assert rows(prepared(x=f"<{EX}a>", y=f"<{EX}b>", n=two)) == []
    assert prepared.many([{"n": two}, {"n": two.replace("2", "9")}]).column("argument").to_pylist() == [0] * 4
    text = f"{PREFIX} SELECT ?y {{ :a (:p+ AS ?n) ?y }} LIMIT 1"
    assert rows(engine.query(text, bindings={"n": two})) == [("c",)]


def test_lengths_in_blocks_of_all_kinds() -> None:
    engine = engine_with(":a :p :b . :b :p :c . :x :q :a , :z . :g { :a :p :c } :h { :a :p :b . :b :p :c . :c :p :d }")
    assert ask(engine, ":x :q ?s OPTIONAL { ?s (:p+ AS ?n) :c }", "?s ?n") == [("a", "2"), ("z", "")]
    assert ask(engine, "GRAPH ?g { :a (:p+ AS ?n) ?y }", "?g ?y ?n") == [
        ("g", "c", "1"), ("h", "b", "1"), ("h", "c", "2"), ("h", "d", "3")
    ]  # fmt: skip
    assert ask(engine, "GRAPH ?g { :a (:p+ AS ?n) :c }", "?g ?n") == [("g", "1"), ("h", "2")]
    assert ask(engine, "GRAPH :h { ?x (:p{2,3} AS ?n) ?y }", "?x ?y ?n") == [
        ("a", "c", "2"), ("a", "d", "3"), ("b", "d", "2")
    ]  # fmt: skip
    assert ask(engine, "{ :a (:p+ AS ?n) ?y } UNION { :x (:q? AS ?n) ?y }", "?y ?n") == [
        ("a", "1"), ("b", "1"), ("c", "2"), ("x", "0"), ("z", "1")
    ]  # fmt: skip
    assert ask(engine, ":a :p ?y MINUS { :a (:p+ AS ?n) ?y FILTER(?n = 1) }", "?y") == []
    assert ask(engine, "{ SELECT ?y (MIN(?n) AS ?least) { ?x (:p+ AS ?n) ?y } GROUP BY ?y }", "?y ?least") == [
        ("b", "1"), ("c", "1")
    ]  # fmt: skip
    assert ask(engine, ":a (:p+ AS ?n) ?y", "*") == [("1", "b"), ("2", "c")], "a variable like others"
    engine.update(f"{PREFIX} INSERT {{ ?y :depth ?n }} WHERE {{ :a (:p+ AS ?n) ?y }}")
    assert ask(engine, "?y :depth ?n") == [("b", "1"), ("c", "2")]


def test_explain_shows_a_length() -> None:
    engine = engine_with(":a :p :b .")
    text = f"{PREFIX} SELECT * {{ :a (^:p{{1,4}} AS ?n) ?y }}"
    assert f"Path ?y (<{EX}p>{{1,4}} AS ?n) <{EX}a>" in engine.explain(text)
    assert "rows" in engine.explain(text, analyze=True)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("?a (:p AS ?n) ?b", "expected a repetition with '*', '+', '?' or '{n,m}' before AS: other paths have one"),
        ("?a (:p/:q AS ?n) ?b", "expected a repetition"),
        ("?a (:p/:q+ AS ?n) ?b", "expected a repetition"),
        ("?a (:p+|:q AS ?n) ?b", "expected a repetition"),
        ("?a ^(:p+ AS ?n) ?b", "expected no AS in a part of a path"),
        ("?a ((:p+ AS ?n)) ?b", "expected no AS in a part of a path"),
        ("?a :q/(:p+ AS ?n) ?b", "expected no AS in a part of a path"),
        ("?a (:p+ AS ?n)/:q ?b", "expected an object: (path AS ?length) is a whole predicate"),
        ("?a (:p+ AS ?n)|:q ?b", "expected an object: (path AS ?length) is a whole predicate"),
        ("?a (:p+ AS ?n)* ?b", "expected an object: (path AS ?length) is a whole predicate"),
        ("?a (:p+ AS ?n){2} ?b", "expected an object: (path AS ?length) is a whole predicate"),
        ("?a (:p+ AS ?a) ?b", "expected a variable after AS that is no end of the path"),
        ("?a (:p+ AS ?b) ?b", "expected a variable after AS that is no end of the path"),
        ("?a (:p+ AS :n) ?b", "expected a variable for the length of a shortest path after AS"),
        ("?a (:p+ AS ?n ?b", "expected ')' after the variable"),
        ("?a (:p+ AS ?n) ?b BIND(1 AS ?n)", "has not"),
    ],
)
def test_where_no_length_may_stand(where: str, expected: str) -> None:
    with pytest.raises(QuerySyntaxError) as error:
        wukongs.Engine().query(f"{PREFIX} SELECT * {{ {where} }}")
    assert expected in str(error.value)


def test_a_template_has_no_length() -> None:
    with pytest.raises(QuerySyntaxError, match="found a property path"):
        wukongs.Engine().query(f"{PREFIX} CONSTRUCT {{ ?a (:p+ AS ?n) ?b }} {{ ?a (:p+ AS ?n) ?b }}")


def test_objects_behind_a_length() -> None:
    engine = engine_with(":a :p :b . :b :p 5 .")
    assert ask(engine, ":a (:p+ AS ?n) 5", "?n") == ask(engine, ":a (:p{2} AS ?n)5", "?n") == [("2",)]
    assert ask(engine, ":a (:p+ AS ?n)+5", "?n") == [], "+5 is another term"
    assert ask(engine, ":a (:p+ AS ?n) :b , ?y ; (:p? AS ?m) ?z", "?n ?m ?y ?z") == [
        ("1", "0", "b", "a"), ("1", "1", "b", "b")
    ]  # fmt: skip


def test_lengths_in_a_window() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        where = f"{{ <{EX}a> (<{EX}p>+ AS ?n) ?s }}"
        text = register_text("RANGE 200ms STEP 100ms", where=where).replace("SELECT ?s", "SELECT ?s ?n")
        query = engine.register(text)
        other = engine.register(text.replace("QUERY q", "QUERY other").replace(f"<{EX}a>", f"<{EX}b>"))
        stream.push([at("a", 50, "p", "b"), at("b", 150, "p", "c"), at("c", 250, "other", "d")])
        stream.advance(400)
        engine.settle(timeout_s=60)
        found = {window.end_ms: rows(window) for window in query.results(timeout_s=0)}
        assert found == {100: [("b", "1")], 200: [("b", "1"), ("c", "2")], 300: [], 400: []}
        found = {window.end_ms: rows(window) for window in other.results(timeout_s=0)}
        assert found == {100: [], 200: [("c", "1")], 300: [("c", "1")], 400: []}
