"""register(..., on_result=function, inline=True): the thread that fires calls the function itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wukongs
from wukongs.errors import SettingsError, StreamError

EX = "http://ex/"
S = f"{EX}s"
FROM = f"FROM STREAM <{S}> [RANGE 100ms STEP 100ms]"
FIRING_THREAD = "wukongs-injector"


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as found:
        found.stream(S, batch_ms=100, timing=True)
        yield found


def text(name: str, subject: str = "?x") -> str:
    return f"PREFIX : <{EX}> REGISTER QUERY {name} AS SELECT ?o {FROM} WHERE {{ {subject} :p ?o }}"


def tick(engine: wukongs.Engine, number: int, *names: str) -> None:
    stream = engine.declared(S)
    stream.push([(f"<{EX}{name}>", f"<{EX}p>", f"<{EX}o{number}>", 100 * number - 50) for name in names])
    stream.advance(100 * number)


def test_the_thread_that_fires_calls_it_for_each_window_in_order(engine: wukongs.Engine) -> None:
    called: list[tuple[str, str, int]] = []

    def note(window: Any) -> None:
        called.append((window.query, threading.current_thread().name, window.end_ms))

    for number in range(12):  # queries of one shape fire as one
        engine.register(text(f"q{number}", f":n{number}"), note, inline=True)
    other = engine.register(text("other"), lambda window: note(window))
    for number in range(1, 6):
        tick(engine, number, "n0", "n3")
    engine.settle(30)
    for number in range(12):
        own = [end_ms for query, _, end_ms in called if query == f"q{number}"]
        assert own == [100 * at for at in range(1, 6)]
    threads = {thread for query, thread, _ in called if query != "other"}
    assert FIRING_THREAD in threads
    assert threads <= {FIRING_THREAD, threading.current_thread().name}, "a thread that closes a tick may fire"
    assert [end_ms for query, _, end_ms in called if query == "other"] == [100, 200, 300, 400, 500]
    assert {thread for query, thread, _ in called if query == "other"} == {"wukongs-on-result"}
    assert other.stats()["windows"] == 5


def test_one_that_raises_is_counted_and_the_others_go_on(engine: wukongs.Engine) -> None:
    seen: list[int] = []

    def fail(window: Any) -> None:
        raise ValueError("a mistake")

    failing = engine.register(text("failing"), fail, inline=True)
    engine.register(text("sound"), lambda window: seen.append(window.end_ms), inline=True)
    for number in range(1, 4):
        tick(engine, number, "a")
    engine.settle(30)
    assert seen == [100, 200, 300]
    assert failing.stats()["errors"] == 3


@pytest.mark.parametrize(
    "wait",
    [
        lambda engine, query: engine.settle(5),
        lambda engine, query: engine.close(),
        lambda engine, query: query.pause(),
        lambda engine, query: query.replace(text("late")),
        lambda engine, query: next(query.results()),
    ],
    ids=["settle", "close", "pause", "replace", "results"],
)
def test_waiting_for_the_thread_that_fires_is_an_error(
    engine: wukongs.Engine, wait: Callable[[wukongs.Engine, Any], Any]
) -> None:
    found: list[object] = []

    def ask(window: Any) -> None:
        try:
            found.append(wait(engine, late))
        except StreamError as error:
            found.append(str(error))

    late = engine.register(text("late").replace("100ms]", "100s]").replace("RANGE 100ms", "RANGE 100s"))
    engine.register(text("asking"), ask, inline=True)
    tick(engine, 1, "a")
    engine.settle(30)
    assert len(found) == 1
    assert "from on_result would wait for itself" in str(found[0]) or "inline=True" in str(found[0])
    tick(engine, 2, "a")
    engine.settle(30)
    assert len(found) == 2


def test_it_may_push_and_advance(engine: wukongs.Engine) -> None:
    other = engine.stream(f"{EX}t", batch_ms=100, timing=True)
    windows: list[Any] = []

    def forward(window: Any) -> None:
        other.push([(row[0], f"<{EX}q>", f"<{EX}done>", window.end_ms - 1) for row in window.texts()])
        other.advance(window.end_ms)

    second = text("second").replace(S, f"{EX}t").replace(":p ?o", ":q ?o").replace("SELECT ?o", "SELECT ?x")
    engine.register(text("first"), forward, inline=True)
    engine.register(second, windows.append, inline=True)
    for number in range(1, 4):
        tick(engine, number, "a")
        engine.settle(30)
    assert [window.texts() for window in windows] == [[(f"<{EX}o{number}>",)] for number in range(1, 4)]


def test_windows_of_before_are_brought_too(engine: wukongs.Engine, tmp_path: Any) -> None:
    folder, seen = tmp_path / "data", list[int]()
    with wukongs.Engine(folder) as durable:
        durable.stream(S, batch_ms=100, timing=True)
        durable.register(text("q"))
        tick(durable, 1, "a")
        durable.settle(30)
    with wukongs.Engine(folder) as durable:
        durable.register(text("q"), lambda window: seen.append(window.end_ms), inline=True)
        tick(durable, 2, "a")
        durable.settle(30)
    assert seen == [100, 200]


def test_where_it_is_refused(engine: wukongs.Engine) -> None:
    with pytest.raises(SettingsError, match="inline: it is for the on_result of a query over windows"):
        engine.register(text("q"), inline=True)
    with pytest.raises(SettingsError, match="inline: it is for the on_result of a query over windows"):
        engine.register("REGISTER QUERY v AS SELECT ?s { ?s ?p ?o }", print, inline=True)
