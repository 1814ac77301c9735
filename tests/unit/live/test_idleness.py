"""Idleness: streams with idle_timeout_ms that bring nothing, by a clock that the tests move on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, node, register_text, subjects, windows
from tests.inside import ManualClock, core_of, ingest_of
from wukongs.live.pieces import Close, Open, Piece, timing_mask
from wukongs.store.encoder import encode_columns

HOUR_MS = 3_600_000
BOTH = (
    f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
    f"FROM STREAM <{B}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
)


def state(engine: wukongs.Engine, stream: str = A) -> tuple[bool, int | None]:
    found = engine.stats()["streams"][stream]
    return found["is_idle"], found["closed_ms"]


def test_an_idle_stream_follows_the_others(engine: wukongs.Engine, clock: ManualClock) -> None:
    one, two = engine.stream(A, batch_ms=100, idle_timeout_ms=HOUR_MS), engine.stream(B, batch_ms=100)
    query = engine.register(BOTH)
    one.push([at("a", 50)])
    two.push([at("b", 50), at("b2", 250)])
    two.advance(300)
    engine.settle(timeout_s=60)
    assert windows(query) == {}
    clock.pass_s(3601)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a", "b"], 200: [], 300: ["b2"]}
    two.advance(400)
    engine.settle(timeout_s=60)
    assert windows(query) == {400: []}
    assert state(engine) == (True, 400)


def test_alone_it_closes_the_stream_batch_of_its_newest_tuple_and_stays(
    engine: wukongs.Engine, clock: ManualClock
) -> None:
    stream = engine.stream(A, batch_ms=100, lateness_ms=1000, idle_timeout_ms=HOUR_MS)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", 250), at("b", 130)])
    clock.pass_s(3601)
    engine.settle(timeout_s=60)
    assert windows(query) == {200: ["b"], 300: ["a"]}
    clock.pass_s(3601)
    assert state(engine) == (True, 300)


def test_one_that_never_began_begins_so(engine: wukongs.Engine, clock: ManualClock) -> None:
    engine.stream(A, batch_ms=100, idle_timeout_ms=HOUR_MS)
    two = engine.stream(B, batch_ms=100)
    query = engine.register(BOTH)
    clock.pass_s(3601)
    assert state(engine) == (True, None)  # there is nobody to follow
    two.push([at("b", 150)])
    two.advance(300)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: [], 200: ["b"], 300: []}  # it began with B's first closed time, 100
    assert state(engine) == (True, 300)


def test_all_idle_ones_stay(engine: wukongs.Engine, clock: ManualClock) -> None:
    one, two = (engine.stream(name, batch_ms=100, idle_timeout_ms=HOUR_MS) for name in (A, B))
    one.push([at("a", 150)])
    two.push([at("b", 550)])
    clock.pass_s(3601)
    engine.settle(timeout_s=60)
    assert (state(engine, A), state(engine, B)) == ((True, 500), (True, 600))  # A was idle first, and followed B
    clock.pass_s(3601)
    assert (state(engine, A), state(engine, B)) == ((True, 500), (True, 600))
    two.advance(700)
    engine.settle(timeout_s=60)
    assert (state(engine, A), state(engine, B)) == ((True, 700), (False, 700))


def test_its_time_runs_from_each_push_and_advance(engine: wukongs.Engine, clock: ManualClock) -> None:
    stream = engine.stream(A, batch_ms=100, idle_timeout_ms=HOUR_MS)
    for t in (100, 200, 300):
        clock.pass_s(2000)
        stream.push([at(f"a{t}", t)])
        clock.pass_s(2000)
        stream.advance(t + 50)
    assert state(engine) == (False, 300)
    clock.pass_s(3500)
    assert not state(engine)[0]
    clock.pass_s(200)
    assert state(engine)[0]


def test_what_comes_behind_it_is_late_and_no_error(engine: wukongs.Engine, clock: ManualClock) -> None:
    one = engine.stream(A, timing=[EX + "ga"], batch_ms=100, idle_timeout_ms=HOUR_MS)
    two = engine.stream(B, timing=True, batch_ms=100)
    query = engine.register(BOTH)
    one.push([at("a", 150)])
    two.advance(100)
    clock.pass_s(3601)
    two.advance(500)
    assert one.push([at("late", 120), at("later", 90), at("gone", 500, predicate="ga"), at("b", 501)]) == 1
    assert state(engine) == (False, 500)
    two.advance(600)
    one.advance(600)
    engine.settle(timeout_s=60)
    assert {end: found for end, found in windows(query).items() if found} == {200: ["a"], 600: ["b"]}
    assert subjects(engine) == ["a", "b", "late", "later"]
    stats = engine.stats()["streams"][A]
    assert (stats["late"], stats["dropped"]) == (3, 1)


def test_what_falls_ahead_of_it_is_still_an_error(engine: wukongs.Engine, clock: ManualClock) -> None:
    stream = engine.stream(A, batch_ms=100, idle_timeout_ms=HOUR_MS)
    with pytest.raises(wukongs.StreamError, match="falls from 150 to 120 ms at tuple 1 of the call"):
        stream.push([at("a", 150), at("b", 120)])
    stream.push([at("a", 150)])
    clock.pass_s(3601)
    with pytest.raises(wukongs.StreamError, match="falls from 320 to 310 ms at tuple 2 of the call"):
        stream.push([at("late", 110), at("b", 320), at("c", 310)])
    assert stream.push([at("late", 110), at("b", 310)]) == 1
    with pytest.raises(wukongs.StreamError, match="timestamp 309 ms at tuple 0 of the call"):
        stream.push([at("c", 309)])


def test_late_tuples_of_an_idle_stream_go_to_on_late(engine: wukongs.Engine, clock: ManualClock) -> None:
    told: list[Any] = []
    options: dict[str, Any] = {"on_late": lambda table: told.extend(table.column("timestamp_ms").to_pylist())}
    stream = engine.stream(A, batch_ms=100, idle_timeout_ms=HOUR_MS, **options)
    stream.push([at("a", 150)])
    clock.pass_s(3601)
    stream.push([at("late", 190), at("b", 201)])
    assert told == [190]


def test_each_state_is_one_record(engine: wukongs.Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[Any] = []
    journal, commit = core_of(engine).journal, core_of(engine).journal.commit
    monkeypatch.setattr(journal, "commit", lambda change: (changes.append(change), commit(change))[1])
    stream, other = engine.stream(A, batch_ms=100, idle_timeout_ms=HOUR_MS), engine.stream(B, batch_ms=100)
    changes.clear()
    for t in (100, 200):
        stream.push([at("a", 10 * t)])
        clock.pass_s(3601)
        clock.pass_s(3601)
        other.advance(10 * t + 50)
        engine.settle(timeout_s=60)
    stream.close()
    clock.pass_s(3601)
    states = [change["is_idle"] for change in changes if isinstance(change, dict) and change["op"] == "idle"]
    assert states == [True, False, True]


def test_an_idle_stream_that_ends_or_goes_holds_nobody(engine: wukongs.Engine, clock: ManualClock) -> None:
    one, two = (engine.stream(name, batch_ms=100, idle_timeout_ms=HOUR_MS) for name in (A, B))
    one.push([at("a", 50)])
    two.push([at("b", 50)])
    clock.pass_s(3601)
    one.close()
    engine.drop_stream(B)
    clock.pass_s(3601)
    engine.settle(timeout_s=60)
    assert state(engine) == (True, 100)
    assert "a" in subjects(engine)


def test_a_pipelines_piece_that_comes_behind_is_late(engine: wukongs.Engine, clock: ManualClock) -> None:
    engine.stream(A, timing=[EX + "ga"], batch_ms=100, idle_timeout_ms=HOUR_MS)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    ingest = ingest_of(engine)
    ingest.open_partition(Open(A, "file", 1))

    def piece(first: int, times: list[int], predicate: str = "p") -> Piece:
        names = [node(f"{predicate}{t}") for t in times]
        encoded = encode_columns(names, [node(predicate)] * len(times), names, times, scope=b"s")
        timing = timing_mask(encoded, (EX + "ga",))
        return Piece(A, "file", 1, first, first + len(times), 0, -(-times[0] // 100), encoded, timing)

    ingest.inject(piece(0, [120, 150]))
    clock.pass_s(3601)
    assert state(engine) == (True, 200)
    ingest.inject(piece(2, [160, 170]))
    assert state(engine) == (False, 200)
    ingest.inject(piece(4, [180, 190], "ga"))
    ingest.inject(piece(4, [180, 190], "ga"))  # a repeat
    ingest.inject(piece(6, [210]))
    ingest.close_batches(Close(A, "file", 1, 7, 300))
    engine.settle(timeout_s=60)
    assert windows(query) == {200: ["p120", "p150"], 300: ["p210"]}
    assert subjects(engine) == ["p120", "p150", "p160", "p170", "p210"]
    stats = engine.stats()["streams"][A]
    assert (stats["tuples"], stats["late"], stats["dropped"]) == (3, 4, 2)


@pytest.mark.parametrize("value", [0, -5, 1.5, True])
def test_a_time_that_is_none_is_refused(engine: wukongs.Engine, value: Any) -> None:
    with pytest.raises(wukongs.SettingsError, match=r"idle_timeout_ms = .*: expected an integer of at least 1"):
        engine.stream(A, idle_timeout_ms=value)


def test_the_engine_looks_at_the_clock_by_itself() -> None:
    with wukongs.Engine() as engine:
        engine.stream(B)
        stream = engine.stream(A, batch_ms=100, idle_timeout_ms=20)
        stream.push([at("a", 150)])
        until = time.monotonic() + 30
        while state(engine) != (True, 200):
            assert time.monotonic() < until
            time.sleep(0.01)


# --- over the end of a process ----------------------------------------------------------------------------------------


def test_an_idle_stream_is_idle_again_after_a_restart(tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_ms": 100, "idle_timeout_ms": HOUR_MS}
    with wukongs.Engine(tmp_path) as engine:
        one, two = engine.stream(A, **options), engine.stream(B, batch_ms=100)
        engine.register(BOTH)
        one.push([at("a", 50)])
        two.push([at("b", 250)])
        ManualClock(engine).pass_s(3601)
        two.advance(300)
    with wukongs.Engine(tmp_path) as engine:
        one, two, query = engine.stream(A, **options), engine.stream(B, batch_ms=100), engine.register(BOTH)
        assert state(engine) == (True, 300)
        two.advance(400)
        engine.settle(timeout_s=60)
        assert one.push([at("late", 380), at("a2", 410)]) == 1
    with wukongs.Engine(tmp_path) as engine:
        one, two, query = engine.stream(A, **options), engine.stream(B, batch_ms=100), engine.register(BOTH)
        assert state(engine) == (False, 400)
        assert engine.stats()["streams"][A]["late"] == 1
        assert subjects(engine) == ["a", "b", "late"]
        for stream in (one, two):
            stream.advance(500)
        engine.settle(timeout_s=60)
        assert windows(query) == {100: ["a"], 200: [], 300: ["b"], 400: [], 500: ["a2"]}


def test_its_time_runs_anew_when_a_folder_is_opened(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path) as engine:
        engine.stream(A, batch_ms=100, idle_timeout_ms=HOUR_MS).push([at("a", 50)])
        ManualClock(engine).pass_s(3500)
    with wukongs.Engine(tmp_path) as engine:
        clock = ManualClock(engine)
        clock.pass_s(3500)
        assert not state(engine)[0]
        clock.pass_s(200)
        assert state(engine) == (True, 100)
