"""Updates beside streams, firings, loads, queries and other updates."""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, register_text, rows, subjects, windows
from wukongs.live.update_request import UpdateRequest

PREFIX = "PREFIX : <http://ex/> "
TIMEOUT_S = 60


def update(engine: wukongs.Engine, text: str) -> int:
    return engine.update(PREFIX + text)


def during_updates(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> None:
    """Let something happen when an update has read and not stored yet."""
    real = UpdateRequest.run

    def run(self: UpdateRequest, place: int, operation: Any) -> None:
        real(self, place, operation)
        monkeypatch.setattr(UpdateRequest, "run", real)
        action()

    monkeypatch.setattr(UpdateRequest, "run", run)


def load(engine: wukongs.Engine, *lines: str, graph: str | None = None) -> int:
    text = "".join(f"{line} .\n" for line in lines).replace(":", "http://ex/") if lines else ""
    return engine.load(io.BytesIO(text.encode()), format="nt", graph=graph)


# --- other updates ----------------------------------------------------------------------------------------------------


def test_updates_are_serial(engine: wukongs.Engine) -> None:
    update(engine, "INSERT DATA { :counter :is 0 }")
    text = "DELETE { :counter :is ?n } INSERT { :counter :is ?m } WHERE { :counter :is ?n BIND (?n + 1 AS ?m) }"
    threads = [threading.Thread(target=lambda: [update(engine, text) for _ in range(15)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert rows(engine.query("SELECT ?o { ?s ?p ?o }")) == [("60",)]
    assert engine.stats()["sn"] == 61


def test_queries_go_on_while_an_update_runs(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    update(engine, "INSERT DATA { :a :p 1 }")
    seen = []
    during_updates(monkeypatch, lambda: seen.append(subjects(engine)))
    update(engine, "INSERT DATA { :b :p 2 }")
    assert (seen, subjects(engine)) == ([["a"]], ["a", "b"])


# --- what is stored meanwhile -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("DELETE DATA { :new :p :o . :old :p :o }", ["new", "other"]),
        ("DELETE WHERE { ?s :p :o }", ["new", "other"]),
        ("CLEAR DEFAULT", ["new", "other"]),
        ("CLEAR ALL ; INSERT DATA { :new :p :o }", ["new", "other"]),
        ("INSERT DATA { :new :p :o }", ["new", "old", "other"]),
        ("MOVE DEFAULT TO :g", ["new", "other"]),  # or they would be in neither graph
        ("DELETE { ?s :p :o } INSERT { ?s :p :o } WHERE { ?s :p :o }", ["new", "old", "other"]),
    ],
)
@pytest.mark.parametrize("source", ["stream", "load"])
@pytest.mark.parametrize("is_durable", [False, True])
def test_what_comes_between_reading_and_storing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, left: list[str], source: str, is_durable: bool
) -> None:
    """An update deletes what its snapshot held; what has come since stays."""
    engine = wukongs.Engine(tmp_path / "db" if is_durable else None)
    load(engine, "<:old> <:p> <:o>")
    stream = engine.stream(A, batch_ms=100)

    def come() -> None:
        if source == "load":
            load(engine, "<:new> <:p> <:o>", "<:other> <:p> <:o>")
            return
        stream.push([at("new", 50), at("other", 60), at("old", 70)])
        stream.advance(100)
        engine.settle(timeout_s=TIMEOUT_S)

    during_updates(monkeypatch, come)
    update(engine, text)
    assert subjects(engine) == left
    assert engine.stats()["stored_triples"] == len(left) + (1 if "MOVE" in text else 0)
    engine._core.arrangement.trace.merge_all()
    assert subjects(engine) == left
    if is_durable:
        shutil.copytree(tmp_path / "db", tmp_path / "killed")
        with wukongs.Engine(tmp_path / "killed") as other:
            assert subjects(other) == left
    engine.close()


def test_an_update_sees_what_was_closed_before_it(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    for number in range(1, 30):
        stream.push([at(f"s{number}", 100 * number)])
        stream.advance(100 * number)
        update(engine, "DELETE WHERE { ?s :p :o }")
        assert subjects(engine) == []


def test_a_deleted_triple_comes_again_with_the_stream(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 200ms STEP 100ms"))
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=TIMEOUT_S)
    update(engine, "DELETE WHERE { ?s ?p ?o }")
    stream.push([at("b", 150)])
    stream.advance(200)
    engine.settle(timeout_s=TIMEOUT_S)
    assert windows(query)[200] == ["a", "b"]  # windows are not touched
    assert subjects(engine) == ["b"]
    stream.push([at("a", 250)])
    stream.advance(300)
    engine.settle(timeout_s=TIMEOUT_S)
    assert subjects(engine) == ["a", "b"]


def test_what_streams_join_is_read_with_its_graph(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, into="http://ex/g")
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=TIMEOUT_S)
    update(engine, "WITH :g DELETE { ?s ?p ?o } INSERT { ?s :q ?o } WHERE { ?s ?p ?o }")
    assert rows(engine.query("SELECT ?g ?s ?p { GRAPH ?g { ?s ?p ?o } }")) == [("g", "a", "q")]


# --- firings ----------------------------------------------------------------------------------------------------------

STORED = (
    f"REGISTER QUERY q AS SELECT ?x FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms] "
    f"WHERE {{ GRAPH <{A}> {{ ?s <http://ex/seen> ?o }} ?s <http://ex/is> ?x }}"
)


def test_a_firing_reads_the_snapshot_of_its_time(engine: wukongs.Engine) -> None:
    """An update after t is seen by the next firing, not by the one at t, however late that fires; as loads are."""
    a, b = (engine.stream(name, batch_ms=100, timing=True) for name in (A, B))
    query = engine.register(STORED)
    update(engine, "INSERT DATA { :a :is :before }")
    a.push([at("a", 100, "seen")])
    a.advance(100)
    b.advance(100)
    engine.settle(timeout_s=TIMEOUT_S)
    update(engine, "DELETE DATA { :a :is :before } ; INSERT DATA { :a :is :after }")
    a.push([at("a", 150, "seen"), at("a", 250, "seen")])
    a.advance(300)  # but b holds it back
    update(engine, "INSERT DATA { :a :is :later }")
    b.advance(300)
    engine.settle(timeout_s=TIMEOUT_S)
    assert windows(query) == {100: ["before"], 200: ["after", "later"], 300: ["after", "later"]}


def test_an_update_from_on_result(engine: wukongs.Engine) -> None:
    """The injector's thread updates while other threads do: nobody waits for ever."""
    stream = engine.stream(A, batch_ms=100)
    sns: list[int] = []

    def on_result(window: Any) -> None:
        sns.append(update(engine, f"INSERT DATA {{ :window :ends {window.end_ms} }}"))

    engine.register(register_text("RANGE 100ms STEP 100ms"), on_result=on_result)
    errors: list[BaseException] = []

    def many() -> None:
        try:
            for number in range(40):
                update(engine, f"INSERT DATA {{ GRAPH :g {{ :other :n {number} }} }}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=many) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 41):
        stream.push([at("a", 100 * number)])
        stream.advance(100 * number)
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    engine.settle(timeout_s=TIMEOUT_S)
    assert not errors
    assert len(rows(engine.query(PREFIX + "SELECT ?t { :window :ends ?t }"))) == len(set(sns)) == 40


def test_a_long_update_holds_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """handle_age_max_s takes readers' handles away, not that of an update, which could not store its change then."""
    with wukongs.Engine(settings=wukongs.Settings(handle_age_max_s=1)) as engine:
        load(engine, "<:old> <:p> <:o>")

        def waits() -> None:
            for handle in engine._core.arrangement.trace.handles():
                handle.opened_at_s -= 100
            load(engine, "<:new> <:p> <:o>")
            load(engine, "<:newer> <:p> <:o>")

        during_updates(monkeypatch, waits)
        update(engine, "DELETE WHERE { ?s :p :o } ; INSERT { :x :is ?s } WHERE { ?s :p :o }")
        assert subjects(engine) == ["new", "newer"]
