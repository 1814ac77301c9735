"""Deltas of a query that is registered over hundreds of stream batches, whose blocks are not merged yet."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, B, at, node, rows

COUNT = 700
JOINED = (
    f"REGISTER QUERY q AS SELECT * FROM NAMED STREAM <{A}> [RANGE 80s STEP 100ms] "
    f"FROM NAMED STREAM <{B}> [RANGE 80s STEP 100ms] "
    f"WHERE {{ GRAPH <{A}> {{ ?s {node('p')} ?o }} GRAPH <{B}> {{ ?s {node('q')} ?x }} }}"
)


def test_only_what_is_new_is_looked_for_from_the_second_firing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 0.0)
    monkeypatch.setattr("wukongs.live.core.Core.merge", lambda *_: False)
    with wukongs.Engine() as engine:
        streams = [engine.stream(iri, batch_ms=100, timing=True, history_ms=100_000) for iri in (A, B)]
        for stream in streams:
            stream.advance(0)

        def tell(numbers: Any) -> None:
            for stream, predicate in zip(streams, "pq", strict=True):
                stream.push([at(f"s{n % 50}", 100 * n, predicate, f"{predicate}{n}") for n in numbers])
            for stream in streams:
                stream.advance(100 * numbers[-1])
            engine.settle(60)

        tell(range(1, COUNT + 1))
        query = engine.register(JOINED)
        for number in range(COUNT + 1, COUNT + 11):
            tell([number])
        found = {window.end_ms: len(rows(window)) for window in query.results(timeout_s=0)}
        assert query.stats()["firings_by_deltas"] == 9
    pairs = {last: Counter(n % 50 for n in range(1, last + 1)) for last in range(COUNT + 1, COUNT + 11)}
    assert found == {100 * last: sum(n * n for n in of.values()) for last, of in pairs.items()}
