"""Groups and distinct rows of one pattern over one window follow its slices: no match is kept."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

import wukongs
from wukongs.live import injector
from wukongs.query.plans import deltas
from wukongs.store.slice_ring import SliceRing

S, T, P = "http://ex/s", "http://ex/t", "<http://ex/p>"
FROM = f"FROM STREAM <{S}> [RANGE 500ms STEP 100ms] WHERE {{ ?s {P} ?o }}"
COUNTED = f"REGISTER QUERY counted AS SELECT ?s (COUNT(*) AS ?n) {FROM} GROUP BY ?s"
NUMBER = '"%d"^^<http://www.w3.org/2001/XMLSchema#integer>'


@pytest.fixture(autouse=True)
def _all_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)


def tuples_of(tick: int) -> list[tuple[str, str, str, int]]:
    """Some come in each stream batch, some in every second one, some once."""
    numbers = [1, 2, 10 + tick % 2, 100 + tick, 100 + tick // 3]
    return [(f"<http://ex/{one % 3}>", P, NUMBER % one, 100 * tick - 50) for one in dict.fromkeys(numbers)]


def counted_beside(own: str, other: str) -> str:
    """A query of one window that has another one in its clause. own, other: RANGE and STEP of these."""
    return (
        f"REGISTER QUERY both AS SELECT ?s (COUNT(*) AS ?n) FROM NAMED STREAM <{S}> [RANGE {own}] "
        f"FROM NAMED STREAM <{T}> [RANGE {other}] WHERE {{ GRAPH <{S}> {{ ?s {P} ?o }} }} GROUP BY ?s"
    )


def expected(tick: int, came: dict[int, list[tuple[str, str, str, int]]]) -> Counter[str]:
    window = {row[:3] for at in range(tick - 4, tick + 1) for row in came.get(at, [])}
    return Counter(row[0] for row in window)


def found(window: Any) -> Counter[str]:
    return Counter({str(row[0]): int(str(row[1]).split('"')[1]) for row in window.texts()})


def test_slices_tell_the_change_and_nothing_is_kept() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(S, batch_ms=100, timing=True)
        query = engine.register(COUNTED)
        came = {}
        for tick in range(1, 25):
            came[tick] = [] if tick % 7 == 0 else tuples_of(tick)
            stream.push(came[tick])
            stream.advance(100 * tick)
            assert found(next(query.results(timeout_s=60))) == expected(tick, came), tick
        stats = query.stats()
        assert stats["found_by"]["maintained_slices"] >= 20
        assert "maintained_bindings" not in stats["found_by"]
        assert stats["matches_kept"] == 0


@pytest.mark.parametrize("later", [0, 3])
def test_a_slice_that_is_built_ahead(later: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """later: tuples that come once it was built."""
    monkeypatch.setattr(injector, "AHEAD_MIN", 1)
    with wukongs.Engine() as engine:
        stream = engine.stream(S, batch_ms=100, timing=True)
        ring = engine._core.stream(S).ring
        query = engine.register(COUNTED)
        came = {}
        for tick in range(1, 12):
            came[tick] = tuples_of(tick)
            cut = len(came[tick]) - later
            stream.push(came[tick][:cut])
            deadline_s = time.monotonic() + 60
            while tick > 2 and not ring.count_ahead(tick):
                assert time.monotonic() < deadline_s
                time.sleep(0.001)
            stream.push(came[tick][cut:])
            stream.advance(100 * tick)
            assert found(next(query.results(timeout_s=60))) == expected(tick, came), tick
        assert query.stats()["found_by"]["maintained_slices"] >= 7


def test_it_begins_anew_when_slices_that_have_gone_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = 0

    def dropped_to(self: SliceRing) -> int | None:
        dropped: int | None = self.__dict__.get("dropped_to")
        return tick - 5 if tick == 10 else dropped

    def drop_to(self: SliceRing, number: int | None) -> None:
        self.__dict__["dropped_to"] = number

    monkeypatch.setattr(SliceRing, "dropped_to", property(dropped_to, drop_to), raising=False)
    with wukongs.Engine() as engine:
        stream = engine.stream(S, batch_ms=100, timing=True)
        query = engine.register(COUNTED)
        came = {}
        for tick in range(1, 16):
            came[tick] = tuples_of(tick)
            stream.push(came[tick])
            stream.advance(100 * tick)
            assert found(next(query.results(timeout_s=60))) == expected(tick, came), tick
            if tick in (9, 10):
                begun = query.stats()["found_by"]["bindings_begun"]
                assert begun == tick - 8
        assert query.stats()["found_by"]["maintained_slices"] >= 10


def test_two_queries_with_other_ranges_share_what_knows_the_tuples() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(S, batch_ms=100, timing=True)
        wide = engine.register(COUNTED.replace("counted", "wide").replace("500ms", "1s"))
        narrow = engine.register(COUNTED)
        distinct = engine.register(f"REGISTER ISTREAM added AS SELECT DISTINCT ?o {FROM}")
        came: dict[int, list[tuple[str, str, str, int]]] = {}
        before: set[str] = set()
        for tick in range(1, 30):
            came[tick] = tuples_of(tick)
            stream.push(came[tick])
            stream.advance(100 * tick)
            assert found(next(narrow.results(timeout_s=60))) == expected(tick, came), tick
            held = {row[:3] for at in range(tick - 9, tick + 1) for row in came.get(at, [])}
            assert found(next(wide.results(timeout_s=60))) == Counter(row[0] for row in held), tick
            now = {row[2] for at in range(tick - 4, tick + 1) for row in came.get(at, [])}
            assert {str(row[0]) for row in next(distinct.results(timeout_s=60)).texts()} == now - before, tick
            before = now


def test_a_wider_window_may_come_back_between_two_others() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(S, batch_ms=100, timing=True)
        wide = engine.register(COUNTED.replace("counted", "wide").replace("500ms", "1s"))
        narrow = engine.register(COUNTED)
        came: dict[int, list[tuple[str, str, str, int]]] = {}
        for tick in range(1, 40):
            came[tick] = tuples_of(tick)
            stream.push(came[tick])
            time.sleep(0.003)  # its slice is built
            if tick in (5, 17, 29):
                wide.pause()
            if tick in (9, 20, 31):
                wide.resume()
            stream.advance(100 * tick)
            assert found(next(narrow.results(timeout_s=60))) == expected(tick, came), tick
            engine.settle(60)
            window = next(wide.results(timeout_s=0), None)
            if window is not None:
                held = {row[:3] for at in range(tick - 9, tick + 1) for row in came.get(at, [])}
                assert window.end_ms == 100 * tick
                assert found(window) == Counter(row[0] for row in held), tick


def test_a_window_that_is_narrower_than_the_step_keeps_right_beside_a_wider_one() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(S, batch_ms=100, timing=True)
        wide = engine.stream(T, batch_ms=100, timing=True)
        query = engine.register(counted_beside("200ms STEP 600ms", "1200ms STEP 600ms"))
        came: dict[int, list[tuple[str, str, str, int]]] = {}
        for tick in range(1, 50):
            came[tick] = tuples_of(tick)
            stream.push(came[tick])
            time.sleep(0.003)
            stream.advance(100 * tick)
            wide.advance(100 * tick)
            if tick % 6 == 0:
                held = {row[:3] for at in (tick - 1, tick) for row in came[at]}
                assert found(next(query.results(timeout_s=60))) == Counter(row[0] for row in held), tick


def test_a_query_whose_other_stream_is_behind_goes_on_by_slices() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(S, batch_ms=100, timing=True)
        second = engine.stream(T, batch_ms=100, timing=True)
        alone = engine.register(COUNTED)
        both = engine.register(counted_beside("500ms STEP 100ms", "500ms STEP 100ms"))
        came: dict[int, list[tuple[str, str, str, int]]] = {}
        for tick in range(1, 30):
            came[tick] = tuples_of(tick)
            stream.push(came[tick])
            stream.advance(100 * tick)
            assert found(next(alone.results(timeout_s=60))) == expected(tick, came), tick
            stream.push(tuples_of(tick + 1)[:1])
            time.sleep(0.003)
            second.advance(100 * tick)
            assert found(next(both.results(timeout_s=60))) == expected(tick, came), tick
        assert both.stats()["found_by"]["maintained_slices"] >= 20
