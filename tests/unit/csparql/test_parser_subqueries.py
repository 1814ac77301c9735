"""Subqueries, MINUS, VALUES, EXISTS and DESCRIBE in the algebra: scopes, names, and what the grammar forbids."""

from __future__ import annotations

import pytest

from tests.unit.csparql.algebra_text import algebra_of
from wukongs.csparql.algebra import Bgp, Exists, Filter, Join, Minus, Project, TriplePattern, Values
from wukongs.csparql.parser import parse_query
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import XSD, Variable, iri, literal
from wukongs.errors import QuerySyntaxError

ONE, TWO = literal("1", XSD + "integer"), literal("2", XSD + "integer")


def names_in(text: str) -> list[str]:
    """The variables that a query's pattern may bind, sorted."""
    return sorted(variable.name for variable in possible_variables(parse_query(text).pattern))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{ ?a <A> ?b { SELECT ?b { ?b <B> ?c } } }", "([A] * project(?b, [B]))"),
        ("{ SELECT * { ?b <B> ?c } }", "project(?b ?c, [B])"),
        ("{ { SELECT DISTINCT ?b { ?b <B> ?c } LIMIT 2 } }", "slice(distinct(project(?b, [B])))"),
        ("{ { SELECT ?b { ?b <B> ?c } VALUES ?b { 1 } } }", "project(?b, ([B] * values(?b: 1)))"),
        (
            "{ { SELECT ?b (COUNT(*) AS ?n) { ?b <B> ?c } GROUP BY ?b VALUES ?b { 1 } } }",
            "project(?b ?n, extend(?n=?.agg1, (group(?b, [B]) * values(?b: 1))))",
        ),
        ("{ ?a <A> ?b MINUS { ?b <B> ?c } ?c <C> ?d }", "(([A] - [B]) * [C])"),
        ("{ MINUS { ?b <B> ?c } }", "([] - [B])"),
        ("{ VALUES ?x { 1 2 } ?x <A> ?y }", "(values(?x: 2) * [A])"),
        ("{ ?a <A> ?b FILTER NOT EXISTS { ?b <B> ?c } ?b <C> ?d }", "filter(NOT EXISTS {[B]}, [A C])"),
    ],
)
def test_algebra(text: str, expected: str) -> None:
    assert algebra_of(text) == expected


def test_a_subquery_has_its_own_variables() -> None:
    (left, right) = _joined("ASK { ?a <A> ?b { SELECT ?b { ?b <B> ?a } } }")
    assert left == Bgp((TriplePattern(Variable("a"), iri("A"), Variable("b")),))
    inner = Bgp((TriplePattern(Variable("b"), iri("B"), Variable("a.1")),))
    assert right == Project(inner, (Variable("b"),))


def test_names_of_nested_subqueries() -> None:
    text = "SELECT * { ?a <A> ?b { SELECT ?b { ?b <B> ?a { SELECT ?a ?c { ?a <C> ?c . ?c <D> ?b } } } } }"
    pattern = parse_query(text).pattern
    assert [variable.name for variable in possible_variables(pattern)] == ["b", "a"] or names_in(text) == ["a", "b"]
    shown = str(pattern)
    assert all(f"name='{name}'" in shown for name in ("a.1", "b.2", "c.1"))


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("SELECT * { ?a <A> ?b MINUS { ?a <A> ?c } }", ("a", "b")),
        ("SELECT * { ?a <A> ?b FILTER EXISTS { ?a <A> ?c } }", ("a", "b")),
        ("SELECT * { { SELECT ?a (1 AS ?n) { ?a <A> ?b } } }", ("a", "n")),
        ("SELECT * { { SELECT * { ?a <A> ?b } } }", ("a", "b")),
        ("SELECT * { VALUES (?x ?y) { (1 UNDEF) } }", ("x", "y")),
        ("SELECT * { ?a <A> ?b } VALUES ?z { 1 }", ("a", "b", "z")),
        ("SELECT * { GRAPH ?g { SELECT ?a { ?a <A> ?b } } }", ("g", "a")),
    ],
)
def test_what_a_star_stands_for(text: str, variables: tuple[str, ...]) -> None:
    assert parse_query(text).variables == variables


def test_values() -> None:
    pattern = parse_query("ASK { VALUES (?x ?y) { (1 UNDEF) (<a> -2.5) ('b'@EN true) } }").pattern
    assert pattern == Values(
        (Variable("x"), Variable("y")),
        (
            (ONE, None),
            (iri("a"), literal("-2.5", XSD + "decimal")),
            (literal("b", language="en"), literal("true", XSD + "boolean")),
        ),
    )
    assert parse_query("ASK { VALUES ?x { } }").pattern == Values((Variable("x"),), ())
    assert parse_query("ASK { VALUES () { () () } }").pattern == Values((), ((), ()))
    values = Values((Variable("z"),), ((TWO,),))
    assert parse_query("ASK { ?a <A> ?b } VALUES ?z { 2 }").pattern == Join(_bgp(), values)


def test_exists_inside_of_expressions() -> None:
    pattern = parse_query("ASK { ?a <A> ?b FILTER(EXISTS { ?b <B> 1 } || ! NOT EXISTS { MINUS { } }) }").pattern
    assert isinstance(pattern, Filter)
    shown = str(pattern.condition)
    assert shown.count("Exists(") == 2
    assert Exists(Minus(Bgp(()), Bgp(())), negated=True) in _parts(pattern.condition)


