"""Direct firings: their windows are those of firings one by one, whatever is done with queries between two ticks."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, at, node, windows
from wukongs.live import tracing
from wukongs.live.query_firings import QueryFirings

WINDOW = f"FROM STREAM <{A}> [RANGE 300ms STEP 100ms]"
STORED = "FROM <urn:x-wukongs:default>"
WHERE = (
    f"{{ ?s {node('p')} ?o }}",
    f"{{ ?s {node('p')} ?o FILTER(?o != {node('o1')}) }}",
    f"{{ ?s {node('p')} ?o OPTIONAL {{ ?s {node('q')} ?v }} }}",
    f"{{ ?s {node('p')} ?o MINUS {{ ?s {node('q')} ?v }} }}",
)
HEADS = ("SELECT ?s ?o", "SELECT ?s (COUNT(?o) AS ?o)", "ASK")


def text(name: str, number: int) -> str:
    head, where = HEADS[number % 3], WHERE[number // 3 % 4]
    if "COUNT" in head:
        where += " GROUP BY ?s"
    graphs = STORED if number // 12 % 2 else ""
    if graphs:
        where = where.replace("{ ?s", f"{{ ?o {node('r')} ?x . ?s", 1)
    return f"REGISTER QUERY {name} AS {head} {graphs} {WINDOW} WHERE {where}"


def shown(window: wukongs.WindowResult) -> tuple[Any, ...]:
    found = bool(window) if window.kind == "ask" else sorted(map(str, window.texts()))
    return window.end_ms, window.start_ms, window.windows, window.partial, window.query, found


class Life:
    """Queries that are paused, replaced, closed, read late and called, while the stream and the stored graph go on."""

    def __init__(self, engine: wukongs.Engine, seed: int) -> None:
        self.engine, self.chance, self.seen = engine, random.Random(seed), dict[str, list[Any]]()
        self.stream = engine.stream(A, batch_ms=100, timing=True)
        self.stream.advance(0)
        self.queries: dict[str, Any] = {}
        self.made = 0

    def register(self) -> None:
        name, number = f"q{self.made}", self.chance.randrange(24)
        self.made += 1
        seen = self.seen[name] = []
        kind = self.chance.randrange(3)
        told = None if kind == 0 else lambda window: seen.append(shown(window))
        options = {"inline": True} if kind == 2 else {}
        self.queries[name] = self.engine.register(text(name, number), told, **options)

    def read(self, name: str) -> None:
        seen = self.seen[name]
        for window in self.queries[name].results(timeout_s=0):
            if shown(window) not in seen:
                seen.append(shown(window))

    def change(self) -> None:
        name = self.chance.choice([*self.queries])
        query, event = self.queries[name], self.chance.randrange(8)
        if event == 0:
            query.pause()
        elif event == 1:
            query.resume()
        elif event == 2:
            query.replace(text(name, self.chance.randrange(24)))
        elif event == 3 and len(self.queries) > 4:
            query.close()
            self.read(name)
            del self.queries[name]
        elif event == 4:
            self.register()
        elif event == 5:
            self.read(name)
        elif event == 6:
            self.engine.update(f"INSERT DATA {{ {node(f'o{self.chance.randrange(3)}')} {node('r')} {node('x')} }}")
        else:
            self.engine.update(f"DELETE WHERE {{ {node(f'o{self.chance.randrange(3)}')} {node('r')} ?x }}")

    def tick(self, number: int) -> None:
        for _ in range(self.chance.choice((0, 0, 1, 4))):
            name, term = f"s{self.chance.randrange(4)}", f"o{self.chance.randrange(3)}"
            self.stream.push([at(name, 100 * number - 50, self.chance.choice("ppq"), term)])
        self.stream.advance(100 * number)
        self.engine.settle(60)

    def live(self, queries: int, ticks: int) -> None:
        """Register some queries, and let changes and ticks follow each other."""
        for _ in range(queries):
            self.register()
        for number in range(1, ticks):
            for _ in range(self.chance.choice((0, 0, 1, 2))):
                self.change()
            self.tick(number)


@pytest.mark.parametrize("seed", range(8))
def test_windows_are_those_of_firings_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lives, direct = list[dict[str, list[Any]]](), 0
    for is_direct in (True, False):
        with wukongs.Engine() as engine, pytest.MonkeyPatch.context() as patch:
            if not is_direct:
                patch.setattr(QueryFirings, "is_direct", False)
            life = Life(engine, seed)
            life.live(12, 60)
            for name, query in life.queries.items():
                direct += query.stats()["found_by"].get("direct", 0) if is_direct else 0
                life.read(name)
            lives.append({name: sorted(seen, key=str) for name, seen in life.seen.items()})
    assert lives[0] == lives[1]
    assert direct > 100


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine() as engine:
        yield engine


def begin(engine: wukongs.Engine, count: int = 1, **options: Any) -> tuple[wukongs.Stream, list[Any]]:
    stream = engine.stream(A, batch_ms=100, timing=True)
    stream.advance(0)
    queries = [engine.register(text(f"q{number}", 3 * number), **options) for number in range(count)]
    for number in range(1, 9):
        tick(engine, stream, number)
    assert all(query.stats()["found_by"]["direct"] for query in queries)
    return stream, queries


def tick(engine: wukongs.Engine, stream: wukongs.Stream, number: int) -> None:
    stream.push([at(f"s{number}", 100 * number - 50)])
    stream.advance(100 * number)
    engine.settle(60)


def test_a_window_that_is_read_late_is_that_of_its_firing(engine: wukongs.Engine) -> None:
    """Also when the query was replaced, its slices are dropped, and other terms have arrived."""
    stream, (query,) = begin(engine)
    query.replace(text("q0", 1))
    for number in range(9, 30):
        tick(engine, stream, number)
    found = list(query.results(timeout_s=0))
    assert [window.end_ms for window in found] == [100 * number for number in range(1, 30)]
    assert sorted(found[7].texts()) == [(node(f"s{number}"), node("o")) for number in (6, 7, 8)]
    assert found[7].vars == ["s", "o"]
    assert found[7].start_ms == 500
    assert found[7].windows == {A: (500, 800)}
    assert "COUNT" in found[20]._text
    assert "COUNT" not in found[7]._text


def test_two_readers_have_equal_windows(engine: wukongs.Engine) -> None:
    stream, (query,) = begin(engine)
    first, second = query.log.cursor(), query.log.cursor()
    tick(engine, stream, 9)
    ends = [[window.end_ms for window in cursor.read(0)] for cursor in (first, second)]
    assert ends[0] == ends[1] == [100 * number for number in range(1, 10)]


def test_unread_windows_count_with_their_rows(engine: wukongs.Engine) -> None:
    stream, (query,) = begin(engine)
    list(query.results(timeout_s=0))
    before = query.stats()["unread_bytes"]
    stream.push([at(f"x{number}", 850) for number in range(1000)])
    stream.advance(900)
    engine.settle(60)
    assert query.stats()["unread_bytes"] - before > 2 * 8 * 1000
    assert len(next(query.results(timeout_s=0))) == 1002


@pytest.mark.parametrize("unread", ["drop", "end"])
def test_budgets_of_unread_windows_hold(engine: wukongs.Engine, unread: str) -> None:
    stream, (query,) = begin(engine, unread=unread, unread_bytes_max=20_000)
    for number in range(9, 60):
        tick(engine, stream, number)
    found, errors = list[int](), list[wukongs.WukongsError]()
    while True:
        try:
            found += [window.end_ms for window in query.results(timeout_s=0)]
            break
        except wukongs.WukongsError as error:
            errors.append(error)
    assert len(found) < 30
    assert [type(error) for error in errors] == [wukongs.BudgetExceeded if unread == "end" else wukongs.GapError]
    assert query.is_closed is (unread == "end")


def test_a_query_that_is_closed_while_others_are_reported_reports_nothing_more(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, timing=True)
    stream.advance(0)
    seen = list[int]()

    def close(window: wukongs.WindowResult) -> None:
        if window.end_ms == 900:
            thread = threading.Thread(target=other.end)
            thread.start()
            thread.join(60)
            seen.append(window.end_ms)

    first = engine.register(text("first", 0), close, inline=True)
    other: Any = engine.register(text("other", 3))
    for number in range(1, 12):
        tick(engine, stream, number)
    assert seen == [900]
    assert first.stats()["windows"] == 11
    assert [window.end_ms for window in other.results(timeout_s=0)][-1] == 900


def test_windows_that_nobody_has_read_are_there_after_a_restart(tmp_path: Path) -> None:
    for turn in range(2):
        with wukongs.Engine(tmp_path / "data") as engine:
            stream = engine.stream(A, batch_ms=100, timing=True)
            queries = [engine.register(text(f"q{number}", 3 * number)) for number in range(3)]
            for number in range(1 + 10 * turn, 11 + 10 * turn):
                tick(engine, stream, number)
            if turn == 0:
                assert len(windows(queries[0])) == 10
                assert queries[1].cursor().take(0).end_ms == 100
    with wukongs.Engine(tmp_path / "data") as engine:
        engine.stream(A, batch_ms=100, timing=True)
        queries = [engine.register(text(f"q{number}", 3 * number)) for number in range(3)]
        engine.settle(60)
        first = [[window.end_ms for window in query.results(timeout_s=0)] for query in queries]
    assert first == [[100 * n for n in range(begin, 21)] for begin in (11, 2, 1)]


def test_a_listener_hears_of_each_firing(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, (query,) = begin(engine)
    seen = list[tuple[str, int]]()

    class Listener:
        def __getattr__(self, name: str) -> Any:
            return lambda *told: seen.append((told[0].query, told[0].end_ms)) if name == "fired" else None

    monkeypatch.setattr(tracing.LISTENING, "to", Listener())
    tick(engine, stream, 9)
    monkeypatch.undo()
    tick(engine, stream, 10)
    assert seen == [("q0", 900)]
    assert query.stats()["windows"] == 10
