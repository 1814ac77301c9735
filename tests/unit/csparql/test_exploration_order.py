"""The order in which the parts of a chain of joins are explored."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.unit.csparql.counted_triples import CountedTriples, Triple
from wukongs.csparql.algebra import GraphRef, Join, Node, Project
from wukongs.csparql.cardinality import Direction
from wukongs.csparql.explain import explain
from wukongs.csparql.exploration_order import explorable_operands, exploration_order, exploration_parts, is_explorable
from wukongs.csparql.parser import parse_query
from wukongs.csparql.paths import format_path
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.rules import rewrite
from wukongs.csparql.scope import NO_VARIABLES, possible_variables
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.walk import join_operands


def network() -> CountedTriples:
    """1,000 people in a ring of friends; one of them is named Ann, all have an age."""

    def triple(subject: str, predicate: str, object_: str) -> Triple:
        return f"<{subject}>", f"<{predicate}>", object_

    people = [triple(f"u{i}", "knows", f"<u{(i + k) % 1000}>") for i in range(1000) for k in (1, 7)]
    people += [triple(f"u{i}", "age", f'"{i % 90}"') for i in range(1000)]
    people += [triple("u5", "name", '"Ann"'), triple("u6", "city", "<x>")]
    return CountedTriples.of_default(people)


SIZES = network()


def operands(text: str) -> tuple[Node, ...]:
    pattern = rewrite(parse_query(f"SELECT * {{ {text} }}")).pattern
    assert isinstance(pattern, Project)
    return tuple(join_operands(pattern.pattern))


def order(text: str) -> list[str]:
    """The first predicate of each part, in the order of exploration."""
    parts = exploration_parts(operands(text), NO_VARIABLES)
    return [first_predicate(part) for part in exploration_order(parts, NO_VARIABLES, 1.0, SIZES)]


def first_predicate(node: Node) -> str:
    if hasattr(node, "patterns"):
        return str(node.patterns[0].predicate)
    return format_path(node.path) if hasattr(node, "path") else type(node).__name__


def test_triple_patterns_that_share_no_variable_come_apart_with_their_filters() -> None:
    text = "?x <age> ?n . ?x <knows>+ ?y . ?y <age> ?a FILTER(?a > 5 && ?n != 'Bob' && ?n < 'C')"
    parts = exploration_parts(operands(text), NO_VARIABLES)
    bgps = [found for part in parts if (found := FilteredBgp.of(part)) is not None]
    assert [(len(each.bgp.patterns), len(each.filters)) for each in bgps] == [(1, 2), (1, 1)]
    steps = [
        float(rows) for rows in re.findall(r"~(\S+) rows", explain(rewrite(parse_query(f"ASK {{ {text} }}")), SIZES))
    ]
    assert max(steps) < 100_000, "no product of ages and ages"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("?x <name> 'Ann' . ?x <knows>+ ?y", ["<name>", "<knows>+"]),
        ("?x <knows>+ ?y . ?y <name> 'Ann'", ["<name>", "<knows>+"]),
        ("?x <age> ?a . <u1> <knows>+ ?x", ["<knows>+", "<age>"]),
        ("?x <name> 'Ann' . ?x <knows>+ ?y . ?y <age> ?a", ["<name>", "<knows>+", "<age>"]),
        ("?x <name> 'Ann' . ?y <city> <x> . ?x <knows>+ ?y", ["<city>", "<name>", "<knows>+"]),
        ("?x <knows>* ?y . ?z <city> ?x", ["<city>", "<knows>*"]),
        ("?x (<knows>|<name>) ?y . ?x <name> 'Ann'", ["<name>", "Union"]),
    ],
)
def test_the_part_that_leaves_least_comes_first(text: str, expected: list[str]) -> None:
    found = order(text)
    assert sorted(found) == sorted(expected)
    assert found == expected or {found[0], expected[0]} <= {"<name>", "<city>"}


def test_triple_patterns_alone_stay_together() -> None:
    (bgp,) = operands("?x <name> ?n . ?y <city> ?c")
    assert exploration_parts((bgp,), NO_VARIABLES) == (bgp,)


def test_triple_patterns_beside_a_path_are_split_where_they_share_nothing() -> None:
    parts = exploration_parts(operands("?x <name> ?n . ?y <city> ?c . ?x <age> ?a . ?x <knows>+ ?y"), NO_VARIABLES)
    assert sorted(len(getattr(part, "patterns", ())) for part in parts) == [0, 1, 2]
    assert not possible_variables(parts[0]) & possible_variables(parts[1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{ ?x <p>+ ?y }", True),
        ("{ ?x <p>+ ?y FILTER(?x != ?y) }", True),
        ("{ ?x <p>+ ?y FILTER(?x != ?z) }", False),
        ("{ ?x <p> ?y } UNION { ?x <q>* ?y }", True),
        ("{ ?x <p> ?y } UNION { ?x <q>* ?y OPTIONAL { ?y <r> ?z } }", False),
        ("{ ?x <p>+ ?y FILTER EXISTS { ?x <q> ?z } }", False),
        ("{ ?x <p> ?y BIND(1 AS ?d) }", True),
        ("{ ?x <p> ?y BIND(?y + 1 AS ?d) BIND(?d * 2 AS ?e) FILTER(?e > 3) }", True),
        ("{ { ?x <p> ?y BIND(1 AS ?d) } UNION { ?x <q> ?d } }", True),
        ("{ ?x <p> ?y BIND(?c AS ?d) }", False),  # ?c is not in scope there
        ("{ ?x <p> ?y BIND(1 AS ?c) }", False),  # compared with the ?c of the rows
        ("{ ?x <p> ?y BIND(RAND() AS ?d) }", False),
        ("{ ?x <p> ?y BIND(BNODE('b') AS ?d) }", False),
        ("{ ?x <p> ?y BIND(EXISTS { ?y <q> ?z } AS ?d) }", False),
        ("{ { ?x <p> ?y BIND(1 AS ?d) } { ?y <q> ?d } }", False),
        ("{ { ?x <p> ?y } UNION { ?x <q> ?z } BIND(?z AS ?d) }", False),
    ],
)
def test_what_can_be_explored_from_rows(text: str, expected: bool) -> None:
    pattern = parse_query(f"SELECT * {{ ?a <b> ?c {text} }}").pattern
    assert isinstance(pattern, Project)
    assert isinstance(pattern.pattern, Join)
    left, right = pattern.pattern.left, pattern.pattern.right
    assert is_explorable(right, possible_variables(left)) is expected
    assert (right in explorable_operands((left, right))) is expected


class CountingSizes:
    """The same sizes for every predicate, and how often they were asked for. Only <first> has few triples."""

    asked = 0

    def edges(self, graph: GraphRef, predicate: Term | None) -> float:
        self.asked += 1
        return 5.0 if predicate == Term("<first>") else 1000.0

    def keys(self, graph: GraphRef, predicate: Term | None, direction: Direction) -> float:
        return 5.0 if predicate == Term("<first>") else 500.0

    def degree(self, graph: GraphRef, predicate: Term | None, direction: Direction, vertex: Term) -> float:
        return 2.0


def test_a_hundred_mixed_parts_are_walked_along_and_seldom_estimated_anew() -> None:
    kinds = "?x{0} <p>+ ?x{1}", "{{ ?x{0} <a> ?x{1} }} UNION {{ ?x{0} <b> ?x{1} }}", "?x{0} <c> ?x{1} . ?x{0} <d> ?y{0}"
    chain = [kinds[at % 3].format(at, at + 1) for at in range(100)]
    shuffled = [chain[at * 37 % 100] for at in range(100)]
    sizes = CountingSizes()
    found = operands(f"{{ {' . '.join(shuffled)} . ?x0 <first> ?x }}")
    parts = exploration_parts(found, NO_VARIABLES)
    ordered = exploration_order(parts, NO_VARIABLES, 1.0, sizes)
    assert Counter(map(id, ordered)) == Counter(map(id, parts))
    bound: frozenset[Variable] = possible_variables(ordered[0])
    for part in ordered[1:]:
        assert possible_variables(part) & bound, "a product with all that is still to come"
        bound |= possible_variables(part)
    assert sizes.asked < 2000, "it was 13,799 when every part was estimated anew at each turn"
