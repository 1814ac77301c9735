"""The slow lane: windows of slow queries are those that they are without it, and those of others do not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, at, node
from tests.unit.live.test_direct_firings import Life, shown
from wukongs.live import answering, query_firings, query_windows, slow_lane
from wukongs.live.query_firings import QueryFirings

SLOW = f"SELECT ?s ?o FROM STREAM <{A}> [RANGE 300ms STEP 100ms] WHERE {{ ?s {node('p')} ?o FILTER(RAND() < 2) }}"
QUICK = f"SELECT ?s FROM STREAM <{A}> [RANGE 300ms STEP 100ms] WHERE {{ ?s {node('p')} ?o }}"
STORED = (
    f"SELECT ?s ?x FROM <urn:x-wukongs:default> FROM STREAM <{A}> [RANGE 300ms STEP 100ms] "
    f"WHERE {{ ?s {node('p')} ?o . ?o {node('r')} ?x FILTER(RAND() < 2) }}"
)
WAIT_S = 60.0


def without_programs(patch: pytest.MonkeyPatch) -> None:
    """The executor evaluates all queries."""
    patch.setattr(query_windows, "ARENA_CELLS", 1 << 62)


def all_slow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(query_firings, "SLOW_US", -1.0)
    patch.setattr(query_firings, "SLOW_COUNT", 1)


class UnsettledLife(Life):
    """Ticks and changes go on while firings wait in the lane."""

    def change(self) -> None:
        if self.chance.random() < 0.3:
            self.engine.settle(WAIT_S)
        super().change()

    def tick(self, number: int) -> None:
        settle, self.engine.settle = self.engine.settle, lambda _: None  # type: ignore[method-assign]
        try:
            super().tick(number)
        finally:
            self.engine.settle = settle  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [Life, UnsettledLife])
def test_windows_are_those_of_firings_one_by_one(seed: int, kind: type[Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while queries are paused, replaced and closed, and stored triples change."""
    without_programs(monkeypatch)
    monkeypatch.setattr(slow_lane, "WAITING_MAX", 5)
    lives, count = list[dict[str, set[str]]](), 0
    for is_offloaded in (True, False):
        with wukongs.Engine() as engine, pytest.MonkeyPatch.context() as patch:
            if is_offloaded:
                all_slow(patch)
            life = kind(engine, seed)
            life.live(8, 50)
            engine.settle(WAIT_S)
            for name, query in life.queries.items():
                count += query.stats()["found_by"].get("slow_lane", 0) if is_offloaded else 0
                life.read(name)
            lives.append({name: set(map(str, seen)) for name, seen in life.seen.items()})  # some have two readers
    assert lives[0] == lives[1]
    assert count > 50


class Held:
    """The executor's answers for one query, which wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, variables: tuple[str, ...]) -> None:
        self.goes_on, self.began, self.threads = threading.Event(), threading.Event(), set[str]()
        right: Callable[..., Any] = answering.answer

        def held(query: Any, *given: Any, **named: Any) -> Any:
            if query.variables == variables and threading.current_thread().name == "wukongs-slow-lane":
                self.threads.add(threading.current_thread().name)
                self.began.set()
                assert self.goes_on.wait(WAIT_S)
            return right(query, *given, **named)

        monkeypatch.setattr(answering, "answer", held)
        all_slow(monkeypatch)


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as engine:
        yield engine


def begin(engine: wukongs.Engine, slow: str = SLOW) -> tuple[wukongs.Stream, Any, Any]:
    stream = engine.stream(A, batch_ms=100, timing=True)
    stream.advance(0)
    queries = [engine.register(f"REGISTER QUERY {name} AS {text}") for name, text in (("slow", slow), ("quick", QUICK))]
    return stream, *queries


def tick(stream: wukongs.Stream, number: int) -> None:
    stream.push([at(f"s{number}", 100 * number - 50, "p", "o")])
    stream.advance(100 * number)


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def read_to(query: Any, end_ms: int) -> list[Any]:
    """Return the windows of a query up to an end, once it has them."""
    found, deadline_s = list[Any](), time.monotonic() + WAIT_S
    while not (found and found[-1].end_ms >= end_ms):
        assert time.monotonic() < deadline_s, found
        found += query.results(timeout_s=0.02)
    return found


def test_windows_of_others_do_not_wait_for_a_slow_query(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is that of its time, though the stored graph has changed since, and slices were dropped."""
    held = Held(monkeypatch, ("s", "x"))
    engine.update(f"INSERT DATA {{ {node('o')} {node('r')} {node('x1')} }}")
    stream, slow, quick = begin(engine, STORED)
    tick(stream, 1)
    engine.settle(WAIT_S)
    tick(stream, 2)
    assert held.began.wait(WAIT_S)
    engine.update(f"DELETE DATA {{ {node('o')} {node('r')} {node('x1')} }}")
    for number in range(3, 20):
        tick(stream, number)
    assert [window.end_ms for window in read_to(quick, 1900)] == [100 * number for number in range(1, 20)]
    with pytest.raises(wukongs.StreamError, match="not settled"):
        engine.settle(0.05)
    held.goes_on.set()
    engine.settle(WAIT_S)
    found = list(slow.results(timeout_s=0))
    assert [window.end_ms for window in found] == [100 * number for number in range(1, 20)]
    assert [len(window) for window in found] == [1, 2] + [0] * 17
    assert held.threads == {"wukongs-slow-lane"}
    assert slow.stats()["found_by"]["slow_lane"] == 18
    assert "slow_lane" not in quick.stats()["found_by"]


