"""Walks over the algebra: which parts they reach, which they change, and which they leave alone."""

from __future__ import annotations

from wukongs.csparql.algebra import (
    Aggregate,
    Bgp,
    Call,
    Exists,
    Extend,
    Filter,
    Group,
    LeftJoin,
    Node,
    OrderBy,
    TriplePattern,
    Values,
)
from wukongs.csparql.scope import mentioned_variables, possible_variables
from wukongs.csparql.terms import Variable, iri
from wukongs.csparql.walk import map_children, replaced, substitute

A, B, C = Variable("a"), Variable("b"), Variable("c")
AB = Bgp((TriplePattern(A, iri("p"), B),))
BC = Bgp((TriplePattern(B, iri("p"), C),))


def test_variables_are_put_in_the_place_of_others() -> None:
    both = Call("&&", (Call("BOUND", (A,)), Call("=", (B, iri("x")))))
    assert substitute(both, {A: C}) == Call("&&", (Call("BOUND", (C,)), Call("=", (B, iri("x")))))
    assert substitute(both, {A: B, B: A}) == Call("&&", (Call("BOUND", (B,)), Call("=", (A, iri("x")))))


def test_the_patterns_of_exists_keep_their_variables() -> None:
    both = Call("&&", (A, Call("!", (Exists(BC, negated=True),))))
    assert substitute(both, {A: C, B: A}) == Call("&&", (C, Call("!", (Exists(BC, negated=True),))))


def test_a_variable_is_replaced_in_all_parts_of_a_pattern() -> None:
    node = Filter(Exists(AB), LeftJoin(BC, Values((A, B), ((iri("x"), None),)), Call("BOUND", (B,))))
    new = Variable("new")
    changed = replaced(node, {B: new})
    assert mentioned_variables(changed) == {A, C, new}
    assert replaced(changed, {new: B}) == node


def test_rules_reach_the_patterns_of_exists() -> None:
    counted = Aggregate("COUNT", Exists(AB))
    for node in (
        Filter(Exists(AB), BC),
        Extend(BC, A, Call("IF", (Exists(AB), A, B))),
        LeftJoin(BC, BC, Exists(AB)),
        OrderBy(BC, ((Exists(AB), True),)),
        Group(BC, (), ((A, counted),)),
    ):
        seen: list[Node] = []
        changed = map_children(node, lambda child, seen=seen: seen.append(child) or AB)  # type: ignore[misc]
        assert seen == ([AB, BC, BC] if isinstance(node, LeftJoin) else [AB, BC])
        assert mentioned_variables(changed) == {A, B} | possible_variables(changed)