def test_describe() -> None:
    query = parse_query("DESCRIBE <x> ?a <x> FROM <g> { ?a <A> ?b }")
    assert (query.form, query.described, query.dataset.default_graphs) == (
        "describe",
        (iri("x"), Variable("a")),
        ("g",),
    )
    assert parse_query("DESCRIBE * { ?a <A> ?b . ?b <B> [] }").described == (Variable("a"), Variable("b"))
    assert parse_query("DESCRIBE <x>").pattern == Bgp(())
    assert parse_query("DESCRIBE *").described == ()
    assert parse_query("DESCRIBE ?a { ?a <A> ?b } ORDER BY ?b LIMIT 1").described == (Variable("a"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ASK { VALUES (?x ?y) { (1) } }", "column 24: expected 2 values, one for each variable of VALUES, found 1"),
        ("ASK { VALUES ?x { (1) } }", "column 19: expected an IRI, a literal or UNDEF, or '}', found '('"),
        ("ASK { VALUES (?x) { 1 } }", "column 21: expected '(' and a row of values, or '}', found '1'"),
        ("ASK { VALUES ?x { ?y } }", "column 19: expected an IRI, a literal or UNDEF, or '}', found '?y'"),
        ("ASK { VALUES ?x { _:y } }", "column 19: expected an IRI, a literal or UNDEF, or '}', found '_:y'"),
        ("ASK { VALUES (?x ?x) { } }", "column 18: expected a variable that VALUES does not have yet"),
        ("ASK { VALUES x { } }", "column 14: expected a variable, or variables in parentheses, after VALUES"),
        ("ASK { VALUES (1) { } }", "column 15: expected a variable or ')', found '1'"),
        ("ASK { VALUES ?x 1 }", "column 17: expected '{' and the values, found '1'"),
        ("ASK { VALUES (?x) 1 }", "column 19: expected '{' and rows of values, found '1'"),
        ("ASK { VALUES ?x { 1 } BIND(2 AS ?x) }", "column 33: expected a variable after AS that the group has not"),
        ("ASK { { SELECT ?x { } } BIND(2 AS ?x) }", "column 35: expected a variable after AS that the group has not"),
        ("SELECT (1 AS ?x) { { SELECT ?x { } } }", "column 14: expected a variable after AS that is not in use yet"),
        ("SELECT ?x (1 AS ?x) { }", "column 17: expected a variable after AS that is not in use yet"),
        (
            "SELECT (COUNT(*) AS ?n) { } VALUES ?n { 1 }",
            "column 21: expected a variable after AS that is not in use yet",
        ),
        ("ASK { SELECT ?x FROM <g> { } }", "column 17: expected WHERE or '{', found 'FROM'"),
        ("ASK { { SELECT ?x { } ?a <A> ?b } }", "column 23: expected '}' to close the subquery, found '?a'"),
        ("ASK { { SELECT (COUNT(?x) AS ?n) ?x { } } }", "column 34: expected a variable of GROUP BY"),
        ("ASK { MINUS ?a }", "column 13: expected '{', found '?a'"),
        ("ASK { FILTER NOT { } }", "column 14: expected an expression, found 'NOT'"),
        ("ASK { FILTER EXISTS(1) }", "column 20: expected '{', found '('"),
        ("SELECT (EXISTS { FILTER(COUNT(?x) > 1) } AS ?e) { }", "column 25: expected no aggregate here"),
        ("ASK { ?a <A> _:x FILTER EXISTS { ?b <B> _:x } }", "column 41: expected a blank node label that is new"),
        ("DESCRIBE { }", "column 10: expected '*', an IRI or a variable after DESCRIBE"),
        ("DESCRIBE 1", "column 10: expected '*', an IRI or a variable after DESCRIBE, found '1'"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    assert message in str(caught.value)


def test_a_filter_with_exists_does_not_end_a_basic_graph_pattern() -> None:
    """So the label may go on behind it."""
    pattern = parse_query("ASK { ?a <A> _:x FILTER EXISTS { ?a <B> ?b } _:x <C> ?d }").pattern
    assert isinstance(pattern, Filter)
    assert isinstance(pattern.pattern, Bgp)
    assert pattern.pattern.patterns[0].object == pattern.pattern.patterns[1].subject


def test_aggregates_of_a_subquery_are_its_own() -> None:
    query = parse_query("SELECT (MAX(?n) AS ?m) { { SELECT ?a (COUNT(?b) AS ?n) { ?a <A> ?b } GROUP BY ?a } }")
    shown = str(query.pattern)
    assert shown.count("name='COUNT'") == 1
    assert shown.count("name='MAX'") == 1
    assert ".agg1" in shown
    assert ".agg2" in shown


def _bgp() -> Bgp:
    return Bgp((TriplePattern(Variable("a"), iri("A"), Variable("b")),))


def _joined(text: str) -> tuple[object, object]:
    pattern = parse_query(text).pattern
    assert isinstance(pattern, Join)
    return pattern.left, pattern.right


def _parts(expression: object) -> list[object]:
    return [expression, *(part for inner in getattr(expression, "arguments", ()) for part in _parts(inner))]


def test_version_is_read_and_changes_nothing() -> None:
    plain = parse_query("PREFIX : <http://e/> ASK { ?a :p ?b }")
    assert parse_query("VERSION '1.2' PREFIX : <http://e/> VERSION \"1.1\" ASK { ?a :p ?b }") == plain
    for wrong, expected in (("1.2", "a version as a string"), ("'''1.2'''", "between single quotation marks")):
        with pytest.raises(QuerySyntaxError, match=expected):
            parse_query(f"VERSION {wrong} ASK {{}}")
