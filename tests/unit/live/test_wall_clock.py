"""Streams with idle_advance = "wall": once idle they follow the wall clock (the rule: docs/decisions/0113)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import EX, A, B, at, names, node, register_text, subjects, windows
from tests.inside import ManualClock, core_of, ingest_of
from wukongs.errors import StorageError
from wukongs.live.pieces import Close, Finish, Open, Piece, timing_mask
from wukongs.live.wall_clock import DAY_MS, Rounds, wall_end_ms
from wukongs.store.encoder import encode_columns

T0 = 1_790_000_000_000
"""The wall clock at the beginning; event times are given as milliseconds from there on."""
TEN_S: dict[str, Any] = {"batch_ms": 1000, "idle_timeout_ms": 10_000, "idle_advance": "wall"}
SILENT = (
    f"REGISTER QUERY silent AS SELECT ?s FROM NAMED STREAM <{A}> [RANGE 5s STEP 5s] "
    f"WHERE {{ ?s a <{EX}Sensor> FILTER NOT EXISTS {{ GRAPH <{A}> {{ ?s ?p ?v }} }} }}"
)
BOTH = (
    f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{A}> [RANGE 1s STEP 1s] "
    f"FROM STREAM <{B}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
)


@pytest.fixture
def clock(engine: wukongs.Engine) -> ManualClock:
    found = ManualClock(engine)
    found.set_wall(T0)
    return found


def state(engine: wukongs.Engine, stream: str = A) -> tuple[bool, int | None]:
    found = engine.stats()["streams"][stream]
    closed_ms = found["closed_ms"]
    return found["is_idle"], None if closed_ms is None else closed_ms - T0


def found_in(query: Any) -> dict[int, list[str]]:
    """The windows that a query has reported, by their ends from T0 on."""
    return {end - T0: found for end, found in windows(query).items()}


def changes_of(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that grows by the changes that an engine logs of streams that are idle."""
    changes: list[Any] = []
    journal, commit = core_of(engine).journal, core_of(engine).journal.commit

    def noted(change: Any) -> int:
        if isinstance(change, dict) and change["op"] in ("idle", "wall"):
            changes.append(change)
        return commit(change)

    monkeypatch.setattr(journal, "commit", noted)
    return changes


def test_all_sensors_silent_is_reported(engine: wukongs.Engine, clock: ManualClock) -> None:
    """Without idle_advance no window ever comes: nothing says how far event time is."""
    engine.update(f"INSERT DATA {{ <{EX}s1> a <{EX}Sensor> . <{EX}s2> a <{EX}Sensor> }}")
    stream, query = engine.stream(A, timing=True, **TEN_S), engine.register(SILENT)
    stream.push([at("s1", T0 + 1500), at("s2", T0 + 2500), at("s1", T0 + 6000)])
    clock.pass_s(9)
    engine.settle(timeout_s=60)
    assert found_in(query) == {5000: []}
    clock.pass_s(7)
    engine.settle(timeout_s=60)
    assert state(engine) == (True, 16_000)
    assert found_in(query) == {10_000: ["s2"], 15_000: ["s1", "s2"]}


def test_it_is_closed_up_to_the_last_stream_batch_end_before_the_wall_clock_less_lateness_ms(
    engine: wukongs.Engine, clock: ManualClock
) -> None:
    stream = engine.stream(A, **TEN_S, lateness_ms=2500)
    stream.push([at("a", T0 + 100)])
    clock.pass_s(9.9)
    assert state(engine) == (False, -3000)  # what the push itself has closed
    clock.pass_s(0.1)
    assert state(engine) == (True, 7000)
    clock.pass_s(0.4)
    assert state(engine) == (True, 7000)
    clock.pass_s(0.1)
    assert state(engine) == (True, 8000)


def test_its_newest_tuple_stays_open_while_it_is_ahead_of_the_wall_clock(
    engine: wukongs.Engine, clock: ManualClock
) -> None:
    stream = engine.stream(A, **TEN_S)
    stream.push([at("a", T0 + 15_500)])
    clock.pass_s(10)
    assert state(engine) == (True, 15_000)  # never backwards
    clock.pass_s(5.5)
    assert state(engine) == (True, 15_000)
    clock.pass_s(0.5)
    assert state(engine) == (True, 16_000)


def test_one_that_never_began_begins_so(engine: wukongs.Engine, clock: ManualClock) -> None:
    engine.stream(A, **TEN_S)
    query = engine.register(register_text("RANGE 1s STEP 1s"))
    clock.pass_s(10.5)
    engine.settle(timeout_s=60)
    assert state(engine) == (True, 10_000)
    clock.pass_s(1)
    engine.settle(timeout_s=60)
    assert found_in(query) == {10_000: [], 11_000: []}


