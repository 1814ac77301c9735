"""Streams whose tuples have a sign: `-` takes a triple from the stored graph, and is in no window."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.faces import Face
from wukongs import DataError, StreamError

S, T = "http://e/s", "http://e/t"
ALL = "SELECT ?s ?p ?o ?g { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
Signed = tuple[str, str, str, str, int]
"""+ or -, subject, predicate, object, time in ms."""


def a(name: str) -> str:
    return f"<http://e/{name}>"


def signed(*tuples: Signed, ops: Any = None, **more: Any) -> pa.Table:
    columns = [[row[at] for row in tuples] for at in range(5)]
    terms = {name: [a(text) for text in columns[at]] for at, name in enumerate(("subject", "predicate", "object"), 1)}
    signs = pa.array(columns[0], pa.string()) if ops is None else ops
    return pa.table({**terms, "timestamp_ms": pa.array(columns[4], pa.int64()), "op": signs, **more})


def stored(engine: Any, at: int | None = None) -> set[str]:
    """The stored triples, by the last parts of their names, graphs behind @."""
    found = set()
    for row in engine.query(ALL, at=at).arrow().to_pylist():
        *terms, graph = (None if term is None else term.rpartition("/")[2].rstrip(">") for term in row.values())
        found.add(" ".join(terms) + (f" @{graph}" if graph else ""))
    return found


def windows(query: Any) -> dict[int, list[str]]:
    return {
        window.end_ms: sorted(" ".join(term.rpartition("/")[2] for term in map(str, row)) for row in window)
        for window in query.results(timeout_s=0)
    }


def test_a_retraction_takes_a_triple_from_the_stored_graph_and_is_in_no_window(engine: wukongs.Engine) -> None:
    stream = engine.stream(S, batch_ms=100)
    query = engine.register(f"REGISTER QUERY q AS SELECT * FROM STREAM <{S}> [RANGE 200ms STEP 100ms] {{ ?s ?p ?o }}")
    assert stream.push_arrow(signed(("+", "a", "p", "b", 50), ("+", "a", "p", "c", 60))) == 2
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p b", "a p c"}
    assert stream.push_arrow(signed(("-", "a", "p", "b", 150), ("-", "never", "p", "there", 160))) == 2
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p c"}
    stream.push_arrow(signed(("+", "a", "p", "b", 250)))
    stream.advance(400)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p b", "a p c"}
    assert windows(query) == {100: ["a p b", "a p c"], 200: ["a p b", "a p c"], 300: ["a p b"], 400: ["a p b"]}
    assert engine.stats()["streams"][S]["tuples"] == 3


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_the_last_sign_at_a_snapshot_counts(engine: wukongs.Engine, kind: pa.DataType) -> None:
    """By time, then stream, then the order of the call; every + is in the windows."""
    one, other = (engine.stream(iri, batch_ms=100) for iri in (S, T))
    query = engine.register(f"REGISTER QUERY q AS SELECT * FROM STREAM <{S}> [RANGE 100ms STEP 100ms] {{ ?s ?p ?o }}")
    engine.update("INSERT DATA { <http://e/old> <http://e/p> <http://e/x>, <http://e/y> }")
    tuples: list[Signed] = [
        ("+", "a", "p", "gone", 10),
        ("-", "a", "p", "gone", 20),
        ("-", "a", "p", "here", 20),
        ("+", "a", "p", "here", 20),
        ("+", "a", "p", "later", 30),
        ("-", "old", "p", "x", 40),
        ("-", "old", "p", "y", 40),
        ("+", "old", "p", "y", 50),
    ]
    table = signed(*tuples)
    one.push_arrow(table.set_column(4, "op", table.column("op").cast(kind)))
    other.push_arrow(signed(("-", "a", "p", "here", 19), ("-", "a", "p", "later", 30)))
    one.advance(100)
    other.advance(100)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p here", "old p y"}
    assert windows(query) == {100: ["a p gone", "a p here", "a p later", "old p y"]}


def test_a_retraction_that_comes_late_acts_at_the_next_snapshot(engine: wukongs.Engine) -> None:
    stream = engine.stream(S, batch_ms=100, lateness_ms=50)
    engine.stream(T).close()
    stream.push_arrow(signed(("+", "a", "p", "b", 50), ("+", "a", "p", "c", 60)))
    stream.advance(300)
    engine.settle(timeout_s=60)
    before = engine.query("ASK {}").snapshot
    late = signed(
        ("-", "a", "p", "b", 120), ("+", "a", "p", "b", 110), ("-", "a", "p", "c", 80), ("+", "a", "p", "c", 90)
    )
    assert stream.push_arrow(late) == 0
    assert stored(engine) == {"a p c"}
    assert stored(engine, before) == {"a p b", "a p c"}
    assert engine.stats()["streams"][S]["late"] == 4


def test_a_retraction_names_its_graph(engine: wukongs.Engine) -> None:
    stream = engine.stream(S, batch_ms=100, into="http://e/g")
    graphs = pa.array([None, a("h"), None, a("h")], pa.string())
    rows: list[Signed] = [
        ("+", "a", "p", "b", 1),
        ("+", "a", "p", "b", 1),
        ("+", "a", "p", "c", 1),
        ("+", "a", "p", "c", 1),
    ]
    stream.push_arrow(signed(*rows, graph=graphs))
    stream.advance(100)
    stream.push_arrow(signed(("-", "a", "p", "b", 101), ("-", "a", "p", "c", 101), graph=graphs[:2]))
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p b @h", "a p c @g"}


@pytest.mark.parametrize(
    ("table", "error", "said"),
    [
        (
            signed(("+", "a", "p", "b", 10), ("*", "a", "p", "b", 20)),
            DataError,
            r"row 1, column 'op': expected \+ or -",
        ),
        (signed(("+", "a", "p", "b", 10), ops=pa.array([None], pa.string())), DataError, "row 0, column 'op': a value"),
        (signed(("+", "a", "p", "b", 10), ops=pa.nulls(1)), DataError, "row 0, column 'op': a value is missing"),
        (signed(("+", "a", "p", "b", 10), ops=pa.array([1])), DataError, "column 'op': expected strings, found int64"),
        (
            signed(("+", "a", "p", "b", 10), ("-", "a", "timing", "b", 20)),
            StreamError,
            "row 1, column 'op': found - , but tuples with this predicate are timing",
        ),
        (
            signed(("+", "a", "p", "b", 10)).append_column("op", pa.array(["+"])),
            StreamError,
            "the table has several columns op",
        ),
    ],
)
def test_a_sign_that_does_not_fit_is_refused_and_nothing_applied(
    engine: wukongs.Engine, table: pa.Table, error: type[Exception], said: str
) -> None:
    stream, other = engine.stream(S, timing=["http://e/timing"], batch_ms=100), engine.stream(T, batch_ms=100)
    with pytest.raises(error, match=said):
        stream.push_arrow(table)
    with pytest.raises(error, match=said):
        engine.push_many({T: signed(("+", "a", "p", "b", 10)), S: table}, 100)
    stream.push_arrow(signed(("+", "a", "p", "c", 5)))
    stream.advance(100)
    other.advance(100)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p c"}


def test_a_timing_stream_has_no_retractions(engine: wukongs.Engine) -> None:
    stream = engine.stream(S, timing=True)
    with pytest.raises(StreamError, match="row 0, column 'op': found - , but tuples of this stream are timing"):
        stream.push_arrow(signed(("-", "a", "p", "b", 10)))


@pytest.mark.faces("durable")
def test_signs_are_there_after_a_restart(face: Face) -> None:
    engine = face.open()
    stream = engine.stream(S, batch_ms=100, lateness_ms=50)
    stream.push_arrow(signed(("+", "a", "p", "b", 50), ("+", "a", "p", "c", 60), ("+", "a", "p", "d", 60)))
    stream.advance(100)
    stream.push_arrow(signed(("-", "a", "p", "b", 120), ("-", "a", "p", "c", 50)))
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p b", "a p d"}
    engine = face.reopen(engine)
    assert stored(engine) == {"a p b", "a p d"}
    engine.stream(S, batch_ms=100, lateness_ms=50).advance(200)
    engine.settle(timeout_s=60)
    assert stored(engine) == {"a p d"}
    assert engine.stats()["streams"][S]["tuples"] == 3
    assert stored(face.reopen(engine)) == {"a p d"}
