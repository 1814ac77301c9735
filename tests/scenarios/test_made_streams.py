"""Streams that queries make (REGISTER STREAM), read by other queries of the same engine."""

from __future__ import annotations

from typing import Any

import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, names, rows, windows
from tests.faces import Face
from tests.lives import crash_and_open

pytestmark = pytest.mark.faces("embedded", "durable", "connect", "cluster-1", "cluster-3")
P, Q = EX + "made1", EX + "made2"


def maker(name: str, source: str, window: str = "RANGE 100ms STEP 100ms") -> str:
    return f"""REGISTER STREAM <{name}> AS CONSTRUCT {{ ?s <{EX}seen> ?o }}
        FROM STREAM <{source}> [{window}] WHERE {{ ?s ?p ?o }}"""


def reader(source: str, window: str = "RANGE 200ms STEP 100ms", also: str = "", name: str = "r") -> str:
    return f"REGISTER QUERY {name} AS SELECT ?s FROM STREAM <{source}> [{window}] {also} WHERE {{ ?s ?p ?o }}"


def test_a_chain_of_three(engine: Any) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    engine.register(maker(P, A))
    engine.register(maker(Q, P))
    query = engine.register(reader(Q))
    stream.push([at("a", 50), at("b", 150), at("c", 350)])
    stream.advance(500)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: ["a", "b"], 300: ["b"], 400: ["c"], 500: ["c"]}


def test_a_chain_equals_pushing_by_hand(engine: Any) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    first = engine.register(maker(P, A, "RANGE 300ms STEP 200ms"))
    query = engine.register(reader(P, "RANGE 400ms STEP 200ms"))
    with wukongs.Engine() as other:
        by_hand = other.stream(P, batch_ms=200, timing=True)
        alone = other.register(reader(P, "RANGE 400ms STEP 200ms"))
        stream.push([at(f"n{t % 7}", t) for t in range(10, 3000, 37)])
        stream.advance(3000)
        engine.settle(timeout_s=60)
        for window in first.results(timeout_s=0.05):
            by_hand.push_arrow(window.arrow())
            by_hand.advance(window.end_ms)
        other.settle(timeout_s=60)
        found = windows(query)
        assert len(found) == 15
        assert found == windows(alone)


def test_a_reader_of_stored_graphs_and_an_end(engine: Any) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    engine.register(maker(P, A))
    query = engine.register(reader(P, "RANGE 100ms STEP 100ms", "FROM <urn:x-wukongs:default>"))
    stream.push([at("a", 50), at("b", 150)])
    stream.close()
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: ["b"]}


