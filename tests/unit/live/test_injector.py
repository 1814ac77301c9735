"""How time moves on: what is sealed, held back, fired, kept and dropped, through an Engine in event time only."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, names, register_text, windows
from tests.unit.wire.test_ingest import Pipe
from wukongs.errors import StreamError, WukongsError
from wukongs.live.core import Core
from wukongs.settings import Settings
from wukongs.store.trace import Trace

STORED = "FROM <urn:x-wukongs:default>"


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine(settings=Settings(batch_ms=100)) as engine:
        yield engine


def join_text(name: str = "q", window: str = "RANGE 100ms STEP 100ms") -> str:
    streams = f"FROM STREAM <{A}> [{window}] FROM STREAM <{B}> [{window}]"
    return f"REGISTER QUERY {name} AS SELECT ?s {streams} WHERE {{ ?s ?p ?o }}"


def settled(engine: wukongs.Engine, query: Any) -> dict[int, list[str]]:
    engine.settle(timeout_s=60)
    return windows(query)


# --- first firing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "ends"),
    [(1, [100]), (100, [100]), (101, [200]), (0, [0]), (-1, [0]), (-100, [-100]), (-101, [-100]), (-250, [-200])],
)
def test_the_first_firing_is_the_multiple_at_or_after_the_first_tuple(
    engine: wukongs.Engine, first: int, ends: list[int]
) -> None:
    stream = engine.stream(A)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", first)])
    stream.advance(ends[-1])
    assert settled(engine, query) == {end: ["a"] for end in ends}


@pytest.mark.parametrize(("advanced", "first"), [(500, 500), (501, 600), (-1, 0), (-200, -200)])
def test_an_advance_begins_as_a_tuple_does(engine: wukongs.Engine, advanced: int, first: int) -> None:
    stream = engine.stream(A)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.advance(advanced)
    stream.advance(first + 199)
    assert list(settled(engine, query)) == [first, first + 100]


def test_windows_over_zero_are_exact(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    query = engine.register(register_text("RANGE 300ms STEP 100ms"))
    stream.push([at(f"t{t}", t) for t in (-250, -200, -199, -100, 0, 1, 100)])
    stream.advance(200)
    assert settled(engine, query) == {
        -200: ["t-200", "t-250"],
        -100: ["t-100", "t-199", "t-200", "t-250"],
        0: ["t-100", "t-199", "t-200", "t-250", "t0"],
        100: ["t-100", "t-199", "t0", "t1", "t100"],
        200: ["t0", "t1", "t100"],
    }


def test_after_registration_the_next_multiple_fires_and_no_earlier(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    stream.push([at("a", 250)])
    stream.advance(300)
    engine.settle(timeout_s=60)
    query = engine.register(register_text("RANGE 200ms STEP 100ms"))
    stream.advance(500)
    assert settled(engine, query) == {400: ["a"], 500: []}


def test_two_streams_fire_when_both_have_begun(engine: wukongs.Engine) -> None:
    a, b = engine.stream(A), engine.stream(B)
    query = engine.register(join_text())
    a.push([at("a", 150)])
    a.advance(1000)
    assert settled(engine, query) == {}
    assert "first tuple or advance of http://ex/streamB" in query.why()
    b.push([at("b", 850)])
    b.advance(1000)
    expected: dict[int, list[str]] = {end: [] for end in range(200, 1001, 100)}
    assert settled(engine, query) == expected | {200: ["a"], 900: ["b"]}


def test_the_first_firing_does_not_hang_on_which_partition_is_read_first(engine: wukongs.Engine) -> None:
    """A partition with later tuples comes first; before all have closed a batch, nothing is certain."""
    engine.stream(A)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    core: Core = engine._core
    one, other = Pipe(engine, "p1"), Pipe(engine, "p2")
    one.inject(0, ("late", 450))
    one.close(1, 500)
    engine.settle(timeout_s=60)
    other.inject(0, ("early", 150))
    other.close(1, 500)
    assert settled(engine, query) == {200: ["early"], 300: [], 400: [], 500: ["late"]}
    assert core.streams[A].first_ms == 150


# --- who waits for whom -----------------------------------------------------------------------------------------------


def test_held_back_by_names_the_slow(engine: wukongs.Engine) -> None:
    a, b = engine.stream(A), engine.stream(B)
    a.advance(500)
    engine.settle(timeout_s=60)
    assert engine.stats()["held_back_by"] == {}, "a stream that has not begun holds nobody"
    b.advance(200)
    a.advance(700)
    engine.settle(timeout_s=60)
    assert engine.stats()["held_back_by"] == {B: 200}
    b.advance(700)
    assert engine.stats()["held_back_by"] == {}
    a.advance(900)
    b.close()
    assert engine.stats()["held_back_by"] == {}


def test_a_stream_without_a_closed_batch_is_the_one_that_holds(engine: wukongs.Engine) -> None:
    a = engine.stream(A)
    engine.stream(B)
    a.advance(500)
    engine.settle(timeout_s=60)
    core: Core = engine._core
    with core.lock:
        core.streams[B].open_partition("p")
        core.streams[B].first_ms = 650  # a tuple has come, no batch has closed
        assert core.held_back_by() == {B: None}
        assert core.clock_ms() == core.sealed_ms == 599
    a.advance(700)
    assert core.clock_ms() == 599


def test_firings_by_windows_alone_do_not_let_time_pass_those_that_read_stored_graphs(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock moves on while several of the former are due far ahead of it."""
    a, b = engine.stream(A), engine.stream(B)
    a.advance(100)
    b.advance(100)
    engine.settle(timeout_s=60)
    for n in range(3):
        where = "{ ?s ?p ?o " + f". ?s ?p ?o{n} " * n + "}"  # of three templates
        engine.register(register_text("RANGE 100ms STEP 100ms", f"alone{n}", where=where))
    window = f"FROM STREAM <{A}> [RANGE 100ms STEP 100ms] FROM NAMED {STORED.split()[1]}"
    where = f"{{ GRAPH {STORED.split()[1]} {{ ?s ?p ?o }} }}"
    stored = engine.register(f"REGISTER QUERY stored AS SELECT ?s {window} WHERE {where}")
    core: Core = engine._core
    fired, moved, stood = core.journal.delivery.fired, list[int](), list[tuple[int, int]]()

    def move_b(lsn: int, at_ms: int, *more: Any) -> None:
        fired(lsn, at_ms, *more)
        stood.append((at_ms, core.sealed_ms or 0))
        if at_ms == 1500 and not moved:
            moved.append(at_ms)
            b.advance(2000)

    monkeypatch.setattr(core.journal.delivery, "fired", move_b)
    ends = range(200, 2001, 100)
    for end in ends:
        a.push([at(f"t{end}n{n}", end) for n in range(40)])
    a.advance(2000)
    engine.settle(timeout_s=60)
    assert {end: len(found) for end, found in windows(stored).items()} == {end: 2 * end // 5 - 40 for end in ends}
    assert [(at_ms, sealed_ms) for at_ms, sealed_ms in stood if sealed_ms >= at_ms + 100] == []


def test_an_ended_stream_holds_nobody_and_its_last_tuples_count(engine: wukongs.Engine) -> None:
    a, b = engine.stream(A), engine.stream(B)
    query = engine.register(join_text())
    a.push([at("a", 120)])
    b.push([at("b", 130)])
    a.close()
    b.advance(400)
    assert settled(engine, query) == {200: ["a", "b"], 300: [], 400: []}
    b.push([at("c", 450)])
    b.close()
    assert settled(engine, query) == {500: ["c"]}
    assert "streams have ended" in query.why()


def test_what_is_due_before_a_stream_ends_still_fires(engine: wukongs.Engine) -> None:
    """An open stream covers the time up to its next stream batch, an ended one no more than its end."""
    a, b = engine.stream(A, batch_ms=200), engine.stream(B, batch_ms=500)
    b.advance(100)
    a.advance(400)
    text = register_text("RANGE 200ms STEP 200ms", where="{ ?s ?p ?o }").replace("WHERE", f"{STORED} WHERE")
    query = engine.register(text.replace(" AS ", " COMPUTED EVERY 150ms AS ", 1))
    a.push([at("a", 1150)])
    a.advance(1249)
    b.close()  # the clock moves on to 1399
    a.close()  # 1350 is behind the end
    assert list(settled(engine, query))[-2:] == [1200, 1350]


def test_a_stream_that_begins_late_loses_nothing(engine: wukongs.Engine) -> None:
    """Its tuples are older than what the others have sealed: they are absorbed, and its own windows are exact."""
    a, b = engine.stream(A), engine.stream(B)
    a.push([at("a", 950)])
    a.advance(1000)
    engine.settle(timeout_s=60)
    query = engine.register(register_text("RANGE 100ms STEP 100ms", stream=B))
    b.push([at("b1", 150), at("b2", 250)])
    b.advance(300)
    assert settled(engine, query) == {200: ["b1"], 300: ["b2"]}
    assert names(engine.query("SELECT ?s { ?s ?p ?o }")) == ["a", "b1", "b2"]
    assert engine.stats()["held_back_by"] == {B: 300}
    b.advance(1000)
    a.push([at("a2", 1050)])
    a.advance(1100)
    b.advance(1100)
    engine.settle(timeout_s=60)
    assert names(engine.query("SELECT ?s { ?s ?p ?o }")) == ["a", "a2", "b1", "b2"]


def advance_far(a: wukongs.Stream, b: wukongs.Stream) -> None:
    """Begin two streams, so that the second waits for the record by which it joins the stored graph, and advance both
    past 500 more stream batches."""
    a.advance(-1001)
    b.advance(-1001)
    a.push([at(f"s{number}", 100 * number) for number in range(1, 501)])
    b.advance(60_000)
    a.advance(50_000)


def test_a_query_counts_from_the_last_advance_though_a_stream_has_just_begun(engine: wukongs.Engine) -> None:
    """What its first windows lack hangs on how far the streams are, not on how far the engine has come."""
    a, b = engine.stream(A, timing=True), engine.stream(B, batch_ms=500)
    with engine._core.lock:  # until register waits
        advance_far(a, b)
        query = engine.register(register_text("RANGE TRIPLES 2"))
    a.push([at("x", 50_001)])
    a.advance(50_100)
    engine.settle(timeout_s=60)
    assert [(window.end_ms, names(window), window.partial) for window in query.results(0)] == [(50_100, ["x"], True)]


def test_no_firing_before_the_last_advance_sees_a_load_though_a_stream_has_just_begun(engine: wukongs.Engine) -> None:
    a, b = engine.stream(A, timing=True), engine.stream(B, batch_ms=500)
    text = register_text("RANGE 100ms STEP 100ms", where="{ ?s ?p ?o }").replace("WHERE", f"{STORED} WHERE")
    query = engine.register(text)
    with engine._core.lock:  # until load waits
        advance_far(a, b)
        engine.load(io.BytesIO(b"<http://ex/loaded> <http://ex/p> <http://ex/o> .\n"), format="nt")
    engine.settle(timeout_s=60)
    assert [end_ms for end_ms, found in windows(query).items() if "loaded" in found] == []


# --- one snapshot a time ----------------------------------------------------------------------------------------------


def test_all_firings_at_a_time_read_one_snapshot(engine: wukongs.Engine) -> None:
    """What is loaded while one query is told of its window is seen by both at a time, or by none."""
    stream = engine.stream(A, timing=True)
    engine.load(io.BytesIO(b"<http://ex/base> <http://ex/p> <http://ex/o> .\n"), format="nt")
    seen: dict[int, list[str]] = {}

    def load(window: Any) -> None:
        seen[window.end_ms] = names(window)
        if window.end_ms == 100:
            engine.load(io.BytesIO(b"<http://ex/loaded> <http://ex/p> <http://ex/o> .\n"), format="nt")

    text = register_text("RANGE 100ms STEP 100ms", "first").replace("WHERE", f"{STORED} WHERE")
    engine.register(text, on_result=load)
    second = engine.register(text.replace("first", "second"))
    stream.push([at("x", 50)])
    stream.advance(200)
    stream.advance(300)
    found = settled(engine, second)
    assert seen == found
    assert found[100] == ["base", "x"]
    assert found[200] in (["base"], ["base", "loaded"])
    stream.advance(400)
    assert settled(engine, second) == {400: ["base", "loaded"]}


def test_explain_changes_nothing(engine: wukongs.Engine) -> None:
    """It looks at a window that is still being filled."""
    stream = engine.stream(A)
    query = engine.register(register_text("RANGE 1s STEP 1s"))
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert query.explain() == query.explain()
    stream.push([at("b", 150), at("c", 950)])
    query.explain()
    stream.advance(1000)
    assert settled(engine, query) == {1000: ["a", "b", "c"]}


def test_a_paused_query_skips_and_goes_on(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    query.pause()
    stream.push([at("b", 150)])
    stream.advance(300)
    engine.settle(timeout_s=60)
    assert "paused" in query.why()
    query.resume()
    stream.push([at("c", 350)])
    stream.advance(400)
    assert settled(engine, query) == {100: ["a"], 400: ["c"]}


def test_a_query_of_a_closed_engine_may_be_paused(engine: wukongs.Engine) -> None:
    engine.stream(A)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    engine.close()
    query.pause()
    with pytest.raises(StreamError, match="query q is closed"):
        query.replace(register_text("RANGE 200ms STEP 100ms"))


# --- errors -----------------------------------------------------------------------------------------------------------


def test_settle_from_on_result_is_refused(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    caught: list[BaseException] = []

    def settle(_: Any) -> None:
        try:
            engine.settle(timeout_s=60)
        except StreamError as error:
            caught.append(error)

    engine.register(register_text("RANGE 100ms STEP 100ms"), on_result=settle)
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert [str(error) for error in caught] == [
        "settle() called from on_result would wait for itself: call it from another thread"
    ]


def test_on_result_that_raises_does_not_stop_the_engine(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    ends: list[int] = []

    def fail(window: Any) -> None:
        ends.append(window.end_ms)
        raise RuntimeError("mine")

    query = engine.register(register_text("RANGE 100ms STEP 100ms", "failing"), on_result=fail)
    other = engine.register(register_text("RANGE 100ms STEP 100ms", "other"))
    stream.push([at("a", 50)])
    stream.advance(200)
    assert settled(engine, other) == {100: ["a"], 200: []}
    assert ends == [100, 200]
    assert query.stats()["errors"] == 2


def test_settle_says_when_it_gives_up(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    going_on = threading.Event()
    engine.register(register_text("RANGE 100ms STEP 100ms"), on_result=lambda _: going_on.wait(60))
    stream.advance(100)
    try:
        with pytest.raises(StreamError, match=r"not settled within timeout_s = 0.05: give it more time"):
            engine.settle(timeout_s=0.05)
    finally:
        going_on.set()
    engine.settle(timeout_s=60)


def test_an_error_of_the_engine_itself_is_told_to_every_caller(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = engine.stream(A)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(engine._core.streams[A].ring, "add", broken)
    stream.push([at("a", 50)])
    stream.advance(100)
    for call in (
        lambda: engine.settle(timeout_s=60),
        lambda: stream.push([at("b", 150)]),
        lambda: stream.advance(200),
        lambda: engine.query("SELECT * { ?s ?p ?o }"),
        lambda: engine.register(register_text("RANGE 100ms STEP 100ms", "r")),
    ):
        with pytest.raises(WukongsError, match="the engine has stopped: ZeroDivisionError: a bug of ours"):
            call()
    with pytest.raises(WukongsError, match="the engine has stopped: ZeroDivisionError: a bug of ours"):
        list(query.results(timeout_s=60))
    assert list(query.results(timeout_s=60)) == [], "its readers end instead of waiting for ever"


def test_too_much_waiting_is_refused_and_nothing_is_applied() -> None:
    with wukongs.Engine(settings=Settings(queued_bytes_max=1024, batch_ms=100)) as engine:
        a, b = engine.stream(A), engine.stream(B)
        b.advance(0)
        a.push([at(f"x{i}", 150) for i in range(20)])
        engine.settle(timeout_s=60)
        before = engine.stats()
        with pytest.raises(StreamError, match=r"streamA: .* queued_bytes_max = 1024"):
            a.push([at(f"y{i}", 250) for i in range(20)])
        after = engine.stats()
        assert before["terms"] == after["terms"]
        assert before["streams"] == after["streams"]
        b.advance(1000)
        a.advance(200)  # 250 has not happened
        engine.settle(timeout_s=60)
        a.push([at(f"y{i}", 250) for i in range(20)])
        a.advance(1000)
        engine.settle(timeout_s=60)
        assert len(list(engine.query("SELECT ?s { ?s ?p ?o }"))) == 40


@pytest.mark.parametrize("time_ms", [10**15, -(10**15), 2**62])
def test_an_advance_to_a_time_that_is_none_is_refused(engine: wukongs.Engine, time_ms: int) -> None:
    stream = engine.stream(A)
    with pytest.raises(StreamError, match=f"{time_ms} ms is outside of what can be named"):
        stream.advance(time_ms)
    stream.push([at("a", 50)])


def test_a_named_graph_that_is_not_stored_is_reported_by_its_name(engine: wukongs.Engine) -> None:
    assert names(engine.query("SELECT ?g FROM NAMED <http://ex/nowhere> { GRAPH ?g {} }")) == ["nowhere"]


def test_a_registration_needs_no_snapshot_at_which_a_late_stream_has_joined(engine: wukongs.Engine) -> None:
    """The stored graph may have been merged past it."""
    early, late = (engine.stream(iri, batch_ms=100) for iri in (A, B))
    early.push([at("a1", 50)])
    early.advance(300)
    late.push([at("b1", 50)])
    late.advance(100)
    engine.settle(60)
    early.push([at("a4", 450)])
    early.advance(600)
    engine.settle(60)
    core = engine._core
    with core.lock:
        core.arrangement.trace.merge_all()
    text = register_text("RANGE 100ms STEP 100ms", stream=B).replace(
        "SELECT ?s", "SELECT ?s FROM <urn:x-wukongs:default>"
    )
    query = engine.register(text.replace("REGISTER QUERY q", "REGISTER QUERY q COMPUTED EVERY 50ms"))
    late.advance(200)
    engine.settle(60)
    assert [window.end_ms for window in query.results(timeout_s=0)] == [200, 250]


# --- quiet time -------------------------------------------------------------------------------------------------------


def test_when_all_is_quiet_batches_are_merged_though_nobody_owes_it(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.live.injector.QUIET_S", 0.0)
    monkeypatch.setattr("wukongs.store.trace.FUEL_MIN", 0)
    core = engine._core
    core.arrangement.trace = Trace("no seal pays", fuel_per_row=0)
    stream = engine.stream(A)
    for number, count in enumerate((40, 16, 7, 3, 1), 1):
        stream.push([at(f"s{number}-{n}", 100 * number) for n in range(count)])
    stream.advance(600)
    engine.settle(timeout_s=60)
    deadline = time.monotonic() + 60
    while engine.stats()["stored_batches"] > 2 and time.monotonic() < deadline:
        time.sleep(0.002)
    assert engine.stats()["stored_batches"] <= 2
    assert engine.stats()["stored_triples"] == 67


# --- the interpreter --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before_s", "after_s"), [(0.005, 50e-6), (10e-6, 10e-6)])
def test_threads_take_turns_quickly_once_there_is_a_stream(
    before_s: float, after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter interval is left alone."""
    interval_s = [before_s]
    monkeypatch.setattr("sys.getswitchinterval", lambda: interval_s[0])
    monkeypatch.setattr("sys.setswitchinterval", lambda seconds: interval_s.__setitem__(0, seconds))
    with wukongs.Engine() as engine:
        engine.query("ASK {}")
        assert interval_s == [before_s]
        engine.stream(A)
        assert interval_s == [after_s]