def test_a_query_leaves_the_lane_once_it_is_quick_again(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, slow, _ = begin(engine)
    with monkeypatch.context() as patch:
        all_slow(patch)
        for number in range(1, 4):
            tick(stream, number)
            engine.settle(WAIT_S)
    tick(stream, 4)  # the last one there, which is seen to be quick
    engine.settle(WAIT_S)
    before = slow.stats()["found_by"]["slow_lane"]
    tick(stream, 5)
    engine.settle(WAIT_S)
    assert slow.stats()["found_by"]["slow_lane"] == before == 3
    assert [len(window) for window in slow.results(timeout_s=0)] == [1, 2, 3, 3, 3]


def begin_behind(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> tuple[Held, wukongs.Stream, Any, Any]:
    """Have the firings of a slow query at 200 to 400 ms wait in the lane."""
    held = Held(monkeypatch, ("s", "o"))
    stream, slow, quick = begin(engine)
    tick(stream, 1)
    engine.settle(WAIT_S)
    for number in range(2, 5):
        tick(stream, number)
    read_to(quick, 400)
    assert slow.stats()["firings_waiting"] == 3
    return held, stream, slow, quick


@pytest.mark.parametrize("form", ["QUERY", "ISTREAM"])
def test_firings_in_the_lane_are_of_their_text(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """The next text may have firings there, too, or may not: then these wait."""
    held, stream, slow, quick = begin_behind(engine, monkeypatch)
    slow.replace(f"REGISTER {form} slow AS {QUICK}")
    tick(stream, 5)
    if form == "QUERY":
        read_to(quick, 500)
    held.goes_on.set()
    tick(stream, 6)
    engine.settle(WAIT_S)
    found = list(slow.results(timeout_s=0))
    assert [window.end_ms for window in found] == [100 * number for number in range(1, 7)]
    assert [window.vars for window in found] == [["s", "o"]] * 4 + [["s"]] * 2
    assert slow.stats()["found_by"]["slow_lane"] == (5 if form == "QUERY" else 3)


def test_a_slow_query_is_paused_and_closed_though_firings_wait(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, stream, slow, quick = begin_behind(engine, monkeypatch)
    slow.pause()
    for number in range(5, 8):
        tick(stream, number)
    read_to(quick, 700)
    slow.resume()
    tick(stream, 8)
    other = engine.register(f"REGISTER QUERY other AS {SLOW}")
    for number in range(9, 11):
        tick(stream, number)
    read_to(quick, 1000)
    closing = threading.Thread(target=other.close)
    closing.start()
    until(lambda: other.changes.is_any)
    tick(stream, 11)
    read_to(quick, 1100)
    held.goes_on.set()
    closing.join(WAIT_S)
    assert other.is_closed
    engine.settle(WAIT_S)
    assert [window.end_ms for window in slow.results(timeout_s=0)] == [100, 200, 300, 400, *range(800, 1200, 100)]
    assert [window.end_ms for window in other.results(timeout_s=0)] == [900, 1000], "due when the query was closed"


def test_a_gap_comes_behind_the_windows_before_it(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    held, stream, slow, quick = begin_behind(engine, monkeypatch)
    with monkeypatch.context() as patch:
        right = query_windows.QueryWindows.gone_to_ms
        patch.setattr(
            query_windows.QueryWindows,
            "gone_to_ms",
            lambda windows, at_ms: 500 if at_ms == 500 and windows is slow.text.windows else right(windows, at_ms),
        )
        tick(stream, 5)
        read_to(quick, 500)
    tick(stream, 6)
    held.goes_on.set()
    engine.settle(WAIT_S)
    found = list[Any]()
    for _ in range(2):
        try:
            for window in slow.results(timeout_s=0):
                found.append(window.end_ms)
        except wukongs.GapError:
            found.append("gap")
    assert found == [100, 200, 300, 400, "gap", 600]


def test_the_engine_waits_where_too_much_waits_in_the_lane(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_lane, "WAITING_MAX", 3)
    held = Held(monkeypatch, ("s", "o"))
    stream, slow, quick = begin(engine)
    tick(stream, 1)
    engine.settle(WAIT_S)
    for number in range(2, 12):
        tick(stream, number)
    assert held.began.wait(WAIT_S)
    read_to(quick, 300)
    time.sleep(0.1)
    assert len(engine._injector._lane._waiting) == 3  # type: ignore[attr-defined]
    held.goes_on.set()
    engine.settle(WAIT_S)
    assert [window.end_ms for window in slow.results(timeout_s=0)] == [100 * number for number in range(1, 12)]


def test_an_engine_that_is_closed_reports_nothing_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, ("s", "o"))
    with wukongs.Engine() as engine:
        stream, *_ = begin(engine)
        tick(stream, 1)
        engine.settle(WAIT_S)
        for number in range(2, 6):
            tick(stream, number)
        assert held.began.wait(WAIT_S)
        closing = threading.Thread(target=engine.close)
        closing.start()
        time.sleep(0.05)
        held.goes_on.set()
        closing.join(WAIT_S)
        assert not closing.is_alive()
    assert not [one for one in threading.enumerate() if one.name == "wukongs-slow-lane"]


def test_windows_that_waited_when_the_engine_ended_are_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        held = Held(patch, ("s", "o"))
        with wukongs.Engine(tmp_path / "data") as engine:
            stream, slow, _ = begin(engine)
            tick(stream, 1)
            engine.settle(WAIT_S)
            assert [shown(window)[0] for window in slow.results(timeout_s=0)] == [100]
            for number in range(2, 9):
                tick(stream, number)
            assert held.began.wait(WAIT_S)
            engine.checkpoint()
            threading.Timer(0.1, held.goes_on.set).start()
    with wukongs.Engine(tmp_path / "data") as engine:
        engine.stream(A, batch_ms=100, timing=True)
        slow = engine.register(f"REGISTER QUERY slow AS {SLOW}")
        engine.settle(WAIT_S)
        found = list(slow.results(timeout_s=0))
    assert [window.end_ms for window in found] == [100 * number for number in range(2, 9)]
    assert [len(window) for window in found] == [2] + [3] * 6


def test_an_error_of_a_slow_query_is_in_the_place_of_its_window(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_slow(monkeypatch)
    right: Callable[..., Any] = answering.answer

    def failing(query: Any, *given: Any, **named: Any) -> Any:
        if threading.current_thread().name == "wukongs-slow-lane":
            raise wukongs.BudgetExceeded("too much")
        return right(query, *given, **named)

    stream, slow, _ = begin(engine)
    tick(stream, 1)
    engine.settle(WAIT_S)
    with monkeypatch.context() as patch:
        patch.setattr(answering, "answer", failing)
        tick(stream, 2)
        engine.settle(WAIT_S)
    tick(stream, 3)
    engine.settle(WAIT_S)
    assert len(next(slow.results(timeout_s=0))) == 1
    with pytest.raises(wukongs.BudgetExceeded, match="too much"):
        next(slow.results(timeout_s=0))
    assert len(next(slow.results(timeout_s=0))) == 3


def test_queries_whose_windows_depend_on_others_stay_with_the_thread_that_fires(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are compared with the one before, whose function the thread calls, and that make a stream that a query
    reads."""
    all_slow(monkeypatch)
    stream = engine.stream(A, batch_ms=100, timing=True)
    stream.advance(0)
    compared = engine.register(f"REGISTER ISTREAM compared AS {SLOW}")
    called = engine.register(f"REGISTER QUERY called AS {SLOW}", lambda window: None, inline=True)
    making = SLOW.replace("SELECT ?s ?o", f"CONSTRUCT {{ ?s {node('q')} ?o }}")
    made = engine.register(f"REGISTER STREAM <http://e/made> AS {making}")
    reading = engine.register(
        "REGISTER QUERY reading AS SELECT ?s FROM STREAM <http://e/made> [RANGE 100ms STEP 100ms] WHERE { ?s ?p ?o }"
    )
    for number in range(1, 6):
        tick(stream, number)
        engine.settle(WAIT_S)
    for query in (compared, called, made):
        assert "slow_lane" not in query.stats()["found_by"], query.name
        assert query.stats()["windows"] == 5
    assert [len(window) for window in reading.results(timeout_s=0)][:3] == [1, 2, 3]


def test_who_pushes_does_not_wait_for_room(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many firings for the lane are picked at one time."""
    monkeypatch.setattr(slow_lane, "WAITING_MAX", 3)
    held = Held(monkeypatch, ("s", "o"))
    stream, _, quick = begin(engine)
    for number in range(5):
        engine.register(f"REGISTER QUERY more{number} AS {SLOW}")
    tick(stream, 1)
    engine.settle(WAIT_S)
    for number in range(2, 6):
        engine._injector._loop._expected_s = 0.0  # type: ignore[attr-defined]
        began_s = time.monotonic()
        tick(stream, number)
        assert time.monotonic() - began_s < 5.0
    held.goes_on.set()
    engine.settle(WAIT_S)
    assert len(read_to(quick, 500)) == 5


def test_functions_are_called_while_the_engine_waits_for_room(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_lane, "WAITING_MAX", 2)
    held, called = Held(monkeypatch, ("s", "o")), list[int]()
    stream = engine.stream(A, batch_ms=100, timing=True)
    stream.advance(0)
    engine.register(f"REGISTER QUERY quick AS {QUICK}", lambda window: called.append(window.end_ms))
    engine.register(f"REGISTER QUERY slow AS {SLOW}")
    for number in range(1, 5):
        tick(stream, number)
        time.sleep(0.1)  # the threads that call functions are idle
    began_s = time.monotonic()
    until(lambda: len(called) >= 4)
    assert time.monotonic() - began_s < 3.0, "an idle thread looks for work after some seconds anyway"
    held.goes_on.set()
    engine.settle(WAIT_S)


def test_a_query_whose_firings_run_out_of_time_is_slow(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    all_slow(monkeypatch)
    right: Callable[..., Any] = answering.answer

    def failing(query: Any, *given: Any, **named: Any) -> Any:
        if query.variables == ("s", "o"):
            raise wukongs.QueryTimeout("too long")
        return right(query, *given, **named)

    monkeypatch.setattr(answering, "answer", failing)
    stream, slow, _ = begin(engine)
    tick(stream, 1)
    engine.settle(WAIT_S)
    assert slow.firings.is_offloaded


def test_windows_of_graphs_have_their_own_blank_nodes(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    without_programs(monkeypatch)
    all_slow(monkeypatch)
    stream = engine.stream(A, batch_ms=100, timing=True)
    stream.advance(0)
    where = SLOW.replace("SELECT ?s ?o", f"CONSTRUCT {{ [] {node('q')} ?o }}").replace("300ms", "1s")
    query = engine.register(f"REGISTER QUERY made AS {where.replace('RAND() < 2', '?o != 1')}")
    tick(stream, 1)
    stream.advance(900)
    engine.settle(WAIT_S)
    nodes = [row[0] for window in query.results(timeout_s=0) for row in window.texts()]
    assert len(set(nodes)) == len(nodes) == 9


def test_the_thread_that_fires_runs_what_no_thread_could_be_started_for(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_slow(monkeypatch)
    start = threading.Thread.start

    def refusing(thread: threading.Thread) -> None:
        if thread.name == "wukongs-slow-lane":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    stream, slow, _ = begin(engine)
    for number in range(1, 6):
        tick(stream, number)
        engine.settle(WAIT_S)
    assert [len(window) for window in slow.results(timeout_s=0)] == [1, 2, 3, 3, 3]
    assert slow.stats()["found_by"]["slow_lane"] == 4


def test_a_query_is_slow_after_two_firings(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_firings, "SLOW_US", -1.0)
    stream, slow, _ = begin(engine)
    assert isinstance(slow.firings, QueryFirings)
    for number in range(1, 6):
        tick(stream, number)
        engine.settle(WAIT_S)
    assert slow.stats()["found_by"] == {"executor": 5, "slow_lane": 3}
