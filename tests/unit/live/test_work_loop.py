"""WorkLoop: short ticks are run by the thread that closes them, others by the engine's; one thread at a time."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, at, register_text, windows
from tests.inside import core_of
from wukongs.live import idleness, work_loop
from wukongs.live.deferred_interrupt import DeferredInterrupt
from wukongs.live.injector import Injector
from wukongs.live.query_firings import QueryFirings
from wukongs.outcomes import Asked, asking

WINDOW = "RANGE 100ms STEP 100ms"
PATIENT_S = 60.0


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[wukongs.Engine]:
    """An engine that takes all turns for short ones."""
    monkeypatch.setattr(work_loop, "CALLER_MAX_S", PATIENT_S)
    with wukongs.Engine() as engine:
        yield engine


@pytest.fixture
def fired_in(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The thread in which each window was reported, by its end."""
    found, put = dict[int, int](), QueryFirings._put

    def putting(query: QueryFirings, last_ms: int, *given: Any) -> None:
        found[last_ms] = threading.get_ident()
        put(query, last_ms, *given)

    monkeypatch.setattr(QueryFirings, "_put", putting)
    return found


def tick(stream: wukongs.Stream, number: int) -> None:
    stream.push([at(f"s{number}", 100 * number - 50)])
    stream.advance(100 * number)


def begin(engine: wukongs.Engine, **options: Any) -> tuple[wukongs.Stream, Any]:
    """Register a query, and have it fire some times."""
    stream = engine.stream(A, batch_ms=100, timing=True)
    stream.advance(0)
    query = engine.register(register_text(WINDOW), **options)
    for number in range(1, 6):
        tick(stream, number)
        engine.settle(60)
    return stream, query


def ends(first: int, last: int) -> dict[int, list[str]]:
    return {100 * number: [f"s{number}"] for number in range(first, last + 1)}


def test_who_closes_a_short_tick_does_its_work(engine: wukongs.Engine, fired_in: dict[int, int]) -> None:
    stream, query = begin(engine)
    fired_in.clear()
    for number in range(6, 20):
        tick(stream, number)
        assert windows(query) == (ends(1, 6) if number == 6 else ends(number, number)), "it was there at once"
    assert set(fired_in.values()) == {threading.get_ident()}


