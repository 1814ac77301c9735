"""Windows that count triples: what they hold, when they fire, what is kept for them, what is told where it is not."""

from __future__ import annotations

from typing import Any

import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, names, node, register_text, rows, windows
from tests.faces import Face
from tests.pipelines import pipelines
from wukongs.settings import Settings


@pytest.fixture
def engine(face: Face) -> Any:
    return face.open(Settings(batch_ms=100))


def push(stream: wukongs.Stream, *names_and_times: tuple[str, int]) -> None:
    stream.push([at(name, t) for name, t in names_and_times])


def test_a_window_is_the_last_triples_and_fires_where_it_moves_on(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    every = engine.register(register_text("RANGE TRIPLES 3", "every"))
    second = engine.register(register_text("RANGE TRIPLES 3 STEP 2", "second"))
    push(stream, ("a", 10), ("b", 150), ("c", 160), ("d", 170), ("e", 320))
    stream.advance(1000)
    engine.settle(timeout_s=60)
    assert windows(every) == {100: ["a"], 200: ["b", "c", "d"], 400: ["c", "d", "e"]}
    assert windows(second) == {200: ["b", "c", "d"]}
    push(stream, ("f", 1001))
    stream.advance(1100)
    engine.settle(timeout_s=60)
    assert windows(every) == {1100: ["d", "e", "f"]}
    assert windows(second) == {1100: ["d", "e", "f"]}


@pytest.mark.faces("embedded", "durable")  # a client is told the windows of each query in order
def test_it_fires_in_order_of_time_though_others_were_due_before_it_could_be_told(engine: wukongs.Engine) -> None:
    """Arrivals are known once they are sealed, the time of a query with a period before; so the stored graph was at 700
    ms when the window ending at 300 was read."""
    stream, other = engine.stream(A), engine.stream(B)
    stream.advance(0)
    other.advance(0)
    fired: list[tuple[str, int, int]] = []

    def note(window: wukongs.WindowResult) -> None:
        fired.append((window.query, window.end_ms, len(window)))

    timed = register_text("RANGE 700ms STEP 700ms", "timed")
    counted = register_text("RANGE TRIPLES 1", "counted")
    for text in (timed, counted):
        engine.register(text.replace("FROM STREAM", "FROM <urn:x-wukongs:default> FROM STREAM"), on_result=note)
    push(stream, ("a", 250), ("b", 550), ("c", 620))
    stream.advance(1000)
    other.advance(1000)  # nothing is sealed before
    engine.settle(timeout_s=60)
    # Each query has a thread of its own that tells its windows; the rows show in which order they were read.
    of_each = sorted(fired, key=lambda window: window[0])
    assert of_each == [("counted", 300, 1), ("counted", 600, 2), ("counted", 700, 3), ("timed", 700, 3)]


def test_repeats_count_as_arrivals_and_are_one_member_of_the_window(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    query = engine.register(register_text("RANGE TRIPLES 4"))
    push(stream, ("a", 10), ("b", 20), ("b", 30), ("b", 120), ("b", 230), ("c", 240))
    stream.advance(300)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a", "b"], 200: ["a", "b"], 300: ["b", "c"]}


def test_the_times_of_a_window_are_those_of_its_arrivals(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    query = engine.register(
        register_text("RANGE TRIPLES 2 STEP 2").replace("AS SELECT", "COMPUTED EVERY 100ms AS SELECT")
    )
    push(stream, ("a", 10), ("b", 120), ("c", 190))
    stream.advance(300)
    engine.settle(timeout_s=60)
    found = {window.end_ms: (window.start_ms, window.windows[A], window.partial) for window in query.results(0)}
    assert found == {100: (100, (100, 100), False), 200: (9, (9, 120), False), 300: (9, (9, 120), False)}


def test_with_a_period_it_is_computed_then_whether_it_moved_or_not(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    text = register_text("RANGE TRIPLES 2").replace("AS SELECT", "COMPUTED EVERY 250ms AS SELECT")
    query = engine.register(text)
    push(stream, ("a", 10), ("b", 210), ("c", 260))
    stream.advance(1000)
    engine.settle(timeout_s=60)
    assert windows(query) == {250: ["a"], 500: ["b", "c"], 750: ["b", "c"], 1000: ["b", "c"]}


def test_beside_a_window_of_time_it_is_read_at_the_end_of_that(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s ?n FROM NAMED STREAM <{A}> [RANGE TRIPLES 1] FROM STREAM <{A}> "
        f"[RANGE 200ms STEP 200ms] {{ ?s ?p ?o OPTIONAL {{ GRAPH <{A}> {{ ?s ?p ?n }} }} }}"
    )
    push(stream, ("a", 50), ("b", 150), ("c", 250))
    stream.advance(500)
    engine.settle(timeout_s=60)
    found = {window.end_ms: rows(window) for window in query.results(timeout_s=0)}
    assert found == {200: [("a", ""), ("b", "o")], 400: [("c", "o")]}


def test_two_streams_each_count_their_own(engine: wukongs.Engine) -> None:
    first, second = engine.stream(A), engine.stream(B, batch_ms=200)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE TRIPLES 1] FROM STREAM <{B}> [RANGE TRIPLES 2 STEP 2] "
        "{ ?s ?p ?o }"
    )
    push(first, ("a", 50), ("b", 350))
    push(second, ("x", 50), ("y", 550), ("z", 1150))
    for stream in (first, second):
        stream.advance(1200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 400: ["b"], 600: ["b", "x", "y"]}


def test_a_query_that_comes_late_has_the_same_windows_and_says_what_it_lacks(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    push(stream, *((f"t{i}", 10 * i) for i in range(1, 8)))
    stream.advance(100)
    query = engine.register(register_text("RANGE TRIPLES 4 STEP 3"))
    push(stream, ("a", 101), ("b", 102), ("c", 210), ("d", 220), ("e", 230), ("f", 310))
    stream.advance(400)
    engine.settle(timeout_s=60)
    found = {window.end_ms: (names(window), window.partial) for window in query.results(timeout_s=0)}
    # Arrivals 1 to 7 came before it: at 200 the window is 6 to 9, at 300 it is 9 to 12.
    assert found == {200: (["a", "b"], True), 300: (["b", "c", "d", "e"], False)}


def count_long_texts(engine: wukongs.Engine) -> Any:
    """Push 20 texts that nothing else has, long after each other, past a query that counts three."""
    stream = engine.stream(A, timing=True, history_ms=0)
    query = engine.register(register_text("RANGE TRIPLES 3", select="?s ?o"))
    for i in range(20):
        stream.push([(node(f"s{i}"), node("p"), f'"a text that is too long to be inlined, number {i}"', 10_000 * i)])
    stream.advance(300_000)
    engine.settle(timeout_s=60)
    return query


def test_arrivals_and_their_terms_stay_however_old_they_get(engine: wukongs.Engine) -> None:
    """Terms that only came on the stream, long after history_ms; and what no window needs any more goes."""
    query = count_long_texts(engine)
    last = list(query.results(timeout_s=0))[-1]
    assert rows(last) == [(f"s{i}", f"a text that is too long to be inlined, number {i}") for i in (17, 18, 19)]
    stats = engine.stats()
    assert stats["streams"][A]["slices"] == 0
    assert stats["streams"][A]["arrivals"] == 3
    query.close()
    engine.settle(timeout_s=60)
    assert engine.stats()["streams"][A]["slice_bytes"] == 0
    assert engine.stats()["streams"][A]["arrivals"] == 0


@pytest.mark.differs("cluster-1", "cluster-3", reason="a cluster keeps the terms that nodes have agreed on for ever")
def test_terms_go_that_no_window_needs(engine: wukongs.Engine) -> None:
    terms = engine.stats()["terms"]
    count_long_texts(engine)
    assert engine.stats()["terms"] <= terms + 8


def test_what_only_other_queries_match_is_counted_all_the_same(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, index="matching")
    query = engine.register(register_text("RANGE TRIPLES 3", where=f"{{ ?s <{EX}p> ?o }}"))
    stream.push([at("a", 10), at("b", 20, "q"), at("c", 30, "q"), at("d", 40, "q")])
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: []}


def test_partitions_are_merged_by_time_then_by_name_then_by_offset(engine: wukongs.Engine) -> None:
    engine.stream(A)
    query = engine.register(register_text("RANGE TRIPLES 3"))
    with pipelines(engine, A, "p1", "p0") as (p1, p0):
        # In order: p0 a 10, p1 x 10, p0 b 50, p0 c 50, p1 y 50, p1 z 60.
        p1.push(("x", 10))
        p0.push(("a", 10), ("b", 50))
        p1.push(("y", 50), ("z", 60))
        p0.push(("c", 50))
        for pipe in (p0, p1):
            pipe.complete(100)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["c", "y", "z"]}


def test_a_window_that_no_longer_fits_is_partial(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, slice_bytes_max=20_000, history_ms=0)
    query = engine.register(register_text("RANGE TRIPLES 1000 STEP 200"))
    narrow = engine.register(register_text("RANGE TRIPLES 5 STEP 200", "narrow"))
    for k in range(10):
        push(stream, *((f"t{k}n{i}", 100 * k + i + 1) for i in range(100)))
    stream.advance(1000)
    engine.settle(timeout_s=60)
    found = [(window.partial, len(window)) for window in query.results(timeout_s=0)]
    assert [is_partial for is_partial, _ in found] == [False, True, True, True, True]
    assert all(0 < rows < 1000 for _, rows in found)
    assert [len(window) for window in narrow.results(timeout_s=0)] == [5] * 5
    assert engine.stats()["streams"][A]["slice_bytes"] <= 20_000


def test_a_window_that_will_not_fit_is_told_at_once(engine: wukongs.Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.stream(A, slice_bytes_max=20_000)
    engine.register(register_text("RANGE TRIPLES 1000 STEP 200"))
    assert "its window of 1000 triples on stream http://ex/streamA would take about" in caplog.text


def test_why_and_explain_say_what_it_waits_for(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    query = engine.register(register_text("RANGE TRIPLES 3 STEP 2"))
    assert query.why() == f"q waits for the first tuple or advance of {A}"
    push(stream, ("a", 10))
    stream.advance(1000)
    engine.settle(timeout_s=60)
    assert query.why() == f"q waits for STEP more triples on one of {A}"
    assert f"from stream <{A}> [3 triples step 2]" in query.explain()
    stream.close()
    engine.settle(timeout_s=60)
    assert query.why() == "q has reported all windows: its streams have ended"


def test_paused_windows_are_skipped(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    query = engine.register(register_text("RANGE TRIPLES 2"))
    for name, t, pause in (("a", 10, False), ("b", 110, True), ("c", 210, False)):
        (query.pause if pause else query.resume)()
        push(stream, (name, t))
        stream.advance(t + 90)
        engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 300: ["b", "c"]}