def test_it_counts_as_a_stream_that_is_not_idle(engine: wukongs.Engine, clock: ManualClock) -> None:
    """Plain idle streams follow it, and the clock of the stored graph waits for it."""
    one, two = engine.stream(A, **TEN_S), engine.stream(B, batch_ms=1000, idle_timeout_ms=1000)
    one.push([at("a", T0 + 500)])
    two.push([at("b", T0 + 500)])
    clock.pass_s(5)
    engine.settle(timeout_s=60)
    assert state(engine, B) == (True, 1000)
    assert subjects(engine) == []
    clock.pass_s(6)
    engine.settle(timeout_s=60)
    assert (state(engine, A), state(engine, B)) == ((True, 11_000), (True, 11_000))
    assert subjects(engine) == ["a", "b"]


def test_what_comes_behind_it_is_late_and_no_error(engine: wukongs.Engine, clock: ManualClock) -> None:
    stream, query = engine.stream(A, **TEN_S), engine.register(register_text("RANGE 1s STEP 1s"))
    stream.push([at("a", T0 + 500)])
    clock.pass_s(20)
    assert stream.push([at("late", T0 + 19_500), at("late2", T0 + 20_000), at("b", T0 + 20_001)]) == 1
    assert state(engine) == (False, 20_000)
    stream.advance(T0 + 21_000)
    engine.settle(timeout_s=60)
    assert {end: found for end, found in found_in(query).items() if found} == {1000: ["a"], 21_000: ["b"]}
    assert engine.stats()["streams"][A]["late"] == 2
    with pytest.raises(wukongs.StreamError, match="timestamps must not decrease"):
        stream.push([at("c", T0 + 20_500)])


