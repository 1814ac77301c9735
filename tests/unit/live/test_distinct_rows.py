"""DISTINCT over matches that are kept: distinct rows are kept, too, and only rows that came and went are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, node, rows
from wukongs.incremental import maintained
from wukongs.query.counted_rows import CountedRows
from wukongs.store.dtypes import Int64Array

HEAD = f"FROM STREAM <{A}> [RANGE 3s STEP 100ms] WHERE"
P, K = node("p"), node("k")
XSD = "http://www.w3.org/2001/XMLSchema#"
SHAPES = {
    "patterns": f"SELECT DISTINCT ?o {HEAD} {{ ?s {P} ?o . ?s {K} ?k }}",
    "a filter": f"SELECT DISTINCT ?k ?o {HEAD} {{ ?s {P} ?o . ?s {K} ?k FILTER(?o < 8) }}",
    "BIND": f"SELECT DISTINCT ?n {HEAD} {{ ?s {P} ?o . ?s {K} ?k BIND(?o * 2 AS ?n) }}",
    "a variable that nothing binds": f"SELECT DISTINCT ?o ?none {HEAD} {{ ?s {P} ?o . ?s {K} ?k FILTER(?o < 8) }}",
    "LIMIT": f"SELECT DISTINCT ?o {HEAD} {{ ?s {P} ?o . ?s {K} ?k }} LIMIT 5",
}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows each move had."""
    found: list[int] = []
    move = CountedRows.move

    def counting(self: CountedRows, some: Int64Array, weights: Int64Array) -> Any:
        found.append(len(some))
        return move(self, some, weights)

    monkeypatch.setattr(CountedRows, "move", counting)
    return iter([found])


def windows_of(text: str, ends: range) -> dict[int, list[tuple[str, ...]]]:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        query = engine.register(f"REGISTER QUERY q AS {text}")
        for end in ends:
            subjects = [node(f"s{end}x{number}") for number in range(3)]
            stream.push([(s, P, f'"{(end // 100 * at) % 11}"^^<{XSD}integer>', end) for at, s in enumerate(subjects)])
            stream.push([(s, K, K, end) for s in subjects])
            stream.advance(end)
            engine.settle(60)
        return {window.end_ms: sorted(rows(window)) for window in query.results(timeout_s=0)}


@pytest.mark.parametrize("shape", SHAPES)
def test_only_rows_that_come_and_go_are_counted(
    monkeypatch: pytest.MonkeyPatch, counted: Iterator[list[int]], shape: str
) -> None:
    ends = range(100, 6001, 100)
    anew = windows_of(SHAPES[shape], ends)
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 0.0)
    monkeypatch.setattr(maintained, "STAY_MIN", 10)
    (moves,) = counted
    found = windows_of(SHAPES[shape], ends)
    assert found == anew
    assert len(found) == len(ends)
    assert len(moves) >= 30
    assert max(moves[1:]) <= 6, "what came, what went"
