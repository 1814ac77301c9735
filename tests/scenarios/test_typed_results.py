"""Typed Arrow columns and term ids on every face: of one-shot queries, of many at once, and of windows."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_helpers import A
from tests.oracles.rdf import XSD
from wukongs import DataError

P = "<http://e/p>"
DATA = f"""<http://e/a> {P} "5"^^<{XSD}integer> .
<http://e/b> {P} "123456789012345678"^^<{XSD}long> .
<http://e/a> <http://e/label> "a label that no id holds" .
<http://e/b> <http://e/label> "short" .
<http://e/a> <http://e/odd> "2.5"^^<{XSD}decimal> .
<http://e/b> <http://e/odd> "text"@en .
"""


@pytest.fixture
def filled(engine: Any) -> Any:
    engine.load(io.BytesIO(DATA.encode()), format="nt")
    return engine


@pytest.mark.slow
def test_columns_of_values_and_of_ids(filled: Any) -> None:
    result = filled.query(
        "SELECT ?s ?n ?half ?label ?odd ?none { ?s <http://e/p> ?n ; <http://e/label> ?label ; <http://e/odd> ?odd "
        "BIND(?n / 4 AS ?half) OPTIONAL { ?s <http://e/nothing> ?none } } ORDER BY ?n"
    )
    table = result.arrow(typed=True)
    assert table.to_pydict() == {
        "s": ["http://e/a", "http://e/b"],
        "n": [5, 123456789012345678],
        "half": [Decimal("1.25"), Decimal("30864197253086419.5")],
        "label": ["a label that no id holds", "short"],
        "odd": [f'"2.5"^^<{XSD}decimal>', '"text"@en'],
        "none": [None, None],
    }
    assert [field.type for field in table.schema][1:4] == [pa.int64(), pa.decimal128(38, 2), pa.string()]
    ids = result.arrow(ids=True)
    assert {name: result.terms(ids[name]).to_pylist() for name in result.vars} == result.arrow().to_pydict()
    with pytest.raises(DataError, match="is not the id of a term in this result"):
        result.terms([2])


def test_many_at_once(filled: Any) -> None:
    prepared = filled.prepare("SELECT ?n { ?s <http://e/p> ?n }")
    arguments = [{"s": "<http://e/b>"}, {"s": "<http://e/nothing>"}, {"s": "<http://e/a>"}]
    table = prepared.many(arguments, typed=True)
    assert table.to_pydict() == {"argument": [0, 2], "n": [123456789012345678, 5]}
    assert prepared.many(arguments[1:2], typed=table.schema).schema.types == [pa.int64(), pa.int64()]
    parts = list(prepared.batches(arguments, rows=2, typed=pa.schema([("n", pa.float64())])))
    assert [part.to_pydict() for part in parts] == [
        {"argument": [0], "n": [123456789012345678.0]},
        {"argument": [2], "n": [5.0]},
    ]


def test_windows(engine: Any) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s (SUM(?n) AS ?sum) FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
        "WHERE { ?s ?p ?n } GROUP BY ?s"
    )
    stream.push([("<http://e/a>", P, f'"{n}"^^<{XSD}integer>', 10 * n) for n in (1, 2, 3)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    first, second = (next(iter(query.results(timeout_s=60))) for _ in range(2))
    table = first.arrow(typed=True)
    assert table.to_pydict() == {"s": ["http://e/a"], "sum": [6]}
    assert len(second) == 0
    assert second.arrow(typed=table.schema).schema == table.schema
    assert first.terms(first.arrow(ids=True)["sum"]).to_pylist() == [f'"6"^^<{XSD}integer>']


def test_the_triples_of_a_stream_have_their_time(engine: Any) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    query = engine.register(
        f"REGISTER STREAM <http://e/made> AS CONSTRUCT {{ ?s ?p ?n }} FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
        "WHERE { ?s ?p ?n }"
    )
    stream.push([("<http://e/a>", P, f'"1"^^<{XSD}integer>', 10)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    window = next(iter(query.results(timeout_s=60)))
    cells = {"subject": ["http://e/a"], "predicate": ["http://e/p"], "object": [1], "timestamp_ms": [100]}
    assert window.arrow(typed=True).to_pydict() == cells
    for options in ({}, {"dictionary": True}, {"ids": True}):
        assert window.arrow(**options).column_names == list(cells)
