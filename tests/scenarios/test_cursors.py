"""Cursors: who gets which window, what is told of those that are dropped, and another text for a query."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, names, register_text, windows
from tests.faces import Face

STEP = "RANGE 100ms STEP 100ms"


def fill(engine: wukongs.Engine, stream: wukongs.Stream, first: int, last: int) -> None:
    """One tuple in each stream batch; the first batch is number 1."""
    stream.push([at(f"s{number}", number * 100 - 50) for number in range(first, last + 1)])
    stream.advance(last * 100)
    engine.settle(timeout_s=60)


def ends(found: Any) -> list[int]:
    return [window.end_ms for window in found]


def test_results_go_on_where_the_last_call_stopped(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text(STEP))
    fill(engine, stream, 1, 2)
    assert windows(query) == {100: ["s1"], 200: ["s2"]}
    fill(engine, stream, 3, 3)
    assert windows(query) == {300: ["s3"]}


def test_groups_each_get_every_window_and_divide_them(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text(STEP))
    fill(engine, stream, 1, 4)
    one, two = query.results(timeout_s=0, group="g"), query.results(timeout_s=0.2, group="g")
    assert [next(one).end_ms, next(two).end_ms, next(one).end_ms] == [100, 200, 300]
    two.close()  # it has not confirmed its window
    assert ends(one) == [200, 400]
    assert ends(query.results(timeout_s=0, group="h")) == [100, 200, 300, 400]
    assert ends(query.results(timeout_s=0)) == [100, 200, 300, 400]
    fill(engine, stream, 5, 5)
    assert ends(query.results(timeout_s=0, group="g")) == [500]
    with pytest.raises(wukongs.SettingsError, match="group"):
        list(query.results(timeout_s=0, group=""))


def test_a_gap_is_told_in_its_place(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text(STEP), unread_bytes_max=3 * 1100)
    fill(engine, stream, 1, 10)
    with pytest.raises(wukongs.GapError) as caught:
        list(query.results(timeout_s=0))
    gap = caught.value
    assert (gap.query, gap.from_ms, gap.to_ms, gap.count) == ("q", 100, 700, 7)
    assert ends(query.results(timeout_s=0)) == [800, 900, 1000]
    assert query.stats()["results_dropped"] == 7


def test_windows_whose_slices_are_gone_are_one_gap(engine: wukongs.Engine) -> None:
    ahead, late = engine.stream(A, batch_ms=100, slice_bytes_max=20_000), engine.stream(B, batch_ms=100)
    text = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [{STEP}] FROM STREAM <{B}> [{STEP}] {{ ?s ?p ?o }}"
    query = engine.register(text)
    for first in range(1, 1001, 100):
        fill(engine, ahead, first, first + 99)
    late.advance(100)
    engine.settle(timeout_s=60)
    late.advance(100_000)
    engine.settle(timeout_s=60)
    with pytest.raises(wukongs.GapError, match="raise slice_bytes_max or history_ms of the streams") as caught:
        list(query.results(timeout_s=0.2))
    gap = caught.value
    assert (gap.query, gap.from_ms, gap.gone) == ("q", 100, gap.count)
    assert 50_000 < gap.to_ms == gap.count * 100 < 100_000
    rest = list(query.results(timeout_s=0.2))
    assert ends(rest) == list(range(gap.to_ms + 100, 100_001, 100))
    assert all(names(window) == [f"s{window.end_ms // 100}"] for window in rest)
    assert query.stats()["over_budget"] == gap.count


def test_a_query_may_rather_end_than_drop_windows(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text(STEP), unread_bytes_max=3 * 1100, unread="end")
    fill(engine, stream, 1, 10)
    found = query.results(timeout_s=60)
    assert [next(found).end_ms for _ in range(4)] == [100, 200, 300, 400]
    with pytest.raises(wukongs.BudgetExceeded, match="unread"):
        next(found)
    assert list(engine.queries()) == []


def test_the_windows_of_all_queries_are_bounded_together(face: Face) -> None:
    engine = face.open(wukongs.Settings(results_bytes_max=10 * 1100))
    stream = engine.stream(A, batch_ms=100)
    queries = [engine.register(register_text(STEP, name=f"q{n}")) for n in range(3)]
    fill(engine, stream, 1, 20)
    counts = []
    for query in queries:
        with pytest.raises(wukongs.GapError):
            list(query.results(timeout_s=0))
        counts.append(len(list(query.results(timeout_s=0))))
    assert 8 <= sum(counts) <= 10
    assert max(counts) - min(counts) <= 1


def test_options_of_delivery_are_checked(engine: wukongs.Engine) -> None:
    engine.stream(A, batch_ms=100)
    with pytest.raises(wukongs.SettingsError, match="unread_bytes_max = 0"):
        engine.register(register_text(STEP), unread_bytes_max=0)
    with pytest.raises(wukongs.SettingsError, match="unread = 'wait'"):
        engine.register(register_text(STEP), unread="wait")


def test_a_slow_on_result_stalls_nobody(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    going_on, entered = threading.Event(), threading.Event()
    seen: list[int] = []

    def slow(window: wukongs.WindowResult) -> None:
        entered.set()
        going_on.wait(60)
        seen.append(window.end_ms)

    engine.register(register_text(STEP, name="slow"), on_result=slow)
    query = engine.register(register_text(STEP, name="quick"))
    try:
        stream.push([at("a", 50)])
        stream.advance(500)
        assert entered.wait(60)
        found = query.results(timeout_s=60)
        assert [next(found).end_ms for _ in range(5)] == [100, 200, 300, 400, 500]
        assert seen == []
    finally:
        going_on.set()
    engine.settle(timeout_s=60)
    assert seen == [100, 200, 300, 400, 500]


def test_a_query_gets_another_text_at_a_window_end(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text(STEP))
    fill(engine, stream, 1, 3)
    query.replace(register_text("RANGE 200ms STEP 100ms"))
    fill(engine, stream, 4, 5)
    query.replace(register_text("RANGE 400ms STEP 200ms"))
    fill(engine, stream, 6, 8)
    assert windows(query) == {
        100: ["s1"],
        200: ["s2"],
        300: ["s3"],
        400: ["s3", "s4"],
        500: ["s4", "s5"],
        600: ["s3", "s4", "s5", "s6"],
        800: ["s5", "s6", "s7", "s8"],
    }
    with pytest.raises(wukongs.StreamError, match="give the text the same name"):
        query.replace(register_text(STEP, name="other"))
    with pytest.raises(wukongs.QuerySyntaxError):
        query.replace("REGISTER QUERY q AS SELECT")
    query.close()
    with pytest.raises(wukongs.StreamError, match="closed"):
        query.replace(register_text(STEP))


def test_a_query_is_replaced_while_windows_fire(engine: wukongs.Engine) -> None:
    """None is lost, none comes twice, and the texts change once."""
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text(STEP))

    def push() -> None:
        for number in range(1, 101):
            stream.push([at(f"s{number}", number * 100 - 50)])
            stream.advance(number * 100)

    pushing = threading.Thread(target=push)
    pushing.start()
    for _ in range(10):
        query.replace(register_text("RANGE 200ms STEP 100ms"))
        query.replace(register_text(STEP))
    pushing.join(200)
    assert not pushing.is_alive()
    engine.settle(timeout_s=60)
    found = [(window.end_ms, names(window)) for window in query.results(timeout_s=0)]
    assert [end_ms for end_ms, _ in found] == list(range(100, 10_001, 100))
    for end_ms, subjects in found:
        number = end_ms // 100
        assert subjects in ([f"s{number}"], sorted(f"s{one}" for one in (number - 1, number) if one))


def test_a_text_over_stored_graphs_does_not_go_back_behind_their_clock(engine: wukongs.Engine) -> None:
    """The window ends between the last one of the text before and now have no snapshot any more."""
    text = (
        f"REGISTER QUERY q AS SELECT ?s FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> [RANGE 1s STEP %s] "
        "WHERE { ?s ?p ?o }"
    )
    stream = engine.stream(A, batch_ms=100)
    stream.advance(0)
    query = engine.register(text % "1s")
    for end in range(100, 1801, 100):
        stream.push([at(f"s{end:04}", end)])
        stream.advance(end)
    engine.settle(timeout_s=60)
    query.replace(text % "100ms")
    for end in (1900, 2000):
        stream.push([at(f"s{end:04}", end)])
        stream.advance(end)
    engine.settle(timeout_s=60)
    assert {end: len(found) for end, found in windows(query).items()} == {1000: 10, 1900: 19, 2000: 20}
