"""How windows reach their readers, several engines and threads, one behaviour each."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import rdflib

import wukongs
from tests.engine_helpers import EX, A, B, at, names, node, register_text, subjects, windows
from tests.faces import Face


def test_on_result_gets_each_window_in_order(engine: wukongs.Engine) -> None:
    found: list[tuple[int, list[str]]] = []
    stream = engine.stream(A, batch_ms=100)
    engine.register(register_text("RANGE 100ms STEP 100ms"), on_result=lambda w: found.append((w.end_ms, names(w))))
    stream.push([at("a", 50), at("b", 250)])
    stream.advance(300)
    engine.settle(timeout_s=60)
    assert found == [(100, ["a"]), (200, []), (300, ["b"])]


def test_results_ends_when_no_window_comes(engine: wukongs.Engine) -> None:
    engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    start = time.monotonic()
    assert list(query.results(timeout_s=0.1)) == []
    assert 0.05 <= time.monotonic() - start < 30


def test_results_ends_when_the_query_is_closed(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    found = query.results()
    assert next(found).end_ms == 100
    closer = threading.Timer(0.2, query.close)
    closer.start()
    assert list(found) == []
    closer.join()


def test_a_closed_query_reports_nothing_more(engine: wukongs.Engine) -> None:
    seen: list[int] = []
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"), on_result=lambda w: seen.append(w.end_ms))
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    query.close()
    stream.advance(500)
    engine.settle(timeout_s=60)
    assert seen == [100]


def test_a_construct_query_gives_a_graph_per_window(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(
        f"REGISTER QUERY q AS CONSTRUCT {{ ?o {node('of')} ?s }} FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
        "WHERE { ?s ?p ?o }"
    )
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    (window,) = list(query.results(timeout_s=0))
    triple = (rdflib.URIRef(EX + "o"), rdflib.URIRef(EX + "of"), rdflib.URIRef(EX + "a"))
    assert set(window.graph()) == {triple}


def test_a_window_comes_as_an_arrow_table(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", 50), at("b", 60)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    (window,) = list(query.results(timeout_s=0))
    table = window.arrow()
    assert (table.column_names, table.num_rows) == (["s"], 2)


def test_two_queries_of_one_engine_both_get_their_windows(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    short = engine.register(register_text("RANGE 100ms STEP 100ms", name="short"))
    long = engine.register(register_text("RANGE 200ms STEP 200ms", name="long"))
    stream.push([at("a", 100), at("b", 200)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(short) == {100: ["a"], 200: ["b"]}
    assert windows(long) == {200: ["a", "b"]}


def test_two_engines_are_independent(face: Face) -> None:
    one, two = face.open(), face.open()
    stream, other = one.stream(A, batch_ms=100), two.stream(A, batch_ms=100)
    stream.push([at("a", 5000)])
    stream.advance(5000)
    other.push([at("b", 50)])
    other.advance(100)
    one.settle(timeout_s=60)
    two.settle(timeout_s=60)
    assert (subjects(one), subjects(two)) == (["a"], ["b"])


def test_explain_names_the_steps_and_the_queries_and_streams_are_listed(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    stream.push([at("a", 50)])
    stream.advance(100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms", where=f"{{ ?s {node('p')} ?o }}"))
    engine.settle(timeout_s=60)
    text = engine.explain(f"SELECT ?s {{ ?s {node('p')} ?o . ?o {node('q')} ?r }}")
    assert "http://ex/p" in text
    assert "http://ex/q" in text
    assert text.count("?o") >= 2
    assert "streamA" in query.explain()
    assert len(list(engine.queries())) == 1
    assert len(list(engine.streams())) == 1
    assert engine.stats()


@pytest.mark.slow_on("durable", "cluster-1", "cluster-3")
def test_two_threads_push_while_others_ask(engine: wukongs.Engine) -> None:
    """Nothing is lost, nothing comes twice, and an answer never shrinks."""
    streams = [engine.stream(iri, batch_ms=100) for iri in (A, B)]
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 500ms STEP 500ms] "
        f"FROM STREAM <{B}> [RANGE 500ms STEP 500ms] WHERE {{ ?s ?p ?o }}"
    )
    for stream in streams:
        stream.advance(0)
    failures: list[BaseException] = []
    done = threading.Event()

    def guarded(work: Any) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run)

    def push(number: int) -> None:
        for t in range(20, 4001, 20):
            streams[number].push([at(f"s{number}t{t}", t)])
        streams[number].advance(4000)

    def ask() -> None:
        before = 0
        while not done.is_set():
            now = len(list(engine.query("SELECT ?s { ?s ?p ?o }")))
            assert now >= before
            before = now

    pushers = [guarded(lambda: push(0)), guarded(lambda: push(1))]
    asker = guarded(ask)
    for thread in [*pushers, asker]:
        thread.start()
    for thread in pushers:
        thread.join(120)
    engine.settle(timeout_s=60)
    done.set()
    asker.join(60)
    assert failures == []
    assert len(subjects(engine)) == 400
    found = windows(query)
    assert list(found)[-8:] == list(range(500, 4001, 500))
    for end in range(500, 4001, 500):
        assert found[end] == sorted(f"s{n}t{t}" for n in (0, 1) for t in range(end - 480, end + 1, 20))
