"""Engine.why: trees of rules and triples, down to what is explicit."""

from __future__ import annotations

from typing import Any

import pytest

import wukongs
from wukongs.rules.derivation import Derivation, Explanation, Fact

EX = "http://ex/"
RULES = f"""PREFIX : <{EX}>
RULE parents: CONSTRUCT {{ ?x :ancestor ?y }} WHERE {{ ?x :parent ?y }}
RULE ancestors: CONSTRUCT {{ ?x :ancestor ?z }} WHERE {{ ?x :ancestor ?y . ?y :parent ?z }}
RULE count: CONSTRUCT {{ ?x :ancestors ?n }}
WHERE {{ SELECT ?x (COUNT(?y) AS ?n) WHERE {{ ?x :ancestor ?y }} GROUP BY ?x }}
RULE root: CONSTRUCT {{ ?x a :Root }} WHERE {{ ?y :ancestor ?x FILTER NOT EXISTS {{ ?x :parent ?z }} }}
"""


def node(name: object) -> str:
    return f"<{EX}{name}>"


def chain(engine: wukongs.Engine, count: int) -> None:
    lines = "".join(f"{node(at)} {node('parent')} {node(at + 1)} .\n" for at in range(count))
    engine.update(f"INSERT DATA {{ {lines} }}")


def why(engine: wukongs.Engine, subject: object, predicate: str, object_: object) -> Derivation:
    found = engine.why((node(subject), node(predicate), node(object_)))
    assert found is not None
    return found


def test_a_tree_goes_down_to_explicit_triples() -> None:
    with wukongs.Engine(rules=RULES) as engine:
        chain(engine, 3)
        found = why(engine, 0, "ancestor", 3)
        assert (found.rule, found.is_explicit, found.graph, found.sn) == ("ancestors", False, None, 2)
        assert str(found).replace(EX, "") == (
            "<0> <ancestor> <3>   by rule ancestors\n"
            "  <0> <ancestor> <2>   by rule ancestors\n"
            "    <0> <ancestor> <1>   by rule parents\n"
            "      <0> <parent> <1>   explicit\n"
            "    <1> <parent> <2>   explicit\n"
            "  <2> <parent> <3>   explicit"
        )


def test_an_explicit_triple_rests_on_nothing_also_if_it_follows() -> None:
    with wukongs.Engine(rules=RULES) as engine:
        chain(engine, 2)
        engine.update(f"INSERT DATA {{ {node(0)} {node('ancestor')} {node(2)} }}")
        found = why(engine, 0, "ancestor", 2)
        assert (found.is_explicit, found.parts) == (True, ())


def test_in_a_circle_nothing_rests_on_itself() -> None:
    with wukongs.Engine(rules=RULES) as engine:
        chain(engine, 3)
        engine.update(f"INSERT DATA {{ {node(3)} {node('parent')} {node(0)} }}")
        above = [(found := why(engine, 0, "ancestor", 0)).triple]
        while found.parts:
            found = found.parts[0]
            assert found.triple not in above
            above.append(found.triple)
        assert found.is_explicit


def test_a_group_names_some_of_what_it_has_counted() -> None:
    with wukongs.Engine(rules=RULES) as engine:
        chain(engine, 20)
        found = engine.why((node(0), node("ancestors"), 20))
        assert found is not None
        assert (found.rule, len(found.parts), found.more) == ("count", 12, 8)
        assert str(found).endswith("\n  and 8 more")
        assert engine.why((node(0), node("ancestors"), 19)) is None


def test_a_count_rests_on_its_own_group() -> None:
    rules = f"""PREFIX : <{EX}> RULE yearly: CONSTRUCT {{ ?x :count ?n }}
        WHERE {{ SELECT ?x ?year (COUNT(?y) AS ?n) WHERE {{ ?x :has ?y . ?y :when ?date BIND(?date / 10 AS ?year) }}
                 GROUP BY ?x ?year }}"""
    with wukongs.Engine(rules=rules) as engine:
        engine.update(f"PREFIX : <{EX}> INSERT DATA {{ :a :has :b, :c, :d . :b :when 10 . :c :when 20 . :d :when 20 }}")
        for count, members in ((1, "b"), (2, "cd")):
            found = engine.why((node("a"), node("count"), count))
            assert found is not None
            assert sorted(part.triple[0 if part.triple[0] != node("a") else 2] for part in found.parts) == [
                node(name) for name in members for _ in range(2)
            ]


