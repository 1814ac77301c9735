"""Tuples out of order: what is sorted, what is late, and where late ones go, on every face."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, names, register_text, subjects, windows
from tests.faces import Face


def test_tuples_within_lateness_ms_are_in_their_windows(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, lateness_ms=250)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    assert stream.push([at("a", 500)]) == 1
    assert stream.push([at("b", 300), at("c", 420)]) == 2
    assert stream.push([at("d", 700), at("e", 450)]) == 2
    stream.advance(700)
    engine.settle(timeout_s=60)
    assert windows(query) == {300: ["b"], 400: [], 500: ["a", "c", "e"], 600: [], 700: ["d"]}


def test_a_push_closes_what_lies_lateness_ms_behind_it(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, lateness_ms=250)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    for t, closed in [(100, {}), (350, {}), (351, {100: ["a100"]}), (450, {}), (451, {200: []}), (551, {300: []})]:
        stream.push([at(f"a{t}", t)])
        engine.settle(timeout_s=60)
        assert windows(query) == closed, t


def test_the_first_window_waits_for_tuples_that_may_come_earlier(engine: wukongs.Engine) -> None:
    """Also of a query that is registered before the stream begins: none of its windows is left out."""
    stream = engine.stream(A, batch_ms=100, lateness_ms=1000)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("b", 1500)])
    engine.settle(timeout_s=60)
    stream.push([at("a", 600)])
    stream.advance(800)
    engine.settle(timeout_s=60)
    assert windows(query) == {600: ["a"], 700: [], 800: []}


def test_late_tuples_are_in_no_window_and_timeless_ones_are_stored(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=[EX + "ga"], batch_ms=100, lateness_ms=100)
    query = engine.register(register_text("RANGE 1s STEP 1s"))
    stream.push([at("a", 500)])
    assert stream.push([at("late", 399), at("gone", 399, predicate="ga"), at("b", 400)]) == 1
    stream.advance(450)
    assert stream.push([at("late2", 450), at("c", 451)]) == 1
    assert {"late", "late2"} <= set(subjects(engine))
    stream.advance(1000)
    engine.settle(timeout_s=60)
    assert windows(query) == {1000: ["a", "b", "c"]}
    assert subjects(engine) == ["a", "b", "c", "late", "late2"]
    stats = engine.stats()["streams"][A]
    assert (stats["tuples"], stats["late"], stats["dropped"]) == (3, 3, 1)


def test_with_on_late_alone_what_falls_is_late(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True, batch_ms=100, on_late="count")
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    assert stream.push([at("a", 50), at("b", 150), at("late", 149), at("c", 150)]) == 3
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: ["b", "c"]}
    assert engine.stats()["streams"][A]["late"] == 1


def test_what_falls_is_stored_if_it_is_timeless(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=[EX + "ga"], batch_ms=100, on_late="count")
    query = engine.register(register_text("RANGE 1s STEP 1s"))
    assert stream.push([at("a", 500), at("late", 499), at("gone", 1, predicate="ga"), at("b", 500)]) == 2
    stream.advance(600)
    assert stream.push([at("late2", 600), at("gone", 599, predicate="ga")]) == 0
    assert {"late", "late2"} <= set(subjects(engine))
    assert stream.push([at("c", 601)]) == 1
    stream.advance(1000)
    engine.settle(timeout_s=60)
    assert windows(query) == {1000: ["a", "b", "c"]}
    assert subjects(engine) == ["a", "b", "c", "late", "late2"]
    stats = engine.stats()["streams"][A]
    assert (stats["tuples"], stats["late"], stats["dropped"]) == (3, 4, 2)


def test_late_tuples_go_to_a_file(engine: wukongs.Engine, tmp_path: Path) -> None:
    path = tmp_path / "late.nq"
    stream = engine.stream(A, timing=True, batch_ms=100, on_late=path)
    stream.push([at("a", 150), at("late", 50)])
    assert path.read_text("utf-8") == "<http://ex/late> <http://ex/p> <http://ex/o> . # 50 ms\n"


def test_a_stream_that_sorts_waits_for_others_as_any_does(engine: wukongs.Engine) -> None:
    one, two = engine.stream(A, batch_ms=100, lateness_ms=200), engine.stream(B, batch_ms=100)
    one.advance(0)
    two.advance(0)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"FROM STREAM <{B}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    )
    two.push([at("b", 50), at("b2", 150)])
    two.advance(200)
    one.push([at("a2", 301), at("a", 102)])
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["b"]}
    one.close()
    two.advance(400)
    engine.settle(timeout_s=60)
    assert {end: found for end, found in windows(query).items() if found} == {200: ["a", "b2"], 400: ["a2"]}


def test_a_stream_that_sorts_and_begins_behind_the_clock_is_in_the_stored_graph_when_it_fires(
    engine: wukongs.Engine,
) -> None:
    """Its first tuples may still come when its first push is there."""
    busy = engine.stream(B, batch_ms=100)
    busy.push([at("x", 50)])
    busy.advance(1200)
    engine.settle(timeout_s=60)
    stream = engine.stream(A, batch_ms=100, lateness_ms=1000)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"WHERE {{ GRAPH <{A}> {{ ?s ?p ?o }} ?s ?p ?o }}"
    )
    stream.push([at("b", 1550)])
    stream.push([at("a", 660)])
    stream.advance(2000)
    busy.advance(2000)
    engine.settle(timeout_s=60)
    assert {end: found for end, found in windows(query).items() if found} == {700: ["a"], 1600: ["b"]}
    assert subjects(engine) == ["a", "b", "x"]


def test_an_idle_stream_follows_the_wall_clock(engine: wukongs.Engine) -> None:
    """Also one that nothing was ever pushed to: a window over its silence comes (docs/decisions/0113)."""
    stream = engine.stream(A, timing=True, batch_ms=100, idle_timeout_ms=20, idle_advance="wall")
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    found = query.results(timeout_s=60)
    first, second = next(found), next(found)
    assert (second.end_ms - first.end_ms, list(first), list(second)) == (100, [], [])
    assert abs(time.time() * 1000 - second.end_ms) < 60_000
    assert stream.push([at("late", first.end_ms)]) == 0
    facts = engine.stats()["streams"][A]
    assert (facts["idle_advance"], facts["idle_hold"], facts["late"]) == ("wall", None, 1)


def test_an_idle_stream_of_another_day_stays_and_says_so(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True, batch_ms=100, idle_timeout_ms=2000, idle_advance="wall")
    stream.push([at("a", 250)])
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    deadline = time.monotonic() + 60
    while not engine.stats()["streams"][A]["is_idle"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    assert engine.stats()["streams"][A]["closed_ms"] == 200
    assert "is more than a day behind the wall clock" in engine.stats()["streams"][A]["idle_hold"]
    assert f"stream {A} is idle; its newest tuple, at " in query.why()


@pytest.mark.faces("connect")
def test_a_node_calls_no_function_of_its_client(engine: wukongs.Engine) -> None:
    with pytest.raises(wukongs.SettingsError, match="on_late is a function, and the node cannot call it"):
        engine.stream(A, on_late=print)
    assert engine.streams() == []


@pytest.mark.faces("durable")
def test_a_restart_keeps_what_waits_what_is_late_and_what_is_counted(face: Face) -> None:
    engine = face.open()
    options = {"timing": [EX + "ga"], "batch_ms": 100, "lateness_ms": 250, "on_late": "count"}
    stream = engine.stream(A, **options)
    query = register_text("RANGE 100ms STEP 100ms")
    engine.register(query)
    stream.push([at("a", 500), at("b", 300)])
    stream.push([at("late", 200), at("gone", 10, predicate="ga"), at("c", 350)])
    engine = face.reopen(engine)
    with pytest.raises(wukongs.StreamError, match="in the data folder"):
        engine.stream(A, **{**options, "lateness_ms": 300})
    stream = engine.stream(A, **options)
    assert subjects(engine) == ["late"]
    assert stream.push([at("d", 250), at("late2", 249)]) == 1
    stream.advance(500)
    engine.settle(timeout_s=60)
    found = windows(engine.register(query))
    assert found == {300: ["b", "d"], 400: ["c"], 500: ["a"]}
    stats = engine.stats()["streams"][A]
    assert (stats["tuples"], stats["late"], stats["dropped"]) == (4, 3, 1)


def test_an_idle_stream_holds_nobody_back(engine: wukongs.Engine) -> None:
    one, two = engine.stream(A, batch_ms=100, idle_timeout_ms=20), engine.stream(B, timing=True, batch_ms=100)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"FROM STREAM <{B}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
    )
    two.push([at("b", 50), at("b2", 150)])
    two.advance(200)
    found = query.results(timeout_s=60)
    assert [(window.end_ms, names(window)) for window in (next(found), next(found))] == [(100, ["b"]), (200, ["b2"])]
    assert engine.stats()["streams"][A]["is_idle"]
    assert one.push([at("late", 150)]) == 0
    assert subjects(engine) == ["late"]
