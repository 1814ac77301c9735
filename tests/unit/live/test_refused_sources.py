"""Rows that could not be kept from firing to firing are tried again."""

from __future__ import annotations

import pytest

import wukongs
from tests.engine_helpers import A, node, rows
from wukongs.query.plans.compiled_plans import REFUSED_FIRINGS

XSD = "http://www.w3.org/2001/XMLSchema#"
TEXT = (
    f"REGISTER QUERY q AS SELECT %s FROM STREAM <{A}> [RANGE 300ms STEP 100ms] "
    f"WHERE {{ ?s {node('p')} ?v . ?s {node('q')} ?w %s }} %s"
)
SHAPES = {
    "groups": ("?s (MAX(?v) AS ?n)", "", "GROUP BY ?s"),
    "rows": ("?s ?n", "BIND(IF(?v > 1000, STR(?s), ?v) AS ?n)", ""),
}
ODD = {"groups": f'"9e3"^^<{XSD}double>', "rows": f'"4000"^^<{XSD}integer>'}
"""Values of which nothing is kept: among numbers of another kind, and because of a text that is computed."""
COUNT = 3 * REFUSED_FIRINGS


def run(shape: str) -> tuple[dict[int, list[tuple[str, ...]]], list[int]]:
    """Return the rows of each window, and how many firings had gone by deltas after each."""
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        query, kept = engine.register(TEXT % SHAPES[shape]), [0]
        for number in range(1, COUNT + 1):
            value = ODD[shape] if number in (4, 5) else f'"{number}"^^<{XSD}integer>'
            s, at_ms = node(f"s{number % 2}"), 100 * number
            stream.push([(s, node("p"), value, at_ms), (s, node("q"), node("w"), at_ms)])
            stream.advance(at_ms)
            engine.settle(60)
            kept.append(query.stats().get("firings_by_deltas", 0))
        return {window.end_ms: rows(window) for window in query.results(timeout_s=0)}, kept


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_kept_again_when_the_reason_has_gone(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    anew, _ = run(shape)
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 0.0)
    found, kept = run(shape)
    assert found == anew
    assert len(found) == COUNT
    assert kept[COUNT] - kept[2 * REFUSED_FIRINGS] == REFUSED_FIRINGS
