"""Groups that could not be kept from firing to firing are tried again; computed terms are no reason to keep nothing."""

from __future__ import annotations

import pytest

import wukongs
from tests.engine_helpers import A, node, rows
from wukongs.query.refusals import REFUSED

XSD = "http://www.w3.org/2001/XMLSchema#"
TEXT = (
    f"REGISTER QUERY q AS SELECT %s FROM STREAM <{A}> [RANGE 300ms STEP 100ms] "
    f"WHERE {{ ?s {node('p')} ?v . ?s {node('q')} ?w %s }} %s"
)
GROUPS = ("?s (MAX(?v) AS ?n)", "", "GROUP BY ?s")
COMPUTED = ("?s ?n", "BIND(IF(?v > 10, CONCAT(STR(?s), ' at ', STR(?v)), ?v) AS ?n)", "")
COUNT = 3 * REFUSED


def run(parts: tuple[str, str, str], odd: str) -> tuple[dict[int, list[tuple[str, ...]]], list[dict[str, int]]]:
    """Return the rows of each window, and how many firings each mechanism has found after each."""
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        query, found_by = engine.register(TEXT % parts), list[dict[str, int]]()
        for number in range(1, COUNT + 1):
            value = odd if number in (4, 5) else f'"{number}"^^<{XSD}integer>'
            s, at_ms = node(f"s{number % 2}"), 100 * number
            stream.push([(s, node("p"), value, at_ms), (s, node("q"), node("w"), at_ms)])
            stream.advance(at_ms)
            engine.settle(60)
            found_by.append(query.stats()["found_by"])
        return {window.end_ms: rows(window) for window in query.results(timeout_s=0)}, found_by


def test_groups_are_kept_again_when_the_reason_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among numbers of another kind the order of a group's terms hangs on what else is there."""
    anew, _ = run(GROUPS, f'"9e3"^^<{XSD}double>')
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 0.0)
    found, found_by = run(GROUPS, f'"9e3"^^<{XSD}double>')
    assert found == anew
    assert len(found) == COUNT
    kept = [one.get("maintained_groups", 0) for one in found_by]
    assert kept[5] == kept[REFUSED], "nothing is tried for so many firings"
    assert kept[-1] - kept[-1 - REFUSED] == REFUSED
    assert found_by[-1]["maintained_bindings"] >= COUNT - 3, "the matches below stay"


def test_explain_names_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 0.0)
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        query = engine.register(TEXT % GROUPS)
        assert "kept:" not in query.explain()
        for number in range(1, 5):
            at_ms, s = 100 * number, node(f"s{number % 2}")
            stream.push([(s, node("p"), f'"{number}"^^<{XSD}integer>', at_ms), (s, node("q"), node("w"), at_ms)])
            stream.advance(at_ms)
            engine.settle(60)
        kept = [line for line in query.explain().splitlines() if line.startswith("kept: ")]
    assert [line.split(":")[1].strip() for line in kept] == ["groups", "window join"]
    assert kept[1].startswith("kept:   window join: 2 rows changed last, ")


def test_computed_terms_are_kept_with_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    anew, _ = run(COMPUTED, f'"4000"^^<{XSD}integer>')
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 0.0)
    found, found_by = run(COMPUTED, f'"4000"^^<{XSD}integer>')
    assert found == anew
    assert found_by[-1]["maintained_bindings"] >= COUNT - 3


def test_computed_terms_of_before_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """All begins anew, with the same rows, when many more terms were computed than rows need."""
    anew, _ = run(COMPUTED, f'"4000"^^<{XSD}integer>')
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 0.0)
    monkeypatch.setattr("wukongs.incremental.maintained.COMPUTED_MIN", 4)
    found, found_by = run(COMPUTED, f'"4000"^^<{XSD}integer>')
    assert found == anew
    assert 2 < found_by[-1]["bindings_begun"] < COUNT - 10
