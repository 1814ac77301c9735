"""slice_bytes_max: what goes when it is full, and what the queries that needed it are told."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import wukongs
from tests.engine_helpers import A, at, names, register_text
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


def outcomes(query: wukongs.ContinuousQuery) -> dict[int, int | str]:
    """Window end -> its rows, or the text of the error in its place."""
    found: dict[int, int | str] = {}
    while True:
        try:
            for window in query.results(timeout_s=0):
                assert not window.partial
                found[window.end_ms] = len(window)
            return found
        except wukongs.BudgetExceeded as error:
            found[int(str(error).split(" ms")[0].rsplit(" ", 1)[1])] = str(error)


def test_history_that_no_window_needs_goes_first(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, slice_bytes_max=ROOM, history_ms=3_600_000)
    query = engine.register(register_text("RANGE 200ms STEP 100ms"))
    push(stream, 0, 10_000, 10)
    engine.settle(timeout_s=60)
    stats = engine.stats()["streams"][A]
    assert 2 <= stats["slices"] < 50
    assert stats["slice_bytes"] <= stats["slice_bytes_max"] == ROOM
    assert stats["slices_evicted"] == 0
    assert set(list(outcomes(query).values())[1:]) == {20}
    assert query.stats()["over_budget"] == 0


def test_a_window_that_no_longer_fits_is_an_error_until_it_fits_again(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, slice_bytes_max=ROOM)
    query = engine.register(register_text("RANGE 1s STEP 1s"))
    narrow = engine.register(register_text("RANGE 100ms STEP 1s", "narrow"))
    push(stream, 0, 1000, 1)
    push(stream, 1000, 2000, 40)
    push(stream, 2000, 4000, 1)
    engine.settle(timeout_s=60)
    found = outcomes(query)
    assert {end: rows for end, rows in found.items() if end != 2000} == {1000: 10, 3000: 10, 4000: 10}
    text = str(found[2000])
    for part in (
        "query q, window ending at 2000 ms",
        f"stream {A} keeps ",
        f"slice_bytes_max = {ROOM}",
        "1000 ms wide",
    ):
        assert part in text
    assert outcomes(narrow) == {1000: 1, 2000: 40, 3000: 1, 4000: 1}
    assert query.stats()["over_budget"] == query.stats()["errors"] == 1
    assert engine.stats()["streams"][A]["slices_evicted"] > 0
    assert engine.stats()["streams"][A]["slice_bytes"] <= ROOM


def test_one_stream_batch_that_is_too_large_by_itself_is_not_kept(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, slice_bytes_max=1024)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    push(stream, 0, 100, 200)
    push(stream, 100, 200, 1)
    engine.settle(timeout_s=60)
    found = outcomes(query)
    assert "keeps 0 ms" in str(found[100])
    assert found[200] == 1


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
    engine.settle(30)
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