@pytest.mark.parametrize(
    "why",
    [
        *("long turns", "an event loop", "a slow query", "a first firing", "many tuples", "a timeout", "a client"),
        *("a handler of another signal", "deep recursion", "the lock is held"),
    ],
)
def test_the_thread_of_the_engine_does_all_else(
    why: str, engine: wukongs.Engine, fired_in: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, query = begin(engine)
    if why == "long turns":
        monkeypatch.setattr(work_loop, "CALLER_MAX_S", 0.0)
    if why == "a slow query":
        monkeypatch.setattr(QueryFirings, "is_quick", False)
        monkeypatch.setattr(QueryFirings, "is_direct", False)
    if why == "a first firing":
        query = engine.register(register_text(WINDOW, "later", select="?s ?p"))
    fired_in.clear()

    async def in_loop() -> None:
        tick(stream, 6)

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        else:
            tick(stream, 6)

    if why == "an event loop":
        asyncio.run(in_loop())
    elif why == "a timeout":
        stream.push([at("s6", 550)], timeout_s=60)
        stream.advance(600, timeout_s=60)
    elif why == "a client":
        with asking(Asked("client", 1, ())):
            tick(stream, 6)
    elif why == "a handler of another signal":
        before = signal.signal(signal.SIGUSR1, lambda *_: None)
        tick(stream, 6)
        signal.signal(signal.SIGUSR1, before)
    elif why == "deep recursion":
        deep(sys.getrecursionlimit() - len(inspect.stack()) - 250)
    elif why == "the lock is held":
        with core_of(engine).lock:
            tick(stream, 6)
    else:
        if why == "many tuples":
            stream.push([at("s6", 520)] * 200)
        tick(stream, 6)
    engine.settle(60)
    assert windows(query) == ends(6 if why == "a first firing" else 1, 6)
    assert fired_in[600] != threading.get_ident()


def test_a_stream_that_is_idle_no_more_may_have_closed_others() -> None:
    """Also if nothing of its own is closed by that."""
    with wukongs.Engine() as engine:
        first, second = (
            engine.stream(name, batch_ms=100, timing=True, idle_timeout_ms=5000) for name in ("http://ex/first", A)
        )
        core, now_s = core_of(engine), [0.0]
        core.now_s = lambda: now_s[0]
        second.advance(0)
        first.advance(0)
        query = engine.register(register_text(WINDOW))
        first.advance(1000)
        second.push([at("s1", 450)])
        second.advance(500)
        engine.settle(60)
        with core.lock:
            for name in ("http://ex/first", A):
                idleness.enter(core, core.streams[name])
            engine._injector.wake()
        engine.settle(60)
        assert max(windows(query)) == 500
        first.advance(1000)
        engine.settle(60)
        assert sorted(windows(query)) == [600, 700, 800, 900, 1000]


def test_an_interrupted_submission_is_not_lost(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next caller that brings news notifies the thread of the engine."""
    stream, query = begin(engine)
    with monkeypatch.context() as patch:
        patch.setattr(Injector, "run_submitted", lambda _: None)
        tick(stream, 6)
    list(query.results(timeout_s=0))
    monkeypatch.setattr(work_loop, "CALLER_MAX_S", 0.0)
    thread = threading.Thread(target=engine._injector.start_with_news)
    thread.start()
    thread.join()
    assert next(query.results(timeout_s=60)).end_ms == 600


def test_a_turn_that_gets_long_is_left_to_the_thread_of_the_engine(
    engine: wukongs.Engine, fired_in: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, query = begin(engine)
    fired_in.clear()
    stream.push([at(f"s{number}", 100 * number - 50) for number in range(6, 106)])
    seen, put, main = list[int](), QueryFirings._put, threading.get_ident()

    def slow(query: QueryFirings, last_ms: int, *given: Any) -> None:
        if threading.get_ident() == main:
            seen.append(last_ms)
            time.sleep(0.01)
        put(query, last_ms, *given)

    monkeypatch.setattr(QueryFirings, "_put", slow)
    monkeypatch.setattr(work_loop, "CALLER_MAX_S", 0.005)
    monkeypatch.setattr(engine._injector._loop, "_expected_s", 0.0)
    stream.advance(10_500)
    engine.settle(60)
    assert windows(query) == ends(1, 105)
    assert len(seen) < 100


def test_a_signal_waits_until_the_work_is_done(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is handled before the call returns: Ctrl-C leaves nothing half done."""
    stream, query = begin(engine)
    step, steps = Injector._step, list[int]()

    def interrupted(self: Injector, *given: Any) -> Any:
        steps.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        found = step(self, *given)
        for _ in range(1000):  # a handler would be called between two of these
            steps.append(1)
        return found

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stream.push([at("s6", 550)])
        with monkeypatch.context() as patch:
            patch.setattr(Injector, "_step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                stream.advance(600)
            assert len(steps) > 2000, "all steps of the tick"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert windows(query) == ends(1, 6)
    tick(stream, 7)
    assert windows(query) == ends(7, 7)


def test_an_interrupt_is_handled_once_behind_the_block() -> None:
    seen = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        own = signal.getsignal(signal.SIGINT)
        with DeferredInterrupt() as is_safe:
            assert is_safe
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
            assert not seen
        assert seen == [signal.SIGINT]
        with DeferredInterrupt(), DeferredInterrupt():
            os.kill(os.getpid(), signal.SIGINT)
        assert seen == [signal.SIGINT] * 2
        assert signal.getsignal(signal.SIGINT) is own
        told = list[bool]()
        thread = threading.Thread(target=lambda: told.append(DeferredInterrupt().__enter__()))
        thread.start()
        thread.join()
        assert told == [True], "no handler is called in another thread"
        assert signal.getsignal(signal.SIGINT) is own, "and none is changed there"
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_inline_function_may_push(engine: wukongs.Engine) -> None:
    """In the turn that has called it: that goes on with what it has brought."""
    other = engine.stream("http://ex/other", batch_ms=100, timing=True)
    other.advance(0)
    second = engine.register(register_text(WINDOW, "second", "http://ex/other"))

    def forward(window: wukongs.WindowResult) -> None:
        other.push([(*row.split(), window.end_ms) for row in ["<http://ex/s> <http://ex/p> <http://ex/o>"]])  # type: ignore[misc]
        other.advance(window.end_ms)

    stream, _ = begin(engine, on_result=forward, inline=True)
    tick(stream, 6)
    engine.settle(60)
    assert windows(second) == {100 * number: ["s"] for number in range(1, 7)}


def test_a_mistake_of_ours_ends_the_engine_and_not_the_call(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, query = begin(engine)

    def fail(*_: object) -> None:
        raise ValueError("wrong")

    monkeypatch.setattr(Injector, "_step", fail)
    tick(stream, 6)
    with pytest.raises(wukongs.WukongsError, match="the engine has stopped: ValueError: wrong"):
        tick(stream, 7)
    with pytest.raises(wukongs.WukongsError, match="the engine has stopped"):
        list(query.results(timeout_s=60))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("caller_max_s", [0.0, 0.0003, PATIENT_S])
def test_threads_that_push_side_by_side_lose_nothing(
    seed: int, caller_max_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the turn, others hand in and go on."""
    monkeypatch.setattr(work_loop, "CALLER_MAX_S", caller_max_s)
    names, last = [f"http://ex/s{number}" for number in range(4)], 60
    at_work, most = list[int](), list[int]()
    step = Injector._step

    def counted(self: Injector, *given: Any) -> Any:
        at_work.append(1)
        most.append(len(at_work))
        try:
            return step(self, *given)
        finally:
            at_work.pop()

    monkeypatch.setattr(Injector, "_step", counted)
    with wukongs.Engine() as engine:
        streams = {name: engine.stream(name, batch_ms=100, timing=True) for name in names}
        for stream in streams.values():
            stream.advance(0)
        seen = list[int]()
        queries = [engine.register(register_text(WINDOW, f"q{n}", name)) for n, name in enumerate(names)]
        both = " ".join(f"FROM STREAM <{name}> [{WINDOW}]" for name in names[:2])
        joint = engine.register(
            f"REGISTER QUERY joint AS SELECT ?s {both} WHERE {{ ?s ?p ?o }}", lambda window: seen.append(window.end_ms)
        )

        def push(number: int) -> None:
            chance, stream = random.Random(f"{seed} {number}"), streams[names[number]]
            for turn in range(1, last + 1):
                stream.push([at(f"x{number}", 100 * turn - 50)])
                stream.advance(100 * turn)
                if chance.random() < 0.2:
                    time.sleep(chance.random() * 0.002)

        threads = [threading.Thread(target=push, args=(number,)) for number in range(len(names))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        engine.settle(60)
        for number, query in enumerate(queries):
            assert windows(query) == {100 * turn: [f"x{number}"] for turn in range(1, last + 1)}
        assert seen == [100 * turn for turn in range(1, last + 1)]
        assert set(windows(joint)) <= set(seen)
    assert set(most) == {1}


def test_an_engine_that_is_closed_meanwhile_waits_for_the_turn(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, _ = begin(engine)
    is_begun, goes_on, order = threading.Event(), threading.Event(), list[str]()
    put = QueryFirings._put

    def slow(query: QueryFirings, *given: Any) -> None:
        is_begun.set()
        assert goes_on.wait(60)
        put(query, *given)
        order.append("reported")

    monkeypatch.setattr(QueryFirings, "_put", slow)
    pushing = threading.Thread(target=tick, args=(stream, 6))
    pushing.start()
    assert is_begun.wait(60)

    def close() -> None:
        engine.close()
        order.append("closed")

    closing = threading.Thread(target=close)
    closing.start()
    time.sleep(0.05)
    goes_on.set()
    closing.join(60)
    pushing.join(60)
    assert order == ["reported", "closed"]