def test_a_paused_producer_holds_its_readers(engine: Any) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    first = engine.register(maker(P, A))
    query = engine.register(reader(P, "RANGE 100ms STEP 100ms"))
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    first.pause()
    stream.push([at("b", 150)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"]}
    assert f"the query that makes {P} is paused" in query.why()
    first.resume()
    stream.push([at("c", 250)])
    stream.advance(300)
    engine.settle(timeout_s=60)
    assert windows(query) == {200: [], 300: ["c"]}


def test_a_producer_that_is_closed_ends_its_stream(face: Face) -> None:
    engine = face.open()
    stream = engine.stream(A, batch_ms=100, timing=True)
    first = engine.register(maker(P, A))
    query = engine.register(reader(P, "RANGE 300ms STEP 100ms"))
    long = engine.register(reader(P, "RANGE 1s STEP 1s", name="long"))
    stream.push([at("a", 50), at("b", 150)])
    stream.advance(200)
    first.close()
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: ["a", "b"]}
    assert windows(long) == {1000: ["a", "b"]}
    assert query.why().startswith("r has reported all windows: its streams have ended")
    with pytest.raises(wukongs.StreamError, match="has ended with the query that made it"):
        engine.register(maker(P, A))
    query.close()
    long.close()
    assert face.is_cluster or P not in engine.stats()["streams"]  # nodes count it until all of them have dropped it
    engine.register(maker(P, A))
    query = engine.register(reader(P))
    stream.push([at("c", 350)])
    stream.advance(400)
    engine.settle(timeout_s=60)
    assert windows(query) == {300: [], 400: ["c"]}


def test_what_is_read_keeps_its_period(engine: Any) -> None:
    engine.stream(A, batch_ms=100, timing=True)
    first = engine.register(maker(P, A))
    query = engine.register(reader(P))
    with pytest.raises(wukongs.StreamError, match="fires every 200 ms"):
        first.replace(maker(P, A, "RANGE 200ms STEP 200ms"))
    with pytest.raises(wukongs.StreamError, match="has to be a CONSTRUCT"):
        first.replace(
            f"REGISTER QUERY <{P}> AS SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
        )
    with pytest.raises(wukongs.StreamError, match="is read by r"):
        engine.drop_stream(P)
    query.close()
    engine.drop_stream(P)
    first.replace(maker(P, A, "RANGE 200ms STEP 200ms"))
    first.close()
    with pytest.raises(wukongs.StreamError, match="unknown stream"):
        engine.register(reader(P))


def test_cycles_are_refused(engine: Any) -> None:
    engine.stream(A, batch_ms=100, timing=True)
    with pytest.raises(wukongs.StreamError, match="a cycle"):
        engine.register(maker(P, P))
    first = engine.register(maker(P, A))
    with pytest.raises(wukongs.StreamError, match="a cycle"):
        first.replace(maker(P, P))
    engine.register(maker(Q, P))
    with pytest.raises(wukongs.StreamError, match="a cycle"):
        first.replace(maker(P, Q))
    engine.stream(EX + "made3", batch_ms=100)
    engine.register(maker(EX + "made4", EX + "made3"))
    with pytest.raises(wukongs.StreamError, match="a cycle"):
        engine.register(maker(EX + "made3", EX + "made4"))


def test_a_declared_stream_joins_the_stored_graph(face: Face) -> None:
    engine = face.open()
    stream = engine.stream(A, batch_ms=100, timing=True)
    made = engine.stream(P, into=EX + "g", batch_ms=200, timing=[EX + "passing"])
    query = engine.register(reader(P, "RANGE 200ms STEP 200ms"))
    engine.register(
        f"""REGISTER STREAM <{P}> AS CONSTRUCT {{ ?s <{EX}seen> ?o . ?s <{EX}passing> ?o }}
        FROM STREAM <{A}> [RANGE 200ms STEP 200ms] WHERE {{ ?s ?p ?o }}"""
    )
    stored = engine.register(
        f"""REGISTER QUERY stored AS SELECT ?s FROM <{EX}g> FROM NAMED STREAM <{A}> [RANGE 200ms STEP 200ms]
        WHERE {{ ?s <{EX}seen> ?o }}"""
    )
    stream.push([at("a", 50), at("b", 250)])
    stream.advance(600)
    engine.settle(timeout_s=60)
    assert windows(query) == {200: ["a", "a"], 400: ["b", "b"], 600: []}
    assert rows(engine.query(f"SELECT ?s ?p {{ GRAPH <{EX}g> {{ ?s ?p ?o }} }}")) == [("a", "seen"), ("b", "seen")]
    fired = windows(stored)
    assert face.is_cluster or fired[600] == ["a", "b"]  # a cluster does not wait for what is made
    stream.advance(800)
    engine.settle(timeout_s=60)
    assert windows(stored) == {800: ["a", "b"]}
    with pytest.raises(wukongs.StreamError, match="is made by a registered query"):
        made.push([at("x", 900)])
    with pytest.raises(wukongs.StreamError, match="is made by a registered query"):
        made.close()


def test_what_is_declared_fits_its_producer(engine: Any) -> None:
    engine.stream(A, batch_ms=100, timing=True)
    pushed = engine.stream(P, batch_ms=100)
    pushed.push([at("x", 50)])
    with pytest.raises(wukongs.StreamError, match="that goes with a stream that nobody has pushed to"):
        engine.register(maker(P, A))
    engine.stream(Q, batch_ms=100)
    with pytest.raises(wukongs.StreamError, match="declared with batch_ms = 100, which has to be the same"):
        engine.register(maker(Q, A, "RANGE 200ms STEP 200ms"))
    engine.drop_stream(Q)
    engine.register(maker(Q, A))
    with pytest.raises(wukongs.StreamError, match="declare it before that is registered"):
        engine.stream(Q, batch_ms=100)


def test_a_producer_that_counts(engine: Any) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    first = engine.register(maker(P, A, "RANGE TRIPLES 2"))
    query = engine.register(reader(P, "RANGE 200ms STEP 100ms"))
    stream.push([at("a", 50), at("b", 60), at("c", 350), at("d", 360)])
    stream.advance(600)
    engine.settle(timeout_s=60)
    fired = windows(first)
    assert fired == {100: ["a", "b"], 400: ["c", "d"]}
    assert windows(query) == {100: ["a", "b"], 200: ["a", "b"], 300: [], 400: ["c", "d"], 500: ["c", "d"], 600: []}
    stream.close()
    engine.settle(timeout_s=60)
    assert "its streams have ended" in query.why()


def test_one_that_ends_unread_holds_its_readers(engine: Any) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    text = maker(P, A)
    engine.register(text, unread="end", unread_bytes_max=3000)
    query = engine.register(reader(P, "RANGE 100ms STEP 100ms"))
    stream.push([at(f"n{t}", t) for t in range(50, 1000, 100)])
    stream.advance(1000)
    engine.settle(timeout_s=60)
    before = windows(query)
    assert 0 < len(before) < 10
    assert f"the query that makes {P} has ended with an error" in query.why()
    engine.register(text)
    engine.settle(timeout_s=60)
    assert before | windows(query) == {t + 50: [f"n{t}"] for t in range(50, 1000, 100)}


def test_another_text_begins_to_read_it(engine: Any) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    engine.register(maker(P, A))
    query = engine.register(reader(A, "RANGE 100ms STEP 100ms"))
    stream.push([at("a", 50)])
    stream.advance(100)
    query.replace(reader(P, "RANGE 100ms STEP 100ms"))
    stream.push([at("b", 150)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: ["b"]}


@pytest.mark.faces("embedded", "durable", "connect")
def test_what_finds_no_room_is_told(face: Face) -> None:
    engine = face.open(wukongs.Settings(queued_bytes_max=1024))
    stream, other = (engine.stream(name, batch_ms=100, timing=True) for name in (A, B))
    engine.register(maker(P, A))
    query = engine.register(
        f"""REGISTER QUERY r AS SELECT ?s FROM STREAM <{P}> [RANGE 100ms STEP 100ms]
        FROM STREAM <{B}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"""
    )
    other.advance(50)  # it holds the reader, and the clock of the stored graph
    for t in range(50, 450, 100):
        stream.push([at(f"n{t}-{k}", t) for k in range(10)])
        stream.advance(t + 50)
        engine.settle(timeout_s=60)
    other.advance(400)
    engine.settle(timeout_s=60)
    found: list[Any] = []
    results = query.results(timeout_s=0.1)
    while True:
        try:
            window = next(results)
        except StopIteration:
            break
        except wukongs.BudgetExceeded as error:
            found.append(str(error))
            results = query.results(timeout_s=0.1)
            continue
        found.append(names(window))
    assert found[:2] == [[f"n{t}-{k}" for k in range(10)] for t in (50, 150)]
    assert len(found) == 4
    assert all("more than queued_bytes_max = 1024 bytes" in each for each in found[2:]), found


@pytest.mark.faces("durable")
def test_a_restart_brings_nothing_twice(face: Face) -> None:
    engine = face.open()
    texts = [maker(P, A), maker(Q, P, "RANGE 200ms STEP 200ms"), reader(Q, "RANGE 400ms STEP 200ms")]
    found: dict[int, list[str]] = {}
    for part in range(5):
        stream = engine.stream(A, batch_ms=100, timing=True)
        query = [engine.register(text) for text in texts][-1]
        come = windows(query)
        assert not set(found) & set(come), (found, come)
        found |= come
        stream.push([at(f"n{t}", t) for t in range(part * 300 + 30, part * 300 + 300, 60)])
        if part % 2:
            engine.settle(timeout_s=60)
        engine = face.reopen(engine)
    engine.stream(A, batch_ms=100, timing=True).advance(1600)
    query = [engine.register(text) for text in texts][-1]
    engine.settle(timeout_s=60)
    found |= windows(query)
    times = [t for part in range(5) for t in range(part * 300 + 30, part * 300 + 300, 60)]

    def made(end_ms: int) -> list[str]:
        return sorted(f"n{t}" for t in times if end_ms - 400 < -(-t // 200) * 200 <= end_ms)

    assert found == {end_ms: made(end_ms) for end_ms in range(200, 1601, 200)}
    assert engine.stats()["streams"][P]["tuples"] == len(times)


@pytest.mark.faces("durable")
def test_a_restart_keeps_what_is_declared_and_its_end(face: Face) -> None:
    engine = face.open()
    stream = engine.stream(A, batch_ms=100, timing=True)
    engine.stream(P, into=EX + "g", batch_ms=100)
    query = engine.register(reader(P, "RANGE 100ms STEP 100ms"))
    first = engine.register(maker(P, A))
    stream.push([at("a", 50), at("b", 150)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: ["b"]}
    engine = face.reopen(engine)
    stream = engine.stream(A, batch_ms=100, timing=True)
    engine.stream(P, into=EX + "g", batch_ms=100)
    query = engine.register(reader(P, "RANGE 100ms STEP 100ms"))
    first = engine.register(maker(P, A))
    stream.push([at("c", 250)])
    stream.advance(300)
    first.close()
    engine = face.reopen(engine)
    query = engine.register(reader(P, "RANGE 100ms STEP 100ms"))
    engine.settle(timeout_s=60)
    assert windows(query) == {300: ["c"]}
    assert names(engine.query(f"SELECT ?s {{ GRAPH <{EX}g> {{ ?s ?p ?o }} }}")) == ["a", "b", "c"]
    assert "its streams have ended" in query.why()


@pytest.mark.faces("durable")
def test_a_replay_fires_ahead_and_still_stores_what_was_made(face: Face) -> None:
    engine = face.open()
    stream = engine.stream(A, batch_ms=100, timing=True)
    engine.stream(P, into=EX + "g", batch_ms=100)
    engine.register(maker(P, A))
    stream.push([at("a", 50), at("b", 450), at("c", 950)])
    stream.advance(1000)
    engine.settle(timeout_s=60)
    newest = next(folder for folder in face.folder.iterdir() if folder.is_dir())
    with crash_and_open(newest, face.folder / "copy")(engine) as again:
        assert names(again.query(f"SELECT ?s {{ GRAPH <{EX}g> {{ ?s ?p ?o }} }}")) == ["a", "b", "c"]