def test_each_round_is_one_record_and_one_comes_per_batch_ms(
    engine: wukongs.Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = engine.stream(A, **TEN_S), engine.stream(B, **{**TEN_S, "batch_ms": 2000}, lateness_ms=300)
    one.push([at("a", T0 + 500)])
    two.push([at("b", T0 + 500)])
    changes = changes_of(engine, monkeypatch)
    clock.pass_s(10.05)
    assert [change["op"] for change in changes] == ["idle", "idle", "wall"]
    assert changes[-1]["closed_ms"] == {A: T0 + 10_000, B: T0 + 8000}
    changes.clear()
    for _ in range(40):
        clock.pass_s(0.1)
    moved = [{name: ms - T0 for name, ms in change["closed_ms"].items()} for change in changes]
    assert moved == [{A: 11_000, B: 10_000}, {A: 12_000}, {A: 13_000, B: 12_000}, {A: 14_000}]


def test_it_stays_while_its_newest_tuple_is_of_another_day(engine: wukongs.Engine, clock: ManualClock) -> None:
    stream, query = engine.stream(A, **TEN_S), engine.register(BOTH.replace(B, A))
    stream.push([at("a", T0 - 3 * DAY_MS + 1500)])
    clock.pass_s(11)
    engine.settle(timeout_s=60)
    assert state(engine) == (True, -3 * DAY_MS + 1000)
    told = engine.stats()["streams"][A]
    assert told["idle_advance"] == "wall"
    assert "is more than a day behind the wall clock" in told["idle_hold"]
    assert f"stream {A} is idle; its newest tuple, at {T0 - 3 * DAY_MS + 1500} ms (2026-" in query.why()
    stream.push([at("b", T0 + 10_500)])
    assert engine.stats()["streams"][A]["idle_hold"] is None
    clock.pass_s(11)
    assert state(engine) == (True, 22_000)
    assert "is idle;" not in query.why()


def test_a_day_is_the_bound_and_a_wall_clock_that_jumps_ahead_moves_nothing(
    engine: wukongs.Engine, clock: ManualClock
) -> None:
    engine.stream(A, **TEN_S).push([at("a", T0 + 500)])
    clock.pass_s(11)
    clock.set_wall(T0 + 500 + DAY_MS + 1)
    clock.pass_s(0)
    assert state(engine) == (True, 11_000)
    clock.set_wall(T0 + 500 + DAY_MS)
    clock.pass_s(0)
    assert state(engine) == (True, DAY_MS)


def test_a_stream_that_was_only_advanced_in_another_time_stays(engine: wukongs.Engine, clock: ManualClock) -> None:
    """Else a query would have to report each window between 1970 and today."""
    engine.stream(A, **TEN_S).advance(5000)
    clock.pass_s(11)
    assert state(engine) == (True, 5000 - T0)


def test_a_wall_clock_that_goes_back_never_moves_a_stream_back(engine: wukongs.Engine, clock: ManualClock) -> None:
    engine.stream(A, **TEN_S).push([at("a", T0 + 500)])
    clock.pass_s(11)
    clock.set_wall(T0 + 3000)
    clock.pass_s(2)
    assert state(engine) == (True, 11_000)
    clock.pass_s(7)
    assert state(engine) == (True, 12_000)


def test_an_advance_that_is_behind_leaves_the_state(engine: wukongs.Engine, clock: ManualClock) -> None:
    stream = engine.stream(A, **TEN_S)
    stream.push([at("a", T0 + 500)])
    clock.pass_s(11)
    stream.advance(T0 + 5000)
    assert state(engine) == (False, 11_000)
    clock.pass_s(9)
    assert state(engine) == (False, 11_000)
    clock.pass_s(1)
    assert state(engine) == (True, 21_000)


def test_a_round_that_cannot_be_logged_is_made_later(
    engine: wukongs.Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine.stream(A, **TEN_S).push([at("a", T0 + 500)])
    clock.pass_s(11)
    journal, commit = core_of(engine).journal, core_of(engine).journal.commit

    def refused(change: Any) -> int:
        if isinstance(change, dict) and change["op"] == "wall":
            raise StorageError("the disk is full")
        return commit(change)

    monkeypatch.setattr(journal, "commit", refused)
    clock.pass_s(1)
    assert state(engine) == (True, 11_000)
    assert "idle streams cannot follow the wall clock: the disk is full" in caplog.text
    monkeypatch.setattr(journal, "commit", commit)
    clock.pass_s(0)
    assert state(engine) == (True, 12_000)


def test_streams_that_end_or_go_are_left_out(engine: wukongs.Engine, clock: ManualClock) -> None:
    one, _ = engine.stream(A, **TEN_S), engine.stream(B, **TEN_S)
    one.push([at("a", T0 + 500)])
    clock.pass_s(11)
    one.close()
    engine.drop_stream(B)
    clock.pass_s(11)
    engine.settle(timeout_s=60)
    assert state(engine) == (True, 11_000)
    assert subjects(engine) == ["a"]


def test_pipelines_decide_themselves_whether_they_are_idle(engine: wukongs.Engine, clock: ManualClock) -> None:
    """A partition's writer alone decides what is idle and late: what it sends later is on time."""
    stream = engine.stream(A, timing=True, **TEN_S)
    ingest = ingest_of(engine)
    ingest.open_partition(Open(A, "file", 1))

    def piece(first: int, times: list[int]) -> Piece:
        found = [node(f"s{t}") for t in times]
        encoded = encode_columns(found, [node("p")] * len(times), found, [T0 + t for t in times], scope=b"s")
        timing = timing_mask(encoded, True)
        return Piece(A, "file", 1, first, first + len(times), 0, -(-(T0 + times[0]) // 1000), encoded, timing)

    ingest.inject(piece(0, [500, 600]))
    clock.pass_s(11)
    assert state(engine) == (True, None)
    ingest.inject(piece(2, [700]))
    stream.push([at("x", T0 + 800)])
    ingest.close_batches(Close(A, "file", 1, 3, T0 + 5000))
    clock.pass_s(11)
    assert state(engine) == (True, 5000)  # what is pushed goes as far as the pipeline
    ingest.finish_partition(Finish(A, "file", 1))
    clock.pass_s(1)
    assert state(engine) == (True, 23_000)
    stats = engine.stats()["streams"][A]
    assert (stats["tuples"], stats["late"]) == (4, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"idle_advance": "wall"}, r'idle_advance = "wall": expected an idle_timeout_ms beside it, found none'),
        ({"idle_advance": "event", "idle_timeout_ms": 5}, r"idle_advance = 'event': expected \"wall\", or None"),
        ({"idle_advance": True, "idle_timeout_ms": 5}, r"idle_advance = True: expected \"wall\", or None"),
    ],
)
def test_options_that_say_nothing_are_refused(engine: wukongs.Engine, options: Any, message: str) -> None:
    with pytest.raises(wukongs.SettingsError, match=message):
        engine.stream(A, **options)
    assert engine.streams() == []


def test_the_engine_follows_the_clock_of_the_machine_by_itself() -> None:
    with wukongs.Engine() as engine:
        engine.stream(A, batch_ms=100, idle_timeout_ms=20, idle_advance="wall")
        query = engine.register(register_text("RANGE 100ms STEP 100ms"))
        began_ms = time.time_ns() // 1_000_000
        found = query.results(timeout_s=60)
        ends = [next(found).end_ms for _ in range(3)]
        assert ends == [ends[0], ends[0] + 100, ends[0] + 200]
        assert began_ms - 100 < ends[0]
        assert ends[-1] <= time.time_ns() // 1_000_000


# --- over the end of a process ----------------------------------------------------------------------------------------


def test_a_replay_gives_the_same_windows_and_needs_no_clock(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path) as engine:
        clock = ManualClock(engine)
        clock.set_wall(T0)
        stream = engine.stream(A, timing=True, **TEN_S)
        query = engine.register(register_text("RANGE 1s STEP 1s"))
        stream.push([at("a", T0 + 500)])
        for _ in range(3):
            clock.pass_s(6)
        assert stream.push([at("late", T0 + 17_500), at("b", T0 + 18_001)]) == 1
        assert state(engine) == (False, 18_000)
    with wukongs.Engine(tmp_path) as engine:
        clock = ManualClock(engine)
        clock.set_wall(T0 + 2 * DAY_MS)
        stream, query = engine.stream(A, timing=True, **TEN_S), engine.register(register_text("RANGE 1s STEP 1s"))
        assert state(engine) == (False, 18_000)
        engine.settle(timeout_s=60)
        found = found_in(query)
        assert found == {end: ["a"] if end == 1000 else [] for end in range(1000, 18_001, 1000)}
        stream.advance(T0 + 19_000)
        engine.settle(timeout_s=60)
        assert found_in(query) == {19_000: ["b"]}
        assert engine.stats()["streams"][A]["late"] == 1


def test_its_time_runs_anew_when_a_folder_is_opened(tmp_path: Path) -> None:
    """What waited elsewhere meanwhile comes first; else all of it would be late."""
    with wukongs.Engine(tmp_path) as engine:
        clock = ManualClock(engine)
        clock.set_wall(T0)
        engine.stream(A, **TEN_S).push([at("a", T0 + 500)])
        clock.pass_s(11)
    with wukongs.Engine(tmp_path) as engine:
        clock = ManualClock(engine)
        clock.set_wall(T0 + 600_000)
        assert engine.stream(A, **TEN_S).options["idle_advance"] == "wall"
        clock.pass_s(9)
        assert state(engine) == (True, 11_000)
        clock.pass_s(1)
        assert state(engine) == (True, 610_000)


def test_a_checkpoint_keeps_what_follows(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path) as engine:
        clock = ManualClock(engine)
        clock.set_wall(T0)
        engine.stream(A, **TEN_S)
        clock.pass_s(11)
        engine.checkpoint()
    with wukongs.Engine(tmp_path) as engine:
        clock = ManualClock(engine)
        clock.set_wall(T0 + 3 * DAY_MS)
        assert state(engine) == (True, 11_000)
        clock.pass_s(11)
        assert state(engine) == (True, 3 * DAY_MS + 11_000)  # there is no tuple of another day


def test_a_folder_with_another_idle_advance_is_not_taken_for_the_same(tmp_path: Path) -> None:
    with wukongs.Engine(tmp_path) as engine:
        engine.stream(A, **TEN_S)
    with wukongs.Engine(tmp_path) as engine:
        with pytest.raises(wukongs.StreamError, match="'idle_advance': 'wall'"):
            engine.stream(A, batch_ms=1000, idle_timeout_ms=10_000)
        engine.stream(A, **TEN_S)


# --- the rule alone ---------------------------------------------------------------------------------------------------


def test_rounds_go_by_the_stream_with_the_shortest_stream_batches() -> None:
    rounds, grid = Rounds(), [(1000, 0), (100, 30)]
    assert rounds.wait_ms(grid, 5050) == 0
    rounds.begin(grid, 5050)
    assert rounds.wait_ms(grid, 5050) == 80
    assert rounds.wait_ms(grid, 5129) == 1
    assert rounds.wait_ms(grid, 5130) == 0
    assert rounds.wait_ms(grid, 1000) == 100  # the clock went back
    assert rounds.wait_ms([(1000, 0)], 5060) == 0  # another stream leads


def test_times_that_no_snapshot_number_can_name_close_nothing() -> None:
    assert wall_end_ms(T0 + 999, 0, 1000) == T0
    assert wall_end_ms(1 << 50, 0, 1000) is None
    assert wall_end_ms(T0, 1 << 50, 1000) is None


def test_names_of_a_query_over_both_say_who_is_silent(engine: wukongs.Engine, clock: ManualClock) -> None:
    """One stream follows the wall clock, the other one is pushed to: windows over both come in order."""
    engine.stream(A, **TEN_S)
    two = engine.stream(B, batch_ms=1000)
    query = engine.register(BOTH)
    two.push([at("b", T0 + 10_500), at("b2", T0 + 11_500)])
    two.advance(T0 + 12_000)
    clock.pass_s(12)
    engine.settle(timeout_s=60)
    found = {window.end_ms - T0: names(window) for window in query.results(timeout_s=0)}
    assert found == {11_000: ["b"], 12_000: ["b2"]}
