"""A stream that holds others back is told in the log, once for each time that it stands still, by a manual clock."""

from __future__ import annotations

import pytest

import wukongs
from tests.engine_helpers import A, B, at, register_text
from tests.inside import ManualClock

BOTH = (
    f"REGISTER QUERY both AS SELECT ?s FROM STREAM <{A}> [RANGE 100ms STEP 100ms] "
    f"FROM STREAM <{B}> [RANGE 100ms STEP 100ms] WHERE {{ ?s ?p ?o }}"
)


class Warnings:
    """What the engine has logged since it was asked last, each time after so many seconds."""

    def __init__(self, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
        self.engine, self.clock, self.caplog = clock.engine, clock, caplog

    def after_s(self, seconds: float) -> list[str]:
        self.engine.settle(timeout_s=60)
        self.clock.pass_s(0)
        self.caplog.clear()
        self.clock.pass_s(seconds)
        return [record.getMessage() for record in self.caplog.records if "stands still" in record.getMessage()]


@pytest.fixture
def warnings(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> Warnings:
    return Warnings(clock, caplog)


def test_it_names_who_holds_whom_once_for_each_standing_still(engine: wukongs.Engine, warnings: Warnings) -> None:
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    engine.register(BOTH)
    for stream in (one, two):
        stream.advance(100)
    one.push([at("a", 150)])
    one.advance(300)
    assert warnings.after_s(9) == []
    held = f"queries both and streams {A}: advance or close it, or declare it with an idle_timeout_ms"
    assert warnings.after_s(2) == [f"stream {B} (closed up to 100 ms) stands still for 11 s and holds back {held}"]
    one.advance(400)
    assert warnings.after_s(60) == []
    two.advance(200)
    assert warnings.after_s(9) == []
    (told,) = warnings.after_s(2)
    assert f"stream {B} (closed up to 200 ms)" in told
    two.advance(400)
    assert warnings.after_s(60) == []


def test_a_stream_that_has_not_begun_holds_the_queries_on_it(engine: wukongs.Engine, warnings: Warnings) -> None:
    one, _ = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    engine.register(BOTH)
    engine.register(register_text("RANGE 100ms STEP 100ms", name="alone"))
    one.advance(300)
    (told,) = warnings.after_s(11)
    assert f"stream {B} (not begun) stands still for 11 s and holds back queries both:" in told


def test_silence_that_holds_nobody_is_no_news(engine: wukongs.Engine, warnings: Warnings) -> None:
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    query = engine.register(BOTH)
    for stream in (one, two):
        stream.advance(100)
    assert warnings.after_s(60) == []  # all are silent
    query.pause()
    one.advance(300)
    assert warnings.after_s(60) == []  # one has come further, and nothing waits
    query.resume()
    warnings.clock.pass_s(0)
    assert "holds back queries both:" in warnings.caplog.text


def test_it_does_not_name_all_of_very_many(engine: wukongs.Engine, warnings: Warnings) -> None:
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    for number in range(12):
        engine.register(BOTH.replace("QUERY both", f"QUERY q{number:02}"))
    for stream in (one, two):
        stream.advance(100)
    one.advance(300)
    (told,) = warnings.after_s(11)
    assert "queries q00, q01, q02, q03, q04, q05, q06, q07, q08, q09 and 2 more:" in told


def test_an_idle_stream_holds_nobody(engine: wukongs.Engine, warnings: Warnings) -> None:
    one, _ = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100, idle_timeout_ms=5000)
    engine.register(BOTH)
    one.advance(300)
    assert warnings.after_s(60) == []


def test_a_stream_that_ends_or_is_dropped_is_forgotten(engine: wukongs.Engine, warnings: Warnings) -> None:
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    query = engine.register(BOTH)
    for stream in (one, two):
        stream.advance(100)
    one.advance(300)
    assert warnings.after_s(9) == []
    query.close()
    engine.drop_stream(B)
    assert warnings.after_s(60) == []
