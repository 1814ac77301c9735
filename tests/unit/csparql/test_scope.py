"""Static facts about patterns: certain and possible variables, graphs that a solution rests on."""

from __future__ import annotations

import pytest

from wukongs.csparql.algebra import (
    DEFAULT,
    Aggregate,
    Bgp,
    Call,
    Distinct,
    Exists,
    Filter,
    Group,
    Join,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Slice,
    TriplePattern,
    Values,
)
from wukongs.csparql.parser import parse_query
from wukongs.csparql.paths import OneOrMore, ZeroOrMore
from wukongs.csparql.scope import (
    always_matches_in,
    certain_variables,
    exists_patterns,
    expression_variables,
    mentioned_variables,
    possible_variables,
)
from wukongs.csparql.terms import Variable, iri

A, B, C = Variable("a"), Variable("b"), Variable("c")


def pattern_of(group: str) -> Node:
    return parse_query(f"ASK {group}").pattern


def names(variables: frozenset[Variable]) -> str:
    return "".join(sorted(variable.name for variable in variables))


@pytest.mark.parametrize(
    ("group", "certain", "possible"),
    [
        ("{}", "", ""),
        ("{ ?a <p> ?b }", "ab", "ab"),
        ("{ GRAPH ?g { ?a ?b 1 } }", "abg", "abg"),
        ("{ GRAPH ?g {} }", "g", "g"),
        ("{ GRAPH <g> {} }", "", ""),
        ("{ ?a <p> 1 OPTIONAL { ?a <p> ?b } }", "a", "ab"),
        ("{ { ?a <p> ?b } UNION { ?b <p> ?c } }", "b", "abc"),
        ("{ ?a <p> 1 BIND(?b AS ?c) FILTER(?d) }", "a", "ac"),
        ("{ { ?a <p> 1 OPTIONAL { ?a <p> ?b } } ?b <p> ?c }", "abc", "abc"),
    ],
)
def test_variables_of_groups(group: str, certain: str, possible: str) -> None:
    node = pattern_of(group)
    assert names(certain_variables(node)) == certain
    assert names(possible_variables(node)) == possible
    for around in (Distinct(node), Slice(node, 0, 1), OrderBy(node, ((A, False),))):
        assert names(certain_variables(around)) == certain
        assert names(possible_variables(around)) == possible


def test_variables_of_group_and_project() -> None:
    node = pattern_of("{ ?a <p> ?c OPTIONAL { ?a <p> ?b } }")
    group = Group(node, (A, B), ((Variable("n"), Aggregate("MAX", C)),))
    assert names(certain_variables(group)) == "a"
    assert names(possible_variables(group)) == "abn"
    assert names(certain_variables(Project(node, (A, B)))) == "a"
    assert names(possible_variables(Project(node, (A, B)))) == "ab"


def test_expressions() -> None:
    expression = Call("&&", (Call("BOUND", (A,)), Call("=", (B, iri("x")))))
    assert names(expression_variables(expression)) == "ab"
    assert names(expression_variables(Aggregate("SUM", Call("+", (A, C))))) == "ac"
    assert expression_variables(Aggregate("COUNT", None)) == frozenset()


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("{ GRAPH <g> { ?a <p> ?b } ?b <p> ?c }", True),
        ("{ GRAPH <h> { ?a <p> ?b } }", False),
        ("{ GRAPH <g> {} }", True),
        ("{ { GRAPH <g> {} } UNION { GRAPH <g> {} FILTER(?a) } }", True),
        ("{ { GRAPH <g> {} } UNION { GRAPH <h> {} } }", False),
        ("{ GRAPH <g> {} OPTIONAL { ?a <p> ?b } }", True),
        ("{ OPTIONAL { GRAPH <g> {} } }", False),
        ("{ OPTIONAL { ?a <p> ?b } GRAPH <g> { ?a <p> ?b } BIND(1 AS ?c) }", True),
    ],
)
def test_graphs_that_solutions_rest_on(group: str, expected: bool) -> None:
    assert always_matches_in(pattern_of(group), iri("g")) is expected
    assert always_matches_in(Distinct(pattern_of("{ ?a <p> ?b }")), DEFAULT)


P, X = iri("p"), iri("x")
AB = Bgp((TriplePattern(A, P, B),))
BC = Bgp((TriplePattern(B, P, C),))


@pytest.mark.parametrize(
    ("node", "certain", "possible", "mentioned"),
    [
        (Minus(AB, BC), "ab", "ab", "abc"),
        (Values((A, B), ((P, None), (P, X))), "a", "ab", "ab"),
        (Values((A,), ()), "", "a", "a"),
        (PathPattern(A, OneOrMore(P), X, C), "ac", "ac", "ac"),
        (PerGraph(C, AB), "abc", "abc", "abc"),
        (Filter(Exists(BC), AB), "ab", "ab", "abc"),
        (Project(Join(AB, BC), (A,)), "a", "a", "abc"),
        (Group(AB, (A,), ((C, Aggregate("MAX", B)),)), "a", "ac", "abc"),
    ],
)
def test_variables_of_nodes(node: Node, certain: str, possible: str, mentioned: str) -> None:
    assert names(certain_variables(node)) == certain
    assert names(possible_variables(node)) == possible
    assert names(mentioned_variables(node)) == mentioned


def test_expressions_with_exists() -> None:
    both = Call("&&", (A, Call("!", (Exists(BC, negated=True),))))
    assert names(expression_variables(both)) == "abc"
    assert names(expression_variables(both, within_exists=False)) == "a"
    assert exists_patterns(both) == (Exists(BC, negated=True),)


def test_what_rests_on_a_graph() -> None:
    here = Bgp((TriplePattern(A, P, B, C),))
    assert always_matches_in(Minus(here, AB), C)
    assert not always_matches_in(Minus(AB, here), C)
    assert always_matches_in(Project(here, (A, C)), C)
    assert not always_matches_in(Project(here, (A,)), C)
    assert always_matches_in(PathPattern(A, OneOrMore(P), B, C), C)
    assert not always_matches_in(PathPattern(A, ZeroOrMore(P), B, C), C)
    assert not always_matches_in(Group(here, (), ()), C)
