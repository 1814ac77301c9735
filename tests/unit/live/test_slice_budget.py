"""slice_bytes_max: what goes when it is full, and what the queries that needed it are told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, names, register_text
from wukongs.settings import Settings

ROOM = 20_000


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine(settings=Settings(batch_ms=100)) as engine:
        yield engine


def push(stream: wukongs.Stream, start: int, stop: int, per_batch: int) -> None:
    """Stream batches that end in (start, stop], of so many tuples each, and the time after them."""
    for end in range(start + 100, stop + 1, 100):
        stream.push([at(f"t{end}n{i}", end) for i in range(per_batch)])
    stream.advance(stop)


Outcome = tuple[int, int | str]


def outcomes(query: wukongs.ContinuousQuery, **options: Any) -> list[Outcome]:
    """The end of each window with its rows, or with "partial"; and of each gap: its first end, and a text."""
    found: list[Outcome] = []
    while True:
        try:
            windows = query.results(timeout_s=0, **options)
            found.extend((window.end_ms, "partial" if window.partial else len(window)) for window in windows)
            return found
        except wukongs.GapError as gap:
            found.append((gap.from_ms, f"gap of {gap.count}, {gap.gone} gone, up to {gap.to_ms}"))


def test_history_that_no_window_needs_goes_first(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, slice_bytes_max=ROOM, history_ms=3_600_000)
    query = engine.register(register_text("RANGE 200ms STEP 100ms"))
    push(stream, 0, 10_000, 10)
    engine.settle(timeout_s=60)
    stats = engine.stats()["streams"][A]
    assert 2 <= stats["slices"] < 50
    assert stats["slice_bytes"] <= stats["slice_bytes_max"] == ROOM
    assert stats["slices_evicted"] == 0
    assert {rows for _, rows in outcomes(query)[1:]} == {20}
    assert query.stats()["over_budget"] == 0


def test_a_window_that_no_longer_fits_is_partial_until_it_fits_again(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, slice_bytes_max=ROOM)
    query = engine.register(register_text("RANGE 1s STEP 1s"))
    narrow = engine.register(register_text("RANGE 100ms STEP 1s", "narrow"))
    push(stream, 0, 1000, 1)
    push(stream, 1000, 2000, 40)
    push(stream, 2000, 4000, 1)
    engine.settle(timeout_s=60)
    assert outcomes(query) == [(1000, 10), (2000, "partial"), (3000, 10), (4000, 10)]
    assert outcomes(narrow) == [(1000, 1), (2000, 40), (3000, 1), (4000, 1)]
    assert query.stats()["over_budget"] == query.stats()["errors"] == 0
    assert engine.stats()["streams"][A]["slices_evicted"] > 0
    assert engine.stats()["streams"][A]["slice_bytes"] <= ROOM


def test_one_stream_batch_that_is_too_large_by_itself_is_not_kept(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, slice_bytes_max=1024)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    push(stream, 0, 100, 200)
    push(stream, 100, 200, 1)
    engine.settle(timeout_s=60)
    with pytest.raises(wukongs.GapError, match="raise slice_bytes_max or history_ms") as caught:
        list(query.results(timeout_s=0))
    assert (caught.value.from_ms, caught.value.to_ms, caught.value.count, caught.value.gone) == (100, 100, 1, 1)
    assert outcomes(query) == [(200, 1)]
    assert query.stats()["over_budget"] == 1
    assert query.stats()["errors"] == 0


def test_transient_texts_count(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True)
    long = "x" * 5000
    stream.push([at(f"{long}{i}", 50) for i in range(4)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert 20_000 < engine.stats()["streams"][A]["slice_bytes"] < 30_000


def test_texts_of_tuples_that_are_not_indexed_count(engine: wukongs.Engine) -> None:
    """No slice is left then that could go, yet the texts are collected; no window misses anything."""
    stream = engine.stream(A, timing=True, slice_bytes_max=20_000, index="matching", history_ms=3_600_000)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?o FROM STREAM <{A}> [RANGE 1s STEP 1s] {{ ?s <http://t/wanted> ?o }}"
    )
    for end in range(100, 10_001, 100):
        rows = [(f"<http://t/{end}/{row}>", "<http://t/other>", "<http://t/x>", end) for row in range(10)]
        stream.push(rows)
    stream.close()
    engine.settle(60)
    told = engine.stats()["streams"][A]
    assert told["tuples_not_indexed"] == 1000
    assert told["slices"] == 0
    assert told["slice_bytes"] <= 20_000
    assert told["slices_evicted"] == 0
    assert [(window.partial, len(window)) for window in query.results(0)] == [(False, 0)] * 10


def test_a_window_that_will_not_fit_is_warned_of(engine: wukongs.Engine, caplog: pytest.LogCaptureFixture) -> None:
    stream = engine.stream(A, slice_bytes_max=100_000)
    push(stream, 0, 1000, 10)
    engine.settle(timeout_s=60)
    with caplog.at_level(logging.WARNING, "wukongs"):
        engine.register(register_text("RANGE 1s STEP 1s", "fits"))
        assert not caplog.records
        engine.register(register_text("RANGE 1h STEP 1s", "wide"))
    (record,) = caplog.records
    assert "query wide: its window of 3600000 ms" in record.getMessage()
    assert "slice_bytes_max = 100000" in record.getMessage()


def two_streams(engine: wukongs.Engine, **options: Any) -> tuple[wukongs.Stream, wukongs.Stream]:
    """A has come to 60 s with few slices left; B begins at 0."""
    ahead, late = engine.stream(A, slice_bytes_max=ROOM), engine.stream(B)
    engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 1s STEP 1s] FROM STREAM <{B}> [RANGE 1s STEP 1s] "
        "{ ?s ?p ?o }",
        **options,
    )
    push(ahead, 0, 60_000, 10)
    engine.settle(timeout_s=60)
    return ahead, late


def last_gone_ms(engine: wukongs.Engine) -> int:
    """The last window of a second that holds nothing of A any more."""
    lost_to = engine._core.streams[A].ring.lost_to
    assert lost_to is not None
    return lost_to * 100 // 1000 * 1000


def test_windows_that_a_late_beginner_needs_and_that_are_gone_are_one_gap(engine: wukongs.Engine) -> None:
    _, late = two_streams(engine)
    (query,) = engine.queries()
    list(query.results(timeout_s=0, group="g"))
    to_ms = last_gone_ms(engine)
    assert 50_000 < to_ms < 60_000
    executed = query.stats()["windows"]
    for end in range(1000, 60_001, 1000):  # a reader that is quick is told once, too
        late.advance(end)
        engine.settle(timeout_s=60)
        if end == 2000:
            assert outcomes(query) == [(1000, f"gap of {to_ms // 1000}, {to_ms // 1000} gone, up to {to_ms}")]
    rest = [(to_ms + 1000, "partial"), *((end, 100) for end in range(to_ms + 2000, 60_001, 1000))]
    if to_ms + 1000 == last_gone_ms(engine) + 1000 and engine._core.streams[A].ring.lost_to == to_ms // 100:
        rest[0] = (to_ms + 1000, 100)
    assert outcomes(query) == rest
    assert outcomes(query, group="g") == [
        (1000, f"gap of {to_ms // 1000}, {to_ms // 1000} gone, up to {to_ms}"),
        *rest,
    ]
    assert (query.stats()["over_budget"], executed) == (to_ms // 1000, 0)
    assert f"{to_ms // 1000} windows were not made: their slices were gone" in query.why()


def test_a_gap_is_logged_once_beside_an_on_result(engine: wukongs.Engine, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    _, late = two_streams(engine, on_result=lambda window: seen.append(window.end_ms))
    late.advance(60_000)
    engine.settle(timeout_s=60)
    to_ms = last_gone_ms(engine)
    told = [record.getMessage() for record in caplog.records if "are lost" in record.getMessage()]
    assert len(told) == 1
    assert f"from 1000 to {to_ms} ms" in told[0]
    assert seen == list(range(to_ms + 1000, 60_001, 1000))


def test_windows_whose_slices_history_has_let_go_are_a_gap_too(engine: wukongs.Engine) -> None:
    """B has begun before the registration, far behind: the query counts from where B is."""
    ahead, late = engine.stream(A, history_ms=2000), engine.stream(B)
    push(ahead, 0, 10_000, 1)
    engine.settle(timeout_s=60)
    late.advance(100)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 1s STEP 1s] FROM STREAM <{B}> [RANGE 1s STEP 1s] "
        "{ ?s ?p ?o }"
    )
    late.advance(10_000)
    engine.settle(timeout_s=60)
    assert outcomes(query) == [(1000, "gap of 8, 8 gone, up to 8000"), (9000, 10), (10_000, 10)]


@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_a_budget_that_is_none_is_refused(engine: wukongs.Engine, value: object) -> None:
    with pytest.raises(
        wukongs.SettingsError, match=r"slice_bytes_max = .*: expected an integer of at least 1, in bytes"
    ):
        engine.stream(A, slice_bytes_max=value)  # type: ignore[arg-type]


def test_names_are_those_of_the_last_slice(engine: wukongs.Engine) -> None:
    """What stays is the newest."""
    stream = engine.stream(A, slice_bytes_max=3000)
    push(stream, 0, 2000, 2)
    engine.settle(timeout_s=60)
    query = engine.register(register_text("RANGE 200ms STEP 100ms"))
    stream.advance(2100)
    engine.settle(timeout_s=60)
    (window,) = list(query.results(timeout_s=0))
    assert names(window) == ["t2000n0", "t2000n1"]


def test_blocks_that_are_built_in_idle_time_stay_within_the_budget_too(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, slice_bytes_max=200_000, history_ms=3_600_000, timing=True)
    push(stream, 0, 10_000, 20)
    engine.settle(timeout_s=60)
    before = engine.stats()["streams"][A]
    engine.register(register_text("RANGE 100s STEP 100s"))
    with engine._core.lock:
        while engine._injector._merge():
            pass
        after = engine.stats()["streams"][A]
    assert after["slices"] < before["slices"]
    assert 100_000 < after["slice_bytes"] <= after["slice_bytes_max"]


def test_a_slice_that_is_built_ahead_takes_no_room_from_windows(engine: wukongs.Engine) -> None:
    """It belongs to a stream batch that is not closed: the windows before it fit."""
    ahead, late = engine.stream(A, slice_bytes_max=11_000), engine.stream(B)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 300ms STEP 100ms] "
        f"FROM STREAM <{B}> [RANGE 100ms STEP 100ms] {{ ?s ?p ?o }}"
    )
    push(ahead, 0, 300, 50)
    late.advance(200)
    engine.settle(timeout_s=60)
    for count in (10, 200):  # there is no room for the second of these
        ahead.push([at(f"ahead{count}n{i}", 400) for i in range(count)])
        engine.settle(timeout_s=60)
        with engine._core.lock:
            engine._core.prepare_ahead()
            engine._injector._keep_budgets()
    late.advance(300)
    engine.settle(timeout_s=60)
    assert outcomes(query) == [(100, 50), (200, 100), (300, 150)]
    assert engine.stats()["streams"][A]["slices_evicted"] == 0
