"""push_many in a data folder, and beside other callers."""

from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, subjects
from tests.inside import core_of
from wukongs.errors import StreamError


def declare(engine: wukongs.Engine, **options: Any) -> None:
    for iri in (A, B):
        engine.stream(iri, batch_ms=100, **options)


def test_the_log_is_waited_for_once_and_has_it_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wukongs.Engine(tmp_path) as engine:
        declare(engine)
        waits: list[int | None] = []
        journal = core_of(engine).journal
        wait = journal.wait
        monkeypatch.setattr(journal, "wait", lambda lsn=None: (waits.append(lsn), wait(lsn)))
        engine.push_many({A: [at("a1", 50)], B: [at("b1", 60)]}, advance_ms=100)
        assert len(waits) == 1
    with wukongs.Engine(tmp_path) as engine:
        engine.settle(60)
        assert subjects(engine) == ["a1", "b1"]
        assert [one["closed_ms"] for one in engine.stats()["streams"].values()] == [100, 100]
        with pytest.raises(StreamError, match="was not declared here"):
            engine.push_many({A: None}, advance_ms=200)
        declare(engine)
        engine.push_many({A: [at("a2", 150)], B: None}, advance_ms=200)
        engine.settle(60)
        assert subjects(engine) == ["a1", "a2", "b1"]


def test_a_call_that_another_one_overtakes_says_what_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late tuples wait until what is closed is sealed; another thread may close a stream meanwhile."""
    with wukongs.Engine() as engine:
        declare(engine, lateness_ms=0, on_late="count")
        first, second = core_of(engine).streams[A], core_of(engine).streams[B]
        engine.push_many({A: [at("a5", 500)], B: [at("b5", 500)]}, advance_ms=500)
        catch_up = engine._injector.catch_up

        def overtaken() -> None:
            catch_up()
            if first.tuple_count == 2:
                second.end()

        monkeypatch.setattr(engine._injector, "catch_up", overtaken)
        with pytest.raises(StreamError, match=r"closed.*The tuples of this call for .*streamA were taken"):
            engine.push_many({A: [at("a6", 600)], B: [at("late", 100)]})
