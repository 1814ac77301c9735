"""Patterns that are explored from rows that bind nothing: as many as there are in this firing, not in one before."""

from __future__ import annotations

from typing import Any

import wukongs

S = "http://e/s"


def test_a_firing_starts_from_its_own_rows() -> None:
    """SPARQL 1.1, 18.5: Join keeps the cardinality of each side; a UNION of two patterns without variables that both
    match is two empty solutions, so each solution beside it is there twice."""
    text = "{ :a :p :b } UNION { :c :p :d } ?s :r ?o"
    found = []
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=True, batch_ms=100)
        query: Any = engine.register(
            f"PREFIX : <http://e/> REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{S}> [RANGE 100ms STEP 100ms] "
            f"WHERE {{ {text} }}"
        )
        for number in range(1, 9):
            at_ms = 100 * number
            rows = [(f"<http://e/x{one}>", "<http://e/r>", "<http://e/y>", at_ms) for one in range(3)]
            if number % 2 == 0:
                rows.append(("<http://e/a>", "<http://e/p>", "<http://e/b>", at_ms))
            if number % 4 >= 2:
                rows.append(("<http://e/c>", "<http://e/p>", "<http://e/d>", at_ms))
            stream.push(rows)
            stream.advance(at_ms)
            engine.settle(60)
            found += [len(window) for window in query.results(timeout_s=0)]
    assert found == [3 * ((number % 2 == 0) + (number % 4 >= 2)) for number in range(1, 9)]
