"""Rules that are dropped, added, paused and resumed: only what they concern changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import wukongs
from wukongs.rules import propagation
from wukongs.rules.propagation import Propagation

EX = "http://ex/"
PREFIX = f"PREFIX : <{EX}>\n"
NEAR = "RULE near: CONSTRUCT { ?x :near ?z } WHERE { ?x :near ?y . ?y :near ?z }\n"
KNOWN = "RULE known: CONSTRUCT { ?x :known :yes } WHERE { ?x :near ?y }\n"
LONELY = "RULE lonely: CONSTRUCT { ?x a :Lonely } WHERE { ?x a :Node FILTER NOT EXISTS { ?x :known :yes } }\n"
SIZES = (
    "RULE sizes: CONSTRUCT { ?x :size ?n } WHERE { SELECT ?x (COUNT(?y) AS ?n) WHERE { ?x :near ?y } GROUP BY ?x }\n"
)
BACK = "RULE back: CONSTRUCT { ?y :near ?x } WHERE { ?x :near ?y . ?x :both ?y }\n"
ALL = PREFIX + NEAR + KNOWN + LONELY + SIZES
DATA = f"{PREFIX} INSERT DATA {{ :a :near :b . :b :near :c . :c :near :d ; :both :d . :a a :Node . :d a :Node }}"


def said(engine: Any) -> set[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = engine.query("SELECT ?s ?p ?o FROM <urn:x-wukongs:inferred> { ?s ?p ?o }").texts()
    assert len(set(rows)) == len(rows)
    return set(rows)


def expected(rules: str) -> set[tuple[str, ...]]:
    """What follows where the rules were there first."""
    with wukongs.Engine(rules=PREFIX + rules) as engine:
        engine.update(DATA)
        return said(engine)


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has an item for each time that all was derived anew."""
    times: list[int] = []
    derive = Propagation.derive_anew

    def counted(self: Propagation, *args: Any) -> Any:
        times.append(1)
        return derive(self, *args)

    monkeypatch.setattr(Propagation, "derive_anew", counted)
    monkeypatch.setattr(propagation, "FORGOTTEN_SHARE_MAX", 1.0)
    return times


@contextmanager
def in_part(anew: list[int]) -> Iterator[None]:
    before = len(anew)
    yield
    assert len(anew) == before


def test_what_a_dropped_rule_has_concluded_goes_with_what_followed(anew: list[int]) -> None:
    with wukongs.Engine(rules=ALL) as engine:
        engine.update(DATA)
        with in_part(anew):
            engine.drop_rules("known")
        assert said(engine) == expected(NEAR + LONELY + SIZES)
        with in_part(anew):
            engine.drop_rules("near", "lonely")
        assert said(engine) == expected(SIZES)
        engine.drop_rules("sizes")
        assert said(engine) == set()


def test_rules_that_are_added_change_strata_behind_them(anew: list[int]) -> None:
    with wukongs.Engine(rules=PREFIX + LONELY) as engine:
        engine.update(DATA)
        rules = LONELY
        for rule in (SIZES, KNOWN, NEAR, BACK):
            with in_part(anew):
                engine.add_rules(PREFIX + rule)
            rules += rule
            assert said(engine) == expected(rules), rule
        with in_part(anew):
            engine.drop_rules("near")
        assert said(engine) == expected(LONELY + SIZES + KNOWN + BACK)


def test_what_follows_by_another_rule_too_stays(anew: list[int]) -> None:
    other = "RULE other: CONSTRUCT { ?x :known :yes } WHERE { ?x a :Node }\n"
    with wukongs.Engine(rules=PREFIX + NEAR + KNOWN + other) as engine:
        engine.update(DATA)
        with in_part(anew):
            engine.drop_rules("known")
        assert said(engine) == expected(NEAR + other)
        engine.update(PREFIX + "DELETE DATA { :d a :Node }")
        assert (f"<{EX}d>", f"<{EX}known>", f"<{EX}yes>") not in said(engine)


def test_a_rule_that_is_paused_takes_along_what_it_has_concluded_alone(anew: list[int]) -> None:
    """Numbers count up to 10,000, which is too far from one."""
    up = "RULE up: CONSTRUCT { ?x :number ?m } WHERE { ?x :number ?n FILTER (?n < 10000) BIND(?n + 1 AS ?m) }\n"
    last = f"<{EX}a>", f"<{EX}number>", '"10000"^^<http://www.w3.org/2001/XMLSchema#integer>'
    changed = DATA.replace(":c :near :d ;", ":e :near :a . :c")
    with wukongs.Engine(rules=ALL) as engine:
        engine.update(changed)
        others = said(engine)
    with wukongs.Engine(rules=ALL + up, settings=wukongs.Settings(rules_rows_max=200)) as engine:
        engine.update(DATA)
        engine.update(f"{PREFIX} INSERT DATA {{ :a :number 9999 }}")
        assert last in said(engine)
        with in_part(anew):
            engine.update(f"{PREFIX} INSERT DATA {{ :b :number 1 . :e :near :a }} ; DELETE DATA {{ :c :near :d }}")
        assert [rule.name for rule in engine.rules() if rule.is_paused] == ["up"]
        assert said(engine) == others
        with in_part(anew):
            engine.update(f"{PREFIX} DELETE DATA {{ :b :number 1 }}")
            engine.resume_rules("up")
        assert said(engine) == others | {last}


def test_where_most_would_go_all_is_derived_anew(anew: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "FORGOTTEN_SHARE_MAX", 0.4)
    with wukongs.Engine(rules=PREFIX + NEAR + KNOWN) as engine:
        engine.update(DATA)
        anew.clear()
        engine.drop_rules("known")
        assert len(anew) == 1
        assert said(engine) == expected(NEAR)


@pytest.mark.parametrize("is_paused", [False, True])
def test_what_others_have_concluded_in_several_changes_is_not_held_against_them(is_paused: bool) -> None:
    """More than one change may derive: it is not derived anew."""
    rules = PREFIX + "".join(
        f"RULE {name}: CONSTRUCT {{ ?x :{name} ?y }} WHERE {{ ?x :is-{name} ?y }}\n" for name in "ab"
    )

    def add(engine: Any, name: str, *numbers: int) -> None:
        engine.update(f"{PREFIX} INSERT DATA {{ {' '.join(f':s{at} :is-{name} :o{at} .' for at in range(*numbers))} }}")

    with wukongs.Engine(rules=rules, settings=wukongs.Settings(rules_rows_max=10)) as engine:
        for name, start in (("a", 0), ("a", 8), ("b", 0), ("b", 8), ("b", 16)):
            add(engine, name, start, start + 8)
        if is_paused:
            add(engine, "b", 100, 111)
        else:
            engine.drop_rules("b")
        assert [rule.name for rule in engine.rules() if rule.is_paused] == ["b"] * is_paused
        assert {row[1] for row in said(engine)} == {f"<{EX}a>"}
        assert len(said(engine)) == 16
