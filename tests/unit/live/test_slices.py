"""Which slices are kept: history, what windows still need, and what `partial` says of the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import wukongs
from tests.engine_helpers import A, B, at, names, register_text
from wukongs.live import injector
from wukongs.settings import Settings
from wukongs.store import block_index


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine(settings=Settings(batch_ms=100)) as engine:
        yield engine


def slices(engine: wukongs.Engine, stream: str = A) -> int:
    engine.settle(timeout_s=60)
    count: int = engine.stats()["streams"][stream]["slices"]
    return count


@pytest.mark.parametrize(("history_ms", "kept"), [(0, 0), (100, 1), (550, 6), (60_000, 20)])
def test_history_is_kept_and_no_more(engine: wukongs.Engine, history_ms: int, kept: int) -> None:
    stream = engine.stream(A, history_ms=history_ms)
    for t in range(50, 2050, 100):
        stream.push([at(f"t{t}", t)])
    stream.advance(2000)
    assert slices(engine) == kept


@pytest.mark.parametrize("step_ms", [100, 300, 700])
def test_a_window_that_is_still_needed_is_never_dropped(engine: wukongs.Engine, step_ms: int) -> None:
    stream = engine.stream(A, history_ms=0)
    query = engine.register(register_text(f"RANGE 500ms STEP {step_ms}ms"))
    expected = {}
    pushed = []
    for t in range(50, 4050, 100):
        stream.push([at(f"t{t}", t)])
        engine.settle(timeout_s=60)
        pushed.append(t)
    stream.advance(4000)
    for end in range(step_ms, 4001, step_ms):
        expected[end] = sorted(f"t{t}" for t in pushed if end - 500 < t <= end)
    engine.settle(timeout_s=60)
    found = list(query.results(timeout_s=0))
    assert {w.end_ms: names(w) for w in found} == expected
    assert not any(w.partial for w in found)
    assert slices(engine) <= (500 + 2 * step_ms) // 100


def test_two_queries_keep_what_the_wider_needs(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, history_ms=0)
    wide = engine.register(register_text("RANGE 1s STEP 100ms", "wide"))
    engine.register(register_text("RANGE 100ms STEP 100ms", "narrow"))
    for t in range(50, 3050, 100):
        stream.push([at(f"t{t}", t)])
    stream.advance(3000)
    assert 10 <= slices(engine) <= 12
    wide.close()
    assert slices(engine) <= 2, "at once, not only when more comes"


def test_blocks_are_as_long_as_the_registered_windows_need(engine: wukongs.Engine) -> None:
    engine.stream(A)
    ring = engine._core.streams[A].ring
    wide = engine.register(register_text("RANGE 10s STEP 100ms", "wide"))
    engine.register(register_text("RANGE 1s STEP 100ms", "narrow"))
    assert ring.copy_count == 4, "levels 0, 2, 4 and 5"
    wide.close()
    assert ring.copy_count == 2, "levels 0 and 2"


def test_idle_time_builds_the_blocks_of_a_query_that_came_late(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    for t in range(50, 3250, 100):
        stream.push([at(f"t{t}", t)])
    stream.advance(3200)
    engine.settle(timeout_s=60)
    query = engine.register(register_text("RANGE 3200ms STEP 3200ms"))
    ring = engine._core.streams[A].ring

    def are_built() -> bool:
        with engine._core.lock:
            return not ring._blocks._by_deadline

    wait_until(are_built)
    assert len(ring.window(0, 32).batches) <= 6
    query.close()


def test_partial_says_that_held_tuples_are_gone_and_the_rest_is_there(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, history_ms=300)
    for t in range(50, 1050, 100):
        stream.push([at(f"t{t}", t)])
    stream.advance(1000)
    engine.settle(timeout_s=60)
    query = engine.register(register_text("RANGE 800ms STEP 100ms"))
    stream.advance(1700)
    engine.settle(timeout_s=60)
    found = {w.end_ms: (w.partial, names(w)) for w in query.results(timeout_s=0)}
    assert found[1100] == (True, ["t750", "t850", "t950"])
    assert found[1400] == (True, ["t750", "t850", "t950"])
    assert found[1500] == (False, ["t750", "t850", "t950"]), "from 700 on nothing was lost"


def test_a_window_before_the_first_tuple_is_not_partial_however_late_the_query(engine: wukongs.Engine) -> None:
    """Nothing was there to lose, though history_ms has passed that time."""
    stream = engine.stream(A, history_ms=1000)
    stream.push([at("a", 1_000_050)])
    stream.advance(1_000_100)
    engine.settle(timeout_s=60)
    query = engine.register(register_text("RANGE 100s STEP 1s"))
    stream.advance(1_001_000)
    engine.settle(timeout_s=60)
    (window,) = list(query.results(timeout_s=0))
    assert (names(window), window.partial) == (["a"], False)


def test_the_strings_of_timing_tuples_go_with_their_slices(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True, history_ms=0)
    stream.push([at("first", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    before = engine.stats()["terms"]
    for t in range(150, 3050, 100):
        stream.push([at(f"t{t}", t)])
    stream.advance(3000)
    engine.settle(timeout_s=60)
    assert engine.stats()["terms"] <= before


def test_the_next_slice_is_built_before_its_stream_batch_is_closed(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In idle time, if a window reads the stream; what is pushed meanwhile is not forgotten."""
    monkeypatch.setattr(injector, "AHEAD_MIN", 1)
    read, unread = engine.stream(A, timing=True), engine.stream(B, timing=True)
    query = engine.register(register_text("RANGE 200ms STEP 100ms"))
    late: list[int] = []
    build = block_index.build_slice
    monkeypatch.setattr(block_index, "build_slice", lambda tuples: late.append(len(tuples[0])) or build(tuples))
    rings = [engine._core.streams[name].ring for name in (A, B)]
    for number in range(1, 5):
        at_ms = 100 * number
        for stream in (read, unread):
            stream.push([at(f"t{number}", at_ms)])
        wait_until(lambda number=number: rings[0].count_ahead(number) == 1)  # type: ignore[misc]
        assert rings[1].count_ahead(number) == 0
        if number == 4:
            read.push([at("more", at_ms)])
            wait_until(lambda: rings[0].count_ahead(4) == 2)
            read.push([at("last", at_ms)])
        for stream in (read, unread):
            stream.advance(at_ms)
        engine.settle(timeout_s=60)
    found = {window.end_ms: names(window) for window in query.results(timeout_s=0)}
    assert found[300] == ["t2", "t3"]
    assert found[400] == ["last", "more", "t3", "t4"]
    assert late.count(3) == 1, "three tuples were there at last, and two when it was built ahead"


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)
