"""Changes that cannot be stored once what follows from them is derived: nothing of them is taken for stored."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import wukongs
from wukongs.rules import propagation
from wukongs.store.trace import Trace

PREFIX = "PREFIX : <http://ex/>\n"
NEAR = "RULE near: CONSTRUCT { ?x :near ?z } WHERE { ?x :near ?y . ?y :near ?z }\n"
KNOWN = "RULE known: CONSTRUCT { ?x :known :yes } WHERE { ?x :near ?y }\n"


def closure(links: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return all pairs of which the first leads to the second, the naive way (docs/rules.md: the least model)."""
    found = set(links)
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found


def pairs(engine: Any) -> set[tuple[str, str]]:
    rows = engine.query(PREFIX + "SELECT ?x ?y { ?x :near ?y }").texts()
    assert len(set(rows)) == len(rows)
    return {(row[0][len("<http://ex/") : -1], row[1][len("<http://ex/") : -1]) for row in rows}


@pytest.fixture
def sealing(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Says whether the trace finds no memory when it seals."""
    fails, seal = [False], Trace.seal

    def may_seal(self: Trace, *given: Any, **named: Any) -> None:
        if fails[0]:
            raise MemoryError
        seal(self, *given, **named)

    monkeypatch.setattr(Trace, "seal", may_seal)
    return lambda is_failing: fails.__setitem__(0, is_failing)


def test_triples_that_were_derived_and_not_stored_have_no_ranks(
    sealing: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletions go by ranks, which are to be those of the triples that are there."""
    monkeypatch.setattr(propagation, "RANKLESS_MIN", 0)
    monkeypatch.setattr(propagation, "RANKLESS_FACTOR", 0)
    rng, links = random.Random(3), set[tuple[str, str]]()
    with wukongs.Engine(rules=PREFIX + NEAR) as engine:
        for step in range(150):
            one = f"n{rng.randrange(5)}", f"n{rng.randrange(5)}"
            kind = "DELETE" if rng.random() < 0.4 else "INSERT"
            sealing(step % 2 == 1)
            try:
                engine.update(f"{PREFIX}{kind} DATA {{ :{one[0]} :near :{one[1]} }}")
            except MemoryError:
                assert step % 2 == 1
            else:
                links = links | {one} if kind == "INSERT" else links - {one}
            sealing(False)
            assert pairs(engine) == closure(links), step


@pytest.mark.parametrize("drops", [False, True])
def test_rules_that_were_changed_and_whose_conclusions_were_not_stored(
    sealing: Callable[[bool], None], drops: bool
) -> None:
    """The next change brings what follows by the rules that there are now."""
    with wukongs.Engine(rules=PREFIX + NEAR + (KNOWN if drops else "")) as engine:
        engine.update(f"{PREFIX} INSERT DATA {{ :a :near :b . :b :near :c }}")
        sealing(True)
        change, given = (engine.drop_rules, "known") if drops else (engine.add_rules, PREFIX + KNOWN)
        with pytest.raises(MemoryError):
            change(given)
        sealing(False)
        engine.update(f"{PREFIX} INSERT DATA {{ :c :near :d }}")
        known = {row[0] for row in engine.query(PREFIX + "SELECT ?x { ?x :known :yes }").texts()}
        is_there = "known" in {rule.name for rule in engine.rules()}
        assert known == ({f"<http://ex/{name}>" for name in "abc"} if is_there else set())
        assert pairs(engine) == closure({("a", "b"), ("b", "c"), ("c", "d")})
