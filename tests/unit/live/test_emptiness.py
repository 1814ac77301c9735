"""The evaluation of why(): bounded in time, and out of the way of firings."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, at, register_text
from tests.inside import core_of
from wukongs.live import emptiness


def fired(engine: wukongs.Engine) -> tuple[wukongs.Stream, wukongs.ContinuousQuery]:
    """A query that has fired up to 200 ms, and its stream."""
    stream = engine.stream(A, batch_ms=100, timing=True)
    query = engine.register(register_text("RANGE 200ms STEP 100ms"))
    stream.push([at("a", 50)])
    stream.advance(200)
    engine.settle(timeout_s=60)
    return stream, query


def test_a_timeout_is_told_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with wukongs.Engine() as engine:
        _, query = fired(engine)
        monkeypatch.setattr(emptiness, "LOOK_S", 1e-9)
        assert "the window ending at 200 ms could not be evaluated anew within 1e-09 s" in query.why().split("\n")


def test_the_lock_is_free_while_it_is_evaluated_and_firings_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluating, go_on = threading.Event(), threading.Event()
    run = emptiness.profiled

    def held_up(*given: Any) -> Any:
        evaluating.set()
        assert go_on.wait(60)
        return run(*given)

    monkeypatch.setattr(emptiness, "profiled", held_up)
    with wukongs.Engine() as engine:
        stream, query = fired(engine)
        planned = query.stats()["plans_made"]
        told: list[str] = []
        asking = threading.Thread(target=lambda: told.append(query.why()))
        asking.start()
        assert evaluating.wait(60)
        taken = core_of(engine).lock.acquire(timeout=40)
        assert taken
        core_of(engine).lock.release()
        stream.push([at("b", 250)])
        stream.advance(300)
        engine.settle(timeout_s=60)
        assert [window.end_ms for window in query.results(timeout_s=0)][-1] == 300
        go_on.set()
        asking.join(60)
        assert "the window ending at 200 ms was evaluated anew" in told[0]
        assert query.stats()["plans_made"] == planned
