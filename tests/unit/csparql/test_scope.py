"""Static facts about patterns: certain and possible variables, substitution, graphs that a solution rests on."""

from __future__ import annotations

import pytest

from csparql.algebra import DEFAULT, Aggregate, Call, Distinct, Group, Node, OrderBy, Project, Slice
from csparql.parser import parse_query
from csparql.scope import (
    always_matches_in,
    certain_variables,
    expression_variables,
    possible_variables,
    substitute,
)
from csparql.terms import Variable, iri

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
    assert substitute(expression, {A: C}) == Call("&&", (Call("BOUND", (C,)), Call("=", (B, iri("x")))))


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
    assert not always_matches_in(Distinct(pattern_of("{ ?a <p> ?b }")), DEFAULT)
