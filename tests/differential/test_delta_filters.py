"""Readings of sensors joined with themselves, with filters on one side: windows that are found by deltas have the rows
that pyoxigraph finds over the same tuples (C-SPARQL: a window is the set of its tuples; SPARQL 1.1, 17.2: a filter
keeps the solutions for which its expression is true)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyoxigraph as ox
import pytest

import wukongs
from wukongs.query.plans import deltas
from wukongs.query.plans.compiled import CompiledSteps
from wukongs.query.plans.lowered_plan import LoweredPlan

STREAM = "http://e/s"
DOUBLE = "http://www.w3.org/2001/XMLSchema#double"
SENSORS, SECONDS, RANGE_MS, STEP_MS = 120, 15, 7000, 3000
Row = tuple[str, str, str]


def readings(seed: int) -> dict[int, list[Row]]:
    """Return the tuples of each second: observations with a sensor, a kind, and a result that has a value."""
    draw = random.Random(seed)
    found: dict[int, list[Row]] = {}
    for second in range(SECONDS):
        rows = found[second] = []
        for sensor in range(SENSORS):
            if (second + sensor) % 3 == 0 or draw.random() < 0.1:
                value = f'"{draw.randrange(50, 80)}"^^<{DOUBLE}>'
                seen, result = f"<http://e/o{second}_{sensor}>", f"<http://e/b{second}_{sensor}>"
                rows += [
                    (seen, "<http://e/p>", f"<http://e/s{sensor}>"),
                    (seen, "<http://e/k>", "<http://e/T>"),
                    (seen, "<http://e/r>", result),
                    (result, "<http://e/f>", value),
                ]
    return found


def text_of(windows: str, filters: str) -> str:
    return f"""PREFIX : <http://e/> SELECT ?s ?o1 ?v1 ?o2 {windows} WHERE {{
        ?o1 :p ?s ; :k :T ; :r ?b1 . ?b1 :f ?v1 . ?o2 :p ?s ; :k :T ; :r ?b2 . ?b2 :f ?v2 . {filters} }}"""


def expected(rows: dict[int, list[Row]], end_ms: int, filters: str) -> Counter[tuple[str, ...]]:
    """Ask pyoxigraph over the tuples of the window that ends at a time."""
    store = ox.Store()
    for second, tuples in rows.items():
        if end_ms - RANGE_MS < second * 1000 + 1 <= end_ms:
            data = "".join(f"{' '.join(one)} .\n" for one in tuples)
            store.load(data.encode(), format=ox.RdfFormat.N_TRIPLES)
    solutions: Any = store.query(text_of("", filters))
    return Counter(tuple(str(term) for term in row) for row in solutions)


@pytest.mark.parametrize("filters", ["FILTER(?v2 > 75)", "FILTER(?v1 > ?v2) FILTER(?v2 > 75)"])
def test_pairs_with_a_filter_on_one_side(filters: str) -> None:
    rows = readings(seed=1)
    with wukongs.Engine() as engine:
        stream = engine.stream(STREAM, batch_ms=1000)
        windows = f"FROM STREAM <{STREAM}> [RANGE {RANGE_MS}ms STEP {STEP_MS}ms]"
        query: Any = engine.register(f"REGISTER QUERY q AS {text_of(windows, filters)}")
        for second, tuples in rows.items():
            stream.push([(*one, second * 1000 + 1) for one in tuples])
        stream.advance(SECONDS * 1000)
        engine.settle(60)
        found = {one.end_ms: Counter(tuple(map(str, row)) for row in one.texts()) for one in query.results(timeout_s=0)}
        by_deltas = query.stats()["firings_by_deltas"]
    assert len(found) == SECONDS * 1000 // STEP_MS
    for end_ms, window in found.items():
        assert window == expected(rows, end_ms, filters), end_ms
    assert by_deltas > 0, "no firing went by deltas"


@pytest.mark.nojit
def test_a_delta_plan_that_kernels_cannot_run_is_no_plan_without_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plans over what is new are refused at some firings. Those behind them have all rows."""
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    refused: list[LoweredPlan] = []
    refuses, fits = False, CompiledSteps.fits

    def may_fit(plan: LoweredPlan) -> bool:
        if refuses and any("new " in str(graph) for graph in plan.graphs):
            refused.append(plan)
            return False
        return fits(plan)

    monkeypatch.setattr(CompiledSteps, "fits", staticmethod(may_fit))
    with wukongs.Engine() as engine:
        stream = engine.stream(STREAM, timing=True, batch_ms=100)
        query: Any = engine.register(
            f"REGISTER QUERY q AS SELECT ?a ?c FROM STREAM <{STREAM}> [RANGE 500ms STEP 100ms] "
            "WHERE { ?a <http://e/p> ?b . ?b <http://e/q> ?c }"
        )
        for number in range(1, 13):
            refuses = number < 7
            a, b, c = (f"<http://e/{name}{number}>" for name in "abc")
            stream.push([(a, "<http://e/p>", b, 100 * number), (b, "<http://e/q>", c, 100 * number)])
            stream.advance(100 * number)
            engine.settle(60)
        counts = [len(window) for window in query.results(timeout_s=0)]
    assert refused
    assert counts == [1, 2, 3, 4, *[5] * 8]
