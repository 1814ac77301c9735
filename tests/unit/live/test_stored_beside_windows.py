"""Parts over stored graphs alone, beside windows: they follow the change of the stored graph between two firings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from wukongs.incremental import maintained
from wukongs.incremental.leaves import DeltaJoin
from wukongs.incremental.operators import Flag
from wukongs.query.plans import deltas
from wukongs.store import trace

EX = "http://ex/"
TEXT = (
    f"PREFIX : <{EX}> REGISTER QUERY q AS SELECT ?o ?s ?l FROM <urn:x-wukongs:default> "
    f"FROM NAMED STREAM <{EX}s> [RANGE 1s STEP 100ms] "
    f"WHERE {{ GRAPH <{EX}s> {{ ?o :p ?s }} OPTIONAL {{ ?s :label ?l }} }}"
)


class Life:
    """An engine with a stream, and the query; contents: what the window and the stored graph have."""

    def __init__(self) -> None:
        self.engine = wukongs.Engine()
        self.stream = self.engine.stream(f"{EX}s", batch_ms=100, timing=True)
        self.stream.advance(0)
        self.query: Any = self.engine.register(TEXT)
        self.ends_ms, self.sent, self.labels = 0, list[tuple[int, int]](), dict[int, str]()

    def label(self, sensor: int, text: str) -> None:
        before = self.labels.get(sensor)
        if before is not None:
            self.engine.update(f'DELETE DATA {{ <{EX}n{sensor}> <{EX}label> "{before}" }}')
        self.engine.update(f'INSERT DATA {{ <{EX}n{sensor}> <{EX}label> "{text}" }}')
        self.labels[sensor] = text

    def tick(self) -> None:
        """Push five tuples, and compare the window."""
        at_ms, self.ends_ms = self.ends_ms + 50, self.ends_ms + 100
        rows = [(at_ms * 100 + number, (at_ms + number) % 7) for number in range(5)]
        self.stream.push([(f"<{EX}o{one}>", f"<{EX}p>", f"<{EX}n{sensor}>", at_ms) for one, sensor in rows])
        self.sent += rows
        self.stream.advance(self.ends_ms)
        self.engine.settle(30)
        [window] = self.query.results(timeout_s=0)
        expected = Counter(
            (f"<{EX}o{one}>", f"<{EX}n{sensor}>", f'"{self.labels[sensor]}"' if sensor in self.labels else None)
            for one, sensor in self.sent[-50:]
        )
        assert Counter(map(tuple, window.texts())) == expected


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    for module, name in ((deltas, "ROWS_MIN"), (maintained, "JOINED_MIN"), (maintained, "STAY_MIN")):
        monkeypatch.setattr(module, name, 0)
    found = Life()
    found.label(0, "zero")
    found.label(1, "one")
    for _ in range(4):
        found.tick()
    yield found
    found.engine.close()


@pytest.fixture
def called(life: Life, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what operators do from now on."""
    found = Counter[str]()

    def count(kind: type, method: str) -> None:
        right = getattr(kind, method)

        def counted(self: Any, *given: Any) -> Any:
            found[f"{kind.__name__}.{method}"] += 1
            return right(self, *given)

        monkeypatch.setattr(kind, method, counted)

    for kind in (Flag, DeltaJoin):
        count(kind, "begin")
        count(kind, "change")
    return found


def test_updates_between_firings_are_followed(life: Life, called: Counter[str]) -> None:
    for number in range(6):
        life.label(number % 3, f"label {number}")
        life.tick()
    life.tick()
    assert called["Flag.change"] == called["DeltaJoin.change"] == 7
    assert called["Flag.begin"] == called["DeltaJoin.begin"] == 0


def test_what_was_not_kept_begins_anew_and_looks_up_what_the_window_has(
    life: Life, called: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "SEALED_ROWS_MAX", 1)
    life.label(2, "two")
    life.label(3, "three")
    [since] = life.engine._core.windows._stored_since.values()
    with life.engine._core.lock:
        since.read_again()
    assert not since._reads, "no version is held that is of no use"
    life.tick()
    assert called["Flag.begin"] == 1
    assert called["DeltaJoin.begin"] == 0, "the stored graph as a whole is not evaluated"
    life.tick()
    assert called["Flag.change"] == 1


def test_a_query_that_ends_holds_no_version(life: Life) -> None:
    windows = life.engine._core.windows
    assert windows._stored_since
    life.query.close()
    with life.engine._core.lock:
        windows.tidy()
    assert not windows._stored_since
    assert not life.engine._core.arrangement.trace.watchers
