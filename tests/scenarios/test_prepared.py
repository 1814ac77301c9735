"""Engine.prepare on every face: the answers for rows of terms are those of the texts that hold the terms."""

from __future__ import annotations

import io
import random
from collections import Counter

import pyarrow as pa
import pytest

import wukongs
from tests.engine_helpers import slow_filter
from tests.faces import Face
from wukongs import DataError, SettingsError

PREFIX = "PREFIX : <http://e/> "
WHERE = [
    "SELECT ?y { ?x :p ?y }",
    "SELECT ?x ?z { ?x :p ?y . ?y :q ?z }",
    "SELECT ?y ?n { ?x :p ?y OPTIONAL { ?y :q ?n FILTER(?n != ?x) } }",
    "SELECT ?y { ?x :p+ ?y }",
    "SELECT ?y ?n { ?x (:p+ AS ?n) ?y }",
    "SELECT ?y ?n { ?y :q ?z . ?x (:p{2,} AS ?n) ?y }",
    "SELECT ?y ?d { ?x :p ?y { SELECT ?y (STR(?z) AS ?d) { ?y :q ?z } } }",
    "SELECT ?y { ?x :p ?y FILTER EXISTS { ?y :q ?v { SELECT ?y ?v { ?y :q|:p ?v BIND(?v AS ?d) } } } }",
    "SELECT (COUNT(?y) AS ?count) { ?x :p ?y }",
    "SELECT ?y { ?x :p ?y FILTER NOT EXISTS { ?y :q ?x } }",
    "SELECT DISTINCT ?y { { ?x :p ?y } UNION { ?y :q ?x } }",
    "SELECT ?y ?g { GRAPH ?g { ?x :p ?y } }",
]


def fill(engine: wukongs.Engine) -> None:
    rng = random.Random(3)
    lines = [
        f"<http://e/{rng.randrange(9)}> <http://e/{rng.choice('pq')}> <http://e/{rng.randrange(9)}>" for _ in range(40)
    ]
    lines += [
        f"<http://e/{rng.randrange(9)}> <http://e/p> <http://e/{rng.randrange(9)}> <http://e/g{n % 2}>"
        for n in range(8)
    ]
    engine.load(io.BytesIO("".join(f"{line} .\n" for line in lines).encode()), format="nq")


@pytest.mark.parametrize("where", WHERE)
def test_rows_are_those_of_the_text_with_its_terms(engine: wukongs.Engine, where: str) -> None:
    fill(engine)
    prepared = engine.prepare(PREFIX + where)
    names = [f"<http://e/{number}>" for number in (*range(9), 3, "nowhere")]
    head, body = where.split("{", 1)
    expected = []
    for name in names:
        # A selected ?x is not among the texts: its column is the term itself.
        text = f"{PREFIX} {head.replace('?x', '')} {{ {body.replace('?x', name)}"
        rows = engine.query(text).texts()
        expected.append(Counter((name, *row) if "?x" in head else row for row in rows))
        assert Counter(prepared(x=name).texts()) == expected[-1], name
        assert Counter(engine.query(PREFIX + where, bindings={"x": name}).texts()) == expected[-1], name
    found = prepared.many([{"x": name} for name in names])
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    assert [Counter(row[1:] for row in rows if row[0] == number) for number in range(len(names))] == expected
    assert [number for number, *_ in rows] == sorted(number for number, *_ in rows)


def test_wrong_arguments_are_named(engine: wukongs.Engine, face: Face) -> None:
    fill(engine)
    prepared = engine.prepare(PREFIX + WHERE[0])
    with pytest.raises(SettingsError, match=r"\?z is no variable of the query"):
        prepared(z="<http://e/1>")
    with pytest.raises(DataError, match="row 1"):
        prepared.many([{"x": "<http://e/1>"}, {"x": "<http://e/1"}])
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["_:b", None]))
    with pytest.raises(DataError, match=r"row 1, column 'x': a value is missing \(null\): each query binds them all"):
        prepared.many(pa.table({"x": null}))
    patterns = "VALUES ?z { 1 2 3 4 5 } ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l"
    slow = engine.prepare(f"SELECT * {{ {patterns} {slow_filter('bcdefghijklz')} }}")
    with pytest.raises(wukongs.QueryTimeout):
        slow.many(
            [{"a": "<http://e/1>"}] * 3,
            timeout_s=0.05 if face.name != "cluster-3" else 2,  # what other nodes have is there by then
        )
