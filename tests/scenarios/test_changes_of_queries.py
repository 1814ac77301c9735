"""Changes of a registered query while its windows are due: nobody settles, and the windows are always the same.

By docs/decisions/0112-event-time-of-changes.md windows that are due when a change is asked for go by the state before
it, later ones by the state after it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine_helpers import A, at, register_text, windows
from tests.faces import Face

pytestmark = pytest.mark.faces("embedded", "durable", "connect", "cluster-1", "cluster-3")
MANY_OR_FEW = pytest.mark.parametrize("tries", [12, pytest.param(150, marks=pytest.mark.slow)])
STEP, WIDE = "RANGE 100ms STEP 100ms", "RANGE 200ms STEP 100ms"
SETTLE_S = 60


class Feed:
    """A stream with one tuple in each stream batch."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.last = engine, 0
        self.stream = engine.stream(A, batch_ms=100)

    def close(self, count: int) -> list[int]:
        """Bring and close some stream batches; return their ends."""
        numbers = range(self.last + 1, self.last + count + 1)
        self.stream.push([at(f"s{number}", number * 100 - 50) for number in numbers])
        self.last += count
        self.stream.advance(self.last * 100)
        return [number * 100 for number in numbers]


def held(end_ms: int, width: int) -> list[str]:
    last = end_ms // 100
    return sorted(f"s{number}" for number in range(max(1, last - width + 1), last + 1))


@MANY_OR_FEW
def test_a_query_is_paused_and_resumed_while_windows_are_due(face: Face, tries: int) -> None:
    """Before the event time of changes, 4 of 150 tries brought a window more or fewer."""
    engine = face.open()
    feed, reported = Feed(engine), list[int]()
    query = engine.register(register_text(STEP))
    for _ in range(tries):
        reported += feed.close(3)
        query.pause()
        feed.close(3)
        query.resume()
    reported += feed.close(3)
    engine.settle(timeout_s=SETTLE_S)
    assert windows(query) == {end_ms: held(end_ms, 1) for end_ms in reported}


@MANY_OR_FEW
def test_a_query_gets_another_text_while_windows_are_due(face: Face, tries: int) -> None:
    engine = face.open()
    feed, expected = Feed(engine), dict[int, list[str]]()
    query = engine.register(register_text(STEP))
    for number in range(tries):
        width = number % 2 + 1
        expected |= {end_ms: held(end_ms, width) for end_ms in feed.close(3)}
        query.replace(register_text(STEP if width == 2 else WIDE))
    engine.settle(timeout_s=SETTLE_S)
    assert windows(query) == expected


@MANY_OR_FEW
def test_a_query_is_closed_and_registered_while_windows_are_due(face: Face, tries: int) -> None:
    """The windows that are due when a query is closed can be read, also those that nobody had waited for."""
    engine = face.open()
    feed = Feed(engine)
    feed.close(1)
    engine.settle(timeout_s=SETTLE_S)
    for number in range(tries):
        query = engine.register(register_text(STEP, name=f"q{number}"))
        ends = feed.close(3)
        query.close()
        feed.close(1)
        assert windows(query) == {end_ms: held(end_ms, 1) for end_ms in ends}, f"try {number}"
