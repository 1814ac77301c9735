"""Plain rules are followed fact by fact where a change is small, to the same end as in columns."""

from __future__ import annotations

from typing import Any

import pytest

import wukongs
from wukongs.rules import fact_search, propagation
from wukongs.rules.rule_plans import RulePlan

EX = "http://ex/"
PREFIX = f"PREFIX : <{EX}>\n"
SHAPES = {
    "transitive": "CONSTRUCT { ?x :p ?z } WHERE { ?x :p ?y . ?y :p ?z }",
    "of a variable predicate": "CONSTRUCT { ?x ?q ?y } WHERE { ?x ?p ?y . ?p :sub ?q . ?q a :Kind }",
    "the same twice": "CONSTRUCT { ?x a :Loop } WHERE { ?x :p ?x }",
    "a subject that is the predicate": "CONSTRUCT { ?x a :Self } WHERE { ?x ?x ?y . ?y a :Kind }",
    "of three": "CONSTRUCT { ?x :r ?w } WHERE { ?x :p ?y . ?y :q ?z . ?z :p ?w }",
    "of another graph": "CONSTRUCT { ?x :p ?y } WHERE { ?x :q ?y GRAPH :g { ?y :q ?x } }",
    "that has to look at all": "CONSTRUCT { ?x a ?y } WHERE { ?x :one :two . ?y :three :four }",
}
STEPS = [
    "INSERT DATA { :a :p :b . :b :p :c . :c :p :d . :q :sub :p . :p a :Kind . :a :q :d . :e :e :p }",
    "INSERT DATA { :d :p :a . :d :q :b . :x :one :two . :y :three :four . GRAPH :g { :b :q :d . :d :q :a } }",
    "DELETE DATA { :b :p :c } ; INSERT DATA { :q a :Kind . :sub :sub :sub . :sub a :Kind }",
    "DELETE DATA { :d :q :b . :p a :Kind . :x :one :two } ; INSERT DATA { :c :p :c }",
    "DELETE DATA { GRAPH :g { :b :q :d } :a :p :b . :e :e :p } ; INSERT DATA { :b :p :c }",
    "DELETE WHERE { ?x :p ?y }",
]


def outcomes(rule: str) -> list[list[tuple[str, ...]]]:
    with wukongs.Engine(rules=f"{PREFIX}RULE one: {rule}") as engine:
        found = []
        for step in STEPS:
            engine.update("; ".join(PREFIX + part for part in step.split(" ; ")))
            rows: Any = engine.query("SELECT ?s ?p ?o FROM <urn:x-wukongs:inferred> { ?s ?p ?o }").texts()
            found.append(sorted(rows))
        return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_ranks", [False, True])
def test_a_shape_gives_what_it_gives_in_columns(shape: str, has_ranks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if has_ranks:
        monkeypatch.setattr(propagation, "RANKLESS_MIN", 0)
        monkeypatch.setattr(propagation, "RANKLESS_FACTOR", 0)
    found = outcomes(SHAPES[shape])
    assert any(found)
    monkeypatch.setattr(propagation, "FACTS_MAX", -1)
    assert found == outcomes(SHAPES[shape])
    monkeypatch.setattr(propagation, "FACTS_MAX", 2)
    monkeypatch.setattr(fact_search, "_ROOM", 3)
    assert found == outcomes(SHAPES[shape])


def test_small_changes_need_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a round of columns")

    rule = f"{PREFIX}RULE one: {SHAPES['transitive']}"
    with wukongs.Engine(rules=rule) as engine:
        monkeypatch.setattr(RulePlan, "heads_from", never)
        for step in STEPS[:3]:
            engine.update("; ".join(PREFIX + part for part in step.split(" ; ")))
        found = engine.query(f"{PREFIX} SELECT ?x ?y {{ ?x :p ?y }}").texts()
    assert sorted(found) == sorted((f"<{EX}{x}>", f"<{EX}{y}>") for x, y in ("cd", "ca", "cb", "da", "db", "ab"))
