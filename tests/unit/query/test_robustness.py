"""Robustness, whatever comes: nobody waits for ever, nothing is held for ever, no query harms another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, names, node, register_text, windows
from tests.inside import core_of
from tests.unit.live.test_injector import settled
from wukongs.errors import WukongsError
from wukongs.settings import Settings


@pytest.fixture
def engine() -> Iterator[wukongs.Engine]:
    with wukongs.Engine(settings=Settings(batch_ms=100)) as engine:
        yield engine


def test_settle_ends_when_the_engine_is_closed_before_or_meanwhile(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    entered, leave = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        entered.set()
        leave.wait(60)

    engine.register(register_text("RANGE 100ms STEP 100ms"), on_result=slow)
    stream.push([at("a", 50)])
    stream.advance(100)
    assert entered.wait(60)
    told: list[str] = []

    def settle() -> None:
        with pytest.raises(WukongsError) as caught:
            engine.settle()
        told.append(str(caught.value))

    meanwhile = threading.Thread(target=settle, daemon=True)
    meanwhile.start()
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    meanwhile.join(60)
    leave.set()
    closing.join(60)
    after = threading.Thread(target=settle, daemon=True)
    after.start()
    after.join(60)
    assert [text.split(":")[0] for text in told] == ["this engine is closed"] * 2


def test_a_firing_that_fails_by_our_mistake_stops_nobody_else(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = engine.stream(A)
    broken = engine.register(register_text("RANGE 100ms STEP 100ms", "broken"))
    sound = engine.register(register_text("RANGE 100ms STEP 100ms", "sound"))
    execute = broken.firings._execute

    def fails_once(firing: Any, due_at_s: float) -> Any:
        if firing.at_ms == 100:
            raise ZeroDivisionError("a bug of ours")
        return execute(firing, due_at_s)

    monkeypatch.setattr(broken.firings, "_execute", fails_once)
    stream.push([at("a", 50), at("b", 150)])
    stream.advance(200)
    assert settled(engine, sound) == {100: ["a"], 200: ["b"]}
    with pytest.raises(WukongsError, match=r"query broken, window ending at 100 ms: .* ZeroDivisionError: a bug of"):
        list(broken.results(timeout_s=0))
    assert windows(broken) == {200: ["b"]}


def test_slices_are_dropped_while_a_backlog_is_worked_off(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, other = engine.stream(A, history_ms=0), engine.stream(B)
    other.advance(0)
    ring = core_of(engine).streams[A].ring
    most = 0
    add = ring.add

    def counted(*parts: Any) -> None:
        nonlocal most
        add(*parts)
        most = max(most, ring.slice_count)

    monkeypatch.setattr(ring, "add", counted)
    stream.push([at("a", 100 * k) for k in range(1, 1001)])
    stream.advance(100_000)
    other.advance(100_000)
    engine.settle(timeout_s=60)
    assert most <= 64
    assert ring.slice_count == 0


def test_a_stream_that_has_ended_keeps_its_slices_no_longer_than_others(engine: wukongs.Engine) -> None:
    ended, other = engine.stream(A, timing=True, history_ms=1000), engine.stream(B)
    other.advance(0)
    ended.push([at(f"a{k}", 100 * k) for k in range(1, 51)])
    ended.close()
    other.advance(5900)
    engine.settle(timeout_s=60)
    assert engine.stats()["streams"][A]["slices"] == 1
    other.advance(6000)
    engine.settle(timeout_s=60)
    assert engine.stats()["streams"][A]["slices"] == 0


def test_what_a_stream_has_closed_is_stored_before_it_is_dropped(engine: wukongs.Engine) -> None:
    stream = engine.stream(A)
    with core_of(engine).lock:  # the injector cannot have come to it
        stream.push([at("a", 50), at("b", 150)])
        stream.advance(100)
        engine.drop_stream(A)
    assert names(engine.query("SELECT ?s { ?s ?p ?o }")) == ["a"]


def test_each_query_is_asked_once_per_time_whether_it_is_due(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = engine.stream(A)
    queries = [engine.register(register_text("RANGE 100ms STEP 100ms", f"q{k}")) for k in range(50)]
    stream.push([at("a", 50)])
    engine.settle(timeout_s=60)
    asked = 0
    for query in queries:

        def counted(due: Any = query.times.due) -> int | None:
            nonlocal asked
            asked += 1
            found: int | None = due()
            return found

        monkeypatch.setattr(query.times, "due", counted)
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert all(windows(query) == {100: ["a"]} for query in queries)
    assert asked <= 5 * len(queries)


@pytest.mark.parametrize(
    ("form", "tail"),
    [
        ("SELECT ?s ?o", "ORDER BY DESC(?missing) LIMIT 3"),
        ("SELECT ?s ?o", "LIMIT 3"),
        ("SELECT (SAMPLE(?s) AS ?a) (SAMPLE(?o) AS ?b)", ""),
        ('SELECT (GROUP_CONCAT(?o; SEPARATOR=" ") AS ?all)', ""),
        ("CONSTRUCT { _:row <http://ex/has> ?s, ?o }", ""),
    ],
)
def test_a_firing_answers_alike_whatever_plan_the_windows_before_have_left(
    engine: wukongs.Engine, form: str, tail: str
) -> None:
    stream = engine.stream(A, timing=True)
    text = (
        f"REGISTER QUERY NAME AS {form} FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
        f"WHERE {{ ?s <http://ex/few> ?x . ?x <http://ex/many> ?o }} {tail}"
    )
    few = [(node(f"s{k}"), node("few"), node("x")) for k in range(40)]
    many = [(node("x"), node("many"), node(f"o{k}")) for k in range(40)]
    early = engine.register(text.replace("NAME", "early"))
    stream.push([(*triple, 50) for triple in few + many[:3]])
    stream.advance(100)
    engine.settle(timeout_s=60)
    late = engine.register(text.replace("NAME", "late"))
    stream.push([(*triple, 150) for triple in few[:3] + many])
    stream.advance(200)
    engine.settle(timeout_s=60)
    before, after = ({w.end_ms: w.texts() for w in query.results(timeout_s=0)}[200] for query in (early, late))
    if form.startswith("CONSTRUCT"):  # the query's name is part of a blank node's
        before, after = (sorted((row[0][20:], *row[1:]) for row in found if row[0]) for found in (before, after))
    assert before == after
