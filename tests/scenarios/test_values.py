"""Values of Python, terms of libraries and typed columns of Arrow go in on every face, and are found again."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pyoxigraph as ox
import pytest
import rdflib

import wukongs

S, P, A = "http://ex/stream", "<http://ex/p>", "<http://ex/a>"
XSD = "http://www.w3.org/2001/XMLSchema#"
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
NOON_MS = 1_714_564_800_000
VALUES = [
    True,
    7,
    2.5,
    Decimal("1.10"),
    NOON,
    dt.date(2024, 5, 1),
    dt.timedelta(minutes=5),
    ox.NamedNode("http://ex/o"),
]
TEXTS = [
    f'"true"^^<{XSD}boolean>',
    f'"7"^^<{XSD}integer>',
    f'"2.5"^^<{XSD}double>',
    f'"1.10"^^<{XSD}decimal>',
    f'"2024-05-01T12:00:00Z"^^<{XSD}dateTime>',
    f'"2024-05-01"^^<{XSD}date>',
    f'"PT5M"^^<{XSD}dayTimeDuration>',
    "<http://ex/o>",
]


def stored(engine: Any, stream: Any) -> list[str]:
    stream.advance(NOON + dt.timedelta(hours=1))
    engine.settle(timeout_s=60)
    return sorted(row[0] for row in engine.query("SELECT ?o { ?s ?p ?o }").texts())


def table(objects: Any, times: Any = None) -> pa.Table:
    rows = len(objects)
    times = [NOON_MS] * rows if times is None else times
    return pa.table({"subject": [A] * rows, "predicate": [P] * rows, "object": objects, "timestamp_ms": times})


def test_tuples_of_values(engine: Any) -> None:
    stream = engine.stream(S, batch_ms=100)
    subject = rdflib.URIRef("http://ex/a")
    assert stream.push([(subject, P, value, NOON) for value in VALUES]) == len(VALUES)
    assert stored(engine, stream) == sorted(TEXTS)


def test_push_many_takes_values_and_data_frames(engine: Any) -> None:
    one, two = engine.stream(S, batch_ms=100), engine.stream(S + "2", batch_ms=100)
    frame = pd.DataFrame({"subject": [A], "predicate": [P], "object": [8], "timestamp_ms": [NOON_MS]})
    assert engine.push_many({one.iri: [(A, P, 7, NOON)], two.iri: frame}, NOON) == {one.iri: 1, two.iri: 1}
    two.advance(NOON + dt.timedelta(hours=1))
    assert stored(engine, one) == [f'"7"^^<{XSD}integer>', f'"8"^^<{XSD}integer>']


@pytest.mark.parametrize(
    ("objects", "texts"),
    [
        ([1, 2, 1], [f'"1"^^<{XSD}integer>', f'"2"^^<{XSD}integer>']),
        ([1.5, float("nan")], [f'"1.5"^^<{XSD}double>', f'"NaN"^^<{XSD}double>']),
        (pa.array([0.1], pa.float32()), [f'"0.1"^^<{XSD}float>']),
        ([True], [f'"true"^^<{XSD}boolean>']),
        ([Decimal("0.00000001")], [f'"0.00000001"^^<{XSD}decimal>']),
        ([dt.date(2024, 5, 1)], [f'"2024-05-01"^^<{XSD}date>']),
        ([dt.timedelta(minutes=5)], [f'"PT5M"^^<{XSD}dayTimeDuration>']),
        (pa.array([NOON], pa.timestamp("ns", "Asia/Tokyo")), [f'"2024-05-01T12:00:00Z"^^<{XSD}dateTime>']),
        (
            pa.array([dt.datetime(2024, 5, 1, 12, 0, 0, 450_000)], pa.timestamp("us")),
            [f'"2024-05-01T12:00:00.45"^^<{XSD}dateTime>'],
        ),
        (pa.array([5, 5]).dictionary_encode(), [f'"5"^^<{XSD}integer>']),
        (pa.chunked_array([[1], [2]]), [f'"1"^^<{XSD}integer>', f'"2"^^<{XSD}integer>']),
    ],
    ids=range(11),
)
def test_typed_columns(engine: Any, objects: Any, texts: list[str]) -> None:
    stream = engine.stream(S, batch_ms=100)
    assert stream.push_arrow(table(objects)) == len(objects)
    assert stored(engine, stream) == texts


def test_a_typed_result_goes_in_again(engine: Any) -> None:
    stream = engine.stream(S, batch_ms=100)
    pushed = [*VALUES, '"plain \\"text\\"\\n"', "<http://ex/iri>"]
    for value in pushed:
        stream.push([(A, P, value, NOON)])
    found = stored(engine, stream)
    terms = engine.query("SELECT ?o { ?s ?p ?o }").arrow()["o"].to_pylist()
    again = engine.stream(S + "again", batch_ms=100, into="http://ex/g")
    asked = engine.prepare(
        "SELECT ?subject ?predicate ?object { ?subject ?predicate ?object FILTER sameTerm(?object, ?t) }"
    )
    for term in terms:
        typed = asked(t=term).arrow(typed=True)
        assert again.push_arrow(typed.append_column("timestamp_ms", pa.array([NOON_MS]))) == 1
    again.advance(NOON + dt.timedelta(hours=1))
    engine.settle(timeout_s=60)
    assert sorted(row[0] for row in engine.query("SELECT ?o { GRAPH <http://ex/g> { ?s ?p ?o } }").texts()) == sorted(
        text.replace("1.10", "1.1")
        for text in found  # a value has no zeros at its end
    )


def test_times_may_be_timestamps_with_a_zone(engine: Any) -> None:
    stream = engine.stream(S, batch_ms=100)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?o FROM STREAM <{S}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    )
    early = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)  # 1 us before 1970: in the millisecond -1
    for unit in ("us", "ns"):
        stream.push_arrow(table([1], pa.array([early], pa.timestamp(unit, "UTC"))))
    stream.push([(A, P, 2, early)])
    soon = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    for unit in ("s", "ms"):
        stream.push_arrow(table([3], pa.array([soon], pa.timestamp(unit, "UTC"))))
    stream.advance(soon + dt.timedelta(seconds=1))
    engine.settle(timeout_s=60)
    ends = {window.end_ms: sorted(row[0] for row in window.texts()) for window in query.results(1) if len(window)}
    assert ends == {0: [f'"1"^^<{XSD}integer>', f'"2"^^<{XSD}integer>'], 1000: [f'"3"^^<{XSD}integer>']}


def test_bindings_are_values(engine: Any) -> None:
    stream = engine.stream(S, batch_ms=100)
    stream.push([(A, P, value, NOON) for value in VALUES])
    stored(engine, stream)
    for value, text in zip(VALUES, TEXTS, strict=True):
        (row,) = engine.query("SELECT ?s ?o { ?s ?p ?o }", bindings={"o": value}).texts()
        assert row in ((A, text), (A, None)), value
    many = engine.prepare("SELECT ?s { ?s ?p ?o }").many(pa.table({"o": [6, 7, 8]}))
    assert many["argument"].to_pylist() == [1]
    assert engine.prepare("SELECT ?s { ?s ?p ?o }").many([{"o": 2.5}, {"o": "<http://ex/o>"}]).num_rows == 2


def test_a_group_of_queries_has_values(engine: Any) -> None:
    stream = engine.stream(S, batch_ms=100)
    text = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{S}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    query = engine.register(text, bindings=[{"o": 1}, {"o": dt.date(2024, 5, 1)}])
    stream.push([(A, P, dt.date(2024, 5, 1), NOON)])
    stream.advance(NOON + dt.timedelta(seconds=1))
    window = next(query.results(10))
    assert [row[0] for row in window.texts()] == [f'"1"^^<{XSD}integer>']


def test_apply_takes_typed_columns(engine: Any) -> None:
    engine.apply(pa.table({"subject": [A], "predicate": [P], "object": [5]}))
    assert engine.query("SELECT ?o { ?s ?p ?o }").texts() == [(f'"5"^^<{XSD}integer>',)]


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([(A, P, 1, 1), (A, P, object, 1)], wukongs.DataError, "object of tuple 1 of the call: expected an N-Triples"),
        ([(A, P, 1, 1), ("a", P, 1, 1)], wukongs.DataError, "subject of tuple 1 of the call: expected a term as N-T"),
        ([(A, 5, 1, 1)], wukongs.DataError, "row 0, column 'predicate', .*expected a predicate"),
        ([(5, P, 1, 1)], wukongs.DataError, "row 0, column 'subject', .*a literal cannot be a subject"),
        ([(A, P, 1, dt.datetime(2024, 5, 1))], wukongs.StreamError, "a datetime without a zone at tuple 0 of the call"),
        ([(A, P, 1, True)], wukongs.StreamError, "timestamp True at tuple 0 of the call: expected an integer"),
        ([(A, P, 1, 1), (A, P, 1)], wukongs.StreamError, "tuple 1 of the call has 3 parts: expected"),
        ([(A, P, 1, 1), None], wukongs.StreamError, "tuple 1 of the call is None: expected"),
        (None, wukongs.StreamError, "expected a list of tuples, found NoneType"),
    ],
)
def test_other_things_are_refused_by_name_and_place(engine: Any, rows: Any, error: Any, message: str) -> None:
    stream = engine.stream(S, batch_ms=100)
    with pytest.raises(error, match=message):
        stream.push(rows)
    assert engine.stats()["streams"][S]["tuples"] == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "expected an Arrow table, or a data frame of pandas .* found NoneType"),
        ([(A, P, 1, 1)], "expected an Arrow table, .* found list"),
        (table([[1]]), r"column 'object': expected N-Triples strings, or integers, .* found list"),
        (table([1], pa.array([NOON], pa.timestamp("ms"))), "column 'timestamp_ms': found timestamps without a zone"),
        (table([None]), "row 0, column 'object': a value is missing"),
        (table([1], pa.array([None], pa.timestamp("us", "UTC"))), "column 'timestamp_ms': a value is missing"),
    ],
    ids=range(6),
)
def test_other_tables_are_refused(engine: Any, given: Any, message: str) -> None:
    stream = engine.stream(S, batch_ms=100)
    with pytest.raises(wukongs.WukongsError, match=message):
        stream.push_arrow(given)
    assert engine.stats()["streams"][S]["tuples"] == 0