def test_absence_is_no_part() -> None:
    with wukongs.Engine(rules=RULES) as engine:
        chain(engine, 1)
        found = engine.why((node(1), "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>", node("Root")))
        assert found is not None
        assert [part.triple for part in found.parts] == [(node(0), node("ancestor"), node(1))]


@pytest.mark.slow
def test_a_deep_tree_is_shown_and_sent_whole() -> None:
    with wukongs.Engine(rules=RULES) as engine:
        chain(engine, 1200)
        found = why(engine, 0, "ancestor", 1200)
        assert len(str(found).splitlines()) == 2400
        again = Derivation.of_json(found.as_json())
        assert str(again) == str(found)


def test_of_a_named_graph() -> None:
    with wukongs.Engine() as engine:
        engine.add_rules(RULES, into=EX + "g")
        engine.update(f"INSERT DATA {{ GRAPH {node('g')} {{ {node(0)} {node('parent')} {node(1)} }} }}")
        found = engine.why((node(0), node("ancestor"), node(1)), EX + "g")
        assert found is not None
        assert str(found).replace(EX, "").splitlines()[0] == "<0> <ancestor> <1> in <g>   by rule parents"
        assert engine.why((node(0), node("ancestor"), node(1))) is None


@pytest.mark.parametrize("triple", ["abc", (1, 2), ("a", "b", "c")])
def test_what_is_no_triple_is_refused(triple: object) -> None:
    with wukongs.Engine() as engine, pytest.raises(wukongs.DataError):
        engine.why(triple)  # type: ignore[arg-type]


def test_each_step_is_looked_at_once_for_each_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many levels lie between a triple and explicit ones."""
    looks, right = list[Fact](), Explanation._wait

    def wait(self: Explanation, fact: Fact, step: Any) -> None:
        looks.append(fact)
        right(self, fact, step)

    monkeypatch.setattr(Explanation, "_wait", wait)
    with wukongs.Engine(rules=RULES) as engine:
        chain(engine, 100)
        assert why(engine, 0, "ancestor", 100).rule == "ancestors"
    steps = 100  # of <0> <ancestor> <n>, with two parts each but one
    assert steps < len(looks) <= 3 * steps


def test_other_ways_to_what_is_proven_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A triple has an explicit reason, and a long one beside, while another part of the same step is still open."""
    asked, right = list[Fact](), Explanation._ways_to
    monkeypatch.setattr(Explanation, "_ways_to", lambda self, facts: [asked.extend(facts), right(self, facts)][1])
    more = f"""PREFIX : <{EX}>
RULE near: CONSTRUCT {{ ?x :near ?y }} WHERE {{ ?x :beside ?y }}
RULE far: CONSTRUCT {{ ?x :near ?y }} WHERE {{ ?x :beside ?y . ?z :of ?x . ?z :ancestor ?u }}
RULE both: CONSTRUCT {{ ?x :both ?y }} WHERE {{ ?x :near ?y . ?x :ancestor ?y }}
"""
    with wukongs.Engine(rules=RULES + more.partition("\n")[2]) as engine:
        chain(engine, 10)
        lines = "".join(f"{node(f'z{at}')} {node('parent')} {node(f'z{at + 1}')} .\n" for at in range(20))
        lines += f"{node(0)} {node('beside')} {node(10)} . {node('z0')} {node('of')} {node(0)}"
        engine.update(f"INSERT DATA {{ {lines} }}")
        assert [part.rule for part in why(engine, 0, "both", 10).parts] == ["near", "ancestors"]
    assert len(asked) == 12  # both, near, and ten of ancestor
