"""push_many: the tuples of several streams, and their progress, in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.engine_helpers import EX, A, B, at, register_text, rows, windows
from wukongs.errors import DataError, SettingsError, StreamError

C = EX + "streamC"


def table(*tuples: tuple[str, int], **columns: list[Any]) -> pa.Table:
    """A table of tuples with these subjects, at these times."""
    made = [at(name, t) for name, t in tuples]
    names = ("subject", "predicate", "object", "timestamp_ms")
    found = {name: [one[place] for one in made] for place, name in enumerate(names)}
    return pa.table({**found, **columns})


def declare(engine: Any, **options: Any) -> None:
    for iri in (A, B, C):
        engine.stream(iri, batch_ms=100, **options)


def closed(engine: Any) -> dict[str, int | None]:
    return {name: one["closed_ms"] for name, one in engine.stats()["streams"].items()}


def subjects(engine: Any) -> list[str]:
    return [row[0] for row in rows(engine.query("SELECT ?s { ?s ?p ?o }"))]


def test_tuples_and_progress_of_several_streams(engine: Any) -> None:
    declare(engine)
    query = engine.register(register_text("RANGE 100ms STEP 100ms", stream=A))
    found = engine.push_many({A: table(("a1", 50), ("a2", 150)), B: [at("b1", 120)], C: None}, advance_ms=200)
    engine.settle(60)
    assert found == {A: 2, B: 1, C: 0}
    assert closed(engine) == {A: 200, B: 200, C: 200}
    assert subjects(engine) == ["a1", "a2", "b1"]
    assert windows(query) == {100: ["a1"], 200: ["a2"]}


def test_without_a_time_nothing_advances(engine: Any) -> None:
    declare(engine)
    assert engine.push_many({A: table(("a1", 350)), B: [], C: table()}) == {A: 1, B: 0, C: 0}
    assert engine.push_many({}) == {}
    engine.settle(60)
    assert closed(engine)[B] is None
    engine.push_many({B: None, C: []}, np.int64(300))  # type: ignore[arg-type]
    engine.settle(60)
    assert closed(engine) == {A: 300, B: 300, C: 300}


def test_a_tuple_names_its_graph(engine: Any) -> None:
    declare(engine)
    named = table(("a1", 50), graph=[f"<{EX}g>"])
    engine.push_many({A: named, B: None, C: None}, advance_ms=100)
    engine.settle(60)
    assert engine.query(f"ASK {{ GRAPH <{EX}g> {{ ?s ?p ?o }} }}").boolean


def test_late_tuples_are_counted_apart(engine: Any) -> None:
    declare(engine, lateness_ms=100, on_late="count")
    engine.push_many({A: [at("a5", 500)], B: [at("b5", 500)]})
    found = engine.push_many({A: [at("late", 50), at("a6", 600)], B: [at("b45", 450)]})
    assert found == {A: 1, B: 1}
    assert engine.stats()["streams"][A]["late"] == 1


@pytest.mark.parametrize(
    ("pushed", "advance_ms", "expected", "message"),
    [
        (
            {A: [at("a1", 50)], EX + "other": None},
            None,
            StreamError,
            "other was not declared here.*Declared here: .*streamA",
        ),
        ({A: [at("a1", 50)], B: pa.table({"subject": ["<http://e/s>"]})}, None, StreamError, "no column predicate"),
        ({A: [at("a1", 50)], B: [("<http://e/s>", "p", "<http://e/o>", 10)]}, None, DataError, "p"),
        ({A: [at("a1", 50)], B: [at("b1", "x")]}, None, StreamError, "timestamp 'x'"),  # type: ignore[arg-type]
        ({A: [at("a1", 50)], B: None}, "soon", StreamError, "'soon'"),
        ({A: [at("a1", 50)], f"<{A}>": [at("a2", 60)]}, None, StreamError, "streamA is named twice"),
        ({A: [at("a1", 50)], "no iri": None}, None, (DataError, SettingsError, StreamError), "no iri"),
    ],
    ids=["not declared", "no column", "malformed term", "no time", "no time to advance to", "named twice", "no IRI"],
)
def test_what_is_refused_takes_nothing(
    engine: Any, pushed: dict[str, Any], advance_ms: Any, expected: type[Exception], message: str
) -> None:
    declare(engine)
    with pytest.raises(expected, match=message):
        engine.push_many(pushed, advance_ms)
    assert [one["tuples"] for one in engine.stats()["streams"].values()] == [0, 0, 0]


@pytest.mark.faces("embedded", "connect", "durable")
def test_an_error_of_one_stream_takes_nothing_of_any(engine: Any) -> None:
    declare(engine)
    with pytest.raises(StreamError, match="the timestamp falls"):
        engine.push_many({A: [at("a1", 50)], B: [at("b5", 50), at("b2", 20)]}, advance_ms=100)
    with pytest.raises(StreamError, match="outside of what can be named"):
        engine.push_many({A: [at("a1", 50)], B: None}, advance_ms=1 << 62)
    assert [one["tuples"] for one in engine.stats()["streams"].values()] == [0, 0, 0]
    assert closed(engine) == {A: None, B: None, C: None}


@pytest.mark.faces("cluster-1", "cluster-3")
def test_on_a_cluster_the_error_names_what_was_taken(engine: Any) -> None:
    declare(engine)
    with pytest.raises(StreamError, match=f"the timestamp falls.*The tuples of this call for {A}, {C} were taken"):
        engine.push_many({A: [at("a1", 50)], B: [at("b5", 50), at("b2", 20)], C: [at("c1", 50)]}, 100)
    assert engine.push_many({A: None, B: [at("b5", 50)], C: None}, 100) == {A: 0, B: 1, C: 0}
    engine.settle(60)
    assert closed(engine) == {A: 100, B: 100, C: 100}
    assert subjects(engine) == ["a1", "b5", "c1"]


@pytest.mark.parametrize("others", [[], [B, C]], ids=["alone", "with others"])
def test_what_is_late_is_stored_before_the_streams_advance(engine: Any, others: list[str]) -> None:
    declare(engine, on_late="count")
    engine.push_many({iri: [at("first", 50)] for iri in (A, B, C)}, 100)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"WHERE {{ GRAPH <{A}> {{ ?a ?p ?o }} ?s <{EX}late> ?o }}"
    )
    for iri in {A, B, C} - {A, *others}:
        engine.push_many({iri: None}, 1000)
    for tick in range(2, 7):
        tuples = [at(f"late{tick}", 20, predicate="late"), at("a", tick * 100 - 50)]
        assert engine.push_many({A: tuples, **dict.fromkeys(others)}, tick * 100)[A] == 1
    engine.settle(60)
    late = [f"late{tick}" for tick in range(2, 7)]
    assert windows(query) == {tick * 100: late[: tick - 1] for tick in range(2, 7)}


def test_streams_that_begin_with_a_call_miss_nothing_of_it(engine: Any) -> None:
    declare(engine)
    texts = [
        f"REGISTER QUERY q{number} AS SELECT ?s FROM <urn:x-wukongs:default> FROM NAMED STREAM <{iri}> "
        f"[RANGE 1s STEP 1s] WHERE {{ GRAPH <{iri}> {{ ?s ?p ?o }} ?s ?p ?o }}"
        for number, iri in enumerate((A, B, C))
    ]
    queries = [engine.register(text) for text in texts]
    engine.push_many({A: [at("a", 50)], B: [at("b", 50)], C: [at("c", 50)]}, 1000)
    engine.settle(60)
    assert [windows(query) for query in queries] == [{1000: [name]} for name in "abc"]


def test_a_dropped_stream_is_not_declared(engine: Any) -> None:
    declare(engine)
    engine.drop_stream(B)
    with pytest.raises(StreamError, match="was not declared here"):
        engine.push_many({B: [at("b1", 50)]})
